"""The table of labels: one row per item, in any format of tables."""

import contextlib
import hashlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from manyway.errors import InputError
from manyway.files import AnyPath, as_text, atomic_write, cache_folder, check_output, written_format, written_tables
from manyway.labelling.batch import Named

Inputs = Iterable[AnyPath | None]  # files and folders that must not be written over
Rows = Iterable[Sequence[Any]]  # cells
DEFAULT_OUTPUT = Path("labels.csv")
_FIRST_COLUMNS = ("item", "label", "probability")


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
    path: AnyPath | None, inputs: Inputs = (), *, overwrite: bool = False, endings: Collection[str] | None = None
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

    Returns
    -------
    Path
    """
    inputs = tuple(inputs)
    chosen = DEFAULT_OUTPUT if path is None else Path(path)
    if path is None and not overwrite:
        others = (chosen.with_stem(f"{chosen.stem}-{n}") for n in itertools.count(2))
        chosen = next(name for name in itertools.chain([chosen], others) if _is_free(name, inputs))
    if chosen.name.strip() == "-":
        raise InputError("The output is '-'; the table is written to a file: name one, such as labels.csv.")
    check_output(chosen, inputs, overwrite=overwrite or path is None)
    suffix = chosen.suffix.lower()
    endings = written_tables() if endings is None else endings
    if suffix and suffix not in endings:
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


def write_table(
    path: Path,
    rows: Iterable[Row],
    top: int,
    items: Named,
    inputs: Inputs = (),
    *,
    described: Mapping[str, Mapping[str, str]] | None = None,
    open_set: bool = False,
    at_levels: bool = False,
) -> list[str]:
    """Write the table of labels; return what there is to say about it.

    Parameters
    ----------
    path : Path
        The file; its ending chooses the format, and everything unknown is csv.
    rows : iterable of Row
        One per labelled item.
    top : int
        The number of classes per row.
    items : Items or Scores
        What was labelled. Items that were skipped follow at the end, without a label; the column ``note`` with the
        reason is there only if there are any. Further columns of the items come last; cells of what was skipped follow
        those of the items, where they are known. One that has the name of a column of the answer gets ``given_`` in
        front of it.
    inputs : iterable of path-like or None
        Files and folders that must not be written over.
    described : mapping of str to mapping of str to str
        Columns that say more about the label, such as its scientific name: column -> class -> text. They come before
        those of the item.
    open_set : bool, default=False
        Whether to write the columns ``unknown`` and ``group``.
    at_levels : bool, default=False
        Whether to write the columns ``answer``, ``answer_probability`` and ``level``.
    """
    header = list(_FIRST_COLUMNS)
    for rank in range(2, top + 1):
        header += [f"label_{rank}", f"probability_{rank}"]
    if open_set:
        header += ["unknown", "group"]
    if at_levels:
        header += ["answer", "answer_probability", "level"]
    more, about, skipped = items.carried, described or {}, items.skipped
    if skipped:
        header.append("note")
    # Probabilities have four digits in a text; other numbers come back as they were.
    as_texts = not written_format(path).is_exact
    for name in (*about, *more):
        header.append(_free(name, {*header, *(other for other in more if other != name)}))

    def cells() -> Iterator[list[Any]]:
        for row in rows:
            filled: list[Any] = [row.item, *(cell for name, p in row.best for cell in (name, round(p, 4)))]
            if open_set:
                filled += [None if row.unknown is None else round(row.unknown, 4), row.group]
            if row.answer is not None:
                filled += [row.answer.name, round(row.answer.probability, 4), row.answer.level]
            others = (column[row.number] for column in more.values())
            filled += [""] if skipped else []
            filled += [of_class.get(row.best[0][0], "") for of_class in about.values()]
            yield [*filled, *(map(as_text, others) if as_texts else others)]
        for number, (name, reason) in enumerate(skipped, len(items)):
            empty: list[Any] = [None if n % 2 == 0 else "" for n in range(2 * top - 1)]
            empty += [None, None] if open_set else []
            empty += ["", None, ""] if at_levels else []
            others = (column[number] if number < len(column) else None for column in more.values())
            empty += [f"skipped: {reason}", *(None for _ in about)]
            yield [name, "", *empty, *(map(as_text, others) if as_texts else others)]

    notes = write_rows(path, header, cells(), inputs)
    remember(path)
    return notes


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


def write_rows(path: Path, header: Sequence[str], rows: Rows, inputs: Inputs = ()) -> list[str]:
    """Write a table in the format of its ending (csv where that is unknown); it appears complete or not at all.

    Returns what there is to say about it.
    """
    with atomic_write(path, inputs) as temporary:
        defused = written_format(path).write(temporary, header, rows)
    if not defused:
        return []
    return [f"cells of {path.name} that begin like a formula ({defused}) were written with an apostrophe in front"]
