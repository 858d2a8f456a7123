"""Tables in text files: csv, tsv and their kin."""

import itertools
import math
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from manyway.errors import InputError
from manyway.files import text
from manyway.files.tables import SAMPLE, IsHeader, Table, stack

_BLOCK_BYTES = 1 << 23
_LIST = re.compile(r"\s*\[\s*{0}([,\s]+{0})*\s*\]\s*".format(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"))


class TextTable(Table):
    """A csv or tsv file. Columns are read when they are asked for: by Arrow, at full speed, if nothing is unusual."""

    def __init__(self, path: Path, is_header: IsHeader | None) -> None:
        self._text = text.read_text(path)
        self._dialect = text.sniff(self._text)
        records = text.read_records(self._text, self._dialect)
        first, names = text.table_header(path, records)
        self._start = [cells for _, cells in itertools.islice(records, SAMPLE)]
        said, note = True if is_header is None else is_header(names), ""
        if said is None:
            said, note = _guess_header(path, names, self._start, ".," if self._dialect.delimiter != "," else ".")
        columns = names if said else [str(n + 1) for n in range(len(names))]
        notes = [*self._text.notes, *([note] if note else [])]
        super().__init__(path, columns, word="line", notes=notes, named=said, delimiter=self._dialect.delimiter)
        self._path, self._skip = path, first if said else first - 1
        self._beside: dict[int, Any] = {}  # columns that were read beside those of numbers
        if not said:
            self._start.insert(0, names)

    @cached_property
    def _records(self) -> list[list[str]]:
        """All columns, read line by line: slow, and able to say what is wrong where."""
        records = list(text.read_records(self._text, self._dialect))[1 if self.named else 0 :]
        for line, cells in records:
            text.check_width(self._path, line, cells, self.names)
        self.numbers = [line for line, _ in records]
        return [[cells[at] for _, cells in records] for at in range(len(self.names))]

    @property
    def is_empty(self) -> bool:
        return not self._start

    def place(self, row: int) -> str:
        _ = self._records
        return super().place(row)

    @cached_property
    def _samples(self) -> list[list[str]]:
        """The first cells of each column: a table may have thousands, which are looked at again and again."""
        return [[cells[at] for cells in self._start if at < len(cells)] for at in range(len(self.names))]

    def sample(self, at: int) -> list[Any]:
        return self._samples[at]

    def holds_lists(self, at: int) -> bool:
        """Whether most of the first cells are texts of lists: "[0.5, 1.5]", or "[0.5 1.5]"."""
        return 2 * sum(_LIST.fullmatch(cell) is not None for cell in self.sample(at)) > len(self.sample(at))

    def _lists(self, at: int) -> np.ndarray[Any, Any]:
        self.columns = [*self._records]
        self.columns[at] = [*map(_list_in, self._records[at])]
        return super()._lists(at)

    def _read(self, wanted: list[int]) -> list[list[Any]]:
        seen = {at: self._beside[at] for at in wanted if at in self._beside}
        table = self._by_arrow(wanted, "string") if wanted and len(seen) < len(wanted) else None
        found = list(seen.values()) if table is None else table.columns
        if len(found) == len(wanted) and self._agree(wanted, found):
            columns = [column.to_pylist() for column in found]
            # A line break, or a quotation mark in front, may be seen differently by the two readers.
            if not any("\n" in cell or cell.lstrip()[:1] == '"' for column in columns for cell in column):
                return [_as_written(column) for column in columns]
        return [_as_written(self._records[at]) for at in wanted]

    def _stacked(self, wanted: Sequence[int]) -> np.ndarray[Any, Any]:
        self._sign(wanted)
        theirs = () if self.shows_sign else (cell for at in wanted for cell in self._theirs(at))
        usual = all(text.is_number(cell, self.decimal) for cell in theirs)
        table = self._by_arrow(wanted, "float64", self.decimal) if usual else None
        if table is not None:
            return stack(table)
        self.columns = self._records
        return super()._stacked(wanted)

    def _by_arrow(self, wanted: Sequence[int], kind: str, decimal: str = ".") -> Any:
        """Some columns as an Arrow table; None where anything is unusual, for the careful reader to look at.

        The others are kept as texts where numbers are read, so that a large file is read once.
        """
        if len(self.names) == 1 or not self._start or self._ends_empty:
            return None
        import pyarrow.csv

        columns = list(map(str, range(len(self.names))))
        numbers, texts = (wanted, range(len(self.names))) if kind == "float64" else ([], wanted)
        types = {columns[at]: pyarrow.string() for at in texts} | {columns[at]: pyarrow.float64() for at in numbers}
        reading = pyarrow.csv.ReadOptions(column_names=columns, skip_rows=self._skip, block_size=_BLOCK_BYTES)
        parsing = pyarrow.csv.ParseOptions(delimiter=self._dialect.delimiter, newlines_in_values=self._has_quotes)
        asked = {"column_types": types, "include_columns": list(types), "null_values": [], "decimal_point": decimal}
        converting = pyarrow.csv.ConvertOptions(**asked)
        try:
            source = self._path if self._text.data is None else pyarrow.BufferReader(self._text.data)
            table = pyarrow.csv.read_csv(source, reading, parsing, converting)
        except (pyarrow.ArrowException, OSError):
            return None
        self._beside = {int(name): table[name] for name, read in types.items() if numbers and read == pyarrow.string()}
        table = table.select([columns[at] for at in wanted])
        return table if self._agree(wanted, table.columns, decimal) else None

    def _agree(self, wanted: Sequence[int], columns: Sequence[Any], decimal: str = ".") -> bool:
        """Whether both readers agree on the first row: no line was taken for a header that is none, or the reverse."""
        first: list[Any] = [self._start[0][at] for at in wanted if at < len(self._start[0])]
        if columns and str(columns[0].type) == "double":
            first = [text.number_in(cell, decimal) for cell in first]
        return all(map(len, columns)) and [column[0].as_py() for column in columns] == first

    @cached_property
    def _ends_empty(self) -> bool:
        """Whether the last line has delimiters alone."""
        with self._text.binary() as file:
            file.seek(max(0, file.seek(0, 2) - _BLOCK_BYTES))
            end = file.read().rstrip(b"\r\n").replace(b"\r", b"\n")
        return not end.rpartition(b"\n")[2].strip(b'" ' + self._dialect.delimiter.encode())

    @cached_property
    def _has_quotes(self) -> bool:
        with self._text.binary() as file:
            return any(b'"' in piece for piece in iter(lambda: file.read(_BLOCK_BYTES), b""))


def _list_in(cell: str) -> Any:
    """The numbers of a text of a list; another text as it is."""
    return [*map(float, cell.strip().strip("[]").replace(",", " ").split())] if _LIST.fullmatch(cell) else cell


def _as_written(cells: list[str]) -> list[str]:
    """Cells without the apostrophe that the writer of tables puts in front of what looks like a formula."""
    return [cell[1:] if cell[:1] == "'" and text.is_formula(cell[1:]) else cell for cell in cells]


def _guess_header(
    path: Path, first: Sequence[str], rows: Sequence[Sequence[str]], signs: Sequence[str]
) -> tuple[bool, str]:
    """Whether the first line names columns, and what to say about it; an error where it cannot be told."""
    shown, note = ", ".join(first[:4]), ""
    for sign in signs:
        numbers = text.numbers_in(first, sign)
        # pandas numbers columns without names, and spectra have wavelengths
        names = numbers in ([*range(len(numbers))], [*range(1, len(numbers) + 1)]) or _is_scale(numbers)
        if not names and len(numbers) == len(first):
            return False, f"the first line of {path.name} holds numbers, so columns have no names and keep their order"
        whole = all(map(float.is_integer, numbers))
        if not names and 2 * len(numbers) >= len(first) and not whole:
            raise InputError(f"The first line of {path} looks like data ({shown}, …); add one that names the columns.")
        if len(numbers) == len(first):
            if not whole and all(_is_scale(text.numbers_in(row, sign)) for row in rows):
                both = "could be names of columns or an item, as all lines have rising numbers"
                raise InputError(f"The first line of {path} ({shown}, …) {both}; add one that names the columns.")
            note = note or f"the first line of {path.name} ({shown}, …) is taken as the names of the columns"
    return True, note


def _is_scale(numbers: Sequence[float]) -> bool:
    """Whether numbers rise or fall throughout, as the names of the columns of a spectrum do."""
    steps = {math.copysign(1, b - a) if b != a else 0 for a, b in itertools.pairwise(numbers)}
    return len(numbers) >= 5 and steps in ({1}, {-1}) and all(map(math.isfinite, numbers))
