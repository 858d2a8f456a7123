"""What wrong labels among the examples cost ``evidence``, beside methods that look at one item at a time.

    python -m benchmarks.wrong_labels DATA [--tasks 6] [--sets clinc150-half,glyphs-half]

Some labels of the examples are changed at random. The best of nearest centroid (plain or standardised), SimpleShot,
logistic regression and linear discriminant analysis (shrunk) is the one with the highest mean over the tasks of a
setting: it is chosen with knowledge of the answers.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.measure import show
from manyway import FeatureSet, Tasks, TaskSpec, sample_tasks, solve
from manyway.bench.data import find_features

SETS = (
    "clinc150-half",
    "cub-rn18",
    "glyphs-half",
    "sklearn:digits",
    "sklearn:wine",
    "simulated:measurements",
    "simulated:units",
    "simulated:counts",
)
SHOTS = (5, 20)
PRESENT = (5, None)  # classes; None: all
RATES = (0.0, 0.1, 0.2, 0.4)
MOST_CLASSES = 60
N_ITEMS = 60
FEW_ITEMS = {"sklearn:wine": 25}
SEED = 5
RIVALS: dict[str, ClassifierMixin] = {
    "nearest centroid": NearestCentroid(),
    "nearest centroid, standardised": make_pipeline(StandardScaler(), NearestCentroid()),
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()),
    "LDA": LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
}
SHORT_HEADER = "wrong labels | settings | ahead of the best other | more than 2 below | lowest | of"
HEADER = "features | examples | classes present | wrong labels | evidence | claimed | best other | which | difference"


def mislabelled(tasks: Tasks, rate: float) -> Tasks:
    """The tasks with so many labels changed at random. Every class keeps an example."""
    generator = np.random.default_rng(SEED)
    changed = tasks.support_labels.clone()
    for labels in changed:
        truth = labels.numpy().copy()
        while True:
            wrong = generator.random(len(truth)) < rate
            given = truth.copy()
            given[wrong] = (
                truth[wrong] + generator.integers(1, tasks.n_classes, wrong.sum())
            ) % tasks.n_classes
            if len(np.unique(given)) == tasks.n_classes:
                break
        labels.copy_(torch.as_tensor(given))
    return replace(tasks, support_labels=changed)


def draw(
    features: FeatureSet, name: str, *, shots: int, present: int | None, n_tasks: int
) -> Tasks:
    """Tasks with right labels."""
    n_ways = min(features.n_classes, MOST_CLASSES)
    k_eff = n_ways if present is None else min(present, n_ways)
    spec = TaskSpec(shots=shots, k_eff=k_eff, n_query=FEW_ITEMS.get(name, N_ITEMS), n_ways=n_ways)
    return sample_tasks(features, spec, seed=SEED, count=n_tasks)


def accuracies(tasks: Tasks) -> dict[str, float]:
    """The share of right labels of every rival, in %."""
    truth = tasks.query_labels
    assert truth is not None
    found = {"SimpleShot": float((solve("simpleshot", tasks).labels == truth).double().mean())}
    for name, rival in RIVALS.items():
        right = []
        for task in range(len(tasks)):
            rival.fit(tasks.support[task].numpy(), tasks.support_labels[task].numpy())
            answers: Any = rival.predict(tasks.query[task].numpy())
            right.append(np.mean(answers == truth[task].numpy()))
        found[name] = float(np.mean(right))
    return {name: 100 * share for name, share in found.items()}


def rows(data: Path, sets: list[str], n_tasks: int) -> Iterator[list[object]]:
    """A row per setting."""
    for name in sets:
        features = find_features(name, data).to("cpu", torch.float32)
        for shots in SHOTS:
            for present in PRESENT:
                drawn = draw(features, name, shots=shots, present=present, n_tasks=n_tasks)
                for rate in RATES:
                    tasks = mislabelled(drawn, rate)
                    found = solve("evidence", tasks)
                    right = 100 * float((found.labels == tasks.query_labels).double().mean())
                    claimed = 100 * float(found.probabilities.amax(-1).mean())
                    others = accuracies(tasks)
                    best = max(others, key=lambda one: others[one])
                    where = [name, shots, "all" if present is None else present, f"{rate:.0%}"]
                    difference = f"{right - others[best]:+.1f}"
                    yield [
                        *where,
                        f"{right:.1f}",
                        f"{claimed:.0f}",
                        f"{others[best]:.1f}",
                        best,
                        difference,
                    ]


def by_rate(settings: Sequence[Sequence[str]]) -> Iterator[list[object]]:
    """A row per share of wrong labels: how far evidence is ahead of the best other method, from rows of all."""
    found = [dict(zip(HEADER.split(" | "), row, strict=True)) for row in settings]
    for rate in dict.fromkeys(one["wrong labels"] for one in found):
        some = [one for one in found if one["wrong labels"] == rate]
        differences = [float(one["difference"]) for one in some]
        lowest = some[differences.index(min(differences))]
        where = f"{lowest['features']}, {lowest['examples']} examples, {lowest['classes present']} classes"
        n_below = sum(difference < -2 for difference in differences)
        mean = f"{sum(differences) / len(differences):+.1f}"
        yield [rate, len(some), mean, n_below, lowest["difference"], where]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", type=int, default=6, help="of each setting")
    parser.add_argument("--sets", default=",".join(SETS))
    options = parser.parse_args()
    warnings.filterwarnings("ignore", module="sklearn")
    title = "What wrong labels among the examples cost"
    found = rows(options.data, options.sets.split(","), options.tasks)
    settings = show(title, HEADER.split(" | "), found)
    show(f"{title}, by their share", SHORT_HEADER.split(" | "), by_rate(settings))


if __name__ == "__main__":
    main()
