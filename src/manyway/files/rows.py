"""Rows of any table as they are: texts and numbers with the place that an error message names."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from manyway.errors import InputError
from manyway.files.columns import find_column, missing, refuse_duplicates
from manyway.files.files import check_input
from manyway.files.tables import TABLE_SUFFIXES, open_parquet
from manyway.files.text import (
    check_width,
    is_number,
    listed,
    one_line,
    read_json_lines,
    read_records,
    shorten,
    table_header,
    with_point,
)

Rows = Iterator[tuple[str, Sequence[Any]]]  # place ("line 3") and cells


def read_rows(path: Path) -> tuple[list[str], Rows]:
    """The names of the columns, and the rows, of a .csv, .tsv, .txt, .parquet or .jsonl table."""
    suffix = path.suffix.lower()
    if suffix != ".parquet" or not path.is_dir():
        check_input(path)
    if suffix not in (*TABLE_SUFFIXES, ".txt"):
        raise InputError(f"{path} has an unknown ending; tables come as {', '.join(TABLE_SUFFIXES)}.")
    names, rows = {".parquet": _from_parquet, ".jsonl": _from_jsonl}.get(suffix, _from_csv)(path)
    refuse_duplicates(path, names)
    return names, rows


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


def _from_csv(path: Path) -> tuple[list[str], Rows]:
    records = read_records(path)
    _, names = table_header(path, records)

    def rows() -> Rows:
        for line, cells in records:
            check_width(path, line, cells, names)
            yield f"line {line}", cells

    return names, rows()


def _from_parquet(path: Path) -> tuple[list[str], Rows]:
    table, _ = open_parquet(path)

    def rows() -> Rows:
        try:
            columns = [column.to_pylist() for column in table.columns]
        except Exception as error:  # strings that are no UTF-8, times out of range
            raise InputError(f"{path} cannot be read ({one_line(error)}).") from error
        for row, cells in enumerate(zip(*columns, strict=True)):
            yield f"row {row}", cells

    return list(table.column_names), rows()


def _from_jsonl(path: Path) -> tuple[list[str], Rows]:
    records = list(read_json_lines(path))
    names = list(dict.fromkeys(name for _, record in records for name in record))
    return names, ((f"line {number}", [record.get(name) for name in names]) for number, record in records)


def find_any(names: Sequence[str], *wanted: str) -> int | None:
    """The position of the first of some columns that a table has."""
    return next((at for at in (find_column(names, name) for name in wanted) if at is not None), None)


def column(path: Path, names: Sequence[str], *wanted: str) -> int:
    """The same where the table must have one."""
    found = find_any(names, *wanted)
    if found is None:
        raise InputError(f"{path} has the columns {listed(names)}; it needs one named '{wanted[0]}'.")
    return found


def as_number(path: Path, place: str, name: str, value: Any) -> float:
    """A cell as a finite number; a decimal comma is understood."""
    number = value
    if isinstance(value, str):
        text = value.strip()
        if not text:
            raise InputError(f"Column '{name}' of {path} is empty in {place}; fill the cell or remove the row.")
        decimal = "," if "," in text and is_number(text, ",") else "."
        number = float(with_point(text, decimal)) if is_number(text, decimal) else None
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise InputError(f"Column '{name}' of {path} is not all numbers ({place} has {shorten(value)}).")
    if not math.isfinite(number):
        raise InputError(f"Column '{name}' of {path} has {shorten(value)} in {place}, which is not a finite number.")
    return float(number)
