"""The console: text is text, whatever is in it and whatever the terminal can show."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest
from rich.table import Table

from manyway.cli.console import console, say, spell
from manyway.errors import InputError

HOSTILE = "[/b]bee [red]é ± \x1b[31m\udcff"


def test_markup_and_control_characters_are_printed_as_text(capsys):
    say(HOSTILE)
    table = Table("name")
    table.add_row(HOSTILE)
    console().print(table)
    out = capsys.readouterr().out
    assert out.count(r"[/b]bee [red]é ± ?[31m\udcff") == 2


def test_a_long_line_is_not_broken(capsys):
    path = "/folder with spaces" * 30
    say(f"Written to {path}.")
    assert capsys.readouterr().out == f"Written to {path}.\n"


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", "5 +/- 1"), ("latin-1", "5 ± 1"), ("utf-8", "5 ± 1")])
def test_a_character_that_the_encoding_lacks_is_spelled_out_and_columns_stay_aligned(encoding, shown, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    table = Table("mean", "n")
    table.add_row("5 ± 1", "λ")
    console().print(table)
    print("5 ± 1")
    stream.flush()
    lines = stream.buffer.getvalue().decode(encoding).splitlines()
    assert lines[-1] == shown
    assert shown in lines[3]
    assert len({len(line) for line in lines[:-1]}) == 1


def test_spelling_keeps_what_it_can():
    assert spell("é", "ascii") == r"\xe9"
    assert spell("a\tb\n", "ascii") == "a\tb\n"


@pytest.mark.parametrize("words", [["--help"], ["table", "--help"], ["methods"]], ids=" ".join)
def test_the_command_line_works_in_ascii(words):
    command = [sys.executable, "-c", "from manyway.cli import main; main()", *words]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "80"}
    done = subprocess.run(command, capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode("ascii")


def test_an_error_names_the_options_of_the_command_where_the_library_names_parameters(run_in_folder, monkeypatch):
    def refuse(*given, **more):
        raise InputError(
            "Use `label_column`, `ignore_columns`, `feature_column`, `query`, `kind='logit'`, `open_set=False`, "
            "`method='evidence'`, `output`, `no_such_option` or `manyway tune`."
        )

    monkeypatch.setattr("manyway.cli.inputs.Inputs.of", refuse)
    monkeypatch.setattr("manyway.cli.label._describe_method", refuse)
    code, _, err = run_in_folder("label", "examples.npz", "items.npz")
    assert code == 2
    assert err == (
        "manyway: Use --label-column, --ignore-column, --feature-column, ITEMS, --score-kind logit, --closed, --method "
        "evidence, --output, `no_such_option` or `manyway tune`.\n"
    )
    assert run_in_folder("methods", "paddle")[2].startswith("manyway: Use `label_column`, ")  # it has no such option


def test_an_error_says_which_parameters_it_names():
    error = InputError("Use `label_column` or `open_set=False`; see `manyway label` and `Evidence`.")
    assert error.fields == ("label_column", "open_set")
