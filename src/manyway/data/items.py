"""Reading people's own features: safetensors, npz, npy, csv and parquet. Never a pickle."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.format import open_memmap
from safetensors import SafetensorError, safe_open
from torch import Tensor

from manyway.core.validation import describe_rows
from manyway.data.features import read_header
from manyway.errors import InputError

SUFFIXES = (".safetensors", ".npz", ".npy", ".csv", ".parquet")
_CHECK_ROWS = 65_536  # rows looked at together, so that checking a memory-mapped file stays small


@dataclass(frozen=True, eq=False)
class Items:
    """Rows of features with what the file says about them. Features may be memory-mapped: slice them."""

    features: np.ndarray[Any, Any] | Tensor  # [n, d] floating
    labels: tuple[str, ...] | None  # [n]
    names: Sequence[str] | None  # [n]; None: rows are known by their number
    base_mean: Tensor | None = None
    skipped: tuple[tuple[str, str], ...] = ()  # (name, reason) of items that could not be read and were left out

    def __len__(self) -> int:
        return int(self.features.shape[0])

    @property
    def n_features(self) -> int:
        return int(self.features.shape[1])

    def rows(self, start: int, stop: int) -> Tensor:
        """Features of some rows, in memory, as float32 or float64."""
        part = self.features[start:stop]
        tensor = part if isinstance(part, Tensor) else torch.from_numpy(np.array(part))
        return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.to(torch.float32)

    def name(self, row: int) -> str:
        return str(row) if self.names is None else self.names[row]


def read_items(path: str | Path, *, label_column: str = "label", item_column: str = "item") -> Items:
    """The features in a file, with labels and item names where it has them.

    safetensors and npz: arrays ``features`` and optionally ``labels`` (with ``class_names`` when they are numbers) and
    ``items``. npy: the features alone. csv and parquet: a column each for the label and the item name, all other
    columns are features.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"There is no file {path}.")
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path} has an unknown ending; features come as {', '.join(SUFFIXES)}.")
    if path.suffix in (".csv", ".parquet"):
        columns = _read_csv(path) if path.suffix == ".csv" else _read_parquet(path)
        items = _from_columns(path, columns, label_column, item_column)
    else:
        reader = {".safetensors": _read_safetensors, ".npz": _read_npz, ".npy": _read_npy}[path.suffix]
        items = reader(path)
    _check(path, items)
    return items


def read_labels(path: str | Path) -> tuple[str, ...]:
    """Labels from a .npy array or from a text file with one a line."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"There is no file {path}.")
    if path.suffix == ".npy":
        return tuple(map(str, _read_array(path)))
    try:
        return tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file; write one label a line, or a .npy array.") from error


def _read_safetensors(path: Path) -> Items:
    try:
        with safe_open(path, framework="pt") as file:
            names, header = set(file.keys()), read_header(file.metadata())
            _need_features(path, names)
            features = file.get_tensor("features")
            labels = file.get_tensor("labels").numpy() if "labels" in names else None
            base_mean = file.get_tensor("base_mean") if "base_mean" in names else None
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} cannot be read as safetensors ({error}).") from error
    return Items(features, _label_names(path, labels, header.get("class_names")), None, base_mean)


def _read_npz(path: Path) -> Items:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {
                name: file[name] for name in ("features", "labels", "class_names", "items", "base_mean") if name in file
            }
            _need_features(path, set(file.files))
    except InputError:
        raise
    except Exception as error:  # damaged archives raise a zoo of exceptions
        raise InputError(f"{path} cannot be read as an .npz of plain arrays ({_plainly(error)}).") from error
    base_mean = torch.from_numpy(arrays["base_mean"]).float() if "base_mean" in arrays else None
    names = tuple(map(str, arrays["items"])) if "items" in arrays else None
    return Items(
        arrays["features"], _label_names(path, arrays.get("labels"), arrays.get("class_names")), names, base_mean
    )


def _read_npy(path: Path) -> Items:
    return Items(_read_array(path), None, None)


def _read_array(path: Path) -> np.ndarray[Any, Any]:
    try:
        return open_memmap(path, mode="r")
    except Exception as error:
        raise InputError(f"{path} cannot be read as a plain .npy array ({_plainly(error)}).") from error


def _plainly(error: Exception) -> str:
    pickled = "pickle" in str(error).lower() or "Python object" in str(error) or "dtype('O')" in str(error)
    return "it holds pickled Python objects, which are never loaded; save plain numbers" if pickled else str(error)


def _read_csv(path: Path) -> dict[str, Sequence[Any]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a readable CSV text file ({error}).") from error
    if len(rows) < 2:
        raise InputError(f"{path} has no data row; the first line names the columns, the others are items.")
    header, body = rows[0], rows[1:]
    uneven = [number for number, row in enumerate(body) if len(row) != len(header)]
    if uneven:
        raise InputError(f"{path} has {len(header)} columns but another number of cells in {describe_rows(uneven)}.")
    return dict(zip(header, zip(*body, strict=True), strict=True))


def _read_parquet(path: Path) -> dict[str, Sequence[Any]]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise InputError("Reading parquet needs pyarrow; install it with: pip install 'manyway[tables]'.") from error
    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"{path} cannot be read as parquet ({error}).") from error
    return {name: table.column(name).to_numpy() for name in table.column_names}


def _from_columns(path: Path, columns: dict[str, Sequence[Any]], label_column: str, item_column: str) -> Items:
    labels = tuple(map(str, columns[label_column])) if label_column in columns else None
    names = tuple(map(str, columns[item_column])) if item_column in columns else None
    numbers = {name: values for name, values in columns.items() if name not in (label_column, item_column)}
    if not numbers:
        raise InputError(f"{path} has no feature column beside '{label_column}' and '{item_column}'.")
    features = []
    for name, values in numbers.items():
        try:
            features.append(np.asarray(values, dtype=np.float32))
        except (TypeError, ValueError) as error:
            raise InputError(
                f"Column '{name}' of {path} is not all numbers; name the label and item columns with --label-column "
                "and --item-column, and leave others out."
            ) from error
    return Items(np.stack(features, axis=1), labels, names)


def _label_names(path: Path, labels: Any, class_names: Any) -> tuple[str, ...] | None:
    if labels is None:
        return None
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iuUS":
        raise InputError(f"labels in {path} must be one integer or string a row, not {labels.dtype} {labels.shape}.")
    if class_names is None or labels.dtype.kind in "US":
        return tuple(map(str, labels))
    if labels.size and (labels.min() < 0 or labels.max() >= len(class_names)):
        raise InputError(
            f"labels in {path} go from {labels.min()} to {labels.max()} but there are {len(class_names)} class names."
        )
    return tuple(str(class_names[label]) for label in labels)


def _need_features(path: Path, names: set[str]) -> None:
    if "features" not in names:
        raise InputError(f"{path} has no array 'features'; it holds: {', '.join(sorted(names)) or 'nothing'}.")


def _check(path: Path, items: Items) -> None:
    """Refuse features that no method can use; in pieces, so that a large file is never in memory whole."""
    features = items.features
    if features.ndim != 2:
        raise InputError(f"features in {path} must have two axes (item, feature), not shape {tuple(features.shape)}.")
    floating = features.is_floating_point() if isinstance(features, Tensor) else features.dtype.kind in "fiu"
    if not floating:
        raise InputError(f"features in {path} are {features.dtype}; they must be real numbers (float32 is best).")
    for what, values in (("labels", items.labels), ("item names", items.names)):
        if values is not None and len(values) != len(items):
            raise InputError(
                f"{path} has {len(items)} rows of features and {len(values)} {what}; give one for each row."
            )
    for start in range(0, len(items), _CHECK_ROWS):
        bad = (~torch.isfinite(items.rows(start, start + _CHECK_ROWS))).any(1).nonzero().flatten() + start
        if len(bad):
            raise InputError(
                f"{path} has NaN or infinite features in {describe_rows(bad.tolist())}; remove or repair them."
            )
