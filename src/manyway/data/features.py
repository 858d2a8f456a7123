"""FeatureSet: features with labels and their history, on disk as one safetensors file (memory-mapped, no pickle)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from manyway.core.validation import as_features, as_labels, moderate
from manyway.data.files import atomic_write
from manyway.errors import InputError

FORMAT = "manyway-features-1"


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
    ) -> None:
        features, labels = as_features(features, "features"), as_labels(labels, "labels")
        if features.ndim != 2:
            raise InputError(f"features must have two axes (sample, feature); got {tuple(features.shape)}.")
        if labels.shape != features.shape[:1]:
            raise InputError(
                f"There are {len(features)} feature rows and {labels.numel()} labels; give one for each row."
            )
        if len(features) == 0:
            raise InputError("The feature set is empty; give at least one row.")
        if int(labels.min()) < 0:
            raise InputError("labels must be integers from 0 to the number of classes minus one.")
        n_classes = int(labels.max()) + 1
        names = tuple(map(str, class_names)) if class_names is not None else tuple(map(str, range(n_classes)))
        if len(names) < n_classes:
            raise InputError(f"labels go up to {n_classes - 1} but there are only {len(names)} class names.")
        if base_mean is not None:
            base_mean = as_features(base_mean, "base_mean").to(features)
            if base_mean.shape != features.shape[1:]:
                raise InputError(
                    f"base_mean has shape {tuple(base_mean.shape)}; features have {features.shape[1]} dimensions."
                )
        if is_support is not None:
            is_support = torch.as_tensor(is_support, dtype=torch.bool, device=features.device)
            if is_support.shape != labels.shape:
                raise InputError(
                    f"is_support has {is_support.numel()} entries for {len(labels)} rows; give one for each."
                )
        for name, value in {
            "features": features,
            "labels": labels.to(features.device),
            "class_names": names,
            "base_mean": base_mean,
            "is_support": is_support,
            "meta": dict(meta or {}),
        }.items():
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
        """A hash of what experiments depend on: features, labels, given support and base mean."""
        digest = hashlib.sha256()
        for value in (self.features, self.labels, self.base_mean, self.is_support):
            if value is not None:
                array = np.ascontiguousarray(value.cpu().numpy())
                digest.update(f"{array.dtype}{array.shape}".encode())
                digest.update(array.data)
        return digest.hexdigest()[:16]

    @cached_property
    def moderate(self) -> tuple[Tensor, Tensor | None]:
        """Features and base mean, rescaled by a power of two where their magnitude is extreme; else as they are."""
        table = self.features.unsqueeze(0)
        scaled, _, base_mean = moderate(table, base_mean=self.base_mean)
        return self.features if scaled is table else scaled[0], base_mean

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> FeatureSet:
        """The same set on another device, or in another precision.

        Parameters
        ----------
        device : torch.device or str, optional
        dtype : torch.dtype, optional

        Returns
        -------
        FeatureSet
        """
        features = self.features.to(device=device, dtype=dtype)
        if features is self.features:
            return self
        return FeatureSet(
            features, self.labels, self.class_names, self.base_mean, self.meta, is_support=self.is_support
        )

    def save(self, path: str | Path, *, half: bool = False) -> None:
        """Write to a safetensors file, atomically.

        Parameters
        ----------
        path : path-like
            The file; it is replaced if it exists.
        half : bool, default=False
            Store features in 16 bits: half the size, three digits.
        """
        tensors = {
            "features": self.features.cpu().to(torch.float16) if half else self.features.cpu(),
            "labels": self.labels.cpu(),
        }
        if self.base_mean is not None:
            tensors["base_mean"] = self.base_mean.cpu()
        if self.is_support is not None:
            tensors["is_support"] = self.is_support.cpu()
        tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
        # One header entry: safetensors writes several in any order, and the same set should be the same bytes.
        header = {FORMAT: json.dumps({"class_names": self.class_names, "meta": dict(self.meta)}, sort_keys=True)}
        with atomic_write(path) as temporary:
            save_file(tensors, temporary, metadata=header)

    @staticmethod
    def load(path: str | Path) -> FeatureSet:
        """Read a feature set from a file.

        Parameters
        ----------
        path : path-like
            A file that ``save`` wrote, or a .npz with arrays of the same names (``features`` and ``labels`` at least).

        Returns
        -------
        FeatureSet
        """
        path = Path(path)
        if not path.exists():
            raise InputError(f"There is no file {path}.")
        return _load_npz(path) if path.suffix == ".npz" else _load_safetensors(path)


def read_header(metadata: Mapping[str, str] | None) -> dict[str, Any]:
    """``class_names`` and ``meta`` from the header of a safetensors file; empty where it is not one of ours."""
    header: dict[str, Any] = json.loads((metadata or {}).get(FORMAT, "{}"))
    return header


def _load_safetensors(path: Path) -> FeatureSet:
    try:
        with safe_open(path, framework="pt") as file:
            header = read_header(file.metadata())
            names = set(file.keys())
            if not {"features", "labels"} <= names:
                raise InputError(f"{path} has no 'features' and 'labels'; it holds: {', '.join(sorted(names))}.")
            tensors = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} cannot be read as safetensors ({error}); make it with FeatureSet.save.") from error
    return FeatureSet(
        tensors["features"],
        tensors["labels"],
        header.get("class_names"),
        tensors.get("base_mean"),
        header.get("meta"),
        is_support=tensors.get("is_support"),
    )


def _load_npz(path: Path) -> FeatureSet:
    try:
        with np.load(path, allow_pickle=False) as file:
            if not {"features", "labels"} <= set(file.files):
                raise InputError(f"{path} has no 'features' and 'labels'; it holds: {', '.join(sorted(file.files))}.")
            return FeatureSet(
                file["features"],
                file["labels"],
                [str(name) for name in file["class_names"]] if "class_names" in file.files else None,
                file["base_mean"] if "base_mean" in file.files else None,
                {"source": path.name},
                is_support=file["is_support"] if "is_support" in file.files else None,
            )
    except InputError:
        raise
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} cannot be read as an .npz of plain arrays ({error}).") from error
