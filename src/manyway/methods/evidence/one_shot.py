"""How sure to be with one example per class, where no support sample can be left out: pairs of queries decide.

Two queries of one group serve as a class with one example: the first is classified, with the second in the place of
the group's prototype. The cross-entropy of these answers says to which power the probabilities are to be raised. Groups
are not always classes, so a prior holds the power near its usual value, and pairs count less where few queries have a
partner. The usual value is for queries that have partners, which make each other too sure. Without any, single queries
are too sure where features are weak, and not sure enough where they are strong: the usual value then follows from how
sure they are on average. Tables of few features have no usual precision: the power is less by as much as the precision
is above that of so many independent features. Labels do not change.
"""

from math import ceil, log

import torch
from torch import Tensor

from manyway.core import Tasks
from manyway.methods.calibration.calibration import FEW_FEATURES, Calibration, distances_between, gaussian_precision
from manyway.methods.evidence.schedule import Schedule

_MOST_QUERIES = 512  # evenly spaced: enough to fit one number
_LOG_POWERS = (-1.5, 0.75, 46)  # the values that are tried: lowest, highest, number


def is_one_shot(tasks: Tasks) -> bool:
    """Whether no class has two samples, given that each has one. Known from the shape, without waiting for a GPU."""
    return tasks.n_support == tasks.n_classes


def stride(n_query: int) -> int:
    """The distance between the queries that are used."""
    return ceil(n_query / _MOST_QUERIES)


def powers(placed: Tensor, probabilities: Tensor, calibration: Calibration, schedule: Schedule) -> Tensor:
    """[t] the power of each task, from placed queries [t, q, d] and their probabilities [t, q, k]."""
    likelihood = calibration.log_likelihood(placed)
    # Two samples are S farther apart than a sample and the mean of its class, and all distances are less that bias.
    between = distances_between(placed) - calibration.scatter.view(-1, 1, 1)
    pairs = between.mul_(-0.5 * calibration.precision.view(-1, 1, 1))
    confidence, group = probabilities.max(-1)
    weights = confidence.unsqueeze(1) * confidence.unsqueeze(2) * (group.unsqueeze(1) == group.unsqueeze(2))
    weights.diagonal(dim1=1, dim2=2).zero_()
    partners = weights.sum(-1)
    weights = weights * (partners.clamp_max(1) / partners.clamp_min(torch.finfo(weights.dtype).tiny)).unsqueeze(-1)
    found = partners.clamp_max(1).mean(-1)  # how many queries have a partner
    own = torch.zeros_like(probabilities, dtype=torch.bool).scatter_(-1, group.unsqueeze(-1), True)
    slope, least, most = schedule.one_shot_alone[1:]
    alone = (schedule.one_shot_alone[0] + slope * confidence.mean(-1).log()).clamp(least, most)
    centre = found * log(schedule.one_shot_power) + (1 - found) * alone
    log_powers = torch.linspace(*_LOG_POWERS, dtype=placed.dtype, device=placed.device)
    losses = []
    for log_power in log_powers:
        power = log_power.exp()
        others = (likelihood * power).masked_fill_(own, -torch.inf).logsumexp(-1, keepdim=True)
        entropy = (torch.nn.functional.softplus(others - pairs * power) * weights).sum((1, 2))
        prior = (log_power - centre) / schedule.one_shot_power_sd
        losses.append(entropy * found + 0.5 * prior.square())
    power = log_powers[torch.stack(losses).argmin(0)].exp()
    if placed.shape[-1] > FEW_FEATURES:
        return power
    usual = gaussian_precision(calibration.offsets, calibration.scatter, calibration.counts)
    return power * (schedule.one_shot_few * usual / calibration.precision).clamp_max(1)


def tempered(probabilities: Tensor, power: Tensor) -> Tensor:
    """[…, k] probabilities to the power, so that each row sums to one again."""
    tiny = torch.finfo(probabilities.dtype).tiny
    return probabilities.clamp_min(tiny).log_().mul_(power).softmax(-1)


def power_for(probabilities: Tensor, wanted: Tensor, weights: Tensor) -> Tensor:
    """[t] the power with which the highest of the probabilities [t, q, k] is as wanted [t] on average, by bisection.

    ``weights`` [t, q] sum to 1.
    """
    logs = probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()
    low, high = torch.full_like(wanted, -4.0), torch.full_like(wanted, 4.0)
    for _ in range(24):
        middle = (low + high) / 2
        below = (logs * middle.exp().view(-1, 1, 1)).softmax(-1).amax(-1).mul_(weights).sum(-1) < wanted
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return ((low + high) / 2).exp()
