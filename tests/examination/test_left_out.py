"""Every example judged by the others: in closed form, and as if it had been taken out by hand."""

from __future__ import annotations

import pytest
import torch

from manyway.examination.left_out import _Spread, leave_out, represent, suspicion


def spread_examples(n_classes: int, shots: int, n_features: int, distance: float, seed: int = 0):
    """Normal classes with unit variance, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    middles = distance * torch.randn(n_classes, n_features, generator=generator, dtype=torch.float64)
    labels = torch.arange(n_classes).repeat(shots)
    rows = middles[labels] + torch.randn(len(labels), n_features, generator=generator, dtype=torch.float64)
    return rows, labels


@pytest.mark.parametrize("n_features", [3, 40])  # fewer and more features than residuals
@pytest.mark.parametrize("gamma", [1.0, 0.3, 0.01])
def test_distances_are_those_of_a_model_without_the_example(n_features, gamma):
    rows, labels = spread_examples(4, 5, n_features, 1.0)
    left_out = 7
    found = _Spread.of(rows, labels).without(torch.tensor([left_out]), gamma)[0]

    residuals = rows - torch.stack([rows[labels == k].mean(0) for k in range(4)])[labels]
    total = residuals.square().sum() / n_features  # f·v, of all examples
    kept = torch.arange(len(rows)) != left_out
    means = torch.stack([rows[kept & (labels == k)].mean(0) for k in range(4)])
    residuals = (rows - means[labels])[kept]
    metric = (1 - gamma) * residuals.mT @ residuals / total + gamma * torch.eye(n_features, dtype=torch.float64)
    differences = rows[left_out] - means
    expected = (differences @ torch.linalg.inv(metric) * differences).sum(1)
    torch.testing.assert_close(found, expected)


def test_wrong_labels_are_the_most_suspicious():
    rows, truth = spread_examples(6, 8, 10, 2.0)
    labels = truth.clone()
    wrong = torch.tensor([0, 13, 29])
    labels[wrong] = (labels[wrong] + 1) % 6
    answers = leave_out(represent(rows, labels), labels)
    odds = suspicion(answers, labels)
    assert {*odds.topk(3).indices.tolist()} == {*wrong.tolist()}
    assert bool((odds[wrong] > 0).all())
    assert answers.log_probabilities[wrong].argmax(1).equal(truth[wrong])


def test_with_right_labels_nothing_is_suspicious():
    rows, labels = spread_examples(6, 8, 10, 2.0)
    answers = leave_out(represent(rows, labels), labels)
    assert bool((suspicion(answers, labels) < 0).all())
    assert answers.error_rate == 0.01


def test_nearly_half_of_the_labels_may_be_wrong():
    rows, truth = spread_examples(10, 12, 16, 2.0)
    labels = truth.clone()
    wrong = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))[: 2 * len(labels) // 5]
    labels[wrong] = (labels[wrong] + 1 + wrong % 9) % 10
    odds = suspicion(leave_out(represent(rows, labels), labels), labels)
    found = odds.topk(len(wrong)).indices
    assert len({*found.tolist()} & {*wrong.tolist()}) >= 0.95 * len(wrong)


def test_the_only_example_of_a_class_cannot_be_judged():
    rows, labels = spread_examples(4, 5, 6, 2.0)
    kept = (labels != 3) | (torch.arange(len(labels)) == 3)
    answers = leave_out(represent(rows[kept], labels[kept]), labels[kept])
    odds = suspicion(answers, labels[kept])
    assert odds.isnan().nonzero().flatten().tolist() == (labels[kept] == 3).nonzero().flatten().tolist()


def test_another_unit_of_the_features_changes_nothing():
    rows, labels = spread_examples(5, 6, 8, 1.0)
    odds = [suspicion(leave_out(represent(unit * rows, labels), labels), labels) for unit in (1.0, 1000.0)]
    torch.testing.assert_close(odds[0], odds[1], rtol=1e-4, atol=1e-4)
