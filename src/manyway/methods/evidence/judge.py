"""Judge: how probable it is for each query that it is unknown, of none of the classes.

Like queries of a class, unknown queries come in groups, and a group says more than its queries one
by one: the mean of m queries is as near to the prototype of its class as the errors of two means
allow, S/m + S/n on average. What exceeds that is the *excess* ζ of a group over the nearest
prototype. Its scale is known from the support in both cases. For members of a class it has the mean
0 and a standard deviation σ(m, n) that support samples show which are left out of their prototype.
For unknown queries it has the mean D, by which a prototype exceeds the nearest other one, as if its
class were left out. So a group has the log-ratio

    Λ = ln T(ζ; D, σ² + (½D)²) − ln T(ζ; 0, σ²).

T is Student's distribution: σ comes from f = Σ_k (n_k − 1) left-out examples, which are its degrees
of freedom. Where classes do not differ, D = 0 and Λ = 0: there nothing can be seen.

With σ₁, the standard deviation of the excess of single left-out samples in units of 1 + 1/n,

    σ(m, n) = max(σ₁, S √(2/d)) (1 + 5/f) (0.2 + 0.8/m + 1/n).

Few left-out examples may be alike by chance: σ is at least that of d normal features. They have
chosen metric and first step too: the fewer they are, the larger is σ. A fifth of the error of a
query is that of all queries of its group, however many these are.

Classes may come in clumps, and they may overlap: the queries around one are then farther from the
nearest prototype than S/m + S/n, and none is unknown. This is a part κ of S, and the excess is less
by κ S (1 − 1/m). The higher of two estimates of κ counts: the excess of groups around examples (not
of embeddings, where a little of it costs much), and by how much the excess of groups around queries
is above the mean excess of their members. For members of a class are S + S/n away, in clumps or
not, and unknown queries are farther.

Each query is tested alone, with the queries around it (``neighbourhood``), and with its assigned
class (those that a search assigns to one class: unknown queries gather at classes that do not
occur; the excess is that over the prototype of this class). An unknown query also lies between
classes more often: its nearest class exceeds the second by a small margin μ in log-likelihood. The
log-odds of a query are

    λ = w (Λ_alone + Λ_around + min(1, D/σ(1, n)) ln((exp(−μ) + ½ε)/ε) + ½ Λ_class).

The terms share errors, so that their sum counts w = ``unknown_weight`` times. The assigned class is
the widest group, and says least about the query. With exp(−μ) = ½ε the margin says nothing: a member
of a class may have any margin, and ½ε says how often. Where classes hardly differ, margins are small
for members too.

The proportion p of unknown queries in the batch is not known. It is integrated out, with a prior
that is 0 with the probability 1 − χ, and has the density 2(1 − p) otherwise. χ is ``some_unknown``,
and ε with one example per class. Whether any query is unknown, the whole batch says, by limited
odds o_q of each query:

    ln χ/(1 − χ) + ln Σ_p 2(1 − p) exp Σ_q m_q^(−½) ln(1 − p + p o_q),   1/o_q = ε + (1 − ε) exp(−λ_q),

where m_q queries lie together with q, and judge as their root. Near-copies count as one query. Few
queries cannot decide it, because odds are limited. Here ε is divided by the root of m_q, for
members of a class seldom look unknown together, and multiplied by ζ₊/ζ for queries that are
farther off than unknown ones are (ζ₊ is D and a deviation).

The value of p follows from Σ_q ln(1 − p + p exp λ_q), times the part of the queries that counts as
independent (``independent_part``): the queries of a batch share errors of prototypes and metric. So
a batch without unknown queries stays without. A query is answered as unknown where that is more
probable than any class, in a batch that probably has some.

With one example per class no sample can be left out. S is then taken from the distances between the
K prototypes, so that f = K, and the margin counts w ln(exp(−μ) + ½ε), which is cautious.

Where cells are missing, all of this is about the columns that are there: with the parts f₁ and f₂ of
a group (``judged``), S/m and S/n become f₁ S/m and f₂ S/n, D becomes f₂ D, and σ has f₁ and f₂ in
the same places. As much of σ² as normal features have by chance, S²·2/d, is divided by f₁. The
margin is μ/f₁, and counts √f₁ times. Tests of groups count f₂/f₁ times, and of the others that lie
together with a query the part f₂/f₁ judges with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, log
from operator import attrgetter
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import one_hot
from manyway.errors import InputError
from manyway.methods.calibration.calibration import Calibration
from manyway.methods.calibration.distances import squared_distances
from manyway.methods.calibration.prototypes import error_of_means
from manyway.methods.evidence.calibrate import CalibratedBatch
from manyway.methods.evidence.dense import Dense, fused_search
from manyway.methods.evidence.judged import Given, Judged
from manyway.methods.evidence.likelihood import independent_part
from manyway.methods.evidence.neighbourhood import MOST_NUMBERS, Neighbourhoods, effective_size
from manyway.methods.evidence.queries import excluded, sample
from manyway.methods.evidence.schedule import Schedule

# Queries whose neighbourhoods are found from all pairs; further queries are judged as their
# neighbourhoods are. Fewer are judged where they could be of very many classes.
MOST_JUDGED = 2048
_LEAST_JUDGED = 256
_PROPORTIONS = 40  # grid of the proportion of unknown queries
_NO_DISTANCE = 1e-30  # what is divided by a distance or an excess stays finite
# By which part the variance of unknown queries exceeds that of members, at least
_LEAST_WIDER = 1e-3


@dataclass(frozen=True, eq=False, kw_only=True)
class UnknownPosterior:
    """Queries, their neighbourhoods, and how probable it is that these are unknown.

    Where there are many queries, only every so many of them are judged, and further queries as
    their neighbourhoods are.
    """

    means: Tensor  # [t, a, d] the mean of the neighbourhood of each query
    bias: Tensor  # [t, a] by how much squared distances to it are too long
    precision: Tensor  # [t] τ
    # [t, a, a] how much each other query belongs to the neighbourhood of a query
    similarity: Tensor
    probabilities: Tensor  # [t, a] to be unknown
    some_unknown: Tensor  # [t] the probability that any query is
    stride: int

    def unknown(self, placed: Tensor, first: int) -> Tensor:
        """[t, b] the probability of placed queries [t, b, d] to be unknown.

        ``first`` is the number of the first of them.
        """
        if self.stride == 1:
            return self.probabilities[:, first : first + placed.shape[1]]
        return (self.weights(placed) @ self.probabilities.unsqueeze(-1)).squeeze(-1).clamp_max(1)

    def weights(self, placed: Tensor) -> Tensor:
        """[t, q, a] the probability that each query is of the neighbourhood of a judged one.

        All neighbourhoods count as equally frequent.
        """
        distances = squared_distances(placed, self.means) - self.bias.unsqueeze(1)
        return distances.mul_(-0.5 * self.precision.view(-1, 1, 1)).softmax(-1)

    def is_answered(self, unknown: Tensor, probabilities: Tensor) -> Tensor:
        """[t, b] whether queries are answered as unknown, with the probability ``unknown`` [t, b].

        They are if that exceeds the probability of every class [t, b, k], and the batch probably
        has unknown queries.
        """
        return (unknown > probabilities.amax(-1)) & (self.some_unknown > 0.5).unsqueeze(-1)


def judge(batch: CalibratedBatch) -> UnknownPosterior | None:
    """Judge which queries are unknown; None where none may be.

    A sample of the queries is first assigned as if none were unknown: the groups of this search,
    and neighbourhoods of queries, are compared with what classes that are left out look like.
    """
    parameters = batch.parameters
    if not parameters.open_set:
        return None
    queries = batch.queries
    calibration = queries.likelihood.calibration
    assert calibration is not None  # unknown scores have a method of their own
    stride = judged_stride(queries.n_query, calibration.prototypes.n_classes)
    sampled = sample(queries, stride, attrgetter("placed"))
    closed = queries.likelihood.of(sampled.values)
    if queries.any_known:
        closed = excluded(closed, queries.known[:, ::stride])
    prior = parameters.prior(sampled.placed.shape[1], calibration.prototypes.counts)
    assigned = fused_search(Dense.of(closed), prior, parameters).queries.u
    calibration = calibration.unshrunk()
    rows = Judged.whole(sampled.placed)
    if batch.gaps is not None:
        classes = assigned.argmax(-1)
        rows = batch.gaps.judged(stride, sampled.placed, classes, calibration)
        # A row with gaps lies where one class puts it, and is judged with this one alone.
        own = one_hot(classes, assigned.shape[-1], assigned.dtype)
        assigned = torch.where(rows.lacking.unsqueeze(-1) > 0, own, assigned)
    return unknown_posterior(
        rows,
        assigned,
        calibration,
        parameters.constants,
        stride=stride,
        one_shot=batch.one_shot,
    )


def judged_stride(n_query: int, n_classes: int) -> int:
    """The distance between the queries whose neighbourhoods are found from all pairs."""
    return ceil(n_query / min(MOST_JUDGED, max(MOST_NUMBERS // n_classes, _LEAST_JUDGED)))


def unknown_posterior(
    rows: Judged,
    assigned: Tensor,
    calibration: Calibration,
    schedule: Schedule,
    *,
    stride: int = 1,
    one_shot: bool = False,
) -> UnknownPosterior:
    """How probable it is that queries, placed as the calibration does, are unknown.

    ``assigned`` [t, q, k] are their assignments by a search in which every query is of a class.
    They are every so many (``stride``) of all queries. ``one_shot``: whether no class had two
    samples to calibrate with.
    """
    if calibration.prototypes.n_classes < 2:
        hint = "it learns from the classes what none of them looks like"
        raise InputError(f"open_set needs two classes or more: {hint}.")
    of_margin = _of_margin(rows, calibration, schedule)
    between = _between_neighbours(calibration)
    if one_shot:
        calibration = _with_guessed_scatter(calibration, between, schedule)
    neighbourhoods = Neighbourhoods.of(rows, calibration, schedule)
    scales = Scales.of(calibration, between, schedule)
    means = neighbourhoods.mean(rows.placed)
    given = rows.given(neighbourhoods.mean(rows.missing))
    tests = _Tests(
        rows=rows,
        assigned=assigned,
        calibration=calibration,
        neighbourhoods=neighbourhoods,
        means=means,
        given=given,
        scales=scales,
        distances=rows.squared_distances(calibration),
    )
    if not one_shot:
        of_margin = scales.separation(rows.single) * (of_margin - log(schedule.improbable))
    evidence = tests.alone + tests.around + of_margin + 0.5 * tests.of_class
    together = given.together(neighbourhoods.sizes)
    integrated = _integrate(
        schedule.unknown_weight * evidence,
        tests.odd_members * together.rsqrt(),
        neighbourhoods.share,
        together,
        schedule.shared_error + (1 / (calibration.prototypes.counts + 1)).mean(-1),
        prior=schedule.improbable if one_shot else schedule.some_unknown,
    )
    return UnknownPosterior(
        means=means,
        bias=calibration.within.scatter.unsqueeze(-1) * given.of_each / neighbourhoods.sizes,
        precision=calibration.precision,
        similarity=neighbourhoods.similarity,
        probabilities=integrated.probabilities,
        some_unknown=integrated.some_unknown,
        stride=stride,
    )


def _of_margin(rows: Judged, calibration: Calibration, schedule: Schedule) -> Tensor:
    """[t, q] ln(exp(−μ) + ½ε), for the margin μ between the two nearest classes of a query."""
    # Differences of sorted values are negative: these are −μ.
    margin = rows.log_likelihood(calibration).topk(2).values.diff().squeeze(-1)
    margin = margin * rows.single.times_fewer
    return (margin.exp() + 0.5 * schedule.improbable).log()


def _with_guessed_scatter(
    calibration: Calibration,
    between: Tensor,
    schedule: Schedule,
) -> Calibration:
    """With one example per class: S from the distance ``between`` [t] neighbouring prototypes.

    Two samples of a class are 2S apart on average, and those of neighbouring classes a little
    farther.
    """
    within = calibration.within
    prototypes = calibration.prototypes
    guess = schedule.one_shot_within * between / (2 * (1 / prototypes.counts).mean(-1))
    wider = (guess - within.scatter).unsqueeze(-1)
    squares = prototypes.squares - error_of_means(wider, prototypes.counts)
    return replace(
        calibration,
        within=replace(within, scatter=guess, noise=within.noise * guess / within.scatter),
        prototypes=replace(prototypes, squares=squares),
    )


def _between_neighbours(calibration: Calibration) -> Tensor:
    """[t] the mean squared distance from a prototype to the nearest other one."""
    offsets = calibration.prototypes.offsets
    nearest = []
    numbers = torch.arange(offsets.shape[1], device=offsets.device)
    for part in torch.split(numbers, max(1, MOST_NUMBERS // len(numbers))):
        own = part.view(1, -1, 1).expand(len(offsets), -1, 1)
        distances = squared_distances(offsets[:, part], offsets).scatter(-1, own, torch.inf)
        nearest.append(distances.amin(-1))
    return torch.cat(nearest, 1).mean(-1)


class NearGroup(NamedTuple):
    """Groups of queries, each near a prototype."""

    squares: Tensor  # [t, g] the squared distance of the mean of the group
    sizes: Tensor  # [t, g] m, the number of queries
    counts: Tensor  # [t, g] n, the number of samples of the prototype
    given: Given  # f₁ and f₂, how much of it is there


@dataclass(frozen=True, eq=False, kw_only=True)
class Scales:
    """What the excess of a group is like for members of a class, and for unknown queries."""

    scatter: Tensor  # [t, 1] S
    noise: Tensor  # [t, 1] the standard deviation for members is this times 0.2 + 0.8/m + 1/n
    of_unknown: Tensor  # [t, 1] D, the mean excess of unknown queries
    apart: Tensor  # [t, 1] D/σ(1, n)
    of_columns: Tensor  # [t, 1] S √(2/d), the least ``noise``
    freedom: Tensor  # [t, 1] f, the degrees of freedom of Student's distribution
    schedule: Schedule

    @staticmethod
    def of(calibration: Calibration, between: Tensor, schedule: Schedule) -> Scales:
        """From the squared distance ``between`` [t] neighbouring prototypes."""
        prototypes = calibration.prototypes
        scatter = calibration.within.scatter.unsqueeze(-1)
        errors = (1 / prototypes.counts).mean(-1, keepdim=True)
        n_left_out = (prototypes.examples - 1).clamp_min(0).sum(-1, keepdim=True)
        freedom = torch.where(n_left_out > 0, n_left_out, prototypes.n_classes)
        of_columns = scatter * (2 / calibration.coordinates.n_varying).sqrt().unsqueeze(-1)
        noise = torch.maximum(calibration.within.noise.unsqueeze(-1), of_columns)
        noise = noise * (1 + schedule.doubtful_examples / (2 * freedom))
        of_unknown = (between.unsqueeze(-1) - 2 * errors * scatter).clamp_min(0)
        tiny = torch.finfo(of_unknown.dtype).tiny
        return Scales(
            scatter=scatter,
            noise=noise,
            of_unknown=of_unknown,
            apart=of_unknown / (noise * (1 + errors)).clamp_min(tiny),
            of_columns=of_columns,
            freedom=freedom,
            schedule=schedule,
        )

    def excess(self, group: NearGroup) -> Tensor:
        """[t, g] ζ, for groups of m queries near classes of n samples."""
        each, mean = group.given
        return group.squares - self.scatter * (each * (1 / group.sizes) + mean * (1 / group.counts))

    def separation(self, given: Given) -> Tensor:
        """[t, q] D/σ(1, n) of single queries, at most 1, times √f₁."""
        return given.of_each.sqrt() * (self.apart / self._wider(given)).clamp_max(1)

    def farthest(self, counts: Tensor) -> Tensor:
        """[t, k] ζ₊: the excess D of single unknown queries, and a deviation more.

        Near classes of so many samples [t, k].
        """
        variance = (self.noise * (1 + 1 / counts)).square()
        return self.of_unknown + (variance + (0.5 * self.of_unknown).square()).sqrt()

    def log_ratio(self, group: NearGroup) -> Tensor:
        """[t, g] Λ.

        An excess below the point at which Λ were smallest with normal densities counts as that
        point.
        """
        of_unknown = self.of_unknown * group.given.of_mean
        variance = self._deviation(group).square().clamp_min(torch.finfo(of_unknown.dtype).tiny)
        wider = variance + torch.maximum((0.5 * of_unknown).square(), _LEAST_WIDER * variance)
        lowest = -variance * of_unknown / (wider - variance)
        excess = torch.maximum(self.excess(group), lowest)
        unknown = self._log_density(excess - of_unknown, wider)
        return unknown - self._log_density(excess, variance)

    def _deviation(self, group: NearGroup) -> Tensor:
        """[t, g] σ(m, n), of what is there."""
        shared = self.schedule.shared_error
        each, mean = group.given
        of_each = each * ((1 - shared) / group.sizes)
        parts = shared * mean + of_each + mean * (1 / group.counts)
        return self.noise * parts * self._wider(group.given)

    def _wider(self, given: Given) -> Tensor:
        """[t, g] how many times as much distances vary around what they are, with fewer columns.

        Of their variance the part of normal features grows, which have independent columns.
        """
        of_columns = (self.of_columns / self.noise.clamp_min(_NO_DISTANCE)).square()
        return (1 + of_columns * (given.times_fewer - 1)).sqrt()

    def _log_density(self, gap: Tensor, variance: Tensor) -> Tensor:
        """[t, g] of Student's distribution, up to a number."""
        tail = (gap.square() / (self.freedom * variance)).log1p()
        return -0.5 * ((self.freedom + 1) * tail + variance.log())


@dataclass(frozen=True, eq=False, kw_only=True)
class _Tests:
    """The tests of each query: alone, with the queries around it, and with its assigned class."""

    rows: Judged
    assigned: Tensor  # [t, q, k]
    calibration: Calibration
    neighbourhoods: Neighbourhoods
    means: Tensor  # [t, q, d] of these
    given: Given  # [t, q] how much of these is there
    scales: Scales
    distances: Tensor  # [t, q, k] squared distances to the prototypes, less e_k

    @property
    def alone(self) -> Tensor:
        """[t, q] Λ of each query by itself."""
        return self.scales.log_ratio(self._single)

    @property
    def odd_members(self) -> Tensor:
        """[t, q] ε ζ₊/ζ, at most ε.

        Members of a class look unknown with the probability ½ε, but they are seldom farther off
        than unknown queries are.
        """
        single = self._single
        excess = self.scales.excess(single).clamp_min(_NO_DISTANCE)
        farthest = single.given.of_each * self.scales.farthest(single.counts)
        farther = (farthest / excess).clamp_max(1)
        return self.scales.schedule.improbable * farther

    @property
    def around(self) -> Tensor:
        """[t, q] Λ of the neighbourhood of each query, less what clumps of classes explain."""
        scales = self.scales
        sizes = self.neighbourhoods.sizes
        distances = self._distances_of_means
        group = self._nearest(distances, sizes, self.given)
        nearest = distances.argmin(-1, keepdim=True)
        of_members = self.neighbourhoods.mean(self.distances).gather(-1, nearest).squeeze(-1)
        of_members = self.given.common * (of_members - scales.scatter * self.given.of_each)
        all_clumps = scales.scatter * self.given.of_mean * (1 - 1 / sizes)  # if κ were 1
        above_members = scales.excess(group) - of_members
        clumped = self.neighbourhoods.clumped(above_members, all_clumps, self.calibration)
        clumped = torch.maximum(self.calibration.clumped, clumped).unsqueeze(-1)
        nearer = group._replace(squares=group.squares - clumped * all_clumps)
        return self.given.common * scales.log_ratio(nearer)

    @property
    def _distances_of_means(self) -> Tensor:
        """[t, q, k] squared distances of the means of neighbourhoods, less e_k."""
        calibration = self.calibration
        errors = calibration.prototypes.errors.unsqueeze(1)
        of_members = self.neighbourhoods.mean(self.rows.of_filled)
        of_mean = self.given.filled_alike.unsqueeze(-1) * of_members
        added = of_mean - (1 - self.given.of_mean).unsqueeze(-1) * errors
        return calibration.prototypes.squared_distances(self.means) - added

    @property
    def of_class(self) -> Tensor:
        """[t, q] Λ of the class that each query is assigned to, on average."""
        groups = self._classes
        ratios = groups.given.common * self.scales.log_ratio(groups)
        return (self.assigned @ ratios.unsqueeze(-1)).squeeze(-1)

    @property
    def _single(self) -> NearGroup:
        """Each query as a group of one."""
        one = torch.ones_like(self.distances[..., 0])
        return self._nearest(self.distances, one, self.rows.single)

    def _nearest(self, distances: Tensor, sizes: Tensor, given: Given) -> NearGroup:
        """Groups [t, q] of these sizes, each near the prototype that is nearest to its mean.

        ``distances`` [t, q, k] are those of the means, less e_k.
        """
        squares, nearest = distances.min(-1)
        counts = self.calibration.prototypes.counts.expand(len(distances), -1).gather(1, nearest)
        errors = error_of_means(self.calibration.within.scatter.unsqueeze(-1), counts)
        squares = squares + given.of_mean * errors
        return NearGroup(squares=squares, sizes=sizes, counts=counts, given=given)

    @property
    def _classes(self) -> NearGroup:
        """The queries that are assigned to each class [t, k], near its prototype.

        A query that is farther from a prototype than unknown queries are pulls the mean of the
        class as if it were no farther: one outlier must not decide about the others.
        """
        prototypes = self.calibration.prototypes
        share = self.neighbourhoods.share
        positive = self.assigned.clamp_min(torch.finfo(self.assigned.dtype).eps)
        sizes = effective_size(positive.mT, share).clamp_min(1)
        assigned = share.unsqueeze(-1) * self.assigned
        positive = share.unsqueeze(-1) * positive
        excess = self.scales.farthest(prototypes.counts).unsqueeze(1)
        of_unknown = self.calibration.within.scatter.view(-1, 1, 1) + excess
        of_unknown = self.rows.single.of_each.unsqueeze(-1) * of_unknown
        nearer = (of_unknown / self.distances.clamp_min(_NO_DISTANCE)).clamp_max(1).sqrt()
        pulls = assigned * nearer
        sums = pulls.mT @ self.rows.placed - pulls.sum(1).unsqueeze(-1) * prototypes.offsets
        total = positive.sum(1).unsqueeze(-1)
        means = sums / total
        counts = prototypes.counts.expand_as(sizes)
        given = self.rows.given((positive.mT @ self.rows.missing) / total)
        return NearGroup(squares=means.square().sum(-1), sizes=sizes, counts=counts, given=given)


class _Integrated(NamedTuple):
    """What is left when the proportion of unknown queries is integrated out."""

    probabilities: Tensor  # [t, q] to be unknown
    some_unknown: Tensor  # [t] the probability that any query is


def _integrate(
    log_odds: Tensor,
    odd: Tensor,
    share: Tensor,
    together: Tensor,
    correlation: Tensor,
    *,
    prior: float,
) -> _Integrated:
    """The probabilities for any proportion of unknown queries.

    ``log_odds`` [t, q]; ``odd`` [t, q]: what the odds are limited by in the question whether any
    query is unknown, as 1/odds. ``share`` [t, q]: what each query counts. ``together`` [t, q]: how
    many lie together with each, and judge together. ``correlation`` [t]: of the errors of two
    queries. ``prior``: the probability that some queries are unknown.
    """
    grid = torch.arange(_PROPORTIONS, dtype=odd.dtype, device=odd.device)
    grid = (grid + 0.5) / _PROPORTIONS
    of_proportions = torch.log1p(-grid).log_softmax(0)
    share = share.unsqueeze(-1)

    def mixed(odds: Tensor) -> Tensor:
        # With the proportion 0 every query is known: the data have the probability 1 in this unit.
        return torch.logaddexp(torch.log1p(-grid), odds.unsqueeze(-1) + grid.log())

    limited = -torch.logaddexp(torch.log1p(-odd) - log_odds, odd.log())
    of_group = share * together.rsqrt().unsqueeze(-1)
    log_ratio = ((of_group * mixed(limited)).sum(1) + of_proportions).logsumexp(-1)
    some_unknown = (log_ratio + log(prior / (1 - prior))).sigmoid()
    independent = independent_part(share.sum(1), correlation.unsqueeze(-1))
    proportion = (independent * (share * mixed(log_odds)).sum(1) + of_proportions).softmax(-1)
    by_proportion = (log_odds.unsqueeze(-1) + torch.logit(grid)).sigmoid()
    given = (by_proportion * proportion.unsqueeze(1)).sum(-1)
    probabilities = (given * some_unknown.unsqueeze(-1)).clamp_max(1)  # more than 1 by rounding
    return _Integrated(probabilities=probabilities, some_unknown=some_unknown)
