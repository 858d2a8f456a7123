"""SpeciesNet: the five most probable labels of each picture, and logits of a given list where they were asked for."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from manyway.files import json_text
from manyway.files.formats.base import Answers, Opened
from manyway.files.json_text import Edit, Lists
from manyway.files.scores import (
    NO_SCORE,
    Collected,
    ScoreFormat,
    Scores,
    detected,
    from_0_to_1,
    kind_of,
    short_name,
    shown_names,
)
from manyway.files.tables import as_number
from manyway.files.text import whole_text, write_like

_SLACK = 1e-3  # scores are rounded
# SpeciesNet's own prediction where it has none.
_NO_CLASS = ";".join(["f2efdae9-efb8-48fb-8a91-eccf79ab4ffb", *6 * ["no cv result"]])
_DETECTOR = "detector"  # who decided about people, vehicles and pictures without animals


@dataclass(frozen=True)
class _Places:
    """Where answers go."""

    predictions: list[int]  # the number of the prediction of each item
    own: Mapping[str, str]  # class -> label of SpeciesNet


class SpeciesNet(ScoreFormat):
    """``predictions.json``."""

    key = "speciesnet"
    name = "SpeciesNet"
    endings: ClassVar[tuple[str, ...]] = (".json",)
    sign = "a list 'predictions'"
    holds = (
        "a picture. Classes go by their common name; labels say genus, family and order. `target_logits` are used, "
        "else the five best labels"
    )
    kept = (
        "`classes`, `scores`, and `prediction` unless the detector decided and no person did; every other byte stays"
    )
    example = "speciesnet.json"

    def detect(self, file: Opened) -> bool:
        return file.has_list("predictions")

    def read(self, file: Opened) -> Scores:
        found = Collected(file.path)
        for number, entry in enumerate(file.json["predictions"]):
            self._read_prediction(found, number, entry)
        labels = {pair.name: pair.name for pair in found.pairs}
        shown = shown_names(labels)
        places = _Places(found.places, {name: label for label, name in shown.items()})
        return found.scores(self, places, labels, shown, **kind_of(found.pairs))

    def _read_prediction(self, found: Collected, number: int, entry: Any) -> None:
        path = found.path
        place = f"prediction {number}"
        entry = json_text.as_object(path, place, entry)
        item = found.new(place, entry, "filepath")
        if entry.get("classifications") is None:
            failures = entry.get("failures")
            why = ", ".join(map(str, failures)) if isinstance(failures, list) and failures else "it has none"
            found.skip(item, f"no classifications ({why})")
            return
        lists = json_text.as_object(path, place, entry["classifications"])
        listed = Lists(path, place, item, "classes", "scores").pairs(lists)
        scores = {name: from_0_to_1(path, place, "scores", score, "score") for name, score in listed.items()}
        if "target_logits" in lists:
            given = Lists(path, place, item, "target_classes", "target_logits").pairs(lists)
            logits = {name: as_number(path, place, "target_logits", logit) for name, logit in given.items()}
            scores = _with_logits(scores, logits)
        if not any(scores.values()):
            found.skip(item, NO_SCORE if scores else "no classifications")
            return
        found.add(place, item, scores)
        found.places.append(number)
        found.n_listed = max(found.n_listed, len(listed))
        found.about[item] = _about(path, place, entry)

    def write(self, path: Path, answers: Answers) -> list[str]:
        """The answers as classifications and, where the classifier or a person decided, as the prediction."""
        origin = answers.origin
        assert origin is not None
        text = whole_text(origin.path)
        entries = json_text.inside(text, 0, "predictions")
        edits = []
        for row, answer in enumerate(answers.ranked(origin.n_listed)):
            entry = entries[origin.places.predictions[row]]
            ranked = [(origin.places.own.get(name, name), round(p, 4)) for name, p in answer if p >= answers.least]
            edits += _edits(text, entry, ranked, by_person=row in answers.by_people)
        write_like(origin.path, path, json_text.edited(text, edits))
        return []


def _about(path: Path, place: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """What is carried of a prediction, with its first detection."""
    answer = entry.get("prediction")
    detections = entry.get("detections")
    first = detections[0] if isinstance(detections, list) and detections else {}
    return {
        "prediction": short_name(answer) if isinstance(answer, str) else None,
        "prediction_score": entry.get("prediction_score"),
        "country": entry.get("country"),
        "admin1_region": entry.get("admin1_region"),
        **detected(path, place, first, {}),
    }


def _with_logits(scores: Mapping[str, float], logits: Mapping[str, float]) -> dict[str, float]:
    """Probabilities of listed classes, and of those with logits.

    The probability of class k is exp(z_k − ln Z). A class that has both its probability and its logit says Z. Where
    none has, no class with a logit is above the lowest listed one.
    """
    if not logits:
        return dict(scores)
    listed = {name: score for name, score in scores.items() if score > 0}
    top = max(logits, key=lambda name: (listed.get(name, 0.0), logits[name]))
    offset = logits[top] - math.log(listed.get(top, min(listed.values(), default=1.0)))
    free = {name: math.exp(min(max(z - offset, -80.0), 0.0)) for name, z in logits.items() if name not in listed}
    if not free:
        return dict(scores)
    # The scores are rounded: together they may not have more than what is left.
    scale = min(1.0, max(1 - sum(listed.values()), _SLACK) / sum(free.values()))
    return {**scores, **{name: scale * value for name, value in free.items()}}


def _edits(text: str, entry: int, ranked: list[tuple[str, float]], *, by_person: bool) -> list[Edit]:
    """What changes in the prediction that starts at ``entry``."""
    places = dict(json_text.members(text, entry))
    within = dict(json_text.members(text, places["classifications"].start))
    count = len(json.loads(text[within["classes"]]))
    new = [
        (within["classes"], [label for label, _ in ranked[:count]]),
        (within["scores"], [p for _, p in ranked[:count]]),
    ]
    decided = json.loads(text[places["prediction_source"]]) if "prediction_source" in places else ""
    if by_person or decided != _DETECTOR:
        label, p = ranked[0] if ranked else (_NO_CLASS, 0.0)
        values = {"prediction": label, "prediction_score": p, "prediction_source": "manyway"}
        new += [(places[name], value) for name, value in values.items() if name in places]
    return [Edit(place.start, place.stop, json.dumps(value, ensure_ascii=False)) for place, value in new]
