"""Pictures that are listed but not read yet: folders, zip archives and split files, all as one kind of value."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import torch
from torch import Tensor

from manyway.encoding.datasets.archives import open_zip, refuse_escape
from manyway.encoding.datasets.images import ImageSet
from manyway.encoding.datasets.preprocess import Preprocess
from manyway.errors import InputError

IMAGE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
UNLABELLED = "unlabelled"  # the one class of pictures that come without class folders
_PATH_COLUMNS, _LABEL_COLUMNS = ("filename", "path", "file", "image"), ("label", "class", "class_name")


@dataclass(frozen=True, eq=False)
class ImageSource:
    """Pictures by name; ``read(i)`` gives the bytes of picture i."""

    names: tuple[str, ...]  # [n] paths inside the source
    labels: Tensor  # [n] int64, 0..k-1
    class_names: tuple[str, ...]  # [k]
    read: Callable[[int], bytes]
    title: str  # what to call it in messages and provenance
    is_support: Tensor | None = None  # [n] bool: pictures given as labelled examples (iNat)

    def __len__(self) -> int:
        return len(self.names)

    def only(self, rows: Sequence[int]) -> ImageSource:
        """The pictures at ``rows``; classes stay as they are."""
        at = torch.tensor(rows, dtype=torch.int64)
        read = self.read
        return replace(
            self,
            names=tuple(self.names[i] for i in rows),
            labels=self.labels[at],
            read=lambda i: read(rows[i]),
            is_support=None if self.is_support is None else self.is_support[at],
        )


def open_source(path: str | Path, root: str | Path | None = None) -> ImageSource:
    """A folder of class folders, a zip archive of one, or a CSV of labelled paths (below ``root``, or beside it)."""
    path = Path(path)
    if path.is_dir():
        return folder_source(path)
    if not path.exists():
        raise InputError(f"There is no folder or file {path}.")
    if path.suffix.lower() == ".csv":
        return csv_source(path, root)
    return zip_source(path)


def folder_source(folder: Path) -> ImageSource:
    """``folder/CLASS/*.jpg``: class names are folder names. Pictures without class folders have no labels."""
    names = list_files(folder)
    class_folders = [entry.name for entry in sorted(folder.iterdir()) if entry.is_dir() and entry.name[0] != "."]
    return _labelled_by_folder(names, class_folders, lambda name: (folder / name).read_bytes(), str(folder))


def zip_source(path: Path) -> ImageSource:
    """The same inside a zip archive, read in place: nothing is unpacked to the disk."""
    names, read = open_zip(path)
    prefix = _common_folder(names)
    inside = {name.removeprefix(prefix): name for name in names}
    folders = sorted({name.split("/")[0] for name in inside if "/" in name})
    return _labelled_by_folder(list(inside), folders, lambda name: read(inside[name]), str(path))


def list_files(folder: Path) -> list[str]:
    """Every file below a folder, as sorted relative paths with forward slashes; hidden ones are left out."""
    try:
        files = [path for path in folder.rglob("*") if path.is_file()]
    except OSError as error:
        raise InputError(f"{folder} cannot be listed: {error.strerror}.") from error
    names = (path.relative_to(folder).as_posix() for path in files)
    return sorted(name for name in names if not any(part.startswith(".") for part in name.split("/")))


def _common_folder(names: Sequence[str]) -> str:
    """The folders around the class folders (``images/`` in ``images/CLASS/1.jpg``), with the final slash."""
    if not names:
        return ""
    parts = [name.split("/")[:-2] for name in names]
    shared: list[str] = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return "".join(f"{part}/" for part in shared)


def _labelled_by_folder(
    names: Sequence[str], folders: Sequence[str], read: Callable[[str], bytes], title: str
) -> ImageSource:
    kept = [name for name in names if name.rpartition("/")[2].lower() not in {"thumbs.db", "desktop.ini"}]
    if not kept:
        raise InputError(f"{title} holds no pictures.")
    if not folders:
        return from_names(kept, [UNLABELLED] * len(kept), read, title)
    loose = next((name for name in kept if "/" not in name), None)
    if loose is not None:
        raise InputError(
            f"{title} mixes class folders with loose files ({loose}); put every picture into a class folder."
        )
    classes = [name.split("/")[0] for name in kept]
    empty = sorted(set(folders) - set(classes))
    if empty:
        raise InputError(f"The class folder '{empty[0]}' in {title} is empty; remove it or put pictures into it.")
    return from_names(kept, classes, read, title)


def from_names(
    names: Sequence[str],
    classes: Sequence[str],
    read: Callable[[str], bytes],
    title: str,
    *,
    order: Sequence[str] | None = None,
    is_support: Tensor | None = None,
) -> ImageSource:
    """A source from one class name a picture; classes are numbered in ``order`` (by default sorted)."""
    class_names = tuple(order) if order is not None else tuple(sorted(set(classes)))
    refuse_same_names(class_names, title)
    number = {name: i for i, name in enumerate(class_names)}
    labels = torch.tensor([number[name] for name in classes], dtype=torch.int64)
    frozen = tuple(names)
    return ImageSource(frozen, labels, class_names, lambda i: read(frozen[i]), title, is_support)


def refuse_same_names(class_names: Iterable[str], title: str) -> None:
    """Two classes that differ only in case are one class on some disks and a typing slip on others."""
    seen: dict[str, str] = {}
    for name in class_names:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            raise InputError(f"{title} has two classes whose names differ only in case: '{other}' and '{name}'.")


def read_split(path: Path) -> list[tuple[str, str]]:
    """(picture, label) lines of a split file in the public format, with a header line or without.

    A first line whose first cell names no picture is a header. The published loader always drops the first line, which
    loses the first image of files that have none.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as CSV ({error}).") from error
    if not rows:
        raise InputError(f"{path} is empty; it needs a picture and a label on each line.")
    at_path, at_label = 0, 1
    if PurePosixPath(rows[0][0].strip()).suffix.lower() not in IMAGE_SUFFIXES:
        header = [cell.strip().lower() for cell in rows.pop(0)]
        columns = [next((c for c in known if c in header), None) for known in (_PATH_COLUMNS, _LABEL_COLUMNS)]
        if None in columns:
            raise InputError(
                f"{path} has the columns {', '.join(header)}; it needs one of {', '.join(_PATH_COLUMNS)} "
                f"and one of {', '.join(_LABEL_COLUMNS)}."
            )
        at_path, at_label = (header.index(str(column)) for column in columns)
    for number, row in enumerate(rows, start=1):
        if len(row) <= max(at_path, at_label) or not row[at_path].strip() or not row[at_label].strip():
            raise InputError(f"Line {number} of the pictures in {path} lacks a picture or a label: {','.join(row)!r}.")
    return [(row[at_path].strip(), row[at_label].strip()) for row in rows]


def csv_source(path: Path, root: str | Path | None = None) -> ImageSource:
    """Pictures listed in a split file, found under ``root`` (default: the folder of the file)."""
    folder = Path(root) if root is not None else path.parent
    lines = read_split(path)
    names = [name for name, _ in lines]
    for name in names:
        refuse_escape(name, path)
    gone = next((name for name in names if not (folder / name).is_file()), None)
    if gone is not None:
        raise InputError(f"{path} lists {gone}, which is not in {folder}; give the folder of the pictures.")
    return from_names(names, [label for _, label in lines], lambda name: (folder / name).read_bytes(), str(path))


@dataclass(frozen=True, eq=False)
class Loaded:
    """Decoded pictures, and what could not be decoded."""

    images: ImageSet
    rows: tuple[int, ...]  # which rows of the source they are
    bad: Mapping[str, str]  # name -> why


def decode_rows(
    source: ImageSource, rows: Sequence[int], preprocess: Preprocess
) -> tuple[list[Tensor | None], dict[str, str]]:
    """Pictures [c, h, w] uint8 at ``rows`` (None where broken) and why the broken ones are."""
    bad: dict[str, str] = {}

    def decode(i: int) -> Tensor | None:
        try:
            data = source.read(i)
        except OSError as error:
            bad[source.names[i]] = f"it cannot be read ({error.strerror or error})"
            return None
        try:
            return preprocess.decode(data)
        except InputError as error:
            bad[source.names[i]] = str(error)
            return None

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:  # Pillow decodes outside Python's lock
        return list(pool.map(decode, rows)), bad


def load_images(
    source: ImageSource,
    preprocess: Preprocess,
    *,
    skip_bad: bool = False,
    progress: Callable[[int], None] = lambda n: None,
) -> Loaded:
    """Decode every picture once. A broken one stops it with a sentence, or is left out when ``skip_bad``."""
    pictures: list[Tensor] = []
    rows: list[int] = []
    bad: dict[str, str] = {}
    for start in range(0, len(source), 512):
        part = range(start, min(start + 512, len(source)))
        decoded, broken = decode_rows(source, part, preprocess)
        if broken and not skip_bad:
            raise bad_picture(broken, source.title)
        bad |= broken
        rows += [i for i, picture in zip(part, decoded, strict=True) if picture is not None]
        pictures += [picture for picture in decoded if picture is not None]
        progress(len(part))
    if not pictures:
        raise InputError(f"No picture in {source.title} could be read.")
    images = ImageSet(torch.stack(pictures), source.labels[torch.tensor(rows)], source.class_names)
    return Loaded(images, tuple(rows), bad)


def bad_picture(broken: Mapping[str, str], title: str) -> InputError:
    name, why = next(iter(sorted(broken.items())))
    return InputError(
        f"{name} in {title} cannot be used: {why}; mend or remove it, or leave such files out with --skip-bad."
    )
