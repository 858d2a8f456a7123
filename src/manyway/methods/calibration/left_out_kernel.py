# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,type-arg"
"""The classification of left-out samples as a GPU kernel, with one program per task.

See ``left_out.LeftOut.classified``.

The distances of a task stay in the cache while the Newton steps read them.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from manyway.core.kernels.launch import Memory, launch, reads, writes
from manyway.methods.calibration.metric import Inner

MAX_CLASSES = 2048  # the distances of one sample must fit into registers
_TILE = 2048  # distances per tile
_LEAST_WIDTH = 16  # of a tile
_WARPS = 4


class Given(NamedTuple):
    """What the kernel reads besides inner products."""

    # [5, t, n] of each sample: its squared length; its inner product with its residual; the factor
    # of the correction for leaving it out; its distance to its own prototype; and whether it is
    # used
    samples: Tensor
    classes: Tensor  # [t, k] ‖w_k‖² − e_k of each prototype, stretched
    stretch: Tensor  # [t]
    start: Tensor  # [t] the precision to begin with
    centre: Tensor  # [t] that of the prior


def fit(
    inner: Inner,
    labels: Tensor,
    given: Given,
    steps: int,
) -> tuple[Tensor, Tensor]:
    """The precision [t] and the cross-entropy [t, n] of each sample.

    Inner products are in the metric; those of residuals and prototypes are overwritten by
    distances.
    """
    start = given.start
    n_tasks, n_samples, n_classes = inner.products.shape
    precision = start.new_empty(n_tasks)
    losses = inner.products.new_empty(n_tasks, n_samples)
    width = max(_LEAST_WIDTH, triton.next_power_of_2(n_classes))
    memory = Memory.of(
        products=reads(inner.products, "t n k"),
        gram=reads(inner.gram, "t k k"),
        labels=reads(labels, "t n", torch.int64),
        rows=reads(given.samples, "5 t n"),
        classes=reads(given.classes, "t k"),
        stretch=reads(given.stretch, "t"),
        start=reads(start, "t"),
        centre=reads(given.centre, "t"),
        precision=writes(precision, "t"),
        losses=writes(losses, "t n"),
    )
    launch(
        _fit,
        (n_tasks,),
        memory,
        n_tasks=n_tasks,
        n_samples=n_samples,
        n_classes=n_classes,
        steps=steps,
        WIDTH=width,
        ROWS=max(1, _TILE // width),
        num_warps=_WARPS,
    )
    return precision, losses


@triton.jit(do_not_specialize=["steps"])
def _fit(
    products_ptr, gram_ptr, labels_ptr, rows_ptr, classes_ptr, stretch_ptr, start_ptr, centre_ptr, precision_ptr,
    losses_ptr,
    n_tasks, n_samples, n_classes, steps,
    WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    t = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, WIDTH)
    k_inside = k < n_classes
    stretch = tl.load(stretch_ptr + t)
    lengths = tl.load(classes_ptr + t * n_classes + k, k_inside, other=0.0)
    # Between two fields of the rows; a wide integer, also for one task
    apart = (t * 0 + n_tasks) * n_samples
    for first in range(0, n_samples, ROWS):
        i = first + tl.arange(0, ROWS)
        i_inside = i < n_samples
        inside = i_inside[:, None] & k_inside[None, :]
        place = t * n_samples + i
        label = tl.load(labels_ptr + place, i_inside, other=0)
        square = tl.load(rows_ptr + place, i_inside, other=0.0)
        along = tl.load(rows_ptr + apart + place, i_inside, other=0.0)
        part = tl.load(rows_ptr + 2 * apart + place, i_inside, other=0.0)
        own = tl.load(rows_ptr + 3 * apart + place, i_inside, other=0.0)
        product = tl.load(products_ptr + place[:, None] * n_classes + k[None, :], inside, other=0.0)
        of_own = tl.load(
            gram_ptr + (t * n_classes + label[:, None]) * n_classes + k[None, :],
            inside,
            other=0.0,
        )
        toward = along[:, None] - product
        distance = stretch * (square[:, None] - 2 * (product + of_own)) + lengths[None, :]
        distance += part[:, None] * toward * toward
        distance = tl.where(k[None, :] == label[:, None], own[:, None], distance)
        tl.store(products_ptr + place[:, None] * n_classes + k[None, :], distance, inside)
    tl.debug_barrier()

    centre = tl.log(tl.load(centre_ptr + t))
    log_precision = tl.log(tl.load(start_ptr + t))
    for _ in range(steps):
        precision = tl.exp(log_precision)
        slopes = tl.zeros((ROWS,), tl.float32)
        curvatures = tl.zeros((ROWS,), tl.float32)
        for first in range(0, n_samples, ROWS):
            i = first + tl.arange(0, ROWS)
            own, usable, distance, largest, weight = _answers(
                products_ptr, rows_ptr, i, t, k, n_tasks, n_samples, n_classes, precision
            )
            total = tl.sum(weight, axis=1)
            mean = tl.sum(weight * distance, axis=1) / total
            spread = tl.sum(weight * distance * distance, axis=1) / total - mean * mean
            slopes += 0.5 * precision * (own - mean) * usable
            curvatures += 0.25 * precision * precision * tl.maximum(spread, 0.0) * usable
        slope = tl.sum(slopes, axis=0)
        curvature = tl.sum(curvatures, axis=0) + tl.maximum(slope, 0.0)
        step = (slope + log_precision - centre) / (curvature + 1)
        log_precision -= tl.minimum(tl.maximum(step, -1.0), 1.0)

    precision = tl.exp(log_precision)
    tl.store(precision_ptr + t, precision)
    for first in range(0, n_samples, ROWS):
        i = first + tl.arange(0, ROWS)
        own, usable, distance, largest, weight = _answers(
            products_ptr, rows_ptr, i, t, k, n_tasks, n_samples, n_classes, precision
        )
        label = tl.load(labels_ptr + t * n_samples + i, i < n_samples, other=0)
        other = (k < n_classes)[None, :] & (k[None, :] != label[:, None])
        score = tl.where(other, -0.5 * precision * distance, -float("inf"))
        largest = tl.maximum(tl.max(score, axis=1), -1e30)  # of one class there is no other
        total = tl.maximum(tl.sum(tl.exp(score - largest[:, None]), axis=1), 1e-37)
        doubt = tl.log(total) + largest + 0.5 * precision * own
        part = tl.exp(-tl.abs(doubt))
        series = part * (1 - part * (1 / 2 - part * (1 / 3 - part / 4)))  # ln(1 + e) of a small e keeps its digits
        loss = tl.maximum(doubt, 0.0) + tl.where(part < 0.01, series, tl.log(1 + part))
        tl.store(losses_ptr + t * n_samples + i, loss * usable, i < n_samples)


@triton.jit
def _answers(products_ptr, rows_ptr, i, t, k, n_tasks, n_samples, n_classes, precision):
    """Of samples i: distances, scores and likelihoods.

    These are the distance to the own prototype, whether it is used, all distances, the largest
    score, and the likelihoods relative to it.
    """
    inside = i < n_samples
    place = t * n_samples + i
    apart = (t * 0 + n_tasks) * n_samples
    own = tl.load(rows_ptr + 3 * apart + place, inside, other=0.0)
    usable = tl.load(rows_ptr + 4 * apart + place, inside, other=0.0)
    here = inside[:, None] & (k < n_classes)[None, :]
    distance = tl.load(products_ptr + place[:, None] * n_classes + k[None, :], here, other=0.0)
    score = tl.where((k < n_classes)[None, :], -0.5 * precision * distance, -float("inf"))
    largest = tl.max(score, axis=1)
    return own, usable, distance, largest, tl.exp(score - largest[:, None])
