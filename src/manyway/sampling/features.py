"""FeatureSet: features with labels and their origin, stored as one safetensors file."""

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyway import files
from manyway.core import as_array, as_features, as_labels, moderate, resolve_device, shaped
from manyway.core.arguments import checks_arguments, knows_parameters, shown
from manyway.errors import InputError
from manyway.files import AnyPath, Options, read_contents
from manyway.files.formats.safetensors import Safetensors

_SPARSE = 100  # labels may go up to this many times the number of rows


@knows_parameters
@dataclass(frozen=True, eq=False, init=False)
class FeatureSet:
    """Features with one class per row, and where they came from.

    Parameters
    ----------
    features : array of shape [n, d]
        NumPy or torch, of any real dtype.
    labels : array of shape [n]
        Integers from 0 to the number of classes minus one.
    class_names : sequence of str, optional
        The names of the classes. None: their numbers.
    base_mean : array of shape [d], optional
        The mean feature of the classes that the encoder was trained on.
    meta : mapping, optional
        Where the features came from. It is saved with them.
    is_support : array of bool of shape [n], optional
        Marks rows that are given as labelled examples, for ``TaskSpec(shots=None)``.
    class_features : array of shape [c, d], optional
        One vector per class in the space of the features, such as the text embedding of its name.
        See also ``with_class_features``.

    Examples
    --------
    >>> fs = FeatureSet([[0.0, 1.0], [1.0, 0.0]], [0, 1], class_names=["ant", "bee"])
    >>> fs.n_classes, fs.counts.tolist()
    (2, [1, 1])
    """

    features: Tensor  # [n, d] float32 or float64
    labels: Tensor  # [n] int64, 0..c-1
    class_names: tuple[str, ...]
    base_mean: Tensor | None
    is_support: Tensor | None
    class_features: Tensor | None  # [c, d]
    meta: Mapping[str, Any]

    def __init__(
        self,
        features: Any,
        labels: Any,
        class_names: Sequence[str] | None = None,
        base_mean: Any = None,
        meta: Mapping[str, Any] | None = None,
        *,
        is_support: Any = None,
        class_features: Any = None,
    ) -> None:
        features = as_features(features, "features")
        labels = as_labels(labels, "labels")
        _check_samples(features, labels)
        names = _class_names(class_names, labels)
        if meta is not None and not isinstance(meta, Mapping):
            raise InputError(f"meta is {shown(meta)}; give a mapping of names to values.")
        n_features = features.shape[1]
        if base_mean is not None:
            base_mean = as_features(base_mean, "base_mean").to(features)
            shaped(base_mean, (n_features,), "base_mean", "give one number per feature")
        if is_support is not None:
            is_support = as_labels(_without_truths(is_support), "is_support")
            is_support = is_support.to(features.device, torch.bool)
            shaped(is_support, labels.shape, "is_support", "give one for each row of features")
        if class_features is not None:
            class_features = as_features(class_features, "class_features").to(features)
            expected = (len(names), n_features)
            shaped(class_features, expected, "class_features", "give one row per class")
        values = {
            "features": features,
            "labels": labels.to(features.device),
            "class_names": names,
            "base_mean": base_mean,
            "is_support": is_support,
            "class_features": class_features,
            "meta": dict(meta or {}),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def n_classes(self) -> int:
        return len(self.class_names)

    @cached_property
    def counts(self) -> Tensor:
        """[c] how many rows each class has."""
        return torch.bincount(self.labels, minlength=self.n_classes)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of what experiments depend on.

        It is features, labels, given support, base mean and class features.
        """
        digest = hashlib.sha256()
        for value in (
            self.features,
            self.labels,
            self.base_mean,
            self.is_support,
            self.class_features,
        ):
            if value is not None:
                array = np.ascontiguousarray(value.cpu().numpy())
                digest.update(f"{array.dtype}{array.shape}".encode())
                digest.update(array.data)
        return digest.hexdigest()[:16]

    @cached_property
    def moderate(self) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Features, base mean and class features, of moderate magnitude.

        They are rescaled by a power of two where their magnitude is extreme.
        """
        return self.moderate_with(self.features[:0])

    def moderate_with(self, others: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The same, with further rows below the features.

        Parameters
        ----------
        others : Tensor of shape [m, d]
            They get the same factor.

        Returns
        -------
        rows : Tensor of shape [n + m, d]
        base_mean, class_features : Tensor or None
        """
        n = len(self.features)
        vectors = self.class_features
        known = (self.features if vectors is None else torch.cat([self.features, vectors]))[None]
        scaled, more, base_mean = moderate(
            known, others[None] if len(others) else None, self.base_mean
        )
        if scaled is known and more is None:
            return self.features, self.base_mean, vectors
        table = scaled[0, :n] if more is None else torch.cat([scaled[0, :n], more[0]])
        return table, base_mean, None if vectors is None else scaled[0, n:]

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> "FeatureSet":
        """The same set on another device, or in another precision.

        Parameters
        ----------
        device : torch.device or str, optional
        dtype : torch.dtype, optional

        Returns
        -------
        FeatureSet
        """
        if device is not None:
            device = resolve_device(device)
        features = self.features.to(device=device, dtype=dtype)
        if features is self.features:
            return self
        return self._with(features=features)

    def _with(self, **changes: Any) -> "FeatureSet":
        """The same set with some of its parts replaced."""
        return FeatureSet(
            **{field.name: getattr(self, field.name) for field in fields(self)} | changes
        )

    def with_class_features(
        self, source: Any, class_names: Sequence[str] | None = None
    ) -> "FeatureSet":
        """The same set with one vector per class, such as the text embedding of its name.

        Parameters
        ----------
        source : array of shape [c, d] or path-like
            The vectors; or a file of ``features`` and ``class_names`` (or a table with a column of
            labels), one row per class.
        class_names : sequence of str, optional
            The class of each row of an array. None: rows are in the order of the set's classes.

        Returns
        -------
        FeatureSet

        Examples
        --------
        >>> fs = FeatureSet([[0.0, 1.0], [1.0, 0.0]], [0, 1], class_names=["ant", "bee"])
        >>> fs.with_class_features([[2.0, 0.0], [0.0, 2.0]], ["bee", "ant"]).class_features.tolist()
        [[0.0, 2.0], [2.0, 0.0]]
        """
        where = "class_features"
        if isinstance(source, str | Path):
            where = str(source)
            source, class_names = _read_class_features(Path(source))
        vectors = as_features(source, where)
        if class_names is not None:
            vectors = vectors[
                _places(self.class_names, tuple(map(str, class_names)), len(vectors), where)
            ]
        try:
            return self._with(class_features=vectors)
        except InputError as error:
            raise InputError(f"{where} cannot be used: {error}") from error

    def save(self, path: str | Path, *, half: bool = False) -> None:
        """Write to a safetensors file, atomically.

        Parameters
        ----------
        path : path-like
            The file, whose name ends in .safetensors; it is replaced if it exists.
        half : bool, default=False
            Store features in 16 bits: half the size, three digits.
        """
        if Path(path).suffix.lower() not in Safetensors.endings:  # by which ``load`` would read it
            raise InputError(f"The file is {path}; the name of a feature set ends in .safetensors.")
        names = (
            "features",
            "labels",
            "base_mean",
            "is_support",
            "class_features",
            "class_names",
            "meta",
        )
        arrays = {name: getattr(self, name) for name in names}
        if half:
            arrays["features"] = self.features.half()
        with files.atomic_write(path) as temporary:
            Safetensors().write(temporary, arrays)

    @staticmethod
    @checks_arguments
    def load(
        path: AnyPath,
        *,
        label_column: str | None = None,
        ignore_columns: Sequence[str] = (),
        unlabelled: bool = False,
    ) -> "FeatureSet":
        """Read a feature set from any file that `manyway.files.items.read_items` reads.

        Parameters
        ----------
        path : path-like
            A file that `save` wrote, a .npz with arrays of the same names (``features`` and
            ``labels`` at least), or a table (.csv, .tsv, .parquet, .jsonl) with a column of labels.
        label_column : str, optional
            The column of labels in a table. By default it is found by its usual names.
        ignore_columns : sequence of str, optional
            Columns of a table to leave out.
        unlabelled : bool, default=False
            Whether a file without labels is accepted: its rows are then of one class each, such as
            scattered items for ``TaskSpec(unknown_from=…)``.

        Returns
        -------
        FeatureSet
            Integer labels of array files are kept. Labels that are names are numbered in sorted
            order, or in that of the file's ``class_names``.
        """
        path = Path(path)
        contents = read_contents(path, Options(label_column, ignore_columns=tuple(ignore_columns)))
        for note in contents.notes:
            warnings.warn(note, stacklevel=2)
        labels = contents.labels
        class_names = contents.class_names
        if labels is None and unlabelled:
            class_names = None
            labels = np.arange(len(contents.features))
        if labels is None:
            raise InputError(f"{path} has no 'labels'; a feature set needs one label per row.")
        if isinstance(labels, tuple):
            class_names, labels = _numbered(path, labels, class_names)
        elif (
            contents.columns is not None
        ):  # integers in a table are names, and need not start with 0
            class_names, labels = _numbered(path, tuple(map(str, labels.tolist())), None)
        try:
            more = {"is_support": contents.is_support, "class_features": contents.class_features}
            features = files.as_tensor(contents.features)
            return FeatureSet(
                features, labels, class_names, contents.base_mean, contents.meta, **more
            )
        except InputError as error:
            raise InputError(f"{path} cannot be used: {error}") from error


def _check_samples(features: Tensor, labels: Tensor) -> None:
    """Refuse features that are no table, and labels that do not fit them."""
    if features.ndim != 2:
        raise InputError(
            f"features must have two axes (sample, feature); got {tuple(features.shape)}."
        )
    shaped(labels, features.shape[:1], "labels", "give one for each row of features")
    if len(features) == 0:
        raise InputError("The feature set is empty; give at least one row.")
    if int(labels.min()) < 0:
        raise InputError("labels must be integers from 0 to the number of classes minus one.")


def _class_names(given: Any, labels: Tensor) -> tuple[str, ...]:
    """The names of the classes: those that are given, or numbers."""
    n_classes = int(labels.max()) + 1
    if given is None:
        if n_classes > max(10_000, _SPARSE * len(labels)):
            raise InputError(
                f"labels go up to {n_classes - 1} for {len(labels)} rows; number the classes from "
                "0 without gaps, for example with numpy.unique(labels, return_inverse=True)."
            )
        return tuple(map(str, range(n_classes)))
    if not _is_list(given):
        raise InputError(f"class_names is {shown(given)}; give one name per class.")
    names = tuple(map(str, given))
    if len(names) < n_classes:
        raise InputError(
            f"labels go up to {n_classes - 1} but there are only {len(names)} class names."
        )
    files.refuse_same_classes(names, "class_names")
    return names


def _read_class_features(path: Path) -> tuple[Tensor, tuple[str, ...]]:
    """Vectors [c, d] and the class of each, from a file with one row per class."""
    contents = read_contents(path)
    names = contents.class_names if contents.labels is None else files.class_of_row(path, contents)
    if names is None:
        raise InputError(
            f"{path} does not say which class each row is of; "
            "add 'class_names' or a column of labels."
        )
    files.refuse_same_classes(names, str(path))
    return files.as_tensor(contents.features), names


def _places(classes: tuple[str, ...], names: tuple[str, ...], n_rows: int, where: str) -> list[int]:
    """The row of each class, where row i is of the class ``names[i]``."""
    files.refuse_same_classes(names, where)
    if len(names) != n_rows:
        raise InputError(
            f"{where} has {n_rows} rows and {len(names)} class names; give one for each row."
        )
    row = {name: i for i, name in enumerate(names)}
    known = set(classes)
    unknown = next((name for name in names if name not in known), None)
    missing = next((name for name in classes if name not in row), None)
    if unknown is not None:
        raise InputError(
            f"{where} has the class '{unknown}', which is not among the classes of the feature set."
        )
    if missing is not None:
        raise InputError(f"{where} has no row for the class '{missing}'; give one per class.")
    return [row[name] for name in classes]


def _numbered(
    path: Path, labels: tuple[str, ...], class_names: tuple[str, ...] | None
) -> tuple[tuple[str, ...], np.ndarray[Any, Any]]:
    """Names of classes, and the number of each label among them."""
    present = set(labels)
    if class_names is None:
        numeric = all(name.isascii() and name.isdigit() for name in present)
        class_names = tuple(
            sorted(present, key=(lambda name: (int(name), name)) if numeric else None)
        )
    number = {name: k for k, name in enumerate(class_names)}
    unknown = present - number.keys()
    if unknown:
        raise InputError(
            f"{path} has the label '{min(unknown)}', which is not among its class names."
        )
    return class_names, np.array([number[name] for name in labels], dtype=np.int64)


def _is_list(values: Any) -> bool:
    """Whether there are several values in an order, and not the letters of a text."""
    return (
        hasattr(values, "__len__")
        and hasattr(values, "__iter__")
        and getattr(values, "shape", None) != ()
        and not isinstance(values, str | bytes | Mapping)
    )


def _without_truths(values: Any) -> Any:
    """An array of yes and no as one of 1 and 0; others as they are."""
    if isinstance(values, Tensor):
        return values.to(torch.int64) if values.dtype == torch.bool else values
    array = as_array(values, "is_support")
    return array.astype(np.int64) if array.dtype == bool else values
