"""Suites are data: what they may say, and what they may not."""

from __future__ import annotations

import os

from pathlib import Path

import pytest
from bench_problems import SMALL, data_folder_with_toy, jobs_of
from problems import make_features

from manyway import InputError
from manyway.bench.plan import SuiteChanges, make_jobs, parse_only, parse_task
from manyway.bench.suite import TaskAxes, load_suite, parse_suite, suite_names, suite_titles
from manyway.sampling.spec import TaskSpec

PAPER = {"table1", "table2", "table3", "figure-keff", "convergence", "lambda-optimal", "lambda-curve", "label-cost"}


def parse(toml: str):
    return parse_suite(toml, "mine", "mine.toml")


def one_block(block: str, more: str = "") -> str:
    return f'title = "t"\n[[experiments]]\nfeatures = "toy"\nmethods = "paddle"\n{block}\n{more}'


def test_every_table_and_figure_of_the_paper_has_a_suite_of_its_name():
    assert set(suite_names()) >= PAPER | {"standard", "dirichlet", "quickstart"}


@pytest.fixture(scope="module")
def titles():
    return suite_titles()


@pytest.mark.parametrize("name", suite_names())
def test_shipped_suites_are_valid(name, titles):
    suite = load_suite(name)
    assert titles[name] == suite.shown.title
    points = [experiment for block in suite.blocks for experiment in block.experiments(n_classes=lambda features: 50)]
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


def test_k_eff_may_be_half_or_all_of_the_classes_of_a_task():
    (block,) = parse(one_block('task = { k_eff = ["half", "all", 3], n_ways = ["all", 6] }')).blocks
    points = block.experiments(n_classes={"toy": 13}.__getitem__)
    assert [(point.task.n_ways, point.task.k_eff) for point in points] == [
        (None, 6),
        (6, 3),
        (None, 13),
        (6, 6),
        (None, 3),
        (6, 3),
    ]
    with pytest.raises(InputError, match="needs a feature set"):
        list(block.experiments())


def test_what_a_feature_set_cannot_serve_is_skipped_where_the_suite_says_so(tmp_path):
    data_folder_with_toy(tmp_path)  # 12 classes of 30 samples
    toml = one_block('skip_impossible = true\ntask = { shots = 5, k_eff = [1, 4, 13, "all"], n_query = 40 }')
    jobs, skipped = make_jobs(parse(toml), SuiteChanges(data=tmp_path))
    assert [job.experiment.task.k_eff for job in jobs] == [4, 12]
    assert len(skipped) == 2
    assert "shots=5 k_eff=1 n_query=40 on toy: The 1 smallest classes have 25 samples left" in skipped[0]
    assert "k_eff is 13 but a task has only 12 classes" in skipped[1]
    with pytest.raises(InputError, match=r"Nothing of mine is left to run; the features cannot serve it \(shots=5"):
        make_jobs(parse(toml), SuiteChanges(data=tmp_path, only={"k_eff": ["13"]}))


def test_metrics_are_those_of_the_suite_or_of_the_block():
    toml = 'title = "t"\nmetrics = ["calibration"]\n' + one_block("").partition("\n")[2]
    assert [point.metrics for point in parse(toml).blocks[0].experiments()] == [("calibration",)]
    own = toml + 'metrics = ["confidence", "n_present"]\n'
    assert [point.metrics for point in parse(own).blocks[0].experiments()] == [("confidence", "n_present")]


def test_parameters_may_be_set_for_one_feature_set_and_tuned_ones_replace_them():
    (block,) = parse(
        'title = "t"\n[[experiments]]\nfeatures = ["a", "b"]\nmethods = "simpleshot"\n'
        "params.simpleshot = { logit_scale = 2 }\nparams_on.b.simpleshot = { logit_scale = 3 }\n"
    ).blocks
    assert [point.params["logit_scale"] for point in block.experiments()] == [2, 3]
    tuned = {"a": {"simpleshot": {"logit_scale": 9}}}
    assert [point.params["logit_scale"] for point in block.experiments(tuned)] == [9, 3]


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('title = "t"\nn_task = 5', "mine.toml: unknown key 'n_task'; did you mean 'n_tasks'?"),
        ("titel = 't'", "mine.toml: unknown key 'titel'; did you mean 'title'?"),
        (one_block("task = { shot = 5 }"), "experiments[1].task: unknown key 'shot'; did you mean 'shots'?"),
        (one_block("seeds = 3"), "mine.toml: experiments[1]: unknown key 'seeds'; did you mean 'seed'?"),
        (
            one_block("", '[[experiments]]\nfeatures = "b"\nmethods = "tim"\ntask.shots = [5, true]'),
            "mine.toml: experiments[2].task.shots[2] is True; it must be a whole number of at least 0 or 'given'.",
        ),
        (one_block('task = { k_eff = "5" }'), "task.k_eff is '5'; it must be a whole number of at least 1 or 'half'"),
        (one_block("task = { n_query = 7.5 }"), "experiments[1].task.n_query is 7.5; it must be a whole number."),
        (one_block("task = { shots = [] }"), "experiments[1].task.shots is an empty list"),
        (one_block("task = 3"), "experiments[1].task is 3; it must be a table."),
        (one_block("n_tasks = 0"), "experiments[1].n_tasks is 0; it must be greater than 0."),
        (one_block('task = { sampling = "dirichlet", alpha = inf }'), "task.alpha is inf; it must be finite."),
        (one_block('task = { sampling = "dirichlet", alpha = 0 }'), "task.alpha is 0; it must be greater than 0."),
        (one_block("task = { alpha = 2 }"), "experiments[1].task: alpha is the parameter of sampling='dirichlet'"),
        (one_block('task = { sampling = "unifrom" }'), "task.sampling is 'unifrom'; did you mean 'uniform'?"),
        (one_block("params.paddle = { lamb = 3 }"), "paddle has no parameter 'lamb'; did you mean 'lam'?"),
        (one_block("params.paddle = { lam = nan }"), "experiments[1].params.paddle: lam is nan; it must be a finite"),
        (one_block("params.paddle = { lam = { per_query = inf } }"), "params.paddle: lam is inf; it must be a finite"),
        (one_block("params.paddle = { lam = -1 }"), "params.paddle: lam is -1; it must not be negative."),
        (one_block('params.paddle = { lam = "3" }'), "params.paddle: lam is '3'; it must be a finite number or None."),
        (
            one_block("params.paddle = { lam = true }"),
            "params.paddle: lam is True; it must be a finite number",
        ),
        (one_block("params.paddle = { max_iter = 2.5 }"), "params.paddle: max_iter is 2.5; it must be an integer."),
        (one_block("params.simpleshot = { logit_scale = -1 }"), "params.simpleshot: logit_scale is -1; it must be pos"),
        (one_block("params.paddle = 3"), "experiments[1].params.paddle is 3; it must be a table."),
        (
            one_block("params.tim = { weights = [1, nan, 1] }"),
            "params.tim: weights is [1, nan, 1]; it must",
        ),
        (
            one_block("params.padle = { lam = 3 }"),
            "params.padle is 'padle', which is no method; did",
        ),
        (one_block("params_on.toy.paddle = { lam = nan }"), "experiments[1].params_on.toy.paddle: lam is nan"),
        (one_block("sweep.paddle = { lam = 3 }"), "experiments[1].sweep.paddle.lam must be a list of values to sweep"),
        (one_block("sweep.paddle = { lam = [] }"), "experiments[1].sweep.paddle.lam must be a list of values to sweep"),
        (one_block("sweep.paddle = { lam = [1, inf] }"), "experiments[1].sweep.paddle: lam is inf; it must be a"),
        (one_block("").replace('"paddle"', '["padle"]'), "methods[1] is 'padle', which is no method; did you mean"),
        (one_block('metrics = ["calibratoin"]'), "metrics[1] is 'calibratoin', which is no metric; did you mean"),
        (one_block("seed = 99999999999999999999"), "experiments[1].seed is 99999999999999999999; it must be less than"),
        (one_block("trace = { tol = 0 }"), "experiments[1].trace.tol is 0; it must be greater than 0."),
        ('title = "t"\n[[experiments]]\nmethods = "paddle"', "mine.toml: experiments[1] lacks the key 'features'."),
        ('title = "t"\nexperiments = 3', "mine.toml: experiments is 3; it must be a list."),
        ('title = "t"\n[[plots]]\ny = "zzzz"', "plots[1].y is 'zzzz', which is no metric; choose one of: accuracy"),
        ('title = "t"\n[[plots]]\nformulas = ["entropie"]', "did you mean 'entropy'?"),
        ('title = "t"\n[[plots]]\ny = "best"', "plots[1] must have y = 'best' together with of"),
        ('title = "t"\n[[plots]]\ny = "criterion"', "plots[1] must have x = 'seconds' or x = 'steps'"),
        ('title = "t"\n[[plots]]\nname = "../../x"', "plots[1].name is '../../x'; it becomes part of a file name"),
        ('title = "t"\n[[plots]]\nname = ".x"', "plots[1].name is '.x'; it becomes part of a file name"),
        ('title = "t"\n[[plots]]\n[[plots]]\nname = "plot"', "plots has two plots named 'plot'"),
        (one_block("", '[[plots]]\nx = "kef"'), "plots[1].x names 'kef', which is no axis"),
        (one_block("", '[[plots]]\npanels = ["shot"]'), "plots[1].panels names 'shot', which is no axis"),
        (one_block("", '[[plots]]\ny = "best"\nof = "lamb"'), "plots[1].of names 'lamb', which is no axis"),
        (
            one_block("", '[[tables]]\ncolumns = ["foo"]'),
            "tables[1].columns names 'foo', which is no axis",
        ),
        (one_block("", '[[tables]]\nrows = "metod"'), "tables[1].rows names 'metod', which is no axis"),
        (
            one_block("", "[[tables]]\nwhere = { shot = 5 }"),
            "where names 'shot', which is no axis",
        ),
        (one_block("", '[[tables]]\nmetric = "calibration"'), "tables[1] shows 'calibration', which is not measured"),
        (one_block("", "[[tables]]\nwhere = 3"), "mine.toml: tables[1].where is 3; it must be a table."),
        (
            one_block("params.tim = { weights = { per_query = [1, 1, 1] } }"),
            "weights is [1, 1, 1] per query; it",
        ),
        ("title = ", "mine.toml is not valid TOML"),
        ("about = 'x'", "mine.toml lacks the key 'title'"),
    ],
)
def test_what_is_wrong_is_one_sentence_that_names_it(toml, message):
    with pytest.raises(InputError) as caught:
        parse(toml)
    assert message in str(caught.value)
    assert str(caught.value).startswith("mine.toml")
    assert "\n" not in str(caught.value)


def test_a_suite_is_an_ordinary_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(InputError, match=r"pipe\.toml is a pipe, not a file"):
        load_suite(str(tmp_path / "pipe.toml"))
    (tmp_path / "latin.toml").write_bytes('title = "Bäume"'.encode("latin-1"))
    with pytest.raises(InputError, match=r"latin\.toml cannot be read as text"):
        load_suite(str(tmp_path / "latin.toml"))


@pytest.mark.parametrize("key", ["/etc/passwd", "../secret", "a*", ""])
def test_a_key_of_features_is_a_name(tmp_path, key):
    with pytest.raises(InputError, match="is not the key of a feature set"):
        jobs_of(SMALL.replace('"toy"', f'"{key}"'), tmp_path)


def test_an_unknown_suite_gets_the_nearest_name():
    with pytest.raises(InputError, match="did you mean 'table1'"):
        load_suite("tabel1")


def test_missing_features_say_what_to_do(tmp_path):
    with pytest.raises(InputError, match=r"no features 'toy' in .*toy\.safetensors, or .*`features`"):
        jobs_of(SMALL, tmp_path)
    with pytest.raises(InputError, match=r"wrn28-10 on mini with `manyway train`.*mini:test into .*mini-wrn\.saf"):
        jobs_of(SMALL.replace('"toy"', '"mini-wrn"'), tmp_path)


def test_a_longer_file_name_is_found_by_its_beginning_when_it_is_the_only_one(tmp_path):
    data_folder_with_toy(tmp_path, "toy_v1")
    assert len(jobs_of(SMALL, tmp_path)) == 12
    data_folder_with_toy(tmp_path, "toy_names_v1", seed=1)  # other features of the same data
    assert jobs_of(SMALL, tmp_path)[0].features.fingerprint == make_features().fingerprint
    data_folder_with_toy(tmp_path, "toy_v2")
    with pytest.raises(InputError, match=r"Several files could be 'toy': .*toy_v1.safetensors, toy_v2.safetensors"):
        jobs_of(SMALL, tmp_path)


def test_a_set_without_validation_classes_has_halves_that_share_no_class(tmp_path):
    data_folder_with_toy(tmp_path)
    (half, *_) = jobs_of(SMALL.replace('"toy"', '"toy-half"'), tmp_path)
    (other, *_) = jobs_of(SMALL.replace('"toy"', '"toy-half-val"'), tmp_path)
    assert (half.features.n_classes, other.features.n_classes) == (6, 6)
    assert set(half.features.class_names).isdisjoint(other.features.class_names)
    rows = {tuple(row) for row in half.features.features.tolist()}
    assert rows.isdisjoint(tuple(row) for row in other.features.features.tolist())


def test_a_key_of_features_replaces_all_sets(tmp_path):
    data_folder_with_toy(tmp_path)
    toml = SMALL.replace('features = "toy"', 'features = ["a", "b"]')
    jobs = jobs_of(toml, tmp_path, features=Path("toy-half-val"))
    assert {job.experiment.features for job in jobs} == {"toy-half-val"}
    assert {job.features.n_classes for job in jobs} == {6}
    with pytest.raises(InputError, match="no features 'nowhere'"):
        jobs_of(toml, tmp_path, features=Path("nowhere"))


def test_a_feature_file_replaces_every_set_and_each_point_runs_once(tmp_path):
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
    with pytest.raises(InputError, match="say how many to draw: shots=10 in `task`"):
        jobs_of(given, tmp_path, features=file)
    assert len(jobs_of(given, tmp_path, features=file, task=parse_task(["shots=2"]))) == 6


def test_only_keeps_a_part_and_loads_only_its_features(tmp_path):
    data_folder_with_toy(tmp_path)
    toml = SMALL.replace('features = "toy"', 'features = ["toy", "absent"]')
    only = parse_only(["method=paddle,simpleshot", "shots=3", "features=toy"])
    jobs = jobs_of(toml, tmp_path, only=only)
    assert {(job.experiment.method, job.experiment.task.shots) for job in jobs} == {("paddle", 3), ("simpleshot", 3)}
    with pytest.raises(InputError, match="keeps no experiment"):
        jobs_of(SMALL, tmp_path, only=parse_only(["shots=7"]))


def test_only_about_an_unknown_axis_is_an_error(tmp_path):
    data_folder_with_toy(tmp_path)
    with pytest.raises(InputError, match="small has no axis 'metod'; did you mean 'method'"):
        jobs_of(SMALL, tmp_path, only=parse_only(["metod=paddle"]))
    swept = SMALL.replace("[[tables]]", "sweep.paddle = { lam = [1, 2] }\n\n[[tables]]")
    jobs = jobs_of(swept, tmp_path, only=parse_only(["lam=2", "shots=1", "k_eff=2"]))
    assert [(job.experiment.method, job.experiment.params) for job in jobs] == [
        ("paddle", {"lam": 2}),
        ("soft-kmeans", {}),  # a method without this parameter is kept
        ("simpleshot", {}),
    ]


def test_options_that_make_no_sense_are_refused():
    with pytest.raises(InputError, match="AXIS=VALUE"):
        parse_only(["paddle"])
    with pytest.raises(InputError, match="did you mean 'shots'"):
        parse_task(["shot=3"])
    with pytest.raises(InputError, match="`task`: shots is 'few'; it must be a whole number"):
        parse_task(["shots=few"])
    with pytest.raises(InputError, match="`task`: alpha is inf; it must be finite"):
        parse_task(["alpha=inf"])


def test_a_task_that_says_nothing_is_the_default_task():
    assert list(TaskAxes().points(None)) == [TaskSpec()]
    assert list(TaskAxes(n_query=(5, 9)).points(None)) == [TaskSpec(n_query=5), TaskSpec(n_query=9)]
