"""Antenna: the response of a pipeline, with detections and their classifications."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from manyway.errors import InputError
from manyway.files import json_text
from manyway.files.formats.base import Answers, Opened, Ranked
from manyway.files.json_text import Edit
from manyway.files.scores import FILE, Collected, ScoreFormat, Scores, from_0_to_1, kind_of
from manyway.files.tables import as_number
from manyway.files.text import first_twice, shorten, whole_text, write_like

_OURS = "-manyway"  # behind the key of the algorithm whose scores were used


class Target(NamedTuple):
    """A detection that gets an answer."""

    response: int  # the number of the response that has it
    detection: int
    classification: int  # the one of the detection that was read
    labels: Sequence[str]
    lists_labels: bool  # whether the classification itself lists them, or its algorithm
    algorithm: Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a detection gets."""

    target: Target
    classification: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The key of our algorithm."""
        return str(self.classification["algorithm"]["key"])


class Antenna(ScoreFormat):
    """The json that a pipeline of Antenna answers with; a batch is a collection."""

    key = "antenna"
    name = "Antenna"
    endings: ClassVar[tuple[str, ...]] = (".json",)
    sign = "lists 'detections' and 'source_images'"
    holds = (
        "a detection: the logits, or else the scores, of its last terminal classification, with labels there or in the "
        "category map"
    )
    kept = (
        "a further classification per detection, which is terminal instead of the last, and its algorithm; every other "
        "byte stays"
    )
    example = "antenna.json"

    def detect(self, file: Opened) -> bool:
        return file.has_list("detections", "source_images")

    def read(self, file: Opened) -> Scores:
        return read_responses(file.path, [file.json], self)

    def write(self, path: Path, answers: Answers) -> list[str]:
        """A classification of our own for each detection."""
        origin = answers.origin
        assert origin is not None
        text = whole_text(origin.path)
        starts = json_text.inside(text, 0, "detections")
        found = list(answers_to(origin.places, answers.ranked(origin.n_listed), answers.least, answers.program))
        edits = []
        for answer in found:
            edits += _edits(text, starts[answer.target.detection], answer)
        edits += _edits_of_algorithms(text, new_algorithms(json.loads(text), found, answers.program))
        write_like(origin.path, path, json_text.edited(text, edits))
        return []


def read_responses(where: Path, responses: Sequence[Mapping[str, Any]], form: Antenna) -> Scores:
    """The scores of the detections of some responses, as one batch.

    Parameters
    ----------
    where : Path
        What messages call the responses.
    responses : sequence of mapping
        Each has a list ``detections``.
    form : Antenna
    """
    found = Collected(where)
    logits: dict[str, dict[str, float]] = {}
    for which, response in enumerate(responses):
        for number, entry in enumerate(response["detections"]):
            place = f"detection {number}" if len(responses) == 1 else f"detection {number} of response {which}"
            detection = json_text.as_object(where, place, entry)
            image = str(detection.get("source_image_id"))
            item = f"{image}#{number}" if len(responses) == 1 else f"{image}#{which}.{number}"
            given = json_text.list_in(where, place, detection, "classifications")
            at = _last_terminal(where, place, given)
            if at is None:
                found.skip(item, "it has no terminal classification", **{FILE: image})
                continue
            reader = _Classification(where, place, given[at], response)
            target = reader.target(which, number, at)
            scores = reader.numbers("scores", target.labels)
            found.add(place, item, {name: reader.score(score) for name, score in scores.items()})
            if given[at].get("logits") is not None:
                logits[item] = _log_softmax(reader.numbers("logits", target.labels))
            found.n_listed = max(found.n_listed, len(scores))
            found.places.append(target)
            found.about[item] = {FILE: image, "time": _time(detection)}
    kind = kind_of(found.pairs)
    if len(logits) == len(found.places):
        kind = {"kind": "log-probability", "independent": False}
        found.pairs = [pair._replace(score=logits[pair.item][pair.name]) for pair in found.pairs]
    shown = {pair.name: pair.name for pair in found.pairs}
    return found.scores(form, tuple(found.places), {}, shown, **kind)


def _last_terminal(path: Path, place: str, given: list[Any]) -> int | None:
    """The last classification that is terminal."""
    entries = [json_text.as_object(path, place, entry) for entry in given]
    return next((at for at in reversed(range(len(given))) if entries[at].get("terminal", True)), None)


def _time(detection: Mapping[str, Any]) -> str | None:
    time = detection.get("timestamp")
    return time if isinstance(time, str) else None


class _Classification(NamedTuple):
    """A classification that is read."""

    where: Path
    place: str
    entry: Mapping[str, Any]
    response: Mapping[str, Any]

    def target(self, response: int, detection: int, classification: int) -> Target:
        """Where its answer goes."""
        algorithm = self.entry.get("algorithm")
        if not isinstance(algorithm, dict) or not isinstance(algorithm.get("key"), str):
            raise InputError(f"{self.where} has no key of the algorithm in {self.place}.")
        own = self.entry.get("labels")
        labels = own if own is not None else self._labels_of_algorithm(algorithm["key"])
        if not isinstance(labels, list) or not labels:
            what = f"no labels for the scores in {self.place}"
            raise InputError(f"{self.where} has {what}; add 'labels', or a category map.")
        names = [json_text.as_name(self.where, self.place, label, "label") for label in labels]
        twice = first_twice(names)
        if twice is not None:
            raise InputError(f"{self.where} has the label {shorten(twice)} twice in {self.place}; remove one.")
        return Target(
            response=response,
            detection=detection,
            classification=classification,
            labels=names,
            lists_labels=own is not None,
            algorithm=algorithm,
        )

    def _labels_of_algorithm(self, key: str) -> Any:
        known = _algorithms(self.response).get(key)
        categories = known.get("category_map") if isinstance(known, dict) else None
        return categories.get("labels") if isinstance(categories, dict) else None

    def numbers(self, name: str, labels: Sequence[str]) -> dict[str, float]:
        """The numbers in a list of the classification, by label."""
        found = json_text.list_in(self.where, self.place, self.entry, name)
        if len(found) != len(labels):
            what = f"{len(found)} {name} and {len(labels)} labels in {self.place}"
            raise InputError(f"{self.where} has {what}; they must agree.")
        numbers = [as_number(self.where, self.place, name, each) for each in found]
        return dict(zip(labels, numbers, strict=True))

    def score(self, value: float) -> float:
        """A score, which must lie between 0 and 1."""
        return from_0_to_1(self.where, self.place, "scores", value, "score")


def _algorithms(response: Mapping[str, Any]) -> Mapping[str, Any]:
    found = response.get("algorithms")
    return found if isinstance(found, dict) else {}


def _log_softmax(logits: Mapping[str, float]) -> dict[str, float]:
    highest = max(logits.values())
    log_total = highest + math.log(sum(math.exp(logit - highest) for logit in logits.values()))
    return {name: logit - log_total for name, logit in logits.items()}


def answers_to(targets: Iterable[Target], ranked: Iterable[Ranked], least: float, program: str) -> Iterator[Answer]:
    """Our classification of each detection whose label is probable enough, and not unknown.

    Parameters
    ----------
    targets : iterable of Target
    ranked : iterable of Ranked
        The classes of each of these detections, most probable first.
    least : float
        The lowest probability of a label that is written.
    program : str
        Who has found it.
    """
    for target, classes in zip(targets, ranked, strict=True):
        if not classes or classes[0][1] < least:
            continue
        found = dict(classes)
        classification = {
            "classification": classes[0][0],
            "labels": list(target.labels) if target.lists_labels else None,
            "scores": [round(found.get(label, 0.0), 6) for label in target.labels],
            "algorithm": _our_algorithm(target, program),
            "terminal": True,
            "timestamp": datetime.now(timezone.utc).isoformat(),
        }
        yield Answer(target, classification)


def _our_algorithm(target: Target, program: str) -> dict[str, str]:
    """The reference to our algorithm: Antenna knows one list of labels per algorithm, so each has one of ours."""
    key = str(target.algorithm["key"])
    if key.endswith(_OURS):
        return {"name": str(target.algorithm.get("name", key)), "key": key}
    name = target.algorithm.get("name", key)
    return {"name": f"{name}, labelled jointly by {program}", "key": f"{key}{_OURS}"}


def new_algorithms(response: Mapping[str, Any], answers: Iterable[Answer], program: str) -> dict[str, Any]:
    """Our algorithms that a response does not declare yet, by their keys; Antenna refuses others."""
    known = _algorithms(response)
    found: dict[str, Any] = {}
    for answer in answers:
        if answer.key in known or answer.key in found:
            continue
        source = known.get(answer.target.algorithm["key"])
        categories = source.get("category_map") if isinstance(source, dict) else None
        if not isinstance(categories, dict):
            data = [{"label": label, "index": index} for index, label in enumerate(answer.target.labels)]
            categories = {"data": data, "labels": list(answer.target.labels)}
        found[answer.key] = {
            **answer.classification["algorithm"],
            "task_type": "classification",
            "version_name": program,
            "category_map": categories,
        }
    return found


def with_answers(response: Mapping[str, Any], answers: Sequence[Answer], program: str) -> dict[str, Any]:
    """A copy of a response with our classifications, which are terminal instead of those that were read."""
    detections = [dict(detection) for detection in response["detections"]]
    for answer in answers:
        detection = detections[answer.target.detection]
        classifications = list(detection["classifications"])
        read = classifications[answer.target.classification]
        if _is_ours(read):
            classifications[answer.target.classification] = answer.classification
        else:
            classifications[answer.target.classification] = {**read, "terminal": False}
            classifications.insert(answer.target.classification + 1, answer.classification)
        detection["classifications"] = classifications
    algorithms = {**_algorithms(response), **new_algorithms(response, answers, program)}
    return {**response, "algorithms": algorithms, "detections": detections}


def _is_ours(classification: Mapping[str, Any]) -> bool:
    return str(classification["algorithm"]["key"]).endswith(_OURS)


def _edits(text: str, start: int, answer: Answer) -> list[Edit]:
    """Put a classification behind the one that was read, which is no longer terminal; one of ours is replaced."""
    array = dict(json_text.members(text, start))["classifications"]
    read = [place for _, place in json_text.members(text, array.start)][answer.target.classification]
    old = json.loads(text[read])
    if _is_ours(old):
        same = {**answer.classification, "timestamp": old.get("timestamp")}
        return [Edit(read.start, read.stop, json.dumps(same, ensure_ascii=False))]
    edits = [Edit(read.stop, read.stop, f", {json.dumps(answer.classification, ensure_ascii=False)}")]
    parts = dict(json_text.members(text, read.start))
    if "terminal" in parts:
        edits.append(Edit(parts["terminal"].start, parts["terminal"].stop, "false"))
    else:
        edits.append(Edit(read.start + 1, read.start + 1, '"terminal": false, '))
    return edits


def _edits_of_algorithms(text: str, new: Mapping[str, Any]) -> list[Edit]:
    """Declare our algorithms in front of the others."""
    if not new:
        return []
    body = json.dumps(new, ensure_ascii=False)
    place = dict(json_text.members(text, 0)).get("algorithms")
    if place is None:
        start = text.index("{") + 1
        return [Edit(start, start, f'"algorithms": {body}, ')]
    if not json.loads(text[place]):
        return [Edit(place.start, place.stop, body)]
    return [Edit(place.start + 1, place.start + 1, f"{body[1:-1]}, ")]
