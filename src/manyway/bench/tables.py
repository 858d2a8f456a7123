"""Tables of stored results: for the terminal, Markdown, LaTeX and CSV.

The best of those who solved the same tasks is bold. It gets a star when it beats every other of them in a paired test
(two-sided t, p < 0.05 against each; asking all of them at once needs no correction).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from manyway.bench.figures import Table
from manyway.bench.statistics import accuracy, paired
from manyway.bench.store import Record
from manyway.bench.view import View, axis_title, context, grouped, undecided, values_of

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
        corner=" · ".join(axis_title(axis) for axis in row_axes),
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


def to_rich(grid: Grid, width: int) -> list[RenderableType]:
    """For a terminal of that width: columns that do not fit go into a table below, never into an ellipsis."""
    first = max(len(grid.corner), *(len(label) for label, _ in grid.rows)) + 2
    widths = [
        2 + max(*(len(line) for line in column), *(len(cells[i].words) for _, cells in grid.rows))
        for i, column in enumerate(grid.columns)
    ]
    stretches: list[list[int]] = [[]]
    for i, own in enumerate(widths):
        if stretches[-1] and first + own + sum(widths[j] for j in stretches[-1]) > width:
            stretches.append([])
        stretches[-1].append(i)
    shown: list[RenderableType] = [Text(grid.title, style="bold"), Text(grid.caption)]
    for stretch in stretches:
        table = RichTable(box=SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
        table.add_column(grid.corner, no_wrap=True)
        for i in stretch:
            table.add_column("\n".join(grid.columns[i]), justify="right", no_wrap=True)
        for label, cells in grid.rows:
            table.add_row(label, *(Text(cells[i].words, style="bold" if cells[i].best else "") for i in stretch))
        shown.append(table)
    return [*shown, Text(f"{grid.note}\n")]


def to_markdown(grid: Grid) -> str:
    """A pipe table with its caption."""
    lines = [f"**{grid.title}** ({grid.caption})", ""]
    lines.append(f"| {_pipe(grid.corner)} | " + " | ".join(_pipe(", ".join(column)) for column in grid.columns) + " |")
    lines.append("|:---|" + "---:|" * len(grid.columns))
    for label, cells in grid.rows:
        words = [f"**{_pipe(cell.words)}**" if cell.best else _pipe(cell.words) for cell in cells]
        lines.append(f"| {_pipe(label)} | " + " | ".join(words) + " |")
    return "\n".join([*lines, "", _pipe(grid.note), ""])


def to_latex(grid: Grid) -> str:
    """A booktabs table; the header's levels span the columns they are about."""
    depth = max(len(column) for column in grid.columns)
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_tex(grid.title)} ({_tex(grid.caption)}). {_tex(grid.note)}}}",
    ]
    lines += [rf"\begin{{tabular}}{{l{'c' * len(grid.columns)}}}", r"\toprule"]
    for level in range(depth):
        spans = _spans([column[: level + 1] for column in grid.columns])
        headers = [
            _tex(span[-1]) if width == 1 else rf"\multicolumn{{{width}}}{{c}}{{{_tex(span[-1])}}}"
            for span, width in spans
        ]
        corner = _tex(grid.corner) if level == depth - 1 else ""
        lines.append(" & ".join([corner, *headers]) + r" \\")
        if level < depth - 1:
            place, rules = 2, []
            for _, width in spans:
                rules.append(rf"\cmidrule(lr){{{place}-{place + width - 1}}}")
                place += width
            lines.append(" ".join(rules))
    lines.append(r"\midrule")
    for label, cells in grid.rows:
        entries = [rf"\textbf{{{_tex(cell.words)}}}" if cell.best else _tex(cell.words) for cell in cells]
        lines.append(" & ".join([_tex(label), *entries]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def to_csv(grid: Grid) -> str:
    """One line a row, mean and half interval in columns of their own."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([grid.corner, *(name for c in grid.columns for name in (", ".join(c), f"{', '.join(c)} ±"))])
    for label, cells in grid.rows:
        numbers = [("", cell.text) if cell.mean is None else (f"{cell.mean:.4f}", f"{cell.half:.4f}") for cell in cells]
        writer.writerow([label, *(value for pair in numbers for value in pair)])
    return out.getvalue()


def _spans(labels: Sequence[tuple[str, ...]]) -> list[tuple[tuple[str, ...], int]]:
    spans: list[tuple[tuple[str, ...], int]] = []
    for label in labels:
        if spans and spans[-1][0] == label:
            spans[-1] = label, spans[-1][1] + 1
        else:
            spans.append((label, 1))
    return spans


def _pipe(text: str) -> str:
    return text.replace("|", r"\|").replace("*", r"\*")


_TEX = {
    "K_eff": r"$K_{\mathrm{eff}}$",
    "|Q|": r"$|\mathbb{Q}|$",
    "w_new": r"$w_{\mathrm{new}}$",
    "w_old": r"$w_{\mathrm{old}}$",
    "\\": r"\textbackslash{}",
    **{char: rf"\{char}" for char in "%&#_${}"},
    **{
        char: rf"${tex}$"
        for char, tex in zip("±−‖λατ<>", (r"\pm", "-", r"\|", r"\lambda", r"\alpha", r"\tau", "<", ">"), strict=True)
    },
    "–": "--",
    "·": r"$\cdot$",
    "*": r"$^{*}$",
}
_TEX_PIECES = re.compile("|".join(re.escape(piece) for piece in _TEX))


def _tex(text: str) -> str:
    """Text that LaTeX prints as it is, the letters of the paper as mathematics.

    >>> print(_tex("K_eff = 5, 71.2 ± 0.3*, a_b"))
    $K_{\\mathrm{eff}}$ = 5, 71.2 $\\pm$ 0.3$^{*}$, a\\_b
    """
    return _TEX_PIECES.sub(lambda match: _TEX[match.group()], text)
