"""The study of evidence: cells that are possible, and answers of the others that need not be worked out again."""

from __future__ import annotations

import pytest
import torch

from benchmarks import evidence_study as study
from benchmarks.features import make_features


def test_cells_ask_for_no_more_queries_than_there_are():
    features = make_features(12, 20, 8)
    found = list(study.cells("made", features))
    assert {cell.shots for cell in found} == {1, 5, 10}  # with 20 nothing is left
    assert all(15 <= cell.n_query <= cell.k_eff * (20 - cell.shots) for cell in found)
    assert len(set(found)) == len(found)


def test_others_are_taken_from_an_earlier_row(monkeypatch):
    features, cell = make_features(12, 30, 8), study.Cell("made", 5, 3, 15)
    whole = study.run(cell, features, n_tasks=6, seed=1)
    monkeypatch.setattr(study, "_answers_of_others", lambda tasks: pytest.fail("worked out again"))
    others = {**whole, "right": {**whole["right"], "evidence": [0] * 6}}  # evidence's own are not
    assert study.run(cell, features, n_tasks=6, seed=1, others=others) == whole


def test_a_cell_that_misses_says_what():
    right = {"prototypes": [9, 8], "paddle": [10, 10], "oracle": [10, 10], "evidence": [9, 9]}
    bins = torch.zeros(3, study.BINS)
    bins[:, -1] = torch.tensor([20.0, 19.0, 18.0])
    row = {"features": "made", "shots": 5, "k_eff": 5, "n_query": 10, "n_tasks": 2, "right": right}
    row |= {"reliability": bins.tolist(), "n_classes": [[5.0, 0.1, 5.0]] * 2, "temperature": "paddle cl2 5"}
    summary = study.summary(row)
    assert summary["missed"] == "paddle oracle"
    assert summary["calibration error"] == pytest.approx(5.0)
