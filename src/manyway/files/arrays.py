"""Files of plain arrays: safetensors, npz and npy. Pickled objects are never loaded."""

from __future__ import annotations

import json
import math
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.lib import format as npy_format
from safetensors import safe_open
from torch import Tensor

from manyway.errors import InputError
from manyway.files.text import one_line

FORMAT = "manyway-features-1"
ARRAY_SUFFIXES = (".safetensors", ".npz", ".npy")
_NAMES = ("features", "labels", "class_names", "items", "base_mean", "is_support", "class_features")
_DEFLATE_LIMIT = 1100  # deflate cannot compress by more than 1032 times


@dataclass(frozen=True, eq=False)
class Arrays:
    """The arrays of a feature file, as they are stored."""

    features: np.ndarray[Any, Any] | Tensor
    labels: np.ndarray[Any, Any] | None = None
    class_names: tuple[str, ...] | None = None
    items: np.ndarray[Any, Any] | None = None
    base_mean: Tensor | None = None
    is_support: Tensor | None = None
    class_features: Tensor | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


def read_arrays(path: Path) -> Arrays:
    """Read a .safetensors, .npz or .npy file; large .safetensors and .npy files are memory-mapped."""
    reader = {".safetensors": _read_safetensors, ".npz": _read_npz, ".npy": _read_npy}[path.suffix.lower()]
    return reader(path)


def read_npy(path: Path) -> np.ndarray[Any, Any]:
    """The array in a .npy file, memory-mapped."""
    try:
        with path.open("rb") as file:
            shape, dtype = _npy_header(file, path.stat().st_size)
        if 0 in shape:
            return np.empty(shape, dtype)  # an empty file cannot be mapped
        return npy_format.open_memmap(path, mode="r")
    except Exception as error:  # damaged headers raise errors of many kinds
        raise InputError(f"{path} cannot be read as a plain .npy array ({_plainly(error)}).") from error


def plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same numbers in memory, in a layout and type that torch takes: float32, or float64 where it is wider."""
    dtype = np.float64 if array.dtype.kind == "f" and array.dtype.itemsize >= 8 else np.float32
    usable = array.dtype == dtype and array.flags.c_contiguous and array.flags.writeable
    return array if usable else np.array(array, dtype=dtype, order="C")


def _read_npy(path: Path) -> Arrays:
    return Arrays(read_npy(path))


def _read_npz(path: Path) -> Arrays:
    try:
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            names = [info.filename.removesuffix(".npy") for info in members]
            if len(set(names)) < len(names):
                raise InputError(f"{path} holds two arrays of one name; save it again.")
            size = path.stat().st_size
            found = {
                name: _read_member(archive, info, size)
                for name, info in zip(names, members, strict=True)
                if name in _NAMES
            }
    except InputError:
        raise
    except Exception as error:  # damaged archives raise errors of many kinds
        raise InputError(f"{path} cannot be read as an .npz of plain arrays ({_plainly(error)}).") from error
    if "features" not in found:
        raise _lacks_features(path, names)
    return Arrays(
        found["features"],
        found.get("labels"),
        _class_names(path, found["class_names"]) if "class_names" in found else None,
        found.get("items"),
        _base_mean(path, torch.from_numpy(_numbers(path, "base_mean", found["base_mean"])))
        if "base_mean" in found
        else None,
        _is_support(path, _numbers(path, "is_support", found["is_support"])) if "is_support" in found else None,
        torch.from_numpy(_numbers(path, "class_features", found["class_features"]))
        if "class_features" in found
        else None,
        {"source": path.name},
    )


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, size: int) -> np.ndarray[Any, Any]:
    """One array of an archive, after checking that its header does not promise more than there is."""
    if info.compress_size > size or info.file_size > _DEFLATE_LIMIT * (info.compress_size + 1):
        raise ValueError(f"the sizes of '{info.filename}' cannot be right")
    with archive.open(info) as file:
        _npy_header(file, info.file_size)
    with archive.open(info) as file:
        array: np.ndarray[Any, Any] = npy_format.read_array(file, allow_pickle=False)
        while file.read(1 << 20):  # reading to the end makes zipfile compare the checksum
            pass
    return array


def _npy_header(file: IO[bytes], size: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
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


def _read_safetensors(path: Path) -> Arrays:
    try:
        with safe_open(path, framework="pt") as file:
            names, metadata = set(file.keys()), file.metadata()
            found = {name: file.get_tensor(name) for name in names if name in _NAMES}
    except Exception as error:  # damaged headers raise errors of many kinds
        raise InputError(f"{path} cannot be read as safetensors ({one_line(error)}).") from error
    if "features" not in found:
        raise _lacks_features(path, sorted(names))
    header = read_header(path, metadata)
    labels = found.get("labels")
    if labels is not None and labels.is_floating_point():
        labels = labels.to(torch.float64)  # NumPy has no bfloat16
    return Arrays(
        found["features"],
        None if labels is None else labels.numpy(),
        _class_names(path, header["class_names"]) if header.get("class_names") is not None else None,
        base_mean=_base_mean(path, found["base_mean"]) if "base_mean" in found else None,
        is_support=_is_support(path, found["is_support"].to(torch.float32).numpy()) if "is_support" in found else None,
        class_features=found.get("class_features"),
        meta=header.get("meta") or {},
    )


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
    array = np.asarray(names) if isinstance(names, np.ndarray) else None
    if array is not None and array.ndim == 1 and array.dtype.kind in "USiu":
        names = values_of(path, array)
    if not isinstance(names, list) or not all(isinstance(name, str | bytes | int) for name in names):
        raise InputError(f"class_names in {path} must be one string per class.")
    texts = tuple(decoded(path, name) for name in names)
    if not all(text.strip() for text in texts):
        raise InputError(f"class_names in {path} has an empty name; give every class a name.")
    refuse_same_classes(texts, f"class_names in {path}")
    return texts


def refuse_same_classes(names: tuple[str, ...], what: str) -> None:
    """Refuse two classes of one name: their answers could not be told apart."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{what} has '{name}' twice; give every class its own name.")
        seen.add(name)


def values_of(path: Path, array: np.ndarray[Any, Any]) -> list[Any]:
    """The entries of an array of names or numbers; damaged characters are an error."""
    if array.dtype.kind == "U" and array.size and array.dtype.itemsize:
        native = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("=")))
        if native.view(np.uint32).max() > sys.maxunicode:
            raise InputError(f"{path} holds damaged text: characters that do not exist.")
    values: list[Any] = array.tolist()
    return values


def decoded(path: Path, value: Any) -> str:
    """A name as text: bytes are UTF-8, whole numbers are written without a point."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{path} has a name that is not UTF-8 text: {value[:40]!r}.") from error
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _numbers(path: Path, name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} in {path} is {array.dtype}; it must hold numbers.")
    return plain(array)


def _base_mean(path: Path, values: Tensor) -> Tensor:
    if values.ndim != 1 or values.is_complex() or not bool(torch.isfinite(values).all()):
        raise InputError(f"base_mean in {path} must be one finite number per feature.")
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def _is_support(path: Path, values: np.ndarray[Any, Any]) -> Tensor:
    if values.ndim != 1 or not np.isin(values, (0, 1)).all():
        raise InputError(f"is_support in {path} must be true or false for every row.")
    return torch.from_numpy(values.astype(bool))


def _lacks_features(path: Path, names: list[str]) -> InputError:
    return InputError(
        f"{path} has no array 'features'; it holds: {', '.join(sorted(names)) or 'nothing'}. Save the features under "
        "this name, and labels as 'labels'."
    )


def _plainly(error: Exception) -> str:
    text = str(error)
    pickled = "pickle" in text.lower() or "Python object" in text or "dtype('O')" in text
    if pickled:
        return "it holds pickled Python objects, which are never loaded; save numbers, and names with .astype(str)"
    return one_line(error)
