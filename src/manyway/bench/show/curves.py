"""The curves of a plot, worked out from stored results: the same numbers for matplotlib and for the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any

from manyway.bench.presentation import Plot
from manyway.bench.show.view import View, axis_title, context, grouped, undecided
from manyway.bench.store import Record
from manyway.evaluation.statistics import accuracy, paired


@dataclass(frozen=True)
class Curve:
    """Points in the order of x; ``low`` and ``high`` bound a band, empty without one."""

    label: str
    name: str  # what its style goes by
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    markers: bool = True
    dots: Sequence[tuple[float, float]] = ()  # single points beside the line


@dataclass(frozen=True)
class Panel:
    title: str
    curves: Sequence[Curve]
    verticals: Sequence[tuple[str, float, str]] = ()  # label, x, "dashed" or "dotted"
    identity: bool = False  # draw y = x


@dataclass(frozen=True)
class Figure:
    name: str
    title: str
    caption: str
    x_label: str
    y_label: str
    panels: Sequence[Panel]
    n_columns: int
    log_x: bool = False
    log_y: bool = False
    band: str = field(default="")  # what the band means


def make_figures(view: View) -> list[Figure]:
    """The plots of a plan whose records are there."""
    figures = []
    for plot in view.plots():
        if plot.formulas:
            figures.append(_formulas(plot))
            continue
        records = [record for record in view.chosen(plot) if (record.trace is not None) == (plot.y == "criterion")]
        if records:
            figures.append(_figure(view, plot, records))
    return figures


def _figure(view: View, plot: Plot, records: Sequence[Record]) -> Figure:
    panels = []
    n_columns = 0
    of_panels = grouped(records, plot.panels)
    # Records that would share a point are told apart by what they differ in: a line each.
    lines = [plot.lines, *undecided(records, [plot.lines, plot.x, plot.of, *plot.panels])]
    for place, of_panel in of_panels.items():
        title = ", ".join(view.label(axis, value) for axis, value in zip(plot.panels, place, strict=True))
        curves: list[Curve] = []
        for names, of_line in grouped(of_panel, lines).items():
            curves.append(_curve(plot, view.name(of_line[0], lines), _style_name(names, curves), of_line))
        panels.append(Panel(title, curves, _verticals(plot, of_panel, curves), plot.reference and plot.y == "best"))
    # The last panel axis runs along a row, those before it down the page.
    n_columns = len({place[-1:] for place in of_panels})
    shown = [plot.x, plot.of, *lines, *plot.panels]
    y_label = {"accuracy": "accuracy (%)", "criterion": "mean ‖w_new − w_old‖", "best": f"best {axis_title(plot.of)}"}
    band = {"accuracy": "95 % interval", "criterion": "", "best": "values not significantly worse (paired, p ≥ 0.05)"}
    return Figure(
        plot.name,
        plot.title or view.shown.title,
        context(view, records, shown),
        axis_title(plot.x),
        y_label[plot.y],
        panels,
        max(1, min(n_columns, 4)),
        log_x=plot.log,
        log_y=plot.y == "criterion",
        band=band[plot.y],
    )


def _style_name(names: Sequence[Any], others: Sequence[Curve]) -> str:
    """A method's own style for its first line; its further lines get spare ones."""
    name = str(names[0])
    return name if all(other.name != name for other in others) else " ".join(map(str, names))


def _curve(plot: Plot, label: str, name: str, records: Sequence[Record]) -> Curve:
    if plot.y == "criterion":
        outcome = records[0].outcome
        return Curve(label, name, outcome[plot.x], outcome["criterion"])
    points = []
    for (x,), group in grouped(records, [plot.x]).items():
        if x is not None:
            points.append((x, *(_best(plot.of, group) if plot.y == "best" else _accuracy(group[0]))))
    x, y, low, high = zip(*points, strict=True) if points else ((), (), (), ())
    return Curve(label, name, x, y, low, high)


def _accuracy(record: Record) -> tuple[float, float, float]:
    result = accuracy(record.outcome["correct"], record.outcome["n_query"])
    half = 0.0 if result.half != result.half else result.half  # a single task has no interval
    return 100 * result.mean, 100 * (result.mean - half), 100 * (result.mean + half)


def _best(axis: str, records: Sequence[Record]) -> tuple[float, float, float]:
    """The value of the axis with the highest accuracy, and the range of those that a test cannot tell from it."""
    records = [record for record in records if record.axis(axis) is not None]
    best = max(records, key=lambda record: sum(record.outcome["correct"]))
    n_query = best.outcome["n_query"]
    as_good = [
        record.axis(axis)
        for record in records
        if not paired(best.outcome["correct"], record.outcome["correct"], n_query).p < 0.05
    ]
    return best.axis(axis), min(as_good), max(as_good)


def _verticals(plot: Plot, records: Sequence[Record], curves: Sequence[Curve]) -> list[tuple[str, float, str]]:
    """λ = |Q| and the best λ, in a plot against λ."""
    if not plot.reference or plot.y != "accuracy":
        return []
    marks: list[tuple[str, float, str]] = []
    for n_query in sorted({record.task["n_query"] for record in records}):
        marks.append((f"{axis_title(plot.x)} = |Q|", float(n_query), "dashed"))
    for curve in curves:
        if curve.y:
            marks.append(("best", float(curve.x[list(curve.y).index(max(curve.y))]), "dotted"))
    return marks


def _formulas(plot: Plot) -> Figure:
    """Functions of the share of the first of two classes."""
    shares = [i / 200 for i in range(201)]
    known: dict[str, Curve] = {
        "label-count": Curve(
            "label cost: classes with a query",
            "baseline",
            shares[1:-1],
            [2.0] * (len(shares) - 2),
            markers=False,
            dots=[(0.0, 1.0), (1.0, 1.0)],
        ),
        "entropy": Curve(
            "relaxation: −π ln π − (1−π) ln (1−π)",
            "paddle",
            shares,
            [-_xlogx(share) - _xlogx(1 - share) for share in shares],
            markers=False,
        ),
    }
    panel = Panel("", [known[name] for name in plot.formulas])
    return Figure(plot.name, plot.title, "two classes", "share π of the first class", "cost", [panel], 1)


def _xlogx(value: float) -> float:
    return value * log(value) if value else 0.0
