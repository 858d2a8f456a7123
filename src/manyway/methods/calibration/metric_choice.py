"""Which metric: the one whose left-out answers have the smallest cross-entropy."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import Tasks
from manyway.core.kernels import tensor_cores
from manyway.methods.calibration.calibration import Calibration
from manyway.methods.calibration.left_out import Answers, LeftOut
from manyway.methods.calibration.metric import (
    Contrasts,
    Gram,
    GramInner,
    Inner,
    LeftOutRows,
    Metric,
    Scatter,
    ScatterInner,
    metrics_of,
)

# The values of γ that are tried besides 1: γ/(1 − γ) is 16, 4, 1, … down to 4⁻⁴.
_SHRINKAGES = tuple(1 / (1 + 2.0 ** (2 * step)) for step in range(-2, 5))
_EXACT_FEATURES = 64  # with more, a GPU may round products: the errors of many distances cancel
# Two values of γ that differ by rounding alone are equally good, whatever the unit of the features.
_LESS = 1 - 1e-5
# Nats of all left-out samples: less is 0 to float32, on some devices, and no reason for another γ.
_NO_LOSS = 1e-30


def with_best_metric(
    plain: Calibration,
    tasks: Tasks,
    *,
    rows: LeftOutRows,
    inner: Inner,
    left_out: LeftOut,
    weights: Tensor | None,
) -> Calibration:
    """The calibration with the metric whose left-out answers have the smallest cross-entropy.

    ``left_out`` are evenly spaced ones of the samples that ``plain`` was learned from, with
    ``rows`` and plain products ``inner``. ``weights`` [t, s] of all samples; None: all are 1.
    """
    answers = left_out.classified(inner, near=plain.precision)
    coordinates = plain.coordinates
    within = plain.within
    prototypes = plain.prototypes
    counts = prototypes.counts
    contrasts = Contrasts.of(tasks, coordinates.middle + prototypes.offsets, counts, weights)
    columns = coordinates.n_varying
    tiny = torch.finfo(tasks.dtype).tiny
    # 1/(f·v̄), which is finite also where a first step leaves no difference between samples.
    weight = columns / torch.maximum(within.freedom * within.scatter, columns * tiny)
    free_from = columns / (columns + 2 * contrasts.rows.shape[1])
    with rounding(prototypes.offsets):
        metrics = metrics_of(contrasts, weight)
    del contrasts
    crossed = metrics.crossed(prototypes.offsets)
    inner_of = metrics.inner(rows, prototypes.offsets, crossed, inner)
    choice = _choose(metrics, inner_of, left_out, answers, weight=weight, free_from=free_from)
    best = choice.best

    def relative(to_best: Tensor) -> Tensor:
        # Where no γ < 1 is better the best answers are the plain ones. Where all samples are copies
        # the ratio is then 0/0.
        return to_best.where(choice.shrinkage < 1, 1.0)

    stretch = relative(answers.spread / best.spread).sqrt()
    metric = Metric(metrics.whitening(choice.root, choice.shrinkage), stretch)
    placed = metric(prototypes.offsets, crossed)
    return replace(
        plain,
        coordinates=replace(coordinates, metric=metric, shrinkage=choice.shrinkage),
        within=replace(within, noise=within.noise * relative(best.noise / answers.noise)),
        prototypes=prototypes.with_means(placed, counts, within.scatter),
        precision=plain.precision * relative(best.precision / answers.precision),
        left_out_losses=best.losses,
    )


class _Choice(NamedTuple):
    """The best of all metrics, for each task."""

    best: Answers
    shrinkage: Tensor  # [t] its γ
    root: Tensor  # [t, …] its factor; see ``Scatter.root`` and ``Gram.root``


def _choose(
    metrics: Scatter | Gram,
    inner_of: ScatterInner | GramInner,
    left_out: LeftOut,
    plain_answers: Answers,
    weight: Tensor,
    free_from: Tensor,
) -> _Choice:
    """The γ whose answers have the smallest cross-entropy; those of γ = 1 are known.

    γ below ``free_from`` [t] = d/(d + 2f) costs ln(free_from/γ) nats. This is a prior, for f
    contrasts do not support a sharper covariance: left-out samples may hardly differ in what they
    gain from one that is singular by chance. As a strict limit, at d/(d + 4f), it cost 12 points on
    five correlated measurements with two examples per class. ``weight`` [t] is 1/(f·v̄).
    """
    best = plain_answers
    shrinkage = torch.ones_like(weight)
    near = plain_answers.precision
    best_root: Tensor | None = None
    for gamma in _SHRINKAGES:
        with rounding(metrics.features):  # a choice among a few values needs no more digits
            root = metrics.root(gamma)
            inner = inner_of(root, gamma)
        in_metric = (1 - gamma) * weight
        answers = left_out.classified(inner, in_metric, plain_answers.spread, near)
        near = answers.precision
        price = (free_from / gamma).log().clamp_min(0) / answers.losses.shape[-1]
        answers = answers._replace(losses=answers.losses + price.unsqueeze(-1))
        lowest = best.losses.sum(-1)
        better = answers.losses.sum(-1) < torch.minimum(_LESS * lowest, lowest - _NO_LOSS)
        best = best.where(~better, answers)
        shrinkage = shrinkage.where(~better, gamma)
        if best_root is None:
            best_root = root
        elif not metrics.inverts:
            best_root[better] = root[better]
    assert best_root is not None
    return _Choice(best=best, shrinkage=shrinkage, root=best_root)


def rounding(rows: Tensor) -> AbstractContextManager[object]:
    """Where products of rows [t, n, d] of many features may be rounded, on a GPU."""
    return nullcontext() if rows.shape[-1] <= _EXACT_FEATURES else tensor_cores(rows)
