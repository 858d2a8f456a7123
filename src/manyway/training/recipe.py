"""How to train, as a value that is stored with the weights."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from manyway.errors import InputError, nearest
from manyway.training.augment import AUGMENTATIONS


@dataclass(frozen=True)
class Recipe:
    """How to train. The defaults are those of the paper.

    Parameters
    ----------
    epochs, batch : int
        Number of passes over the images, and of images per step.
    lr : float
        Highest learning rate.
    optimizer : {"sgd", "adamw"}
        SGD with momentum, or AdamW, which trains a small network in fewer epochs.
    schedule : {"steps", "cosine"}
        ``steps`` divides the rate by 10 at each milestone; ``cosine`` warms up linearly and decreases to 0.
    milestones : tuple of int
        Epochs, for ``steps``.
    momentum, weight_decay, label_smoothing : float
    augment : str
        A name in ``AUGMENTATIONS``.
    mixup : float
        If positive, each image is mixed with another, with weights from Beta(mixup, mixup) (Zhang et al. 2018).
    val_tasks : int
        Number of 5-way 1-shot tasks that choose the best epoch.
    check_every : int
        Number of epochs between two validations and saved states.
    seed : int
    """

    epochs: int = 90
    batch: int = 256
    lr: float = 0.1
    optimizer: str = "sgd"
    schedule: str = "steps"
    milestones: tuple[int, ...] = (45, 66)
    momentum: float = 0.9
    weight_decay: float = 1e-4
    label_smoothing: float = 0.1
    augment: str = "photo"
    mixup: float = 0.0
    val_tasks: int = 500
    check_every: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.optimizer not in {"sgd", "adamw"}:
            raise InputError(f"There is no optimizer '{self.optimizer}'; choose 'sgd' or 'adamw'.")
        if self.schedule not in {"steps", "cosine"}:
            raise InputError(f"There is no schedule '{self.schedule}'; choose 'steps' or 'cosine'.")
        if self.augment not in AUGMENTATIONS:
            raise InputError(f"There is no augmentation '{self.augment}'; {nearest(self.augment, AUGMENTATIONS)}")
        if self.epochs < 1 or self.batch < 2 or not 0 < self.lr < math.inf:
            raise InputError(
                f"epochs is {self.epochs}, batch {self.batch} and lr {self.lr}; "
                "training needs at least one epoch, two images per batch and a positive finite rate."
            )
        if not (0 <= self.weight_decay < math.inf and 0 <= self.mixup < math.inf):
            raise InputError(
                f"weight_decay is {self.weight_decay} and mixup {self.mixup}; they must be finite and not negative."
            )
        if self.check_every < 1 or self.seed < 0:
            raise InputError(
                f"check_every is {self.check_every} and seed {self.seed}; they must be at least 1 and at least 0."
            )

    def checks(self, epoch: int) -> bool:
        """Whether a validation and a saved state follow an epoch (counted from 1); they always follow the last."""
        return epoch % self.check_every == 0 or epoch == self.epochs

    def to_meta(self) -> dict[str, Any]:
        """The values as plain data for the metadata of a checkpoint."""
        return {**asdict(self), "milestones": list(self.milestones)}


def learning_rate(recipe: Recipe, epoch: float) -> float:
    """The learning rate at a time in epochs, counted from 0; fractions matter for the cosine.

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
    """The recipe for another number of epochs, with milestones at the same fractions.

    >>> scaled_for(Recipe(), 180).milestones
    (90, 132)
    """
    factor = epochs / recipe.epochs
    return replace(recipe, epochs=epochs, milestones=tuple(round(m * factor) for m in recipe.milestones))
