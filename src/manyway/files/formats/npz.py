"""Archives of NumPy arrays."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.lib import format as npy_format

from manyway.errors import InputError
from manyway.files.contents import Contents
from manyway.files.files import most_unpacked
from manyway.files.formats.base import ArrayFormat
from manyway.files.text import reading


class Npz(ArrayFormat):
    """Arrays by name: ``features``, ``labels``, ``class_names``, ``items``."""

    key = "npz"
    name = "NumPy archive"
    endings: ClassVar[tuple[str, ...]] = (".npz",)
    holds = "a row of the array `features`"
    kept = "all arrays"
    example = "features.npz"

    def read(self, path: Path) -> Contents:
        from manyway.files.arrays import ARRAY_NAMES, contents_of

        with reading(path, "an .npz of plain arrays"), zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            names = [info.filename.removesuffix(".npy") for info in members]
            if len(set(names)) < len(names):
                raise InputError(f"{path} holds two arrays of one name; save it again.")
            size = path.stat().st_size
            found: dict[str, Any] = {"meta": {"source": path.name}}
            for name, info in zip(names, members, strict=True):
                if name in ARRAY_NAMES:
                    found[name] = _read_member(archive, info, size)
        return contents_of(path, found, names)

    def write(self, path: Path, arrays: Mapping[str, Any]) -> None:
        named: dict[str, Any] = {name: np.asarray(array) for name, array in arrays.items()}
        with path.open("wb") as file:  # by its name, NumPy would add an ending
            np.savez(file, **named)


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, size: int) -> np.ndarray[Any, Any]:
    """One array of an archive, after checking that its header does not promise more than there is."""
    from manyway.files.arrays import npy_header

    if info.compress_size > size or info.file_size > most_unpacked(size):
        raise ValueError(f"'{info.filename}' unpacks to {info.file_size:,} bytes, far more than its size")
    with archive.open(info) as file:
        npy_header(file, info.file_size)
        file.seek(0)
        array: np.ndarray[Any, Any] = npy_format.read_array(file, allow_pickle=False)
        while file.read(1 << 20):  # reading to the end makes zipfile compare the checksum
            pass
    return array
