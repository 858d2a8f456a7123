"""Intervals, paired differences and sample sizes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from manyway.evaluation.statistics import accuracy, interval, paired, tasks_needed


def test_the_interval_is_students():
    values = np.random.default_rng(0).normal(size=37)
    low, high = stats.t.interval(0.95, 36, values.mean(), stats.sem(values))
    result = interval(values)
    assert (result.low, result.high) == (pytest.approx(low), pytest.approx(high))


def test_the_interval_covers_the_truth_95_times_in_100():
    draws = np.random.default_rng(1).binomial(75, 0.7, size=(4000, 40))
    covered = [row.low <= 0.7 <= row.high for row in (accuracy(draw, 75) for draw in draws)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.012)


def test_one_task_has_a_mean_and_no_interval():
    result = accuracy([60], 75)
    assert result.mean == 0.8
    assert np.isnan(result.half)


def test_the_paired_test_is_scipys():
    generator = np.random.default_rng(2)
    easy = generator.integers(20, 70, size=200)
    a, b = easy + generator.integers(0, 5, size=200), easy + generator.integers(0, 4, size=200)
    result = paired(a, b, 75)
    assert result.p == pytest.approx(stats.ttest_rel(a, b).pvalue)
    assert result.difference.mean == pytest.approx((a - b).mean() / 75)
    assert result.wins + result.ties + result.losses == 200


def test_pairing_sees_what_separate_intervals_hide():
    hard = np.random.default_rng(3).integers(10, 70, size=300)
    a, b = hard + 1, hard + (np.arange(300) % 2)
    separate = accuracy(a, 75), accuracy(b, 75)
    assert separate[0].low < separate[1].high  # the intervals overlap
    assert paired(a, b, 75).p < 1e-6


def test_equal_answers_differ_by_nothing():
    result = paired([5, 6, 7], [5, 6, 7], 10)
    assert (result.difference.mean, result.p, result.ties) == (0, 1, 3)
    assert paired([6, 7, 8], [5, 6, 7], 10).p == 0


def test_the_number_of_tasks_gives_the_width_that_was_wanted():
    generator = np.random.default_rng(4)
    n = tasks_needed(0.09, 0.005)
    assert n == 1245
    half = interval(generator.normal(0.6, 0.09, size=n)).half
    assert half == pytest.approx(0.005, rel=0.1)
