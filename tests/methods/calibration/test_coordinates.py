"""Where distances are measured: rows are placed by one map, and much too long ones are shortened."""

from __future__ import annotations

import pytest
import torch
from problems import make_tasks

from manyway.methods.calibration.calibrating import Asked, calibrate_distances
from manyway.methods.calibration.constants import Constants


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("metric", [True, False])
def test_the_map_that_places_rows_is_the_calibration_without_its_prototypes(metric, shared):
    tasks = make_tasks(3, n_classes=6, shots=3)
    calibration = calibrate_distances(tasks[:1] if shared else tasks, Constants(), Asked(metric=metric))
    expected = calibration.coordinates.place(tasks.query)
    torch.testing.assert_close(calibration.coordinates.placing()(tasks.query), expected)
    factor = torch.tensor([0.5, 2.0, 3.0]).double()[: len(calibration.precision)]
    torch.testing.assert_close(calibration.coordinates.placing(factor)(tasks.query), factor.view(-1, 1, 1) * expected)


def test_rows_that_are_much_too_long_are_placed_at_three_times_the_length_of_the_longest_members():
    tasks = make_tasks(2, n_classes=7, n_features=8, shots=3)
    calibration = calibrate_distances(tasks, Constants()).bounded()
    squares = calibration.prototypes.offsets.square().sum(-1).amax(-1) + calibration.within.scatter
    longest = 2 * squares.sqrt()
    torch.testing.assert_close(calibration.coordinates.longest, longest)
    near = calibration.coordinates.place(tasks.query)
    unit = near / near.norm(dim=-1, keepdim=True)
    times_longest = longest.view(-1, 1, 1) / near.norm(dim=-1, keepdim=True)
    for times, length, reliance in ((0.5, 0.5, 1.0), (1.0, 1.0, 1.0), (2.0, 1.25, 0.25), (1e9, 1.5, 0.0)):
        rows = calibration.coordinates.middle + times * times_longest * (tasks.query - calibration.coordinates.middle)
        for placed in (calibration.coordinates.place(rows), calibration.coordinates.placing()(rows)):
            torch.testing.assert_close(placed, length * longest.view(-1, 1, 1) * unit)
        found = calibration.coordinates.reliance(calibration.coordinates.place(rows))
        torch.testing.assert_close(found, torch.full_like(found, reliance))


@pytest.mark.parametrize("metric", [False, True])
def test_rows_are_as_long_as_they_are_where_no_bound_is_asked_for(metric):
    """The feature transform ``white`` of other methods is a linear map, also of far rows."""
    tasks = make_tasks(2, n_classes=7, n_features=8, shots=3)
    calibration = calibrate_distances(tasks, Constants(), Asked(metric=metric))
    far = calibration.coordinates.middle + 1e6 * (tasks.query - calibration.coordinates.middle)
    for place in (calibration.coordinates.place, calibration.coordinates.placing()):
        torch.testing.assert_close(place(far), 1e6 * place(tasks.query))
    assert (calibration.coordinates.reliance(calibration.coordinates.place(far)) == 1).all()
