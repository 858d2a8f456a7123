"""Pictures one by one, by name, in the size that a page shows: what a review needs of a folder or an archive."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from manyway.encoding.datasets.archives import open_zip, read_file, refuse_escape
from manyway.encoding.datasets.decode import read_picture
from manyway.encoding.datasets.sources import common_folder


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

    def holds(self, path: Path) -> bool:
        """Whether a file is really in the folder, and not behind a link that leads out of it."""
        return self.folder is not None and os.path.realpath(path).startswith(os.path.realpath(self.folder) + os.sep)


def open_originals(path: str | Path) -> Originals:
    """Open a folder of pictures, a zip archive, or the folder of a CSV file that lists pictures.

    Nothing is listed or checked here: a picture that is missing is an error when it is read.
    """
    path = Path(path)
    if path.suffix.lower() == ".zip" and path.is_file():
        names, read = open_zip(path)
        prefix = common_folder(names)
        return Originals(lambda name: read(prefix + name))
    folder = path if path.is_dir() or path.suffix.lower() != ".csv" else path.parent

    def read_inside(name: str) -> bytes:
        refuse_escape(name, folder)
        return read_file(folder / name)

    return Originals(read_inside, folder)


def thumbnail(data: bytes, size: int) -> bytes:
    """A picture as a JPEG file of at most ``size`` pixels on its longer side, turned as its orientation flag says."""
    from PIL import Image

    picture, _ = read_picture(data, 3, size)
    picture.thumbnail((size, size), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=88)
    return file.getvalue()
