"""Figures as PNG, SVG or PDF, with matplotlib."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

from manyway.bench.show.curves import Figure
from manyway.bench.show.style import style_of
from manyway.data.files import atomic_write
from manyway.errors import InputError

FORMATS = ("png", "svg", "pdf")


def write_figures(figures: Sequence[Figure], folder: Path, prefix: str, formats: Sequence[str]) -> list[Path]:
    """Draw each figure into FOLDER/PREFIX-NAME.FORMAT."""
    for wanted in formats:
        if wanted not in FORMATS:
            raise InputError(f"Plots can be written as {', '.join(FORMATS)}, not as '{wanted}'.")
    paths = []
    for figure in figures:
        for suffix in formats:
            path = folder / f"{prefix}-{figure.name}.{suffix}"
            draw(figure, path)
            paths.append(path)
    return paths


def draw(figure: Figure, path: Path) -> None:
    """Draw one figure into a file."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise InputError("Plots need matplotlib; install it with `pip install manyway[plot]`.") from error

    n_columns = min(figure.n_columns, len(figure.panels))
    n_rows = ceil(len(figure.panels) / n_columns)
    single = len(figure.panels) == 1
    # A hash salt and no date: the same results give the same file.
    with mpl.rc_context(
        {"font.size": 9.5, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "manyway"}
    ):
        width, height = (5.6, 3.9) if single else (3.3 * n_columns, 2.9 * n_rows + 0.5)
        canvas = Canvas(figsize=(width, height), layout="constrained")
        axes = canvas.subplots(n_rows, n_columns, squeeze=False)
        legend: dict[str, Any] = {}
        for place, ax in enumerate(axes.flat):
            if place >= len(figure.panels):
                ax.set_axis_off()
                continue
            panel = figure.panels[place]
            for number, curve in enumerate(panel.curves):
                style = style_of(curve.name, number)
                (line,) = ax.plot(
                    curve.x,
                    curve.y,
                    color=style.colour,
                    marker=style.marker if curve.markers and len(curve.x) < 60 else None,
                    markersize=5,
                    linewidth=style.width,
                    linestyle=(0, style.dash) if style.dash else "-",
                    zorder=3 if curve.name == "paddle" else 2,
                )
                legend.setdefault(curve.label, line)
                for dot in curve.dots:
                    ax.plot(*dot, color=style.colour, marker="o", markersize=5)
                if curve.low:
                    ax.fill_between(curve.x, curve.low, curve.high, color=style.colour, alpha=0.15, linewidth=0)
            for label, x, dash in panel.verticals:
                legend.setdefault(label, ax.axvline(x, color="0.35", linestyle=dash, linewidth=1.2, zorder=1))
            if panel.identity:
                x_all = [x for curve in panel.curves for x in curve.x]
                ends = min(x_all), max(x_all)
                legend.setdefault("λ = |Q|", ax.plot(ends, ends, color="0.35", linestyle="dashed", linewidth=1.2)[0])
            ax.set_title(_letters(panel.title), fontsize=9.5)
            ax.set_xlabel(_letters(figure.x_label))
            if place % n_columns == 0:
                ax.set_ylabel(_letters(figure.y_label))
            if figure.log_x:
                ax.set_xscale("log")
            if figure.log_y:
                ax.set_yscale("log")
            ax.grid(alpha=0.25, linewidth=0.6)
        words = f"{figure.caption}; band: {figure.band}" if figure.band else figure.caption
        caption = textwrap.fill(words, round(width * 14))
        canvas.suptitle(f"{figure.title}\n{_letters(caption)}", fontsize=10)
        if len(legend) > 1 or not single:
            labels = [_letters(label) for label in legend]
            n_entries = max(1, min(4, len(legend), round(width * 11 / (max(map(len, legend)) + 8))))
            canvas.legend(list(legend.values()), labels, loc="outside lower center", ncols=n_entries, frameon=False)
        metadata = (
            {"Date": None} if path.suffix == ".svg" else {"CreationDate": None} if path.suffix == ".pdf" else None
        )
        with atomic_write(path) as temporary:
            canvas.savefig(temporary, dpi=160, metadata=metadata)


def _letters(text: str) -> str:
    """The paper's symbols in matplotlib's mathematics."""
    return (
        text.replace("K_eff", r"$K_\mathrm{eff}$")
        .replace("w_new", r"$w_\mathrm{new}$")
        .replace("w_old", r"$w_\mathrm{old}$")
    )
