"""How to train, as a value; and the augmentation of training images.

The value is stored with the weights.

Augmentation works in batches, on the device of the images. Every function takes its random numbers
as an argument (uniforms [n, m] in [0, 1)), so that they can be drawn once for a global batch and
divided among processes, and so that they are the same on a CPU and a GPU.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from manyway.errors import InputError, named

N_UNIFORMS = 8  # random numbers per image


def random_resized_crop(
    images: Tensor, uniforms: Tensor, size: int, smallest: float = 0.08
) -> Tensor:
    """A box anywhere inside, resized to ``size``.

    Its area is ``smallest`` to all of the image's and its aspect 3/4 to 4/3.

    images [n, c, h, w] float, uniforms [n, 4] -> [n, c, size, size].
    """
    area = smallest + (1 - smallest) * uniforms[:, 0]
    log_aspect = math.log(3 / 4) + (math.log(4 / 3) - math.log(3 / 4)) * uniforms[:, 1]
    # Sides as fractions of the image; a box larger than the image is cut to its side.
    width = (area.sqrt() * torch.exp(0.5 * log_aspect)).clamp(max=1)
    height = (area.sqrt() * torch.exp(-0.5 * log_aspect)).clamp(max=1)
    centre_x = (1 - width) * (2 * uniforms[:, 2] - 1)
    centre_y = (1 - height) * (2 * uniforms[:, 3] - 1)
    zero = torch.zeros_like(width)
    theta = torch.stack(
        [torch.stack([width, zero, centre_x], 1), torch.stack([zero, height, centre_y], 1)], 1
    )
    grid = F.affine_grid(theta, [len(images), images.shape[1], size, size], align_corners=False)
    return F.grid_sample(
        images, grid, mode="bilinear", padding_mode="reflection", align_corners=False
    )


def colour_jitter(images: Tensor, uniforms: Tensor, strength: float = 0.4) -> Tensor:
    """Brightness, contrast and saturation, in this order, each times 1 ± strength.

    Uniforms are [n, 3].
    """
    factors = (1 - strength) + 2 * strength * uniforms.view(-1, 3, 1, 1, 1)
    brightness, contrast, saturation = factors.unbind(1)
    images = (images * brightness).clamp(0, 1)
    grey_mean = _grey(images).mean(dim=(2, 3), keepdim=True)
    images = (grey_mean + contrast * (images - grey_mean)).clamp(0, 1)
    grey = _grey(images)
    return (grey + saturation * (images - grey)).clamp(0, 1)


def _grey(images: Tensor) -> Tensor:
    """[n, 1, h, w] luminance (Rec. 601) of RGB images.

    Images with one channel stay as they are.
    """
    if images.shape[1] == 1:
        return images
    # Plain numbers as weights: making a tensor of them would synchronise with the GPU.
    return 0.299 * images[:, 0:1] + 0.587 * images[:, 1:2] + 0.114 * images[:, 2:3]


def random_flip(images: Tensor, uniforms: Tensor) -> Tensor:
    """Swap left and right in half of the images. uniforms [n, 1]."""
    return torch.where((uniforms < 0.5).view(-1, 1, 1, 1), images.flip(3), images)


def photo(images: Tensor, uniforms: Tensor, size: int, smallest: float = 0.08) -> Tensor:
    """For photographs, as in the paper: crop, colour jitter, flip."""
    images = random_resized_crop(images, uniforms[:, :4], size, smallest)
    return random_flip(colour_jitter(images, uniforms[:, 4:7]), uniforms[:, 7:8])


def drawing(images: Tensor, uniforms: Tensor, size: int) -> Tensor:
    """For letters and other drawings: a small affine change.

    A flip or a crop could give another class.
    """
    theta = affine(2 * uniforms[:, :6] - 1, 0.2, 0.2, 0.2, 0.15)
    grid = F.affine_grid(theta, [len(images), images.shape[1], size, size], align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def affine(
    signed: Tensor, rotation: float, shear: float, log_stretch: float, shift: float
) -> Tensor:
    """[n, 2, 3] matrices that rotate, shear, stretch and shift by at most so much.

    ``signed`` [n, 6] is in [-1, 1).
    """
    angle = rotation * signed[:, 0]
    slant = shear * signed[:, 1]
    stretch_x = torch.exp(log_stretch * signed[:, 2])
    stretch_y = torch.exp(log_stretch * signed[:, 3])
    cos = torch.cos(angle)
    sin = torch.sin(angle)
    first = torch.stack([stretch_x * cos, stretch_x * (slant * cos - sin), shift * signed[:, 4]], 1)
    second = torch.stack(
        [stretch_y * sin, stretch_y * (slant * sin + cos), shift * signed[:, 5]], 1
    )
    return torch.stack([first, second], 1)


_Augmentation = Callable[[Tensor, Tensor, int], Tensor]
AUGMENTATIONS: Mapping[str, _Augmentation | None] = {
    "photo": photo,
    # not much larger than the input: 8 % of the area would be a blur
    "small-photo": partial(photo, smallest=0.3),
    "drawing": drawing,
    "none": None,
}


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
        ``steps`` divides the rate by 10 at each milestone;
        ``cosine`` warms up linearly and decreases to 0.
    milestones : tuple of int
        Epochs, for ``steps``.
    momentum, weight_decay, label_smoothing : float
    augment : str
        A name in ``AUGMENTATIONS``.
    mixup : float
        If positive, each image is mixed with another, with weights from Beta(mixup,
        mixup) (Zhang et al. 2018).
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
        named({"sgd": 0, "adamw": 0}, self.optimizer, "optimizer")
        named({"steps": 0, "cosine": 0}, self.schedule, "schedule")
        named(AUGMENTATIONS, self.augment, "augmentation")
        least = {
            "epochs": 1,
            "batch": 2,
            "lr": 1e-9,
            "weight_decay": 0,
            "mixup": 0,
            "check_every": 1,
            "seed": 0,
        }
        for name, low in least.items():
            if not low <= (value := getattr(self, name)) < math.inf:
                raise InputError(f"{name} is {value}; it must be finite and at least {low}.")

    def checks(self, epoch: int) -> bool:
        """Whether a validation and a saved state follow an epoch (counted from 1).

        They always follow the last.
        """
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
    return replace(
        recipe, epochs=epochs, milestones=tuple(round(m * factor) for m in recipe.milestones)
    )
