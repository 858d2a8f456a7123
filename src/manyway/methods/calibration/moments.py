"""How samples lie around the means of their classes.

Classes may have any numbers of samples. What is averaged over samples is weighted, so that no class
decides alone: the n samples of a class count as √n. A sample whose label is probably wrong counts
less (``wrong_labels``): n is then the sum of the weights of a class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import Tasks, class_moments, class_sums, column_sums, count_labels
from manyway.methods.calibration.constants import Constants
from manyway.methods.calibration.distances import Offsets
from manyway.methods.calibration.left_out import can_leave_out
from manyway.methods.calibration.representation import column_variances

_LEAST_SCATTER = 1e-6  # S, as a part of the variance
_LEAST_FREEDOM = 4  # of the variances of features


@dataclass(frozen=True, eq=False, kw_only=True)
class WithinClasses:
    """How samples of one class differ."""

    scatter: Tensor  # [t] S, the pooled within-class scatter
    # [t] standard deviation of ‖z − w‖² − S − S/n for members of their own class, by 1 + 1/n
    noise: Tensor
    freedom: Tensor  # [t] f, the degrees of freedom of the differences within classes

    def known(self, n_classes: int) -> Tensor:
        """[t] Φ, how well S is known, from 0 to 1: min(1, f/K).

        Where most classes have one sample, few differences within classes say it. What follows from
        it, τ and what all prototypes are shortened by, counts so far: one class with a second sample
        cost 4 points on birds, compared with one sample of each.
        """
        return (self.freedom / n_classes).clamp_max(1)


class Moments(NamedTuple):
    """Sums over the samples of each class."""

    sums: Tensor  # [t, k, d] of the features
    counts: Tensor  # [t, k] of the samples, or of their weights
    squares: Tensor  # [t, k] of squared lengths
    taken: Tensor  # [t, k] what the mean of a class takes of its degrees of freedom: 1, or Σp²/Σp

    @property
    def freedom(self) -> Tensor:
        """[t] the degrees of freedom of the differences within classes."""
        return (self.counts - self.taken).sum(-1)


def moments_of(tasks: Tasks, weights: Tensor | None = None) -> Moments:
    """Of samples with weights [t, s]; None: all are 1."""
    if weights is None:
        sums, counts, squares = class_moments(tasks)
        return Moments(sums, counts, squares, torch.ones_like(counts))
    rows = tasks.support
    lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True).square_()
    counts = count_labels(tasks.support_labels, tasks.n_classes, weights)
    taken = count_labels(tasks.support_labels, tasks.n_classes, weights.square()) / counts
    return Moments(
        sums=weighted_sums(tasks, rows, weights),
        counts=counts,
        squares=weighted_sums(tasks, lengths, weights).squeeze(-1),
        taken=taken,
    )


def weighted_sums(tasks: Tasks, rows: Tensor, weights: Tensor) -> Tensor:
    """[t, k, d] the sums of rows [t, s, d] of the support of each class, with weights [t, s]."""
    weighted = rows * weights.unsqueeze(-1)
    return class_sums(tasks.with_rows(weighted, weighted[:, :0]))[0]


class Spreads(NamedTuple):
    """How far samples lie apart."""

    variance: Tensor  # [t] of the samples of a class around the middle; the median of all classes
    scatter: Tensor  # [t] S, within classes


def spreads_of(moments: Moments, prototypes: Tensor, constants: Constants) -> Spreads:
    """From moments of the classes, and their means [t, k, d]."""
    counts = moments.counts
    totals = moments.squares
    n_classes = counts.shape[1]
    squares = prototypes.square().sum(-1)
    # Classes of many samples must not decide alone; where all have as many, weights are the same.
    weights = counts.rsqrt()
    within = ((totals - squares * counts).clamp_min(0) * weights).sum(-1)
    weighted_freedom = ((counts - moments.taken) * weights).sum(-1)
    mean = (column_sums(prototypes) / n_classes).unsqueeze(1)
    # Of each class around the middle; the median, so that a far class does not decide.
    of_class = totals / counts - 2 * (prototypes * mean).sum(-1) + mean.square().sum(-1)
    variance = of_class.quantile(0.5, dim=-1).clamp_min(torch.finfo(mean.dtype).tiny)
    if not bool((counts > moments.taken).any()):
        return Spreads(variance=variance, scatter=constants.one_shot_scatter * variance)
    # Examples may be copies of each other, and what is divided by S must stay finite.
    scatter = torch.maximum(within / weighted_freedom, _LEAST_SCATTER * variance)
    return Spreads(variance=variance, scatter=scatter)


def usual_precision(
    tasks: Tasks, prototypes: Tensor, counts: Tensor, spreads: Spreads, constants: Constants
) -> Tensor:
    """[t] τ where left-out samples do not say it."""
    # Around the mean of n samples a sample has the variance (1 + 1/n) S, around one of them 2S.
    nearer = (2 * counts / (counts + 1)).mean(-1)
    at_most = constants.one_shot_precision / spreads.variance * nearer
    if not can_leave_out(tasks):
        return at_most
    variances = column_variances(tasks.support, Offsets.of(prototypes).middle)
    of_normal = gaussian_precision(variances, tasks.n_support, spreads.scatter, counts)
    # With few features the first one is too high.
    return torch.minimum(at_most, of_normal)


def gaussian_precision(
    variances: Tensor, n_support: int, scatter: Tensor, counts: Tensor
) -> Tensor:
    """[t] the precision for independent normal features, as many as matter: (Σ v_j)²/Σ v_j².

    v_j [t, d] are their variances. The scatter S is that of so many features of variance 1/τ, and a
    prototype adds its error.
    """
    tiny = torch.finfo(scatter.dtype).tiny
    number = variances.sum(-1).square() / variances.square().sum(-1).clamp_min(tiny)
    freedom = number * (n_support - counts.shape[1])
    number = number * (1 - 2 / freedom.clamp_min(_LEAST_FREEDOM))
    return number / scatter.clamp_min(tiny) * (counts / (counts + 1)).mean(-1)
