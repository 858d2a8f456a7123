"""Antenna: the response of a pipeline goes in, and comes back with one more classification per detection."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from manyway import InputError
from manyway.files.formats.antenna import Antenna
from manyway.files.score_files import read_scores

EXAMPLE = Antenna().example_path
RESPONSE = json.loads(EXAMPLE.read_text())
LABELS = RESPONSE["algorithms"]["uk"]["category_map"]["labels"]


def test_a_detection_has_the_scores_of_its_terminal_classification():
    scores = read_scores(EXAMPLE)
    assert scores.names == ("101#0", "101#1")
    assert scores.classes == ("Autographa gamma", "Noctua pronuba", "Xestia c-nigrum")  # from the category map
    assert scores.values[0].tolist() == pytest.approx([0.2, 0.71, 0.09])
    assert scores.carried["time"][0] == "2024-05-01T22:30:00"
    assert scores.skipped == (("102#2", "it has no terminal classification"),)


def test_our_classification_is_the_terminal_one_and_nothing_else_changes(label):
    label("--scores", EXAMPLE, "-o", "answers.json")
    after = json.loads(Path("answers.json").read_text())
    for number in (0, 1):
        *others, read, ours = after["detections"][number].pop("classifications")
        before = RESPONSE["detections"][number]["classifications"]
        assert others == before[:-1]
        assert read == {**before[-1], "terminal": False}
        assert (ours["terminal"], ours["algorithm"]["key"]) == (True, "uk-manyway")
        assert ours["labels"] == before[-1]["labels"]
        assert sum(ours["scores"]) == pytest.approx(1, abs=1e-3)
        assert ours["classification"] == LABELS[ours["scores"].index(max(ours["scores"]))]
    declared = after["algorithms"].pop("uk-manyway")
    assert declared["category_map"] == RESPONSE["algorithms"]["uk"]["category_map"]
    without = json.loads(EXAMPLE.read_text())
    for number in (0, 1):
        del without["detections"][number]["classifications"]
    assert after == without


def test_logits_are_used_where_all_detections_have_them(tmp_path):
    path = tmp_path / "response.json"
    path.write_text(json.dumps(changed(logits=[-400.0, 0.0, -1.0])))
    scores = read_scores(path)
    assert scores.kind == "log-probability"
    assert scores.values[1].tolist() == pytest.approx([-0.31326, -400.31326, -1.31326], abs=1e-4)
    path.write_text(json.dumps(changed(logits=None)))
    scores = read_scores(path)
    assert scores.kind == "probability"
    assert scores.values[1].tolist() == pytest.approx([0.4, 0.3, 0.3])


def test_algorithms_are_declared_where_the_response_has_none(label):
    """The labels of the classification are then the category map."""
    response = json.loads(EXAMPLE.read_text())
    response["detections"] = [response["detections"][1]] * 2
    for algorithms in ({"algorithms": {}}, {"algorithms": None}, {}):
        response.pop("algorithms", None)
        Path("in.json").write_text(json.dumps({**response, **algorithms}))
        label("--scores", "in.json", "-o", "out.json", "--overwrite")
        after = json.loads(Path("out.json").read_text())
        (declared,) = after["algorithms"].values()
        assert declared["key"] == "uk-manyway"
        assert declared["category_map"]["labels"] == LABELS
        assert [category["index"] for category in declared["category_map"]["data"]] == [0, 1, 2]


def changed(**parts: object) -> dict:
    response = json.loads(EXAMPLE.read_text())
    response["detections"][1]["classifications"][0] |= parts
    return response


BAD = {
    "other scores than labels": (changed(scores=[0.5]), "1 scores and 3 labels in detection 1"),
    "a score above 1": (changed(scores=[0.5, 0.2, 3]), "the score 3 in detection 1"),
    "a label twice": (changed(labels=["a", "a", "b"]), "the label 'a' twice in detection 1"),
    "other logits than labels": (changed(logits=[0.5]), "1 logits and 3 labels in detection 1"),
    "a logit that is no number": (changed(logits=[0.5, None, 1]), "'logits' of .* is empty in detection 1"),
    "no algorithm": (changed(algorithm=None), "no key of the algorithm in detection 1"),
    "no labels": (changed(labels=None, algorithm={"key": "x"}), "no labels for the scores in detection 1"),
}


@pytest.mark.parametrize(("response", "said"), BAD.values(), ids=BAD)
def test_what_makes_no_sense_is_refused(response, said, tmp_path):
    path = tmp_path / "response.json"
    path.write_text(json.dumps(response))
    with pytest.raises(InputError, match=said):
        read_scores(path)
