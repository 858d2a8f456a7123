"""A table as text: for the terminal, Markdown, LaTeX and CSV."""

import csv
import io
import re
from itertools import accumulate, groupby, pairwise

from rich.box import Box
from rich.console import Console, RenderableType
from rich.styled import Styled
from rich.table import Table

from manyway.bench.show.tables import Grid

# One line below the header, in characters that every terminal has.
_BOX = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


def to_rich(grid: Grid, console: Console) -> list[RenderableType]:
    """For a terminal: columns that do not fit into its width go into a further table below."""

    def widest(*texts: str) -> int:
        return 2 + max(console.measure(text).maximum for text in texts)

    first = widest(grid.corner, *(label for label, _ in grid.rows))
    widths = [
        widest(*column, *(cells[i].words for _, cells in grid.rows))
        for i, column in enumerate(grid.columns)
    ]
    stretches: list[list[int]] = [[]]
    for i, own in enumerate(widths):
        if stretches[-1] and first + own + sum(widths[j] for j in stretches[-1]) > console.width:
            stretches.append([])
        stretches[-1].append(i)
    shown: list[RenderableType] = [Styled(grid.title, "bold"), grid.caption]
    for stretch in stretches:
        table = Table(box=_BOX, padding=(0, 1), collapse_padding=True, pad_edge=False)
        table.add_column(grid.corner, no_wrap=True)
        for i in stretch:
            table.add_column("\n".join(grid.columns[i]), justify="right", no_wrap=True)
        for label, cells in grid.rows:
            table.add_row(
                label, *(Styled(cells[i].words, "bold" if cells[i].best else "") for i in stretch)
            )
        shown.append(table)
    return [*shown, f"{grid.note}\n"]


def to_markdown(grid: Grid) -> str:
    """A pipe table with its caption and its note."""
    return f"**{_pipe(grid.title)}** ({_pipe(grid.caption)})\n\n{pipe_table(grid)}\n\n{_pipe(grid.note)}\n"


def pipe_table(grid: Grid) -> str:
    """The table alone, in Markdown."""
    rows = [
        [_pipe(grid.corner), *(_pipe(", ".join(filter(None, column))) for column in grid.columns)]
    ]
    for label, cells in grid.rows:
        rows.append(
            [
                _pipe(label),
                *(f"**{_pipe(cell.words)}**" if cell.best else _pipe(cell.words) for cell in cells),
            ]
        )
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|:---|" + "---:|" * len(grid.columns), *lines[1:]])


def to_latex(grid: Grid) -> str:
    """A booktabs table; the header's levels span the columns they are about."""
    depth = max(len(column) for column in grid.columns)
    caption = rf"\caption{{{_tex(grid.title)} ({_tex(grid.caption)}). {_tex(grid.note)}}}"
    begin = rf"\begin{{tabular}}{{l{'c' * len(grid.columns)}}}"
    lines = [r"\begin{table}", r"\centering", caption, begin, r"\toprule"]
    for level in range(1, depth + 1):
        spans = [
            (label[-1], len([*group]))
            for label, group in groupby(column[:level] for column in grid.columns)
        ]
        heads = [
            _tex(text) if n == 1 else rf"\multicolumn{{{n}}}{{c}}{{{_tex(text)}}}"
            for text, n in spans
        ]
        lines.append(" & ".join([_tex(grid.corner) if level == depth else "", *heads]) + r" \\")
        ends = list(accumulate((n for _, n in spans), initial=1))
        if level < depth:
            lines.append(
                " ".join(rf"\cmidrule(lr){{{left + 1}-{right}}}" for left, right in pairwise(ends))
            )
    lines.append(r"\midrule")
    for label, cells in grid.rows:
        entries = [
            rf"\textbf{{{_tex(cell.words)}}}" if cell.best else _tex(cell.words) for cell in cells
        ]
        lines.append(" & ".join([_tex(label), *entries]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def to_csv(grid: Grid) -> str:
    """One line per row, with mean and half interval in separate columns.

    The last column names the old results.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [", ".join(filter(None, column)) for column in grid.columns]
    writer.writerow([grid.corner, *(name for mean in names for name in (mean, f"{mean} ±")), "old"])
    for label, cells in grid.rows:
        numbers: list[str] = []
        for cell in cells:
            given = cell.mean is not None and not cell.text
            numbers += [f"{cell.mean:.4f}", f"{cell.half:.4f}"] if given else [cell.text, ""]
        old = "; ".join(name for name, cell in zip(names, cells, strict=True) if cell.old)
        writer.writerow([label, *numbers, old])
    return out.getvalue()


def _pipe(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\|*`<\[])", r"\\\1", " ".join(text.split()))


_TEX = {
    "K_eff": r"$K_{\mathrm{eff}}$",
    "|Q|": r"$|\mathbb{Q}|$",
    **{f"w_{name}": rf"$w_{{\mathrm{{{name}}}}}$" for name in ("new", "old")},
    **{
        char: rf"\text{name}{{}}"
        for char, name in {"\\": "backslash", "^": "asciicircum", "~": "asciitilde"}.items()
    },
    **{char: rf"\{char}" for char in "%&#_${}"},
    **{
        char: rf"$\{name}$"
        for char, name in zip("±‖λατ", ("pm", "|", "lambda", "alpha", "tau"), strict=True)
    },
    **{char: f"${char}$" for char in "<>"},
    "−": "$-$",
    "–": "--",
    "·": r"$\cdot$",
    "*": r"$^{*}$",
    "†": r"$^{\dagger}$",
}
_TEX_PIECES = re.compile("|".join(re.escape(piece) for piece in _TEX))


def _tex(text: str) -> str:
    """Text that LaTeX prints as it is, with the symbols of the paper as mathematics.

    >>> print(_tex("K_eff = 5, 71.2 ± 0.3*, a_b"))
    $K_{\\mathrm{eff}}$ = 5, 71.2 $\\pm$ 0.3$^{*}$, a\\_b
    """
    return _TEX_PIECES.sub(lambda match: _TEX[match.group()], text)
