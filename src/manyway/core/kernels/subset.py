# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,type-arg"
"""Random subsets in registers. The result equals that of ``manyway.core.random.subset`` exactly."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from manyway.core.kernels.launch import Memory, launch, reads, writes

MAX_SIZE = 4096  # a subset is kept in registers while it is drawn

_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
_MIX1 = tl.constexpr(0xBF58476D1CE4E5B9)
_MIX2 = tl.constexpr(0x94D049BB133111EB)
_NOTHING = tl.constexpr(0x7FFFFFFF)  # an empty entry: larger than every draw, so it equals none and sorts last


def subset(key: Tensor, size: int, total: Tensor, wanted: Tensor | None = None, *, ordered: bool = False) -> Tensor:
    """Draw random subsets [..., size] of 0..total-1, one per key; see ``manyway.core.random.subset``."""
    key, total = torch.broadcast_tensors(key, total)
    out = torch.empty(*key.shape, size, dtype=torch.int64, device=key.device)
    width = max(2, triton.next_power_of_2(size))
    rows = max(1, 2048 // width)
    memory = Memory.of(
        key=reads(key.reshape(-1), "n", torch.int64),
        total=reads(total.reshape(-1), "n", torch.int64),
        wanted=reads(None if wanted is None else wanted.expand_as(key).reshape(-1), "n", torch.int64),
        out=writes(out.view(-1, size), "n size", torch.int64),
    )
    launch(
        _subset,
        (triton.cdiv(key.numel(), rows),),
        memory,
        n_rows=key.numel(),
        size=size,
        WIDTH=width,
        ROWS=rows,
        WANTED=wanted is not None,
        ORDERED=ordered,
    )
    return out


@triton.jit
def _subset(
    key_ptr, total_ptr, wanted_ptr, out_ptr,
    n_rows, size,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, WANTED: tl.constexpr, ORDERED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    place = tl.arange(0, WIDTH)
    inside = row < n_rows
    key = tl.load(key_ptr + row, inside, other=0).to(tl.uint64)
    total = tl.load(total_ptr + row, inside, other=1).to(tl.int32)
    first_last = total - size
    if WANTED:
        first_last = total - tl.load(wanted_ptr + row, inside, other=0).to(tl.int32)
    chosen = tl.full((ROWS, WIDTH), _NOTHING, tl.int32)
    for step in range(size):
        last = tl.maximum(first_last + step, 0)
        draw = (((_mix(key) >> 32) * (last + 1).to(tl.uint64)) >> 32).to(tl.int32)
        taken = tl.max((chosen == draw[:, None]).to(tl.int32), axis=1)
        value = tl.where(taken != 0, last, draw)
        chosen = tl.where(place[None, :] == step, value[:, None], chosen)
        key += _GOLDEN
    if ORDERED:
        chosen = tl.sort(chosen, dim=1)
    where = row.to(tl.int64)[:, None] * size + place[None, :]
    tl.store(out_ptr + where, chosen.to(tl.int64), inside[:, None] & (place < size)[None, :])


@triton.jit
def _mix(key):
    key += _GOLDEN
    key = (key ^ (key >> 30)) * _MIX1
    key = (key ^ (key >> 27)) * _MIX2
    return key ^ (key >> 31)
