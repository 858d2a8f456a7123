"""Draw the figure at the top of each results page from a table of that page.

    python -m benchmarks.figures [PAGE ...] [--pages docs/results] [--images docs/images]

``PAGES/figures.toml`` says what is drawn of which page: the table, its rows and columns, and what the numbers are. A
table stands on the page or in the csv file beside it, where ``python -m benchmarks.results`` has put it. Each row of
the table is a line of the figure, each column a kind of mark, with its interval where the table has one. The numbers
are kept in the description of the picture, so that a test can tell whether it is up to date.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from benchmarks.results import cells_in, named
from manyway.bench.suite import tomllib
from manyway.core.checking import checked
from manyway.errors import InputError
from manyway.files import atomic_write
from manyway.plots.style import SETTINGS, Style, styles_of

SPECS = "figures.toml"
PAGES = Path("docs/results")
IMAGES = Path("docs/images")
_NUMBER = re.compile(r"[+−-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
_HALF = re.compile(r"±\s*(\d+(?:\.\d+)?)")
_LINE = 0.24  # inches that a row takes


class Spec(BaseModel):
    """What is drawn of a page."""

    model_config = ConfigDict(extra="forbid")

    table: str = ""  # its name; none: the first table of the page
    label: str  # what the numbers are
    rows: str = ""  # only rows whose first cells match this pattern
    columns: dict[str, str] = {}  # which are drawn, and what they are called; none: all that hold numbers
    row_cells: int = 1  # so many cells of a row are its name
    logarithmic: bool = False


class Value(NamedTuple):
    """A number of a table, with half of its interval where there is one."""

    mean: float
    half: float | None


Drawn = Mapping[str, Mapping[str, Value]]  # row -> column -> value


def read_specs(pages: Path) -> dict[str, Spec]:
    """What is drawn of each page."""
    path = pages / SPECS
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    return {page: checked(Spec, spec, f"{path}: {page}") for page, spec in data.items()}


def find_table(pages: Path, page: str, name: str) -> list[list[str]]:
    """The cells of a table, its header first, from the page or from the csv file beside it."""
    text = (pages / f"{page}.md").read_text(encoding="utf-8")
    found = cells_in(text, name)
    if found:
        return found
    beside = pages / f"{page}.csv"
    blocks = beside.read_text(encoding="utf-8").split("\n\n") if beside.exists() else []
    for block in blocks:
        if named(block) == name:
            rows = list(csv.reader(io.StringIO(block)))
            last = -1 if rows[0][-1] == "made by" else None
            return [row[1:last] for row in rows]
    raise InputError(f"The page {page} has no table '{name}'.")


def value_of(cell: str) -> Value | None:
    """The first number of a cell; None where it has none.

    >>> value_of("**+2.8 ± 0.8** over PADDLE"), value_of("1,024 ms"), value_of("−3"), value_of("none")
    (Value(mean=2.8, half=0.8), Value(mean=1024.0, half=None), Value(mean=-3.0, half=None), None)
    """
    number = _NUMBER.search(cell)
    if number is None:
        return None
    half = _HALF.search(cell)
    mean = float(number.group().replace(",", "").replace("−", "-"))
    return Value(mean, None if half is None else float(half.group(1)))


def read_figure(pages: Path, page: str, spec: Spec) -> Drawn:
    """The numbers that are drawn of a page."""
    header, *rows = find_table(pages, page, spec.table)
    wanted = spec.columns or {name: name for name in header[spec.row_cells :]}
    unknown = [name for name in wanted if name not in header]
    if unknown:
        raise InputError(f"The table '{spec.table}' of {page} has no column '{unknown[0]}'.")
    drawn: dict[str, dict[str, Value]] = {}
    for row in rows:
        name = " · ".join(re.sub(r"[*`]", "", cell) for cell in row[: spec.row_cells] if cell)
        if spec.rows and not re.search(spec.rows, name):
            continue
        values = {shown: value_of(row[header.index(column)]) for column, shown in wanted.items()}
        drawn[name] = {shown: value for shown, value in values.items() if value is not None}
    if not any(drawn.values()):
        raise InputError(f"The table '{spec.table}' of {page} has no number to draw.")
    return drawn


def description(drawn: Drawn) -> str:
    """The numbers as a text."""
    return json.dumps(drawn, ensure_ascii=True)


def draw(drawn: Drawn, spec: Spec, output: Path) -> None:
    """Draw them: a line per row, a kind of mark per column."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    columns = list(dict.fromkeys(name for row in drawn.values() for name in row))
    styles = styles_of({name: name.lower() for name in columns})
    with pyplot.rc_context(SETTINGS):
        height = 1.0 + _LINE * len(drawn)
        canvas, panel = pyplot.subplots(figsize=(7.2, height), layout="constrained")
        for column in columns:
            _draw_column(panel, drawn, column, styles[column])
        panel.set_yticks(range(len(drawn)), list(drawn))
        panel.set_ylim(len(drawn) - 0.5, -0.5)
        panel.set_xlabel(spec.label)
        panel.grid(axis="y", color="0.92")
        panel.set_axisbelow(True)
        if spec.logarithmic:
            panel.set_xscale("log")
            panel.xaxis.set_major_formatter("{x:g}")
            panel.xaxis.set_minor_formatter("")
        if len(columns) > 1:
            panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        with atomic_write(output) as temporary:
            canvas.savefig(temporary, format="png", dpi=130, metadata={"Description": description(drawn)})
        pyplot.close(canvas)


def _draw_column(panel: object, drawn: Drawn, column: str, style: Style) -> None:
    """The marks of one column, on matplotlib's axes."""
    places = [place for place, row in enumerate(drawn.values()) if column in row]
    values = [row[column] for row in drawn.values() if column in row]
    panel.errorbar(  # type: ignore[attr-defined]
        [value.mean for value in values],
        places,
        xerr=[value.half or 0.0 for value in values],
        fmt=style.marker,
        color=style.colour,
        ecolor="0.6",
        markersize=5,
        label=column,
    )


def image_of(images: Path, page: str) -> Path:
    """The picture of a page."""
    return images / f"results-{page}.png"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", nargs="*", help="default: all pages that have a figure")
    parser.add_argument("--pages", type=Path, default=PAGES, help="default: %(default)s")
    parser.add_argument("--images", type=Path, default=IMAGES, help="default: %(default)s")
    options = parser.parse_args(words)
    specs = read_specs(options.pages)
    for page in options.page or specs:
        if page not in specs:
            parser.error(f"{options.pages / SPECS} has no page '{page}'")
        drawn = read_figure(options.pages, page, specs[page])
        draw(drawn, specs[page], image_of(options.images, page))
        print(image_of(options.images, page))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
