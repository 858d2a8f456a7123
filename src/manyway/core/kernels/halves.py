# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,type-arg"
"""Gradients of a softmax by products of float16 matrices with float32 sums: the errors of logits, written as float16.

Where the digits of float16 do not suffice, a number is written as two halves, x = h + l. Then [h, l, h]·[h', h', l']
is one product of three times the length. It rounds about as float32 does, because l·l' is below that.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from manyway.core.kernels.launch import MAX_PROGRAMS, Memory, launch, reads, writes


def product(left: Tensor, right: Tensor) -> Tensor:
    """[t, n, m] in float32 from float16 matrices [t, n, d] and [t, d, m]."""
    return torch.bmm(left, right, out_dtype=torch.float32) if left.is_cuda else left.float() @ right.float()


def softmax_errors(logits: Tensor, labels: Tensor, costs: Tensor) -> Tensor:
    """Float16 [t, n, 3, k]: (softmax, less 1 at the label) · cost of logits [t, n, k] as h, l, h; labels [t, n]."""
    n_tasks, n_rows, width = logits.shape
    errors = logits.new_empty(n_tasks, n_rows, 3, width, dtype=torch.float16)
    for first in range(0, n_tasks, MAX_PROGRAMS):
        some = slice(first, first + MAX_PROGRAMS)
        _write_errors(logits[some], labels[some], costs[some], errors[some])
    return errors


def _write_errors(logits: Tensor, labels: Tensor, costs: Tensor, errors: Tensor) -> None:
    n_tasks, n_rows, width = logits.shape
    block = triton.next_power_of_2(width)
    rows = max(1, 2048 // block)
    memory = Memory.of(
        logits=reads(logits, "t n k"),
        labels=reads(labels, "t n", torch.int64),
        costs=reads(costs, "t n"),
        errors=writes(errors, "t n 3 k", torch.float16),
    )
    grid = (triton.cdiv(n_rows, rows), n_tasks)
    launch(_softmax_errors, grid, memory, n_rows=n_rows, width=width, ROWS=rows, WIDTH=block)


@triton.jit
def _softmax_errors(
    logits_ptr, labels_ptr, costs_ptr, errors_ptr, n_rows, width, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    t, k = tl.program_id(1).to(tl.int64), tl.arange(0, WIDTH)[None, :]
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    inside = (row < n_rows) & (k < width)
    label = tl.load(labels_ptr + t * n_rows + row, row < n_rows, other=0)
    cost = tl.load(costs_ptr + t * n_rows + row, row < n_rows, other=0.0)
    row = t * n_rows + row
    x = tl.load(logits_ptr + row * width + k, inside, other=-1e30)
    x = tl.exp(x - tl.max(x, 1)[:, None])
    x = (x / tl.sum(x, 1)[:, None] - (k == label)) * cost
    high = x.to(tl.float16)
    errors_ptr += row * (3 * width) + k
    tl.store(errors_ptr, high, inside)
    tl.store(errors_ptr + width, (x - high.to(tl.float32)).to(tl.float16), inside)
    tl.store(errors_ptr + 2 * width, high, inside)
