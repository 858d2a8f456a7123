"""Texts with labels, from csv, tsv, parquet, jsonl and txt files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyway import files
from manyway.encoding.datasets.sources import UNLABELLED, Source, numbered
from manyway.errors import InputError

_NAME_WORDS = 2  # a first line with more is hardly the name of a column


@dataclass(frozen=True, eq=False)
class TextSource(Source):
    """Texts in memory."""

    texts: tuple[str, ...]  # [n]
    items: tuple[str, ...] | None = None  # [n] names of the texts, where there is a column of names
    text_column: str = ""


def may_hold_texts(path: Path) -> bool:
    """Whether the ending of a file is that of a table, or of plain text."""
    return files.is_table(path) or files.suffix_of(path) == ".txt"


def open_texts(
    path: Path,
    options: files.Options = files.AUTO,
    *,
    need_labels: bool = True,
    skip_empty: bool = False,
) -> TextSource:
    """Read texts and, where there are any, their labels.

    Parameters
    ----------
    path : path-like
        A table with a text and optionally a label and a name per row, a .txt file with one text per line, or a folder
        of CLASS.txt files.
    options : Options, optional
        Which columns of a table hold the text, the label and the name of an item. By default they are found by their
        usual names, or by what is in them.
    need_labels : bool, default=True
        Whether labels are read. Otherwise a column of labels is carried like any other, and rows without a text are
        left out.
    skip_empty : bool, default=False
        Whether rows without a text are left out also where labels are read.

    Returns
    -------
    TextSource
    """
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if file.suffix.lower() == ".txt")
        if not found:
            raise InputError(f"{path} holds no CLASS.txt files with one text per line.")
        rows = [
            (f"{file.stem}:line {number}", text, file.stem)
            for file in found
            for number, text in _lines(file)
        ]
        places, texts, labels = ([row[at] for row in rows] for at in range(3))
        return _source(path, places, texts, labels)
    suffix = files.suffix_of(path)
    if not may_hold_texts(path):
        endings = ", ".join((*files.endings_of_tables(), ".txt"))
        raise InputError(f"{path} is no text file known here; give one of {endings}.")
    if suffix == ".txt" and not is_tabbed(source := files.read_text(path)):
        lines = _lines(source)
        places, texts = ([f"line {number}" for number, _ in lines], [text for _, text in lines])
        note = f"every line of {path.name} is one text; if tabs are between columns, name the file .tsv"
        return _source(
            path, places, texts, notes=(*source.notes, *([note] if files.tabs_in(source) else []))
        )
    table = files.open_table(path, options)
    names = table.names
    label = files.find_label(path, table, options) if need_labels else None
    text, other_texts = files.find_text(table, options, {label})
    if text is None and not table.is_empty:
        none = f"{files.listed(names)}, of which none holds texts (or is named {', '.join(files.TEXT_NAMES)})"
        raise InputError(f"{path} has the columns {none}; name that of texts with `text_column`.")
    others = [name for at, name in enumerate(names) if at != text]
    guessed = (
        options.text_column is None and text is not None and names[text] not in files.TEXT_NAMES
    )
    if (
        guessed
        and len(names[text or 0].split()) > _NAME_WORDS
        and all(map(files.is_number, others))
    ):
        hint = f"write names of columns above it, or say that '{names[text or 0]}' is one with `text_column`"
        raise InputError(f"The first line of {path} looks like an item, not like names; {hint}.")
    item, other_items = files.find_item(table, options, {label, text})
    kept = [
        at
        for at in range(len(names))
        if at not in (label, item) and (at != text or item is not None)
    ]
    texts, labels, items, *carried = table.values([text, label, item, *kept])
    called_items = files.item_names(path, items)
    places = [table.place(row) for row in range(len(texts or ()))]
    may_lack = skip_empty or not need_labels
    empty = {
        row for row, cell in enumerate(texts or ()) if may_lack and not str(cell or "").strip()
    }

    def filled(cells: Sequence[Any] | None) -> Any:
        return cells and tuple(cell for row, cell in enumerate(cells) if row not in empty)

    used = {label, text, item}
    roles = files.Roles(
        label=None if label is None or options.label_column is not None else names[label],
        item=None if item is None or options.item_column is not None else names[item],
        text=names[text] if guessed and options.like is None and text is not None else None,
        unused=[name for at, name in enumerate(names) if at not in used and name.strip()],
        other_items=other_items,
        other_texts=other_texts,
    )
    filled_first = (*filled(range(len(places))), *sorted(empty))
    return _source(
        path,
        filled(places),
        filled(texts) or (),
        filled(labels),
        text_column="" if text is None else names[text],
        items=filled(called_items),
        header=names,
        carried={
            names[at]: (*filled(cells), *(cells[row] for row in sorted(empty)))
            for at, cells in zip(kept, carried, strict=True)
        },
        notes=(*table.notes, *roles.line(path.name), *files.remarks_on_items(path, called_items)),
        left_out=tuple(((called_items or places)[row], "it has no text") for row in sorted(empty)),
        origin=files.TableOrigin.of(table, path, len(places), options.sheet).take(filled_first),
    )


def _source(
    path: Path,
    places: Sequence[str],
    texts: Sequence[Any],
    given: Sequence[Any] | None = None,
    **more: Any,
) -> TextSource:
    if not texts:
        raise InputError(f"{path} holds no texts.")
    for place, text in zip(places, texts, strict=True):
        if not isinstance(text, str) or not text.strip():
            raise InputError(
                f"{place.capitalize()} of {path} needs a text in the column '{more['text_column']}'."
            )
    labels = [UNLABELLED] * len(texts)
    if given is not None:
        labels = list(map(str, files.clean_labels(path, given, lambda row: places[row])))
    numbers = tuple(place.split()[-1] for place in places)
    return TextSource(numbers, *numbered(labels, str(path)), str(path), tuple(texts), **more)


def is_tabbed(source: files.TextFile) -> bool:
    """Whether a .txt file is a table, as Excel saves "Unicode text": UTF-16, with tabs."""
    return any("UTF-16" in note for note in source.notes) and files.tabs_in(source) > 0


def _lines(path: Path | files.TextFile) -> list[tuple[int, str]]:
    return [(number, line.strip()) for number, line in files.read_lines(path) if line.strip()]
