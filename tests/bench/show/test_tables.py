"""Tables: what stands in which cell, what is bold, what has a star or a dagger."""

from __future__ import annotations

import pytest
from bench.show.results import ANSWERS, SOURCE, calibrated, changed, make_record, make_view, old, old_note

from manyway import InputError
from manyway.bench.records import Record
from manyway.bench.show.tables import Cell, make_grids
from manyway.evaluation.statistics import accuracy
from manyway.methods import METHODS


def test_a_table_has_one_row_per_method_and_one_column_per_setting(view):
    (grid,) = make_grids(view)
    assert [label for label, _ in grid.rows] == ["PADDLE", "soft K-means", "SimpleShot"]
    assert grid.columns[0] == ("1-shot", "K_eff = 2")
    assert grid.caption == "toy, K = 12, |Q| = 12, uniform queries, 40 tasks"
    for label, cells in grid.rows:
        name = next(name for name, method in METHODS.items() if method.title == label)
        assert [cell.mean for cell in cells] == [pytest.approx(100 * accuracy(ANSWERS[name], 12).mean)] * 4


@pytest.mark.parametrize(
    ("simpleshot", "best"),
    [
        # PADDLE leads by one answer in every fourth task: little, but significant.
        ([9, 10, 11, 11] * 10, [(True, True), (False, False), (False, False)]),
        ([*ANSWERS["paddle"][:-1], 11], [(True, False), (False, False), (False, False)]),
        (ANSWERS["paddle"], [(True, False), (False, False), (True, False)]),
    ],
    ids=["significant", "not significant", "equal"],
)
def test_the_best_is_bold_and_has_a_star_if_it_beats_each_other_in_a_paired_test(view, simpleshot, best):
    answers = {**ANSWERS, "simpleshot": simpleshot}
    records = [changed(r, outcome=r.outcome.model_copy(update={"correct": answers[r.method]})) for r in view.records]
    (grid,) = make_grids(view._replace(records=records))
    assert [(cell.best, cell.star) for _, (cell, *_) in grid.rows] == best


def test_a_missing_result_is_a_dash(view):
    (grid,) = make_grids(view._replace(records=view.records[1:]))
    assert grid.rows[0][1][0].words == "–"


def test_a_result_of_another_version_of_the_method_has_a_dagger_and_a_note(view):
    (grid,) = make_grids(view)
    assert "†" not in grid.note
    (grid,) = make_grids(view._replace(records=[old(view.records[0]), *view.records[1:]]))
    assert [cell.words for cell in grid.rows[0][1]] == ["87.5 ± 3.0*†", *["87.5 ± 3.0*"] * 3]
    assert old_note("paddle") in grid.note


def test_another_metric_replaces_accuracy_and_low_may_be_better():
    wrong = {"paddle": 3, "soft-kmeans": 1, "simpleshot": 6}
    view = make_view([calibrated(make_record(method), wrong[method]) for method in ANSWERS])
    (grid,) = make_grids(view, "calibration")
    # Mean confidence is 0.97; the fraction correct is 21, 23 and 18 of 24.
    assert [cell.mean for _, (cell,) in grid.rows] == [pytest.approx(100 * abs(0.97 - n / 24)) for n in (21, 23, 18)]
    assert [cell.best for _, (cell,) in grid.rows] == [False, True, False]
    assert not any(cell.star for _, (cell,) in grid.rows)
    assert grid.note.startswith("Calibration error in % ± 95 % interval.")
    assert grid.caption.startswith("calibration error; toy")
    (as_the_suite_says,) = make_grids(make_view(list(view.records), {**SOURCE, "tables": [{"metric": "calibration"}]}))
    assert [cell.mean for _, (cell,) in as_the_suite_says.rows] == [cell.mean for _, (cell,) in grid.rows]


def test_results_without_the_metric_are_dashes_and_none_with_it_is_an_error(view):
    mixed = make_view([calibrated(make_record("paddle"), 3), make_record("simpleshot")])
    (grid,) = make_grids(mixed, "calibration")
    assert [cell.words for _, (cell,) in grid.rows] == ["9.5 ± 0.00", "–"]
    with pytest.raises(InputError, match="No result of small has the metric 'calibration'; add metrics = "):
        make_grids(view, "calibration")
    with pytest.raises(InputError, match="did you mean 'calibration'"):
        make_grids(view, "calibratio")


def test_results_that_share_a_cell_get_separate_rows():
    points = [make_record(key=f"{lam:016}", params={"lam": lam}, special=["lam"]) for lam in (0, 12)]
    (grid,) = make_grids(make_view(points))
    assert grid.corner == "λ"
    assert [label for label, _ in grid.rows] == ["λ = 0", "λ = 12"]


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (Cell(71.234, 0.31), "71.2 ± 0.3"),
        (Cell(71.234, 0.031), "71.2 ± 0.03"),
        (Cell(71.234), "71.2"),
        (Cell(0.1234, 0.0121, digits=3), "0.123 ± 0.012"),
        (Cell(text="> 0.6"), "> 0.6"),
    ],
)
def test_numbers_have_the_digits_that_their_interval_supports(cell, words):
    assert cell.words == words


def test_a_trace_shows_when_the_prototypes_no_longer_moved():
    outcome = {"n_query": 12, "steps": [1, 2000], "seconds": [0.1, 0.6], "criterion": [0.5, 1e-7], "correct": [6, 9]}
    records = [
        old(make_record("paddle", trace={"tol": 1e-6}, outcome={**outcome, "reached": 2000})),
        make_record("soft-kmeans", trace={"tol": 1e-6}, outcome={**outcome, "reached": None}),
    ]
    (grid,) = make_grids(make_view(records))
    words = [[cell.words for cell in cells] for _, cells in grid.rows]
    assert words == [["2,000", "0.6", "1.0e-07", "75.0†"], ["not in 2,000", "> 0.6", "1.0e-07", "75.0"]]
    assert [cells[0].mean for _, cells in grid.rows] == [2000, 2000]
    assert old_note("paddle") in grid.note


def lam(value: float | None, correct: list[int], k_eff: int = 2, **changes) -> Record:
    """PADDLE with a value of λ; None is the default."""
    key, special = f"{k_eff}{value}".rjust(16, "0"), [] if value is None else ["lam"]
    outcome = {"n_query": 12, "correct": correct * 20}
    return make_record(key=key, k_eff=k_eff, params={"lam": value}, special=special, outcome=outcome, **changes)


def words_of(records: list[Record], **table) -> tuple[list[tuple[str, ...]], dict[str, list[str]]]:
    """The columns of a table, and the words in its rows."""
    (grid,) = make_grids(make_view(records, {"title": "t", "tables": [table]}))
    return list(grid.columns), {label: [cell.words for cell in cells] for label, cells in grid.rows}


def test_several_metrics_are_an_axis_of_their_own():
    records = [calibrated(make_record(method), 3) for method in ("paddle", "simpleshot")]
    columns, rows = words_of(records, metric=["accuracy", "calibration"], interval=False)
    assert columns == [("accuracy",), ("calibration error",)]
    assert rows == {"PADDLE": ["87.5*", "9.5"], "SimpleShot": ["85.4", "9.5"]}
    _, rows = words_of(records, metric=["accuracy", "calibration"], rows=["method", "metrics"], digits=0)
    assert list(rows) == [
        "PADDLE · accuracy", "PADDLE · calibration error", "SimpleShot · accuracy", "SimpleShot · calibration error"
    ]  # fmt: skip


def test_a_parameter_called_metric_is_an_ordinary_axis():
    """evidence has one, which is not the metric that a table shows."""
    records = [make_record(key=f"{n:016}", params={"metric": bool(n)}, special=[] if n else ["metric"]) for n in (0, 1)]
    _, rows = words_of(records, rows="method", columns="features", interval=False)
    assert rows == {"metric = no": ["87.5"], "metric = yes": ["87.5"]}


def test_where_several_parameters_differ_defaults_are_not_named():
    records = [
        make_record("evidence", key="1" * 16, params={"metric": True, "scale": "rcl2"}),
        make_record("evidence", key="2" * 16, params={"metric": False, "scale": "rcl2"}, special=["metric"]),
        make_record("evidence", key="3" * 16, params={"metric": True, "scale": "cl2"}, special=["scale"]),
        make_record("simpleshot", params={"scale": "cl2"}),
    ]
    _, rows = words_of(records, rows="method", columns="features")
    assert sorted(rows) == ["Evidence", "Evidence · metric = no", "Evidence · scale = cl2", "SimpleShot"]


def test_a_difference_is_taken_task_by_task():
    records = [make_record(method) for method in ANSWERS]
    _, rows = words_of(records, minus={"method": "simpleshot"}, where={"method": ["paddle", "soft-kmeans"]})
    difference = records[0].against(records[2]).difference
    assert rows["PADDLE"] == [f"+2.1 ± {100 * difference.half:.1f}"]
    assert rows["soft K-means"][0].startswith("-6.2 ± ")
    # The best other method is named.
    _, rows = words_of(records, minus={"method": "best"}, where={"method": ["paddle"]})
    assert list(rows.values()) == [[f"+2.1 ± {100 * difference.half:.1f} over SimpleShot"]]


def test_a_difference_to_the_default_of_a_parameter_and_its_mean_over_an_axis():
    good, bad = [10, 11], [8, 8]
    records = [lam(None, good), lam(5, bad), lam(None, good, k_eff=4), lam(5, [9, 10], k_eff=4)]
    table = {"rows": "lam", "columns": "shots", "minus": {"lam": "default"}}
    _, rows = words_of(records, **table, over=["k_eff"], digits=2)
    assert rows == {"λ = default": ["+0.00 (+0.00 … +0.00)"], "λ = 5": ["-14.58 (-20.83 … -8.33)"]}


def test_a_difference_between_versions_of_a_method():
    before = old(make_record("paddle", outcome={"n_query": 12, "correct": [8, 9, 10, 11] * 10}))
    now, other = make_record("paddle"), make_record("simpleshot")
    version = METHODS["paddle"].version
    _, rows = words_of(
        [changed(before, key="0" * 16), now, other],
        where={"version": [version], "method": ["paddle"]},
        minus={"version": version + 1},
    )
    assert list(rows.values()) == [["+8.3 ± 0.00†"]]


def test_the_best_value_of_a_parameter_is_shown_beside_a_fixed_one():
    records = [lam(None, [9, 9]), lam(5, [10, 11]), lam(20, [8, 8]), make_record("simpleshot", params={})]
    columns, rows = words_of(
        records, rows="shots", columns=["method", "lam"], best="lam", where={"lam": ["default", "best"]}, interval=False
    )
    assert columns == [("PADDLE", "λ = default"), ("PADDLE", "λ = best"), ("SimpleShot", "")]
    assert list(rows.values()) == [["75.0", "87.5", "85.4"]]


def test_minus_compares_accuracy_only():
    with pytest.raises(InputError, match="must have metric = 'accuracy'"):
        words_of([make_record()], metric="calibration", minus={"method": "best"})
