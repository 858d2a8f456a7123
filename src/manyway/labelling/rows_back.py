"""The table of a user with the labels in it: all rows and columns as they were, and the answers after them."""

import contextlib
import itertools
import json
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from manyway.errors import optional
from manyway.files import (
    Output,
    Table,
    TableOrigin,
    as_text,
    atomic_write,
    has_sheets,
    read_table,
    suffix_of,
    written_tables,
)
from manyway.files.answer_columns import new_names
from manyway.files.formats.csv import TextStyle, write_text
from manyway.files.formats.excel import excel_text
from manyway.files.text import read_json_lines, read_records, read_text, sniff
from manyway.labelling.table import Inputs, remarks_on_defused, write_rows

Answers = Mapping[int, Sequence[Any]]  # the row of the table -> the cells that are added to it
_DELIMITERS = (",", ";", "\t", "|")
_TYPED = (".parquet", ".jsonl", ".xlsx")  # formats in which a number is no text
_WHOLE = re.compile(r"0|-?[1-9]\d{0,14}")
_FRACTION = re.compile(r"-?(0|[1-9]\d*)\.\d+([eE][-+]?\d+)?")
_DECIMAL_COMMA = re.compile(r"-?\d+,\d+")
_DECIMAL_POINT = re.compile(r"-?\d+\.\d+")


def default_suffix(items: Path) -> str:
    """The ending of the output where the user names none: that of the table that is given back, else csv.

    >>> default_suffix(Path("tickets.xlsm")), default_suffix(Path("photos.npz"))
    ('.xlsx', '.csv')
    """
    if has_sheets(items):
        return ".xlsx"
    suffix = suffix_of(items)
    return suffix if suffix in written_tables() else ".csv"


def write_back(
    path: Path | Output,
    origin: TableOrigin,
    header: Sequence[str],
    answers: Answers,
    inputs: Inputs = (),
) -> list[str]:
    """Write the table of a user with further columns; return what there is to say about it.

    Every row and column comes back, in its order, as it was written: texts with their zeros in front, dates as dates.
    An Excel file keeps its other sheets and its formats, a text its delimiter and its byte-order mark. Columns of an
    embedding, and formulas of Excel, come back as little as they were read: the former not at all, the latter as their
    values.

    Parameters
    ----------
    path : Path or Output
        The file to write; its ending chooses the format.
    origin : TableOrigin
        The table.
    header : sequence of str
        The names of the new columns. Where the table has one of them, all get ``new_`` in front.
    answers : mapping of int to sequence
        What is added to each row; a row that has nothing gets empty cells.
    inputs : iterable of path-like or None
        Files and folders that must not be written over.

    Returns
    -------
    list of str
    """
    wanted = path.wanted if isinstance(path, Output) else path
    source = suffix_of(origin.path)
    target = wanted.suffix.lower()
    table = read_table(origin.path, lambda first: origin.named, sheet=origin.sheet)
    added = new_names(header, table.names)
    notes = _remarks(origin)
    if target == ".xlsx" and has_sheets(origin.path):
        with atomic_write(path, inputs) as temporary:
            notes += _write_workbook(temporary, table, added, answers)
        return notes
    if target == ".parquet" and source == ".parquet":
        with atomic_write(path, inputs) as temporary:
            _write_arrow(temporary, origin, added, answers)
        return notes
    kept = [at for at, name in enumerate(table.names) if name not in origin.features]
    rows = _rows(table, kept, len(added), answers, typed=target in _TYPED)
    names = [*(table.names[at] for at in kept), *added]
    if target in _TYPED:
        if source == target == ".jsonl":
            with atomic_write(path, inputs) as temporary:
                _write_records(temporary, origin, added, answers)
            return notes
        return [*notes, *write_rows(path, names, rows, inputs)]
    style = _style(origin.path, wanted, table)
    with atomic_write(path, inputs) as temporary:
        defused = write_text(temporary, itertools.chain([names], rows), style)
    return [*notes, *remarks_on_defused(path, defused)]


def _remarks(origin: TableOrigin) -> list[str]:
    if not origin.features:
        return []
    what = f"{len(origin.features)} columns of features" if len(origin.features) > 1 else "the column of features"
    return [f"{what} of {origin.path.name} did not come back; the rows are in the same order"]


def _rows(table: Table, kept: Sequence[int], width: int, answers: Answers, *, typed: bool) -> Iterator[list[Any]]:
    """The cells of each row: those of the table, and those that are added."""
    columns = table.values(kept)
    if typed:
        columns = [_with_numbers(cells) for cells in columns]
    else:
        columns = [[as_text(cell) for cell in cells] for cells in columns]
    nothing = [None] * width
    for row, cells in enumerate(zip(*columns, strict=True)):
        yield [*cells, *answers.get(row, nothing)]


def _with_numbers(cells: Sequence[Any]) -> Sequence[Any]:
    """A column of a text table as numbers, where each cell is one as a program writes it; 007 is none.

    >>> _with_numbers(["1", "", "20"]), _with_numbers(["007", "1"]), _with_numbers(["0.5", "2"])
    ([1, None, 20], ['007', '1'], [0.5, 2.0])
    """
    filled = [cell for cell in cells if cell != ""]
    if not filled or not all(isinstance(cell, str) for cell in filled):
        return cells
    if all(_WHOLE.fullmatch(cell) for cell in filled):
        return [None if cell == "" else int(cell) for cell in cells]
    if all(_WHOLE.fullmatch(cell) or _FRACTION.fullmatch(cell) for cell in filled):
        return [None if cell == "" else float(cell) for cell in cells]
    return cells


def _style(source: Path, target: Path, table: Table) -> TextStyle:
    """How a text is written: as the one that it comes from, where that is of the same kind."""
    usual = "\t" if target.suffix.lower() == ".tsv" else ","
    if suffix_of(source) not in (".csv", ".tsv", ".txt"):
        return TextStyle(usual, mark=None)
    text = read_text(source)
    with text.binary() as file:
        start = file.read(1 << 16)
    delimiter = table.delimiter
    if delimiter not in _DELIMITERS or (target.suffix.lower() != suffix_of(source)):
        delimiter = usual
    decimal = "."
    if delimiter != "," and _has_decimal_comma(source):
        decimal = ","
    newline = "\r\n" if b"\r\n" in start else "\n"
    marked = start.startswith(b"\xef\xbb\xbf")
    return TextStyle(delimiter, newline, decimal, mark=True if marked else None)


def _has_decimal_comma(path: Path) -> bool:
    """Whether numbers of a text table have a comma, by its first rows."""
    text = read_text(path)
    records = itertools.islice(read_records(text, sniff(text)), 1, 100)
    cells = [cell.strip() for _, record in records for cell in record]
    commas = sum(_DECIMAL_COMMA.fullmatch(cell) is not None for cell in cells)
    points = sum(_DECIMAL_POINT.fullmatch(cell) is not None for cell in cells)
    return commas > points


def _write_records(path: Path, origin: TableOrigin, header: Sequence[str], answers: Answers) -> None:
    """The objects of a .jsonl file, each with the fields that it had and the new ones."""
    nothing = [None] * len(header)
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for row, (_, record) in enumerate(read_json_lines(read_text(origin.path))):
            kept = {name: value for name, value in record.items() if name not in origin.features}
            added = dict(zip(header, answers.get(row, nothing), strict=True))
            file.write(json.dumps(kept | added, ensure_ascii=False) + "\n")


def _write_arrow(path: Path, origin: TableOrigin, header: Sequence[str], answers: Answers) -> None:
    """A parquet file with the types that its columns had."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(origin.path)
    table = table.drop_columns([name for name in table.column_names if name in origin.features])
    nothing = [None] * len(header)
    found = [answers.get(row, nothing) for row in range(table.num_rows)]
    for name, cells in zip(header, zip(*found, strict=True), strict=True):
        table = table.append_column(name, pyarrow.array(list(cells)))
    pyarrow.parquet.write_table(table, path)


def _write_workbook(path: Path, table: Table, header: Sequence[str], answers: Answers) -> list[str]:
    """An Excel file with its other sheets and its formats, and what there is to say about it."""
    openpyxl = optional("openpyxl", "excel", "An Excel file")
    source = Path(table.where)
    with warnings.catch_warnings():  # about what it cannot keep, in words for programmers
        warnings.simplefilter("ignore")
        book = openpyxl.load_workbook(source, data_only=True)
    sheet = book[table.sheet]
    numbers = list(table.numbers or ())
    first = 1 + max(cell.column for row in sheet.iter_rows() for cell in row if cell.value is not None)
    above = max(row for row in range(1, numbers[0]) if any(cell.value is not None for cell in sheet[row]))
    for at, name in enumerate(header):
        cell = sheet.cell(above, first + at)
        _fill(cell, name)
        with contextlib.suppress(AttributeError):  # a merged cell has no style of its own
            cell._style = sheet.cell(above, first - 1)._style
    for row, number in enumerate(numbers):
        for at, value in enumerate(answers.get(row, ())):
            _fill(sheet.cell(number, first + at), value)
    book.save(path)
    notes = []
    with zipfile.ZipFile(source) as archive:
        inside = archive.namelist()
        formulas = any(b"<f>" in archive.read(name) for name in inside if name.startswith("xl/worksheets/"))
    if formulas:
        notes.append(f"formulas of {source.name} come back as their values")
    if any(name.startswith("xl/charts/") for name in inside):
        notes.append(f"charts of {source.name} do not come back")
    return notes


def _fill(cell: Any, value: Any) -> None:
    """Put a value into a cell. Texts are marked as such, so that none is taken for a formula."""
    if isinstance(value, str):
        cell.value = excel_text(value)
        cell.data_type = "s"
    else:
        cell.value = value
