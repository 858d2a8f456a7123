"""Unknown items: those whose scores point to classes that no other item has.

A classifier has to name one of its classes, so the scores of an unknown item are those of a class at random. The other
items make item q e^gain times as probable as that (``Found.gains``). With the part ρ of the items that is unknown,

    logit ν_q = logit ρ − gain_q,        ρ = Σ_q ν_q / (n + 1), by EM.

Items that are answered as unknown form groups: those to which the classifier gives the same class, largest group first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from manyway.core import Answered, Joined
from manyway.methods.scores.calibrate import Calibration
from manyway.methods.scores.items import Items, Part
from manyway.methods.scores.search import Found

_EM_STEPS = 100
_LEAST = 1e-9  # of ρ


@dataclass(frozen=True, kw_only=True, eq=False)
class Unknown:
    """How probable it is that an item is of none of the classes."""

    calibration: Calibration
    found: Found
    log_odds: Tensor  # [] logit ρ

    def of(self, part: Part) -> Tensor:
        """[b] ν; 0 where the label is known."""
        gains = self.found.gains(self.calibration.likelihood(part.posteriors), part.u)
        return (self.log_odds.to(gains) - gains).sigmoid() * part.free


def judge(items: Items, calibration: Calibration, found: Found) -> Unknown:
    """Learn ρ from all items without a known label."""
    gains, free = (
        value[0].double() for value in items.each(partial(_gains, calibration, found)).values
    )
    share = gains.new_tensor(0.5)
    for _ in range(_EM_STEPS):
        probability = (share.logit() - gains).sigmoid() * free
        share = (probability.sum() / (free.sum() + 1)).clamp_min(_LEAST)
    return Unknown(calibration=calibration, found=found, log_odds=share.logit())


def _gains(calibration: Calibration, found: Found, part: Part) -> Joined:
    gains = found.gains(calibration.likelihood(part.posteriors), part.u)
    return Joined((gains[None], part.free[None]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Groups:
    """The groups of items that are answered as unknown."""

    # [k] the group of items to which the classifier gives the class; -1: there is none
    number: Tensor
    medoids: Tensor  # [g] the item of each group that the classifier is surest of

    def of(self, part: Part, answered: Answered) -> Tensor:
        """[b] the group of each item, -1 for those that are answered with a class."""
        group = self.number.to(part.known.device)[part.posteriors.argmax(-1)]
        return torch.where(_rejected(answered), group, -1)


def group(items: Items, answer: Callable[[Part], Answered]) -> Groups:
    """The groups of all items, given what answers some of them, without groups."""
    classes, surest = (value[0] for value in items.each(partial(_names, answer)).values)
    n_classes = items.each(_count_classes).values[0].shape[-1]
    sizes = torch.bincount(classes[classes >= 0], minlength=n_classes)
    order = sizes.argsort(descending=True, stable=True)[: int((sizes > 0).sum())]
    number = torch.full((n_classes,), -1, dtype=torch.int64, device=classes.device)
    number[order] = torch.arange(len(order), device=classes.device)
    medoids = [
        int(surest.masked_fill(classes != one, -torch.inf).argmax()) for one in order.tolist()
    ]
    return Groups(
        number=number, medoids=torch.tensor(medoids, dtype=torch.int64, device=classes.device)
    )


def _names(answer: Callable[[Part], Answered], part: Part) -> Joined:
    """The class that the classifier gives to an item that is answered as unknown, else -1; and how surely."""
    best = part.posteriors.max(-1)
    return Joined((torch.where(_rejected(answer(part)), best.indices, -1)[None], best.values[None]))


def _count_classes(part: Part) -> Joined:
    return Joined((part.posteriors[:0][None],))


def _rejected(answered: Answered) -> Tensor:
    """[b] whether an item is more probably unknown than of any class."""
    assert answered.unknown is not None
    return answered.unknown[0] > answered.probabilities[0].amax(-1)
