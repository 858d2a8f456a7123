"""Rows of any table, and the columns that a reader needs by their names."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from manyway.errors import InputError
from manyway.files.columns import find_column, missing
from manyway.files.tables import TABLE_SUFFIXES, as_number, read_table
from manyway.files.text import listed, shorten, suffix_of

__all__ = ["Rows", "as_number", "column", "find_any", "one_row_per_class", "read_rows"]

Rows = Iterator[tuple[str, Sequence[Any]]]  # place ("line 3") and cells


def read_rows(path: Path) -> tuple[Sequence[str], Rows]:
    """The names of the columns, and the rows, of a table or a .txt file of that kind."""
    if suffix_of(path) not in (*TABLE_SUFFIXES, ".txt"):
        raise InputError(f"{path} has an unknown ending; tables come as {', '.join(TABLE_SUFFIXES)}.")
    table = read_table(path)
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
