"""The commands about experiments: what they print, what they write, and one sentence for everything that is wrong."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace

import pytest
from bench_problems import SMALL, contents, data_folder_with_toy

from manyway.methods import METHODS

GRID = """
title = "Grid"
[[experiments]]
features = "toy-val"
methods = "laplacianshot"
task = { shots = 2, k_eff = 5, n_ways = 5, n_query = 15 }
n_tasks = 20
sweep.laplacianshot = { graph_weight = [0.1, 0.7] }
"""
WITHOUT_PLOTS = SMALL.partition("[[plots]]")[0]  # to draw one takes longer than to run all experiments
LESSON = """
[[experiments]]
features = "toy-val"
methods = "unem"
task = { shots = 2, k_eff = 3, n_query = 9 }
n_tasks = 4
learn.unem = { layers = 2, steps = 3 }
"""


@pytest.fixture
def run(tmp_path, monkeypatch, run_in_folder):
    """Run a command in a folder with a suite and its features; gives its exit code, output and errors."""
    data_folder_with_toy(tmp_path)
    (tmp_path / "small.toml").write_text(WITHOUT_PLOTS)
    monkeypatch.setenv("MANYWAY_DATA", str(tmp_path))
    return run_in_folder


def test_bench_runs_shows_and_keeps(run, tmp_path):
    (tmp_path / "small.toml").write_text(SMALL)
    code, out, _ = run("bench", "small.toml")
    assert code == 0
    assert "SimpleShot" in out
    assert (tmp_path / "results" / "plots" / "small-keff.png").exists()
    before = contents(tmp_path / "results")
    assert len(before) == 12
    code, out, _ = run("bench", "small.toml")
    assert "12 of 12 experiments already have results." in out
    assert contents(tmp_path / "results") == before


def test_bench_without_a_name_lists_the_suites(run):
    code, out, _ = run("bench")
    assert code == 0
    assert "table1" in out
    assert "quickstart" in out


def test_a_dry_run_lists_and_writes_nothing(run, tmp_path):
    code, out, _ = run("bench", "small.toml", "--dry-run")
    assert code == 0
    assert out.count("missing") == 12
    assert "12 of 12 to run, about" in out
    assert not (tmp_path / "results").exists()


def test_parts_of_a_suite_join_and_a_whole_one_takes_their_place(run):
    run("bench", "small.toml", "--only", "method=simpleshot")
    run("bench", "small.toml", "--only", "method=paddle")
    rows = run("table", "--format", "csv")[1].splitlines()[1:]
    assert [row.split(",")[0] for row in rows] == ["PADDLE", "SimpleShot"]
    run("bench", "small.toml", "--only", "method=soft-kmeans", "--tasks", "7")
    assert run("table", "--format", "csv")[1].count("soft K-means") == 1
    assert "PADDLE" not in run("table", "--format", "csv")[1]


def test_tune_then_bench_uses_what_was_chosen(run, tmp_path):
    data_folder_with_toy(tmp_path, "toy-val", seed=3)
    (tmp_path / "grid.toml").write_text(GRID)
    code, out, _ = run("tune", "grid.toml")
    assert code == 0
    assert "toy: laplacianshot: graph_weight = " in out
    (tmp_path / "use.toml").write_text(SMALL.replace('"paddle", "soft-kmeans", "simpleshot"', '"laplacianshot"'))
    assert "graph_weight=" in run("bench", "use.toml", "--dry-run")[1]


def test_tune_takes_changes_of_its_tasks(run, tmp_path):
    data_folder_with_toy(tmp_path, "toy-val", seed=3)
    (tmp_path / "grid.toml").write_text(GRID)
    code, _, _ = run("tune", "grid.toml", "--task", "n_query=10")
    assert code == 0
    records = [json.loads(path.read_text()) for path in (tmp_path / "results" / "records").glob("*.json")]
    assert {record["outcome"]["n_query"] for record in records} == {10}


def test_rerun_runs_again_what_has_results(run, tmp_path):
    words = ["bench", "small.toml", "--only", "method=simpleshot"]
    run(*words)
    paths = sorted((tmp_path / "results" / "records").iterdir())
    before, content = [path.stat().st_mtime_ns for path in paths], contents(tmp_path / "results")
    assert "4 of 4 experiments already have results." in run(*words)[1]
    assert [path.stat().st_mtime_ns for path in paths] == before
    assert "4 of 4 to run" in run(*words, "--rerun", "--dry-run")[1]
    code, out, _ = run(*words, "--rerun")
    assert code == 0
    assert "already have results" not in out
    assert all(path.stat().st_mtime_ns > time for path, time in zip(paths, before, strict=True))
    assert contents(tmp_path / "results") == content


def test_results_of_another_version_of_a_method_are_old_and_run_again(run, tmp_path, monkeypatch):
    run("bench", "small.toml", "--only", "method=simpleshot,paddle")
    method = METHODS["simpleshot"]
    monkeypatch.setitem(METHODS, "simpleshot", replace(method, version=method.version + 1))
    assert "†" in run("table")[1]
    out = run("bench", "small.toml", "--only", "method=simpleshot,paddle")[1]
    assert "4 of 8 experiments already have results." in out
    assert "†" not in run("table")[1]
    assert len(contents(tmp_path / "results")) == 12


def test_what_a_suite_does_not_have_is_named(run):
    code, out, _ = run("bench", "small.toml", "--only", "method=simpleshot,label-shift")
    assert code == 0
    assert "skipped method=label-shift: small has no experiment with it" in out


def test_a_changed_record_is_refused_by_name(run, tmp_path):
    run("bench", "small.toml", "--only", "method=simpleshot")
    (path, *_) = sorted((tmp_path / "results" / "records").iterdir())
    path.write_text(path.read_text().replace('"correct": [', '"correct": [9999, '))
    for words in (["table"], ["report"], ["bench", "small.toml", "--only", "method=simpleshot"]):
        code, _, err = run(*words)
        assert code == 2
        assert f"{path.name} was changed after it was written (its checksum differs)" in err
        assert len(err.splitlines()) == 1


def test_metrics_and_skipped_experiments(run, tmp_path):
    toml = SMALL.replace("n_tasks = 40", 'n_tasks = 40\nmetrics = ["calibration"]')
    toml = toml.replace("k_eff = [2, 4]", 'k_eff = ["half", 13]').replace(
        'features = "toy"', 'features = "toy"\nskip_impossible = true'
    )
    (tmp_path / "mine.toml").write_text(toml.replace("[[tables]]", '[[tables]]\nmetric = "calibration"'))
    code, out, _ = run("bench", "mine.toml")
    assert code == 0
    assert "alibration error" in out
    assert "skipped shots=1 k_eff=13 n_query=12 on toy: k_eff is 13 but a task has only 12 classes" in out
    assert {record["task"]["k_eff"] for record in contents(tmp_path / "results").values()} == {6}


@pytest.mark.parametrize(
    ("words", "toml", "message"),
    [
        (["bench", "smal"], "", "There is no suite 'smal'"),
        (["bench", "mine.toml"], SMALL.replace("n_tasks", "n_task"), "unknown key 'n_task'; did you mean 'n_tasks'?"),
        (
            ["bench", "mine.toml"],
            SMALL.replace('"paddle"', '"padle"'),
            "is 'padle', which is no method; did you mean 'paddle'?",
        ),
        (["bench", "mine.toml"], SMALL.replace('"toy"', '"birds"'), "There are no features 'birds' in"),
        (["bench", "absent.toml"], "", "There is no file absent.toml."),
        (["bench", "small.toml", "--features", "absent.npz"], "", "There is no file absent.npz"),
        (["bench", "small.toml", "--only", "method=padle"], "", "There is no method 'padle'; did you mean 'paddle'?"),
        (["bench", "small.toml", "--only", "metod=paddle"], "", "small has no axis 'metod'; did you mean 'method'?"),
        (["bench", "small.toml", "--seed", "99999999999999999999"], "", "is 99999999999999999999; it must be"),
        (["bench", "small.toml", "--task", "alpha=inf"], "", ": alpha is inf; it must be finite."),
        (
            ["bench", "mine.toml"],
            SMALL.replace('"keff"', '"../../x"'),
            "plots[1].name is '../../x'; it becomes",
        ),
        (["bench", "mine.toml"], SMALL.replace('x = "k_eff"', 'x = "foo"'), "plots[1].x names 'foo', which is no axis"),
        (["bench", "mine.toml"], SMALL + "[labels]\ntoy = 3", "mine.toml: labels.toy is 3; it must be text."),
        (["bench", "small.toml", "--data", "absent"], "", "The data folder absent does not exist"),
        (["bench", "small.toml", "--device", "tpu9"], "", "Device 'tpu9' cannot be used here; choose cpu"),
        (["bench", "small.toml", "--results", "small.toml"], "", "Cannot write small.toml/plans/small.json"),
        (["bench", "small.toml", "--tuned", "small.toml"], "", "not a file of tuned parameters"),
        (["table"], "", "There are no results in results"),
        (["table", "--format", "word"], "", "not as 'word'"),
        (["status"], "", "There are no results in results"),
        (["compare", "paddle", "tim"], "", "There is no result of 'paddle' in results"),
        (["tune", "small.toml"], "", "nothing to sweep"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_changes_nothing(run, tmp_path, words, toml, message):
    (tmp_path / "mine.toml").write_text(toml)
    before = sorted(path.name for path in tmp_path.iterdir())
    code, _, err = run(*words)
    assert code == 2
    assert message in err
    assert len(err.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_failed_experiments_are_told_at_the_end_and_the_exit_code_says_so(run, tmp_path):
    (tmp_path / "mine.toml").write_text(SMALL.replace("k_eff = [2, 4]", "k_eff = [2, 13]"))
    code, out, _ = run("bench", "mine.toml")
    assert code == 1
    assert out.count("k_eff is 13 but a task has only 12 classes") == 6
    assert "6 experiments failed; nothing was stored for them." in out
    assert len(contents(tmp_path / "results")) == 6


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_one_sentence_and_what_is_there_stays_whole(run, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small disk here: {mounted.stderr.decode().strip()}")
    try:
        code, _, err = run("bench", "small.toml", "--tasks", "40", "--results", "disk/results")  # a page each
        assert code == 2
        assert "No space left on device" in err
        assert len(err.splitlines()) == 1
        stored = contents(disk / "results")
        assert 0 < len(stored) < 12
        assert all(len(record["outcome"]["correct"]) == 40 for record in stored.values())
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_tune_learns_the_parameters_of_unem_and_bench_uses_them(run, tmp_path):
    data_folder_with_toy(tmp_path, "toy-val", seed=3)
    (tmp_path / "learn.toml").write_text(GRID + LESSON)
    code, out, _ = run("tune", "learn.toml", "--method", "unem")
    assert code == 0
    assert "toy: unem: parameters = results/unem-toy.json" in out
    assert "laplacianshot" not in out
    learned = json.loads((tmp_path / "results" / "unem-toy.json").read_text())
    assert (learned["layers"], learned["training"]["shots"], learned["training"]["k_eff"]) == (2, 2, 3)
    time = (tmp_path / "results" / "unem-toy.json").stat().st_mtime_ns
    run("tune", "learn.toml", "--method", "unem")
    assert (tmp_path / "results" / "unem-toy.json").stat().st_mtime_ns == time, "what is there is not learned again"
    run("tune", "learn.toml", "--method", "unem", "--rerun")
    assert (tmp_path / "results" / "unem-toy.json").stat().st_mtime_ns > time
    (tmp_path / "use.toml").write_text(SMALL.replace('"paddle", "soft-kmeans", "simpleshot"', '"unem"'))
    assert "parameters=…" in run("bench", "use.toml", "--dry-run")[1]
    code, _, _ = run("bench", "use.toml", "--only", "shots=3", "--tasks", "5")
    assert code == 0
    record = json.loads(next((tmp_path / "results" / "records").glob("unem-*.json")).read_text())
    assert record["params"]["parameters"]["lam"] == pytest.approx(learned["lam"])


def test_tune_knows_which_methods_there_are(run, tmp_path):
    (tmp_path / "grid.toml").write_text(GRID)
    assert "There is no method 'unen'; did you mean 'unem'?" in run("tune", "grid.toml", "--method", "unen")[2]
