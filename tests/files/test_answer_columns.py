"""What columns of answers are called, and which are the newest."""

from __future__ import annotations

import pytest

from manyway.files.answer_columns import new_names, newest_answer, written_beside

HEADER = ["label", "probability", "note"]


def test_new_columns_never_take_the_name_of_one_that_is_there():
    assert new_names(HEADER, ["Label"]) == ["new_label", "new_probability", "new_note"]
    assert new_names(["label"], ["label", "new_label"]) == ["new_new_label"]


@pytest.mark.parametrize("taken", [["id"], ["id", "label"], ["id", "Label"], ["id", "note"], ["id", *HEADER]])
def test_the_newest_answers_are_found_by_the_names_that_they_were_given(taken):
    added = new_names(HEADER, taken)
    assert newest_answer([*taken, *added]) == added[0]
    again = new_names(HEADER, [*taken, *added])
    assert newest_answer([*taken, *added, *again]) == again[0]


@pytest.mark.parametrize(
    "names",
    [
        ["id", "label"],
        ["id", "label", "new_label"],  # of a person who corrects labels
        ["file", "label", "probability"],  # a row for each class
        ["file", "top1", "score1", "top2", "score2"],
    ],
)
def test_tables_of_others_have_no_answers(names):
    assert newest_answer(names) is None


def test_other_columns_of_the_newest_answers_have_the_same_name_in_front():
    reviewed = new_names(["label", "probability", "reviewed", "note"], ["id", "label"])
    assert newest_answer(["id", "label", *reviewed], "reviewed") == "new_reviewed"


def test_what_was_written_beside_a_label_ends_where_other_columns_begin():
    names = ["id", "group", "label", "probability", "reviewed", "label_2", "unknown", "note", "width", "level"]
    assert written_beside(names) == {"probability", "reviewed", "label_2", "unknown", "note"}
    new = [f"new_{name}" for name in HEADER]
    assert written_beside(["id", "label", "level", *new]) == {"new_probability", "new_note"}
    assert written_beside(["id", "label", "level", "note"]) == set()
