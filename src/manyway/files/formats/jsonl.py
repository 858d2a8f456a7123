"""Tables with one JSON object per line."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from manyway.files.formats.base import Asked, Rows, TableFormat
from manyway.files.tables import Table
from manyway.files.text import read_json_lines, read_text


class Jsonl(TableFormat):
    """One JSON object per line. Cells may be lists."""

    key = "jsonl"
    name = "JSON lines"
    endings: ClassVar[tuple[str, ...]] = (".jsonl",)
    holds = "a line"
    kept = "all cells with their types"
    example = "table.jsonl"

    def read(self, path: Path, asked: Asked) -> Table:
        source = read_text(path)
        records = list(itertools.islice(read_json_lines(source), asked.rows))
        names = list(dict.fromkeys(name for _, record in records for name in record))
        columns = [[record.get(name) for _, record in records] for name in names]
        lines = [number for number, _ in records]
        return Table(path, names, columns, "line", lines, notes=[*source.notes])

    def write(self, path: Path, header: Sequence[str], rows: Rows) -> int:
        # Names of files that are not UTF-8 are written with escapes, so that the table itself is.
        with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
            for row in rows:
                record = dict(zip(header, row, strict=True))
                file.write(json.dumps(record, ensure_ascii=False, default=str) + "\n")
        return 0
