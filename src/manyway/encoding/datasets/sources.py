"""Pictures that are listed but not read yet, from folders, zip archives and CSV files."""

from __future__ import annotations

import os
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import torch
from torch import Tensor

from manyway.encoding.datasets.archives import open_zip, read_file, refuse_escape
from manyway.encoding.datasets.decode import read_picture, require_pillow
from manyway.encoding.datasets.images import ImageSet
from manyway.encoding.datasets.preprocess import Preprocess
from manyway.errors import InputError
from manyway.files.files import check_input
from manyway.files.text import check_width, read_records

IMAGE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
UNLABELLED = "unlabelled"  # the one class of pictures that come without class folders
PATH_COLUMNS, _LABEL_COLUMNS = ("filename", "path", "file", "image"), ("label", "class", "class_name")


@dataclass(frozen=True, eq=False)
class ImageSource:
    """Pictures by name, with classes.

    Attributes
    ----------
    names : tuple of str
        [n] paths inside the source.
    labels : Tensor
        [n] int64, from 0 to k - 1.
    class_names : tuple of str
        [k]
    read : callable
        ``read(i)`` returns the bytes of picture i.
    title : str
        Its name in messages and metadata.
    is_support : Tensor or None
        [n] bool, marks pictures that are given as labelled examples (iNat).
    header : tuple of str
        Always empty: the columns of a list of pictures have fixed names.
    """

    names: tuple[str, ...]
    labels: Tensor
    class_names: tuple[str, ...]
    read: Callable[[int], bytes]
    title: str
    is_support: Tensor | None = None
    header: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    @property
    def is_labelled(self) -> bool:
        """Whether classes were given."""
        return self.class_names != (UNLABELLED,)


def open_source(path: str | Path, root: str | Path | None = None, *, need_labels: bool = True) -> ImageSource:
    """List the pictures at a path.

    Parameters
    ----------
    path : path-like
        A folder with one folder per class (or with pictures and no folders: one class, ``unlabelled``), a zip archive
        of such a folder, or a CSV file with a picture and a label per row.
    root : path-like, optional
        The folder of the pictures of a CSV file; by default the folder that holds the file.
    need_labels : bool, default=True
        Whether folders beside loose files, and empty folders, are an InputError. If labels are not needed, the pictures
        of such a folder have none, and empty folders are ignored.

    Returns
    -------
    ImageSource
    """
    path = Path(path)
    if path.is_dir():
        return folder_source(path, need_labels)
    if not path.exists():
        raise InputError(f"There is no folder or file {path}.")
    check_input(path)
    if path.suffix.lower() == ".csv":
        return csv_source(path, root)
    return zip_source(path, need_labels)


def folder_source(folder: Path, need_labels: bool = True) -> ImageSource:
    """``folder/CLASS/*.jpg``: class names are folder names. Pictures without class folders have no labels."""
    try:
        class_folders = [entry.name for entry in sorted(folder.iterdir()) if entry.is_dir() and entry.name[0] != "."]
    except OSError as error:
        raise InputError(f"{folder} cannot be listed: {error.strerror}.") from error
    names = list_files(folder)
    return _labelled_by_folder(names, class_folders, lambda name: read_file(folder / name), str(folder), need_labels)


def zip_source(path: Path, need_labels: bool = True) -> ImageSource:
    """The same inside a zip archive, read in place: nothing is unpacked to the disk."""
    names, read = open_zip(path)
    prefix = common_folder(names)
    inside = {name.removeprefix(prefix): name for name in names}
    folders = sorted({name.split("/")[0] for name in inside if "/" in name})
    return _labelled_by_folder(list(inside), folders, lambda name: read(inside[name]), str(path), need_labels)


def list_files(folder: Path) -> list[str]:
    """Every file below a folder, as sorted relative paths with forward slashes; hidden ones are left out.

    Links to folders are followed, each folder once. A link to a folder that it lies in is an InputError.
    """
    names: list[str] = []
    folders, links = [folder], list[Path]()
    seen: set[tuple[int, int]] = set()
    try:
        while folders or links:
            at = folders.pop() if folders else links.pop(0)  # links last: a folder counts under its own name
            status = at.stat()
            if (status.st_dev, status.st_ino) in seen:
                if at.is_symlink() and at.parent.resolve().is_relative_to(at.resolve()):
                    raise InputError(f"{at} is a link to a folder that it lies in; remove the link.")
                continue
            seen.add((status.st_dev, status.st_ino))
            for entry in sorted(entry for entry in at.iterdir() if not entry.name.startswith(".")):
                if entry.is_dir():
                    (links if entry.is_symlink() else folders).append(entry)
                elif entry.is_file():
                    names.append(entry.relative_to(folder).as_posix())
    except OSError as error:
        raise InputError(f"{folder} cannot be listed: {error.strerror}.") from error
    return sorted(names)


def common_folder(names: Sequence[str]) -> str:
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
    names: Sequence[str], folders: Sequence[str], read: Callable[[str], bytes], title: str, need_labels: bool
) -> ImageSource:
    kept = [name for name in names if name.rpartition("/")[2].lower() not in {"thumbs.db", "desktop.ini"}]
    if not kept:
        raise InputError(f"{title} holds no pictures.")
    loose = next((name for name in kept if "/" not in name), None)
    if not folders or (loose is not None and not need_labels):
        return from_names(kept, [UNLABELLED] * len(kept), read, title)
    if loose is not None:
        raise InputError(
            f"{title} mixes class folders with loose files ({loose}); put every picture into a class folder."
        )
    classes = [name.split("/")[0] for name in kept]
    empty = sorted(set(folders) - set(classes))
    if empty and need_labels:
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
    """A source from one class name per picture; classes are numbered in ``order`` (by default sorted)."""
    class_names = tuple(order) if order is not None else tuple(sorted(set(classes)))
    refuse_same_names(class_names, title)
    number = {name: i for i, name in enumerate(class_names)}
    labels = torch.tensor([number[name] for name in classes], dtype=torch.int64)
    frozen = tuple(names)
    return ImageSource(frozen, labels, class_names, lambda i: read(frozen[i]), title, is_support)


def refuse_same_names(class_names: Iterable[str], title: str) -> None:
    """Refuse classes that differ only in case or Unicode form: on some disks they are one folder, else a slip."""
    seen: dict[str, str] = {}
    for name in class_names:
        other = seen.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
        if other != name:
            raise InputError(
                f"{title} has two classes whose names differ only in case or Unicode form: '{other}' and '{name}'."
            )


def read_split(path: Path) -> list[tuple[str, str]]:
    """The (picture, label) pairs of a CSV file in the format of the public splits, with or without a header.

    A first row whose first cell does not end like a picture is a header. The published loader always drops the first
    row, and so loses the first picture of files without a header.
    """
    records = list(read_records(path))
    if not records:
        raise InputError(f"{path} is empty; it needs a picture and a label on each line.")
    first = records[0][1]
    at_path, at_label = 0, 1
    if PurePosixPath(first[0].strip()).suffix.lower() not in IMAGE_SUFFIXES:
        header = [cell.strip().lower() for cell in first]
        columns = [next((c for c in known if c in header), "") for known in (PATH_COLUMNS, _LABEL_COLUMNS)]
        if any(header.count(column) != 1 for column in columns):
            raise InputError(
                f"{path} has the columns {', '.join(header)}; it needs one of {', '.join(PATH_COLUMNS)} "
                f"and one of {', '.join(_LABEL_COLUMNS)}, each once."
            )
        at_path, at_label = map(header.index, columns)
        del records[0]
    if not records:
        raise InputError(f"{path} has a header and lists no pictures.")
    pairs = []
    for line, cells in records:
        picture, label = (cells[at].strip() if at < len(cells) else "" for at in (at_path, at_label))
        if not picture or not label:
            raise InputError(f"Line {line} of {path} lacks a picture or a label: {','.join(cells)!r}.")
        check_width(path, line, cells, first)
        pairs.append((picture, label))
    return pairs


def csv_source(path: Path, root: str | Path | None = None) -> ImageSource:
    """Pictures listed in a CSV file, found under ``root`` (default: the folder of the file)."""
    folder = Path(root) if root is not None else path.parent
    pairs = read_split(path)
    for name, _ in pairs:
        refuse_escape(name, path)
        if not os.path.isfile(folder / name):
            raise InputError(f"{path} lists {name}, which is not in {folder}; give the folder of the pictures.")
    return from_names(
        [name for name, _ in pairs], [label for _, label in pairs], lambda name: read_file(folder / name), str(path)
    )


Remarks = tuple[tuple[str, str], ...]  # (name of a picture, what there is to say about it), sorted


@dataclass(frozen=True, eq=False)
class Decoded:
    """Pictures of some rows of a source.

    Attributes
    ----------
    pictures : list of (Tensor or None)
        [c, h, w] uint8 per row; None where the picture cannot be used, or is not wanted.
    skipped : tuple of (name, reason)
        The pictures that cannot be used.
    notes : tuple of (name, note)
        What the user should know about how others were decoded.
    """

    pictures: list[Tensor | None]
    skipped: Remarks
    notes: Remarks


def decode_rows(
    source: ImageSource,
    rows: Sequence[int],
    preprocess: Preprocess,
    *,
    skip_bad: bool,
    wanted: Callable[[int, bytes], bool] = lambda row, data: True,
) -> Decoded:
    """Decode pictures in threads. One that cannot be used is an InputError unless ``skip_bad``.

    ``wanted`` is called with the row and the bytes of each picture; where it says no, the picture is not decoded.
    """
    require_pillow()
    skipped: dict[str, str] = {}
    notes: dict[str, str] = {}

    def decode(i: int) -> Tensor | None:
        try:
            data = source.read(i)
            if not wanted(i, data):
                return None
            picture, note = read_picture(data, preprocess.channels, preprocess.resize)
        except OSError as error:
            skipped[source.names[i]] = f"it cannot be read ({error.strerror or error})"
            return None
        except InputError as error:
            skipped[source.names[i]] = str(error)
            return None
        if note:
            notes[source.names[i]] = note
        return preprocess.fit(picture)

    # Pillow warns about large pictures and odd metadata by Python warnings, which say nothing that users can act on.
    with warnings.catch_warnings(), ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        warnings.simplefilter("ignore")
        pictures = list(pool.map(decode, rows))
    if skipped and not skip_bad:
        name = min(skipped)
        more = f" ({len(skipped) - 1} more of {len(rows)} looked at)" if len(skipped) > 1 else ""
        raise InputError(
            f"{name} in {source.title} cannot be used: {skipped[name]}{more}; mend or remove it, or leave such files "
            "out with `skip_bad`."
        )
    return Decoded(pictures, tuple(sorted(skipped.items())), tuple(sorted(notes.items())))


@dataclass(frozen=True, eq=False)
class Loaded:
    """All pictures of a source that could be decoded.

    Attributes
    ----------
    images : ImageSet
    rows : tuple of int
        The rows of the source that ``images`` holds.
    skipped, notes : tuple of (name, text)
        See :class:`Decoded`.
    """

    images: ImageSet
    rows: tuple[int, ...]
    skipped: Remarks
    notes: Remarks


def load_images(
    source: ImageSource,
    preprocess: Preprocess,
    *,
    skip_bad: bool = False,
    progress: Callable[[int], None] = lambda n: None,
) -> Loaded:
    """Decode every picture of a source once.

    Parameters
    ----------
    source : ImageSource
    preprocess : Preprocess
    skip_bad : bool, default=False
        Leave out pictures that cannot be used. Otherwise the first one is an InputError.
    progress : callable, optional
        Called with the number of pictures done since the last call.

    Returns
    -------
    Loaded
    """
    parts = []
    for start in range(0, len(source), 512):
        rows = range(start, min(start + 512, len(source)))
        parts.append(decode_rows(source, rows, preprocess, skip_bad=skip_bad))
        progress(len(rows))
    decoded = [picture for part in parts for picture in part.pictures]
    kept = [i for i, picture in enumerate(decoded) if picture is not None]
    if not kept:
        raise InputError(f"No picture in {source.title} could be read.")
    images = torch.stack([picture for picture in decoded if picture is not None])
    return Loaded(
        ImageSet(images, source.labels[torch.tensor(kept)], source.class_names),
        tuple(kept),
        tuple(remark for part in parts for remark in part.skipped),
        tuple(remark for part in parts for remark in part.notes),
    )
