"""Scores of unknown queries on the recorded open-set tasks.

    python -m benchmarks.open_set DATA [--method evidence ...] [--device cuda]

DATA holds ``features/``; the recorded tasks lie beside it, in ``reference/SET_openset.npz``: two thirds of the classes
known, 5 shots, 55 queries of 5 known and 20 of 3 unknown classes. The table has the AUROC of every scorer and of the
own score of the methods named, beside the recorded value where there is one. The exit status is 1 when a recorded
value is missed by more than its tolerance.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.measure import show
from manyway import METHODS, Solution, Tasks, solve
from manyway.bench.data import find_features
from manyway.evaluation.metrics import METRICS
from manyway.evaluation.scorers import SCORERS

TOLERANCE = 0.005
RECORDED = {"nearest-distance": "dist_auroc", "max-probability": "msp_auroc", "oslo": "oslo_auroc"}


@dataclass(frozen=True)
class Row:
    """Means over the recorded tasks of one feature set."""

    features: str
    name: str  # of a scorer, or of a method with its own score
    recorded: float | None
    auroc: float
    fpr95: float
    oscr: float
    accuracy: float  # on the known queries; of the nearest prototypes where a scorer is measured

    @property
    def within(self) -> bool:
        return self.recorded is None or abs(self.auroc - self.recorded) <= TOLERANCE


def compare(data: Path, names: Collection[str] = tuple(SCORERS), device: str = "cpu") -> Iterator[Row]:
    """Measure scorers and methods on the recorded tasks of every set whose features are present."""
    for path in sorted((data.parent / "reference").glob("*_openset.npz")):
        dataset = path.name.removesuffix("_openset.npz")
        with np.load(path) as recorded:
            tasks = recorded_tasks(data, dataset, recorded).to(device)
            nearest = solve("simpleshot", tasks)
            for name in names:
                if name in METHODS:
                    open_set = {"open_set": True} if "open_set" in METHODS[name].parameters else {}
                    found = solve(name, tasks, **open_set)
                else:
                    found = replace(nearest, unknown=SCORERS[name].score(tasks))
                known = RECORDED.get(name)
                yield row(dataset, name, None if known is None else float(recorded[known].mean()), found, tasks)


def recorded_tasks(data: Path, dataset: str, recorded: np.lib.npyio.NpzFile) -> Tasks:
    """The tasks of a recording."""
    features = find_features(dataset, data)
    support, query = (torch.from_numpy(recorded[name]).long() for name in ("support_idx", "query_idx"))
    n_tasks, n_classes, shots = support.shape
    truth = torch.from_numpy(recorded["query_labels"]).long()
    return Tasks(
        features.features,
        support.flatten(1),
        torch.arange(n_classes).repeat_interleave(shots).expand(n_tasks, -1),
        features.features,
        query,
        n_classes,
        truth,
        base_mean=torch.from_numpy(recorded["train_mean"]),
        unknown_labels=torch.where(truth < 0, features.labels[query], -1),
    )


def row(features: str, name: str, recorded: float | None, solution: Solution, tasks: Tasks) -> Row:
    """What is measured of one solution."""
    found = [float(METRICS[metric].measure(solution, tasks).mean()) for metric in ("auroc", "fpr95", "oscr")]
    accuracy = METRICS["accuracy"].measure(solution, tasks) / METRICS["n_query"].measure(solution, tasks)
    return Row(features, name, recorded, *found, float(accuracy.mean()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--method", nargs="*", default=["evidence", "oslo"], choices=list(METHODS))
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    rows = list(compare(options.data, [*SCORERS, *options.method], options.device))
    header = ["features", "score", "AUROC recorded", "AUROC", "FPR at 95 % TPR", "OSCR", "accuracy on the known"]
    shown = (
        [r.features, r.name, "" if r.recorded is None else r.recorded, r.auroc, r.fpr95, r.oscr, r.accuracy]
        for r in rows
    )
    show("Unknown queries on the recorded tasks", header, shown)
    raise SystemExit(0 if all(r.within for r in rows) else 1)


if __name__ == "__main__":
    main()
