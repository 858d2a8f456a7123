"""Features + spec + method → how many queries of each task were labelled right."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import torch

from manyway.core.parallel import side_by_side
from manyway.core.tasks import Tasks
from manyway.data.features import FeatureSet
from manyway.data.sampling import TaskSpec, sample_tasks
from manyway.errors import InputError
from manyway.methods import get_method

# Working memory of a chunk of tasks. It follows from the shapes alone, never from the machine, so that the same
# experiment is cut into the same chunks everywhere and gives the same bits.
_CHUNK_BYTES = {"cpu": 64 * 2**20, "cuda": 12 * 2**30}
_DRAWN_BYTES = 2**25  # of indices; tasks are drawn many chunks at a time, which costs less than chunk by chunk


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Outcome of one method on a stream of tasks."""

    correct: np.ndarray[Any, np.dtype[np.int64]]  # [n_tasks] right answers in each task
    n_query: int
    seconds: float  # spent in the solver, summed over chunks

    @property
    def accuracies(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """[n_tasks] as fractions."""
        return self.correct / self.n_query

    @property
    def accuracy(self) -> float:
        """Mean over tasks, as a fraction."""
        return float(self.correct.mean() / self.n_query)

    @property
    def ci95(self) -> float:
        """Half the width of the 95 % interval of the mean."""
        if len(self.correct) < 2:
            return float("nan")
        return float(1.96 * self.accuracies.std(ddof=1) / sqrt(len(self.correct)))


def evaluate(
    method: str,
    features: FeatureSet,
    spec: TaskSpec,
    n_tasks: int = 10_000,
    seed: int = 0,
    device: torch.device | str | None = None,
    *,
    start: int = 0,
    progress: Callable[[int], None] | None = None,
    **params: Any,
) -> Evaluation:
    """Accuracy of a method on tasks start..start+n_tasks-1 of a stream, chunk by chunk.

    ``device`` is where it runs (None: where the features are). ``progress`` is told how many tasks each finished chunk
    had. Other keywords are the method's parameters. On a CPU the chunks run side by side, one thread each: a task is
    too small to be worth sharing among cores. On a GPU a chunk that does not fit into memory is halved, and those after
    it too.
    """
    if n_tasks < 1:
        raise InputError(f"n_tasks is {n_tasks}; ask for at least one task.")
    solver = get_method(method)
    features = features.to(device=device)
    size = chunk_size(method, features, spec)
    limit = _fitting(size, method, features, spec) if features.features.device.type == "cuda" else size

    def run(tasks: Tasks) -> tuple[np.ndarray[Any, np.dtype[np.int64]], float]:
        nonlocal limit
        if len(tasks) <= limit:
            try:
                return attempt(tasks)
            except torch.cuda.OutOfMemoryError as error:
                if len(tasks) == 1:
                    raise InputError(f"{method} needs more GPU memory than there is for a single task.") from error
            # Here and not inside `except`: the exception keeps the failed attempt's tensors alive.
            torch.cuda.empty_cache()
            limit = (len(tasks) + 1) // 2
        half = (len(tasks) + 1) // 2
        left, right = run(tasks[:half]), run(tasks[half:])
        return np.concatenate([left[0], right[0]]), left[1] + right[1]

    def attempt(tasks: Tasks) -> tuple[np.ndarray[Any, np.dtype[np.int64]], float]:
        begin = _clock(features)
        labels = solver(tasks, **params).labels
        seconds = _clock(features) - begin
        assert tasks.query_labels is not None
        correct = (labels == tasks.query_labels).sum(1).cpu().numpy()
        if progress is not None:
            progress(len(tasks))
        return correct, seconds

    parts = []
    drawn = size * max(1, _DRAWN_BYTES // (8 * size * _samples(features, spec)))  # whole chunks
    for first in range(start, start + n_tasks, drawn):
        tasks = sample_tasks(features, spec, seed, first, min(drawn, start + n_tasks - first))
        chunks = [tasks[place : place + size] for place in range(0, len(tasks), size)]
        parts += side_by_side(run, chunks) if features.features.device.type == "cpu" else list(map(run, chunks))
    return Evaluation(np.concatenate([part[0] for part in parts]), spec.n_query, sum(part[1] for part in parts))


def chunk_size(method: str, features: FeatureSet, spec: TaskSpec, device: str | None = None) -> int:
    """How many tasks to solve together on that type of device (None: the one the features are on)."""
    kind = features.features.device.type if device is None else torch.device(device).type
    return max(1, _CHUNK_BYTES.get(kind, _CHUNK_BYTES["cpu"]) // _task_bytes(method, features, spec))


def _task_bytes(method: str, features: FeatureSet, spec: TaskSpec) -> int:
    """About what a solver holds of one task: class sums and prototypes, samples, a few [n, k] arrays, one [q, q]."""
    n_ways = features.n_classes if spec.n_ways is None else spec.n_ways
    n_support = _samples(features, spec) - spec.n_query
    samples = spec.n_query + (n_support if get_method(method).holds_support else 0)
    numbers = 2 * (n_ways + samples) * features.features.shape[1] + 4 * samples * n_ways + spec.n_query**2
    return (numbers + 2 * n_support) * features.features.element_size()


def _samples(features: FeatureSet, spec: TaskSpec) -> int:
    """Support and queries of one task."""
    if spec.shots is None:
        return spec.n_query + (0 if features.is_support is None else int(features.is_support.sum()))
    return spec.n_query + spec.shots * (features.n_classes if spec.n_ways is None else spec.n_ways)


def _fitting(size: int, method: str, features: FeatureSet, spec: TaskSpec) -> int:
    """The chunk, halved until it fits into what is free on the GPU; where memory is ample it stays as it is."""
    device = features.features.device
    free, _ = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    while size > 1 and size * _task_bytes(method, features, spec) > free:
        size = (size + 1) // 2
    return size


def _clock(features: FeatureSet) -> float:
    if features.features.device.type == "cuda":
        torch.cuda.synchronize(features.features.device)
    return time.perf_counter()
