"""Confidence: how sure to be of what search and groups say.

The final probabilities are raised to one power per task, which changes no label. (A query that lies
far from all classes has a lower one of its own, ``Coordinates.reliance``.) It is the product of
what five places say:

- the number of left-out examples that have taught what a distance means (``Calibration.power``);
- examples that were held out, and labelled as a batch (``rehearse``);
- how much farther queries are from their prototypes than left-out examples (``distance_ratio``),
  and, after a shift, how far apart groups are, relative to their prototypes (``contrast``);
- the doubt whether there is a shift, where one was looked for (``CalibratedBatch.shift_power``);
- with one example per class, where no example can be left out, pairs of queries (``pair_powers``),
  and whether queries are nearer to examples than these to each other (``separation``).

Two queries of one group serve as a class with one example: the first is classified, with the second
in the place of the group's prototype. The cross-entropy of these answers says to which power the
probabilities are to be raised. Groups are not always classes, so a prior holds the power near its
usual value, and pairs count less where few queries have a partner. The usual value is for queries
that have partners, which make each other too sure. Without any, single queries are too sure where
features are weak, and not where they are strong: the usual value then counts as far as they are in
doubt on average.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log

import torch
from torch import Tensor

from manyway.core import one_hot
from manyway.methods.calibration.calibration import Calibration
from manyway.methods.calibration.distances import distances_between
from manyway.methods.evidence.calibrate import CalibratedBatch
from manyway.methods.evidence.group import GroupAnswers, Grouped
from manyway.methods.evidence.likelihood import Likelihood, own_classes
from manyway.methods.evidence.queries import Part, sample, sampling_stride
from manyway.methods.evidence.schedule import Schedule
from manyway.methods.evidence.separation import separation_power

_LOG_POWERS = (-1.5, 0.75, 46)  # the values that are tried: lowest, highest, number
_FEWEST = 1e-9  # queries: a mean over none of them stays finite


@dataclass(frozen=True, eq=False, kw_only=True)
class Probabilities:
    """From some queries to their class probabilities.

    The steps are: what search and groups say, the power, which is lower for queries that are far
    from all classes, known labels, and what is unknown, which is taken from all classes in
    proportion.
    """

    answers: GroupAnswers
    power: Tensor  # [t, 1, 1]
    # [t] how well queries tell classes apart, relative to examples; None where it is not known
    how_apart: Tensor | None = None

    def __call__(self, part: Part) -> Tensor:
        """[t, b, k]; a row sums to 1 minus the probability that the query is unknown."""
        found = self.answers(part)
        power = self.power
        reliance = part.likelihood.reliance(part.placed)
        if reliance is not None:
            power = power * reliance.unsqueeze(-1)
        if not bool((power == 1).all()):
            found = tempered(found, power)
        if part.any_known:
            own = own_classes(part.known, found)
            found = torch.where((part.known < 0).unsqueeze(-1), found, own)
        if part.any_unknown:
            found = found * (1 - part.unknown).unsqueeze(-1)
        return found


def confidence(batch: CalibratedBatch, grouped: Grouped) -> Probabilities:
    """The final probabilities of a batch.

    Parameters
    ----------
    batch : CalibratedBatch
    grouped : Grouped

    Returns
    -------
    Probabilities
        The power is 1 where the precision is given, or there are no distances.
    """
    one = grouped.answers.posterior.probabilities.new_ones(1, 1, 1)
    plain = Probabilities(answers=grouped.answers, power=one)
    calibration = batch.queries.likelihood.calibration
    if calibration is None or batch.parameters.precision is not None:
        return plain
    if batch.one_shot:
        queries = batch.queries
        sampled = sample(queries, sampling_stride(queries.n_query), plain)
        schedule = batch.parameters.constants
        of_pairs = pair_powers(sampled.placed, sampled.values, calibration, schedule)
        power = calibration.power * of_pairs
        if not batch.named:
            power = power * separation_power(sampled.placed, sampled.values, calibration)
        return replace(plain, power=power.view(-1, 1, 1))
    how_apart = 1 / distance_ratio(grouped.groups.lengths, calibration)
    if batch.shift is not None:
        how_apart = torch.minimum(how_apart, _contrast(grouped, batch.queries.likelihood))
    power = calibration.power * how_apart
    of_shift = batch.shift_power(grouped.groups.query_counts.masses)
    if of_shift is not None:
        power = power * of_shift.to(power)
    if batch.rehearsed is not None:
        power = power * batch.rehearsed.power.to(power)
    return replace(plain, power=power.view(-1, 1, 1), how_apart=how_apart)


def _contrast(grouped: Grouped, likelihood: Likelihood) -> Tensor:
    """[t] g of the groups, each of which may be of several classes.

    Taken for the class that they were given to, groups would lie on its side even where they are of
    another: on grey birds g was 0.65, by true labels 0.55, and so 0.60.
    """
    calibration = likelihood.calibration
    assert calibration is not None
    groups = grouped.groups
    posterior = grouped.answers.posterior
    sums = likelihood.coordinates(groups.sums)
    masses = groups.members.masses.gather(1, groups.classes).to(sums)
    masses = masses * groups.are_several
    sums = sums * groups.are_several.unsqueeze(-1)
    of_classes = posterior.probabilities.mT.to(sums)
    if not posterior.classes.shape[1]:  # groups keep their classes
        of_classes = one_hot(groups.classes, groups.members.masses.shape[1], sums.dtype).mT
    prototypes = calibration.prototypes
    slopes = prototypes.slopes.unsqueeze(-1)
    return contrast(
        of_classes @ sums,
        (of_classes @ masses.unsqueeze(-1)).squeeze(-1),
        # As long as class means are expected. The distances to two of them differ by as much.
        prototypes.offsets * prototypes.reach.view(-1, 1, 1) / slopes,
        calibration.precision / prototypes.reach,
    )


def contrast(sums: Tensor, masses: Tensor, expected: Tensor, precision: Tensor) -> Tensor:
    """[t] g: how far apart groups of queries are, relative to what is expected of their classes.

    The module ``shift`` derives it.

    Parameters
    ----------
    sums : Tensor of shape [t, g, d]
        Σ_q p_qg z_q of placed queries, which are of g with the probability p_qg.
    masses : Tensor of shape [t, g]
        Σ_q p_qg
    expected : Tensor of shape [t, g, d]
        The expected means of the classes g.
    precision : Tensor of shape [t]
        τ for prototypes as long as class means are expected.

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


def tempered(probabilities: Tensor, power: Tensor) -> Tensor:
    """[…, k] probabilities to the power, so that each row sums to one again.

    With few columns the power is near 0, and the smallest probabilities matter: the least is that
    of float32 in any precision, so that the answers are the same.
    """
    least = torch.finfo(torch.float32).tiny
    return probabilities.clamp_min(least).log_().mul_(power).softmax(-1)


def distance_ratio(lengths: Tensor, calibration: Calibration) -> Tensor:
    """[t] how much farther queries are from their prototypes than left-out members, squared.

    Queries of another camera, font or year lie farther: their classes are as much wider, so that ℓ
    is to be divided by this. It is the square of the mean distance less two standard errors: single
    outliers hardly change it, and it is 1 where that may be chance. The prototype is the nearest
    one, so that it errs below. ``lengths`` as in ``group.Groups``.
    """
    number, total, total_square = lengths.unbind(-1)
    number_or_more = number.clamp_min(_FEWEST)
    mean = total / number_or_more
    mean_square = total_square / number_or_more
    tiny = torch.finfo(mean.dtype).tiny
    within = calibration.within
    of_members = within.noise / (2 * within.scatter.clamp_min(tiny))
    spread = (mean_square - mean.square()).clamp_min(0).sqrt()
    spread = torch.maximum(spread, of_members)
    return (mean - 2 * spread / number_or_more.sqrt()).clamp_min(1).square()


def pair_powers(
    placed: Tensor,
    probabilities: Tensor,
    calibration: Calibration,
    schedule: Schedule,
) -> Tensor:
    """[t] the power that pairs of placed queries [t, q, d] say, with probabilities [t, q, k]."""
    pairs = _Pairs.of(placed, probabilities, calibration)
    own = torch.zeros_like(probabilities, dtype=torch.bool)
    own = own.scatter_(-1, pairs.group.unsqueeze(-1), True)
    usual = _usual_log_power(pairs, schedule)
    log_likelihood = calibration.log_likelihood(placed)
    log_powers = torch.linspace(*_LOG_POWERS, dtype=placed.dtype, device=placed.device)
    losses = []
    for log_power in log_powers:
        power = log_power.exp()
        others = (log_likelihood * power).masked_fill_(own, -torch.inf)
        others = others.logsumexp(-1, keepdim=True)
        entropies = torch.nn.functional.softplus(others - pairs.log_likelihood * power)
        entropy = (entropies * pairs.weights).sum((1, 2))
        prior = (log_power - usual) / schedule.one_shot_power_sd
        losses.append(entropy * pairs.partnered + 0.5 * prior.square())
    return log_powers[torch.stack(losses).argmin(0)].exp()


def _usual_log_power(pairs: _Pairs, schedule: Schedule) -> Tensor:
    """[t] ln of the power around which the prior lies."""
    doubt = 1 - pairs.confidence.mean(-1)
    part = pairs.partnered + (1 - pairs.partnered) * doubt
    return part * log(schedule.one_shot_power)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Pairs:
    """Pairs of queries that probably have the same class."""

    confidence: Tensor  # [t, q] the probability of a query's label
    group: Tensor  # [t, q] the label
    log_likelihood: Tensor  # [t, q, q] ℓ of a query with another in the place of the prototype
    weights: Tensor  # [t, q, q] how much a pair counts; a query counts one at most
    partnered: Tensor  # [t] the part of the queries that have a partner

    @staticmethod
    def of(placed: Tensor, probabilities: Tensor, calibration: Calibration) -> _Pairs:
        # Two samples are S farther apart than a sample and the mean of its class, and all distances
        # are less that bias.
        between = distances_between(placed) - calibration.within.scatter.view(-1, 1, 1)
        log_likelihood = between.mul_(-0.5 * calibration.precision.view(-1, 1, 1))
        confidence, group = probabilities.max(-1)
        same = group.unsqueeze(1) == group.unsqueeze(2)
        weights = confidence.unsqueeze(1) * confidence.unsqueeze(2) * same
        weights.diagonal(dim1=1, dim2=2).zero_()
        partners = weights.sum(-1)
        tiny = torch.finfo(weights.dtype).tiny
        at_most_one = partners.clamp_max(1) / partners.clamp_min(tiny)
        return _Pairs(
            confidence=confidence,
            group=group,
            log_likelihood=log_likelihood,
            weights=weights * at_most_one.unsqueeze(-1),
            partnered=partners.clamp_max(1).mean(-1),
        )
