"""Tables as text, with commas or other signs between the cells."""

import csv
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

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

    def write(self, path: Path, header: Sequence[str], rows: Rows) -> int:
        defused = 0
        # Names of files that are not UTF-8 are written with escapes, so that the table itself is.
        with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
            writer = csv.writer(file, delimiter=self.delimiter)
            for row in itertools.chain([header], rows):
                risky = [isinstance(cell, str) and is_formula(cell) for cell in row]
                cells = [f"'{cell}" if odd else cell for cell, odd in zip(row, risky, strict=True)]
                writer.writerow([f"{cell:.4f}" if isinstance(cell, float) else cell for cell in cells])
                defused += sum(risky)
        return defused
