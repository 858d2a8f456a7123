# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,type-arg"
"""``representation`` on a GPU: kernels that read each row once per stage.

The rows of many tasks are the largest arrays of a calibration. The plain code goes through them
dozens of times, an operation at a time. Here a program handles a few whole rows (``represented``,
``class_sums``), or a band of columns in all rows of a task (``columns_of``, ``moments``), whose
second and third reading comes from the cache. Rows may be read from the table that tasks have in
common, by their index. All sums are in float32 and have a fixed order.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from manyway.core.kernels.launch import Memory, launch, reads, writes

MAX_FEATURES = 8192  # a row must fit into registers
_TILE = 2048  # numbers that a program holds of the rows
_BAND = 128  # columns of a program that goes through all rows
_LEAST_WIDTH = 16  # of a tile
_WARPS = 4


class Columns(NamedTuple):
    """How the columns of some tasks are distributed."""

    lowest: Tensor  # [t, 1, d] of all rows
    largest: Tensor  # [t, 1, d] of the rows that are looked at, less the lowest
    variance: Tensor  # [t, 1, d]
    skewness: Tensor  # [t, 1, d]; 0 of a constant column


class Curve(NamedTuple):
    """What rows become first: sign(x − a) |x − a|^p. One row serves all tasks."""

    lowest: Tensor  # [t, 1, d] a
    power: Tensor  # [t, 1, 1] p


class Place(NamedTuple):
    """What they become then: v = (y − m)·w, and its length. One row serves all tasks."""

    middle: Tensor  # [t, 1, d] m
    weights: Tensor  # [t, 1, d] w
    columns: Tensor  # [t, 1, 1] N
    shortening: Tensor  # [t, 1, 1] h


class Order(NamedTuple):
    """The rows of each class."""

    rows: Tensor  # [t, n] places of rows, class by class
    starts: Tensor  # [t, k + 1] where the rows of each class begin, and the last ones end


def columns_of(table: Tensor, index: Tensor, every: int) -> Columns:
    """The columns of the rows ``index`` [t, n] of a table [m, d].

    The lowest value is that of all rows; ``every`` so many of them say the rest.
    """
    n_tasks, n_rows = index.shape
    n_features = table.shape[-1]
    found = table.new_empty(len(Columns._fields), n_tasks, 1, n_features)
    band = _band(n_features)
    memory = Memory.of(
        table=reads(table, "m d"),
        index=reads(index, "t n", torch.int64),
        found=writes(found, "4 t 1 d"),
    )
    launch(
        _columns_of,
        (n_tasks * triton.cdiv(n_features, band),),
        memory,
        n_tasks=n_tasks,
        n_rows=n_rows,
        n_shown=triton.cdiv(n_rows, every),
        every=every,
        n_features=n_features,
        BAND=band,
        ROWS=_TILE // band,
        num_warps=_WARPS,
    )
    return Columns(*found.unbind())


def represented(
    rows: Tensor,
    index: Tensor | None = None,
    curve: Curve | None = None,
    place: Place | None = None,
) -> Tensor:
    """[t, n, d] rows with a curve, placed and shortened, as far as these are given.

    The rows are [t, n, d]; or with an index [t, n], those of a table [m, d].
    """
    shape = (*(rows.shape[:2] if index is None else index.shape), rows.shape[-1])
    found = rows.new_empty(shape)
    _represent(rows, index, curve, place, placed=found, squares=None)
    return found


def squared_lengths(rows: Tensor, place: Place) -> Tensor:
    """[t, n, 1] ‖v‖² of rows [t, n, d]."""
    found = rows.new_empty(*rows.shape[:2], 1)
    _represent(rows, None, None, place, placed=None, squares=found)
    return found


def _represent(
    rows: Tensor,
    index: Tensor | None,
    curve: Curve | None,
    place: Place | None,
    *,
    placed: Tensor | None,
    squares: Tensor | None,
) -> None:
    """Write placed rows [t, n, d], or their squared lengths before they are shortened [t, n, 1]."""
    out = squares if placed is None else placed
    assert out is not None
    n_tasks, n_rows = out.shape[:2]
    n_features = rows.shape[-1]
    width = max(_LEAST_WIDTH, triton.next_power_of_2(n_features))
    rows_at_once = max(1, _TILE // width)
    lowest, power = curve or (None, None)
    middle, weights, columns, shortening = place or (None, None, None, None)
    given = [*(curve or ()), *(place or ())]
    memory = Memory.of(
        rows=reads(rows, "t n d" if index is None else "m d"),
        index=reads(index, "t n", torch.int64),
        lowest=reads(lowest, "p 1 d"),
        power=reads(power, "p 1 1"),
        middle=reads(middle, "p 1 d"),
        weights=reads(weights, "p 1 d"),
        columns=reads(columns, "p 1 1"),
        shortening=reads(shortening, "p 1 1"),
        out=writes(out, "t n d" if squares is None else "t n 1"),
    )
    launch(
        _represented,
        (n_tasks * triton.cdiv(n_rows, rows_at_once),),
        memory,
        n_rows=n_rows,
        n_features=n_features,
        GATHER=index is not None,
        CURVE=curve is not None,
        PLACE=place is not None,
        LENGTHS=squares is not None,
        # Whether parameters are those of each task, or of all
        EACH=all(len(one) == n_tasks for one in given),
        ROWS=rows_at_once,
        WIDTH=width,
        num_warps=_warps(width),
    )


def class_sums(
    rows: Tensor, order: Order, weights: Tensor | None = None, curve: Curve | None = None
) -> Tensor:
    """[t, k, d] the sums of the rows [m, d] of each class, with a curve if one is given.

    ``weights`` [t, n] are those of the rows in their order; None: all are 1.
    """
    n_tasks, n_rows = order.rows.shape
    n_classes = order.starts.shape[1] - 1
    n_features = rows.shape[-1]
    sums = rows.new_empty(n_tasks, n_classes, n_features)
    width = max(_LEAST_WIDTH, triton.next_power_of_2(n_features))
    of_curve = curve or (None, None)
    memory = Memory.of(
        rows=reads(rows, "m d"),
        order=reads(order.rows, "t n", torch.int64),
        starts=reads(order.starts, "t ends", torch.int64),
        factors=reads(weights, "t n"),
        lowest=reads(of_curve[0], "t 1 d"),
        power=reads(of_curve[1], "t 1 1"),
        sums=writes(sums, "t k d"),
    )
    launch(
        _class_sums,
        (n_tasks * n_classes,),
        memory,
        n_rows=n_rows,
        n_classes=n_classes,
        n_features=n_features,
        WEIGHTED=weights is not None,
        CURVE=curve is not None,
        ROWS=max(1, _TILE // width),
        WIDTH=width,
        num_warps=_warps(width),
    )
    return sums


class PowerSums(NamedTuple):
    """Weighted sums over rows, for each column [t, 1, d]."""

    squares: Tensor
    fourths: Tensor  # of fourth powers; 0 where rows have middles of their own


def moments(
    rows: Tensor,
    middles: Tensor,
    weights: Tensor,
    factors: Tensor | None = None,
    of: Tensor | None = None,
) -> PowerSums:
    """Sums over rows [t, n, d] with weights [t, n].

    They are taken relative to the one row of ``middles`` [t, m, d], or to the rows ``of`` [t, n] of
    these, and times ``factors`` [t, 1, d]; None: as they are.
    """
    n_tasks, n_rows, n_features = rows.shape
    found = rows.new_empty(2, n_tasks, 1, n_features)
    band = _band(n_features)
    memory = Memory.of(
        rows=reads(rows, "t n d"),
        middles=reads(middles, "t m d"),
        factors=reads(factors, "t 1 d"),
        of=reads(of, "t n", torch.int64),
        weights=reads(weights, "t n"),
        found=writes(found, "2 t 1 d"),
    )
    launch(
        _moments,
        (n_tasks * triton.cdiv(n_features, band),),
        memory,
        n_tasks=n_tasks,
        n_rows=n_rows,
        n_middles=middles.shape[1],
        n_features=n_features,
        FACTORS=factors is not None,
        OF=of is not None,
        BAND=band,
        ROWS=_TILE // band,
        num_warps=_WARPS,
    )
    return PowerSums(*found)


def _warps(width: int) -> int:
    """For whole rows: those of many columns fit into the registers of more threads."""
    return _WARPS * max(1, width // _TILE)


def _band(n_features: int) -> int:
    width: int = triton.next_power_of_2(n_features)
    return min(_BAND, max(_LEAST_WIDTH, width))


@triton.jit
def _curved(x, power):
    """sign(x) |x|^p as x · 2^((p − 1) log₂ |x|): p = 1 changes no digit, and 0 stays 0."""
    logs = tl.log2(tl.maximum(tl.abs(x), 1.1754943508222875e-38))
    return x * tl.exp2((power - 1) * logs)


@triton.jit
def _columns_of(
    table_ptr, index_ptr, found_ptr, n_tasks, n_rows, n_shown, every, n_features,
    BAND: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    bands = tl.cdiv(n_features, BAND)
    t = (tl.program_id(0) // bands).to(tl.int64)
    d = tl.program_id(0) % bands * BAND + tl.arange(0, BAND)
    table_ptr += d[None, :]
    index_ptr += t * n_rows
    i = tl.arange(0, ROWS)
    lowest = tl.full((ROWS, BAND), float("inf"), tl.float32)
    for first in range(0, n_rows, ROWS):
        inside = (first + i < n_rows)[:, None] & (d < n_features)[None, :]
        source = tl.load(index_ptr + first + i, first + i < n_rows, other=0)
        x = tl.load(table_ptr + source[:, None] * n_features, inside, other=float("inf"))
        lowest = tl.minimum(lowest, x)
    low = tl.min(lowest, axis=0)
    total = tl.zeros((ROWS, BAND), tl.float32)
    largest = tl.zeros((ROWS, BAND), tl.float32)
    for first in range(0, n_shown, ROWS):
        x, inside = _shown(table_ptr, index_ptr, first + i, d, n_shown, every, n_features)
        x = tl.where(inside, x - low[None, :], 0.0)
        total += x
        largest = tl.maximum(largest, x)
    mean = tl.sum(total, axis=0) / n_shown
    squares = tl.zeros((ROWS, BAND), tl.float32)
    for first in range(0, n_shown, ROWS):
        x, inside = _shown(table_ptr, index_ptr, first + i, d, n_shown, every, n_features)
        x = tl.where(inside, x - low[None, :] - mean[None, :], 0.0)
        squares += x * x
    variance = tl.sum(squares, axis=0) / n_shown
    scale = tl.sqrt(tl.where(variance > 0, variance, 1.0))
    cubes = tl.zeros((ROWS, BAND), tl.float32)
    for first in range(0, n_shown, ROWS):
        x, inside = _shown(table_ptr, index_ptr, first + i, d, n_shown, every, n_features)
        x = tl.where(inside, x - low[None, :] - mean[None, :], 0.0) / scale[None, :]
        cubes += x * x * x
    skewness = tl.where(variance > 0, tl.sum(cubes, axis=0) / n_shown, 0.0)
    place = found_ptr + t * n_features + d
    apart = (t * 0 + n_tasks) * n_features  # a wide integer, also for one task
    tl.store(place, low, d < n_features)
    tl.store(place + apart, tl.max(largest, axis=0), d < n_features)
    tl.store(place + 2 * apart, variance, d < n_features)
    tl.store(place + 3 * apart, skewness, d < n_features)


@triton.jit
def _shown(table_ptr, index_ptr, row, d, n_shown, every, n_features):
    """Some of the rows that are looked at, and where there are any."""
    inside = (row < n_shown)[:, None] & (d < n_features)[None, :]
    source = tl.load(index_ptr + row * every, row < n_shown, other=0)
    return tl.load(table_ptr + source[:, None] * n_features, inside, other=0.0), inside


@triton.jit
def _represented(
    rows_ptr, index_ptr, lowest_ptr, power_ptr, middle_ptr, weights_ptr, columns_ptr, shortening_ptr, out_ptr,
    n_rows, n_features,
    GATHER: tl.constexpr, CURVE: tl.constexpr, PLACE: tl.constexpr, LENGTHS: tl.constexpr, EACH: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(n_rows, ROWS)  # of a task
    t = (tl.program_id(0) // blocks).to(tl.int64)
    row = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, WIDTH)
    d_inside = d < n_features
    inside = (row < n_rows)[:, None] & d_inside[None, :]
    place = t * n_rows + row
    source = place
    if GATHER:
        source = tl.load(index_ptr + place, row < n_rows, other=0)
    x = tl.load(rows_ptr + source[:, None] * n_features + d[None, :], inside, other=0.0)
    of = t * 0
    if EACH:
        of = t
    if CURVE:
        x -= tl.load(lowest_ptr + of * n_features + d, d_inside, other=0.0)[None, :]
        x = _curved(x, tl.load(power_ptr + of))
    if PLACE:
        x -= tl.load(middle_ptr + of * n_features + d, d_inside, other=0.0)[None, :]
        x *= tl.load(weights_ptr + of * n_features + d, d_inside, other=0.0)[None, :]
        square = tl.sum(x * x, axis=1)  # the weights outside are 0
        if LENGTHS:
            tl.store(out_ptr + place, square, row < n_rows)
        else:
            part = tl.maximum(square / tl.load(columns_ptr + of), 1.1754943508222875e-38)
            half = -0.5 * tl.load(shortening_ptr + of)
            x *= tl.exp2(half * tl.log2(part))[:, None]
    if not LENGTHS:
        tl.store(out_ptr + place[:, None] * n_features + d[None, :], x, inside)


@triton.jit
def _class_sums(
    rows_ptr, order_ptr, starts_ptr, factors_ptr, lowest_ptr, power_ptr, sums_ptr, n_rows, n_classes, n_features,
    WEIGHTED: tl.constexpr, CURVE: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    t = (tl.program_id(0) // n_classes).to(tl.int64)
    k = tl.program_id(0) % n_classes
    d = tl.arange(0, WIDTH)
    starts_ptr += t * (n_classes + 1) + k
    end = tl.load(starts_ptr + 1)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    if CURVE:
        low = tl.load(lowest_ptr + t * n_features + d, d < n_features, other=0.0)
        power = tl.load(power_ptr + t)
    for first in range(tl.load(starts_ptr), end, ROWS):
        place = first + tl.arange(0, ROWS)
        inside = (place < end)[:, None] & (d < n_features)[None, :]
        row = tl.load(order_ptr + t * n_rows + place, place < end, other=0)
        x = tl.load(rows_ptr + row[:, None] * n_features + d[None, :], inside, other=0.0)
        if CURVE:
            x = tl.where(inside, _curved(x - low[None, :], power), 0.0)
        if WEIGHTED:
            x *= tl.load(factors_ptr + t * n_rows + place, place < end, other=0.0)[:, None]
        total += x
    here = (t * n_classes + k) * n_features + d
    tl.store(sums_ptr + here, tl.sum(total, axis=0), d < n_features)


@triton.jit
def _moments(
    rows_ptr, middles_ptr, factors_ptr, of_ptr, weights_ptr, found_ptr,
    n_tasks, n_rows, n_middles, n_features,
    FACTORS: tl.constexpr, OF: tl.constexpr, BAND: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    bands = tl.cdiv(n_features, BAND)
    t = (tl.program_id(0) // bands).to(tl.int64)
    d = tl.program_id(0) % bands * BAND + tl.arange(0, BAND)
    d_inside = d < n_features
    middles_ptr += t * n_middles * n_features + d[None, :]
    middle = tl.load(middles_ptr, d_inside[None, :], other=0.0)
    if FACTORS:
        factor = tl.load(factors_ptr + t * n_features + d[None, :], d_inside[None, :], other=0.0)
    squares = tl.zeros((ROWS, BAND), tl.float32)
    fourths = tl.zeros((ROWS, BAND), tl.float32)
    for first in range(0, n_rows, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < n_rows)[:, None] & d_inside[None, :]
        place = t * n_rows + row
        x = tl.load(rows_ptr + place[:, None] * n_features + d[None, :], inside, other=0.0)
        if OF:
            of = tl.load(of_ptr + place, row < n_rows, other=0)
            x -= tl.load(middles_ptr + of[:, None] * n_features, inside, other=0.0)
        else:
            x -= middle
        if FACTORS:
            x *= factor
        weight = tl.load(weights_ptr + place, row < n_rows, other=0.0)[:, None]  # 0 outside
        squares += weight * x * x
        if not OF:
            fourths += weight * x * x * x * x
    found_ptr += t * n_features + d
    apart = (t * 0 + n_tasks) * n_features  # a wide integer, also for one task
    tl.store(found_ptr, tl.sum(squares, axis=0), d_inside)
    tl.store(found_ptr + apart, tl.sum(fourths, axis=0), d_inside)
