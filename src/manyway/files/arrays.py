"""What files of plain arrays hold, and its checks. Pickled objects are never loaded."""

import json
import math
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.lib import format as npy_format
from torch import Tensor

from manyway.errors import InputError
from manyway.files.contents import Contents
from manyway.files.text import first_twice, one_line, reading

FORMAT = "manyway-features-1"
ARRAY_NAMES = ("features", "labels", "class_names", "items", "base_mean", "is_support", "class_features")


def contents_of(path: Path, found: dict[str, Any], names: Collection[str]) -> Contents:
    """The arrays of a file as its contents, checked; ``names`` are those of all arrays that the file has."""
    if "features" not in found:
        held = ", ".join(sorted(names)) or "nothing"
        raise InputError(f"{path} has no array 'features'; it holds: {held}. Save the features under this name.")
    found["features"] = exact(found["features"])
    for name in {"base_mean", "is_support", "class_features"} & found.keys():
        found[name] = _numbers(path, name, found[name])
    if "class_names" in found:
        found["class_names"] = _class_names(path, found["class_names"])
    if "base_mean" in found and not (found["base_mean"].ndim == 1 and bool(torch.isfinite(found["base_mean"]).all())):
        raise InputError(f"base_mean in {path} must be one finite number per feature.")
    if "is_support" in found:
        flags = found["is_support"]
        if flags.ndim != 1 or not bool(((flags == 0) | (flags == 1)).all()):
            raise InputError(f"is_support in {path} must be true or false for every row.")
        found["is_support"] = flags.bool()
    return Contents(**found)


def read_arrays(path: Path) -> Contents:
    """Read a file of arrays of any format; large ones are memory-mapped."""
    from manyway.files.formats.registry import array_format

    return array_format(path).read(path)


def read_npy(path: Path) -> np.ndarray[Any, Any]:
    """The array in a .npy file, memory-mapped."""
    with reading(path, "a plain .npy array"):
        with path.open("rb") as file:
            shape, dtype = npy_header(file, path.stat().st_size)
        # An empty file cannot be mapped.
        return np.empty(shape, dtype) if 0 in shape else npy_format.open_memmap(path, mode="r")


def plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same numbers in memory, in a layout and type that torch takes: float32, or float64 where it is wider."""
    dtype = np.float64 if array.dtype.kind == "f" and array.dtype.itemsize >= 8 else np.float32
    usable = array.dtype == dtype and array.flags.c_contiguous and array.flags.writeable
    return array if usable else np.array(array, dtype=dtype, order="C")


def npy_header(file: IO[bytes], size: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of a .npy stream of ``size`` bytes."""
    version = npy_format.read_magic(file)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"it has version {version} of the format")
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("Object arrays need pickle")
    if any(length < 0 for length in shape) or len(shape) > 32:
        raise ValueError(f"its shape is {shape}")
    start = file.tell()
    if math.prod(shape) * dtype.itemsize > size - start:
        raise ValueError(f"it is cut off: the header says {shape} {dtype}, and {max(0, size - start)} bytes follow")
    return shape, dtype


def read_header(path: Path, metadata: Mapping[str, str] | None) -> dict[str, Any]:
    """``class_names`` and ``meta`` from the header of a safetensors file; empty where it is not one of ours."""
    try:
        header = json.loads((metadata or {}).get(FORMAT, "{}"))
        if not isinstance(header, dict) or not isinstance(header.get("meta", {}), dict | None):
            raise TypeError("it is not an object")
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"The header of {path} is damaged ({one_line(error)}); make the file again.") from error
    return header


def _class_names(path: Path, names: Any) -> tuple[str, ...]:
    names = values_of(path, "class_names", names) if isinstance(names, np.ndarray) else names
    if not isinstance(names, list) or not all(isinstance(name, str | bytes | int) for name in names):
        raise InputError(f"class_names in {path} must be one string per class.")
    texts = tuple(decoded(path, name) for name in names)
    if not all(text.strip() for text in texts):
        raise InputError(f"class_names in {path} has an empty name; give every class a name.")
    refuse_same_classes(texts, f"class_names in {path}")
    return texts


def refuse_same_classes(names: tuple[str, ...], what: str) -> None:
    """Refuse two classes of one name: their answers could not be told apart."""
    twice = first_twice(names)
    if twice is not None:
        raise InputError(f"{what} has '{twice}' twice; give every class its own name.")


def values_of(path: Path, what: str, array: np.ndarray[Any, Any]) -> list[Any]:
    """The entries of an array of names or numbers; damaged characters are an error."""
    if array.ndim != 1 or array.dtype.kind not in "iufUSb":
        raise InputError(f"{what} in {path} are {array.dtype} {array.shape}; give one integer or string per row.")
    if array.dtype.kind == "U" and array.size and array.dtype.itemsize:
        native = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("=")))
        if native.view(np.uint32).max() > sys.maxunicode:
            raise InputError(f"{path} holds damaged text: characters that do not exist.")
    return list(array.tolist())


def decoded(path: Path, value: Any) -> str:
    """A name as text: bytes are UTF-8, whole numbers are written without a point."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{path} has a name that is not UTF-8 text: {value[:40]!r}.") from error
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).upper() if isinstance(value, bool) else str(value)


def exact(values: np.ndarray[Any, Any] | Tensor) -> np.ndarray[Any, Any] | Tensor:
    """Integers that float32 cannot hold as float64; other numbers as they are."""
    whole = isinstance(values, Tensor) and values.dtype in (torch.int32, torch.int64)
    array = values.numpy() if isinstance(values, Tensor) and whole else values
    if isinstance(array, Tensor) or array.dtype.kind not in "iu" or array.dtype.itemsize < 4 or not array.size:
        return values
    return array.astype(np.float64) if max(-int(array.min()), int(array.max())) > 2**24 else values


def _numbers(path: Path, name: str, values: np.ndarray[Any, Any] | Tensor) -> Tensor:
    if isinstance(values, Tensor) and not values.is_complex():
        return values if values.dtype in (torch.float32, torch.float64) else values.float()
    if isinstance(values, Tensor) or values.dtype.kind not in "fiub":
        raise InputError(f"{name} in {path} is {values.dtype}; it must hold numbers.")
    return torch.from_numpy(plain(values))
