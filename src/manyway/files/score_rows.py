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
    name: int  # the column of the name by which classes go
    about: Sequence[int] = ()  # further columns that are about the class
    count: int | None = None  # the column that counts rows
    must_be_filled: bool = False  # those columns: by the name, where nothing else is known


def with_scores(origin: Origin, answers: Answers) -> str:
    """The text of the table with the probabilities of the answers; rows below the lowest one are left out.

    A class that a person gave to an item gets a row, if the item has none of it.
    """
    source = read_text(origin.path)
    dialect = sniff(source)
    with source.open() as file:
        lines = [*file]
    (header_line, _), *records = read_records(source, dialect)
    starts = [line - 1 for line, _ in records]
    places = origin.places
    items = [*dict.fromkeys(row.item for row in places.rows if row is not None)]
    found = dict(zip(items, map(dict, answers.ranked(origin.n_listed)), strict=True))
    added = _added(places, records, {items[at]: found[items[at]] for at in answers.by_people})
    last = {row.item: at for at, row in enumerate(places.rows) if row is not None}
    out = lines[: starts[0]] if starts else lines
    ends = [*starts, len(lines)][1:]
    for at, (row, start, end, (_, cells)) in enumerate(zip(places.rows, starts, ends, records, strict=True)):
        raw = "".join(lines[start:end])
        if row is None:
            out.append(raw)
            continue
        p = found[row.item].get(row.name, 0.0)
        if p >= answers.least:
            decimal = "," if "," in cells[places.score] else "."
            changed = {places.score: f"{p:.4f}".replace(".", decimal)}
            out.append(with_cells(raw, cells, changed, dialect.delimiter, lines[header_line - 1]))
        if row.item in added and last[row.item] == at:
            out[-1:] = [out[-1] if out[-1].endswith(("\r", "\n")) else f"{out[-1]}\n"] if out else []
            out.append(with_cells(raw, cells, added[row.item], dialect.delimiter, lines[header_line - 1]))
    text = "".join(out)
    return text if lines[-1].endswith(("\r", "\n")) else text.rstrip("\r\n")


def _added(
    places: ScoreRows, records: Sequence[tuple[int, Sequence[str]]], given: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[int, str]]:
    """Item -> the cells of a further row, which differ from those of its others.

    What a class is called is copied from a row of it; one that has none goes by its name. ``given`` has the answers
    of people: item -> class -> probability.
    """
    listed = {(row.item, row.name) for row in places.rows if row is not None}
    of_class = {row.name: cells for row, (_, cells) in zip(places.rows, records, strict=True) if row is not None}
    counts = [] if places.count is None else [cells[places.count] for _, cells in records]
    most = max((int(cell) for cell in counts if cell.strip().isdecimal()), default=0)
    decimal = "," if any("," in cells[places.score] for _, cells in records) else "."
    added: dict[str, dict[int, str]] = {}
    for item, answer in given.items():
        for name, p in answer.items():
            if p < 1 or (item, name) in listed:
                continue
            like = of_class.get(name)
            unknown = name if places.must_be_filled else ""
            row = {at: unknown if like is None else like[at] for at in places.about}
            row[places.name] = name if like is None else like[places.name]
            row[places.score] = f"{p:.4f}".replace(".", decimal)
            if places.count is not None:
                row[places.count] = str(most + len(added) + 1)
            added[item] = row
    return added


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
