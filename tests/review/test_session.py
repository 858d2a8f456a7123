"""A review without its page: what actions do to items and suggestions."""

from __future__ import annotations

import json
import os
import re
import threading
from dataclasses import replace
from datetime import datetime

import pyarrow.parquet
import pytest
import torch
from review_problems import CLASSES, make_review, truth

from manyway.core.solution import Solution
from manyway.errors import InputError
from manyway.files.items import Items
from manyway.review.actions import BeginCheck, Clear, Comment, EndCheck, Label, Redo, Undo, Unknown
from manyway.review.data import JOURNAL, ReviewData
from manyway.review.export import export_labels
from manyway.review.journal import Journal
from manyway.review.relabel import Relabel
from manyway.review.serve import open_review
from manyway.review.session import Session
from manyway.review.state import NO_CLASS, OPEN


def do(session, action, **fields):
    said = session.act(action(**{"key": f"{action.kind} {session.version}", **fields}))
    assert session.settled.wait(20)
    return said.sentence


def label(session, rows, labels, **fields):
    return do(session, Label, rows=tuple(rows), labels=tuple(labels), **fields)


def suggested(session):
    return [session.classes[session.chosen(row)[0]] for row in range(len(session.answers))]


def test_suggestions_are_ordered_by_probability(session):
    assert suggested(session)[1] != truth(1) == "fir"
    for row in range(40):
        assert session.probabilities[row] == sorted(session.probabilities[row], reverse=True)
        assert len(session.best[row]) == len(CLASSES)
    doubts = [session.probabilities[row][0] for row in session.order]
    assert sorted(session.order) == list(range(40))
    assert doubts[0] < 0.99


def test_one_correction_repairs_other_items_and_marks_them(session):
    before = suggested(session)
    assert label(session, [1], ["fir"]) == "photo-1.png: fir."
    after = suggested(session)
    changed = [row for row in range(40) if after[row] != before[row] and row != 1]
    assert len(changed) >= 4
    assert all(after[row] == truth(row) for row in changed)
    assert [row for row in range(40) if session.was[row] >= 0] == changed
    assert {before[row] for row in changed} == {session.classes[session.was[row]] for row in changed}


def test_undo_and_redo_have_no_limit(session):
    first = (session.answers[:], suggested(session))
    for row in range(6):
        label(session, [row], [truth(row)])
    last = (session.answers[:], suggested(session))
    for _ in range(6):
        assert do(session, Undo).startswith("Taken back: photo-")
    assert (session.answers, suggested(session)) == first
    assert do(session, Undo) == "There is nothing to undo."
    for _ in range(6):
        do(session, Redo)
    assert (session.answers, suggested(session)) == last


def test_an_action_is_done_once_however_often_it_is_sent(session):
    for _ in range(3):
        label(session, [0], ["oak"], key="same")
    assert len(list(session.journal)) == 1


def test_a_new_class_takes_part_in_the_next_labelling(session):
    firs = [row for row in range(40) if truth(row) == "fir"]
    label(session, firs[:4], ["Douglas fir"] * 4)
    assert session.classes[-1] == "Douglas fir"
    number = len(CLASSES)
    assert any(number in session.best[row] for row in range(40) if session.answers[row] == OPEN)
    label(session, [firs[4]], ["  Douglas   fir "])
    assert session.answers[firs[4]] == number


ALIKE = ("Masse", "Maße", "Cat", "cat", "\u00e9", "e\u0301", "a b", "a  b", "a\u00a0b", "a\tb", "a\nb", "a\u3000b")


def alike():
    """A catalogue of names that look alike, and a new one."""
    data = make_review()
    labels = tuple(ALIKE[row % len(ALIKE)] for row in range(24))
    return ReviewData(Items(data.examples.features, labels, None), data.items)


def test_classes_whose_names_differ_stay_different(open_session, tmp_path):
    session = open_session(alike())
    assert set(session.classes) == set(ALIKE)
    rows = range(len(ALIKE))
    label(session, rows, ALIKE)
    label(session, [20, 21], ["CAT", "\u00c9"])  # new ones
    assert [session.classes[session.answers[row]] for row in rows] == list(ALIKE)
    assert session.classes[len(ALIKE) :] == ["CAT", "\u00c9"]
    export_labels(session, tmp_path / "labels.parquet")
    found = pyarrow.parquet.read_table(tmp_path / "labels.parquet").to_pydict()["label"]
    assert found[: len(ALIKE)] == list(ALIKE)


def test_confirming_makes_no_new_class(open_session):
    session = open_session(alike())
    label(session, range(40), suggested(session))
    assert OPEN not in session.answers
    assert len(session.classes) == len(ALIKE)


def test_undo_and_redo_say_which_items_they_were_about(session):
    label(session, [4, 9], ["oak", "elm"])
    for action in (Undo, Redo):
        said = session.act(action(key=action.kind))
        assert (said.rows, "2 items: 2 classes." in said.sentence) == ((4, 9), True)
    assert [told.row for told in session.past()] == [4, 4, 4]
    assert session.settled.wait(20)


def test_a_comment_stays_with_its_item_and_labels_nothing(open_session):
    session = open_session()
    before = suggested(session)
    do(session, Comment, rows=(3,), text=" two animals\n")
    assert (session.comments[3], suggested(session), session.known) == ("two animals", before, {})
    do(session, Comment, rows=(3,), text="")
    do(session, Undo)
    session.close()
    assert open_session().comments[3] == "two animals"


def test_an_undo_takes_back_what_it_meant_or_nothing(open_session, tmp_path):
    """The journal has lost the action that was taken back: no other one is taken back instead."""
    session = open_session()
    label(session, [1], ["fir"])
    label(session, [2], ["oak"])
    do(session, Undo)
    session.close()
    lines = (tmp_path / JOURNAL).read_bytes().splitlines(keepends=True)
    (tmp_path / JOURNAL).write_bytes(b"".join(lines[:2] + lines[3:]))
    again = open_session()
    assert again.journal.damage
    assert again.known == {1: "fir"}


def test_a_clock_that_jumps_changes_no_order(open_session, monkeypatch):
    class Clock(datetime):
        """Each answer is a year before the last."""

        years = 2030

        @classmethod
        def now(cls, zone=None):
            cls.years -= 1
            return datetime(cls.years, 1, 1, tzinfo=zone)

    monkeypatch.setattr("manyway.review.journal.datetime", Clock)
    session = open_session()
    for name in ("fir", "oak", "elm"):
        label(session, [1], [name])
    session.close()
    again = open_session()
    assert (again.known, again.journal.damage) == ({1: "elm"}, "")


def test_items_of_no_class_can_be_opened_again(session):
    do(session, Unknown, rows=(4, 5))
    assert session.answers[4:6] == [NO_CLASS, NO_CLASS]
    assert session.chosen(4) == (NO_CLASS, 1.0)
    do(session, Clear, rows=(4,))
    assert session.answers[4:6] == [OPEN, NO_CLASS]


def test_progress_counts_reviewed_items_and_expected_errors(session):
    start = session.progress()
    doubt = sum(1 - session.probabilities[row][0] for row in range(40))
    assert (start["items"], start["reviewed"]) == (40, 0)
    assert start["errors"] == pytest.approx(doubt, abs=0.01)
    assert start["right"] == pytest.approx(1 - doubt / 40, abs=0.001)
    label(session, range(40), map(truth, range(40)))
    end = session.progress()
    assert (end["items"], end["reviewed"], end["errors"], end["right"]) == (40, 40, 0.0, 1.0)


def test_changes_are_those_after_a_version(session):
    before = session.version
    label(session, [7], [truth(7)])
    changes = session.changes(before)
    assert 7 in [row[0] for row in changes["rows"]]
    assert session.changes(changes["version"])["rows"] == []
    assert len(session.changes(0)["rows"]) == 40
    json.dumps(session.overview())


def test_a_review_goes_on_where_it_stopped(open_session):
    session = open_session()
    label(session, [1, 2], ["fir", "a new tree"])
    do(session, Unknown, rows=(3,))
    do(session, Undo)
    answers, labels, classes = session.answers, suggested(session), session.classes
    session.close()
    again = open_session()
    assert (again.answers, suggested(again), again.classes) == (answers, labels, classes)
    assert do(again, Undo) == "Taken back: 2 items: 2 classes."


def test_actions_of_several_threads_are_all_kept(session):
    def work(first):
        for row in range(first, 40, 4):
            session.act(Label(rows=(row,), labels=(truth(row),), key=f"row {row}"))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert session.settled.wait(20)
    assert [session.classes[answer] for answer in session.answers] == [truth(row) for row in range(40)]
    assert len(list(session.journal)) == 40


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        ((40,), ("oak",), "from 0 to 39"),
        ((-1,), ("oak",), "from 0 to 39"),
        ((), (), "at least one"),
        ((1, 1), ("oak", "elm"), "each once"),
        ((1, 2), ("oak",), "1 labels for 2 items"),
        ((1,), (" \n",), "1 to 200 printable"),
        ((1,), ("a\x00b",), "1 to 200 printable"),
        ((1,), ("x" * 201,), "1 to 200 printable"),
        ((1,), ("oak\u202eelm",), "none of them invisible"),
        ((1,), ("o\u200bak",), "none of them invisible"),
        ((1,), (" Unknown",), "'unknown' stands for items of no class"),
    ],
)
def test_an_action_without_sense_changes_nothing(session, rows, labels, message):
    version = session.version
    with pytest.raises(InputError, match=message):
        session.act(Label(rows=rows, labels=labels, key="k"))
    assert session.version == version
    assert list(session.journal) == []


def test_what_could_not_be_saved_is_not_done(session, monkeypatch):
    def full(action):
        raise InputError("The action was not saved: disk is full.")

    monkeypatch.setattr(session.journal, "append", full)
    with pytest.raises(InputError, match="not saved"):
        session.act(Label(rows=(1,), labels=("oak",), key="k"))
    assert session.answers[1] == OPEN


def test_a_failure_of_the_solver_is_shown_and_the_review_goes_on(session, monkeypatch):
    def fail(known):
        raise RuntimeError("no convergence")

    monkeypatch.setattr(session, "relabel", fail)
    label(session, [1], ["fir"])
    assert "no convergence" in session.changes(0)["problem"]
    assert session.classes[session.answers[1]] == "fir"


def test_items_that_could_not_be_read_are_reviewed_without_suggestions(open_session):
    data = make_review()
    items = Items(data.items.features, None, data.items.names, skipped=(("broken.png", "it is damaged"),))
    session = open_session(ReviewData(data.examples, items))
    assert session.overview()["unread"] == {40: "it is damaged"}
    assert session.best[40] == []
    assert session.progress()["errors"] >= 1
    assert session.near(40) == []
    label(session, [40], ["oak"])
    assert session.classes[session.answers[40]] == "oak"


def test_nearest_examples_are_those_in_the_same_direction(session):
    near = session.near(2)
    assert len(near) == 6
    assert near[0]["label"] == truth(2)
    assert near[0]["name"].startswith(near[0]["label"])


def test_a_saved_review_needs_no_other_file_and_refuses_other_items(tmp_path):
    folder = tmp_path / "trees"
    session = open_review(folder, make_review())
    label(session, [1], ["fir"])
    session.close()
    again = open_review(folder)
    assert again.classes[again.answers[1]] == "fir"
    assert again.data.title == "Trees"
    again.close()
    open_review(folder, make_review()).close()
    with pytest.raises(InputError, match="holds a review of other items"):
        open_review(folder, make_review(n_items=39))


def test_a_folder_without_a_review_is_not_used(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file.txt").write_text("mine")
    with pytest.raises(InputError, match="holds no review; name another folder"):
        open_review(tmp_path / "mine", make_review())
    with pytest.raises(InputError, match="holds no saved review"):
        open_review(tmp_path / "nothing")


@pytest.mark.parametrize(
    "change", [lambda data: data[:200], lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]], ids=["cut", "bit"]
)
def test_a_damaged_review_is_refused_and_its_answers_are_kept(tmp_path, change):
    session = open_review(tmp_path / "trees", make_review())
    label(session, [1], ["fir"])
    session.close()
    path = tmp_path / "trees" / "review.safetensors"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=r"is damaged .* Its answers are not lost: move this file away"):
        open_review(tmp_path / "trees")
    path.unlink()
    again = open_review(tmp_path / "trees", make_review())
    again.close()
    assert (again.known, again.journal.damage) == ({1: "fir"}, "")


def test_a_review_without_its_journal_says_so(tmp_path):
    folder = tmp_path / "trees"
    open_review(folder, make_review()).close()
    for file in ("journal.jsonl", "journal.end"):
        (folder / file).unlink()
    again = open_review(folder)
    again.close()
    assert "has lost all its entries" in again.journal.damage


@pytest.mark.skipif(os.name != "posix", reason="needs permissions")
def test_a_review_is_for_its_owner_alone(tmp_path):
    open_review(tmp_path / "trees", make_review()).close()
    assert (tmp_path / "trees").stat().st_mode & 0o077 == 0
    assert all(file.stat().st_mode & 0o077 == 0 for file in (tmp_path / "trees").iterdir())


def test_what_is_exported_from_a_full_disk_is_written_elsewhere(tmp_path, monkeypatch):
    session = open_review(tmp_path / "trees", make_review())
    label(session, [1], ["fir"])
    session.close()
    before = {file.name: file.read_bytes() for file in (tmp_path / "trees").iterdir()}
    (tmp_path / "trees").chmod(0o500)
    again = open_review(tmp_path / "trees", read_only=True)
    assert export_labels(again, tmp_path / "labels.csv") == 40
    again.close()
    (tmp_path / "trees").chmod(0o700)
    assert {file.name: file.read_bytes() for file in (tmp_path / "trees").iterdir()} == before


def test_items_that_are_probably_of_no_class_form_groups(tmp_path):
    data = make_review()

    class WithUnknown(Relabel):
        """What a method gives that finds unknown items: items 5 and 6, and 7, are two groups."""

        def __call__(self, known):
            classes, found = super().__call__(known)
            unknown, groups = torch.zeros(1, 40), torch.full((1, 40), -1)
            unknown[0, 5:8], groups[0, 5:7], groups[0, 7] = 0.75, 0, 1
            shares = found.probabilities * (1 - unknown.unsqueeze(-1))
            return classes, Solution(shares, found.n_iter, found.converged, unknown=unknown, unknown_groups=groups)

    session = Session(data, Journal(tmp_path / JOURNAL, data.items_hash), WithUnknown(data))
    assert [session.groups[row] for row in range(4, 9)] == [-1, 0, 0, 1, -1]
    assert session.chosen(5) == (NO_CLASS, 0.75)
    rows = {row[0]: row for row in session.changes(0)["rows"]}
    assert rows[7][3:] == [1, rows[7][4], 750, ""]
    label(session, [5, 6], ["ginkgo", "ginkgo"])
    assert session.chosen(5) == (session.classes.index("ginkgo"), 1.0)
    assert session.groups[7] == 1
    session.close()


def test_a_group_keeps_its_number_while_it_keeps_its_items(open_session):
    session = open_session()
    first = [0, 0, 0, 1, 1, 2, -1]
    session.groups = [*session._renumbered(first), *[-1] * 33]
    assert session.groups[:7] == first
    later = [2, 2, 0, 0, 0, 3, 1]  # the method counts them anew
    assert session._renumbered(later) == [0, 0, 1, 1, 1, 2, 3]


def test_a_leap_of_the_expected_errors_is_explained(tmp_path):
    data = make_review()

    class Doubtful(Relabel):
        """A classifier that turns out to be less sure with the first answer."""

        def __call__(self, known):
            classes, found = super().__call__({})
            mixed = (1 - 0.3 * len(known)) * found.probabilities + 0.3 * len(known) / len(classes)
            return classes, found.changed(
                probabilities=mixed, told={"temperature": torch.tensor([1.0 + len(known)])}
            )

    session = Session(data, Journal(tmp_path / JOURNAL, data.items_hash), Doubtful(data))
    before = session.expected_errors()
    assert session.progress()["explained"] == ""
    label(session, [0], [truth(0)])
    said = session.progress()["explained"]
    assert said.startswith(f"{session.expected_errors():,.0f} errors are expected, {before:,.0f} before: ")
    assert "the answers say that the classifier is wrong more often than it seemed; 0 items have another label" in said
    assert re.search(r", 0 are surer and \d+ less sure\.$", said)
    do(session, Comment, rows=(1,), text="x")
    session.close()


def test_a_solution_says_nothing_about_an_item_that_was_opened_again_meanwhile(session):
    before = list(session.best[3])
    classes, found = session.relabel({3: "oak"})
    session.take(classes, found, {3})  # its answer was taken back while this was computed
    assert session.best[3] == before


def test_the_picture_of_a_new_class_is_the_item_in_the_middle(session):
    firs = [row for row in range(40) if truth(row) == "fir"]
    oddity = next(row for row in range(40) if truth(row) != "fir")
    rows = [oddity, *firs]
    label(session, rows, ["Douglas fir"] * len(rows))
    (new,) = session.changes(0)["new_classes"]
    assert (new["name"], new["examples"][0] in firs) == ("Douglas fir", True)
    likeness = session.likeness(rows)
    assert likeness.medoid in firs
    assert likeness.values[0] == min(likeness.values) < likeness.threshold < max(likeness.values) == 1


def test_items_of_no_class_are_suggested_as_groups_and_named(tmp_path):
    """Of 24 items, eight are of two trees without examples."""
    data = make_review()
    centres = torch.tensor([[9.0, -9, 9, -9, 9], [-9, 9, 9, 9, -9]]).repeat_interleave(4, 0)
    strangers = centres + 0.3 * torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    items = Items(torch.cat([data.items.rows(0, 16), strangers]), None, [f"photo {row}" for row in range(24)])
    review = ReviewData(data.examples, items, open_set=True)
    session = Session(review, Journal(tmp_path / JOURNAL, review.items_hash))
    groups = session.groups[16:]
    assert len(set(groups[:4])) == len(set(groups[4:])) == 1
    assert min(groups) >= 0
    assert session.chosen(16)[0] == NO_CLASS
    label(session, range(16, 18), ["ginkgo"] * 2)
    assert [session.classes[session.chosen(row)[0]] for row in range(16, 20)] == ["ginkgo"] * 4
    session.close()


def test_what_was_found_before_the_first_answer_is_not_found_again(tmp_path, monkeypatch):
    data = make_review()
    first = Relabel(data)({})[1]
    again = Relabel(data, first)
    monkeypatch.setattr("manyway.review.relabel.get_method", lambda name: pytest.fail("labelled twice"))
    assert again({})[1] is first


def in_check(session):
    return session.progress()["check"]


def answer_check(session, count, answer=truth):
    for _ in range(count):
        row = in_check(session)["next"]
        label(session, [row], [answer(row)])


def test_labels_stay_as_they_are_during_a_check_and_learn_at_its_end(session, monkeypatch):
    monkeypatch.setattr("manyway.review.actions.secrets.token_hex", lambda count: "a seed")
    do(session, BeginCheck, tolerance=0.1, of="rest")
    before = suggested(session)
    answer_check(session, 8)
    assert in_check(session)["wrong"] > 0
    assert in_check(session)["asked"] == 8
    assert in_check(session)["wrong"] == sum(truth(row) != before[row] for row in session.check.order[:8])
    assert [suggested(session)[row] for row in session.check.order[8:]] == [
        before[row] for row in session.check.order[8:]
    ]
    bound = f"at most {in_check(session)['most']} of the 32 labels without an answer are wrong"
    said = do(session, EndCheck)
    assert in_check(session) is None
    assert suggested(session) != before
    assert said.startswith(f"The check is over after 8 answers: with 95 % confidence {bound}. ")
    assert session.progress()["shown_by_check"] in said
    assert session.past()[0].sentence == said


def test_a_check_ends_with_a_statement_about_the_labels_without_an_answer(session):
    label(session, range(20), map(truth, range(20)))
    do(session, BeginCheck, tolerance=0.1, of="rest")
    state = in_check(session)
    assert not state["done"]
    answer_check(session, state["left"], lambda row: session.classes[session.chosen(row)[0]])
    assert in_check(session)["done"]
    assert in_check(session)["most"] <= 0.1 * in_check(session)["rest"]


def test_a_check_goes_on_after_a_restart(open_session):
    session = open_session()
    label(session, [1], ["fir"])
    do(session, BeginCheck, tolerance=0.05, of="rest")
    answer_check(session, 5)
    before = in_check(session), session.check
    session.close()
    again = open_session()
    assert in_check(again) == before[0]
    assert again.check == before[1]


def test_an_answer_that_is_taken_back_is_asked_for_again(session):
    do(session, BeginCheck, tolerance=0.05, of="rest")
    first = in_check(session)
    answer_check(session, 1)
    assert in_check(session)["next"] != first["next"]
    do(session, Undo)
    assert in_check(session) == first


def test_answers_out_of_turn_are_no_part_of_the_sample(session):
    do(session, BeginCheck, tolerance=0.05, of="rest")
    later = session.check.order[7]
    label(session, [later], [truth(later)])
    assert in_check(session)["asked"] == 0
    assert in_check(session)["rest"] == 39
    answer_check(session, 7)
    assert in_check(session)["asked"] == 8


def test_a_new_class_is_a_right_answer_where_unknown_was_suggested(session):
    do(session, BeginCheck, tolerance=0.05, of="rest")
    check = session.check
    assert check._wrong(0, check.n_classes)
    assert not check._wrong(NO_CLASS, check.n_classes)
    assert check._wrong(NO_CLASS, 0)


def test_a_check_that_makes_no_sense_is_refused(session):
    with pytest.raises(InputError, match=r"tolerates 0\.01, 0\.02, 0\.05, 0\.1 of 'all' or of the 'rest'"):
        do(session, BeginCheck, tolerance=0.3, of="all")
    with pytest.raises(InputError, match="no check to end"):
        do(session, EndCheck)


def test_a_check_of_which_every_item_is_reviewed_names_no_bound(session):
    label(session, range(39), map(truth, range(39)))
    do(session, BeginCheck, tolerance=0.05, of="rest")
    answer_check(session, 1)
    assert do(session, EndCheck).startswith("The check is over after 1 answer: every item is reviewed.")


def test_a_check_is_too_early_where_more_errors_are_expected_than_tolerated(session):
    label(session, range(25), map(truth, range(25)))
    expected = session.expected_errors()
    assert 1 < expected < 4
    offers = {(offer.tolerance, offer.of): offer for offer in session.planned()}
    for offer in offers.values():
        assert offer.early == (expected > 40 * offer.tolerance)
    assert offers[0.01, "all"].early
    assert not offers[0.1, "all"].early
    for of in ("all", "rest"):
        answers = [offer.answers for offer in offers.values() if offer.of == of]
        assert answers == sorted(set(answers), reverse=True)  # a looser one takes fewer answers, or is not offered


def test_there_is_one_check_at_a_time(session):
    do(session, BeginCheck, tolerance=0.05, of="rest")
    with pytest.raises(InputError, match="A check is going on"):
        do(session, BeginCheck, tolerance=0.05, of="rest")


def test_the_text_of_an_item_is_shown_once(open_session):
    data = make_review()
    texts = tuple(f"text {row}" for row in range(len(data.items)))
    carried = {"text": texts, "site": ("Oslo",) * len(texts)}
    session = open_session(replace(data, items=replace(data.items, texts=texts, carried=carried)))
    assert session.overview()["names"] == texts
    assert list(session.overview()["columns"]) == ["site"]


def test_the_page_says_that_items_differ_from_the_examples_until_a_few_are_reviewed(session):
    assert session.progress()["differs"] == ""
    session.told = {"shift": 1.84, "shift_probability": 0.97}
    said = session.progress()["differs"]
    assert said.startswith("The items differ from the examples by 1.8 times the spread of a class")
    assert session.changes(0)["progress"]["differs"] == said
    session.write(session.answers, {0: 0, 1: 0, 2: 0})
    assert session.progress()["differs"] == ""
