"""Whether a change of labels is an improvement."""

from __future__ import annotations

import numpy as np
import pytest

from manyway.evaluation.statistics import Change, label_changes

TRUTH = {"a": "fox", "b": "fox", "c": "dog", "d": "wolf", "e": "blank"}
BEFORE = {"a": "fox", "b": "wolf", "c": "wolf", "d": "dog", "e": "fox"}
AFTER = {"a": "dog", "b": "Fox", "c": "dog", "d": "fox", "e": "dog"}
GENUS = {"fox": "Vulpes", "dog": "Canis", "wolf": "Canis"}


def test_items_are_corrected_made_worse_or_unchanged():
    everything, fox, *others = label_changes(BEFORE, AFTER, TRUTH)
    assert everything == Change("", 5, 1, 2, 2, 1, 2)
    assert fox == Change("fox", 2, 1, 1, 1, 1, 0)
    assert [one.name for one in others] == ["blank", "dog", "wolf"]
    assert everything.unchanged == 2


def test_at_a_higher_rank_the_group_counts():
    everything, *_ = label_changes(BEFORE, AFTER, TRUTH, GENUS)
    assert everything == Change("", 4, 3, 2, 1, 2, 0)  # blank has no genus
    rolled_up = label_changes({"d": "canis"}, {}, {"d": "wolf"}, GENUS)[0]
    assert (rolled_up.right_before, rolled_up.right_after) == (1, 0)


def test_the_interval_holds_for_a_few_items_and_is_never_certain():
    assert Change("", 10, 5, 5, 0, 0, 0).difference[0] == 0
    low, high = Change("", 10, 5, 5, 0, 0, 0).difference[1:]
    assert low < 0 < high
    mean, low, high = Change("", 200, 100, 130, 40, 10, 5).difference
    assert mean == pytest.approx(0.15)
    assert 0.07 < low < 0.1 < 0.2 < high < 0.23


def test_the_interval_covers_the_true_difference():
    generator = np.random.default_rng(0)
    inside = 0
    for counts in generator.multinomial(40, [0.2, 0.05, 0.75], size=400):
        _, low, high = Change("", 40, 0, 0, int(counts[0]), int(counts[1]), 0).difference
        inside += low <= 0.15 <= high
    assert 0.92 <= inside / 400 <= 0.985
