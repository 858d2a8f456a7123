"""The shift of a batch whose queries differ from the examples, all in the same way.

Another camera or laboratory makes such queries.

A query of class k is x = w_k + noise + b. The shift b is common to a batch, and usually it is
nothing:

    b = 0 with the probability 1 − ε,        b ~ N(0, V) otherwise,        in units of the scales of columns.

Near-copies of a query count nothing beside it (``copies``), and queries that are far from all
others count less (``CountedQueries``): in what follows |Q| queries are left, and x̄ is their mean.

Given the proportions π of the classes, of which effectively K̂ occur, the mean residual b̂ = x̄ −
Σ_k π_k w_k estimates b. Without a shift, ‖b̂‖² is B = S (1/|Q| + Σ_k π_k²/n_k) on average, for the
within-class scatter S: by the noise of |Q| queries, and by the errors of the prototypes of those
classes that occur. F = ‖b̂‖²/B then is a mean of N squares, where N is the effective number of
columns. With V = ‖b̂‖² − B, its best value,

    ln odds(shift) = ln ε/(1 − ε) + ln(1 − 1/N) + ½ N (F − 1 − ln F),        E b = P(shift) (1 − 1/F) b̂,

where F > 1, and none otherwise; 1 − 1/N says that one column alone cannot tell a shift from another
class.

The metric multiplies exactly the directions in which examples agree, so that a small shift can
spoil the labels, and with them π. So the queries are labelled several times, each time moved back
by another guess of b:

1. by b̂ of the labels that are found where the one direction x̄ − w̄, in which the means of queries
   and of prototypes differ, is dropped from both: what is left of a shift is small there, and the
   labels are nearly right;
2. by b̂ of the first answer, which may have been right;
3. by x̄ − w̄, as if all classes occurred;
4. by b̂ of the third labels.

The first answer, not moved, is the fifth. More rounds make it worse: a wrong b̂ makes labels of
fewer classes, and these a worse b̂. Of these labels those are kept that explain the queries best.
In units of the scales, let

    Δ = min over b and 0 ≤ g ≤ 1 of  1/|Q| Σ_q ‖x_q − b − g w_k‖² / (S (1 + 1/n_k)),        k the label of q,

the mean squared distance of queries from their classes, relative to that of an example that is left
out, where all are moved back alike, and may be less far apart than the examples are. With the
entropy H of π the labels have

    ln p(queries, labels) = −|Q| (½ N Δ + H) + const.

Distances of placed queries would not do: those of a shifted batch are as near to each other as they
are far from their middle. The queries are moved back by the guess b of the best labels, times
P(shift) (1 − 1/F).

**Whether labels need no shift.** Items of one class may be explained better by several classes that
are moved, for a class has parts. Squared distances of examples from their classes, relative to
their mean, have a variance of 2/N_d, as if there were N_d columns: they differ 1/ι times as much as
those of N independent columns, ι = min(1, √(N_d/N)). The first answer stays, unless that of other
labels is higher:

    −ι |Q| (½ N Δ + H) + ln p(b̂),
    p(b̂) = B^(−N/2) ((1 − ε) exp(−½ N F) + ε exp(−½ N (F/F₁ + ln F₁))),        F₁ = max(1, F).

Guess 2 has the first answer's own b̂, and may be more probable than it where the best labels are
not: queries are then moved back by that. A first answer that stays moves no query, whatever its b̂
is, for labels that are found after the move explain less. Its P(shift) still says that there may be
a shift.

**What a shift does not explain.** Noise, or pictures that have lost their colour, are no shift, but
spoil labels and so make F large. Of all by which queries differ from examples the shift explains
the part

    ‖b̂‖² / (‖b̂‖² + S max(0, Δ − 1)),

and F times this part takes the place of F.

**What is lost.** Grey pictures or mistyped words are shifted, and have lost some of what tells
classes apart, which no vector brings back. Around the means of the batch a query then is x = g w_k
+ noise, with the contrast g < 1. It is the slope of the means z̄_k of groups of m_k queries over
the means w_k that are expected of their classes (``Prototypes.shrunk``), so that g is 1 for
queries like the examples,

    g = Σ_k m_k (z̄_k − z̄)·(w_k − w̄) / Σ_k m_k ‖w_k − w̄‖²,

with the prior Normal(1, 1). The sums are over the classes j that the groups k may have (``group``),
with P_kj for m_k: a group lies on the side of the class that it was given to, which makes g too
large where that is another's. Where a shift was looked for, the final probabilities have the power g
if that is below what the distances say (see ``confidence``).

**What cannot be known.** Where few classes occur, the shift is made of their own residuals: with
one class, any class is as good, by a shift of its own. Each of K̂ classes has a part of 1/K̂ in b̂,
so that its distance from its prototype is too short by that part. A known label says as much about
the shift as a class does. With n of them, the final probabilities have the power 1 − P(shift) (1 −
(1 − 1/(K̂ + n + ½))²). So do the classes of groups, where they say which classes occur (``count``),
and a review asks first for queries that decide it (``review``). Queries are moved back with F (1 −
1/K̂²) in the place of F: if they would then all be of one class, they stay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from math import log
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import (
    Joined,
    Pile,
    Sums,
    Tasks,
    class_sums,
    count_labels,
    effective_number,
)
from manyway.methods.calibration import Representation
from manyway.methods.calibration.metric import rows_of
from manyway.methods.evidence.queries import BatchQueries, Part

_ROUNDS = 3  # in which the middle of the classes and their weights are brought into agreement


@dataclass(frozen=True, eq=False, kw_only=True)
class Shift:
    """What was found about the shift of t batches."""

    vector: Tensor  # [t, 1, d] E b: by which queries were moved back
    size: Tensor  # [t] ‖b̂‖/√S
    probability: Tensor  # [t] P(shift)

    @staticmethod
    def none(like: Tensor) -> Shift:
        """That of t batches in which none was looked for, as ``like`` [t]."""
        nothing = torch.zeros_like(like)
        return Shift(vector=nothing.view(-1, 1, 1), size=nothing, probability=nothing)

    def power(self, masses: Tensor, n_known: Tensor) -> Tensor:
        """[t] the power of final probabilities.

        ``masses`` [t, k] are the expected class counts, ``n_known`` [t] the numbers of known
        labels.
        """
        own_part = 1 / (effective_number(masses) + n_known + 0.5)
        return 1 - self.probability * (1 - (1 - own_part).square())

    @property
    def told(self) -> dict[str, Tensor]:
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
class Assigned:
    """What a search says about the queries of t tasks."""

    labels: Tensor  # [t, q] the most probable classes
    proportions: Tensor  # [t, k] π
    distinct: Tensor  # [t, q] 0 for near-copies of other queries, which count nothing, else 1

    @staticmethod
    def of(queries: BatchQueries) -> Assigned:
        """What the last search of the queries says."""
        proportions = proportions_of(queries)
        labels = queries.each(partial(_most_probable, proportions)).values[0]
        return Assigned(labels=labels, proportions=proportions, distinct=queries.distinct)

    def __getitem__(self, rows: Tensor | slice) -> Assigned:
        """Those of some tasks [m]."""
        return Assigned(
            labels=self.labels[rows],
            proportions=self.proportions[rows],
            distinct=self.distinct[rows],
        )


def proportions_of(queries: BatchQueries) -> Tensor:
    """[t, k] the proportions of classes by the last assignments."""
    masses = queries.query_counts.masses
    return (masses / masses.sum(-1, keepdim=True)).to(queries.likelihood.counts)


def _most_probable(proportions: Tensor, part: Part) -> Joined:
    """The work that finds the labels [t, b], given the proportions of the classes [t, k].

    Near-copies of other queries have no part in the search, and no assignment by it.
    """
    labels = part.u.argmax(-1)
    if not bool((part.distinct == 0).any()):
        return Joined((labels,))
    of_copies = (part.log_likelihood + proportions.log().unsqueeze(1)).argmax(-1)
    return Joined((labels.where(part.distinct > 0, of_copies),))


# From tasks to what a search says about their queries; ``Learned`` of the same support may be used.
Assign = Callable[[Tasks, bool], Assigned]


def find_shift(
    tasks: Tasks,
    representation: Representation,
    first: Assigned,
    assign: Assign,
    shift_prior: float,
) -> Shift:
    """The shift of each batch; the module says how.

    Parameters
    ----------
    tasks : Tasks
    representation : Representation
        Of their features.
    first : Assigned
        What the first search says, which knows of no shift.
    assign : callable
        Assigns the queries of tasks to classes. The second argument says whether the support is
        that of ``tasks``.
    shift_prior : float
        ε

    Returns
    -------
    Shift
    """
    as_they_are = Comparison.of(tasks, representation, first.distinct, shift_prior)
    flattened = assign(as_they_are.flattened(), False)
    # Far from the examples all queries look like copies of each other: without most of the shift
    # they do not.
    comparison = as_they_are.counting(flattened.distinct)

    def moved_back_by(guess: Tensor) -> Explanation:
        moved = with_queries(tasks, Moved(guess))
        return comparison.explanation(assign(moved, True), guess)

    unmoved = comparison.explanation(first, torch.zeros_like(comparison.queries.mean))
    by_own_residual = moved_back_by(unmoved.mean_residual)
    of_flattened = comparison.mean_residual(comparison.queries.proportions(flattened))
    as_all_classes = moved_back_by(comparison.between_means)
    best = unmoved
    for explanation in (
        moved_back_by(of_flattened),
        by_own_residual,
        as_all_classes,
        moved_back_by(as_all_classes.mean_residual),
    ):
        best = best.other_where(explanation.log_fit > best.log_fit, explanation)
    found = unmoved
    for explanation in (by_own_residual, best):  # the last that surpasses the first answer
        surpassed = unmoved.is_surpassed(explanation, comparison.independence)
        found = found.other_where(surpassed, explanation)
    return comparison.shift(found)


@dataclass(frozen=True, eq=False, kw_only=True)
class Explanation:
    """What labels say of queries that were moved back by a guess of b."""

    guess: Tensor  # [t, 1, d] by which they were moved back; 0 for the first answer
    mean_residual: Tensor  # [t, 1, d] b̂ of the labels
    squared_size: Tensor  # [t] ‖b̂‖²/S
    ratio: Tensor  # [t] F
    squares_ratio: Tensor  # [t] Δ
    proportions: Tensor  # [t, k] π
    log_fit: Tensor  # [t] −|Q| (½ N Δ + H)
    log_prior: Tensor  # [t] ln p(b̂), but for a constant

    def is_surpassed(self, other: Explanation, independence: Tensor) -> Tensor:
        """[t] whether another one is more probable, for ι [t], with the prior of its shift."""
        gain = independence * (other.log_fit - self.log_fit)
        return gain + other.log_prior > self.log_prior

    def other_where(self, which: Tensor, other: Explanation) -> Explanation:
        """The other one of some tasks [t], and this one of the rest."""

        def chosen(name: str) -> Tensor:
            ours: Tensor = getattr(self, name)
            return torch.where(which.view(-1, *[1] * (ours.ndim - 1)), getattr(other, name), ours)

        return Explanation(**{one.name: chosen(one.name) for one in fields(Explanation)})


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassMeans:
    """Where the classes of t supports lie."""

    means: Tensor  # [t, k, d] w
    counts: Tensor  # [t, k]
    weights: Tensor  # [t, 1, d] 1/σ of the columns
    # [t, 1, d] w̄, the mean of the class means, in which a far class counts little, as in
    # ``Representation``
    middle: Tensor
    typical: Tensor  # [t] the median squared distance of class means from it, in these units

    @staticmethod
    def of(tasks: Tasks, weights: Tensor) -> ClassMeans:
        """``weights`` [t, 1, d] are 1/σ."""
        sums, counts = class_sums(tasks)
        means = sums / counts.clamp_min(1).unsqueeze(-1)
        occupied = (counts > 0).to(means)
        of_class = occupied
        for _ in range(_ROUNDS):
            shares = (of_class / of_class.sum(-1, keepdim=True)).unsqueeze(1)
            middle = shares @ means
            squares = ((means - middle) * weights).square().sum(-1)
            typical = squares.where(occupied > 0, torch.nan).nanmedian(-1, keepdim=True).values
            of_class = occupied / (1 + squares / typical.clamp_min(torch.finfo(squares.dtype).tiny))
        return ClassMeans(
            means=means,
            counts=counts,
            weights=weights,
            middle=middle,
            typical=typical.squeeze(-1),
        )

    def around_middle(self, rows: Tensor) -> Tensor:
        """[t, n, d] rows relative to the middle, in units of the scales."""
        return (rows - self.middle) * self.weights


@dataclass(frozen=True, eq=False, kw_only=True)
class CountedQueries:
    """How much the queries of t batches count where a shift is concerned, and their mean.

    A query that is twice as far from the mean as members of a typical class, or farther, counts
    less: single broken queries do not move the mean.
    """

    distinct: Tensor  # [t, q] 0 for near-copies of other queries, which count nothing, else 1
    influence: Tensor  # [t, q] the same, and less than 1 for queries that are far away
    mean: Tensor  # [t, 1, d] x̄

    @staticmethod
    def of(tasks: Tasks, classes: ClassMeans, scatter: Tensor, distinct: Tensor) -> CountedQueries:
        """``scatter`` [t] is S, in units of the scales."""
        far = 2 * (scatter + classes.typical).sqrt().unsqueeze(-1)
        influence = distinct
        mean = _mean_query(tasks, classes.middle, influence)
        for _ in range(_ROUNDS):
            distances = _distances_from(mean, tasks, classes.weights)
            found = distinct * (far / distances.clamp_min(far)).square().to(distinct)
            if torch.equal(found, influence):  # most often no query is far away
                break
            influence = found
            mean = _mean_query(tasks, classes.middle, influence)
        return CountedQueries(distinct=distinct, influence=influence, mean=mean)

    def proportions(self, found: Assigned) -> Tensor:
        """[t, k] π, in which queries count as much as in their mean.

        The queries that counted in the search may have been others, and more or less.
        """
        lost = found.distinct - self.influence
        of_classes = count_labels(found.labels, found.proportions.shape[1], lost)
        searched = found.proportions * found.distinct.sum(1, keepdim=True)
        counted = (searched - of_classes.to(searched)).clamp_min(0)
        return counted / counted.sum(-1, keepdim=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """The examples and the queries of t batches, as far as a shift is concerned."""

    tasks: Tasks
    classes: ClassMeans
    columns: Tensor  # [t] N
    scatter: Tensor  # [t] S
    independence: Tensor  # [t] ι
    queries: CountedQueries
    shift_prior: float  # ε

    @staticmethod
    def of(
        tasks: Tasks,
        representation: Representation,
        distinct: Tensor,
        shift_prior: float,
    ) -> Comparison:
        # 1/σ of y = (x − a)^p serve for x as well: by those of x itself, rare columns would count more.
        weights = representation.weights
        classes = ClassMeans.of(tasks, weights)
        columns = representation.effective_columns.flatten()
        residuals = tasks.support - rows_of(classes.means, tasks.support_labels)
        squares = (residuals * weights).square().sum(-1)
        freedom = tasks.n_support - (classes.counts > 0).sum(-1)
        tiny = torch.finfo(squares.dtype).tiny
        scatter = (squares.sum(-1) / freedom.clamp_min(1)).clamp_min(tiny)
        own_counts = classes.counts.gather(1, tasks.support_labels)
        return Comparison(
            tasks=tasks,
            classes=classes,
            columns=columns,
            scatter=scatter,
            independence=_independence(squares / scatter.unsqueeze(-1), own_counts, columns),
            queries=CountedQueries.of(tasks, classes, scatter, distinct),
            shift_prior=shift_prior,
        )

    def counting(self, distinct: Tensor) -> Comparison:
        """The same, where other queries ``distinct`` [t, q] count."""
        queries = CountedQueries.of(self.tasks, self.classes, self.scatter, distinct)
        return replace(self, queries=queries)

    def flattened(self) -> Tasks:
        """The tasks without the direction in which the means of queries and of classes differ."""
        # A constant column has no part in it: rounding would make it vary.
        weights = self.classes.weights
        direction = self.between_means * (weights > 0)
        measure = direction * weights.square()
        tiny = torch.finfo(measure.dtype).tiny
        measure = measure / (measure * direction).sum(-1, keepdim=True).clamp_min(tiny)
        change = Flattened(direction, measure)
        tasks = with_queries(self.tasks, change)
        base_mean = tasks.base_mean
        if base_mean is not None:
            base_mean = change(base_mean)
        query = tasks.query_table if tasks.pile is not None else tasks.query
        return tasks.with_rows(change(tasks.support), query, base_mean=base_mean)

    @property
    def between_means(self) -> Tensor:
        """[t, 1, d] x̄ − w̄."""
        return self.queries.mean - self.classes.middle

    def mean_residual(self, proportions: Tensor) -> Tensor:
        """[t, 1, d] b̂ of the proportions π [t, k]."""
        return self.queries.mean - proportions.unsqueeze(1) @ self.classes.means

    def explanation(self, found: Assigned, guess: Tensor) -> Explanation:
        """What is found of the queries, which were moved back by a guess [t, 1, d], explains."""
        n_query = self.queries.influence.sum(1)
        proportions = self.queries.proportions(found)
        mean_residual = self.mean_residual(proportions)
        squared_size = (mean_residual * self.classes.weights).square().sum((1, 2)) / self.scatter
        chance = by_chance(proportions, self.classes.counts, n_query)
        ratio = squared_size / chance
        squares_ratio = self._squares_left(found.labels) / (self.scatter * n_query)
        entropy = torch.special.entr(proportions).sum(-1)
        return Explanation(
            guess=guess,
            mean_residual=mean_residual,
            squared_size=squared_size,
            ratio=ratio,
            squares_ratio=squares_ratio,
            proportions=proportions,
            log_fit=-n_query * (0.5 * self.columns * squares_ratio + entropy),
            log_prior=self._log_prior(ratio, chance),
        )

    def _log_prior(self, ratio: Tensor, chance: Tensor) -> Tensor:
        """[t] ln p(b̂), but for a constant, for F [t] and B/S [t]."""
        of_chance = -0.5 * self.columns * (ratio + chance.log())
        none = log(1 - self.shift_prior) + of_chance
        some = log(self.shift_prior) + of_chance + self._log_gain(ratio)
        return torch.logaddexp(none, some)

    def _log_gain(self, ratio: Tensor) -> Tensor:
        """[t] by how much a shift of the best size makes b̂ more probable than chance, for F [t]."""
        above = ratio.clamp_min(1)
        return 0.5 * self.columns * (above - 1 - above.log())

    def _squares_left(self, labels: Tensor) -> Tensor:
        """[t] |Q| S Δ for labels [t, q], by one pass over the queries."""
        work = partial(_sum_moments, self.classes)
        labelled = _Labelled(labels=labels, influence=self.queries.influence)
        pile = self.tasks.pile
        if pile is None:
            sums, _ = work(self.tasks.query, labelled)
        else:
            sums, _ = pile.each(work, labelled.split(pile))
        return _Moments(*sums.values).squares_left().to(self.scatter)

    def shift(self, found: Explanation) -> Shift:
        """The shift by which queries are moved back, given the best labels."""
        left = (found.squares_ratio - 1).clamp_min(0)
        tiny = torch.finfo(left.dtype).tiny
        explained = found.squared_size / (found.squared_size + left).clamp_min(tiny)
        ratio = found.ratio * explained
        several = 1 - 1 / effective_number(found.proportions).square()
        probability = self._probability(ratio)
        moved = self._probability(ratio * several)
        moved = moved * (1 - 1 / (ratio * several).nan_to_num(1.0).clamp_min(1))
        vector = (found.guess * moved.view(-1, 1, 1)).nan_to_num()
        return Shift(
            vector=vector, size=found.squared_size.nan_to_num().sqrt(), probability=probability
        )

    def _probability(self, ratio: Tensor) -> Tensor:
        """[t] P(shift) for F [t]."""
        # One column alone cannot tell a shift from another class.
        prior = log(self.shift_prior / (1 - self.shift_prior)) + (1 - 1 / self.columns).log()
        log_odds = prior + self._log_gain(ratio)
        return (log_odds.sigmoid() * (ratio > 1)).nan_to_num()  # examples may hardly differ


def _independence(relative: Tensor, own_counts: Tensor, columns: Tensor) -> Tensor:
    """[t] ι, from the squared distances of examples [t, s] from their class means, in units of S.

    Parameters
    ----------
    relative : Tensor of shape [t, s]
    own_counts : Tensor of shape [t, s]
        How many examples the class of each has.
    columns : Tensor of shape [t]
        N
    """
    tiny = torch.finfo(relative.dtype).tiny
    has_others = (own_counts > 1).to(relative)
    expected = (1 - 1 / own_counts).clamp_min(0.5)
    squares = (relative / expected - 1).square() * has_others
    variance = squares.sum(-1) / has_others.sum(-1).clamp_min(1)
    return (2 / (variance * columns).clamp_min(tiny)).sqrt().clamp_max(1)


class _Labelled(NamedTuple):
    """What some queries are taken for."""

    labels: Tensor  # [t, b]
    influence: Tensor  # [t, b] as in ``CountedQueries``

    def split(self, pile: Pile) -> list[_Labelled]:
        """The same of each block of a pile."""
        return [*map(_Labelled, pile.split(self.labels), pile.split(self.influence))]


class _Moments(NamedTuple):
    """Weighted sums over queries x and the means w of their classes, both around the middle."""

    rows: Tensor  # [t, 1, d] Σ x
    means: Tensor  # [t, 1, d] Σ w
    row_squares: Tensor  # [t] Σ ‖x‖²
    products: Tensor  # [t] Σ x·w
    mean_squares: Tensor  # [t] Σ ‖w‖²
    number: Tensor  # [t] Σ 1

    def squares_left(self) -> Tensor:
        """[t] |Q| S Δ: the least Σ ‖x − b − g w‖² over b and 0 ≤ g ≤ 1."""
        of_rows = self.row_squares - self.rows.square().sum((1, 2)) / self.number
        of_both = self.products - (self.rows * self.means).sum((1, 2)) / self.number
        of_means = self.mean_squares - self.means.square().sum((1, 2)) / self.number
        tiny = torch.finfo(of_means.dtype).tiny
        g = (of_both / of_means.clamp_min(tiny)).clamp(0, 1)
        return (of_rows - 2 * g * of_both + g.square() * of_means).clamp_min(0)


def _sum_moments(classes: ClassMeans, rows: Tensor, labelled: _Labelled) -> tuple[Sums, None]:
    """The work that sums rows [t, b, d] and the means of their classes: ``_Moments``."""
    double = torch.float64
    scaled = classes.around_middle(rows)
    expected = rows_of(classes.around_middle(classes.means), labelled.labels)
    n_examples = classes.counts.gather(1, labelled.labels).clamp_min(1)
    weights = labelled.influence / (1 + 1 / n_examples)
    each = weights.unsqueeze(1)
    moments = _Moments(
        rows=(each @ scaled).to(double),
        means=(each @ expected).to(double),
        row_squares=(scaled.square().sum(-1) * weights).sum(1, dtype=double),
        products=((scaled * expected).sum(-1) * weights).sum(1, dtype=double),
        mean_squares=(expected.square().sum(-1) * weights).sum(1, dtype=double),
        number=weights.sum(1, dtype=double),
    )
    return Sums(moments), None


def _mean_query(tasks: Tasks, middle: Tensor, influence: Tensor) -> Tensor:
    """[t, 1, d] x̄, where queries count as ``influence`` [t, q] says.

    ``middle`` [t, 1, d] is near it, so that float32 is accurate.
    """
    work = partial(_sum_apart, middle)
    if tasks.pile is None:
        sums, _ = work(tasks.query, influence)
    else:
        sums, _ = tasks.pile.each(work, tasks.pile.split(influence))
    return (sums.values[0] / influence.sum(1).view(-1, 1, 1)).to(middle) + middle


def _sum_apart(middle: Tensor, rows: Tensor, influence: Tensor) -> tuple[Sums, None]:
    """The work that sums how far rows [t, b, d] are from the middle [t, 1, d]."""
    return Sums(((influence.unsqueeze(1) @ (rows - middle)).to(torch.float64),)), None


def _distances_from(mean: Tensor, tasks: Tasks, weights: Tensor) -> Tensor:
    """[t, q] the distances of queries from their mean [t, 1, d], for 1/σ [t, 1, d]."""
    work = partial(_measure, mean, weights)
    if tasks.pile is None:
        found, _ = work(tasks.query, None)
    else:
        found, _ = tasks.pile.each(work)
    distances: Tensor = found.values[0]
    return distances


def _measure(mean: Tensor, weights: Tensor, rows: Tensor, memory: None) -> tuple[Joined, None]:
    """The work that finds the distances of rows [t, b, d]."""
    return Joined((torch.linalg.vector_norm((rows - mean) * weights, dim=-1),)), None


def by_chance(proportions: Tensor, counts: Tensor, n_query: Tensor) -> Tensor:
    """[t] B/S: what chance makes of ‖b̂‖² for |Q| [t].

    ``proportions`` [t, k] and ``counts`` [t, k] are those of the classes.
    """
    return 1 / n_query + (proportions.square() / counts.clamp_min(1)).sum(-1)
