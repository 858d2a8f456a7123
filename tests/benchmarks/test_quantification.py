"""Quantification beside QuaPy: what is measured, and that nothing is measured twice."""

import json

import numpy as np
import pytest

from benchmarks.quantification import _best, _cell, judged, keys, problem, proportions_by, run


class Found:
    """A classifier that is always right, and sure."""

    labels = np.repeat(np.arange(3), 4)
    left_out = np.eye(3)[labels] * 0.97 + 0.01
    items = left_out[[0, 0, 0, 4]]


def test_errors_of_proportions_and_lists_are_those_of_their_definition():
    found = judged(np.array([0.5, 0.5, 0.0]), {"one": [0, 2], "none": []}, np.array([0.75, 0.25, 0.0]))
    assert found == {"error": 0.25, "lists": {"one": (0.5, 0.5), "none": (0.0, 0.0)}}


def test_each_method_shows_its_best_list_and_what_failed_shows_nothing():
    rows = [{"error": 0.1, "lists": {"1": (0.5, 0.2), "2": (0.7, 0.1), "5 %": (0.9, 0.0)}}] * 9 + [{"failed": "slow"}]
    assert _best(rows) == "2"
    assert _cell(rows, "2", False) == "10.0/70/10"
    assert _cell(rows, "2", True) == "10.0±0.0 / 70±0 / 10"
    assert _cell([*rows, {"failed": "slow"}], "2", False) == "–"


@pytest.mark.parametrize("name", ["CC", "PACC", "EMQ", "EMQ-BCTS"])
def test_rivals_find_the_proportions_of_a_sure_classifier(name):
    np.testing.assert_allclose(proportions_by(name, Found()), [0.75, 0.25, 0], atol=0.03)


def test_a_task_has_the_classes_that_its_key_says_and_an_impossible_one_is_left_out(tmp_path):
    task = problem(("glyphs", "equal", 5, 50, 0), tmp_path)
    assert len(task.items) == 50
    assert (task.truth > 0).sum() == 5
    assert problem(("glyphs", "equal", 5, 5000, 0), tmp_path) is None


def test_what_is_stored_is_not_measured_again(tmp_path):
    key, store = next(iter(keys(["glyphs"], 1))), tmp_path / "store.jsonl"
    first = run([key], tmp_path, store, 60, 1, ("evidence",))
    assert first[0]["error"] < 0.2
    again = run([key], tmp_path, store, 60, 1, ("evidence",))
    assert json.dumps(first) == json.dumps(again)
    assert len(store.read_text().splitlines()) == 1
