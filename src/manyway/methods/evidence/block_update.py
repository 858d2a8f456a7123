"""An update of the search on one block of the queries, and what the block remembers of it.

It is part of ``blocks``, which derives it. An update is a small callable without a reference to the
pile, so that Dask can send it to the worker that holds the block, and only sums come back.

Classes with almost no query are *idle* in some updates. They all have nearly the same slope, φ'(1),
which changes with ln α alone. So their total weight per query, ln Σ_k exp(ψ ℓ_qk + slope_k) over
the idle classes, remembered from the last update of all classes, can be reused whatever α becomes:
it is shifted by ln(α_now/α_then). No idle class can gain more than all of them together: when their
total has doubled, all classes are updated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import log
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import threads_for
from manyway.methods.evidence.likelihood import (
    Likelihood,
    Linear,
    ScoreColumns,
    Updated,
    own_classes,
)
from manyway.methods.evidence.prior import log_remainders, remainders


class BlockMemory(NamedTuple):
    """What a block remembers until the next update.

    It stays with the block, on a cluster with the worker: what is remembered of a query is never
    sent around. ``blocks._MOST_REMEMBERED`` bounds the number of assignments.
    """

    first: int  # the number of its first query
    known: Tensor  # [1, b] known labels, -1 for the others
    unknown: Tensor  # [1, b] the probability to be unknown
    distinct: Tensor  # [1, b] 0 for near-copies of other queries, else 1
    counted: Tensor  # [1, b] how much each query counts in the search
    places: Tensor  # [n] row·K + class of the remembered assignments
    values: Tensor  # [n] their u
    idle: Tensor  # [b, r] ln of the idle classes' total weight, for each of ``Idle.sharpness``
    # What the last update of an earlier search began with; None where there was none.
    earlier: BlockMemory | None = None


class UpdateSums(NamedTuple):
    """Sums over queries, in float64 so that they do not depend on the blocks."""

    masses: Tensor  # [k] Σ u
    log_absent: Tensor  # [k] Σ ln(1 − u)
    idle: Tensor  # [] Σ u of the idle classes
    moved: Tensor  # [] the largest change of a remembered assignment

    def plus(self, other: UpdateSums) -> UpdateSums:
        return UpdateSums(
            masses=self.masses + other.masses,
            log_absent=self.log_absent + other.log_absent,
            idle=self.idle + other.idle,
            moved=torch.maximum(self.moved, other.moved),
        )


class Remembered(NamedTuple):
    """Some assignments of a block."""

    places: Tensor  # [n] row·(number of classes) + class
    values: Tensor  # [n] their u


class NewAssignments(NamedTuple):
    """The assignments of a block after an update."""

    u: Tensor  # [b, a] of the classes that take part
    idle: Tensor  # [b] of all idle classes together


@dataclass(frozen=True, eq=False, kw_only=True)
class Idle:
    """Classes that are left out of the next updates; by default none is.

    Their weight is computed for each sharpness that the next updates may have, because it is not
    linear in it.
    """

    classes: Tensor  # [k] bool
    sharpness: tuple[float, ...] = ()  # that the next updates may have; none where no class is idle
    alpha: float = 1.0  # of the update in which their weight was computed

    @cached_property
    def active(self) -> Tensor:
        """[a] the other classes."""
        return (~self.classes).nonzero().squeeze(1)


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockUpdate:
    """The work of an update on one block.

    It gives new assignments, their sums, and what to remember of them.

    The object has all that an update needs to know besides the rows and the memory of the block. An
    update of all classes also computes the weight of the classes that will be idle; a *resting*
    update has columns for the active classes, and one number per query for the idle ones.
    """

    linear: Linear | ScoreColumns  # ℓ of placed rows
    slope: Tensor  # [k]
    entry_cost: Tensor  # [k]
    remember_above: Tensor  # [k] assignments above this are remembered
    most_remembered: float  # per query, on average
    # Which classes are idle after an update of all; which are idle now while ``resting``
    idle: Idle
    any_fixed: bool = False  # whether queries with a known label have their class
    weighted: bool = False  # whether queries may count less than one
    resting: bool = False  # whether the idle classes take no part
    sharpness: float = 1.0
    idle_rise: float = 0.0  # of the idle classes' slope since their weight was computed
    ended: EndedSearch | None = None  # where a search goes on: the one before

    def of_active(self, idle: Idle, alpha: float) -> BlockUpdate:
        """The same update for the active classes only."""
        active = idle.active
        return replace(
            self,
            linear=self.linear.of_classes(active),
            slope=self.slope[active],
            entry_cost=self.entry_cost[active],
            remember_above=self.remember_above[active],
            idle=idle,
            resting=True,
            idle_rise=log(alpha / idle.alpha),
        )

    def __call__(self, rows: Tensor, memory: BlockMemory) -> tuple[UpdateSums, BlockMemory]:
        with threads_for(rows.shape[1] * len(self.slope)):
            return self._update(rows, memory)

    def _update(self, rows: Tensor, memory: BlockMemory) -> tuple[UpdateSums, BlockMemory]:
        """The new assignments u [b, k] of a block, as sums over its queries and as memory.

        Σ ln(1 − u) is computed as −Σ u for all assignments, plus ln(1 − u) + u for the remembered
        ones: where an assignment is not remembered it is small, and the difference is of the order
        of u².
        """
        scores = self._scores(rows, memory)
        before = self._among_active(memory)
        weight = memory.idle
        if not self.resting:
            weight = self._idle_weight(scores, memory)
        u, of_idle = self._assign(scores, memory, before)
        masses = u.sum(0)
        places = (u > self.remember_above).view(-1).nonzero().squeeze(1)
        values = u.view(-1)[places]
        beyond = torch.zeros_like(masses)
        beyond.index_add_(0, places % len(masses), log_remainders(values) + values)
        sums = UpdateSums(
            masses=masses.double(),
            log_absent=(beyond - masses).double(),
            idle=of_idle.double().sum(),
            moved=_moved(u, before),
        )
        kept = self._kept(Remembered(places, values), len(u), memory)
        return sums, memory._replace(places=kept.places, values=kept.values, idle=weight)

    def _kept(self, found: Remembered, n_rows: int, memory: BlockMemory) -> Remembered:
        """What is remembered of the assignments that are found worth it, among all classes."""
        places, values = found
        most = int(self.most_remembered * n_rows) + 1
        if len(places) > most:
            values, chosen = values.topk(most)
            places = places[chosen]
        if self.resting:  # memory of idle classes stays
            n_classes = len(self.idle.classes)
            stays = self.idle.classes[memory.places % n_classes]
            places = _places_of(places, self.idle.active, n_classes)
            places = torch.cat([places, memory.places[stays]])
            values = torch.cat([values, memory.values[stays]])
        return Remembered(places, values)

    def assign(self, rows: Tensor, memory: BlockMemory) -> Tensor:
        """[1, b, k] the new assignments of placed rows [1, b, d]."""
        scores = self._scores(rows, memory)
        return self._assign(scores, memory, self._among_active(memory)).u[None]

    def _scores(self, rows: Tensor, memory: BlockMemory) -> Tensor:
        """[b, k] sharpness·ℓ + slopes, for u = 0."""
        addend = self.slope + self.entry_cost
        if self.ended is not None:
            log_likelihood = self.ended.log_likelihood(rows, memory)
            return torch.add(addend, log_likelihood, alpha=self.sharpness)
        return self.linear.scores(rows[0], self.sharpness, addend)

    def _assign(self, scores: Tensor, memory: BlockMemory, before: Remembered) -> NewAssignments:
        """Assignments from scores [b, k], which are overwritten.

        The scores have entry_cost once for every class, as for u = 0; entry_cost (1/(1 − u) − 1) is
        added where u is remembered. Queries with a fixed label have their class, and queries that
        may be unknown count less than one.
        """
        scores.view(-1).index_add_(0, before.places, self._entry_cost_beyond(before))
        if self.resting:
            idle = memory.idle[:, self.idle.sharpness.index(self.sharpness)] + self.idle_rise
            total = torch.logaddexp(scores.logsumexp(1), idle)
            u = scores.sub_(total.unsqueeze(1)).exp_()
            of_idle = (idle - total).exp()
        else:
            u = scores.softmax(1)
            of_idle = scores.new_zeros(len(scores))
        if self.any_fixed:
            # A class with a known query is never idle, so that it has a column here.
            own = own_classes(memory.known, u.new_zeros(1, 1, len(self.idle.classes)))[0]
            if self.resting:
                own = own[:, self.idle.active]
            free = memory.known[0] < 0
            u = torch.where(free.unsqueeze(1), u, own)
            of_idle = of_idle * free
        if self.weighted:
            u = u.mul_(memory.counted.mT)
            of_idle = of_idle * memory.counted[0]
        return NewAssignments(u, of_idle)

    def _entry_cost_beyond(self, before: Remembered) -> Tensor:
        """[n] entry_cost/(1 − u) − entry_cost of remembered assignments."""
        cost = self.entry_cost[before.places % len(self.entry_cost)]
        return cost * (remainders(before.values).reciprocal_() - 1)

    def _idle_weight(self, scores: Tensor, memory: BlockMemory) -> Tensor:
        """[b, r] ``BlockMemory.idle``, from the scores for u = 0.

        ln Σ_k exp(ψ' ℓ_qk + slope_k + entry_cost_k/(1 − u_qk)) over the idle classes k, for each of
        the r values ψ' of the sharpness. ℓ itself is recovered from the scores, which is cheaper
        than another product of matrices.
        """
        if not self.idle.sharpness:
            return scores.new_empty(len(scores), 0)  # a view would keep all scores
        idle = self.idle.classes.nonzero().squeeze(1)
        slopes = (self.slope + self.entry_cost)[idle].repeat(len(scores), 1)
        log_likelihood = scores.index_select(1, idle).sub_(slopes).div_(self.sharpness)
        of_idle = _places_in(memory.places, idle, len(self.idle.classes))
        before = Remembered(memory.places[of_idle.chosen], memory.values[of_idle.chosen])
        slopes.view(-1).index_add_(0, of_idle.places, self._entry_cost_beyond(before))
        weights = [
            torch.add(slopes, log_likelihood, alpha=sharpness).logsumexp(1)
            for sharpness in self.idle.sharpness
        ]
        return torch.stack(weights, 1)

    def _among_active(self, memory: BlockMemory) -> Remembered:
        """What is remembered of the active classes, with places in [b, a]."""
        if not self.resting:
            return Remembered(memory.places, memory.values)
        of_active = _places_in(memory.places, self.idle.active, len(self.idle.classes))
        return Remembered(of_active.places, memory.values[of_active.chosen])


@dataclass(frozen=True, eq=False, kw_only=True)
class EndedSearch:
    """A search that has ended; another goes on with the prototypes that it has updated.

    The updated likelihood of a query depends on its own last assignment, which is left out of the
    mean. It is computed again from what the block remembered before that assignment
    (``BlockMemory.earlier``), so that no [q, k] array is kept.
    """

    last: BlockUpdate
    updated: Updated
    likelihood: Likelihood

    def log_likelihood(self, rows: Tensor, memory: BlockMemory) -> Tensor:
        """[b, k] ℓ of placed rows [1, b, d] with the updated prototypes."""
        assert memory.earlier is not None
        free = (memory.known < 0).unsqueeze(-1).to(rows)
        u = self.last.assign(rows, memory.earlier)
        return self.updated(rows, u, free, self.likelihood.of(rows))[0]


def _moved(u: Tensor, before: Remembered) -> Tensor:
    """[] the largest change of remembered assignments, now that all are u [b, a]."""
    changes = (u.view(-1)[before.places] - before.values).abs()
    return torch.cat([changes, u.new_zeros(1)]).max()


class _PlacesIn(NamedTuple):
    """Which of n places are in the columns of some classes, and where."""

    places: Tensor  # [m] row·(number of these classes) + column
    chosen: Tensor  # [n] bool


def _places_in(places: Tensor, classes: Tensor, n_classes: int) -> _PlacesIn:
    """Places [n] among all classes as places among some of them [a]."""
    column_of_class = torch.full((n_classes,), -1, device=classes.device)
    column_of_class[classes] = torch.arange(len(classes), device=classes.device)
    column = column_of_class[places % n_classes]
    row = places.div(n_classes, rounding_mode="floor")
    chosen = column >= 0
    return _PlacesIn(places=(row * len(classes) + column)[chosen], chosen=chosen)


def _places_of(places: Tensor, classes: Tensor, n_classes: int) -> Tensor:
    """Places [m] among some classes [a] as places among all."""
    row = places.div(len(classes), rounding_mode="floor")
    return row * n_classes + classes[places % len(classes)]
