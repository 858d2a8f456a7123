"""From a picture to the input of a network, as a value; and sets of pictures.

The value is stored with the weights.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from manyway.encoding.datasets.decode import read_picture
from manyway.errors import InputError

if TYPE_CHECKING:
    from PIL import Image

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
MAX_SIDE = 8192  # pixels; a larger input is a mistake, and would fill the memory
T = TypeVar("T")
Remarks = tuple[tuple[str, str], ...]  # (name of a picture, what there is to say about it), sorted
# PIL.Image.Resampling, which is imported only where pictures are read
_RESAMPLING = {"bilinear": 2, "bicubic": 3}


@dataclass(frozen=True)
class Preprocess:
    """How pictures become the input of a network.

    The central square of a picture is resized to ``resize`` pixels and kept as bytes. At evaluation
    the central ``crop`` pixels are taken and standardised; training crops at random. The defaults
    are the paper's evaluation.

    Parameters
    ----------
    resize : int, default=96
        Side of the stored picture in pixels.
    crop : int, default=84
        Side of the input of the network in pixels.
    mean, std : tuple of float
        Mean and standard deviation per channel of intensities in [0, 1];
        one value for grey, three for RGB.
    interpolation : {"bilinear", "bicubic"}

    Examples
    --------
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
        """Photographs get the margin of the paper (96 for 84).

        Drawings (one channel) fill their frame and get none.
        """
        if channels == 3:
            return Preprocess(resize=round(size * 96 / 84), crop=size)
        return Preprocess(resize=size, crop=size, mean=(0.5,), std=(0.5,))

    @property
    def channels(self) -> int:
        """1 for grey, 3 for RGB."""
        return len(self.mean)

    def __post_init__(self) -> None:
        if not 1 <= self.crop <= self.resize <= MAX_SIDE:
            raise InputError(
                f"resize is {self.resize} and crop {self.crop}; needed: "
                f"1 ≤ crop ≤ resize ≤ {MAX_SIDE}."
            )
        if len(self.mean) not in (1, 3) or len(self.std) != len(self.mean):
            raise InputError(
                f"mean {self.mean} and std {self.std} must have one value per channel: "
                "one or three each."
            )
        if not all(map(math.isfinite, self.mean)) or not all(
            0 < value < math.inf for value in self.std
        ):
            raise InputError(f"mean {self.mean} must be finite and std {self.std} positive.")
        if self.interpolation not in _RESAMPLING:
            raise InputError(
                f"There is no interpolation '{self.interpolation}'; "
                f"choose {' or '.join(_RESAMPLING)}."
            )

    def to_meta(self) -> dict[str, Any]:
        """The values as plain data for the header of a checkpoint."""
        return asdict(self)

    @staticmethod
    def from_meta(meta: Any) -> Preprocess:
        """The value that ``to_meta`` described; values of wrong types are an InputError."""
        return from_metadata(Preprocess, meta, "preprocess")

    def decode(self, data: bytes) -> Tensor:
        """Pixels [c, resize, resize] uint8 of an encoded picture; see :func:`read_picture`."""
        return self.fit(read_picture(data, self.channels, self.resize)[0])

    def fit(self, picture: Image.Image) -> Tensor:
        """Pixels [c, resize, resize] uint8 of the central square of a picture in mode L or RGB."""
        # The square is cut out while resizing: as resizing first and cutting then, borders aside, with less work.
        side = min(picture.size)
        left = (picture.width - side) / 2
        top = (picture.height - side) / 2
        size = (self.resize, self.resize)
        square = (left, top, left + side, top + side)
        pixels = torch.from_numpy(
            np.array(picture.resize(size, _RESAMPLING[self.interpolation], box=square))
        )
        if pixels.ndim == 2:
            return pixels.unsqueeze(0)
        return pixels.permute(2, 0, 1).contiguous()

    def standardise(self, images: Tensor) -> Tensor:
        """The input [n, c, crop, crop] of the network at evaluation.

        Stored pictures are [n, c, h, w] uint8.
        """
        top = (images.shape[2] - self.crop) // 2
        left = (images.shape[3] - self.crop) // 2
        central = images[:, :, top : top + self.crop, left : left + self.crop]
        return self.normalise(central.float().div(255))

    def normalise(self, images: Tensor) -> Tensor:
        """Intensities in [0, 1], minus the mean and divided by the deviation of their channel."""
        # Made on the host and copied without blocking: torch.tensor(..., device="cuda") would wait for the GPU.
        usual = torch.tensor([self.mean, self.std]).to(images.device, non_blocking=True)
        mean, std = usual.view(2, 1, -1, 1, 1).unbind()
        return (images - mean) / std


def from_metadata(kind: type[T], data: Any, name: str) -> T:
    """A value of a type (for example a dataclass) from plain data.

    Data of another form is an InputError.

    >>> from_metadata(list[int], [1, "x"], "sizes")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    manyway.errors.InputError: 'sizes.1' in the metadata is wrong: input should be a valid integer, unable to parse...
    """
    try:
        return TypeAdapter(kind).validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join([name, *map(str, first["loc"])])
        message = first["msg"].removeprefix("Value error, ").rstrip(".")
        raise InputError(
            f"'{place}' in the metadata is wrong: {message[:1].lower()}{message[1:]}."
        ) from error


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
    skipped, notes : tuple of (name, text)
        The pictures that could not be decoded, and what to know about how others were.
    """

    images: Tensor
    labels: Tensor
    class_names: tuple[str, ...]
    skipped: Remarks = ()
    notes: Remarks = ()

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.labels.shape != self.images.shape[:1]:
            shapes = f"{tuple(self.images.shape)} and {tuple(self.labels.shape)}"
            raise InputError(
                f"An image set needs images [n, c, h, w] and one label per image; got {shapes}."
            )
        if len(self.images) == 0:
            raise InputError("The image set is empty; give at least one image.")

    def __len__(self) -> int:
        return len(self.images)

    def to(self, device: torch.device | str) -> ImageSet:
        """The same set on another device."""
        return replace(self, images=self.images.to(device), labels=self.labels.to(device))

    @property
    def n_classes(self) -> int:
        """K, the number of class names."""
        return len(self.class_names)
