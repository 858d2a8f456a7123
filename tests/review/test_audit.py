"""The random check of a review: its statement holds whenever it is made, and it says how many answers are left."""

from __future__ import annotations

import numpy as np
import pytest

from manyway.review.audit import Check


@pytest.mark.parametrize("expected", [0.5, 20.0], ids=["a method that is too sure", "a method that is not"])
@pytest.mark.parametrize("wrong", [3, 12, 40])
def test_the_bound_holds_at_all_times_together(wrong, expected):
    random, check, failures = np.random.default_rng(0), Check(100, expected), 0
    for _ in range(200):
        flags = random.permutation(np.arange(100) < wrong).cumsum()
        failures += any(check.most_wrong(m, int(flags[m - 1])) < wrong - flags[m - 1] for m in range(1, 101))
    assert failures / 200 <= check.risk + 2 * np.sqrt(check.risk / 200)


def test_after_all_answers_nothing_is_wrong():
    assert Check(50, 3).most_wrong(50, 7) == 0


def test_before_the_first_answer_everything_may_be_wrong():
    assert Check(50, 3).most_wrong(0, 0) == 50


def test_a_wrong_label_costs_answers():
    check = Check(1000, 5)
    assert check.left(100, 0, 0.05) < check.left(100, 1, 0.05) < check.left(100, 3, 0.05)


def test_the_answers_left_end_the_check():
    check = Check(2000, 5)
    left = check.left(30, 0, 0.02)
    assert not check.done(30, 0, 0.02)
    assert check.done(30 + left, 0, 0.02)


def test_a_strict_tolerance_needs_nearly_all_answers_of_a_small_pile():
    assert Check(50, 0.5).left(0, 0, 0.01) >= 48


def test_the_risks_of_all_checks_together_are_that_of_the_review():
    risks = [Check(10, 1, number).risk for number in range(1, 60)]
    assert sum(risks) == pytest.approx(0.05)
    assert risks == sorted(risks, reverse=True)
