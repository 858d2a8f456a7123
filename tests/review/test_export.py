"""Exports: complete or not at all, and read back by ``manyway label`` as a larger set of examples."""

from __future__ import annotations

import csv
import os
import sys
from dataclasses import replace

import numpy as np
import pytest
from review_problems import CLASSES, make_review, truth, with_pictures, with_unknown_items

from manyway.cli import main
from manyway.cli.review import picture_access
from manyway.encoding.datasets.sources import open_source
from manyway.encoding.datasets.texts import open_texts
from manyway.errors import InputError
from manyway.files import Known, TableOrigin
from manyway.files.items import read_items
from manyway.review.actions import Comment, Label, Unknown
from manyway.review.data import TEXTS, ReviewData
from manyway.review.export import export_examples, export_folders, export_labels


@pytest.fixture
def reviewed(session):
    """Items 0 to 9 have their class, 10 has a new one, 11 none."""
    rows = tuple(range(10))
    session.act(Label(rows=(*rows, 10), labels=(*map(truth, rows), "a/b: new"), key="a"))
    session.act(Unknown(rows=(11,), key="b"))
    assert session.settled.wait(20)
    return session


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_labels_say_what_a_person_has_seen(reviewed, tmp_path):
    assert export_labels(reviewed, tmp_path / "labels.csv") == 40
    rows = rows_of(tmp_path / "labels.csv")
    assert list(rows[0]) == ["item", "label", "probability", "reviewed", "label_2", "probability_2", "comment"]
    assert [row["label"] for row in rows[:12]] == [*map(truth, range(10)), "a/b: new", "unknown"]
    assert [row["reviewed"] for row in rows] == ["yes"] * 12 + ["no"] * 28
    assert {row["probability"] for row in rows[:12]} == {"1.0000"}
    assert all((row["label_2"] == "") == (row["probability_2"] == "") for row in rows)
    assert all(row["label"] in (*CLASSES, "a/b: new") and row["label_2"] != row["label"] for row in rows[12:])


def test_a_table_comes_back_with_the_answers_as_long_as_it_is_the_same(open_session, tmp_path):
    path = tmp_path / "sheet.csv"
    path.write_text("nr,\u00fcber\n" + "".join(f"{n:03},x\n" for n in range(42)), encoding="utf-8")
    data = make_review()
    rows = tuple(range(1, 41))
    origin = TableOrigin(path, rows, known={0: Known("ant", "given")})
    data = replace(data, items=replace(data.items, origin=origin))
    session = open_session(data)
    export_labels(session, tmp_path / "out.csv")
    found = list(csv.DictReader((tmp_path / "out.csv").open(encoding="utf-8-sig")))
    assert [row["nr"] for row in found] == [f"{n:03}" for n in range(42)]
    assert (found[0]["label"], found[0]["note"], found[41]["label"]) == ("ant", "given", "")
    suggested = session.chosen(0)[0]
    assert found[1]["label"] == session.classes[suggested]
    data.save(tmp_path)
    assert ReviewData.load(tmp_path).items.origin == replace(origin, path=path.absolute())
    path.write_text("nr\n")
    assert ReviewData.load(tmp_path).items.origin is None


def test_labels_of_unknown_items_are_those_of_label(open_session, tmp_path):
    session = open_session(with_unknown_items())
    row = session.groups.index(0)
    session.act(Unknown(rows=(0,), key="a"))
    session.act(Label(rows=(row,), labels=("new",), key="b"))
    assert session.settled.wait(20)
    export_labels(session, tmp_path / "labels.csv")
    rows = rows_of(tmp_path / "labels.csv")
    assert [rows[0][name] for name in ("label", "reviewed", "unknown", "group")] == ["unknown", "yes", "1.0000", ""]
    assert [rows[row][name] for name in ("label", "reviewed", "unknown", "group")] == ["new", "yes", "0.0000", ""]
    for at, found in enumerate(rows):
        if found["reviewed"] == "no":
            assert (found["label"] == "unknown") == (session.groups[at] >= 0) == bool(found["group"])
            assert float(found["unknown"]) == pytest.approx(session.unknown[at], abs=1e-4)


def test_what_a_spreadsheet_would_compute_is_written_as_text_and_read_back_as_it_was(session, tmp_path):
    session.act(Label(rows=(0,), labels=("=1+1",), key="a"))
    session.act(Comment(rows=(0,), text="@now", key="b"))
    assert session.settled.wait(20)
    export_labels(session, tmp_path / "labels.csv")
    export_examples(session, tmp_path / "examples.csv")
    first = rows_of(tmp_path / "labels.csv")[0]
    assert (first["label"], first["comment"]) == ("'=1+1", "'@now")
    assert read_items(tmp_path / "examples.csv").labels[-1] == "=1+1"


def test_labels_are_the_same_in_parquet(reviewed, tmp_path):
    import pyarrow.parquet

    export_labels(reviewed, tmp_path / "labels.csv")
    export_labels(reviewed, tmp_path / "labels.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "labels.parquet").to_pydict()
    assert table["label"] == [row["label"] for row in rows_of(tmp_path / "labels.csv")]


@pytest.mark.parametrize("name", ["examples.csv", "examples.parquet"])
def test_features_come_back_exactly_and_label_reads_them(reviewed, tmp_path, monkeypatch, name):
    data = reviewed.data
    assert export_examples(reviewed, tmp_path / name) == 24 + 11
    read = read_items(tmp_path / name)
    assert read.labels == (*data.examples.labels, *map(truth, range(10)), "a/b: new")
    assert np.array_equal(read.rows(0, 24), data.examples.rows(0, 24))
    assert np.array_equal(read.rows(24, 35), data.items.rows(0, 11))
    np.savez(tmp_path / "items.npz", features=data.items.features)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["manyway", "label", name, "items.npz"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    assert len(rows_of(tmp_path / "labels.csv")) == 40


def test_texts_come_back_as_texts_with_labels(open_session, tmp_path):
    session = open_session(make_review(TEXTS))
    session.act(Label(rows=(2,), labels=('with, "comma"',), key="a"))
    export_examples(session, tmp_path / "examples.csv")
    texts = open_texts(tmp_path / "examples.csv")
    assert texts.texts[-1] == "photo-2.png"
    assert texts.class_names[int(texts.labels[-1])] == 'with, "comma"'


@pytest.fixture
def of_pictures(open_session, tmp_path):
    session = open_session(with_pictures(tmp_path / "pictures"))
    session.act(Label(rows=(0, 1, 2), labels=("oak", "../evil", "oak "), key="a"))
    return session, picture_access(session.data)[1]


def test_pictures_are_links_in_one_folder_per_class(of_pictures, tmp_path):
    session, find = of_pictures
    assert export_examples(session, tmp_path / "made" / "examples", find) == 27
    source = open_source(tmp_path / "made" / "examples")
    assert len(source) == 27
    assert set(source.class_names) == {*CLASSES, "evil"}
    assert {"oak/photo-0.png", "oak/photo-2.png", "evil/photo-1.png"} <= set(source.names)
    link = tmp_path / "made" / "examples" / "oak" / "photo-0.png"
    assert link.is_symlink()
    assert not os.path.isabs(os.readlink(link))
    assert link.resolve() == (tmp_path / "pictures" / "photo-0.png").resolve()


def test_an_export_of_pictures_that_fails_changes_nothing(of_pictures, tmp_path):
    session, find = of_pictures
    session.act(Label(rows=(3,), labels=("oak",), key="b"))  # its picture is missing
    with pytest.raises(InputError, match=r"photo-3\.png is missing"):
        export_examples(session, tmp_path / "made" / "examples", find)
    assert list((tmp_path / "made").iterdir()) == []


def test_nothing_outside_the_folder_of_pictures_is_linked_or_copied(open_session, tmp_path):
    data = with_pictures(tmp_path / "pictures", n_items=6)
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "pictures" / "link.png").symlink_to(tmp_path / "secret.txt")
    names = ["photo-0.png", "../secret.txt", str(tmp_path / "secret.txt"), "..\\secret.txt", "link.png", "photo-5.png"]
    session = open_session(replace(data, items=replace(data.items, names=names)))
    find = picture_access(session.data)[1]
    assert [find("items", row) is not None for row in range(6)] == [True, False, False, False, False, True]
    for copy in (False, True):
        assert export_folders(session, tmp_path / f"sorted {copy}", find, copy=copy) == 2
        assert not any(b"secret" in path.read_bytes() for path in (tmp_path / f"sorted {copy}").rglob("*.*"))


def test_a_folder_of_the_user_is_not_replaced(of_pictures, tmp_path):
    session, find = of_pictures
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to("mine")
    for name in ("mine", "link", "pictures"):
        with pytest.raises(InputError, match="exists already"):
            export_examples(session, tmp_path / name, find)


def test_pictures_of_an_archive_are_copied(open_session, tmp_path):
    session = open_session(with_pictures(tmp_path / "pictures"))
    content = (tmp_path / "pictures" / "photo-0.png").read_bytes()
    export_examples(session, tmp_path / "examples", lambda which, row: content)
    assert (tmp_path / "examples" / "oak" / "oak-21.png").read_bytes() == content


@pytest.mark.parametrize("write", [export_labels, export_examples])
def test_no_export_is_written_over_the_answers_or_what_was_read(open_session, tmp_path, write):
    (tmp_path / "items.csv").write_text("mine")
    session = open_session(replace(make_review(), inputs=(str(tmp_path / "items.csv"), str(tmp_path / "gone.csv"))))
    answers = session.journal.path.read_bytes()
    for path in (tmp_path / "items.csv", session.journal.path):
        with pytest.raises(InputError, match="is one of the inputs"):
            write(session, path)
    assert (tmp_path / "items.csv").read_text() == "mine"
    assert session.journal.path.read_bytes() == answers
    write(session, tmp_path / "gone.csv")


@pytest.mark.parametrize("name", ["labels", "labels.ods"])
def test_an_unknown_ending_gets_a_sentence(reviewed, tmp_path, name):
    with pytest.raises(InputError, match="tables end with"):
        export_labels(reviewed, tmp_path / name)
    with pytest.raises(InputError, match="only pictures are written to folders"):
        export_examples(reviewed, tmp_path / name)
