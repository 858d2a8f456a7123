"""What a table of labels needs of class probabilities: the best few of each query, and the sum over all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyway.core.blocks import Joined, Pile


class Answered(NamedTuple):
    """The answers for some queries of t tasks."""

    probabilities: Tensor  # [t, b, k]
    unknown: Tensor | None = None  # [t, b] the probability of unknown; None: the method assumes a class for each
    groups: Tensor | None = None  # [t, b] the group of queries that are answered as unknown, -1 for the others


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
    """The best classes of each query, and the expected number of queries of each class."""

    best: Joined  # probabilities and classes [t, q, n]; where the method has them, also ``unknown`` and groups [t, q]
    total: Tensor  # [t, k], float64

    def plus(self, other: TopK) -> TopK:
        return TopK(self.best.plus(other.best), self.total + other.total)


def top(n: int, part: Answered) -> TopK:
    """The work that keeps the ``n`` best classes of each query."""
    probabilities, *unknown = part
    best = probabilities.topk(min(n, probabilities.shape[-1]))
    rows = (best.values, best.indices, *(value for value in unknown if value is not None))
    return TopK(Joined(tuple(value.cpu() for value in rows)), probabilities.sum(1, dtype=torch.float64).cpu())


def whole(part: Answered) -> Joined:
    """The work that collects all answers."""
    return Joined(tuple(value for value in part if value is not None))
