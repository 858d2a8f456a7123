"""Tables of any kind (text, jsonl, parquet, Excel, Arrow): columns with names, from which each reader picks its own."""

import itertools
import json
import math
import re
import unicodedata
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from manyway.errors import InputError, nearest, optional
from manyway.files import text
from manyway.files.files import check_input, most_unpacked
from manyway.files.text import listed, shorten, suffix_of

EXCEL_SUFFIXES = (".xlsx", ".xlsm")
TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl", *EXCEL_SUFFIXES)
SAMPLE = 100  # rows that are looked at to guess what a column holds
_MISSING = {"", "nan", "<na>", "nat", "#n/a"}  # cells that stand for no label; "None" and "NA" can be names of classes
_BLOCK_BYTES = 1 << 23
_LARGEST = float(np.finfo(np.float32).max)
_FAR = 1000  # float32 keeps four digits of the differences between numbers that lie this many times as far from 0
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT96": 12}  # bytes of a value of parquet; others have 8
_STACKED = 1024  # rows that are written at once
_LOOKED_AT = 1000  # rows that say how far numbers are from 0
_NOT_COMPUTED = re.compile(rb"</f>\s*(<v ?/>|<v></v>)?\s*</c>")  # a formula of Excel without its value
_THOUSANDS = re.compile(r"\s*[-+]?[1-9]\d{0,2}[.,]\d{3}\s*")
_OLD_EXCEL = b"\xd0\xcf\x11\xe0"
_HINT = (
    "write a number there, leave the column out with `ignore_columns` or all such rows with `skip_bad`, or say that it "
    "is the `label_column` or the `item_column` (texts need an `encoder`)."
)
_TRUTHS = dict.fromkeys(("yes", "y", "true", "t", "ja", "wahr", "oui", "vrai", "si", "sí"), 1.0)
_TRUTHS |= dict.fromkeys(("no", "n", "false", "f", "nein", "falsch", "non", "faux"), 0.0)
LABEL_NAMES = ("label", "labels", "class", "class_name", "category", "target", "intent")
TEXT_NAMES = ("text", "sentence", "utterance", "query")
_LIST = re.compile(r"\s*\[\s*{0}([,\s]+{0})*\s*\]\s*".format(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"))
Rows = Iterator[tuple[str, Sequence[Any]]]  # place ("line 3") and cells
IsHeader = Callable[[Sequence[str]], bool | None]


@dataclass(eq=False)
class Table:
    """Columns with names.

    Parameters
    ----------
    where : Path or str
        What messages call the table.
    names : sequence of str
        The names of the columns.
    columns : sequence of (list or pyarrow.ChunkedArray)
        Their cells.
    word : str, default="row"
        What the program that shows the table calls a row.
    numbers : sequence of int, optional
        How that program numbers the rows. None: from 0.
    index : sequence of str
        The columns that the file itself declares to be an index (parquet written by pandas).
    hint : str
        What to do about a column that holds no numbers.
    notes : list of str
        What was guessed, for the user to see.
    named : bool, default=True
        Whether the columns have names, or only an order.
    decimal : str, default="."
        The sign in numbers that are written as texts.
    gaps : bool, default=False
        Whether features may be missing; they are NaN then.
    delimiter : str, default=""
        What separates cells of a text: numbers have hardly a decimal comma beside commas, and often beside semicolons.
    beside : Table, optional
        A table with the same columns. Where this one does not say how its numbers are written, the other may.

    Examples
    --------
    >>> table = Table("a.jsonl", ["width", "label"], [[1.5, 2], ["ant", "bee"]], "line", [1, 2])
    >>> table.features([0]).tolist(), table.values([1]), table.place(1)
    ([[1.5], [2.0]], [['ant', 'bee']], 'line 2')
    """

    where: Path | str
    names: Sequence[str]
    columns: Sequence[Any] = ()
    word: str = "row"
    numbers: Sequence[int] | None = None
    index: Sequence[str] = ()
    hint: str = _HINT
    notes: list[str] = field(default_factory=list)
    named: bool = True
    decimal: str = "."
    gaps: bool = False
    delimiter: str = ""
    beside: "Table | None" = None
    kept: tuple[Sequence[int], Any] = ((), None)  # features that were read before, of these columns
    sheet: str = ""  # the sheet of an Excel file that this is
    label: int | None = None  # the column of labels, where it was found before

    @property
    def is_empty(self) -> bool:
        """Whether there is no row."""
        return not self.columns or not len(self.columns[0])

    def place(self, row: int) -> str:
        """Where a row is, for a person who looks for it: ``line 3``, or ``row 2``."""
        return f"{self.word} {row if self.numbers is None else self.numbers[row]}"

    def positions(self, count: int) -> Sequence[int]:
        """Where the ``count`` rows of this table are in the file, from 0."""
        return range(count)

    def sample(self, at: int) -> list[Any]:
        """The first cells of a column."""
        return self._list(at, self.columns[at][:SAMPLE])

    def values(self, wanted: Sequence[int | None]) -> list[Any]:
        """The cells of some columns, as they are: a list for each, None where no column is named."""
        given = [at for at in wanted if at is not None]
        found = dict(zip(given, self._read(given), strict=True))
        return [None if at is None else found[at] for at in wanted]

    def _read(self, wanted: list[int]) -> list[list[Any]]:
        return [self._list(at, self.columns[at]) for at in wanted]

    def _list(self, at: int, cells: Any) -> list[Any]:
        try:
            return cells if isinstance(cells, list) else list(cells.to_pylist())
        except Exception as error:  # strings that are no UTF-8, times out of range
            name = f"'{self.names[at]}' of {self.where}"
            raise InputError(f"Column {name} cannot be read ({text.one_line(error)}).") from error

    def rows(self) -> Rows:
        """The place and the cells of each row."""
        for row, cells in enumerate(zip(*self.values(range(len(self.names))), strict=True)):
            yield self.place(row), cells

    def holds_lists(self, at: int) -> bool:
        """Whether a column holds lists, as vector databases and notebooks store embeddings."""
        column = self.columns[at]
        if isinstance(column, list):
            return any(isinstance(cell, list) for cell in column[:SAMPLE])
        return str(column.type).startswith(("list", "large_list", "fixed_size_list"))

    def features(self, wanted: Sequence[int]) -> np.ndarray[Any, Any]:
        """Columns of numbers, or the lists in one column, as an array [n, d]; a cell that is neither is an error.

        The array is float32, or float64 where float32 would lose digits that matter (coordinates, for example).
        """
        known, found = self.kept
        if {*wanted} <= {*known}:
            return found if known == wanted else found[:, [known.index(at) for at in wanted]]
        lists = len(wanted) == 1 and self.holds_lists(wanted[0])
        found = self._lists(wanted[0]) if lists else self._stacked(wanted)
        if not found.size or (found.min() >= -_LARGEST and found.max() <= _LARGEST):
            return found
        wrong = np.argwhere(~(np.abs(found) <= _LARGEST) & ~(np.isnan(found) & self.gaps))
        if not len(wrong):
            return found
        row, at = wrong[0].tolist()
        column = wanted[0 if lists else at]
        cell = found[row, at] if lists else self.values([column])[0][row]
        raise _not_finite(self.where, self.place(row), self.names[column], cell)

    def _stacked(self, wanted: Sequence[int]) -> np.ndarray[Any, Any]:
        columns = [self.columns[at] for at in wanted]
        if all(map(_is_plain, columns)):
            import pyarrow

            return _stack(pyarrow.Table.from_arrays(columns, [str(at) for at in wanted]))
        sign, said = self._sign(wanted), dict[str, str]()
        named = [(self.names[at], enumerate(self._plain(at, sign, said))) for at in wanted]
        if said:
            where = f"column{'s' * (len(said) > 1)} {listed([*said])} of {Path(self.where).name}"
            self.notes.append(f"numbers in {where} are read as people write them: {next(iter(said.values()))}")
        return _narrow(np.array([[self._number(row, name, cell) for row, cell in cells] for name, cells in named]).T)

    def _sign(self, wanted: Sequence[int]) -> str:
        """The decimal sign of texts that are numbers: what the table shows, else the one beside."""
        shown = self._shown(cell for at in wanted for cell in self.sample(at))
        shown = shown or (self.beside or self)._shown(cell for at in wanted for cell in self._theirs(at))
        if shown == "," and self.decimal == ".":
            self.decimal = ","
            self.notes.append(f"numbers in {Path(self.where).name} are read with a decimal comma")
        return "," if self.decimal == "," or (self.delimiter == ";" and not shown) else "."

    def _shown(self, cells: Iterable[Any]) -> str:
        """The decimal sign that can be seen; empty where there is none, and for 1,234, which could be a thousand."""
        texts = [cell for cell in cells if isinstance(cell, str) and not _THOUSANDS.fullmatch(cell)]
        if self.delimiter == "," or any("." in cell and text.is_number(cell) for cell in texts):
            return "."
        return "," if any("," in cell and text.is_number(cell, ",") for cell in texts) else ""

    def _theirs(self, at: int) -> list[Any]:
        """The first texts of the same column in the table beside."""
        other, name = self.beside, self.names[at]
        cells = [] if other is None or name not in other.places else other.sample(other.places[name])
        return [cell for cell in cells if isinstance(cell, str)]

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each column is."""
        return {name: at for at, name in enumerate(self.names)}

    def _plain(self, at: int, sign: str, said: dict[str, str]) -> list[Any]:
        """The cells of a column, with numbers where its texts are written as people write them, in one form.

        It is that of both tables, or of this one alone. ``said`` gets an example by the name of the column.
        """
        cells = _without_words(self._list(at, self.columns[at]))
        theirs = [cell for cell in self._theirs(at) if not missing(cell)]
        texts = {row: cell for row, cell in enumerate(cells) if isinstance(cell, str) and not missing(cell)}
        mine = [*texts.values()]
        if all(text.is_number(cell, self.decimal) for cell in mine + theirs):
            return cells
        found = text.numbers_of_people(mine + theirs, sign) or text.numbers_of_people(mine, sign) or ()
        numbers = dict(zip(texts, found, strict=False))
        odd = next((row for row in numbers if numbers[row] != text.number_in(cells[row], self.decimal)), None)
        if odd is not None:
            said[self.names[at]] = f"{shorten(cells[odd])} is {numbers[odd]:.15g}"
        return [numbers.get(row, cell) for row, cell in enumerate(cells)]

    def _number(self, row: int, name: str, cell: Any) -> float:
        if type(cell) is float and abs(cell) <= _LARGEST:
            return cell
        if self.gaps and (missing(cell) or cell in ("NA", "N/A", "NULL", "?")):
            return math.nan
        return as_number(self.where, self.place(row), name, cell, self.decimal, self.hint)

    def _lists(self, at: int) -> np.ndarray[Any, Any]:
        """At once where all lists are alike, else row by row to say which is not."""
        column, name = self.columns[at], self.names[at]
        if not isinstance(column, list):
            import pyarrow.compute

            lengths = pyarrow.compute.min_max(pyarrow.compute.list_value_length(column)).as_py()
            flat = pyarrow.compute.list_flatten(column)
            if not column.null_count and lengths["min"] == lengths["max"] != 0 and _is_plain(flat):
                return _narrow(flat.to_numpy().reshape(len(column), -1))
        lists = self._list(at, column)
        width = len(lists[0]) if isinstance(lists[0], list) else 0
        for row, cells in enumerate(lists):
            if not isinstance(cells, list) or len(cells) != width or not width:
                has = f"{len(cells)} numbers" if isinstance(cells, list) else "no list of numbers"
                where = f"{self.where} has {has} in {self.place(row)}"
                raise InputError(f"Column '{name}' of {where}; every row needs {width}.")
        return _narrow(np.array([[self._number(row, name, x) for x in cells] for row, cells in enumerate(lists)]))


class Part(Table):
    """Some rows and columns of a table; what a column holds is told by the whole."""

    def __init__(self, whole: Table, rows: Sequence[int], columns: Sequence[int]) -> None:
        names = [whole.names[at] for at in columns]
        super().__init__(whole.where, names, [rows], index=whole.index, notes=whole.notes, delimiter=whole.delimiter)
        self._whole, self._rows, self._at = whole, rows, columns

    def positions(self, count: int) -> Sequence[int]:
        return self._rows

    def place(self, row: int) -> str:
        return self._whole.place(self._rows[row])

    def sample(self, at: int) -> list[Any]:
        return self._whole.sample(self._at[at])

    def holds_lists(self, at: int) -> bool:
        return self._whole.holds_lists(self._at[at])

    def features(self, wanted: Sequence[int]) -> np.ndarray[Any, Any]:
        self._whole.gaps = self.gaps
        return self._whole.features([self._at[at] for at in wanted])[self._rows]

    def _read(self, wanted: list[int]) -> list[list[Any]]:
        return [[cells[row] for row in self._rows] for cells in self._whole.values([self._at[at] for at in wanted])]


class _TextTable(Table):
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
        usual = all(text.is_number(cell, self.decimal) for at in wanted for cell in self._theirs(at))
        table = self._by_arrow(wanted, "float64", self.decimal) if usual else None
        if table is not None:
            return _stack(table)
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


def read_table(
    path: Path, is_header: IsHeader | None = None, rows: int | None = None, sheet: str | None = None
) -> Table:
    """Open a table: a .csv, .tsv, .txt, .jsonl (also packed), .xlsx or .parquet file, or a folder of parquet files.

    Parameters
    ----------
    path : Path
        The file; its ending says what it holds.
    is_header : callable, optional
        Whether the first line of a text table has the names of the columns, by its cells; where the answer is None, a
        line of numbers is taken for the first row. By default the first line always has the names.
    rows : int, optional
        How many rows are needed, where not all are.
    sheet : str, optional
        The name of the sheet of an Excel file, or its number from 1. None: the first.

    Returns
    -------
    Table
    """
    suffix = suffix_of(path)
    if path.suffix.lower() != ".parquet" or not path.is_dir():
        check_input(path)
    if suffix == ".parquet":
        table = _open_parquet(path, rows)
    elif suffix in EXCEL_SUFFIXES:
        table = _open_excel(path, sheet, rows)
    else:
        table = _open_jsonl(path, rows) if suffix == ".jsonl" else _TextTable(path, is_header)
    twice = text.first_twice(table.names)
    if twice is not None:
        how = f"named '{twice}'; rename or remove one" if twice else "without a name; one row above the data names all"
        raise InputError(f"{path} has two columns {how}.")
    return table


def _without_words(cells: list[Any]) -> list[Any]:
    """A column of yes and no as one of 1 and 0; any other as it is.

    >>> _without_words(["Yes", "no", ""]), _without_words(["1.5", "no"])
    ([1.0, 0.0, ''], ['1.5', 'no'])
    """
    first = next((cell for cell in cells if not missing(cell)), None)
    found = [_TRUTHS.get(str(cell).strip().casefold(), cell) for cell in cells] if isinstance(first, str) else cells
    return cells if any(cell is old and not missing(old) for cell, old in zip(found, cells, strict=True)) else found


def read_rows(path: Path, sheet: str | None = None) -> tuple[Sequence[str], Rows]:
    """The names of the columns, and the rows, of a table or a .txt file of that kind."""
    if suffix_of(path) not in (*TABLE_SUFFIXES, ".txt"):
        raise InputError(f"{check_input(path)} has an unknown ending; tables come as {', '.join(TABLE_SUFFIXES)}.")
    table = read_table(path, sheet=sheet)
    return table.names, table.rows()


def one_row_per_class(path: Path, rows: Rows, at: int) -> Iterator[tuple[str, str, Sequence[Any]]]:
    """Place, class and cells of each row; ``at`` is the column of the class, which must be there and only once."""
    seen: set[str] = set()
    for place, cells in rows:
        if missing(cells[at]):
            raise InputError(f"{path} has no class in {place}; fill the cell or remove the row.")
        name = str(cells[at]).strip()
        if name in seen:
            raise InputError(f"{path} has the class {shorten(name)} twice (again in {place}); remove one.")
        seen.add(name)
        yield place, name, cells


def find_any(names: Sequence[str], *wanted: str) -> int | None:
    """The position of the first of some columns that a table has."""
    return next((at for at in (find_column(names, name) for name in wanted) if at is not None), None)


def column(path: Path, names: Sequence[str], *wanted: str) -> int:
    """The same where the table must have one."""
    found = find_any(names, *wanted)
    if found is None:
        raise InputError(f"{path} has the columns {listed(names)}; it needs one named '{wanted[0]}'.")
    return found


def find_column(names: Sequence[str], wanted: str) -> int | None:
    """The position of a column: the exact name, else the only one that differs in case, blanks and accents' form."""
    if wanted in names:
        return list(names).index(wanted)
    alike = [at for at, name in enumerate(names) if plain(name) == plain(wanted)]
    return alike[0] if len(alike) == 1 else None


def plain(name: str) -> str:
    """What is left of the name of a column when it is spelled in another way (by a Mac, for example)."""
    return unicodedata.normalize("NFC", name.strip().casefold())


def missing(value: Any) -> bool:
    """Whether a label is absent: null, NaN, an empty or blank string, or a word that spreadsheets write for it."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value.strip().casefold() in _MISSING
    return value is None or (isinstance(value, float) and math.isnan(value))


def _open_jsonl(path: Path, rows: int | None) -> Table:
    source = text.read_text(path)
    found = list(itertools.islice(text.read_json_lines(source), rows))
    names = list(dict.fromkeys(name for _, record in found for name in record))
    columns = [[record.get(name) for _, record in found] for name in names]
    return Table(path, names, columns, "line", [number for number, _ in found], notes=[*source.notes])


def _open_excel(path: Path, sheet: str | None, count: int | None) -> Table:
    openpyxl = optional("openpyxl", "excel", f"{path} is an Excel file, which")
    with path.open("rb") as file:
        if file.read(4) == _OLD_EXCEL:
            raise InputError(f"{path} has a password, or is of an old kind of Excel; save it anew as .xlsx.")
    with text.reading(path, "an Excel file"):
        with zipfile.ZipFile(path) as archive:
            if sum(info.file_size for info in archive.infolist()) > most_unpacked(path.stat().st_size):
                raise ValueError("it unpacks to far more than its size")
            pages = [name for name in archive.namelist() if name.startswith("xl/worksheets/")]
            formulas = any(_NOT_COMPUTED.search(archive.read(name)) for name in pages)
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
    return Table(path, titles, columns, numbers=[number for number, _ in rows], notes=notes, sheet=chosen)


def _is_table(page: Any) -> bool:
    """Whether a sheet of Excel looks like a table, not like notes: three columns, numbers, or a name of a column."""
    page.reset_dimensions()
    rows = [[*filter(text.is_filled, row)] for row in page.iter_rows(max_row=SAMPLE, values_only=True)]
    cells = list(itertools.chain(*rows))
    named = any(str(cell).strip().casefold() in ("item", *LABEL_NAMES, *TEXT_NAMES) for cell in cells)
    numbers = sum(isinstance(cell, int | float) for cell in cells)
    return max(map(len, rows), default=0) > 2 or named or 0 < len(cells) <= 2 * numbers + 2


def _as_shown(cell: Any) -> Any:
    """What a cell of Excel holds: a date without its midnight, and 00123 with the zeros that its format gives it."""
    value = cell.value
    if type(value) is int and (width := len(cell.number_format)) > 1 and cell.number_format == "0" * width:
        return f"{value:0{width}d}"
    return value.date() if isinstance(value, datetime) and value.time() == time() else value


def _open_parquet(path: Path, rows: int | None) -> Table:
    import pyarrow.parquet

    files = [path]
    if path.is_dir():  # Spark and Dask write folders of files; those with a dot or an underscore are their own notes
        files = [file for file in path.rglob("*") if not file.is_dir() and not file.name.startswith((".", "_"))]
    packed = sum(check_input(file).stat().st_size for file in files)
    with text.reading(path, "parquet"):
        found = [pyarrow.parquet.read_metadata(file) for file in files]
        groups = [meta.row_group(group) for meta in found for group in range(meta.num_row_groups)]
        chunks = [group.column(at) for group in groups for at in range(group.num_columns)]
        size = sum(chunk.num_values * _WIDTHS.get(chunk.physical_type, 8) for chunk in chunks)
        # Texts that repeat stay a dictionary, whose size is known before it is unfolded.
        texts = sorted({chunk.path_in_schema for chunk in chunks if chunk.physical_type == "BYTE_ARRAY"})
        if size > most_unpacked(packed):
            raise ValueError(f"it unpacks to {size:,} bytes, far more than its size")
        if path.is_dir():
            table = pyarrow.parquet.read_table(path, memory_map=True, read_dictionary=texts)
        else:
            with pyarrow.parquet.ParquetFile(path, memory_map=True, read_dictionary=texts) as file:
                if rows == 0:
                    return Table(path, file.schema_arrow.names)
                start = [] if rows is None else list(itertools.islice(file.iter_batches(rows), 1))
                table = pyarrow.Table.from_batches(start) if start else file.read()
        table.validate(full=True)
        few = most_unpacked(packed) // max(1, len(texts))
        letters = sum(_letters(column, few) for column in table.columns)
        if letters > most_unpacked(packed):
            raise ValueError(f"its texts unpack to {letters:,} bytes, far more than its size")
        stored = json.loads((table.schema.metadata or {}).get(b"pandas", b"{}"))
        index = stored.get("index_columns") if isinstance(stored, dict) else None
        names = [name for name in index if isinstance(name, str)] if isinstance(index, list) else []
        return Table(path, [str(name) for name in table.column_names], table.columns, index=names)


def _letters(column: Any, few: int) -> int:
    """The number of bytes of a dictionary of texts when it is unfolded; 0 where it cannot be more than ``few``."""
    kind = column.type
    if not str(kind).startswith("dictionary<values=") or str(kind.value_type) not in ("string", "binary"):
        return 0
    if sum(len(chunk) * chunk.dictionary.nbytes for chunk in column.chunks) <= few:
        return 0
    import pyarrow.compute as compute  # it takes a tenth of a second

    lengths = (compute.binary_length(chunk.dictionary).take(chunk.indices) for chunk in column.chunks)
    return sum(compute.sum(found).as_py() or 0 for found in lengths)


def _as_written(cells: list[str]) -> list[str]:
    """Cells without the apostrophe that the writer of tables puts in front of what looks like a formula."""
    return [cell[1:] if cell[:1] == "'" and text.is_formula(cell[1:]) else cell for cell in cells]


def as_number(
    where: Path | str, place: str, name: str, cell: Any, decimal: str | None = None, hint: str = "write a number."
) -> float:
    """A cell as a finite number. ``decimal`` is the sign that texts use; None: a point, or a comma where it fits."""
    if not text.is_filled(cell):
        raise InputError(f"Column '{name}' of {where} is empty in {place}; {hint}")
    sign = decimal or ("," if isinstance(cell, str) and text.is_number(cell, ",") and "," in cell else ".")
    number: Any = text.number_in(cell, sign) if isinstance(cell, str) else cell
    if isinstance(number, bool) or not isinstance(number, int | float | Decimal):
        raise InputError(f"Column '{name}' of {where} is not all numbers ({place} has {shorten(cell)}); {hint}")
    if not -_LARGEST <= number <= _LARGEST:
        raise _not_finite(where, place, name, cell)
    return float(number)


def _not_finite(where: Path | str, place: str, name: str, cell: Any) -> InputError:
    wrong = f"{shorten(cell)} in {place}, which is not a finite number (of 32 bits)"
    return InputError(f"Column '{name}' of {where} has {wrong}; remove or repair it.")


def _is_plain(column: Any) -> bool:
    """Whether a column is an Arrow array of numbers, complete."""
    import pyarrow.types as kinds

    if isinstance(column, list) or column.null_count:
        return False
    return any(is_(column.type) for is_ in (kinds.is_floating, kinds.is_integer, kinds.is_boolean, kinds.is_decimal))


def _stack(table: Any) -> np.ndarray[Any, Any]:
    """The columns of an Arrow table as one array, written some rows at a time so that memory is visited in order."""
    n, step = table.num_rows, max(1, table.num_rows // _LOOKED_AT)
    batches = [[_numbers(column) for column in batch.columns] for batch in table.to_batches()]
    parts = [np.stack([column[::step] for column in batch], 1).astype(np.float64) for batch in batches]
    stacked = np.empty((n, table.num_columns), _precision(np.concatenate(parts)) if parts else np.float32)
    row = 0
    with np.errstate(over="ignore"):  # what is too large is found later
        for batch in batches:
            for first in range(0, len(batch[0]), _STACKED):
                some = [column[first : first + _STACKED] for column in batch]
                np.stack(some, 1, out=stacked[row : row + len(some[0])], casting="unsafe")
                row += len(some[0])
    return stacked


def _numbers(column: Any) -> np.ndarray[Any, Any]:
    """An Arrow array without gaps as an array. Its own conversion would import pandas, which takes half a second."""
    import pyarrow.types as kinds

    if not len(column) or not (kinds.is_floating(column.type) or kinds.is_integer(column.type)):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    kind = np.dtype(column.type.to_pandas_dtype())
    return np.frombuffer(column.buffers()[1], kind, len(column), column.offset * kind.itemsize)


def _narrow(found: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    looked_at = found[:: max(1, len(found) // _LOOKED_AT)].astype(np.float64)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(found, _precision(looked_at))


def _precision(sample: np.ndarray[Any, Any]) -> type[np.floating[Any]]:
    """float32, or float64 if some column lies so far from 0 that float32 would round its differences away.

    >>> _precision(np.array([[0.1], [0.2]])).__name__, _precision(np.array([[5e6], [5e6 + 1], [5e6]])).__name__
    ('float32', 'float64')
    """
    if len(sample) < 2:
        return np.float32
    # Two numbers are near each other by chance, and so are the middle ones of a few.
    far = _FAR if len(sample) > 2 else _FAR**2
    around = (0.25, 0.5, 0.75) if len(sample) >= 20 else (0, 0.5, 1)
    with np.errstate(invalid="ignore"):
        low, middle, high = np.quantile(sample, around, axis=0, method="nearest")
        spread = np.where(high > low, high - low, np.ptp(sample, axis=0))
        return np.float64 if bool((np.abs(middle) > far * spread)[spread > 0].any()) else np.float32


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
