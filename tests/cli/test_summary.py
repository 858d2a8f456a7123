"""What the command line says about a table of labels."""

from __future__ import annotations

import pytest

from manyway.cli.summary import _unknown
from manyway.labelling.label import Summary


@pytest.mark.parametrize(
    ("expected", "sd", "labelled", "said"),
    [
        (0.2, 0.3, 0, "No unknown items."),
        (5.0, 2.0, 4, "About 5 of 10 items are expected to be unknown (3 to 7); 4 are labelled so"),
        (1.0, 3.0, 0, "About 1 of 10 items are expected to be unknown (0 to 4); 0 are labelled so"),
        (9.0, 3.0, 8, "About 9 of 10 items are expected to be unknown (6 to 10); 8 are labelled so"),
    ],
)
def test_unknown_items_are_expected_within_a_deviation_and_among_the_items(expected, sd, labelled, said):
    summary = Summary(10, 2, (), 0.5, 0, n_unknown=labelled, unknown_expected=expected, unknown_sd=sd)
    assert _unknown(summary).startswith(said)
