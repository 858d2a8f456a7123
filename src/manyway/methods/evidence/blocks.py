"""The queries of one task, read in blocks: the passes of evidence over a pile.

Likelihoods do not change during the search, so two numbers per class are kept between updates: m_k = Σ_q u_qk and
ln p⁰_k = Σ_q ln(1 − u_qk). The slopes of the prior follow from them, and an update reads the queries once:

    u_qk = softmax_k(s ℓ_qk + slope_k + entry_cost_k / (1 − u_qk)).

Only one thing depends on a query's own assignment: the cost of the first query of a class is divided by 1 − u_qk. Where
a class has many queries this cost is negligible, and where u_qk is small the divisor is 1. Each block remembers the few
assignments for which neither holds, as places and values.

Classes with almost no query are *idle* in some updates. They all have nearly the same slope, φ'(1), which changes with
ln α alone. So their total weight per query, ln Σ_k exp(s ℓ_qk + slope_k) over the idle classes, remembered from the
last update of all classes, can be reused whatever α becomes: it is shifted by ln(α_now/α_then). No idle class can gain
more than all of them together: when their total has doubled, all classes are updated.

Everything that goes to a block is a small callable without a reference to the pile, so that Dask can send it to the
worker that holds the block, and only sums come back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from math import exp, log
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyway.core import Pile, Tasks, threads_for
from manyway.core import Sums as AddedUp
from manyway.methods.evidence.likelihood import Columns, Likelihood, Linear, Updated, known_classes
from manyway.methods.evidence.prior import Concentrations, Presence, Slopes, log_remainders, remainders
from manyway.methods.evidence.queries import Held, Judge, Part, counted
from manyway.methods.evidence.schedule import Parameters
from manyway.methods.evidence.search import Found, Update, resume, search

_MOST_REMEMBERED = 1 << 24  # assignments, over all queries
# An assignment is remembered if u·√p⁰ exceeds the first value, so that its cost is right to about 1e-4, or if u
# exceeds the second, because convergence is seen by the change of remembered assignments. During annealing convergence
# is not checked, and the third value suffices.
_REMEMBER_FOR_COST, _REMEMBER, _REMEMBER_IN_ANNEALING = 1e-4, 1e-3, 2e-2
# A class may be idle if its expected count is below the first value, or below the second and changing by less than
# the third.
_ALMOST_EMPTY, _FEW, _STEADY = 1e-3, 0.1, 1e-5
_MIN_IDLE = 32  # with fewer idle classes there is nothing to gain


class Memory(NamedTuple):
    """What a block remembers until the next update.

    It stays with the block, on a cluster with the worker: what is remembered of a query is never sent around.
    ``_MOST_REMEMBERED`` bounds the number of assignments.
    """

    first: int  # the number of its first query
    known: Tensor  # [1, b] known labels, -1 for the others
    unknown: Tensor  # [1, b] the probability to be unknown
    counted: Tensor  # [1, b] how much each query counts in the search
    places: Tensor  # [n] row·K + class of the remembered assignments
    values: Tensor  # [n] their u
    idle: Tensor  # [b, r] logarithm of the idle classes' total weight, for each of ``Idle.sharpness``
    earlier: tuple[Memory, ...] = ()  # what the last update of an earlier search began with


class Sums(NamedTuple):
    """Sums over queries, in float64 so that they do not depend on the blocks."""

    masses: Tensor  # [k] Σ u
    log_absent: Tensor  # [k] Σ ln(1 − u)
    idle: Tensor  # [] Σ u of the idle classes
    moved: Tensor  # [] the largest change of a remembered assignment

    def plus(self, other: Sums) -> Sums:
        masses, log_absent, idle = (one + another for one, another in zip(self[:3], other[:3], strict=True))
        return Sums(masses, log_absent, idle, torch.maximum(self.moved, other.moved))


@dataclass(frozen=True, eq=False)
class Idle:
    """Classes that are left out of the next updates; by default none is.

    Their weight is computed for each sharpness that the next updates may have, because it is not linear in it.
    """

    classes: Tensor  # [k] bool
    sharpness: tuple[float, ...] = ()  # the values that the next updates may have; none where no class is idle
    alpha: float = 1.0  # of the update in which their weight was computed

    @cached_property
    def active(self) -> Tensor:
        """[a] the other classes."""
        return (~self.classes).nonzero().squeeze(1)


@dataclass(frozen=True, eq=False)
class Assign:
    """The work of an update on one block: new assignments, their sums, and what to remember of them.

    The object has all that an update needs to know besides the rows and the memory of the block. An update of all
    classes also computes the weight of the classes that will be idle; a *resting* update has columns for the active
    classes, and one number per query for the idle ones.
    """

    of: Linear | Columns  # ℓ of placed rows
    slope: Tensor  # [k]
    entry_cost: Tensor  # [k]
    remember_above: Tensor  # [k] assignments above this are remembered
    most_remembered: float  # per query, on average
    any_known: bool
    weighted: bool  # whether queries may count less than one
    idle: Idle  # which classes are idle after an update of all classes; which are idle now while ``resting``
    resting: bool = False  # whether the idle classes take no part
    sharpness: float = 1.0
    shift: float = 0.0  # change of the idle classes' slope since their weight was computed
    after: tuple[After, ...] = ()  # where a search goes on: the one before; at most one

    def of_active(self, idle: Idle, alpha: float) -> Assign:
        """The same update for the active classes only."""
        active = idle.active
        columns = {name: getattr(self, name)[active] for name in ("slope", "entry_cost", "remember_above")}
        shift = log(alpha / idle.alpha)
        return replace(self, of=self.of.of_classes(active), idle=idle, resting=True, shift=shift, **columns)

    def __call__(self, rows: Tensor, memory: Memory) -> tuple[Sums, Memory]:
        with threads_for(rows.shape[1] * len(self.slope)):
            return self._update(rows, memory)

    def _update(self, rows: Tensor, memory: Memory) -> tuple[Sums, Memory]:
        """The new assignments u [b, k] of a block, as sums over its queries and as memory.

        Σ ln(1 − u) is computed as −Σ u for all assignments, plus ln(1 − u) + u for the remembered ones: where an
        assignment is not remembered it is small, and the difference is of the order of u².
        """
        scores, remembered = self._scores(rows, memory), self._among_active(memory)
        weight = memory.idle if self.resting else self._idle_weight(scores, memory)
        u, of_idle = self._assign(scores, memory, *remembered)
        masses = u.sum(0)
        places = (u > self.remember_above).view(-1).nonzero().squeeze(1)
        values = u.view(-1)[places]
        # Where an assignment is not remembered it is small, and ln(1 − u) is −u.
        beyond = torch.zeros_like(masses).index_add_(0, places % len(masses), log_remainders(values) + values)
        sums = Sums(masses.double(), (beyond - masses).double(), of_idle.double().sum(), _moved(u, *remembered))
        most = int(self.most_remembered * len(u)) + 1
        if len(places) > most:
            values, chosen = values.topk(most)
            places = places[chosen]
        if self.resting:  # memory of idle classes stays
            n_classes = len(self.idle.classes)
            kept = self.idle.classes[memory.places % n_classes]
            places = torch.cat([_places_of(places, self.idle.active, n_classes), memory.places[kept]])
            values = torch.cat([values, memory.values[kept]])
        return sums, memory._replace(places=places, values=values, idle=weight)

    def assign(self, rows: Tensor, memory: Memory) -> Tensor:
        """[1, b, k] the new assignments of placed rows [1, b, d]."""
        return self._assign(self._scores(rows, memory), memory, *self._among_active(memory))[0][None]

    def _scores(self, rows: Tensor, memory: Memory) -> Tensor:
        """[b, k] sharpness·ℓ + slopes, for u = 0."""
        addend = self.slope + self.entry_cost
        for ended in self.after:
            return torch.add(addend, ended.likelihood(rows, memory), alpha=self.sharpness)
        return self.of.scores(rows[0], self.sharpness, addend)

    def _assign(self, scores: Tensor, memory: Memory, places: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Assignments [b, k] from scores, which are overwritten, and the idle classes' total assignment [b].

        The scores have entry_cost once for every class, as for u = 0; entry_cost (1/(1 − u) − 1) is added where u is
        remembered. Queries with a known label have their class, and queries that may be unknown count less than one.
        """
        scores.view(-1).index_add_(0, places, self._entry_cost_beyond(places, values))
        if self.resting:
            idle = memory.idle[:, self.idle.sharpness.index(self.sharpness)] + self.shift
            total = torch.logaddexp(scores.logsumexp(1), idle)
            u, of_idle = scores.sub_(total.unsqueeze(1)).exp_(), (idle - total).exp()
        else:
            u, of_idle = scores.softmax(1), scores.new_zeros(len(scores))
        if self.any_known:
            # A class with a known query is never idle, so that it has a column here.
            own = known_classes(memory.known, u.new_zeros(1, 1, len(self.idle.classes)))[0]
            own = own[:, self.idle.active] if self.resting else own
            free = memory.known[0] < 0
            u, of_idle = torch.where(free.unsqueeze(1), u, own), of_idle * free
        if self.weighted:
            u, of_idle = u.mul_(memory.counted.mT), of_idle * memory.counted[0]
        return u, of_idle

    def _entry_cost_beyond(self, places: Tensor, values: Tensor) -> Tensor:
        """[n] entry_cost/(1 − u) − entry_cost of remembered assignments."""
        return self.entry_cost[places % len(self.entry_cost)] * (remainders(values).reciprocal_() - 1)

    def _idle_weight(self, scores: Tensor, memory: Memory) -> Tensor:
        """[b, r] ``Memory.idle``, from the scores for u = 0.

        ln Σ_k exp(s' ℓ_qk + slope_k + entry_cost_k/(1 − u_qk)) over the idle classes k, for each of the r values s' of
        the sharpness. ℓ itself is recovered from the scores, which is cheaper than another product of matrices.
        """
        if not self.idle.sharpness:
            return scores.new_empty(len(scores), 0)  # a view would keep all scores
        idle = self.idle.classes.nonzero().squeeze(1)
        slopes = (self.slope + self.entry_cost)[idle].repeat(len(scores), 1)
        likelihood = scores.index_select(1, idle).sub_(slopes).div_(self.sharpness)
        places, which = _places_in(memory.places, idle, len(self.idle.classes))
        slopes.view(-1).index_add_(0, places, self._entry_cost_beyond(memory.places[which], memory.values[which]))
        return torch.stack([torch.add(slopes, likelihood, alpha=s).logsumexp(1) for s in self.idle.sharpness], 1)

    def _among_active(self, memory: Memory) -> tuple[Tensor, Tensor]:
        """Places [n] in [b, a], and values, of what is remembered of the active classes."""
        if not self.resting:
            return memory.places, memory.values
        places, which = _places_in(memory.places, self.idle.active, len(self.idle.classes))
        return places, memory.values[which]


class After(NamedTuple):
    """A search that has ended; another goes on with the prototypes that it has updated.

    The updated likelihood of a query depends on its own last assignment, which is left out of the mean. It is computed
    again from what the block remembered before that assignment (``Memory.earlier``), so that no [q, k] array is kept.
    """

    last: Assign
    updated: Updated
    of: Likelihood

    def likelihood(self, rows: Tensor, memory: Memory) -> Tensor:
        """[b, k] ℓ of placed rows [1, b, d] with the updated prototypes."""
        free = (memory.known < 0).unsqueeze(-1).to(rows)
        return self.updated(rows, self.last.assign(rows, memory.earlier[0]), free, self.of.of(rows))[0]


def _go_on(last: Assign, rows: Tensor, memory: Memory) -> tuple[None, Memory]:
    """The work that remembers the last assignments of a search, and how to compute them again."""
    step = replace(last, remember_above=last.remember_above.clamp_max(_REMEMBER))
    return None, step(rows, memory)[1]._replace(earlier=(memory,))


def _weigh(judge: Judge, rows: Tensor, memory: Memory) -> tuple[None, Memory]:
    """The work that remembers how probable it is that queries are unknown."""
    unknown = judge(rows, memory.first).masked_fill(memory.known >= 0, 0)
    return None, memory._replace(unknown=unknown, counted=counted(unknown))


@dataclass(frozen=True, eq=False)
class OnPart:
    """The work of a step on one block, as on any other part of the queries.

    The assignments of the block are computed again when the step first asks for them. Sums are handed back in float64.
    """

    last: Assign
    of: Likelihood
    any_given: bool
    any_unknown: bool
    work: Callable[[Part], Any]

    def __call__(self, rows: Tensor, memory: Memory) -> tuple[Any, None]:
        found = self.found(rows, memory)
        return found.double() if isinstance(found, AddedUp) else found, None

    def found(self, rows: Tensor, memory: Memory) -> Any:
        """What the work finds in the block, sums as it gave them."""
        assign = cache(lambda: self.last.assign(rows, memory))
        part = Part(
            placed=rows,
            first=memory.first,
            given=memory.known,
            known=memory.known,
            unknown=memory.unknown,
            assign=assign,
            of=self.of,
            any_given=self.any_given,
            any_known=self.last.any_known,
            any_unknown=self.any_unknown,
        )
        with threads_for(rows.shape[1] * len(self.last.slope)):
            return self.work(part)


def _moved(u: Tensor, places: Tensor, values: Tensor) -> Tensor:
    """[] the largest change of remembered assignments, now that all are u [b, a]."""
    return torch.cat([(u.view(-1)[places] - values).abs(), u.new_zeros(1)]).max()


def _places_in(places: Tensor, classes: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Places among all classes as places among some of them, and a mask [n] of those that are."""
    column = torch.full((n_classes,), -1, device=classes.device)
    column[classes] = torch.arange(len(classes), device=classes.device)
    column = column[places % n_classes]
    row = places.div(n_classes, rounding_mode="floor")
    return (row * len(classes) + column)[column >= 0], column >= 0


def _places_of(places: Tensor, classes: Tensor, n_classes: int) -> Tensor:
    """Places among some classes as places among all."""
    row = places.div(len(classes), rounding_mode="floor")
    return row * n_classes + classes[places % len(classes)]


class InBlocks(Held):
    """The queries of one task, read in blocks. It is also what the search updates (``search.Queries``).

    The state is ``masses``, ``log_absent`` and ``drift`` [k], in float64, and what the blocks remember. ``before`` is
    what they remembered before the last update: the last assignments can be computed again from it, by every later
    step.
    """

    def __init__(self, pile: Pile, tasks: Tasks, likelihood: Likelihood, parameters: Parameters) -> None:
        super().__init__(tasks, likelihood, parameters)
        self.pile, zeros = pile, torch.zeros_like(likelihood.counts[0])
        n_classes = len(zeros)
        # Before the first assignments all classes count as equally frequent.
        above = min(_REMEMBER_FOR_COST * exp(min(0.5 * self.n_query / n_classes, 10.0)), _REMEMBER_IN_ANNEALING)
        none = Idle(torch.zeros(n_classes, dtype=torch.bool, device=zeros.device))
        most = _MOST_REMEMBERED / self.n_query
        self.none_idle = self.idle = none
        self.idle_for = 0  # how many more updates they may be idle
        first = Assign(likelihood.linear(), zeros, zeros, zeros + above, most, False, False, none)
        self.last = self.all_classes = first
        self.sharpness = 1.0
        nothing, one = zeros[:0], zeros.new_ones(1, 1)
        self.memory: list[Any] = [  # of each block, after the last update
            Memory(first, labels, (0 * one).expand(1, size), one.expand(1, size), nothing.long(), nothing, zeros)
            for first, size, labels in zip(pile.firsts, pile.sizes, pile.split(self.given), strict=True)
        ]
        self.before: list[Any] = self.memory  # the same before the last update
        self.active: list[int] = []  # how many classes each update had
        self.masses = self.log_absent = self.drift = zeros.double()

    def each(self, work: Callable[[Part], Any]) -> Any:
        return self.pile.each(self.on_part(work), self.before)[0]

    def on_part(self, work: Callable[[Part], Any]) -> OnPart:
        """The work on a block that a step's work on a part becomes."""
        return OnPart(last=self.last, of=self.of, any_given=self.any_given, any_unknown=self.last.weighted, work=work)

    def weigh(self, judge: Judge) -> None:
        _, self.memory = self.pile.each(partial(_weigh, judge), self.memory)
        self.before = self.memory
        self.last = self.all_classes = replace(self.all_classes, weighted=True)

    def search(self, prior: Concentrations, *, with_terms: bool = False) -> Found[InBlocks]:
        return search(self, prior, self.parameters)

    def fix(self, which: Tensor, prior: Concentrations) -> Found[InBlocks]:
        self.last = self.all_classes = replace(self.all_classes, any_known=True)
        self.idle = self.none_idle
        return resume(self, self.presence, prior, self.parameters)

    def resume(self, updated: Updated, presence: Presence, prior: Concentrations) -> Found[InBlocks]:
        _, self.memory = self.pile.each(partial(_go_on, self.last), self.before)
        self.all_classes = replace(self.all_classes, after=(After(self.last, updated, self.of),))
        self.idle = self.none_idle
        return resume(self, presence, prior, self.parameters)

    def begin(self, sharpness: float) -> Presence:
        self.before = self.memory
        self._take(replace(self.all_classes, sharpness=sharpness))
        return self.presence

    def update(self, slopes: Slopes, sharpness: float, ahead: Sequence[float] = (), tol: float = 0.0) -> Update:
        """Assign again, given the slopes of the prior; by default all classes.

        While classes are idle, the update has the active ones only. It is repeated with all classes where nothing has
        moved by ``tol``, to see whether an idle class would; the idle classes return where their total has doubled, or
        when the number of updates for which their weight was computed is over.
        """
        step = self._step(slopes, sharpness * self.sharpness, _REMEMBER if tol else _REMEMBER_IN_ANNEALING)
        alpha = float(slopes.alpha)
        state, self.before = (self.masses, self.log_absent, self.drift), self.memory
        if self.idle.sharpness:
            idle, self.idle_for = self.idle, self.idle_for - 1
            sums = self._take(step.of_active(idle, alpha))
            still = float(sums.moved) < tol
            grown = float(sums.idle) > 2 * float(state[0][idle.classes].sum()) + _ALMOST_EMPTY
            if still or grown or self.idle_for == 0:
                self.idle = self.none_idle
            if not still:
                return Update(self.presence, sums.moved[None])
            self.masses, self.log_absent, self.drift = state  # repeat the update, to see whether idle classes move
        elif step.slope.dtype == torch.float32 and not step.after:
            self.idle, self.idle_for = self._idle([value * self.sharpness for value in ahead], alpha), len(ahead)
        sums = self._take(replace(step, idle=self.idle))
        return Update(self.presence, sums.moved[None])

    def select(self, which: Tensor) -> InBlocks:
        return self  # there is one task

    def replace(self, which: Tensor, other: InBlocks) -> None:
        """Nothing to do: ``select`` returned this very object."""

    def sharpened(self, sharpness: Tensor) -> InBlocks:
        if self.sharpness != float(sharpness):
            self.sharpness, self.idle = float(sharpness), self.none_idle
        return self

    def terms(self) -> Tensor:
        """[2, 1] not computed: it would be another pass."""
        return self.masses.new_zeros(2, 1)

    def _step(self, slopes: Slopes, sharpness: float, remember: float) -> Assign:
        """The next update of all classes."""
        base = self.all_classes
        above = (_REMEMBER_FOR_COST * self.presence.absent[0].rsqrt()).clamp_max(remember).to(base.slope)
        slope, entry_cost = slopes.slope[0].to(base.slope), slopes.entry_cost[0].to(base.slope)
        return replace(base, sharpness=sharpness, slope=slope, entry_cost=entry_cost, remember_above=above)

    def _take(self, step: Assign) -> Sums:
        """Do an update, and keep what it returns."""
        sums: Sums
        sums, self.memory = self.pile.each(step, self.before)
        self.last = step
        which = step.idle.active if step.resting else slice(None)
        masses, log_absent, drift = self.masses.clone(), self.log_absent.clone(), self.drift.clone()
        drift[which] = (sums.masses - masses[which]).abs()
        masses[which], log_absent[which] = sums.masses, sums.log_absent
        self.masses, self.log_absent, self.drift = masses, log_absent, drift
        self.presence = Presence.of_products(masses[None], log_absent[None].exp())
        self.active.append(len(sums.masses))
        return sums

    def _idle(self, ahead: Sequence[float], alpha: float) -> Idle:
        """The classes that may be idle in the next updates; none where too few may.

        A class may be if it is almost empty, or if it has few queries and has not changed in the last update. The
        float64 path, which exists for comparison, has no idle classes.
        """
        idle = (self.masses < _ALMOST_EMPTY) | ((self.masses < _FEW) & (self.drift < _STEADY))
        n_idle, n_classes = int(idle.sum()), len(idle)
        if not ahead or n_idle < max(_MIN_IDLE, n_classes // 4) or n_idle == n_classes:
            return self.none_idle
        return Idle(idle, tuple(dict.fromkeys(ahead)), alpha)
