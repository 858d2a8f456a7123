"""All results as one self-contained HTML file: sortable tables, curves with hover values, a page per method.

The file opens from disk. Its content security policy forbids every request and every script but its own.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from manyway.bench.show.compare import setting
from manyway.bench.show.curves import make_figures
from manyway.bench.show.tables import OLD_NOTE, Grid, make_grids
from manyway.bench.show.view import View, method_title, number, special_params
from manyway.bench.store import Record, now
from manyway.errors import InputError
from manyway.evaluation.metrics import find_summary
from manyway.evaluation.statistics import tasks_needed
from manyway.methods import METHODS
from manyway.plots.figures import SYMBOL, Figure, cannot_draw
from manyway.plots.svg import panel_svg, sample_svg


def make_report(views: Sequence[View], metrics: Sequence[str | None] = (None,)) -> str:
    """The report of some plans, as the text of an HTML file; with other metrics than the suites' if some are given."""
    for metric in filter(None, metrics):
        find_summary(metric)  # an unknown metric is an error
    records = list({record.key: record for view in views for record in view.records}.values())
    known = [name for name in METHODS if any(record.method == name for record in records)]
    methods = [*known, *sorted({record.method for record in records} - set(known))]
    pages = [_run_page(view, f"figure-{n}", metrics) for n, view in enumerate(views)]
    pages += [_method_page(name, [record for record in records if record.method == name]) for name in methods]
    pages.append(_origin_page(records))
    environment = Environment(loader=PackageLoader("manyway.bench.show"), autoescape=True, undefined=StrictUndefined)
    environment.filters["symbols"] = _symbols
    script = environment.get_template("report.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("report.html").render(
        pages=pages,
        count=f"{len(records):,} experiments with {sum(record.n_tasks for record in records):,} tasks",
        date=now()[:10],
        script=Markup(script),
        script_hash=f"sha256-{digest}",
    )


def _page(kind: str, name: str, title: str, **content: Any) -> dict[str, Any]:
    """What the template expects of a page."""
    page = {"id": f"{kind}-{name}", "kind": kind, "title": title, "heading": title}
    return {**page, "about": [], "warnings": [], "tables": [], "figures": [], **content}


def _run_page(view: View, prefix: str, metrics: Sequence[str | None]) -> dict[str, Any]:
    heading, warnings = view.shown.title, []
    if view.missing:
        warnings.append(f"{view.missing} of {len(view.plan.experiments)} experiments have no result yet.")
    figures = [figure for metric in metrics for figure in make_figures(view, metric)]
    if figures and (reason := cannot_draw()):
        warnings.append(reason)
        figures = []
    tables = []
    for metric in metrics:
        try:
            tables += [_grid(grid, heading) for grid in make_grids(view, metric)]
        except InputError as error:  # other runs of the report may have this metric
            warnings.append(str(error))
    drawn = [_figure(figure, f"{prefix}-{n}", heading) for n, figure in enumerate(figures)]
    content = {"heading": heading, "warnings": warnings, "tables": tables, "figures": drawn}
    about = [view.shown.about] if view.shown.about else []
    return _page("run", view.plan.name, view.plan.name, about=about, **content)


def _grid(grid: Grid, heading: str) -> dict[str, Any]:
    rows = [
        [
            _cell(label),
            *(_cell(cell.words, "" if cell.mean is None else cell.mean, "best" if cell.best else "") for cell in cells),
        ]
        for label, cells in grid.rows
    ]
    head = [grid.corner, *(" · ".join(column) for column in grid.columns)]
    title = "" if grid.title == heading else grid.title
    return _table(head, rows, title=title, caption=grid.caption, note=grid.note, text={0})


def _figure(figure: Figure, prefix: str, heading: str) -> dict[str, Any]:
    marks = {label: dash for panel in figure.panels for label, _, dash in panel.verticals}
    if any(panel.identity for panel in figure.panels):
        marks["λ = |Q|"] = "dashed"
    notes = [f"{dash}: {label}" for label, dash in marks.items()] + ([f"band: {figure.band}"] if figure.band else [])
    styles = enumerate(figure.styles.items())
    return {
        "title": "" if figure.title == heading else figure.title,
        "caption": "; ".join([figure.caption, *notes]),
        # Markup that matplotlib made; an XML library wrote the names in it.
        "panels": [Markup(panel_svg(figure, n, f"{prefix}-{n}")) for n in range(len(figure.panels))],
        "legend": [(label, Markup(sample_svg(style, f"{prefix}-key-{n}"))) for n, (label, style) in styles],
    }


def _method_page(name: str, records: Sequence[Record]) -> dict[str, Any]:
    about, method = [], METHODS.get(name)
    if method is not None:
        usual = {key: value for key, value in method.defaults.items() if key != "with_objective"}  # changes no answer
        words = ", ".join(f"{key} = {'not set' if value is None else number(value)}" for key, value in usual.items())
        about = [f"{method.summary} Reference: {method.reference}."]
        about += [f"Name: {name}. Default parameters: {words or 'none'}."]
    head = ["Setting", "Parameters", "Tasks", "Accuracy %", "± 95 %", "Tasks for ± 0.2", "ms per task", "Device"]
    rows = []
    for record in records:
        if record.trace is not None:
            continue
        result = record.value("accuracy")
        needed = tasks_needed(result.deviation, 0.002) if result.deviation == result.deviation else None
        rate = 1000 * record.timing["seconds"] / record.n_tasks
        rows.append(
            [
                _cell(setting(record) + (" †" if record.old else "")),
                _cell(special_params(record) or "default"),
                _cell(f"{record.n_tasks:,}", record.n_tasks),
                _cell(f"{100 * result.mean:.2f}", result.mean),
                _cell(f"{100 * result.half:.2f}", result.half) if result.half == result.half else _cell(""),
                _cell("", "") if needed is None else _cell(f"{needed:,}", needed),
                _cell(f"{rate:.3g}", rate),
                _cell(record.provenance["device"]),
            ]
        )
    caption = "Time of the solver alone. Tasks for ± 0.2: the number of tasks that gives this 95 % interval, in points."
    note = OLD_NOTE if any(record.old for record in records) else ""
    tables = [_table(head, rows, caption=caption, note=note, text={0, 1, 7})] if rows else []
    return _page("method", name, method_title(name), about=about, tables=tables)


def _origin_page(records: Sequence[Record]) -> dict[str, Any]:
    head = ["Result", "Method", "Setting", "Features", "Seed", "Tasks", "Seconds", "Device", "Versions", "Finished"]
    rows = []
    for record in records:
        made = record.provenance
        rows.append(
            [
                _cell(record.key + (" †" if record.old else ""), record.key, "mono"),
                _cell(record.method),
                _cell(setting(record)),
                _cell(record.features["fingerprint"], kind="mono"),
                _cell(record.seed),
                _cell(f"{record.n_tasks:,}", record.n_tasks),
                _cell(f"{record.timing['seconds']:.2f}", record.timing["seconds"]),
                _cell(f"{made['device']} ({made['device_name']})"),
                _cell(", ".join(f"{name} {version}" for name, version in made["versions"].items())),
                _cell(record.timing["finished"]),
            ]
        )
    about = ["Where each result comes from. A result is stored as METHOD-RESULT.json in the folder records."]
    note = OLD_NOTE if any(record.old for record in records) else ""
    table = _table(head, rows, note=note, text={0, 1, 2, 3, 7, 8, 9})
    return _page("origin", "provenance", "Provenance", about=about, tables=[table])


def _table(head: Sequence[str], rows: Iterable[Any], **content: Any) -> dict[str, Any]:
    """What the template expects of a table; ``text`` are the columns that are not numbers."""
    return {"title": "", "caption": "", "note": "", "head": head, "rows": rows, **content}


def _cell(shown: object, value: object = None, kind: str = "") -> tuple[str, object, str]:
    """What a cell shows, what it is sorted by (by default what it shows), and its class."""
    return str(shown), shown if value is None else value, kind


def _symbols(text: str) -> Markup:
    """Text with the paper's symbols, such as K_eff, as HTML."""
    return Markup(SYMBOL.sub(r"\1<sub>\2</sub>", str(escape(text))))
