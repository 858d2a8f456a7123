"""What an input holds: features, pictures or texts. It decides which encoder is needed where none is named."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from manyway.encoding.datasets.archives import open_zip
from manyway.encoding.datasets.sources import IMAGE_SUFFIXES, PATH_COLUMNS, list_files
from manyway.encoding.datasets.texts import TEXT_KEYS
from manyway.errors import InputError
from manyway.files.columns import Options, find_column, is_id, is_label, is_row_number
from manyway.files.tables import TABLE_SUFFIXES
from manyway.files.text import is_number, listed, read_json_lines, read_records, table_header

FEATURES, PICTURES, TEXTS = "features", "pictures", "texts"
_SAMPLE = 50  # rows of a table that are looked at


def kind_of(path: Path, options: Options | None = None) -> str:
    """Whether a path holds ``features``, ``pictures`` or ``texts``; an InputError where it cannot be told.

    Parameters
    ----------
    path : Path
        A folder, an archive or a file. One that does not exist, or has an unknown ending, counts as features: their
        reader says what is wrong.
    options : Options, optional
        What the user says about the columns of a table.

    Returns
    -------
    str

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "tickets.csv"
    >>> _ = path.write_text("text,intent\\nwhere is my card,card_arrival\\n")
    >>> kind_of(path), kind_of(Path("photos.npz"))
    ('texts', 'features')
    """
    suffix = path.suffix.lower()
    if path.is_dir() and suffix != ".parquet":
        return _kind_of_files(path, list_files(path))
    if not path.is_file():
        return FEATURES
    if suffix == ".zip":
        return _kind_of_files(path, open_zip(path)[0])
    if suffix == ".txt":
        return TEXTS
    if suffix in IMAGE_SUFFIXES:
        raise InputError(f"{path} is a single picture; put the pictures into a folder and name the folder.")
    return _kind_of_table(path, options or Options()) if suffix in TABLE_SUFFIXES else FEATURES


def likely_kind(path: Path, options: Options | None = None) -> str | None:
    """As ``kind_of``; None where it cannot be told."""
    try:
        return kind_of(path, options)
    except InputError:
        return None


def _kind_of_files(path: Path, names: Sequence[str]) -> str:
    suffixes = {Path(name).suffix.lower() for name in names}
    loose = any("/" not in name and name.lower().endswith(".txt") for name in names)
    if suffixes & IMAGE_SUFFIXES:
        if loose and path.is_dir():
            raise InputError(
                f"{path} holds pictures and texts (.txt); keep them in separate folders, or say with `encoder` which "
                "of them to read."
            )
        return PICTURES
    if loose and path.is_dir():
        return TEXTS
    if not names:
        raise InputError(f"{path} is empty; it needs pictures (in one folder per class) or CLASS.txt files of texts.")
    if ".txt" in suffixes:
        raise InputError(
            f"{path} holds text files in folders; give one file per class instead (CLASS.txt, one text per line), or a "
            "table with the columns text and label."
        )
    raise InputError(
        f"{path} holds no pictures that are known by their ending ({names[0]} is none); name a feature file, or choose "
        "an `encoder` to read them all the same."
    )


def _kind_of_table(path: Path, options: Options) -> str:
    try:
        columns = _sample(path)
    except InputError:
        return FEATURES  # their reader says more about it
    names = list(columns)
    chosen = {name for name in (options.label_column, options.item_column) if name} | set(options.ignore_columns)
    left_out = {find_column(names, name) for name in chosen}
    free = [name for at, name in enumerate(names) if at not in left_out and not is_label(name)]
    words = [name for name in free if _are_words(columns[name])]
    numbers = [name for name in free if not is_id(name) and not is_row_number(name) and _are_numbers(columns[name])]
    if options.feature_columns:
        return TEXTS if set(options.feature_columns) <= set(words) else FEATURES
    texts = [name for name in words if name.strip().lower() in TEXT_KEYS]
    paths = [name for name in words if name.strip().lower() in PATH_COLUMNS and _are_pictures(columns[name])]
    if texts and numbers:
        raise InputError(
            f"{path} has texts (column '{texts[0]}') and columns of numbers ({listed(numbers, 3)}); choose the texts "
            "with `feature_columns`, or leave them out with `ignore_columns`."
        )
    if texts and paths:
        raise InputError(
            f"{path} has texts (column '{texts[0]}') and pictures (column '{paths[0]}'); leave one of them out with "
            "`ignore_columns`."
        )
    return TEXTS if texts else PICTURES if paths and not numbers else FEATURES


def _sample(path: Path) -> dict[str, list[Any]]:
    """The first values of every column."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        import pyarrow.parquet

        try:
            with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
                start = next(file.iter_batches(_SAMPLE))
        except Exception as error:  # damaged files raise errors of many kinds
            raise InputError(f"{path} cannot be read.") from error
        return {str(name): start.column(at).to_pylist() for at, name in enumerate(start.schema.names)}
    if suffix == ".jsonl":
        records = [record for _, record in itertools.islice(read_json_lines(path), _SAMPLE)]
        names = dict.fromkeys(name for record in records for name in record)
        return {name: [record.get(name) for record in records] for name in names}
    lines = read_records(path)
    _, header = table_header(path, lines)
    rows = [cells for _, cells in itertools.islice(lines, _SAMPLE)]
    return {name: [cells[at] for cells in rows if at < len(cells)] for at, name in enumerate(header)}


def _are_words(values: Iterable[Any]) -> bool:
    """Whether there are strings, and not only numbers written as strings."""
    return any(isinstance(value, str) and value.strip() and not _is_numeric(value) for value in values)


def _are_numbers(values: Sequence[Any]) -> bool:
    """Whether there are numbers, or lists of them, and nothing else."""
    given = [value for value in values if value is not None and value != ""]
    return bool(given) and all(isinstance(value, int | float | list) or _is_numeric(value) for value in given)


def _are_pictures(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) and Path(value).suffix.lower() in IMAGE_SUFFIXES for value in values)


def _is_numeric(value: Any) -> bool:
    return isinstance(value, str) and (is_number(value) or is_number(value, ","))
