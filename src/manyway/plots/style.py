"""The colour, marker and dash of each method, the same in every plot.

Colour is never the only difference.

The colours are those of Okabe and Ito and two of Tol's: they can be told apart with all common
kinds of colour blindness. Variants of a method share its colour and differ in dash and marker.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

# No date and a fixed salt: the same results give the same file. Text stays text, so that it can be searched and edited.
SETTINGS: dict[Any, Any] = {"svg.hashsalt": "manyway", "svg.fonttype": "none"}
SETTINGS |= {"font.size": 9.5, "axes.spines.top": False, "axes.spines.right": False}
MARK: dict[str, Any] = {"color": "0.5", "linewidth": 1.2, "zorder": 1}  # a line that is no curve


class Style(NamedTuple):
    colour: str
    marker: str  # as matplotlib names it
    dash: tuple[float, ...] = ()  # on, off, ... in points; empty is solid
    width: float = 1.8

    @property
    def look(self) -> dict[str, Any]:
        """The style in matplotlib's words."""
        dash = (0, self.dash) if self.dash else "-"
        line = {"color": self.colour, "linewidth": self.width, "linestyle": dash}
        return {**line, "marker": self.marker, "markersize": 5}


_DATA = json.loads((resources.files("manyway.plots") / "styles.json").read_text("utf-8"))
_COLOURS: dict[str, str] = _DATA["colours"]


def _style(colour: str, marker: str, dash: Sequence[float] = (), *width: float) -> Style:
    return Style(_COLOURS[colour], marker, tuple(dash), *width)


METHOD_STYLES = {name: _style(*look) for name, look in _DATA["methods"].items()}
_OTHERS = itertools.product(
    (("o", (6, 2, 1, 2)), ("^", (2, 1))), ("blue", "green", "purple", "orange", "sky", "black")
)
_SPARE = [_style(colour, *look) for look, colour in _OTHERS]


def styles_of(lines: Mapping[str, str]) -> dict[str, Style]:
    """The style of each line by its label; ``lines`` has their names.

    A method has its own, others the spare ones.
    """
    spare = itertools.cycle(_SPARE)
    return {label: METHOD_STYLES.get(name) or next(spare) for label, name in lines.items()}
