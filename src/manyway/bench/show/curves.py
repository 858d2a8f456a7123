"""The curves of a plot, computed from stored results."""

from collections.abc import Sequence
from math import isnan
from typing import NamedTuple

from manyway.bench import Plot, Record
from manyway.bench.show.view import View, axis_title, context, grouped, old_note, undecided
from manyway.evaluation import find_summary
from manyway.plots import Curve, Figure, Panel


def make_figures(view: View, metric: str | None = None) -> list[Figure]:
    """The plots of a plan that have a result.

    A metric that is given replaces the suite's.
    """
    figures = []
    for plot in view.plots(metric):
        if plot.formulas:
            figures.append(_formulas(plot))
            continue
        needed = "accuracy" if plot.y == "best" else plot.y
        traced = plot.y == "criterion"
        records = [
            one
            for one in view.chosen(plot)
            if (one.trace is not None if traced else one.has(needed))
        ]
        if records:
            figures.append(_figure(view, plot, records))
    return figures


def _figure(view: View, plot: Plot, records: Sequence[Record]) -> Figure:
    panels = []
    of_panels = grouped(records, plot.panels)
    # Records that would share a point get separate lines, named by what they differ in.
    lines = [plot.lines, *undecided(records, [plot.lines, plot.x, plot.of, *plot.panels])]
    old = {
        names
        for names, of_line in grouped(records, lines).items()
        if any(record.old for record in of_line)
    }
    for place, of_panel in of_panels.items():
        title = ", ".join(
            view.label(axis, value) for axis, value in zip(plot.panels, place, strict=True)
        )
        curves: list[Curve] = []
        for names, of_line in grouped(of_panel, lines).items():
            label = view.name(of_line[0], lines) + (" †" if names in old else "")
            # The first line of a method has its style, further lines have others.
            first = all(curve.name != str(names[0]) for curve in curves)
            name = str(names[0]) if first else " ".join(map(str, names))
            curves.append(_curve(plot, label, name, of_line))
        verticals = _verticals(plot, of_panel, curves)
        panels.append(Panel(title, curves, verticals, plot.reference and plot.y == "best"))
    # The last panel axis runs along a row, those before it down the page.
    n_columns = len({place[-1:] for place in of_panels})
    shown = [plot.x, plot.of, *lines, *plot.panels]
    if plot.y == "criterion":
        y_label = "mean ‖w_new − w_old‖"
        band = ""
    elif plot.y == "best":
        y_label = f"best {axis_title(plot.of)}"
        band = "values not significantly worse (paired, p ≥ 0.05)"
    else:
        _, summary = find_summary(plot.y)
        y_label = f"{summary.title} (%)" if summary.percent else summary.title
        band = "95 % interval"
    caption = "; ".join(filter(None, [context(view, records, shown), old_note(records)]))
    return Figure(
        name=plot.name,
        title=plot.title or view.shown.title,
        caption=caption,
        x_label=axis_title(plot.x),
        y_label=y_label,
        panels=panels,
        n_columns=max(1, min(n_columns, 4)),
        log_x=plot.log,
        log_y=plot.y == "criterion",
        band=band,
    )


def _curve(plot: Plot, label: str, name: str, records: Sequence[Record]) -> Curve:
    if plot.y == "criterion":
        outcome = records[0].outcome
        return Curve(label, name, getattr(outcome, plot.x), outcome.criterion)
    xs: list[float] = []
    heights: list[_Height] = []
    for (x,), group in grouped(records, [plot.x]).items():
        if x is None:
            continue
        height = _best(plot.of, group) if plot.y == "best" else _value(group[0], plot.y)
        if isnan(height.y):
            continue
        xs.append(sum(x) / len(x) if isinstance(x, tuple) else x)  # the middle of a range of K_eff
        heights.append(height)
    return Curve(
        label,
        name,
        x=tuple(xs),
        y=tuple(height.y for height in heights),
        low=tuple(height.low for height in heights),
        high=tuple(height.high for height in heights),
    )


class _Height(NamedTuple):
    """A point of a curve, and its band."""

    y: float
    low: float
    high: float


def _value(record: Record, metric: str) -> _Height:
    result = record.value(metric)
    unit = 100 if find_summary(metric)[1].percent else 1
    half = 0.0 if result.half != result.half else result.half  # a single task has no interval
    return _Height(
        unit * result.mean,
        low=unit * (result.mean - half),
        high=unit * (result.mean + half),
    )


def _best(axis: str, records: Sequence[Record]) -> _Height:
    """The value of the axis with the highest accuracy, and the range of those near it.

    The range has the values that are not significantly worse.
    """
    records = [record for record in records if record.axis(axis) is not None]
    best = max(records, key=lambda record: sum(record.outcome.correct))
    as_good = [record.axis(axis) for record in records if not best.against(record).p < 0.05]
    return _Height(best.axis(axis), low=min(as_good), high=max(as_good))


def _verticals(
    plot: Plot, records: Sequence[Record], curves: Sequence[Curve]
) -> list[tuple[str, float, str]]:
    """λ = |Q| and the best λ, in a plot of a metric against λ."""
    if not plot.reference or plot.y in ("criterion", "best"):
        return []
    pick = min if find_summary(plot.y)[1].best == "low" else max
    sizes = sorted({record.task["n_query"] for record in records})
    axis = axis_title(plot.x)
    best = [float(curve.x[list(curve.y).index(pick(curve.y))]) for curve in curves if curve.y]
    return [
        *((f"{axis} = |Q|", float(n), "dashed") for n in sizes),
        *(("best", x, "dotted") for x in best),
    ]


def _formulas(plot: Plot) -> Figure:
    """Functions of the proportion of the first of two classes."""
    from scipy.special import entr

    p = [i / 200 for i in range(201)]
    entropy = [float(entr(value) + entr(1 - value)) for value in p]
    ends = [(0.0, 1.0), (1.0, 1.0)]
    name = "label cost: classes with a query"
    known = {
        "label-count": Curve(name, "baseline", p[1:-1], [2.0] * 199, markers=False, dots=ends),
        "entropy": Curve(
            "relaxation: −π ln π − (1−π) ln (1−π)", "paddle", p, entropy, markers=False
        ),
    }
    panel = Panel("", [known[name] for name in plot.formulas])
    return Figure(
        name=plot.name,
        title=plot.title,
        caption="two classes",
        x_label="proportion π of the first class",
        y_label="cost",
        panels=[panel],
        n_columns=1,
    )
