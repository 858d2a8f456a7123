"""The one reader of feature files: tables and arrays of any format. Never a pickle."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyway.core import describe_rows
from manyway.errors import InputError
from manyway.files.arrays import decoded, plain, read_arrays, read_npy, values_of
from manyway.files.columns import (
    find_item,
    lacking_columns,
    named_label,
    quoted,
    read_columns,
    remarks_on_classes,
    remarks_on_items,
)
from manyway.files.contents import Contents
from manyway.files.files import check_input
from manyway.files.formats.base import ArrayFormat, DataFormat, Origin, TableFormat
from manyway.files.formats.registry import endings_of, is_table
from manyway.files.opening import read_table
from manyway.files.options import AUTO, Options
from manyway.files.origin import TableOrigin
from manyway.files.tables import find_column, missing
from manyway.files.text import read_lines, shorten, suffix_of

_CHECK_BYTES = 1 << 26  # rows checked together, so that checking a memory-mapped file needs little memory


@dataclass(frozen=True, eq=False)
class Items:
    """Rows of features with what their file says about them.

    Parameters
    ----------
    features : array or Tensor of shape [n, d]
        They may be memory-mapped: read them with `rows`.
    labels : tuple of str or None
        The class of every row.
    names : sequence of str or None
        The name of every row. None: rows are known by their number.
    base_mean : Tensor of shape [d] or None
        The mean feature of the classes that the encoder was trained on.
    columns : tuple of str or None
        The names of the features, where the file has them.
    skipped : tuple of (str, str)
        Items that could not be read, with the reason. They have no row here, and appear in the table of labels.
    notes : tuple of str
        What the reader guessed, for the user to see.
    header : tuple of str
        All columns of the file, features or not.
    carried : mapping of str to sequence
        Columns of the file that say more about each row, and after them about what was skipped, where that is known.
        They come back in the table of labels.
    texts : sequence of str or None
        The text of every row, where rows are texts.
    origin : TableOrigin or None
        Where the rows are in the table of the user, and after them what was skipped.
    origins : tuple of Origin
        The file of another program that the items come from, where answers can be written into it.
    gaps : bool
        Whether features of some rows are missing: NaN.
    """

    features: np.ndarray[Any, Any] | Tensor
    labels: tuple[str, ...] | None
    names: Sequence[str] | None
    base_mean: Tensor | None = None
    columns: tuple[str, ...] | None = None
    skipped: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    carried: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    texts: Sequence[str] | None = None
    origin: TableOrigin | None = None
    origins: tuple[Origin, ...] = ()
    gaps: bool = False

    def __len__(self) -> int:
        return int(self.features.shape[0])

    @property
    def n_features(self) -> int:
        """The number of features, d."""
        return int(self.features.shape[1])

    def rows(self, start: int, stop: int) -> Tensor:
        """Features of some rows, in memory, as float32 or float64."""
        return as_tensor(self.features[start:stop])

    def all_alike(self) -> bool:
        """Whether there are several rows and all have the same features."""
        step, first = 1024, self.rows(0, 1)
        blocks = (self.rows(start, start + step) for start in range(0, len(self), step))
        return len(self) > 1 and all(bool((block == first).all()) for block in blocks)

    def name(self, row: int) -> str:
        """The name of a row, or its number."""
        return str(row) if self.names is None else self.names[row]

    def note(self, row: int) -> str:
        """What is said of a row that lacks features (NaN); empty for the others."""
        if not self.gaps:
            return ""
        features = self.rows(row, row + 1)[0]
        lacking = features.isnan()
        if not bool(lacking.any()):
            return ""
        if bool(lacking.all()):
            return "it has no number in any column; the label is what the other items suggest"
        columns = self.columns or [str(number + 1) for number in range(len(features))]
        return f"{lacking_columns(columns, lacking.numpy())}; labelled by the other columns"

    def text(self, row: int) -> str:
        """The text of a row, or its name."""
        return self.name(row) if self.texts is None else self.texts[row]


def read_items(path: str | Path, options: Options = AUTO, *, like: Items | None = None, **columns: Any) -> Items:
    """Read the features in a file, with labels and item names where it has them.

    Parameters
    ----------
    path : path-like
        A file of arrays (.safetensors, .npz: ``features`` and optionally ``labels``, ``class_names`` and ``items``;
        .npy: the features alone) or a table (.csv, .tsv, .parquet, .jsonl) with one row per item. A folder whose name
        ends with .parquet is read as one table.
    options : Options, optional
        What the user says about the columns of a table. By default they are found.
    like : Items, optional
        The labelled examples. Features are then matched to theirs by name, and labels are not read.
    **columns
        The same as ``options``, each by its name: ``label_column``, ``item_column``, ``ignore_columns``, ….

    Returns
    -------
    Items

    Raises
    ------
    InputError
        If the file cannot be used. The sentence says what is wrong, and where.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "examples.csv"
    >>> _ = path.write_text("label;width;height\\nant;1,5;0,3\\nbee;1,0;0,5\\n")
    >>> items = read_items(path)
    >>> items.labels, items.columns, items.rows(0, 1)
    (('ant', 'bee'), ('width', 'height'), tensor([[1.5000, 0.3000]]))
    """
    path = Path(path)
    options = replace(options, like=None if like is None else like.columns, **columns)
    contents = read_contents(path, options, with_labels=like is None)
    kept = ("base_mean", "columns", "skipped", "notes", "header", "carried", "origin")
    more = {name: getattr(contents, name) for name in kept}
    items = Items(contents.features, class_of_row(path, contents), contents.items, **more)
    if not len(items):  # a table without rows was refused before
        raise InputError(f"{path} has no rows; its array of features needs one per item.")
    may_lack = options.gaps and is_table(path)
    _check_finite(path, items, gaps=may_lack)
    if may_lack:
        items = replace(items, gaps=bool(np.isnan(items.features).any()))
    return items if like is None else match_columns(like, items)


def match_columns(support: Items, query: Items) -> Items:
    """The query with its features in the order of the support's, by name where both have names."""
    theirs, ours = support.columns, query.columns
    if theirs is None or ours is None or theirs == ours or len(theirs) != len(ours):
        return query
    position = {name: at for at, name in enumerate(ours)}
    unknown = [name for name in theirs if name not in position]
    if unknown:
        raise InputError(f"The items lack the feature '{unknown[0]}' of the examples; give both the same columns.")
    order = [position[name] for name in theirs]
    return replace(query, features=query.features[:, order], columns=theirs)


def read_contents(path: str | Path, options: Options = AUTO, *, with_labels: bool = True) -> Contents:
    """Read a feature file of any kind, see `read_items`; features are not checked for NaN in files of arrays."""
    path = Path(path)
    suffix = suffix_of(path)
    if path.suffix.lower() != ".parquet" or not path.is_dir():
        check_input(path)
    if is_table(path):
        contents = read_columns(path, options, with_labels=with_labels)
    elif suffix in endings_of(ArrayFormat):
        contents = read_arrays(path)
    else:
        endings = ", ".join(endings_of(TableFormat, DataFormat, ArrayFormat))
        raise InputError(f"{path} has an unknown ending; save it as one of {endings}.")
    given = contents.labels if with_labels else None
    labels = None if given is None else clean_labels(path, given, contents.place)
    contents = replace(contents, labels=labels, items=item_names(path, contents.items))
    _check_shape(path, contents)
    classes = labels if isinstance(labels, tuple) else contents.class_names
    remarks = [*remarks_on_classes(path, classes or ()), *remarks_on_items(path, contents.items)]
    listed = given if isinstance(given, list) else []
    texts = {label for label in listed if isinstance(label, str)}
    if texts and any(str(label) in texts for label in listed if not isinstance(label, str)):
        remarks.append(f"labels of {path.name} are written as numbers and as texts; 1 and '1' are one class")
    return replace(contents, notes=(*contents.notes, *remarks))


def read_labels(
    path: str | Path,
    label_column: str | None = None,
    *,
    item_column: str | None = None,
    examples: Items | None = None,
    say: Callable[[str], None] = lambda remark: None,
) -> tuple[str, ...]:
    """Read labels from a .npy array, the label column of a table, or a text file with one label per line.

    Parameters
    ----------
    path : path-like
    label_column, item_column : str, optional
        The columns of a table; by default they are found.
    examples : Items, optional
        What the labels belong to. Where a table names items, its labels go to the examples of these names; otherwise
        labels are in the order of the examples.
    say : callable, optional
        Gets a remark where a table names items, and the examples have no names to find them by.

    Returns
    -------
    tuple of str
    """
    path = check_input(path)
    suffix = suffix_of(path)
    if suffix == ".npy":
        return tuple(map(str, clean_labels(path, read_npy(path))))
    if suffix in (".json", *endings_of(ArrayFormat)):
        raise InputError(f"{path} is no file of labels; give a .txt with one label per line, a table or a .npy.")
    if not is_table(path):
        lines = list(read_lines(path))
        while lines and not lines[-1][1].strip():
            lines.pop()
        return tuple(map(str, clean_labels(path, [text for _, text in lines], lambda row: f"line {lines[row][0]}")))
    return _labels_in_table(path, Options(label_column, item_column=item_column), examples, say)


def _labels_in_table(
    path: Path, options: Options, examples: Items | None, say: Callable[[str], None]
) -> tuple[str, ...]:
    # A single column may have no name.
    table = read_table(path, lambda names: len(names) > 1 or named_label(path, names, options) == 0)
    at = named_label(path, table.names, options) if table.named else 0
    if at is None:
        wanted = options.label_column or "label"
        raise InputError(f"{path} has {len(table.names)} columns, none named '{wanted}'; name one with `label_column`.")
    cells = table.values([at])[0]
    rows: Sequence[int] = range(len(cells))
    if examples is not None and table.named:
        # The column that the user names may be one of the examples alone.
        named = options.item_column is not None and find_column(table.names, options.item_column) is not None
        item = find_item(table, options if named else AUTO, {at}).at
        names = None if item is None else item_names(path, table.values([item])[0])
        found = None if names is None else _rows_of_examples(path, names, examples)
        if names and found is None and examples.names is None and item is not None:
            column = quoted(table.names[item])
            say(f"the examples have no names: labels of {path.name} go to them in its order, not by {column}")
        rows = found or rows
    return tuple(map(str, clean_labels(path, [cells[row] for row in rows], lambda row: table.place(rows[row]))))


def _rows_of_examples(path: Path, names: Sequence[str], examples: Items) -> list[int] | None:
    """The row of a table of labels that names each example; None where it does not name them."""
    wanted = [examples.name(row) for row in range(len(examples))]
    counted = any([*names] == [*map(str, range(first, first + len(wanted)))] for first in (0, 1))
    shared = set(wanted).intersection(names)
    lacking = [name for name in wanted if name not in shared]
    if [*names] == wanted:
        return [*range(len(names))]
    if lacking and (counted or (examples.names is None and not shared)):
        return None
    if lacking:
        found = f"{len(lacking)} lack one, such as " if shared else f"it names {shorten(names[0])}, they are "
        hint = "give each its label by its name, or a .txt with one label per line, in the order of the examples"
        raise InputError(f"{path} does not label all examples ({found}{shorten(lacking[0])}); {hint}.")
    twice = next((name for name, count in Counter(names).items() if count > 1 and name in shared), None)
    if twice is not None:
        raise InputError(f"{path} has the example {shorten(twice)} twice; give each example one row.")
    row_of = {name: row for row, name in enumerate(names)}
    return [row_of[name] for name in wanted]


def clean_labels(
    path: Path, values: Any, place: Callable[[int], str] = lambda row: f"row {row}"
) -> np.ndarray[Any, Any] | tuple[str, ...]:
    """Labels as int64 or as names; a missing label is an error that says where."""
    if isinstance(values, np.ndarray):
        array, values = values, values_of(path, "labels", values)
        if array.dtype.kind in "iu":
            if array.size and int(array.max()) > np.iinfo(np.int64).max:
                raise InputError(f"labels in {path} go up to {array.max()}; number the classes from 0.")
            return array.astype(np.int64)
    gone = [row for row, value in enumerate(values) if missing(value)]
    if gone:
        shown = ", ".join(place(row) for row in gone[:3]) + (f" and {len(gone) - 3} more" if len(gone) > 3 else "")
        found = values[gone[0]]
        stands = f"; {shorten(found)} stands for a missing label" if isinstance(found, str) and found.strip() else ""
        raise InputError(f"{path} has no label in {shown}{stands}; every labelled example needs one.")
    return tuple(_label(path, value, row, place) for row, value in enumerate(values))


def _label(path: Path, value: Any, row: int, place: Callable[[int], str]) -> str:
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, date):
        value = value.isoformat()
    fraction = isinstance(value, float) and not value.is_integer()
    if fraction or not isinstance(value, str | bytes | int | float):
        raise InputError(f"The label in {place(row)} of {path} is {shorten(value)}; labels are names or whole numbers.")
    name = decoded(path, value).strip()
    if "\0" in name:
        raise InputError(f"The label {quoted(name)} in {place(row)} of {path} has a NUL character; remove it.")
    return name


def item_names(path: Path, values: Any) -> tuple[str, ...] | None:
    """Names of items as text; an item without a name is known by its number."""
    if values is None:
        return None
    values = values_of(path, "items", values) if isinstance(values, np.ndarray) else values
    return tuple(f"(row {row})" if missing(value) else decoded(path, value) for row, value in enumerate(values))


def class_of_row(path: Path, contents: Contents) -> tuple[str, ...] | None:
    """The class of each row, by its name; None where the file does not say it."""
    labels, names = contents.labels, contents.class_names
    if labels is None or isinstance(labels, tuple):
        return labels
    if names is None:
        return tuple(map(str, labels.tolist()))
    if labels.size and (labels.min() < 0 or labels.max() >= len(names)):
        found = f"go from {labels.min()} to {labels.max()}"
        raise InputError(f"labels in {path} {found} but there are {len(names)} class names.")
    return tuple(names[label] for label in labels.tolist())


def _check_shape(path: Path, contents: Contents) -> None:
    """Refuse arrays that no method can use."""
    features = contents.features
    if features.ndim != 2:
        raise InputError(f"features in {path} must have two axes (item, feature), not shape {tuple(features.shape)}.")
    real = not features.is_complex() if isinstance(features, Tensor) else features.dtype.kind in "fiu"
    if not real or (isinstance(features, Tensor) and features.dtype == torch.bool):
        raise InputError(f"features in {path} are {features.dtype}; they must be real numbers (float32 is best).")
    if features.shape[1] == 0:
        raise InputError(f"{path} has no features: its shape is {tuple(features.shape)}.")
    rows = {"labels": contents.labels, "item names": contents.items, "is_support": contents.is_support}
    for what, values in rows.items():
        if values is not None and len(values) != len(features):
            raise InputError(f"{path} has {len(features)} rows of features and {len(values)} {what}; they must agree.")
    mean = contents.base_mean
    if mean is not None and mean.shape != features.shape[1:]:
        raise InputError(f"base_mean in {path} has {len(mean)} entries; features have {features.shape[1]} dimensions.")


def _check_finite(path: Path, items: Items, *, gaps: bool) -> None:
    """Refuse NaN, if these are no gaps; in pieces, so that a large file is never in memory whole."""
    step = max(1, _CHECK_BYTES // (8 * items.n_features))
    for start in range(0, len(items), step):
        rows = items.rows(start, start + step)
        odd = ~torch.isfinite(rows)
        if gaps:
            odd &= ~rows.isnan()
        bad = odd.any(1).nonzero().flatten() + start
        if len(bad):
            where = describe_rows(bad.tolist())
            raise InputError(f"{path} has NaN or infinite features in {where}; remove or repair them.")


def as_tensor(features: np.ndarray[Any, Any] | Tensor) -> Tensor:
    """Features as a tensor in float32 or float64."""
    if isinstance(features, Tensor):
        return features if features.dtype in (torch.float32, torch.float64) else features.to(torch.float32)
    return torch.from_numpy(plain(features))
