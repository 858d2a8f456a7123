"""A taxonomy: to which genus, family, … each class belongs."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from manyway.errors import InputError
from manyway.files.columns import missing
from manyway.files.rows import column, one_row_per_class, read_rows
from manyway.files.text import shorten

Levels = Mapping[str, Mapping[str, str]]  # level -> class -> group, finest level first


def read_taxonomy(path: str | Path) -> Levels:
    """Read a table with the column ``class`` (or ``species``) and one column per higher level, such as ``genus``.

    Parameters
    ----------
    path : path-like
        A .csv, .tsv, .parquet or .jsonl table. An empty cell says that a class has no group at a level.

    Returns
    -------
    mapping of str to mapping of str to str
        level -> class -> group. The finest level, which has most groups, comes first.

    Raises
    ------
    InputError
        If a class occurs twice, or a group lies in two groups of the next level.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "taxonomy.csv"
    >>> _ = path.write_text("class,family,genus\\nlion,cats,Panthera\\nserval,cats,Leptailurus\\n")
    >>> read_taxonomy(path)["genus"]["lion"], list(read_taxonomy(path))
    ('Panthera', ['genus', 'family'])
    """
    path = Path(path)
    names, rows = read_rows(path)
    first = column(path, names, "class", "species", "label", "class_name")
    found: dict[str, dict[str, str]] = {name: {} for at, name in enumerate(names) if at != first}
    if not found:
        raise InputError(f"{path} has the classes only; add a column per higher level, such as genus and family.")
    for _, name, cells in one_row_per_class(path, rows, first):
        for level, cell in zip(names, cells, strict=True):
            if level in found and not missing(cell):
                found[level][name] = str(cell).strip()
    levels = dict(sorted(found.items(), key=lambda level: -len(set(level[1].values()))))
    _check_nested(path, levels)
    return levels


def _check_nested(path: Path, levels: Levels) -> None:
    names = list(levels)
    for finer, coarser in pairwise(names):
        above: dict[str, str] = {}
        for name, group in levels[finer].items():
            other = levels[coarser].get(name)
            if other is not None and above.setdefault(group, other) != other:
                raise InputError(
                    f"{path} has the {finer} {shorten(group)} in two groups of {coarser}, {shorten(above[group])} and "
                    f"{shorten(other)}; correct one, or remove the column '{coarser}'."
                )
