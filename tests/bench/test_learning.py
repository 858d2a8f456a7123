"""Learning the parameters of UNEM: exact gradients, bounded memory, and runs that can be continued."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from bench_problems import jobs_of
from problems import make_features

from manyway import InputError, TaskSpec, evaluate, sample_tasks
from manyway.bench import tuning
from manyway.bench.plan import Job
from manyway.bench.suite import Experiment, Learning, parse_suite
from manyway.bench.tuning import (
    _LearningState,
    already_learned,
    check_lessons,
    learn,
    loss_gradient,
    training_of,
    validate,
)
from manyway.methods.unem.parameters import read_parameters

SPEC = TaskSpec(shots=2, k_eff=3, n_query=12)


def make_lesson(features=None, learning=None, **changes):
    how = {"task": SPEC, "n_tasks": 6, "seed": 0, "learn": learning or Learning(layers=3, steps=6, halve_every=3)}
    return Job("", Experiment("toy-val", "unem", {}, **{**how, **changes}), features or make_features())


@pytest.fixture(scope="module")
def lesson():
    return make_lesson()


@pytest.mark.parametrize("loss", ["cross-entropy", "double-softmax"])
def test_the_gradient_is_that_of_finite_differences(lesson, loss):
    tasks = sample_tasks(lesson.features, SPEC, count=2).to(dtype=torch.float64)
    values = torch.linspace(-1, 1, 7, dtype=torch.float64)
    how = lesson.experiment.learn.model_copy(update={"loss": loss})
    gradient, _ = loss_gradient(tasks, values, how)
    steps = 1e-5 * torch.eye(7, dtype=torch.float64)
    differences = [loss_gradient(tasks, values + h, how)[1] - loss_gradient(tasks, values - h, how)[1] for h in steps]
    torch.testing.assert_close(gradient, torch.tensor(differences, dtype=torch.float64) / 2e-5, rtol=1e-6, atol=1e-8)
    assert gradient[1] == 0  # nothing depends on the class-balance weight of the first layer


def test_the_loss_is_the_cross_entropy_of_what_the_solver_answers(lesson, tmp_path):
    tasks = sample_tasks(lesson.features, SPEC, count=3)
    values = torch.linspace(-1, 1, 7, dtype=torch.float64)
    feature_scale, lam, temperature = (value.tolist() for value in tuning.effective(values))
    given = {"feature_scale": feature_scale, "lam": lam, "temperature": temperature}
    found = tuning.get_method("unem")(tasks, parameters=given).probabilities
    expected = -found.gather(2, tasks.query_labels.unsqueeze(-1)).log().sum()
    assert loss_gradient(tasks, values, lesson.experiment.learn)[1] == pytest.approx(float(expected), rel=1e-4)


def test_what_is_learned_is_better_than_the_start(lesson, tmp_path):
    longer = make_lesson(n_tasks=20, learning=Learning(steps=25))
    found = validate(longer, learn(longer, tmp_path / "state.json"), None)
    start = dict(zip(("feature_scale", "lam", "temperature"), tuning.effective(torch.ones(21)), strict=True))
    given = {name: value.tolist() for name, value in start.items()}
    before = evaluate("unem", longer.features, SPEC, 20, start=20, parameters=given)
    assert found.accuracy > before.accuracy + 0.02


def test_a_run_that_was_stopped_continues_exactly(lesson, tmp_path):
    path, whole = tmp_path / "state.json", learn(lesson, tmp_path / "whole.json")
    for stop in (1, 4):  # at the beginning of a step after that many steps
        seen = []

        def interrupt(n_tasks, stop=stop, seen=seen):
            seen.append(n_tasks)
            if sum(seen) > stop * lesson.experiment.n_tasks:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            learn(lesson, path, progress=interrupt)
        assert json.loads(path.read_text())["step"] == stop
    assert learn(lesson, path) == whole
    assert list(tmp_path.iterdir()) == []


def test_smaller_chunks_give_the_same_parameters(lesson, tmp_path, monkeypatch):
    whole = learn(lesson, tmp_path / "state.json")
    monkeypatch.setitem(tuning._CHUNK_BYTES, "cpu", 1)
    assert learn(lesson, tmp_path / "state.json").lam == pytest.approx(whole.lam, rel=1e-4)


def test_a_state_that_is_damaged_or_of_another_run_is_refused(lesson, tmp_path):
    path = tmp_path / "state.json"
    kept = {"training": training_of(lesson), "step": 1, "values": [1.0] * 7, "mean": [0.0] * 7, "square": [0.0] * 7}
    for content, message in (
        ("{", "is not the state of a training of manyway"),
        (_LearningState(**kept).to_json().replace("7", "8"), "was changed after it was written"),
        (_LearningState(**{**kept, "mean": [0.0]}).to_json(), "does not have 7 values of each kind"),
        (_LearningState(**{**kept, "training": {}}).to_json(), "is the state of another training"),
    ):
        path.write_text(content)
        with pytest.raises(InputError, match=message):
            learn(lesson, path)


def test_a_file_is_known_by_all_that_decides_what_is_learned(lesson, tmp_path):
    path = tmp_path / "unem.json"
    assert already_learned(lesson, path) is None
    found = learn(lesson, tmp_path / "state.json")
    path.write_text(json.dumps(found.to_json()))
    assert already_learned(lesson, path) == read_parameters(path) == found
    for other in ({"seed": 1}, {"task": replace(SPEC, shots=3)}, {"features": make_features(seed=1)}):
        assert already_learned(make_lesson(**other), path) is None


def test_one_feature_set_has_one_lesson(tmp_path):
    make_features().save(tmp_path / "toy-val.safetensors")
    suite = 'title = "T"\n[[experiments]]\nfeatures = "toy-val"\nmethods = "unem"\nlearn.unem = {}\n'
    check_lessons(jobs_of(f"{suite}task = {{ n_query = 12, shots = 2 }}", tmp_path))
    with pytest.raises(InputError, match="unem can be learned on tasks of one kind only for toy"):
        check_lessons(jobs_of(f"{suite}task = {{ n_query = 12, shots = [2, 3] }}", tmp_path))
    with pytest.raises(InputError, match="unem is learned on tasks with examples and one k_eff"):
        check_lessons(jobs_of(f"{suite}task = {{ n_query = 12, shots = 2, n_unknown = 3 }}", tmp_path))


def test_other_methods_have_nothing_to_learn():
    suite = 'title = "T"\n[[experiments]]\nfeatures = "toy"\nmethods = "paddle"\nlearn.paddle = {}\n'
    with pytest.raises(InputError, match=r"experiments\[1\]\.learn\.paddle"):
        parse_suite(suite, "t", "t")
