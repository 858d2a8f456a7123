"""What the benchmarks of evidence share: their command lines, tasks chunk by chunk, and the number of classes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from manyway import FeatureSet, Solution, Tasks, TaskSpec, sample_tasks
from manyway.evaluation.evaluator import chunk_size


def arguments(doc: str | None, n_tasks: int = 1000, keys: str = "+") -> argparse.ArgumentParser:
    """Feature sets (``keys``: how many), and on how many tasks to run where."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keys", nargs=keys, help="feature sets: keys in DATA, or glyphs")
    parser.add_argument("--data", type=Path, help="folder with the features")
    parser.add_argument("--tasks", type=int, default=n_tasks)
    parser.add_argument("--device", default="cpu")
    return parser


def add_seed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=2026)


def in_chunks(
    method: str, features: FeatureSet, spec: TaskSpec, n_tasks: int, seed: int
) -> Iterator[tuple[Tasks, Tensor]]:
    """Tasks, as many at once as suit a method, and their labels [t, q]."""
    size = min(n_tasks, chunk_size(method, features, spec))
    for first in range(0, n_tasks, size):
        tasks = sample_tasks(features, spec, seed=seed, start=first, count=min(size, n_tasks - first))
        assert tasks.query_labels is not None
        yield tasks, tasks.query_labels


def class_numbers(solution: Solution, truth: Tensor) -> Tensor:
    """[t, 3] how many classes are estimated to occur, the standard deviation of that, and how many do."""
    there = torch.zeros_like(solution.probabilities[:, 0]).scatter_(1, truth, 1.0).sum(1)
    return torch.stack([solution.n_present, solution.n_present_sd, there], 1).cpu()


def within_two_sd(estimate: Tensor, sd: Tensor, there: Tensor) -> float:
    """In what part of the tasks the estimate is right but for two standard deviations and half a class, in per cent."""
    return 100 * float(((estimate - there).abs() <= 2 * sd + 0.5).float().mean())
