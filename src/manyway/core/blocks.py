"""The queries of one large task, read in blocks, and the answers for them.

The work on a block does not depend on the other blocks, and the results are added. So the same
steps run on one machine or on a cluster: ``Spread`` takes the work to the blocks. Work can remember
something of a block until it is next read: the memory of the block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, count
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from manyway.errors import InputError

Blocks = Callable[[], Iterator[Tensor]]  # reads the queries once, from the start: blocks [b, d]
# a block and its memory -> what is added up, and its next memory
Work = Callable[[Tensor, Any], tuple[Any, Any]]
# the sum over blocks, and all memories
Spread = Callable[[Work, Sequence[Any] | None], tuple[Any, list[Any]]]
ChangeRows = Callable[[Tensor], Tensor]  # rows [1, b, d] -> rows [1, b, d]


class Sums(NamedTuple):
    """Tensors that add up over blocks."""

    values: tuple[Tensor, ...]

    def plus(self, other: Sums) -> Sums:
        return Sums(
            tuple(one + another for one, another in zip(self.values, other.values, strict=True))
        )

    def double(self) -> Sums:
        """In float64, so that a sum does not depend on the blocks."""
        return Sums(tuple(one.double() for one in self.values))


class Joined(NamedTuple):
    """Rows of all blocks, one after the other, along the axis 1 of each tensor."""

    values: tuple[Tensor, ...]

    def plus(self, other: Joined) -> Joined:
        return Joined(
            tuple(torch.cat(pair, 1) for pair in zip(self.values, other.values, strict=True))
        )


class Extent(NamedTuple):
    """The mean, the lowest and the highest value of each feature [t, 1, d] of some queries."""

    n_rows: int
    total: Tensor  # in float64
    low: Tensor
    high: Tensor

    @staticmethod
    def of(rows: Tensor) -> Extent:
        """Of rows [t, n, d]."""
        total = rows.sum(1, keepdim=True, dtype=torch.float64)
        return Extent(rows.shape[1], total, rows.amin(1, keepdim=True), rows.amax(1, keepdim=True))

    @property
    def mean(self) -> Tensor:
        """[t, 1, d], in the precision of the rows."""
        return (self.total / self.n_rows).to(self.low)

    def plus(self, other: Extent) -> Extent:
        low = torch.minimum(self.low, other.low)
        high = torch.maximum(self.high, other.high)
        return Extent(self.n_rows + other.n_rows, self.total + other.total, low, high)


@dataclass(frozen=True, eq=False)
class Pile:
    """The queries of one task, as blocks that are read again in every pass.

    Parameters
    ----------
    spread : callable
        Takes work to the blocks: ``in_turn`` on one machine,
        ``manyway.core.dask.on_dask`` on a cluster.
    sizes : tuple of int
        The number of queries of each block.
    like : Tensor of shape [0, d]
        The precision and the device of the work, and the number of features.
    changes : tuple of callable
        What is done to the rows of a block before each work.
    progress : callable, optional
        Called with the number of passes so far, after each one.
    """

    spread: Spread
    sizes: tuple[int, ...]
    like: Tensor
    changes: tuple[ChangeRows, ...] = ()
    progress: Callable[[int], None] | None = None
    passes: Iterator[int] = field(default_factory=lambda: count(1), repr=False)

    @staticmethod
    def of(spread: Spread, like: Tensor, progress: Callable[[int], None] | None = None) -> Pile:
        """Count the queries, in a first pass.

        ``like`` [n, d] has the wanted precision and device.
        """
        found, _ = spread(_count, None)
        if found is None or not sum(found.values[0].flatten().tolist()):
            raise InputError("There is no query to label; give at least one.")
        return Pile(spread, tuple(found.values[0].flatten().tolist()), like[:0], progress=progress)

    @property
    def n_rows(self) -> int:
        """The number of queries."""
        return sum(self.sizes)

    @property
    def firsts(self) -> list[int]:
        """The number of the first query of each block."""
        return [0, *accumulate(self.sizes)][:-1]

    def split(self, values: Tensor) -> list[Tensor]:
        """Values [t, q, …] of all queries, block by block."""
        return [
            values[:, first : first + size]
            for first, size in zip(self.firsts, self.sizes, strict=True)
        ]

    def then(self, change: ChangeRows) -> Pile:
        """The same queries with one more change of their rows."""
        return replace(self, changes=(*self.changes, change))

    def each(self, work: Work, memories: Sequence[Any] | None = None) -> tuple[Any, list[Any]]:
        """Do the work on the changed rows [1, b, d] of every block.

        Returns the sum, and what to remember of each block.
        """
        found = self.spread(partial(_changed, self.changes, self.like, work), memories)
        if self.progress is not None:
            self.progress(next(self.passes))
        return found

    def extent(self) -> Extent:
        """The mean and the range of the changed queries, by one pass."""
        return cast(Extent, self.each(lambda rows, memory: (Extent.of(rows), None))[0])


def _changed(
    changes: tuple[ChangeRows, ...], like: Tensor, work: Work, block: Tensor, memory: Any
) -> tuple[Any, Any]:
    """Work on rows that are changed first."""
    rows = block.to(like)[None]
    for change in changes:
        rows = change(rows)
    return work(rows, memory)


def _count(block: Tensor, memory: Any) -> tuple[Joined, None]:
    return Joined((torch.tensor([[len(block)]]),)), None


def in_turn(blocks: Blocks, device: torch.device) -> Spread:
    """Block after block on one machine.

    On a GPU the blocks stay there if they take less than half of what is free.
    """
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
        total = None
        remembered = []
        for number, block in enumerate(read()):
            part, memory = work(block, None if memories is None else memories[number])
            total = part if total is None else total.plus(part)
            remembered.append(memory)
        return total, remembered

    return spread


class Answered(NamedTuple):
    """The answers for some queries of t tasks."""

    probabilities: Tensor  # [t, b, k]
    # [t, b] the probability of unknown; None: the method assumes a class for each
    unknown: Tensor | None = None
    # [t, b] the group of queries that are answered as unknown, -1 for the others
    groups: Tensor | None = None


Assign = Callable[[Tensor, Any], Answered]  # from the rows [1, b, d] of a block and its memory


@dataclass(frozen=True, eq=False)
class Reading:
    """The answers for the queries of a pile, computed block by block whenever they are read."""

    pile: Pile
    assign: Assign
    memories: Sequence[Any] | None = None  # one per block

    def each(self, work: Any) -> Any:
        """The sum of ``work(Answered)`` over the blocks."""
        return self.pile.each(partial(_on_answers, self.assign, work), self.memories)[0]


def _on_answers(assign: Assign, work: Any, rows: Tensor, memory: Any) -> tuple[Any, None]:
    return work(assign(rows, memory)), None


class TopK(NamedTuple):
    """The best classes of each query, and the number of queries of each class (``shares``)."""

    # probabilities and classes [t, q, n];
    # where the method has them, also ``unknown`` and groups [t, q]
    best: Joined
    total: Tensor  # [t, k], float64

    def plus(self, other: TopK) -> TopK:
        return TopK(self.best.plus(other.best), self.total + other.total)


def shares(power: float, part: Answered) -> Sums:
    """The work that counts the queries of each class [t, k].

    With the power a the count is Σ_q p_qk^a Σ_j p_qj / Σ_j p_qj^a.
    """
    sharp = part.probabilities**power
    of_each = part.probabilities.sum(-1, keepdim=True) / sharp.sum(-1, keepdim=True).clamp_min(
        torch.finfo().tiny
    )
    return Sums(((sharp * of_each).sum(1, dtype=torch.float64),))


def top(n: int, power: float, part: Answered) -> TopK:
    """The work that keeps the ``n`` best classes of each query; ``power`` as in ``shares``."""
    probabilities, *unknown = part
    best = probabilities.topk(min(n, probabilities.shape[-1]))
    rows = (best.values, best.indices, *(value for value in unknown if value is not None))
    return TopK(Joined(tuple(value.cpu() for value in rows)), shares(power, part).values[0].cpu())


def whole(part: Answered) -> Joined:
    """The work that collects all answers."""
    return Joined(tuple(value for value in part if value is not None))
