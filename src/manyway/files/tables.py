"""Tables of any kind: columns with names, from which each reader picks its own. Formats make them."""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from manyway.errors import InputError, as_shown
from manyway.files import text
from manyway.files.files import Version
from manyway.files.text import listed, shorten

SAMPLE = 100  # rows that are looked at to guess what a column holds
_MISSING = {"", "nan", "<na>", "nat", "#n/a"}  # cells that stand for no label; "None" and "NA" can be names of classes
_LARGEST = float(np.finfo(np.float32).max)
_FAR = 1000  # float32 keeps four digits of the differences between numbers that lie this many times as far from 0
_STACKED = 1024  # rows that are written at once
_LOOKED_AT = 1000  # rows that say how far numbers are from 0
_THOUSANDS = re.compile(r"\s*[-+]?[1-9]\d{0,2}[.,]\d{3}\s*")
_HINT = (
    "write a number there, leave the column out with `ignore_columns` or all such rows with `skip_bad`, or say that it "
    "is the `label_column` or the `item_column` (texts need an `encoder`)."
)
_TRUTHS = dict.fromkeys(("yes", "y", "true", "t", "ja", "wahr", "oui", "vrai", "si", "sí"), 1.0)
_TRUTHS |= dict.fromkeys(("no", "n", "false", "f", "nein", "falsch", "non", "faux"), 0.0)
LABEL_NAMES = ("label", "labels", "class", "class_name", "category", "target", "intent")
TEXT_NAMES = ("text", "sentence", "utterance", "query")
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
    lowest : float
        The lowest number that features may be; −inf among scores, which may be logarithms of 0.
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
    shows_sign: bool = False  # whether this table alone shows the decimal sign
    gaps: bool = False
    lowest: float = -_LARGEST
    delimiter: str = ""
    beside: "Table | None" = None
    kept: tuple[Sequence[int], Any] = ((), None)  # features that were read before, of these columns
    sheet: str = ""  # the sheet of an Excel file that this is
    label: int | None = None  # the column of labels, where it was found before
    version: Version | None = None  # of the file, before it was read

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
        if not found.size or (found.min() >= self.lowest and found.max() <= _LARGEST):
            return found
        is_number = (found >= self.lowest) & (found <= _LARGEST)
        wrong = np.argwhere(~is_number & ~(np.isnan(found) & self.gaps))
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

            return stack(pyarrow.Table.from_arrays(columns, [str(at) for at in wanted]))
        sign, said = self._sign(wanted), dict[str, str]()
        named = [(self.names[at], enumerate(self._plain(at, sign, said))) for at in wanted]
        if said:
            where = f"column{'s' * (len(said) > 1)} {listed([*said])} of {Path(self.where).name}"
            self.notes.append(f"numbers in {where} are read as people write them: {next(iter(said.values()))}")
        return _narrow(np.array([[self._number(row, name, cell) for row, cell in cells] for name, cells in named]).T)

    def _sign(self, wanted: Sequence[int]) -> str:
        """The decimal sign of texts that are numbers: what the table shows, else the one beside."""
        shown = self._shown(cell for at in wanted for cell in self.sample(at))
        self.shows_sign = bool(shown)
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
        if all(text.is_number(cell, self.decimal) for cell in (mine if self.shows_sign else mine + theirs)):
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
        return as_number(self.where, self.place(row), name, cell, self.decimal, self.hint, self.lowest)

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
        self.version = whole.version

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
        columns = [self._at[at] for at in wanted]
        found = self._whole.features(columns)
        self._whole.kept = (columns, found)  # another part is read later
        return found[self._rows]

    def _read(self, wanted: list[int]) -> list[list[Any]]:
        return [[cells[row] for row in self._rows] for cells in self._whole.values([self._at[at] for at in wanted])]


def _without_words(cells: list[Any]) -> list[Any]:
    """A column of yes and no as one of 1 and 0; any other as it is.

    >>> _without_words(["Yes", "no", ""]), _without_words(["1.5", "no"])
    ([1.0, 0.0, ''], ['1.5', 'no'])
    """
    first = next((cell for cell in cells if not missing(cell)), None)
    found = [_TRUTHS.get(str(cell).strip().casefold(), cell) for cell in cells] if isinstance(first, str) else cells
    return cells if any(cell is old and not missing(old) for cell, old in zip(found, cells, strict=True)) else found


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
        other = {"item": ", or name yours with `item_column`"}.get(wanted[0], "")
        raise InputError(f"{path} has the columns {listed(names)}; it needs one named '{wanted[0]}'{other}.")
    return found


def find_column(names: Sequence[str], wanted: str) -> int | None:
    """The position of a column: the exact name, else the only one that differs in case, blanks and accents' form."""
    if wanted in names:
        return list(names).index(wanted)
    alike = [at for at, name in enumerate(names) if plain(name) == plain(wanted)]
    return alike[0] if len(alike) == 1 else None


def plain(name: str) -> str:
    """What is left of the name of a column when it is spelled in another way (by a Mac, for example)."""
    return as_shown(name.strip().casefold())


def missing(value: Any) -> bool:
    """Whether a label is absent: null, NaN, an empty or blank string, or a word that spreadsheets write for it."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value.strip().casefold() in _MISSING
    return value is None or (isinstance(value, float) and math.isnan(value))


def as_text(cell: Any) -> Any:
    """A cell for a text table: numbers with all their digits, lists and objects as JSON."""
    if isinstance(cell, list | dict):
        return json.dumps(cell, ensure_ascii=False, default=str)
    if isinstance(cell, bool):
        return str(cell).upper()
    return str(cell) if isinstance(cell, float) else cell


def as_number(
    where: Path | str,
    place: str,
    name: str,
    cell: Any,
    decimal: str | None = None,
    hint: str = "write a number.",
    lowest: float = -_LARGEST,
) -> float:
    """A cell as a finite number, or −inf where that is the ``lowest``.

    ``decimal`` is the sign that texts use; None: a point, or a comma where it fits.
    """
    if not text.is_filled(cell):
        raise InputError(f"Column '{name}' of {where} is empty in {place}; {hint}")
    sign = decimal or ("," if isinstance(cell, str) and text.is_number(cell, ",") and "," in cell else ".")
    number: Any = text.number_in(cell, sign) if isinstance(cell, str) else cell
    if isinstance(number, bool) or not isinstance(number, int | float | Decimal):
        raise InputError(f"Column '{name}' of {where} is not all numbers ({place} has {shorten(cell)}); {hint}")
    if not lowest <= number <= _LARGEST:
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


def stack(table: Any) -> np.ndarray[Any, Any]:
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
