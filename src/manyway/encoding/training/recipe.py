"""How to train, as a value: it travels with the weights."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from manyway.encoding.datasets.augment import AUGMENTATIONS
from manyway.errors import InputError, nearest


@dataclass(frozen=True)
class Recipe:
    """How to train. The defaults are the paper's."""

    epochs: int = 90
    batch: int = 256
    lr: float = 0.1
    optimiser: str = "sgd"  # "sgd" with momentum; "adamw" gets a small network there in fewer epochs
    schedule: str = "steps"  # "steps": lr / 10 at each milestone; "cosine": linear warm-up, then down to 0
    milestones: tuple[int, ...] = (45, 66)
    momentum: float = 0.9
    weight_decay: float = 1e-4
    label_smoothing: float = 0.1
    augment: str = "photo"
    mixup: float = 0.0  # a > 0: each image is mixed with another, in shares from Beta(a, a) (Zhang et al. 2018)
    val_tasks: int = 500  # 5-way 1-shot tasks that choose the best epoch
    check_every: int = 1  # epochs between two validations and saved states
    seed: int = 0

    def __post_init__(self) -> None:
        if self.optimiser not in {"sgd", "adamw"}:
            raise InputError(f"There is no optimiser '{self.optimiser}'; choose 'sgd' or 'adamw'.")
        if self.schedule not in {"steps", "cosine"}:
            raise InputError(f"There is no schedule '{self.schedule}'; choose 'steps' or 'cosine'.")
        if self.augment not in AUGMENTATIONS:
            raise InputError(f"There is no augmentation '{self.augment}'; {nearest(self.augment, AUGMENTATIONS)}")
        if self.epochs < 1 or self.batch < 2 or not self.lr > 0:
            raise InputError(
                f"epochs is {self.epochs}, batch {self.batch} and lr {self.lr}; "
                "training needs at least one epoch, two images in a batch and a positive rate."
            )
        if self.weight_decay < 0 or self.mixup < 0 or self.check_every < 1:
            raise InputError(
                f"weight_decay is {self.weight_decay}, mixup {self.mixup} and check_every {self.check_every}; "
                "the first two cannot be negative, and the last is at least 1."
            )

    def checks(self, epoch: int) -> bool:
        """Whether an epoch (from 1) ends with a validation and a saved state; the last one always does."""
        return epoch % self.check_every == 0 or epoch == self.epochs

    def to_meta(self) -> dict[str, Any]:
        return {**asdict(self), "milestones": list(self.milestones)}


def learning_rate(recipe: Recipe, epoch: float) -> float:
    """The rate at a moment counted in epochs from 0 (a fraction inside an epoch counts for the cosine).

    >>> [round(learning_rate(Recipe(), epoch), 6) for epoch in (0, 44, 45, 66)]
    [0.1, 0.1, 0.01, 0.001]
    """
    if recipe.schedule == "steps":
        return recipe.lr * 0.1 ** sum(epoch >= milestone for milestone in recipe.milestones)
    warm_up = 0.1 * recipe.epochs
    if epoch < warm_up:
        return recipe.lr * (epoch / warm_up)
    return recipe.lr * 0.5 * (1 + math.cos(math.pi * (epoch - warm_up) / (recipe.epochs - warm_up)))


def scaled_for(recipe: Recipe, epochs: int) -> Recipe:
    """The recipe for another number of epochs, its milestones at the same fractions.

    >>> scaled_for(Recipe(), 180).milestones
    (90, 132)
    """
    factor = epochs / recipe.epochs
    return replace(recipe, epochs=epochs, milestones=tuple(round(m * factor) for m in recipe.milestones))
