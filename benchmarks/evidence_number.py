"""``python -m benchmarks.evidence_number KEY… --data DATA``: is the number of classes right that evidence estimates?

Prints Markdown: of tasks with 5 shots and 75 queries, how many classes occur, how many are estimated to, and in what
part of the tasks that is within two standard deviations (and half a class). Queries come from K_eff classes alike, as
in the paper, or in shares from a Dirichlet distribution: the smaller its parameter, the more classes have few queries.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from manyway import FeatureSet, TaskSpec, sample_tasks, solve
from manyway.bench.data import find_features
from manyway.evaluation import chunk_size

SHARES: dict[str, float | None] = {"alike": None, "Dirichlet(2)": 2.0, "Dirichlet(0.3)": 0.3}


def numbers(features: FeatureSet, spec: TaskSpec, n_tasks: int, seed: int) -> torch.Tensor:
    """[3, n_tasks] how many classes occur, how many are estimated to, and the estimate's standard deviation."""
    size = min(n_tasks, chunk_size("evidence", features, spec))
    found = []
    for first in range(0, n_tasks, size):
        tasks = sample_tasks(features, spec, seed=seed, start=first, count=min(size, n_tasks - first))
        truth = tasks.query_labels
        assert truth is not None
        there = torch.zeros(tasks.n_tasks, tasks.n_classes, device=truth.device).scatter_(1, truth, 1.0).sum(1)
        solution = solve("evidence", tasks)
        found.append(torch.stack([there, solution.n_classes, solution.n_classes_sd]).cpu())
    return torch.cat(found, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keys", nargs="+", help="feature sets: keys in DATA, or glyphs")
    parser.add_argument("--data", type=Path, help="folder with the features")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    print("| features | shares of the classes | K_eff | occur | estimated | within 2 sd |")
    print("|:---|:---|---:|---:|---:|---:|")
    for key in options.keys:
        features = find_features(key, options.data).to(options.device)
        for name, alpha in SHARES.items():
            for k_eff in (5, 10, 20):
                spec = TaskSpec(shots=5, k_eff=k_eff, n_query=75)
                if alpha is not None:
                    spec = replace(spec, sampling="dirichlet", alpha=alpha)
                there, guess, sd = numbers(features, spec, options.tasks, options.seed)
                within = 100 * float(((guess - there).abs() <= 2 * sd + 0.5).float().mean())
                means = f"{there.mean():.1f} | {guess.mean():.1f} | {within:.0f} %"
                print(f"| {key} | {name} | {k_eff} | {means} |", flush=True)


if __name__ == "__main__":
    main()
