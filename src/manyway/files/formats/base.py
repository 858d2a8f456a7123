"""What a format of files is: one class that says how files are recognised, read and written.

A new format is a subclass of one of these classes, in a file of its own, and one line in `registry`. Another package
names its class under the entry point group ``manyway.formats``. All else reads the registry: the command line and its
help, messages, the page of formats and the tests of round trips.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from manyway.files.contents import Contents
from manyway.files.options import Options
from manyway.files.tables import IsHeader, Table
from manyway.files.text import first_line, read_json, suffix_of

Ranked = Sequence[tuple[str, float]]  # classes and probabilities of an item, most probable first
Rows = Iterable[Sequence[Any]]  # cells
TABLE_ENDINGS = (".csv", ".tsv", ".txt", ".xlsx", ".xlsm", ".parquet", ".jsonl")  # of scores that come as a table


@dataclass(frozen=True)
class Asked:
    """What is asked of the reader of a table.

    Parameters
    ----------
    is_header : callable, optional
        Whether the first line of a text has the names of the columns, by its cells. By default it has.
    rows : int, optional
        How many rows are needed, where not all are.
    sheet : str, optional
        The name of a sheet, or its number from 1. None: the first that looks like a table.
    """

    is_header: IsHeader | None = None
    rows: int | None = None
    sheet: str | None = None


class Opened:
    """A file whose format is looked for. What several formats look at is read once.

    Parameters
    ----------
    path : Path
    options : Options
        What the user says about columns and sheets.
    open_table : callable
        Opens a table of any format.
    """

    def __init__(self, path: Path, options: Options, open_table: Callable[[Path, Asked], Table]) -> None:
        self.path = path
        self.options = options
        self.suffix = suffix_of(path)
        self._open_table = open_table

    @cached_property
    def json(self) -> Any:
        """What a .json file holds; None for any other file."""
        return read_json(self.path) if self.suffix == ".json" else None

    def has_list(self, *names: str) -> bool:
        """Whether a .json file is an object with lists of these names."""
        return isinstance(self.json, dict) and all(isinstance(self.json.get(name), list) for name in names)

    @cached_property
    def first_line(self) -> str:
        """The first line of a text that is not blank; empty where there is none."""
        return first_line(self.path)

    @cached_property
    def names(self) -> Sequence[str]:
        """The names of the columns, where the file is a table; of a large parquet file nothing else is read."""
        if self.suffix not in TABLE_ENDINGS:
            return ()
        if self.suffix == ".parquet":
            return self._open_table(self.path, Asked(rows=0)).names
        return self.table.names

    @cached_property
    def table(self) -> Table:
        """The file as a table."""
        return self._open_table(self.path, Asked(sheet=self.options.sheet))


class Format:
    """A kind of file.

    A subclass says how it is called, and has the methods of its own base class. Files that it cannot read it refuses
    with an `InputError` of one sentence: what is wrong, where, and what to do.
    """

    key: ClassVar[str]  # one word, for options and entry points: "megadetector"
    name: ClassVar[str]  # what people call it: "MegaDetector"
    endings: ClassVar[tuple[str, ...]]  # of its files; ".csv" stands for ".csv.gz", too
    holds: ClassVar[str]  # what an item is, for the page of formats
    sign: ClassVar[str] = ""  # what tells its files from others of the same ending
    kept: ClassVar[str] = ""  # what is written, and what stays as it was; empty: answers are not written into it
    example: ClassVar[str] = ""  # a small file, in the folder ``examples`` beside the class
    generic: ClassVar[bool] = False  # asked last, when no other format knows the file

    @property
    def example_path(self) -> Path:
        """The example file."""
        return Path(inspect.getfile(type(self))).parent / "examples" / self.example

    def detect(self, file: Opened) -> bool:
        """Whether a file is of this format: by its ending, unless a subclass looks closer."""
        return file.suffix in self.endings


class TableFormat(Format):
    """Tables: columns with names."""

    has_sheets: ClassVar[bool] = False
    is_exact: ClassVar[bool] = True  # whether numbers, dates and lists keep their type; in a text they do not
    only_read: ClassVar[tuple[str, ...]] = ()  # endings of files that are not written

    def read(self, path: Path, asked: Asked) -> Table:
        """Open a table."""
        raise NotImplementedError

    def write(self, path: Path, header: Sequence[str], rows: Rows) -> int:
        """Write a table; return how many cells had to be changed because they look like a formula."""
        raise NotImplementedError


class ArrayFormat(Format):
    """Files of arrays: ``features`` and what belongs to them."""

    def read(self, path: Path) -> Contents:
        """Read the arrays; large ones are memory-mapped."""
        raise NotImplementedError

    def write(self, path: Path, arrays: Mapping[str, Any]) -> None:
        """Write arrays by their names: ``features``, and what else the format can hold."""
        raise NotImplementedError


class Label(NamedTuple):
    """One answer for one item."""

    number: int  # of the item in the batch
    item: str
    name: str  # the class, or a group of the taxonomy; empty where nothing is probable enough
    probability: float
    level: str = ""  # the level of the taxonomy that a group is of; empty: it is a class
    known: bool = False  # whether a person has said it


class Labelled(Protocol):
    """What was labelled: `Scores` or `Items`."""

    @property
    def carried(self) -> Mapping[str, Sequence[Any]]:
        """Columns that say more about each item."""

    @property
    def origins(self) -> "tuple[Origin, ...]":
        """The files that the items come from."""

    def __len__(self) -> int: ...

    def name(self, row: int) -> str:
        """The name of an item."""


class Origin(NamedTuple):
    """The file that some of the items come from, and what its format needs to write answers into it."""

    path: Path
    n_items: int
    n_listed: int  # classes that the item with most of them lists
    format: "WithAnswers"
    places: Any = None  # where answers go, as the format has noted it


@dataclass(frozen=True, eq=False)
class Answers:
    """What was found for the items of a file: all that a format can write.

    Parameters
    ----------
    items : Scores or Items
        What was labelled.
    labels : sequence of Label
        One per item or, where items may have several classes, one per item and class.
    classes : tuple of str
        The possible classes.
    ranked : callable
        The most probable classes of each item, at most so many. It is empty for items that are unknown.
    least : float
        The lowest probability that is written.
    probabilities : callable
        Those of all classes, [n, k].
    presence : ndarray of shape [k] or None
        The probability that each class occurs; None if the method does not estimate it.
    described : mapping of str to mapping of str to str
        What is known about classes: column -> class -> text.
    levels : mapping of str to mapping of str to str
        The taxonomy, finest level first: level -> class -> group.
    program : str
        Who has found it: the name and version of this program.
    origin : Origin or None
        The file that the answers are written into; None where a new file is written.
    by_people : frozenset of int
        The items whose answer a person gave.
    """

    items: Labelled
    labels: Sequence[Label]
    classes: tuple[str, ...]
    ranked: Callable[[int], Sequence[Ranked]]
    least: float = 0.0
    probabilities: Callable[[], np.ndarray[Any, Any]] | None = None
    presence: np.ndarray[Any, Any] | None = None
    described: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    levels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    program: str = "manyway"
    origin: Origin | None = None
    by_people: frozenset[int] = frozenset()

    def best(self) -> Sequence[Label]:
        """One label per item: those that are given or, where there are none, the most probable classes."""
        if self.labels:
            return self.labels
        found = []
        for row, ranked in enumerate(self.ranked(1)):
            name, probability = ranked[0] if ranked else ("", 0.0)
            found.append(Label(row, self.items.name(row), name, probability))
        return found


class WithAnswers(Format):
    """Formats of other programs, which take answers."""

    needs_time: ClassVar[bool] = False  # whether every item needs a time
    only_labels: ClassVar[bool] = False  # whether the file has room for labels, but not for their probabilities

    def write(self, path: Path, answers: Answers) -> list[str]:
        """Write the answers; return what there is to say about it.

        ``path`` is a temporary file that gets its name when it is complete.
        """
        raise NotImplementedError


class AnswerFormat(WithAnswers):
    """Forms of answers to scores that are written anew. They are chosen by their key."""


class DataFormat(WithAnswers):
    """Files of a labelling or analysis program that hold items, labels for some of them, and room for answers."""

    def read(self, path: Path, asked: Asked) -> Table:
        """The file as a table, whose ``roles`` say which column is what."""
        raise NotImplementedError
