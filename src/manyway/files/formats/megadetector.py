"""MegaDetector's batch format with a classifier: a list of classes per detection."""

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from manyway.errors import InputError
from manyway.files import json_text
from manyway.files.formats.base import Answers, Opened
from manyway.files.json_text import Edit
from manyway.files.scores import (
    FILE,
    NO_SCORE,
    Collected,
    ScoreFormat,
    Scores,
    detected,
    from_0_to_1,
    kind_of,
    shown_names,
)
from manyway.files.text import listed, shorten, whole_text, write_like

_THRESHOLD = 0.2  # the usual confidence from which a detection counts


@dataclass(frozen=True)
class _Places:
    """Where answers go."""

    detections: list[tuple[int, int]]  # the numbers of the image and of the detection of each item
    own: Mapping[str, str]  # class -> category


@dataclass
class _Reading:
    """A file that is being read."""

    found: Collected
    shown: Mapping[str, str]  # category -> class
    kinds: Mapping[str, Any]  # category of detections -> its name
    notes: list[str] = field(default_factory=list)
    n_bare: int = 0  # images without a classified detection


class MegaDetector(ScoreFormat):
    """The format that Timelapse, AddaxAI and Animl read."""

    key = "megadetector"
    name = "MegaDetector"
    endings: ClassVar[tuple[str, ...]] = (".json",)
    sign = "a list 'images'"
    holds = "a classified detection, in a picture or film: `a.jpg`, or `a.jpg#1`, `a.jpg#2`"
    kept = (
        "its `classifications`, and a category per new class; every other byte stays "
        "(Timelapse, AddaxAI and Animl read it)"
    )
    example = "megadetector.json"

    def detect(self, file: Opened) -> bool:
        return file.has_list("images")

    def read(self, file: Opened) -> Scores:
        path = file.path
        categories = _part(file.json, "classification_categories")
        if not categories:
            lacking = "is a MegaDetector file without 'classification_categories': its detections were not classified"
            raise InputError(f"{path} {lacking}; run a species classifier first.")
        notes = []
        version = str(_part(file.json, "info").get("format_version", "1"))
        if version.split(".")[0] != "1":
            notes.append(f"{path.name} has the format version {version}; it is read as 1.6")
        nameless = [key for key, name in categories.items() if not isinstance(name, str) or not name.strip()]
        if nameless:
            notes.append(f"categories of {path.name} without a name are called by their number: {listed(nameless)}")
        named = {key: f"category {key}" if key in nameless else name.strip() for key, name in categories.items()}
        shown = shown_names(named)
        state = _Reading(Collected(path), shown, _part(file.json, "detection_categories"), notes)
        for number, entry in enumerate(file.json["images"]):
            _read_image(state, number, entry)
        if state.n_bare:
            notes.append(f"images of {path.name} without a classified detection are left out: {state.n_bare}")
        full = _part(file.json, "classification_category_descriptions")
        labels = {key: str(full.get(key, name)) for key, name in shown.items()}
        found = state.found
        places = _Places(found.places, {name: key for key, name in shown.items()})
        return found.scores(self, places, labels, shown, notes=tuple(notes), **kind_of(found.pairs))

    def write(self, path: Path, answers: Answers) -> list[str]:
        """The answers as the classifications of the detections."""
        origin = answers.origin
        assert origin is not None
        text = whole_text(origin.path)
        images = json_text.inside(text, 0, "images")
        edits = []
        own = _Categories(origin.places.own)
        for (number, at), answer in zip(origin.places.detections, answers.ranked(origin.n_listed), strict=True):
            detection = json_text.inside(text, images[number], "detections")[at]
            place = dict(json_text.members(text, detection))["classifications"]
            count = len(json.loads(text[place]))
            ranked = [(name, p) for name, p in answer[:count] if p >= answers.least]
            new = json.dumps([[own.of(name), round(p, 4)] for name, p in ranked])
            edits.append(Edit(place.start, place.stop, new))
        write_like(origin.path, path, json_text.edited(text, [*edits, *own.edits(text)]))
        return []


class _Categories:
    """The categories of a file's classes, and new ones for classes that a person made.

    Parameters
    ----------
    own : mapping
        The category of each class of the file.
    """

    def __init__(self, own: Mapping[str, str]) -> None:
        self._own = own
        self._new: dict[str, str] = {}

    def of(self, name: str) -> str:
        """The category of a class: that of the file, else the next number."""
        if name not in self._own and name not in self._new:
            taken = {*self._own.values(), *self._new.values()}
            numbers = map(str, itertools.count(len(self._own)))
            self._new[name] = next(number for number in numbers if number not in taken)
        return self._own.get(name) or self._new[name]

    def edits(self, text: str) -> list[Edit]:
        """What is written behind the categories of the file."""
        if not self._new:
            return []
        categories = dict(json_text.members(text, 0))["classification_categories"]
        *_, (_, last) = json_text.members(text, categories.start)
        said = [f", {json.dumps(key)}: {json.dumps(name, ensure_ascii=False)}" for name, key in self._new.items()]
        return [Edit(last.stop, last.stop, "".join(said))]


def _part(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object of the file; empty where it has none of this name."""
    found = content.get(name)
    return found if isinstance(found, dict) else {}


def _read_image(state: _Reading, number: int, entry: Any) -> None:
    """The classified detections of an image are items; what else there is counts as seen."""
    found = state.found
    path = found.path
    place = f"image {number}"
    entry = json_text.as_object(path, place, entry)
    file = found.new(place, entry, "file")
    taken = {FILE: file, "time": entry.get("datetime")}
    if entry.get("failure"):
        found.skip(file, str(entry["failure"]), **taken)
        return
    detections = json_text.list_in(path, place, entry, "detections")
    detections = [json_text.as_object(path, place, detection) for detection in detections]
    classified = [at for at, detection in enumerate(detections) if "classifications" in detection]
    others = []  # detections that nobody has classified
    before = len(found.places)
    for at, detection in enumerate(detections):
        item = file
        if len(classified) > 1 and at in classified:
            item = f"{file}#{classified.index(at) + 1}"
        cells = {**taken, "frame": detection.get("frame_number"), **detected(path, place, detection, state.kinds)}
        scores = _scores_of(state, place, file, detection)
        if any(scores.values()):
            found.add(place, item, scores)
            found.places.append((number, at))
            found.n_listed = max(found.n_listed, len(scores))
            found.about[item] = cells
        elif scores:
            found.skip(item, NO_SCORE, **cells)
        elif isinstance(cells["detection_conf"], float) and cells["detection_conf"] >= _THRESHOLD:
            others.append(cells)
    if not any(detection.get("classifications") for detection in detections):
        state.n_bare += 1
    if not others and len(found.places) == before:
        others = [{**taken, "detection": "blank"}]
    found.others += others


def _scores_of(state: _Reading, place: str, file: str, detection: Mapping[str, Any]) -> dict[str, float]:
    """The scores of a detection by category."""
    path = state.found.path
    scores: dict[str, float] = {}
    for each in json_text.list_in(path, place, detection, "classifications"):
        if not isinstance(each, list) or len(each) != 2 or str(each[0]) not in state.shown:
            odd = f"{shorten(each)} among the classifications in {place} ({shorten(file)})"
            raise InputError(f"{path} has {odd}; each is a number of 'classification_categories' and a score.")
        category, score = each
        if str(category) in scores:
            twice = f"two scores of class {shorten(state.shown[str(category)])} for the item {shorten(file)}"
            raise InputError(f"{path} has {twice} (the second in {place}); remove one.")
        scores[str(category)] = from_0_to_1(path, place, "scores", score, "score")
    return scores
