"""Pictures that are listed but not read yet, from folders, zip archives and tables."""

import os
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path, PurePosixPath
from posixpath import splitext
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from manyway import files
from manyway.encoding.datasets.archives import common_folder, open_zip, read_file, refuse_escape
from manyway.encoding.datasets.decode import (
    HEADER,
    looks_like_picture,
    read_picture,
    require_pillow,
)
from manyway.encoding.datasets.preprocess import ImageSet, Preprocess, Remarks
from manyway.errors import InputError


def _endings(names: str) -> frozenset[str]:
    return frozenset(f".{name}" for name in names.split())


IMAGE_SUFFIXES = _endings(
    "avif bmp gif heic heif hif jfif jp2 jpe jpeg jpg mpo pgm png ppm tif tiff webp"
)
FILMS = _endings("3gp asf avi flv m2ts m4v mkv mov mp4 mpeg mpg mts webm wmv")
_RAW = _endings("arw cr2 cr3 crw dng nef nrw orf pef raf rw2 srw x3f")
_OF_THE_SYSTEM = frozenset({"thumbs.db", "desktop.ini"})
_OF_STORAGE = "@eaDir"  # the folder of thumbnails on a Synology
_BAD_SHARE = 0.1  # of pictures that cannot be read: more are a mistake
_MEND = "mend or remove such files, or leave them out with `skip_bad`"
T = TypeVar("T")
ReadBytes = Callable[..., bytes]  # the bytes of a picture, or so many of them
PictureProgress = Callable[[int], None]  # is told how many more pictures are read
Pixels = np.ndarray[Any, np.dtype[np.uint8]]
UNLABELLED = "unlabelled"  # the one class of pictures that come without class folders
PATH_COLUMNS = ("filename", "path", "file", "image")


@dataclass(frozen=True, eq=False)
class Source:
    """Pictures or texts, with classes; without labels they are all of one class, ``unlabelled``.

    Attributes
    ----------
    names : tuple of str
        [n] where they are: paths of pictures inside the source,
        numbers of lines or rows of texts in their file.
    labels : Tensor
        [n] int64, from 0 to k - 1.
    class_names : tuple of str
        [k]
    title : str
        Its name in messages and metadata.
    header : tuple of str
        All columns, where it is a table.
    carried : mapping of str to sequence
        Its columns that are neither picture, name nor label.
    left_out : tuple of (str, str)
        Files beside the pictures that are none, with what they are; rows without a text.
    notes : tuple of str
        What was guessed.
    origin : TableOrigin or None
        Where the rows are in a table, and after them those that are left out.
    """

    names: tuple[str, ...]
    labels: Tensor
    class_names: tuple[str, ...]
    title: str
    _: KW_ONLY
    header: tuple[str, ...] = ()
    carried: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    left_out: Remarks = ()
    notes: tuple[str, ...] = ()
    origin: files.TableOrigin | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def is_labelled(self) -> bool:
        """Whether classes were given."""
        return self.class_names != (UNLABELLED,)


@dataclass(frozen=True, eq=False)
class ImageSource(Source):
    """Pictures by name; ``read(i)`` returns the bytes of picture i, ``read(i, n)`` its first n."""

    read: ReadBytes
    # [n] bool, marks pictures that are given as labelled examples (iNat)
    is_support: Tensor | None = None


def open_source(
    path: Path,
    root: files.AnyPath | None = None,
    options: files.Options = files.AUTO,
    *,
    need_labels: bool = True,
) -> ImageSource:
    """List the pictures at a path.

    Parameters
    ----------
    path : path-like
        A folder with one folder per class (or with pictures and no folders: one
        class, ``unlabelled``), a zip archive of such a folder, or a table with a
        picture and a label per row.
    root : path-like, optional
        The folder of the pictures of a table; by default the folder that holds the file.
    options : Options, optional
        Which column of a table is the label.
    need_labels : bool, default=True
        Whether folders beside loose files, and empty folders, are an InputError. If labels are not
        needed, the pictures of such a folder have none, and empty folders are ignored.

    Returns
    -------
    ImageSource
    """
    if path.is_dir():
        return folder_source(path, need_labels)
    if not path.exists():
        raise InputError(f"There is no folder or file {path}.")
    files.check_input(path)
    if files.is_table(path):
        return list_source(path, root, options, need_labels)
    return zip_source(path, need_labels)


def folder_source(folder: Path, need_labels: bool = True) -> ImageSource:
    """``folder/CLASS/*.jpg``: class names are folder names.

    Pictures without class folders have no labels.
    """
    found = list(walk(folder))
    folders = [name[:-1] for name in found if name.find("/") == len(name) - 1]
    names = sorted(name for name in found if name[-1] != "/")
    return _labelled_by_folder(
        names, folders, lambda name, *n: read_file(folder / name, *n), str(folder), need_labels
    )


def zip_source(path: Path, need_labels: bool = True) -> ImageSource:
    """The same inside a zip archive, read in place: nothing is unpacked to the disk."""
    names, read = open_zip(path)
    prefix = common_folder(names)
    inside = {name.removeprefix(prefix): name for name in names}
    folders = sorted({name.split("/")[0] for name in inside if "/" in name})
    return _labelled_by_folder(
        list(inside), folders, lambda name, *n: read(inside[name], *n), str(path), need_labels
    )


def list_files(folder: Path) -> list[str]:
    """Every file below a folder, as sorted relative paths with forward slashes; see `walk`."""
    return sorted(name for name in walk(folder) if name[-1] != "/")


def walk(folder: Path) -> Iterator[str]:
    """Files and folders below a folder, as relative paths with forward slashes.

    The path of a folder ends with a slash.

    Hidden ones are left out. Links to folders are followed, each folder once. A link to a folder
    that it lies in is an InputError. No file is looked at: on a slow disk that takes long.
    """
    folders = [""]
    links = list[str]()
    seen = set[tuple[int, int]]()
    try:
        while folders or links:
            linked = not folders
            # links last: a folder counts under its own name
            at = links.pop(0) if linked else folders.pop()
            place = folder / at
            status = os.stat(folder / at)
            if linked and place.parent.resolve().is_relative_to(place.resolve()):
                raise InputError(f"{place} is a link to a folder that it lies in; remove the link.")
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(folder / at) as entries:
                for entry in entries:
                    name = f"{at}{entry.name}"
                    if entry.name.startswith((".", _OF_STORAGE)):
                        continue
                    if os.path.isdir(entry) if entry.is_symlink() else entry.is_dir():
                        (links if entry.is_symlink() else folders).append(f"{name}/")
                        yield f"{name}/"
                    elif (
                        entry.is_file() if not entry.is_symlink() or os.path.exists(entry) else True
                    ):
                        yield name  # also a link to nothing, which is a picture that cannot be read
            links.sort()
    except OSError as error:
        raise InputError(f"{folder} cannot be listed: {error.strerror}.") from error


def _labelled_by_folder(
    names: Sequence[str], folders: Sequence[str], read: ReadBytes, title: str, need_labels: bool
) -> ImageSource:
    pictures = tuple(IMAGE_SUFFIXES)
    suffixes = {
        name: splitext(name)[1].rstrip(".").lower()
        for name in names
        if not name.lower().endswith(pictures)
    }
    # Where no name ends like a picture, the contents decide.
    others = {name for name, suffix in suffixes.items() if suffix and suffix not in IMAGE_SUFFIXES}
    if len(others) >= len(names):
        others = set()
    kept = [
        name
        for name in names
        if name not in others and name.rpartition("/")[2].lower() not in _OF_THE_SYSTEM
    ]
    if not kept:
        raise InputError(f"{title} holds no pictures.")
    loose = next((name for name in kept if "/" not in name), None)
    classes = [name.split("/")[0] for name in kept]
    empty = sorted(set(folders) - set(classes))
    if not folders or (loose is not None and not need_labels):
        classes = [UNLABELLED] * len(kept)
    elif loose is not None:
        hint = (
            "put every picture into a class folder, or name the examples first and the items second"
        )
        raise InputError(f"{title} mixes class folders with loose files ({loose}); {hint}.")
    elif empty and need_labels:
        raise InputError(
            f"The class folder '{empty[0]}' in {title} is empty; remove it or put pictures into it."
        )
    shown = sorted(name for name in others if name.rpartition("/")[2].lower() not in _OF_THE_SYSTEM)
    left_out = tuple((name, _what_is(suffixes[name])) for name in shown)
    notes = list[str]()
    inner = sorted({name.split("/")[1] for name in kept if name.count("/") > 1})
    if need_labels and len(inner) > 1 and all(name.count("/") > 1 for name in kept):
        outer = files.listed(sorted(set(classes)), 3)
        those = files.listed(inner, 3)
        notes.append(
            f"the classes of {title} are its outer folders ({outer}), not those in them ({those})"
        )
    return from_names(kept, classes, read, title, left_out=left_out, notes=tuple(notes))


def _what_is(suffix: str) -> str:
    """What a file beside the pictures is."""
    if suffix in FILMS:
        return "it is a film; save single frames of it as pictures"
    if suffix in _RAW:
        return "it is a raw file; save it as JPEG"
    return "it is no picture"


def from_names(
    names: Sequence[str],
    classes: Sequence[str],
    read: ReadBytes,
    title: str,
    order: Sequence[str] = (),
    **more: Any,
) -> ImageSource:
    """A source from one class name per picture.

    Classes are numbered in ``order`` (by default sorted).
    """
    frozen = tuple(names)
    return ImageSource(
        frozen, *numbered(classes, title, order), title, lambda i, *n: read(frozen[i], *n), **more
    )


def numbered(
    classes: Sequence[str], title: str, order: Sequence[str] = ()
) -> tuple[Tensor, tuple[str, ...]]:
    """Labels [n] and names of the classes, which are numbered in ``order`` (by default sorted).

    Classes that differ only in case or Unicode form are refused:
    on some disks they are one folder, else a slip.
    """
    class_names = tuple(order or sorted(set(classes)))
    seen: dict[str, str] = {}
    for name in class_names:
        other = seen.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
        if other != name:
            two = f"'{other}' and '{name}'"
            raise InputError(
                f"{title} has two classes that differ only in case or Unicode form: {two}."
            )
    number = {name: i for i, name in enumerate(class_names)}
    return torch.tensor([number[name] for name in classes], dtype=torch.int64), class_names


def read_list(
    path: Path, options: files.Options = files.AUTO, *, need_labels: bool = True
) -> tuple[list[str], Sequence[str], files.Table, list[int]]:
    """The pictures and labels of a table, the table, and its other columns.

    No labels where none are needed.

    A first row whose first cell ends like a picture is no header. The published loader always drops
    the first row, and so loses the first picture of files without a header.
    """

    def is_header(first: Sequence[str]) -> bool:
        return PurePosixPath(first[0].strip()).suffix.lower() not in IMAGE_SUFFIXES

    table = files.open_table(path, options, is_header)
    at_path, at_label = (
        (files.find_any(table.names, *PATH_COLUMNS), None) if table.named else (0, 1)
    )
    if table.named and need_labels:
        at_label = files.find_label(path, table, options)
    if at_path is None or (at_label is None and need_labels):
        wanted = f"one of {', '.join(PATH_COLUMNS)}" + " and a label" * need_labels
        raise InputError(f"{path} has the columns {files.listed(table.names)}; it needs {wanted}.")
    others = [at for at in range(len(table.names)) if at not in (at_path, at_label)]
    pictures, labels = table.values([at_path, at_label if need_labels else None])
    if not pictures:
        raise InputError(f"{path} lists no pictures.")
    # lists are written on Windows too
    names = [str(cell).strip().replace("\\", "/") for cell in pictures]
    classes = map(str, files.clean_labels(path, labels, table.place)) if need_labels else ()
    return names, tuple(classes), table, others


def list_source(
    path: Path,
    root: files.AnyPath | None = None,
    options: files.Options = files.AUTO,
    need_labels: bool = True,
) -> ImageSource:
    """Pictures listed in a table, found under ``root`` (default: the folder of the file)."""
    folder = Path(root) if root is not None else path.parent
    names, labels, table, others = read_list(path, options, need_labels=need_labels)
    for name in names:
        refuse_escape(name, path)
    if not any(os.path.isfile(folder / name) for name in names):
        raise InputError(
            f"{path} lists {names[0]}, which is not in {folder}; "
            "paths begin at the folder of the list."
        )
    labels = labels or [UNLABELLED] * len(names)
    carried = dict(zip((table.names[at] for at in others), table.values(others), strict=True))
    header = tuple(table.names) if table.named else ()
    origin = files.TableOrigin.of(table, path, len(names), options.sheet)
    about: dict[str, Any] = {
        "header": header,
        "carried": carried,
        "notes": tuple(table.notes),
        "origin": origin,
    }
    return from_names(
        names, labels, lambda name, *n: read_file(folder / name, *n), str(path), **about
    )


class Decoded(NamedTuple):
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


def check_pictures(source: ImageSource, *, skip_bad: bool = False) -> None:
    """Look at the start of every picture, before work on the first one begins.

    Pictures that cannot be read are left out later, unless they are many:
    that is an InputError unless ``skip_bad``.
    """
    require_pillow()

    def problem(i: int) -> str:
        try:
            if not looks_like_picture(source.read(i, HEADER)):
                read_picture(source.read(i), 3)  # says what is wrong
            return ""
        except (OSError, InputError) as error:
            return str(getattr(error, "strerror", None) or error)

    found = dict(zip(source.names, _in_threads(problem, range(len(source))), strict=True))
    bad = [name for name, what in found.items() if what]
    if len(bad) == len(source) or (not skip_bad and len(bad) > max(1, _BAD_SHARE * len(source))):
        count = f"{len(bad)} of {len(source)} files in {source.title} cannot be used"
        hint = "name a folder of pictures" if len(bad) == len(source) else _MEND
        raise InputError(f"{count}, such as {bad[0]}: {found[bad[0]]}; {hint}.")


def decode_rows(
    source: ImageSource,
    rows: Sequence[int],
    preprocess: Preprocess,
    *,
    skip_bad: bool,
    wanted: Callable[[int, bytes], bool] = lambda row, data: True,
) -> Decoded:
    """Decode pictures in threads. One that cannot be used is an InputError unless ``skip_bad``.

    ``wanted`` is called with the row and the bytes of each picture;
    where it says no, the picture is not decoded.
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
        except (OSError, InputError) as error:
            if isinstance(error, OSError):
                why = f"it cannot be read ({error.strerror or error})"
            else:
                why = str(error)
            skipped[source.names[i]] = why
            return None
        if note:
            notes[source.names[i]] = note
        return preprocess.fit(picture)

    pictures = _in_threads(decode, rows)
    if skipped and not skip_bad:
        name = min(skipped)
        more = f" ({len(skipped) - 1} more of {len(rows)} looked at)" if len(skipped) > 1 else ""
        raise InputError(
            f"{name} in {source.title} cannot be used: {skipped[name]}{more}; {_MEND}."
        )
    return Decoded(pictures, tuple(sorted(skipped.items())), tuple(sorted(notes.items())))


def _in_threads(work: Callable[[int], T], rows: Sequence[int]) -> list[T]:
    """Work on rows with all cores, without Pillow's warnings about large pictures and odd metadata."""
    with warnings.catch_warnings(), ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        warnings.simplefilter("ignore")  # they say nothing that users can act on
        return list(pool.map(work, rows))


def load_images(
    source: ImageSource,
    preprocess: Preprocess,
    *,
    skip_bad: bool = False,
    progress: PictureProgress = lambda n: None,
) -> ImageSet:
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
    ImageSet
        The pictures that could be decoded.
    """
    images: dict[int, Tensor] = {}  # by row
    skipped = list[tuple[str, str]]()
    notes = list[tuple[str, str]]()
    for start in range(0, len(source), 512):
        rows = range(start, min(start + 512, len(source)))
        decoded = decode_rows(source, rows, preprocess, skip_bad=skip_bad)
        images |= {
            row: picture
            for row, picture in zip(rows, decoded.pictures, strict=True)
            if picture is not None
        }
        skipped += decoded.skipped
        notes += decoded.notes
        progress(len(rows))
    if not images:
        raise InputError(f"No picture in {source.title} could be read.")
    labels = source.labels[torch.tensor([*images])]
    return ImageSet(
        torch.stack([*images.values()]), labels, source.class_names, tuple(skipped), tuple(notes)
    )


def array_source(
    images: Pixels, labels: Tensor, class_names: Sequence[str], title: str
) -> ImageSource:
    """A source of pictures [n, h, w] in memory.

    They are read as grey PGM files, so that all later code is shared.
    """
    numbers = [str(i) for i in range(len(images))]
    return ImageSource(
        tuple(numbers), labels, tuple(class_names), title, lambda i: grey_file(images[i])
    )


def grey_file(pixels: Pixels) -> bytes:
    """A grey picture [h, w] as the bytes of a PGM file."""
    height, width = pixels.shape
    return f"P5 {width} {height} 255\n".encode() + np.ascontiguousarray(pixels).tobytes()
