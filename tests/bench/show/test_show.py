"""Tables, plots and comparisons, from stored results alone."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from bench_problems import SMALL, data_folder_with_toy, run_suite
from rich.console import Console
from rich.table import Table

from manyway import InputError
from manyway.bench.presentation import Plot
from manyway.bench.show import curves, plots
from manyway.bench.show.compare import compare, find_records
from manyway.bench.show.formats import to_csv, to_latex, to_markdown, to_rich
from manyway.bench.show.style import style_of
from manyway.bench.show.svg import Scale, figure_html
from manyway.bench.show.tables import make_grids
from manyway.bench.show.view import View
from manyway.bench.store import Plan, Store
from manyway.bench.suite import load_suite
from manyway.evaluation.statistics import accuracy
from manyway.methods import METHODS

ANSWERS = {"paddle": [9, 10, 11, 12] * 10, "soft-kmeans": [8, 9, 10, 11] * 10, "simpleshot": [9, 10, 11, 11] * 10}


@pytest.fixture(scope="module")
def view(tmp_path_factory) -> View:
    folder = tmp_path_factory.mktemp("bench")
    data_folder_with_toy(folder)
    return run_suite(SMALL, folder, folder / "results")


@pytest.fixture
def known(view) -> View:
    """The view with answers that are known."""

    def answered(record):
        return replace(record, outcome={"n_query": 12, "correct": ANSWERS[record.method]})

    return replace(view, records=[answered(record) for record in view.records])


def test_a_table_has_a_row_a_method_and_a_column_a_setting(known):
    (grid,) = make_grids(known)
    assert [label for label, _ in grid.rows] == ["PADDLE", "soft K-means", "SimpleShot"]
    assert grid.columns[0] == ("1-shot", "K_eff = 2")
    assert grid.caption == "toy, K = 12, |Q| = 12, uniform queries, 40 tasks"
    for label, cells in grid.rows:
        name = next(name for name, method in METHODS.items() if method.title == label)
        assert [cell.mean for cell in cells] == [pytest.approx(100 * accuracy(ANSWERS[name], 12).mean)] * 4


def test_the_best_is_bold_and_has_a_star_when_it_beats_every_other_in_a_paired_test(known):
    (grid,) = make_grids(known)
    # PADDLE leads SimpleShot by one answer in every fourth task: not much, and yet sure.
    assert [(cell.best, cell.star) for _, (cell, *_) in grid.rows] == [(True, True), (False, False), (False, False)]
    nearly = {**ANSWERS, "simpleshot": [*ANSWERS["paddle"][:-1], 11]}
    records = [replace(r, outcome={"n_query": 12, "correct": nearly[r.method]}) for r in known.records]
    (grid,) = make_grids(replace(known, records=records))
    assert [(cell.best, cell.star) for _, (cell, *_) in grid.rows] == [(True, False), (False, False), (False, False)]


def test_what_is_not_there_yet_is_a_dash(known):
    (grid,) = make_grids(replace(known, records=known.records[1:]))
    assert grid.rows[0][1][0].words == "–"
    assert "| – |" in to_markdown(grid)


def test_markdown_latex_and_csv(known):
    (grid,) = make_grids(known)
    assert r"| PADDLE | **87.5 ± 3.0\*** |" in to_markdown(grid)
    latex = to_latex(grid)
    assert r"PADDLE & \textbf{87.5 $\pm$ 3.0$^{*}$} &" in latex
    assert r"\multicolumn{2}{c}{1-shot} & \multicolumn{2}{c}{3-shot} \\" in latex
    assert r"\cmidrule(lr){2-3} \cmidrule(lr){4-5}" in latex
    assert latex.count(r" \\") == 2 + 3
    assert to_csv(grid).splitlines()[1].startswith("PADDLE,87.5000,3.0")


def test_a_narrow_terminal_gets_more_tables_and_no_ellipsis(known):
    (grid,) = make_grids(known)
    console = Console(width=40, file=io.StringIO())
    shown = to_rich(grid, 40)
    assert len([part for part in shown if isinstance(part, Table)]) == 2
    console.print(*shown)
    text = console.file.getvalue()
    assert "…" not in text
    assert text.count("87.5 ± 3.0") == 4


def test_points_that_share_a_cell_get_rows_of_their_own(tmp_path):
    data_folder_with_toy(tmp_path)
    toml = SMALL.replace('"paddle", "soft-kmeans", "simpleshot"', '"paddle"') + "\n"
    toml = toml.replace("[[tables]]", "sweep.paddle = { lam = { per_query = [0, 1] } }\n[[tables]]")
    view = run_suite(toml, tmp_path, tmp_path / "results")
    (grid,) = make_grids(view)
    assert grid.corner == "λ"
    assert [label for label, _ in grid.rows] == ["λ = 0", "λ = 12"]
    (figure,) = curves.make_figures(view)
    assert [curve.label for curve in figure.panels[0].curves] == ["PADDLE · λ = 0", "PADDLE · λ = 12"]


def test_curves_carry_means_and_intervals(known):
    (figure,) = curves.make_figures(known)
    assert [panel.title for panel in figure.panels] == ["1-shot", "3-shot"]
    curve = figure.panels[0].curves[0]
    assert list(curve.x) == [2, 4]
    assert curve.y[0] == pytest.approx(87.5)
    assert curve.high[0] - curve.y[0] == pytest.approx(100 * accuracy(ANSWERS["paddle"], 12).half)


def test_the_best_value_of_an_axis_comes_with_those_that_cannot_be_told_from_it(known):
    (record, *_) = [record for record in known.records if record.method == "paddle"]

    def at(lam, correct):
        return replace(record, params={"lam": lam}, key=str(lam), outcome={"n_query": 12, "correct": correct})

    good, as_good, bad = [9, 10, 11, 12] * 10, [10, 9, 12, 10] * 10, [5, 6, 7, 8] * 10
    view = replace(
        known,
        records=[at(1, bad), at(2, as_good), at(4, good), at(8, bad)],
        shown=replace(known.shown, plots=[Plot(x="n_query", y="best", of="lam", reference=True)]),
    )
    (figure,) = curves.make_figures(view)
    (curve,) = figure.panels[0].curves
    assert (curve.x, curve.y, curve.low, curve.high) == ((12,), (4,), (2,), (4,))
    assert figure.panels[0].identity


def test_the_label_cost_is_a_formula_that_needs_no_result():
    suite = load_suite("label-cost")
    plan = Plan("label-cost", "label-cost", suite.source, None, [], "now")
    (figure,) = curves.make_figures(View(plan, suite.shown, []))
    count, entropy = figure.panels[0].curves
    assert set(count.y) == {2}
    assert list(count.dots) == [(0, 1), (1, 1)]
    assert max(entropy.y) == pytest.approx(0.6931, abs=1e-4)
    assert entropy.y[0] == entropy.y[-1] == 0


@pytest.mark.parametrize("suffix", plots.FORMATS)
def test_plots_are_files_of_the_asked_format_and_the_same_every_time(known, tmp_path, suffix):
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    figures = curves.make_figures(known)
    (once,) = plots.write_figures(figures, tmp_path / "a", "small", [suffix])
    (again,) = plots.write_figures(figures, tmp_path / "b", "small", [suffix])
    assert once.name == f"small-keff.{suffix}"
    assert once.read_bytes().startswith(starts[suffix])
    assert once.read_bytes() == again.read_bytes()


def test_an_unknown_format_is_refused_before_anything_is_drawn(known, tmp_path):
    with pytest.raises(InputError, match="not as 'gif'"):
        plots.write_figures(curves.make_figures(known), tmp_path, "small", ["png", "gif"])
    assert not any(tmp_path.iterdir())


def test_every_method_has_a_look_of_its_own():
    looks = [style_of(name) for name in METHODS]
    assert len({(look.colour, look.dash) for look in looks}) == len(METHODS)
    assert len({look.marker for look in looks}) >= len(METHODS) - 1


def test_svg_survives_gaps_logarithms_and_single_points():
    curve = curves.Curve("a < b", "paddle", [1, 10, 100], [1e-3, float("nan"), 0.0])
    figure = curves.Figure("f", "t", "c", "x", "y", [curves.Panel("p", [curve])], 1, log_x=True, log_y=True)
    html = figure_html(figure)
    assert "a &lt; b" in html
    assert "nan" not in html
    assert html.count('class="point"') == 1
    assert Scale([5, 5], 0, 100, False)(5) == 50


def test_ticks_are_round_and_inside():
    for values in ([0, 1], [3, 40], [88.1, 88.9], [0.001, 0.0042]):
        ticks = [tick for tick, _ in Scale(values, 0, 100, False).ticks()]
        assert 2 <= len(ticks) <= 8
        assert all(-1e-6 <= Scale(values, 0, 100, False)(tick) <= 100 + 1e-6 for tick in ticks)


def test_two_methods_are_compared_on_every_setting_that_both_solved(known, tmp_path):
    store = Store(tmp_path)
    for record in known.records:
        store.write(record)
    comparisons = compare(find_records("paddle", store), find_records("simpleshot", store))
    assert len(comparisons) == 4
    assert comparisons[0].paired.difference.mean == pytest.approx(1 / 4 / 12)
    assert (comparisons[0].paired.wins, comparisons[0].paired.ties) == (10, 30)
    by_key = find_records(known.records[0].key[:6], store)
    assert by_key == [known.records[0]]
    with pytest.raises(InputError, match="no tasks in common"):
        compare(by_key, by_key)
    with pytest.raises(InputError, match="did you mean 'paddle'"):
        find_records("padle", store)
