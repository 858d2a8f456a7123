"""Adapt: batches whose queries all differ from the examples in the same way are labelled again.

``shift`` says what such a difference is, and finds it. Here it is decided where it is looked for,
and the queries are moved back by it.

It is looked for where the first answer gives a reason: F, in the metric, or the mean squared
distance of placed queries from their prototypes is above what batches without a shift have. The
second counts in the unit of distances between examples, for far from the middle all placed rows are
near to each other. These two limits save time.

With one example per class S is a guess, and where queries may be unknown, a shift and unknown
queries look alike: there is no adapting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from manyway.core import Solution, Sums, Tasks
from manyway.methods.calibration import Calibration, Representation
from manyway.methods.evidence.calibrate import (
    CalibratedBatch,
    Learned,
    calibrate,
    learn_support,
    select_rows,
)
from manyway.methods.evidence.copies import distinct
from manyway.methods.evidence.missing import Filling
from manyway.methods.evidence.queries import BatchQueries, Part
from manyway.methods.evidence.search import search
from manyway.methods.evidence.shift import (
    Assigned,
    Moved,
    Shift,
    by_chance,
    find_shift,
    proportions_of,
    with_queries,
)

# A reason to look for a shift: F, or the mean squared distance from the prototypes relative to that
# of left-out examples.
_NOTABLE_RATIO = 1.5
_NOTABLE_SQUARES = 1.05
_MOST_KEPT = 1 << 28  # numbers of the metrics of tasks that are kept at once


@dataclass(frozen=True, eq=False, kw_only=True)
class MovedBack:
    """Some of the tasks, with queries that were moved back."""

    rows: Tensor  # [m] which tasks
    batch: CalibratedBatch


def can_keep_metrics(tasks: Tasks) -> bool:
    """Whether there is room for what is learned from the support of every task.

    Then it is learned once for all answers.
    """
    return len(tasks) * tasks.n_features**2 <= _MOST_KEPT


def moved_back(
    tasks: Tasks,
    batch: CalibratedBatch,
    learned: Learned | None,
) -> Iterator[MovedBack]:
    """The tasks in which a shift is looked for, as many at a time as memory has room for.

    Parameters
    ----------
    tasks : Tasks
    batch : CalibratedBatch
        Their queries as they are, after the first answer.
    learned : Learned or None
        What was learned from the support before; None: it is learned now.

    Yields
    ------
    MovedBack
        With the queries moved back by what is found, which may be nothing.
    """
    notable = _notable(tasks, batch)
    if notable is None:
        return
    whole = _with_whole_queries(tasks, batch)
    for part in notable.parts(_MOST_KEPT // tasks.n_features**2):
        rows = part.rows
        of_rows = select_rows(learned, rows)
        if of_rows is None:  # once for all answers that follow; metrics take much memory
            of_rows = learn_support(tasks[rows], batch.parameters)
        own_batch = replace(batch, representation=select_rows(batch.representation, rows))
        shift = _shift_after(part.first, whole[rows], own_batch, of_rows)
        queries_moved = with_queries(tasks[rows], Moved(shift.vector))
        moved = calibrate(queries_moved, batch.parameters, of_rows)
        told = {**moved.told, **shift.told}
        yield MovedBack(rows=rows, batch=replace(moved, shift=shift, told=told))


def shift_of(tasks: Tasks, batch: CalibratedBatch) -> Shift | None:
    """The shift of one task after its first answer; None where nothing suggests one."""
    notable = _notable(tasks, batch)
    if notable is None:
        return None
    return _shift_after(notable.first, _with_whole_queries(tasks, batch), batch, None)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Notable:
    """Tasks in which a shift is looked for, after their first answer."""

    rows: Tensor  # [m]
    first: Assigned  # what the first search says of their queries

    def parts(self, most: int) -> Iterator[_Notable]:
        """At most so many of them at a time, and one at least."""
        size = max(1, most)
        for begin in range(0, len(self.rows), size):
            part = slice(begin, begin + size)
            yield _Notable(rows=self.rows[part], first=self.first[part])


def _notable(tasks: Tasks, batch: CalibratedBatch) -> _Notable | None:
    """The tasks in which a shift is looked for; None where there are none."""
    parameters = batch.parameters
    calibration = batch.queries.likelihood.calibration
    if calibration is None or batch.representation is None:
        return None
    given = parameters.precision is not None or tasks.class_table is not None
    if parameters.adapt is False or parameters.open_set or batch.one_shot or given:
        return None
    chosen = torch.ones(len(tasks), dtype=torch.bool, device=calibration.within.scatter.device)
    if parameters.adapt == "auto":
        chosen = is_notable(tasks, batch.representation, batch.queries, calibration)
    rows = chosen.nonzero().squeeze(1)
    if not len(rows):
        return None
    return _Notable(rows=rows, first=Assigned.of(batch.queries)[rows])


def _with_whole_queries(tasks: Tasks, batch: CalibratedBatch) -> Tasks:
    """The tasks with missing cells of queries filled in, for the search of a shift."""
    calibration = batch.queries.likelihood.calibration
    if not tasks.gaps or calibration is None or batch.representation is None:
        return tasks
    filling = Filling(representation=batch.representation, calibration=calibration)
    return replace(with_queries(tasks, filling), gaps=False)


def _shift_after(
    first: Assigned, tasks: Tasks, batch: CalibratedBatch, learned: Learned | None
) -> Shift:
    """The shift of tasks with whole queries, after what the first search says of them.

    Their queries as they are make up ``batch``. ``learned`` is what was learned from their support
    before.
    """
    parameters = batch.parameters
    assert batch.representation is not None
    tasks = distinct(tasks, parameters.constants).tasks

    def assign(changed: Tasks, same_support: bool) -> Assigned:
        calibrated = calibrate(changed, parameters, learned if same_support else None)
        queries = calibrated.queries
        searched = search(calibrated, None)
        if queries.any_known:
            # No guess explains the queries better by labels that are known to be wrong.
            queries.fix((queries.known >= 0).any(1), searched.prior)
        return Assigned.of(queries)

    return find_shift(tasks, batch.representation, first, assign, parameters.constants.improbable)


def is_notable(
    tasks: Tasks,
    representation: Representation,
    queries: BatchQueries,
    calibration: Calibration,
) -> Tensor:
    """[t] whether the last answers for the ``queries`` of tasks are a reason to look for a shift."""
    places = query_places(queries, calibration)
    proportions = proportions_of(queries)
    prototypes = calibration.prototypes
    means = prototypes.offsets / prototypes.trust.unsqueeze(-1)  # not shortened
    mean_residual = places.mean - (proportions.unsqueeze(1) @ means).squeeze(1)
    expected = by_chance(proportions, prototypes.examples, places.n_query)
    scatter = calibration.within.scatter.clamp_min(torch.finfo(mean_residual.dtype).tiny)
    ratio = mean_residual.square().sum(-1) / (scatter * expected)
    squares_ratio = places.squares_ratio / shortened_by(tasks, representation)
    return (ratio > _NOTABLE_RATIO) | (squares_ratio > _NOTABLE_SQUARES)


def shortened_by(tasks: Tasks, representation: Representation) -> Tensor:
    """[t] the mean ``Representation.shortened_by`` of the queries."""
    if tasks.pile is None:
        return representation.shortened_by(tasks.query).mean(1)
    found: Sums = tasks.pile.each(partial(_sum_shortened, representation))[0]
    return (found.values[0] / tasks.n_query).to(representation.effective_columns)


def _sum_shortened(representation: Representation, rows: Tensor, memory: None) -> tuple[Sums, None]:
    """The work that sums ``shortened_by`` [1] over rows [1, b, d]."""
    return Sums((representation.shortened_by(rows).sum(1, dtype=torch.float64),)), None


@dataclass(frozen=True, eq=False, kw_only=True)
class QueryPlaces:
    """Where queries lie. Near-copies of other queries have no part in it."""

    mean: Tensor  # [t, d] of placed queries
    # [t] the mean squared distance from their prototypes, relative to that of left-out examples
    squares_ratio: Tensor
    n_query: Tensor  # [t]


def query_places(queries: BatchQueries, calibration: Calibration) -> QueryPlaces:
    """Those of the last assignments, in one pass over the queries."""
    total, squares = queries.each(partial(_sum_places, calibration)).values
    like = calibration.within.scatter
    n_query: Tensor = queries.distinct.sum(1)
    return QueryPlaces(
        mean=(total / n_query.unsqueeze(-1)).to(like),
        squares_ratio=(squares / n_query).to(like),
        n_query=n_query,
    )


def _sum_places(calibration: Calibration, part: Part) -> Sums:
    """The work that sums placed queries [t, d], and how far they are from their prototypes [t].

    Squared distances are relative to those of left-out examples. They are shorter where cells are
    missing, so that these give no reason to look for a shift: groups of such queries are nearer to
    each other, and would seem to tell classes apart less. The u of near-copies of other queries is 0.
    """
    tiny = torch.finfo(part.placed.dtype).tiny
    precision = calibration.precision.clamp_min(tiny).view(-1, 1, 1)
    distances = part.log_likelihood * (-2 / precision)
    of_members = calibration.prototypes.of_members(calibration.within.scatter)
    relative = of_members.relative(distances)
    squares = (part.u * relative).sum((1, 2), dtype=torch.float64)
    rows = part.coordinates * part.distinct.unsqueeze(-1)
    return Sums((rows.sum(1, dtype=torch.float64), squares))


def merged(alone: Solution, rows: Tensor, found: Solution) -> Solution:
    """The solution ``alone`` of t tasks, with another one in the place of some of them.

    Parameters
    ----------
    alone : Solution
    rows : Tensor of shape [m]
        Which tasks the other one is of.
    found : Solution
        Of m tasks.

    Returns
    -------
    Solution
        What is made on request still is.
    """

    def joined(name: str) -> Tensor:
        values: Tensor = getattr(alone, name)
        return values.index_copy(0, rows, getattr(found, name).to(values))

    terms = {}
    for name, values in (alone.objective_parts or {}).items():
        others = (found.objective_parts or {})[name]
        length = max(values.shape[1], others.shape[1])
        terms[name] = _longer(values, length).index_copy(0, rows, _longer(others, length))
    told = {}
    for name, values in found.told.items():
        before = alone.told.get(name, torch.zeros_like(values[:1]))
        before = before.expand(len(alone.n_iter))
        told[name] = before.index_copy(0, rows, values.expand(len(rows)))
    moved_by = alone.moved_by
    if found.moved_by is not None:
        if moved_by is None:
            moved_by = found.moved_by.new_zeros(len(alone.n_iter), *found.moved_by.shape[1:])
        moved_by = moved_by.index_copy(0, rows, found.moved_by)
    return Solution(
        joined("probabilities"),
        joined("n_iter"),
        joined("converged"),
        make_prototypes=partial(joined, "prototypes"),
        make_presence=partial(joined, "independent_presence"),
        make_review_scores=partial(joined, "review_scores"),
        make_copies=partial(joined, "copies"),
        objective_parts=terms,
        told=told,
        counting=alone.counting,
        moved_by=moved_by,
        doubts=alone.doubts,
    )


def _longer(values: Tensor, length: int) -> Tensor:
    """[t, length] values [t, i] of iterations, the last of which is repeated."""
    missing = length - values.shape[1]
    return torch.cat([values, values[:, -1:].expand(-1, missing)], 1)
