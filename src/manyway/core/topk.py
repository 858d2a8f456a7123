"""What a table of labels needs of class probabilities: the best few of each item, and the sum over all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Answers(NamedTuple):
    """The answers for some items, in order. Those of blocks add up to those of all."""

    best: tuple[tuple[Tensor, Tensor], ...]  # of each block: the largest probabilities [b, n], and of which classes
    total: Tensor  # [k] the expected number of items of each class
    unknown: tuple[Tensor, ...] = ()  # of each block: the probability of being unknown [b]; empty: all are of a class
    groups: tuple[Tensor, ...] = ()  # of each block: the group of unknown items [b] nearest to each item

    @staticmethod
    def of(probabilities: Tensor, top: int, groups: Tensor | None = None) -> Answers:
        """From [b, k]: keeps the ``top`` best classes of each item.

        ``groups`` [b] is given where items can be unknown: that has the probability which the classes leave.
        """
        best = probabilities.topk(top, dim=1)
        kept = ((best.values.cpu(), best.indices.cpu()),), probabilities.sum(0, dtype=torch.float64).cpu()
        if groups is None:
            return Answers(*kept)
        return Answers(*kept, ((1 - probabilities.sum(1)).clamp_(0, 1).cpu(),), (groups.cpu(),))

    def plus(self, other: Answers) -> Answers:
        return Answers(
            self.best + other.best, self.total + other.total, self.unknown + other.unknown, self.groups + other.groups
        )


@dataclass(frozen=True, eq=False)
class Answer:
    """The work of answering for a block of items: see ``manyway.core.blocks.Work``."""

    assign: Callable[[Tensor, Any], Tensor]  # a block and its memory -> probabilities [b, k]
    top: int
    find_groups: Callable[[Tensor], Tensor] | None = None  # a block -> groups [b], where items can be unknown

    def __call__(self, block: Tensor, memory: Any) -> tuple[Answers, None]:
        groups = None if self.find_groups is None else self.find_groups(block)
        return Answers.of(self.assign(block, memory), self.top, groups), None
