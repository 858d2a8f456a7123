"""A suite may name a method in a file beside it. The file is run only where that is allowed."""

from __future__ import annotations

import pytest
from bench_problems import data_folder_with_toy

from manyway.bench import own
from manyway.bench.own import own_method
from manyway.bench.records import Store
from manyway.bench.suite import load_suite
from manyway.errors import InputError
from tests.cli.conftest import run_in_folder  # noqa: F401 (a fixture)

MINE = '''
from pathlib import Path

from manyway import solve

Path(__file__).with_name("ran.txt").touch()


def mine(tasks, *, scale: str = "l2"):
    """SimpleShot under another name."""
    return solve("simpleshot", tasks, scale=scale)


number = 3
'''
SUITE = """
title = "Mine"
n_tasks = 4
[[experiments]]
features = "toy"
methods = ["simpleshot", "mine.py:mine"]
task = { shots = 2, k_eff = 3, n_query = 9 }
[[tables]]
columns = ["k_eff"]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a suite, a method and features. What is loaded is forgotten in the end."""
    data_folder_with_toy(tmp_path)
    (tmp_path / "suite.toml").write_text(SUITE)
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.setenv("MANYWAY_DATA", str(tmp_path))
    yield tmp_path
    own.OWN.clear()


def test_code_runs_only_where_it_is_allowed(folder, run_in_folder):  # noqa: F811
    code, _, err = run_in_folder("bench", "suite.toml")
    assert code == 2
    assert "suite.toml runs code in files beside it: mine.py:mine." in err
    assert "If you trust these files, run the suite with --allow-code." in err
    assert run_in_folder("tune", "suite.toml")[0] == 2
    assert not (folder / "ran.txt").exists()
    assert not (folder / "results").exists()


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_an_own_method_is_compared_with_the_others(jobs, folder, run_in_folder):  # noqa: F811
    code, out, err = run_in_folder("bench", "suite.toml", "--allow-code", "--jobs", jobs)
    assert code == 0, err
    assert "mine.py:mine" in out
    correct = {record.method: record.outcome.correct for record in Store(folder / "results").records()}
    assert correct["mine.py:mine"] == correct["simpleshot"]
    assert "2 of 2 experiments" in run_in_folder("bench", "suite.toml", "--allow-code")[1]


def test_results_are_shown_without_the_file(folder, run_in_folder):  # noqa: F811
    run_in_folder("bench", "suite.toml", "--allow-code")
    own.OWN.clear()
    (folder / "mine.py").unlink()
    code, out, _ = run_in_folder("table")
    assert code == 0
    assert "mine.py:mine" in out
    assert "†" not in out  # no mark of an older version
    assert run_in_folder("report", "-o", "report.html")[0] == 0


def test_a_changed_file_is_another_method(folder, run_in_folder):  # noqa: F811
    run_in_folder("bench", "suite.toml", "--allow-code")
    (folder / "mine.py").write_text(MINE.replace('solve("simpleshot"', 'solve("paddle"').replace('"l2"', '"range"'))
    out = run_in_folder("bench", "suite.toml", "--allow-code")[1]
    assert "1 of 2 experiments already have results." in out


def test_parameters_of_an_own_method_are_checked(folder):
    suite = folder / "suite.toml"
    suite.write_text(SUITE.replace("task =", 'params."mine.py:mine" = { scal = "l2" }\ntask ='))
    with pytest.raises(InputError, match="has no parameter 'scal'; did you mean 'scale'"):
        load_suite(str(suite), allow_code=True)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("mine.py:mien", "has no function 'mien'; did you mean 'mine'"),
        ("mine.py:number", "'number' in .*mine.py is no function"),
        ("nobody.py:mine", "nobody.py"),
        ("../mine.py:mine", "is not in the folder of the suite"),
        ("/etc/mine.py:mine", "is not in the folder of the suite"),
        ("broken.py:mine", r"broken.py cannot be run \(.*division by zero"),
    ],
)
def test_what_cannot_be_loaded_is_said(name, sentence, folder):
    (folder / "broken.py").write_text("1 / 0")
    with pytest.raises(InputError, match=sentence):
        own_method(name, folder)


def test_a_link_does_not_lead_out_of_the_folder(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "theirs.py"
    outside.write_text(MINE)
    (folder / "theirs.py").symlink_to(outside)
    with pytest.raises(InputError, match="is not in the folder of the suite"):
        own_method("theirs.py:mine", folder)
    assert not outside.with_name("ran.txt").exists()
