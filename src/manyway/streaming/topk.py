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

    @staticmethod
    def of(probabilities: Tensor, top: int) -> Answers:
        """From [b, k]: keeps the ``top`` best classes of each item."""
        best = probabilities.topk(top, dim=1)
        return Answers(((best.values.cpu(), best.indices.cpu()),), probabilities.sum(0, dtype=torch.float64).cpu())

    def plus(self, other: Answers) -> Answers:
        return Answers(self.best + other.best, self.total + other.total)


@dataclass(frozen=True, eq=False)
class Answer:
    """The work of answering for a block of items: see ``manyway.streaming.blocks.Work``."""

    assign: Callable[[Tensor, Any], Tensor]  # a block and its memory -> probabilities [b, k]
    top: int

    def __call__(self, block: Tensor, memory: Any) -> tuple[Answers, None]:
        return Answers.of(self.assign(block, memory), self.top), None
