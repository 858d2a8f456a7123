"""Squared distances: those of a loop over rows, and the digits of small ones."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from manyway.methods.calibration.distances import (
    Offsets,
    distances_around_zero,
    distances_between,
    distances_to,
    squared_distances,
)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("n_features", [1, 3, 4, 5, 20])
def test_they_are_sums_of_squared_differences(n_features):
    samples = normal(2, 4, n_features) + 5
    prototypes = normal(2, 3, n_features, seed=1) + 5
    found = squared_distances(samples, prototypes)
    among = distances_between(samples)
    for t in range(2):
        for n in range(4):
            for k in range(3):
                torch.testing.assert_close(found[t, n, k], (samples[t, n] - prototypes[t, k]).square().sum())
            for m in range(4):
                torch.testing.assert_close(among[t, n, m], (samples[t, n] - samples[t, m]).square().sum())


def test_one_set_of_prototypes_serves_all_tasks():
    samples = normal(3, 4, 6)
    rows = normal(1, 2, 6, seed=1)
    found = distances_to(samples, rows, rows.square().sum(-1))
    torch.testing.assert_close(found, squared_distances(samples, rows.expand(3, -1, -1)))
    torch.testing.assert_close(distances_to(samples, rows, rows.square().sum(-1), at_once=True), found)


@pytest.mark.parametrize("n_features", [3, 4, 5, 20])
def test_rows_around_zero_need_no_middle(n_features):
    samples, prototypes = normal(2, 4, n_features), normal(2, 3, n_features, seed=1)
    torch.testing.assert_close(distances_around_zero(samples, prototypes), squared_distances(samples, prototypes))
    lengths = prototypes.square().sum(-1)
    for at_once in (True, False):
        found = distances_to(samples, prototypes, lengths, at_once)
        torch.testing.assert_close(found, squared_distances(samples, prototypes))


def test_prototypes_are_taken_relative_to_their_mean():
    prototypes = normal(2, 3, 5)
    found = Offsets.of(prototypes)
    torch.testing.assert_close(found.middle, prototypes.mean(1, keepdim=True))
    torch.testing.assert_close(found.rows, prototypes - found.middle)
    torch.testing.assert_close(found.squares, found.rows.norm(dim=-1).square())


@pytest.mark.parametrize("n_features", [3, 20])
def test_rows_far_from_zero_keep_their_distances_in_float32(n_features):
    samples = normal(1, 6, n_features)
    far = (samples + 1000).float()
    expected = squared_distances(far.double(), far.double()[:, :2])
    torch.testing.assert_close(squared_distances(far, far[:, :2]).double(), expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("n_features", [1, 2, 4])
def test_small_distances_of_few_features_keep_their_digits(n_features):
    """A difference of squares would be rounding alone, and could be negative."""
    steps = torch.tensor([0.0, 0.0, 2.0**-20, 2.0**-18])
    samples = (3 + steps).view(1, -1, 1).expand(-1, -1, n_features)
    expected = n_features * (steps[:, None] - steps[None]).square()
    assert torch.equal(distances_between(samples)[0], expected)
    assert torch.equal(squared_distances(samples, samples[:, :2])[0], expected[:, :2])
