"""ImageSet: decoded images of one size, with labels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from manyway.errors import InputError


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images with labels. They are kept as bytes, so that a whole data set fits into (GPU) memory.

    Attributes
    ----------
    images : Tensor
        [n, c, h, w] uint8
    labels : Tensor
        [n] int64, from 0 to k - 1
    class_names : tuple of str
        [k]
    """

    images: Tensor
    labels: Tensor
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.labels.shape != self.images.shape[:1]:
            raise InputError(
                f"An image set needs images [n, c, h, w] and one label per image; "
                f"got {tuple(self.images.shape)} and {tuple(self.labels.shape)}."
            )
        if len(self.images) == 0:
            raise InputError("The image set is empty; give at least one image.")

    def __len__(self) -> int:
        return len(self.images)

    def to(self, device: torch.device | str) -> ImageSet:
        """The same set on another device."""
        return ImageSet(self.images.to(device), self.labels.to(device), self.class_names)

    @property
    def n_classes(self) -> int:
        """K, the number of class names."""
        return len(self.class_names)
