"""Running: only what is missing, side by side, stopped and resumed; the same bits every time."""

from __future__ import annotations

import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import processes
import pytest
from bench_problems import SMALL, Watching, contents, data_folder_with_toy, jobs_of, run_suite

import manyway.methods
from manyway import InputError, evaluate
from manyway.bench import runner as run
from manyway.bench.records import Partial, Store
from manyway.evaluation import evaluator


def test_what_has_a_result_is_not_run_again(tmp_path):
    data_folder_with_toy(tmp_path)
    store = Store(tmp_path / "results")
    run_suite(SMALL, tmp_path, store.folder)
    known = store.keys()
    assert {job.key for job in jobs_of(SMALL, tmp_path)} <= known
    wider = [job for job in jobs_of(SMALL.replace("[1, 3]", "[1, 2, 3]"), tmp_path) if job.key not in known]
    assert {job.experiment.task.shots for job in wider} == {2}


def test_a_stretch_that_is_there_already_is_taken_over(tmp_path, monkeypatch):
    data_folder_with_toy(tmp_path)
    whole, resumed = Store(tmp_path / "a"), Store(tmp_path / "b")
    monkeypatch.setitem(evaluator._CHUNK_BYTES, "cpu", 2**15)
    (job, *_) = jobs_of(SMALL, tmp_path)
    run.run_jobs([job], whole, None, Watching())
    record = whole.find(job.key)
    chunk = record.provenance.chunk
    assert 2 * chunk < 40
    second = {chunk: {"accuracy": record.outcome.correct[chunk : 2 * chunk]}}
    resumed.write_partial(job.key, Partial(chunk=chunk, device="cpu", done=second))
    watching = Watching()
    run.run_jobs([job], resumed, None, watching)
    assert watching.tasks == 40 - chunk
    assert contents(whole.folder) == contents(resumed.folder)


def test_a_stretch_from_another_kind_of_device_is_not(tmp_path):
    data_folder_with_toy(tmp_path)
    store = Store(tmp_path / "a")
    (job, *_) = jobs_of(SMALL, tmp_path)
    store.write_partial(job.key, Partial(chunk=16, device="cuda", done={0: {"accuracy": [0] * 16}}))
    watching = Watching()
    run.run_jobs([job], store, None, watching)
    assert watching.tasks == 40


METRICS = SMALL.replace(
    "n_tasks = 40", 'n_tasks = 40\nmetrics = ["calibration", "n_present", "presence", "confidence"]'
)


def test_metrics_are_stored_and_do_not_depend_on_interruptions(tmp_path, monkeypatch):
    data_folder_with_toy(tmp_path)
    monkeypatch.setitem(evaluator._CHUNK_BYTES, "cpu", 2**15)
    (job, *_) = jobs_of(METRICS, tmp_path)
    whole, resumed = Store(tmp_path / "a"), Store(tmp_path / "b")
    run.run_jobs([job], whole, None, Watching())
    chunk = whole.find(job.key).provenance.chunk
    part = run.measure(job.experiment, job.features, chunk, chunk)
    resumed.write_partial(job.key, Partial(chunk=chunk, device="cpu", done={chunk: run.stretch_of(part, chunk)}))
    watching = Watching()
    run.run_jobs([job], resumed, None, watching)
    assert watching.tasks == 40 - chunk
    assert contents(whole.folder) == contents(resumed.folder)
    record = whole.find(job.key)
    assert sorted(record.metrics) == ["accuracy", "calibration", "confidence", "n_present", "presence"]
    spec, params = job.experiment.task, job.experiment.params
    result = evaluate("paddle", job.features, spec, 40, metrics=record.metrics, **params)
    for name in ("accuracy", "calibration", "n_present", "n_present.within", "presence", "confidence"):
        assert record.value(name).mean == pytest.approx(result.value(name).mean, abs=1e-6)
        assert record.value(name).half == pytest.approx(result.value(name).half, abs=1e-6)
    with pytest.raises(InputError, match="did you mean 'calibration'"):
        record.value("calibratoin")


@pytest.mark.slow
def test_kill_9_in_the_middle_loses_nothing_but_time(tmp_path, monkeypatch):
    data_folder_with_toy(tmp_path)
    toml = (
        'title = "Mine"\nn_tasks = 60\nmetrics = ["calibration"]\n[[experiments]]\nfeatures = "toy"\n'
        'methods = "paddle"\ntask = { shots = 3, k_eff = 4, n_query = 20 }\n'
    )
    (tmp_path / "mine.toml").write_text(toml)
    # Small chunks and a checkpoint after each of them. The process kills itself when it has written the second one.
    code = """
import os, signal
import manyway.bench.runner as run
from manyway.bench.records import Store
from manyway.cli import main
from manyway.evaluation import evaluator
run.SAVE_EVERY, evaluator._CHUNK_BYTES["cpu"] = 0.0, 2**15
write, written = Store.write_partial, []
def write_and_die(*arguments):
    write(*arguments)
    written.append(1)
    if len(written) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
Store.write_partial = write_and_die
main()
"""
    words = ["bench", str(tmp_path / "mine.toml"), "--data", str(tmp_path), "--results", str(tmp_path / "killed")]
    killed = processes.run(code, *words)
    assert killed.returncode == -signal.SIGKILL, killed.stdout
    partial = tmp_path / "killed" / "partial"
    assert not any((tmp_path / "killed" / "records").glob("*.json"))
    (left,) = partial.glob("[!.]*.json")
    assert 0 < Store(tmp_path / "killed").partial(left.stem).n_done < 60
    monkeypatch.setitem(evaluator._CHUNK_BYTES, "cpu", 2**15)
    run_suite(toml, tmp_path, tmp_path / "killed")
    run_suite(toml, tmp_path, tmp_path / "whole")
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    assert not any(partial.glob("[!.]*.json"))


def test_an_interruption_keeps_what_is_done(tmp_path, monkeypatch):
    data_folder_with_toy(tmp_path)
    monkeypatch.setitem(evaluator._CHUNK_BYTES, "cpu", 2**15)
    (job, *_) = jobs_of(SMALL, tmp_path)
    store = Store(tmp_path / "results")
    calls = []

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return evaluate(*arguments, **options)

    monkeypatch.setattr(run, "evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.run_jobs([job], store, None, Watching())
    assert 0 < store.partial(job.key).n_done < 40


def test_a_failure_is_reported_and_never_stored_and_the_others_run(tmp_path):
    data_folder_with_toy(tmp_path)
    jobs = jobs_of(SMALL.replace("k_eff = [2, 4]", "k_eff = [2, 13]"), tmp_path)
    store = Store(tmp_path / "results")
    failures = run.run_jobs(jobs, store, None, Watching())
    assert len(failures) == 6
    assert {failure.error for failure in failures} == {"k_eff is 13 but a task has only 12 classes; lower k_eff."}
    assert len(store.keys()) == 6
    assert not any((tmp_path / "results").rglob("partial/*"))


def test_every_task_is_told_once_also_those_of_failures(tmp_path):
    data_folder_with_toy(tmp_path)
    jobs, told = jobs_of(SMALL.replace("k_eff = [2, 4]", "k_eff = [2, 13]"), tmp_path), Counter()
    run.run_jobs(jobs, Store(tmp_path / "results"), None, lambda job, tasks: told.update({job.key: tasks}))
    assert told == {job.key: 40 for job in jobs}


def test_a_crash_inside_a_method_is_a_failure_too(tmp_path, monkeypatch):
    data_folder_with_toy(tmp_path)

    def broken(tasks, **params):
        raise ZeroDivisionError("one over\nnothing")

    method = manyway.methods.METHODS["simpleshot"]
    monkeypatch.setitem(manyway.methods.METHODS, "simpleshot", type(method)("simpleshot", "S", broken, ""))
    failures = run.run_jobs(jobs_of(SMALL, tmp_path), Store(tmp_path / "results"), None, Watching())
    assert {failure.error for failure in failures} == {"ZeroDivisionError: one over nothing"}
    assert len(failures) == 4


@pytest.mark.slow
def test_side_by_side_gives_the_same_bits(tmp_path):
    data_folder_with_toy(tmp_path)
    run_suite(METRICS, tmp_path, tmp_path / "one")
    jobs = jobs_of(METRICS.replace("k_eff = [2, 4]", "k_eff = [2, 4, 13]"), tmp_path)
    failures = run.run_jobs(jobs, Store(tmp_path / "two"), None, Watching(), n_jobs=2)
    assert len(failures) == 6
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


class Interrupting(Watching):
    """A person who presses Ctrl-C when the first block has come back."""

    def advance(self, job, tasks) -> None:
        raise KeyboardInterrupt


class Threads(ThreadPoolExecutor):
    """In the place of processes, which take seconds to start."""

    def shutdown(self, kill_workers):
        super().shutdown(cancel_futures=kill_workers)


def test_side_by_side_keeps_finished_blocks_when_it_is_interrupted(tmp_path, monkeypatch):
    data_folder_with_toy(tmp_path)
    monkeypatch.setattr("joblib.externals.loky.ProcessPoolExecutor", Threads)
    monkeypatch.setitem(evaluator._CHUNK_BYTES, "cpu", 2**15)
    (job, *_) = jobs_of(SMALL, tmp_path, n_tasks=500, only={"method": ["simpleshot"]})
    store = Store(tmp_path / "results")
    with pytest.raises(KeyboardInterrupt):
        run.run_jobs([job], store, None, Interrupting(), n_jobs=2)
    assert 0 < store.partial(job.key).n_done < 500
    watching = Watching()
    assert run.run_jobs([job], store, None, watching) == []
    assert 0 < watching.tasks < 500
    assert len(store.find(job.key).outcome.correct) == 500


def test_estimates_are_about_right_and_tell_what_cannot_be_done(tmp_path):
    data_folder_with_toy(tmp_path)
    jobs = jobs_of(SMALL.replace("k_eff = [2, 4]", "k_eff = 4"), tmp_path, n_tasks=10_000)
    seconds = run.estimates(jobs, Store(tmp_path / "results"), None)
    assert all(value is not None and 0 < value < 3600 for value in seconds)
    impossible = jobs_of(SMALL.replace("k_eff = [2, 4]", "k_eff = 13"), tmp_path)
    assert run.estimates(impossible, Store(tmp_path / "results"), None) == [None] * len(impossible)
