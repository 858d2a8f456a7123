"""The numbers of a plot."""

from __future__ import annotations

import pytest
from bench.show.results import ANSWERS, calibrated, make_record, make_view, old, old_note

from manyway.bench.show.curves import make_figures
from manyway.bench.suite import load_suite
from manyway.evaluation.statistics import accuracy


def test_curves_carry_means_and_intervals(view):
    (figure,) = make_figures(view)
    assert [panel.title for panel in figure.panels] == ["1-shot", "3-shot"]
    curve = figure.panels[0].curves[0]
    assert list(curve.x) == [2, 4]
    assert curve.y[0] == pytest.approx(87.5)
    assert curve.high[0] - curve.y[0] == pytest.approx(100 * accuracy(ANSWERS["paddle"], 12).half)


def test_another_metric_replaces_accuracy_and_results_without_it_are_left_out():
    view = make_view([calibrated(make_record("paddle"), 3), make_record("simpleshot")])
    (figure,) = make_figures(view, "calibration")
    assert figure.y_label == "calibration error (%)"
    assert [(curve.label, *curve.y) for curve in figure.panels[0].curves] == [("PADDLE", pytest.approx(9.5))]
    assert make_figures(make_view([make_record("simpleshot")]), "calibration") == []


def test_results_that_share_a_point_get_separate_lines():
    points = [make_record(key=f"{lam:016}", params={"lam": lam}, special=["lam"]) for lam in (0, 12)]
    (figure,) = make_figures(make_view(points))
    assert [curve.label for curve in figure.panels[0].curves] == ["PADDLE · λ = 0", "PADDLE · λ = 12"]


def test_a_line_with_an_old_result_has_a_dagger_in_all_panels(view):
    (figure,) = make_figures(view._replace(records=[old(view.records[0]), *view.records[1:]]))
    labels = [[curve.label for curve in panel.curves] for panel in figure.panels]
    assert labels == [["PADDLE †", "soft K-means", "SimpleShot"]] * 2
    assert old_note("paddle") in figure.caption


def test_the_best_value_of_an_axis_comes_with_the_values_that_are_not_significantly_worse():
    good, as_good, bad = [9, 10, 11, 12] * 10, [10, 9, 12, 10] * 10, [5, 6, 7, 8] * 10
    points = [
        make_record(key=f"{lam:016}", params={"lam": lam}, outcome={"n_query": 12, "correct": correct})
        for lam, correct in ((1, bad), (2, as_good), (4, good), (8, bad))
    ]
    plot = {"x": "n_query", "y": "best", "of": "lam", "reference": True}
    (figure,) = make_figures(make_view(points, {"title": "Best", "plots": [plot]}))
    (curve,) = figure.panels[0].curves
    assert (curve.x, curve.y, curve.low, curve.high) == ((12,), (4,), (2,), (4,))
    assert figure.panels[0].identity


def test_the_label_cost_is_a_formula_that_needs_no_result():
    suite = load_suite("label-cost")
    (figure,) = make_figures(make_view([], dict(suite.source)))
    count, entropy = figure.panels[0].curves
    assert set(count.y) == {2}
    assert list(count.dots) == [(0, 1), (1, 1)]
    assert max(entropy.y) == pytest.approx(0.6931, abs=1e-4)
    assert entropy.y[0] == entropy.y[-1] == 0
