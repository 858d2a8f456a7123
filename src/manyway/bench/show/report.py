"""One self-contained HTML file of all results: tables that sort, curves with hover values, a page a method, provenance.

It opens from disk. Its security policy forbids every request, so nothing in it can ask the network for anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

from manyway.bench.show.compare import setting
from manyway.bench.show.curves import make_figures
from manyway.bench.show.svg import figure_html
from manyway.bench.show.tables import Grid, make_grids
from manyway.bench.show.view import View, number
from manyway.bench.store import Record, now
from manyway.evaluation.statistics import accuracy, tasks_needed
from manyway.methods import METHODS

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
Entry = tuple[str, object]  # what a cell shows, what it is sorted by


def make_report(views: Sequence[View]) -> str:
    """The report of some plans."""
    records = list({record.key: record for view in views for record in view.records}.values())
    methods = [name for name in METHODS if any(record.method == name for record in records)]
    methods += sorted({record.method for record in records} - set(methods))
    pages = [(f"run-{view.plan.name}", view.plan.name, _run_page(view)) for view in views]
    pages += [(f"method-{name}", _title(name), _method_page(name, records)) for name in methods]
    pages.append(("provenance", "Provenance", _provenance_page(records)))
    links = "".join(
        f"<div><span>{group}</span>"
        + "".join(f'<a href="#{escape(page)}">{escape(title)}</a>' for page, title, _ in pages if page.startswith(kind))
        + "</div>"
        for group, kind in (("Runs", "run-"), ("Methods", "method-"), ("Origin", "provenance"))
    )
    body = "".join(f'<section id="{escape(page)}">{content}</section>' for page, _, content in pages)
    tasks = sum(record.n_tasks for record in records)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>manyway: results</title>
<style>
{_asset("report.css")}</style>
</head>
<body>
<header><h1>Results of manyway</h1>
<p>{len(records)} experiments, {tasks:,} tasks solved. Written {now()[:10]}.</p></header>
<nav aria-label="Pages">{links}</nav>
<main>{body}</main>
<div id="tip" hidden></div>
<script>
{_asset("report.js")}</script>
</body>
</html>
"""


def _run_page(view: View) -> str:
    parts = [f"<h2>{_text(view.shown.title)}</h2>", f'<p class="about">{_text(view.shown.about)}</p>']
    if view.missing:
        parts.append(
            f'<p class="note">{view.missing} of {len(view.plan.experiments)} experiments have no result yet.</p>'
        )
    if view.records:
        parts += [_grid(grid, view.shown.title) for grid in make_grids(view)]
    parts += [figure_html(figure, view.shown.title) for figure in make_figures(view)]
    return "".join(parts)


def _grid(grid: Grid, page: str) -> str:
    head = [_header(grid.corner, text=True), *(_header(" · ".join(column)) for column in grid.columns)]
    rows = []
    for label, cells in grid.rows:
        row = [_cell(label, label, "text")]
        for cell in cells:
            value = _sortable(cell.text) if cell.mean is None else cell.mean
            row.append(_cell(cell.words, value, "best" if cell.best else ""))
        rows.append("".join(row))
    title = "" if grid.title == page else f"<h3>{_text(grid.title)}</h3>"
    return title + _table(grid.caption, head, rows) + f'<p class="note">{_text(grid.note)}</p>'


def _method_page(name: str, records: Sequence[Record]) -> str:
    method = METHODS.get(name)
    mine = [record for record in records if record.method == name]
    parts = [f"<h2>{escape(_title(name))}</h2>"]
    if method is not None:
        parts.append(f'<p class="about">{escape(method.summary)} {escape(method.reference)}.</p>')
        words = ", ".join(f"{key} = {number(value)}" for key, value in method.defaults.items())
        parts.append(f"<p><code>{escape(name)}</code>, parameters by default: <code>{escape(words)}</code></p>")
    head = ["Tasks are", "Parameters", "Tasks", "Accuracy %", "± 95 %", "Tasks for ± 0.2", "ms a task", "Device"]
    rows = []
    for record in mine:
        if record.trace is not None:
            continue
        result = accuracy(record.outcome["correct"], record.outcome["n_query"])
        needed = tasks_needed(result.deviation, 0.002) if result.deviation == result.deviation else 0
        rate = 1000 * record.timing["seconds"] / record.n_tasks
        entries: list[Entry] = [
            (setting(record), setting(record)),
            (_set(record) or "default", _set(record)),
            (f"{record.n_tasks:,}", record.n_tasks),
            (f"{100 * result.mean:.2f}", result.mean),
            (f"{100 * result.half:.2f}" if result.half == result.half else "", result.half),
            (f"{needed:,}", needed),
            (f"{rate:.3g}", rate),
            (record.provenance["device"], record.provenance["device"]),
        ]
        rows.append(_row(entries, text={0, 1, 7}))
    if rows:
        headers = [_header(title, text=i in (0, 1, 7)) for i, title in enumerate(head)]
        parts.append(_table("Solver time only; tasks for a 95 % interval of ± 0.2 points.", headers, rows))
    return "".join(parts)


def _provenance_page(records: Sequence[Record]) -> str:
    head = ["Result", "Method", "Tasks are", "Features", "Seed", "Tasks", "Seconds", "Device", "Versions", "Finished"]
    rows = []
    for record in records:
        made = record.provenance
        versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
        entries: list[Entry] = [
            (record.key, record.key),
            (record.method, record.method),
            (setting(record), setting(record)),
            (record.features["fingerprint"], record.features["fingerprint"]),
            (str(record.seed), record.seed),
            (f"{record.n_tasks:,}", record.n_tasks),
            (f"{record.timing['seconds']:.2f}", record.timing["seconds"]),
            (f"{made['device']} ({made['device_name']})", made["device"]),
            (versions, versions),
            (record.timing["finished"], record.timing["finished"]),
        ]
        rows.append(_row(entries, text={0, 1, 2, 3, 7, 8, 9}))
    headers = [_header(title, text=i in (0, 1, 2, 3, 7, 8, 9)) for i, title in enumerate(head)]
    about = "Every result with what it was made of. The file of a result is METHOD-RESULT.json in the folder records."
    return f'<h2>Provenance</h2><p class="about">{about}</p>' + _table("", headers, rows)


def _table(caption: str, head: Iterable[str], rows: Iterable[str]) -> str:
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    words = f"<caption>{_text(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll"><table>{words}<thead><tr>{"".join(head)}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _header(title: str, text: bool = False) -> str:
    return f'<th scope="col"{" class=text" if text else ""}><button type="button">{_text(title)}</button></th>'


def _row(entries: Sequence[Entry], text: set[int]) -> str:
    return "".join(_cell(shown, value, "text" if i in text else "") for i, (shown, value) in enumerate(entries))


def _cell(shown: str, value: object, kind: str) -> str:
    there = "" if value is None or value != value else str(value)
    named = f' class="{kind}"' if kind else ""
    return f'<td{named} data-value="{escape(there)}">{_text(shown)}</td>'


def _sortable(text: str) -> object:
    """The number at the end of a text, if it has one: '> 0.6' sorts as 0.6."""
    last = text.replace(",", "").split(" ")[-1]
    try:
        return float(last)
    except ValueError:
        return text or None


def _set(record: Record) -> str:
    known = METHODS[record.method].defaults if record.method in METHODS else {}
    special = {k: v for k, v in record.params.items() if v != (list(d) if isinstance(d := known.get(k), tuple) else d)}
    return ", ".join(f"{name} = {number(value)}" for name, value in special.items())


def _title(method: str) -> str:
    return METHODS[method].title if method in METHODS else method


def _text(words: str) -> str:
    return escape(words).replace("K_eff", "K<sub>eff</sub>")


def _asset(name: str) -> str:
    return resources.files("manyway.bench").joinpath("assets", name).read_text(encoding="utf-8")
