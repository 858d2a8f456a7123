"""``scale="white"``: any method can use the metric and the precision that evidence learns."""

from __future__ import annotations

import pytest
import torch
from problems import make_tasks

from manyway import InputError, Tasks, solve
from manyway.core.ops import prototypes, squared_distances
from manyway.core.transforms import transform as plain_transform
from manyway.methods.calibration.calibrating import calibrate_and_place
from manyway.methods.calibration.transforms import transform
from manyway.methods.evidence.schedule import Schedule


def test_half_a_squared_distance_of_white_features_is_the_log_likelihood_of_evidence():
    tasks = make_tasks(4, n_classes=5, n_query=9, n_features=6, shots=4, spread=1.0)
    white = transform(tasks, "white")
    found = -0.5 * squared_distances(white.query, prototypes(white))
    calibration, placed = calibrate_and_place(plain_transform(tasks, "rcl2"), Schedule())
    bias = calibration.precision.view(-1, 1, 1) * calibration.prototypes.errors.unsqueeze(1)
    torch.testing.assert_close(found, calibration.log_likelihood(placed) - 0.5 * bias)


@pytest.mark.parametrize("method", ["paddle", "laplacianshot", "simpleshot", "bd-cspn"])
def test_other_methods_can_be_run_on_white_features(method):
    tasks = make_tasks(3, n_classes=5, n_query=9, n_features=6, shots=4, spread=2.0)
    found = solve(method, tasks, scale="white")
    assert torch.equal(found.labels, solve(method, transform(tasks, "white"), scale=None).labels)


def test_an_unknown_transform_gets_the_nearest_name():
    with pytest.raises(InputError, match="white"):
        transform(make_tasks(1), "whit")


def test_tasks_with_one_support_get_the_features_of_separate_tasks():
    one = make_tasks(1, n_classes=5, n_query=9, n_features=6, shots=4)
    rows, labels = torch.arange(one.n_support).expand(3, -1), one.support_labels.expand(3, -1)
    shared = Tasks(one.support[0], rows, labels, one.query[0], torch.arange(9).view(3, 3), one.n_classes)
    assert shared.shared_support
    separate = Tasks.from_arrays(shared.support, labels.clone(), shared.query)
    found, expected = transform(shared, "white"), transform(separate, "white")
    torch.testing.assert_close(found.query, expected.query)
    torch.testing.assert_close(found.support, expected.support)


def test_white_features_need_examples():
    tasks = make_tasks(1, n_classes=4, n_features=5)
    no_labels = tasks.support_labels[:, :0]
    named = Tasks.from_arrays(tasks.support[:, :0], no_labels, tasks.query, class_features=tasks.support[:, :4])
    with pytest.raises(InputError, match="learned from examples"):
        solve("stata", named, scale="white")
