"""Suites are data: what they may say, and what they may not."""

from __future__ import annotations

import pytest
from bench_problems import SMALL, data_folder_with_toy, jobs_of

from manyway import InputError
from manyway.bench.plan import parse_only, parse_task
from manyway.bench.suite import load_suite, parse_suite, suite_names

PAPER = {"table1", "table2", "table3", "figure-keff", "convergence", "lambda-optimal", "lambda-curve", "label-cost"}


def parse(toml: str):
    return parse_suite(toml, "mine", "mine.toml")


def one_block(block: str) -> str:
    return f'title = "t"\n[[experiments]]\nfeatures = "toy"\nmethods = "paddle"\n{block}\n'


def test_every_table_and_figure_of_the_paper_has_a_suite_of_its_name():
    assert set(suite_names()) >= PAPER | {"standard", "dirichlet", "quickstart"}


@pytest.mark.parametrize("name", suite_names())
def test_shipped_suites_are_valid(name):
    suite = load_suite(name)
    assert suite.shown.title
    points = [experiment for block in suite.blocks for experiment in block.experiments()]
    assert points or all(plot.formulas for plot in suite.shown.plots)


def test_table1_is_eight_methods_by_three_shots_by_four_feature_sets():
    points = [experiment for block in load_suite("table1").blocks for experiment in block.experiments()]
    assert len(points) == 8 * 3 * 4
    assert {point.n_tasks for point in points} == {10_000}


def test_lists_are_axes_and_every_combination_is_an_experiment():
    (block,) = parse(
        one_block("task = { shots = [1, 5], k_eff = [2, 3, 4] }\nsweep.paddle = { lam = [1, 2], eps = [0.0, 1e-6] }")
    ).blocks
    points = list(block.experiments())
    assert len({(p.task.shots, p.task.k_eff, p.params["lam"], p.params["eps"]) for p in points}) == 2 * 3 * 2 * 2


def test_a_parameter_per_query_is_multiplied_by_the_number_of_queries():
    (block,) = parse(
        one_block("task = { n_query = [10, 40] }\nsweep.paddle = { lam = { per_query = [0.5, 2] } }")
    ).blocks
    assert [point.params["lam"] for point in block.experiments()] == [5, 20, 20, 80]


def test_given_support_and_all_classes_have_words():
    (block,) = parse(one_block('task = { shots = "given", n_ways = "all" }')).blocks
    (point,) = block.experiments()
    assert point.task.shots is None
    assert point.task.n_ways is None


def test_parameters_may_be_set_for_one_feature_set_and_tuned_ones_replace_them():
    (block,) = parse(
        'title = "t"\n[[experiments]]\nfeatures = ["a", "b"]\nmethods = "simpleshot"\n'
        "params.simpleshot = { temperature = 2 }\nparams_on.b.simpleshot = { temperature = 3 }\n"
    ).blocks
    assert [point.params["temperature"] for point in block.experiments()] == [2, 3]
    tuned = {"a": {"simpleshot": {"temperature": 9}}}
    assert [point.params["temperature"] for point in block.experiments(tuned)] == [9, 3]


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('title = "t"\nn_task = 5', "mine.toml: unknown key 'n_task'; did you mean 'n_tasks'?"),
        (one_block("task = { shot = 5 }"), "unknown key 'shot'; did you mean 'shots'?"),
        (one_block("seeds = 3"), "unknown key 'seeds'; did you mean 'seed'?"),
        (one_block("task = { shots = true }"), "'shots' is True; it must be a whole number"),
        (one_block('task = { k_eff = "5" }'), "'k_eff' is '5'; it must be a whole number"),
        (one_block("task = { shots = [] }"), "'shots' is an empty list"),
        (one_block("task = { shots = 0 }").replace("0 }", "[5] }\nn_tasks = 0"), "at least one task"),
        (one_block("params.paddle = { lamb = 3 }"), "paddle has no parameter 'lamb'; did you mean 'lam'?"),
        (one_block("sweep.paddle = { lam = 3 }"), "'lam' must be a list of values to sweep"),
        (one_block("").replace('"paddle"', '"padle"'), "There is no method 'padle'; did you mean 'paddle'?"),
        ('title = "t"\n[[experiments]]\nmethods = "paddle"', "lacks the key 'features'"),
        ('title = "t"\n[[plots]]\ny = "speed"', "choose accuracy, criterion or best"),
        ('title = "t"\n[[plots]]\nformulas = ["entropie"]', "did you mean 'entropy'?"),
        ('title = "t"\n[[plots]]\ny = "best"', "goes with of"),
        ("title = ", "mine.toml is not valid TOML"),
        ("about = 'x'", "mine.toml lacks the key 'title'"),
    ],
)
def test_what_is_wrong_is_one_sentence_that_names_it(toml, message):
    with pytest.raises(InputError) as caught:
        parse(toml)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_suite_gets_the_nearest_name():
    with pytest.raises(InputError, match="did you mean 'table1'"):
        load_suite("tabel1")


def test_missing_features_say_what_to_do(tmp_path):
    with pytest.raises(InputError, match=r"no features 'toy' in .*toy\.safetensors, or .*--features FILE"):
        jobs_of(SMALL, tmp_path)
    with pytest.raises(InputError, match=r"manyway train --dataset mini .*manyway extract mini:test .*mini-wrn\.saf"):
        jobs_of(SMALL.replace('"toy"', '"mini-wrn"'), tmp_path)


def test_a_longer_file_name_is_found_by_its_beginning_when_it_is_the_only_one(tmp_path):
    data_folder_with_toy(tmp_path, "toy_v1")
    assert len(jobs_of(SMALL, tmp_path)) == 12
    data_folder_with_toy(tmp_path, "toy_v2")
    with pytest.raises(InputError, match=r"Several files could be 'toy': toy_v1.safetensors, toy_v2.safetensors"):
        jobs_of(SMALL, tmp_path)


def test_a_feature_file_takes_the_place_of_every_set_and_each_point_runs_once(tmp_path):
    data_folder_with_toy(tmp_path)
    toml = SMALL.replace('features = "toy"', 'features = ["a", "b", "c"]')
    jobs = jobs_of(toml, tmp_path, features=tmp_path / "toy.safetensors")
    assert len(jobs) == 12
    assert {job.experiment.features for job in jobs} == {"toy"}


def test_a_given_support_that_a_file_lacks_is_left_out_or_explained(tmp_path):
    data_folder_with_toy(tmp_path)
    given = SMALL.replace("shots = [1, 3]", 'shots = "given"')
    both = SMALL + given[given.index("[[experiments]]") : given.index("[[tables]]")]
    file = tmp_path / "toy.safetensors"
    assert len(jobs_of(both, tmp_path, features=file)) == 12
    with pytest.raises(InputError, match="--task shots=10"):
        jobs_of(given, tmp_path, features=file)
    assert len(jobs_of(given, tmp_path, features=file, task=parse_task(["shots=2"]))) == 6


def test_only_keeps_a_part(tmp_path):
    data_folder_with_toy(tmp_path)
    jobs = jobs_of(SMALL, tmp_path, only=parse_only(["method=paddle,simpleshot", "shots=3"]))
    assert {(job.experiment.method, job.experiment.task.shots) for job in jobs} == {("paddle", 3), ("simpleshot", 3)}
    with pytest.raises(InputError, match="keeps no experiment"):
        jobs_of(SMALL, tmp_path, only=parse_only(["shots=7"]))


def test_wishes_that_make_no_sense_are_refused():
    with pytest.raises(InputError, match="AXIS=VALUE"):
        parse_only(["paddle"])
    with pytest.raises(InputError, match="did you mean 'shots'"):
        parse_task(["shot=3"])
    with pytest.raises(InputError, match="must be a number"):
        parse_task(["shots=few"])
