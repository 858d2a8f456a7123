"""Running: only what is missing, side by side, stopped and resumed; the same bits every time."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
import torch
from bench_problems import SMALL, Watching, contents, data_folder_with_toy, jobs_of, run_suite
from problems import make_features

import manyway.methods
from manyway import InputError, TaskSpec, evaluate
from manyway.bench import runner as run
from manyway.bench.estimate import estimates
from manyway.bench.executors import run_side_by_side
from manyway.bench.progress import Bar
from manyway.bench.store import Partial, Store
from manyway.evaluation import evaluator


def test_what_has_a_result_is_not_run_again(tmp_path):
    data_folder_with_toy(tmp_path)
    store = Store(tmp_path / "results")
    run_suite(SMALL, tmp_path, store.folder)
    assert all(store.has(job.key) for job in jobs_of(SMALL, tmp_path))
    wider = [job for job in jobs_of(SMALL.replace("[1, 3]", "[1, 2, 3]"), tmp_path) if not store.has(job.key)]
    assert {job.experiment.task.shots for job in wider} == {2}


def test_a_stretch_that_is_there_already_is_taken_over(tmp_path, monkeypatch):
    data_folder_with_toy(tmp_path)
    whole, resumed = Store(tmp_path / "a"), Store(tmp_path / "b")
    monkeypatch.setitem(evaluator._CHUNK_BYTES, "cpu", 2**15)
    (job, *_) = jobs_of(SMALL, tmp_path)
    run.run_job(job, whole, None, Watching())
    record = whole.find(job.key)
    chunk = record.provenance["chunk"]
    assert 2 * chunk < 40
    resumed.write_partial(job.key, Partial(chunk, "cpu", {chunk: record.outcome["correct"][chunk : 2 * chunk]}))
    watching = Watching()
    run.run_job(job, resumed, None, watching)
    assert watching.tasks == 40 - chunk
    assert contents(whole.folder) == contents(resumed.folder)


def test_a_stretch_from_another_kind_of_device_is_not(tmp_path):
    data_folder_with_toy(tmp_path)
    store = Store(tmp_path / "a")
    (job, *_) = jobs_of(SMALL, tmp_path)
    store.write_partial(job.key, Partial(16, "cuda", {0: [0] * 16}))
    watching = Watching()
    run.run_job(job, store, None, watching)
    assert watching.tasks == 40


def test_kill_9_in_the_middle_loses_nothing_but_time(tmp_path):
    data_folder_with_toy(tmp_path, n_classes=40, n_features=128)
    suite = tmp_path / "slow.toml"
    suite.write_text(
        'title = "Slow"\nn_tasks = 1000\n[[experiments]]\nfeatures = "toy"\nmethods = "paddle"\n'
        "task = { shots = 3, k_eff = 4, n_query = 40 }\n"
    )

    def start(results: str) -> subprocess.Popen:
        # A checkpoint after every stretch, so that there is something to resume from early on.
        code = "import manyway.bench.runner as run; run.SAVE_EVERY = 0.0; from manyway.cli import main; main()"
        command = [sys.executable, "-c", code, "bench", str(suite), "--data", str(tmp_path)]
        return subprocess.Popen([*command, "--results", str(tmp_path / results)], stdout=subprocess.DEVNULL)

    assert start("whole").wait(300) == 0
    killed = start("killed")
    partial = tmp_path / "killed" / "partial"
    while killed.poll() is None and not any(partial.glob("[!.]*.json")):
        time.sleep(0.005)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert not any((tmp_path / "killed" / "records").glob("*.json"))
    (left,) = partial.glob("[!.]*.json")
    assert 0 < Store(tmp_path / "killed").partial(left.stem).n_done < 1000
    assert start("killed").wait(300) == 0
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
        run.run_job(job, store, None, Watching())
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


def test_a_crash_inside_a_method_is_a_failure_too(tmp_path, monkeypatch):
    data_folder_with_toy(tmp_path)

    def broken(tasks, **params):
        raise ZeroDivisionError("one over\nnothing")

    method = manyway.methods.METHODS["simpleshot"]
    monkeypatch.setitem(manyway.methods.METHODS, "simpleshot", type(method)("simpleshot", "S", broken, ""))
    failures = run.run_jobs(jobs_of(SMALL, tmp_path), Store(tmp_path / "results"), None, Watching())
    assert {failure.error for failure in failures} == {"ZeroDivisionError: one over nothing"}
    assert len(failures) == 4


def test_side_by_side_gives_the_same_bits(tmp_path):
    data_folder_with_toy(tmp_path)
    run_suite(SMALL, tmp_path, tmp_path / "one")
    jobs = jobs_of(SMALL.replace("k_eff = [2, 4]", "k_eff = [2, 4, 13]"), tmp_path)
    failures = run_side_by_side(jobs, Store(tmp_path / "two"), None, 2, Watching())
    assert len(failures) == 6
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_a_chunk_that_does_not_fit_is_halved_and_so_are_those_after_it(monkeypatch):
    features, spec = make_features(), TaskSpec(shots=2, k_eff=3, n_query=9)
    expected = evaluate("simpleshot", features, spec, 50)
    solved = []
    method = manyway.methods.METHODS["simpleshot"]

    def greedy(tasks):
        if len(tasks) > 13:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        solved.append(len(tasks))
        return method.solver(tasks)

    monkeypatch.setitem(manyway.methods.METHODS, "simpleshot", type(method)("simpleshot", "S", greedy, ""))
    result = evaluate("simpleshot", features, spec, 50)
    assert (result.correct == expected.correct).all()
    assert solved == [13, 12, 13, 12]


def test_a_single_task_that_does_not_fit_is_one_sentence(monkeypatch):
    method = manyway.methods.METHODS["simpleshot"]

    def greedy(tasks):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setitem(manyway.methods.METHODS, "simpleshot", type(method)("simpleshot", "S", greedy, ""))
    with pytest.raises(InputError, match="more GPU memory than there is for a single task"):
        evaluate("simpleshot", make_features(), TaskSpec(shots=2, k_eff=3, n_query=9), 5)


def test_estimates_are_about_right_and_tell_what_cannot_be_done(tmp_path):
    data_folder_with_toy(tmp_path)
    jobs = jobs_of(SMALL.replace("k_eff = [2, 4]", "k_eff = 4"), tmp_path, n_tasks=100_000)
    seconds = estimates(jobs, Store(tmp_path / "results"), None)
    assert all(value is not None and 0 < value < 3600 for value in seconds)
    impossible = jobs_of(SMALL.replace("k_eff = [2, 4]", "k_eff = 13"), tmp_path)
    assert estimates(impossible, Store(tmp_path / "results"), None) == [None] * len(impossible)


def test_time_left_is_worked_out_method_by_method(tmp_path):
    from rich.console import Console

    data_folder_with_toy(tmp_path)
    jobs = jobs_of(SMALL, tmp_path)  # 4 experiments of 40 tasks for each of three methods
    bar = Bar(jobs, {"paddle": 1.0, "soft-kmeans": 0.5}, Console(quiet=True))
    # SimpleShot is unknown and counts with the mean of the others.
    assert bar.seconds_left() == pytest.approx(160 * (1.0 + 0.5 + 0.75))
    bar.begin(jobs[0], 40)
    assert bar.seconds_left() == pytest.approx(120 * 1.0 + 160 * (0.5 + 0.75))
