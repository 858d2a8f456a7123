# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,type-arg"
"""Gradients of a softmax by products of float16 matrices with float32 sums: the errors of logits, written as float16.

Where the digits of float16 do not suffice, a number is written as two halves, x = h + l. Then [h, l, h]·[h', h', l']
is one product of three times the length. It rounds about as float32 does, because l·l' is below that.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


def product(left: Tensor, right: Tensor) -> Tensor:
    """[t, n, m] in float32 from float16 matrices [t, n, d] and [t, d, m]."""
    return torch.bmm(left, right, out_dtype=torch.float32) if left.is_cuda else left.float() @ right.float()


def write_errors(logits: Tensor, labels: Tensor, costs: Tensor, errors: Tensor, n_classes: int, scale: float) -> Tensor:
    """Fill float16 errors [t, n, r, m] with (softmax of scale·logits, less 1 at the label) · cost, and return them.

    The first rows of logits [t, n, m] have labels and costs, [t, s]; others are left alone, and classes from
    ``n_classes`` on have error 0. With r = 3, the errors are written as h, l and h.
    """
    (n_tasks, n_rows, width), n_labelled = logits.shape, labels.shape[1]
    block = triton.next_power_of_2(width)
    rows = max(1, 2048 // block)
    tensors = (logits.contiguous(), labels.contiguous(), costs.contiguous(), errors)
    _write_errors[(triton.cdiv(n_labelled, rows), n_tasks)](
        *tensors, n_rows, n_labelled, width, n_classes, scale, PARTS=errors.shape[2], ROWS=rows, WIDTH=block
    )
    return errors


@triton.jit
def _write_errors(
    logits_ptr, labels_ptr, costs_ptr, errors_ptr, n_rows, n_labelled, width, n_classes, scale,
    PARTS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    t, k = tl.program_id(1).to(tl.int64), tl.arange(0, WIDTH)[None, :]
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (row < n_labelled)[:, None] & (k < width)
    label = tl.load(labels_ptr + t * n_labelled + row, row < n_labelled, other=0)[:, None]
    cost = tl.load(costs_ptr + t * n_labelled + row, row < n_labelled, other=0.0)[:, None]
    row = t * n_rows + row[:, None]
    x = tl.where(inside & (k < n_classes), tl.load(logits_ptr + row * width + k, inside, other=0.0) * scale, -1e30)
    x = tl.exp(x - tl.max(x, 1)[:, None])
    x = (x / tl.sum(x, 1)[:, None] - (k == label)) * cost
    high = x.to(tl.float16)
    errors_ptr += row * (PARTS * width) + k
    tl.store(errors_ptr, high, inside)
    if PARTS == 3:
        tl.store(errors_ptr + width, (x - high.to(tl.float32)).to(tl.float16), inside)
        tl.store(errors_ptr + 2 * width, high, inside)
