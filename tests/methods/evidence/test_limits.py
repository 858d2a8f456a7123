"""Constants outside of the schedule limit memory and time: with all of them doubled, no label is another one."""

import importlib

import pytest

from benchmarks.golden import MODES, load_modes

CALIBRATION = "manyway.methods.calibration"
EVIDENCE = "manyway.methods.evidence"
SCORES = "manyway.methods.scores"
DOUBLED = {
    f"{CALIBRATION}.calibration": {
        "_MOST_SAMPLES": 1024, "_MOST_FOR_METRIC": 512, "_NEWTON_STEPS": 16, "_REFIT_STEPS": 6, "_MOMENT_STEPS": 6,
        "_LEAST_SCATTER": 2e-6, "_LEAST_TRUST": 0.01, "_LESS": 1 - 2e-5, "_EXACT_FEATURES": 128,
    },
    f"{CALIBRATION}.representation": {
        "_MOST_ROWS": 1024, "_MOST_COMPARED": 256, "_ROUNDS": 6, "_ROUNDING": 8, "_CONSTANT": 2e-10,
    },
    f"{CALIBRATION}.temperature_scaling": {"_NEWTON_STEPS": 16, "_SMALLEST_SCALE": 0.2},
    f"{CALIBRATION}.tuning": {"_POWER_STEPS": 6, "_MOST_SAMPLES": 1024, "_MOST_LEVERAGE": 0.95},
    f"{EVIDENCE}.copies": {"_MOST_COMPARED": 4096},
    f"{EVIDENCE}.confidence": {"_LOG_POWERS": (-3.0, 1.5, 181)},
    f"{EVIDENCE}.judge": {"_PROPORTIONS": 80, "MOST_JUDGED": 4096, "_LEAST_JUDGED": 512},
    f"{EVIDENCE}.neighbourhood": {"_MOST_EXAMPLES": 1024},
    f"{EVIDENCE}.queries": {"_LEAST_COUNTED": 2e-3, "_MOST_QUERIES": 1024},
    f"{SCORES}.kinds": {"_LEAST_MISSING": 2e-3, "_SLACK": 0.04, "_LARGEST_SIGMOID": 0.9998},
    f"{SCORES}.calibrate": {"_EM_STEPS": 100, "_BISECTIONS": 48, "_STEEPEST": 12.0},
    f"{SCORES}.search": {"_N_ALPHAS": 48, "_AHEAD": 2000},
    f"{SCORES}.items": {"_MATTERS": 2e-6},
    f"{SCORES}.unknown": {"_EM_STEPS": 200, "_LEAST": 2e-9},
    f"{SCORES}.solver": {"_MOST_ITEMS": 1024, "_LEAST_ITEMS": 256, "_POSSIBLE": -80.0},
    f"{SCORES}.several": {"_EM_STEPS": 120},
    f"{EVIDENCE}.prior": {"SURE": 1 - 2e-6, "_NODES": 512},
    "manyway.core.presence": {
        "_CERTAIN": 2e-6, "_LEAST_OTHERS": 0.1, "_NOTHING": 0.2, "_ROUNDS": 4,
    },
}  # fmt: skip


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
