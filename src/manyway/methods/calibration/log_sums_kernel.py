# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,type-arg"
"""``log_sums.log_sums`` as a GPU kernel, with one program for a few rows of distances."""

import triton
import triton.language as tl
from torch import Tensor

from manyway.core.kernels.launch import Memory, launch, reads, writes

MAX_CLASSES = 2048  # the distances of one row must fit into registers
_TILE = 2048  # distances per program
_LEAST_WIDTH = 16  # of a tile
_WARPS = 4


def log_sums(distances: Tensor, precisions: Tensor) -> Tensor:
    """[p, t, n] from distances [t, n, k] and precisions [p, t]."""
    n_tasks, n_rows, n_classes = distances.shape
    sums = distances.new_empty(len(precisions), n_tasks, n_rows)
    width = max(_LEAST_WIDTH, triton.next_power_of_2(n_classes))
    rows = max(1, _TILE // width)
    memory = Memory.of(
        distances=reads(distances, "t n k"),
        precisions=reads(precisions, "p t"),
        sums=writes(sums, "p t n"),
    )
    launch(
        _log_sums,
        (triton.cdiv(n_tasks * n_rows, rows),),
        memory,
        n_precisions=len(precisions),
        n_tasks=n_tasks,
        n_rows=n_rows,
        n_classes=n_classes,
        WIDTH=width,
        ROWS=rows,
        num_warps=_WARPS,
    )
    return sums


@triton.jit(do_not_specialize=["n_precisions"])
def _log_sums(
    distances_ptr, precisions_ptr, sums_ptr,
    n_precisions, n_tasks, n_rows, n_classes,
    WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)  # of rows of all tasks
    # A wide integer: all rows together may be more than 2³¹
    n_places = ((tl.program_id(0) * 0).to(tl.int64) + n_tasks) * n_rows
    row_inside = place < n_places
    task = place // n_rows
    k = tl.arange(0, WIDTH)
    inside = row_inside[:, None] & (k < n_classes)[None, :]
    distance = tl.load(distances_ptr + place[:, None] * n_classes + k[None, :], inside, other=float("inf"))
    nearest = tl.min(distance, axis=1)
    nearest = tl.where(nearest < float("inf"), nearest, 0.0)  # no class may count
    beyond = distance - nearest[:, None]
    for p in range(n_precisions):
        precision = tl.load(precisions_ptr + p * n_tasks + task, row_inside, other=0.0)
        half = 0.5 * precision
        score = tl.where(beyond < float("inf"), -half[:, None] * beyond, -float("inf"))
        total = tl.sum(tl.exp(score), axis=1)
        tl.store(sums_ptr + p * n_places + place, tl.log(total) - half * nearest, row_inside)
