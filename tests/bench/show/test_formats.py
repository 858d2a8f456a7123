"""Tables as text: nothing in a name is markup of the terminal, of Markdown, of LaTeX or of CSV."""

from __future__ import annotations

import csv
import io
import re
import sys

import pytest
from bench.show.results import old
from rich.table import Table

from manyway.bench.show.formats import to_csv, to_latex, to_markdown, to_rich
from manyway.bench.show.tables import Cell, Grid, make_grids
from manyway.cli.console import console

HOSTILE = r"[/b]bee | *x* _y_ $z$ \input{a} & 50% #1 <b> `c` ^~"


@pytest.fixture
def grid(view):
    (grid,) = make_grids(view)
    return grid


@pytest.fixture
def hostile():
    return Grid(HOSTILE, HOSTILE, "", HOSTILE, [(HOSTILE,)], [(HOSTILE, [Cell(text=HOSTILE)])])


def test_markdown(grid):
    lines = to_markdown(grid).splitlines()
    assert lines[2].count("|") == lines[4].count("|") == 6
    assert lines[4].startswith(r"| PADDLE | **87.5 ± 3.0\*** |")


def test_latex_spans_the_levels_of_the_header(grid):
    latex = to_latex(grid)
    assert r"PADDLE & \textbf{87.5 $\pm$ 3.0$^{*}$} &" in latex
    assert r"\multicolumn{2}{c}{1-shot} & \multicolumn{2}{c}{3-shot} \\" in latex
    assert r"\cmidrule(lr){2-3} \cmidrule(lr){4-5}" in latex
    assert latex.count(r" \\") == 2 + 3


def test_csv_has_means_half_intervals_and_the_names_of_old_results(view):
    (grid,) = make_grids(view._replace(records=[old(view.records[0]), *view.records[1:]]))
    head, paddle, *_ = csv.reader(io.StringIO(to_csv(grid)))
    assert head[:3] == ["Method", "1-shot, K_eff = 2", "1-shot, K_eff = 2 ±"]
    assert paddle[0] == "PADDLE"
    assert float(paddle[1]) == 87.5
    assert float(paddle[2]) == pytest.approx(3.0177, abs=1e-4)
    assert paddle[-1] == "1-shot, K_eff = 2"


@pytest.mark.parametrize(("encoding", "width"), [("utf-8", 45), ("ascii", 49)])
def test_a_narrow_terminal_gets_more_tables_and_no_ellipsis(grid, monkeypatch, encoding, width):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    screen = console()
    screen.width = width
    shown = to_rich(grid, screen)
    assert len([part for part in shown if isinstance(part, Table)]) == 2
    screen.print(*shown, sep="\n")
    stream.flush()
    text = stream.buffer.getvalue().decode(encoding)
    assert "…" not in text
    assert "..." not in text
    assert len(re.findall(r"87.5 (±|\+/-) 3.0\*", text)) == 4


def test_names_are_text_in_every_format(hostile, capsys):
    screen = console()
    screen.width = 200
    screen.print(*to_rich(hostile, screen), sep="\n")
    assert capsys.readouterr().out.count(HOSTILE) == 6
    lines = to_markdown(hostile).splitlines()
    assert lines[2].replace(r"\|", "").count("|") == 3
    assert r"\<b> \`c\`" in lines[4]
    latex = to_latex(hostile)
    assert r"\input" not in latex
    assert r"\textbackslash{}input\{a\} \& 50\% \#1" in latex
    assert [row[0] for row in csv.reader(io.StringIO(to_csv(hostile)))] == [HOSTILE] * 2
