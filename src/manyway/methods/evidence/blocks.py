"""The queries of one task, read in blocks: the passes of evidence over a pile.

Likelihoods do not change during the search, so two numbers per class are kept between updates:
m_k = Σ_q u_qk and ln p⁰_k = Σ_q ln(1 − u_qk). The slopes of the prior follow from them, and an
update reads the queries once:

    u_qk = softmax_k(ψ ℓ_qk + slope_k + entry_cost_k / (1 − u_qk)).

Only one thing depends on a query's own assignment: the cost of the first query of a class is
divided by 1 − u_qk. Where a class has many queries this cost is negligible, and where u_qk is small
the divisor is 1. Each block remembers the few assignments for which neither holds, as places and
values.

``block_update`` has the update of one block. Classes with almost no query are *idle* in some of
them; here it is decided which.

Everything that goes to a block is a small callable without a reference to the pile, so that Dask
can send it to the worker that holds the block, and only sums come back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import exp
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyway.core import Answered, Pile, Reading, Sums, Tasks, threads_for
from manyway.methods.evidence.block_update import (
    BlockMemory,
    BlockUpdate,
    EndedSearch,
    Idle,
    UpdateSums,
)
from manyway.methods.evidence.likelihood import Likelihood, Updated, own_classes
from manyway.methods.evidence.loop import Outcome, Update, anneal_and_iterate, resume
from manyway.methods.evidence.prior import (
    Concentrations,
    QueryCounts,
    Slopes,
    log_remainders,
)
from manyway.methods.evidence.queries import (
    BatchAnswers,
    BatchQueries,
    Part,
    ProbabilityOfUnknown,
    search_weights,
)
from manyway.methods.evidence.schedule import Parameters

_MOST_REMEMBERED = 1 << 24  # assignments, over all queries
# An assignment is remembered if u·√p⁰ exceeds the first value, so that its cost is right to about
# 1e-4, or if u exceeds the second, because convergence is seen by the change of remembered
# assignments. During annealing convergence is not checked, and the third value suffices.
_REMEMBER_FOR_COST = 1e-4
_REMEMBER = 1e-3
_REMEMBER_IN_ANNEALING = 2e-2
# Before the first assignments, −ln √p⁰ is taken to be at most this.
_MOST_LOG_ABSENT = 10.0
# A class may be idle if its expected count is below the first value, or below the second and
# changing by less than the third.
_ALMOST_EMPTY = 1e-3
_FEW = 0.1
_STEADY = 1e-5
# With fewer idle classes, or a smaller part of all, there is nothing to gain.
_MIN_IDLE = 32
_MIN_IDLE_PART = 0.25


def _remember_end(last: BlockUpdate, rows: Tensor, memory: BlockMemory) -> tuple[None, BlockMemory]:
    """The work that remembers the last assignments of a search, and how to compute them again."""
    step = replace(last, remember_above=last.remember_above.clamp_max(_REMEMBER))
    _, later = step(rows, memory)
    return None, later._replace(earlier=memory)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Weigh:
    """The work that remembers how much queries count; see ``BatchQueries.weigh``."""

    unknown: ProbabilityOfUnknown | None
    distinct: Tensor | None  # [1, q] of all queries
    likelihood: Likelihood

    def __call__(self, rows: Tensor, memory: BlockMemory) -> tuple[None, BlockMemory]:
        unknown = memory.unknown
        if self.unknown is not None:
            coordinates = self.likelihood.coordinates(rows)
            unknown = self.unknown(coordinates, memory.first).masked_fill(memory.known >= 0, 0)
        distinct = memory.distinct
        if self.distinct is not None:
            distinct = self.distinct[:, memory.first : memory.first + rows.shape[1]]
        return None, memory._replace(
            unknown=unknown,
            distinct=distinct,
            counted=search_weights(unknown, distinct),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class OnPart:
    """The work of a stage on one block, as on any other part of the queries.

    The assignments of the block are computed again when the stage first asks for them. Sums are
    handed back in float64.
    """

    last: BlockUpdate
    likelihood: Likelihood
    any_known: bool
    any_unknown: bool
    work: Callable[[Part], Any]

    def __call__(self, rows: Tensor, memory: BlockMemory) -> tuple[Any, None]:
        found = self.found(rows, memory)
        if isinstance(found, Sums):
            found = found.double()
        return found, None

    def found(self, rows: Tensor, memory: BlockMemory) -> Any:
        """What the work finds in the block, sums as it gave them."""
        # As in memory: a label that no answer contradicts is no news, and its query is like others.
        any_fixed = self.last.any_fixed
        none_fixed = torch.full_like(memory.known, -1)
        part = Part(
            placed=rows,
            first=memory.first,
            known=memory.known,
            fixed=memory.known if any_fixed else none_fixed,
            unknown=memory.unknown,
            distinct=memory.distinct,
            assign=cache(lambda: self.last.assign(rows, memory)),
            likelihood=self.likelihood,
            any_known=self.any_known,
            any_fixed=any_fixed,
            any_unknown=self.any_unknown,
        )
        with threads_for(rows.shape[1] * len(self.last.slope)):
            return self.work(part)


def _count_fixed(part: Part) -> Sums:
    """The work that counts the queries of each class where all known labels are fixed.

    Σ u and Σ ln(1 − u) [t, k]
    """
    own = own_classes(part.known, part.u)
    fixed = torch.where((part.known >= 0).unsqueeze(-1), own, part.u)
    return Sums((fixed.sum(1), log_remainders(fixed).sum(1)))


class _State(NamedTuple):
    """What the search knows of all blocks, in float64."""

    masses: Tensor  # [k] Σ u
    log_absent: Tensor  # [k] Σ ln(1 − u)
    drift: Tensor  # [k] by how much the masses changed in the last update

    def after(self, step: BlockUpdate, sums: UpdateSums) -> _State:
        """With the sums of an update; idle classes stay as they were while it was resting."""
        which = step.idle.active if step.resting else slice(None)
        masses = self.masses.clone()
        log_absent = self.log_absent.clone()
        drift = self.drift.clone()
        drift[which] = (sums.masses - masses[which]).abs()
        masses[which] = sums.masses
        log_absent[which] = sums.log_absent
        return _State(masses, log_absent, drift)


class InBlocks(BatchQueries):
    """The queries of one task, read in blocks.

    It is also what the search updates (``loop.SearchState``).

    The state is that of all classes, and what the blocks remember. ``before`` is what they
    remembered before the last update: the last assignments can be computed again from it, by every
    later stage.
    """

    double_sums = True

    def __init__(
        self,
        pile: Pile,
        tasks: Tasks,
        likelihood: Likelihood,
        parameters: Parameters,
    ) -> None:
        super().__init__(tasks, likelihood, parameters)
        self.pile = pile
        zeros = torch.zeros_like(likelihood.counts[0])
        n_classes = len(zeros)
        # Before the first assignments all classes count as equally frequent.
        log_absent = min(0.5 * self.n_query / n_classes, _MOST_LOG_ABSENT)
        above = min(_REMEMBER_FOR_COST * exp(log_absent), _REMEMBER_IN_ANNEALING)
        self.none_idle = Idle(classes=torch.zeros(n_classes, dtype=torch.bool, device=zeros.device))
        self.idle = self.none_idle
        self.idle_for = 0  # how many more updates they may be idle
        self.all_classes = BlockUpdate(
            linear=likelihood.linear(),
            slope=zeros,
            entry_cost=zeros,
            remember_above=zeros + above,
            most_remembered=_MOST_REMEMBERED / self.n_query,
            idle=self.none_idle,
        )
        self.last = self.all_classes
        self.sharpness = 1.0
        one = zeros.new_ones(1, 1)
        blocks = zip(pile.firsts, pile.sizes, pile.split(self.known), strict=True)
        self.memory: list[Any] = [  # of each block, after the last update
            BlockMemory(
                first=first,
                known=labels,
                unknown=(0 * one).expand(1, size),
                distinct=one.expand(1, size),
                counted=one.expand(1, size),
                places=zeros[:0].long(),
                values=zeros[:0],
                idle=zeros,
            )
            for first, size, labels in blocks
        ]
        self.before: list[Any] = self.memory  # the same before the last update
        self.any_unknown = False
        nothing = zeros.double()
        self.state = _State(nothing, nothing, nothing)

    def each(self, work: Callable[[Part], Any]) -> Any:
        return self.pile.each(self.on_part(work), self.before)[0]

    def on_part(self, work: Callable[[Part], Any]) -> OnPart:
        """The work on a block that a stage's work on a part becomes."""
        return OnPart(
            last=self.last,
            likelihood=self.likelihood,
            any_known=self.any_known,
            any_unknown=self.any_unknown,
            work=work,
        )

    def answers(
        self,
        answer: Callable[[Part], Answered],
        review: Callable[[Part, Answered], Tensor],
    ) -> BatchAnswers:
        return BatchAnswers(Reading(self.pile, self.on_part(answer).found, self.before))

    def weigh(self, unknown: ProbabilityOfUnknown | None, distinct: Tensor | None) -> None:
        work = _Weigh(unknown=unknown, distinct=distinct, likelihood=self.likelihood)
        _, self.memory = self.pile.each(work, self.memory)
        self.before = self.memory
        self.any_unknown = unknown is not None
        if distinct is not None:
            self.distinct = distinct
        self._use(replace(self.all_classes, weighted=True))

    def search(self, prior: Concentrations, *, with_terms: bool = False) -> Outcome:
        return anneal_and_iterate(self, prior, self.parameters).outcome

    def fix(self, which: Tensor, prior: Concentrations) -> Outcome:
        masses, log_absent = self.each(_count_fixed).values
        self._use(replace(self.all_classes, any_fixed=True))
        query_counts = QueryCounts.of_products(masses, log_absent.exp())
        return resume(self, query_counts, prior, self.parameters).outcome

    def resume(self, updated: Updated, query_counts: QueryCounts, prior: Concentrations) -> Outcome:
        _, self.memory = self.pile.each(partial(_remember_end, self.last), self.before)
        ended = EndedSearch(last=self.last, updated=updated, likelihood=self.likelihood)
        self.all_classes = replace(self.all_classes, ended=ended)
        return resume(self, query_counts, prior, self.parameters).outcome

    def begin(self, sharpness: float) -> QueryCounts:
        self.before = self.memory
        self._do(replace(self.all_classes, sharpness=sharpness))
        return self.query_counts

    def update(
        self,
        slopes: Slopes,
        sharpness: float,
        ahead: Sequence[float] = (),
        tol: float = 0.0,
    ) -> Update:
        """Assign again, given the slopes of the prior; by default all classes.

        While classes are idle, the update has the active ones only. It is repeated with all classes
        where nothing has moved by ``tol``, to see whether an idle class would; the idle classes
        return where their total has doubled, or when the number of updates for which their weight
        was computed is over.
        """
        remember = _REMEMBER if tol else _REMEMBER_IN_ANNEALING
        step = self._step(slopes, sharpness * self.sharpness, remember)
        alpha = float(slopes.alpha)
        state = self.state
        self.before = self.memory
        if self.idle.sharpness:
            idle = self.idle
            self.idle_for = self.idle_for - 1
            sums = self._do(step.of_active(idle, alpha))
            still = float(sums.moved) < tol
            most = 2 * float(state.masses[idle.classes].sum()) + _ALMOST_EMPTY
            if still or float(sums.idle) > most or self.idle_for == 0:
                self.idle = self.none_idle
            if not still:
                return Update(self.query_counts, sums.moved[None])
            self.state = state  # repeat the update, to see whether idle classes move
        elif step.slope.dtype == torch.float32 and step.ended is None:
            self.idle = self._idle([value * self.sharpness for value in ahead], alpha)
            self.idle_for = len(ahead)
        sums = self._do(replace(step, idle=self.idle))
        return Update(self.query_counts, sums.moved[None])

    def select(self, which: Tensor) -> InBlocks:
        return self  # there is one task

    def replace(self, which: Tensor, other: InBlocks) -> None:
        """Nothing to do: ``select`` returned this very object."""

    def sharpened(self, sharpness: Tensor) -> InBlocks:
        self.sharpness = float(sharpness)
        self.idle = self.none_idle  # the weight of idle classes was that of another sharpness
        return self

    def terms(self) -> Tensor:
        """[2, 1] not computed: it would be another pass."""
        return self.state.masses.new_zeros(2, 1)

    def _use(self, step: BlockUpdate) -> None:
        """Let later updates of all classes be like this one."""
        self.all_classes = step
        self.last = step

    def _step(self, slopes: Slopes, sharpness: float, remember: float) -> BlockUpdate:
        """The next update of all classes."""
        base = self.all_classes
        above = (_REMEMBER_FOR_COST * self.query_counts.absent[0].rsqrt()).clamp_max(remember)
        return replace(
            base,
            sharpness=sharpness,
            slope=slopes.slope[0].to(base.slope),
            entry_cost=slopes.entry_cost[0].to(base.slope),
            remember_above=above.to(base.slope),
        )

    def _do(self, step: BlockUpdate) -> UpdateSums:
        """Do an update in all blocks, and keep what it says of the classes."""
        sums: UpdateSums
        sums, self.memory = self.pile.each(step, self.before)
        self.last = step
        self.state = self.state.after(step, sums)
        log_absent = self.state.log_absent[None]
        self.query_counts = QueryCounts.of_products(self.state.masses[None], log_absent.exp())
        return sums

    def _idle(self, ahead: Sequence[float], alpha: float) -> Idle:
        """The classes that may be idle in the next updates; none where too few may.

        A class may be if it is almost empty, or if it has few queries and has not changed in the
        last update. The float64 path, which exists for comparison, has no idle classes.
        """
        masses = self.state.masses
        steady = (masses < _FEW) & (self.state.drift < _STEADY)
        idle = (masses < _ALMOST_EMPTY) | steady
        n_idle = int(idle.sum())
        n_classes = len(idle)
        least = max(_MIN_IDLE, int(_MIN_IDLE_PART * n_classes))
        if not ahead or n_idle < least or n_idle == n_classes:
            return self.none_idle
        return Idle(classes=idle, sharpness=tuple(dict.fromkeys(ahead)), alpha=alpha)
