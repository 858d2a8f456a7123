"""Excel files."""

import itertools
import re
import zipfile
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, ClassVar

from manyway.errors import InputError, nearest, optional
from manyway.files import text
from manyway.files.files import check_input, most_unpacked
from manyway.files.formats.base import Asked, Rows, TableFormat
from manyway.files.tables import LABEL_NAMES, SAMPLE, TEXT_NAMES, Table, as_text
from manyway.files.text import listed

_NOT_COMPUTED = re.compile(rb"</f>\s*(<v ?/>|<v></v>)?\s*</c>")  # a formula without its value
_MERGED = re.compile(rb'<(?:\w+:)?mergeCell [^>]*ref="([A-Z]+)(\d+):[A-Z]+(\d+)"')  # one cell over several rows
_OLD = b"\xd0\xcf\x11\xe0"
_MOST_ROWS, _MOST_LETTERS, _EXACT = 2**20, 2**15 - 1, 10**15  # the limits of Excel
_NOT_IN_EXCEL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class Excel(TableFormat):
    """The first sheet that looks like a table, or the one that is named."""

    key = "xlsx"
    name = "Excel"
    endings: ClassVar[tuple[str, ...]] = (".xlsx", ".xlsm")
    only_read: ClassVar[tuple[str, ...]] = (".xlsm",)
    holds = "a row of a sheet"
    kept = "all cells with their types, in a new sheet"
    example = "table.xlsx"
    has_sheets = True

    def read(self, path: Path, asked: Asked) -> Table:
        return _open(check_input(path), asked.sheet, asked.rows)

    def write(self, path: Path, header: Sequence[str], rows: Rows) -> int:
        openpyxl = optional("openpyxl", "excel", "An Excel file")
        book = openpyxl.Workbook(write_only=True)
        sheet = book.create_sheet("labels")
        try:
            for number, row in enumerate(itertools.chain([header], rows)):
                if number >= _MOST_ROWS:
                    raise InputError(
                        f"An Excel file has at most {_MOST_ROWS:,} rows; write these to a .csv or .parquet."
                    )
                sheet.append([_cell(openpyxl, sheet, cell) for cell in row])
        finally:
            sheet.close()
        book.save(path)
        return 0


def _cell(openpyxl: Any, sheet: Any, value: Any) -> Any:
    """A cell of a sheet. Texts are marked as such, so that none is taken for a formula."""
    number = isinstance(value, int | float) and abs(value) < _EXACT  # not NaN either
    if value is None or number or (isinstance(value, date) and getattr(value, "tzinfo", None) is None):
        return value
    cell = openpyxl.cell.WriteOnlyCell(sheet, excel_text(str(as_text(value))))
    cell.data_type = "s"
    return cell


def excel_text(value: str) -> str:
    """A text for a cell of Excel, with codes for what it cannot hold."""
    shown = _NOT_IN_EXCEL.sub(lambda found: f"\\x{ord(found[0]):02x}", value)
    if len(shown) > _MOST_LETTERS:
        raise InputError(f"A cell has {len(shown):,} letters and Excel takes {_MOST_LETTERS:,}; use .csv or .parquet.")
    return shown


def _open(path: Path, sheet: str | None, count: int | None) -> Table:
    openpyxl = optional("openpyxl", "excel", f"{path} is an Excel file, which")
    with path.open("rb") as file:
        if file.read(4) == _OLD:
            raise InputError(f"{path} has a password, or is of an old kind of Excel; save it anew as .xlsx.")
    with text.reading(path, "an Excel file"):
        with zipfile.ZipFile(path) as archive:
            if sum(info.file_size for info in archive.infolist()) > most_unpacked(path.stat().st_size):
                raise ValueError("it unpacks to far more than its size")
            pages = [name for name in archive.namelist() if name.startswith("xl/worksheets/")]
            formulas, merged = False, {}
            for name in pages:
                page = archive.read(name)
                formulas = formulas or _NOT_COMPUTED.search(page) is not None
                merged[name] = _MERGED.findall(page)
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        names = [page.title for page in book.worksheets]
        shown = [page.title for page in book.worksheets if page.sheet_state == "visible"] or names
        first = next((name for name in shown if len(shown) > 1 and _is_table(book[name])), shown[0])
        chosen = first if sheet is None else next((n for i, n in enumerate(names, 1) if sheet in (n, str(i))), None)
        if chosen is None:
            raise InputError(f"{path} has no sheet '{sheet}'; {nearest(str(sheet), names)}")
        book[chosen].reset_dimensions()  # what the file says about its size may be wrong
        every = [(number, [*map(_as_shown, row)]) for number, row in enumerate(book[chosen].iter_rows(), 1)]
        rows = [(number, cells) for number, cells in every if any(map(text.is_filled, cells))]
        is_merged = _fill_merged(rows, merged.get(book[chosen]._worksheet_path.lstrip("/"), ()))
        book.close()
    width = max((len(cells) for _, cells in rows), default=0)
    # A single cell above a table is its title.
    while len(rows) > 1 and width > 1 and sum(cell is not None for cell in rows[0][1]) == 1:
        del rows[0]
    if not rows:
        raise InputError(f"{path} is empty; the first row names the columns, the others are items.")
    (_, header), *rows = [(number, [*cells, *[None] * (width - len(cells))]) for number, cells in rows[:count]]
    used = [at for at in range(width) if header[at] is not None or any(cells[at] is not None for _, cells in rows)]
    titles = ["" if header[at] is None else str(header[at]).strip() for at in used]
    columns = [[cells[at] for _, cells in rows] for at in used]
    others = [name for name in names if name != chosen and sheet is None]
    read = f"the sheet '{chosen}' of {path.name} is read, not {listed(others, 3)}; choose another with `sheet`"
    notes = [read] if others else []
    if formulas:
        notes.append(f"{path.name} has formulas that were never computed: their cells are empty; save it in Excel once")
    if is_merged:
        notes.append(f"cells of {path.name} that are merged over several rows count for each of these rows")
    return Table(path, titles, columns, numbers=[number for number, _ in rows], notes=notes, sheet=chosen)


def _fill_merged(rows: Sequence[tuple[int, list[Any]]], merged: Iterable[tuple[bytes, bytes, bytes]]) -> bool:
    """Give each row the cells that are merged over it: a file has them in the first. Return whether there was any."""
    from openpyxl.utils import column_index_from_string

    filled = False
    for letters, first, last in merged:
        at = column_index_from_string(letters.decode()) - 1
        over = [cells for number, cells in rows if int(first) <= number <= int(last)]
        value = over[0][at] if over and at < len(over[0]) else None
        for cells in over[1:] if value is not None else ():
            cells += [None] * (at + 1 - len(cells))
            cells[at] = value
            filled = True
    return filled


def _is_table(page: Any) -> bool:
    """Whether a sheet of Excel looks like a table, not like notes: three columns, numbers, or a name of a column."""
    page.reset_dimensions()
    rows = [[*filter(text.is_filled, row)] for row in page.iter_rows(max_row=SAMPLE, values_only=True)]
    cells = list(itertools.chain(*rows))
    named = any(str(cell).strip().casefold() in ("item", *LABEL_NAMES, *TEXT_NAMES) for cell in cells)
    numbers = sum(isinstance(cell, int | float) for cell in cells)
    is_column = numbers > 0 and sum(map(bool, rows)) > 1 and len(cells) <= 2 * numbers + 2
    return max(map(len, rows), default=0) > 2 or named or is_column


def _as_shown(cell: Any) -> Any:
    """What a cell of Excel holds: a date without its midnight, and 00123 with the zeros that its format gives it."""
    value = cell.value
    if type(value) is int and (width := len(cell.number_format)) > 1 and cell.number_format == "0" * width:
        return f"{value:0{width}d}"
    return value.date() if isinstance(value, datetime) and value.time() == time() else value
