"""Tuning: the best point of a grid on validation classes, kept where suites find it. PADDLE is never tuned."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench_problems import data_folder_with_toy, jobs_of, run_suite

from manyway import InputError
from manyway.bench.suite import load_suite, parse_suite
from manyway.bench.tuning import FILE, check_grid, choose, read_tuned, write_tuned
from manyway.evaluation.statistics import accuracy
from manyway.methods import METHODS

GRID = """
title = "Grid"
n_tasks = 60

[[experiments]]
features = "toy-val"
methods = ["laplacianshot"]
task = { shots = 2, k_eff = 5, n_ways = 5, n_query = 15, sampling = "dirichlet", alpha = 2 }
sweep.laplacianshot = { graph_weight = [0.0, 0.7, 50.0], n_neighbors = [2, 4] }
"""
USE = (
    'title = "Use"\n[[experiments]]\nfeatures = ["toy", "other"]\nmethods = "laplacianshot"\ntask = { n_query = 10 }\n'
)


@pytest.fixture
def chosen(tmp_path):
    data_folder_with_toy(tmp_path, "toy-val")
    grid = parse_suite(GRID, "grid", "grid")
    check_grid(grid)
    view = run_suite(GRID, tmp_path, tmp_path / "results")
    return view, choose(view.records, grid)


def test_the_point_with_the_highest_accuracy_is_chosen_for_the_set_without_val(chosen):
    view, found = chosen
    best = max(view.records, key=lambda record: sum(record.outcome.correct))
    entry = found["toy"]["laplacianshot"]
    assert entry["params"] == {name: best.params[name] for name in ("graph_weight", "n_neighbors")}
    assert entry["accuracy"] == accuracy(best.outcome.correct, 15).mean
    assert entry["record"] == best.key


def test_results_of_another_version_of_the_method_choose_nothing(chosen, monkeypatch):
    view, _ = chosen
    method = METHODS["laplacianshot"]
    monkeypatch.setitem(METHODS, "laplacianshot", replace(method, version=method.version + 1))
    assert choose(view.records, parse_suite(GRID, "grid", "grid")) == {}


def test_chosen_parameters_that_a_method_cannot_use_are_refused_by_name(tmp_path):
    write_tuned({"toy": {"laplacianshot": {"params": {"graph_weight": -1.0}}}}, tmp_path / FILE)
    with pytest.raises(InputError, match=r"tuned\.json: toy\.laplacianshot: graph_weight is -1"):
        read_tuned(None, tmp_path)


def test_suites_use_what_was_chosen_where_it_was_chosen_for(chosen, tmp_path):
    _, found = chosen
    write_tuned(found, tmp_path / "results" / FILE)
    tuned = read_tuned(None, tmp_path / "results")
    data_folder_with_toy(tmp_path, "toy")
    data_folder_with_toy(tmp_path, "other", seed=1)
    jobs = jobs_of(USE, tmp_path, tuned=tuned)
    params = {job.experiment.features: job.experiment.params for job in jobs}
    assert params == {"toy": found["toy"]["laplacianshot"]["params"], "other": {}}
    borrowed = jobs_of(USE + '[tuned_from]\nother = "toy"\n', tmp_path, tuned=tuned, only={"features": ["other"]})
    assert borrowed[0].experiment.params == found["toy"]["laplacianshot"]["params"]


def test_a_second_tuning_keeps_what_the_first_chose(tmp_path):
    path = tmp_path / FILE
    write_tuned({"a": {"tim": {"params": {"lr": 1}}}}, path)
    write_tuned({"a": {"ici": {"params": {"c": 2}}}, "b": {"tim": {"params": {"lr": 3}}}}, path)
    write_tuned({"b": {"tim": {"params": {"lr": 4}}}}, path)
    assert read_tuned(path, tmp_path) == {"a": {"tim": {"lr": 1}, "ici": {"c": 2}}, "b": {"tim": {"lr": 4}}}


def test_paddle_is_never_tuned():
    grid = GRID.replace("laplacianshot", "paddle").replace("graph_weight", "lam").replace(", n_neighbors = [2, 4]", "")
    with pytest.raises(InputError, match="PADDLE is never tuned"):
        check_grid(parse_suite(grid, "g", "g"))
    with pytest.raises(InputError, match="nothing to sweep for simpleshot"):
        check_grid(parse_suite(GRID.replace('["laplacianshot"]', '["laplacianshot", "simpleshot"]'), "g", "g"))


def test_the_shipped_grid_follows_the_protocol_for_every_method_of_table_1_but_paddle():
    grid = load_suite("tune")
    check_grid(grid)
    (table1,) = load_suite("table1").blocks
    swept, learned = grid.blocks
    assert set(swept.methods) >= set(table1.methods) - {"paddle"}
    assert {(point.task.n_ways, point.task.shots) for point in swept.experiments()} == {(5, 5)}
    assert [(point.method, point.task.n_ways) for point in learned.experiments()] == [("unem", None)] * 4
    assert all(name.endswith("-val") for block in grid.blocks for name in block.features)


@pytest.mark.parametrize(
    "text", ["", "{}", '{"chosen": 3}', '{"chosen": {"a": {"tim": {}}}}', '{"chosen": {"a": {"tim": {"params": "x"}}}}']
)
def test_a_file_that_holds_no_tuning_is_one_sentence(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(InputError, match="not a file of tuned parameters"):
        read_tuned(None, tmp_path)
