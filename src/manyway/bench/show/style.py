"""How a method looks in every plot: one colour, one marker and one dash each, so that colour is never the only sign.

Colours are those of Okabe and Ito with two of Tol's, which people with any common colour blindness can tell apart;
variants of a method share its colour and differ in dash and marker.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Style:
    colour: str
    marker: str  # as matplotlib names it
    dash: tuple[float, ...] = ()  # on, off, ... in points; empty is solid
    width: float = 1.8


_VERMILION, _BLUE, _GREEN, _ORANGE = "#D55E00", "#0072B2", "#009E73", "#E69F00"
_SKY, _PURPLE, _BLACK, _GREY = "#56B4E9", "#CC79A7", "#000000", "#767676"
_WINE, _INDIGO = "#882255", "#332288"

_STYLES = {
    "evidence": Style(_INDIGO, "<", width=2.6),
    "paddle": Style(_VERMILION, "o", width=2.6),
    "soft-kmeans": Style(_WINE, "s", (4, 2)),
    "paddle-pgd": Style(_INDIGO, "^", (1, 1.5)),
    "alpha-tim": Style(_BLUE, "D"),
    "tim": Style(_SKY, "v"),
    "tim-adm": Style(_SKY, ">", (4, 2)),
    "laplacianshot": Style(_GREEN, "P"),
    "bd-cspn": Style(_PURPLE, "X"),
    "pt-map": Style(_ORANGE, "*"),
    "ici": Style(_ORANGE, "h", (4, 2)),
    "baseline": Style(_BLACK, "s"),
    "baseline++": Style(_BLACK, "d", (4, 2)),
    "simpleshot": Style(_GREY, "p", (1, 1.5)),
}
_SPARE = [
    Style(colour, marker, dash)
    for marker, dash in (("o", (6, 2, 1, 2)), ("^", (2, 1)))
    for colour in (_BLUE, _GREEN, _PURPLE, _ORANGE, _SKY, _BLACK)
]


def style_of(name: str, place: int = 0) -> Style:
    """The style of a method; anything else gets one by its place among the lines."""
    return _STYLES.get(name) or _SPARE[place % len(_SPARE)]
