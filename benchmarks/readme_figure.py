"""Draw the figure of the README from the recorded results in docs/results/rivals.md.

    python -m benchmarks.readme_figure [--page docs/results/rivals.md] [--output docs/images/rivals.png]

Each item on its own by the nearest class mean and by logistic regression with a penalty chosen by cross-validation,
the correction of label shift by EM, and this package, on the same tasks. The figures are those of the first table of
the page, which ``python -m benchmarks.results`` fills; they are kept in the description of the picture, so that a test
can tell whether it is up to date.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import value_of
from benchmarks.results import cells_in
from manyway.errors import InputError
from manyway.files import atomic_write
from manyway.plots.style import METHOD_STYLES, SETTINGS

PAGE = Path("docs/results/rivals.md")
OUTPUT = Path("docs/images/rivals.png")
TABLE = "five of 50 classes present, 5 shots"
# The rows of the table that are shown: what they are to a reader, and the method whose colour they have.
SHOWN = {
    "SimpleShot": ("nearest class mean", "simpleshot"),
    "Logistic regression, chosen penalty": ("logistic regression", "baseline"),
    "Label shift": ("label-shift EM", "label-shift"),
    "Evidence": ("manyway", "evidence"),
}
SETS = {"CUB, ResNet-18": "birds", "CLINC150": "questions", "letters": "letters"}


class Accuracy(NamedTuple):
    """In %, with half of its 95 % interval."""

    mean: float
    half: float


Figures = Mapping[str, Mapping[str, Accuracy]]  # set of items -> method -> accuracy


def read_figures(page: str) -> Figures:
    """The figures of the table in a page, for the sets and methods that are shown.

    >>> row = "| Method | letters | CLINC150 | CUB, ResNet-18 |"
    >>> rows = [f"| {name} | 93.6 ± 2.4 | **96.3 ± 1.6** | 60.1 ± 4.4 |" for name in SHOWN]
    >>> read_figures("\\n".join([f"<!--table:{TABLE}-->", row, *rows, "<!--end-->"]))["CLINC150"]["Evidence"]
    Accuracy(mean=96.3, half=1.6)
    """
    cells = cells_in(page, TABLE)
    rows = {row[0]: row for row in cells}
    if not cells or not {*SHOWN} <= {*rows} or not {*SETS} <= {*cells[0]}:
        raise InputError(
            f"The page has no table '{TABLE}' with all methods and sets that are drawn."
        )
    figures: dict[str, dict[str, Accuracy]] = {}
    for name in SETS:
        at = cells[0].index(name)
        figures[name] = {method: _accuracy(rows[method][at]) for method in SHOWN}
    return figures


def _accuracy(cell: str) -> Accuracy:
    value = value_of(cell)
    if value is None or value.half is None:
        raise InputError(f"The cell {cell!r} holds no accuracy with its interval.")
    return Accuracy(value.mean, value.half)


def description(figures: Figures) -> str:
    """The figures as a text."""
    return json.dumps(figures)


def draw(figures: Figures, output: Path) -> None:
    """Draw them: a panel of bars per set of items."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    with pyplot.rc_context(SETTINGS):
        canvas, panels = pyplot.subplots(
            1, len(figures), figsize=(8.4, 1.9), sharey=True, layout="constrained"
        )
        for panel, (name, of_method) in zip(panels, figures.items(), strict=True):
            places = range(len(of_method))
            means = [one.mean for one in of_method.values()]
            colours = [METHOD_STYLES[SHOWN[method][1]].colour for method in of_method]
            panel.barh(
                places,
                means,
                xerr=[one.half for one in of_method.values()],
                color=colours,
                ecolor="0.35",
            )
            for place, mean in zip(places, means, strict=True):
                panel.text(
                    1.5, place, f"{mean:.1f} %", va="center", color="white", fontweight="bold"
                )
            panel.set_yticks(places, [SHOWN[method][0] for method in of_method])
            panel.set_xlim(0, 104)
            panel.set_title(SETS[name], loc="left")
        panels[0].invert_yaxis()
        canvas.supxlabel(
            "right labels in %, where 5 of 50 possible classes occur; 5 examples each", fontsize=9
        )
        with atomic_write(output) as temporary:
            canvas.savefig(
                temporary, format="png", dpi=160, metadata={"Description": description(figures)}
            )
        pyplot.close(canvas)


def main() -> None:
    """Draw the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    draw(read_figures(given.page.read_text("utf-8")), given.output)


if __name__ == "__main__":
    main()
