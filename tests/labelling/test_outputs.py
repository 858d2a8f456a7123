"""Answers in the forms of other programs: which form an output has, and what is refused before the work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from manyway import InputError
from manyway.errors import refusal
from manyway.files.formats.base import Origin
from manyway.files.formats.megadetector import MegaDetector
from manyway.files.scores import SOURCE, Scores
from manyway.labelling.label import Summary
from manyway.labelling.outputs import INPUT, TABLE, check_format, find_format

CAMTRAP = "camtrap-dp"
PRESENCE = "presence"


@pytest.mark.parametrize(
    ("given", "output", "found"),
    [
        (None, None, TABLE),
        (None, "labels.csv", TABLE),
        (None, "labels.json", INPUT),
        (None, "labels.TXT", INPUT),
        (TABLE, None, TABLE),
        (CAMTRAP, "o.csv", CAMTRAP),
        ("camtrap", "o.csv", "did you mean 'camtrap-dp'"),
        (PRESENCE, None, "`format` presence needs the name of the `output`"),
    ],
)
def test_the_form_is_the_given_one_or_that_of_the_ending(given, output, found):
    if " " in found:
        with pytest.raises(InputError, match=found):
            find_format(given, output)
    else:
        assert find_format(given, output) == found


def scores_of(n_origin: int, **carried: list[str]) -> Scores:
    """Two items, of which so many come from a file of another program."""
    origin = Origin(Path("in/md.json"), n_origin, 2, MegaDetector())
    values = np.array([[0.9, 0.1], [0.2, 0.8]], dtype=np.float32)
    return Scores(values, ("fox", "dog"), ("a", "b"), carried=carried, origins=(origin,))


@pytest.mark.parametrize(
    ("form", "n_origin", "carried", "output", "said"),
    [
        (INPUT, 2, {}, "out.json", ""),
        (INPUT, 2, {}, "out.csv", "give it the ending .json"),
        (INPUT, 2, {SOURCE: ["x", "y"]}, "out", ""),  # a folder of files, each with its own ending
        (INPUT, 1, {}, "out.json", "which is a table of scores"),
        (CAMTRAP, 2, {}, "o.csv", "needs the time of each item"),
        (CAMTRAP, 2, {"time": ["2024-05-01", ""]}, "o.csv", ""),  # one item has it
        (TABLE, 0, {}, "labels.csv", ""),
    ],
)
def test_what_the_scores_cannot_be_written_as_is_refused(form, n_origin, carried, output, said):
    found = refusal(check_format, form, scores_of(n_origin, **carried), Path(output))
    assert said in found
    assert bool(said) == bool(found)


def test_a_copy_of_scores_has_no_room_for_groups():
    with pytest.raises(InputError, match="`at_least` is for tables and new files"):
        check_format(INPUT, scores_of(2), Path("out.json"), at_levels=True)


def test_a_summary_has_no_skipped_items_unless_there_are_some():
    assert Summary(3, 2, (), 0.5, 0).skipped == 0
