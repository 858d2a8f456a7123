"""Forecasts beside what happened: what is compared, and that nothing is measured twice."""

from __future__ import annotations

import json

import pytest

from benchmarks import forecast


def test_a_forecast_is_compared_with_batches_of_other_items(tmp_path, monkeypatch):
    monkeypatch.setattr(forecast, "SHOTS", (3,))
    monkeypatch.setattr(forecast, "N_PRESENT", (5,))
    monkeypatch.setattr(forecast, "N_CLASSES", 12)
    monkeypatch.setattr(forecast, "N_BATCHES", 3)
    store = tmp_path / "store.jsonl"
    (row,) = forecast.run(["glyphs"], 1, tmp_path, store)
    assert row["n_present"] == 5
    assert len(row["truth"]) == 3
    assert row["low"] <= row["accuracy"] <= row["high"]
    again = forecast.run(["glyphs"], 1, tmp_path, store)
    assert json.dumps(again) == json.dumps([row])


def test_figures_are_those_of_their_definition():
    rows = [{"accuracy": 0.8, "low": 0.7, "high": 0.9, "truth": [0.78, 0.84, 0.6, 0.9]}]
    right, expected, gap, settings, batches, of_mean, inside = map(float, forecast._figures(rows))
    assert (right, expected) == (78.0, 80.0)
    assert gap == pytest.approx(2.0)
    assert (settings, batches, of_mean, inside) == (100.0, 50.0, 25.0, 75.0)
