"""Constants outside of the schedule limit memory and time: with all of them doubled, no label is another one."""

import importlib

import pytest
from evidence_limits import DOUBLED

from benchmarks.golden import MODES, load_modes


@pytest.mark.parametrize("mode", MODES)
def test_twice_the_limits_change_no_label_and_no_probability_by_more_than_two_percent(mode, monkeypatch):
    for module, values in DOUBLED.items():
        for name, value in values.items():
            monkeypatch.setattr(importlib.import_module(module), name, value)
    classes, probabilities, presence = load_modes()[mode]
    found = MODES[mode]()
    sure = probabilities[..., 0] - probabilities[..., 1] > 1e-4
    assert (found.probabilities.argmax(-1) == classes[..., 0])[sure].all()
    assert (found.probabilities.gather(2, classes) - probabilities).abs().max() < 0.02
    assert (found.presence.double() - presence).abs().max() < 0.02
