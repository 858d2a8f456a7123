"""Tables of stored results.

The best of those who solved the same tasks is bold. It gets a star when it beats every other of them in a paired test
(two-sided t, p < 0.05 against each; asking all of them at once needs no correction).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from manyway.bench.presentation import Table
from manyway.bench.show.view import View, axis_title, context, grouped, undecided, values_of
from manyway.bench.store import Record
from manyway.evaluation.statistics import accuracy, paired

ABSENT = "–"
NOTE = (
    "Accuracy in % ± 95 % interval. Bold: best on the same tasks; *: ahead of every other in a paired test (p < 0.05)."
)


@dataclass(frozen=True)
class Cell:
    """One entry; ``mean`` and ``half`` in points, or a text of its own."""

    mean: float | None = None
    half: float = float("nan")
    best: bool = False
    star: bool = False
    text: str = ""

    @property
    def words(self) -> str:
        if self.mean is None:
            return self.text or ABSENT
        half = "" if self.half != self.half else f" ± {self.half:.1f}" if self.half >= 0.095 else f" ± {self.half:.2f}"
        return f"{self.mean:.1f}{half}{'*' if self.star else ''}"


@dataclass(frozen=True)
class Grid:
    """A table ready to be written."""

    title: str
    caption: str
    note: str
    corner: str
    columns: Sequence[tuple[str, ...]]  # a label for each level of the header
    rows: Sequence[tuple[str, Sequence[Cell]]]


def make_grids(view: View) -> list[Grid]:
    """The tables of a plan; one of all axes when its suite names none."""
    grids = []
    for table in view.tables() or [Table(columns=("features", "shots", "k_eff"))]:
        records = view.chosen(table)
        traces = [record for record in records if record.trace is not None]
        if traces:
            grids.append(_trace_grid(view, table, traces))
        if len(traces) < len(records):
            grids.append(_grid(view, table, [record for record in records if record.trace is None]))
    return grids


def _grid(view: View, table: Table, records: Sequence[Record]) -> Grid:
    row_axes = [*table.rows, *undecided(records, [*table.rows, *table.columns])]
    # An axis with one value says nothing row by row or column by column: it goes into the caption.
    row_axes = [axis for axis in row_axes if len(values_of(records, axis)) > 1] or row_axes[:1]
    column_axes = [axis for axis in table.columns if len(values_of(records, axis)) > 1]
    rows, columns = grouped(records, row_axes), grouped(records, column_axes)
    best = _best(records)
    grid_rows = []
    for of_row in rows.values():
        mine = grouped(of_row, column_axes)
        label = view.name(of_row[0], row_axes)
        grid_rows.append((label, [_cell(mine[column][0], best) if column in mine else Cell() for column in columns]))
    return Grid(
        title=table.title or view.shown.title,
        caption=context(view, records, [*row_axes, *column_axes]),
        note=NOTE,
        corner=" · ".join(axis_title(axis) for axis in (row_axes if len(row_axes) < 4 else row_axes[:1])),
        columns=[
            tuple(view.label(axis, value) for axis, value in zip(column_axes, place, strict=True)) or ("accuracy",)
            for place in columns
        ],
        rows=grid_rows,
    )


def _trace_grid(view: View, table: Table, records: Sequence[Record]) -> Grid:
    """Steps and seconds until the prototypes stand still, and accuracy there."""
    rows = []
    axes = ["method", *undecided(records, ["method"])]
    for record in records:
        outcome = record.outcome
        reached = outcome["reached"]
        last = len(outcome["steps"]) - 1 if reached is None else outcome["steps"].index(reached)
        late = f"not in {outcome['steps'][-1]:,}"
        cells = [
            Cell(text=late if reached is None else f"{reached:,}"),
            Cell(text=f"> {outcome['seconds'][-1]:.2g}" if reached is None else f"{outcome['seconds'][last]:.2g}"),
            Cell(text=f"{outcome['criterion'][last]:.1e}"),
            Cell(100 * outcome["correct"][last] / outcome["n_query"]),
        ]
        rows.append((view.name(record, axes), cells))
    tol = (records[0].trace or {})["tol"]
    columns = [(f"iterations to {tol:g}",), (f"seconds to {tol:g}",), ("criterion",), ("accuracy",)]
    note = "Criterion: mean over classes of ‖w_new − w_old‖. Seconds of the solver alone on one task, one thread."
    return Grid(table.title or view.shown.title, context(view, records, axes), note, "Method", columns, rows)


def _best(records: Sequence[Record]) -> dict[str, bool]:
    """Key of the best record on each stream of tasks -> whether its lead over every other is significant."""
    streams: dict[str, list[Record]] = {}
    for record in records:
        streams.setdefault(f"{record.stream} {record.n_tasks}", []).append(record)
    best = {}
    for group in streams.values():
        if len(group) < 2:
            continue
        first, *others = sorted(group, key=lambda record: -sum(record.outcome["correct"]))
        n_query = first.outcome["n_query"]
        tests = [paired(first.outcome["correct"], other.outcome["correct"], n_query) for other in others]
        best[first.key] = all(test.p < 0.05 and test.difference.mean > 0 for test in tests)
    return best


def _cell(record: Record, best: dict[str, bool]) -> Cell:
    result = accuracy(record.outcome["correct"], record.outcome["n_query"])
    return Cell(100 * result.mean, 100 * result.half, record.key in best, best.get(record.key, False))
