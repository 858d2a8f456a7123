"""A response of an Antenna pipeline for a collection: all detections are labelled jointly, and Antenna can save it."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest

from manyway import InputError, label_antenna

N_TAXA = 300
PRESENT = (7, 41, 58, 96, 130, 188, 240, 277)
LABELS = [f"Noctua species{number:03d}" for number in range(N_TAXA)]
ALGORITHMS = {
    "detector": {"name": "FasterRCNN", "key": "detector", "task_type": "detection", "version": 1},
    "binary": {
        "name": "Moth or not",
        "key": "binary",
        "task_type": "classification",
        "version": 1,
        "category_map": {
            "data": [{"label": "Moth", "index": 0}, {"label": "Not a moth", "index": 1}],
            "labels": ["Moth", "Not a moth"],
        },
    },
    "global": {
        "name": "Global moths 2024",
        "key": "global",
        "task_type": "classification",
        "version": 3,
        "category_map": {
            "data": [
                {"label": label, "index": index, "gbif_key": 5000 + index, "taxon_rank": "SPECIES"}
                for index, label in enumerate(LABELS)
            ],
            "labels": LABELS,
        },
    },
}


def classification(name: str, scores: list[float], key: str, **more: object) -> dict:
    algorithm = {"name": ALGORITHMS[key]["name"], "key": key}
    time = "2024-07-02T23:14:05.120000"
    return {"classification": name, "scores": scores, "algorithm": algorithm, "timestamp": time, **more}


def detection(image: int, at: int, taxon: int, rng: np.random.Generator) -> dict:
    """One in eight is no moth, and has no species."""
    box = {"x1": 10.0 * at, "y1": 20.0, "x2": 10.0 * at + 64, "y2": 92.5}
    found = {
        "source_image_id": str(9000 + image),
        "bbox": box,
        "inference_time": None,
        "algorithm": {"name": "FasterRCNN", "key": "detector"},
        "timestamp": "2024-07-02T23:14:03.008000",
        "crop_image_url": None,
    }
    if rng.random() < 1 / 8:
        no_moth = classification("Not a moth", [0.03, 0.97], "binary", labels=["Moth", "Not a moth"], terminal=False)
        return {**found, "classifications": [no_moth]}
    logits = rng.normal(0, 1, N_TAXA)
    logits[taxon] += 5
    logits[rng.integers(N_TAXA)] += 5  # it resembles another
    scores = np.exp(logits) / np.exp(logits).sum()
    best = LABELS[int(scores.argmax())]
    values = {"logits": logits.round(4).tolist(), "labels": None, "terminal": True, "inference_time": 0.02}
    moth = classification("Moth", [0.99, 0.01], "binary", labels=["Moth", "Not a moth"], terminal=False)
    return {**found, "classifications": [moth, classification(best, scores.round(6).tolist(), "global", **values)]}


def collection(n_images: int, seed: int) -> tuple[dict, list[int]]:
    """A response, and the true taxon of each detection."""
    rng = np.random.default_rng(seed)
    truth = [PRESENT[k] for k in rng.choice(len(PRESENT), 3 * n_images)]
    images = [{"id": str(9000 + n), "url": f"https://example.org/{n}.jpg"} for n in range(n_images)]
    detections = [detection(n // 3, n % 3, taxon, rng) for n, taxon in enumerate(truth)]
    response = {
        "pipeline": "global_moths_2024",
        "algorithms": ALGORITHMS,
        "total_time": 18.25,
        "source_images": images,
        "detections": detections,
        "errors": None,
    }
    return response, truth


def right(response: dict, truth: list[int]) -> float:
    """How many of the detections with a species have the right one, as Antenna would determine it."""
    found = []
    for each, taxon in zip(response["detections"], truth, strict=True):
        terminal = [one for one in each["classifications"] if one["terminal"]]
        if terminal:
            (last,) = terminal
            found.append(last["classification"] == LABELS[taxon])
    return float(np.mean(found))


RESPONSE, TRUTH = collection(20, seed=1)


def test_a_collection_is_labelled_jointly():
    before = copy.deepcopy(RESPONSE)
    labelled = label_antenna(RESPONSE)
    assert before == RESPONSE
    assert right(labelled, TRUTH) > right(RESPONSE, TRUTH) + 0.3
    json.dumps(labelled)


def test_what_antenna_asks_of_a_response_holds():
    """It looks up each algorithm, and the taxon of the highest score in the algorithm's category map."""
    labelled = label_antenna(RESPONSE)
    for each, before in zip(labelled["detections"], RESPONSE["detections"], strict=True):
        for one in each["classifications"]:
            categories = labelled["algorithms"][one["algorithm"]["key"]]["category_map"]
            assert len(one["scores"]) == len(categories["labels"])
            best = categories["data"][one["scores"].index(max(one["scores"]))]
            assert best["label"] == one["classification"]
        if len(before["classifications"]) == 1:
            assert each == before  # no moth
        else:
            *others, read, ours = each["classifications"]
            assert [*others, {**read, "terminal": True}] == before["classifications"]
            assert ours["algorithm"]["key"] == "global-manyway"
            assert sum(ours["scores"]) == pytest.approx(1, abs=1e-3)


def test_several_responses_are_one_batch():
    """A collection is processed in parts, each too small by itself."""
    detections = RESPONSE["detections"]
    parts = [{**RESPONSE, "detections": detections[first : first + 6]} for first in range(0, len(detections), 6)]
    together = label_antenna(parts)
    joined = {**RESPONSE, "detections": [each for part in together for each in part["detections"]]}
    whole = label_antenna(RESPONSE)
    assert right(joined, TRUTH) == right(whole, TRUTH)
    alone = {**RESPONSE, "detections": [each for part in parts for each in label_antenna(part)["detections"]]}
    assert right(joined, TRUTH) > right(alone, TRUTH)


def test_a_second_time_replaces_our_classification():
    once = label_antenna(RESPONSE)
    twice = label_antenna(once)
    assert once["algorithms"].keys() == twice["algorithms"].keys()
    for first, second in zip(once["detections"], twice["detections"], strict=True):
        assert len(first["classifications"]) == len(second["classifications"])


def test_uncertain_detections_keep_their_classification():
    labelled = label_antenna(RESPONSE, min_confidence=1.0)
    kept = [each["classifications"][-1]["algorithm"]["key"] for each in labelled["detections"]]
    assert "global-manyway" not in kept


def test_expected_taxa_are_a_soft_list():
    expected = {LABELS[taxon]: 1.0 for taxon in PRESENT}
    labelled = label_antenna({**RESPONSE, "detections": RESPONSE["detections"][:6]}, expected=expected)
    bare = label_antenna({**RESPONSE, "detections": RESPONSE["detections"][:6]})
    assert right(labelled, TRUTH[:6]) >= right(bare, TRUTH[:6])


BAD = {
    "no response": (5, {}, "a mapping with a list 'detections'"),
    "no detections": ({"source_images": []}, {}, "a mapping with a list 'detections'"),
    "no classification": ({"detections": [{"source_image_id": "1"}]}, {}, "no detection with a terminal"),
    "no object": ({"detections": [5]}, {}, "The response has '5' instead of an object in detection 0"),
    "a share above 1": (RESPONSE, {"min_confidence": 2.0}, "min_confidence is 2.0; it must be from 0 to 1"),
}


@pytest.mark.parametrize(("response", "options", "said"), BAD.values(), ids=BAD)
def test_what_makes_no_sense_is_one_sentence(response, options, said):
    with pytest.raises(InputError, match=said):
        label_antenna(response, **options)
