"""Text tables with one row per item and class: the same table with other scores."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from manyway.files.formats.base import Answers, Origin
from manyway.files.text import read_records, read_text, sniff

WRITTEN = (".csv", ".tsv", ".txt")  # endings of texts; other tables are only read


class ScoreRow(NamedTuple):
    """The item and the class of a row."""

    item: str
    name: str


@dataclass(frozen=True)
class ScoreRows:
    """Where answers go."""

    rows: Sequence[ScoreRow | None]  # None: the row stays as it is
    score: int  # the column of the score


def with_scores(origin: Origin, answers: Answers) -> str:
    """The text of the table with the probabilities of the answers; rows below the lowest one are left out."""
    source = read_text(origin.path)
    dialect = sniff(source)
    with source.open() as file:
        lines = file.read().splitlines(keepends=True)
    (header_line, _), *records = read_records(source, dialect)
    starts = [line - 1 for line, _ in records]
    places = origin.places
    items = dict.fromkeys(row.item for row in places.rows if row is not None)
    found = dict(zip(items, map(dict, answers.ranked(origin.n_listed)), strict=True))
    out = lines[: starts[0]] if starts else lines
    ends = [*starts, len(lines)][1:]
    for row, start, end, (_, cells) in zip(places.rows, starts, ends, records, strict=True):
        raw = "".join(lines[start:end])
        if row is None:
            out.append(raw)
            continue
        p = found[row.item].get(row.name, 0.0)
        if p >= answers.least:
            decimal = "," if "," in cells[places.score] else "."
            changed = {places.score: f"{p:.4f}".replace(".", decimal)}
            out.append(with_cells(raw, cells, changed, dialect.delimiter, lines[header_line - 1]))
    text = "".join(out)
    return text if lines[-1].endswith(("\r", "\n")) else text.rstrip("\r\n")


def with_cells(raw: str, cells: Sequence[str], changed: Mapping[int, str], delimiter: str, header: str) -> str:
    """A record with other cells. Every other byte stays, but for quotation marks inside of bare cells."""
    body = raw.rstrip("\r\n")
    parts = re.split(re.escape(delimiter) + r'(?=(?:[^"]*"[^"]*")*[^"]*$)', body)
    if len(parts) != len(cells):
        parts = [_quoted(cell) for cell in cells]
    for at, cell in changed.items():
        in_quotes = parts[at].strip().startswith('"') or delimiter in cell or '"' in cell
        parts[at] = _quoted(cell) if in_quotes else cell
    line_break = raw[len(body) :] or header[len(header.rstrip("\r\n")) :]
    return delimiter.join(parts) + line_break


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'
