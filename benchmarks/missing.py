"""How missing cells change labels: the model of evidence against the mean of the column, on tables of scikit-learn.

    python -m benchmarks.missing

Five examples per class and 60 items, in 32 batches (digits: 16, with three of ten digits present). Cells are missing at
random: of the items, or of examples and items. Every method is `evidence`. Leaving out columns with a gap is no rival:
of 60 rows with 5 % of their cells missing, 95 % of all columns have one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn import datasets

from benchmarks.measure import show
from manyway import Tasks, solve

TABLES: dict[str, Callable[..., Any]] = {
    "wine": datasets.load_wine,
    "breast cancer": datasets.load_breast_cancer,
    "iris": datasets.load_iris,
    "digits": datasets.load_digits,
}
PARTS = (0.05, 0.2, 0.5)
SHOTS = 5
HEADER = "table | missing | in the items: mean filled in | model | in examples and items: mean filled in | model"
N_ITEMS = 60
Array = np.ndarray[Any, Any]


class Batches(NamedTuple):
    """Tasks of one size: examples [t, s, d] and items [t, q, d] with their labels."""

    support: Array
    support_labels: Array
    query: Array
    query_labels: Array


class Score(NamedTuple):
    """In %: right labels, and the mean probability of labels."""

    right: float
    claimed: float

    def __str__(self) -> str:
        return f"{self.right:.1f} / {self.claimed:.1f}"


def draw_batches(name: str) -> Batches:
    """Batches of a table, the same in every run."""
    rows, labels = TABLES[name](return_X_y=True)
    is_wide = name == "digits"
    drawn = []
    for seed in range(16 if is_wide else 32):
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(rows))
        classes = np.unique(labels)
        examples = np.concatenate([order[labels[order] == k][:SHOTS] for k in classes])
        present = rng.choice(classes, 3, replace=False) if is_wide else classes
        rest = order[np.isin(labels[order], present) & ~np.isin(order, examples)][:N_ITEMS]
        drawn.append(Batches(rows[examples], labels[examples], rows[rest], labels[rest]))
    return Batches(*(np.stack(parts) for parts in zip(*drawn, strict=True)))


def with_holes(batches: Batches, part: float, *, examples: bool) -> Batches:
    """The same batches with a part of the cells missing."""
    rng = np.random.default_rng(0)
    query = np.where(rng.random(batches.query.shape) < part, np.nan, batches.query)
    if not examples:
        return batches._replace(query=query)
    support = np.where(rng.random(batches.support.shape) < part, np.nan, batches.support)
    return batches._replace(query=query, support=support)


def mean_filled(batches: Batches) -> Batches:
    """The same with the mean of the column over the examples in each gap."""
    numbers = (~np.isnan(batches.support)).sum(axis=1, keepdims=True)
    means = np.nansum(batches.support, axis=1, keepdims=True) / np.maximum(numbers, 1)
    support = np.where(np.isnan(batches.support), means, batches.support)
    query = np.where(np.isnan(batches.query), means, batches.query)
    return batches._replace(support=support, query=query)


def score(batches: Batches) -> Score:
    """What evidence makes of the batches."""
    tasks = Tasks.from_arrays(batches.support, batches.support_labels, batches.query)
    probabilities = solve("evidence", tasks).probabilities.numpy()
    right = (probabilities.argmax(-1) == batches.query_labels).mean()
    return Score(100 * right, 100 * probabilities.max(-1).mean())


def rows() -> Iterator[list[str]]:
    """A row per table and part of its cells that is missing."""
    for name in TABLES:
        batches = draw_batches(name)
        yield [name, "0 %", str(score(batches)), "", "", ""]
        for part in PARTS:
            cells = []
            for examples in (False, True):
                holed = with_holes(batches, part, examples=examples)
                cells += [str(score(mean_filled(holed))), str(score(holed))]
            yield [name, f"{100 * part:.0f} %", *cells]


if __name__ == "__main__":
    show("Missing cells: right / claimed in %", HEADER.split(" | "), rows())
