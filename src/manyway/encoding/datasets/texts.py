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
        A table with a text and optionally a label and a name per row, a .txt file with one text per
        line, or a folder of CLASS.txt files.
    options : Options, optional
        Which columns of a table hold the text, the label and the name of an item. By default they
        are found by their usual names, or by what is in them.
    need_labels : bool, default=True
        Whether labels are read. Otherwise a column of labels is carried like any other, and
        rows without a text are left out.
    skip_empty : bool, default=False
        Whether rows without a text are left out also where labels are read.

    Returns
    -------
    TextSource
    """
    if path.is_dir():
        return _open_folder(path)
    if not may_hold_texts(path):
        endings = ", ".join((*files.endings_of_tables(), ".txt"))
        raise InputError(f"{path} is no text file known here; give one of {endings}.")
    if files.suffix_of(path) == ".txt":
        source = files.read_text(path)
        if not is_tabbed(source):
            return _open_lines(path, source)
    table = files.open_table(path, options)
    columns = _find_columns(path, table, options, need_labels=need_labels)
    return _open_table(path, table, columns, options, skip_empty=skip_empty or not need_labels)


def _open_folder(path: Path) -> TextSource:
    """Files CLASS.txt with one text per line."""
    found = sorted(file for file in path.iterdir() if file.suffix.lower() == ".txt")
    if not found:
        raise InputError(f"{path} holds no CLASS.txt files with one text per line.")
    places = []
    texts = []
    labels = []
    for file in found:
        for number, text in _lines(file):
            places.append(f"{file.stem}:line {number}")
            texts.append(text)
            labels.append(file.stem)
    return _source(path, places, texts, labels)


def _open_lines(path: Path, source: files.TextFile) -> TextSource:
    """A file with one text per line, without labels."""
    lines = _lines(source)
    places = [f"line {number}" for number, _ in lines]
    texts = [text for _, text in lines]
    notes = list(source.notes)
    if files.tabs_in(source):
        notes.append(
            f"every line of {path.name} is one text; "
            "if tabs are between columns, name the file .tsv"
        )
    return _source(path, places, texts, notes=tuple(notes))


@dataclass(frozen=True)
class _TextColumns:
    """Where the columns of a table are, from 0, and what they are called."""

    names: Sequence[str]
    text: int | None  # None in a table without rows
    label: int | None
    item: int | None
    guessed: bool  # the column of texts, by what is in it
    other_texts: Sequence[str]  # which could have been meant
    other_items: Sequence[str]

    @property
    def text_name(self) -> str:
        return "" if self.text is None else self.names[self.text]

    @property
    def carried(self) -> list[int]:
        """Columns that go with the items, in the file that is written.

        Without names, a text is the name of its item.
        """
        taken = {self.label, self.item}
        if self.item is None:
            taken.add(self.text)
        return [at for at in range(len(self.names)) if at not in taken]

    def roles(self, options: files.Options) -> files.Roles:
        """What to tell of the columns: which were chosen, where nobody said it."""
        used = {self.label, self.text, self.item}
        label = item = text = None
        if self.label is not None and options.label_column is None:
            label = self.names[self.label]
        if self.item is not None and options.item_column is None:
            item = self.names[self.item]
        if self.text is not None and self.guessed and options.like is None:
            text = self.text_name
        return files.Roles(
            label=label,
            item=item,
            text=text,
            unused=[name for at, name in enumerate(self.names) if at not in used and name.strip()],
            other_items=self.other_items,
            other_texts=self.other_texts,
        )


def _find_columns(
    path: Path, table: files.Table, options: files.Options, *, need_labels: bool
) -> _TextColumns:
    """Find the columns of texts, labels and names of items."""
    names = table.names
    label = files.find_label(path, table, options) if need_labels else None
    text, other_texts = files.find_text(table, options, {label})
    if text is None and not table.is_empty:
        usual = ", ".join(files.TEXT_NAMES)
        raise InputError(
            f"{path} has the columns {files.listed(names)}, of which none holds texts "
            f"(or is named {usual}); name that of texts with `text_column`."
        )
    guessed = (
        options.text_column is None and text is not None and names[text] not in files.TEXT_NAMES
    )
    if guessed and text is not None:
        _refuse_missing_names(path, names, text)
    item, other_items = files.find_item(table, options, {label, text})
    return _TextColumns(
        names=names,
        text=text,
        label=label,
        item=item,
        guessed=guessed,
        other_texts=other_texts,
        other_items=other_items,
    )


def _refuse_missing_names(path: Path, names: Sequence[str], text: int) -> None:
    """Refuse a first line that is an item: several words, and numbers in the other columns."""
    others = [name for at, name in enumerate(names) if at != text]
    if len(names[text].split()) > _NAME_WORDS and all(map(files.is_number, others)):
        hint = (
            f"write names of columns above it, or say that '{names[text]}' is one with "
            "`text_column`"
        )
        raise InputError(f"The first line of {path} looks like an item, not like names; {hint}.")


def _open_table(
    path: Path,
    table: files.Table,
    columns: _TextColumns,
    options: files.Options,
    *,
    skip_empty: bool,
) -> TextSource:
    """The rows of a table; those without a text come last, where they are left out."""
    wanted = [columns.text, columns.label, columns.item, *columns.carried]
    texts, labels, items, *carried = table.values(wanted)
    called_items = files.item_names(path, items)
    n_rows = len(texts or ())
    places = [table.place(row) for row in range(n_rows)]
    empty: list[int] = []
    if skip_empty:
        empty = [row for row, cell in enumerate(texts or ()) if not str(cell or "").strip()]
    without_text = set(empty)
    filled = [row for row in range(n_rows) if row not in without_text]

    def take(cells: Sequence[Any] | None) -> Any:
        return cells and tuple(cells[row] for row in filled)

    order = [*filled, *empty]
    return _source(
        path,
        take(places),
        take(texts) or (),
        take(labels),
        text_column=columns.text_name,
        items=take(called_items),
        header=columns.names,
        carried={
            columns.names[at]: tuple(cells[row] for row in order)
            for at, cells in zip(columns.carried, carried, strict=True)
        },
        notes=(
            *table.notes,
            # Of a partly labelled table, the rows with a label have said it for all.
            *(() if options.labelled is False else columns.roles(options).line(path.name)),
            *files.remarks_on_items(path, called_items),
        ),
        left_out=tuple(((called_items or places)[row], "it has no text") for row in empty),
        origin=files.TableOrigin.of(table, path, n_rows, options.sheet).take(order),
    )


def _source(
    path: Path,
    places: Sequence[str],
    texts: Sequence[Any],
    given: Sequence[Any] | None = None,
    *,
    text_column: str = "",
    **more: Any,
) -> TextSource:
    if not texts:
        raise InputError(f"{path} holds no texts.")
    for place, text in zip(places, texts, strict=True):
        if not isinstance(text, str) or not text.strip():
            raise InputError(
                f"{place.capitalize()} of {path} needs a text in the column '{text_column}'."
            )
    labels = [UNLABELLED] * len(texts)
    if given is not None:
        labels = list(map(str, files.clean_labels(path, given, lambda row: places[row])))
    numbers = tuple(place.split()[-1] for place in places)
    return TextSource(
        numbers,
        *numbered(labels, str(path)),
        str(path),
        tuple(texts),
        text_column=text_column,
        **more,
    )


def is_tabbed(source: files.TextFile) -> bool:
    """Whether a .txt file is a table, as Excel saves "Unicode text": UTF-16, with tabs."""
    return any("UTF-16" in note for note in source.notes) and files.tabs_in(source) > 0


def _lines(path: Path | files.TextFile) -> list[tuple[int, str]]:
    return [(number, line.strip()) for number, line in files.read_lines(path) if line.strip()]
