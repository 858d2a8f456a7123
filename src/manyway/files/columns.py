"""Which column of a table is what: features, label, item name."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from manyway.errors import InputError
from manyway.files.tables import Table, read_table
from manyway.files.text import listed

LABEL_NAMES = ("label", "labels", "class", "class_name", "category", "target", "intent")
_MISSING = {"", "nan", "<na>", "nat", "#n/a"}  # cells that stand for no label; "None" and "NA" can be names of classes
_ROW_NUMBERS = re.compile(
    r"(unnamed: \d+(_level_\d+)?|index|idx|level_\d+|__index_level_\d+__|row[_. ]?(names?|nr|no|num|number|index))?"
)
_IDS = re.compile(r"(.*[_\-. ])?(id|uuid|guid|file|file[_ ]?name|(file[_ ]?)?path|url|uri)|.*[a-z](Id|ID)")
_PERHAPS_MISSING = {"na", "n/a", "null", "none", "?", "-"}


@dataclass(frozen=True)
class Options:
    """What the user says about the columns of a table; the rest is found by name.

    Parameters
    ----------
    label_column, item_column : str or None
        The columns of labels and of item names. None: found by their usual names.
    ignore_columns : sequence of str
        Columns that are neither features nor anything else of use.
    feature_columns : sequence of str
        Columns that are features although they look like an index.
    like : sequence of str or None
        The feature columns of the labelled examples: these and no others are the features.
    """

    label_column: str | None = None
    item_column: str | None = None
    ignore_columns: Sequence[str] = ()
    feature_columns: Sequence[str] = ()
    like: Sequence[str] | None = None


@dataclass(frozen=True, eq=False)
class Columns:
    """A table of features, picked apart."""

    features: np.ndarray[Any, Any]  # [n, d] float32 or float64
    names: tuple[str, ...] | None  # [d]; None: columns have no names and are known by their position
    labels: list[Any] | None  # [n]
    items: list[Any] | None  # [n]
    table: Table
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Roles:
    """Which column of a table is what, as positions."""

    features: tuple[int, ...]
    label: int | None
    item: int | None
    notes: tuple[str, ...]  # what was guessed, for the user to see


def missing(value: Any) -> bool:
    """Whether a label is absent: null, NaN, an empty or blank string, or a word that spreadsheets write for it."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value.strip().casefold() in _MISSING
    return value is None or (isinstance(value, float) and math.isnan(value))


def remarks_on_classes(path: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Remarks on names of classes that may be slips of the pen; all are kept as they are.

    >>> remarks_on_classes(Path("a.csv"), ["cat", "Cat", "dog"])
    ("the labels 'Cat' and 'cat' of a.csv differ only in case, blanks or Unicode form; they are two classes",)
    """
    remarks, seen = [], dict[str, str]()
    for name in sorted(set(names)):
        plain = " ".join(unicodedata.normalize("NFKC", name).replace("\u200b", "").casefold().split())
        other = seen.setdefault(plain, name)
        if other != name:
            remarks.append(
                f"the labels '{other}' and '{name}' of {path.name} differ only in case, blanks or Unicode form; they "
                "are two classes"
            )
        if plain in _PERHAPS_MISSING:
            remarks.append(f"the label '{name}' of {path.name} is taken as the name of a class, not as a missing label")
    return (*remarks[:5], f"and {len(remarks) - 5} more of this kind") if len(remarks) > 5 else tuple(remarks)


def is_row_number(name: str) -> bool:
    """Whether a column of this name only counts rows, such as the index that pandas writes.

    >>> [name for name in ("", "Unnamed: 0", "index", "width") if is_row_number(name)]
    ['', 'Unnamed: 0', 'index']
    """
    return _ROW_NUMBERS.fullmatch(name.casefold()) is not None


def is_id(name: str) -> bool:
    """Whether a column of this name identifies items.

    >>> [name for name in ("id", "photo_id", "imageID", "image_path", "width", "grid") if is_id(name)]
    ['id', 'photo_id', 'imageID', 'image_path']
    """
    return _IDS.fullmatch(name.casefold()) is not None or _IDS.fullmatch(name) is not None


def is_label(name: str) -> bool:
    """Whether a column of this name usually holds labels."""
    return name.strip().casefold() in LABEL_NAMES


def find_column(names: Sequence[str], wanted: str) -> int | None:
    """The position of a column: the exact name, else the only one that differs in case and blanks alone."""
    if wanted in names:
        return list(names).index(wanted)
    alike = [at for at, name in enumerate(names) if name.strip().casefold() == wanted.strip().casefold()]
    return alike[0] if len(alike) == 1 else None


def find_label(path: Path, names: Sequence[str], options: Options) -> tuple[int | None, str | None]:
    """The position of the label column, and a remark where it was guessed."""
    if options.label_column is not None:
        return find_column(names, options.label_column), None
    features = {*(options.like or ()), *options.feature_columns, *options.ignore_columns}
    alike = [at for at, name in enumerate(names) if is_label(name) and name not in features]
    exact = [at for at in alike if names[at].strip().casefold() == "label"] or alike
    if len(alike) > 1 and options.like is None:
        raise InputError(
            f"{path} has several columns that could be the label: {listed([names[at] for at in alike])}; say which "
            "with --label-column, and leave the others out with --ignore-column or keep them with --feature-column."
        )
    if not exact:
        return None, None
    name = names[exact[0]]
    return exact[0], None if name == "label" else f"column '{name}' of {path.name} is taken as the label"


def read_columns(path: Path, options: Options) -> Columns:
    """Read a table of features, with labels and item names where it has them."""
    known = {name.casefold() for name in (options.label_column, options.item_column, "item", *LABEL_NAMES) if name}
    like = set(options.like or ("",))
    table = read_table(path, lambda first: bool({*map(str.casefold, first)} & known) or like <= {*first} or None)
    if table.is_empty:
        raise InputError(f"{path} has no data row; the first line names the columns, the others are items.")
    if table.named:
        roles = assign_roles(path, table.names, _with_lists(options, table.names), table.index)
    else:
        roles = Roles(tuple(range(len(table.names))), None, None, ())
    features = table.features(roles.features)
    labels, items = table.values([roles.label, roles.item])
    names = tuple(table.names[at] for at in roles.features)
    if len(names) == 1 and table.holds_lists(roles.features[0]):
        names = tuple(f"{names[0]}[{i}]" for i in range(features.shape[1]))
    columns = Columns(features, names if table.named else None, labels, items, table, (*roles.notes, *table.notes))
    _refuse_index(path, columns, options)
    return columns


def _with_lists(options: Options, names: Sequence[str]) -> Options:
    """Options for a table that stores embedding[0], embedding[1], … as one column ``embedding``."""
    like = list(options.like or ())
    base = like[0].removesuffix("[0]") if like and like[0].endswith("[0]") else None
    if base is None or base not in names or like != [f"{base}[{i}]" for i in range(len(like))]:
        return options
    return replace(options, like=(base,))


def _refuse_index(path: Path, columns: Columns, options: Options) -> None:
    """Refuse a feature that counts the rows, where the other features are measurements."""
    features, names = columns.features, columns.names
    if options.like is not None or names is None or len(features) < 3 or len(names) < 2:
        return
    start = features[:100]
    whole = np.flatnonzero((start == np.floor(start)).all(0))
    if len(whole) * 2 > len(names):
        return  # whole numbers are usual in this table
    for at in whole.tolist():
        values = features[:, at].astype(np.float64)
        if not bool((values == np.floor(values)).all()):
            continue
        steps = np.diff(values)
        counted = np.sort(values) - np.arange(len(values))
        in_order = bool((steps == 1).all()) and values[0] in (0, 1)
        shuffled = len(values) >= 5 and counted[0] in (0, 1) and bool((counted == counted[0]).all())
        rising = len(values) >= 8 and bool((steps > 0).all())
        if names[at] not in options.feature_columns and (in_order or shuffled or rising):
            raise InputError(
                f"Column '{names[at]}' of {path} numbers the rows ({', '.join(map(str, values[:3].astype(int)))}, …) "
                f"and does not look like a feature; use --item-column {names[at]!r} if it names the items, "
                "--ignore-column to leave it out, or --feature-column to keep it."
            )


def assign_roles(path: Path, names: Sequence[str], options: Options, index: Sequence[str] = ()) -> Roles:
    """Decide which columns are features, label and item name.

    ``index`` names columns that the file itself declares to be an index (parquet written by pandas).
    """
    label, remark = find_label(path, names, options)
    notes = [remark] if remark else []
    forced = {*options.feature_columns, *(options.like or ())}
    left_out = {find_column(names, name) for name in options.ignore_columns} | {label}
    free = [at for at in range(len(names)) if at not in left_out]
    item = find_column(names, options.item_column or "item")
    if item in left_out or (item is not None and options.item_column is None and names[item] in forced):
        item = None
    ids = [at for at in free if at != item and names[at] not in forced and is_id(names[at])]
    counts = [at for at in free if at != item and names[at] not in forced and at not in ids]
    counts = [at for at in counts if is_row_number(names[at]) or names[at] in index]
    if item is None and len(ids) > 1:
        raise InputError(
            f"The columns {listed([names[at] for at in ids])} of {path} look like identifiers, not features; choose "
            "the item name with --item-column and leave the others out with --ignore-column (or keep one as a feature "
            "with --feature-column)."
        )
    if item is None and (ids or counts):
        item = (ids or counts)[0]
        notes.append(f"column '{names[item]}' of {path.name} is taken as the item name, not as a feature")
    elif item is not None and ids:
        raise InputError(
            f"Column '{names[ids[0]]}' of {path} looks like an identifier, not a feature; leave it out with "
            f"--ignore-column {names[ids[0]]!r}, or keep it with --feature-column."
        )
    for at in counts:
        if at != item:
            notes.append(f"column '{names[at]}' of {path.name} counts rows and is left out")
    features = [at for at in free if at != item and at not in counts]
    if options.like is not None:
        features = _like(path, names, features, label, options.like)
    elif any(is_label(names[at]) and names[at] not in forced for at in features):
        name = next(names[at] for at in features if is_label(names[at]) and names[at] not in forced)
        raise InputError(
            f"Column '{name}' of {path} looks like a label, not a feature; leave it out with --ignore-column {name!r}, "
            "or keep it with --feature-column."
        )
    if not features:
        raise InputError(f"{path} has no feature column; its columns are {listed(names)}.")
    return Roles(tuple(features), None if options.like is not None else label, item, tuple(notes))


def _like(
    path: Path, names: Sequence[str], features: Sequence[int], label: int | None, like: Sequence[str]
) -> list[int]:
    """The feature columns in the order of the labelled examples; a difference is an error."""
    position = {names[at]: at for at in features}
    known = set(like)
    lacking = [name for name in like if name not in position]
    surplus = [name for name in position if name not in known and not is_label(name)]
    if lacking or surplus:
        lacks = f"lacks the columns {listed(lacking)}" if lacking else ""
        has = f"has the columns {listed(surplus)}" if surplus else ""
        raise InputError(
            f"{path} {' and '.join(filter(None, (lacks, has)))}, unlike the labelled examples; features are matched by "
            "name, so give both files the same columns (see --ignore-column and --item-column)."
        )
    return [position[name] for name in like]
