# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,type-arg"
"""Inverse factors of many matrices on a GPU: L⁻¹ of A = LL'; see ``metric.Scatter``.

The factor is computed in panels of 64 columns. A kernel factors and inverts the block on the diagonal of a panel, in
registers; all the rest are batched products. The batched factor of the solver library takes as long as this inverse,
and triangular systems would have to be solved after it.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_PANEL = 64  # a block of so many rows and columns fits into registers


def inverse_root(matrices: Tensor) -> Tensor:
    """[t, n, n] L⁻¹ of matrices [t, n, n], of which the lower triangle is read; they are overwritten."""
    size = matrices.shape[-1]
    inverse = torch.zeros_like(matrices)
    for first in range(0, size, _PANEL):
        last = min(first + _PANEL, size)
        inner = inverse[:, first:last, first:last]
        invert_blocks(matrices[:, first:last, first:last], inner)
        if first:  # the rows of L left of the block are known
            left = matrices[:, first:last, :first] @ inverse[:, :first, :first]
            inverse[:, first:last, :first].baddbmm_(inner, left, beta=0, alpha=-1)
        if last < size:
            below = matrices[:, last:, first:last] @ inner.mT
            matrices[:, last:, first:last] = below
            matrices[:, last:, last:].baddbmm_(below, below.mT, alpha=-1)
    return inverse


def invert_blocks(blocks: Tensor, inverse: Tensor) -> None:
    """Write L⁻¹ of blocks [t, b, b], of at most 64 rows and columns, to the other tensor; both may be views."""
    size = blocks.shape[-1]
    _invert[(len(blocks),)](
        blocks, inverse,
        size, blocks.stride(0), blocks.stride(1), inverse.stride(0), inverse.stride(1),
        SIZE=max(16, triton.next_power_of_2(size)), num_warps=1,
    )  # fmt: skip


@triton.jit
def _invert(matrix_ptr, inverse_ptr, size, of_task, of_row, to_task, to_row, SIZE: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, SIZE)
    rows, columns = k[:, None], k[None, :]
    inside = (rows < size) & (columns < size)
    # Outside of the block the matrix is the identity, and so is its inverse factor. The lower triangle is mirrored.
    low, high = tl.maximum(rows, columns), tl.minimum(rows, columns)
    matrix = tl.load(matrix_ptr + t * of_task + low * of_row + high, inside, other=0.0)
    matrix = tl.where(inside, matrix, tl.where(rows == columns, 1.0, 0.0))
    inverse = tl.where(rows == columns, 1.0, 0.0)
    for j in range(size):
        # The step takes column j of L out of the matrix, and the same rows out of the identity.
        column = tl.sum(tl.where(columns == j, matrix, 0.0), axis=1)
        pivot = tl.maximum(tl.sum(tl.where(k == j, column, 0.0), axis=0), 1e-20)
        factor = 1 / tl.sqrt(pivot)
        below = tl.where(k > j, column * factor, 0.0)
        matrix -= below[:, None] * below[None, :]
        row = tl.sum(tl.where(rows == j, inverse, 0.0), axis=0) * factor
        inverse = tl.where(rows == j, row[None, :], inverse - below[:, None] * row[None, :])
    tl.store(inverse_ptr + t * to_task + rows * to_row + columns, inverse, inside)
