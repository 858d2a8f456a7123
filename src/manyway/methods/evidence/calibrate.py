"""Calibrate: what is learned from the support, and the queries of a batch as placed by it.

Queries are placed where distances mean something. ``scaling`` makes rows that can be compared,
``manyway.methods.calibration`` learns the metric, the precision and the prototypes, and ``names``
adds what the names of classes say. Here they are put together: what the support says is
``Learned``, and a batch whose likelihood is known is a ``CalibratedBatch``, which all later stages
read. ``learn_support`` learns for any batch, ``learn_for_batch`` for one, ``solver.learn_for_review``
for one that is answered again and again, and ``solver.prepare_evidence`` is for users.

A ``Calibration`` is made in this order, and each step needs those before it:

1. near-copies among the examples are dropped, and rows are scaled (``_scaled``);
2. class means, S, τ and the metric, and all once more without doubtful labels
   (``calibrate_distances``);
3. far queries will be brought nearer, unless some may be unknown; prototypes are shrunk, and tuned
   on request; for unknown queries it is measured how far classes come in clumps
   (``_FinishForQueries``);
4. the power of final probabilities is set, and prototypes take in names (``_as_learned``).

Steps 2 and 3 go through some tasks at a time, because their metrics take much memory. That is why
step 3 is a function that step 2 is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from manyway.core import ExampleDoubts, Pile, Scaling, Tasks, count_labels, mapped
from manyway.errors import InputError
from manyway.methods.calibration import (
    Asked,
    Calibration,
    Constants,
    Representation,
    calibrate_and_place,
    calibrate_distances,
    power_of_few_examples,
    tuned,
    weighted_sums,
)
from manyway.methods.calibration.left_out import can_leave_out
from manyway.methods.calibration.transforms import QUERY_DEPENDENT
from manyway.methods.evidence.blocks import InBlocks
from manyway.methods.evidence.copies import KeptExamples, distinct
from manyway.methods.evidence.likelihood import Distances, query_weights
from manyway.methods.evidence.missing import BatchGaps, PlacingWithGaps, WithGaps
from manyway.methods.evidence.neighbourhood import clumping
from manyway.methods.evidence.queries import BatchQueries, InMemory
from manyway.methods.evidence.rehearse import Rehearsed
from manyway.methods.evidence.scaling import ScaledTasks, representation_of, scale_tasks
from manyway.methods.evidence.schedule import Parameters
from manyway.methods.evidence.shift import Shift


@dataclass(frozen=True, eq=False, kw_only=True)
class CalibratedBatch:
    """A batch whose likelihood is known."""

    queries: BatchQueries
    parameters: Parameters
    one_shot: bool = False  # whether no class had two samples to calibrate with
    named: bool = False  # whether names of classes have a part in the prototypes
    # What is worth telling, a number per task [t] each.
    told: Mapping[str, Tensor] = field(default_factory=dict)
    # Makes prototypes [t, k, d] of examples and queries; None where queries are not in memory.
    make_prototypes: Callable[[], Tensor] | None = None
    # Of the features; None where another scale was asked for, or queries cannot be moved.
    representation: Representation | None = None
    shift: Shift | None = None  # by which the queries were moved back; None where they were not
    # What held-out examples say about claims; None where none were held out.
    rehearsed: Rehearsed | None = None
    doubts: ExampleDoubts | None = None  # which examples look mislabelled; None where none can
    gaps: BatchGaps | None = None  # of the queries; None where all are whole

    def shift_power(self, masses: Tensor) -> Tensor | None:
        """[t] what the doubt of a shift makes of claims; None where none was looked for.

        ``masses`` [t, k] are the expected class counts. See ``Shift.power``.
        """
        if self.shift is None:
            return None
        n_known = (self.queries.known >= 0).sum(-1)
        return self.shift.power(masses, n_known)


def calibrate(
    tasks: Tasks,
    parameters: Parameters,
    learned: Learned | None = None,
    proportions: Tensor | None = None,
) -> CalibratedBatch:
    """Learn from the support what a distance means, and place the queries.

    Parameters
    ----------
    tasks : Tasks
    parameters : Parameters
    learned : Learned or None, default=None
        What was learned from the same support before; None: it is learned now.
    proportions : Tensor of shape [t, k] or None, default=None
        Where there is no example: a guess of the proportions of the classes; see ``names``.

    Returns
    -------
    CalibratedBatch
    """
    if learned is None:
        placed = learn_for_batch(tasks, parameters, proportions)
    else:
        learned = replace(learned, gaps=tasks.gaps or learned.gaps)
        placed = PlacedQueries(learned=learned, rows=learned.place(tasks))
    of_support = placed.learned
    batch = CalibratedBatch(
        queries=_queries(placed, tasks, parameters),
        parameters=parameters,
        one_shot=of_support.one_shot,
        named=of_support.named,
        told=of_support.told,
        representation=of_support.movable,
        shift=of_support.shift,
        rehearsed=of_support.rehearsed,
        doubts=of_support.doubts,
        gaps=BatchGaps(scaling=of_support.scaling, tasks=tasks) if of_support.gaps else None,
    )
    if tasks.pile is not None:
        return batch
    return replace(batch, make_prototypes=lambda: of_support.prototypes(tasks, batch.queries))


def _queries(placed: PlacedQueries, tasks: Tasks, parameters: Parameters) -> BatchQueries:
    """The queries of a batch, in memory or in blocks."""
    learned = placed.learned
    if tasks.pile is not None:
        pile = learned.placed_pile(tasks.pile)
        return InBlocks(pile, tasks, learned.likelihood, parameters)
    assert placed.rows is not None
    return InMemory(placed.rows, tasks, learned.likelihood, parameters)


def is_one_shot(tasks: Tasks) -> bool:
    """Whether no class has two samples, given that each has one."""
    return not can_leave_out(tasks)


@dataclass(frozen=True, eq=False, kw_only=True)
class Learned:
    """What is learned from the support, so that it serves any batch of queries.

    It is what ``prepare_evidence`` returns and estimators keep in ``fit``.
    """

    scaled: Tasks  # with the support, and with names as examples where a class has no other
    scaling: Scaling | Representation  # of the queries
    calibration: Calibration
    one_shot: bool  # whether no class had two samples
    named: bool  # whether names of classes have a part in the prototypes
    kept: KeptExamples  # those that were learned from
    rehearsed: Rehearsed | None = None  # what held-out examples say about claims
    gaps: bool = False  # whether cells of queries may be missing; see ``missing``

    @property
    def likelihood(self) -> Distances:
        """That of placed queries."""
        return WithGaps(self.calibration) if self.gaps else Distances(self.calibration)

    @property
    def placing_with_gaps(self) -> PlacingWithGaps:
        """What places queries with gaps."""
        return PlacingWithGaps(scaling=self.scaling, calibration=self.calibration)

    @property
    def doubts(self) -> ExampleDoubts:
        """Which examples look mislabelled."""
        judged = self.calibration.judged
        return ExampleDoubts(
            wrong=self.kept.of_all(judged.wrong),
            looks_like=self.kept.of_all(judged.looks_like),
        )

    @property
    def movable(self) -> Representation | None:
        """The representation, where queries can be moved before they are placed."""
        return representation_of(self.scaling)

    @property
    def shift(self) -> Shift | None:
        """By which queries that are placed already were moved back."""
        return None

    @property
    def precision(self) -> Tensor:
        """[t] τ, for the attribute ``precision_`` of estimators."""
        return self.calibration.precision

    @property
    def told(self) -> dict[str, Tensor]:
        """What is worth telling, a number per task [t] each."""
        told = dict(self.likelihood.told)
        representation = representation_of(self.scaling)
        if representation is not None:
            told |= representation.told
        shift = self.shift or Shift.none(self.calibration.within.scatter)
        told |= shift.told
        if self.rehearsed is not None:
            told |= self.rehearsed.told
        return told

    def place(self, tasks: Tasks) -> Tensor | None:
        """[t, q, d] the queries, scaled and placed; None where they are read from a pile."""
        if tasks.pile is not None:
            return None
        if self.gaps:
            return self.placing_with_gaps(tasks.query)
        return self.calibration.coordinates.place(self.scaling(tasks.query))

    def placed_pile(self, pile: Pile) -> Pile:
        """The pile whose rows are scaled and placed when they are read."""
        if self.gaps:
            return pile.then(self.placing_with_gaps)
        return pile.then(self.scaling).then(self.calibration.coordinates.placing())

    def prototypes(self, tasks: Tasks, queries: BatchQueries) -> Tensor:
        """[t, k, d] the means of scaled examples and queries.

        Queries count as much as the method lets them:

            (Σ_s p_s y_sk z_s + W_k Σ_q u_qk z_q) / (Σ_s p_s y_sk + W_k m_k),

        where p are the weights of examples, and W those of queries (``query_weights``). A missing
        cell has no part in its mean.
        """
        of_queries = query_weights(queries.query_counts.masses).unsqueeze(1)
        u: Tensor = queries.each(attrgetter("u"))  # in memory all queries are one part
        taken = u * of_queries * float(queries.parameters.update_prototypes)
        weights = self.calibration.judged.weights
        known = self.scaled[: len(weights)]
        sums = weighted_sums(known, known.support, weights)
        counts = count_labels(known.support_labels, known.n_classes, weights)
        if self.gaps:
            given = (~tasks.query.isnan()).to(sums)
            totals = sums + taken.mT @ (self.placing_with_gaps.scaled(tasks.query) * given)
            return totals / (counts.unsqueeze(-1) + taken.mT @ given)
        totals = sums + taken.mT @ self.scaling(tasks.query)
        return totals / (counts + taken.sum(1)).unsqueeze(-1)


def select_rows(learned: Any, rows: Tensor) -> Any:
    """What was learned from the supports of some of the tasks, [m] of [t].

    It is followed however it is nested; tensors [1, …] serve all tasks, and None stays None.
    """
    return mapped(learned, lambda one: one if len(one) == 1 else one[rows])


@dataclass(frozen=True, eq=False, kw_only=True)
class LearnedBatch(Learned):
    """What is learned from the support, and the queries of one batch, which are placed already.

    A batch that is labelled again and again, with more known labels each time, is learned once
    (``solver.learn_for_review``).
    """

    placed: Tensor  # [1, q, d]
    found_shift: Shift | None = None  # by which they were moved back before they were placed
    query: Tensor | None = None  # [1, q, d] as they are, where cells are missing

    @staticmethod
    def of(placed: PlacedQueries, tasks: Tasks) -> LearnedBatch:
        """What was learned for one task, whose queries are in memory."""
        assert placed.rows is not None
        learned = placed.learned
        of_support = {one.name: getattr(learned, one.name) for one in fields(Learned)}
        query = tasks.query if learned.gaps else None
        return LearnedBatch(**of_support, placed=placed.rows, query=query)

    @property
    def movable(self) -> Representation | None:
        return None

    @property
    def shift(self) -> Shift | None:
        return self.found_shift

    def place(self, tasks: Tasks) -> Tensor | None:
        return self.placed

    def with_classes(self, first: list[int], rows: list[int]) -> LearnedBatch:
        """The queries ``rows``, and a further class for each query in ``first``.

        That query is the one sample of the class.
        """
        coordinates = self.likelihood.coordinates(self.placed)
        calibration = self.calibration.with_classes(coordinates[:, first])
        later = replace(self, calibration=calibration, placed=self.placed[:, rows])
        if self.query is None:
            return later
        query = self.query[:, rows]
        return replace(later, placed=later.placing_with_gaps(query), query=query)


@dataclass(frozen=True, eq=False, kw_only=True)
class PlacedQueries:
    """What was learned, and the queries."""

    learned: Learned
    rows: Tensor | None  # [t, q, d]; None where they are read from a pile


def learn_support(tasks: Tasks, parameters: Parameters) -> Learned | None:
    """What serves any batch: what the support alone says, with the metric.

    None where the queries have a part in it.
    """
    if parameters.scale in {*QUERY_DEPENDENT, "power"} or not tasks.n_support or tasks.scores:
        return None
    return _learn_scaled(_scaled(tasks, parameters), parameters)


def learn_for_batch(
    tasks: Tasks,
    parameters: Parameters,
    proportions: Tensor | None = None,
) -> PlacedQueries:
    """What serves one batch: what the support says, and the placed queries.

    It is without the metrics of tasks in memory. A metric is a [d, d] factor per task: those of
    many tasks take much memory. Queries and names are therefore placed while it is there. Rows that
    lack cells need the metric. ``proportions`` as in ``calibrate``.
    """
    if tasks.gaps:
        learned = learn_support(tasks, parameters)
        if learned is None:
            raise _whole_rows_needed(tasks, parameters)
        learned = replace(learned, gaps=True)
        return PlacedQueries(learned=learned, rows=learned.place(tasks))
    scaled = _scaled(tasks, parameters, proportions)
    if tasks.pile is not None:
        return PlacedQueries(learned=_learn_scaled(scaled, parameters), rows=None)
    items = scaled.tasks
    if scaled.names is not None:
        items = items.with_rows(items.support, torch.cat([items.query, scaled.names.vectors], 1))
    calibration, placed = calibrate_and_place(
        items, parameters.constants, _asked(scaled, parameters)
    )
    n_query = tasks.n_query
    learned = _as_learned(scaled, calibration, placed[:, n_query:], parameters)
    return PlacedQueries(learned=learned, rows=placed[:, :n_query])


def _whole_rows_needed(tasks: Tasks, parameters: Parameters) -> InputError:
    asked = "without examples" if not tasks.n_support else f"with scale={parameters.scale!r}"
    return InputError(
        f"Cells are missing (NaN), and {asked} every row must be whole; leave these rows out."
    )


def _scaled(tasks: Tasks, parameters: Parameters, proportions: Tensor | None = None) -> ScaledTasks:
    """The tasks with scaled features, without near-copies among the examples."""
    found = distinct(tasks, parameters.constants)
    return replace(scale_tasks(found.tasks, parameters, proportions), kept=found.kept)


def _learn_scaled(scaled: ScaledTasks, parameters: Parameters) -> Learned:
    """What the support of scaled tasks says, with the metric; their queries are not placed."""
    calibration = calibrate_distances(
        scaled.tasks, parameters.constants, _asked(scaled, parameters)
    )
    names = None
    if scaled.names is not None:
        names = calibration.coordinates.place(scaled.names.vectors)
    return _as_learned(scaled, calibration, names, parameters)


def _as_learned(
    scaled: ScaledTasks,
    calibration: Calibration,
    placed_names: Tensor | None,
    parameters: Parameters,
) -> Learned:
    """What a calibration says of the support.

    It gets the power of final probabilities, and the names of classes where there are some, which
    are placed [t, k, d].
    """
    representation = representation_of(scaled.scaling)
    power = _power(scaled, calibration, representation, parameters.constants)
    calibration = replace(calibration, power=power)
    if representation is not None:
        # Where the length of rows says little (h near 1), a little of κ costs much.
        clumped = calibration.clumped * (1 - representation.shortening.flatten())
        calibration = replace(calibration, clumped=clumped)
    if scaled.names is not None:
        assert placed_names is not None
        calibration = scaled.names.added_to(calibration, placed_names)
    return Learned(
        scaled=scaled.tasks,
        scaling=scaled.scaling,
        calibration=calibration,
        one_shot=is_one_shot(scaled.tasks),
        named=scaled.names is not None,
        kept=scaled.kept,
    )


def _power(
    scaled: ScaledTasks,
    calibration: Calibration,
    representation: Representation | None,
    constants: Constants,
) -> Tensor:
    """[t] what final probabilities are raised to, by how much the examples could teach.

    With one example per class that is N²/(N² + N₀²) for N effective columns, N₀ = ``few_columns``:
    one example in few columns may be anywhere in its class. It is 1 where N is not known.
    """
    if not is_one_shot(scaled.tasks):
        return power_of_few_examples(calibration.prototypes.examples, constants)
    if representation is None:
        return torch.ones_like(calibration.precision)
    squares = representation.effective_columns.flatten().square()
    return squares / (squares + constants.few_columns**2)


@dataclass(frozen=True, kw_only=True)
class _FinishForQueries:
    """What is done to a calibration at last.

    Queries that lie far away are brought nearer, but where queries may be unknown: that is how such
    ones are known. Where the errors of prototypes can be known, prototypes are shrunk, and tuned on
    request.
    """

    parameters: Parameters
    shrinks: bool

    def __call__(self, calibration: Calibration, tasks: Tasks) -> Calibration:
        if not self.parameters.open_set:
            calibration = calibration.bounded()
        if not self.shrinks:
            return calibration
        return self._shrunk_and_tuned(calibration, tasks)

    def _shrunk_and_tuned(self, calibration: Calibration, tasks: Tasks) -> Calibration:
        """For open sets it is also measured how far classes come in clumps."""
        parameters = self.parameters
        constants = parameters.constants
        means = calibration.prototypes.offsets
        shrunk = calibration.shrunk(constants)
        if parameters.open_set:
            shrunk = replace(shrunk, clumped=clumping(calibration, tasks, constants))
        if parameters.likelihood == "logistic":
            return tuned(shrunk, means, tasks, always=True)
        # Tuned prototypes are not in the middle of their classes, which tells unknown queries.
        if parameters.likelihood == "auto" and not parameters.open_set:
            return tuned(shrunk, means, tasks, always=False)
        return shrunk


def _asked(scaled: ScaledTasks, parameters: Parameters) -> Asked:
    """What is asked of the calibration of scaled tasks."""
    errors_known = not is_one_shot(scaled.tasks)
    own_distances = parameters.precision is None and scaled.names is None
    return Asked(
        precision=parameters.precision,
        metric=parameters.metric,
        finish=_FinishForQueries(parameters=parameters, shrinks=errors_known and own_distances),
        doubt_labels=scaled.without_names,
    )
