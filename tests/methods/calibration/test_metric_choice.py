"""The metric that left-out answers choose."""

from __future__ import annotations

import pytest
import torch
from problems import make_tasks

from manyway import Tasks, solve
from manyway.methods.calibration.calibrating import calibrate_distances
from manyway.methods.calibration.constants import Constants


@pytest.mark.parametrize("units", [[1.0, 1.0], [1.0, 30.0]])
def test_few_degrees_of_freedom_do_not_make_a_metric_that_tells_nothing_apart(units):
    examples = torch.tensor([[0, 9], [1, 9], [9, 0], [9, 1], [8, 1], [8, 0]]) * torch.tensor(units)
    tasks = Tasks.from_arrays(examples[None], [[0, 0, 1, 1, 2, 2]], torch.tensor([[[0.0, 8.0]]]) * torch.tensor(units))
    assert solve("evidence", tasks, schedule={"doubtful_examples": 0.0}).probabilities[0, 0, 0] > 0.999


def test_classes_that_a_common_size_hides_are_told_apart_with_two_examples_each():
    """As in crabs, whose measurements all grow with age: little of the metric is worse than none, and much is good."""
    generator = torch.Generator().manual_seed(5)
    shape = torch.randn(4, 5, generator=generator)

    def items(each: int) -> torch.Tensor:
        size = 20 + 5 * torch.randn(16, 4 * each, 1, generator=generator)
        noise = 0.2 * torch.randn(16, 4 * each, 5, generator=generator)
        return size * torch.tensor([1.0, 0.8, 2.0, 2.2, 0.9]) + shape.repeat_interleave(each, 0) + noise

    labels = torch.arange(4).expand(16, -1)
    tasks = Tasks.from_arrays(items(2), labels.repeat_interleave(2, 1), items(10))
    right = solve("evidence", tasks).labels == labels.repeat_interleave(10, 1)
    assert right.double().mean() > 0.85


def test_the_noise_in_a_metric_is_the_deviation_of_left_out_samples_in_it():
    """Each is left out of the mean of its class and of A = γ + (1 − γ) Σ rr'·d/(f S)."""
    tasks = make_tasks(1, n_classes=3, shots=6, spread=1.5)
    tasks = tasks.with_rows(tasks.support * torch.tensor([10.0, 1, 1, 1, 1]), tasks.query)
    found = calibrate_distances(tasks, Constants())
    gamma, scatter = float(found.coordinates.shrinkage), float(found.within.scatter)
    assert gamma < 1
    support, labels = tasks.support[0], tasks.support_labels[0]
    excess = []
    for i, x in enumerate(support):
        others = torch.arange(18) != i
        residuals = torch.cat([
            support[others & (labels == k)] - support[others & (labels == k)].mean(0) for k in range(3)
        ])
        metric = gamma * torch.eye(5) + (1 - gamma) * 5 / (15 * scatter) * residuals.T @ residuals
        apart = x - support[others & (labels == labels[i])].mean(0)
        square = float(found.coordinates.metric.stretch) ** 2 * float(apart @ torch.linalg.solve(metric, apart))
        excess.append((square - scatter / 5 - scatter) / (1 + 1 / 5))
    assert float(found.within.noise) == pytest.approx(float(torch.tensor(excess).std(unbiased=False)))
