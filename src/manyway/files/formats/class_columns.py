"""Tables with one column per class."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from manyway.errors import InputError
from manyway.files.columns import is_number_like, is_whole, read_columns
from manyway.files.contents import Contents
from manyway.files.formats.base import TABLE_ENDINGS, Opened
from manyway.files.scores import ScoreFormat, Scores, check_size
from manyway.files.tables import missing
from manyway.files.text import first_twice, is_filled, shorten

_ROUNDING = 0.02  # of the sum of probabilities
_HINT = (
    "write a number there, or leave all such items out with `skip_bad` "
    "(or the column with `ignore_columns`, if it is no class)."
)
_FIRST = 100  # rows after which few columns are left


class ClassColumns(ScoreFormat):
    """One row per item, one column per class."""

    key = "class-columns"
    name = "a table with one column per class"
    endings: ClassVar[tuple[str, ...]] = TABLE_ENDINGS
    sign = "one column per class"
    holds = "a row; the columns `item` and `label` (where known) are optional"
    example = "class_columns.csv"
    generic = True

    def read(self, file: Opened) -> Scores:
        path = file.path
        table = _with_names(path, read_columns(path, replace(file.options, logarithms=True), hint=_HINT))
        classes = table.columns
        if classes is None:
            raise InputError(f"The first line of {path} holds numbers; add one that names the class of each column.")
        count = len(table.features)
        check_size(count, len(classes))
        names = tuple(map(str, range(count) if table.items is None else table.items))
        twice = first_twice(names)
        if twice is not None:
            raise InputError(f"{path} has the item {shorten(twice)} twice; give each item one row.")
        labels = None
        if table.labels is not None:
            labels = tuple(None if missing(label) else str(label).strip() for label in table.labels)
        values = np.asarray(table.features, np.float32)
        odd = _beside_probabilities(values)
        if odd is not None:
            hint = "the others sum to 1 in every row; leave it out with `ignore_columns`"
            raise InputError(f"Column '{classes[odd]}' of {path} is no score of a class, it seems: {hint}.")
        told = {name: getattr(table, name) for name in ("skipped", "notes", "carried")}
        return Scores(values, classes, names, labels, **told)


def _with_names(path: Path, table: Contents) -> Contents:
    """The same with names of items, where no column looks like theirs and one alone has a number for each row.

    Their number among the rows would be another one, and labels that name items would go to others.
    """
    if table.items is not None:
        return table
    counting = [name for name, cells in table.carried.items() if _are_all_different_numbers(cells)]
    if len(counting) != 1:
        return table
    cells = table.carried[counting[0]]
    items = [str(int(cell) if isinstance(cell, float) else cell).strip() for cell in cells]
    carried = {name: cells for name, cells in table.carried.items() if name != counting[0]}
    said = f"column '{counting[0]}' of {path.name} names the items (change it with `item_column`)"
    return replace(table, items=items, carried=carried, notes=(*table.notes, said))


def _are_all_different_numbers(cells: Sequence[Any]) -> bool:
    """Whether each cell has a whole number of its own.

    >>> _are_all_different_numbers([1, "02", 3.0]), _are_all_different_numbers([1, 1]), _are_all_different_numbers([""])
    (True, False, False)
    """
    filled = all(is_filled(cell) and is_number_like(cell) and is_whole(cell) for cell in cells)
    return filled and first_twice([*map(str, cells)]) is None


def _beside_probabilities(values: np.ndarray[Any, Any]) -> int | None:
    """The one column without which every row sums to 1, if there is one.

    >>> _beside_probabilities(np.array([[0.5, 0.5, 0.9], [0.25, 0.75, 0.8]])), _beside_probabilities(np.eye(3))
    (2, None)
    """
    if values.shape[1] < 3 or np.isneginf(values).any():  # logarithms do not sum to 1
        return None
    total = values.sum(1, keepdims=True)
    odd = np.arange(values.shape[1])
    for some in (slice(_FIRST), slice(None)):
        rest = total[some] - values[some, odd]  # the sum of the other columns
        odd = odd[(np.abs(rest - 1) < _ROUNDING).all(0)]
    odd = odd[(values[:, odd] > _ROUNDING).any(0)]
    return int(odd[0]) if len(odd) == 1 else None
