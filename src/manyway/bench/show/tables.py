"""Tables of stored results.

The best of the results on the same tasks is bold. In tables of accuracy it gets a star when it beats each of the others
in a paired test (two-sided t, p < 0.05 for each; requiring all of them at once needs no correction).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

from manyway.bench.presentation import Table
from manyway.bench.show.view import View, axis_title, context, grouped, has_metric, undecided, values_of
from manyway.bench.store import Record
from manyway.errors import InputError
from manyway.evaluation.metrics import Summary, find_summary
from manyway.evaluation.statistics import paired

ABSENT = "–"
OLD_NOTE = "†: made by an earlier version of the method; run the suite again to update it."


@dataclass(frozen=True)
class Cell:
    """One entry: a mean with its half interval, in the unit of the table; a text is shown in its place."""

    mean: float | None = None
    half: float = float("nan")
    best: bool = False
    star: bool = False
    old: bool = False
    text: str = ""
    digits: int = 1

    @property
    def words(self) -> str:
        if self.mean is None or self.text:
            return self.text or ABSENT
        fine = self.digits if self.half >= 0.95 * 0.1**self.digits else self.digits + 1
        half = "" if self.half != self.half else f" ± {self.half:.{fine}f}"
        return f"{self.mean:.{self.digits}f}{half}{'*' if self.star else ''}{'†' if self.old else ''}"


@dataclass(frozen=True)
class Grid:
    """A table ready to be written."""

    title: str
    caption: str
    note: str
    corner: str
    columns: Sequence[tuple[str, ...]]  # one label per level of the header
    rows: Sequence[tuple[str, Sequence[Cell]]]


def make_grids(view: View, metric: str | None = None) -> list[Grid]:
    """The tables of a plan, with another metric than the suite's if one is given."""
    grids = []
    for table in view.tables(metric):
        records = view.chosen(table)
        traces = [record for record in records if record.trace is not None]
        others = [record for record in records if record.trace is None]
        if traces:
            grids.append(_trace_grid(view, table, traces))
        if others:
            grids.append(_grid(view, table, others))
    return grids


def _grid(view: View, table: Table, records: Sequence[Record]) -> Grid:
    _, summary = find_summary(table.metric)
    row_axes = [*table.rows, *undecided(records, [*table.rows, *table.columns])]
    # An axis with one value says nothing row by row or column by column: it goes into the caption.
    row_axes = [axis for axis in row_axes if len(values_of(records, axis)) > 1] or row_axes[:1]
    column_axes = [axis for axis in table.columns if len(values_of(records, axis)) > 1]
    rows, columns = grouped(records, row_axes), grouped(records, column_axes)
    best = _best(records, table.metric, summary)
    grid_rows = []
    for of_row in rows.values():
        mine = grouped(of_row, column_axes)
        cells = [_cell(mine[place][0], table.metric, summary, best) if place in mine else Cell() for place in columns]
        grid_rows.append((view.name(of_row[0], row_axes), cells))
    if all(cell.mean is None and not cell.text for _, cells in grid_rows for cell in cells):
        hint = f'add metrics = ["{table.metric}"] to the experiments of the suite and run it again.'
        raise InputError(f"No result of {view.plan.name} has the metric '{table.metric}'; {hint}")
    caption = context(view, records, [*row_axes, *column_axes])
    return Grid(
        title=table.title or view.shown.title,
        caption=caption if table.metric == "accuracy" else f"{summary.title}; {caption}",
        note=_note(table.metric, any(record.old for record in records)),
        corner=" · ".join(axis_title(axis) for axis in (row_axes if len(row_axes) < 4 else row_axes[:1])),
        columns=[
            tuple(view.label(axis, value) for axis, value in zip(column_axes, place, strict=True)) or (summary.title,)
            for place in columns
        ],
        rows=grid_rows,
    )


def _note(metric: str, old: bool) -> str:
    found, summary = find_summary(metric)
    note = f"{summary.title[0].upper()}{summary.title[1:]}{' in %' if summary.percent else ''} ± 95 % interval."
    if metric == "accuracy":
        note += " Bold: best on the same tasks; *: better than each of the others in a paired test (p < 0.05)."
    elif summary.best:
        note += " Bold: best on the same tasks."
    if found.may_be_undefined:
        note += " Tasks in which it is undefined are left out."
    return f"{note} {OLD_NOTE}" if old else note


def _trace_grid(view: View, table: Table, records: Sequence[Record]) -> Grid:
    """Iterations and seconds until the prototypes no longer move, and the accuracy then."""
    rows = []
    axes = ["method", *undecided(records, ["method"])]
    for record in records:
        outcome, reached = record.outcome, record.outcome["reached"]
        last = len(outcome["steps"]) - 1 if reached is None else outcome["steps"].index(reached)
        steps, seconds, criterion = (outcome[name][last] for name in ("steps", "seconds", "criterion"))
        cells = [
            Cell(steps, text=f"not in {steps:,}" if reached is None else f"{steps:,}"),
            Cell(seconds, text=f"{'> ' if reached is None else ''}{seconds:.2g}"),
            Cell(criterion, text=f"{criterion:.1e}"),
            Cell(100 * outcome["correct"][last] / outcome["n_query"], old=record.old),
        ]
        rows.append((view.name(record, axes), cells))
    tol = (records[0].trace or {})["tol"]
    columns = [(f"iterations to {tol:g}",), (f"seconds to {tol:g}",), ("criterion",), ("accuracy",)]
    note = "Criterion: mean over classes of ‖w_new − w_old‖. Seconds of the solver alone on one task, one thread."
    note += f" {OLD_NOTE}" if any(record.old for record in records) else ""
    return Grid(table.title or view.shown.title, context(view, records, axes), note, "Method", columns, rows)


def _best(records: Sequence[Record], metric: str, summary: Summary) -> dict[str, bool]:
    """Keys of the best records on each stream of tasks -> whether they beat each of the others significantly."""
    streams: dict[str, list[Record]] = {}
    for record in records:
        if has_metric(record, metric) and not isnan(record.value(metric).mean):
            streams.setdefault(f"{record.stream} {record.n_tasks}", []).append(record)
    best = {}
    for group in streams.values():
        if len(group) < 2 or summary.best is None:
            continue
        sign = -1 if summary.best == "high" else 1
        first, *others = sorted(group, key=lambda record: sign * record.value(metric).mean)
        n_query, top = first.n_query, first.value(metric).mean
        ahead = metric == "accuracy" and all(
            test.p < 0.05 and test.difference.mean > 0
            for test in (paired(first.outcome["correct"], other.outcome["correct"], n_query) for other in others)
        )
        best.update({record.key: ahead for record in group if record.value(metric).mean == top})
    return best


def _cell(record: Record, metric: str, summary: Summary, best: dict[str, bool]) -> Cell:
    if not has_metric(record, metric):
        return Cell()
    result, unit = record.value(metric), 100 if summary.percent else 1
    if isnan(result.mean):
        return Cell(text="undefined")
    return Cell(
        unit * result.mean,
        unit * result.half,
        best=record.key in best,
        star=best.get(record.key, False),
        old=record.old,
        digits=1 if summary.percent else 3,
    )
