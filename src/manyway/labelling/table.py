"""The table of labels: one row per item, as csv, tsv, parquet or jsonl."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from manyway.errors import InputError
from manyway.files.files import AnyPath, atomic_write, check_output
from manyway.files.items import SUFFIXES

DEFAULT_OUTPUT = Path("labels.csv")
_FIRST_COLUMNS = ("item", "label", "probability")
UNKNOWN = "unknown"  # the label of items of none of the classes
WRITTEN = (".csv", ".tsv", ".parquet", ".jsonl")
_OTHERS = (".json", ".xlsx", ".xls", ".ods", ".gz", ".bz2", ".xz", ".zst", ".zip", ".html", ".feather", ".h5", ".pkl")


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


def check_table(path: AnyPath | None, inputs: Iterable[AnyPath | None] = (), *, overwrite: bool = False) -> Path:
    """Return the path of the table, after checking that writing it replaces nothing of value.

    Parameters
    ----------
    path : path-like or None
        The output that the user asked for. None means ``labels.csv``, which must not exist unless it is a table of
        labels from an earlier run.
    inputs : iterable of path-like or None
        Files and folders that the command reads.
    overwrite : bool, default=False
        Allow the default output to replace any file that is not an input.

    Returns
    -------
    Path
    """
    inputs = tuple(inputs)
    chosen = DEFAULT_OUTPUT if path is None else Path(path)
    if chosen.name.strip() == "-":
        raise InputError("The output is '-'; the table is written to a file: name one, such as labels.csv.")
    target = check_output(chosen, inputs)
    folders = [given for given in inputs if given is not None and Path(given).is_dir()]
    for folder in folders:
        if target.is_relative_to(Path(folder).resolve()):
            raise InputError(
                f"The output {chosen} lies in the input folder {folder}, where it would be read as an item."
            )
    suffix = chosen.suffix.lower()
    if suffix in _OTHERS or (suffix in SUFFIXES and suffix not in WRITTEN):
        raise InputError(f"The output is {chosen}; tables of labels are written as {', '.join(WRITTEN)}.")
    if path is None and not overwrite and target.exists() and not is_table(target):
        raise InputError(
            f"{chosen} exists and is not a table that manyway wrote; name another `output`, or replace it with "
            "`overwrite`."
        )
    return chosen


def is_table(path: Path) -> bool:
    """Whether a file is a csv table of labels, or empty."""
    with path.open("rb") as file:
        first = file.readline(1000)
    return not first or first.decode("utf-8", "replace").rstrip("\r\n").split(",")[:3] == list(_FIRST_COLUMNS)


def write_table(
    path: Path,
    rows: Iterable[Row],
    top: int,
    skipped: Sequence[tuple[str, str]] = (),
    inputs: Iterable[AnyPath | None] = (),
    *,
    open_set: bool = False,
    at_levels: bool = False,
) -> None:
    """Write the table of labels.

    Parameters
    ----------
    path : Path
        The file; its ending chooses the format, and everything unknown is csv.
    rows : iterable of Row
        One per labelled item.
    top : int
        The number of classes per row.
    skipped : sequence of (str, str)
        Items that could not be read, with the reason: they follow at the end, without a label. The column ``note`` is
        there only if there are any.
    inputs : iterable of path-like or None
        Files and folders that must not be written over.
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
    if skipped:
        header.append("note")

    def cells() -> Iterator[list[Any]]:
        for row in rows:
            filled: list[Any] = [row.item, *(cell for name, p in row.best for cell in (name, round(p, 4)))]
            if open_set:
                filled += [None if row.unknown is None else round(row.unknown, 4), row.group]
            if row.answer is not None:
                filled += [row.answer.name, round(row.answer.probability, 4), row.answer.level]
            yield [*filled, ""] if skipped else filled
        for name, reason in skipped:
            empty: list[Any] = [None if n % 2 == 0 else "" for n in range(2 * top - 1)]
            empty += [None, None] if open_set else []
            empty += ["", None, ""] if at_levels else []
            yield [name, "", *empty, f"skipped: {reason}"]

    write_rows(path, header, cells(), inputs)


def write_rows(
    path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]], inputs: Iterable[AnyPath | None] = ()
) -> None:
    """Write a table as csv, tsv, parquet or jsonl, by its ending; it appears complete or not at all."""
    writer = {".parquet": _write_parquet, ".jsonl": _write_jsonl}.get(path.suffix.lower(), _write_csv)
    with atomic_write(path, inputs) as temporary:
        writer(temporary, header, rows)


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    # Names of files that are not UTF-8 are written with escapes, so that the table itself is.
    with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        writer.writerow(header)
        for row in rows:
            writer.writerow([f"{cell:.4f}" if isinstance(cell, float) else cell for cell in row])


def _write_jsonl(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for row in rows:
            file.write(json.dumps(dict(zip(header, row, strict=True)), ensure_ascii=False) + "\n")


def _write_parquet(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    import pyarrow
    import pyarrow.parquet

    columns: list[list[Any]] = [[] for _ in header]
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            column.append(cell.encode("utf-8", "backslashreplace").decode() if isinstance(cell, str) else cell)
    pyarrow.parquet.write_table(pyarrow.table(dict(zip(header, columns, strict=True))), path)
