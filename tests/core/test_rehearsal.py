"""Batches of held-out examples: what is in them, how evenly they are drawn, and what cannot be drawn."""

from __future__ import annotations

import pytest
import torch

from manyway import InputError, solve
from manyway.core import can_be_held_out, rehearse

# Classes with 5, 3, 1, 4 and 2 examples, in no order.
UNEVEN = torch.tensor([3, 0, 1, 0, 2, 3, 4, 0, 1, 3, 0, 4, 1, 0, 3])


def counts(labels: torch.Tensor, n_classes: int = 5) -> list[list[int]]:
    """How many of each class every batch has."""
    return [torch.bincount(row, minlength=n_classes).tolist() for row in labels]


def test_a_batch_has_as_many_items_of_each_present_class():
    found = rehearse(UNEVEN, n_batches=6, n_present=2, n_held=2)
    assert found.query_rows.shape == (6, 4)
    for numbers in counts(found.query_labels):
        assert sorted(numbers) == [0, 0, 0, 2, 2]


def test_what_is_held_out_does_not_stay_and_everything_else_does():
    found = rehearse(UNEVEN, n_batches=6, n_present=2, n_held=2)
    for queries, support in zip(found.query_rows, found.support_rows, strict=True):
        assert sorted([*queries.tolist(), *support.tolist()]) == list(range(len(UNEVEN)))


def test_labels_are_those_of_the_rows():
    found = rehearse(UNEVEN, n_batches=4, n_present=2, n_kept=2)
    assert torch.equal(found.query_labels, UNEVEN[found.query_rows])
    assert torch.equal(found.support_labels, UNEVEN[found.support_rows])
    assert found.n_classes == 5


def test_with_few_kept_every_class_has_so_few():
    found = rehearse(UNEVEN, n_batches=5, n_present=2, n_held=1, n_kept=2)
    assert counts(found.support_labels) == [[2, 2, 1, 2, 2]] * 5
    for queries, support in zip(found.query_rows, found.support_rows, strict=True):
        assert not set(queries.tolist()) & set(support.tolist())


def test_only_classes_with_enough_examples_are_held_out():
    assert can_be_held_out(UNEVEN, n_held=2).tolist() == [True, True, False, True, False]
    assert can_be_held_out(UNEVEN, n_held=2, n_kept=2).tolist() == [True, False, False, True, False]
    found = rehearse(UNEVEN, n_batches=20, n_present=2, n_held=2, n_kept=2)
    assert set(found.query_labels.flatten().tolist()) == {0, 3}


def test_classes_and_examples_are_held_out_equally_often():
    labels = torch.arange(6).repeat_interleave(4)
    found = rehearse(labels, n_batches=12, n_present=2, n_held=1)
    assert torch.bincount(found.query_labels.flatten()).tolist() == [4] * 6
    assert torch.bincount(found.query_rows.flatten()).tolist() == [1] * 24


def test_a_seed_decides_the_batches():
    first = rehearse(UNEVEN, n_batches=8, n_present=2, seed=3)
    again = rehearse(UNEVEN, n_batches=8, n_present=2, seed=3)
    other = rehearse(UNEVEN, n_batches=8, n_present=2, seed=4)
    assert torch.equal(first.query_rows, again.query_rows)
    assert not torch.equal(first.query_rows, other.query_rows)


def test_fewer_batches_are_the_first_of_more():
    few = rehearse(UNEVEN, n_batches=3, n_present=2)
    many = rehearse(UNEVEN, n_batches=7, n_present=2)
    assert torch.equal(few.query_rows, many.query_rows[:3])


def test_one_call_of_a_solver_labels_all_batches():
    features = torch.nn.functional.one_hot(UNEVEN, 5).double() + 0.01 * torch.arange(len(UNEVEN))[:, None]
    tasks = rehearse(UNEVEN, n_batches=4, n_present=3).tasks(features)
    assert tasks.query_labels is not None
    assert solve("simpleshot", tasks).labels.equal(tasks.query_labels)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_present": 4, "n_held": 2}, "3 have 3 examples"),
        ({"n_present": 1, "n_held": 5}, "0 have 6 examples"),
        ({"n_present": 3, "n_held": 2, "n_kept": 2}, "2 have 4 examples"),
        ({"n_present": 0}, "n_present is 0"),
        ({"n_present": 1, "n_held": 0}, "n_held is 0"),
        ({"n_present": 1, "n_kept": 0}, "n_kept is 0"),
    ],
)
def test_what_cannot_be_drawn_is_said(wrong, message):
    with pytest.raises(InputError, match=message):
        rehearse(UNEVEN, n_batches=2, **wrong)


def test_no_batch_is_refused():
    with pytest.raises(InputError, match="n_batches is 0"):
        rehearse(UNEVEN, n_batches=0, n_present=1)
