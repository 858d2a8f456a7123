"""The table of labels: one row per item, in any format of tables."""

import contextlib
import hashlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from manyway.errors import InputError
from manyway.files import (
    AnyPath,
    Items,
    Output,
    as_text,
    atomic_write,
    cache_folder,
    check_output,
    written_format,
    written_tables,
)
from manyway.files.formats.csv import Csv
from manyway.labelling.batch import Named

Inputs = Iterable[AnyPath | None]  # files and folders that must not be written over
Rows = Iterable[Sequence[Any]]  # cells
DEFAULT_OUTPUT = Path("labels.csv")
_DIGITS = 4  # of a probability


class LevelAnswer(NamedTuple):
    """An answer at some level of a taxonomy; name and level are empty where none is probable enough."""

    name: str
    probability: float
    level: str


class Row(NamedTuple):
    """One item with its classes, most probable first."""

    item: str
    best: Sequence[tuple[str, float]]  # class and probability; the first class is empty where it is too uncertain
    unknown: float | None = None  # the probability of being unknown
    group: int | None = None  # of unknown items, where the label says so
    answer: LevelAnswer | None = None
    number: int = 0  # of the item in the batch: where its carried cells are


def check_table(
    path: AnyPath | None,
    inputs: Inputs = (),
    *,
    overwrite: bool = False,
    endings: Collection[str] | None = None,
    suffix: str = ".csv",
) -> Path:
    """Return the path of the table, after checking that writing it replaces nothing of value.

    Without a name, a table that this program wrote and that nobody changed since is replaced: its checksum is in the
    user's cache. A file that the user names is replaced only where ``overwrite`` says so.

    Parameters
    ----------
    path : path-like or None
        The output that the user asked for. None means ``labels.csv``, or ``labels-2.csv``, … where there is another
        file of that name.
    inputs : iterable of path-like or None
        Files and folders that the command reads.
    overwrite : bool, default=False
        Allow to replace any file that is not an input.
    endings : collection of str, optional
        The endings of files that can be written. None: those of tables.
    suffix : str, default=".csv"
        The ending of the output that has no name.

    Returns
    -------
    Path
    """
    inputs = tuple(inputs)
    chosen = DEFAULT_OUTPUT.with_suffix(suffix) if path is None else Path(path)
    if path is None and not overwrite:
        others = (chosen.with_stem(f"{chosen.stem}-{n}") for n in itertools.count(2))
        chosen = next(name for name in itertools.chain([chosen], others) if _is_free(name, inputs))
    if chosen.name.strip() == "-":
        raise InputError("The output is '-'; the table is written to a file: name one, such as labels.csv.")
    check_output(chosen, inputs, overwrite=overwrite or path is None)
    endings = written_tables() if endings is None else endings
    if chosen.suffix and chosen.suffix.lower() not in endings:
        raise InputError(f"The output is {chosen}; tables of labels are written as {', '.join(endings)}.")
    return chosen


def _is_free(path: Path, inputs: Inputs) -> bool:
    """Whether the default output may have this name: there is no such file, or a table written here and not changed."""
    try:
        return not path.exists() or _checksum(check_output(path, inputs)) in _written().read_text().split()
    except (InputError, OSError):
        return False


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _written() -> Path:
    """The file with the checksums of all tables that were written."""
    return cache_folder() / "tables.txt"


@dataclass(frozen=True)
class AnswerColumns:
    """The columns of answers: which there are, and what stands in them.

    Parameters
    ----------
    top : int
        The number of classes per item.
    open_set : bool, default=False
        Whether there are the columns ``unknown`` and ``group``.
    at_levels : bool, default=False
        Whether there are the columns ``answer``, ``answer_probability`` and ``level``.
    described : mapping of str to mapping of str to str
        Columns that say more about the label, such as its scientific name: column -> class -> text.
    """

    top: int
    open_set: bool = False
    at_levels: bool = False
    described: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def header(self) -> list[str]:
        """The names of the columns, without those of ``described``."""
        names = ["label", "probability"]
        for rank in range(2, self.top + 1):
            names += [f"label_{rank}", f"probability_{rank}"]
        if self.open_set:
            names += ["unknown", "group"]
        if self.at_levels:
            names += ["answer", "answer_probability", "level"]
        return names

    def cells(self, row: Row) -> list[Any]:
        """What stands in these columns."""
        found: list[Any] = []
        for name, probability in row.best:
            found += [name, round(probability, _DIGITS)]
        if self.open_set:
            unknown = None if row.unknown is None else round(row.unknown, _DIGITS)
            found += [unknown, row.group]
        if row.answer is not None:
            found += [row.answer.name, round(row.answer.probability, _DIGITS), row.answer.level]
        return found

    def without_answer(self, label: str = "") -> list[Any]:
        """What stands there beside an item that was not labelled here."""
        numbers = ("probability", "unknown", "group")
        empty = [None if name.startswith(numbers) else "" for name in self.header]
        if self.at_levels:
            empty[-2] = None
        return [label, *empty[1:]]

    def about(self, label: str) -> list[str]:
        """What ``described`` says about a label."""
        return [of_class.get(label, "") for of_class in self.described.values()]


def write_table(
    path: Path | Output,
    rows: Iterable[Row],
    items: Named,
    columns: AnswerColumns,
    inputs: Inputs = (),
) -> list[str]:
    """Write the table of labels; return what there is to say about it.

    Items that come from a table of the user are given back in that table, see ``manyway.labelling.rows_back``. For all
    others there is one row per item: its name, the answer, and the further columns of the items.

    Parameters
    ----------
    path : Path or Output
        The file; its ending chooses the format, and everything unknown is csv.
    rows : iterable of Row
        One per labelled item.
    items : Items or Scores
        What was labelled. Items that were skipped follow at the end, without a label; the column ``note`` with the
        reason is there only if there are any, or if features of items are missing. Further columns of the items
        come last; cells of what was skipped follow
        those of the items, where they are known. One that has the name of a column of the answer gets ``given_`` in
        front of it.
    columns : AnswerColumns
        The columns of the answer.
    inputs : iterable of path-like or None
        Files and folders that must not be written over.
    """
    header = ["item", *columns.header]
    with_notes = bool(items.skipped) or _has_gaps(items)
    if with_notes:
        header.append("note")
    more = items.carried
    for name in (*columns.described, *more):
        header.append(_free(name, {*header, *(other for other in more if other != name)}))
    # Probabilities have four digits in a text; other numbers come back as they were.
    is_text = not written_format(path.wanted if isinstance(path, Output) else path).is_exact

    def carried(number: int) -> list[Any]:
        found = [cells[number] if number < len(cells) else None for cells in more.values()]
        return [*map(as_text, found)] if is_text else found

    def cells() -> Iterator[list[Any]]:
        for row in rows:
            about = columns.about(row.best[0][0])
            note = [note_of(items, row.number)] if with_notes else []
            yield [row.item, *columns.cells(row), *note, *about, *carried(row.number)]
        nothing = [None] * len(columns.described)
        for number, (name, reason) in enumerate(items.skipped, len(items)):
            why = f"skipped: {reason}"
            yield [name, *columns.without_answer(), why, *nothing, *carried(number)]

    return write_rows(path, header, cells(), inputs, for_excel=True)


def _has_gaps(items: Named) -> bool:
    return isinstance(items, Items) and items.gaps


def note_of(items: Named, number: int) -> str:
    """What is said of an item that was labelled, such as that it lacks cells; '' for nothing."""
    return items.note(number) if isinstance(items, Items) else ""


def remember(path: Path) -> None:
    """Note that a file was written here, so that it may be replaced."""
    with contextlib.suppress(OSError):  # without a cache the table is not known later, and kept
        _written().parent.mkdir(parents=True, exist_ok=True)
        with _written().open("a") as file:
            file.write(f"{_checksum(path)}\n")


def _free(name: str, others: Collection[str]) -> str:
    """A name that no other column has."""
    while name in others:
        name = f"given_{name}"
    return name


def write_rows(
    path: Path | Output, header: Sequence[str], rows: Rows, inputs: Inputs = (), *, for_excel: bool = False
) -> list[str]:
    """Write a table in the format of its ending (csv where that is unknown); it appears complete or not at all.

    ``for_excel`` puts a byte-order mark in front of a text that is not ASCII: Excel would read other letters. Returns
    what there is to say about the table.
    """
    name = path.wanted if isinstance(path, Output) else path
    chosen = written_format(name)
    with atomic_write(path, inputs) as temporary:
        if for_excel and isinstance(chosen, Csv):
            defused = chosen.write(temporary, header, rows, mark=None)
        else:
            defused = chosen.write(temporary, header, rows)
    return remarks_on_defused(path, defused)


def remarks_on_defused(path: Path | Output, defused: int) -> list[str]:
    """What there is to say about cells that a spreadsheet would have computed."""
    if not defused:
        return []
    name = (path.path if isinstance(path, Output) else path).name
    return [f"cells of {name} that begin like a formula ({defused}) were written with an apostrophe in front"]
