"""An examination as one self-contained HTML file, with plots, and with pictures or texts where there are some.

The file opens from disk. Its content security policy forbids every request and every script.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from manyway.examination.report import BatchForecast, ClassForecast, Examination

_MOST_SUSPECTS = 60
_MOST_TWINS = 12
_OF_EACH_TWIN = 3
_MOST_TEXT = 280
_WIDTH = 420
_HEIGHT = 260
_LEFT = 44
_RIGHT = 14
_TOP = 18
_BOTTOM = 42
Picture = Callable[[int], bytes | None]  # a small JPEG of an example
Text = Callable[[int], str | None]


def make_page(
    found: Examination, title: str, *, picture: Picture | None = None, text: Text | None = None
) -> str:
    """The text of the page.

    Parameters
    ----------
    found : Examination
    title : str
        What the examples are called.
    picture : callable, optional
        Makes a small picture of an example: row -> JPEG, or None.
    text : callable, optional
        The text of an example, where examples are texts.
    """

    def shown(row: int) -> dict[str, Any]:
        data = None if picture is None else picture(row)
        words = None if text is None else text(row)
        name = found.names[row]
        return {
            "item": name,
            "caption": "" if words == name else name,  # a text may have no other name
            "picture": None if data is None else base64.b64encode(data).decode(),
            "text": words
            if words is None or len(words) <= _MOST_TEXT
            else f"{words[:_MOST_TEXT]}…",
        }

    environment = Environment(
        loader=PackageLoader("manyway.examination"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    suspects = [
        {
            **shown(one.row),
            "label": one.label,
            "looks_like": one.looks_like,
            "probability": _percent(one.probability),
        }
        for one in found.suspects[:_MOST_SUSPECTS]
    ]
    return environment.get_template("examine.html").render(
        title=title,
        sentences=found.sentences(),
        n_items=found.batches[0].n_items if found.batches else None,
        forecasts=Markup(forecast_svg(found.batches)) if found.batches else "",
        curves=Markup(curves_svg(found.batches)) if found.batches else "",
        suspects=suspects,
        suspects_left=max(0, len(found.suspects) - _MOST_SUSPECTS),
        twins=[_twins(found, shown, *pair) for pair in found.twins[:_MOST_TWINS]],
        copies=found.copies,
        classes=[_class_row(one) for one in found.classes],
    )


def _twins(
    found: Examination,
    shown: Callable[[int], dict[str, Any]],
    first: str,
    second: str,
    share: float,
) -> dict[str, Any]:
    """Two classes with examples of each, those that look mislabelled last."""
    suspected = {suspect.row for suspect in found.suspects}

    def some(name: str) -> list[dict[str, Any]]:
        rows = [row for row, label in enumerate(found.labels) if label == name]
        rows.sort(key=lambda row: row in suspected)
        return [shown(row) for row in rows[:_OF_EACH_TWIN]]

    return {
        "first": first,
        "second": second,
        "share": _percent(share),
        "of_first": some(first),
        "of_second": some(second),
    }


def _class_row(one: ClassForecast) -> dict[str, Any]:
    """A row of the table of classes."""
    confused = ", ".join(f"{other.name} ({_percent(other.share)})" for other in one.confused_with)
    return {
        "name": one.name,
        "n_examples": one.n_examples,
        "found": "one example cannot tell" if one.found is None else _percent(one.found),
        "width": 0 if one.found is None else round(100 * one.found),
        "confused": confused,
        "n_suspects": one.n_suspects,
    }


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def forecast_svg(batches: Sequence[BatchForecast]) -> str:
    """The expected share of right labels by the number of classes, with the interval of 90 % of batches."""
    step = (_WIDTH - _LEFT - _RIGHT) / len(batches)
    marks = []
    for place, batch in enumerate(batches):
        x = _LEFT + step * (place + 0.5)
        marks.append(
            f'<line class="line" x1="{x:.1f}" x2="{x:.1f}" y1="{_y(batch.low):.1f}" y2="{_y(batch.high):.1f}"/>'
        )
        marks.append(f'<circle class="mark" cx="{x:.1f}" cy="{_y(batch.accuracy):.1f}" r="5"/>')
        marks.append(
            f'<text x="{x + 9:.1f}" y="{_y(batch.accuracy) + 4:.1f}">{_percent(batch.accuracy)}</text>'
        )
        marks.append(_label(x, _HEIGHT - _BOTTOM + 18, str(batch.n_present)))
    return _plot(
        "Right labels by the number of classes in the batch", "classes in the batch", marks
    )


def curves_svg(batches: Sequence[BatchForecast]) -> str:
    """The learning curves: accuracy against the number of examples per class."""
    numbers = sorted({n for batch in batches for n, _ in (*batch.measured, *batch.further)})
    places = {
        n: _LEFT + 18 + (_WIDTH - _LEFT - _RIGHT - 60) * at / (len(numbers) - 1)
        for at, n in enumerate(numbers)
    }
    marks = [_label(x, _HEIGHT - _BOTTOM + 18, str(n)) for n, x in places.items()]
    for batch in batches:
        points = [(places[n], _y(accuracy)) for n, accuracy in (*batch.measured, *batch.further)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        marks.append(f'<polyline class="line" points="{path}"/>')
        for at, (x, y) in enumerate(points):
            kind = "mark" if at < len(batch.measured) else "hollow"
            marks.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>')
        x, y = points[-1]
        marks.append(f'<text x="{x + 7:.1f}" y="{y + 4:.1f}">{batch.n_present}</text>')
    return _plot(
        "Right labels by the number of examples, for each number of classes",
        "examples per class",
        marks,
    )


def _y(share: float) -> float:
    return _TOP + (1 - share) * (_HEIGHT - _TOP - _BOTTOM)


def _label(x: float, y: float, words: str) -> str:
    return f'<text class="soft" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{words}</text>'


def _plot(title: str, below: str, marks: Sequence[str]) -> str:
    """A plot of shares from 0 to 100 %; nothing in it comes from the user."""
    grid = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _y(share)
        grid.append(
            f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        grid.append(
            f'<text class="soft" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>'
        )
    named = _label((_LEFT + _WIDTH) / 2, _HEIGHT - 6, below)
    head = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{title}">'
    return "".join([head, *grid, named, *marks, "</svg>"])
