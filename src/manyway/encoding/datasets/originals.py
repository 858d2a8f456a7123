"""Pictures one by one, by name, in the size that a page shows: what a review needs of a folder or an archive."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from manyway.encoding.datasets.archives import open_zip, read_file, refuse_escape
from manyway.encoding.datasets.decode import read_picture
from manyway.encoding.datasets.sources import common_folder
from manyway.files.tables import TABLE_SUFFIXES
from manyway.files.text import suffix_of


@dataclass(frozen=True, eq=False)
class Originals:
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
        refuse_escape(name, self.folder)
        found = Path(os.path.abspath(self.folder / name))
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
        except Exception:  # damaged pictures raise errors of every kind, and are shown without a time
            return ""

    def holds(self, path: Path) -> bool:
        """Whether a file is really in the folder, and not behind a link that leads out of it."""
        return self.folder is not None and os.path.realpath(path).startswith(os.path.realpath(self.folder) + os.sep)


def open_originals(path: str | Path) -> Originals:
    """Open a folder of pictures, a zip archive, or the folder of a table that lists pictures.

    Nothing is listed or checked here: a picture that is missing is an error when it is read.
    """
    path = Path(path)
    if path.suffix.lower() == ".zip" and path.is_file():
        names, read = open_zip(path)
        prefix = common_folder(names)
        return Originals(lambda name: read(prefix + name))
    folder = path if path.is_dir() or suffix_of(path) not in TABLE_SUFFIXES else path.parent

    def read_inside(name: str) -> bytes:
        refuse_escape(name, folder)
        return read_file(folder / name)

    return Originals(read_inside, folder)


def thumbnail(data: bytes, size: int, box: tuple[float, ...] | None = None) -> bytes:
    """A picture as a JPEG file of at most ``size`` pixels on its longer side, turned as its orientation flag says.

    ``box`` is drawn: left, top, width and height in parts of the picture.
    """
    from PIL import Image, ImageDraw

    picture, _ = read_picture(data, 3, size)
    picture.thumbnail((size, size), Image.Resampling.LANCZOS)
    if box is not None:
        left, top, width, height = (part * picture.size[at % 2] for at, part in enumerate(box))
        right, bottom = max(left, min(left + width, picture.width - 1)), max(top, min(top + height, picture.height - 1))
        pen = ImageDraw.Draw(picture)
        for colour, line in (("black", 1 + size // 160), ("yellow", size // 160)):  # seen on dark and on light
            pen.rectangle((left, top, right, bottom), outline=colour, width=line)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=88)
    return file.getvalue()
