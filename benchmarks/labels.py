"""Compare PADDLE's labels with those of the published algorithm in float64.

    python -m benchmarks.labels [FOLDER] [--tasks 10000] [--device cuda]

Tasks are drawn from the embedded letters, and from clinc150 and CUB-200 when FOLDER has their features. Compared are
PADDLE as it runs (on a GPU fused and plain) and, as a yardstick, the published algorithm in float32: where the
iteration is unstable, float32 and float64 differ whatever the implementation. The table counts the labels that differ.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.dense import paddle_dense
from benchmarks.measure import plain, show
from manyway import FeatureSet, Tasks, TaskSpec, sample_tasks, solve
from manyway.sampling.embedded import load_glyphs

NAMES = ("clinc150_minilm_l6.npz", "cub200_mobilenetv2_192px.npz")
_CHUNK = {"cpu": 10, "cuda": 250}


@dataclass
class Difference:
    """The difference between two sets of assignments, accumulated over chunks of tasks."""

    labels: int = 0
    tasks: list[int] = field(default_factory=list)  # with a label that differs
    far: int = 0  # tasks in which a probability differs by more than 1e-5
    largest: float = 0.0

    def add(self, one: Tensor, other: Tensor, first: int = 0) -> None:
        """Compare assignments [t, q, k]; ``first`` is the number of the first task."""
        wrong = one.argmax(-1) != other.argmax(-1)
        apart = (one.double() - other.double()).abs().amax((1, 2))
        self.labels += int(wrong.sum())
        self.tasks += (first + wrong.any(1).nonzero().flatten()).tolist()
        self.far += int((apart > 1e-5).sum())
        self.largest = max(self.largest, float(apart.max()))


def published(tasks: Tasks, dtype: torch.dtype = torch.float64) -> Tensor:
    """[t, q, k] the assignments of the published algorithm."""
    tasks = tasks.to(dtype=dtype)
    return paddle_dense(tasks.support, tasks.support_labels, tasks.query, tasks.n_classes)


def differences(features: FeatureSet, spec: TaskSpec, n_tasks: int) -> dict[tuple[str, str], Difference]:
    """Compare each pair of implementations on tasks 0..n_tasks-1."""
    device = features.features.device.type
    pairs = [("ours", "published"), ("published in float32", "published")]
    if device == "cuda":
        pairs += [("plain", "published"), ("ours", "plain")]
    found = {pair: Difference() for pair in pairs}
    for first in range(0, n_tasks, _CHUNK[device]):
        tasks = sample_tasks(features, spec, start=first, count=min(_CHUNK[device], n_tasks - first))
        answers = {
            "ours": solve("paddle", tasks).probabilities,
            "published": published(tasks),
            "published in float32": published(tasks, torch.float32),
        }
        if device == "cuda":
            with plain():
                answers["plain"] = solve("paddle", tasks).probabilities
        for (one, other), difference in found.items():
            difference.add(answers[one], answers[other], first)
    return found


def sets(folder: Path | None) -> Iterator[tuple[str, FeatureSet]]:
    yield "glyphs", load_glyphs()
    for name in NAMES if folder is not None else ():
        assert folder is not None
        yield name.split("_")[0], FeatureSet.load(folder / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="folder that holds " + " and ".join(NAMES))
    parser.add_argument("--tasks", type=int, default=10_000, help="tasks per feature set (default: 10000)")
    parser.add_argument("--shots", type=int, default=5, help="labelled samples per class (default: 5)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    arguments = parser.parse_args()
    spec = TaskSpec(shots=arguments.shots)

    def rows() -> Iterator[list[object]]:
        for name, features in sets(arguments.folder):
            found = differences(features.to(arguments.device), spec, arguments.tasks)
            for pair, difference in found.items():
                yield [
                    name,
                    features.n_classes,
                    " − ".join(pair),
                    f"{difference.labels} of {arguments.tasks * spec.n_query:,}",
                    ", ".join(map(str, difference.tasks[:5])) or "none",
                    difference.far,
                    f"{difference.largest:.1e}",
                ]

    header = ["features", "K", "compared", "labels that differ", "in tasks", "tasks above 1e-5", "largest"]
    show(f"PADDLE, {arguments.tasks:,} tasks, {arguments.shots} shots, 100 iterations", header, rows())


if __name__ == "__main__":
    main()
