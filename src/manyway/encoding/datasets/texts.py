"""Texts with labels, from csv, tsv, parquet, jsonl and txt files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyway.encoding.datasets.sources import UNLABELLED, refuse_same_names
from manyway.errors import InputError
from manyway.files.columns import Options, find_column, missing
from manyway.files.files import check_input
from manyway.files.items import clean_labels
from manyway.files.tables import TABLE_SUFFIXES, read_table, refuse_duplicates
from manyway.files.text import read_lines

TEXT_SUFFIXES = (*TABLE_SUFFIXES, ".txt")
TEXT_KEYS = ("text", "sentence", "utterance", "query")
_LABEL_KEYS = ("label", "intent", "class", "category")


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
        found = [(f"{file.stem}:line {number}", text, file.stem) for file in files for number, text in _lines(file)]
        places, texts, labels = ([row[at] for row in found] for at in range(3))
        return _source(path, places, texts, labels)
    suffix = path.suffix.lower()
    if suffix not in TEXT_SUFFIXES:
        raise InputError(f"{path} is no text file known here; give one of {', '.join(TEXT_SUFFIXES)}.")
    if suffix == ".txt":
        lines = _lines(path)
        return _source(path, [f"line {number}" for number, _ in lines], [text for _, text in lines])
    table = read_table(path)
    if table.is_empty:
        return _source(path)
    wanted = _find_columns(path, table.names, options or Options())
    texts, labels, items = table.values(wanted)
    places = [table.place(row) for row in range(len(texts))]
    return _source(path, places, texts, labels, items, table.names, table.names[wanted[0]])


def _source(
    path: Path,
    places: Sequence[str] = (),
    texts: Sequence[Any] = (),
    given: Sequence[Any] | None = None,
    items: Sequence[Any] | None = None,
    header: Sequence[str] = (),
    text_column: str = "",
) -> TextSource:
    if not texts:
        raise InputError(f"{path} holds no texts.")
    for place, text in zip(places, texts, strict=True):
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{place.capitalize()} of {path} needs a text in the column '{text_column}'.")
    labels = [UNLABELLED] * len(texts)
    if given is not None:
        labels = list(map(str, clean_labels(path, given, lambda row: places[row])))
    class_names = tuple(sorted(set(labels)))
    refuse_same_names(class_names, str(path))
    number = {name: i for i, name in enumerate(class_names)}
    return TextSource(
        tuple(place.split()[-1] for place in places),
        tuple(texts),
        torch.tensor([number[label] for label in labels], dtype=torch.int64),
        class_names,
        str(path),
        None if items is None else tuple(str(row) if missing(name) else str(name) for row, name in enumerate(items)),
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
            f"the column of texts with `text_column`), and for labelled examples one of {', '.join(_LABEL_KEYS)}."
        )
    return text, label, item


def _lines(path: Path) -> list[tuple[int, str]]:
    return [(number, line.strip()) for number, line in read_lines(check_input(path)) if line.strip()]
