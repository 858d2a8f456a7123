"""The queries of one large task, read in blocks.

The work on a block does not depend on the other blocks, and the results are added. So the same steps run on one machine
or on a cluster: ``Spread`` takes the work to the blocks. Work can remember something of a block until it is next
read: the memory of the block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from manyway.core.transforms import level, range_factor, unit
from manyway.errors import InputError


class BlockSolution(Protocol):
    """The answer of a method that reads the queries of one task in blocks."""

    @property
    def assign(self) -> Callable[[Tensor, Any], Tensor]:
        """From a block [b, d] and its memory to class probabilities [b, k]."""

    @property
    def memory(self) -> list[Any] | None:
        """One per block; None where nothing is remembered."""

    @property
    def presence(self) -> Tensor | None:
        """[k] the probability that the class is present; None where the method does not estimate it."""

    @property
    def n_present(self) -> float | None:
        """The expected number of classes that are present."""

    @property
    def n_present_sd(self) -> float | None: ...


Blocks = Callable[[], Iterator[Tensor]]  # reads the queries once, from the start: blocks [b, d]
Work = Callable[[Tensor, Any], tuple[Any, Any]]  # a block and its memory -> what is added up, and its next memory
Spread = Callable[[Work, Sequence[Any] | None], tuple[Any, list[Any]]]  # the sum over blocks, and all memories


@dataclass(frozen=True, eq=False)
class Scaling:
    """What is done to every row: a transform of the row, a factor for each feature, and a centre to subtract."""

    name: str | None
    levels: bool = False  # whether `rcl2` takes powers
    middle: Tensor | None = None  # [d] what `cl2` and `rcl2` subtract
    factor: Tensor | None = None  # [d]
    centre: Tensor | None = None  # [d]

    def __call__(self, rows: Tensor) -> Tensor:
        if self.levels:
            rows = level(rows)
        if self.middle is not None:
            rows = rows - self.middle
        if self.name in ("l2", "cl2", "rcl2"):
            rows = unit(rows)
        if self.factor is not None:
            rows = rows * self.factor
        return rows if self.centre is None else rows - self.centre


class Extent(NamedTuple):
    """What the scaling needs to know of the queries."""

    n_rows: int
    total: Tensor  # [d], float64
    low: Tensor  # [d]
    high: Tensor  # [d]

    @property
    def mean(self) -> Tensor:
        """[d], float64."""
        return self.total / self.n_rows

    def plus(self, other: Extent) -> Extent:
        low, high = torch.minimum(self.low, other.low), torch.maximum(self.high, other.high)
        return Extent(self.n_rows + other.n_rows, self.total + other.total, low, high)


@dataclass(frozen=True, eq=False)
class Measure:
    """The work of the first reading: how many queries there are, and their mean and range."""

    scaling: Scaling
    like: Tensor

    def __call__(self, block: Tensor, memory: Any) -> tuple[Extent, None]:
        rows = self.scaling(block.to(self.like))
        return Extent(len(rows), rows.sum(0, dtype=torch.float64), rows.amin(0), rows.amax(0)), None


def measured(scaling: Scaling, spread: Spread, like: Tensor) -> Extent:
    """Read the queries once, scaled, in the precision and on the device of ``like`` [n, d]."""
    extent: Extent | None
    extent, _ = spread(Measure(scaling, like[:0]), None)
    if extent is None:
        raise InputError("There is no query to label; give at least one.")
    return extent


def in_turn(blocks: Blocks, device: torch.device) -> Spread:
    """Block after block on one machine. On a GPU the blocks stay there if they take less than half of what is free."""
    room = torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else 0
    kept: list[Tensor] = []
    complete = False

    def read() -> Iterator[Tensor]:
        nonlocal room, complete
        if complete:
            yield from kept
            return
        for block in blocks():
            if device.type == "cuda" and not block.is_cuda:
                block = block.pin_memory().to(device, non_blocking=True)
            room -= block.nbytes
            if room >= 0:
                kept.append(block)
            else:
                kept.clear()
            yield block
        complete = room >= 0

    def spread(work: Work, memories: Sequence[Any] | None) -> tuple[Any, list[Any]]:
        total, remembered = None, []
        for number, block in enumerate(read()):
            part, memory = work(block, None if memories is None else memories[number])
            total = part if total is None else total.plus(part)
            remembered.append(memory)
        return total, remembered

    return spread


def scaling_of(support: Tensor, spread: Spread, scale: str | None, base_mean: Tensor | None) -> tuple[Scaling, int]:
    """The scaling that ``scale`` names, centred on the mean query, and the number of queries."""
    if scale not in (None, "range", "l2", "cl2", "rcl2"):
        raise InputError(f"scale is '{scale}'; for large inputs choose range, l2, cl2, rcl2 or None.")
    scaling = Scaling(scale, levels=scale == "rcl2" and bool((support >= 0).all()))
    if scale in ("cl2", "rcl2"):
        if scaling.levels:  # a mean of features is not a mean of their powers, so the base mean cannot serve here
            middle = level(support).mean(0)
        else:
            middle = support.mean(0) if base_mean is None else base_mean.to(support)
        scaling = replace(scaling, middle=middle)
    extent = measured(scaling, spread, support)
    if scale == "range":
        scaling = replace(scaling, factor=range_factor(extent.low, extent.high))
    centre = extent.mean.to(support.dtype)
    return replace(scaling, centre=centre if scaling.factor is None else centre * scaling.factor), extent.n_rows
