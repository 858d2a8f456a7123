"""Results on disk: stable keys, whole files, old files."""

from __future__ import annotations

import json
import resource
from dataclasses import replace
from pathlib import Path

import pytest
from bench_problems import SMALL, contents, data_folder_with_toy, jobs_of, run_suite

from manyway import InputError, TaskSpec
from manyway.bench.records import experiment_key
from manyway.bench.show.tables import make_grids
from manyway.bench.show.view import load_view
from manyway.bench.store import Partial, Record, Store, StoreError, read_record
from manyway.bench.suite import Experiment, Trace
from manyway.methods import METHODS, Method

FIXTURE = Path(__file__).parent / "record-format-1.json"
EXPERIMENT = Experiment("toy", "simpleshot", {}, TaskSpec(), 1000, 0)


def test_the_key_of_an_experiment_never_changes(monkeypatch):
    def solver(tasks, *, lam=None, weights=(1.0, 0.3), tol=1e-6):
        """A method whose parameters will not change."""

    monkeypatch.setitem(METHODS, "fixed", Method("fixed", "Fixed", solver, ""))
    experiment = replace(EXPERIMENT, method="fixed", params={"lam": 37.5})
    # If this fails, every result anybody has would be run again: raise FORMAT and say so in the changelog instead.
    assert experiment_key(experiment, "0123456789abcdef") == "2e51de5786e3e003"


def test_the_key_changes_with_everything_that_was_asked_and_not_with_names():
    keys = {
        experiment_key(EXPERIMENT, "a"),
        experiment_key(EXPERIMENT, "b"),
        experiment_key(replace(EXPERIMENT, method="paddle"), "a"),
        experiment_key(replace(EXPERIMENT, params={"temperature": 2.0}), "a"),
        experiment_key(replace(EXPERIMENT, task=TaskSpec(shots=10)), "a"),
        experiment_key(replace(EXPERIMENT, n_tasks=999), "a"),
        experiment_key(replace(EXPERIMENT, seed=1), "a"),
        experiment_key(replace(EXPERIMENT, trace=Trace()), "a"),
    }
    assert len(keys) == 8
    assert experiment_key(replace(EXPERIMENT, features="another name"), "a") in keys
    # A default that is written out, and a whole number written as a float, are the same request.
    assert experiment_key(replace(EXPERIMENT, params={"temperature": 1}), "a") in keys


def test_files_of_the_first_format_still_load():
    record = read_record(FIXTURE)
    assert (record.method, record.key, record.n_tasks) == ("paddle", "d4d48c58cc903319", 10)
    assert record.outcome["n_query"] == 12
    assert record.outcome["correct"] == [5, 0, 6, 5, 4, 0, 6, 5, 1, 4]
    assert record.axis("shots") == 3
    assert Record.from_json(record.to_json(), "here") == record


def test_a_record_says_what_it_was_made_of(tmp_path):
    data_folder_with_toy(tmp_path)
    (record, *_) = run_suite(SMALL, tmp_path, tmp_path / "results").records
    assert record.seed == 0
    assert set(record.provenance["versions"]) >= {"manyway", "torch", "numpy", "python"}
    assert record.provenance["device"] == "cpu"
    assert record.features["fingerprint"] == jobs_of(SMALL, tmp_path)[0].features.fingerprint
    assert record.timing["seconds"] > 0
    assert len(record.outcome["correct"]) == 40
    assert all(isinstance(count, int) and 0 <= count <= 12 for count in record.outcome["correct"])


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 99}'])
def test_a_file_that_is_no_record_is_one_sentence(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"x\.json"):
        read_record(path)


def test_stretches_that_touch_become_one_and_gaps_are_known():
    partial = Partial(10, "cpu").add(0, [1, 2], 0.5).add(5, [6], 0.25).add(2, [3, 4, 5], 0.25)
    assert dict(partial.done) == {0: [1, 2, 3, 4, 5, 6]}
    assert partial.seconds == 1.0
    assert partial.gaps(8) == [(6, 8)]
    assert partial.add(7, [8], 0).gaps(8) == [(6, 7)]


def test_a_damaged_checkpoint_counts_as_none(tmp_path):
    store = Store(tmp_path)
    store.write_partial("abc", Partial(10, "cpu", {0: [1, 2]}))
    assert store.partial("abc").n_done == 2
    (tmp_path / "partial" / "abc.json").write_text('{"chunk": 10')
    assert store.partial("abc") is None


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
    plan = json.loads((tmp_path / "results" / "plans" / "small.json").read_text())
    plan["source"]["experiments"][0]["methods"] = ["a-method-of-long-ago"]
    (tmp_path / "results" / "plans" / "small.json").write_text(json.dumps(plan))
    store = Store(tmp_path / "results")
    assert make_grids(load_view(store, store.plan("small"))) == make_grids(view)
