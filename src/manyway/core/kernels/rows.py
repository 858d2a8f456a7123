# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,type-arg"
"""Gathered rows in one pass: centred and divided by their norm (``unit(table[index] - centre)``), or less other rows.

The plain versions write and read the gathered rows five and three times. Here they are written once.

Also class sums of a gathered support, scaled and centred in the same pass: see ``manyway.core.ops.class_sums``.

Many tasks use the same rows of a class. A program therefore handles one class and a narrow band of its features for
many tasks: the band stays in the multiprocessor's cache, so each feature is read from device memory about once, and not
once per task.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from manyway.core.kernels.launch import Memory, launch, reads, writes

_BAND, _TASKS = 32, 64  # features and tasks of a program
_PROGRAMS = 4096  # as many as keep a GPU busy
MAX_FEATURES = 8192  # a row must fit into registers


def gathered(
    table: Tensor, index: Tensor, centre: Tensor | None, others: Tensor | None = None, of: Tensor | None = None
) -> Tensor:
    """[t, n, d] rows ``index`` [t, n] of a table [m, d].

    With a centre [t, 1, d] they are taken less that and with unit length; with others [t, k, d], less the rows ``of``
    [t, n] of these.
    """
    n_tasks, n_rows = index.shape
    n_features = table.shape[-1]
    found = table.new_empty(n_tasks, n_rows, n_features)
    width = triton.next_power_of_2(n_features)
    rows = max(1, 2048 // width)
    memory = Memory.of(
        table=reads(table, "m d", table.dtype),
        index=reads(index, "t n", torch.int64),
        centre=reads(centre, "t 1 d", table.dtype),
        others=reads(others, "t k d", table.dtype),
        of=reads(of, "t n", torch.int64),
        found=writes(found, "t n d", table.dtype),
    )
    launch(
        _gathered,
        (n_tasks * triton.cdiv(n_rows, rows),),
        memory,
        n_rows=n_rows,
        in_others=1 if others is None else others.shape[1],
        n_features=n_features,
        CENTRE=centre is not None,
        OTHERS=others is not None,
        ROWS=rows,
        WIDTH=width,
        num_warps=4,
    )
    return found


@triton.jit
def _gathered(
    table_ptr, index_ptr, centre_ptr, others_ptr, of_ptr, found_ptr, n_rows, in_others, n_features,
    CENTRE: tl.constexpr, OTHERS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(n_rows, ROWS)  # per task; one axis for both, because only the first may be longer than 65,535
    t = (tl.program_id(0) // blocks).to(tl.int64)
    row, d = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (row < n_rows)[:, None] & (d < n_features)[None, :]
    source = tl.load(index_ptr + t * n_rows + row, row < n_rows, other=0)
    if CENTRE:
        centre = tl.load(centre_ptr + t * n_features + d, d < n_features, other=0.0)
        values = _units(table_ptr, source, centre, inside, n_features, d)
    else:
        values = tl.load(table_ptr + source[:, None] * n_features + d[None, :], inside, other=0.0)
    if OTHERS:
        other = t * in_others + tl.load(of_ptr + t * n_rows + row, row < n_rows, other=0)
        values -= tl.load(others_ptr + other[:, None] * n_features + d[None, :], inside, other=0.0)
    tl.store(found_ptr + (t * n_rows + row[:, None]) * n_features + d[None, :], values, inside)


@triton.jit
def _units(table_ptr, source, centre, inside, n_features, d):
    """Rows of a table less the centre, with unit length; 0 outside."""
    values = tl.load(table_ptr + source[:, None] * n_features + d[None, :], inside, other=0.0) - centre[None, :]
    values = tl.where(inside, values, 0.0)
    # A power of two that brings the largest entry near 1: no square overflows or vanishes, and no digit changes.
    largest = tl.maximum(tl.max(tl.abs(values), axis=1), 1.1754943508222875e-38)
    values *= tl.exp2(-tl.floor(tl.log2(largest)))[:, None]
    # Rounded to the nearest number, as plain code does: a row of one feature is exactly 1 or −1, and opposite rows add
    # up to exactly 0. A sum near 0 would be given a direction by rounding where its length is divided out.
    norm = tl.maximum(tl.sqrt_rn(tl.sum(values * values, axis=1)), 1.1754943508222875e-38)
    return tl.div_rn(values, tl.broadcast_to(norm[:, None], values.shape))


@triton.jit
def _unit_sums(
    table_ptr, index_ptr, starts_ptr, centre_ptr, sums_ptr, n_tasks, n_classes, n_support, n_features,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    t, k, d = (tl.program_id(0) % n_tasks).to(tl.int64), tl.program_id(0) // n_tasks, tl.arange(0, WIDTH)
    centre = tl.load(centre_ptr + t * n_features + d, d < n_features, other=0.0)
    end, total = tl.load(starts_ptr + k + 1), tl.zeros((ROWS, WIDTH), tl.float32)
    for first in range(tl.load(starts_ptr + k), end, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < end)[:, None] & (d < n_features)[None, :]
        source = tl.load(index_ptr + t * n_support + row, row < end, other=0)
        total += _units(table_ptr, source, centre, inside, n_features, d)
    tl.store(sums_ptr + (t * n_classes + k) * n_features + d, tl.sum(total, 0), d < n_features)


def class_sums(
    table: Tensor, index: Tensor, starts: Tensor, factor: Tensor | None, centre: Tensor | None, unit: bool = False
) -> Tensor:
    """[t, k, d] = Σ_s factor·z_s − n_k·centre, over the support rows starts[k]..starts[k+1]-1 of each class.

    Shapes: ``table`` [n, d], ``index`` [t, s] sorted by class, ``starts`` [k+1], ``factor`` and ``centre`` [t, 1, d].
    With ``unit`` they are sums of the rows less the centre, with unit length.
    """
    n_tasks, n_support = index.shape
    n_classes = len(starts) - 1
    n_features = table.shape[1]
    sums = table.new_empty(n_tasks, n_classes, n_features)
    memory = Memory.of(
        table=reads(table, "m d"),
        index=reads(index, "t s", torch.int64),
        starts=reads(starts, "ends", torch.int64),
        factor=reads(factor, "t 1 d"),
        centre=reads(centre, "t 1 d"),
        sums=writes(sums, "t k d"),
    )
    sizes = {"n_tasks": n_tasks, "n_classes": n_classes, "n_support": n_support, "n_features": n_features}
    if unit:  # the programs of a class follow one another: its rows stay in the cache of a multiprocessor
        width = triton.next_power_of_2(n_features)
        rows = max(1, 2048 // width)
        grid = (n_tasks * n_classes,)
        launch(_unit_sums, grid, memory.without("factor"), **sizes, ROWS=rows, WIDTH=width)
        return sums
    bands = triton.cdiv(n_features, _BAND)
    splits = max(1, min(triton.cdiv(n_tasks, _TASKS), triton.cdiv(_PROGRAMS, n_classes * bands)))
    tasks_per_split = triton.cdiv(triton.cdiv(n_tasks, splits), _TASKS) * _TASKS
    launch(
        _class_sums,
        (n_classes * bands * splits,),
        memory,
        **sizes,
        bands=bands,
        splits=splits,
        tasks_per_split=tasks_per_split,
        FACTOR=factor is not None,
        CENTRE=centre is not None,
        BAND=_BAND,
        TASKS=_TASKS,
        ROWS=5,
        num_warps=16,
    )
    return sums


@triton.jit
def _class_sums(
    table_ptr, index_ptr, starts_ptr, factor_ptr, centre_ptr, sums_ptr,
    n_tasks, n_classes, n_support, n_features, bands, splits, tasks_per_split,
    FACTOR: tl.constexpr, CENTRE: tl.constexpr, BAND: tl.constexpr, TASKS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    split = program % splits
    band = (program // splits) % bands
    k = program // (splits * bands)
    d = band * BAND + tl.arange(0, BAND)
    d_inside = d < n_features
    begin = tl.load(starts_ptr + k)
    count = (tl.load(starts_ptr + k + 1) - begin).to(tl.int32)
    for first in range(split * tasks_per_split, min(n_tasks, (split + 1) * tasks_per_split), TASKS):
        t = first + tl.arange(0, TASKS)
        t_inside = t < n_tasks
        t_wide = t.to(tl.int64)
        total = tl.zeros((TASKS, BAND), tl.float32)
        for place in range(0, count, ROWS):
            for step in tl.static_range(ROWS):  # independent loads, issued together
                asked = t < tl.where(place + step < count, n_tasks, 0)
                row = tl.load(index_ptr + t_wide * n_support + begin + place + step, asked, other=0)
                here = asked[:, None] & d_inside[None, :]
                total += tl.load(table_ptr + row[:, None] * n_features + d[None, :], here, other=0.0)
        inside = t_inside[:, None] & d_inside[None, :]
        of_task = t_wide[:, None] * n_features + d[None, :]
        if FACTOR:
            total *= tl.load(factor_ptr + of_task, inside, other=0.0)
        if CENTRE:
            total -= count.to(tl.float32) * tl.load(centre_ptr + of_task, inside, other=0.0)
        tl.store(sums_ptr + (t_wide[:, None] * n_classes + k) * n_features + d[None, :], total, inside)
