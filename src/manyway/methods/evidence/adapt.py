"""Adapt: queries that differ from the examples, all in the same way, as another camera or laboratory makes them.

A query of class k is x = w_k + noise + b. The shift b is common to a batch, and usually it is nothing:

    b = 0 with the probability 1 − ε,        b ~ N(0, v) otherwise,        in units of the scales of columns.

Near-copies of a query count nothing beside it (``copies``): in what follows |Q| queries are left without them, and
x̄ is their mean.

Given the proportions π of the classes, the mean residual b̂ = x̄ − Σ_k π_k w_k estimates b. Without a shift,
‖b̂‖² is c = S (1/|Q| + Σ_k π_k²/n_k) on average, for the within-class scatter S: by the noise of |Q| queries,
and by the errors of the prototypes of those classes that occur. F = ‖b̂‖²/c then is a mean of N squares, where
N is the effective number of columns. With v = ‖b̂‖² − c, its best value,

    ln odds(shift) = ln ε/(1 − ε) + ln(1 − 1/N) + ½ N (F − 1 − ln F),        E b = P(shift) (1 − 1/F) b̂,

where 1 − 1/N says that one column alone cannot tell a shift from another class.

The metric multiplies exactly the directions in which examples agree, so that a small shift can spoil the labels,
and with them π. So three further answers are made:

1. the one direction x̄ − w̄ in which the means of queries and of prototypes differ is dropped from both; what
   is left of a shift is small, and the labels are nearly right;
2. the queries are moved back by b̂ of these labels;
3. they are moved back by E b, with b̂ of the second labels, where that explains more than it leaves: with r and r₀
   as below, and l by which r is above what batches without a shift have, the log-odds are ½ τ S |Q| (r₀ − r − l).

**What a shift does not explain.** Noise, or pictures that have lost their colour, are no shift, but spoil labels
and so make F large. Let r be the mean squared distance of queries from their prototypes after the move, relative
to that of left-out examples, and r₀ that of the first answer. Of all by which queries differ from examples the
shift explains the part

    e = s² / (s² + max(0, r − 1)),        s² = ‖b̂‖²/S,

and F e takes the place of F.

**What is lost.** Grey pictures or mistyped words are shifted, and have lost some of what tells classes apart, which
no vector brings back. Around the means of the batch a query then is x = g w_k + noise, with the contrast g < 1.
It is the slope of the means z̄_k of groups of m_k queries over the means w_k that are expected of their classes
(``Calibration.shrunk``), so that g is 1 for queries like the examples,

    g = Σ_k m_k (z̄_k − z̄)·(w_k − w̄) / Σ_k m_k ‖w_k − w̄‖²,

with the prior Normal(1, 1). Where a shift was looked for, the final probabilities have the power g if that is below
what the distances say (see ``confidence``).

**What cannot be known.** Where few classes occur, the shift is made of their own residuals: with one class, any
class is as good, by a shift of its own. Each of N classes has a part of 1/N in b̂, so that its distance from its
prototype is too short by that part. A known label says as much about the shift as a class does. With n of them, the
final probabilities have the power 1 − P(shift) (1 − (1 − 1/(N + n + ½))²). So do the classes of groups, where they
say which classes occur (``count``), and a review asks first for queries that decide it (``review``). Queries are moved
back with F (1 − 1/N²) in the place of F: if they would then all be of one class, they stay.

The further answers are made where the first one gives a reason: F, in the metric, or r is above what batches
without a shift have. These two limits save time. Of 319 shifted batches whose labels a shift had spoiled they
miss one.

With one example per class S is a guess, and where queries may be unknown, a shift and unknown queries look
alike: there is no adapting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import log

import torch
from torch import Tensor

from manyway.core import Solution, Sums, Tasks, class_sums, effective_number
from manyway.methods.calibration import Calibration, Representation
from manyway.methods.evidence.queries import BatchQueries, Part

# A reason to look for a shift: F, or the mean squared residual relative to that of left-out examples.
_NOTABLE_RATIO = 1.5
_NOTABLE_RESIDUAL = 1.05
_ROUNDS = 3  # in which the middle of the classes and their weights are brought into agreement


@dataclass(frozen=True, eq=False, kw_only=True)
class Shift:
    """What was found about the shift of t batches."""

    vector: Tensor  # [t, 1, d] E b: by which queries were moved back
    size: Tensor  # [t] s, the length of b̂ in within-class scatters
    probability: Tensor  # [t] P(shift)

    @staticmethod
    def none(like: Tensor) -> Shift:
        """That of t batches in which none was looked for, as ``like`` [t]."""
        nothing = torch.zeros_like(like)
        return Shift(vector=nothing.view(-1, 1, 1), size=nothing, probability=nothing)

    def power(self, masses: Tensor, n_known: Tensor) -> Tensor:
        """[t] the power of final probabilities.

        ``masses`` [t, k] are the expected class counts, ``n_known`` [t] the numbers of known labels.
        """
        own_part = 1 / (effective_number(masses) + n_known + 0.5)
        return 1 - self.probability * (1 - (1 - own_part).square())

    @property
    def learned(self) -> dict[str, Tensor]:
        """What is worth telling, a number per task [t] each."""
        return {"shift": self.size * self.probability, "shift_probability": self.probability}


@dataclass(frozen=True, eq=False)
class Moved:
    """Rows [t, n, d] that are moved back by a vector [t, 1, d]."""

    vector: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        return rows - self.vector


@dataclass(frozen=True, eq=False)
class Flattened:
    """Rows [t, n, d] without one direction [t, 1, d]: x − δ (a·x) with a·δ = 1."""

    direction: Tensor
    measure: Tensor  # [t, 1, d] a

    def __call__(self, rows: Tensor) -> Tensor:
        return rows - (rows * self.measure).sum(-1, keepdim=True) * self.direction


def with_queries(tasks: Tasks, change: Callable[[Tensor], Tensor]) -> Tasks:
    """The tasks with changed queries, in memory or when they are read."""
    if tasks.pile is not None:
        return replace(tasks, pile=tasks.pile.then(change))
    if tasks.factor is not None or tasks.centre is not None:
        return tasks.with_rows(tasks.support, change(tasks.query))
    return replace(tasks, query_table=change(tasks.query), query_index=None)


@dataclass(frozen=True, eq=False, kw_only=True)
class Fit:
    """How near queries are to their prototypes, as they are and moved back."""

    before: Tensor  # [t] r of the first answer
    after: Tensor  # [t] r of the queries that were moved back
    weight: Tensor  # [t] ½ τ S |Q|: what r counts in ln p(queries)

    @property
    def better(self) -> Tensor:
        """[t] how probable it is that queries are to be moved: that this explains more than it leaves."""
        left = (self.after - _NOTABLE_RESIDUAL).clamp_min(0)
        return (self.weight * (self.before - self.after - left)).sigmoid()


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """The examples and the queries of t batches, as far as a shift is concerned."""

    tasks: Tasks
    weights: Tensor  # [t, 1, d] 1/σ of the columns
    columns: Tensor  # [t] N
    means: Tensor  # [t, k, d] class means w
    counts: Tensor  # [t, k]
    scatter: Tensor  # [t] S
    query_mean: Tensor  # [t, 1, d] x̄
    n_query: Tensor  # [t] |Q|

    @staticmethod
    def of(tasks: Tasks, representation: Representation, distinct: Tensor) -> Comparison:
        """``distinct`` [t, q]: 0 for near-copies of other queries, else 1."""
        sums, counts = class_sums(tasks)
        means = sums / counts.clamp_min(1).unsqueeze(-1)
        labels = tasks.support_labels.unsqueeze(-1).expand(-1, -1, means.shape[-1])
        residuals = (tasks.support - means.gather(1, labels)) * representation.weights
        freedom = tasks.n_support - (counts > 0).sum(-1)
        tiny = torch.finfo(means.dtype).tiny
        n_query = distinct.sum(1)
        total = _sum_of_queries(tasks, distinct)
        return Comparison(
            tasks=tasks,
            weights=representation.weights,
            columns=representation.columns.flatten(),
            means=means,
            counts=counts,
            scatter=(residuals.square().sum((1, 2)) / freedom.clamp_min(1)).clamp_min(tiny),
            query_mean=(total / n_query.unsqueeze(-1)).unsqueeze(1).to(means),
            n_query=n_query,
        )

    def flattened(self) -> Tasks:
        """The tasks without the direction in which the means of queries and of classes differ."""
        # A constant column has no part in it: rounding would make it vary.
        direction = (self.query_mean - self._middle()) * (self.weights > 0)
        measure = direction * self.weights.square()
        tiny = torch.finfo(measure.dtype).tiny
        measure = measure / (measure * direction).sum(-1, keepdim=True).clamp_min(tiny)
        change = Flattened(direction, measure)
        tasks = with_queries(self.tasks, change)
        base_mean = tasks.base_mean
        if base_mean is not None:
            base_mean = change(base_mean)
        query = tasks.query_table if tasks.pile is not None else tasks.query
        return tasks.with_rows(change(tasks.support), query, base_mean=base_mean)

    def _middle(self) -> Tensor:
        """[t, 1, d] w̄, the mean of the class means. A far class counts little, as in ``Representation``."""
        occupied = (self.counts > 0).to(self.means)
        of_class = occupied
        for _ in range(_ROUNDS):
            shares = (of_class / of_class.sum(-1, keepdim=True)).unsqueeze(1)
            middle = shares @ self.means
            squares = ((self.means - middle) * self.weights).square().sum(-1)
            typical = squares.where(occupied > 0, torch.nan).nanmedian(-1, keepdim=True).values
            of_class = occupied / (1 + squares / typical.clamp_min(torch.finfo(squares.dtype).tiny))
        return middle

    def shift(self, proportions: Tensor, fit: Fit, shift_prior: float) -> Shift:
        """The shift, given the proportions [t, k] of classes among the queries that were moved back."""
        found = self.mean_residual(proportions)
        squares = (found * self.weights).square().sum((1, 2))
        by_chance = _by_chance(proportions, self.counts, self.n_query)
        size = squares / self.scatter
        left = (fit.after - 1).clamp_min(0)
        explained = size / (size + left).clamp_min(torch.finfo(size.dtype).tiny)
        ratio = size / by_chance * explained
        several = 1 - 1 / effective_number(proportions).square()
        probability = self._probability(ratio, shift_prior)
        moved = self._probability(ratio * several, shift_prior)
        moved = moved * (1 - 1 / (ratio * several).nan_to_num(1.0).clamp_min(1)) * fit.better
        vector = (found * moved.view(-1, 1, 1)).nan_to_num()
        return Shift(vector=vector, size=size.nan_to_num().sqrt(), probability=probability)

    def _probability(self, ratio: Tensor, shift_prior: float) -> Tensor:
        """[t] P(shift) for F [t]."""
        ratio = ratio.clamp_min(1)
        # One of N columns was dropped to find it, so that one column cannot tell a shift.
        prior = log(shift_prior / (1 - shift_prior)) + (1 - 1 / self.columns).log()
        log_odds = prior + 0.5 * self.columns * (ratio - 1 - ratio.log())
        return (log_odds.sigmoid() * (ratio > 1)).nan_to_num()  # examples may hardly differ

    def mean_residual(self, proportions: Tensor) -> Tensor:
        """[t, 1, d] b̂, given the proportions [t, k] of classes."""
        return self.query_mean - proportions.unsqueeze(1) @ self.means


def _sum_of_queries(tasks: Tasks, distinct: Tensor) -> Tensor:
    """[t, d] Σ_q x_q, where queries count as ``distinct`` [t, q] says."""
    if tasks.pile is None:
        return (distinct.unsqueeze(1) @ tasks.query).squeeze(1)
    found: Sums = tasks.pile.each(_sum_of_block, tasks.pile.split(distinct))[0]
    return found.values[0]


def _sum_of_block(rows: Tensor, distinct: Tensor) -> tuple[Sums, Tensor]:
    """The work that sums rows [1, b, d] as ``distinct`` [1, b] says."""
    total = (rows * distinct.unsqueeze(-1)).sum(1, dtype=torch.float64)
    return Sums((total,)), distinct


def _by_chance(proportions: Tensor, counts: Tensor, n_query: Tensor) -> Tensor:
    """[t] c/S: what chance makes of ‖b̂‖², for |Q| [t], proportions [t, k] and counts [t, k] of classes."""
    return 1 / n_query + (proportions.square() / counts.clamp_min(1)).sum(-1)


def contrast(sums: Tensor, masses: Tensor, expected: Tensor, precision: Tensor) -> Tensor:
    """[t] g: how far apart the groups of queries are, relative to what is expected of their classes.

    Parameters
    ----------
    sums : Tensor of shape [t, g, d]
        Σ_q u_qg z_q of placed queries.
    masses : Tensor of shape [t, g]
        Σ_q u_qg
    expected : Tensor of shape [t, g, d]
        The expected means of the classes of the groups.
    precision : Tensor of shape [t]
        τ

    Returns
    -------
    Tensor of shape [t]
        Between 0 and 1; 1 where there is one group.
    """
    total = masses.sum(-1).clamp_min(torch.finfo(masses.dtype).tiny).view(-1, 1, 1)
    middle = (masses.unsqueeze(-1) * expected).sum(1, keepdim=True) / total
    apart = expected - middle
    covariance = (sums * apart).sum((1, 2)) * precision
    variance = (masses.unsqueeze(-1) * expected * apart).sum((1, 2)) * precision
    # The slope has the variance 1/Σ τ m ‖w − w̄‖².
    return ((covariance + 1) / (variance + 1)).clamp(0, 1)


# From tasks to their queries, with the assignments of a search; ``Learned`` of the same support may be used.
Assign = Callable[[Tasks, bool], BatchQueries]


def find_shift(
    tasks: Tasks,
    representation: Representation,
    first: Residuals,
    assign: Assign,
    shift_prior: float,
) -> Shift:
    """The shift of each batch; the module says how.

    Parameters
    ----------
    tasks : Tasks
    representation : Representation
        Of their features.
    first : Residuals
        Of the first answers.
    assign : callable
        Assigns the queries of tasks to classes. The second argument says whether the support is that of ``tasks``.
    shift_prior : float
        ε

    Returns
    -------
    Shift
    """
    comparison = Comparison.of(tasks, representation, first.distinct)
    nearly = assign(comparison.flattened(), False)
    moved = with_queries(tasks, Moved(comparison.mean_residual(proportions_of(nearly))))
    second = assign(moved, True)
    calibration = second.likelihood.calibration
    assert calibration is not None
    fit = Fit(
        before=first.squared,
        after=residuals(second, calibration).squared,
        weight=0.5 * calibration.precision * calibration.scatter * comparison.n_query,
    )
    return comparison.shift(proportions_of(second), fit, shift_prior)


def is_notable(queries: BatchQueries, calibration: Calibration, found: Residuals) -> Tensor:
    """[t] whether the last answers, whose residuals are ``found``, give a reason to look for a shift."""
    proportions = proportions_of(queries)
    offsets = calibration.offsets / calibration.trust.unsqueeze(-1)
    distance = found.mean - (proportions.unsqueeze(1) @ offsets).squeeze(1)
    by_chance = _by_chance(proportions, calibration.examples, found.distinct.sum(1))
    scatter = calibration.scatter.clamp_min(torch.finfo(distance.dtype).tiny)
    ratio = distance.square().sum(-1) / (scatter * by_chance)
    return (ratio > _NOTABLE_RATIO) | (found.squared > _NOTABLE_RESIDUAL)


def proportions_of(queries: BatchQueries) -> Tensor:
    """[t, k] the proportions of classes by the last assignments."""
    masses = queries.presence.masses
    return (masses / masses.sum(-1, keepdim=True)).to(queries.likelihood.counts)


@dataclass(frozen=True, eq=False, kw_only=True)
class Residuals:
    """Where queries lie, beside the prototypes of their classes."""

    mean: Tensor  # [t, d] of placed queries
    squared: Tensor  # [t] r: the mean squared distance from the prototype, relative to left-out examples
    distinct: Tensor  # [t, q] 0 for near-copies of other queries, which have no part in both, else 1

    def __getitem__(self, rows: Tensor | slice) -> Residuals:
        """Those of some tasks [m]."""
        return Residuals(
            mean=self.mean[rows],
            squared=self.squared[rows],
            distinct=self.distinct[rows],
        )


def residuals(queries: BatchQueries, calibration: Calibration) -> Residuals:
    """Those of the last assignments, in one pass over the queries."""
    total, squared = queries.each(partial(_sum_residuals, calibration)).values
    like = calibration.scatter
    distinct: Tensor = queries.distinct
    number = distinct.sum(1)
    return Residuals(
        mean=(total / number.unsqueeze(-1)).to(like),
        squared=(squared / number).to(like),
        distinct=distinct,
    )


def _sum_residuals(calibration: Calibration, part: Part) -> Sums:
    """The work that sums placed queries [t, d], and their squared distances [t] relative to left-out examples.

    Near-copies of other queries have no part: their u is 0.
    """
    unit = (calibration.precision * calibration.scatter).clamp_min(torch.finfo(part.placed.dtype).tiny)
    distances = part.log_likelihood * (-2 / unit).view(-1, 1, 1)
    errors = (1 / calibration.counts).unsqueeze(1)
    expected = (part.u * (distances + errors) / (1 + errors)).sum((1, 2), dtype=torch.float64)
    rows = part.coordinates * part.distinct.unsqueeze(-1)
    return Sums((rows.sum(1, dtype=torch.float64), expected))


def replaced(alone: Solution, rows: Tensor, found: Solution) -> Solution:
    """The solution ``alone`` of t tasks, with another one for some of them.

    Parameters
    ----------
    alone : Solution
    rows : Tensor of shape [m]
        Which tasks.
    found : Solution
        Of m tasks.

    Returns
    -------
    Solution
        What is made on request still is.
    """

    def both(name: str) -> Tensor:
        values: Tensor = getattr(alone, name)
        return values.index_copy(0, rows, getattr(found, name).to(values))

    terms = {}
    for name, values in (alone.objective_parts or {}).items():
        theirs = (found.objective_parts or {})[name]
        length = max(values.shape[1], theirs.shape[1])
        terms[name] = _longer(values, length).index_copy(0, rows, _longer(theirs, length))
    learned = {}
    for name, values in found.learned.items():
        before = alone.learned.get(name, torch.zeros_like(values[:1]))
        learned[name] = before.expand(len(alone.n_iter)).index_copy(0, rows, values.expand(len(rows)))
    moved_by = None
    if found.moved_by is not None:
        shape = (len(alone.n_iter), *found.moved_by.shape[1:])
        moved_by = found.moved_by.new_zeros(shape).index_copy(0, rows, found.moved_by)
    return Solution(
        both("probabilities"),
        both("n_iter"),
        both("converged"),
        make_prototypes=partial(both, "prototypes"),
        make_presence=partial(both, "independent_presence"),
        make_review_scores=partial(both, "review_scores"),
        make_copies=partial(both, "copies"),
        objective_parts=terms,
        learned=learned,
        counting=alone.counting,
        moved_by=moved_by,
        doubts=alone.doubts,
    )


def _longer(values: Tensor, length: int) -> Tensor:
    """[t, length] values [t, i] of iterations, the last of which is repeated."""
    missing = length - values.shape[1]
    return torch.cat([values, values[:, -1:].expand(-1, missing)], 1)
