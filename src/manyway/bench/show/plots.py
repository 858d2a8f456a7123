"""Figures, drawn by matplotlib: files for papers (PNG, SVG, PDF), and SVG of single panels for the report."""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from manyway.bench.show.curves import Figure, Panel
from manyway.bench.show.style import Style, styles_of
from manyway.errors import InputError
from manyway.files.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Canvas

SYMBOL = re.compile(r"\b(K|w)_(eff|new|old)\b")  # symbols of the paper with a subscript
FORMATS = ("png", "svg", "pdf")
NEEDS_MATPLOTLIB = "Plots need matplotlib; install it with `pip install 'manyway[plot]'`."
# No date and a fixed salt: the same results give the same file. Text stays text, so that it can be searched and edited.
_DATES: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
_SETTINGS: dict[Any, Any] = {
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "manyway",
    "svg.fonttype": "none",
}
_MARK: dict[str, Any] = {"color": "0.5", "linewidth": 1.2, "zorder": 1}


def has_matplotlib() -> bool:
    """Whether figures can be drawn here."""
    return find_spec("matplotlib") is not None


def write_figures(
    figures: Sequence[Figure], folder: Path, prefix: str, formats: Sequence[str], inputs: Sequence[Path] = ()
) -> list[Path]:
    """Draw each figure into FOLDER/PREFIX-NAME.FORMAT; characters that could leave the folder become hyphens.

    Nothing is written over ``inputs`` (files, or folders with files), also not through a link.
    """
    for wanted in formats:
        if wanted not in FORMATS:
            raise InputError(f"Plots can be written as {', '.join(FORMATS)}, not as '{wanted}'.")
    paths: list[Path] = []
    for figure in figures:
        stem = re.sub(r"[^\w.+@ -]+", "-", f"{prefix}-{figure.name}").lstrip(".")[:100]
        if any(path.stem == stem for path in paths):
            stem = f"{stem}-{len(paths) + 1}"  # two plots of one suite may have the same name
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
    with _canvas(width, height) as canvas:
        axes = canvas.subplots(n_rows, n_columns, squeeze=False).flat
        legend: dict[str, Any] = {}
        for place, ax in enumerate(axes):
            if place >= len(figure.panels):
                ax.set_axis_off()
                continue
            legend = {**_draw_panel(ax, figure, figure.panels[place]), **legend}
            if place % n_columns:
                ax.set_ylabel("")
        words = f"{figure.caption}; band: {figure.band}" if figure.band else figure.caption
        caption = textwrap.fill(words, round(width * 14))
        canvas.suptitle(f"{_letters(figure.title)}\n{_letters(caption)}", fontsize=10)
        if len(legend) > 1 or not single:
            n_entries = max(1, min(4, len(legend), round(width * 11 / (max(map(len, legend)) + 8))))
            handles, labels = list(legend.values()), [_letters(label) for label in legend]
            look: dict[str, Any] = {"ncols": n_entries, "frameon": False, "handlelength": 3}
            canvas.legend(handles, labels, loc="outside lower center", **look)
        with atomic_write(path, inputs) as temporary:
            canvas.savefig(temporary, dpi=160, metadata=_DATES[path.suffix[1:]])


def panel_svg(figure: Figure, place: int, prefix: str) -> str:
    """One panel as SVG to put into an HTML page.

    Lines and bands are groups with ``data-line``, the number of their line in the legend. Every point has an invisible
    circle with its values in ``data-tip``. All ids begin with the prefix. Colours are custom properties
    (``var(--c-d55e00, #d55e00)``), so that a style sheet can change them on a dark background.
    """
    panel = figure.panels[place]
    order = list(styles_of(figure))
    with _canvas(*((4.8, 3.2) if len(figure.panels) == 1 else (4.2, 2.9))) as canvas:
        ax = canvas.subplots()
        _draw_panel(ax, figure, panel)
        root = _svg(canvas, prefix)
        for group in root.iter("g"):
            found = re.fullmatch(rf"{re.escape(prefix)}-(line|band|dots)-(\d+)", group.get("id", ""))
            if found:
                curve = panel.curves[int(found[2])]
                group.set("data-line", str(order.index(curve.label)))
                if found[1] == "line":
                    group.extend(_hits(canvas, ax, figure, panel, int(found[2])))
    words = ", ".join(filter(None, (figure.title, panel.title)))
    root.set("aria-label", _printable(f"{words}: {figure.y_label} against {figure.x_label}"))
    return ElementTree.tostring(root, encoding="unicode")


def sample_svg(style: Style, prefix: str) -> str:
    """The sample of a line for a legend in HTML."""
    from matplotlib.lines import Line2D

    with _canvas(0.4, 0.17) as canvas:
        canvas.set_layout_engine("none")
        canvas.add_artist(Line2D([0.05, 0.5, 0.95], [0.5] * 3, markevery=[1], **_look(style)))
        root = _svg(canvas, prefix)
    root.set("aria-hidden", "true")
    return ElementTree.tostring(root, encoding="unicode")


@contextmanager
def _canvas(width: float, height: float) -> Iterator[Canvas]:
    """A figure of that size in inches, with our settings while it is drawn and saved."""
    if not has_matplotlib():
        raise InputError(NEEDS_MATPLOTLIB)
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a script that the font lacks is drawn as boxes
        yield Canvas(figsize=(width, height), layout="constrained")


def _draw_panel(ax: Axes, figure: Figure, panel: Panel) -> dict[str, Any]:
    """Draw the curves of a panel; gives its legend."""
    styles, legend = styles_of(figure), {}
    for n, curve in enumerate(panel.curves):
        style = styles[curve.label]
        look = _look(style) if curve.markers and len(curve.x) < 60 else {**_look(style), "marker": None}
        (legend[curve.label],) = ax.plot(
            curve.x, curve.y, gid=f"line-{n}", zorder=3 if curve.name == "paddle" else 2, **look
        )
        if curve.dots:
            ax.plot(*zip(*curve.dots, strict=True), "o", color=style.colour, markersize=5, gid=f"dots-{n}")
        if curve.low:
            band = ax.fill_between(curve.x, curve.low, curve.high, color=style.colour, alpha=0.15, linewidth=0)
            band.set_gid(f"band-{n}")
    for label, x, dash in panel.verticals:
        legend.setdefault(label, ax.axvline(x, linestyle=dash, **_MARK))
    if panel.identity:
        values = [x for curve in panel.curves for x in curve.x]
        ends = min(values), max(values)
        legend["λ = |Q|"] = ax.plot(ends, ends, linestyle="dashed", **_MARK)[0]
    ax.set_title(_letters(panel.title), fontsize=9.5)
    ax.set_xlabel(_letters(figure.x_label))
    ax.set_ylabel(_letters(figure.y_label))
    ax.set_xscale("log" if figure.log_x else "linear")
    ax.set_yscale("log" if figure.log_y else "linear")
    whole = all(float(x).is_integer() for curve in panel.curves for x in curve.x)
    _set_ticks(ax.xaxis, figure.log_x, whole)
    _set_ticks(ax.yaxis, figure.log_y)
    ax.grid(color="0.5", alpha=0.25, linewidth=0.6)
    return legend


def _set_ticks(axis: Axis, log: bool, whole: bool = False) -> None:
    """Choose round numbers: 1, 2, 5, 10, … on a short logarithmic scale, whole numbers where all values are."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    if not log:
        axis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10], integer=whole))
        return
    axis.set_minor_formatter(NullFormatter())
    low, high = axis.get_view_interval()
    if high < 500 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")


def _look(style: Style) -> dict[str, Any]:
    """A style in matplotlib's words."""
    return {
        "color": style.colour,
        "marker": style.marker,
        "markersize": 5,
        "linewidth": style.width,
        "linestyle": (0, style.dash) if style.dash else "-",
    }


def _svg(canvas: Canvas, prefix: str) -> ElementTree.Element:
    """A canvas as an SVG element that can stand in an HTML page beside others."""
    file = io.StringIO()
    canvas.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(file.getvalue())
    # The style sheet would hold for the whole page; the metadata name addresses on the web.
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for name, value in list(element.attrib.items()):
            del element.attrib[name]
            if name == "style":
                value = re.sub(r"#([0-9a-f]{6})", r"var(--c-\1, #\1)", value)
            value = re.sub(r"^#|(?<=url\()#", f"#{prefix}-", value)
            element.set(name.rpartition("}")[2], f"{prefix}-{value}" if name == "id" else value)
    for name in ("width", "height", "version"):
        del root.attrib[name]
    root.set("role", "img")
    return root


def _hits(canvas: Canvas, ax: Axes, figure: Figure, panel: Panel, n: int) -> Iterator[ElementTree.Element]:
    """An invisible circle on every point of a curve, with its values."""
    curve = panel.curves[n]
    width, height = canvas.get_size_inches() * 72
    for i, point in enumerate(zip(curve.x, curve.y, strict=True)):
        x, y = canvas.transFigure.inverted().transform(ax.transData.transform(point))
        if not (0 <= x <= 1 and 0 <= y <= 1):  # not a number, or zero on a logarithmic scale
            continue
        shown = f"{point[1]:.2e}" if figure.log_y else f"{point[1]:.2f}"
        if curve.low and curve.low[i] < curve.high[i]:
            shown += f" [{curve.low[i]:.2f}, {curve.high[i]:.2f}]"
        tip = _printable(f"{curve.label}: {shown} at {figure.x_label} = {point[0]:.4g}")
        place = {"cx": f"{x * width:.1f}", "cy": f"{(1 - y) * height:.1f}", "r": "6"}
        yield ElementTree.Element("circle", {"class": "hit", **place, "data-tip": tip})


def _letters(text: str) -> str:
    """Text as it is, but for the symbols of the paper, which become matplotlib's mathematics.

    >>> _letters("K_eff of a$b$")
    '$K_\\\\mathrm{eff}$ of a\\\\$b\\\\$'
    """
    text = _printable(text).replace("$", r"\$")
    return SYMBOL.sub(r"$\1_\\mathrm{\2}$", text)


def _printable(text: str) -> str:
    """Without the characters that XML does not allow."""
    return re.sub(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
