"""Support samples that are left out in turn, and classified among the prototypes.

The own prototype and the metric of a sample are computed without it. The cross-entropy of these
answers says which metric and which precision τ to take.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import Tasks
from manyway.core.kernels import fused
from manyway.methods.calibration.metric import Inner, residuals_of

MOST_SAMPLES = 512  # samples that are left out in turn, evenly spaced: enough to fit a precision
_NEWTON_STEPS = 8  # from the usual precision
_REFIT_STEPS = 3  # from the precision for a similar metric
_LEAST_NOISE = 1e-3  # the deviation of distances, as a part of S
_LEAST_OTHERS = 0.1  # samples of a class without one of them: what is divided by it stays finite
_LEAST_WEIGHT = 1e-9  # of all samples together: what is divided by it stays finite


def can_leave_out(tasks: Tasks) -> bool:
    """Whether a class has two samples, so that one can be left out, given that each class has one.

    Known from the shape, without waiting for a GPU.
    """
    return tasks.n_support > tasks.n_classes


def left_out_samples(labels: Tensor, counts: Tensor) -> Tensor:
    """[t, n] which samples with labels [t, s] are left out in turn.

    All, or at most 512: evenly spaced ones of each class, as equally shared by the classes (with
    counts [t, k]) as their samples allow. There are as many for each task. Where equal shares leave
    some of the 512 over, the first further samples make up the number. With more than 512 classes
    they are evenly spaced ones of all samples, whatever their classes. They come class after class,
    so that every second one of them is of every class, too.
    """
    if labels.stride(0) == 0 and len(labels) > 1:
        return left_out_samples(labels[:1], counts[:1]).expand(len(labels), -1)
    n_samples = labels.shape[1]
    by_class = labels.argsort(dim=1, stable=True)
    if n_samples <= MOST_SAMPLES or counts.shape[1] > MOST_SAMPLES:
        return by_class[:, :: ceil(n_samples / MOST_SAMPLES)]
    share = torch.zeros(len(labels), 1, dtype=counts.dtype, device=counts.device)
    for step in reversed(range(MOST_SAMPLES.bit_length())):  # the largest share that all can have
        more = share + 2**step
        total = torch.minimum(counts, more).sum(-1, keepdim=True)
        share = torch.where(total <= MOST_SAMPLES, more, share)
    shares = torch.minimum(counts, share).gather(1, labels)
    ranks = ranks_of(labels, counts)
    sizes = counts.gather(1, labels)
    chosen = ((ranks + 1) * shares / sizes).floor() > (ranks * shares / sizes).floor()
    chosen_first = (~chosen.gather(1, by_class)).long().argsort(dim=1, stable=True)
    places = chosen_first[:, :MOST_SAMPLES].sort(1).values
    return by_class.gather(1, places)


def ranks_of(labels: Tensor, counts: Tensor) -> Tensor:
    """[t, s] how many earlier samples have the same class, by labels [t, s] and counts [t, k]."""
    order = labels.argsort(dim=1, stable=True)
    places = torch.arange(labels.shape[1], device=labels.device)
    places = torch.empty_like(order).scatter_(1, order, places.expand_as(order))
    return places - (counts.cumsum(1) - counts).gather(1, labels).long()


class Answers(NamedTuple):
    """How left-out samples are classified."""

    losses: Tensor  # [t, n] the cross-entropy of each; 0 where a sample cannot be left out
    precision: Tensor  # [t] the best τ
    spread: Tensor  # [t] the within-class scatter in the metric, before the stretch
    noise: Tensor  # [t] as in ``WithinClasses``

    def where(self, mine: Tensor, others: Answers) -> Answers:
        """These for some tasks [t], and the others for the rest."""
        return Answers(
            losses=self.losses.where(mine.unsqueeze(-1), others.losses),
            precision=self.precision.where(mine, others.precision),
            spread=self.spread.where(mine, others.spread),
            noise=self.noise.where(mine, others.noise),
        )


class Terms(NamedTuple):
    """What the distances of left-out samples consist of, besides inner products."""

    squares: Tensor  # [t, n] the squared length of a sample
    along: Tensor  # [t, n] the inner product of a sample and its residual
    part: Tensor | None  # [t, n] the factor of the correction for a metric without the sample
    own: Tensor  # [t, n] the distance to the own prototype
    class_squares: Tensor  # [t, k] ‖w_k‖² − e_k of the prototypes; see ``prototypes``
    stretch: Tensor  # [t] what squared distances are multiplied by
    spread: Tensor  # [t] as in ``Answers``


@dataclass(frozen=True, eq=False, kw_only=True)
class LeftOut:
    """Support samples that are left out in turn."""

    labels: Tensor  # [t, n]
    counts: Tensor  # [t, k]
    scatter: Tensor  # [t] S
    usual: Tensor  # [t] the usual precision
    own_counts: Tensor  # [t, n] the number of samples of their class
    own_weights: Tensor  # [t, n] what each of them counts in its class; mostly 1
    # [t, n] their weights; 0 for the only sample of a class, which has no prototype without it
    usable: Tensor
    given: Tensor | None = None  # [t] the precision, where it is known

    @staticmethod
    def of(
        labels: Tensor,
        counts: Tensor,
        scatter: Tensor,
        usual: Tensor,
        weights: Tensor | None = None,
    ) -> LeftOut:
        """Samples with labels [t, n] of classes with counts [t, k].

        ``scatter`` [t] is S, ``usual`` [t] the usual precision, and ``weights`` [t, n] are those of
        the samples; None: all are 1.
        """
        own_counts = counts.gather(1, labels)
        if weights is None:
            weights = torch.ones_like(own_counts)
        # Nobody can judge a sample whose class has no other.
        usable = weights * (own_counts - weights).clamp(0, 1)
        unequal = not bool((counts == counts[:, :1]).all())
        if counts.shape[1] <= MOST_SAMPLES and unequal:
            # How many of a class are left out.
            taken = torch.zeros_like(counts).scatter_add_(1, labels, usable)
            usable = usable * taken.gather(1, labels).clamp_min(1).rsqrt()
            # Their sum is the number of equally weighted samples that would be as informative.
            squares = usable.square().sum(-1, keepdim=True).clamp_min(_LEAST_WEIGHT)
            usable = usable * (usable.sum(-1, keepdim=True) / squares)
        return LeftOut(
            labels=labels,
            counts=counts,
            scatter=scatter,
            usual=usual,
            own_counts=own_counts,
            own_weights=weights,
            usable=usable,
        )

    def some(self, every: int) -> LeftOut:
        """Every so many of the samples."""
        return replace(
            self,
            labels=self.labels[:, ::every],
            own_counts=self.own_counts[:, ::every],
            own_weights=self.own_weights[:, ::every],
            usable=self.usable[:, ::every],
        )

    def classified(
        self,
        inner: Inner,
        in_metric: Tensor | None = None,
        spread: Tensor | None = None,
        near: Tensor | None = None,
    ) -> Answers:
        """Classify every sample without itself, given inner products in the metric of all samples.

        ``in_metric`` [t] is c: of a sample with residual r the metric contains c·rr'n/(n−1), which
        is taken out. Distances are stretched until the within-class scatter is ``spread`` [t].
        ``near`` [t] is the precision of the answers in a similar metric.
        """
        terms = self._terms(inner, in_metric, spread)
        start = self.usual
        steps = _NEWTON_STEPS
        if near is not None:
            start = near / self._gain
            steps = _REFIT_STEPS
        if self.given is not None:
            start = self.given / self._gain
            steps = 0
        if self._fused(inner):
            precision, losses = self._fit_fused(inner, terms, start, steps)
        else:
            distances = self._distances(inner, terms)
            precision = self._fit(distances, terms.own, start, steps)
            losses = self._losses(distances, terms.own, precision)
        # Own prototypes have n−1 samples here. For queries they have n, and that much less error.
        return Answers(
            losses=losses,
            precision=precision * self._gain,
            spread=terms.spread,
            noise=self._noise(terms.own),
        )

    def _fit_fused(
        self,
        inner: Inner,
        terms: Terms,
        start: Tensor,
        steps: int,
    ) -> tuple[Tensor, Tensor]:
        """The precision [t] and the losses [t, n], by the kernel."""
        from manyway.methods.calibration import left_out_kernel

        part = terms.part
        if part is None:
            part = torch.zeros_like(terms.own)
        samples = torch.stack([terms.squares, terms.along, part, terms.own, self.usable])
        given = left_out_kernel.Given(
            samples=samples,
            classes=terms.class_squares,
            stretch=terms.stretch,
            start=start,
            centre=self.usual,
        )
        return left_out_kernel.fit(inner, self.labels, given, steps)

    def _losses(self, distances: Tensor, own: Tensor, precision: Tensor) -> Tensor:
        """[t, n] weighted cross-entropies ln(1 + eˣ), with x = ln Σ_{k ≠ own} e^{s_k} − s_own.

        As a difference of two logarithms the small one of a sample without doubt would be rounding
        alone, which would then choose the metric where all samples are like that.
        """
        scores = distances * precision.mul(-0.5).view(-1, 1, 1)
        others = scores.scatter_(-1, self.labels.unsqueeze(-1), -torch.inf).logsumexp(-1)
        doubt = others + 0.5 * precision.unsqueeze(-1) * own
        return torch.logaddexp(doubt, torch.zeros_like(doubt)) * self.usable

    def distances(
        self, samples: Tensor, prototypes: Tensor, in_metric: Tensor | None = None
    ) -> Tensor:
        """[t, n, k] squared distances, less e_k, of samples to prototypes without them.

        Samples are [t, n, d], prototypes [t, k, d]; ``in_metric`` as in ``classified``.
        """
        inner = Inner.of(residuals_of(samples, prototypes, self.labels), prototypes, self.labels)
        terms = self._terms(inner, in_metric)
        if not self._fused(inner):
            return self._distances(inner, terms)
        self._fit_fused(inner, terms, self.usual, steps=0)
        return inner.products  # which the kernel has overwritten

    def _terms(
        self,
        inner: Inner,
        in_metric: Tensor | None = None,
        spread: Tensor | None = None,
    ) -> Terms:
        """See ``classified``."""
        others = self._others
        farther = self.own_counts / others  # without z, a mean of n is n/(n−1) times as far from z
        products = inner.products.gather(-1, self.labels.unsqueeze(-1)).squeeze(-1)
        own = inner.squares.clamp_min(0)  # r'A⁻¹r
        along = own + products  # x'A⁻¹r
        squares = along + products + inner.lengths.gather(1, self.labels)  # x'A⁻¹x
        part = None
        if in_metric is not None:
            own_part = in_metric.unsqueeze(-1) * farther * self.own_weights
            rest = (1 - own_part * own).clamp_min(torch.finfo(own.dtype).eps)
            part = own_part / rest
            own = own / rest
        own = own * farther.square()
        found = self._spread(own / farther)
        stretch = torch.ones_like(found)
        if spread is not None:
            stretch = spread / found
        column = stretch.unsqueeze(-1)
        scatter = self.scatter.unsqueeze(-1)
        return Terms(
            squares=squares,
            along=along,
            part=None if part is None else part * column,
            own=own * column - scatter / others,
            class_squares=inner.lengths * column - scatter / self.counts,
            stretch=stretch,
            spread=found,
        )

    def _spread(self, squares: Tensor) -> Tensor:
        """[t] the within-class scatter, from squared distances to own prototypes [t, n].

        A few samples may be as far away as the metric lets them be, such as the only one with a
        value of a categorical column. By the mean, all others would seem to lie in the middle,
        where e_k = S/n decides, which is S/(n−1) for the own class. Of normal features the mean
        is below twice the median, which is therefore the limit.
        """
        mean = (squares * self.usable).sum(-1) / self.usable.sum(-1).clamp_min(1)
        used = squares.where(self.usable > 0, torch.nan)
        median = _weighted_median(used, self.own_weights)
        # Copies have none, and rounding errors.
        least = torch.finfo(squares.dtype).eps * self.scatter
        return torch.minimum(mean, 2 * median).clamp_min(least)

    def _distances(self, inner: Inner, terms: Terms) -> Tensor:
        """[t, n, k]"""
        distances = inner.own(self.labels).add_(inner.products)
        distances.mul_(-2 * terms.stretch.view(-1, 1, 1))
        distances.add_((terms.squares * terms.stretch.unsqueeze(-1)).unsqueeze(-1))
        distances.add_(terms.class_squares.unsqueeze(1))
        if terms.part is not None:
            toward = terms.along.unsqueeze(-1) - inner.products
            distances.addcmul_(toward.square_(), terms.part.unsqueeze(-1))
        return distances.scatter_(-1, self.labels.unsqueeze(-1), terms.own.unsqueeze(-1))

    @cached_property
    def _others(self) -> Tensor:
        """[t, n] the number of other samples of the class."""
        return (self.own_counts - self.own_weights).clamp_min(_LEAST_OTHERS)

    def _noise(self, own: Tensor) -> Tensor:
        """[t] the standard deviation of the excess of left-out samples over S, per 1 + 1/n.

        ``own`` [t, n] are the squared distances to their own prototypes.
        """
        excess = (own - self.scatter.unsqueeze(-1)) / (1 + 1 / self._others)
        total = self.usable.sum(-1).clamp_min(1)
        mean = ((excess * self.usable).sum(-1) / total).unsqueeze(-1)
        variance = ((excess - mean).square() * self.usable).sum(-1) / total
        tiny = torch.finfo(excess.dtype).tiny
        return variance.sqrt().clamp_min(_LEAST_NOISE * self.scatter.clamp_min(tiny))

    def _fused(self, inner: Inner) -> bool:
        """Whether the kernel can be used."""
        if not fused(inner.products) or inner.products.dtype != torch.float32:
            return False
        from manyway.methods.calibration import left_out_kernel

        return inner.products.shape[-1] <= left_out_kernel.MAX_CLASSES

    def _fit(self, distances: Tensor, own: Tensor, start: Tensor, steps: int) -> Tensor:
        """[t] the most probable precision, by Newton steps on ln τ.

        Its prior is ln τ ~ Normal(ln usual, 1). A few dozen left-out samples outweigh it.
        """
        usable = self.usable
        centre = self.usual.log()
        log_precision = start.log()
        for _ in range(steps):
            t = log_precision.exp().view(-1, 1, 1)
            p = (distances * (-0.5 * t)).softmax(-1)
            mean = (p * distances).sum(-1)
            variance = (p.mul_(distances) * distances).sum(-1) - mean.square()
            half = 0.5 * t.squeeze(-1)
            slope = (half * (own - mean) * usable).sum(-1)
            curvature = (half.square() * variance.clamp_min(0) * usable).sum(-1)
            curvature = curvature + slope.clamp_min(0)
            step = (slope + log_precision - centre) / (curvature + 1)
            log_precision = log_precision - step.clamp(-1, 1)
        return log_precision.exp()

    @cached_property
    def _gain(self) -> Tensor:
        """[t] the precision for queries, relative to the most probable one.

        Distances to prototypes of n samples are more precise than those to prototypes of n−1: their
        variance 1 + 1/n is smaller by the factor n²/(n² − 1). The gain is the mean of 1 and that.
        """
        squares = self.own_counts.square().clamp_min(2)
        gain = (2 * squares - 1) / (2 * squares - 2)
        gain = torch.where(self.usable > 0, gain, torch.ones_like(self.own_counts))
        total = self.usable.sum(-1)
        return ((gain * self.usable).sum(-1) / total.clamp_min(1)).where(total > 0, 1.0)


def _weighted_median(values: Tensor, weights: Tensor) -> Tensor:
    """[t] of values [t, n] with weights [t, n]; those that are NaN do not count.

    >>> _weighted_median(torch.tensor([[3.0, 1.0, 2.0, 4.0]]), torch.ones(1, 4)).tolist()
    [2.0]
    """
    weights = weights.where(~values.isnan(), 0.0)
    ordered, order = values.nan_to_num(torch.inf).sort(dim=-1)
    below = weights.gather(-1, order).cumsum(-1)
    place = (below < below[:, -1:] / 2).sum(-1, keepdim=True)
    median: Tensor = ordered.gather(-1, place).squeeze(-1)
    return median
