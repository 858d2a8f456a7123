# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,type-arg"
"""Inverse factors of many matrices on a GPU: L⁻¹ of A = LL'; see ``metric.Scatter``.

A matrix is halved until its parts have 64 rows, which a kernel factors and inverts in registers;
all the rest are batched products. The batched factor of the solver library takes longer than this
inverse, and triangular systems would have to be solved after it.
"""

import triton
import triton.language as tl
from torch import Tensor

from manyway.core.kernels.launch import Memory, launch, writes_part

_LEAST_SIZE = 16  # of a tile
_PART = 64  # a part of so many rows and columns fits into registers


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
        _invert,
        (len(matrices),),
        Memory.of(matrix=writes_part(matrices, "t n n")),
        size=size,
        of_task=matrices.stride(0),
        of_row=matrices.stride(1),
        SIZE=max(_LEAST_SIZE, triton.next_power_of_2(size)),
        num_warps=1,
    )


@triton.jit
def _invert(matrix_ptr, size, of_task, of_row, SIZE: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, SIZE)
    rows, columns = k[:, None], k[None, :]
    inside = (rows < size) & (columns < size)
    # Outside of the block the matrix is the identity, and so is its inverse factor. The lower
    # triangle is mirrored.
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
