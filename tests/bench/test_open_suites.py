"""Suites with unknown queries, scorers, ranges of K_eff and streams: from TOML to records and tables."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from bench_problems import data_folder_with_toy, jobs_of, run_suite
from problems import make_features

from manyway import InputError
from manyway.bench.plan import parse_task
from manyway.bench.records import Store
from manyway.bench.runner import measure
from manyway.bench.show.curves import make_figures
from manyway.bench.show.tables import make_grids
from manyway.bench.show.view import pairs, record_title, setting
from manyway.bench.suite import load_suite, parse_suite

OPEN = """
title = "Open"
n_tasks = 12
metrics = ["auroc", "unknown_calibration"]

[[experiments]]
features = "toy"
methods = "simpleshot"
scorers = ["own", "nearest-distance"]
task = { shots = 3, k_eff = 2, n_query = 12, n_unknown = [3, 6], unknown_from = "strange" }

[[tables]]
metric = "auroc"
rows = ["method", "scorer"]
columns = ["n_unknown"]

[[plots]]
x = "n_unknown"
y = "auroc"
"""
REGIMES = """
title = "Regimes"
n_tasks = 10

[[experiments]]
features = "toy"
methods = ["simpleshot", "paddle"]
task = { shots = 3, n_query = 60, k_eff = ["1-4", "2-6"] }

[[tables]]
columns = ["k_eff"]
where = { k_eff = ["1-4"] }

[[plots]]
x = "k_eff"
"""
STREAMS = """
title = "Streams"
n_tasks = 4

[[experiments]]
features = "toy"
methods = "simpleshot"
task = { shots = 3, k_eff = "all", n_query = 10, n_batches = 5, gamma = [0.1, 0] }

[[tables]]
columns = ["gamma"]
"""


@pytest.fixture
def folder(tmp_path):
    data_folder_with_toy(tmp_path)
    np.savez(tmp_path / "strange.npz", features=make_features(n_classes=3, seed=4).features.numpy())
    return tmp_path


def test_scorers_are_an_axis_and_have_no_probability(folder):
    jobs = jobs_of(OPEN, folder)
    assert [(job.experiment.scorer, job.experiment.task.n_unknown) for job in jobs] == [
        (None, 3),
        ("nearest-distance", 3),
        (None, 6),
        ("nearest-distance", 6),
    ]
    assert jobs[0].experiment.metrics == ("auroc", "unknown_calibration")
    assert jobs[1].experiment.metrics == ("auroc",)
    assert len({job.key for job in jobs}) == 4
    assert jobs[1].title.endswith("n_unknown=3 unknown_from=strange scorer=nearest-distance")
    (only,) = jobs_of(OPEN, folder, only={"scorer": ["own"], "n_unknown": ["6"]})
    assert only.key == jobs[2].key


def test_unknown_queries_are_measured_stored_and_shown(folder, tmp_path):
    view = run_suite(OPEN, folder, tmp_path / "results")
    record = view.records[1]
    assert record.features.unknown_fingerprint
    again = Store(tmp_path / "results").find(record.key)
    assert again == record
    assert 0.5 < again.value("auroc").mean <= 1
    assert setting(record).endswith("3 unknown queries, unknown queries from strange")
    assert record_title(record) == "SimpleShot (distance to the nearest prototype)"
    (grid,) = make_grids(view)
    assert [label for label, _ in grid.rows] == ["own score", "distance to the nearest prototype"]
    assert grid.columns == [("3 unknown queries",), ("6 unknown queries",)]
    assert grid.note.endswith("Tasks in which it is undefined are left out.")
    assert all(cell.mean > 50 for _, cells in grid.rows for cell in cells)
    (figure,) = make_figures(view)
    assert [len(curve.x) for curve in figure.panels[0].curves] == [2, 2]


def test_strangers_are_a_part_of_the_experiment(folder):
    first = jobs_of(OPEN, folder)[0]
    np.savez(folder / "strange.npz", features=make_features(n_classes=4, seed=4).features.numpy())
    assert jobs_of(OPEN, folder)[0].key != first.key


def test_an_experiment_takes_its_strangers_to_another_process(folder):
    job = jobs_of(OPEN, folder)[1]
    sent = pickle.loads(pickle.dumps(job.experiment))
    here, there = measure(job.experiment, job.features, 0, 3), measure(sent, job.features, 0, 3)
    assert here.metrics["auroc"].tolist() == there.metrics["auroc"].tolist()


def test_what_is_undefined_in_every_task_is_said_so(folder, tmp_path):
    text = OPEN.replace(', n_unknown = [3, 6], unknown_from = "strange"', "")
    view = run_suite(text, folder, tmp_path / "results")
    stored = json.loads(view.records[0].to_json())
    assert stored["outcome"]["metrics"]["auroc"] == [None] * 12
    (grid,) = make_grids(view)
    assert {cell.words for _, cells in grid.rows for cell in cells} == {"undefined"}
    assert make_figures(view)[0].panels[0].curves[0].x == ()


def test_a_range_of_k_eff_is_a_word_and_accuracy_is_the_mean_over_tasks(folder, tmp_path):
    view = run_suite(REGIMES, folder, tmp_path / "results")
    record = view.records[0]
    assert record.task["k_eff"] == [1, 4]
    assert record.metrics == ["accuracy", "n_query"]
    assert record.value().mean == pytest.approx(np.mean(np.array(record.outcome.correct) / record.n_query))
    (grid,) = make_grids(view)
    assert "K_eff = 1-4" in grid.caption
    assert [len(cells) for _, cells in grid.rows] == [1, 1]
    (figure,) = make_figures(view)
    assert figure.panels[0].curves[0].x == (2.5, 4.0)
    ((left, _),) = pairs([record], [r for r in view.records if r.method == "paddle"])
    assert left.value().mean == pytest.approx(record.value().mean)
    assert parse_task(["k_eff=2-10"]) == {"k_eff": ("2-10",)}


def test_streams_are_shown_by_gamma(folder, tmp_path):
    view = run_suite(STREAMS, folder, tmp_path / "results")
    assert view.records[0].outcome.n_query == 50
    (grid,) = make_grids(view)
    assert grid.columns == [("separate classes",), ("γ = 0.1",)]
    assert grid.caption.endswith("5 batches, 4 streams")


def test_two_thirds_of_the_classes_are_in_a_task_whose_unknown_queries_are_of_the_others(folder):
    text = OPEN.replace(', unknown_from = "strange"', "")
    assert {job.experiment.task.n_ways for job in jobs_of(text, folder)} == {8}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"own", "nearest-distance"', '"knnn"', "is 'knnn', which is no scorer; did you mean 'knn'"),
        ("k_eff = 2", 'k_eff = "4-2"', "its first number must not exceed its second"),
        ("k_eff = 2", 'k_eff = "a-b"', "or a range such as '2-10'"),
        ("n_unknown = [3, 6]", "n_unknown = -1", "greater than or equal to 0|at least 0"),
        ("n_unknown = [3, 6], ", "", "go with n_unknown"),
        ('columns = ["n_unknown"]', 'columns = ["n_unknwon"]', "did you mean 'n_unknown'"),
    ],
)
def test_mistakes_are_one_sentence(old, new, message):
    with pytest.raises(InputError, match=message):
        parse_suite(OPEN.replace(old, new), "open", "open.toml")


@pytest.mark.parametrize("name", ["open-set", "out-of-scope", "statA-regimes", "streams", "later"])
def test_a_small_variant_needs_no_data_folder(name, tmp_path):
    from manyway.bench.plan import SuiteChanges, make_jobs

    asked = SuiteChanges(data=tmp_path, only={"features": ["glyphs"], "method": ["simpleshot"]}, n_tasks=2)
    jobs, skipped = make_jobs(load_suite(name), asked)
    assert jobs
    assert skipped == []
