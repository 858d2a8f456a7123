"""Unknown queries: how probable that is for each query, and which of them belong together.

Like queries of a class, unknown queries come in groups. A group says more than its queries one by one: the mean of
m queries is as near to the prototype of its class as the errors of two means allow, S/m + S/n on average. What exceeds
that is the *excess* of a group. The scale of both cases is known from the support: the excess of a member is that of
support samples which were left out of their prototype, and the excess of a group of unknown queries is that of a
prototype over the nearest other one, as if its class were left out.

Groups are found twice. First, queries that lie together are a group, and its excess is that over the nearest prototype.
Second, queries that a search assigns to one class are a group, and its excess is that over the prototype of this class:
unknown queries gather at classes that do not occur. A group of the first kind can be a part of one of the second:
queries of a class that are alike. It is no random sample of the class, and its mean is farther from the prototype.

The proportion of such queries in the batch is not known. It is integrated out, with a prior that is 0 with probability
one half. So a batch without unknown queries stays without.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log

import torch
from torch import Tensor

from manyway.core.topk import UNKNOWN_ABOVE
from manyway.errors import InputError
from manyway.methods.calibration.calibration import Calibration, distances_between, squared_distances
from manyway.methods.evidence.queries import Part
from manyway.methods.evidence.schedule import Schedule

MOST_JUDGED = 2048  # queries whose groups are found from all pairs; further queries are judged as their groups are
_MOST_ASSIGNED = 1 << 24  # numbers: fewer queries are judged where they could be of very many classes
_PROPORTIONS = 40  # grid of the proportion of unknown queries
_LEAST_COUNTED = 1e-3  # so that classes have a count where all queries are unknown
_ALONE = 1.5  # a group of this size is one query, whose scatter is not known


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
    least: Tensor  # [t, 1] the lowest of these probabilities; 0 where a label is known
    stride: int
    schedule: Schedule

    def unknown(self, placed: Tensor, first: int) -> Tensor:
        """[t, b] the probability of placed queries [t, b, d] to be unknown; the first has that number."""
        if self.stride == 1:
            return self.judged[:, first : first + placed.shape[1]]
        return (self.weights(placed) @ self.judged.unsqueeze(-1)).squeeze(-1)

    def counted(self, unknown: Tensor) -> Tensor:
        """[t, b] how much queries count in the search for the classes that are present, given ``unknown`` [t, b].

        It is the probability to be of a class, relative to that of the query for which it is highest. So queries count
        fully where there is no evidence about any of them. No query counts more than its evidence supports: the
        highest probability is at least that before any query was seen.
        """
        before = (1 - self.schedule.none_unknown) / (self.schedule.unknown_rarity + 1)
        return ((1 - unknown) / (1 - self.least.clamp_max(before))).clamp(_LEAST_COUNTED, 1)

    def weights(self, placed: Tensor) -> Tensor:
        """[t, q, a] the probability that another query is of the group around each query, if all are as frequent."""
        distances = squared_distances(placed, self.means) - self.bias.unsqueeze(1)
        return distances.mul_(-0.5 * self.precision.view(-1, 1, 1)).softmax(-1)

    def groups(self, placed: Tensor, known: Tensor) -> UnknownGroups:
        """The groups of the judged queries, given as placed [t, a, d] with known labels [t, a]."""
        rejected = self.unknown(placed, 0).masked_fill(known >= 0, 0) > UNKNOWN_ABOVE
        found, medoids = groups_of(self.similarity, rejected, self.schedule.alike)
        return UnknownGroups(self, found, torch.where(medoids < 0, medoids, medoids * self.stride))


@dataclass(frozen=True, eq=False)
class UnknownGroups:
    """The groups of unknown queries."""

    posterior: UnknownPosterior
    judged: Tensor  # [t, a] of the judged queries; -1 for those of a class
    medoids: Tensor  # [t, g] the query in the middle of each group; -1 where a task has fewer

    def __call__(self, part: Part) -> Tensor:
        """[t, b] the groups of some queries; -1 for those of a class."""
        if self.posterior.stride == 1:
            found = self.judged[:, part.first : part.first + part.placed.shape[1]]
        else:
            weights = self.posterior.weights(part.placed).masked_fill((self.judged < 0).unsqueeze(1), -1)
            found = self.judged.gather(1, weights.argmax(-1))
        return found.masked_fill(part.unknown <= UNKNOWN_ABOVE, -1)


def judged_stride(n_query: int, n_classes: int) -> int:
    """The distance between the queries whose groups are found from all pairs."""
    return ceil(n_query / min(MOST_JUDGED, max(_MOST_ASSIGNED // n_classes, MOST_JUDGED // 8)))


def judge(
    placed: Tensor, assigned: Tensor, any_known: Tensor, calibration: Calibration, stride: int, schedule: Schedule
) -> UnknownPosterior:
    """How probable it is that queries [t, q, d], placed as the calibration does, are unknown.

    ``assigned`` [t, q, k] are their assignments by a search in which every query is of a class. They are every so many
    (``stride``) of all queries. ``any_known`` [t]: whether the label of a query is known.
    """
    if calibration.counts.shape[1] < 2:
        raise InputError("open_set needs two classes or more: it learns from the classes what none of them looks like.")
    similarity = _similarity(placed, calibration)
    masses = similarity.sum(-1, keepdim=True)
    means = similarity @ placed / masses
    sizes = _effective_size(similarity, -1)
    scatter = calibration.scatter.unsqueeze(-1)
    bias = scatter / sizes
    excess, nearest = (calibration.squared_distances(means) - bias.unsqueeze(-1)).min(-1)
    counts = calibration.counts.expand(len(placed), -1).gather(1, nearest)
    scales = Scales.of(calibration, schedule)
    of_class, class_sizes = (
        (assigned * values.unsqueeze(1)).sum(-1) for values in _of_classes(placed, assigned, calibration, scales)
    )
    missing = _missing_scatter(placed, means, similarity / masses, sizes, scatter)
    of_same_class = (assigned * assigned.sum(1, keepdim=True)).sum(-1)  # the number of queries
    missing = missing * (1 - sizes / of_same_class).clamp_min(0)
    around = scales.log_ratio(excess - missing * scatter, 1 / (1 / sizes + missing), counts)
    weight = (class_sizes / (class_sizes + schedule.part_of_class * sizes)).clamp_min(0.5)
    of_member = scales.log_ratio(torch.zeros_like(excess), sizes, counts)
    mixed = (-schedule.mixed_groups * of_member).clamp(0, schedule.mixed_groups_at_most)
    log_odds = limited(torch.lerp(around, of_class, weight) + mixed, schedule)
    unknown = _with_proportion(log_odds, 1 / sizes, schedule)
    least = unknown.amin(1).masked_fill(any_known, 0).unsqueeze(-1)
    return UnknownPosterior(means, bias, calibration.precision, similarity, unknown, least, stride, schedule)


def judge_scores(
    likelihood: Tensor, assigned: Tensor, any_known: Tensor, stride: int, schedule: Schedule
) -> UnknownPosterior:
    """The same for scores of a classifier: rows of log-likelihoods [t, q, k] that are normalised.

    A classifier has to name one of its classes, so the scores of an unknown query are those of a class at random. The
    other queries predict class k for query q with the probability π_qk = (m_k − u_qk + 1)/(|Q| + K), where m are the
    expected counts by ``assigned`` u. The log-odds to be unknown are −ln Σ_k K π_qk exp ℓ_qk: they are positive where
    the scores point to classes that no other query has.
    """
    n_query, n_classes = likelihood.shape[1:]
    others = (assigned.sum(1, keepdim=True) - assigned + 1) / (n_query + n_classes)
    log_odds = -(likelihood.log_softmax(-1) + (n_classes * others).log()).logsumexp(-1)
    similarity = _overlap(likelihood.softmax(-1))
    sizes = similarity.sum(-1)
    unknown = _with_proportion(limited(log_odds, schedule), 1 / sizes, schedule)
    least = unknown.amin(1).masked_fill(any_known, 0).unsqueeze(-1)
    one = torch.ones_like(sizes)
    return UnknownPosterior(likelihood, 0 * one, one[:, 0], similarity, unknown, least, stride, schedule)


def groups_of(similarity: Tensor, rejected: Tensor, alike: float) -> tuple[Tensor, Tensor]:
    """Groups [t, q] of the rejected queries, -1 for the others, largest first, and the medoid of each [t, g], -1 where
    a task has fewer.

    The two groups with the highest mean similarity are joined, again and again, while it is high enough. The medoid of
    a group has the highest total similarity to it.
    """
    most = int(rejected.sum(-1).max())
    which = rejected.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)[:, :most]  # [t, r]
    inside = rejected.gather(1, which)
    rows = similarity.gather(1, which.unsqueeze(-1).expand(-1, -1, similarity.shape[-1]))
    among = rows.gather(2, which.unsqueeze(1).expand(-1, most, -1)) * (inside.unsqueeze(1) & inside.unsqueeze(2))
    member = _joined(among, alike) * inside.unsqueeze(-1)  # [t, r, r] whether a query is in a group
    order = member.sum(1).argsort(dim=-1, descending=True, stable=True)
    member = member.gather(2, order.unsqueeze(1).expand_as(member))
    n_groups = int((member.sum(1) > 0).sum(-1).max()) if most else 0
    member = member[..., :n_groups]
    found = torch.full(rejected.shape, -1, device=rejected.device)
    if n_groups == 0:
        return found, found[:, :0]
    found = found.scatter(1, which, member.argmax(-1).masked_fill(~inside, -1))
    total = (among @ member).masked_fill(member == 0, -1)
    medoids = which.gather(1, total.argmax(1))
    return found, medoids.masked_fill(member.sum(1) == 0, -1)


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
        joins = best >= alike
        if not bool(joins.any()):
            break
        t, first, second = tasks[joins], pair[joins] // size, pair[joins] % size
        for values in (member, total, total.mT):
            values[t, :, first] += values[t, :, second]
            values[t, :, second] = 0
    return member


def _similarity(placed: Tensor, calibration: Calibration) -> Tensor:
    """[t, q, q] from 0 to 1: how much two queries belong together.

    Each query is assigned to all queries as if they were classes of one sample, and then to the means of the groups
    that this makes, always without itself. Two queries are as similar as their assignments.
    """
    scatter, precision = calibration.scatter.view(-1, 1, 1), calibration.precision.view(-1, 1, 1)
    distances = distances_between(placed)
    own = torch.eye(distances.shape[-1], dtype=torch.bool, device=placed.device)
    alone = 2 * scatter  # of two samples of a class
    distances = torch.where(own, alone, distances)
    similarity = _overlap(distances.mul_(-0.5 * precision).softmax(-1))
    masses = similarity.sum(-1).unsqueeze(1)
    distances = squared_distances(placed, similarity @ placed / masses.mT)
    others = (masses - similarity).clamp_min(0.5)  # of group j, without query q
    squares = similarity.square()
    bias = (squares.sum(-1).unsqueeze(1) - squares) / others.square()
    distances = distances * (masses / others).square() - scatter * bias
    distances = torch.where(own & (masses - similarity < 0.5), alone, distances)
    return _overlap(distances.mul_(-0.5 * precision).softmax(-1))


def _overlap(assignments: Tensor) -> Tensor:
    """[t, q, q] the cosines of the rows of [t, q, n]."""
    rows = assignments / assignments.square().sum(-1, keepdim=True).sqrt()
    return (rows @ rows.mT).clamp_(0, 1)


def _effective_size(weights: Tensor, dim: int) -> Tensor:
    """How many equal weights count as much as these."""
    return weights.sum(dim).square() / weights.square().sum(dim)


def _missing_scatter(placed: Tensor, means: Tensor, weights: Tensor, sizes: Tensor, scatter: Tensor) -> Tensor:
    """[t, q] the part of the within-class scatter, 0 to 1, that the queries of a group lack.

    Queries that are alike scatter less than a random sample of their class. By the decomposition of variance, the mean
    of such a part of a class lies as much farther from the mean of the class.
    """
    lengths = placed.square().sum(-1, keepdim=True)
    within = (weights @ lengths).squeeze(-1) - means.square().sum(-1)
    within = within / (1 - 1 / sizes).clamp_min(torch.finfo(sizes.dtype).eps)
    return torch.where(sizes > _ALONE, (1 - within / scatter).clamp(0, 1), 0)


def _of_classes(placed: Tensor, assigned: Tensor, calibration: Calibration, scales: Scales) -> tuple[Tensor, Tensor]:
    """The log-ratios and the sizes [t, k] of the groups of queries that are assigned to one class."""
    sizes = _effective_size(assigned.clamp_min(torch.finfo(assigned.dtype).eps), 1).clamp_min(1)
    masses = assigned.sum(1).clamp_min(torch.finfo(assigned.dtype).eps)
    means = assigned.mT @ placed / masses.unsqueeze(-1)
    excess = (means - calibration.offsets).square().sum(-1)
    excess = excess - calibration.scatter.unsqueeze(-1) * (1 / sizes + 1 / calibration.counts)
    return scales.log_ratio(excess, sizes, calibration.counts), sizes


@dataclass(frozen=True, eq=False)
class Scales:
    """What the excess of a group is like for members of a class, and for unknown queries."""

    noise: Tensor  # [t, 1] the standard deviation for members is this times 1/m + 1/n
    shared_error: float  # the queries of a group share an error: see the schedule
    mean: Tensor  # [t, 1] of the excess of a class that is left out
    variance: Tensor  # [t, 1]

    @staticmethod
    def of(calibration: Calibration, schedule: Schedule) -> Scales:
        apart = (value.unsqueeze(-1) for value in _left_out_classes(calibration, schedule))
        return Scales(calibration.noise.unsqueeze(-1), schedule.shared_error, *apart)

    def log_ratio(self, excess: Tensor, sizes: Tensor, counts: Tensor) -> Tensor:
        """[t, n] ln p(excess | unknown) − ln p(excess | a class), for groups of m queries near classes of n samples.

        Both are normal. An excess below the point at which the ratio is smallest counts as that point, and no excess is
        too large for unknown queries.
        """
        variance = (self.noise * (self.shared_error + (1 - self.shared_error) / sizes + 1 / counts)).square()
        wider = variance + torch.maximum(self.variance, 1e-3 * variance)
        excess = torch.maximum(excess, -variance * self.mean / (wider - variance))
        near = excess.square() / variance + variance.log()
        far = (excess - self.mean).clamp_max(0).square() / wider + wider.log()
        return 0.5 * (near - far)


def limited(log_ratio: Tensor, schedule: Schedule) -> Tensor:
    """The log-odds if a few queries of a class look as if they were of none."""
    certain = torch.full_like(log_ratio, log(schedule.odd_members))
    return -torch.logaddexp(log(1 - schedule.odd_members) - log_ratio, certain)


def _left_out_classes(calibration: Calibration, schedule: Schedule) -> tuple[Tensor, Tensor]:
    """[t] the mean and the variance of the excess of a class that is left out over the nearest other class."""
    offsets, squares = calibration.offsets, calibration.squares
    n_classes = squares.shape[1]
    nearest = []
    size = max(1, (1 << 24) // n_classes)
    for first in range(0, n_classes, size):
        part = torch.arange(first, min(first + size, n_classes), device=squares.device)
        distances = squares[:, part].unsqueeze(-1) + squares.unsqueeze(1) - 2 * (offsets[:, part] @ offsets.mT)
        own = part.view(1, -1, 1).expand(len(squares), -1, 1)
        nearest.append(distances.scatter_(-1, own, float("inf")).amin(-1))
    excess = torch.cat(nearest, 1)
    mean = excess.mean(-1).clamp_min(0)
    # A few classes more, with the usual spread, so that two classes have one too.
    usual, weight = (schedule.usual_spread * mean).square(), schedule.usual_spread_weight
    total = (excess - mean.unsqueeze(-1)).square().sum(-1) + weight * usual
    noise = (calibration.noise * 2 * (1 / calibration.counts).mean(-1)).square()
    return mean, (total / (n_classes - 1 + weight) - noise).clamp_min(0)


def _with_proportion(log_odds: Tensor, weights: Tensor, schedule: Schedule) -> Tensor:
    """[t, q] the probability of unknown, with the proportion of such queries integrated out.

    The queries of a group are judged together. So whether any query is unknown is decided with a weight per query that
    makes each group count once. The proportion is one of queries, of which each counts alike: known queries form few
    large groups and scattered unknown ones many small groups.
    """
    grid = (torch.arange(_PROPORTIONS, dtype=log_odds.dtype, device=log_odds.device) + 0.5) / _PROPORTIONS
    prior = ((schedule.unknown_rarity - 1) * torch.log1p(-grid)).log_softmax(0)
    # With the proportion 0 every query is known: the probability of the data is 1 in these units.
    odds = log_odds.unsqueeze(-1)
    data = torch.logaddexp(torch.log1p(-grid), odds + grid.log())
    some = ((weights.unsqueeze(-1) * data).sum(1) + prior).logsumexp(-1)
    some = some - log(schedule.none_unknown / (1 - schedule.none_unknown))
    proportion = (weights.mean(1).unsqueeze(-1) * data.sum(1) + prior).softmax(-1)
    given = ((odds + torch.logit(grid)).sigmoid() * proportion.unsqueeze(1)).sum(-1)
    return given * some.sigmoid().unsqueeze(-1)
