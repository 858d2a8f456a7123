"""Data sets by name: those of the paper and the embedded letters.

Data sets are looked for in one folder (``data``, or the environment variable MANYWAY_DATA, or ``data``). A data set
is a folder or a zip archive in it, with any nesting inside: the class of a picture is recognised in its path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType

import torch

from manyway.encoding.datasets.archives import open_zip, read_file, refuse_escape
from manyway.encoding.datasets.sources import IMAGE_SUFFIXES, ImageSource, from_names, list_files, read_list
from manyway.errors import InputError, nearest
from manyway.files.files import data_root

SPLITS = ("base", "val", "test")
_WORDNET_ID = re.compile(r"n\d{8}")


@dataclass(frozen=True)
class DataSet:
    """An entry of ``manyway datasets``."""

    name: str
    what: str
    origin: str  # where to get it
    layout: str  # the files that are expected in the data folder
    places: tuple[str, ...]  # names of its folder or archive, in order of preference
    channels: int
    size: int  # input of the networks in pixels
    splits: tuple[str, ...]
    open: Callable[[Path, str], ImageSource]

    def find(self, root: Path) -> Path | None:
        """Its folder or archive in ``root``; None if it is missing."""
        return next((root / place for place in self.places if (root / place).exists()), None)


def open_dataset(name: str, split: str, root: str | Path | None = None) -> ImageSource:
    """List the pictures of one split of a data set in ``DATASETS``; ``root`` is the folder of data sets."""
    if name not in DATASETS:
        raise InputError(f"There is no data set '{name}'; {nearest(name, DATASETS)}")
    entry, folder = DATASETS[name], data_root(root)
    if split not in entry.splits:
        raise InputError(f"{name} has no split '{split}'; {nearest(split, entry.splits)}")
    place = folder if not entry.places else entry.find(folder)
    if place is None:
        raise InputError(
            f"{name} was not found in {folder} (looked for {', '.join(entry.places)}); get it from {entry.origin}."
        )
    return entry.open(place, split)


@lru_cache(maxsize=1)
def standard_classes() -> Mapping[str, Mapping[str, Sequence[str]]]:
    """The class lists of the standard splits of mini, tiered and cub."""
    text = (resources.files("manyway") / "training" / "splits.json").read_text()
    classes: Mapping[str, Mapping[str, Sequence[str]]] = json.loads(text)
    return classes


def _reader(place: Path) -> tuple[list[str], Callable[[str], bytes]]:
    """The names of the files in a folder or an archive, and a function that reads one of them."""
    if place.is_dir():
        return list_files(place), lambda name: read_file(place / name)
    return open_zip(place)


def class_in_path(name: str, classes: set[str]) -> str | None:
    """The class of a picture: a folder of its path, or the WordNet id that its file name begins with.

    >>> [class_in_path(name, {"n01532829"}) for name in ("train/n01532829/7.jpg", "n0153282900000005.jpg", "7.jpg")]
    ['n01532829', 'n01532829', None]
    """
    *folders, file = name.split("/")
    for folder in reversed(folders):
        if folder in classes:
            return folder
    match = _WORDNET_ID.match(file)
    return match.group() if match and match.group() in classes else None


def _open_by_class(name: str) -> Callable[[Path, str], ImageSource]:
    def open_split(place: Path, split: str) -> ImageSource:
        wanted = standard_classes()[name][split]
        names, read = _reader(place)
        known = set(wanted)
        pairs = [(n, class_in_path(n, known)) for n in names if Path(n).suffix.lower() in IMAGE_SUFFIXES]
        found = [(n, label) for n, label in pairs if label is not None]
        absent = sorted(known - {label for _, label in found})
        if absent:
            raise InputError(
                f"{place} lacks {len(absent)} of the {len(known)} {split} classes of {name}, {absent[0]} among them."
            )
        return from_names(
            [n for n, _ in found], [label for _, label in found], read, f"{name} {split}", order=tuple(wanted)
        )

    return open_split


def _open_inat(place: Path, split: str) -> ImageSource:
    """The given support (10 to 193 pictures per class) and the queries, in one source with ``is_support``."""
    lists = [_beside(place, f"inat_{part}.csv") for part in ("support", "query")]
    lines = [list(zip(*read_list(path)[:2], strict=True)) for path in lists]
    names, read = _reader(place)
    present = set(names)
    for path, part in zip(lists, lines, strict=True):
        for name, _ in part:
            refuse_escape(name, path)
        gone = next((name for name, _ in part if name not in present), None)
        if gone is not None:
            raise InputError(f"{path} lists {gone}, which is not in {place}.")
    both = lines[0] + lines[1]
    return from_names(
        [name for name, _ in both],
        [label for _, label in both],
        read,
        f"inat {split}",
        is_support=torch.arange(len(both)) < len(lines[0]),
    )


def _beside(place: Path, name: str) -> Path:
    """The path of a list that belongs to a data set: in its folder, next to it, or in ``splits`` next to it."""
    candidates = (place / name, place.parent / name, place.parent / "splits" / name)
    found = next((path for path in candidates if path.is_file()), None)
    if found is None:
        raise InputError(f"{name} was not found in {place} or next to it; it lists the pictures of the support.")
    return found


def _open_glyphs(place: Path, split: str) -> ImageSource:
    from manyway.encoding.datasets.drawings import array_source
    from manyway.training import glyphs

    images = glyphs.image_set(split, glyphs.BASE_SAMPLES if split == "base" else glyphs.SAMPLES)
    return array_source(images.images[:, 0].numpy(), images.labels, images.class_names, f"glyphs {split}")


def _open_omniglot(place: Path, split: str) -> ImageSource:
    from manyway.encoding.datasets.drawings import omniglot_source

    return omniglot_source(place, split)


DATASETS: Mapping[str, DataSet] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            DataSet(
                "mini", "mini-ImageNet: 64 / 16 / 20 classes, 600 images each",
                "ImageNet (ILSVRC 2012) with the list of Ravi and Larochelle",
                "mini/ or mini.zip with CLASS/*.jpg, or files that begin with the WordNet id",
                ("mini", "mini_imagenet", "mini.zip", "mini_imagenet.zip"), 3, 84, SPLITS, _open_by_class("mini"),
            ),
            DataSet(
                "tiered", "tiered-ImageNet: 351 / 97 / 160 classes, about 1,300 images each",
                "ImageNet (ILSVRC 2012) with the list of Ren et al.",
                "tiered/ or tiered.zip with CLASS/*.jpg (any folders around them)",
                ("tiered", "tiered_imagenet", "tiered.zip", "tiered_imagenet.zip"), 3, 84, SPLITS,
                _open_by_class("tiered"),
            ),
            DataSet(
                "inat", "iNat (meta-iNat test set): 227 species, a given support of 10 to 193 images, 37,187 queries",
                "iNaturalist 2017 with the lists of Wertheimer and Hariharan",
                "inat/ with test/CLASS/*.bmp, and inat_support.csv and inat_query.csv in it or in splits/",
                ("inat", "inat.zip"), 3, 84, ("test",), _open_inat,
            ),
            DataSet(
                "cub", "CUB-200-2011: 200 birds, 100 / 50 / 50 classes, about 59 images each",
                "https://www.vision.caltech.edu/datasets/cub_200_2011/",
                "cub/, CUB_200_2011/ or a zip with 001.Black_footed_Albatross/*.jpg and so on",
                ("cub", "CUB_200_2011", "cub.zip", "cub200_96px.zip"), 3, 84, SPLITS, _open_by_class("cub"),
            ),
            DataSet(
                "omniglot", "Omniglot: 1,623 characters, 20 drawings each; 964 / 241 (rotated) / 659 classes",
                "https://github.com/brendenlake/omniglot",
                "omniglot/ with images_background/ and images_evaluation/, or omniglot_28px.npz",
                ("omniglot_28px.npz", "omniglot.npz", "omniglot"), 1, 28, SPLITS, _open_omniglot,
            ),
            DataSet(
                "glyphs", "Letters drawn from the fonts that matplotlib ships: 970 / 100 / 215 classes",
                "built in: they are drawn when needed", "nothing", (), 1, 28, SPLITS, _open_glyphs,
            ),
        )
    }
)  # fmt: skip
