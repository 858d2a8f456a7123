"""Unknown queries: how probable that is for each query, and which of them belong together.

Like queries of a class, unknown queries come in groups, and a group says more than its queries one by one: the mean of
m queries is as near to the prototype of its class as the errors of two means allow, S/m + S/n on average. What exceeds
that is the *excess* e of a group over the nearest prototype. Its scale is known from the support in both cases. For
members of a class it has the mean 0 and a standard deviation σ(m, n) that support samples show which are left out of
their prototype. For unknown queries it has the mean D, by which a prototype exceeds the nearest other one, as if its
class were left out. So a group has the log-ratio

    r = ln T(e; D, σ² + (s D)²) − ln T(e; 0, σ²).

T is Student's distribution: σ comes from N left-out examples, which are its degrees of freedom. Where classes do not
differ, D = 0 and r = 0: there nothing can be seen.

Classes may come in clumps, and they may overlap: the queries around one are then farther from the nearest prototype
than S/m + S/n, and none is unknown. This is a part ρ of S, and the excess is less by ρ S (1 − 1/m). The higher of two
estimates of ρ counts: the excess of groups around examples (not of embeddings, where a little of it costs much), and by
how much the excess of groups around queries is above the mean excess of their members. For members of a class are
S + S/n away, in clumps or not, and unknown queries are farther.

Three groups speak about a query: itself alone, the queries around it (those that lie together with it), and the queries
of its class (those that a search assigns to one class: unknown queries gather at classes that do not occur; the excess
is that over the prototype of this class). An unknown query also lies between classes more often: its nearest class
exceeds the second by a small margin g in log-likelihood. The log-odds of a query are

    λ = a (r_alone + r_around + min(1, D/σ(1, n)) ln((e⁻ᵍ + ε)/2ε)) + a' r_class.

The wider a group is, the less of it is about the query. With e⁻ᵍ = ε the margin says nothing: a member of a class may
have any margin, and ε says how often. Where classes hardly differ, margins are small for members too.

The proportion p of unknown queries in the batch is not known. It is integrated out, with a prior that is 0 with the
probability π, and has the density 2(1 − p) otherwise. Whether any query is unknown, the whole batch says:

    ln (1 − π)/π + ln Σ_p prior(p) exp Σ_q m_q^(−½) ln(1 − p + p o_q),   1/o_q = 2ε + (1 − 2ε) exp(−λ_q),

where m_q queries lie together with q, and judge as their root. Near-copies count as one query. Few queries cannot
decide it, because odds are limited. Here ε is divided by the root of m_q, for members of a class seldom look unknown
together, and multiplied by f/e for queries that are farther off than unknown ones are (f is D and a deviation).

The value of p follows from b Σ_q ln(1 − p + p exp λ_q): the queries of a batch share errors of prototypes and metric,
and b is the part of them that is independent (``independent_part``). So a batch without unknown queries stays without.
A query is answered as unknown where that is more probable than any class, in a batch that probably has some.

Few left-out examples may be alike by chance: σ is at least S √(2/d), that of d normal features. With few features they
have chosen metric and first step too: there σ is multiplied by 1 + 5/N.

With one example per class no sample can be left out. S is then taken from the distances between the K prototypes,
which are N, and the margin counts a ln(e⁻ᵍ + ε), which is cautious.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, log, sqrt

import torch
from torch import Tensor

from manyway.core import Tasks, one_hot
from manyway.errors import InputError
from manyway.methods.calibration.calibration import Calibration, distances_between, squared_distances
from manyway.methods.evidence.groups import copy_distance, independent_part
from manyway.methods.evidence.queries import Part
from manyway.methods.evidence.schedule import Schedule

MOST_JUDGED = 2048  # queries whose groups are found from all pairs; further queries are judged as their groups are
_MOST_ASSIGNED = 1 << 24  # numbers at once: fewer queries are judged where they could be of very many classes
_MOST_EXAMPLES = 512  # whose groups are looked at, evenly spaced
_PROPORTIONS = 40  # grid of the proportion of unknown queries
Group = tuple[Tensor, Tensor, Tensor]  # of m queries near a prototype of n samples: the squared distance, m and n


@dataclass(frozen=True, eq=False)
class UnknownPosterior:
    """Queries, their groups, and how probable it is that these are unknown.

    Where there are many queries, only every so many of them are judged, and further queries as their groups are.
    """

    means: Tensor  # [t, a, d] the mean of the group around each query
    bias: Tensor  # [t, a] by how much squared distances to it are too long
    precision: Tensor  # [t] τ
    similarity: Tensor  # [t, a, a] how much each other query belongs to the group of a query
    judged: Tensor  # [t, a] the probability to be unknown
    any: Tensor  # [t] the probability that any query is
    stride: int
    schedule: Schedule

    def unknown(self, placed: Tensor, first: int) -> Tensor:
        """[t, b] the probability of placed queries [t, b, d] to be unknown; the first has that number."""
        if self.stride == 1:
            return self.judged[:, first : first + placed.shape[1]]
        return (self.weights(placed) @ self.judged.unsqueeze(-1)).squeeze(-1).clamp_max(1)

    def weights(self, placed: Tensor) -> Tensor:
        """[t, q, a] the probability that another query is of the group around each query, if all are as frequent."""
        distances = squared_distances(placed, self.means) - self.bias.unsqueeze(1)
        return distances.mul_(-0.5 * self.precision.view(-1, 1, 1)).softmax(-1)

    def said(self, unknown: Tensor, found: Tensor) -> Tensor:
        """[t, b] whether the answer is unknown, with class probabilities [t, b, k]: if that is the most probable."""
        return (unknown > found.amax(-1)) & (self.any > 0.5).unsqueeze(-1)

    def groups(self, placed: Tensor, found: Tensor) -> UnknownGroups:
        """The groups of the judged queries, given as placed [t, a, d] with class probabilities [t, a, k]."""
        said = self.said(self.unknown(placed, 0), found)
        groups, medoids = groups_of(self.similarity, said, self.schedule.odd_members)
        return UnknownGroups(self, groups, torch.where(medoids < 0, medoids, medoids * self.stride))


@dataclass(frozen=True, eq=False)
class UnknownGroups:
    """The groups of unknown queries."""

    posterior: UnknownPosterior
    judged: Tensor  # [t, a] of the judged queries; -1 for those of a class
    medoids: Tensor  # [t, g] the query in the middle of each group; -1 where a task has fewer

    def __call__(self, part: Part, found: Tensor) -> Tensor:
        """[t, b] the groups of some queries with class probabilities [t, b, k]; -1 for those of a class."""
        if self.posterior.stride == 1:
            return self.judged[:, part.first : part.first + part.placed.shape[1]]
        weights = self.posterior.weights(part.placed).masked_fill((self.judged < 0).unsqueeze(1), -1)
        groups = self.judged.gather(1, weights.argmax(-1))
        return groups.masked_fill(~self.posterior.said(part.unknown, found), -1)


def judged_stride(n_query: int, n_classes: int) -> int:
    """The distance between the queries whose groups are found from all pairs."""
    return ceil(n_query / min(MOST_JUDGED, max(_MOST_ASSIGNED // n_classes, MOST_JUDGED // 8)))


def judge(
    placed: Tensor, assigned: Tensor, calibration: Calibration, stride: int, schedule: Schedule, one_shot: bool = False
) -> UnknownPosterior:
    """How probable it is that queries [t, q, d], placed as the calibration does, are unknown.

    ``assigned`` [t, q, k] are their assignments by a search in which every query is of a class. They are every so many
    (``stride``) of all queries. ``one_shot``: whether no class had two samples to calibrate with.
    """
    if calibration.counts.shape[1] < 2:
        raise InputError("open_set needs two classes or more: it learns from the classes what none of them looks like.")
    closed, apart = calibration.log_likelihood(placed), _apart(calibration)
    if one_shot:
        # Two samples of a class are 2S apart on average, and those of neighbouring classes a little farther.
        guess = schedule.one_shot_within * apart / (2 * (1 / calibration.counts).mean(-1))
        squares = calibration.squares - (guess - calibration.scatter).unsqueeze(-1) / calibration.counts
        noise = calibration.noise * guess / calibration.scatter
        calibration = replace(calibration, scatter=guess, squares=squares, noise=noise)
    similarity, share = _similarity(placed, calibration, schedule)
    means, sizes = _mean_around(placed, similarity, share), _effective_size(similarity, share)
    scales = Scales.of(calibration, apart, schedule)
    distances = calibration.squared_distances(placed)
    single, (near, wide) = _nearest(distances, torch.ones_like(sizes), calibration), schedule.unknown_weights
    alone = scales.log_ratio(*single)
    from_means = calibration.squared_distances(means)
    squares, _, counts = group = _nearest(from_means, sizes, calibration)
    nearest = from_means.argmin(-1, keepdim=True)
    of_members = _mean_around(distances, similarity, share).gather(-1, nearest).squeeze(-1) - scales.scatter
    room = scales.scatter * (1 - 1 / sizes)
    clumped = _clumped(scales.excess(*group) - of_members, room, share, calibration)
    clumped = torch.maximum(calibration.clumped, clumped).unsqueeze(-1)
    around = scales.log_ratio(squares - clumped * room, sizes, counts)
    of_class = scales.log_ratio(*_of_classes(placed, assigned, distances, share, calibration, scales))
    between = (closed.topk(2).values.diff().squeeze(-1).exp() + schedule.odd_members).log()
    if not one_shot:
        between = scales.distinct * (between - log(2 * schedule.odd_members))
    log_odds = near * (alone + around + between) + wide * (assigned @ of_class.unsqueeze(-1)).squeeze(-1)
    # Members of a class look unknown with the probability ε, but they are seldom farther off than unknown queries are,
    # and seldom many together.
    odd = 2 * schedule.odd_members * (scales.farthest(single[2]) / scales.excess(*single).clamp_min(1e-30)).clamp_max(1)
    odd = odd * sizes.rsqrt()
    correlation = schedule.shared_error + (1 / (calibration.counts + 1)).mean(-1)
    judged = _integrated(log_odds, odd, sizes, share, correlation, schedule)
    error = calibration.scatter.unsqueeze(-1) / sizes
    return UnknownPosterior(means, error, calibration.precision, similarity, *judged, stride, schedule)


def clumping(calibration: Calibration, tasks: Tasks, schedule: Schedule) -> Tensor:
    """[t] ρ of the groups around examples. These are in prototypes, which are nearer to them by 2S/n for their part."""
    stride, found = ceil(tasks.n_support / _MOST_EXAMPLES), []
    placed, labels = calibration.place(tasks.support[:, ::stride]), tasks.support_labels[:, ::stride]
    size = max(1, _MOST_ASSIGNED // labels.shape[1] ** 2)
    for at in (slice(first, first + size) for first in range(0, len(placed), size)):
        some = calibration.of_tasks(at)
        similarity, share = _similarity(placed[at], some, schedule)
        scatter, sizes = some.scatter.unsqueeze(-1), _effective_size(similarity, share)
        parts = _mean_around(one_hot(labels[at], tasks.n_classes, placed.dtype), similarity, share)
        nearer = 2 * scatter.unsqueeze(-1) * parts / some.counts.unsqueeze(1)
        distances = some.squared_distances(_mean_around(placed[at], similarity, share)) + nearer
        found.append(_clumped(distances.amin(-1) - scatter / sizes, scatter * (1 - 1 / sizes), share, some))
    return torch.cat(found)


def _clumped(excess: Tensor, room: Tensor, share: Tensor, calibration: Calibration) -> Tensor:
    """[t] ρ from the excess [t, g] of groups and S (1 − 1/m): Σ e / Σ S (1 − 1/m), and a large group that has none."""
    return ((share * excess).sum(-1) / ((share * room).sum(-1) + calibration.scatter)).clamp(0, 1)


def groups_of(similarity: Tensor, rejected: Tensor, alike: float) -> tuple[Tensor, Tensor]:
    """Groups [t, q] of the rejected queries, -1 for the others, largest first, and the medoid of each [t, g], -1 where
    a task has fewer.

    The two groups with the highest mean similarity are joined, again and again, while it is high enough. The medoid of
    a group has the highest total similarity to it.
    """
    found, most = torch.full(rejected.shape, -1, device=rejected.device), int(rejected.sum(-1).max())
    if most == 0:
        return found, found[:, :0]
    which = rejected.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)[:, :most]  # [t, r]
    inside = rejected.gather(1, which)
    tasks = torch.arange(len(which), device=which.device).view(-1, 1, 1)
    among = similarity[tasks, which.unsqueeze(2), which.unsqueeze(1)] * (inside.unsqueeze(1) & inside.unsqueeze(2))
    member = _joined(among, alike) * inside.unsqueeze(-1)  # [t, r, r] whether a query is in a group
    order = member.sum(1).argsort(dim=-1, descending=True, stable=True)
    member = member.gather(2, order.unsqueeze(1).expand_as(member))
    member = member[..., : int((member.sum(1) > 0).sum(-1).max())]
    found = found.scatter(1, which, member.argmax(-1).masked_fill(~inside, -1))
    total = (among @ member).masked_fill(member == 0, -1)
    return found, which.gather(1, total.argmax(1)).masked_fill(member.sum(1) == 0, -1)


def _joined(similarity: Tensor, alike: float) -> Tensor:
    """[t, r, g] 1 where query r is in group g, else 0, from similarities [t, r, r]: clusters by average linkage."""
    n_tasks, size, _ = similarity.shape
    member = torch.eye(size, dtype=similarity.dtype, device=similarity.device).repeat(n_tasks, 1, 1)
    total = similarity.clone()  # [t, g, g] between the queries of two groups
    upper = torch.ones(size, size, dtype=torch.bool, device=similarity.device).triu(1)
    tasks = torch.arange(n_tasks, device=similarity.device)
    for _ in range(size - 1):
        sizes = member.sum(1)
        mean = total / (sizes.unsqueeze(1) * sizes.unsqueeze(2)).clamp_min(1)
        best, pair = mean.masked_fill(~upper, -1).flatten(1).max(-1)
        if not bool((joins := best >= alike).any()):
            break
        t, first, second = tasks[joins], pair[joins] // size, pair[joins] % size
        for values in (member, total, total.mT):
            values[t, :, first] += values[t, :, second]
            values[t, :, second] = 0
    return member


def _similarity(placed: Tensor, calibration: Calibration, schedule: Schedule) -> tuple[Tensor, Tensor]:
    """[t, q, q] from 0 to 1: how much two queries belong together, and [t, q] what each of them counts.

    Each query is assigned to all queries as if they were classes of one sample, and then to the means of the groups
    that this makes, always without itself. Two queries are as similar as their assignments. Near-copies count as one
    query, because their mean is no nearer to a prototype than each of them.
    """
    scatter, precision = calibration.scatter.view(-1, 1, 1), calibration.precision.view(-1, 1, 1)
    distances = distances_between(placed)
    copies = distances <= copy_distance(2 * calibration.scatter, placed.shape[-1], schedule)  # itself included
    share = 1 / copies.sum(-1).to(placed)
    distances = torch.where(copies, 2 * scatter, distances)  # of two samples of a class
    similarity = _overlap(distances.mul_(-0.5 * precision).softmax(-1))
    masses = (similarity @ share.unsqueeze(-1)).mT
    distances = squared_distances(placed, _mean_around(placed, similarity, share))
    others = (masses - similarity).clamp_min(0.5)  # of group j, without query q
    squares = similarity.square()
    bias = ((squares @ share.unsqueeze(-1)).mT - squares) / others.square()
    distances = distances * (masses / others).square() - scatter * bias
    distances = torch.where(copies & (masses - similarity < 0.5), 2 * scatter, distances)
    return _overlap(distances.mul_(-0.5 * precision).softmax(-1)), share


def _mean_around(rows: Tensor, similarity: Tensor, share: Tensor) -> Tensor:
    """[t, q, …] the mean of rows [t, q, …] over the group around each query; each row counts [t, q]."""
    share = share.unsqueeze(-1)
    return similarity @ (share * rows) / (similarity @ share)


def _overlap(assignments: Tensor) -> Tensor:
    """[t, q, q] the cosines of the rows of [t, q, n]."""
    rows = assignments / assignments.square().sum(-1, keepdim=True).sqrt()
    return (rows @ rows.mT).clamp_(0, 1)


def _effective_size(weights: Tensor, share: Tensor) -> Tensor:
    """[t, g] how many queries of equal weight count as much as those with weights [t, g, q], which count [t, q]."""
    share = share.unsqueeze(-1)
    return ((weights @ share).square() / (weights.square() @ share)).squeeze(-1)


def _nearest(distances: Tensor, sizes: Tensor, calibration: Calibration) -> Group:
    """The groups [t, q] near the nearest prototype, from the unbiased distances [t, q, k] of their means."""
    squares, nearest = distances.min(-1)
    counts = calibration.counts.expand(len(distances), -1).gather(1, nearest)
    return squares + calibration.scatter.unsqueeze(-1) / counts, sizes, counts


def _of_classes(
    placed: Tensor, assigned: Tensor, distances: Tensor, share: Tensor, calibration: Calibration, scales: Scales
) -> Group:
    """The same [t, k] for the queries that are assigned to one class, near its prototype.

    A query that is farther from a prototype than unknown queries are pulls the mean of the class as if it were no
    farther: one outlier must not decide about the others.
    """
    farthest = calibration.scatter.view(-1, 1, 1) + scales.farthest(calibration.counts).unsqueeze(1)
    some = assigned.clamp_min(torch.finfo(assigned.dtype).eps)
    sizes = _effective_size(some.mT, share).clamp_min(1)
    assigned, some = share.unsqueeze(-1) * assigned, share.unsqueeze(-1) * some
    pulls = assigned * (farthest / distances.clamp_min(1e-30)).clamp_max(1).sqrt()
    means = (pulls.mT @ placed - pulls.sum(1).unsqueeze(-1) * calibration.offsets) / some.sum(1).unsqueeze(-1)
    return means.square().sum(-1), sizes, calibration.counts.expand_as(sizes)


@dataclass(frozen=True, eq=False)
class Scales:
    """What the excess of a group is like for members of a class, and for unknown queries."""

    scatter: Tensor  # [t, 1] S
    noise: Tensor  # [t, 1] the standard deviation for members is this times 1/m + 1/n
    apart: Tensor  # [t, 1] D
    distinct: Tensor  # [t, 1] D/σ(1, n), at most 1
    number: Tensor  # [t, 1] N
    schedule: Schedule

    @staticmethod
    def of(calibration: Calibration, apart: Tensor, schedule: Schedule) -> Scales:
        """From the squared distance [t] between neighbouring prototypes."""
        scatter, noise = calibration.scatter.unsqueeze(-1), calibration.noise.unsqueeze(-1)
        errors, (n_classes, n_features) = (1 / calibration.counts).mean(-1, keepdim=True), calibration.offsets.shape[1:]
        number = (calibration.examples - 1).clamp_min(0).sum(-1, keepdim=True)
        number = torch.where(number > 0, number, n_classes)
        noise = torch.maximum(noise, scatter * sqrt(2 / n_features)) * (1 + schedule.doubtful_examples / (2 * number))
        excess = (apart.unsqueeze(-1) - 2 * errors * scatter).clamp_min(0)
        distinct = (excess / (noise * (1 + errors)).clamp_min(torch.finfo(excess.dtype).tiny)).clamp_max(1)
        return Scales(scatter, noise, excess, distinct, number, schedule)

    def excess(self, squares: Tensor, sizes: Tensor, counts: Tensor) -> Tensor:
        """[t, g] e, for groups of m queries near classes of n samples."""
        return squares - self.scatter * (1 / sizes + 1 / counts)

    def farthest(self, counts: Tensor) -> Tensor:
        """[t, k] the excess of single unknown queries near classes of n samples, and a deviation more."""
        variance = (self.noise * (1 + 1 / counts)).square()
        return self.apart + (variance + (self.schedule.unknown_spread * self.apart).square()).sqrt()

    def log_ratio(self, squares: Tensor, sizes: Tensor, counts: Tensor) -> Tensor:
        """[t, g] r. An excess below the point at which r were smallest with normal densities counts as that point."""
        shared = self.schedule.shared_error
        deviation = self.noise * (shared + (1 - shared) / sizes + 1 / counts)
        variance = deviation.square().clamp_min(torch.finfo(deviation.dtype).tiny)
        wider = variance + torch.maximum((self.schedule.unknown_spread * self.apart).square(), 1e-3 * variance)
        excess = torch.maximum(self.excess(squares, sizes, counts), -variance * self.apart / (wider - variance))

        def log_density(gap: Tensor, variance: Tensor) -> Tensor:
            return -0.5 * ((self.number + 1) * (gap.square() / (self.number * variance)).log1p() + variance.log())

        return log_density(excess - self.apart, wider) - log_density(excess, variance)


def _apart(calibration: Calibration) -> Tensor:
    """[t] the mean squared distance from a prototype to the nearest other one."""
    offsets, nearest = calibration.offsets, []
    numbers = torch.arange(offsets.shape[1], device=offsets.device)
    for part in torch.split(numbers, max(1, _MOST_ASSIGNED // len(numbers))):
        own = part.view(1, -1, 1).expand(len(offsets), -1, 1)
        nearest.append(squared_distances(offsets[:, part], offsets).scatter(-1, own, torch.inf).amin(-1))
    return torch.cat(nearest, 1).mean(-1)


def _integrated(
    log_odds: Tensor, odd: Tensor, sizes: Tensor, share: Tensor, correlation: Tensor, schedule: Schedule
) -> tuple[Tensor, Tensor]:
    """The probabilities that queries [t, q] are unknown, and that any is [t], for any proportion of such queries.

    ``log_odds`` [t, q], ``odd`` [t, q]: what the odds are limited by in the question whether any query is unknown, as
    1/odds. ``sizes`` [t, q]: how many queries lie together with each, and judge together. ``share`` [t, q]: what each
    counts. ``correlation`` [t]: of the errors of two queries.
    """
    grid = (torch.arange(_PROPORTIONS, dtype=odd.dtype, device=odd.device) + 0.5) / _PROPORTIONS
    prior, share = torch.log1p(-grid).log_softmax(0), share.unsqueeze(-1)

    def mixed(odds: Tensor) -> Tensor:
        # With the proportion 0 every query is known: the probability of the data is 1 in these units.
        return torch.logaddexp(torch.log1p(-grid), odds.unsqueeze(-1) + grid.log())

    limited = -torch.logaddexp(torch.log1p(-odd) - log_odds, odd.log())
    some = ((share * sizes.rsqrt().unsqueeze(-1) * mixed(limited)).sum(1) + prior).logsumexp(-1)
    any_unknown = (some + log(1 / schedule.none_unknown - 1)).sigmoid()
    independent = independent_part(share.sum(1), correlation.unsqueeze(-1))
    proportion = (independent * (share * mixed(log_odds)).sum(1) + prior).softmax(-1)
    given = ((log_odds.unsqueeze(-1) + torch.logit(grid)).sigmoid() * proportion.unsqueeze(1)).sum(-1)
    return (given * any_unknown.unsqueeze(-1)).clamp_max(1), any_unknown  # by rounding it could be more than 1
