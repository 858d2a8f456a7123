"""Answers at a higher level of a taxonomy, where no class is probable enough."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Answer(NamedTuple):
    """The answer of each item: the finest level at which a group is probable enough."""

    level: Tensor  # [q] 0: the class itself, 1: the first of the levels, …; -1: no level is probable enough
    group: Tensor  # [q] the class or group of that level
    probability: Tensor  # [q]


def answer_at_least(probabilities: Tensor, levels: Sequence[Tensor], wanted: float) -> Answer:
    """The finest answer with the wanted probability.

    Parameters
    ----------
    probabilities : Tensor of shape (q, k)
        The class probabilities.
    levels : sequence of Tensor of shape (k,)
        The number of the group that each class belongs to, finest level first; -1: it belongs to none.
    wanted : float
        The probability that an answer must have.

    Returns
    -------
    Answer
        Where no level has a group of the wanted probability, the level is -1 and group and probability are those of
        the last level with a group.

    Examples
    --------
    >>> p = torch.tensor([[0.95, 0.03, 0.02], [0.5, 0.45, 0.05], [0.4, 0.3, 0.3]])
    >>> answer_at_least(p, [torch.tensor([0, 0, 1])], 0.9).level.tolist()
    [0, 1, -1]
    """
    best = probabilities.max(-1)
    probability, group = best.values, best.indices
    level = torch.where(probability >= wanted, 0, -1)
    for number, groups in enumerate(levels, start=1):
        n_groups = int(groups.max()) + 1 if len(groups) else 0
        if n_groups <= 0:
            continue
        inside = groups >= 0
        sums = probabilities.new_zeros(len(probabilities), n_groups)
        found = sums.index_add_(1, groups[inside], probabilities[:, inside]).max(-1)
        open_ = level < 0
        probability = torch.where(open_, found.values, probability)
        group = torch.where(open_, found.indices, group)
        level = torch.where(open_ & (found.values >= wanted), number, level)
    return Answer(level, group, probability)
