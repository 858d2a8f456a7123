"""Texts with labels, from csv, tsv, parquet, jsonl and txt files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyway.encoding.datasets.sources import UNLABELLED, refuse_same_names
from manyway.errors import InputError
from manyway.files.columns import Options, find_column, missing, refuse_duplicates
from manyway.files.files import check_input
from manyway.files.items import clean_labels
from manyway.files.tables import open_parquet
from manyway.files.text import check_width, read_json_lines, read_lines, read_records, table_header

TEXT_SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl", ".txt")
TEXT_KEYS = ("text", "sentence", "utterance", "query")
_LABEL_KEYS = ("label", "intent", "class", "category")
_ABSENT = object()  # the label where the file has no place for one
_Row = tuple[str, Any, Any, Any]  # place ("line 3"), text, label, name of the item (or _ABSENT)


@dataclass(frozen=True, eq=False)
class TextSource:
    """Texts in memory; without labels they are all of one class, ``unlabelled``."""

    names: tuple[str, ...]  # [n] where the texts are in their file: numbers of lines, or of rows
    texts: tuple[str, ...]  # [n]
    labels: Tensor  # [n] int64
    class_names: tuple[str, ...]
    title: str
    items: tuple[str, ...] | None = None  # [n] names of the texts, where a column of names was asked for
    header: tuple[str, ...] = ()  # all columns of a table

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def is_labelled(self) -> bool:
        """Whether classes were given."""
        return self.class_names != (UNLABELLED,)


def open_texts(path: str | Path, options: Options | None = None) -> TextSource:
    """Read texts and, where there are any, their labels.

    Parameters
    ----------
    path : path-like
        A .csv, .tsv, .parquet or .jsonl file with a text and optionally a label per row, a .txt file with one text per
        line, or a folder of CLASS.txt files.
    options : Options, optional
        Which columns of a table hold the text (the only one in ``feature_columns``), the label and the name of an item.
        By default text and label are found by their usual names.

    Returns
    -------
    TextSource
    """
    path = Path(path)
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() == ".txt")
        if not files:
            raise InputError(f"{path} holds no CLASS.txt files with one text per line.")
        rows = [
            (f"{file.stem}:{place}", text, file.stem, name) for file in files for place, text, _, name in _lines(file)
        ]
        return _source(path, rows)
    check_input(path)
    suffix = path.suffix.lower()
    if suffix == ".txt":
        return _source(path, list(_lines(path)))
    if suffix not in TEXT_SUFFIXES:
        raise InputError(f"{path} is no text file known here; give one of {', '.join(TEXT_SUFFIXES)}.")
    reader = {".parquet": _from_parquet, ".jsonl": _from_jsonl}.get(suffix, _from_csv)
    return _source(path, *reader(path, options or Options()))


def _source(path: Path, rows: Sequence[_Row], header: Sequence[str] = (), text_column: str = "") -> TextSource:
    if not rows:
        raise InputError(f"{path} holds no texts.")
    places, _, given, items = (list(values) for values in zip(*rows, strict=True))
    for place, text, _, _ in rows:
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{place.capitalize()} of {path} needs a text in the column '{text_column}'.")
    if all(label is _ABSENT for label in given):
        labels = [UNLABELLED] * len(rows)
    else:
        given = [None if label is _ABSENT else label for label in given]
        labels = list(map(str, clean_labels(path, given, lambda row: places[row])))
    class_names = tuple(sorted(set(labels)))
    refuse_same_names(class_names, str(path))
    number = {name: i for i, name in enumerate(class_names)}
    return TextSource(
        tuple(place.split()[-1] for place in places),
        tuple(text for _, text, _, _ in rows),
        torch.tensor([number[label] for label in labels], dtype=torch.int64),
        class_names,
        str(path),
        None if _ABSENT in items else tuple(str(row) if missing(name) else str(name) for row, name in enumerate(items)),
        tuple(header),
    )


def _find_columns(path: Path, names: Sequence[str], options: Options) -> tuple[int, int | None, int | None]:
    """The positions of text, label and item name."""
    known = [name.strip().lower() for name in names]
    refuse_duplicates(path, known)
    item = None if options.item_column is None else find_column(names, options.item_column)
    if options.feature_columns:
        text = find_column(names, options.feature_columns[0])
    else:
        text = next((known.index(key) for key in TEXT_KEYS if key in known and known.index(key) != item), None)
    if options.label_column is not None:
        label = find_column(names, options.label_column)
    else:
        label = next((known.index(key) for key in _LABEL_KEYS if key in known), None)
    if text is None:
        raise InputError(
            f"{path} has the columns {', '.join(known) or '(none)'}; it needs one of {', '.join(TEXT_KEYS)} (or name "
            f"the column of texts with `feature_columns`), and for labelled examples one of {', '.join(_LABEL_KEYS)}."
        )
    return text, label, item


def _lines(path: Path) -> Iterator[_Row]:
    for number, line in read_lines(check_input(path)):
        if line.strip():
            yield f"line {number}", line.strip(), _ABSENT, _ABSENT


_Table = tuple[list[_Row], Sequence[str], str]  # rows, all columns, the column of texts


def _from_csv(path: Path, options: Options) -> _Table:
    records = read_records(path)
    _, names = table_header(path, records)
    text, label, item = _find_columns(path, names, options)
    rows = []
    for line, cells in records:
        check_width(path, line, cells, names)
        named, called = (_ABSENT if at is None else cells[at] for at in (label, item))
        rows.append((f"line {line}", cells[text], named, called))
    return rows, names, names[text]


def _from_parquet(path: Path, options: Options) -> _Table:
    table, _ = open_parquet(path)
    names: list[str] = table.column_names
    text, *others = _find_columns(path, names, options)
    rest = ([_ABSENT] * table.num_rows if at is None else table.column(at).to_pylist() for at in others)
    places = [f"row {row}" for row in range(table.num_rows)]
    return list(zip(places, table.column(text).to_pylist(), *rest, strict=True)), names, names[text]


def _from_jsonl(path: Path, options: Options) -> _Table:
    records = list(read_json_lines(path))
    names = list(dict.fromkeys(name for _, record in records for name in record))
    if not records:
        return [], (), ""
    text, *others = (None if at is None else names[at] for at in _find_columns(path, names, options))
    assert text is not None
    rows = []
    for number, record in records:
        label, item = (_ABSENT if name is None else record.get(name) for name in others)
        rows.append((f"line {number}", record.get(text), label, item))
    return rows, names, text
