"""What a distance to a prototype means, learned from the support alone.

The likelihood of a class is exp(−½ τ d²), with a precision τ and the distance d in a metric (see ``metric``). Each
support sample is left out in turn and classified among the prototypes: its own prototype and the metric are computed
without it. The metric and τ minimise the cross-entropy of these answers. Prototypes are means of n samples, so squared
distances to them are too long by S/n on average, where S is the within-class scatter. That bias is subtracted.

A log-normal prior holds τ near the usual value for features of that variance. It decides alone where no class has two
samples, and keeps τ finite where every sample is classified without doubt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core.kernels import fused, tensor_cores
from manyway.core.ops import class_sums, column_sums
from manyway.core.tasks import Tasks
from manyway.methods.calibration.constants import Constants
from manyway.methods.calibration.metric import Contrasts, Inner, Metric, metrics_of, rows_of

_MOST_SAMPLES = 512  # samples that are left out in turn, evenly spaced: enough to fit a precision
_MOST_FOR_METRIC = 256  # of these, evenly spaced, to choose among metrics on the same samples
_BLOCK_NUMBERS = {"cpu": 1 << 22, "cuda": 1 << 30}  # tasks are calibrated in blocks of about this many numbers
_NEWTON_STEPS = 8  # from the usual precision
_REFIT_STEPS = 3  # from the precision for a similar metric
_MANY_CONTRASTS = 4  # with this many per feature, little shrinkage is tried first


@dataclass(frozen=True, eq=False)
class Calibration:
    """Prototypes and the meaning of a distance to them. One row serves all tasks when they share their support.

    All distances are plain distances of *placed* features: relative to the mean of the prototypes, and mapped by the
    metric.
    """

    middle: Tensor  # [t, 1, d] mean of the prototypes; float32 is accurate for distances relative to it
    metric: Metric | None  # None: plain distances
    offsets: Tensor  # [t, k, d] placed prototypes
    squares: Tensor  # [t, k] their squared lengths, minus the bias S/n_k
    counts: Tensor  # [t, k] n
    scatter: Tensor  # [t] S, the pooled within-class scatter
    precision: Tensor  # [t] τ
    shrinkage: Tensor  # [t] γ of the metric
    noise: Tensor  # [t] standard deviation of ‖z − w‖² − S − S/n for members of the nearest class, divided by 1 + 1/n

    def place(self, features: Tensor) -> Tensor:
        """[t, n, d] the coordinates of features [t, n, d] in which distances are computed."""
        rows = features if len(self.middle) == len(features) else features.reshape(1, -1, features.shape[-1])
        rows = rows - self.middle
        return (rows if self.metric is None else self.metric(rows)).view(features.shape)

    def placing(self, factor: Tensor | None = None) -> Placing:
        """``place`` as a map of its own, without the prototypes; placed features are multiplied by a factor [t]."""
        factor = torch.ones_like(self.precision) if factor is None else factor
        if self.metric is None:
            return Placing(self.middle, self.middle[..., :0], factor)
        identity = torch.eye(self.middle.shape[-1], dtype=self.middle.dtype, device=self.middle.device)
        return Placing(self.middle, self.metric(identity.expand(len(self.middle), -1, -1)), factor)

    def squared_distances(self, placed: Tensor) -> Tensor:
        """[t, q, k] ‖z_q − w_k‖² − S/n_k for placed features."""
        return _squared_distances(placed, self.offsets, self.squares)

    def log_likelihood(self, placed: Tensor) -> Tensor:
        """[t, q, k] = −½ τ (‖z_q − w_k‖² − S/n_k) for placed features."""
        return self.squared_distances(placed).mul_(self.precision.mul(-0.5).view(-1, 1, 1))

    def linear(self) -> tuple[Tensor, Tensor]:
        """Weights a [t, d, k] and biases b [t, k]: the log-likelihood of placed features is z·a_k + b_k plus a number
        that is equal for all classes.

        Accurate enough for a softmax, and only one product.
        """
        precision = self.precision.unsqueeze(-1)
        return (precision.unsqueeze(-1) * self.offsets).mT.contiguous(), -0.5 * precision * self.squares


@dataclass(frozen=True, eq=False)
class Placing:
    """The coordinates of a calibration, as a map of rows [t, n, d]; one row of tensors serves all tasks."""

    middle: Tensor  # [t, 1, d]
    metric: Tensor  # [t, d, d]; [t, 1, 0] for plain distances
    factor: Tensor  # [t]

    def __call__(self, rows: Tensor) -> Tensor:
        shape = rows.shape
        rows = (rows if len(self.middle) == len(rows) else rows.reshape(1, -1, shape[-1])) - self.middle
        rows = rows @ self.metric if self.metric.shape[-1] else rows
        return rows.mul_(self.factor.view(-1, 1, 1)).view(shape)


def calibrate(tasks: Tasks, constants: Constants, precision: float | None = None, metric: bool = True) -> Calibration:
    """Prototypes, metric, scatter and precision of each task. A given precision is used as it is."""
    parts = [one for _, one in _blocks(tasks, constants, precision, metric)]
    metrics = [one.metric for one in parts if one.metric is not None]  # all or none
    return _joined(parts, Metric.joined(metrics) if metrics else None)


def calibrate_and_place(
    tasks: Tasks, constants: Constants, precision: float | None = None, metric: bool = True
) -> tuple[Calibration, Tensor]:
    """The calibration and the placed queries [t, q, d]. Metrics are not kept: those of many tasks take much memory."""
    parts, placed = [], []
    for block, one in _blocks(tasks, constants, precision, metric):
        placed.append(one.place(tasks.query if tasks.shared_support else tasks[block].query))
        parts.append(one)
    return _joined(parts, None), torch.cat(placed)


def _joined(parts: list[Calibration], metric: Metric | None) -> Calibration:
    """The calibrations of consecutive tasks as one."""
    if len(parts) == 1:
        return replace(parts[0], metric=metric)
    names = [one.name for one in fields(Calibration) if one.name != "metric"]
    return Calibration(metric=metric, **{name: torch.cat([getattr(part, name) for part in parts]) for name in names})


def _blocks(
    tasks: Tasks, constants: Constants, precision: float | None, metric: bool
) -> Iterator[tuple[slice, Calibration]]:
    """Calibrate some tasks at a time."""
    tasks = tasks[:1] if tasks.shared_support else tasks
    sums, counts = class_sums(tasks)
    prototypes = sums / counts.unsqueeze(-1)
    step = ceil(tasks.n_support / _MOST_SAMPLES)
    per_task = (tasks.n_support // step) * (2 * tasks.n_features + 6 * tasks.n_classes)
    if metric:
        per_task += 2 * tasks.n_support * tasks.n_features + 5 * min(tasks.n_support, tasks.n_features) ** 2
    size = max(1, _BLOCK_NUMBERS[tasks.device.type] // per_task)
    for first in range(0, len(prototypes), size):
        block = slice(first, first + size)
        support, labels = tasks[block].support, tasks.support_labels[block]
        yield block, _calibrated(support, labels, prototypes[block], counts[block], step, constants, precision, metric)


def _calibrated(
    support: Tensor,
    labels: Tensor,
    prototypes: Tensor,
    counts: Tensor,
    step: int,
    constants: Constants,
    precision: float | None,
    metric: bool,
) -> Calibration:
    """The calibration of some tasks; every ``step``-th sample is left out in turn."""
    n_samples, n_classes = support.shape[1], counts.shape[1]
    middle, offsets, lengths = _from_middle(prototypes)
    squares = torch.linalg.vector_norm(support, dim=(1, 2)).square()
    variance = _variance(column_sums(prototypes * counts.unsqueeze(-1)) / n_samples, squares / n_samples)
    freedom = n_samples - n_classes  # 0: one sample per class, and none can be left out
    if freedom:
        scatter = (squares - (prototypes.square().sum(-1) * counts).sum(-1)).clamp_min_(0) / freedom
    else:
        scatter = constants.one_shot_scatter * variance
    usual = _usual_precision(variance, counts, constants)
    given = None if precision is None else torch.full_like(usual, precision)
    plain = Calibration(
        middle,
        None,
        offsets,
        lengths - scatter.unsqueeze(-1) / counts,
        counts,
        scatter,
        usual if given is None else given,
        torch.ones_like(usual),
        constants.one_shot_noise * scatter,
    )
    if not freedom or not (metric or given is None):
        return plain
    left_out = LeftOut.of(labels[:, ::step], plain, usual, constants)
    samples = torch.arange(0, n_samples, step, device=support.device)
    residuals = support[:, ::step] - rows_of(prototypes, left_out.labels)
    inner = Inner.of(residuals, offsets)
    every = ceil(residuals.shape[1] / _MOST_FOR_METRIC)
    some = inner.some(every) if metric else inner  # a copy, because classifying may overwrite the others
    answers = left_out.classified(inner, given)
    plain = replace(plain, precision=answers.precision, noise=answers.noise)
    if not metric:
        return plain
    return _with_metric(plain, support, labels, samples, residuals, some, left_out, given, constants)


def _with_metric(
    plain: Calibration,
    support: Tensor,
    labels: Tensor,
    samples: Tensor,
    residuals: Tensor,
    inner: Inner,
    left_out: LeftOut,
    given: Tensor | None,
    constants: Constants,
) -> Calibration:
    """The calibration with the metric whose answers for left-out samples have the smallest cross-entropy.

    ``samples`` [n] with ``residuals`` [t, n, d] are left out; some of them, with plain products ``inner``, are used.
    The cross-entropy falls and then rises along γ. A task therefore takes γ after γ until its cross-entropy rises.
    """
    every = ceil(len(samples) / _MOST_FOR_METRIC)
    left_out = left_out.some(every)
    answers = left_out.classified(inner, given, near=plain.precision)
    contrasts = Contrasts.of(support, labels, plain.middle + plain.offsets, plain.counts)
    freedom, n_features = contrasts.rows.shape[1:]
    weight = n_features / (freedom * plain.scatter).clamp_min(torch.finfo(support.dtype).tiny)  # 1/(f·v)
    with tensor_cores(support):
        metrics = metrics_of(contrasts, weight)
    crossed = metrics.crossed(plain.offsets)
    products = metrics.inner(samples[::every], left_out.labels, residuals[:, ::every], plain.offsets, crossed)
    del contrasts
    upwards = freedom >= _MANY_CONTRASTS * n_features
    best, before, shrinkage = answers, answers, torch.ones_like(plain.precision)
    last = torch.full_like(shrinkage, torch.inf) if upwards else answers.losses.sum(-1)
    improving = torch.ones_like(shrinkage, dtype=torch.bool)
    root = None
    for gamma in sorted(constants.shrinkages, reverse=not upwards):
        factor = metrics.root(gamma)
        with tensor_cores(support):  # a choice among a few values needs no more digits
            found = products(factor, gamma)
        before = left_out.classified(found, given, (1 - gamma) * weight, answers.spread, before.precision)
        loss = before.losses.sum(-1)
        improving &= loss < last
        better, last = improving & (loss < best.losses.sum(-1)), loss
        best = Answers(
            *(torch.where(_like(better, mine), theirs, mine) for mine, theirs in zip(best, before, strict=True))
        )
        shrinkage = shrinkage.masked_fill(better, gamma)
        root = factor if root is None else torch.where(_like(better, root), factor, root)
        if not improving.any():
            break
    # The plain metric stays where the gain is within its standard error, that of all left-out samples.
    gains = answers.losses - best.losses
    noise = gains.var(-1).mul(gains.shape[-1] / every).sqrt()
    kept = gains.sum(-1) > constants.metric_gain * noise
    shrinkage = shrinkage.where(kept, 1.0)
    stretch = (answers.spread / best.spread).where(kept, 1.0).sqrt()
    assert root is not None
    metric = Metric(metrics.whitening(root, shrinkage), stretch)
    offsets = metric(plain.offsets, crossed)
    return replace(
        plain,
        metric=metric,
        offsets=offsets,
        squares=offsets.square().sum(-1) - plain.scatter.unsqueeze(-1) / plain.counts,
        precision=plain.precision * (best.precision / answers.precision).where(kept, 1.0),
        shrinkage=shrinkage,
        noise=plain.noise * (best.noise / answers.noise).where(kept, 1.0),
    )


def _like(which: Tensor, values: Tensor) -> Tensor:
    return which.view(-1, *[1] * (values.ndim - 1))


class Answers(NamedTuple):
    """How left-out samples are classified."""

    losses: Tensor  # [t, n] the cross-entropy of each; 0 where a sample cannot be left out
    precision: Tensor  # [t] the best τ
    spread: Tensor  # [t] the within-class scatter
    noise: Tensor  # [t] as in ``Calibration``


class Terms(NamedTuple):
    """What the distances of left-out samples consist of, besides inner products."""

    squares: Tensor  # [t, n] the squared length of a sample
    along: Tensor  # [t, n] the inner product of a sample and its residual
    part: Tensor | None  # [t, n] the factor of the correction for a metric without the sample
    own: Tensor  # [t, n] the distance to the own prototype
    lengths: Tensor  # [t, k] the squared lengths of the prototypes, less their bias
    stretch: Tensor  # [t] what squared distances are multiplied by
    spread: Tensor  # [t] the within-class scatter before that


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Support samples that are left out in turn."""

    labels: Tensor  # [t, n]
    counts: Tensor  # [t, k]
    scatter: Tensor  # [t] S
    usual: Tensor  # [t] the usual precision
    prior_sd: float
    own_counts: Tensor  # [t, n] the number of samples of their class
    usable: Tensor  # [t, n] 1 or 0: a class of one sample has no prototype without it

    @staticmethod
    def of(labels: Tensor, plain: Calibration, usual: Tensor, constants: Constants) -> LeftOut:
        own_counts = plain.counts.gather(1, labels)
        usable = (own_counts > 1).to(own_counts.dtype)
        return LeftOut(labels, plain.counts, plain.scatter, usual, constants.precision_prior_sd, own_counts, usable)

    def some(self, every: int) -> LeftOut:
        """Every so many of the samples."""
        own_counts, usable = self.own_counts[:, ::every], self.usable[:, ::every]
        return replace(self, labels=self.labels[:, ::every], own_counts=own_counts, usable=usable)

    def classified(
        self,
        inner: Inner,
        precision: Tensor | None,
        weight: Tensor | None = None,
        spread: Tensor | None = None,
        near: Tensor | None = None,
    ) -> Answers:
        """Classify every sample without itself, given inner products in the metric of all samples.

        ``weight`` [t]: the metric contains weight·rr'n/(n−1) for a sample with residual r, which is taken out.
        Distances are scaled so that the within-class scatter is ``spread`` [t]. ``near`` [t] is the precision of the
        answers in a similar metric.
        """
        terms = self._terms(inner, weight, spread)
        start, steps = (self.usual, _NEWTON_STEPS) if near is None else (near / self._gain(), _REFIT_STEPS)
        if precision is not None:
            start, steps = precision / self._gain(), 0
        if self._fused(inner):
            from manyway.methods.calibration import left_out_kernel

            part = torch.zeros_like(terms.own) if terms.part is None else terms.part
            rows = torch.stack([terms.squares, terms.along, part, terms.own, self.usable])
            vectors = (rows, terms.lengths, terms.stretch, start, self.usual)
            precision, losses = left_out_kernel.fit(
                inner.products, inner.gram, self.labels, *vectors, steps, 1 / self.prior_sd**2
            )
        else:
            distances = self._distances(inner, terms)
            precision = self._fit(distances, terms.own, start, steps)
            scores = distances * precision.mul(-0.5).view(-1, 1, 1)
            losses = (scores.logsumexp(-1) + 0.5 * precision.unsqueeze(-1) * terms.own) * self.usable
        # Own prototypes have n−1 samples here. For queries they have n, and that much less error.
        return Answers(losses, precision * self._gain(), terms.spread, self._noise(terms.own))

    def distances(self, samples: Tensor, prototypes: Tensor) -> Tensor:
        """[t, n, k] unbiased squared distances of samples [t, n, d] to prototypes [t, k, d] without them."""
        inner = Inner.of(samples - rows_of(prototypes, self.labels), prototypes)
        return self._distances(inner, self._terms(inner))

    def _terms(self, inner: Inner, weight: Tensor | None = None, spread: Tensor | None = None) -> Terms:
        """See ``classified``."""
        others = self._others
        farther = self.own_counts / others  # without z, a mean of n samples is n/(n−1) times as far from z
        lengths = inner.gram.diagonal(dim1=1, dim2=2)
        products = inner.products.gather(-1, self.labels.unsqueeze(-1)).squeeze(-1)
        own = inner.squares.clamp_min(0)  # r'A⁻¹r
        along = own + products  # x'A⁻¹r
        squares = along + products + lengths.gather(1, self.labels)  # x'A⁻¹x
        part = None
        if weight is not None:
            part = weight.unsqueeze(-1) * farther
            rest = (1 - part * own).clamp_min(torch.finfo(own.dtype).eps)
            part, own = part / rest, own / rest
        own = own * farther.square()
        found = (own / farther * self.usable).sum(-1) / self.usable.sum(-1).clamp_min(1)
        tiny = torch.finfo(own.dtype).tiny
        stretch = torch.ones_like(found) if spread is None else spread / found.clamp_min(tiny)
        column = stretch.unsqueeze(-1)
        own = own * column - self.scatter.unsqueeze(-1) / others
        lengths = lengths * column - self.scatter.unsqueeze(-1) / self.counts
        return Terms(squares, along, None if part is None else part * column, own, lengths, stretch, found)

    def _distances(self, inner: Inner, terms: Terms) -> Tensor:
        """[t, n, k]"""
        distances = rows_of(inner.gram, self.labels).add_(inner.products).mul_(-2 * terms.stretch.view(-1, 1, 1))
        distances.add_((terms.squares * terms.stretch.unsqueeze(-1)).unsqueeze(-1)).add_(terms.lengths.unsqueeze(1))
        if terms.part is not None:
            toward = terms.along.unsqueeze(-1) - inner.products
            distances.addcmul_(toward.square_(), terms.part.unsqueeze(-1))
        return distances.scatter_(-1, self.labels.unsqueeze(-1), terms.own.unsqueeze(-1))

    @property
    def _others(self) -> Tensor:
        """[t, n] the number of other samples of the class."""
        return (self.own_counts - 1).clamp_min(1)

    def _noise(self, own: Tensor) -> Tensor:
        """[t] the standard deviation of the excess of left-out samples over their own prototype, per 1 + 1/n."""
        excess = (own - self.scatter.unsqueeze(-1)) / (1 + 1 / self._others)
        total = self.usable.sum(-1).clamp_min(1)
        mean = ((excess * self.usable).sum(-1) / total).unsqueeze(-1)
        variance = ((excess - mean).square() * self.usable).sum(-1) / total
        return variance.sqrt().clamp_min(1e-3 * self.scatter.clamp_min(torch.finfo(excess.dtype).tiny))

    def _fused(self, inner: Inner) -> bool:
        """Whether the kernel can be used."""
        if not fused(inner.products) or inner.products.dtype != torch.float32:
            return False
        from manyway.methods.calibration import left_out_kernel

        return inner.products.shape[-1] <= left_out_kernel.MAX_CLASSES

    def _fit(self, distances: Tensor, own: Tensor, start: Tensor, steps: int) -> Tensor:
        """[t] the most probable precision, by Newton steps on ln τ."""
        usable, prior_sd = self.usable, self.prior_sd
        centre, log_precision = self.usual.log(), start.log()
        for _ in range(steps):
            t = log_precision.exp().view(-1, 1, 1)
            p = (distances * (-0.5 * t)).softmax(-1)
            mean = (p * distances).sum(-1)
            spread = (p.mul_(distances) * distances).sum(-1) - mean.square()
            t = t.squeeze(-1)
            slope = (0.5 * t * (own - mean) * usable).sum(-1)
            curvature = (0.25 * t.square() * spread.clamp_min(0) * usable).sum(-1) + slope.clamp_min(0)
            step = (slope + (log_precision - centre) / prior_sd**2) / (curvature + 1 / prior_sd**2)
            log_precision = log_precision - step.clamp(-1, 1)
        return log_precision.exp()

    def _gain(self) -> Tensor:
        """[t] how much more precise distances to prototypes of n samples are than to those of n−1."""
        squares = self.own_counts.square().clamp_min(2)
        gain = torch.where(self.usable > 0, (2 * squares - 1) / (2 * squares - 2), torch.ones_like(self.own_counts))
        total = self.usable.sum(-1)
        return ((gain * self.usable).sum(-1) / total.clamp_min(1)).where(total > 0, 1.0)


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


def _usual_precision(variance: Tensor, counts: Tensor, constants: Constants) -> Tensor:
    """[t] the usual precision for features of this variance and classes of this many samples."""
    # The error of a prototype adds 1/n to the scatter of a sample around it.
    return constants.one_shot_precision / variance * (2 * counts / (counts + 1)).mean(-1)
