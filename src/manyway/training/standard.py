"""Data sets by name: those of the paper and the embedded letters.

Data sets are looked for in one folder (``data``, or the environment variable MANYWAY_DATA, or
``data``). A data set is a folder or a zip archive in it, with any nesting inside: the class of a
picture is recognised in its path.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from manyway.encoding import (
    ImageSource,
    from_names,
    open_zip,
    read_file,
    read_picture,
    refuse_escape,
    sources,
)
from manyway.errors import InputError, named, nearest
from manyway.files import data_root, reading
from manyway.training.recipe import Recipe, scaled_for

_WORDNET_ID = re.compile(r"\An\d{8}")
# Validation needs classes that are not trained on, and all 964 of Omniglot are for training. Every fourth of them,
# rotated by 90 degrees, is a new character to a network that is not trained on such rotations.
_VAL_EVERY = 4


class DataSet(NamedTuple):
    """An entry of ``manyway datasets``; the table is datasets.json."""

    name: str
    what: str
    origin: str  # where to get it
    layout: str  # the files that are expected in the data folder
    places: Sequence[str]  # names of its folder or archive, in order of preference
    channels: int
    size: int  # input of the networks in pixels
    splits: Sequence[str]
    open: Callable[[Path, str], ImageSource]

    def find(self, root: Path) -> Path | None:
        """Its folder or archive in ``root``; None if it is missing."""
        return next((root / place for place in self.places if (root / place).exists()), None)


def open_dataset(name: str, split: str, root: str | Path | None = None) -> ImageSource:
    """List the pictures of one split of a data set in ``DATASETS``.

    ``root`` is the folder of data sets.
    """
    entry = named(DATASETS, name, "data set")
    folder = data_root(root)
    if split not in entry.splits:
        raise InputError(f"{name} has no split '{split}'; {nearest(split, entry.splits)}")
    place = folder if not entry.places else entry.find(folder)
    if place is None:
        looked = ", ".join(entry.places)
        raise InputError(
            f"{name} was not found in {folder} (looked for {looked}); get it from {entry.origin}."
        )
    return entry.open(place, split)


def base_and_validation(
    dataset: str,
    val: str | Path | None = None,
    root: str | Path | None = None,
    data: str | Path | None = None,
) -> tuple[ImageSource, ImageSource | None, DataSet | None]:
    """Base and validation pictures of a data set by name or by path.

    With the entry of one that is known by name.
    """
    entry = DATASETS.get(dataset)
    if entry is not None and "base" not in entry.splits:
        raise InputError(f"{dataset} has no base classes to train on; it is for testing.")
    if entry is not None:
        return open_dataset(dataset, "base", data), open_dataset(dataset, "val", data), entry
    if not Path(dataset).exists():
        raise InputError(
            f"There is no data set, folder or file '{dataset}'; {nearest(dataset, DATASETS)}"
        )
    validation = None if val is None else sources.open_source(Path(val), root)
    return sources.open_source(Path(dataset), root), validation, None


def recipe_for(dataset: str, backbone: str, epochs: int | None = None, **asked: Any) -> Recipe:
    """The recipe for a data set and a backbone, with the values that were asked for (not None)."""
    recipe = Recipe(batch=128 if backbone == "wrn28-10" else 256)
    if dataset == "glyphs":
        from manyway.training.glyphs import RECIPE

        recipe = RECIPE
    elif dataset in DATASETS and DATASETS[dataset].channels == 1:
        recipe = replace(recipe, augment="drawing")
    if epochs is not None:
        recipe = scaled_for(recipe, epochs)
    return replace(recipe, **{name: value for name, value in asked.items() if value is not None})


def _read(name: str) -> Any:
    return json.loads((resources.files("manyway") / "training" / name).read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def standard_classes() -> Mapping[str, Mapping[str, Sequence[str]]]:
    """The class lists of the standard splits of mini, tiered and cub."""
    return _read("splits.json")


def _reader(place: Path) -> tuple[list[str], Callable[[str], bytes]]:
    """The names of the files in a folder or an archive, and a function that reads one of them."""
    if place.is_dir():
        return sources.list_files(place), lambda name: read_file(place / name)
    return open_zip(place)


def class_in_path(name: str, classes: set[str]) -> str | None:
    """The class of a picture.

    It is a folder of its path, or the WordNet id that its file name begins with.

    >>> [class_in_path(name, {"n01532829"}) for name in ("train/n01532829/7.jpg", "n0153282900000005.jpg", "7.jpg")]
    ['n01532829', 'n01532829', None]
    """
    *folders, file = name.split("/")
    names = (*reversed(folders), *_WORDNET_ID.findall(file))
    return next((name for name in names if name in classes), None)


def _open_by_class(name: str, place: Path, split: str) -> ImageSource:
    wanted = standard_classes()[name][split]
    names, read = _reader(place)
    known = set(wanted)
    pairs = [
        (n, class_in_path(n, known))
        for n in names
        if Path(n).suffix.lower() in sources.IMAGE_SUFFIXES
    ]
    found = {n: label for n, label in pairs if label is not None}
    absent = sorted(known - set(found.values()))
    if absent:
        lacking = f"{len(absent)} of the {len(known)} {split} classes of {name}"
        raise InputError(f"{place} lacks {lacking}, {absent[0]} among them.")
    return from_names([*found], [*found.values()], read, f"{name} {split}", order=wanted)


def _open_inat(place: Path, split: str) -> ImageSource:
    """The given support and the queries, in one source with ``is_support``.

    The support has 10 to 193 pictures per class.
    """
    lists = [_beside(place, f"inat_{part}.csv") for part in ("support", "query")]
    lines = [list(zip(*sources.read_list(path)[:2], strict=True)) for path in lists]
    names, read = _reader(place)
    present = set(names)
    for path, part in zip(lists, lines, strict=True):
        for name, _ in part:
            refuse_escape(name, path)
        gone = next((name for name, _ in part if name not in present), None)
        if gone is not None:
            raise InputError(f"{path} lists {gone}, which is not in {place}.")
    pictures, labels = zip(*lines[0], *lines[1], strict=True)
    is_support = torch.arange(len(pictures)) < len(lines[0])
    return from_names(pictures, labels, read, f"inat {split}", is_support=is_support)


def _beside(place: Path, name: str) -> Path:
    """The path of a list that belongs to a data set.

    In its folder, next to it, or in ``splits`` next to it.
    """
    candidates = (place / name, place.parent / name, place.parent / "splits" / name)
    found = next((path for path in candidates if path.is_file()), None)
    if found is None:
        raise InputError(
            f"{name} was not found in {place} or next to it; it lists the pictures of the support."
        )
    return found


def _open_glyphs(place: Path, split: str) -> ImageSource:
    from manyway.training import glyphs

    images = glyphs.image_set(split, glyphs.BASE_SAMPLES if split == "base" else glyphs.SAMPLES)
    return sources.array_source(
        images.images[:, 0].numpy(), images.labels, images.class_names, f"glyphs {split}"
    )


def _open_omniglot(place: Path, split: str) -> ImageSource:
    """The characters of a split of Omniglot.

    ``base`` has the 964 background ones, ``test`` the 659 evaluation ones, and ``val`` the
    background ones, rotated.
    """
    if place.is_file():
        return _omniglot_array(place, split)
    part = "images_evaluation" if split == "test" else "images_background"
    names = [
        name
        for name in sources.list_files(place)
        if f"{part}/" in name and name.lower().endswith(".png")
    ]
    if not names:
        raise InputError(f"{place} has no {part}/ALPHABET/CHARACTER/*.png.")
    classes = sorted({_character(name) for name in names})
    kept = set(classes[::_VAL_EVERY] if split == "val" else classes)
    names = [name for name in names if _character(name) in kept]
    labels = [_character(name) + " turned" * (split == "val") for name in names]
    return from_names(
        names,
        labels,
        lambda name: _ink_file(place / name, turned=split == "val"),
        f"omniglot {split}",
    )


def _omniglot_array(path: Path, split: str) -> ImageSource:
    with reading(path, "the arrays of Omniglot"), np.load(path, allow_pickle=False) as file:
        images = file["images"]
        labels = file["labels"]
        names = [str(name) for name in file["class_names"]]
        is_evaluation = file["class_is_evaluation"]
    if not (images.ndim == 3 and images.dtype == np.uint8 and labels.shape == images.shape[:1]
            and labels.dtype.kind in "iu" and is_evaluation.shape == (len(names),)):  # fmt: skip
        wanted = (
            "images [n, h, w] uint8, labels [n] of integers, "
            "and class_names and class_is_evaluation [k]"
        )
        raise InputError(f"{path} needs {wanted}.")
    classes = np.flatnonzero(is_evaluation == (split == "test"))
    if split == "val":
        classes = classes[::_VAL_EVERY]
    rows = np.flatnonzero(np.isin(labels, classes))
    chosen = np.rot90(images[rows], axes=(1, 2)) if split == "val" else images[rows]
    called = [names[c] + " turned" * (split == "val") for c in classes]
    numbers = torch.from_numpy(np.searchsorted(classes, labels[rows]))
    return sources.array_source(chosen, numbers, called, f"omniglot {split}")


def _character(name: str) -> str:
    """The character of a path.

    It is ``images_background/Greek/character03`` for a drawing in that folder.
    """
    return "/".join(name.split("/")[-4:-1])


def _ink_file(path: Path, *, turned: bool) -> bytes:
    """The original drawings are black on white; here ink is white on black, as in the arrays."""
    data = path.read_bytes()
    try:
        pixels = 255 - np.asarray(read_picture(data, channels=1)[0])
    except InputError:
        return data  # damaged: decoding it later gives the error with its name
    return sources.grey_file(np.rot90(pixels) if turned else pixels)


_OPENERS = {"inat": _open_inat, "omniglot": _open_omniglot, "glyphs": _open_glyphs}
DATASETS: Mapping[str, DataSet] = {
    name: DataSet(name=name, open=_OPENERS.get(name, partial(_open_by_class, name)), **about)
    for name, about in _read("datasets.json").items()
}
