"""The samples that are left out in turn, and their weights."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from manyway.methods.calibration.calibration import _MOST_SAMPLES, LeftOut
from manyway.methods.calibration.constants import Constants


@pytest.mark.parametrize(("n_classes", "equal"), [(3, False), (_MOST_SAMPLES + 1, True)])
def test_samples_of_large_classes_weigh_less_unless_there_are_more_classes_than_samples_left_out(n_classes, equal):
    counts = torch.full((1, n_classes), 2.0).index_fill(1, torch.tensor([0]), 40.0)
    labels = torch.arange(n_classes).repeat_interleave(counts[0].long())[None]
    plain = SimpleNamespace(counts=counts, scatter=torch.ones(1))
    weights = LeftOut.of(labels, plain, torch.ones(1), Constants()).usable[0]
    assert bool((weights == weights[-1]).all()) == equal
    assert equal or float(weights[0]) < float(weights[-1])
