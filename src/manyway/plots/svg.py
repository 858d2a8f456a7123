"""Single panels and samples of lines as SVG for the report, an HTML page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from manyway.plots.figures import Figure, Panel, canvas_of, draw_panel, printable
from manyway.plots.style import Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas


def panel_svg(figure: Figure, place: int, prefix: str) -> str:
    """One panel as SVG to put into an HTML page.

    Lines and bands are groups with ``data-line``, the number of their line in the legend. Every
    point has an invisible circle with its values in ``data-tip``. All ids begin with the prefix.
    Colours are custom properties (``var(--c-d55e00, #d55e00)``), so that a style sheet can change
    them on a dark background.
    """
    panel = figure.panels[place]
    order = list(figure.styles)
    with canvas_of(*((4.8, 3.2) if len(figure.panels) == 1 else (4.2, 2.9))) as canvas:
        ax = canvas.subplots()
        draw_panel(ax, figure, panel)
        root = _svg(canvas, prefix)
        for group in root.iter("g"):
            found = re.fullmatch(
                rf"{re.escape(prefix)}-(line|band|dots)-(\d+)", group.get("id", "")
            )
            if found:
                group.set("data-line", str(order.index(panel.curves[int(found[2])].label)))
                if found[1] == "line":
                    group.extend(_hits(canvas, ax, figure, panel, int(found[2])))
    words = ", ".join(filter(None, (figure.title, panel.title)))
    root.set("aria-label", printable(f"{words}: {figure.y_label} against {figure.x_label}"))
    return ElementTree.tostring(root, encoding="unicode")


def sample_svg(style: Style, prefix: str) -> str:
    """The sample of a line for a legend in HTML."""
    with canvas_of(0.4, 0.17) as canvas:
        from matplotlib.lines import Line2D

        canvas.set_layout_engine("none")
        canvas.add_artist(Line2D([0.05, 0.5, 0.95], [0.5] * 3, markevery=[1], **style.look))
        root = _svg(canvas, prefix)
    root.set("aria-hidden", "true")
    return ElementTree.tostring(root, encoding="unicode")


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
            value = (
                re.sub(r"#([0-9a-f]{6})", r"var(--c-\1, #\1)", value) if name == "style" else value
            )
            value = re.sub(r"^#|(?<=url\()#", f"#{prefix}-", value)
            element.set(name.rpartition("}")[2], f"{prefix}-{value}" if name == "id" else value)
    for name in ("width", "height", "version"):
        del root.attrib[name]
    root.set("role", "img")
    return root


def _hits(
    canvas: Canvas, ax: Axes, figure: Figure, panel: Panel, n: int
) -> Iterator[ElementTree.Element]:
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
        tip = printable(f"{curve.label}: {shown} at {figure.x_label} = {point[0]:.4g}")
        place = {"cx": f"{x * width:.1f}", "cy": f"{(1 - y) * height:.1f}", "r": "6"}
        yield ElementTree.Element("circle", {"class": "hit", **place, "data-tip": tip})
