"""From left-out examples to the share of right labels in a batch."""

from __future__ import annotations

import pytest
import torch

from manyway.examination.accuracy import Beaten, LearningCurve, Rehearsed, fewer_examples, right_among


def test_right_among_is_the_share_of_draws_without_a_class_that_is_nearer():
    generator = torch.Generator().manual_seed(0)
    beaten = 3
    draws = torch.stack([torch.randperm(11, generator=generator)[:4] for _ in range(4000)])  # of 11 other classes
    expected = float((draws >= beaten).all(1).double().mean())
    found = right_among(torch.tensor([beaten]), n_classes=12, n_present=5)
    assert float(found) == pytest.approx(expected, abs=0.02)


def test_more_items_of_a_class_help_up_to_a_list_of_the_classes():
    beaten = Beaten(numbers=torch.tensor([0, 0, 1, 4]), labels=torch.tensor([0, 1, 2, 3]), n_classes=10)
    few, some, many = (float(beaten.right(3, per_class).mean()) for per_class in (0.01, 5, 1000))
    assert few == pytest.approx(0.5, abs=1e-4)  # alone
    assert many == pytest.approx(float(right_among(beaten.numbers, 10, 3).mean()), abs=1e-3)
    assert some == pytest.approx((few + many) / 2, abs=1e-3)


def test_all_classes_present_leave_nothing_to_gain():
    beaten = Beaten(numbers=torch.tensor([0, 2]), labels=torch.tensor([0, 1]), n_classes=4)
    assert beaten.right(4, 30.0).tolist() == [1.0, 0.0]


def test_a_learning_curve_never_falls_and_stays_below_one():
    falling = LearningCurve.through([(2, 0.9), (3, 0.85), (4, 0.8)], n_tested=10**6)
    assert falling.accuracy(100) == pytest.approx(falling.accuracy(4))
    perfect = LearningCurve.through([(1, 0.5), (2, 0.9), (4, 1.0)], n_tested=10**6)
    assert perfect.accuracy(1000) <= 1
    assert perfect.floor == 0


def test_a_single_number_of_examples_gives_half_of_the_error_for_good():
    curve = LearningCurve.through([(1, 0.6)], n_tested=100)
    assert curve.accuracy(1) == pytest.approx(0.6)
    assert curve.accuracy(2) == pytest.approx(0.7)
    assert curve.accuracy(10**9) == pytest.approx(0.8)


def test_few_examples_say_little_about_the_slope():
    falling = [(2, 0.55), (3, 0.5), (4, 0.45)]
    few = LearningCurve.through(falling, n_tested=20)
    many = LearningCurve.through(falling, n_tested=20_000)
    assert few.slope > 0
    assert many.slope == 0


def test_smaller_sets_have_as_many_examples_as_they_say():
    labels = torch.arange(5).repeat(9)
    features = torch.nn.functional.one_hot(labels, 5).double()
    features = features + 0.1 * torch.randn(45, 5, generator=torch.Generator().manual_seed(0)).double()
    points = fewer_examples(features, labels, 8, seed=0)
    assert [size for size, _ in points] == [4, 5, 6, 7]
    for size, beaten in points:
        assert torch.bincount(beaten.labels).tolist() == [4 * (size + 1)] * 5  # in each of four draws


def test_a_rehearsal_counts_as_far_as_it_is_more_than_chance():
    as_promised = Rehearsed(n_batches=10, n_items=100, n_right=81, promised=80.0)
    worse = Rehearsed(n_batches=10, n_items=400, n_right=240, promised=320.0)
    assert as_promised.shift == 0
    assert -1.0 < worse.shift < -0.8
    assert Rehearsed(0, 0, 0, 0.0).shift == 0
