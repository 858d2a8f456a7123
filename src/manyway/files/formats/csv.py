"""Tables as text, with commas or other signs between the cells."""

import codecs
import csv
import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from manyway.files.formats.base import Asked, Rows, TableFormat
from manyway.files.tables import Table
from manyway.files.text import is_formula
from manyway.files.text_table import TextTable


class Csv(TableFormat):
    """Text with a sign between the cells, which is found; written with commas."""

    key = "csv"
    name = "csv"
    endings: ClassVar[tuple[str, ...]] = (".csv",)
    holds = "a line"
    kept = "all cells, as text"
    example = "table.csv"
    is_exact = False
    delimiter: ClassVar[str] = ","

    def read(self, path: Path, asked: Asked) -> Table:
        return TextTable(path, asked.is_header)

    def write(self, path: Path, header: Sequence[str], rows: Rows, mark: bool | None = False) -> int:
        return write_text(path, itertools.chain([header], rows), TextStyle(self.delimiter, mark=mark))


class TextStyle(NamedTuple):
    """How a text table is written."""

    delimiter: str = ","
    newline: str = "\r\n"
    decimal: str = "."  # the sign in probabilities
    mark: bool | None = False  # whether a byte-order mark is in front; None: where the text is not ASCII


def write_text(path: Path, rows: Rows, style: TextStyle) -> int:
    """Write a csv or tsv file; return how many cells would have been formulas."""
    defused = 0
    ascii_only = True
    # Names of files that are not UTF-8 are written with escapes, so that the table itself is.
    with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        writer = csv.writer(file, delimiter=style.delimiter, lineterminator=style.newline)
        for row in rows:
            cells = [_text_cell(cell, style.decimal) for cell in row]
            ascii_only = ascii_only and all(_is_ascii(cell) for cell in cells if isinstance(cell, str))
            risky = [at for at, cell in enumerate(row) if isinstance(cell, str) and is_formula(cell)]
            for at in risky:
                cells[at] = f"'{cells[at]}"
            defused += len(risky)
            writer.writerow(cells)
    if style.mark or (style.mark is None and not ascii_only):
        _put_mark(path)
    return defused


def _is_ascii(cell: str) -> bool:
    return cell.isascii() or cell.encode("utf-8", "backslashreplace").isascii()


def _text_cell(cell: Any, decimal: str) -> Any:
    if not isinstance(cell, float):
        return cell
    return f"{cell:.4f}".replace(".", decimal)


def _put_mark(path: Path) -> None:
    """Put the byte-order mark in front of a text."""
    unmarked = path.with_name(f"{path.name}.unmarked")
    path.rename(unmarked)
    try:
        with unmarked.open("rb") as source, path.open("wb") as file:
            file.write(codecs.BOM_UTF8)
            shutil.copyfileobj(source, file)
    finally:
        unmarked.unlink()
