"""Untrusted files and zip archives: read within limits, in place, and never outside their folder."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from manyway.errors import InputError

MAX_TOTAL = 64 * 2**30  # bytes when unpacked; the largest data set of the paper (tiered) is about 30 GB
MAX_FILE = 256 * 2**20  # bytes of one picture
MAX_RATIO = 200  # unpacked / packed; pictures are compressed already, so the ratio is near 1 (bitmaps: tens)


def open_zip(path: Path) -> tuple[list[str], Callable[..., bytes]]:
    """The sorted names of the files in an archive, and a function that reads one of them."""
    try:
        archive = zipfile.ZipFile(path)
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    except Exception as error:  # damaged archives raise exceptions of many types
        raise InputError(f"{path} is neither a folder nor a readable zip archive ({error}).") from error
    for entry in entries:
        refuse_escape(entry.filename, path)
        if entry.flag_bits & 0x1:
            raise InputError(f"{path} is encrypted; unpack it with its password and give the folder.")
        if entry.file_size > MAX_FILE or entry.file_size > MAX_RATIO * max(entry.compress_size, 1024):
            raise InputError(
                f"{entry.filename} in {path} would unpack to {entry.file_size:,} bytes from {entry.compress_size:,}: "
                "that looks like a decompression bomb, and the archive was not opened."
            )
    total = sum(entry.file_size for entry in entries)
    if total > MAX_TOTAL:
        raise InputError(f"{path} would unpack to {total:,} bytes, more than {MAX_TOTAL:,}; it was not opened.")
    names = sorted(entry.filename for entry in entries if not _hidden(entry.filename))
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
    """The content of a file, which may be as large as a picture in an archive, or its first bytes."""
    with path.open("rb") as file:
        data = file.read(most)
    if len(data) > MAX_FILE:
        raise OSError(f"it is larger than {MAX_FILE:,} bytes")
    return data


def _hidden(name: str) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))


def refuse_escape(name: str, path: Path) -> None:
    """Refuse a path in an archive or a list that leads out of its folder."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or (parts.parts and parts.parts[0].endswith(":")):
        raise InputError(f"{path} names a path that leads out of it ({name}); it was not opened.")
