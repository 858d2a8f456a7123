"""From a file's bytes to what a network is fed, as a value that travels with the network's weights."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyway.errors import InputError

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MAX_PIXELS = 100_000_000  # a larger picture is a decompression bomb or a mistake


@dataclass(frozen=True)
class Preprocess:
    """Shorter side to ``resize``, its central square; later the central ``crop``, minus ``mean``, over ``std``.

    The defaults are the paper's evaluation: 96, then 84. Pictures are kept as bytes at ``resize``, so that training can
    crop at random from more than the network sees.

    >>> Preprocess.for_size(84, channels=3).resize, Preprocess.for_size(28, channels=1).resize
    (96, 28)
    """

    resize: int = 96
    crop: int = 84
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    interpolation: str = "bilinear"

    @staticmethod
    def for_size(size: int, channels: int) -> Preprocess:
        """Photographs get the margin of the paper (96 for 84); grey drawings fill their frame and get none."""
        if channels == 3:
            return Preprocess(resize=round(size * 96 / 84), crop=size)
        return Preprocess(resize=size, crop=size, mean=(0.5,), std=(0.5,))

    @property
    def channels(self) -> int:
        return len(self.mean)

    def to_meta(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_meta(meta: Mapping[str, Any]) -> Preprocess:
        known = {field.name for field in fields(Preprocess)}
        values: dict[str, Any] = {
            name: tuple(v) if isinstance(v, list) else v for name, v in meta.items() if name in known
        }
        return Preprocess(**values)

    def decode(self, data: bytes) -> Tensor:
        """[c, resize, resize] uint8 of an encoded picture (JPEG, PNG, BMP...)."""
        from PIL import Image, ImageOps

        resampling = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
        try:
            with Image.open(io.BytesIO(data)) as file:
                if file.width * file.height > MAX_PIXELS:
                    raise InputError(f"the picture has {file.width}×{file.height} pixels, more than {MAX_PIXELS:,}")
                picture = ImageOps.exif_transpose(file).convert("L" if self.channels == 1 else "RGB")
        except InputError:
            raise
        except Exception as error:  # Pillow's decoders raise what they like on broken bytes
            raise InputError(_why(error)) from error
        # The central square is cut while resizing: as resizing first and cutting then, borders aside, with less work.
        side = min(picture.size)
        left, top = (picture.width - side) / 2, (picture.height - side) / 2
        picture = picture.resize(
            (self.resize, self.resize), resampling[self.interpolation], box=(left, top, left + side, top + side)
        )
        pixels = torch.from_numpy(np.array(picture))
        return pixels.unsqueeze(0) if pixels.ndim == 2 else pixels.permute(2, 0, 1).contiguous()

    def standardise(self, images: Tensor) -> Tensor:
        """Bytes [n, c, h, w] to the floats [n, c, crop, crop] that the network is fed at evaluation."""
        top, left = (images.shape[2] - self.crop) // 2, (images.shape[3] - self.crop) // 2
        central = images[:, :, top : top + self.crop, left : left + self.crop]
        return self.normalise(central.float().div(255))

    def normalise(self, images: Tensor) -> Tensor:
        """Intensities in [0, 1] to about unit scale around zero."""
        # Made on the host and sent without waiting: torch.tensor(..., device="cuda") would stop for the GPU each time.
        mean, std = (
            torch.tensor(values).view(1, -1, 1, 1).to(images.device, non_blocking=True)
            for values in (self.mean, self.std)
        )
        return (images - mean) / std


def _why(error: Exception) -> str:
    """Pillow's message without its addresses of Python objects."""
    name = type(error).__name__
    if name == "UnidentifiedImageError":
        return "it is not a picture"
    return str(error).rstrip(".") if name == "DecompressionBombError" else f"it is damaged ({error})"
