"""Figures as inline SVG for the report: drawn here, so that they show without a script; a script adds hover values."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil, floor, isfinite, log10

from manyway.bench.show.curves import Curve, Figure, Panel
from manyway.bench.show.style import Style, style_of

_WIDTH, _HEIGHT = 400, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 26, 42
# Outlines of markers, in units of their radius.
_MARKERS = {
    "s": "M-.9-.9H.9V.9H-.9Z",
    "^": "M0-1.1 1 .8H-1Z",
    "v": "M0 1.1 1-.8H-1Z",
    ">": "M1.1 0-.8 1V-1Z",
    "<": "M-1.1 0 .8 1V-1Z",
    "D": "M0-1.2 1.2 0 0 1.2-1.2 0Z",
    "d": "M0-1.3.8 0 0 1.3-.8 0Z",
    "P": "M-.4-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
    "X": "M-1-.5-.5-1 0-.5.5-1 1-.5.5 0 1 .5.5 1 0 .5-.5 1-1 .5-.5 0Z",
    "*": "M0-1.3.35-.4 1.25-.4.5.15.8 1.1 0 .55-.8 1.1-.5.15-1.25-.4-.35-.4Z",
    "h": "M-.6-1H.6L1.1 0 .6 1H-.6L-1.1 0Z",
    "p": "M0-1.1 1.05-.3.65.95H-.65L-1.05-.3Z",
}


class Scale:
    """Numbers to places on a line, with round ticks."""

    def __init__(self, values: Sequence[float], start: float, end: float, log: bool, pad: float = 0.04) -> None:
        finite = [value for value in values if isfinite(value) and (value > 0 or not log)] or [0.1, 1.0]
        low, high = min(finite), max(finite)
        self._log, self._start, self._end = log, start, end
        a, b = (log10(low), log10(high)) if log else (low, high)
        if a == b:
            a, b = a - 0.5, b + 0.5
        self._a, self._b = a - pad * (b - a), b + pad * (b - a)

    def __call__(self, value: float) -> float | None:
        if not isfinite(value) or (self._log and value <= 0):
            return None
        place = log10(value) if self._log else value
        return self._start + (place - self._a) / (self._b - self._a) * (self._end - self._start)

    def ticks(self) -> list[tuple[float, str]]:
        """About five round numbers with their text."""
        if self._log and self._b - self._a >= 1:
            powers = range(ceil(self._a), floor(self._b) + 1)
            every = max(1, ceil(len(powers) / 6))
            return [(10.0**power, f"1e{power}" if abs(power) > 2 else f"{10.0**power:g}") for power in powers[::every]]
        a, b = (10**self._a, 10**self._b) if self._log else (self._a, self._b)
        step = nice_step((b - a) / 5)
        return [(i * step, f"{i * step:g}") for i in range(ceil(a / step), floor(b / step) + 1)]


def nice_step(about: float) -> float:
    """1, 2 or 5 times a power of ten, the first that is not below.

    >>> nice_step(0.3), nice_step(7), nice_step(1.2)
    (0.5, 10.0, 2.0)
    """
    power: float = 10.0 ** floor(log10(about))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= about * (1 - 1e-9))


def figure_html(figure: Figure, page: str = "") -> str:
    """The panels of a figure, its legend and its caption."""
    panels = "".join(_panel(figure, panel) for panel in figure.panels)
    styles: dict[str, Style] = {}
    for panel in figure.panels:
        for place, curve in enumerate(panel.curves):
            styles.setdefault(curve.label, style_of(curve.name, place))
    keys = "".join(
        f'<li><button type="button" data-line="{escape(label)}" aria-pressed="true">{_sample(style)} {escape(label)}'
        "</button></li>"
        for label, style in styles.items()
    )
    marks = {label: dash for panel in figure.panels for label, _, dash in panel.verticals}
    if any(panel.identity for panel in figure.panels):
        marks["λ = |Q|"] = "dashed"
    notes = [f"{dash}: {label}" for label, dash in marks.items()] + ([f"band: {figure.band}"] if figure.band else [])
    caption = escape("; ".join([figure.caption, *notes])).replace("K_eff", "K<sub>eff</sub>")
    title = "" if figure.title == page else f"<h4>{escape(figure.title)}</h4>"
    alone = " alone" if len(figure.panels) == 1 else ""
    return (
        f'<figure>{title}<div class="panels{alone}">{panels}</div><ul class="legend">{keys}</ul>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _panel(figure: Figure, panel: Panel) -> str:
    x_values = [x for curve in panel.curves for x in curve.x] + [x for _, x, _ in panel.verticals]
    y_values = [y for curve in panel.curves for y in (*curve.y, *curve.low, *curve.high)]
    x_values += [dot[0] for curve in panel.curves for dot in curve.dots]
    y_values += [dot[1] for curve in panel.curves for dot in curve.dots]
    x = Scale(x_values, _LEFT, _WIDTH - _RIGHT, figure.log_x)
    y = Scale(y_values + (x_values if panel.identity else []), _HEIGHT - _BOTTOM, _TOP, figure.log_y)
    parts = [f'<text class="title" x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="15">{_symbols(panel.title)}</text>']
    for value, text in x.ticks():
        place = x(value)
        parts.append(f'<line class="grid" x1="{place:.1f}" x2="{place:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>')
        parts.append(f'<text class="tick" x="{place:.1f}" y="{_HEIGHT - _BOTTOM + 15}">{text}</text>')
    for value, text in y.ticks():
        place = y(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{place:.1f}" y2="{place:.1f}"/>')
        parts.append(f'<text class="tick left" x="{_LEFT - 6}" y="{place:.1f}">{text}</text>')
    parts.append(
        f'<text class="axis" x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 8}">{_symbols(figure.x_label)}</text>'
    )
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    parts.append(f'<text class="axis" transform="translate(13 {middle}) rotate(-90)">{escape(figure.y_label)}</text>')
    for _, value, dash in panel.verticals:
        place = x(value)
        if place is not None:
            pattern = "6 4" if dash == "dashed" else "1.5 3"
            parts.append(
                f'<line class="mark" x1="{place:.1f}" x2="{place:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" '
                f'stroke-dasharray="{pattern}"/>'
            )
    if panel.identity:
        ends = [(x(value), y(value)) for value in (min(x_values), max(x_values))]
        parts.append(
            '<line class="mark" stroke-dasharray="6 4" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'.format(
                *ends[0], *ends[1]
            )
        )
    for place_in_legend, curve in enumerate(panel.curves):
        parts.append(_line(figure, curve, style_of(curve.name, place_in_legend), x, y))
    label = escape(f"{figure.title}, {panel.title}: {figure.y_label} against {figure.x_label}", quote=True)
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _line(figure: Figure, curve: Curve, style: Style, x: Scale, y: Scale) -> str:
    points = [(x(a), y(b)) for a, b in zip(curve.x, curve.y, strict=True)]
    dash = f' stroke-dasharray="{" ".join(map(str, style.dash))}"' if style.dash else ""
    parts = [f'<g data-line="{escape(curve.label)}" style="--c:{style.colour}">']
    if curve.low:
        around = [*zip(curve.x, curve.high, strict=True), *reversed([*zip(curve.x, curve.low, strict=True)])]
        outline = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in around)
        parts.append(f'<polygon class="band" points="{outline}"/>')
    for piece in _pieces(points):
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in piece)
        parts.append(f'<polyline class="line" points="{path}" stroke-width="{style.width}"{dash}/>')
    for dot in curve.dots:
        parts.append(f'<circle class="dot" r="3.4" cx="{x(dot[0]):.1f}" cy="{y(dot[1]):.1f}"/>')
    for i, (a, b) in enumerate(points):
        if a is None or b is None:
            continue
        value = f"{curve.y[i]:.2e}" if figure.log_y else f"{curve.y[i]:.2f}"
        half = f" [{curve.low[i]:.2f}, {curve.high[i]:.2f}]" if curve.low else ""
        tip = f"{curve.label}: {value}{half} at {figure.x_label} = {curve.x[i]:.4g}"
        shape = _marker(style.marker) if curve.markers else ""
        parts.append(
            f'<g class="point" transform="translate({a:.1f} {b:.1f})" data-tip="{escape(tip)}">{shape}'
            '<circle class="hit" r="8"/></g>'
        )
    return "".join([*parts, "</g>"])


def _symbols(text: str) -> str:
    low = 'K<tspan dy="3" font-size="8.5">eff</tspan>'
    return escape(text).replace("K_eff ", f'{low}<tspan dy="-3"> </tspan>').replace("K_eff", low)


def _pieces(points: Sequence[tuple[float | None, float | None]]) -> list[list[tuple[float, float]]]:
    """The stretches between gaps."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for a, b in points:
        if a is None or b is None:
            pieces.append([])
        else:
            pieces[-1].append((a, b))
    return [piece for piece in pieces if piece]


def _marker(name: str) -> str:
    return (
        f'<path class="dot" transform="scale(3.4)" d="{_MARKERS[name]}"/>'
        if name in _MARKERS
        else '<circle class="dot" r="3.4"/>'
    )


def _sample(style: Style) -> str:
    dash = f' stroke-dasharray="{" ".join(map(str, style.dash))}"' if style.dash else ""
    line = f'<line class="line" x1="1" x2="27" y1="6" y2="6" stroke-width="{style.width}"{dash}/>'
    marker = f'<g transform="translate(14 6)">{_marker(style.marker)}</g>'
    return f'<svg viewBox="0 0 28 12" class="sample" style="--c:{style.colour}">{line}{marker}</svg>'
