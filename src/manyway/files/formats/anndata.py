"""AnnData: cells with an embedding, of which some are labelled. The file is read and written with h5py."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from manyway.errors import InputError, optional
from manyway.files.files import check_input, most_unpacked
from manyway.files.formats.base import Answers, Asked, DataFormat
from manyway.files.tables import Table
from manyway.files.text import first_twice, listed, reading, shorten

_USUAL = "X_pca"
_LABEL, _PROBABILITY = "manyway_label", "manyway_probability"  # columns of obs that are written


class AnnData(DataFormat):
    """``.h5ad``, as anndata and scanpy write it."""

    key = "anndata"
    name = "AnnData"
    endings: ClassVar[tuple[str, ...]] = (".h5ad",)
    sign = "the groups obs and obsm"
    holds = "a cell: its features are `obsm['X_pca']`, or the widest other embedding, its labels a column of `obs`"
    kept = f"`{_LABEL}` and `{_PROBABILITY}` in `obs`; all else stays"
    example = "cells.h5ad"

    def read(self, path: Path, asked: Asked) -> Table:
        h5py = _h5py(check_input(path))
        with reading(path, "an .h5ad file"), h5py.File(path, "r") as file:
            obs = _group(path, file, "obs")
            names = _index(path, obs)
            embedding, features = _embedding(path, file, len(names))
            columns: dict[str, Any] = {"item": names}
            for name in obs:
                cells = _texts(path, obs, name)
                if cells is not None and name != _index_name(obs):
                    columns[f"obs.{name}" if name in ("item", embedding) else name] = cells
            wrong = next((name for name, cells in columns.items() if len(cells) != len(names)), None)
            if wrong is not None:
                raise InputError(f"{path} has {len(names)} cells, and another number in obs['{wrong}']; save it anew.")
        about = list(columns)  # no column of obs is a feature, even one of numbered clusters
        columns[embedding] = _as_lists(features)
        note = f"obsm['{embedding}'] of {path.name} ({features.shape[1]} numbers per cell) is read as the features"
        return Table(path, list(columns), list(columns.values()), "cell", index=about, notes=[note])

    def write(self, path: Path, answers: Answers) -> list[str]:
        """Labels and probabilities as columns of obs; those of an earlier run are replaced."""
        assert answers.origin is not None
        source = answers.origin.path
        h5py = _h5py(source)
        shutil.copyfile(source, path)
        with reading(source, "an .h5ad file"), h5py.File(path, "r+") as file:
            obs = _group(source, file, "obs")
            place = {name: row for row, name in enumerate(_index(source, obs))}
            classes = sorted({label.name for label in answers.labels if label.name})
            number = {name: k for k, name in enumerate(classes)}
            codes = np.full(len(place), -1, np.int32)
            probabilities = np.full(len(place), np.nan)
            for label in answers.labels:
                codes[place[label.item]] = number.get(label.name, -1)
                probabilities[place[label.item]] = label.probability
            _write_categories(h5py, obs, _LABEL, codes, classes)
            _write_array(obs, _PROBABILITY, probabilities)
            order = [str(name) for name in obs.attrs.get("column-order", ())]
            new = [*(name for name in order if name not in (_LABEL, _PROBABILITY)), _LABEL, _PROBABILITY]
            obs.attrs["column-order"] = np.array(new, dtype=h5py.string_dtype())
        return []


def _h5py(path: Path) -> Any:
    return optional("h5py", "cells", f"{path} is a file of AnnData, which")


def _own(group: Any, name: str) -> bool:
    """Whether a member lies in the file itself, and is no link to something else."""
    return type(group.get(name, getlink=True)).__name__ == "HardLink"


def _group(path: Path, file: Any, name: str) -> Any:
    """A group of the file."""
    if name not in file or not _own(file, name) or not hasattr(file[name], "keys"):
        hint = "save it anew with anndata 0.8 or later"
        raise InputError(f"{path} has no group '{name}', as an .h5ad file should; {hint}.")
    return file[name]


def _array(path: Path, dataset: Any) -> np.ndarray[Any, Any]:
    """An array, after checking that it lies in the file and is not far larger than it."""
    if dataset.external is not None or dataset.is_virtual:
        raise InputError(f"{path} has an array '{dataset.name}' that lies in another file; save it anew.")
    if dataset.nbytes > most_unpacked(path.stat().st_size):
        raise InputError(f"{path} has an array '{dataset.name}' that unpacks to far more than the size of the file.")
    return np.asarray(dataset.asstr()[...] if dataset.dtype.kind in "OS" else dataset[...])


def _index_name(obs: Any) -> str:
    return str(obs.attrs.get("_index", "_index"))


def _index(path: Path, obs: Any) -> list[str]:
    """The names of the cells."""
    name = _index_name(obs)
    if name not in obs or not _own(obs, name) or not hasattr(obs[name], "dtype"):
        raise InputError(f"{path} does not say the names of its cells (obs['{name}']); save it anew.")
    names = [str(each) for each in _array(path, obs[name]).tolist()]
    twice = first_twice(names)
    if twice is not None:
        raise InputError(f"{path} has two cells named {shorten(twice)}; call obs_names_make_unique() and save it.")
    return names


def _embedding(path: Path, file: Any, n_cells: int) -> tuple[str, np.ndarray[Any, Any]]:
    """The embedding that is read: the usual one, else the widest."""
    group = _group(path, file, "obsm")
    found = {name: group[name] for name in group if _own(group, name) and hasattr(group[name], "dtype")}
    found = {name: array for name, array in found.items() if array.ndim == 2 and array.dtype.kind in "fiu"}
    if not found:
        raise InputError(
            f"{path} has no embedding in obsm (it has {listed(list(group))}); compute one: sc.pp.pca(adata)."
        )
    name = _USUAL if _USUAL in found else max(found, key=lambda each: found[each].shape[1])
    if len(found[name]) != n_cells:
        raise InputError(f"{path} has {n_cells} cells, and {len(found[name])} in obsm['{name}']; save it anew.")
    return name, _array(path, found[name])


def _texts(path: Path, obs: Any, name: str) -> list[str | None] | None:
    """A column of obs that holds texts, with None where one is missing; None for a column of numbers."""
    if not _own(obs, name):
        return None
    column = obs[name]
    if hasattr(column, "dtype"):
        return [str(cell) for cell in _array(path, column).tolist()] if column.dtype.kind in "OS" else None
    if "codes" in column and "categories" in column and column["categories"].dtype.kind in "OS":
        categories = [str(each) for each in _array(path, column["categories"]).tolist()]
        codes = _array(path, column["codes"]).tolist()
        return [categories[code] if 0 <= code < len(categories) else None for code in codes]
    if "values" in column and "mask" in column and column["values"].dtype.kind in "OS":
        values = _array(path, column["values"]).tolist()
        gone = _array(path, column["mask"]).tolist()
        return [None if lacking else str(value) for value, lacking in zip(values, gone, strict=True)]
    return None


def _as_lists(features: np.ndarray[Any, Any]) -> Any:
    """[n, d] as a column of lists."""
    import pyarrow

    flat = pyarrow.array(np.ascontiguousarray(features).reshape(-1))
    return pyarrow.chunked_array([pyarrow.FixedSizeListArray.from_arrays(flat, features.shape[1])])


def _write_array(group: Any, name: str, values: np.ndarray[Any, Any]) -> None:
    if name in group:
        del group[name]
    group[name] = values
    group[name].attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})


def _write_categories(h5py: Any, obs: Any, name: str, codes: np.ndarray[Any, Any], classes: Sequence[str]) -> None:
    """A column of categories, as anndata writes them; the code of a missing one is -1."""
    if name in obs:
        del obs[name]
    column = obs.create_group(name)
    column.attrs.update({"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False})
    _write_array(column, "codes", codes)
    column.create_dataset("categories", data=np.array(classes, dtype=object), dtype=h5py.string_dtype())
    column["categories"].attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})
