"""The commands that show stored results: what they print, what they write, and what they refuse to write over."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product

import pytest
from bench.show.results import ANSWERS, FEATURES, calibrated, make_record, make_view, old, old_note

from manyway.bench.records import Store

HOSTILE = "[/b]bee [red]± \x1b[31m<b>"


@pytest.fixture
def run(run_in_folder):
    """Run a command in a folder with stored results; gives its exit code, output and errors."""
    view = make_view([calibrated(make_record(*place), 3) for place in product(ANSWERS, (1, 3), (2, 4))])
    write_view(view)
    return run_in_folder


def write_view(view):
    store = Store("results")
    for record in view.records:
        store.write(record)
    store.write_plan(view.plan)


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_stored_results_are_shown_in_every_form(run, tmp_path):
    assert "12 of 12" in run("status")[1]
    assert "87.5 ± 3.0*" in run("table")[1]
    assert r"\begin{tabular}" in run("table", "--format", "latex")[1]
    assert run("table", "small", "-o", "t.md")[:2] == (0, f"Written to {tmp_path / 't.md'}.\n")
    assert "| PADDLE |" in (tmp_path / "t.md").read_text()
    written = ["results/plots/small-keff.svg", "results/plots/small-keff.pdf"]
    assert run("plot", "--format", "svg", "--format", "pdf")[1].split() == written
    assert run("report")[1] == "results/report.html\n"
    assert (tmp_path / "results" / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert run("compare", "paddle", "simpleshot")[1].count("points, p =") == 4


def test_every_form_shows_the_metrics_that_are_asked_for(run, tmp_path):
    out = run("table", "--metric", "calibration", "--metric", "accuracy")[1]
    assert "Calibration error in %" in out
    assert "Accuracy in %" in out
    assert run("plot", "--metric", "calibration", "--format", "svg")[1].split() == [
        "results/plots/small-calibration-keff.svg"
    ]
    run("report", "--metric", "calibration", "--out", "r.html")
    assert "calibration error (%)" in (tmp_path / "r.html").read_text()
    for words in (["report", "--out", "r.html"], ["table", "--out", "r.html"]):
        assert "r.html exists; choose another name, or replace it with --overwrite." in run(*words)[2]
        assert run(*words, "--overwrite")[0] == 0
    assert run("table", "--metric", "calibratio")[0] == 2
    assert "has no plot of presence" in run("plot", "--metric", "presence")[2]


@pytest.mark.parametrize(
    "words",
    [
        ["report", "--out", "results/records/RECORD"],
        ["report", "--out", "link.html"],
        ["report", "--out", "results/plans/small.json"],
        ["report", "--out", "results/records/new.html"],
        ["report", "--out", "results"],
        ["table", "-o", "results/records/RECORD"],
        ["table", "-o", "results/../results/records/RECORD"],
        ["table", "-o", "link.html"],
        ["table", "-o", "pipe"],
        ["plot", "--out", "results/records"],
        ["plot", "--out", "results/plans/deep"],
    ],
    ids=" ".join,
)
def test_no_output_harms_a_stored_result(run, tmp_path, words):
    record = next((tmp_path / "results" / "records").iterdir())
    (tmp_path / "link.html").symlink_to(record)
    os.mkfifo(tmp_path / "pipe")  # not a device of the machine: a test that fails must not replace it
    before = files(tmp_path)
    code, _, err = run(*(word.replace("RECORD", record.name) for word in words))
    assert code == 2
    assert len(err.splitlines()) == 1
    assert files(tmp_path) == before


@pytest.mark.parametrize("command", [["status"], ["table"], ["compare", "paddle", "simpleshot"], ["plot"], ["report"]])
def test_names_with_markup_are_printed_as_they_are(run, command):
    features = {**FEATURES, "name": HOSTILE}
    records = [make_record(method, features=features) for method in ("paddle", "simpleshot")]
    write_view(make_view(records, {"title": HOSTILE, "plots": [{"x": "k_eff"}]}))
    code, out, err = run(*command)
    assert (code, err) == (0, "")
    if command[0] in ("table", "compare"):
        assert HOSTILE.replace("\x1b", "?") in out


def test_old_results_are_marked(run):
    write_view(make_view([old(make_record("paddle")), make_record("simpleshot")]))
    out = run("table")[1]
    assert "87.5 ± 3.0*†" in out
    assert old_note("paddle") in out


def test_commands_that_print_results_work_in_ascii_and_load_scipy_for_intervals_and_nothing_else(run):
    commands = ["status", "table", "table --format csv", "compare paddle simpleshot"]
    code = (
        "import sys\nfrom manyway.cli import main\n"
        f"for words in {commands}:\n"
        "    sys.argv[1:] = words.split()\n"
        "    try: main()\n    except SystemExit as stop: assert not stop.code, stop.code\n"
        "    found = [name for name in ('torch', 'matplotlib', 'pandas', 'sklearn', 'scipy') if name in sys.modules]\n"
        "    print('loaded', found)"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr
    parts = done.stdout.decode("ascii").split("loaded ")
    for words, printed, found in zip(commands, parts, (part.splitlines()[0] for part in parts[1:]), strict=False):
        assert found == ("[]" if words == "status" else "['scipy']"), words
        assert words == "status" or "+/-" in printed, words
    assert len(parts) == len(commands) + 1


@pytest.mark.parametrize("command", ["status", "table", "plot", "report", "compare"])
def test_help_has_an_example(run, command):
    assert f"manyway {command}" in run(command, "--help")[1]
