"""Parquet files, and folders of them as Spark and Dask write."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from manyway.files import text
from manyway.files.files import check_input, most_unpacked
from manyway.files.formats.base import Asked, Rows, TableFormat
from manyway.files.tables import Table

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT96": 12}  # bytes of a value; others have 8


class Parquet(TableFormat):
    """Columns of Arrow. A folder of that ending is one table."""

    key = "parquet"
    name = "parquet"
    endings: ClassVar[tuple[str, ...]] = (".parquet",)
    holds = "a row"
    kept = "all cells with their types"
    example = "table.parquet"

    def read(self, path: Path, asked: Asked) -> Table:
        return _open(path, asked.rows)

    def write(self, path: Path, header: Sequence[str], rows: Rows) -> int:
        import pyarrow
        import pyarrow.parquet

        columns: list[list[Any]] = [[] for _ in header]
        for row in rows:
            for column, cell in zip(columns, row, strict=True):
                column.append(cell.encode("utf-8", "backslashreplace").decode() if isinstance(cell, str) else cell)
        arrays = {}
        for name, column in zip(header, columns, strict=True):
            try:
                arrays[name] = pyarrow.array(column)
            except (pyarrow.ArrowException, TypeError, OverflowError):  # cells of several kinds, which only text holds
                arrays[name] = pyarrow.array([None if cell is None else str(cell) for cell in column])
        pyarrow.parquet.write_table(pyarrow.table(arrays), path)
        return 0


def _open(path: Path, rows: int | None) -> Table:
    import pyarrow.parquet

    files = [path]
    if path.is_dir():  # Spark and Dask write folders of files; those with a dot or an underscore are their own notes
        files = [file for file in path.rglob("*") if not file.is_dir() and not file.name.startswith((".", "_"))]
    packed = sum(check_input(file).stat().st_size for file in files)
    with text.reading(path, "parquet"):
        found = [pyarrow.parquet.read_metadata(file) for file in files]
        groups = [meta.row_group(group) for meta in found for group in range(meta.num_row_groups)]
        chunks = [group.column(at) for group in groups for at in range(group.num_columns)]
        size = sum(chunk.num_values * _WIDTHS.get(chunk.physical_type, 8) for chunk in chunks)
        # Texts that repeat stay a dictionary, whose size is known before it is unfolded.
        texts = sorted({chunk.path_in_schema for chunk in chunks if chunk.physical_type == "BYTE_ARRAY"})
        if size > most_unpacked(packed):
            raise ValueError(f"it unpacks to {size:,} bytes, far more than its size")
        if path.is_dir():
            table = pyarrow.parquet.read_table(path, memory_map=True, read_dictionary=texts)
        else:
            with pyarrow.parquet.ParquetFile(path, memory_map=True, read_dictionary=texts) as file:
                if rows == 0:
                    return Table(path, file.schema_arrow.names)
                start = [] if rows is None else list(itertools.islice(file.iter_batches(rows), 1))
                table = pyarrow.Table.from_batches(start) if start else file.read()
        table.validate(full=True)
        few = most_unpacked(packed) // max(1, len(texts))
        letters = sum(_letters(column, few) for column in table.columns)
        if letters > most_unpacked(packed):
            raise ValueError(f"its texts unpack to {letters:,} bytes, far more than its size")
        stored = json.loads((table.schema.metadata or {}).get(b"pandas", b"{}"))
        index = stored.get("index_columns") if isinstance(stored, dict) else None
        names = [name for name in index if isinstance(name, str)] if isinstance(index, list) else []
        return Table(path, [str(name) for name in table.column_names], table.columns, index=names)


def _letters(column: Any, few: int) -> int:
    """The number of bytes of a dictionary of texts when it is unfolded; 0 where it cannot be more than ``few``."""
    kind = column.type
    if not str(kind).startswith("dictionary<values=") or str(kind.value_type) not in ("string", "binary"):
        return 0
    if sum(len(chunk) * chunk.dictionary.nbytes for chunk in column.chunks) <= few:
        return 0
    import pyarrow.compute as compute  # it takes a tenth of a second

    lengths = (compute.binary_length(chunk.dictionary).take(chunk.indices) for chunk in column.chunks)
    return sum(compute.sum(found).as_py() or 0 for found in lengths)
