"""Results on disk: keys, whole files, results of other versions."""

from __future__ import annotations

import resource
from dataclasses import replace

import pytest
from bench.show.results import make_record
from bench_problems import SMALL, contents, data_folder_with_toy, jobs_of, run_suite
from pydantic import ConfigDict

from manyway import InputError, TaskSpec
from manyway.bench.records import FORMAT, Partial, Record, Store, Stored, StoreError, experiment_key
from manyway.bench.show.tables import make_grids
from manyway.bench.show.view import load_view
from manyway.bench.suite import Experiment, Trace
from manyway.evaluation.scorers import SCORERS
from manyway.methods import METHODS, Method

CORRECT = [5, 0, 6, 5, 4, 0, 6, 5, 1, 4]
EXPERIMENT = Experiment("toy", "simpleshot", {}, TaskSpec(), 1000, 0)


def fixed(tasks, *, lam=None, weights=(1.0, 0.3), tol=1e-6):
    """A method whose parameters will not change."""


def test_the_key_of_an_experiment_never_changes(monkeypatch):
    monkeypatch.setitem(METHODS, "fixed", Method("fixed", "Fixed", fixed, ""))
    experiment = replace(EXPERIMENT, method="fixed", params={"lam": 37.5})
    # If this fails, every stored result would be run again: raise FORMAT and say so in the changelog instead.
    assert experiment_key(experiment, "0123456789abcdef") == "89fab790473082e9"


def test_another_version_of_the_method_has_another_key(monkeypatch):
    experiment = replace(EXPERIMENT, method="fixed")
    monkeypatch.setitem(METHODS, "fixed", Method("fixed", "Fixed", fixed, ""))
    before = experiment_key(experiment, "a")
    monkeypatch.setitem(METHODS, "fixed", Method("fixed", "Fixed", fixed, "", version=2))
    assert experiment_key(experiment, "a") != before


def test_the_key_changes_with_everything_that_was_asked_and_not_with_names():
    keys = {
        experiment_key(EXPERIMENT, "a"),
        experiment_key(EXPERIMENT, "b"),
        experiment_key(replace(EXPERIMENT, method="paddle"), "a"),
        experiment_key(replace(EXPERIMENT, params={"logit_scale": 2.0}), "a"),
        experiment_key(replace(EXPERIMENT, task=TaskSpec(shots=10)), "a"),
        experiment_key(replace(EXPERIMENT, n_tasks=999), "a"),
        experiment_key(replace(EXPERIMENT, seed=1), "a"),
        experiment_key(replace(EXPERIMENT, trace=Trace()), "a"),
        experiment_key(replace(EXPERIMENT, metrics=("calibration",)), "a"),
    }
    assert len(keys) == 9
    assert experiment_key(replace(EXPERIMENT, features="another name"), "a") in keys
    # A default that is written out, and a whole number written as a float, are the same request.
    assert experiment_key(replace(EXPERIMENT, params={"logit_scale": 1}), "a") in keys


def test_a_record_is_the_same_when_it_is_read_again(tmp_path):
    record = make_record()
    Store(tmp_path).write(record)
    assert Store(tmp_path).find(record.key) == record
    assert (tmp_path / "records" / record.file_name).read_text() == record.to_json()


def test_a_record_of_another_version_of_the_method_is_old(tmp_path, monkeypatch):
    data_folder_with_toy(tmp_path)
    run_suite(SMALL, tmp_path, tmp_path / "results")
    store, method = Store(tmp_path / "results"), METHODS["paddle"]
    assert not any(record.old for record in store.records())
    monkeypatch.setitem(METHODS, "paddle", replace(method, version=method.version + 1))
    assert {record.method for record in store.records() if record.old} == {"paddle"}
    # Nothing of it is taken for a result of the present version.
    known = store.keys()
    assert {job.experiment.method for job in jobs_of(SMALL, tmp_path) if job.key not in known} == {"paddle"}
    monkeypatch.delitem(METHODS, "simpleshot")
    assert {record.old for record in store.records() if record.method == "simpleshot"} == {
        "there is no simpleshot any more"
    }


def test_a_record_of_another_version_is_run_again_and_stays_beside_the_new_one(tmp_path, monkeypatch):
    data_folder_with_toy(tmp_path)
    run_suite(SMALL, tmp_path, tmp_path / "results", only={"method": ["paddle"]})
    store, method = Store(tmp_path / "results"), METHODS["paddle"]
    first = {record.key for record in store.records()}
    partial = Partial(chunk=10, device="cpu", done={0: {"accuracy": [1, 2]}})
    monkeypatch.setitem(METHODS, "paddle", replace(method, version=method.version + 1))
    for job in jobs_of(SMALL, tmp_path, only={"method": ["paddle"]}):
        assert store.find(job.key) is None
        assert store.partial(job.key) is None
    for key in first:  # a partial result of the version before is not continued either
        store.write_partial(key, partial)
    view = run_suite(SMALL, tmp_path, tmp_path / "results", only={"method": ["paddle"]})
    assert {record.version for record in view.records} == {method.version + 1}
    assert not first & {record.key for record in view.records}
    assert first < store.keys()
    assert not any("†" in grid.note for grid in make_grids(view))


def test_a_score_of_another_version_is_old_too():
    record = make_record("simpleshot", scorer="knn", scorer_version=SCORERS["knn"].version)
    assert not record.old
    old = record.model_copy(update={"scorer_version": 99})
    assert old.old == f"made by version 99 of the score knn, now {SCORERS['knn'].version}"


def test_a_record_says_what_it_was_made_of(tmp_path):
    data_folder_with_toy(tmp_path)
    (record, *_) = run_suite(SMALL, tmp_path, tmp_path / "results").records
    assert record.seed == 0
    assert set(record.provenance.versions) >= {"manyway", "torch", "numpy", "python"}
    assert record.provenance.device == "cpu"
    assert record.features.fingerprint == jobs_of(SMALL, tmp_path)[0].features.fingerprint
    assert record.timing.seconds > 0
    assert len(record.outcome.correct) == 40
    assert all(isinstance(count, int) and 0 <= count <= 12 for count in record.outcome.correct)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "[" * 100_000, "{}", '{"format": null}', '{"format": 99}', f'{{"format": {FORMAT}}}'],
)
def test_a_file_that_is_no_record_is_one_sentence(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"x\.json") as caught:
        Record.read(path)
    assert "\n" not in str(caught.value)


def changed(record: dict, place: str, value: object) -> dict:
    """The record with another value at a place such as 'outcome.correct'."""
    outer, _, inner = place.partition(".")
    return {**record, outer: changed(record[outer], inner, value) if inner else value}


class Loose(Stored):
    """Any content, with a valid checksum."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=True)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("outcome.correct", None, "outcome.correct is None; it must be a list"),
        ("outcome.correct", [5, 0, 6, 5, None, 0, 6, 5, 1, 4], "outcome.correct[5] is None; it must be a whole number"),
        ("outcome.correct", [5, 0, 6, 5, 4.5, 0, 6, 5, 1, 4], "outcome.correct[5] is 4.5; it must be a whole number"),
        ("outcome.correct", [5, 0, 6, 5, True, 0, 6, 5, 1, 4], "outcome.correct[5] is True; it must be a whole number"),
        ("n_tasks", 0, "n_tasks is 0; it must be greater than 0"),
        ("n_tasks", "10", "n_tasks is '10'; it must be a whole number"),
        ("timing.seconds", -1.0, "timing.seconds is -1; it must be at least 0"),
        ("method", None, "method is None; it must be text"),
        ("colour", "red", "unknown key 'colour'"),
    ],
)
def test_content_of_another_type_is_refused_by_name(tmp_path, place, value, message):
    path = tmp_path / "x.json"
    good = make_record(n_tasks=10, outcome={"n_query": 12, "correct": CORRECT}).model_dump()
    path.write_text(Loose(**changed(good, place, value)).to_json())
    with pytest.raises(InputError) as caught:
        Record.read(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_record_that_was_changed_is_refused(tmp_path):
    data_folder_with_toy(tmp_path)
    run_suite(SMALL, tmp_path, tmp_path / "results")
    (path, *_) = sorted((tmp_path / "results" / "records").iterdir())
    text = path.read_text()
    path.write_text(text.replace('"seed": 0', '"seed": 1'))
    with pytest.raises(InputError, match=f"{path.name} was changed after it was written"):
        Record.read(path)
    path.write_text("".join(line for line in text.splitlines(True) if "sha256" not in line).replace("},\n}", "}\n}"))
    with pytest.raises(InputError, match=path.name):
        Record.read(path)


def test_a_record_under_the_name_of_another_is_refused(tmp_path):
    data_folder_with_toy(tmp_path)
    (record, *_) = run_suite(SMALL, tmp_path, tmp_path / "results").records
    path = tmp_path / "results" / "records" / record.file_name
    path.rename(path.with_name("paddle-0123456789abcdef.json"))
    with pytest.raises(InputError, match=r"paddle-0123456789abcdef\.json holds the result"):
        Store(tmp_path / "results").find("0123456789abcdef")


def test_stretches_that_touch_become_one_and_gaps_are_known():
    def part(*correct: int) -> dict:
        sums = [[[0, 0, 0]] * 15] * 20
        return {"accuracy": list(correct), "confidence": [0.5] * len(correct), "calibration": sums}

    partial = Partial(chunk=10, device="cpu").add(0, part(1, 2), 0.5).add(5, part(6), 0.25).add(2, part(3, 4, 5), 0.25)
    assert dict(partial.done) == {0: part(1, 2, 3, 4, 5, 6)}
    assert partial.seconds == 1.0
    assert partial.gaps(8) == [(6, 8)]
    assert partial.add(7, part(8), 0).gaps(8) == [(6, 7)]
    with pytest.raises(InputError, match="Task 4 was done twice"):
        partial.add(4, part(9), 0)


def test_a_damaged_partial_result_is_refused_by_name(tmp_path):
    store = Store(tmp_path)
    path = tmp_path / "partial" / "abc.json"
    store.write_partial("abc", Partial(chunk=10, device="cpu", done={0: {"accuracy": [1, 2]}}))
    assert store.partial("abc").n_done == 2
    assert store.partial("abd") is None
    good = path.read_text()
    for text in ("", "{", '{"chunk": 10', good.replace("[1, 2]", "[1, 3]"), good.replace('"done"', '"gone"')):
        path.write_text(text)
        with pytest.raises(InputError, match=r"abc\.json"):
            store.partial("abc")


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', '{"format": 2, "name": "../x", "suite": "s"}'])
def test_a_file_that_is_no_plan_is_refused_by_name(tmp_path, text):
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "small.json").write_text(text)
    with pytest.raises(InputError, match=r"small\.json"):
        Store(tmp_path).plans()


def test_what_a_killed_process_was_writing_is_no_result_and_is_swept_up_later(tmp_path):
    data_folder_with_toy(tmp_path)
    view = run_suite(SMALL, tmp_path, tmp_path / "results")
    store = Store(tmp_path / "results")
    half = tmp_path / "results" / "records" / ".paddle-0123-abc.json"
    half.write_text('{"format": 1,')
    assert len(list(store.records())) == len(store.keys()) == len(view.records)
    store.sweep()
    assert half.exists()  # it may belong to a process that is at work
    store.sweep(older_than=-1)
    assert not half.exists()
    assert len(store.keys()) == len(view.records)


def test_a_full_disk_leaves_no_half_file_and_what_was_there_stays(tmp_path):
    data_folder_with_toy(tmp_path)
    results = tmp_path / "results"
    run_suite(SMALL, tmp_path, results)
    before = contents(results)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # no file may grow beyond 100 bytes
    try:
        with pytest.raises(StoreError, match="Cannot write"):
            run_suite(SMALL.replace("n_tasks = 40", "n_tasks = 41"), tmp_path, results)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert contents(results) == before
    assert not [path for path in results.rglob("*") if path.name.startswith(".")]


def test_a_results_folder_that_cannot_be_written_stops_the_run(tmp_path):
    data_folder_with_toy(tmp_path)
    (tmp_path / "results").write_text("a file, not a folder")
    with pytest.raises(StoreError, match=r"Cannot write .*results"):
        run_suite(SMALL, tmp_path, tmp_path / "results")


def test_results_can_be_shown_without_features_and_after_a_method_is_gone(tmp_path):
    data_folder_with_toy(tmp_path)
    view = run_suite(SMALL, tmp_path, tmp_path / "results")
    (tmp_path / "toy.safetensors").unlink()
    store = Store(tmp_path / "results")
    plan = store.plan("small")
    plan.source["experiments"][0]["methods"] = ["a-method-of-long-ago"]
    store.write_plan(plan)
    assert make_grids(load_view(store, store.plan("small"))) == make_grids(view)
