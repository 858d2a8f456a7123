"""Tables of features: csv, tsv, jsonl and parquet, read as columns."""

from __future__ import annotations

import itertools
import json
import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from manyway.errors import InputError
from manyway.files.columns import LABEL_NAMES, Options, Roles, assign_roles
from manyway.files.files import check_input
from manyway.files.text import (
    Dialect,
    check_width,
    is_number,
    one_line,
    read_json_lines,
    read_records,
    shorten,
    sniff,
    table_header,
    with_point,
)

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl")
_BLOCK_BYTES = 1 << 23
_SAMPLE = 100  # records that are looked at to find decimal commas
_LARGEST = float(np.finfo(np.float32).max)
_HINT = (
    "name the label and item columns with --label-column and --item-column, and leave others out with --ignore-column "
    "(texts need --encoder)."
)


@dataclass(frozen=True, eq=False)
class Columns:
    """A table of features as it was read."""

    features: np.ndarray[Any, Any]  # [n, d] float32
    feature_names: tuple[str, ...] | None  # [d]; None: the table has no names, columns are known by their position
    labels: Sequence[Any] | None  # [n]
    items: Sequence[Any] | None  # [n]
    header: tuple[str, ...]  # all columns
    notes: tuple[str, ...]
    lines: Sequence[int] | None = None  # [n] line numbers, where they are known already


def read_columns(path: Path, options: Options) -> Columns:
    """Read a feature table: a .csv, .tsv, .jsonl or .parquet file."""
    suffix = path.suffix.lower()
    reader = {".parquet": _read_parquet, ".jsonl": _read_jsonl}.get(suffix, _read_csv)
    columns = reader(path, options)
    _refuse_index(path, columns, options)
    return columns


def _refuse_index(path: Path, columns: Columns, options: Options) -> None:
    """Refuse a feature that counts the rows, where the other features are measurements."""
    features, names = columns.features, columns.feature_names
    if options.like is not None or names is None or len(features) < 3 or len(names) < 2:
        return
    start = features[:100]
    whole = np.flatnonzero((start == np.floor(start)).all(0))
    if len(whole) * 2 > len(names):
        return  # whole numbers are usual in this table
    for at in whole.tolist():
        values = features[:, at].astype(np.float64)
        if not bool((values == np.floor(values)).all()):
            continue
        steps = np.diff(values)
        counted = np.sort(values) - np.arange(len(values))
        in_order = bool((steps == 1).all()) and values[0] in (0, 1)
        shuffled = len(values) >= 5 and counted[0] in (0, 1) and bool((counted == counted[0]).all())
        rising = len(values) >= 8 and bool((steps > 0).all())
        if names[at] not in options.feature_columns and (in_order or shuffled or rising):
            raise InputError(
                f"Column '{names[at]}' of {path} numbers the rows ({', '.join(map(str, values[:3].astype(int)))}, …) "
                f"and does not look like a feature; use --item-column {names[at]!r} if it names the items, "
                "--ignore-column to leave it out, or --feature-column to keep it."
            )


def _has_header(path: Path, first: Sequence[str], decimal: str, options: Options) -> bool:
    """Whether the first line names columns; False where it holds numbers; an error where it cannot be told."""
    numbers = [float(with_point(cell, decimal)) for cell in first if is_number(cell, decimal)]
    named = {name.casefold() for name in (options.label_column, options.item_column, "item", *LABEL_NAMES) if name}
    if not numbers or any(cell.casefold() in named for cell in first):
        return True
    if options.like is not None and set(options.like) <= set(first):
        return True
    if numbers in ([*range(len(numbers))], [*range(1, len(numbers) + 1)]):
        return True  # pandas numbers columns without names
    if _is_scale(numbers):
        return True  # wavelengths, dates
    if len(numbers) == len(first):
        return False
    if 2 * len(numbers) >= len(first) and any(not value.is_integer() for value in numbers):
        raise InputError(
            f"The first line of {path} looks like data ({', '.join(first[:4])}, …); add a first line that names the "
            "columns."
        )
    return True


def _is_scale(numbers: Sequence[float]) -> bool:
    """Whether numbers rise or fall throughout, as the names of the columns of a spectrum do."""
    steps = {math.copysign(1, b - a) if b != a else 0 for a, b in itertools.pairwise(numbers)}
    return len(numbers) >= 5 and steps in ({1}, {-1}) and all(map(math.isfinite, numbers))


def _note_numbers(path: Path, names: Sequence[str], sample: Sequence[Sequence[str]], decimal: str) -> tuple[str, ...]:
    """Say that a first line of numbers is taken for names; refuse it where the rows look the same."""
    if not all(is_number(name, decimal) for name in names):
        return ()
    rows = [[float(with_point(cell, decimal)) for cell in row if is_number(cell, decimal)] for row in sample]
    whole = all(float(with_point(name, decimal)).is_integer() for name in names)
    if all(map(_is_scale, rows)) and not whole:
        raise InputError(
            f"The first line of {path} ({', '.join(names[:3])}, …) could be names of columns or an item, as all lines "
            "have rising numbers; add a first line that names the columns."
        )
    return (f"the first line of {path.name} ({', '.join(names[:3])}, …) is taken as the names of the columns",)


def _read_csv(path: Path, options: Options) -> Columns:
    dialect = sniff(path)
    records = read_records(path, dialect)
    first_line, names = table_header(path, records)
    decimals = (".",) if dialect.delimiter == "," else (".", ",")
    named = all(_has_header(path, names, decimal, options) for decimal in decimals)
    sample = [cells for _, cells in itertools.islice(records, _SAMPLE)]
    if named and not sample:
        raise InputError(f"{path} has no data row; the first line names the columns, the others are items.")
    if named:
        roles = assign_roles(path, names, options)
        if options.like is None:
            guessed = next(filter(None, (_note_numbers(path, names, sample, decimal) for decimal in decimals)), ())
            roles = replace(roles, notes=(*roles.notes, *guessed))
    else:
        note = f"the first line of {path.name} holds numbers, so its columns have no names and keep their order"
        roles = Roles(tuple(range(len(names))), None, None, (note,))
    if len(decimals) > 1 and any(_comma_decimals(cells, roles) for cells in sample):
        decimals = (",", ".")
    read = None
    for decimal in decimals:
        read = _csv_by_arrow(path, dialect, len(names), roles, first_line if named else first_line - 1, decimal)
        if read is not None and not _starts_with(read[0], sample[0] if named else names, roles, decimal):
            read = None
        if read is not None:
            break
    else:
        decimal = decimals[0]
    features, labels, items, lines = read or _csv_by_record(path, dialect, names, roles, named, decimal)
    comma = (f"numbers in {path.name} are read with a decimal comma",) if decimal == "," else ()
    return Columns(
        features,
        tuple(names[at] for at in roles.features) if named else None,
        labels,
        items,
        tuple(names) if named else (),
        (*roles.notes, *comma),
        lines,
    )


def _comma_decimals(cells: Sequence[str], roles: Roles) -> bool:
    return any("," in cells[at] and is_number(cells[at], ",") for at in roles.features if at < len(cells))


def _starts_with(features: np.ndarray[Any, Any], cells: Sequence[str], roles: Roles, decimal: str) -> bool:
    """Whether two readers agree on the first row: no line was taken for a header that is none, or the reverse."""
    try:
        first = np.array([float(with_point(cells[at], decimal)) for at in roles.features])
    except (ValueError, IndexError):
        return False
    return bool(np.allclose(features[0], first, rtol=1e-6, atol=1e-30))


def _csv_by_arrow(
    path: Path, dialect: Dialect, width: int, roles: Roles, skip: int, decimal: str
) -> tuple[np.ndarray[Any, Any], list[str] | None, list[str] | None, list[int] | None] | None:
    """The table in one pass at full speed; None where anything is unusual, for the careful reader to look at."""
    if dialect.encoding not in ("utf-8", "utf-8-sig"):
        return None
    import pyarrow
    import pyarrow.csv

    text_columns = [at for at in (roles.label, roles.item) if at is not None]
    types = {str(at): pyarrow.float32() for at in roles.features} | {str(at): pyarrow.string() for at in text_columns}
    kept = [*roles.features, *text_columns]
    try:
        table = pyarrow.csv.read_csv(
            path,
            read_options=pyarrow.csv.ReadOptions(
                column_names=[str(at) for at in range(width)], skip_rows=skip, block_size=_BLOCK_BYTES
            ),
            parse_options=pyarrow.csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=_has_quotes(path)),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=types, include_columns=[str(at) for at in kept], null_values=[], decimal_point=decimal
            ),
        )
    except (pyarrow.ArrowException, OSError):
        return None
    features = _stack(table, range(len(roles.features)))
    texts = {at: table.column(len(roles.features) + i).to_pylist() for i, at in enumerate(text_columns)}
    if not len(features) or not np.isfinite(features).all():
        return None
    if any("\n" in text or text.lstrip()[:1] == '"' for values in texts.values() for text in values):
        return None
    return (
        features,
        None if roles.label is None else texts[roles.label],
        None if roles.item is None else texts[roles.item],
        None,
    )


def _has_quotes(path: Path) -> bool:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return mapped.find(b'"') >= 0


def _stack(table: Any, columns: Sequence[int]) -> np.ndarray[Any, Any]:
    """Columns of an Arrow table as one float32 array, written batch by batch so that memory is visited in order."""
    stacked = np.empty((table.num_rows, len(columns)), np.float32)
    start = 0
    for batch in table.to_batches():
        stop = start + batch.num_rows
        for at, column in enumerate(columns):
            stacked[start:stop, at] = batch.column(column).to_numpy(zero_copy_only=False)
        start = stop
    return stacked


def _csv_by_record(
    path: Path, dialect: Dialect, names: Sequence[str], roles: Roles, named: bool, decimal: str
) -> tuple[np.ndarray[Any, Any], list[str] | None, list[str] | None, list[int] | None]:
    """The same, record by record: slower, and it can say what is wrong where."""
    records = read_records(path, dialect)
    if named:
        next(records)
    rows, labels, items, lines = [], [], [], []
    for line, cells in records:
        check_width(path, line, cells, names)
        values = np.array([_number(path, line, names[at], cells[at], decimal, named) for at in roles.features])
        rows.append(values.astype(np.float32))
        lines.append(line)
        if roles.label is not None:
            labels.append(cells[roles.label])
        if roles.item is not None:
            items.append(cells[roles.item])
    return (
        np.stack(rows),
        None if roles.label is None else labels,
        None if roles.item is None else items,
        lines,
    )


def _number(path: Path, line: int, name: str, cell: str, decimal: str, named: bool) -> float:
    column = f"Column '{name}'" if named else "A column"
    if not cell.strip():
        raise InputError(f"{column} of {path} is empty in line {line}; fill the cell or remove the row.")
    try:
        value = float(with_point(cell, decimal))
    except ValueError:
        raise InputError(f"{column} of {path} is not all numbers (line {line} has {shorten(cell)}); {_HINT}") from None
    if not math.isfinite(value) or abs(value) > _LARGEST:
        raise InputError(
            f"{column} of {path} has {shorten(cell)} in line {line}, which is NaN, infinite or too large for 32 bits; "
            "remove or repair it."
        )
    return value


def open_parquet(path: Path) -> tuple[Any, tuple[str, ...]]:
    """The Arrow table in a parquet file or folder, and the names of the columns that pandas stored as its index."""
    import pyarrow.parquet

    if path.is_dir():  # Spark and Dask write folders of files; those with a dot or an underscore are their own notes
        for file in path.rglob("*"):
            if not file.is_dir() and not file.name.startswith((".", "_")):
                check_input(file)
    try:
        if path.is_dir():
            table = pyarrow.parquet.read_table(path, memory_map=True)
        else:
            with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
                table = file.read()
        table.validate(full=True)
        names = [str(name) for name in table.column_names]
        stored = json.loads((table.schema.metadata or {}).get(b"pandas", b"{}"))
        index = stored.get("index_columns", []) if isinstance(stored, dict) else []
    except Exception as error:  # damaged files raise errors of many kinds
        raise InputError(f"{path} cannot be read as parquet ({one_line(error)}).") from error
    return table.rename_columns(names), tuple(name for name in index if isinstance(name, str))


def _read_parquet(path: Path, options: Options) -> Columns:
    table, index = open_parquet(path)
    names = list(table.column_names)
    if not table.num_rows:
        raise InputError(f"{path} has no data row.")
    roles = assign_roles(path, names, options if options.like is None else _without_lists(options, names), index)
    labels, items = (_arrow_values(path, table, at) for at in (roles.label, roles.item))
    features, feature_names = arrow_features(path, table.select(list(roles.features)))
    return Columns(features, feature_names, labels, items, tuple(names), roles.notes)


def arrow_features(where: Path | str, table: Any, hint: str = _HINT) -> tuple[np.ndarray[Any, Any], tuple[str, ...]]:
    """The features [n, d] in an Arrow table, float32, and their names: one column of lists, or columns of numbers.

    Messages call the table ``where``; ``hint`` says what to do about a column that holds no numbers.
    """
    import pyarrow
    import pyarrow.types as kinds

    names = table.column_names
    if len(names) == 1 and is_list(table.schema.field(0).type):
        return _list_column(where, names[0], table.column(0))
    for name, kind, column in zip(names, table.schema.types, table.columns, strict=True):
        if not (kinds.is_floating(kind) or kinds.is_integer(kind) or kinds.is_boolean(kind) or kinds.is_decimal(kind)):
            raise InputError(f"Column '{name}' of {where} is not all numbers (it holds {kind}); {hint}")
        if column.null_count:
            row = column.is_null().to_pylist().index(True)
            raise InputError(f"Column '{name}' of {where} is empty in row {row}; fill the cell or remove the row.")
    try:
        features = _stack(table, range(len(names)))
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"The numbers in {where} cannot be read ({one_line(error)}).") from error
    if not np.isfinite(features).all():
        row, at = np.argwhere(~np.isfinite(features))[0].tolist()
        raise InputError(
            f"{where} has NaN or infinite features in row {row}, column '{names[at]}'; remove or repair them."
        )
    return features, tuple(names)


def _arrow_values(path: Path, table: Any, at: int | None) -> list[Any] | None:
    if at is None:
        return None
    try:
        values: list[Any] = table.column(at).to_pylist()
    except Exception as error:  # strings that are no UTF-8, times out of range
        name = table.column_names[at]
        raise InputError(f"Column '{name}' of {path} cannot be read ({one_line(error)}).") from error
    return values


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is one of lists, as vector databases and notebooks store embeddings."""
    import pyarrow.types as kinds

    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


def _without_lists(options: Options, names: Sequence[str]) -> Options:
    """Options for a table that stores embedding[0], embedding[1], … as one column ``embedding``."""
    like = list(options.like or ())
    base = like[0].removesuffix("[0]") if like and like[0].endswith("[0]") else None
    if base is None or base not in names or like != [f"{base}[{i}]" for i in range(len(like))]:
        return options
    return Options(options.label_column, options.item_column, options.ignore_columns, options.feature_columns, (base,))


def _list_column(path: Path | str, name: str, column: Any) -> tuple[np.ndarray[Any, Any], tuple[str, ...]]:
    """A column of lists as features: at once where all lists are alike, else row by row to say which is not."""
    import pyarrow.compute
    import pyarrow.types as kinds

    lengths = pyarrow.compute.min_max(pyarrow.compute.list_value_length(column)).as_py()
    numbers = pyarrow.compute.list_flatten(column)
    kind, width = numbers.type, lengths["min"]
    if column.null_count or numbers.null_count or width != lengths["max"] or not width or not kinds.is_floating(kind):
        return _list_features(path, name, column.to_pylist(), "row", range(len(column)))
    features = numbers.to_numpy().astype(np.float32).reshape(len(column), width)
    _refuse_infinite(path, features, "row", range(len(column)))
    return features, tuple(f"{name}[{i}]" for i in range(width))


def _list_features(
    path: Path | str, name: str, lists: Sequence[Any], word: str, numbers: Sequence[int]
) -> tuple[np.ndarray[Any, Any], tuple[str, ...]]:
    width = len(lists[0]) if isinstance(lists[0], list) else 0
    for number, values in zip(numbers, lists, strict=True):
        if not isinstance(values, list) or len(values) != width or not width:
            has = f"{len(values)} numbers" if isinstance(values, list) else "no list of numbers"
            raise InputError(f"Column '{name}' of {path} has {has} in {word} {number}; every row needs {width}.")
        if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            raise InputError(f"Column '{name}' of {path} is not all numbers ({word} {number}).")
    features = _as_float32(path, lists)
    _refuse_infinite(path, features, word, numbers)
    return features, tuple(f"{name}[{i}]" for i in range(width))


def _refuse_infinite(path: Path | str, features: np.ndarray[Any, Any], word: str, numbers: Sequence[int]) -> None:
    bad = np.flatnonzero(~np.isfinite(features).all(1))
    if len(bad):
        raise InputError(f"{path} has NaN or infinite features in {word} {numbers[bad[0]]}; remove or repair them.")


def _as_float32(path: Path | str, rows: Sequence[Any]) -> np.ndarray[Any, Any]:
    try:
        with np.errstate(over="ignore"):
            return np.asarray(rows, dtype=np.float64).astype(np.float32)
    except (OverflowError, ValueError, TypeError) as error:
        raise InputError(f"The numbers in {path} cannot be read ({one_line(error)}).") from error


def _read_jsonl(path: Path, options: Options) -> Columns:
    lines, records = [], []
    for number, record in read_json_lines(path):
        lines.append(number)
        records.append(record)
    if not records:
        raise InputError(f"{path} has no data row; write one JSON object per line.")
    names = list(dict.fromkeys(name for record in records for name in record))
    roles = assign_roles(path, names, options if options.like is None else _without_lists(options, names))
    for number, record in zip(lines, records, strict=True):
        lacking = [names[at] for at in roles.features if record.get(names[at]) is None]
        if lacking:
            raise InputError(f"Line {number} of {path} lacks the value '{lacking[0]}'; every line needs all features.")
    labels = None if roles.label is None else [record.get(names[roles.label]) for record in records]
    items = None if roles.item is None else [record.get(names[roles.item]) for record in records]
    feature_names = tuple(names[at] for at in roles.features)
    if len(roles.features) == 1 and isinstance(records[0][feature_names[0]], list):
        lists = [record[feature_names[0]] for record in records]
        features, feature_names = _list_features(path, feature_names[0], lists, "line", lines)
        return Columns(features, feature_names, labels, items, tuple(names), roles.notes, lines)
    for number, record in zip(lines, records, strict=True):
        for name in feature_names:
            value = record[name]
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError(
                    f"Column '{name}' of {path} is not all numbers (line {number} has {shorten(value)}); {_HINT}"
                )
            if isinstance(value, float) and not abs(value) <= _LARGEST:
                raise InputError(f"Column '{name}' of {path} has NaN or an infinite number in line {number}.")
    features = _as_float32(path, [[record[name] for name in feature_names] for record in records])
    return Columns(features, feature_names, labels, items, tuple(names), roles.notes, lines)
