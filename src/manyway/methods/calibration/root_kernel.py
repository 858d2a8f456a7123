# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,type-arg"
"""Inverse factors of many matrices on a GPU: L⁻¹ of A = LL'; see ``metric.Scatter``.

A matrix is halved until its parts have 64 rows, which a kernel factors and inverts in registers, in quarters; all the
rest are batched products. The batched factor of the solver library takes longer than this inverse, and triangular
systems would have to be solved after it.
"""

import triton
import triton.language as tl
from torch import Tensor

_PART = 64  # a part of so many rows and columns fits into the registers of one warp


def inverse_root(matrices: Tensor) -> Tensor:
    """[t, n, n] L⁻¹ of matrices [t, n, n], of which the lower triangle is read; they are overwritten by it."""
    size = matrices.shape[-1]
    if size <= _PART:
        half = 16 if size <= 32 else 32
        _invert[(len(matrices),)](matrices, size, *matrices.stride()[:2], HALF=half, num_warps=1)
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
def _invert(matrix_ptr, size, of_task, of_row, HALF: tl.constexpr):
    at = matrix_ptr + tl.program_id(0).to(tl.int64) * of_task
    top = _inverse(_quarter(at, 0, 0, size, of_row, HALF), HALF)
    below = tl.dot(_quarter(at, HALF, 0, size, of_row, HALF), tl.trans(top), input_precision="tf32x3")
    rest = _quarter(at, HALF, HALF, size, of_row, HALF)
    rest = _inverse(rest - tl.dot(below, tl.trans(below), input_precision="tf32x3"), HALF)
    below = tl.dot(below, top, input_precision="tf32x3")
    below = -tl.dot(rest, below, input_precision="tf32x3")
    _store(at, top, 0, 0, size, of_row, HALF)
    _store(at, tl.zeros((HALF, HALF), tl.float32), 0, HALF, size, of_row, HALF)
    _store(at, below, HALF, 0, size, of_row, HALF)
    _store(at, rest, HALF, HALF, size, of_row, HALF)


@triton.jit
def _quarter(at, row, column, size, of_row, HALF: tl.constexpr):
    """A quarter of the matrix, whose lower triangle is mirrored. Outside it is the identity, as is its inverse."""
    row, column = row + tl.arange(0, HALF)[:, None], column + tl.arange(0, HALF)[None, :]
    low, high = tl.maximum(row, column), tl.minimum(row, column)
    found = tl.load(at + low * of_row + high, low < size, other=0.0)
    return tl.where((low >= size) & (row == column), 1.0, found)


@triton.jit
def _store(at, values, row, column, size, of_row, HALF: tl.constexpr):
    row, column = row + tl.arange(0, HALF)[:, None], column + tl.arange(0, HALF)[None, :]
    tl.store(at + row * of_row + column, values, (row < size) & (column < size))


@triton.jit
def _inverse(matrix, SIZE: tl.constexpr):
    """L⁻¹ of a symmetric matrix."""
    k = tl.arange(0, SIZE)
    rows, columns = k[:, None], k[None, :]
    inverse = tl.where(rows == columns, 1.0, 0.0)
    for j in range(SIZE):
        # The step takes column j of L out of the matrix, and the same rows out of the identity.
        column = tl.sum(tl.where(columns == j, matrix, 0.0), axis=1)
        pivot = tl.maximum(tl.sum(tl.where(k == j, column, 0.0), axis=0), 1e-20)
        factor = 1 / tl.sqrt(pivot)
        below = tl.where(k > j, column * factor, 0.0)
        matrix -= below[:, None] * below[None, :]
        row = tl.sum(tl.where(rows == j, inverse, 0.0), axis=0) * factor
        inverse = tl.where(rows == j, row[None, :], inverse - below[:, None] * row[None, :])
    return inverse
