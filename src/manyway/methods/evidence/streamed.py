"""The passes of evidence over queries that are read in blocks; see ``in_blocks``.

Likelihoods do not change during the search, so two numbers per class are kept between updates: Σ_q u_qk and
Σ_q ln(1 − u_qk). The slopes of the prior follow from them, and an update reads the queries once. Only one thing depends
on a query's own assignment: the cost of the first query of a class is divided by 1 − u_qk. Where a class has many
queries this cost is negligible, and where u_qk is small the divisor is 1. Each block remembers the few assignments for
which neither holds.

Classes with almost no query are idle in some updates. They all have nearly the same slope, φ'(1), which changes with
ln α alone. So their total weight per query, remembered from the last update of all classes, can be reused whatever α
becomes. No idle class can gain more than all of them together: when their total has doubled, all classes are updated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyway.core.blocks import Scaling, Spread
from manyway.core.parallel import threads_for
from manyway.methods.calibration.calibration import Calibration, squared_distances
from manyway.methods.evidence.names import log_probability
from manyway.methods.evidence.one_shot import raised
from manyway.methods.evidence.posterior import GroupPosterior, leave_one_out, query_weights
from manyway.methods.evidence.prior import Presence, Slopes, log_remainders, remainders
from manyway.methods.evidence.schedule import Schedule
from manyway.methods.evidence.search import Update
from manyway.methods.evidence.unknown import Judged, membership

_MOST_REMEMBERED = 1 << 24  # assignments, over all queries
# An assignment is remembered if u·√p⁰ exceeds the first value, so that its cost is right to about 1e-4, or if u
# exceeds the second, because convergence is seen by the change of remembered assignments. During annealing convergence
# is not checked, and the third value suffices.
_REMEMBER_FOR_COST, _REMEMBER, _REMEMBER_IN_ANNEALING = 1e-4, 1e-3, 2e-2
# A class may be idle if its expected count is below the first value, or below the second and changing by less than
# the third.
_ALMOST_EMPTY, _FEW, _STEADY = 1e-3, 0.1, 1e-5
_MIN_IDLE = 32  # with fewer idle classes there is nothing to gain


@dataclass(frozen=True, eq=False)
class Placing:
    """What is done to every row: the scaling of features, then the coordinates of the calibration."""

    scaling: Scaling
    middle: Tensor  # [d]
    metric: Tensor | None  # [d, d]

    @staticmethod
    def of(scaling: Scaling, calibration: Calibration) -> Placing:
        middle, metric = calibration.middle[0, 0], calibration.metric
        identity = torch.eye(len(middle), dtype=middle.dtype, device=middle.device)
        return Placing(scaling, middle, None if metric is None else metric(identity[None])[0])

    def __call__(self, rows: Tensor) -> Tensor:
        rows = self.scaling(rows) - self.middle
        return rows if self.metric is None else rows @ self.metric


class Memory(NamedTuple):
    """What a block remembers until the next update."""

    places: Tensor  # [n] row·K + class of the remembered assignments
    values: Tensor  # [n] their u
    idle: Tensor | None  # [b, r] logarithm of the idle classes' total weight, for each of ``Idle.sharpness``
    unknown: Tensor | None = None  # [b] the probability of no class; None: all queries are of a class
    counted: Tensor | None = None  # [b] how much each query counts in the search; None: fully


class Sums(NamedTuple):
    """Sums over queries, in float64 so that they do not depend on the blocks."""

    masses: Tensor  # [k] Σ u
    log_absent: Tensor  # [k] Σ ln(1 − u)
    idle: Tensor  # [] Σ u of the idle classes
    moved: Tensor  # [] the largest change of a remembered assignment

    def plus(self, other: Sums) -> Sums:
        return Sums(
            self.masses + other.masses,
            self.log_absent + other.log_absent,
            self.idle + other.idle,
            torch.maximum(self.moved, other.moved),
        )


@dataclass(frozen=True, eq=False)
class Idle:
    """Classes that are left out of the next updates."""

    classes: Tensor  # [k] bool
    sharpness: tuple[float, ...]  # the values that the next updates may have
    alpha: float  # of the update in which their weight was computed

    @property
    def active(self) -> Tensor:
        """[a] the other classes."""
        return (~self.classes).nonzero().squeeze(1)


@dataclass(frozen=True, eq=False)
class Assign:
    """The work of an update on one block: new assignments, their sums, and what to remember of them."""

    placing: Placing
    weights: Tensor  # [d, k] ℓ = z·weights + biases
    biases: Tensor  # [k]
    slope: Tensor  # [k]
    entry_cost: Tensor  # [k]
    remember_above: Tensor  # [k] assignments above this are remembered
    most_remembered: float  # per query, on average
    sharpness: float = 1.0
    idle: Idle | None = None  # in an update of all classes: which are idle after it; otherwise: which are idle now
    active: Tensor | None = None  # [a] the classes that are updated; None: all
    shift: float = 0.0  # change of the idle classes' slope since their weight was computed

    def of_active(self, idle: Idle, alpha: float) -> Assign:
        """The same update for the active classes only."""
        active = idle.active
        return replace(
            self,
            weights=self.weights[:, active],
            biases=self.biases[active],
            slope=self.slope[active],
            entry_cost=self.entry_cost[active],
            remember_above=self.remember_above[active],
            idle=idle,
            active=active,
            shift=log(alpha / idle.alpha),
        )

    def __call__(self, block: Tensor, memory: Memory | None) -> tuple[Sums, Memory]:
        with threads_for(len(block) * len(self.biases)):
            return self._update(block, memory)

    def _update(self, block: Tensor, memory: Memory | None) -> tuple[Sums, Memory]:
        scores = self._scores(self.rows(block))
        weight = self._idle_weight(scores, memory) if self.active is None else memory and memory.idle
        u, of_idle = self._assign(scores, memory)
        masses = u.sum(0)
        places = (u > self.remember_above).view(-1).nonzero().squeeze(1)
        values = u.view(-1)[places]
        # Where an assignment is not remembered it is small, and ln(1 − u) is −u.
        beyond = torch.zeros_like(masses).index_add_(0, places % len(masses), log_remainders(values) + values)
        sums = Sums(masses.double(), (beyond - masses).double(), of_idle.double().sum(), self._moved(u, memory))
        most = int(self.most_remembered * len(u)) + 1
        if len(places) > most:
            values, chosen = values.topk(most)
            places = places[chosen]
        if self.idle is not None and self.active is not None and memory is not None:  # memory of idle classes stays
            kept = self.idle.classes[memory.places % len(self.idle.classes)]
            places = torch.cat([_places_of(places, self.active, len(self.idle.classes)), memory.places[kept]])
            values = torch.cat([values, memory.values[kept]])
        return sums, Memory(places, values, weight, *(None, None) if memory is None else memory[3:])

    def assign(self, rows: Tensor, memory: Memory | None) -> Tensor:
        """[b, k] the new assignments of placed rows."""
        return self._assign(self._scores(rows), memory)[0]

    def rows(self, block: Tensor) -> Tensor:
        """[b, d] placed."""
        return self.placing(block.to(self.weights))

    def _scores(self, rows: Tensor) -> Tensor:
        """[b, k] sharpness·ℓ + slopes, for u = 0."""
        rows = rows if self.sharpness == 1 else rows * self.sharpness
        return torch.addmm(self.sharpness * self.biases + self.slope + self.entry_cost, rows, self.weights)

    def _assign(self, scores: Tensor, memory: Memory | None) -> tuple[Tensor, Tensor]:
        """Assignments [b, k] from scores, which are overwritten, and the idle classes' total assignment [b]."""
        u, idle = self._assign_members(scores, memory)
        if memory is None or memory.counted is None:
            return u, idle
        return u.mul_(memory.counted.unsqueeze(1)), idle * memory.counted

    def _assign_members(self, scores: Tensor, memory: Memory | None) -> tuple[Tensor, Tensor]:
        """The same for queries that are all of a class."""
        if memory is not None:
            places, values = self._among_active(memory)
            scores.view(-1).index_add_(0, places, self._entry_cost_beyond(places, values))
        if self.active is None or self.idle is None or memory is None or memory.idle is None:
            return scores.softmax(1), scores.new_zeros(1)
        idle = memory.idle[:, self.idle.sharpness.index(self.sharpness)] + self.shift
        total = torch.logaddexp(scores.logsumexp(1), idle)
        return scores.sub_(total.unsqueeze(1)).exp_(), (idle - total).exp()

    def _entry_cost_beyond(self, places: Tensor, values: Tensor) -> Tensor:
        """[n] entry_cost/(1 − u) − entry_cost of remembered assignments."""
        return self.entry_cost[places % len(self.entry_cost)] * (remainders(values).reciprocal_() - 1)

    def _idle_weight(self, scores: Tensor, memory: Memory | None) -> Tensor | None:
        """[b, r] ``Memory.idle``, from the scores for u = 0."""
        if self.idle is None:
            return None
        idle = self.idle.classes.nonzero().squeeze(1)
        slopes = (self.slope + self.entry_cost)[idle].repeat(len(scores), 1)
        likelihood = scores.index_select(1, idle).sub_(slopes).div_(self.sharpness)
        if memory is not None:
            places, which = _places_in(memory.places, idle, len(self.idle.classes))
            slopes.view(-1).index_add_(0, places, self._entry_cost_beyond(memory.places[which], memory.values[which]))
        return torch.stack([torch.add(slopes, likelihood, alpha=s).logsumexp(1) for s in self.idle.sharpness], 1)

    def _moved(self, u: Tensor, memory: Memory | None) -> Tensor:
        if memory is None:
            return u.new_ones(())
        places, values = self._among_active(memory)
        return torch.cat([(u.view(-1)[places] - values).abs(), u.new_zeros(1)]).max()

    def _among_active(self, memory: Memory) -> tuple[Tensor, Tensor]:
        """Places [n] in [b, a], and values, of what is remembered of the active classes."""
        if self.active is None or self.idle is None:
            return memory.places, memory.values
        places, which = _places_in(memory.places, self.active, len(self.idle.classes))
        return places, memory.values[which]


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


class Streamed:
    """The queries of one task, read in blocks: see ``manyway.methods.evidence.search.Queries``."""

    def __init__(
        self,
        placing: Placing,
        calibration: Calibration,
        n_query: int,
        spread: Spread,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        weights, biases = (one[0] for one in calibration.linear())
        zeros = torch.zeros_like(biases)
        n_classes = len(biases)
        # Before the first assignments all classes count as equally frequent.
        above = min(_REMEMBER_FOR_COST * exp(min(0.5 * n_query / n_classes, 10.0)), _REMEMBER_IN_ANNEALING)
        self.last = Assign(placing, weights, biases, zeros, zeros, zeros + above, _MOST_REMEMBERED / n_query)
        self.all_classes = self.last
        self.spread, self.progress = spread, progress
        self.sharpness = 1.0
        self.memory: list[Any] = []  # of each block, after the last update
        self.before: list[Any] = []  # the same before the last update
        self.start: list[Any] | None = None  # what blocks remember before the first update
        self.active: list[int] = []  # how many classes each update had
        self.masses = self.log_absent = self.drift = zeros.double()
        self.idle: Idle | None = None
        self.idle_for = 0  # how many more updates they may be idle

    @property
    def presence(self) -> Presence:
        return Presence.of_products(self.masses[None], self.log_absent[None].exp())

    def begin(self, sharpness: float) -> Presence:
        self._take(replace(self.all_classes, sharpness=sharpness), self.start)
        self.before = self.memory
        return self.presence

    def update(self, slopes: Slopes, sharpness: float, ahead: Sequence[float] = (), tol: float | None = None) -> Update:
        step = self._step(slopes, sharpness * self.sharpness, _REMEMBER_IN_ANNEALING if tol is None else _REMEMBER)
        alpha = float(slopes.alpha)
        state, self.before = (self.masses, self.log_absent, self.drift), self.memory
        if self.idle is not None:
            idle, self.idle_for = self.idle, self.idle_for - 1
            sums = self._take(step.of_active(idle, alpha), self.before)
            still = tol is not None and float(sums.moved) < tol
            if (
                still
                or self.idle_for == 0
                or float(sums.idle) > 2 * float(state[0][idle.classes].sum()) + _ALMOST_EMPTY
            ):
                self.idle = None
            if not still:
                return Update(self.presence, sums.moved[None])
            self.masses, self.log_absent, self.drift = state  # repeat the update, to see whether idle classes move
        elif step.weights.dtype == torch.float32:
            self.idle, self.idle_for = self._idle([value * self.sharpness for value in ahead], alpha), len(ahead)
        sums = self._take(replace(step, idle=self.idle), self.before)
        return Update(self.presence, sums.moved[None])

    def select(self, which: Tensor) -> Streamed:
        return self  # there is one task

    def replace(self, which: Tensor, other: Streamed) -> None:
        """Nothing to do: ``select`` returned this very object."""

    def sharpened(self, sharpness: Tensor) -> Streamed:
        self.sharpness = float(sharpness)
        return self

    def group_sums(self, classes: Tensor) -> Tensor:
        """[g, d] sums of the features of the queries assigned to some classes, in float64. Reads the queries once."""
        sums, _ = self.spread(SumGroups(replace(self.last, idle=None), classes), self.before)
        values: Tensor = sums.values
        return values

    def _step(self, slopes: Slopes, sharpness: float, remember: float) -> Assign:
        """The next update of all classes."""
        base = self.all_classes
        above = (_REMEMBER_FOR_COST * self.presence.absent[0].rsqrt()).clamp_max(remember).to(base.slope)
        slope, entry_cost = slopes.slope[0].to(base.slope), slopes.entry_cost[0].to(base.slope)
        return replace(base, sharpness=sharpness, slope=slope, entry_cost=entry_cost, remember_above=above)

    def _take(self, step: Assign, memory: Sequence[Any] | None) -> Sums:
        """Do an update, and keep what it returns."""
        sums: Sums
        sums, self.memory = self.spread(step, memory)
        self.last = step
        which = slice(None) if step.active is None else step.active
        masses, log_absent, drift = self.masses.clone(), self.log_absent.clone(), self.drift.clone()
        drift[which] = (sums.masses - masses[which]).abs()
        masses[which], log_absent[which] = sums.masses, sums.log_absent
        self.masses, self.log_absent, self.drift = masses, log_absent, drift
        self.active.append(len(sums.masses))
        if self.progress is not None:
            self.progress(len(self.active) - 1)
        return sums

    def _idle(self, ahead: Sequence[float], alpha: float) -> Idle | None:
        """The classes that may be idle in the next updates; None where too few may."""
        idle = (self.masses < _ALMOST_EMPTY) | ((self.masses < _FEW) & (self.drift < _STEADY))
        n_idle, n_classes = int(idle.sum()), len(idle)
        if not ahead or n_idle < max(_MIN_IDLE, n_classes // 4) or n_idle == n_classes:
            return None
        return Idle(idle, tuple(dict.fromkeys(ahead)), alpha)


class Total(NamedTuple):
    """What adds up over the blocks, in float64."""

    values: Tensor

    def plus(self, other: Total) -> Total:
        return Total(self.values + other.values)


@dataclass(frozen=True, eq=False)
class SumGroups:
    """The work that sums the features of groups of queries."""

    step: Assign
    classes: Tensor  # [g]

    def __call__(self, block: Tensor, memory: Memory | None) -> tuple[Total, None]:
        rows = self.step.rows(block)
        u = self.step.assign(rows, memory).index_select(1, self.classes)
        return Total((u.mT @ rows).double()), None


@dataclass(frozen=True, eq=False)
class UpdatedPrototypes:
    """Prototypes of some classes that have taken in their queries."""

    classes: Tensor  # [g]
    prototypes: Tensor  # [g, d]
    weights: Tensor  # [g] how much of a sample one query counts
    masses: Tensor  # [g] samples and weighted queries
    scatter: Tensor  # []
    precision: Tensor  # []

    @staticmethod
    def of(classes: Tensor, masses: Tensor, sums: Tensor, calibration: Calibration) -> UpdatedPrototypes:
        """From the expected counts [k] of all classes and the feature sums [g, d] of the groups."""
        weights = query_weights(masses[None])[0, classes]
        counts = calibration.counts[0, classes].double()
        total = counts + weights * masses[classes]
        prototypes = counts.unsqueeze(-1) * calibration.offsets[0, classes] + weights.unsqueeze(-1) * sums
        prototypes, weights, total = (
            value.to(calibration.counts) for value in (prototypes / total.unsqueeze(-1), weights, total)
        )
        return UpdatedPrototypes(classes, prototypes, weights, total, calibration.scatter[0], calibration.precision[0])

    def log_likelihood(self, rows: Tensor, u: Tensor) -> Tensor:
        """[b, g] of rows, each left out of the prototypes, up to a number that is equal for all classes."""
        distances = squared_distances(rows[None], self.prototypes[None])[0]
        taken = u.index_select(1, self.classes) * self.weights
        distances = leave_one_out(distances, taken, self.masses, self.scatter)
        return distances.sub_(rows.square().sum(1, keepdim=True)).mul_(-0.5 * self.precision)


@dataclass(frozen=True, eq=False)
class Probabilities:
    """From the last assignments of a block to class probabilities."""

    step: Assign  # the last update
    slopes: Slopes  # [1, k] of its assignments
    updated: UpdatedPrototypes | None
    posterior: GroupPosterior | None
    power: Tensor | None = None  # [] see ``one_shot``
    open_set: bool = False  # whether the probabilities of a row sum to 1 minus that of no class

    def __call__(self, block: Tensor, memory: Memory | None) -> Tensor:
        """[b, k] the class probabilities of a block, given what it remembered before the last update."""
        with threads_for(len(block) * len(self.step.biases)):
            return self._probabilities(block, memory)

    def _probabilities(self, block: Tensor, memory: Memory | None) -> Tensor:
        rows = self.step.rows(block)
        u = self.step.assign(rows, memory)
        scores = torch.addmm(self.step.biases, rows, self.step.weights)
        if self.updated is not None:
            scores.index_copy_(1, self.updated.classes, self.updated.log_likelihood(rows, u))
        u = self.slopes.add_to(scores[None], remainders(u)[None]).softmax(-1)
        u = (u if self.posterior is None else self.posterior.apply(u))[0]
        u = u if self.power is None else raised(u, self.power)
        if not self.open_set or memory is None or memory.unknown is None:
            return u
        return u.mul_((1 - memory.unknown).unsqueeze(1))


class Sample(NamedTuple):
    """Every so many queries of each block."""

    placed: Tensor  # [n, d]
    probabilities: Tensor  # [n, k]; [n, 0] before the search
    sizes: Tensor  # [blocks] how many queries each block has

    def plus(self, other: Sample) -> Sample:
        return Sample(*(torch.cat(pair) for pair in zip(self, other, strict=True)))

    def rows(self, step: int) -> Tensor:
        """[n] which queries of all these are."""
        ends = self.sizes.cumsum(0).tolist()
        parts = zip([0, *ends], ends, strict=False)
        return torch.cat([torch.arange(first, end, step) for first, end in parts])


@dataclass(frozen=True, eq=False)
class TakeSample:
    """The work that collects every ``step``-th query, after the search with its probabilities."""

    assign: Assign
    step: int
    found: Probabilities | None = None

    def __call__(self, block: Tensor, memory: Memory | None) -> tuple[Sample, None]:
        placed = self.assign.rows(block[:: self.step])
        probabilities = placed[:, :0] if self.found is None else self.found(block, memory)[:: self.step]
        return Sample(placed, probabilities, torch.tensor([len(block)])), None


@dataclass(frozen=True, eq=False)
class JudgeQueries:
    """The work that remembers how probable it is that queries are of no class, and sums it."""

    assign: Assign
    judged: Judged
    schedule: Schedule

    def __call__(self, block: Tensor, memory: Any) -> tuple[Total, Memory]:
        rows = self.assign.rows(block)
        unknown = (self.judged.weights(rows[None])[0] @ self.judged.unknown[0].unsqueeze(-1)).squeeze(-1)
        nothing = torch.zeros(0, dtype=torch.int64, device=rows.device)
        counted = membership(unknown, self.judged.unknown.amin(), self.schedule)
        return Total(unknown.sum(dtype=torch.float64)), Memory(nothing, rows[:0, 0], None, unknown, counted)


@dataclass(frozen=True, eq=False)
class NearestGroups:
    """From a block of queries to the group [b] of queries of no class that each would belong to."""

    assign: Assign
    judged: Judged  # of the queries in the groups only
    groups: Tensor  # [a]

    def __call__(self, block: Tensor) -> Tensor:
        if not len(self.groups):
            return torch.full((len(block),), -1, device=block.device)
        return self.groups[self.judged.weights(self.assign.rows(block)[None])[0].argmax(-1)]


class Surest(NamedTuple):
    """The highest probability of each class."""

    values: Tensor  # [k]

    def plus(self, other: Surest) -> Surest:
        return Surest(torch.maximum(self.values, other.values))


@dataclass(frozen=True, eq=False)
class FindSurest:
    """The work that finds the surest query of each class."""

    assign: Probabilities

    def __call__(self, block: Tensor, memory: Memory | None) -> tuple[Surest, None]:
        return Surest(self.assign(block, memory).amax(0)), None


@dataclass(frozen=True, eq=False)
class FindFit:
    """The work that computes ln p(queries) for given proportions [k] of the classes."""

    placing: Placing
    calibration: Calibration
    proportions: Tensor

    def __call__(self, block: Tensor, memory: None) -> tuple[Total, None]:
        likelihood = self.calibration.log_likelihood(self.placing(block.to(self.proportions))[None])
        return Total(log_probability(likelihood, self.proportions[None]).double().cpu()), None
