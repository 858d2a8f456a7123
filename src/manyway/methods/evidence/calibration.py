"""How much a distance to a prototype means, learned from the support alone.

The likelihood of a class is exp(−½ τ d²) with one precision τ. Each support sample is left out in turn and classified
among the prototypes, of which its own is computed without it. τ minimises the cross-entropy of these answers.
Prototypes are means of n samples, so squared distances to them are too long by S/n on average, where S is the pooled
within-class scatter (the trace of the covariance). That bias is subtracted.

A log-normal prior holds τ near the usual value for features of that variance. It decides alone where no class has two
samples, and keeps τ finite where every sample is classified without doubt.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from manyway.core.ops import class_sums, column_sums
from manyway.core.tasks import Tasks
from manyway.methods.evidence.schedule import Schedule

_MOST_SAMPLES = 512  # samples that are left out in turn, evenly spaced: enough to fit one number
_BLOCK_NUMBERS = 1 << 26  # tasks are calibrated in blocks of about this many numbers
_NEWTON_STEPS = 8


@dataclass(frozen=True, eq=False)
class Calibration:
    """Prototypes and the meaning of a distance to them. One row serves all tasks when they share their support."""

    middle: Tensor  # [t, 1, d] mean of the prototypes; float32 is accurate for distances relative to it
    offsets: Tensor  # [t, k, d] prototypes minus the middle
    squares: Tensor  # [t, k] squared lengths of the offsets, minus the bias S/n_k
    counts: Tensor  # [t, k] n
    scatter: Tensor  # [t] S, the pooled within-class scatter
    precision: Tensor  # [t] τ

    @property
    def prototypes(self) -> Tensor:
        """[t, k, d]"""
        return self.middle + self.offsets

    def log_likelihood(self, query: Tensor) -> Tensor:
        """[t, q, k] = −½ τ (‖z_q − w_k‖² − S/n_k)."""
        distances = _squared_distances(query - self.middle, self.offsets, self.squares)
        return distances.mul_(self.precision.mul(-0.5).view(-1, 1, 1))

    def left_out(self, support: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As ``_left_out``, of support samples [t, s, d] and their labels [t, s]."""
        lengths = self.squares + self.scatter.unsqueeze(-1) / self.counts
        return _left_out(
            _squared_distances(support - self.middle, self.offsets, lengths), labels, self.counts, self.scatter
        )

    def linear(self) -> tuple[Tensor, Tensor]:
        """Weights a [t, d, k] and biases b [t, k]: the log-likelihood is z·a_k + b_k plus a number that is equal for
        all classes.

        Accurate enough for a softmax where z is centred, and only one product.
        """
        prototypes, precision = self.prototypes, self.precision.unsqueeze(-1)
        squares = prototypes.square().sum(-1) - self.scatter.unsqueeze(-1) / self.counts
        return (precision.unsqueeze(-1) * prototypes).mT.contiguous(), -0.5 * precision * squares


def calibrate(tasks: Tasks, schedule: Schedule, precision: float | None = None) -> Calibration:
    """Prototypes, scatter and precision of each task. A given precision is used as it is."""
    tasks = tasks[:1] if tasks.shared_support else tasks
    sums, counts = class_sums(tasks)
    prototypes = sums / counts.unsqueeze(-1)
    step = ceil(tasks.n_support / _MOST_SAMPLES)
    per_task = tasks.n_support * tasks.n_features + 3 * (tasks.n_support // step) * tasks.n_classes
    size = max(1, _BLOCK_NUMBERS // per_task)
    middle, offsets, lengths = _from_middle(prototypes)
    scatters, precisions = [], []
    for first in range(0, len(prototypes), size):
        block = slice(first, first + size)
        support, labels = tasks[block].support, tasks.support_labels[block]
        squares = support.square().sum((1, 2))
        within = squares - (prototypes[block].square().sum(-1) * counts[block]).sum(-1)
        variance = _variance(support.mean(1), squares / labels.shape[1])
        freedom = tasks.n_support - tasks.n_classes  # 0: one sample per class, and none can be left out
        scatter = within.clamp_min_(0) / freedom if freedom else schedule.one_shot_scatter * variance
        scatters.append(scatter)
        if precision is None:
            found = _usual_precision(variance, counts[block], schedule)
            if freedom:
                samples, names = support[:, ::step] - middle[block], labels[:, ::step]
                distances = _squared_distances(samples, offsets[block], lengths[block])
                left_out = _left_out(distances, names, counts[block], scatter)
                found = _fit(*left_out, found, schedule.precision_prior_sd)
            precisions.append(found)
    scatter = torch.cat(scatters)
    found = torch.cat(precisions) if precisions else torch.full_like(scatter, precision or 0.0)
    return Calibration(middle, offsets, lengths - scatter.unsqueeze(-1) / counts, counts, scatter, found)


def squared_distances(samples: Tensor, prototypes: Tensor) -> Tensor:
    """[t, n, k] squared distances of samples [t, n, d] to prototypes [t, k, d]."""
    middle, offsets, lengths = _from_middle(prototypes)
    return _squared_distances(samples - middle, offsets, lengths)


def distances_between(samples: Tensor) -> Tensor:
    """[t, n, n] squared distances among samples [t, n, d]."""
    products = samples @ samples.mT
    lengths = products.diagonal(dim1=1, dim2=2).clone()
    return products.mul_(-2).add_(lengths.unsqueeze(1)).add_(lengths.unsqueeze(2))


def _from_middle(prototypes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The mean [t, 1, d] of prototypes [t, k, d], their offsets from it [t, k, d], and the offsets' squared lengths."""
    middle = column_sums(prototypes).unsqueeze(1) / prototypes.shape[1]
    offsets = prototypes - middle
    return middle, offsets, offsets.square().sum(-1)


def _squared_distances(samples: Tensor, offsets: Tensor, lengths: Tensor) -> Tensor:
    """The same with the squared lengths [t, k] known; offsets and lengths [1, …] serve all tasks."""
    rows = samples if len(offsets) == len(samples) else samples.reshape(1, -1, samples.shape[-1])
    # On a CPU this is twice as fast as baddbmm, which is slow with a transposed operand.
    products = (rows @ offsets.mT).view(*samples.shape[:2], -1)
    return products.mul_(-2).add_(samples.square().sum(-1, keepdim=True)).add_(lengths.unsqueeze(1))


def _variance(mean: Tensor, square: Tensor) -> Tensor:
    """[t] of all samples, from their mean [t, d] and mean square [t]."""
    return (square - mean.square().sum(-1)).clamp_min(torch.finfo(mean.dtype).tiny)


def _usual_precision(variance: Tensor, counts: Tensor, schedule: Schedule) -> Tensor:
    """[t] the usual precision for features of this variance and classes of this many samples."""
    # The error of a prototype adds 1/n to the scatter of a sample around it.
    return schedule.one_shot_precision / variance * (2 * counts / (counts + 1)).mean(-1)


def _left_out(distances: Tensor, labels: Tensor, counts: Tensor, scatter: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Unbiased squared distances of left-out samples to all classes [t, s, k] and to their own class [t, s], and the
    number of samples of their own class [t, s].

    Without z, a mean of n samples is n/(n−1) times as far from z.
    """
    own_counts = counts.gather(1, labels)
    others = (own_counts - 1).clamp_min(1)
    own = distances.gather(-1, labels.unsqueeze(-1)).squeeze(-1) * (own_counts / others).square()
    own = own - scatter.unsqueeze(-1) / others
    distances.sub_((scatter.unsqueeze(-1) / counts).unsqueeze(1))
    return distances.scatter_(-1, labels.unsqueeze(-1), own.unsqueeze(-1)), own, own_counts


def _fit(distances: Tensor, own: Tensor, own_counts: Tensor, usual: Tensor, prior_sd: float) -> Tensor:
    """[t] the most probable precision, by Newton steps on ln τ."""
    usable = (own_counts > 1).to(own.dtype)  # a class of one sample has no prototype without it
    centre, log_precision = usual.log(), usual.log()
    for _ in range(_NEWTON_STEPS):
        t = log_precision.exp().view(-1, 1, 1)
        p = (distances * (-0.5 * t)).softmax(-1)
        mean = (p * distances).sum(-1)
        spread = (p.mul_(distances) * distances).sum(-1) - mean.square()
        t = t.squeeze(-1)
        slope = (0.5 * t * (own - mean) * usable).sum(-1)
        curvature = (0.25 * t.square() * spread.clamp_min(0) * usable).sum(-1) + slope.clamp_min(0)
        step = (slope + (log_precision - centre) / prior_sd**2) / (curvature + 1 / prior_sd**2)
        log_precision = log_precision - step.clamp(-1, 1)
    # The own prototypes had n−1 samples here. For queries they have n, and that much less error.
    squares = own_counts.square().clamp_min(2)
    gain = torch.where(own_counts > 1, (2 * squares - 1) / (2 * squares - 2), torch.ones_like(own_counts))
    gain = (gain * usable).sum(-1).div(usable.sum(-1).clamp_min(1)).where(usable.sum(-1) > 0, 1.0)
    return log_precision.exp() * gain
