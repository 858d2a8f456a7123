"""Antenna: the response of a pipeline, with detections and their classifications."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar

from manyway.errors import InputError
from manyway.files import json_text
from manyway.files.formats.base import Answers, Opened
from manyway.files.json_text import Edit
from manyway.files.scores import FILE, Collected, ScoreFormat, Scores, from_0_to_1, kind_of
from manyway.files.text import shorten, whole_text, write_like

_KEY = "manyway"


@dataclass(frozen=True)
class _Places:
    """Where answers go."""

    detections: list[int]
    classifications: list[int]  # the one of each detection that was read
    labels: list[list[str]]  # its labels


class Antenna(ScoreFormat):
    """The json that a pipeline of Antenna answers with; a batch is a collection."""

    key = "antenna"
    name = "Antenna"
    endings: ClassVar[tuple[str, ...]] = (".json",)
    sign = "lists 'detections' and 'source_images'"
    holds = "a detection: the scores of its last terminal classification, with labels there or in the category map"
    kept = "a further classification per detection, which is terminal instead of the last; every other byte stays"
    example = "antenna.json"

    def detect(self, file: Opened) -> bool:
        return file.has_list("detections", "source_images")

    def read(self, file: Opened) -> Scores:
        path = file.path
        found = Collected(path)
        chosen: list[int] = []
        labels: list[list[str]] = []
        for number, entry in enumerate(file.json["detections"]):
            place = f"detection {number}"
            detection = json_text.as_object(path, place, entry)
            image = str(detection.get("source_image_id"))
            item = f"{image}#{number}"
            given = json_text.list_in(path, place, detection, "classifications")
            at = _last_terminal(path, place, given)
            if at is None:
                found.skip(item, "it has no terminal classification", **{FILE: image})
                continue
            names = _labels_of(file, place, given[at])
            scores = _scores_of(path, place, given[at], names)
            found.add(place, item, scores)
            found.n_listed = max(found.n_listed, len(scores))
            found.places.append(number)
            found.about[item] = {FILE: image, "time": _time(detection)}
            chosen.append(at)
            labels.append(names)
        shown = {pair.name: pair.name for pair in found.pairs}
        places = _Places(found.places, chosen, labels)
        return found.scores(self, places, {}, shown, **kind_of(found.pairs))

    def write(self, path: Path, answers: Answers) -> list[str]:
        """A classification of our own for each detection."""
        origin = answers.origin
        assert origin is not None
        text = whole_text(origin.path)
        starts = json_text.inside(text, 0, "detections")
        places = origin.places
        edits = []
        every = zip(places.detections, places.classifications, places.labels, strict=True)
        for (number, at, labels), ranked in zip(every, answers.ranked(origin.n_listed), strict=True):
            if ranked and ranked[0][1] >= answers.least:
                new = _classification(dict(ranked), ranked[0][0], labels, answers.program)
                edits += _edits(text, starts[number], at, new)
        write_like(origin.path, path, json_text.edited(text, edits))
        return []


def _last_terminal(path: Path, place: str, given: list[Any]) -> int | None:
    """The last classification that is terminal."""
    entries = [json_text.as_object(path, place, entry) for entry in given]
    return next((at for at in reversed(range(len(given))) if entries[at].get("terminal", True)), None)


def _time(detection: Mapping[str, Any]) -> str | None:
    time = detection.get("timestamp")
    return time if isinstance(time, str) else None


def _labels_of(file: Opened, place: str, entry: Mapping[str, Any]) -> list[str]:
    """The labels of a classification: its own, or those of the category map of its algorithm."""
    labels = entry.get("labels")
    if labels is None:
        algorithms = file.json.get("algorithms")
        algorithm = entry.get("algorithm")
        key = algorithm.get("key") if isinstance(algorithm, dict) else None
        known = algorithms.get(key) if isinstance(algorithms, dict) else None
        categories = known.get("category_map") if isinstance(known, dict) else None
        labels = categories.get("labels") if isinstance(categories, dict) else None
    if not isinstance(labels, list) or not labels:
        raise InputError(f"{file.path} has no labels for the scores in {place}; add 'labels', or a category map.")
    return [json_text.as_name(file.path, place, label, "label") for label in labels]


def _scores_of(path: Path, place: str, entry: Mapping[str, Any], names: list[str]) -> dict[str, float]:
    scores = json_text.list_in(path, place, entry, "scores")
    if len(scores) != len(names):
        raise InputError(f"{path} has {len(scores)} scores and {len(names)} labels in {place}; they must agree.")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{path} has the label {shorten(twice)} twice in {place}; remove one.")
    numbers = [from_0_to_1(path, place, "scores", score, "score") for score in scores]
    return dict(zip(names, numbers, strict=True))


def _classification(found: Mapping[str, float], best: str, labels: list[str], program: str) -> dict[str, Any]:
    return {
        "classification": best,
        "labels": labels,
        "scores": [round(found.get(label, 0.0), 6) for label in labels],
        "algorithm": {"name": program, "key": _KEY},
        "terminal": True,
        "timestamp": datetime.now(timezone.utc).isoformat(),
    }


def _edits(text: str, start: int, at: int, new: Mapping[str, Any]) -> list[Edit]:
    """Put a classification behind the one that was read, which is no longer terminal; one of ours is replaced."""
    array = dict(json_text.members(text, start))["classifications"]
    read = [place for _, place in json_text.members(text, array.start)][at]
    old = json.loads(text[read])
    algorithm = old.get("algorithm")
    if isinstance(algorithm, dict) and algorithm.get("key") == _KEY:
        same = {**new, "timestamp": old.get("timestamp")}
        return [Edit(read.start, read.stop, json.dumps(same, ensure_ascii=False))]
    edits = [Edit(read.stop, read.stop, f", {json.dumps(new, ensure_ascii=False)}")]
    parts = dict(json_text.members(text, read.start))
    if "terminal" in parts:
        edits.append(Edit(parts["terminal"].start, parts["terminal"].stop, "false"))
    return edits
