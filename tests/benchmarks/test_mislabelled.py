"""Wrong labels beside cleanlab: what is changed, what is measured, and that nothing is measured twice."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.mislabelled import N_CLASSES, OWN, RIVALS, Key, draw, keys, measure, run, settings


@pytest.mark.parametrize("kind", ["at random", "similar"])
@pytest.mark.parametrize("rate", [0.05, 0.4])
def test_as_many_labels_are_wrong_as_the_key_says(kind, rate, tmp_path):
    task = draw(Key("glyphs", 5, kind, rate, 0), tmp_path)
    assert task.wrong.mean() == pytest.approx(rate, abs=0.03)
    assert np.unique(task.given).tolist() == list(range(N_CLASSES))


def test_all_ways_are_measured_and_stored_once(tmp_path):
    pytest.importorskip("cleanlab", reason="needs cleanlab")
    key = next(iter(keys(["glyphs"], 1)))
    store = tmp_path / "store.jsonl"
    (row,) = run(iter([key]), tmp_path, store)
    assert set(row["found"]) == {OWN, *RIVALS}
    assert row["found"][OWN][0] > 0.9
    run(iter([key]), tmp_path, store)
    assert len(store.read_text().splitlines()) == 1
    assert measure(key, tmp_path)["found"] == row["found"]


def test_settings_are_ahead_equal_or_behind_of_the_best_rival():
    def row(rate, own, best):
        found = dict.fromkeys(RIVALS, (best, best))
        return {"task": Key("glyphs", 5, "similar", rate, 0), "found": {**found, OWN: (own, own)}}

    rows = [row(0.05, 0.9, 0.8), row(0.1, 0.7, 0.8), row(0.2, 0.8, 0.8)]
    assert settings(rows) == [["AUROC", 3, 1, 1, 1], ["precision", 3, 1, 1, 1]]
