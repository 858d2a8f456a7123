"""Untrusted files and zip archives: read within limits, in place, and never outside their folder.

``Originals`` are pictures one by one, by name, in the size that a page shows: what a review needs.
"""

import io
import os
import zipfile
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from manyway.encoding.datasets.decode import read_picture
from manyway.errors import InputError
from manyway.files import is_table

# bytes when unpacked; the largest data set of the paper (tiered) is about 30 GB
MAX_TOTAL = 64 * 2**30
MAX_FILE = 256 * 2**20  # bytes of one picture
# pixels of a picture that is decoded for its box, and of one that shows the box closely
_BOXED = 480
_CLOSE = 160
# unpacked / packed; pictures are compressed already, so the ratio is near 1 (bitmaps: tens)
MAX_RATIO = 200


def open_zip(path: Path) -> tuple[list[str], Callable[..., bytes]]:
    """The sorted names of the files in an archive, and a function that reads one of them."""
    try:
        archive = zipfile.ZipFile(path)
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    except Exception as error:  # damaged archives raise exceptions of many types
        raise InputError(
            f"{path} is neither a folder nor a readable zip archive ({error})."
        ) from error
    for entry in entries:
        refuse_escape(entry.filename, path)
        if entry.flag_bits & 0x1:
            raise InputError(
                f"{path} is encrypted; unpack it with its password and give the folder."
            )
        if entry.file_size > MAX_FILE or entry.file_size > MAX_RATIO * max(
            entry.compress_size, 1024
        ):
            sizes = f"{entry.file_size:,} bytes from {entry.compress_size:,}"
            bomb = "that looks like a decompression bomb, and the archive was not opened"
            raise InputError(f"{entry.filename} in {path} would unpack to {sizes}: {bomb}.")
    total = sum(entry.file_size for entry in entries)
    if total > MAX_TOTAL:
        raise InputError(
            f"{path} would unpack to {total:,} bytes, more than {MAX_TOTAL:,}; it was not opened."
        )
    inside = [(entry.filename, entry.filename.split("/")) for entry in entries]
    names = sorted(
        name
        for name, parts in inside
        if not any(p.startswith(".") or p == "__MACOSX" for p in parts)
    )
    if len(set(names)) != len(names):
        raise InputError(f"{path} holds two files of the same name; pack it again.")

    def read(name: str, most: int = MAX_FILE + 1) -> bytes:
        # The declared size, checked above, bounds what zipfile reads, whatever the packed data would give.
        try:
            with archive.open(name) as file:
                return file.read(most)
        except Exception as error:  # decompressors raise exceptions of many types on damaged data
            raise OSError(str(error) or type(error).__name__) from error

    return names, read


def read_file(path: Path, most: int = MAX_FILE + 1) -> bytes:
    """The content of a file, or its first bytes.

    It may be as large as a picture in an archive.
    """
    with path.open("rb") as file:
        data = file.read(most)
    if len(data) > MAX_FILE:
        raise OSError(f"it is larger than {MAX_FILE:,} bytes")
    return data


def refuse_escape(name: str, path: Path) -> None:
    """Refuse a path in an archive or a list that leads out of its folder."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or (parts.parts and parts.parts[0].endswith(":")):
        raise InputError(f"{path} names a path that leads out of it ({name}); it was not opened.")


def common_folder(names: Sequence[str]) -> str:
    """The folders around the class folders, with the final slash.

    They are ``images/`` in ``images/CLASS/1.jpg``.
    """
    shared = os.path.commonprefix([name.split("/")[:-2] for name in names])  # noqa: RUF071 (lists: folders)
    return "".join(f"{folder}/" for folder in shared)


class Originals(NamedTuple):
    """Picture files by the names that their source gives them.

    Attributes
    ----------
    read : callable
        ``read(name)`` returns the bytes of a picture; OSError or InputError if there is none.
    folder : Path or None
        The folder of the files; None if they are in an archive.
    """

    read: Callable[[str], bytes]
    folder: Path | None = None

    def path(self, name: str) -> Path | None:
        """The file of a picture; None if it has none of its own, or if it is missing.

        InputError if the name leads out of the folder.
        """
        if self.folder is None:
            return None
        found = Path(os.path.abspath(self.folder / _below(self.folder, name)))
        return found if found.is_file() else None

    def taken(self, name: str) -> str:
        """When a picture was taken, as its camera says; nothing where it does not say it."""
        from PIL import Image

        try:
            path = self.path(name)
            with Image.open(io.BytesIO(self.read(name)) if path is None else path) as picture:
                exif = picture.getexif()
                text = str(exif.get_ifd(0x8769).get(0x9003) or exif.get(0x0132) or "")
                return str(datetime.strptime(text.strip("\0 "), "%Y:%m:%d %H:%M:%S"))
        except (
            Exception
        ):  # damaged pictures raise errors of every kind, and are shown without a time
            return ""

    def holds(self, path: Path) -> bool:
        """Whether a file is really in the folder, and not behind a link that leads out of it."""
        return self.folder is not None and os.path.realpath(path).startswith(
            os.path.realpath(self.folder) + os.sep
        )


def open_originals(path: str | Path) -> Originals:
    """Open a folder of pictures, a zip archive, or the folder of a table that lists pictures.

    Nothing is listed or checked here: a picture that is missing is an error when it is read.
    """
    path = Path(path)
    if path.suffix.lower() == ".zip" and path.is_file():
        names, read = open_zip(path)
        prefix = common_folder(names)
        return Originals(lambda name: read(prefix + name))
    folder = path if path.is_dir() or not is_table(path) else path.parent
    return Originals(lambda name: read_file(folder / _below(folder, name)), folder)


def _below(folder: Path, name: str) -> str:
    """The name of a picture in its folder; InputError if it leads out.

    Classifiers write it from the root of the disk, or from above the folder:
    what ends with the folder is dropped.
    """
    parts = name.replace("\\", "/").split("/")
    tail = "/".join(parts[parts.index(folder.name) + 1 :]) if folder.name in parts[:-1] else name
    if tail != name and (os.path.isabs(name) or not (folder / name).is_file()):
        name = tail
    refuse_escape(name, folder)
    return name


def thumbnail(data: bytes, size: int, box: tuple[float, ...] | None = None) -> bytes:
    """A picture as a JPEG file of at most ``size`` pixels on its longer side.

    It is turned as its orientation flag says.

    ``box`` is drawn: left, top, width and height in parts of the picture. A picture of up to 160
    pixels shows the box and as much around it: animals are often small.
    """
    from PIL import Image, ImageDraw

    picture, _ = read_picture(data, 3, size if box is None else max(size, _BOXED))
    if box is not None:
        w, h = picture.size
        left, top, width, height = (part * picture.size[at % 2] for at, part in enumerate(box))
        corners = left, top, max(left, min(left + width, w - 1)), max(top, min(top + height, h - 1))
        reach = max(width, height, 16) if size <= _CLOSE else max(w, h)
        pen = ImageDraw.Draw(picture)
        line = max(2, round(4 * min(reach, max(w, h) / 2) / size))
        for colour, wide in (("black", line + 1), ("yellow", line)):  # seen on dark and on light
            pen.rectangle(corners, outline=colour, width=wide)
        x, y, reach = map(round, (left + width / 2, top + height / 2, reach))
        picture = picture.crop(
            (max(0, x - reach), max(0, y - reach), min(w, x + reach), min(h, y + reach))
        )
    picture.thumbnail((size, size), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=88)
    return file.getvalue()
