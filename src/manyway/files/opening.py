"""Tables of any format, opened by the one reader that all others use."""

from collections.abc import Sequence
from pathlib import Path

from manyway.errors import InputError
from manyway.files.files import check_input, version_of
from manyway.files.formats.base import Asked
from manyway.files.formats.registry import endings_of_tables, is_table, table_format
from manyway.files.tables import IsHeader, Rows, Table
from manyway.files.text import first_twice, is_filled, suffix_of


def read_table(
    path: Path, is_header: IsHeader | None = None, rows: int | None = None, sheet: str | None = None
) -> Table:
    """Open a table, of any format that the registry knows; other endings are read as text.

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
    version = version_of(path)
    table = table_format(path).read(path, Asked(is_header, rows, sheet))
    table.version = version
    twice = first_twice(_names_that_count(table))
    if twice is not None:
        how = f"named '{twice}'; rename or remove one" if twice else "without a name; one row above the data names all"
        raise InputError(f"{path} has two columns {how}.")
    return table


def _names_that_count(table: Table) -> list[str]:
    """The names of columns, without columns that have neither a name nor a cell: programs write such at the end."""
    blank = [at for at, name in enumerate(table.names) if not name]
    cells_of = table.values(blank) if len(blank) > 1 else []
    empty = {at for at, cells in zip(blank, cells_of, strict=False) if not any(map(is_filled, cells))}
    return [name for at, name in enumerate(table.names) if at not in empty]


def read_rows(path: Path, sheet: str | None = None) -> tuple[Sequence[str], Rows]:
    """The names of the columns, and the rows, of a table or a .txt file of that kind."""
    if not is_table(path) and suffix_of(path) != ".txt":
        endings = ", ".join(endings_of_tables())
        raise InputError(f"{check_input(path)} has an unknown ending; tables come as {endings}.")
    table = read_table(path, sheet=sheet)
    return table.names, table.rows()
