"""Logarithms of sums of likelihoods, for several precisions at once."""

from __future__ import annotations

import math

import pytest
import torch

from manyway.methods.calibration.log_sums import log_sums


def test_each_task_has_its_precisions():
    distances = torch.tensor([[[0.0, 2.0]], [[0.0, 2.0]]], dtype=torch.float64)
    precisions = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    expected = [[[math.log(1 + math.exp(-tau))] for tau in taus] for taus in precisions.tolist()]
    torch.testing.assert_close(log_sums(distances, precisions), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_far_classes_and_those_that_do_not_count_add_nothing(dtype):
    distances = torch.tensor([[[8.0, 1e6, torch.inf], [torch.inf] * 3]], dtype=dtype)
    found = log_sums(distances, torch.tensor([[1.0]], dtype=dtype))
    assert found[0, 0].tolist() == [-4.0, -torch.inf]
