"""A single NumPy array."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from manyway.files.contents import Contents
from manyway.files.formats.base import ArrayFormat


class Npy(ArrayFormat):
    """The features alone; labels are in a file of their own."""

    key = "npy"
    name = "NumPy array"
    endings: ClassVar[tuple[str, ...]] = (".npy",)
    holds = "a row of the array"
    kept = "the features alone"
    example = "features.npy"

    def read(self, path: Path) -> Contents:
        from manyway.files.arrays import exact, read_npy

        return Contents(exact(read_npy(path)))

    def write(self, path: Path, arrays: Mapping[str, Any]) -> None:
        with path.open("wb") as file:
            np.save(file, np.asarray(arrays["features"]))
