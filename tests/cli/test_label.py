"""`manyway label` as a process: where the table goes, what is said, and how it ends."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys

import numpy as np
import processes
import pytest
import torch
from hostile.files import QUERY, TRUTH, X, Y, write
from problems import label_items

from manyway import InputError, Solution, labelling
from manyway.cli import main
from manyway.files.items import Items
from manyway.labelling.table import check_table


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "c.npz", {"features": X, "labels": Y})
    write(tmp_path / "p.npz", {"features": QUERY})
    return tmp_path


def label(monkeypatch, capsys, *arguments):
    monkeypatch.setattr("sys.argv", ["manyway", "label", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    captured = capsys.readouterr()
    return stop.value.code, captured.out, captured.err


def labels_of(path):
    with path.open(newline="") as file:
        return [row["label"] for row in csv.DictReader(file)]


def test_the_default_output_can_be_written_twice(folder, monkeypatch, capsys):
    for _ in range(2):
        code, out, _ = label(monkeypatch, capsys, "c.npz", "p.npz")
        assert code == 0
        assert "Written to labels.csv." in out
    assert labels_of(folder / "labels.csv") == TRUTH.tolist()


def test_a_file_that_appears_while_a_run_goes_on_is_kept(folder, monkeypatch, capsys):
    solve = labelling.solve_batch

    def solve_slowly(*given, **more):
        (folder / "labels.csv").write_text("precious")
        return solve(*given, **more)

    monkeypatch.setattr(labelling, "solve_batch", solve_slowly)
    for name in (["-o", "labels.csv"], []):
        (folder / "labels.csv").unlink(missing_ok=True)
        code, out, err = label(monkeypatch, capsys, "c.npz", "p.npz", *name)
        assert code == 0, err
        assert "labels.csv was made or changed by somebody else meanwhile, and is kept" in err
        assert (folder / "labels.csv").read_text() == "precious"
    assert labels_of(folder / "labels-2.csv") == labels_of(folder / "labels-3.csv") == TRUTH.tolist()
    assert "Written to labels-3.csv." in out


@pytest.mark.parametrize("name", ["mine.csv", "labels.csv", "a folder"])
def test_the_default_output_gets_a_free_name(name, folder, monkeypatch, capsys):
    """A file of somebody, a table that somebody corrected, a folder: all stay."""
    if name == "a folder":
        (folder / "labels.csv").mkdir()
    elif name == "mine.csv":
        write(folder / "labels.csv", "item,label,probability\nmine,c1,1.0\n")
    else:
        assert label(monkeypatch, capsys, "c.npz", "p.npz")[0] == 0
        corrected = (folder / "labels.csv").read_text().replace("c1", "c0", 1)
        write(folder / "labels.csv", corrected)
    before = None if name == "a folder" else (folder / "labels.csv").read_bytes()
    for _ in range(2):  # the table with the free name is ours, and replaced
        code, out, err = label(monkeypatch, capsys, "c.npz", "p.npz")
        assert code == 0
        assert "Written to labels-2.csv." in out
        assert "note: labels.csv is another file, or was changed; it stays as it is (--overwrite replaces it)" in err
    assert before is None or (folder / "labels.csv").read_bytes() == before
    assert not (folder / "labels-3.csv").exists()
    assert labels_of(folder / "labels-2.csv") == TRUTH.tolist()
    if before is not None:
        assert label(monkeypatch, capsys, "c.npz", "p.npz", "--overwrite")[0] == 0
        assert labels_of(folder / "labels.csv") == TRUTH.tolist()


@pytest.mark.parametrize("content", ["mine", "ours", ""])
def test_a_named_output_is_replaced_only_if_asked(content, folder, monkeypatch, capsys):
    if content == "ours":
        assert label(monkeypatch, capsys, "c.npz", "p.npz", "-o", "a.csv")[0] == 0
    else:
        write(folder / "a.csv", content)
    before = (folder / "a.csv").read_bytes()
    code, _, err = label(monkeypatch, capsys, "c.npz", "p.npz", "-o", "a.csv")
    assert code == 2
    assert "a.csv exists; choose another name, or replace it with --overwrite." in err
    assert (folder / "a.csv").read_bytes() == before
    assert label(monkeypatch, capsys, "c.npz", "p.npz", "-o", "a.csv", "--overwrite")[0] == 0
    assert labels_of(folder / "a.csv") == TRUTH.tolist()


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 2), ("", 2)])
def test_a_terminal_asks_before_a_file_is_replaced(answer, code, folder, monkeypatch, capsys):
    write(folder / "a.csv", "mine")
    terminal = io.StringIO(f"{answer}\n")
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)
    assert label(monkeypatch, capsys, "c.npz", "p.npz", "-o", "a.csv")[0] == code
    assert ((folder / "a.csv").read_text() == "mine") == (code == 2)


def test_a_tilde_is_the_home_folder(folder, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    assert label(monkeypatch, capsys, "~/c.npz", "p.npz", "--output=~/a.csv")[0] == 0
    assert labels_of(folder / "a.csv") == TRUTH.tolist()


def test_without_a_cache_nothing_is_replaced(folder, monkeypatch, capsys):
    write(folder / "cache", "a file, not a folder")
    monkeypatch.setenv("MANYWAY_CACHE", str(folder / "cache"))
    assert label(monkeypatch, capsys, "c.npz", "p.npz")[0] == 0
    assert "Written to labels-2.csv" in label(monkeypatch, capsys, "c.npz", "p.npz")[1]


def test_a_default_output_in_an_input_folder_is_refused(folder, monkeypatch, capsys):
    code, _, err = label(monkeypatch, capsys, "c.npz", ".", "--encoder", "timm:x")
    assert code == 2
    assert "lies in the input folder" in err


def test_overwrite_does_not_help_against_inputs(folder, monkeypatch, capsys):
    write(folder / "c.npy", X)
    write(folder / "labels.csv", "\n".join(Y))
    code, _, err = label(monkeypatch, capsys, "c.npy", "p.npz", "--labels", "labels.csv", "--overwrite")
    assert code == 2
    assert "one of the inputs" in err
    assert (folder / "labels.csv").read_text() == "\n".join(Y)


def test_a_link_is_written_through(folder, monkeypatch, capsys):
    write(folder / "target.csv", "old")
    (folder / "link.csv").symlink_to("target.csv")
    assert label(monkeypatch, capsys, "c.npz", "p.npz", "-o", "link.csv")[0] == 2
    assert label(monkeypatch, capsys, "c.npz", "p.npz", "-o", "link.csv", "--overwrite")[0] == 0
    assert (folder / "link.csv").is_symlink()
    assert (folder / "target.csv").read_text().startswith("item,label,probability")


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "xlsx"])
def test_the_ending_chooses_the_format(suffix, folder, monkeypatch, capsys):
    path = folder / f"out.{suffix}"
    assert label(monkeypatch, capsys, "c.npz", "p.npz", "-o", path)[0] == 0
    if suffix == "parquet":
        import pyarrow.parquet

        rows = pyarrow.parquet.read_table(path).to_pylist()
    elif suffix == "jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    elif suffix == "xlsx":
        import openpyxl

        header, *cells = openpyxl.load_workbook(path).active.iter_rows(values_only=True)
        rows = [dict(zip(header, row, strict=True)) for row in cells]
    else:
        rows = list(csv.DictReader(path.open(), delimiter="\t" if suffix == "tsv" else ","))
    assert list(rows[0]) == ["item", "label", "probability", "label_2", "probability_2"]
    assert [row["label"] for row in rows] == TRUTH.tolist()
    assert float(rows[0]["probability"]) > 0.5


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_skipped_items_are_listed_in_the_table(suffix, tmp_path):
    support = Items(X, tuple(Y.tolist()), None)
    query = Items(
        QUERY, None, [f"p{i}.png" for i in range(20)], skipped=(("bad.png", "it is cut off"), ("b\udcff", "x"))
    )
    summary = label_items(support, query, tmp_path / f"out.{suffix}", device="cpu")
    assert (summary.n_items, summary.skipped) == (20, 2)
    if suffix == "csv":
        rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    elif suffix == "jsonl":
        rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    else:
        import pyarrow.parquet

        rows = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert len(rows) == 22
    assert (rows[0]["item"], rows[0]["note"]) == ("p0.png", "")
    assert (rows[20]["item"], rows[20]["label"], rows[20]["note"]) == ("bad.png", "", "skipped: it is cut off")
    assert not rows[20]["probability"]


def test_the_summary_counts_classes_by_their_new_names(tmp_path):
    summary = label_items(
        Items(X, tuple(Y.tolist()), None), Items(QUERY, None, None), tmp_path / "out.csv", device="cpu"
    )
    assert summary.n_classes == 6
    assert summary.n_present == (2, 2)
    assert [found.name for found in summary.present[:2]] == sorted(
        set(TRUTH.tolist()), key=lambda c: -(c == TRUTH).sum()
    )
    assert sum(found.proportion for found in summary.present) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("change", [{"min_confidence": float("nan")}, {"min_confidence": 2.0}, {"top": 0}])
def test_parameters_that_mean_nothing_are_refused(change, tmp_path):
    with pytest.raises(InputError, match="min_confidence"):
        label_items(Items(X, tuple(Y.tolist()), None), Items(QUERY, None, None), tmp_path / "out.csv", **change)


def test_probabilities_that_are_not_numbers_never_reach_a_table(tmp_path, monkeypatch):
    done = torch.ones(1, dtype=torch.int64), torch.ones(1, dtype=torch.bool)
    nothing = Solution(torch.full((1, 20, 6), float("nan")), *done)
    monkeypatch.setattr("manyway.labelling.label.solve_batch", lambda *_, **__: nothing)
    with pytest.raises(InputError, match="No probabilities"):
        label_items(Items(X, tuple(Y.tolist()), None), Items(QUERY, None, None), tmp_path / "out.csv")
    assert not list(tmp_path.iterdir())


def test_an_output_is_checked_before_anything_is_read(folder):
    with pytest.raises(InputError, match="is a folder"):
        check_table(folder)


@pytest.mark.slow
def test_a_process_without_terminal_in_a_poor_encoding(folder):
    names = np.where(Y == "c1", "[/b]bée ±", Y)
    write(folder / "[red]c.npz", {"features": X, "labels": names})
    code = "import sys; sys.stdout.reconfigure(encoding='ascii'); sys.stderr = open('errors.txt', 'w')\n"
    code += "from manyway.cli import main; main()"
    done = processes.run(code, "label", "[red]c.npz", "p.npz", "-o", "[/o]ut.csv")
    out = done.stdout
    assert (done.returncode, out.isascii(), (folder / "errors.txt").read_text()) == (0, True, ""), out
    assert "[/b]b" in out
    assert "Written to [/o]ut.csv." in out
    written = (folder / "[" / "o]ut.csv").read_text(encoding="utf-8")
    assert "[/b]bée ±" in written


def test_a_closed_pipe_ends_quietly():
    process = subprocess.Popen(
        [sys.executable, "-c", "from manyway.cli import main; main()", "methods"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() != 0


def test_an_unexpected_error_is_one_line_that_asks_for_a_report(folder, monkeypatch, capsys):
    def fail(*_, **__):
        raise ZeroDivisionError("[/b] oops")

    monkeypatch.setattr("manyway.files.read_items", fail)
    monkeypatch.delenv("MANYWAY_DEBUG", raising=False)
    code, _, err = label(monkeypatch, capsys, "c.npz", "p.npz")
    assert code == 1
    assert "unexpected ZeroDivisionError: [/b] oops" in err
    assert "report" in err
    assert len(err.splitlines()) == 1


def test_an_interruption_is_exit_code_130(folder, monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("manyway.files.read_items", interrupt)
    code, _, err = label(monkeypatch, capsys, "c.npz", "p.npz")
    assert code == 130
    assert "Traceback" not in err


def test_one_method_is_described_with_its_parameters(run_in_folder):
    code, out, _ = run_in_folder("methods", "hard-em-dirichlet")
    assert code == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "Hard EM-Dirichlet (hard-em-dirichlet)"
    assert "reference Martin et al., CVPR 2024" in lines
    assert "class names used; a class then needs no example" in lines
    assert "max_iter : int, default=10" in lines
    assert "known labels of items are not used" in lines
    assert "large piles read in blocks" in " ".join(run_in_folder("methods", "paddle")[1].split())
    assert "known labels of some items are used" in " ".join(run_in_folder("methods", "evidence")[1].split())


def test_a_method_that_does_not_exist_is_not_described(run_in_folder):
    code, out, err = run_in_folder("methods", "hard-dirichlet")
    assert (code, out) == (2, "")
    assert "There is no method 'hard-dirichlet'; did you mean 'hard-em-dirichlet'?" in err


def test_help_teaches_with_examples(monkeypatch, capsys):
    code, out, _ = label(monkeypatch, capsys, "--help")
    assert code == 0
    assert out.count("manyway label ") >= 4
