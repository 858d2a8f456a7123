"""What a person is told about a batch."""

import pytest

from manyway.labelling.remarks import remark_on_shift

SENTENCE = (
    "The items differ from the examples by 1.8 times the spread of a class; "
    "the labels assume that all differ alike; confirm a few in the review."
)


def test_items_that_differ_from_the_examples_are_said_to():
    assert remark_on_shift({"shift": 1.84, "shift_probability": 0.97}) == SENTENCE


@pytest.mark.parametrize("told", [{}, {"shift": 0.9, "shift_probability": 0.5}])
def test_nothing_is_said_where_no_shift_is_likely(told):
    assert remark_on_shift(told) is None
