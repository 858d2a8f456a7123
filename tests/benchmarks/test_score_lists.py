"""The benchmark of lists from scores: its batches, its changes of scores, and its table."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from benchmarks.score_lists import CHANGES, Classifier, draw, measure, tables


@pytest.fixture(name="classifier")
def make_classifier():
    """Twelve classes, of which each item is named surely."""
    labels = torch.arange(12).repeat_interleave(40)
    probabilities = (torch.eye(12)[labels] * 6).double().softmax(-1)
    return partial(Classifier, name="sure", probabilities=probabilities, labels=labels)


def test_a_batch_has_the_classes_of_one_half_and_each_item_once(classifier):
    labels = classifier(change=torch.log).labels
    for half in (0, 1):
        rows = draw(labels, n_items=60, n_present=3, half=half, batch=0)
        assert len(rows.unique()) == 60
        assert set((labels[rows] % 2).tolist()) == {half}
    assert len(labels[draw(labels, n_items=300, n_present=12, half=0, batch=0)].unique()) == 12


@pytest.mark.parametrize("change", CHANGES)
def test_a_sure_classifier_is_listed_however_its_scores_are_written(classifier, change):
    some = classifier(change=CHANGES[change])
    found = measure(some, draw(some.labels, 60, 3, 0, 0), n_present=3, n_labelled=0)
    assert found.absent == 0
    assert found.found == 1


def test_the_table_has_a_row_for_each_number_of_labels_each_size_and_each_classifier(classifier):
    some = classifier(change=torch.log)
    rows = draw(some.labels, 60, 3, 0, 0)
    batches = [measure(some, rows, n_present=3, n_labelled=n) for n in (0, 20)]
    assert [row[0] for row in tables(batches)] == [
        "0 labelled items", "60 items of 3", "sure", "20 labelled items", "60 items of 3", "sure",
    ]  # fmt: skip
