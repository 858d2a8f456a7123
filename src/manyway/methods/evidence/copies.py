"""Near-copies: items of a burst, or the same item twice. They are no new evidence.

Two items are near-copies where they are nearer to each other than two samples of a class are.
Copies among the examples are dropped before the calibration (``distinct``), and copies among the
queries are counted (``copies``), so that they do not make a class seem more certain.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import Sums, Tasks
from manyway.methods.calibration.distances import distances_between, squared_distances
from manyway.methods.evidence.queries import BatchQueries, Part, sample, sampling_stride
from manyway.methods.evidence.schedule import Schedule

_MOST_COMPARED = 2048  # queries, or classes, that are compared at once
_MOST_PAIRS = 1 << 25  # of examples that are compared: limits memory and time
# The difference of two numbers that are rounded to steps h has the variance h² divided by this.
_ROUNDING = 6


def copies(queries: BatchQueries, one_shot: bool) -> Tensor:
    """[t] how many near-copies queries have on average, themselves included.

    Of many queries some are compared with all: copies may follow each other, or lie far apart.
    """
    placed = sample(queries, sampling_stride(queries.n_query)).placed
    sure = not one_shot and queries.likelihood.calibration is not None
    schedule = queries.parameters.constants
    pair_distance = queries.likelihood.pair_distance(placed)
    limit = copy_distance(pair_distance, placed.shape[-1], schedule, sure)
    near = queries.each(partial(_count_near, placed, limit)).values[0]
    return (near / placed.shape[1]).clamp_min(1)


def _count_near(rows: Tensor, limit: Tensor, part: Part) -> Sums:
    """The work that counts the pairs [t] of a row and a query that are near.

    It takes some queries at a time.
    """
    counts = [
        (squared_distances(some, rows) <= limit).sum((1, 2))
        for some in torch.split(part.coordinates, _MOST_COMPARED, 1)
    ]
    return Sums((torch.stack(counts).sum(0),))


@dataclass(frozen=True, eq=False, kw_only=True)
class KeptExamples:
    """Which examples of tasks are left without near-copies."""

    number: int  # of all examples of a task
    rows: Tensor | None = None  # [1, n] those that are left; None: all

    def of_all(self, values: Tensor) -> Tensor:
        """[t, s] values of all examples, from those [t, …] that begin with those that are left.

        Near-copies that were dropped have 0.
        """
        if self.rows is None:
            return values[:, : self.number]
        rows = self.rows[0]
        every = values.new_zeros(len(values), self.number)
        return every.index_copy(1, rows, values[:, : len(rows)])


class Distinct(NamedTuple):
    """Tasks without near-copies among the examples."""

    tasks: Tasks
    kept: KeptExamples


def distinct(tasks: Tasks, schedule: Schedule) -> Distinct:
    """The task with one example of each group of near-copies in a class."""
    rows = _distinct_rows(tasks, schedule)
    if rows is None:
        return Distinct(tasks, KeptExamples(number=tasks.n_support))
    kept = KeptExamples(number=tasks.n_support, rows=rows[None])
    labels = tasks.support_labels[:, rows]
    support = tasks.support[:, rows]
    return Distinct(tasks.with_rows(support, tasks.query, support_labels=labels), kept)


def _distinct_rows(tasks: Tasks, schedule: Schedule) -> Tensor | None:
    """[n] one example of each group of near-copies in a class; None: there are none.

    A left-out example whose copy stays says that samples of a class hardly differ: answers would be
    too sure, and most queries would seem unknown. Columns are divided by their scale, the half with
    small ones by the middle scale. Different items may be equal, too, where columns have few
    values: the part c of the examples is dropped only where chance gives copies to less than c² of
    them, for chance is a guess, and few copies do little harm. The examples of several tasks stay,
    because they must be as many, and those of more classes or pairs than are soon compared.
    """
    if len(tasks) > 1 or not tasks.n_support:  # known without waiting for a GPU
        return None
    labels = tasks.support_labels[0]
    counts = labels.bincount()
    n_pairs = int(counts.square().sum())
    if len(counts) > _MOST_COMPARED or not len(labels) < n_pairs <= _MOST_PAIRS:
        return None
    rows = _in_units(tasks.support[0].double())
    order = labels.argsort(stable=True)
    of_classes = torch.split(rows[order], counts[counts > 0].tolist())
    distances = [distances_between(some[None])[0] for some in of_classes]
    pairs = torch.cat([one[torch.ones_like(one).tril(-1) > 0] for one in distances])
    near = copy_distance(pairs.mean(), rows.shape[1], schedule).squeeze()
    is_copy = torch.cat([(one <= near).tril(-1).any(1) for one in distances])
    kept = order[~is_copy].sort().values
    dropped = 1 - len(kept) / len(labels)
    if not dropped:
        return None
    if _chance(rows, pairs, near) * len(pairs) >= dropped**2 * len(labels):
        return None
    return kept


def _in_units(rows: Tensor) -> Tensor:
    """[n, d] rows relative to their mean, in units of their columns' scales; see ``distinct``."""
    scale = rows.std(0)
    tiny = torch.finfo(scale.dtype).tiny
    return (rows - rows.mean(0)) / scale.clamp_min(scale.median()).clamp_min(tiny)


def _chance(rows: Tensor, pairs: Tensor, near: Tensor) -> Tensor:
    """The probability that different samples of a class are near-copies.

    From the squared distances of all pairs: they are like those of normal features in n directions,
    1/n = ln mean d² − mean ln d² + 1/pairs, for few pairs say less. Samples that are as near as
    rounding moves them seem equal, at Σ_j h_j²/6 for the least step h_j of a column.
    """
    far = pairs[pairs > near]
    inverse = far.mean().log() - far.log().mean() + 1 / max(len(far), 1)
    half = 0.5 / inverse.clamp_min(1 / rows.shape[1])
    steps = rows.sort(0).values.diff(dim=0)
    least_steps = torch.where(steps > 0, steps, torch.inf).amin(0).nan_to_num(posinf=0)
    rounding = least_steps.square().sum() / _ROUNDING
    return torch.special.gammainc(half, half * torch.maximum(near, rounding) / far.mean())


def copy_distance(
    pair_distance: Tensor,
    n_features: int,
    schedule: Schedule,
    sure: bool = False,
) -> Tensor:
    """[t, 1, 1] the squared distance below which two queries are near-copies.

    It is a part of ``pair_distance`` [t], that of two samples of a class. With few features samples
    are as near by chance, so that the part is smaller: its chance is that of 2 N₀ features (``few_columns``). Where the
    distance of two samples is ``sure`` (no guess from one example per class, and not made by the
    outliers of a table) the part is its square root, so that the frames of a burst are copies.
    """
    exponent = max(0.5 if sure else 1.0, 2 * schedule.few_columns / n_features)
    return (schedule.near_copy**exponent * pair_distance).view(-1, 1, 1)
