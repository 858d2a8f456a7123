"""What the command line says about a table of labels."""

from __future__ import annotations

import re

import pytest

from manyway.cli.summary import _unknown, print_summary
from manyway.labelling.label import ClassSummary, Summary, SuspectExample, UnknownGroup


@pytest.mark.parametrize(
    ("expected", "sd", "labelled", "said"),
    [
        (0.2, 0.3, 0, "No unknown items."),
        (5.0, 2.0, 4, "About 5 of 10 items are expected to be unknown (3 to 7); 4 are labelled so"),
        (1.0, 3.0, 0, "About 1 of 10 items are expected to be unknown (0 to 4); 0 are labelled so"),
        (1.0, 0.5, 1, "About 1 of 10 items are expected to be unknown (0 to 2); 1 is labelled so"),
        (9.0, 3.0, 8, "About 9 of 10 items are expected to be unknown (6 to 10); 8 are labelled so"),
    ],
)
def test_unknown_items_are_expected_within_a_deviation_and_among_the_items(expected, sd, labelled, said):
    summary = Summary(10, 2, (), 0.5, 0, n_unknown=labelled, unknown_expected=expected, unknown_sd=sd)
    assert _unknown(summary).startswith(said)


def test_large_groups_of_unknown_items_are_named_and_the_others_counted():
    groups = tuple(UnknownGroup(items, f"{items}.jpg") for items in (9, 8, 7, 6, 5, 4, 3, 1, 1))
    summary = Summary(90, 2, (), 0.5, 0, n_unknown=44, unknown_groups=groups, unknown_expected=40.0)
    assert "44 are labelled so: 9 items like 9.jpg; 8 items like 8.jpg;" in _unknown(summary)
    assert _unknown(summary).endswith("5 items like 5.jpg; 2 smaller groups; 2 items like no other.")
    summary = Summary(90, 2, (), 0.5, 0, n_unknown=1, unknown_groups=groups[-1:], unknown_expected=1.0)
    assert _unknown(summary).endswith("1 is labelled so: 1 item like no other.")


def test_a_batch_that_is_mostly_unknown_may_have_been_recorded_otherwise():
    said = "were both recorded alike?"
    for expected in (5.0, 6.0):
        summary = Summary(10, 2, (), 0.5, 0, n_unknown=5, unknown_expected=expected, unknown_sd=1.0)
        assert _unknown(summary).endswith(said) == (expected > 5)


@pytest.mark.parametrize("n_possible", [3, 20])
def test_as_many_classes_are_shown_as_present_and_possible_as_the_sentence_says(n_possible, capsys):
    """Possible classes without items count in the sentence, and had no bar."""
    classes = [ClassSummary(f"bird {k}", 9, 0.1, 0.9, 0.99, "present") for k in range(6)]
    classes += [ClassSummary(f"fish {k}", 0, 0.01, None, 0.08, "possible") for k in range(n_possible)]
    print_summary(Summary(54, 40, tuple(classes), 0.9, 0, n_present=(5, 9)))
    out = capsys.readouterr().out
    table, _, sentence = out.partition("6 classes are present █")
    assert f", {n_possible} more are possible ▒." in sentence
    further = re.search(r"… and (\d+) more\.", table)
    assert table.count("fish") + int(further[1] if further else 0) == n_possible
    assert sum("██" in line for line in table.splitlines()) == 6


def test_every_class_of_the_list_is_named(capsys):
    """Somebody signs the list: it is not cut, whatever the number of items of its classes."""
    classes = [ClassSummary(f"fish {k}", 9, 0.1, 0.9, 0.3, "possible") for k in range(15)]
    classes += [ClassSummary(name, 1, 0.1, 0.9, 0.99, "present") for name in ("heron", "crane\n3 classes are present")]
    print_summary(Summary(137, 40, tuple(classes), 0.9, 0, n_present=(2, 9)))
    assert "… and 2 more, of which present █: heron, crane\\n3 classes are present." in capsys.readouterr().out


REHEARSED = {
    "rehearsed_n_items": 120.0,
    "rehearsed_right": 0.8,
    "rehearsed_claimed": 0.9,
    "rehearsed_n_sure": 60.0,
    "rehearsed_sure_right": 0.96,
    "rehearsed_n_listed": 84.0,
    "rehearsed_n_absent": 2.0,
    "rehearsed_power": 1.0,
}


def said_of(capsys, **more):
    present = (ClassSummary("fish", 9, 0.1, 0.9, 0.99, "present"),)
    print_summary(Summary(54, 40, present, 0.9, 0, n_present=(1, 1), **more))
    return " ".join(capsys.readouterr().out.split())


def test_what_was_rehearsed_is_said(capsys):
    said = said_of(capsys, told=REHEARSED)
    assert "Rehearsed on 120 of your examples: 80% were right, and 96% of the labels above 0.9." in said
    assert "1 class is present █ (when your examples were rehearsed, 2 of 84 were absent)." in said
    lowered = said_of(capsys, told=REHEARSED | {"rehearsed_power": 0.6, "rehearsed_n_sure": 3.0})
    assert "80% were right; probabilities were lowered, because they claimed more." in lowered


def test_nothing_is_promised_that_was_not_measured(capsys):
    assert "1 class is present █." in said_of(capsys)
    one_example = said_of(capsys, one_example=True)
    assert "present █ (one example per class cannot tell which classes are here; two would)." in one_example


@pytest.mark.parametrize(("contrast", "is_said"), [(0.68, True), (0.95, False)])
def test_items_that_tell_classes_apart_less_are_said(contrast, is_said, capsys):
    found = ClassSummary("wren", 9, 1.0, 0.5, 0.9, "present")
    told = {"shift": 1.8, "shift_probability": 0.9, "contrast": contrast}
    print_summary(Summary(9, 40, (found,), 0.5, 0, n_present=(1, 2), told=told))
    said = " ".join(capsys.readouterr().out.split())
    assert "differ from the examples by 1.8 times the spread of a class" in said
    sentence = "The items tell classes apart 0.7 times as well as the examples do"
    assert (sentence in said) == is_said


@pytest.mark.parametrize(
    ("temperature", "only_names", "sentence"),
    [
        (1.0, False, "The classifier was as sure as it should be"),
        (1.0, True, "The classifier gives only 0 and 1, which does not say how sure it is"),
        (2.0, True, "The classifier was too sure of itself: its scores were softened"),  # as labelled items tell
        (0.5, False, "The classifier was less sure than it could be: its scores were sharpened"),
    ],
)
def test_how_sure_a_classifier_was_is_said(temperature, only_names, sentence, capsys):
    said = said_of(capsys, told={"temperature": temperature}, only_names=only_names)
    assert f"{sentence}; labelled items would help." in said


def test_five_examples_that_look_mislabelled_are_named_and_the_others_counted(capsys):
    suspects = tuple(SuspectExample(f"{n}.jpg", "wren", "robin\n", 0.9) for n in range(7))
    print_summary(Summary(10, 2, (), 0.5, 0, suspects=suspects))
    said = " ".join(capsys.readouterr().out.split())
    assert "7 examples look mislabelled and count less: 0.jpg (wren) looks like robin\\n; 1.jpg" in said
    assert "4.jpg (wren) looks like robin\\n; and 2 more." in said
