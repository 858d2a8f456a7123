"""The random check of a review: its statement holds whenever it is made, and it says how many answers are left."""

from __future__ import annotations

import numpy as np
import pytest

from manyway.review.audit import Check, RandomCheck


def first_false(wrong, check, draws):
    """After how many answers of a simulated check its bound is false; None if it always holds."""
    flags = draws.permutation(np.arange(check.n_items) < wrong).cumsum()
    answers = range(1, check.n_items + 1)
    return next((m for m in answers if check.most_wrong(m, int(flags[m - 1])) < wrong - flags[m - 1]), None)


@pytest.mark.parametrize("tolerance", [0.01, 0.2], ids=["few wrong labels are expected", "many are"])
@pytest.mark.parametrize("wrong", [3, 12, 40])
def test_the_bound_holds_at_all_times_together(wrong, tolerance):
    draws, check = np.random.default_rng(0), Check(100, tolerance)
    failures = sum(first_false(wrong, check, draws) is not None for _ in range(200))
    assert failures / 200 <= check.risk + 2 * np.sqrt(check.risk / 200)


def test_the_bounds_of_checks_that_follow_each_other_hold_together():
    """Each check ends at its first wrong label, and labels learn nothing from it: five attempts, one risk."""
    draws, failures = np.random.default_rng(0), 0
    for _ in range(200):
        check, wrong = Check(60, 0.2), 8
        for _ in range(5):
            flags = draws.permutation(np.arange(check.n_items) < wrong).cumsum()
            ends = int(np.argmax(flags > 0)) + 1
            if any(check.most_wrong(m, int(flags[m - 1])) < wrong - flags[m - 1] for m in range(1, ends + 1)):
                failures += 1
                break
            check, wrong = Check(check.n_items - ends, 0.2, check.next_risk(ends, 1)), wrong - 1
    assert failures / 200 <= 0.05 + 2 * np.sqrt(0.05 / 200)


def test_after_all_answers_nothing_is_wrong():
    assert Check(50, 0.05).most_wrong(50, 7) == 0


def test_before_the_first_answer_everything_may_be_wrong():
    assert Check(50, 0.05).most_wrong(0, 0) == 50


def test_a_wrong_label_costs_answers():
    check = Check(1000, 0.05)
    assert check.left(100, 0) < check.left(100, 1) < check.left(100, 3)


@pytest.mark.parametrize(("n_items", "tolerance"), [(300, 0.02), (300, 0.05), (97, 0.1), (2000, 0.02)])
def test_the_answers_left_are_the_fewest_that_end_the_check(n_items, tolerance):
    check = Check(n_items, tolerance)
    for asked, wrong in ((0, 0), (30, 0), (30, 1)):
        fewest = next(more for more in range(n_items - asked + 1) if check.done(asked + more, wrong))
        assert check.left(asked, wrong) == fewest


def test_a_part_of_all_labels_takes_fewer_answers_than_of_those_without_one():
    rest, everything = Check(200, 0.05), Check(200, 0.05, of=300)
    assert everything.left(0, 0) < rest.left(0, 0)
    ends = everything.left(0, 0)
    assert everything.most_wrong(ends, 0) <= 15 < everything.most_wrong(ends - 1, 0)


def test_a_strict_tolerance_needs_nearly_all_answers_of_a_small_pile():
    assert Check(50, 0.01).left(0, 0) >= 48


def test_a_check_that_ends_leaves_less_risk_to_the_next_one():
    check = Check(300, 0.05)
    assert check.next_risk(0, 0) == pytest.approx(check.risk)
    assert check.risk > check.next_risk(20, 0) > check.next_risk(20, 1) > check.next_risk(20, 3)


def test_wrong_labels_that_are_found_out_of_turn_are_not_among_the_rest():
    labels = dict.fromkeys(range(100), 0)
    check = RandomCheck.begin(Check(100, 0.1), labels, n_classes=2, seed="a")
    answers = [-2] * 100
    for row in check.order[:20]:
        answers[row] = 0
    before = check.progress(answers, -2)
    answers[check.order[30]] = 1
    after = check.progress(answers, -2)
    assert (after.asked, after.wrong, after.rest) == (20, 0, 79)
    assert after.most == before.most - 1


@pytest.mark.parametrize("n_items", [40, 97, 175, 300, 1000])
@pytest.mark.parametrize("part", [0, 1.1], ids=["of the rest", "of all"])
def test_a_looser_tolerance_takes_no_more_answers(n_items, part):
    parts = (0.01, 0.02, 0.05, 0.1)
    needed = [Check.planned(n_items, one, 0.05, int(part * n_items), parts).left(0, 0) for one in parts]
    assert needed == sorted(needed, reverse=True)


def test_the_bound_is_said_whenever_a_check_ends():
    check = RandomCheck.begin(Check(100, 0.1), dict.fromkeys(range(100), 0), n_classes=2, seed="a")
    answers = [-2] * 100
    for row in check.order[:20]:
        answers[row] = 0
    most = Check(100, 0.1).most_wrong(20, 0)
    said = check.progress(answers, -2).sentence()
    bound = f"with 95 % confidence at most {most} of the 80 labels without an answer are wrong"
    assert said == f"The check is over after 20 answers: {bound}."
