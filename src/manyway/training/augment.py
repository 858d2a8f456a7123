"""Augmentation of training images, in batches, on the device of the images.

Every function takes its random numbers as an argument (uniforms [n, m] in [0, 1)), so that they can be drawn once for a
global batch and divided among processes, and so that they are the same on a CPU and a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn import functional as F

N_UNIFORMS = 8  # random numbers per image


def random_resized_crop(images: Tensor, uniforms: Tensor, size: int, smallest: float = 0.08) -> Tensor:
    """A box of ``smallest`` to all of the area and aspect 3/4 to 4/3, anywhere inside, resized to ``size``.

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
    theta = torch.stack([torch.stack([width, zero, centre_x], 1), torch.stack([zero, height, centre_y], 1)], 1)
    grid = F.affine_grid(theta, [len(images), images.shape[1], size, size], align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def colour_jitter(images: Tensor, uniforms: Tensor, strength: float = 0.4) -> Tensor:
    """Brightness, contrast and saturation each times 1 ± strength, in this order. uniforms [n, 3]."""
    factors = (1 - strength) + 2 * strength * uniforms.view(-1, 3, 1, 1, 1)
    brightness, contrast, saturation = factors.unbind(1)
    images = (images * brightness).clamp(0, 1)
    grey_mean = _grey(images).mean(dim=(2, 3), keepdim=True)
    images = (grey_mean + contrast * (images - grey_mean)).clamp(0, 1)
    grey = _grey(images)
    return (grey + saturation * (images - grey)).clamp(0, 1)


def _grey(images: Tensor) -> Tensor:
    """[n, 1, h, w] luminance (Rec. 601) of RGB images, or the images themselves when they have one channel."""
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


def small_photo(images: Tensor, uniforms: Tensor, size: int) -> Tensor:
    """For photographs not much larger than ``size``: crops of at least 30 % of the area, since 8 % would be a blur."""
    return photo(images, uniforms, size, smallest=0.3)


def drawing(images: Tensor, uniforms: Tensor, size: int) -> Tensor:
    """For letters and other drawings: a small affine change, since a flip or a crop could give another class."""
    signed = 2 * uniforms - 1
    angle, shear = 0.2 * signed[:, 0], 0.2 * signed[:, 1]
    stretch_x, stretch_y = torch.exp(0.2 * signed[:, 2]), torch.exp(0.2 * signed[:, 3])
    cos, sin = torch.cos(angle), torch.sin(angle)
    theta = torch.stack(
        [
            torch.stack([stretch_x * cos, stretch_x * (shear * cos - sin), 0.15 * signed[:, 4]], 1),
            torch.stack([stretch_y * sin, stretch_y * (shear * sin + cos), 0.15 * signed[:, 5]], 1),
        ],
        1,
    )
    grid = F.affine_grid(theta, [len(images), images.shape[1], size, size], align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


AUGMENTATIONS: Mapping[str, Callable[[Tensor, Tensor, int], Tensor] | None] = MappingProxyType(
    {"photo": photo, "small-photo": small_photo, "drawing": drawing, "none": None}
)
