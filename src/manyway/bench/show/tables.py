"""Tables of stored results.

The best of the results on the same tasks is bold. In tables of accuracy it gets a star when it
beats each of the others in a paired test (two-sided t, p < 0.05 for each; requiring all of them at
once needs no correction).
"""

from collections.abc import Sequence
from math import isnan
from typing import Any, NamedTuple

from manyway.bench import Record, TableSpec, value_in_words
from manyway.bench.show.view import (
    View,
    axis_title,
    axis_values,
    context,
    grouped,
    label,
    old_note,
    undecided,
)
from manyway.errors import InputError
from manyway.evaluation import find_summary

ABSENT = "–"


class Cell(NamedTuple):
    """One entry: a mean with its half interval, in the unit of the table.

    A text is shown in its place.
    """

    mean: float | None = None
    half: float = float("nan")
    best: bool = False
    star: bool = False
    old: bool = False
    text: str = ""
    digits: int = 1
    signed: bool = False  # a difference
    after: str = ""  # what follows the number

    @property
    def words(self) -> str:
        if self.text or self.mean is None:
            return self.text or ABSENT
        fine = self.digits if self.half >= 0.95 * 0.1**self.digits else self.digits + 1
        half = "" if isnan(self.half) else f" ± {self.half:.{fine}f}"
        return f"{self.number(self.mean)}{half}{'*' if self.star else ''}{'†' if self.old else ''}{self.after}"

    def number(self, value: float) -> str:
        """A number with the digits and the sign of the cell."""
        return f"{value:{'+' if self.signed else ''}.{self.digits}f}"


class Grid(NamedTuple):
    """A table ready to be written: the one value that every format takes."""

    title: str
    caption: str
    note: str
    corner: str
    columns: Sequence[tuple[str, ...]]  # one label per level of the header
    rows: Sequence[tuple[str, Sequence[Cell]]]


class Point(NamedTuple):
    """A record, seen by one metric."""

    record: Record
    metric: str

    def axis(self, name: str) -> Any:
        return self.metric if name == "metrics" else self.record.axis(name)


def make_grids(view: View, metric: str | None = None) -> list[Grid]:
    """The tables of a plan, with another metric than the suite's if one is given."""
    return [grid for table in view.tables(metric) for grid in grids_of(view, table)]


def grids_of(view: View, table: TableSpec) -> list[Grid]:
    """A table of a plan; traces have one of their own."""
    with_bests = view._replace(records=[*view.records, *_bests(view.records, table.best)])
    records = with_bests.chosen(table)
    traces = [record for record in records if record.trace is not None]
    others = [record for record in records if record.trace is None]
    grids = []
    if traces:
        grids.append(_trace_grid(view, table, traces))
    if others:
        grids.append(_grid(view, table, others))
    return grids


def _grid(view: View, table: TableSpec, records: Sequence[Record]) -> Grid:
    row_axes, column_axes = _axes(table, records)
    points = [Point(record, metric) for record in records for metric in table.metric]
    columns = grouped(points, column_axes)
    best = _best(records, table)
    rows = []
    for of_row in grouped(points, row_axes).values():
        by_column = grouped(of_row, column_axes)
        cells = []
        for place in columns:
            values = [_value(view, table, point, best) for point in by_column.get(place, [])]
            cells.append(_cell(values, table))
        rows.append((_row_name(view, row_axes, of_row[0]), cells))
    if all(cell.words == ABSENT for _, cells in rows for cell in cells):
        raise _nothing(view, table)
    title = find_summary(table.metric[0])[1].title
    caption = context(view, records, [*row_axes, *column_axes, *table.over])
    if "accuracy" not in table.metric and len(table.metric) == 1:
        caption = f"{title}; {caption}"
    named_axes = row_axes if len(row_axes) < 4 else row_axes[:1]

    def heads(place: tuple[Any, ...], record: Record) -> tuple[str, ...]:
        known = {"metrics", *record.axes}
        pairs = zip(column_axes, place, strict=True)
        words = tuple(view.label(axis, value) if axis in known else "" for axis, value in pairs)
        return words or (title,)

    return Grid(
        title=table.title or view.shown.title,
        caption=caption,
        note=_note(table, records),
        corner=" · ".join(map(axis_title, named_axes)),
        columns=[heads(place, of_column[0].record) for place, of_column in columns.items()],
        rows=rows,
    )


def _axes(table: TableSpec, records: Sequence[Record]) -> tuple[list[str], list[str]]:
    """The axes of the rows and those of the columns.

    One with a single value says nothing row by row or column by column: it goes into the caption.
    """

    def many(axis: str) -> bool:
        return len(table.metric if axis == "metrics" else axis_values(records, axis)) > 1

    shown = [*table.rows, *table.columns]
    row_axes = [*table.rows, *undecided(records, [*shown, *table.over, *table.minus])]
    column_axes = list(table.columns)
    if "metrics" not in shown:
        column_axes.append("metrics")
    return list(filter(many, row_axes)) or row_axes[:1], list(filter(many, column_axes))


def _row_name(view: View, axes: Sequence[str], point: Point) -> str:
    words = [view.name(point.record, [axis for axis in axes if axis != "metrics"])]
    if "metrics" in axes:
        words.append(label("metrics", point.metric))
    return " · ".join(filter(None, words))


def _nothing(view: View, table: TableSpec) -> InputError:
    """What to say of a table without a value."""
    if table.minus:
        return InputError(
            f"No result of {view.plan.name} has another one to subtract on the same tasks."
        )
    metrics = ", ".join(table.metric)
    return InputError(
        f"No result of {view.plan.name} has the metric '{metrics}'; "
        f'add metrics = ["{metrics}"] to the experiments of the suite and run it again.'
    )


def _value(view: View, table: TableSpec, point: Point, best: dict[tuple[str, str], bool]) -> Cell:
    """What one record says."""
    record = point.record
    _, summary = find_summary(point.metric)
    unit, digits = (100, 1) if summary.percent else (1, 3)
    cell = Cell(
        old=bool(record.old),
        digits=digits if table.digits is None else table.digits,
        signed=bool(table.minus),
    )
    if not record.has(point.metric):
        return Cell()
    if table.minus:
        other = _opposite(view.records, record, table.minus)
        if other is None:
            return Cell()
        result = record.against(other).difference
        named = " · ".join(view.label(axis, other.axis(axis)) for axis in table.minus)
        after = f" over {named}" if "best" in table.minus.values() else ""
        cell = cell._replace(old=bool(record.old or other.old), after=after)
    else:
        result = record.value(point.metric)
        ahead = best.get((record.key, point.metric))
        cell = cell._replace(best=ahead is not None, star=bool(ahead))
    if isnan(result.mean):
        return Cell(text="undefined")
    return cell._replace(
        mean=unit * result.mean, half=unit * result.half if table.interval else float("nan")
    )


def _cell(values: Sequence[Cell], table: TableSpec) -> Cell:
    """What stands at a place: the record there, or what the table says about all of them."""
    found = [cell for cell in values if cell.mean is not None]
    if not table.over or not found:
        return next(iter(found or values), Cell())
    numbers = [cell.mean for cell in found if cell.mean is not None]
    mean, low, high = (
        found[0].number(value)
        for value in (sum(numbers) / len(numbers), min(numbers), max(numbers))
    )
    old = any(cell.old for cell in found)
    return Cell(
        sum(numbers) / len(numbers), old=old, text=f"{mean} ({low} … {high}){'†' if old else ''}"
    )


def _note(table: TableSpec, records: Sequence[Record]) -> str:
    summaries = [find_summary(metric) for metric in table.metric]
    named = ", ".join(
        f"{summary.title}{' in %' if summary.percent else ''}" for _, summary in summaries
    )
    note = f"{named[0].upper()}{named[1:]}"
    if table.minus:
        than = ", ".join(f"{axis_title(axis)}: {value}" for axis, value in table.minus.items())
        note += f", difference to ({than}) on the same tasks"
    if table.over:
        note += f"; mean (lowest … highest) over {', '.join(map(axis_title, table.over))}"
    note += " ± 95 % interval." if table.interval and not table.over else "."
    if not table.minus and not table.over:
        if table.metric == ("accuracy",):
            note += (
                " Bold: best on the same tasks; *: "
                "better than each of the others in a paired test (p < 0.05)."
            )
        elif any(summary.best for _, summary in summaries):
            note += " Bold: best on the same tasks."
    if any(metric.may_be_undefined for metric, _ in summaries):
        note += " Tasks in which it is undefined are left out."
    return " ".join(filter(None, [note, old_note(records)]))


def _trace_grid(view: View, table: TableSpec, records: Sequence[Record]) -> Grid:
    """Iterations and seconds until the prototypes no longer move, and the accuracy then."""
    rows = []
    axes = ["method", *undecided(records, ["method"])]
    for record in records:
        outcome = record.outcome
        reached = record.outcome.reached
        last = len(outcome.steps) - 1 if reached is None else outcome.steps.index(reached)
        steps = outcome.steps[last]
        seconds = outcome.seconds[last]
        criterion = outcome.criterion[last]
        cells = [
            Cell(steps, text=f"not in {steps:,}" if reached is None else f"{steps:,}"),
            Cell(seconds, text=f"{'> ' if reached is None else ''}{seconds:.2g}"),
            Cell(criterion, text=f"{criterion:.1e}"),
            Cell(100 * outcome.correct[last] / outcome.n_query, old=bool(record.old)),
        ]
        rows.append((view.name(record, axes), cells))
    tol = (records[0].trace or {})["tol"]
    columns = [(f"iterations to {tol:g}",), (f"seconds to {tol:g}",), ("criterion",), ("accuracy",)]
    note = (
        "Criterion: mean over classes of ‖w_new − w_old‖. "
        "Seconds of the solver alone on one task, one thread."
    )
    note = " ".join(filter(None, [note, old_note(records)]))
    return Grid(
        title=table.title or view.shown.title,
        caption=context(view, records, axes),
        note=note,
        corner="Method",
        columns=columns,
        rows=rows,
    )


def _best(records: Sequence[Record], table: TableSpec) -> dict[tuple[str, str], bool]:
    """The best records on each stream of tasks, by key and metric.

    The value says whether they beat each other one significantly.
    """
    best = {}
    for metric in table.metric:
        better = find_summary(metric)[1].best
        if better is None:
            continue
        sign = 1 if better == "high" else -1
        streams: dict[str, list[tuple[float, Record]]] = {}
        for record in records:
            if record.has(metric) and not isnan(mean := record.value(metric).mean):
                group = streams.setdefault(f"{record.stream} {record.n_tasks}", [])
                group.append((sign * mean, record))
        for group in streams.values():
            if len(group) == 1:
                continue
            top = max(mean for mean, _ in group)
            first = next(record for mean, record in group if mean == top)
            tests = [
                first.against(other)
                for _, other in group
                if metric == "accuracy" and other is not first
            ]
            ahead = bool(tests) and all(
                test.p < 0.05 and test.difference.mean > 0 for test in tests
            )
            best.update({(record.key, metric): ahead for mean, record in group if mean == top})
    return best


def _bests(records: Sequence[Record], axis: str) -> list[Record]:
    """The most accurate of the records that differ in nothing but this parameter.

    Its value is called "best".
    """
    groups: dict[str, list[Record]] = {}
    for record in records:
        if axis in record.params:
            rest = {name: value for name, value in record.axes.items() if name != axis}
            groups.setdefault(f"{rest} {record.n_tasks} {record.seed}", []).append(record)
    tops = [
        max(group, key=lambda record: record.value().mean)
        for group in groups.values()
        if len(group) > 1
    ]
    return [top.model_copy(update={"params": {**top.params, axis: "best"}}) for top in tops]


def _opposite(records: Sequence[Record], record: Record, minus: dict[str, Any]) -> Record | None:
    """What is subtracted from a record: the same but for the named axes, on the same tasks."""

    def fits(other: Record) -> bool:
        same = {
            "method",
            "scorer",
            "reviewer",
            *(() if "method" in minus else ("version",)),
        } - minus.keys()
        if (
            other.trace
            or other.stream != record.stream
            or any(other.axis(one) != record.axis(one) for one in same)
        ):
            return False
        for axis, value in minus.items():
            fit = {
                "best": other.axis(axis) != record.axis(axis),
                "default": axis not in other.special,
            }
            if not fit.get(value, value_in_words(axis, other.axis(axis)) == value):
                return False
        ours, theirs = (
            {k: v for k, v in one.special_params.items() if k not in minus}
            for one in (record, other)
        )
        return "method" in minus or ours == theirs

    others = [other for other in records if fits(other)]
    if "best" in minus.values():
        return max(others, key=lambda other: other.value().mean, default=None)
    return min(others, key=lambda other: len(other.special), default=None)
