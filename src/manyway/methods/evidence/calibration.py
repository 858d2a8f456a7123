"""How much a distance to a prototype means, learned from the support alone.

The likelihood is exp(−½ t d²) with one temperature t. Each support sample is left out in turn and classified among
prototypes of which its own was computed without it; t minimises the cross-entropy of these answers. Prototypes are
noisy means, so squared distances come out too long by tr/n_k, tr being the pooled within-class scatter: that much is
subtracted.

A log-normal prior holds t near what features of that spread usually want. It decides alone when no class has two
samples, and keeps t finite when no sample leaves a doubt; a few dozen samples outweigh it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from manyway.core.ops import class_sums, column_sums
from manyway.core.tasks import Tasks

_ONE_SHOT = 16.0  # what 1-shot tasks want when features have variance 1
_ONE_SHOT_NOISE = 0.7  # the usual part of the variance that is within classes
_PRIOR_SD = 0.5  # of ln t
_MOST_SAMPLES = 512  # that are left out in turn, evenly spaced: enough for one number
_BLOCK_NUMBERS = 1 << 26  # tasks are calibrated in blocks of about this many numbers
_NEWTON_STEPS = 8


@dataclass(frozen=True, eq=False)
class Calibration:
    """Prototypes and what a distance to them means. One row serves all tasks when they share their support."""

    middle: Tensor  # [t, 1, d] of the prototypes: distances do not feel it, and seen from it float32 is accurate
    offsets: Tensor  # [t, k, d] of the prototypes from it
    squares: Tensor  # [t, k] squared lengths of the offsets, less what noise adds to them, tr/n_k
    counts: Tensor  # [t, k]
    noise: Tensor  # [t] tr, the pooled within-class scatter
    temperature: Tensor  # [t]

    @property
    def centres(self) -> Tensor:
        """[t, k, d] the prototypes."""
        return self.middle + self.offsets

    def log_likelihood(self, query: Tensor) -> Tensor:
        """[t, q, k] = −½ t (‖z_q − w_k‖² − tr/n_k)."""
        distances = _squared_distances(query - self.middle, self.offsets, self.squares)
        return distances.mul_(self.temperature.mul(-0.5).view(-1, 1, 1))

    def linear(self) -> tuple[Tensor, Tensor]:
        """Weights a [t, d, k] and offsets b [t, k]: the log-likelihood is z·a_k + b_k, and a number that no k changes.

        Where z is centred this is accurate enough for a softmax, and one product.
        """
        centres, temperature = self.centres, self.temperature.unsqueeze(-1)
        squares = centres.square().sum(-1) - self.noise.unsqueeze(-1) / self.counts
        return (temperature.unsqueeze(-1) * centres).mT.contiguous(), -0.5 * temperature * squares


def calibrate(tasks: Tasks, temperature: float | None = None) -> Calibration:
    """Prototypes, scatter and temperature of each task; a given temperature is taken as it is."""
    tasks = tasks[:1] if tasks.shared_support else tasks
    sums, counts = class_sums(tasks)
    centres = sums / counts.unsqueeze(-1)
    step = ceil(tasks.n_support / _MOST_SAMPLES)
    per_task = tasks.n_support * tasks.n_features + 3 * (tasks.n_support // step) * tasks.n_classes
    size = max(1, _BLOCK_NUMBERS // per_task)
    middle, offsets, lengths = _from_middle(centres)
    noises, temperatures = [], []
    for first in range(0, len(centres), size):
        block = slice(first, first + size)
        support, labels = tasks[block].support, tasks.support_labels[block]
        squares = support.square().sum((1, 2))
        within = squares - (centres[block].square().sum(-1) * counts[block]).sum(-1)
        variance = _variance(support.mean(1), squares / labels.shape[1])
        beyond = tasks.n_support - tasks.n_classes  # 0: one sample a class, and nobody can be left out
        noise = within.clamp_min_(0) / beyond if beyond else _ONE_SHOT_NOISE * variance
        noises.append(noise)
        if temperature is None:
            usual = _usual(variance, counts[block])
            if beyond:
                samples, names = support[:, ::step] - middle[block], labels[:, ::step]
                distances = _squared_distances(samples, offsets[block], lengths[block])
                usual = _fit(*_left_out(distances, names, counts[block], noise), usual)
            temperatures.append(usual)
    noise = torch.cat(noises)
    found = torch.cat(temperatures) if temperatures else torch.full_like(noise, temperature or 0.0)
    return Calibration(middle, offsets, lengths - noise.unsqueeze(-1) / counts, counts, noise, found)


def squared_distances(samples: Tensor, centres: Tensor) -> Tensor:
    """[t, n, k] squared distances of samples [t, n, d] to centres [t, k, d]."""
    middle, offsets, lengths = _from_middle(centres)
    return _squared_distances(samples - middle, offsets, lengths)


def _from_middle(centres: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The middle [t, 1, d] of centres [t, k, d], their offsets from it [t, k, d], and the squared lengths of these."""
    middle = column_sums(centres).unsqueeze(1) / centres.shape[1]
    offsets = centres - middle
    return middle, offsets, offsets.square().sum(-1)


def _squared_distances(samples: Tensor, centres: Tensor, lengths: Tensor) -> Tensor:
    """The same, with the centres' squared lengths [t, k] known; centres and lengths [1, …] serve all tasks."""
    rows = samples if len(centres) == len(samples) else samples.reshape(1, -1, samples.shape[-1])
    # On a CPU this is twice as fast as baddbmm, which is slow with a transposed operand.
    products = (rows @ centres.mT).view(*samples.shape[:2], -1)
    return products.mul_(-2).add_(samples.square().sum(-1, keepdim=True)).add_(lengths.unsqueeze(1))


def distances_between(samples: Tensor) -> Tensor:
    """[t, n, n] squared distances among samples [t, n, d]."""
    products = samples @ samples.mT
    lengths = products.diagonal(dim1=1, dim2=2).clone()
    return products.mul_(-2).add_(lengths.unsqueeze(1)).add_(lengths.unsqueeze(2))


def _variance(mean: Tensor, square: Tensor) -> Tensor:
    """[t] of all samples, from their mean [t, d] and mean square [t]."""
    return (square - mean.square().sum(-1)).clamp_min(torch.finfo(mean.dtype).tiny)


def _usual(variance: Tensor, counts: Tensor) -> Tensor:
    """[t] the temperature that features of this variance and classes of this many samples usually want."""
    # The error of a prototype adds 1/n to the scatter of a sample around it.
    return _ONE_SHOT / variance * (2 * counts / (counts + 1)).mean(-1)


def _left_out(distances: Tensor, labels: Tensor, counts: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Squared distances [t, s, k] of left-out samples, noise removed; those to their own class [t, s]; their n [t, s].

    Leaving z out of a mean of n samples moves it to where ‖z − w‖ is n/(n−1) times as long.
    """
    own_counts = counts.gather(1, labels)
    others = (own_counts - 1).clamp_min(1)
    own = distances.gather(-1, labels.unsqueeze(-1)).squeeze(-1) * (own_counts / others).square()
    own = own - noise.unsqueeze(-1) / others
    distances.sub_((noise.unsqueeze(-1) / counts).unsqueeze(1))
    return distances.scatter_(-1, labels.unsqueeze(-1), own.unsqueeze(-1)), own, own_counts


def _fit(distances: Tensor, own: Tensor, own_counts: Tensor, usual: Tensor) -> Tensor:
    """[t] the most probable temperature: Newton steps on ln t."""
    usable = (own_counts > 1).to(own.dtype)  # a class of one sample is gone without it
    centre, log_t = usual.log(), usual.log()
    for _ in range(_NEWTON_STEPS):
        t = log_t.exp().view(-1, 1, 1)
        p = (distances * (-0.5 * t)).softmax(-1)
        mean = (p * distances).sum(-1)
        spread = (p.mul_(distances) * distances).sum(-1) - mean.square()
        t = t.squeeze(-1)
        slope = (0.5 * t * (own - mean) * usable).sum(-1)
        curvature = (0.25 * t.square() * spread.clamp_min(0) * usable).sum(-1) + slope.clamp_min(0)
        step = (slope + (log_t - centre) / _PRIOR_SD**2) / (curvature + 1 / _PRIOR_SD**2)
        log_t = log_t - step.clamp(-1, 1)
    # Own prototypes had n−1 samples here and have n when queries come: that much less error.
    squares = own_counts.square().clamp_min(2)
    gain = torch.where(own_counts > 1, (2 * squares - 1) / (2 * squares - 2), torch.ones_like(own_counts))
    return log_t.exp() * (gain * usable).sum(-1).div(usable.sum(-1).clamp_min(1)).where(usable.sum(-1) > 0, 1.0)
