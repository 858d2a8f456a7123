"""How samples lie around class means, and the precision that follows where none can be left out."""

from __future__ import annotations

import torch
import pytest
from problems import make_tasks

from manyway.methods.calibration.calibrating import Asked, calibrate_distances
from manyway.methods.calibration.constants import Constants
from manyway.methods.calibration.moments import gaussian_precision


def test_one_example_per_class_gives_the_precision_by_the_distances_between_classes():
    tasks = make_tasks(3, n_classes=7, shots=1)
    constants = Constants()
    middle = tasks.support.mean(1, keepdim=True)
    variance = (tasks.support - middle).square().sum(-1).quantile(0.5, dim=-1)
    torch.testing.assert_close(calibrate_distances(tasks, constants).precision, constants.one_shot_precision / variance)


def test_the_usual_precision_is_at_most_that_of_as_many_normal_columns():
    """Where classes of one column hardly differ within, distances between classes would say too much."""
    tasks = make_tasks(2, n_classes=6, n_features=1, shots=5, spread=0.3)
    centred = tasks.support - tasks.support.mean(1, keepdim=True)
    constants = Constants(one_shot_precision=1e9)
    plain = calibrate_distances(tasks, constants, Asked(metric=False))
    variances = centred.square().mean(1)
    limit = gaussian_precision(variances, centred.shape[1], plain.within.scatter, plain.prototypes.counts)
    assert (plain.precision < 20 * limit).all()


def test_the_precision_of_normal_features_is_that_of_as_many_as_matter():
    variances = torch.tensor([[4.0, 1.0, 0.25], [1.0, 1.0, 1.0]]).double()
    counts, scatter = torch.tensor([[1.0, 4.0], [2.0, 3.0]]).double(), torch.tensor([5.0, 3.0]).double()
    expected = []
    for of_task, s, numbers in zip(variances.tolist(), scatter.tolist(), counts.tolist(), strict=True):
        number = sum(of_task) ** 2 / sum(v * v for v in of_task)
        freedom = number * (sum(numbers) - len(numbers))
        number *= 1 - 2 / max(freedom, 4)  # the mean of 1/χ² with few degrees of freedom
        expected.append(number / s * sum(n / (n + 1) for n in numbers) / len(numbers))
    assert gaussian_precision(variances, 5, scatter, counts).tolist() == pytest.approx(expected)
