# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,type-arg"
"""Inverse factors of many matrices on a GPU: L⁻¹ of A = LL'; see ``metric.Scatter``.

A matrix is halved until its parts have 64 rows, which a kernel factors and inverts in registers,
again by halves; all the rest are batched products. The batched factor of the solver library takes longer than this
inverse, and triangular systems would have to be solved after it.
"""

import triton
import triton.language as tl
from torch import Tensor

from manyway.core.kernels.launch import Memory, launch, writes_part

_LEAST_SIZE = 16  # of a tile
_PART = 64  # parts of so many rows and columns are left to a kernel
_HALF = 32  # a part of so many fits into the registers of a warp, with its inverse


def inverse_root(matrices: Tensor) -> Tensor:
    """[t, n, n] L⁻¹ of matrices [t, n, n], of which the lower triangle is read.

    Contiguous ones are overwritten.
    """
    roots = matrices.contiguous()
    _invert_all(roots)
    return roots


def _invert_all(matrices: Tensor) -> None:
    """Overwrite matrices, which may be parts of larger ones, by L⁻¹."""
    size = matrices.shape[-1]
    if size <= _PART:
        _invert_parts(matrices)
        return
    half = _PART << (triton.cdiv(size, _PART) - 1).bit_length() >> 1
    top = matrices[:, :half, :half]
    corner = matrices[:, half:, :half]
    rest = matrices[:, half:, half:]
    _invert_all(top)
    below = corner @ top.mT  # rows of L
    rest.baddbmm_(below, below.mT, alpha=-1)
    _invert_all(rest)
    corner.baddbmm_(rest, below @ top, beta=0, alpha=-1)
    matrices[:, :half, half:].zero_()


def _invert_parts(matrices: Tensor) -> None:
    """The same for matrices that fit into registers."""
    size = matrices.shape[-1]
    launch(
        _invert if size <= _HALF else _invert_by_halves,
        (len(matrices),),
        Memory.of(matrix=writes_part(matrices, "t n n")),
        size=size,
        of_task=matrices.stride(0),
        of_row=matrices.stride(1),
        SIZE=min(_HALF, max(_LEAST_SIZE, triton.next_power_of_2(size))),
        num_warps=1,
    )


@triton.jit
def _invert(matrix_ptr, size, of_task, of_row, SIZE: tl.constexpr):
    matrix_ptr += tl.program_id(0).to(tl.int64) * of_task
    inverse = _inverse(_read(matrix_ptr, size, of_row, SIZE), size, SIZE)
    k = tl.arange(0, SIZE)
    tl.debug_barrier()  # all threads have read the matrix before it is overwritten
    inside = (k < size)[:, None] & (k < size)[None, :]
    tl.store(matrix_ptr + k[:, None] * of_row + k[None, :], inverse, inside)


@triton.jit
def _invert_by_halves(matrix_ptr, size, of_task, of_row, SIZE: tl.constexpr):
    """Of more than SIZE rows, and at most twice as many."""
    matrix_ptr += tl.program_id(0).to(tl.int64) * of_task
    k = tl.arange(0, SIZE)
    here = k[:, None] * of_row + k[None, :]
    corner_ptr = matrix_ptr + SIZE * of_row
    others = size - SIZE
    inside = (k < others)[:, None]
    top = _inverse(_read(matrix_ptr, SIZE, of_row, SIZE), SIZE, SIZE)
    corner = tl.load(corner_ptr + here, inside, other=0.0)
    below = tl.dot(corner, tl.trans(top), input_precision="ieee")  # rows of L
    rest = _read(corner_ptr + SIZE, others, of_row, SIZE)
    rest -= tl.dot(below, tl.trans(below), input_precision="ieee")
    rest = _inverse(rest, others, SIZE)
    moved = tl.dot(below, top, input_precision="ieee")
    corner = -tl.dot(rest, moved, input_precision="ieee")
    tl.debug_barrier()  # all threads have read the matrix before it is overwritten
    tl.store(matrix_ptr + here, top)
    tl.store(matrix_ptr + SIZE + here, tl.zeros((SIZE, SIZE), tl.float32), (k < others)[None, :])
    tl.store(corner_ptr + here, corner, inside)
    tl.store(corner_ptr + SIZE + here, rest, inside & (k < others)[None, :])


@triton.jit
def _read(matrix_ptr, size, of_row, SIZE: tl.constexpr):
    """A matrix, of which the lower triangle is mirrored. Outside it is the identity."""
    k = tl.arange(0, SIZE)
    rows, columns = k[:, None], k[None, :]
    inside = (rows < size) & (columns < size)
    matrix = tl.load(matrix_ptr + rows * of_row + columns, inside, other=0.0)
    matrix = tl.where(rows >= columns, matrix, tl.trans(matrix))
    return tl.where(inside, matrix, tl.where(rows == columns, 1.0, 0.0))


@triton.jit
def _inverse(matrix, size, SIZE: tl.constexpr):
    """The inverse factor of a matrix that is the identity outside, as the factor is."""
    k = tl.arange(0, SIZE)
    rows, columns = k[:, None], k[None, :]
    inverse = tl.where(rows == columns, 1.0, 0.0)
    for j in range(size):
        # The step takes column j of L out of the matrix, and the same rows out of the identity.
        # The matrix is symmetric: its column is its row, which no other thread has a part of.
        column = tl.sum(tl.where(rows == j, matrix, 0.0), axis=0)
        pivot = tl.maximum(tl.sum(tl.where(k == j, column, 0.0), axis=0), 1e-20)
        factor = 1 / tl.sqrt(pivot)
        below = tl.where(k > j, column * factor, 0.0)
        matrix -= below[:, None] * below[None, :]
        row = tl.sum(tl.where(rows == j, inverse, 0.0), axis=0) * factor
        inverse = tl.where(rows == j, row[None, :], inverse - below[:, None] * row[None, :])
    return inverse
