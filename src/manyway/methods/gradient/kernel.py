# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,type-arg"
"""The steps of TIM on a GPU: ``manyway.methods.gradient.information.descend`` with products in float16.

Float16 has as many digits as TF32 and needs half the bytes and half the time. Sums, softmaxes and Adam's state are
float32. A step goes twice over the samples, in two kernels: the first writes the slopes, so that no logit leaves the
chip; the second multiplies slopes and samples and takes the step of Adam, so that no gradient does. Samples and w lie
in chunks of 64 features, [t, chunk, n, 64], so that a program reads memory in long stretches.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from manyway.core.kernels import two_blocks
from manyway.core.kernels.launch import MAX_PROGRAMS, Memory, launch, reads, writes
from manyway.methods.gradient import DECAY, EPS, SQUARE_DECAY

STEP = 64  # samples or features of one product


def query_rows(n_query: int) -> int:
    """The rows of the program that has all queries of a task, because it needs their mean."""
    return int(max(16, triton.next_power_of_2(n_query)))


def fits(n_classes: int, n_query: int) -> bool:
    """Whether the registers of a program hold the logits of its samples."""
    width = sum(two_blocks(n_classes))
    return width <= 256 and query_rows(n_query) * width <= 40960


def descend(
    samples: Tensor, labels: Tensor, start: Tensor, loss: tuple[Any, Any], logit_scale: float, lr: float, max_iter: int
) -> Tensor:
    """[t, k, d] the weights after ``max_iter`` steps from samples [t, n, d], labels [t, s] and the start [t, k, d].

    ``loss`` is its weights and its alphas.
    """
    how: dict[str, Any] = {"loss": loss, "logit_scale": logit_scale, "lr": lr, "max_iter": max_iter}
    groups = zip(*(values.split(MAX_PROGRAMS) for values in (samples, labels, start)), strict=True)
    found = [_descend(rows, names, begin, **how) for rows, names, begin in groups]
    return found[0] if len(found) == 1 else torch.cat(found)


def _descend(
    samples: Tensor,
    labels: Tensor,
    start: Tensor,
    *,
    loss: tuple[Any, Any],
    logit_scale: float,
    lr: float,
    max_iter: int,
) -> Tensor:
    """The same for as many tasks as a grid can have."""
    weights, (marginal_order, conditional_order) = loss
    n_tasks, n_samples, n_features = samples.shape
    n_support = labels.shape[1]
    n_query = n_samples - n_support
    n_classes = start.shape[1]
    state = _Workspace.of(samples, labels, start)
    times = n_samples / (max(map(abs, weights)) or 1)  # brings the slopes near 1, where float16 loses nothing
    slopes_of = {
        "n_classes": n_classes,
        "n_support": n_support,
        "n_query": n_query,
        "scale": logit_scale,
        "cost": weights[0] * times / n_support,
        "marginal": weights[1] * times / (n_query or 1),
        "conditional": weights[2] * times / (n_query or 1),
        "A": marginal_order,
        "B": conditional_order,
    }
    for step in range(max_iter + 1):
        root = sqrt(1 - SQUARE_DECAY**step)
        launch(
            _move,
            (state.n_chunks, n_tasks),
            state.to_move,
            n_rows=state.n_rows,
            n_blocks=state.n_blocks + 1,
            n_classes=n_classes,
            n_used=state.n_rows if step else 0,
            scale=logit_scale / times,
            size=lr * root / (1 - DECAY**step) if step else 0.0,  # the first round only writes w as float16
            eps=EPS * root + (step == 0),
            fade=1 - DECAY,
            square_fade=1 - SQUARE_DECAY,
            **state.shape,
            num_warps=4,
            num_stages=4,
        )
        if step < max_iter:
            state.write_slopes(slopes_of)
    return state.w[..., :n_features]


@dataclass(frozen=True, eq=False)
class _Workspace:
    """The memory of the two kernels, and how the work is divided into programs."""

    n_chunks: int  # of STEP features
    n_rows: int  # of samples, a multiple of STEP
    n_blocks: int  # of the support
    shape: dict[str, int]  # of all kernels
    support_options: dict[str, int]  # of the kernel that writes the slopes of the support
    w: Tensor  # [t, k, chunks · STEP]
    to_slopes: Memory
    to_move: Memory

    def write_slopes(self, of_loss: dict[str, Any]) -> None:
        """The slopes of the support and, where the loss has terms for them, of the queries."""
        n_tasks = len(self.w)
        given = {
            "n_rows": self.n_rows,
            "n_blocks": self.n_blocks + 1,
            "n_chunks": self.n_chunks,
            **of_loss,
            **self.shape,
        }
        support = (self.n_blocks, n_tasks)
        launch(_write_slopes, support, self.to_slopes, **given, QUERIES=False, **self.support_options)
        if of_loss["n_query"]:
            options = {"QUERIES": True, "ROWS": query_rows(of_loss["n_query"]), "num_warps": 8}
            launch(_write_slopes, (1, n_tasks), self.to_slopes, **given, **options)

    @staticmethod
    def of(samples: Tensor, labels: Tensor, start: Tensor) -> "_Workspace":
        n_tasks, n_samples, n_features = samples.shape
        n_classes = start.shape[1]
        first, second = two_blocks(n_classes)
        width = first + second
        n_chunks = triton.cdiv(n_features, STEP)
        n_rows = triton.cdiv(n_samples, STEP) * STEP
        # Four warps share more of w than eight; where they would need too many registers, programs take turns at
        # memory.
        support_options = {"ROWS": 128, "num_warps": 4}
        if width > 160:
            support_options = {"ROWS": 64, "num_warps": 8, "maxnreg": 128}
        n_blocks = triton.cdiv(labels.shape[1], support_options["ROWS"])
        rows = samples.new_zeros(n_tasks, n_chunks, n_rows, STEP, dtype=torch.float16)
        for chunk, values in enumerate(samples.split(STEP, dim=2)):
            rows[:, chunk, :n_samples, : values.shape[2]] = values
        w = start.new_zeros(n_tasks, n_classes, n_chunks * STEP)
        w[..., :n_features] = start
        both = {
            "rows": writes(rows, "t chunks rows step", torch.float16),
            "half": writes(rows.new_zeros(n_tasks, n_chunks, width, STEP), "t chunks width step", torch.float16),
            "norms": writes(samples.new_zeros(n_tasks, n_chunks, width), "t chunks width"),
            "slopes": writes(rows.new_zeros(n_tasks, n_rows, width), "t rows width", torch.float16),
            "masses": writes(samples.new_zeros(n_tasks, n_blocks + 1, width), "t blocks width"),
        }
        to_move = Memory.of(
            **both,
            w=writes(w, "t k depth"),
            mean=writes(torch.zeros_like(w), "t k depth"),
            square=writes(torch.zeros_like(w), "t k depth"),
        )
        to_slopes = Memory.of(**both, labels=reads(labels, "t s", torch.int32))
        return _Workspace(
            n_chunks=n_chunks,
            n_rows=n_rows,
            n_blocks=n_blocks,
            shape={"FIRST": first, "SECOND": second, "STEP": STEP},
            support_options=support_options,
            w=w,
            to_slopes=to_slopes,
            to_move=to_move,
        )


@triton.jit
def _slope(p, ORDER: tl.constexpr):
    """The derivative of −H_α in p, up to a constant."""
    log_p = tl.log(tl.maximum(p, 1e-37))  # what is smaller has no slope that float16 could hold
    if ORDER != 1:
        log_p = (tl.exp((ORDER - 1) * log_p) - 1) * (ORDER / (ORDER - 1))
    return log_p


@triton.jit
def _total(ptr, n, first, WIDTH: tl.constexpr, SIZE: tl.constexpr):
    """The sums over n rows for the classes from the first on."""
    k, row, total = first + tl.arange(0, SIZE), tl.arange(0, 16)[:, None], tl.zeros((SIZE,), tl.float32)
    for begin in range(0, n, 16):
        total += tl.sum(tl.load(ptr + (begin + row) * WIDTH + k[None, :], begin + row < n, other=0.0), 0)
    return total


@triton.jit
def _write_slopes(
    rows_ptr, half_ptr, norms_ptr, labels_ptr, slopes_ptr, masses_ptr, n_rows, n_blocks, n_classes, n_support,
    n_query, n_chunks, scale, cost, marginal, conditional, A: tl.constexpr, B: tl.constexpr, QUERIES: tl.constexpr,
    ROWS: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Slopes of one block of the support, or of all queries, as float16, and their sums over the block."""
    WIDTH: tl.constexpr = FIRST + SECOND
    block, t = tl.program_id(0), tl.program_id(1).to(tl.int64)
    begin, end = block * ROWS, n_support
    if QUERIES:
        block, begin, end = n_blocks - 1, n_support, n_support + n_query
    row, d = begin + tl.arange(0, ROWS), tl.arange(0, STEP)
    k1, k2 = tl.arange(0, FIRST), FIRST + tl.arange(0, SECOND)
    inside = (row < end)[:, None]
    z_ptr = rows_ptr + t * n_chunks * n_rows * STEP + tl.minimum(row, end - 1)[:, None] * STEP + d[None, :]
    w_ptr = half_ptr + t * n_chunks * WIDTH * STEP + d[:, None]
    norms_ptr += t * n_chunks * WIDTH
    norms1, norms2 = _total(norms_ptr, n_chunks, 0, WIDTH, FIRST), _total(norms_ptr, n_chunks, FIRST, WIDTH, SECOND)
    x1, x2 = tl.zeros((ROWS, FIRST), tl.float32), tl.zeros((ROWS, SECOND), tl.float32)
    for chunk in range(n_chunks):
        z = tl.load(z_ptr + chunk * n_rows * STEP)
        x1 = tl.dot(z, tl.load(w_ptr + (chunk * WIDTH + k1)[None, :] * STEP), x1)
        x2 = tl.dot(z, tl.load(w_ptr + (chunk * WIDTH + k2)[None, :] * STEP), x2)
    # The logits are τ (zᵀw − ½‖w‖²). Those of the padding's classes are far below all others.
    x1 = tl.where((k1 < n_classes)[None, :], (x1 - norms1[None, :] / 2) * scale, -1e30)
    x2 = tl.where((k2 < n_classes)[None, :], (x2 - norms2[None, :] / 2) * scale, -1e30)
    top = tl.maximum(tl.max(x1, 1), tl.max(x2, 1))[:, None]
    p1, p2 = tl.exp(x1 - top), tl.exp(x2 - top)
    share = tl.where(inside, 1 / (tl.sum(p1, 1) + tl.sum(p2, 1))[:, None], 0.0)
    p1 *= share
    p2 *= share
    if QUERIES:
        pull1 = marginal * _slope(tl.sum(p1, 0) / n_query, A)[None, :] - conditional * _slope(p1, B)
        pull2 = marginal * _slope(tl.sum(p2, 0) / n_query, A)[None, :] - conditional * _slope(p2, B)
        mean = (tl.sum(p1 * pull1, 1) + tl.sum(p2 * pull2, 1))[:, None]
        p1 *= pull1 - mean
        p2 *= pull2 - mean
    else:
        label = tl.load(labels_ptr + t * n_support + row, row < end, other=-1)[:, None]
        p1 = (p1 - (label == k1[None, :])) * cost
        p2 = (p2 - (label == k2[None, :])) * cost
    half1, half2 = p1.to(tl.float16), p2.to(tl.float16)
    slopes_ptr += (t * n_rows + row[:, None]) * WIDTH
    masses_ptr += (t * n_blocks + block) * WIDTH
    tl.store(slopes_ptr + k1[None, :], half1, inside)
    tl.store(slopes_ptr + k2[None, :], half2, inside)
    tl.store(masses_ptr + k1, tl.sum(half1.to(tl.float32), 0))
    tl.store(masses_ptr + k2, tl.sum(half2.to(tl.float32), 0))


@triton.jit
def _move(
    rows_ptr, slopes_ptr, masses_ptr, w_ptr, mean_ptr, square_ptr, half_ptr, norms_ptr, n_rows, n_blocks,
    n_classes, n_used, scale, size, eps, fade, square_fade,
    FIRST: tl.constexpr, SECOND: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """A step of Adam for the features of one chunk; the new w as float16, and its part of the norm."""
    WIDTH: tl.constexpr = FIRST + SECOND
    HALF: tl.constexpr = FIRST // 2
    chunk, t = tl.program_id(0), tl.program_id(1).to(tl.int64)
    d, row = tl.arange(0, STEP), tl.arange(0, STEP)[:, None]
    at_chunk, depth = t * tl.num_programs(0) + chunk, tl.num_programs(0) * STEP
    z_ptr = rows_ptr + at_chunk * n_rows * STEP + row * STEP + d[None, :]
    s_ptr = slopes_ptr + (t * n_rows + row) * WIDTH
    pull1, pull2 = tl.zeros((STEP, FIRST), tl.float32), tl.zeros((STEP, SECOND), tl.float32)
    for at in range(0, n_used, STEP):
        z = tl.trans(tl.load(z_ptr + at * STEP))
        pull1 = tl.dot(z, tl.load(s_ptr + at * WIDTH + tl.arange(0, FIRST)[None, :]), pull1)
        pull2 = tl.dot(z, tl.load(s_ptr + at * WIDTH + FIRST + tl.arange(0, SECOND)[None, :]), pull2)
    # In parts, because all that Adam needs for all classes does not fit into registers.
    low, high = tl.split(tl.permute(tl.reshape(pull1, (STEP, 2, HALF)), (0, 2, 1)))
    at = t * n_classes * depth + chunk * STEP
    state = (w_ptr + at, mean_ptr + at, square_ptr + at, half_ptr + at_chunk * WIDTH * STEP)
    others = (masses_ptr + t * n_blocks * WIDTH, norms_ptr + at_chunk * WIDTH)
    numbers = (n_blocks, n_classes, depth, scale, size, eps, fade, square_fade)
    _adam(low, 0, *state, *others, *numbers, WIDTH, STEP, HALF)
    _adam(high, HALF, *state, *others, *numbers, WIDTH, STEP, HALF)
    _adam(pull2, FIRST, *state, *others, *numbers, WIDTH, STEP, SECOND)


@triton.jit
def _adam(
    pull, first, w_ptr, mean_ptr, square_ptr, half_ptr, masses_ptr, norms_ptr, n_blocks, n_classes, depth,
    scale, size, eps, fade, square_fade, WIDTH: tl.constexpr, STEP: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    k, d = first + tl.arange(0, SIZE), tl.arange(0, STEP)[None, :]
    mass = _total(masses_ptr, n_blocks, first, WIDTH, SIZE)
    inside, at = (k < n_classes)[:, None], k[:, None] * depth + d
    w, mean = tl.load(w_ptr + at, inside, other=0.0), tl.load(mean_ptr + at, inside, other=0.0)
    square = tl.load(square_ptr + at, inside, other=0.0)
    gradient = (tl.trans(pull) - w * mass[:, None]) * scale
    mean += (gradient - mean) * fade
    square += (gradient * gradient - square) * square_fade
    w -= size * mean / (tl.sqrt(square) + eps)
    half = w.to(tl.float16)
    tl.store(w_ptr + at, w, inside)
    tl.store(mean_ptr + at, mean, inside)
    tl.store(square_ptr + at, square, inside)
    tl.store(half_ptr + k[:, None] * STEP + d, half, inside)
    tl.store(norms_ptr + k, tl.sum(half.to(tl.float32) * half.to(tl.float32), 1))
