"""Fill the tables of the results pages from stored results: no figure is typed by hand.

    python -m benchmarks.results RESULTS ... [--pages docs/results] [--check]

RESULTS are folders that ``manyway bench --results`` wrote; what lies in a later one replaces the same result of an
earlier one. ``PAGES/tables.toml`` says how each table is made: its keys are those of a suite's table, ``run``, and
``beside``, tables with the same rows whose columns follow. A table NAME of PAGE is written between
``<!--table:NAME-->`` and ``<!--end-->`` in PAGE.md and under its name in PAGE.csv, where it is found there; where it is
found in neither, it is added to PAGE.csv. Nothing else is touched. Above a table stand the versions of the package and
of the methods and the date of the results; in a csv file they are the last column.

Tables that other benchmarks print are kept in RESULTS where the variable MANYWAY_RESULTS names it:
``MANYWAY_RESULTS=RESULTS python -m benchmarks.gpu compare``. Their key is ``printed``, the title, instead of ``run``.

A table without results, or with an unfinished run, stays as it is, and is listed. So does one that would lose rows,
because the results are those of some methods or sets alone, unless ``--fewer-rows`` says that it may. With ``--check``
nothing is written, and the exit code is 1 where a page differs from what the results give.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from benchmarks.measure import Printed, markdown
from manyway.bench.presentation import TableSpec
from manyway.bench.records import Record, Store, write_text
from manyway.bench.show.formats import pipe_table
from manyway.bench.show.tables import Cell, grids_of
from manyway.bench.show.view import View, load_view, old_note
from manyway.bench.suite import tomllib
from manyway.core.checking import OneOrMore, checked
from manyway.errors import InputError
from manyway.evaluation.metrics import find_summary
from manyway.files.files import text_of

SPECS = "tables.toml"


class Spec(TableSpec):
    """How a table is made: from runs of suites, or from tables that benchmarks printed."""

    run: OneOrMore[str] = ()
    printed: OneOrMore[str] = ()
    methods: OneOrMore[str] = ()  # whose versions matter in a printed table
    beside: list[dict[str, Any]] = Field(default_factory=list)  # what differs in tables whose columns follow

    @model_validator(mode="after")
    def _one_origin(self) -> Spec:
        if bool(self.run) == bool(self.printed):
            raise ValueError("must have either `run` or `printed`")
        return self


@dataclass(frozen=True)
class Made:
    """A table as it should stand."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: str  # in Markdown
    origin: str  # versions and dates


class Missing(Exception):
    """Why a table cannot be made."""


def read_specs(pages: Path) -> dict[tuple[str, str], Spec]:
    """The specification of each table, by its page and name."""
    path = pages / SPECS
    try:
        data: dict[str, dict[str, Any]] = tomllib.loads(text_of(path))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not valid TOML: {error}.") from error
    return {
        (page, name): checked(Spec, spec, f"{path}: {page}.{name}")
        for page, tables in data.items()
        for name, spec in tables.items()
    }


def make(spec: Spec, stores: Sequence[Store]) -> Made:
    """A table from stored results."""
    if spec.printed:
        return _from_printed(spec, [_find_printed(title, stores) for title in spec.printed])
    own = spec.model_dump(exclude_defaults=True, exclude={"beside"})
    specs = [spec, *(checked(Spec, {**own, **other}, "beside") for other in spec.beside)]
    view = _merged([_view(run, stores) for run in spec.run], specs)
    known = {"metrics"}.union(*(record.axes for record in view.records))
    for axis in (axis for one in specs for axes in one.axes.values() for axis in axes):
        if axis not in known:
            raise InputError(f"{', '.join(spec.run)} has no axis '{axis}'.")
    grids = [grid for one in specs for grid in grids_of(view, one)[:1]]
    if len(grids) < len(specs):
        raise Missing("no result fits")
    cells: dict[str, list[Cell]] = {label: [] for grid in grids for label, _ in grid.rows}
    for n, grid in enumerate(grids):
        rows = dict(grid.rows)
        for label, row in cells.items():
            row += rows.get(label, [Cell()] * len(grids[n].columns))
    columns = list(grids[0].columns)
    for one, grid in zip(specs[1:], grids[1:], strict=True):
        title = find_summary(one.metric[0])[1].title
        named = len(one.metric) > 1 or (title,) in grid.columns  # the columns name their metrics
        columns += [column if named else (title, *column) for column in grid.columns]
    whole = grids[0]._replace(columns=columns, rows=list(cells.items()))
    header = [whole.corner, *(", ".join(filter(None, column)) for column in whole.columns)]
    used = list({record.key: record for one in specs for record in view.chosen(one)}.values())
    versions = {(record.method, record.version) for record in used}
    origin = _origin(versions, {r.provenance.versions["manyway"] for r in used}, {r.timing.finished for r in used})
    words = [[label, *(cell.words for cell in row)] for label, row in whole.rows]
    return Made(header, words, pipe_table(whole), " ".join(filter(None, [origin, old_note(used)])))


def _view(run: str, stores: Sequence[Store]) -> View:
    """A run from all folders that have it."""
    views = [load_view(store, plan) for store in stores for plan in store.plans() if plan.name == run]
    if not views:
        raise Missing(f"no results of {run}")
    for view in views:
        if view.missing:
            raise Missing(f"{view.missing} of {len(view.plan.experiments)} experiments of {run} have no result yet")
    return views[-1]._replace(records=[record for view in views for record in view.records])


def _merged(views: Sequence[View], specs: Sequence[Spec]) -> View:
    """Several runs as one. Of the same experiment, the last result counts; versions only where the table has them."""
    versions = any("version" in axes for spec in specs for axes in spec.axes.values())
    kept: dict[str, Record] = {}
    for record in (record for view in views for record in view.records):
        axes = record.axes if versions else {**record.axes, "version": None}
        kept[f"{axes} {record.trace}"] = record
    return views[-1]._replace(records=list(kept.values()))


def _find_printed(title: str, stores: Sequence[Store]) -> Printed:
    found = [Printed.read(path) for store in stores for path in sorted((store.folder / "printed").glob("*.json"))]
    for printed in (printed for printed in reversed(found) if printed.title == title):
        return printed
    raise Missing(f"'{title}' was not printed")


def _from_printed(spec: Spec, tables: Sequence[Printed]) -> Made:
    rows = [row for table in tables for row in table.rows]
    versions = {(name, table.methods[name]) for table in tables for name in spec.methods}
    origin = _origin(versions, {table.manyway for table in tables}, {table.finished for table in tables})
    return Made(tables[0].header, rows, markdown(tables[0].header, rows), origin)


def _origin(versions: set[tuple[str, int]], packages: set[str], dates: set[str]) -> str:
    """Which versions made a table, and when; the version that most methods share is named once.

    >>> _origin({("evidence", 3), ("evidence", 2), ("paddle", 1)}, {"0.1.0"}, {"2026-11-16T08:00:00"})
    'manyway 0.1.0, 2026-11-16: evidence 2 and 3, paddle 1'
    """
    days = sorted({date[:10] for date in dates})
    methods = [
        (name, " and ".join(str(v) for _, v in of)) for name, of in groupby(sorted(versions), lambda one: one[0])
    ]
    usual = [name for name, version in methods if version == "1"]
    words = [f"{name} {version}" for name, version in methods if len(usual) < 5 or version != "1"]
    words += [f"{'the other ' if words else ''}{len(usual)} methods 1"] if len(usual) >= 5 else []
    made = f"manyway {' and '.join(sorted(packages))}, {' to '.join(dict.fromkeys([days[0], days[-1]]))}"
    return ": ".join(filter(None, [made, ", ".join(words)]))


def in_page(text: str, name: str, made: Made) -> str:
    """The page with the table between its markers."""
    pattern = rf"(<!--table:{re.escape(name)}-->\n).*?(<!--end-->)"
    return re.sub(pattern, lambda m: f"{m[1]}\n*{made.origin}*\n\n{made.text}\n\n{m[2]}", text, flags=re.DOTALL)


def cells_in(text: str, name: str = "") -> list[list[str]]:
    """The cells of a table in a page, without the line below the header; none where it has no such table.

    Without a name, those of its first table.

    >>> cells_in("| a | b |\\n|:--|--:|\\n| x | **1** |\\n\\n| another |")
    [['a', 'b'], ['x', '**1**']]
    """
    if name:
        text = text.partition(f"<!--table:{name}-->")[2].partition("<!--end-->")[0]
    table = re.search(r"(^\|.*\|$\n?)+", text, re.MULTILINE)
    lines = table.group().strip().splitlines() if table is not None else []
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]


def in_csv(text: str, name: str, made: Made) -> str:
    """The csv file with the table under its name, at its place or at the end; tables are separated by empty lines."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["table", *made.header, "made by"])
    writer.writerows([name, *row, made.origin] for row in made.rows)
    blocks = [block for block in text.rstrip("\n").split("\n\n") if block]
    place = next((n for n, block in enumerate(blocks) if named(block) == name), len(blocks))
    kept = [block for block in blocks if named(block) != name]
    return "\n\n".join([*kept[:place], out.getvalue().rstrip("\n"), *kept[place:]]) + "\n"


def named(block: str) -> str:
    """The name of a table of a csv file: the first cell below its header."""
    rows = list(csv.reader(io.StringIO(block)))
    return rows[1][0] if len(rows) > 1 and rows[1] else ""


def places(pages: Path, page: str, name: str) -> list[Path]:
    """The files in which a table stands."""
    text, table = pages / f"{page}.md", pages / f"{page}.csv"
    found = [text] if text.exists() and f"<!--table:{name}-->" in text.read_text(encoding="utf-8") else []
    in_table = table.exists() and name in map(named, table.read_text(encoding="utf-8").split("\n\n"))
    return [*found, table] if in_table or not found else found


def _rows_in(text: str, name: str, suffix: str) -> list[str]:
    """The first cells of the rows of a table, in a page or in a csv file."""
    if suffix == ".md":
        return [row[0] for row in cells_in(text, name)[1:]]
    rows = [row for block in text.split("\n\n") for row in csv.reader(io.StringIO(block))]
    return [row[1] for row in rows if len(row) > 1 and row[0] == name]


def fill(
    pages: Path, folders: Sequence[Path], *, fewer_rows: bool = False
) -> tuple[dict[Path, str], list[str]]:
    """The text of every page as it should be, and a sentence for each table that cannot be filled.

    ``fewer_rows``: whether tables may lose rows.
    """
    texts: dict[Path, str] = {}
    left: list[str] = []
    stores = [Store(folder) for folder in folders]
    for (page, name), spec in read_specs(pages).items():
        try:
            made = make(spec, stores)
        except (Missing, InputError) as error:
            left.append(f"{page}: '{name}' stays as it is: {error}")
            continue
        for path in places(pages, page, name):
            text = texts.get(path, _text(path))
            lost = set(_rows_in(text, name, path.suffix)).difference(row[0] for row in made.rows)
            if lost and not fewer_rows:
                left.append(f"{path.name}: '{name}' stays as it is: no results of its row '{min(lost)}' (--fewer-rows)")
                continue
            texts[path] = (in_page if path.suffix == ".md" else in_csv)(text, name, made)
    return texts, left


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", help="folders of stored results")
    parser.add_argument("--pages", type=Path, default=Path("docs/results"), help="default: %(default)s")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a page differs")
    parser.add_argument("--fewer-rows", action="store_true", help="also fill tables that lose rows by it")
    options = parser.parse_args(words)
    try:
        texts, left = fill(options.pages, options.results, fewer_rows=options.fewer_rows)
    except InputError as error:
        parser.error(str(error))
    changed = {path: text for path, text in texts.items() if text != _text(path)}
    for path, text in changed.items():
        print(f"{path} {'differs' if options.check else 'filled'}")
        if not options.check:
            write_text(path, text)
    print(
        "\n".join([*left, f"{len(texts)} files with results, {len(changed)} of them changed, {len(left)} tables left"])
    )
    return 1 if options.check and changed else 0


if __name__ == "__main__":
    raise SystemExit(main())
