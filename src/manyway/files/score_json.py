"""The .json files of SpeciesNet and of MegaDetector with a classifier, read and written back.

SpeciesNet (``predictions.json``) has the five most probable labels per picture, and logits of a given list of labels
where it was asked for. MegaDetector's batch format has a list of classes per detection. What is written differs from
what was read in the answers only: they are put into the text of the file, and every other byte stays.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from manyway.errors import InputError
from manyway.files.scores import BOX, FILE, Answers, Collected, Pair, Scores, from_0_to_1, short_name, shown_names
from manyway.files.tables import as_number
from manyway.files.text import first_twice, listed, read_json, shorten, whole_text

_DECODE = json.JSONDecoder().raw_decode
_BLANK = re.compile(r"[ \t\r\n]*")
_SLACK = 1e-3  # scores are rounded
_HALF_A_DIGIT = 0.005
_THRESHOLD = 0.2  # the usual confidence from which a detection of MegaDetector counts
_NO_SCORE = "all of its scores are 0"


def read_score_json(path: Path) -> Scores:
    """Read a .json file of SpeciesNet or MegaDetector."""
    content = read_json(path)
    if isinstance(content, dict) and isinstance(content.get("predictions"), list):
        return _read_speciesnet(path, content["predictions"])
    if isinstance(content, dict) and isinstance(content.get("images"), list):
        return _read_megadetector(path, content)
    both = "neither a predictions file of SpeciesNet (a list 'predictions') nor a MegaDetector file (a list 'images')"
    raise InputError(f"{path} is {both}; give such a file, or a table of scores.")


def _read_speciesnet(path: Path, predictions: Sequence[Any]) -> Scores:
    found = Collected(path)
    for number, entry in enumerate(predictions):
        place = f"prediction {number}"
        item = _new(found, place, _mapping(path, place, entry), "filepath")
        if entry.get("classifications") is None:
            failures = entry.get("failures")
            why = ", ".join(map(str, failures)) if isinstance(failures, list) and failures else "it has none"
            found.skip(item, f"no classifications ({why})")
            continue
        lists = _mapping(path, place, entry["classifications"])
        named = _lists(path, place, item, lists, "classes", "scores")
        scores = {name: from_0_to_1(path, place, "scores", score, "score") for name, score in named.items()}
        if "target_logits" in lists:
            logits = _lists(path, place, item, lists, "target_classes", "target_logits")
            scores = _with_logits(scores, {k: as_number(path, place, "target_logits", z) for k, z in logits.items()})
        if not any(scores.values()):
            found.skip(item, _NO_SCORE if scores else "no classifications")
            continue
        found.places.append(number)
        found.n_listed = max(found.n_listed, len(named))
        found.pairs += [(place, item, name, score) for name, score in scores.items()]
        answer, detections = entry.get("prediction"), entry.get("detections")
        found.about[item] = {
            "prediction": short_name(answer) if isinstance(answer, str) else None,
            **{name: entry.get(name) for name in ("prediction_score", "country", "admin1_region")},
            **_detected(path, place, detections[0] if isinstance(detections, list) and detections else {}, {}),
        }
    labels = {name: name for _, _, name, _ in found.pairs}
    shown = shown_names(labels)
    write = partial(_speciesnet_text, path, found.places, {name: key for key, name in shown.items()})
    return found.scores(labels, shown, "SpeciesNet json", write, **_kind(found.pairs))


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
    # The scores are rounded: together they may not have more than what is left.
    scale = min(1.0, max(1 - sum(listed.values()), _SLACK) / sum(free.values())) if free else 1.0
    return {**scores, **{name: scale * value for name, value in free.items()}}


def _speciesnet_text(path: Path, places: Sequence[int], own: Mapping[str, str], answers: Answers, least: float) -> str:
    """The file with the answers as classifications and, where the classifier decided, as the prediction."""
    text, edits = whole_text(path), []
    entries = _inside(text, 0, "predictions")
    for place, answer in zip(places, answers, strict=True):
        members = dict(_members(text, entries[place]))
        decided = json.loads(text[slice(*members["prediction_source"])]) if "prediction_source" in members else ""
        within = dict(_members(text, members["classifications"][0]))
        ranked = [(own.get(name, name), round(p, 4)) for name, p in answer if p >= least]
        count = len(json.loads(text[slice(*within["classes"])]))
        new = {within[key]: [pair[at] for pair in ranked[:count]] for at, key in enumerate(("classes", "scores"))}
        if ranked and decided != "detector":
            values = {"prediction": ranked[0][0], "prediction_score": ranked[0][1], "prediction_source": "manyway"}
            new |= {members[name]: value for name, value in values.items() if name in members}
        edits += [(*span, json.dumps(value, ensure_ascii=False)) for span, value in new.items()]
    return _edited(text, edits)


def _read_megadetector(path: Path, content: Mapping[str, Any]) -> Scores:
    names = "classification_categories", "classification_category_descriptions", "info", "detection_categories"
    parts = (content.get(name) for name in names)
    categories, full, info, kinds = (part if isinstance(part, dict) else {} for part in parts)
    if not categories:
        lacking = "is a MegaDetector file without 'classification_categories': its detections were not classified"
        raise InputError(f"{path} {lacking}; run a species classifier first.")
    found, notes, bare = Collected(path), [], 0
    version = str(info.get("format_version", "1"))
    if version.split(".")[0] != "1":
        notes.append(f"{path.name} has the format version {version}; it is read as 1.6")
    nameless = [key for key, name in categories.items() if not isinstance(name, str) or not name.strip()]
    if nameless:
        notes.append(f"categories of {path.name} without a name are called by their number: {listed(nameless)}")
    shown = shown_names({k: f"category {k}" if k in nameless else name.strip() for k, name in categories.items()})
    for number, entry in enumerate(content["images"]):
        place = f"image {number}"
        file = _new(found, place, _mapping(path, place, entry), "file")
        taken = {FILE: file, "time": entry.get("datetime")}
        if entry.get("failure"):
            found.skip(file, str(entry["failure"]), **taken)
            continue
        detections = _list(path, place, entry, "detections")
        able = [at for at, detection in enumerate(detections) if "classifications" in _mapping(path, place, detection)]
        rest, count = [], len(found.places)
        for at, detection in enumerate(detections):
            item = file if len(able) < 2 or at not in able else f"{file}#{able.index(at) + 1}"
            cells = {**taken, "frame": detection.get("frame_number"), **_detected(path, place, detection, kinds)}
            scores = []
            for one in _list(path, place, detection, "classifications"):
                if not isinstance(one, list) or len(one) != 2 or str(one[0]) not in shown:
                    odd = f"{shorten(one)} among the classifications in {place} ({shorten(file)})"
                    needed = "each is a number of 'classification_categories' and a score"
                    raise InputError(f"{path} has {odd}; {needed}.")
                scores.append((place, item, str(one[0]), from_0_to_1(path, place, "scores", one[1], "score")))
            if any(score for *_, score in scores):
                found.places.append((number, at))
                found.n_listed = max(found.n_listed, len(scores))
                found.pairs += scores
                found.about[item] = cells
            elif scores:
                found.skip(item, _NO_SCORE, **cells)
            elif isinstance(cells["detection_conf"], float) and cells["detection_conf"] >= _THRESHOLD:
                rest.append(cells)
        bare += not any(detection.get("classifications") for detection in detections)
        found.others += rest if rest or len(found.places) > count else [{**taken, "detection": "blank"}]
    if bare:
        notes.append(f"images of {path.name} without a classified detection are left out: {bare}")
    labels = {key: str(full.get(key, name)) for key, name in shown.items()}
    write = partial(_megadetector_text, path, found.places, {name: key for key, name in shown.items()})
    return found.scores(labels, shown, "MegaDetector json", write, notes=tuple(notes), **_kind(found.pairs))


def _megadetector_text(
    path: Path, places: Sequence[tuple[int, int]], own: Mapping[str, str], answers: Answers, least: float
) -> str:
    """The file with the answers as the classifications of its detections."""
    text, edits = whole_text(path), []
    images = _inside(text, 0, "images")
    for (number, at), answer in zip(places, answers, strict=True):
        span = dict(_members(text, _inside(text, images[number], "detections")[at]))["classifications"]
        ranked = [(name, p) for name, p in answer[: len(json.loads(text[slice(*span)]))] if p >= least]
        lacking = [name for name, _ in ranked if name not in own]
        if lacking:
            raise InputError(f"{path} has no category {shorten(lacking[0])}; add it to 'classification_categories'.")
        edits.append((*span, json.dumps([[own[name], round(p, 4)] for name, p in ranked])))
    return _edited(text, edits)


def _detected(path: Path, place: str, detection: Any, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """What is carried of a detection: its kind, confidence and box."""
    found = _mapping(path, place, detection)
    kind, box = found.get("label", kinds.get(str(found.get("category")))), found.get("bbox")
    numbers = isinstance(box, list) and len(box) == 4 and all(isinstance(one, int | float) for one in box)
    boxed = dict(zip(BOX, map(float, box), strict=True)) if numbers and isinstance(box, list) else {}
    return {"detection": kind, "detection_conf": found.get("conf"), **boxed}


def _kind(pairs: Sequence[Pair]) -> dict[str, Any]:
    """What the scores are: where those of an item sum to more than 1, each class has a score of its own.

    Programs write two or three digits, so that the sum of probabilities can be above 1 by half a digit of each.
    """
    total: dict[str, float] = {}
    for _, item, _, score in pairs:
        total[item] = total.get(item, 0.0) + max(score - _HALF_A_DIGIT, 0.0)
    independent = any(value > 1 for value in total.values())
    return {"kind": "sigmoid" if independent else "probability", "independent": independent}


def _lists(path: Path, place: str, item: str, found: Mapping[str, Any], keys: str, values: str) -> dict[str, Any]:
    """Two lists of an object as one mapping."""
    names, numbers = found.get(keys), found.get(values)
    if not isinstance(names, list) or not isinstance(numbers, list) or len(names) != len(numbers):
        raise InputError(f"{path} has no equally long lists '{keys}' and '{values}' in {place} ({shorten(item)}).")
    texts = [_text(path, place, name, "class") for name in names]
    if (twice := first_twice(texts)) is not None:
        raise InputError(f"{path} has two scores of class {shorten(twice)} for the item {shorten(item)} in {place}.")
    return dict(zip(texts, numbers, strict=True))


def _mapping(path: Path, place: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{path} has {shorten(value)} instead of an object in {place}.")
    return value


def _text(path: Path, place: str, value: Any, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        instead = f"no {what}" if value is None else f"{shorten(value)} instead of a {what}"
        raise InputError(f"{path} has {instead} in {place}.")
    return value.strip()


def _list(path: Path, place: str, entry: Mapping[str, Any], name: str) -> list[Any]:
    found = entry.get(name) or []
    if not isinstance(found, list):
        raise InputError(f"{path} has no list '{name}' in {place}.")
    return found


def _new(found: Collected, place: str, entry: Mapping[str, Any], what: str) -> str:
    """The name of a picture, which must not have come before."""
    name = _text(found.path, place, entry.get(what), what)
    if name in found.about:
        raise InputError(f"{found.path} has the {what} {shorten(name)} twice (again in {place}); remove one.")
    found.about[name] = {}
    return name


def _members(text: str, at: int) -> Iterator[tuple[Any, tuple[int, int]]]:
    """The key (or number) of each member of the object or array that starts at ``at``, and where its value is.

    >>> [(key, '{"a": [1, 2.50]}'[slice(*span)]) for key, span in _members('{"a": [1, 2.50]}', 0)]
    [('a', '[1, 2.50]')]
    """

    def skip(at: int) -> int:
        found = _BLANK.match(text, at)
        return at if found is None else found.end()

    named, number, at = text[skip(at)] == "{", 0, skip(skip(at) + 1)
    while text[at] not in "}]":
        key: Any = number
        if named:
            key, at = _DECODE(text, at)
            at = skip(skip(at) + 1)
        _, end = _DECODE(text, at)
        yield key, (at, end)
        at, number = skip(end), number + 1
        at = skip(at + 1) if text[at] == "," else at


def _inside(text: str, at: int, key: str) -> list[int]:
    """Where the members of an array start that an object has under ``key``."""
    return [start for _, (start, _) in _members(text, dict(_members(text, at))[key][0])]


def _edited(text: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """The text with some parts replaced."""
    pieces, last = [], 0
    for start, end, new in sorted(edits):
        pieces += [text[last:start], new]
        last = end
    return "".join([*pieces, text[last:]])
