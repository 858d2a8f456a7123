"""What a distance to a prototype means, learned from the support alone.

The likelihood of a class is exp(−½ τ d²), with a precision τ and the distance d in a metric (see ``metric``). Each
support sample is left out in turn and classified among the prototypes: its own prototype and the metric are computed
without it. The metric and τ minimise the cross-entropy of these answers. Prototypes are means of n samples, so squared
distances to them are too long by S/n on average, where S is the within-class scatter. That bias is subtracted.

A log-normal prior holds τ near the usual value for features of that variance. It decides alone where no class has two
samples, and keeps τ finite where every sample is classified without doubt. The n samples that can be left out have also
chosen the metric, so that their answers are too good. The final probabilities are therefore raised to the power
1/(1 + (10/n)²), which changes no label. n is K times the harmonic mean of the numbers of samples: many samples of one
class say little about another. A lower τ loses labels: where 3 of 10 classes with two examples occur, up to 13 points.

Classes may have any numbers of samples. What is averaged over samples is weighted, so that no class decides alone: the
n samples of a class count as n/(1 + n/8) (``class_limit``). ``Calibration.shrunk`` makes prototypes with large errors
comparable with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import ceil, log
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import Tasks, class_moments, column_sums
from manyway.core.kernels import fused, tensor_cores
from manyway.methods.calibration.constants import Constants
from manyway.methods.calibration.metric import Contrasts, Inner, Metric, differences, metrics_of, rows_of

_MOST_SAMPLES = 512  # samples that are left out in turn, evenly spaced: enough to fit a precision
_MOST_FOR_METRIC = 256  # of these, evenly spaced, to choose among metrics on the same samples
_BLOCK_NUMBERS = {"cpu": 1 << 22, "cuda": 1 << 33}  # tasks are calibrated in blocks of about this many numbers
# Arrays of a calibration: of the distances of samples, and of the size of the metric.
_ARRAYS_OF_DISTANCES = 6
_ARRAYS_OF_METRIC = 5
_NEWTON_STEPS = 8  # from the usual precision
_REFIT_STEPS = 3  # from the precision for a similar metric
_MOMENT_STEPS = 3  # to estimate how much class means differ
_LEAST_SCATTER = 1e-6  # S, as a part of the variance
_LEAST_TRUST = 0.005  # a factor could be 0; half and twice of it change no label
# The values of γ that are tried besides 1, about equally spaced in ln(γ/(1 − γ)).
_SHRINKAGES = (0.95, 0.85, 0.6, 0.3, 0.1, 0.03, 0.01)
_EXACT_FEATURES = 64  # with more, a GPU may round products: the errors of many distances cancel
_FEW_FEATURES = 4  # with so few, pairs are so near that a difference of squares would be rounding alone
_LESS = 1 - 1e-5  # two values of γ that differ by rounding alone are equally good, whatever the unit of the features
_NO_LOSS = 1e-30  # nats of all left-out samples: less is 0 to float32, on some devices, and no reason for another γ


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration:
    """Prototypes and the meaning of a distance to them. One row serves all tasks when they share their support.

    All distances are plain distances of *placed* features: relative to the mean of the prototypes, and mapped by the
    metric.
    """

    middle: Tensor  # [t, 1, d] mean of the prototypes; float32 is accurate for distances relative to it
    metric: Metric | None  # None: plain distances
    offsets: Tensor  # [t, k, d] placed prototypes
    squares: Tensor  # [t, k] their squared lengths, minus the bias S/n_k
    counts: Tensor  # [t, k] n, how many samples a prototype is worth; see also ``shrunk``
    examples: Tensor  # [t, k] the samples that it was made of
    scatter: Tensor  # [t] S, the pooled within-class scatter
    precision: Tensor  # [t] τ
    shrinkage: Tensor  # [t] γ of the metric
    noise: Tensor  # [t] standard deviation of ‖z − w‖² − S − S/n for members of the nearest class, divided by 1 + 1/n
    losses: Tensor  # [t, n] the cross-entropy of left-out samples times their weights
    power: Tensor  # [t] what final probabilities are raised to
    clumped: Tensor  # [t] ρ of ``manyway.methods.evidence.judge``; 0 where it is not measured
    trust: Tensor  # [t, k] s, by which prototypes are shorter than the means of their samples

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

    def of_tasks(self, which: slice) -> Calibration:
        """That of some tasks, whose features are placed already."""
        return replace(self, metric=None, **{name: getattr(self, name)[which] for name in _tensors()})

    def shrunk(self, constants: Constants) -> Calibration:
        """Prototypes as far as they can be trusted, given that class means are normal around their middle.

        Let the class means have the variance ρS. The best guess of a class mean is then s_k w_k with
        s_k = ρ/(ρ + 1/n_k), as if there were 1/ρ further samples in the middle. ρ is estimated by moments,
        E‖w_k‖² = (1 − 1/K) ρS + S e_k with e_k = (1 − 2/K)/n_k + Σ_j 1/(n_j K²), in which classes have the weights
        (ρ + 1/n_k)⁻².

        The posterior variance of a class mean is S s_k / n_k, so a prototype counts as n_k / s_k samples. Distances to
        the others stay as steep, so that τ is divided by the largest factor. With many features an error makes all
        distances longer by that variance. With few it is as likely to make a prototype attractive: of the differences
        between classes the part d/(d + 64) is taken into account.
        """
        n_classes = self.counts.shape[1]
        if n_classes < 2:
            return self
        scatter = self.scatter.clamp_min(torch.finfo(self.scatter.dtype).tiny).unsqueeze(-1)
        errors = 1 / self.counts
        lengths = (self.offsets.square().sum(-1) / scatter).clamp_max(1e12)  # examples may all be copies
        excess = lengths - (1 - 2 / n_classes) * errors - errors.mean(-1, keepdim=True) / n_classes
        excess = excess / (1 - 1 / n_classes)
        ratio = torch.zeros_like(scatter)
        for _ in range(_MOMENT_STEPS):
            # A far class says no more than one that is as far as expected.
            bounded = 1 / (1 + lengths / (ratio + errors))
            weights = bounded * (ratio + errors) ** -2
            ratio = ((excess * weights).sum(-1, keepdim=True) / weights.sum(-1, keepdim=True)).clamp_min(0)
        factors = (ratio / (ratio + errors)).clamp_min(_LEAST_TRUST)
        worth = self.counts / factors
        n_features = self.offsets.shape[-1]
        share = n_features / (n_features + constants.many_features)
        worth = 1 / torch.lerp(1 / worth.amax(-1, keepdim=True), 1 / worth, share)
        offsets = self.offsets * factors.unsqueeze(-1)
        return replace(
            self,
            offsets=offsets,
            squares=offsets.square().sum(-1) - self.scatter.unsqueeze(-1) / worth,
            counts=worth,
            precision=self.precision / factors.amax(-1),
            trust=factors,
        )

    def unshrunk(self) -> Calibration:
        """Prototypes that are the means of their samples: how far a query is from a class, and not which is nearest."""
        offsets = self.offsets / self.trust.unsqueeze(-1)
        counts = torch.minimum(self.counts, self.examples)
        return replace(
            self,
            offsets=offsets,
            squares=offsets.square().sum(-1) - self.scatter.unsqueeze(-1) / counts,
            counts=counts,
            precision=self.precision * self.trust.amax(-1),
            trust=torch.ones_like(self.trust),
        )

    def with_classes(self, placed: Tensor) -> Calibration:
        """Further classes, each with one sample [t, n, d] that is placed already: the error of its prototype is S.

        The prototype is the sample itself. Shrunk towards the middle it would be near every query: of 112 birds of
        eight species, one of them new, a new class then took 54 and 12 of these were right, and takes 10 with 8 right.
        """
        ones = self.counts.new_ones(placed.shape[:2])
        return replace(
            self,
            offsets=torch.cat([self.offsets, placed], 1),
            squares=torch.cat([self.squares, placed.square().sum(-1) - self.scatter.unsqueeze(-1)], 1),
            counts=torch.cat([self.counts, ones], 1),
            examples=torch.cat([self.examples, ones], 1),
            trust=torch.cat([self.trust, ones], 1),
        )


Finish = Callable[[Calibration, Tasks], Calibration]


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


def calibrate(
    tasks: Tasks,
    constants: Constants,
    precision: float | None = None,
    metric: bool = True,
    finish: Finish | None = None,
) -> Calibration:
    """Prototypes, metric, scatter and precision of each task.

    Parameters
    ----------
    tasks : Tasks
    constants : Constants
    precision : float or None, default=None
        τ; None: it is learned by leaving samples out.
    metric : bool, default=True
        Whether a metric is learned.
    finish : callable or None, default=None
        Changes the calibration of some tasks at last.

    Returns
    -------
    Calibration
    """
    parts = []
    metrics = []
    for block in _blocks(tasks, constants, precision, metric, finish):
        parts.append(block.calibration)
        if block.calibration.metric is not None:  # all or none
            metrics.append(block.calibration.metric)
    return _joined(parts, Metric.joined(metrics) if metrics else None)


class PlacedTasks(NamedTuple):
    """A calibration without its metric, and the queries that were placed with it."""

    calibration: Calibration
    queries: Tensor  # [t, q, d]


def calibrate_and_place(
    tasks: Tasks,
    constants: Constants,
    precision: float | None = None,
    metric: bool = True,
    finish: Finish | None = None,
) -> PlacedTasks:
    """The same, and the placed queries. Metrics are not kept: those of many tasks take much memory."""
    parts = []
    placed = []
    for block in _blocks(tasks, constants, precision, metric, finish):
        queries = tasks.query if tasks.shared_support else tasks[block.tasks].query
        placed.append(block.calibration.place(queries))
        parts.append(block.calibration)
    return PlacedTasks(_joined(parts, None), torch.cat(placed))


def _joined(parts: list[Calibration], metric: Metric | None) -> Calibration:
    """The calibrations of consecutive tasks as one."""
    joined = {name: torch.cat([getattr(part, name) for part in parts]) for name in _tensors()}
    return Calibration(metric=metric, **joined)


def _tensors() -> list[str]:
    return [one.name for one in fields(Calibration) if one.name != "metric"]


class _Block(NamedTuple):
    """The calibration of some tasks."""

    tasks: slice
    calibration: Calibration


def _blocks(
    tasks: Tasks,
    constants: Constants,
    precision: float | None,
    metric: bool,
    finish: Finish | None,
) -> Iterator[_Block]:
    """Calibrate some tasks at a time; the arguments are those of ``calibrate``."""
    tasks = tasks[:1] if tasks.shared_support else tasks
    size = max(1, _BLOCK_NUMBERS[tasks.device.type] // _numbers_per_task(tasks, metric))
    for first in range(0, tasks.n_tasks, size):
        block = slice(first, first + size)
        some = tasks[block]
        if some.centre is None:  # gathered once
            some = replace(some, support_table=some.support, support_index=None, factor=None)
        moments = class_moments(some)
        samples = left_out_samples(some.support_labels, moments[1])
        found = calibrated(some, moments, samples, constants, precision, metric)
        if finish is not None:
            found = finish(found, some)
        yield _Block(block, found)


def _numbers_per_task(tasks: Tasks, metric: bool) -> int:
    """About how many numbers the calibration of a task needs."""
    per_sample = 2 * tasks.n_features + _ARRAYS_OF_DISTANCES * tasks.n_classes
    total = min(tasks.n_support, _MOST_SAMPLES) * per_sample
    if metric:
        size = min(tasks.n_support, tasks.n_features)
        total += 2 * tasks.n_support * tasks.n_features + _ARRAYS_OF_METRIC * size**2
    return total


def left_out_samples(labels: Tensor, counts: Tensor) -> Tensor:
    """[t, n] the samples of labels [t, s] that are left out in turn: all, or evenly spaced samples of each class.

    At most 512, as equally shared by the classes (with counts [t, k]) as their samples allow. There are as many for
    each task; where the shares leave a rest, some samples appear that add to the share of their class.
    """
    if labels.stride(0) == 0 and len(labels) > 1:
        return left_out_samples(labels[:1], counts[:1]).expand(len(labels), -1)
    (n_tasks, n_samples), n_classes = labels.shape, counts.shape[1]
    everything = torch.arange(n_samples, device=labels.device)
    if n_samples <= _MOST_SAMPLES or n_classes > _MOST_SAMPLES:
        return everything[:: ceil(n_samples / _MOST_SAMPLES)].expand(n_tasks, -1)
    share = torch.zeros(n_tasks, 1, dtype=counts.dtype, device=counts.device)
    for step in reversed(range(_MOST_SAMPLES.bit_length())):  # the largest share that all classes can have
        more = share + 2**step
        share = torch.where(torch.minimum(counts, more).sum(-1, keepdim=True) <= _MOST_SAMPLES, more, share)
    shares = torch.minimum(counts, share).gather(1, labels)
    ranks, sizes = ranks_of(labels, counts), counts.gather(1, labels)
    chosen = ((ranks + 1) * shares / sizes).floor() > (ranks * shares / sizes).floor()
    return (~chosen).long().argsort(dim=1, stable=True)[:, :_MOST_SAMPLES].sort(1).values


def ranks_of(labels: Tensor, counts: Tensor) -> Tensor:
    """[t, s] the number of earlier samples of the same class, from labels [t, s] and counts [t, k]."""
    order, places = labels.argsort(dim=1, stable=True), torch.arange(labels.shape[1], device=labels.device)
    places = torch.empty_like(order).scatter_(1, order, places.expand_as(order))
    return places - (counts.cumsum(1) - counts).gather(1, labels).long()


def calibrated(
    tasks: Tasks,
    moments: tuple[Tensor, Tensor, Tensor],
    samples: Tensor,
    constants: Constants,
    precision: float | None = None,
    metric: bool = True,
) -> Calibration:
    """The calibration of tasks with these ``class_moments``; ``samples`` [t, n] are left out in turn."""
    sums, counts, squares = moments
    freedom = tasks.n_support - tasks.n_classes
    exact = tasks.n_features <= _EXACT_FEATURES
    prototypes = sums / counts.unsqueeze(-1)
    middle, offsets, lengths = _from_middle(prototypes)
    variance, scatter = _spreads(squares, prototypes, counts, constants)
    # The error of a prototype adds 1/n to the scatter of a sample around it.
    usual = constants.one_shot_precision / variance * (2 * counts / (counts + 1)).mean(-1)
    if freedom:
        usual = torch.minimum(usual, gaussian_precision(tasks.support - middle, scatter, counts))
    given = None if precision is None else torch.full_like(usual, precision)
    ones = torch.ones_like(usual)
    plain = Calibration(
        middle=middle,
        metric=None,
        offsets=offsets,
        squares=lengths - scatter.unsqueeze(-1) / counts,
        counts=counts,
        examples=counts,
        scatter=scatter,
        precision=usual if given is None else given,
        shrinkage=ones,
        noise=constants.one_shot_noise * scatter,
        losses=torch.zeros_like(counts[:, :1]),
        power=ones,
        clumped=torch.zeros_like(usual),
        trust=torch.ones_like(counts),
    )
    if not freedom or not (metric or given is None):  # with one sample per class none can be left out
        return plain
    left_out = replace(LeftOut.of(tasks.support_labels.gather(1, samples), plain, usual, constants), given=given)
    residuals = differences(tasks, samples, prototypes, left_out.labels)
    with nullcontext() if exact else tensor_cores(residuals):
        inner = Inner.of(residuals, offsets, left_out.labels)
    every = ceil(residuals.shape[1] / _MOST_FOR_METRIC)
    some = inner.some(every) if metric else inner  # a copy, because classifying may overwrite the others
    losses, found, _, noise = left_out.classified(inner)
    plain = replace(plain, precision=found, noise=noise, losses=losses)
    return _with_metric(plain, tasks, samples, residuals, some, left_out, constants) if metric else plain


def doubted(counts: Tensor, constants: Constants) -> Tensor:
    """[t] the power of answers that few left-out samples have taught, for classes with ``counts`` [t, k]."""
    effective = counts.shape[1] / (1 / counts).mean(-1)
    return 1 / (1 + (constants.doubtful_examples / effective).square())


def _spreads(totals: Tensor, prototypes: Tensor, counts: Tensor, constants: Constants) -> tuple[Tensor, Tensor]:
    """[t] the variance of all samples and S, the within-class scatter, from sums of squared lengths [t, k]."""
    n_classes, squares = counts.shape[1], prototypes.square().sum(-1)
    # Classes of many samples must not decide alone; where all have as many, all weights are the same.
    weights = 1 / (1 + (counts - 1) / constants.class_limit)
    within = ((totals - squares * counts).clamp_min(0) * weights).sum(-1)
    freedom = ((counts - 1) * weights).sum(-1)
    mean = (column_sums(prototypes) / n_classes).unsqueeze(1)
    # Of each class around the middle; the median, so that a far class does not decide.
    of_class = totals / counts - 2 * (prototypes * mean).sum(-1) + mean.square().sum(-1)
    variance = of_class.quantile(0.5, dim=-1).clamp_min(torch.finfo(mean.dtype).tiny)
    if not bool((counts > 1).any()):
        return variance, constants.one_shot_scatter * variance
    # Examples may be copies of each other, and what is divided by S must stay finite.
    return variance, torch.maximum(within / freedom, _LEAST_SCATTER * variance)


def _with_metric(
    plain: Calibration, tasks: Tasks, which: Tensor, rest: Tensor, inner: Inner, left_out: LeftOut, constants: Constants
) -> Calibration:
    """The calibration with the metric whose answers for left-out samples have the smallest cross-entropy.

    ``which`` [t, n], of residuals ``rest`` [t, n, d], are left out; some, with plain products ``inner``, are used.
    γ below g = d/(d + 4f) costs ln(g/γ) nats: a prior, for f contrasts do not support a covariance that is sharper, and
    left-out samples may hardly differ in what they gain from one that is singular by chance.
    """
    every = ceil(which.shape[1] / _MOST_FOR_METRIC)
    left_out = left_out.some(every)
    answers = left_out.classified(inner, near=plain.precision)
    contrasts = Contrasts.of(tasks, plain.middle + plain.offsets, plain.counts)
    freedom, n_features = contrasts.rows.shape[1:]
    # 1/(f·v), which is finite also where a first step leaves no difference between samples.
    weight = n_features / (freedom * plain.scatter).clamp_min(n_features * torch.finfo(tasks.dtype).tiny)
    exact = n_features <= _EXACT_FEATURES
    with nullcontext() if exact else tensor_cores(which):  # with little shrinkage, rounded products may have no root
        metrics = metrics_of(contrasts, weight)
    crossed = metrics.crossed(plain.offsets)
    products = metrics.inner(which[:, ::every], left_out.labels, rest[:, ::every], plain.offsets, crossed, inner)
    del contrasts
    best = Answers(*(one.clone() for one in answers))
    near = answers.precision
    shrinkage = torch.ones_like(weight)
    every_task = torch.arange(len(weight), device=weight.device)
    root = None
    least = n_features / (n_features + constants.metric_freedom * freedom)  # γ that costs nothing
    for gamma in _SHRINKAGES:
        with nullcontext() if exact else tensor_cores(which):  # a choice among a few values needs no more digits
            factor = metrics.root(gamma, every_task)
            found = products(factor, gamma, every_task)
        one = left_out.classified(found, (1 - gamma) * weight, answers.spread, near)
        if gamma < least:
            one = one._replace(losses=one.losses + log(least / gamma) / one.losses.shape[-1])
        least_loss = best.losses.sum(-1)
        better = one.losses.sum(-1) < torch.minimum(_LESS * least_loss, least_loss - _NO_LOSS)
        for mine, theirs in zip(best, one, strict=True):
            mine[better] = theirs[better]
        shrinkage[better] = gamma
        if root is None:
            root = factor
        elif not metrics.inverts:
            root[better] = factor[better]
        near = one.precision
    gains = answers.losses - best.losses
    kept = gains.sum(-1) > 0
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
        losses=plain.losses[:, ::every] - gains.where(kept.unsqueeze(-1), 0.0),
    )


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
    usable: Tensor  # [t, n] their weights; 0 for the only sample of a class, which has no prototype without it
    given: Tensor | None = None  # [t] the precision, where it is known

    @staticmethod
    def of(labels: Tensor, plain: Calibration, usual: Tensor, constants: Constants) -> LeftOut:
        own_counts = plain.counts.gather(1, labels)
        usable = (own_counts > 1).to(own_counts.dtype)
        if plain.counts.shape[1] <= _MOST_SAMPLES and not bool((plain.counts == plain.counts[:, :1]).all()):
            taken = torch.zeros_like(plain.counts).scatter_add_(1, labels, usable)  # how many of a class are left out
            usable = usable / (1 + taken.gather(1, labels) / constants.class_limit)
            # Their sum is the number of equally weighted samples that would be as informative.
            usable = usable * (usable.sum(-1, keepdim=True) / usable.square().sum(-1, keepdim=True).clamp_min(1e-9))
        return LeftOut(
            labels=labels,
            counts=plain.counts,
            scatter=plain.scatter,
            usual=usual,
            prior_sd=constants.precision_prior_sd,
            own_counts=own_counts,
            usable=usable,
        )

    def some(self, every: int) -> LeftOut:
        """Every so many of the samples."""
        own_counts, usable = self.own_counts[:, ::every], self.usable[:, ::every]
        return replace(self, labels=self.labels[:, ::every], own_counts=own_counts, usable=usable)

    def classified(
        self, inner: Inner, weight: Tensor | None = None, spread: Tensor | None = None, near: Tensor | None = None
    ) -> Answers:
        """Classify every sample without itself, given inner products in the metric of all samples.

        ``weight`` [t]: the metric contains weight·rr'n/(n−1) for a sample with residual r, which is taken out.
        Distances are scaled so that the within-class scatter is ``spread`` [t]. ``near`` [t] is the precision of the
        answers in a similar metric.
        """
        terms = self._terms(inner, weight, spread)
        start, steps = (self.usual, _NEWTON_STEPS) if near is None else (near / self._gain, _REFIT_STEPS)
        if self.given is not None:
            start, steps = self.given / self._gain, 0
        if self._fused(inner):
            from manyway.methods.calibration import left_out_kernel

            part = torch.zeros_like(terms.own) if terms.part is None else terms.part
            rows = torch.stack([terms.squares, terms.along, part, terms.own, self.usable])
            vectors = (rows, terms.lengths, terms.stretch, start, self.usual)
            precision, losses = left_out_kernel.fit(inner, self.labels, vectors, steps, 1 / self.prior_sd**2)
        else:
            distances = self._distances(inner, terms)
            precision = self._fit(distances, terms.own, start, steps)
            losses = self._losses(distances, terms.own, precision)
        # Own prototypes have n−1 samples here. For queries they have n, and that much less error.
        return Answers(losses, precision * self._gain, terms.spread, self._noise(terms.own))

    def _losses(self, distances: Tensor, own: Tensor, precision: Tensor) -> Tensor:
        """[t, n] weighted cross-entropies ln(1 + eˣ), with x = ln Σ_{k ≠ own} e^{s_k} − s_own.

        As a difference of two logarithms the small one of a sample without doubt would be rounding alone, which would
        then choose the metric where all samples are like that.
        """
        scores = distances * precision.mul(-0.5).view(-1, 1, 1)
        others = scores.scatter_(-1, self.labels.unsqueeze(-1), -torch.inf).logsumexp(-1)
        doubt = others + 0.5 * precision.unsqueeze(-1) * own
        return torch.logaddexp(doubt, torch.zeros_like(doubt)) * self.usable

    def distances(self, samples: Tensor, prototypes: Tensor) -> Tensor:
        """[t, n, k] unbiased squared distances of samples [t, n, d] to prototypes [t, k, d] without them."""
        inner = Inner.of(samples - rows_of(prototypes, self.labels), prototypes, self.labels)
        return self._distances(inner, self._terms(inner))

    def _terms(self, inner: Inner, weight: Tensor | None = None, spread: Tensor | None = None) -> Terms:
        """See ``classified``."""
        others = self._others
        farther = self.own_counts / others  # without z, a mean of n samples is n/(n−1) times as far from z
        lengths = inner.lengths
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
        # The only sample of a category is as far as the metric lets it be. All others would seem to lie in the middle,
        # where S/n, which is S/(n−1) for the own class, decides. Of normal features the mean is below twice the median.
        middle = (own / farther).where(self.usable > 0, torch.nan).nanmedian(-1).values.nan_to_num(torch.inf)
        found = torch.minimum(found, 2 * middle)
        found = found.clamp_min(torch.finfo(own.dtype).eps * self.scatter)  # copies have none, and rounding errors
        stretch = torch.ones_like(found) if spread is None else spread / found
        column = stretch.unsqueeze(-1)
        own = own * column - self.scatter.unsqueeze(-1) / others
        lengths = lengths * column - self.scatter.unsqueeze(-1) / self.counts
        return Terms(squares, along, None if part is None else part * column, own, lengths, stretch, found)

    def _distances(self, inner: Inner, terms: Terms) -> Tensor:
        """[t, n, k]"""
        distances = inner.own(self.labels).add_(inner.products).mul_(-2 * terms.stretch.view(-1, 1, 1))
        distances.add_((terms.squares * terms.stretch.unsqueeze(-1)).unsqueeze(-1)).add_(terms.lengths.unsqueeze(1))
        if terms.part is not None:
            toward = terms.along.unsqueeze(-1) - inner.products
            distances.addcmul_(toward.square_(), terms.part.unsqueeze(-1))
        return distances.scatter_(-1, self.labels.unsqueeze(-1), terms.own.unsqueeze(-1))

    @cached_property
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

    @cached_property
    def _gain(self) -> Tensor:
        """[t] the precision for queries, relative to the most probable one.

        Distances to prototypes of n samples are more precise than those to prototypes of n−1.
        """
        squares = self.own_counts.square().clamp_min(2)
        gain = torch.where(self.usable > 0, (2 * squares - 1) / (2 * squares - 2), torch.ones_like(self.own_counts))
        total = self.usable.sum(-1)
        return ((gain * self.usable).sum(-1) / total.clamp_min(1)).where(total > 0, 1.0)


def squared_distances(samples: Tensor, prototypes: Tensor) -> Tensor:
    """[t, n, k] squared distances of samples [t, n, d] to prototypes [t, k, d]."""
    if samples.shape[-1] <= _FEW_FEATURES:
        return _sums_of_squares(samples, prototypes)
    middle, offsets, lengths = _from_middle(prototypes)
    return _squared_distances(samples - middle, offsets, lengths)


def distances_between(samples: Tensor) -> Tensor:
    """[t, n, n] squared distances among samples [t, n, d]."""
    if samples.shape[-1] <= _FEW_FEATURES:
        return _sums_of_squares(samples, samples)
    products = samples @ samples.mT
    lengths = products.diagonal(dim1=1, dim2=2).clone()
    return products.mul_(-2).add_(lengths.unsqueeze(1)).add_(lengths.unsqueeze(2))


def _sums_of_squares(samples: Tensor, others: Tensor) -> Tensor:
    """[t, n, k] = Σ_d (x − y)², feature by feature: a small distance keeps its digits, and that of equal rows is 0."""
    total = (samples[..., :1] - others[..., :1].mT).square_()
    for d in range(1, samples.shape[-1]):
        apart = samples[..., d : d + 1] - others[..., d : d + 1].mT
        total.addcmul_(apart, apart)
    return total


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


def gaussian_precision(support: Tensor, scatter: Tensor, counts: Tensor) -> Tensor:
    """[t] the precision for independent normal features, as many as matter: (Σ v)²/Σ v² for column variances v.

    Samples [t, s, d] are relative to their middle. The scatter S is that of so many features of variance 1/τ, and a
    prototype adds its error. Where features are few, the usual precision is too high.
    """
    variances = support.square().mean(1)
    tiny = torch.finfo(scatter.dtype).tiny
    number = variances.sum(-1).square() / variances.square().sum(-1).clamp_min(tiny)
    number = number * (1 - 2 / (number * (support.shape[1] - counts.shape[1])).clamp_min(4))
    return number / scatter.clamp_min(tiny) * (counts / (counts + 1)).mean(-1)
