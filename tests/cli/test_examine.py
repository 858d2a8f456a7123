"""`manyway examine`: examples of every kind, what it prints and writes, and what it refuses."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest


def write_features(path: str, *, labelled: bool = True, rows_without: int = 0, move: float = 0.0) -> None:
    """A table of three classes with six examples each, of which row 4 has a wrong label."""
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(3), 6)
    features = 5 * np.eye(3)[truth] + rng.normal(size=(18, 3)) + move
    labels = np.array(["ant", "bee", "fly"])[truth]
    labels[4] = "fly"
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["item", *(["label"] if labelled else []), "x", "y", "z"])
        for row in range(18):
            label = "" if row >= 18 - rows_without else labels[row]
            writer.writerow([f"{row}.jpg", *([label] if labelled else []), *features[row].round(3)])


@pytest.fixture
def examine(run_in_folder, monkeypatch):
    """The command, with the fewest draws and rehearsals: what these find is asked in tests/examination."""
    monkeypatch.setattr("manyway.examination.accuracy._MOST_DRAWS", 1)
    monkeypatch.setattr("manyway.examination.accuracy._MOST_BATCHES", 1)
    write_features("known.csv")
    return lambda *words: run_in_folder("examine", *map(str, words))


def test_the_wrong_label_is_printed_and_written(examine):
    code, out, err = examine("known.csv", "-o", "examples.csv")
    assert code == 0, err
    assert "18 examples of 3 classes" in out
    assert "1 example looks mislabelled" in out
    rows = list(csv.DictReader(Path("examples.csv").read_text().splitlines()))
    assert [row["item"] for row in rows if row["suspect"]] == ["4.jpg"]
    assert rows[4]["looks_like"] == "ant"


def test_a_page_is_written(examine):
    code, _, err = examine("known.csv", "--html", "known.html")
    assert code == 0, err
    page = Path("known.html").read_text(encoding="utf-8")
    assert "4.jpg" in page
    assert "<svg" in page


def test_json_is_all_that_is_printed(examine):
    found = json.loads(examine("known.csv", "--json")[1])
    assert found["suspects"][0]["item"] == "4.jpg"
    assert found["shift"] is None


def test_of_a_partly_labelled_table_the_labelled_rows_are_examined(examine):
    write_features("partly.csv", rows_without=3)
    found = json.loads(examine("partly.csv", "--json")[1])
    assert found["n_examples"] == 15


def test_items_from_elsewhere_are_noticed(examine):
    write_features("items.csv", labelled=False)
    write_features("moved.csv", labelled=False, move=6.0)
    alike = json.loads(examine("known.csv", "items.csv", "--json")[1])["shift"]
    moved = json.loads(examine("known.csv", "moved.csv", "--json")[1])["shift"]
    assert alike["ratio"] < 1.2 < 1.5 < moved["ratio"]
    assert alike["n_items"] == 18


def test_suspects_are_reviewed_with_the_other_examples(examine, monkeypatch):
    from manyway.cli import review

    given = []
    monkeypatch.setattr(review, "run_review", lambda data, folder: given.append((data, folder)))
    code, _, err = examine("known.csv", "--review")
    assert code == 0, err
    ((data, folder),) = given
    assert folder == Path("review")
    assert list(data.items.names) == ["4.jpg"]
    assert data.items.carried["given_label"] == ["fly"]
    assert len(data.examples) == 17


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("known.csv", "-o", "known.csv"), "known.csv"),
        (("known.csv", "--html", "page.txt"), "ending .html"),
        (("known.csv", "--html", "old.html"), "old.html"),
        (("none.csv",), "none.csv"),
        (("known.csv", "--label-column", "speices"), "speices"),
    ],
)
def test_what_cannot_be_done_is_said_before_the_work(examine, words, message):
    Path("old.html").write_text("mine")
    before = Path("known.csv").read_text()
    code, _, err = examine(*words)
    assert code == 2
    assert message in err
    assert Path("known.csv").read_text() == before
    assert Path("old.html").read_text() == "mine"


def test_rows_with_missing_cells_are_examined_as_they_are_labelled(examine):
    write_features("items.csv", labelled=False)
    for path in ("known.csv", "items.csv"):
        lines = Path(path).read_text().splitlines()
        lines[3] = lines[3].rpartition(",")[0] + ","
        Path(path).write_text("\n".join(lines) + "\n")
    code, out, err = examine("known.csv", "items.csv", "-o", "examples.csv")
    assert code == 0, err
    assert "18 examples of 3 classes" in out
    assert "1 of 18 rows of known.csv lacks numbers, in 'z'" in err
    assert len(Path("examples.csv").read_text().splitlines()) == 19
