"""ImageSet: decoded images of one size, with labels. What training and encoding read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from manyway.errors import InputError


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images as bytes, so that a whole data set fits in (GPU) memory and is decoded once."""

    images: Tensor  # [n, c, h, w] uint8
    labels: Tensor  # [n] int64, 0..k-1
    class_names: tuple[str, ...]  # [k]

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.labels.shape != self.images.shape[:1]:
            raise InputError(
                f"An image set needs images [n, c, h, w] and a label each; "
                f"got {tuple(self.images.shape)} and {tuple(self.labels.shape)}."
            )
        if len(self.images) == 0:
            raise InputError("The image set is empty; give at least one image.")

    def __len__(self) -> int:
        return len(self.images)

    def to(self, device: torch.device | str) -> ImageSet:
        """The same set elsewhere."""
        return ImageSet(self.images.to(device), self.labels.to(device), self.class_names)

    @property
    def n_classes(self) -> int:
        return len(self.class_names)

    @property
    def n_channels(self) -> int:
        return self.images.shape[1]
