"""All results as one self-contained HTML file.

Sortable tables, curves with hover values, a page per method.

The file opens from disk. Its content security policy forbids every request and
every script but its own.
"""

import base64
import hashlib
from collections.abc import Sequence
from math import isnan
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from manyway.bench import COMPARED, Record, now, number
from manyway.bench.show.curves import make_figures
from manyway.bench.show.tables import ABSENT, Cell, Grid, make_grids
from manyway.bench.show.view import View, label, old_note, params, setting
from manyway.errors import InputError
from manyway.evaluation import find_summary, tasks_needed
from manyway.plots import SYMBOL, Figure, cannot_draw, panel_svg, sample_svg

_METHOD_HEAD = (
    "Parameters",
    "Tasks",
    "Accuracy %",
    "± 95 %",
    "Tasks for ± 0.2",
    "ms per task",
    "Device",
)
_ORIGIN_HEAD = (
    "Method",
    "Setting",
    "Features",
    "Seed",
    "Tasks",
    "Seconds",
    "Device",
    "Versions",
    "Finished",
)


def make_report(views: Sequence[View], metrics: Sequence[str | None] = (None,)) -> str:
    """The report of some plans, as the text of an HTML file.

    With other metrics than the suites' if some are given.
    """
    for metric in filter(None, metrics):
        find_summary(metric)  # an unknown metric is an error
    records = list({record.key: record for view in views for record in view.records}.values())
    known = [name for name in COMPARED if any(record.method == name for record in records)]
    methods = [*known, *sorted({record.method for record in records} - set(known))]
    pages = [_run_page(view, f"figure-{n}", metrics) for n, view in enumerate(views)]
    pages += [
        _method_page(name, [record for record in records if record.method == name])
        for name in methods
    ]
    pages.append(_origin_page(records))
    environment = Environment(
        loader=PackageLoader("manyway.bench.show"), autoescape=True, undefined=StrictUndefined
    )
    environment.filters |= {
        "symbols": _symbols,
        "text_columns": _text_columns,
        "sort_value": _sort_value,
    }
    script = environment.get_template("report.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    count = f"{len(records):,} experiments with {sum(record.n_tasks for record in records):,} tasks"
    about = {
        "count": count,
        "date": now()[:10],
        "script": Markup(script),
        "script_hash": f"sha256-{digest}",
    }
    return environment.get_template("report.html").render(pages=pages, **about)


def _page(kind: str, name: str, title: str, **content: Any) -> dict[str, Any]:
    """What the template expects of a page."""
    page = {"id": f"{kind}-{name}", "kind": kind, "title": title, "heading": title}
    return {**page, "about": [], "warnings": [], "tables": [], "figures": [], **content}


def _run_page(view: View, prefix: str, metrics: Sequence[str | None]) -> dict[str, Any]:
    heading = view.shown.title
    warnings = []
    tables = []
    if view.missing:
        warnings.append(
            f"{view.missing} of {len(view.plan.experiments)} experiments have no result yet."
        )
    figures = [figure for metric in metrics for figure in make_figures(view, metric)]
    if figures and (reason := cannot_draw()):
        warnings.append(reason)
        figures = []
    for metric in metrics:
        try:
            tables += make_grids(view, metric)
        except InputError as error:  # other runs of the report may have this metric
            warnings.append(str(error))
    drawn = [_figure(figure, f"{prefix}-{n}") for n, figure in enumerate(figures)]
    content = {"heading": heading, "warnings": warnings, "tables": tables, "figures": drawn}
    about = [view.shown.about] if view.shown.about else []
    return _page("run", view.plan.name, view.plan.name, about=about, **content)


def _figure(figure: Figure, prefix: str) -> dict[str, Any]:
    marks = {name: dash for panel in figure.panels for name, _, dash in panel.verticals}
    if any(panel.identity for panel in figure.panels):
        marks["λ = |Q|"] = "dashed"
    notes = [f"{dash}: {name}" for name, dash in marks.items()]
    if figure.band:
        notes.append(f"band: {figure.band}")
    styles = enumerate(figure.styles.items())
    return {
        "title": figure.title,
        "caption": "; ".join([figure.caption, *notes]),
        # Markup that matplotlib made; an XML library wrote the names in it.
        "panels": [
            Markup(panel_svg(figure, n, f"{prefix}-{n}")) for n in range(len(figure.panels))
        ],
        "legend": [
            (name, Markup(sample_svg(style, f"{prefix}-key-{n}"))) for n, (name, style) in styles
        ],
    }


def _method_page(name: str, records: Sequence[Record]) -> dict[str, Any]:
    about = []
    method = COMPARED.get(name)
    if method is not None:
        # changes no answer
        usual = {key: value for key, value in method.defaults.items() if key != "with_objective"}
        words = ", ".join(
            f"{key} = {'not set' if value is None else number(value)}"
            for key, value in usual.items()
        )
        about = [f"{method.summary} Reference: {method.reference}."]
        about += [f"Name: {name}. Default parameters: {words or 'none'}."]
    rows = []
    for record in records:
        if record.trace is None:
            rows.append((_setting(record), _method_cells(record)))
    table = Grid(
        title="",
        caption="Time of the solver alone. Tasks for ± 0.2: the number of tasks that gives this "
        "95 % interval, in points.",
        note=old_note(records),
        corner="Setting",
        columns=[(heading,) for heading in _METHOD_HEAD],
        rows=rows,
    )
    return _page("method", name, label("method", name), about=about, tables=[table] if rows else [])


def _method_cells(record: Record) -> list[Cell]:
    """What a result says, in the order of ``_METHOD_HEAD``."""
    result = record.value("accuracy")
    rate = 1000 * record.timing.seconds / record.n_tasks
    half = Cell()
    if not isnan(result.half):
        half = Cell(100 * result.half, digits=2)
    needed = Cell()
    if not isnan(result.deviation):
        needed = _count(tasks_needed(result.deviation, 0.002))
    return [
        Cell(text=params(record) or "default"),
        _count(record.n_tasks),
        Cell(100 * result.mean, digits=2),
        half,
        needed,
        Cell(rate, text=f"{rate:.3g}"),
        Cell(text=record.provenance.device),
    ]


def _setting(record: Record) -> str:
    return setting(record) + (" †" if record.old else "")


def _origin_page(records: Sequence[Record]) -> dict[str, Any]:
    table = Grid(
        title="",
        caption="",
        note=old_note(records),
        corner="Result",
        columns=[(heading,) for heading in _ORIGIN_HEAD],
        rows=[
            (record.key + (" †" if record.old else ""), _origin_cells(record)) for record in records
        ],
    )
    about = (
        "Where each result comes from. "
        "A result is stored as METHOD-RESULT.json in the folder records."
    )
    return _page("origin", "provenance", "Provenance", about=[about], tables=[table])


def _origin_cells(record: Record) -> list[Cell]:
    """Where a result comes from, in the order of ``_ORIGIN_HEAD``."""
    made = record.provenance
    return [
        Cell(text=f"{record.method} {record.version}"),
        Cell(text=setting(record)),
        Cell(text=record.features.fingerprint),
        Cell(record.seed, digits=0),
        _count(record.n_tasks),
        Cell(record.timing.seconds, digits=2),
        Cell(text=f"{made.device} ({made.device_name})"),
        Cell(text=", ".join(map(" ".join, made.versions.items()))),
        Cell(text=record.timing.finished),
    ]


def _count(number: int) -> Cell:
    return Cell(number, text=f"{number:,}")


def _text_columns(grid: Grid) -> set[int]:
    """The columns that are not numbers."""
    return {
        n for n in range(len(grid.columns)) if all(cells[n].mean is None for _, cells in grid.rows)
    }


def _sort_value(cell: Cell) -> object:
    """What a cell is sorted by."""
    return cell.words.replace(ABSENT, "") if cell.mean is None else cell.mean


def _symbols(text: str) -> Markup:
    """Text with the paper's symbols, such as K_eff, as HTML."""
    return Markup(SYMBOL.sub(r"\1<sub>\2</sub>", str(escape(text))))
