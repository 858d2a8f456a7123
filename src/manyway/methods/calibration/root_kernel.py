# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,type-arg"
"""Inverse factors of many matrices on a GPU: L⁻¹ of A = LL'; see ``metric.Scatter``.

A matrix is halved until its parts have 64 rows, which a kernel factors and inverts in registers; all the rest are
batched products. The batched factor of the solver library takes longer than this inverse, and triangular
systems would have to be solved after it.
"""

import triton
import triton.language as tl
from torch import Tensor

_PART = 64  # a part of so many rows and columns fits into registers


def inverse_root(matrices: Tensor) -> Tensor:
    """[t, n, n] L⁻¹ of matrices [t, n, n], of which the lower triangle is read; they are overwritten by it."""
    size = matrices.shape[-1]
    if size <= _PART:
        width = max(16, triton.next_power_of_2(size))
        _invert[(len(matrices),)](matrices, size, *matrices.stride()[:2], SIZE=width, num_warps=1)
        return matrices
    half = _PART << (triton.cdiv(size, _PART) - 1).bit_length() >> 1
    corner, rest = matrices[:, half:, :half], matrices[:, half:, half:]
    top = inverse_root(matrices[:, :half, :half])
    below = corner @ top.mT  # rows of L
    inverse_root(rest.baddbmm_(below, below.mT, alpha=-1))
    corner.baddbmm_(rest, below @ top, beta=0, alpha=-1)
    matrices[:, :half, half:].zero_()
    return matrices


@triton.jit
def _invert(matrix_ptr, size, of_task, of_row, SIZE: tl.constexpr):
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
    tl.store(matrix_ptr + t * of_task + rows * of_row + columns, inverse, inside)
