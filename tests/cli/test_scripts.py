"""What scripts need: JSON, silence, a dry run, standard input, addresses of files, completion, and a short help."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from manyway import encoding
from manyway.cli import inputs
from tests.cli.test_inputs import encoded  # noqa: F401 (a fixture)

KNOWN = "label,a,b\nant,0,0\nant,0.1,0\nbee,5,5\nbee,5.1,5\n"
ITEMS = "item,a,b\nx,5,5.2\ny,0,0.1\n"


@pytest.fixture
def run(run_in_folder):
    Path("known.csv").write_text(KNOWN)
    Path("items.csv").write_text(ITEMS)
    return run_in_folder


@pytest.fixture
def standard_input(monkeypatch):
    def send(content: bytes) -> None:
        pipe = SimpleNamespace(buffer=io.BytesIO(content), isatty=lambda: False)
        monkeypatch.setattr(sys, "stdin", pipe)

    return send


def test_json_has_the_summary_and_the_labels_and_writes_no_file(run):
    code, out, err = run("label", "known.csv", "items.csv", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [(row["item"], row["label"]) for row in found["labels"]] == [("x", "bee"), ("y", "ant")]
    assert found["summary"]["n_items"] == 2
    assert {one["name"] for one in found["summary"]["present"]} == {"ant", "bee"}
    assert found["summary"]["output"] is None
    assert sorted(path.name for path in Path().iterdir()) == ["items.csv", "known.csv"]
    code, out, _ = run("label", "known.csv", "items.csv", "--json", "-o", "o.csv")
    assert (code, json.loads(out)["summary"]["output"]) == (0, "o.csv")
    assert Path("o.csv").exists()


def test_json_says_what_was_noted_of_the_files_and_of_each_item(run):
    Path("known.csv").write_text("Art,Nr.,a,b\nant,1,0,0\nant,2,0.1,0\nbee,3,5,5\nbee,4,5.1,5\n")
    Path("items.csv").write_text("item,a,b\nx,5,5.2\ny,0,\n")
    code, out, err = run("label", "known.csv", "items.csv", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert "note" not in found["labels"][0]
    assert found["labels"][1]["note"] == "no number in column 'b'; labelled by the other columns"
    assert any("label 'Art'" in note and "--label-column" in note for note in found["notes"])
    skipping = json.loads(run("label", "known.csv", "items.csv", "--skip-bad", "--json")[1])
    assert [row["item"] for row in skipping["labels"]] == ["x"]
    assert [row["item"] for row in skipping["skipped"]] == ["y"]


def test_quiet_prints_errors_alone(run):
    assert run("label", "known.csv", "items.csv", "--quiet") == (0, "", "")
    assert Path("labels.csv").exists()
    code, out, err = run("label", "known.csv", "nothing.csv", "-q")
    assert (code, out, err) == (2, "", "manyway: There is no file nothing.csv.\n")


def test_a_dry_run_says_what_would_be_read_and_writes_nothing(run):
    code, out, _ = run("label", "known.csv", "items.csv", "--dry-run")
    assert code == 0
    assert "known.csv: 4 examples of 2 classes, 2 features each" in out
    assert "items.csv: 2 items, 2 features each" in out
    assert not Path("labels.csv").exists()
    Path("scores.csv").write_text("item,cat,dog\na,0.9,0.1\nb,0.2,0.8\n")
    assert (
        "scores.csv: 2 items with scores of 2 classes"
        in run("label", "--scores", "scores.csv", "--dry-run")[1]
    )


def test_a_dry_run_names_the_encoder_and_how_long_it_takes(encoded, run_in_folder):  # noqa: F811
    Path("known.csv").write_text("text,label\nbanana,x\nsalad,x\nbee,y\ntree,y\n")
    Path("items.txt").write_text("a canal\nsleep\n")
    code, out, err = run_in_folder("label", "known.csv", "items.txt", "--dry-run")
    assert code == 0, err
    assert "known.csv: 4 examples of 2 classes" in out
    assert "items.txt: 2 items" in out
    assert "Encoding with minilm takes about a second" in out
    assert not Path("labels.csv").exists()


def test_a_dry_run_notes_each_thing_once(encoded, run_in_folder):  # noqa: F811
    Path("sheet.csv").write_text(
        "Nr;Text;Art\nA1;banana;x\nA2;salad;x\nA3;bee;y\nA4;tree;y\nA5;sleep;\nA6;moon;\n"
    )
    code, _, err = run_in_folder("label", "sheet.csv", "--dry-run")
    assert code == 0, err
    notes = [line for line in err.splitlines() if line.startswith("note: ")]
    assert len(notes) == len(set(notes)) > 1


def test_a_dry_run_times_items_and_not_loading(encoded, run_in_folder, monkeypatch):  # noqa: F811
    Path("known.csv").write_text("text,label\nbanana,x\nsalad,x\nbee,y\ntree,y\n")
    Path("items.txt").write_text("a canal\nsleep\n")
    clock = [0.0]
    encode = encoding.encode

    def loads_first(*given, **named):
        clock[0] += 0.0 if clock[0] else 1000.0
        return encode(*given, **named)

    monkeypatch.setattr(inputs.encoding, "encode", loads_first)
    monkeypatch.setattr(inputs.time, "perf_counter", lambda: clock[0])
    assert (
        "takes about a second" in run_in_folder("label", "known.csv", "items.txt", "--dry-run")[1]
    )


def test_standard_input_goes_by_that_name(run, standard_input):
    standard_input(ITEMS.encode())
    _, out, _ = run("label", "known.csv", "-", "--dry-run")
    assert "\nstandard input.csv: 2 items" in out
    standard_input(b"")
    code, _, err = run("label", "known.csv", "-")
    assert (code, err.startswith("manyway: standard input.csv is empty")) == (2, True)


@pytest.mark.parametrize(
    "content", [ITEMS, '{"item": "x", "a": 5, "b": 5.2}\n{"item": "y", "a": 0, "b": 0.1}\n']
)
def test_items_may_come_from_standard_input(content, run, standard_input):
    standard_input(content.encode())
    code, out, err = run("label", "known.csv", "-", "--json")
    assert code == 0, err
    assert [row["label"] for row in json.loads(out)["labels"]] == ["bee", "ant"]


def test_standard_input_is_one_input_only(run, standard_input):
    standard_input(ITEMS.encode())
    code, _, err = run("label", "-", "-")
    assert (code, "'-', can be one input only" in err) == (2, True)


def test_a_file_may_be_an_address(run, tmp_path):
    address = (tmp_path / "items.csv").as_uri()
    assert run("label", "known.csv", address)[0] == 0
    assert Path("labels.csv").exists()


def test_the_help_is_short_and_all_of_it_is_one_word_away(run_in_folder):
    code, short, _ = run_in_folder("label", "--help")
    assert code == 0
    assert "--class-prior" not in short
    assert short.count("--min-confidence") >= 1
    code, whole, _ = run_in_folder("label", "--help-all")
    assert code == 0
    for option in (
        "--class-prior",
        "--dask",
        "--ignore-column",
        "Columns of a table",
        "Scores of a classifier",
    ):
        assert option in whole
    assert len(short.splitlines()) < len(whole.splitlines()) / 2


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("manyway exa", ["examine"]),
        ("manyway label --enc", ["--encoder"]),
        ("manyway label --bat", ["--batch-by"]),
    ],
)
def test_a_shell_can_complete_commands_and_options(typed, wanted, run_in_folder, monkeypatch):
    _, out, _ = run_in_folder("--help")
    assert "--install-completion" in out
    asked = {
        "_MANYWAY_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(typed.count(" ")),
    }
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    # the name of the program is then that of its file, as in a shell
    monkeypatch.setattr(sys.modules["__main__"], "__package__", None, raising=False)
    assert run_in_folder()[1].split() == wanted


def test_extract_leaves_out_what_label_leaves_out(encoded, run_in_folder):  # noqa: F811
    Path("texts.csv").write_text("text,label\nbanana,x\n,x\nbee,y\n")
    code, _, err = run_in_folder(
        "extract", "texts.csv", "--encoder", "minilm", "--out", "o.safetensors"
    )
    assert code == 0, err
    assert "left out line 3: it has no text" in err
    assert "o.safetensors: 2 items, 2 classes" in err
