"""The first step of features: what is seen in the examples."""

from __future__ import annotations

import torch
from problems import make_tasks

from manyway.core.ops import class_sums
from manyway.methods.calibration.constants import Constants
from manyway.methods.calibration.first_step import _MOST_ROWS, _seen


def test_evenly_spaced_examples_show_how_the_features_look():
    tasks = make_tasks(1, n_classes=5, shots=60, n_features=40)
    every = -(-tasks.n_support // _MOST_ROWS)
    assert every == 3
    counts, middle = class_sums(tasks)[1], tasks.support.mean(1, keepdim=True)
    way, usual = _seen(tasks, counts, middle, Constants())
    others = torch.arange(tasks.n_support) % every > 0
    for rows, same in ((others, True), (~others, False)):
        changed = make_tasks(1, n_classes=5, shots=60, n_features=40)
        changed.support_table[:, rows] *= 10.0 ** torch.linspace(-3, 3, 40, dtype=torch.float64)
        found = _seen(changed, counts, middle, Constants())
        assert (torch.equal(found[0], way) and torch.equal(found[1], usual)) == same
