"""Grey drawings: sources made from arrays, and Omniglot as files or arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyway.encoding.datasets.decode import read_picture
from manyway.encoding.datasets.sources import ImageSource, from_names, list_files
from manyway.errors import InputError

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
# Validation needs classes that are not trained on, and all 964 of Omniglot are for training. Every fourth of them,
# rotated by 90 degrees, is a new character to a network that is not trained on such rotations.
_VAL_EVERY = 4


def array_source(images: Pixels, labels: Tensor, class_names: Sequence[str], title: str) -> ImageSource:
    """A source of pictures [n, h, w] in memory. They are read as grey PGM files, so that all later code is shared."""
    numbers = [str(i) for i in range(len(images))]
    return ImageSource(tuple(numbers), labels, tuple(class_names), lambda i: grey_file(images[i]), title)


def grey_file(pixels: Pixels) -> bytes:
    """A grey picture [h, w] as the bytes of a PGM file."""
    height, width = pixels.shape
    return f"P5 {width} {height} 255\n".encode() + np.ascontiguousarray(pixels).tobytes()


def omniglot_source(place: Path, split: str) -> ImageSource:
    """``base``: the 964 background characters; ``test``: the 659 evaluation ones; ``val``: background ones, rotated."""
    if place.is_file():
        return _omniglot_array(place, split)
    return _omniglot_folder(place, split)


def _omniglot_array(path: Path, split: str) -> ImageSource:
    try:
        with np.load(path, allow_pickle=False) as file:
            images, labels, names = file["images"], file["labels"], [str(name) for name in file["class_names"]]
            is_evaluation = file["class_is_evaluation"]
    except Exception as error:  # damaged archives raise exceptions of many types
        raise InputError(f"{path} cannot be read as the arrays of Omniglot ({error}).") from error
    if not (images.ndim == 3 and images.dtype == np.uint8 and labels.shape == images.shape[:1]
            and labels.dtype.kind in "iu" and is_evaluation.shape == (len(names),)):  # fmt: skip
        raise InputError(
            f"{path} needs images [n, h, w] uint8, labels [n] of integers, and class_names and class_is_evaluation [k]."
        )
    classes = np.flatnonzero(is_evaluation == (split == "test"))
    if split == "val":
        classes = classes[::_VAL_EVERY]
    rows = np.flatnonzero(np.isin(labels, classes))
    chosen = np.rot90(images[rows], axes=(1, 2)) if split == "val" else images[rows]
    return array_source(
        chosen,
        torch.from_numpy(np.searchsorted(classes, labels[rows])),
        [_val_name(names[c]) if split == "val" else names[c] for c in classes],
        f"omniglot {split}",
    )


def _omniglot_folder(place: Path, split: str) -> ImageSource:
    part = "images_evaluation" if split == "test" else "images_background"
    names = [name for name in list_files(place) if f"{part}/" in name and name.lower().endswith(".png")]
    if not names:
        raise InputError(f"{place} has no {part}/ALPHABET/CHARACTER/*.png.")
    classes = sorted({_character(name) for name in names})
    kept = set(classes[::_VAL_EVERY] if split == "val" else classes)
    names = [name for name in names if _character(name) in kept]
    labels = [_val_name(_character(name)) if split == "val" else _character(name) for name in names]
    return from_names(names, labels, lambda name: _ink_file(place / name, turned=split == "val"), f"omniglot {split}")


def _character(name: str) -> str:
    """The character of a path: ``images_background/Greek/character03`` for a drawing in that folder."""
    return "/".join(name.split("/")[-4:-1])


def _val_name(name: str) -> str:
    return f"{name} turned"


def _ink_file(path: Path, *, turned: bool) -> bytes:
    """The original drawings are black on white; here ink is white on black, as in the arrays."""
    data = path.read_bytes()
    try:
        pixels = 255 - np.asarray(read_picture(data, channels=1)[0])
    except InputError:
        return data  # damaged: decoding it later gives the error with its name
    return grey_file(np.rot90(pixels) if turned else pixels)
