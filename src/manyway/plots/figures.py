"""Figures as values, and how they are drawn into files.

Panels of curves with one legend (PNG, SVG, PDF).
"""

from __future__ import annotations

import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from manyway.errors import InputError, optional, refusal
from manyway.files import atomic_write
from manyway.plots.style import MARK, SETTINGS, Style, styles_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Canvas

SYMBOL = re.compile(r"\b(K|w)_(eff|new|old)\b")  # symbols of the paper with a subscript
FORMATS = ("png", "svg", "pdf")
_DATES: dict[str, dict[str, Any]] = {
    "png": {},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


class Curve(NamedTuple):
    """Points in the order of x. ``low`` and ``high`` bound a band.

    They are empty where there is none.
    """

    label: str
    name: str  # decides its style
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    markers: bool = True
    dots: Sequence[tuple[float, float]] = ()  # single points that do not belong to the line


class Panel(NamedTuple):
    title: str
    curves: Sequence[Curve]
    verticals: Sequence[tuple[str, float, str]] = ()  # label, x, "dashed" or "dotted"
    identity: bool = False  # draw y = x


class Figure(NamedTuple):
    name: str
    title: str
    caption: str
    x_label: str
    y_label: str
    panels: Sequence[Panel]
    n_columns: int
    log_x: bool = False
    log_y: bool = False
    band: str = ""  # what the band means

    @property
    def styles(self) -> dict[str, Style]:
        """The style of each line by its label, the same in all panels and in the legend."""
        return styles_of(
            {curve.label: curve.name for panel in self.panels for curve in panel.curves}
        )


def cannot_draw() -> str:
    """Why nothing can be drawn here; '' where it can."""
    return refusal(optional, "matplotlib", "plot", "Plotting")


def write_figures(
    figures: Sequence[Figure],
    folder: Path,
    prefix: str,
    formats: Sequence[str],
    inputs: Sequence[Path] = (),
) -> list[Path]:
    """Draw each figure into FOLDER/PREFIX-NAME.FORMAT.

    Characters that could leave the folder become hyphens.

    Nothing is written over ``inputs`` (files, or folders with files), also not through a link.
    """
    for wanted in formats:
        if wanted not in FORMATS:
            raise InputError(f"Plots can be written as {', '.join(FORMATS)}, not as '{wanted}'.")
    paths: list[Path] = []
    for figure in figures:
        stem = re.sub(r"[^\w.+@ -]+", "-", f"{prefix}-{figure.name}").lstrip(".")[:100]
        if any(path.stem == stem for path in paths):
            stem = f"{stem}-{len(paths) + 1}"
        for suffix in formats:
            paths.append(folder / f"{stem}.{suffix}")
            draw(figure, paths[-1], inputs)
    return paths


def draw(figure: Figure, path: Path, inputs: Sequence[Path] = ()) -> None:
    """Draw all panels of a figure, with one legend, into a file."""
    n_columns = min(figure.n_columns, len(figure.panels))
    n_rows = ceil(len(figure.panels) / n_columns)
    single = len(figure.panels) == 1
    width, height = (5.6, 3.9) if single else (3.3 * n_columns, 2.9 * n_rows + 0.5)
    with canvas_of(width, height) as canvas:
        axes = canvas.subplots(n_rows, n_columns, squeeze=False).flat
        legend: dict[str, Any] = {}
        for place, ax in enumerate(axes):
            if place >= len(figure.panels):
                ax.set_axis_off()
                continue
            legend = {**draw_panel(ax, figure, figure.panels[place]), **legend}
            if place % n_columns:
                ax.set_ylabel("")
        words = f"{figure.caption}; band: {figure.band}" if figure.band else figure.caption
        caption = textwrap.fill(words, round(width * 14))
        canvas.suptitle(f"{_letters(figure.title)}\n{_letters(caption)}".strip(), fontsize=10)
        if len(legend) > 1 or not single:
            n_entries = max(1, min(4, len(legend), round(width * 11 / (max(map(len, legend)) + 8))))
            handles = list(legend.values())
            labels = [_letters(label) for label in legend]
            look: dict[str, Any] = {"ncols": n_entries, "frameon": False, "handlelength": 3}
            canvas.legend(handles, labels, loc="outside lower center", **look)
        with atomic_write(path, inputs) as temporary:
            canvas.savefig(temporary, dpi=160, metadata=_DATES[path.suffix[1:]])


@contextmanager
def canvas_of(width: float, height: float) -> Iterator[Canvas]:
    """A canvas of that size in inches, with our settings while it is drawn and saved."""
    mpl = optional("matplotlib", "plot", "Plotting")
    from matplotlib.figure import Figure as Canvas

    with mpl.rc_context(SETTINGS), warnings.catch_warnings():
        # a script that the font lacks is drawn as boxes
        warnings.filterwarnings("ignore", message="Glyph")
        yield Canvas(figsize=(width, height), layout="constrained")


def draw_panel(ax: Axes, figure: Figure, panel: Panel) -> dict[str, Any]:
    """Draw the curves of a panel; gives its legend.

    Groups of an SVG file are named after the number of the curve.
    """
    styles = figure.styles
    legend = {}
    for n, curve in enumerate(panel.curves):
        style = styles[curve.label]
        look = style.look if curve.markers and len(curve.x) < 60 else {**style.look, "marker": None}
        above = 3 if curve.name == "paddle" else 2
        (legend[curve.label],) = ax.plot(curve.x, curve.y, gid=f"line-{n}", zorder=above, **look)
        if curve.dots:
            ax.plot(
                *zip(*curve.dots, strict=True),
                "o",
                color=style.colour,
                markersize=5,
                gid=f"dots-{n}",
            )
        if curve.low:
            band = ax.fill_between(
                curve.x, curve.low, curve.high, color=style.colour, alpha=0.15, linewidth=0
            )
            band.set_gid(f"band-{n}")
    for label, x, dash in panel.verticals:
        legend.setdefault(label, ax.axvline(x, linestyle=dash, **MARK))
    if panel.identity:
        values = [x for curve in panel.curves for x in curve.x]
        ends = min(values), max(values)
        legend["λ = |Q|"] = ax.plot(ends, ends, linestyle="dashed", **MARK)[0]
    ax.set_title(_letters(panel.title), fontsize=9.5)
    ax.set(xlabel=_letters(figure.x_label), ylabel=_letters(figure.y_label))
    ax.set(xscale="log" if figure.log_x else "linear", yscale="log" if figure.log_y else "linear")
    whole = all(float(x).is_integer() for curve in panel.curves for x in curve.x)
    _set_ticks(ax.xaxis, figure.log_x, whole)
    _set_ticks(ax.yaxis, figure.log_y)
    ax.grid(color="0.5", alpha=0.25, linewidth=0.6)
    return legend


def _set_ticks(axis: Axis, log: bool, whole: bool = False) -> None:
    """Choose round numbers.

    They are 1, 2, 5, 10, … on a short logarithmic scale, and whole numbers where all values are.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    if not log:
        axis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10], integer=whole))
        return
    axis.set_minor_formatter(NullFormatter())
    low, high = axis.get_view_interval()
    if high < 500 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")


def _letters(text: str) -> str:
    """Text as it is, but for the symbols of the paper, which become matplotlib's mathematics.

    >>> _letters("K_eff of a$b$")
    '$K_\\\\mathrm{eff}$ of a\\\\$b\\\\$'
    """
    text = printable(text).replace("$", r"\$")
    return SYMBOL.sub(r"$\1_\\mathrm{\2}$", text)


def printable(text: str) -> str:
    """Without the characters that XML does not allow."""
    return re.sub(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
