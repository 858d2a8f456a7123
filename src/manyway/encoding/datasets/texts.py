"""Texts with labels, from csv, tsv, parquet, jsonl and txt files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyway.data.columns import refuse_duplicates
from manyway.data.files import check_input
from manyway.data.items import clean_labels
from manyway.data.tables import open_parquet
from manyway.data.text import check_width, read_json_lines, read_lines, read_records, table_header
from manyway.encoding.datasets.sources import UNLABELLED, refuse_same_names
from manyway.errors import InputError

TEXT_SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl", ".txt")
_TEXT_KEYS = ("text", "sentence", "utterance", "query")
_LABEL_KEYS = ("label", "intent", "class", "category")
_ABSENT = object()  # the label where the file has no place for one
_Row = tuple[str, Any, Any]  # place ("line 3"), text, label


@dataclass(frozen=True, eq=False)
class TextSource:
    """Texts in memory; without labels they are all of one class, ``unlabelled``."""

    names: tuple[str, ...]  # [n] where the texts are in their file: numbers of lines, or of rows
    texts: tuple[str, ...]  # [n]
    labels: Tensor  # [n] int64
    class_names: tuple[str, ...]
    title: str

    def __len__(self) -> int:
        return len(self.texts)


def open_texts(path: str | Path) -> TextSource:
    """Read texts and, where there are any, their labels.

    Parameters
    ----------
    path : path-like
        A .csv, .tsv, .parquet or .jsonl file with a text and optionally a label per row, a .txt file with one text per
        line, or a folder of CLASS.txt files.

    Returns
    -------
    TextSource
    """
    path = Path(path)
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() == ".txt")
        if not files:
            raise InputError(f"{path} holds no CLASS.txt files with one text per line.")
        rows = [(f"{file.stem}:{number}", text, file.stem) for file in files for number, text, _ in _from_lines(file)]
        return _source(path, rows)
    reader = {
        ".csv": _from_csv, ".tsv": _from_csv, ".parquet": _from_parquet, ".jsonl": _from_jsonl, ".txt": _from_lines
    }.get(path.suffix.lower())  # fmt: skip
    check_input(path)
    if reader is None:
        raise InputError(f"{path} is no text file known here; give one of {', '.join(TEXT_SUFFIXES)}.")
    return _source(path, list(reader(path)))


def _source(path: Path, rows: Sequence[_Row]) -> TextSource:
    if not rows:
        raise InputError(f"{path} holds no texts.")
    places = [place for place, _, _ in rows]
    for place, text, _ in rows:
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{place.capitalize()} of {path} needs a text under one of {', '.join(_TEXT_KEYS)}.")
    given = [label for _, _, label in rows]
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
        tuple(text for _, text, _ in rows),
        torch.tensor([number[label] for label in labels], dtype=torch.int64),
        class_names,
        str(path),
    )


def _find_columns(path: Path, names: Sequence[str]) -> tuple[int, int | None]:
    """The positions of text and label."""
    known = [name.strip().lower() for name in names]
    refuse_duplicates(path, known)
    text = next((key for key in _TEXT_KEYS if key in known), None)
    label = next((key for key in _LABEL_KEYS if key in known), None)
    if text is None:
        raise InputError(
            f"{path} has the columns {', '.join(known) or '(none)'}; it needs one of {', '.join(_TEXT_KEYS)}, "
            f"and for labelled examples one of {', '.join(_LABEL_KEYS)}."
        )
    return known.index(text), None if label is None else known.index(label)


def _from_lines(path: Path) -> Iterator[_Row]:
    for number, line in read_lines(check_input(path)):
        if line.strip():
            yield f"line {number}", line.strip(), _ABSENT


def _from_csv(path: Path) -> Iterator[_Row]:
    records = read_records(path)
    _, names = table_header(path, records)
    text, label = _find_columns(path, names)
    for line, cells in records:
        check_width(path, line, cells, names)
        yield f"line {line}", cells[text], _ABSENT if label is None else cells[label]


def _from_parquet(path: Path) -> Iterator[_Row]:
    table, _ = open_parquet(path)
    text, label = _find_columns(path, table.column_names)
    labels = [_ABSENT] * table.num_rows if label is None else table.column(label).to_pylist()
    for row, (words, name) in enumerate(zip(table.column(text).to_pylist(), labels, strict=True)):
        yield f"row {row}", words, name


def _from_jsonl(path: Path) -> Iterator[_Row]:
    for number, record in read_json_lines(path):
        known = {name.strip().lower(): value for name, value in record.items()}
        text = next((known[key] for key in _TEXT_KEYS if key in known), None)
        yield f"line {number}", text, next((known[key] for key in _LABEL_KEYS if key in known), _ABSENT)
