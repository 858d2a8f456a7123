# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,type-arg"
"""The steps of TIM on a GPU: ``manyway.methods.gradient.information.descend`` with products in float16.

Float16 has as many digits as TF32 and needs half the bytes and half the time. Sums, softmaxes and Adam's state are
float32. Each sample z is followed by 1, 1 and each w by the two halves of −½‖w‖²: one product makes the logits of a
Euclidean classifier, and the product of slopes and samples also has the sum of the slopes of each class.
"""

from collections.abc import Callable, Sequence
from math import sqrt

import torch
import triton
import triton.language as tl
from torch import Tensor

from manyway.core.kernels.halves import product, write_errors
from manyway.methods.gradient.adam import DECAY, EPS, SQUARE_DECAY


def descend(
    samples: Tensor,
    labels: Tensor,
    start: Tensor,
    weights: Sequence[float],
    query_slopes: Callable[[Tensor], Tensor],
    logit_scale: float,
    lr: float,
    max_iter: int,
) -> Tensor:
    """[t, k, d] the weights after ``max_iter`` steps from samples [t, n, d], labels [t, s] and the start [t, k, d].

    ``weights`` are those of the loss, and ``query_slopes`` gives its derivatives in the logits of the queries.
    """
    (t, n, d), n_support, k = samples.shape, labels.shape[1], start.shape[1]
    depth, width = triton.cdiv(d + 2, 8) * 8, triton.cdiv(k, 8) * 8  # tensor cores take eight numbers at a time
    rows, half = (samples.new_zeros(t, size, depth, dtype=torch.float16) for size in (n, width))
    rows[..., :d], rows[..., d : d + 2] = samples, 1
    times = n / (max(map(abs, weights)) or 1)  # brings the slopes near 1, where float16 loses nothing
    costs = samples.new_full(labels.shape, weights[0] * times / n_support)
    slopes, pulls = rows.new_zeros(t, n, width), samples.new_zeros(t, width, depth)
    w = start.clone(memory_format=torch.contiguous_format)
    mean, square = torch.zeros_like(w), torch.zeros_like(w)
    for step in range(max_iter + 1):
        root = sqrt(1 - SQUARE_DECAY**step)
        size = lr * root / (1 - DECAY**step) if step else 0.0  # the first round only writes w as float16
        _adam[(k, t)](
            pulls, w, mean, square, half, k, d, width, depth, logit_scale / times, size, EPS * root + (step == 0),
            1 - DECAY, 1 - SQUARE_DECAY, WIDTH=triton.next_power_of_2(d),
        )  # fmt: skip
        if step < max_iter:
            logits = product(rows, half.mT)
            write_errors(logits, labels, costs, slopes.unsqueeze(2), k, logit_scale)
            if n_support < n:
                slopes[:, n_support:, :k] = query_slopes(logits[:, n_support:, :k] * logit_scale) * times
            pulls = product(slopes.mT, rows)
    return w


@triton.jit
def _adam(
    pulls_ptr, w_ptr, mean_ptr, square_ptr, half_ptr, n_classes, n_features, width, depth, scale, size, eps,
    fade, square_fade, WIDTH: tl.constexpr,
):  # fmt: skip
    k, t, d = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.arange(0, WIDTH)
    inside, at, there = d < n_features, (t * n_classes + k) * n_features + d, (t * width + k) * depth
    w, mean = tl.load(w_ptr + at, inside, other=0.0), tl.load(mean_ptr + at, inside, other=0.0)
    square = tl.load(square_ptr + at, inside, other=0.0)
    gradient = tl.load(pulls_ptr + there + d, inside, other=0.0) - w * tl.load(pulls_ptr + there + n_features)
    mean += (gradient * scale - mean) * fade
    square += (gradient * scale * gradient * scale - square) * square_fade
    w -= size * mean / (tl.sqrt(square) + eps)
    half = w.to(tl.float16)
    norm = -tl.sum(half.to(tl.float32) * half.to(tl.float32), 0) / 2
    high = norm.to(tl.float16)
    tl.store(w_ptr + at, w, inside)
    tl.store(mean_ptr + at, mean, inside)
    tl.store(square_ptr + at, square, inside)
    tl.store(half_ptr + there + d, half, inside)
    tl.store(half_ptr + there + n_features, high)
    tl.store(half_ptr + there + n_features + 1, (norm - high.to(tl.float32)).to(tl.float16))
