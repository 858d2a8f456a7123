"""The colour, marker and dash of each method, the same in every plot. Colour is never the only difference.

The colours are those of Okabe and Ito and two of Tol's: they can be told apart with all common kinds of colour
blindness. Variants of a method share its colour and differ in dash and marker.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# No date and a fixed salt: the same results give the same file. Text stays text, so that it can be searched and edited.
SETTINGS: dict[Any, Any] = {"svg.hashsalt": "manyway", "svg.fonttype": "none"}
SETTINGS |= {"font.size": 9.5, "axes.spines.top": False, "axes.spines.right": False}
MARK: dict[str, Any] = {"color": "0.5", "linewidth": 1.2, "zorder": 1}  # a line that is no curve


@dataclass(frozen=True)
class Style:
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


_VERMILION, _BLUE, _GREEN, _ORANGE = "#D55E00", "#0072B2", "#009E73", "#E69F00"
_SKY, _PURPLE, _BLACK, _GREY = "#56B4E9", "#CC79A7", "#000000", "#767676"
_WINE, _INDIGO = "#882255", "#332288"

METHOD_STYLES = {
    "evidence": Style(_INDIGO, "<", width=2.6),
    "paddle": Style(_VERMILION, "o", width=2.6),
    "soft-kmeans": Style(_WINE, "s", (4, 2)),
    "paddle-pgd": Style(_INDIGO, "^", (1, 1.5)),
    "em-dirichlet": Style(_WINE, "3"),
    "hard-em-dirichlet": Style(_WINE, "4", (1, 1.5)),
    "unem": Style(_VERMILION, "+", (4, 2)),
    "alpha-tim": Style(_BLUE, "D"),
    "tim": Style(_SKY, "v"),
    "tim-adm": Style(_SKY, ">", (4, 2)),
    "laplacianshot": Style(_GREEN, "P"),
    "transclip": Style(_GREEN, "8", (4, 2)),
    "stata": Style(_GREEN, "H", (1, 1.5)),
    "moon": Style(_BLUE, "1", (4, 2)),
    "zlap": Style(_PURPLE, "2", (4, 2)),
    "bd-cspn": Style(_PURPLE, "X"),
    "pt-map": Style(_ORANGE, "*"),
    "ici": Style(_ORANGE, "h", (4, 2)),
    "label-shift": Style(_ORANGE, "|", (1, 1.5)),
    "oslo": Style(_GREY, "x", (4, 2)),
    "eol": Style(_GREY, ".", (2, 1)),
    "baseline": Style(_BLACK, "s"),
    "baseline++": Style(_BLACK, "d", (4, 2)),
    "simpleshot": Style(_GREY, "p", (1, 1.5)),
}
_SPARE = [
    Style(colour, marker, dash)
    for marker, dash in (("o", (6, 2, 1, 2)), ("^", (2, 1)))
    for colour in (_BLUE, _GREEN, _PURPLE, _ORANGE, _SKY, _BLACK)
]


def styles_of(lines: Mapping[str, str]) -> dict[str, Style]:
    """The style of each line by its label; ``lines`` has their names. A method has its own, others the spare ones."""
    spare = itertools.cycle(_SPARE)
    return {label: METHOD_STYLES.get(name) or next(spare) for label, name in lines.items()}
