"""Near-copies: items of a burst, or the same item twice. They are no new evidence.

Two items are near-copies where they are nearer to each other than two samples of a class are.
Copies among the examples are dropped before the calibration (``distinct``). Queries are compared
before a search (``compare_queries``). Of near-copies one counts in the search, in groups and in a
shift: 30 frames of one item are no 30 reasons for its class. The others are answered by what these
say. How many copies there are says how certain it is that a class occurs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import Joined, Tasks
from manyway.methods.calibration.distances import distances_between, squared_distances
from manyway.methods.evidence.queries import BatchQueries, Part, sample, sampling_stride
from manyway.methods.evidence.schedule import Schedule

_MOST_COMPARED = 2048  # queries, or classes, that are compared at once
_MOST_PAIRS = 1 << 25  # of examples that are compared: limits memory and time
_EQUAL = 1e-5  # squared lengths that differ by less than this part are equal, but for rounding
# The difference of two numbers that are rounded to steps has the variance step² divided by this.
_ROUNDING = 6


@dataclass(frozen=True, eq=False, kw_only=True)
class QueryCopies:
    """Which queries are near-copies of others."""

    number: Tensor  # [t] how many near-copies queries have on average, themselves included
    distinct: Tensor | None  # [t, q] 1 for queries that count, 0 for others; None: all count


def compare_queries(queries: BatchQueries, one_shot: bool) -> QueryCopies:
    """Look for near-copies among the queries.

    Of many queries some are compared with all: copies may follow each other, or lie far apart. Of
    two near-copies the one nearer to the origin of the metric counts, or the first one where both
    are as near, so that the order of the queries decides nothing else. Where log-likelihoods are
    given, there is no such origin, and all count.
    """
    compared = _Compared.of(queries, one_shot)
    is_distinct, n_near = queries.each(partial(_compare, compared)).values
    total = n_near.sum(1)
    if queries.double_sums:
        total = total.double()
    distinct: Tensor | None = is_distinct
    if queries.likelihood.calibration is None or bool((is_distinct == 1).all()):
        distinct = None
    return QueryCopies(number=(total / compared.rows.shape[1]).clamp_min(1), distinct=distinct)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Compared:
    """Queries with which all are compared, and how near copies are."""

    rows: Tensor  # [t, n, d] every so many
    numbers: Tensor  # [n] which these are
    limits: Tensor  # [t, 1, n] the squared distances below which whole rows are near-copies of them

    @staticmethod
    def of(queries: BatchQueries, one_shot: bool) -> _Compared:
        """Evenly spaced queries; with one example per class the limit is lower."""
        stride = sampling_stride(queries.n_query)
        sampled = sample(queries, stride, _hidden)
        rows = sampled.placed
        calibration = queries.likelihood.calibration
        n_columns = torch.tensor(rows.shape[-1], device=rows.device)
        if calibration is not None:
            n_columns = calibration.coordinates.n_varying
        sure = not one_shot and calibration is not None
        schedule = queries.parameters.constants
        pair_distance = queries.likelihood.pair_distance(rows)
        limit = copy_distance(pair_distance, n_columns, schedule, sure)
        return _Compared(
            rows=rows,
            numbers=torch.arange(0, queries.n_query, stride, device=rows.device),
            limits=limit - sampled.values.unsqueeze(1),
        )

    def near(self, queries: Tensor, hidden: Tensor, numbers: Tensor) -> Tensor:
        """[t, b, n] whether some queries [t, b, d] are near-copies of these, or the same.

        ``hidden`` [t, b] is what their missing cells hide of the distance, and ``numbers`` [b] say
        which they are.
        """
        itself = self.numbers == numbers.unsqueeze(-1)
        limits = self.limits - hidden.unsqueeze(-1)
        return (squared_distances(queries, self.rows) <= limits) | itself

    def comes_first(self, queries: Tensor, numbers: Tensor) -> Tensor:
        """[t, b, n] whether these count before some queries [t, b, d] with such numbers [b]."""
        lengths = queries.square().sum(-1).unsqueeze(-1)
        own_lengths = self.rows.square().sum(-1).unsqueeze(1)
        equal = (lengths - own_lengths).abs() <= _EQUAL * own_lengths
        earlier = self.numbers < numbers.unsqueeze(-1)
        return torch.where(equal, earlier, own_lengths < lengths)


def _hidden(part: Part) -> Tensor:
    """[t, b] what missing cells hide of the distances of queries."""
    return part.likelihood.hidden(part.placed)


def _compare(compared: _Compared, part: Part) -> Joined:
    """The work that finds which queries count [t, b], and to how many rows they are near [t, b]."""
    placed = part.coordinates
    numbers = torch.arange(placed.shape[1], device=placed.device) + part.first
    hidden = _hidden(part)
    copies = []
    n_near = []
    for first in range(0, placed.shape[1], _MOST_COMPARED):
        piece = slice(first, first + _MOST_COMPARED)
        rows = placed[:, piece]
        near = compared.near(rows, hidden[:, piece], numbers[piece])
        copies.append((near & compared.comes_first(rows, numbers[piece])).any(-1))
        n_near.append(near.sum(-1))
    return Joined(((~torch.cat(copies, 1)).to(placed), torch.cat(n_near, 1)))


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
    too sure, and most queries would seem unknown. Equal examples are dropped first, so that every
    example twice is every example once, whatever chance makes of near-copies. The examples of
    several tasks stay, because they must be as many.
    """
    found = _Copies.of(tasks, schedule)
    if found is None:
        return None
    if found.unequal is None:
        return found.pairs.without(found.pairs.near(schedule))
    rest = _Pairs.of(found.rows[found.unequal], found.labels[found.unequal])
    kept = None if rest is None else rest.without(rest.near(schedule))
    return found.unequal if kept is None else found.unequal[kept]


def unequal_rows(tasks: Tasks, schedule: Schedule) -> Tensor | None:
    """[n] one example of each group of equal ones in a class; None: there are none."""
    found = _Copies.of(tasks, schedule)
    return None if found is None else found.unequal


class _Copies(NamedTuple):
    """The examples of one task, of which some are near-copies."""

    rows: Tensor  # [s, d]
    labels: Tensor  # [s]
    pairs: _Pairs
    unequal: Tensor | None  # [n] one example of each group of equal ones; None: there are none

    @staticmethod
    def of(tasks: Tasks, schedule: Schedule) -> _Copies | None:
        """None where there are none, or where they are not looked for."""
        if len(tasks) > 1 or not tasks.n_support:  # known without waiting for a GPU
            return None
        rows = tasks.support[0].double()
        labels = tasks.support_labels[0]
        pairs = _Pairs.of(rows, labels)
        # Most often no two are near: to look for the steps of all columns would take longest.
        if pairs is None or not bool((pairs.distances <= pairs.near(schedule)).any()):
            return None
        return _Copies(rows, labels, pairs, pairs.without(pairs.seem_equal(schedule)))


@dataclass(frozen=True, eq=False, kw_only=True)
class _Pairs:
    """The examples of one task, compared with the others of their class.

    Columns are divided by their scale, the half with small ones by the middle scale.
    """

    rows: Tensor  # [s, d] in these units
    # [s] the examples of the smallest classes first, and of one class after the other
    order: Tensor
    within: list[Tensor]  # [c, n, n] the squared distances in the c classes with n examples each
    distances: Tensor  # [p] of all pairs

    @staticmethod
    def of(rows: Tensor, labels: Tensor) -> _Pairs | None:
        """Those of rows [s, d] with labels [s].

        None where no class has two, or classes or pairs are more than are soon compared.
        """
        counts = labels.bincount()
        n_pairs = int(counts.square().sum())
        if len(counts) > _MOST_COMPARED or not len(labels) < n_pairs <= _MOST_PAIRS:
            return None
        rows = _scaled(rows)
        order = (counts[labels] * len(counts) + labels).argsort(stable=True)
        classes = _classes_of_one_size(rows[order], counts)
        within = [distances_between(of_size) for of_size in classes]
        pairs = [distances[:, _below_diagonal(distances)].flatten() for distances in within]
        return _Pairs(rows=rows, order=order, within=within, distances=torch.cat(pairs))

    def near(self, schedule: Schedule) -> Tensor:
        """[] the squared distance below which two examples are near-copies."""
        n_columns = torch.tensor(self.rows.shape[1], device=self.rows.device)
        return copy_distance(self.distances.mean(), n_columns, schedule).squeeze()

    def seem_equal(self, schedule: Schedule) -> Tensor:
        """[] the one below which they are near-copies that only rounding can tell apart."""
        return torch.minimum(self.near(schedule), self.rounding)

    @cached_property
    def rounding(self) -> Tensor:
        """[] the squared distance of examples that only rounding tells apart.

        It is Σ_j step_j²/6 for the least step of a column, and what the distance itself is rounded
        by. All columns are sorted for it, once.
        """
        steps = self.rows.sort(0).values.diff(dim=0)
        least_steps = torch.where(steps > 0, steps, torch.inf).amin(0).nan_to_num(posinf=0)
        of_values = least_steps.square().sum() / _ROUNDING
        longest = self.rows.square().sum(1).max()
        return of_values + self.rows.shape[1] * torch.finfo(self.rows.dtype).eps * longest

    def without(self, limit: Tensor) -> Tensor | None:
        """[n] the examples without those that are nearer to an earlier one than the limit.

        Different items may be equal, too, where columns have few values: a part of the examples is
        dropped only where chance gives copies to less than its square, for chance is a guess, and few
        copies do little harm. None: all stay.
        """
        is_copy = [(distances <= limit).tril(-1).any(2).flatten() for distances in self.within]
        kept = self.order[~torch.cat(is_copy)].sort().values
        dropped = 1 - len(kept) / len(self.order)
        if not dropped:
            return None
        by_chance = self._chance(limit) * len(self.distances)
        return None if by_chance >= dropped**2 * len(self.order) else kept

    def _chance(self, limit: Tensor) -> Tensor:
        """[] the probability that two different samples of a class are nearer than near-copies are.

        The squared distances of all pairs say it: they are like those of normal features in n
        directions, 1/n = ln mean d² − mean ln d² + 1/pairs, for few pairs say less. Samples that
        are as near as rounding moves them seem equal.
        """
        far = self.distances[self.distances > limit]
        inverse = far.mean().log() - far.log().mean() + 1 / max(len(far), 1)
        half = 0.5 / inverse.clamp_min(1 / self.rows.shape[1])
        near = torch.maximum(limit, self.rounding)
        return torch.special.gammainc(half, half * near / far.mean())


def _classes_of_one_size(rows: Tensor, counts: Tensor) -> list[Tensor]:
    """[c, n, d] the rows of the classes with n examples each, for every n; there are ``counts`` [k].

    Rows [e, d] are those of the smallest classes first, and of one class after the other.
    """
    n_classes = counts.bincount()[1:]  # with 1, 2, … examples
    parts = torch.split(rows, (n_classes * torch.arange(1, len(n_classes) + 1).to(counts)).tolist())
    return [part.view(-1, size, rows.shape[1]) for size, part in enumerate(parts, 1) if len(part)]


def _below_diagonal(distances: Tensor) -> Tensor:
    """[n, n] whether one of the distances [c, n, n] is below the diagonal, where each pair is once."""
    return torch.ones_like(distances[0]).tril(-1) > 0


def _scaled(rows: Tensor) -> Tensor:
    """[n, d] rows relative to their mean, in units of their columns' scales; see ``_Pairs``.

    Constant columns are dropped, unless all are constant.
    """
    varies = (rows != rows[:1]).any(0)
    if bool(varies.any()):
        rows = rows[:, varies]
    scale = rows.std(0)
    tiny = torch.finfo(scale.dtype).tiny
    return (rows - rows.mean(0)) / scale.clamp_min(scale.median()).clamp_min(tiny)


def copy_distance(
    pair_distance: Tensor,
    n_columns: Tensor,
    schedule: Schedule,
    sure: bool = False,
) -> Tensor:
    """[t, 1, 1] the squared distance below which two queries are near-copies.

    It is the part ``near_copy`` of ``pair_distance`` [t], that of two samples of a class. With few
    columns [t] samples are as near by chance, so that the part is smaller: its chance is that of
    2 N₀ columns (``few_columns``). Where the distance of two samples is ``sure`` (no guess from one
    example per class, and not made by the outliers of a table) the part is √``near_copy``, so that
    the frames of a burst are copies.
    """
    least = 0.5 if sure else 1.0
    exponent = (2 * schedule.few_columns / n_columns).clamp_min(least)
    return (schedule.near_copy**exponent * pair_distance).view(-1, 1, 1)
