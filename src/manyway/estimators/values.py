"""From the arrays and labels of users to what scikit-learn and the solvers can check, and back."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from manyway.core import Solution, as_array, describe_rows, refuse_masked
from manyway.errors import InputError, InputTypeError

_LONGEST = 500  # letters of a sentence


def like(value: Tensor, X: Any) -> Any:
    """The value as a tensor where X is one, otherwise as a NumPy array."""
    return value if isinstance(X, Tensor) else value.cpu().numpy()


def label_names(solution: Solution, classes: Any, X: Any) -> Any:
    """[q] the labels of the first task by the names of the classes.

    A tensor where X is one and they are numbers.
    """
    names = classes[solution.labels[0].cpu().numpy()]
    if isinstance(X, Tensor) and np.issubdtype(names.dtype, np.number):
        return torch.as_tensor(names, device=X.device)
    return names


@contextmanager
def in_one_sentence() -> Iterator[None]:
    """Say what scikit-learn or NumPy says about unusable arrays, as an InputError on one line."""
    try:
        yield
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        kind = InputTypeError if isinstance(error, TypeError) else InputError
        sentence = " ".join(str(error).split())
        # it may hold what was given
        short = sentence if len(sentence) <= _LONGEST else f"{sentence[:_LONGEST]}…"
        raise kind(short) from error


def is_given(known: Any) -> TypeGuard[Mapping[int, Any]]:
    """Whether there are known labels; what is no mapping is refused later."""
    return known is not None and not (isinstance(known, Mapping) and not known)


def known_places(known: Mapping[int, Any], classes: Any, n_query: int) -> Tensor:
    """[q] the places of known labels in ``classes``, -1 where none is known."""
    if not isinstance(known, Mapping):
        raise InputError(
            f"known is of the type {type(known).__name__}; give a mapping {{row: label}}."
        )
    for row in known:
        if isinstance(row, bool) or not isinstance(row, Integral) or not 0 <= row < n_query:
            raise InputError(
                f"known has a label for row {row!r}; rows are integers from 0 to {n_query - 1}."
            )
    hint = "correct it, or give fit the first example of a new class"
    found = torch.full((n_query,), -1)
    found[[int(row) for row in known]] = places_of(
        list(known.values()), classes, list(known), "known", hint
    )
    return found


def places_of(
    labels: Sequence[Any], classes: Any, rows: Sequence[Any], what: str, hint: str
) -> Tensor:
    """[n] the places of labels in ``classes``.

    ``what`` and ``rows`` say in a message where they come from.
    """
    places = {name: place for place, name in enumerate(np.asarray(classes).tolist())}
    found = []
    for row, label in zip(rows, labels, strict=True):
        name = label.item() if isinstance(label, np.generic | Tensor) else label
        if not isinstance(name, Hashable) or name not in places:
            raise InputError(
                f"{what} has the label {name!r} for row {row}, "
                f"which is not among the classes; {hint}."
            )
        found.append(places[name])
    return torch.tensor(found, dtype=torch.int64)


def to_numpy(values: Any, name: str = "the tensor") -> Any:
    """A tensor as a NumPy array; other values as they are."""
    return as_array(values, name) if isinstance(values, Tensor) else values


def read_features(values: Any, name: str = "X") -> Any:
    """Features as scikit-learn can check them.

    NumPy has no bfloat16, and a column of lists is an array of objects.
    """
    refuse_masked(values, name)
    half = isinstance(values, Tensor) and values.dtype == torch.bfloat16
    values = to_numpy(values.float() if half else values, name)
    if not hasattr(values, "to_list"):
        return values
    rows = values.to_numpy()  # of a column of pandas or polars
    if rows.dtype.kind != "O" or not any(
        isinstance(row, list | tuple | np.ndarray) for row in rows[:1]
    ):
        return rows
    odd = [n for n, row in enumerate(rows) if np.shape(row) != np.shape(rows[0])]
    if odd:
        raise InputError(
            f"{name} has lists of another length in {describe_rows(odd)}; "
            "every row needs the same features."
        )
    return np.stack([np.asarray(row) for row in rows])


def read_vector(values: Any, name: str) -> Any:
    """A copy of features that are not those of items, as an array."""
    return as_array(read_features(values, name), name).copy()


def read_vectors(values: Any) -> tuple[Any, Any]:
    """Class features as an array [k, d], and the labels of its rows where they are a mapping."""
    if values is None:
        return None, None
    if not isinstance(values, Mapping):
        return read_vector(values, "class_features"), None
    rows = [read_vector(vector, "class_features") for vector in values.values()]
    if not rows or any(row.ndim != 1 or row.shape != rows[0].shape for row in rows):
        raise InputError(
            "class_features must map every label to one vector, all of the same length."
        )
    return np.stack(rows), read_labels(list(values))


def read_labels(values: Any) -> Any:
    """Labels as scikit-learn can check them: bytes are decoded, missing and mixed ones refused."""
    if values is None:
        return None
    given = to_numpy(values, "y")
    # NumPy would turn what stands between strings into strings.
    mixed = (
        isinstance(given, list | tuple)
        and len({isinstance(label, str | np.str_) for label in given}) > 1
    )
    labels = np.array(given, dtype=object) if mixed else as_array(given, "y")
    masked = (
        np.ma.getmaskarray(given).reshape(-1) if np.ma.isMaskedArray(given) else np.zeros(0, bool)
    )
    if (labels.dtype.kind == "O" and labels.ndim == 1) or masked.any():
        missing = [row for row, label in enumerate(labels.tolist()) if _is_missing(label)]
        missing = sorted({*missing, *np.flatnonzero(masked).tolist()})
        if missing:
            raise InputError(
                f"y has no label in {describe_rows(missing)}; "
                "give one to each example or leave it out."
            )
        if all(isinstance(label, bytes) for label in labels):
            labels = labels.astype(bytes)
        elif len({isinstance(label, str) for label in labels}) > 1:
            raise InputError(
                "y mixes strings with other labels; use strings or integers for all of them."
            )
    try:
        return np.char.decode(labels, "utf-8") if labels.dtype.kind == "S" else labels
    except UnicodeDecodeError as error:
        raise InputError(
            "y holds bytes that are not UTF-8; decode them to strings first."
        ) from error


def _is_missing(label: Any) -> bool:
    """None, NaN or pandas' NA."""
    try:
        return label is None or bool(label != label)
    except (TypeError, ValueError):  # the truth value of NA
        return True
