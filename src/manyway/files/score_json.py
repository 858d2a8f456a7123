"""The .json files of SpeciesNet and of MegaDetector with a classifier, read and written back.

SpeciesNet (``predictions.json``) has the five most probable labels per picture, and logits of a given list of labels
where it was asked for. MegaDetector's batch format has a list of classes per detection. What is written differs from
what was read in the answers only: they are put into the text of the file, and every other byte stays.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from manyway.errors import InputError
from manyway.files.rows import as_number
from manyway.files.scores import BOX, FILE, Answers, Origin, Pair, Scores
from manyway.files.taxa import named_scores, short_name, shown_names
from manyway.files.text import listed, read_json, read_text, shorten

_BLANK = re.compile(r"[ \t\r\n]*")
_SLACK = 1e-3  # scores are rounded
_THRESHOLD = 0.2  # the usual confidence from which a detection of MegaDetector counts
_NO_SCORE = "all of its scores are 0"


def read_score_json(path: Path) -> Scores:
    """Read a .json file of SpeciesNet or MegaDetector."""
    content = read_json(path)
    if isinstance(content, dict) and isinstance(content.get("predictions"), list):
        return _read_speciesnet(path, content["predictions"])
    if isinstance(content, dict) and isinstance(content.get("images"), list):
        return _read_megadetector(path, content)
    raise InputError(
        f"{path} is neither a predictions file of SpeciesNet (a list 'predictions') nor a MegaDetector file (a list "
        "'images'); give such a file, or a table of scores."
    )


def _read_speciesnet(path: Path, predictions: Sequence[Any]) -> Scores:
    pairs: list[Pair] = []
    skipped: list[tuple[str, str]] = []
    about: dict[str, dict[str, Any]] = {}
    places: list[int] = []
    most = 0
    for number, entry in enumerate(predictions):
        place = f"prediction {number}"
        item = _new(path, place, _mapping(path, place, entry).get("filepath"), "filepath", about)
        found = entry.get("classifications")
        if found is None:
            failures = entry.get("failures")
            why = ", ".join(map(str, failures)) if isinstance(failures, list) and failures else "it has none"
            skipped.append((item, f"no classifications ({why})"))
            continue
        scores = _lists(path, place, item, _mapping(path, place, found), "classes", "scores")
        most = max(most, len(scores))
        scores = {name: _part(path, place, score) for name, score in scores.items()}
        if "target_logits" in found:
            logits = _lists(path, place, item, found, "target_classes", "target_logits")
            scores = _with_logits(scores, {k: as_number(path, place, "target_logits", z) for k, z in logits.items()})
        if not any(scores.values()):
            skipped.append((item, _NO_SCORE if scores else "no classifications"))
            continue
        places.append(number)
        pairs += [(place, item, name, score) for name, score in scores.items()]
        detections = entry.get("detections")
        first = detections[0] if isinstance(detections, list) and detections else {}
        answer = entry.get("prediction")
        about[item] |= {
            "prediction": short_name(answer) if isinstance(answer, str) else None,
            **{name: entry.get(name) for name in ("prediction_score", "country", "admin1_region")},
            **_detected(path, place, first, {}),
        }
    labels = {name: name for _, _, name, _ in pairs}
    shown = shown_names(labels)
    own = {name: key for key, name in shown.items()}
    others = tuple({FILE: item} for item, _ in skipped)
    origin = Origin(path, len(places), most, "SpeciesNet json", partial(_speciesnet_text, path, tuple(places), own))
    more = {"about": about, "skipped": tuple(skipped), "origins": (origin,), "others": others}
    return named_scores(path, pairs, labels, shown, **more, **_kind(pairs))


def _with_logits(scores: Mapping[str, float], logits: Mapping[str, float]) -> dict[str, float]:
    """Probabilities of listed classes, and of those with logits.

    The probability of class k is exp(z_k − ln Z). A class that has both its probability and its logit says Z. Where
    none has, no class with a logit is above the lowest listed one.
    """
    both = [name for name in logits if scores.get(name, 0) > 0]
    if not logits:
        return dict(scores)
    if not any(scores.values()):
        top = max(logits.values())
        found = {name: math.exp(max(z - top, -80.0)) for name, z in logits.items()}
        return {name: value / sum(found.values()) for name, value in found.items()}
    if both:
        best = max(both, key=lambda name: scores[name])
        offset = logits[best] - math.log(scores[best])
    else:
        offset = max(logits.values()) - math.log(min(score for score in scores.values() if score > 0))
    free = {name: math.exp(min(0.0, max(z - offset, -80.0))) for name, z in logits.items() if name not in scores}
    left, total = max(1 - sum(scores.values()), _SLACK), sum(free.values())
    scale = min(1.0, left / total) if total else 1.0  # scores are rounded
    return {**scores, **{name: scale * value for name, value in free.items()}}


def _speciesnet_text(path: Path, places: Sequence[int], own: Mapping[str, str], answers: Answers, least: float) -> str:
    """The file with the answers as classifications and, where the classifier decided, as the prediction."""
    text, edits = _text_of(path), []
    entries = _inside(text, 0, "predictions")
    for place, answer in zip(places, answers, strict=True):
        members = dict(_members(text, entries[place]))
        decided = json.loads(text[slice(*members["prediction_source"])]) if "prediction_source" in members else ""
        within = dict(_members(text, members["classifications"][0]))
        ranked = [(own.get(name, name), round(p, 4)) for name, p in answer if p >= least]
        count = len(json.loads(text[slice(*within["classes"])]))
        new = {
            within["classes"]: [name for name, _ in ranked[:count]],
            within["scores"]: [p for _, p in ranked[:count]],
        }
        if ranked and decided != "detector":
            values = {"prediction": ranked[0][0], "prediction_score": ranked[0][1], "prediction_source": "manyway"}
            new |= {members[name]: value for name, value in values.items() if name in members}
        edits += [(*span, json.dumps(value, ensure_ascii=False)) for span, value in new.items()]
    return _edited(text, edits)


def _read_megadetector(path: Path, content: Mapping[str, Any]) -> Scores:
    categories = content.get("classification_categories")
    if not isinstance(categories, dict) or not categories:
        raise InputError(
            f"{path} is a MegaDetector file without 'classification_categories': its detections were not classified; "
            "run a species classifier first."
        )
    info, kinds = (found if isinstance(found := content.get(k), dict) else {} for k in ("info", "detection_categories"))
    version = str(info.get("format_version", "1"))
    notes = [] if version.split(".")[0] == "1" else [f"{path.name} has the format version {version}; it is read as 1.6"]
    full = content.get("classification_category_descriptions")
    full = full if isinstance(full, dict) else {}
    nameless = [key for key, name in categories.items() if not isinstance(name, str) or not name.strip()]
    if nameless:
        notes.append(f"the categories {listed(nameless)} of {path.name} have no name and are called by their number")
    shown = shown_names({k: f"category {k}" if k in nameless else name.strip() for k, name in categories.items()})
    pairs: list[Pair] = []
    skipped: list[tuple[str, str]] = []
    about: dict[str, dict[str, Any]] = {}
    others: list[dict[str, Any]] = []
    places: list[tuple[int, int]] = []
    bare = 0
    metadata = info.get("detector_metadata")
    threshold = metadata.get("typical_detection_threshold") if isinstance(metadata, dict) else None
    threshold = threshold if isinstance(threshold, float) else _THRESHOLD
    for number, entry in enumerate(content["images"]):
        place = f"image {number}"
        file = _new(path, place, _mapping(path, place, entry).get("file"), "file", about)
        taken = {FILE: file, "time": entry.get("datetime")}
        if entry.get("failure"):
            skipped.append((file, str(entry["failure"])))
            others.append(taken)
            continue
        detections = entry.get("detections") or []
        if not isinstance(detections, list):
            raise InputError(f"{path} has no list 'detections' in {place} ({shorten(file)}).")
        classified = [(at, d) for at, d in enumerate(detections) if _mapping(path, place, d).get("classifications")]
        bare += not classified
        rest = [d for d in detections if not d.get("classifications") and (d.get("conf") or 0) >= threshold]
        others += [{**taken, **_detected(path, place, detection, kinds)} for detection in rest]
        if not classified and not rest:
            others.append({**taken, "detection": "blank"})
        for rank, (at, detection) in enumerate(classified, start=1):
            item = file if len(classified) == 1 else f"{file}#{rank}"
            scores = []
            for one in detection["classifications"]:
                if not isinstance(one, list) or len(one) != 2 or str(one[0]) not in shown:
                    raise InputError(
                        f"{path} has {shorten(one)} among the classifications in {place} ({shorten(file)}); each is "
                        "a number of 'classification_categories' and a score."
                    )
                scores.append((place, item, str(one[0]), _part(path, place, one[1])))
            if not any(score for *_, score in scores):
                skipped.append((item, _NO_SCORE))
                others.append({**taken, **_detected(path, place, detection, kinds)})
                continue
            places.append((number, at))
            pairs += scores
            about[item] = {**taken, "frame": detection.get("frame_number")}
            about[item] |= _detected(path, place, detection, kinds)
    if bare:
        notes.append(f"{bare} images of {path.name} have no classified detection and are left out")
    own = {name: key for key, name in shown.items()}
    most = max(
        (len(d["classifications"]) for n, at in places for d in [content["images"][n]["detections"][at]]), default=0
    )
    write = partial(_megadetector_text, path, tuple(places), own)
    return named_scores(
        path,
        pairs,
        {key: str(full.get(key, name)) for key, name in shown.items()},
        shown,
        about=about,
        skipped=tuple(skipped),
        notes=tuple(notes),
        others=tuple(others),
        origins=(Origin(path, len(places), most, "MegaDetector json", write),),
        **_kind(pairs),
    )


def _megadetector_text(
    path: Path, places: Sequence[tuple[int, int]], own: Mapping[str, str], answers: Answers, least: float
) -> str:
    """The file with the answers as the classifications of its detections."""
    text, edits = _text_of(path), []
    images = _inside(text, 0, "images")
    for (number, at), answer in zip(places, answers, strict=True):
        lacking = [name for name, _ in answer if name not in own]
        if lacking:
            raise InputError(f"{path} has no category {shorten(lacking[0])}; add it to 'classification_categories'.")
        span = dict(_members(text, _inside(text, images[number], "detections")[at]))["classifications"]
        count = len(json.loads(text[slice(*span)]))
        edits.append((*span, json.dumps([[own[name], round(p, 4)] for name, p in answer[:count] if p >= least])))
    return _edited(text, edits)


def _detected(path: Path, place: str, detection: Any, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """What is carried of a detection: its kind, confidence and box."""
    found = _mapping(path, place, detection)
    kind, box = found.get("label", kinds.get(str(found.get("category")))), found.get("bbox")
    numbers = isinstance(box, list) and len(box) == 4 and all(isinstance(one, int | float) for one in box)
    boxed = dict(zip(BOX, map(float, box), strict=True)) if numbers and isinstance(box, list) else {}
    return {"detection": kind, "detection_conf": found.get("conf"), **boxed}


def _kind(pairs: Sequence[Pair]) -> dict[str, Any]:
    """What the scores are: where those of an item sum to more than 1, each class has a score of its own."""
    total: dict[str, float] = {}
    for _, item, _, score in pairs:
        total[item] = total.get(item, 0.0) + score
    independent = any(value > 1 + _SLACK for value in total.values())
    return {"kind": "sigmoid" if independent else "probability", "independent": independent}


def _part(path: Path, place: str, score: Any) -> float:
    found = as_number(path, place, "scores", score)
    if not 0 <= found <= 1:
        raise InputError(f"{path} has the score {found:g} in {place}; scores go from 0 to 1.")
    return found


def _lists(path: Path, place: str, item: str, found: Mapping[str, Any], keys: str, values: str) -> dict[str, Any]:
    """Two lists of an object as one mapping."""
    names, numbers = found.get(keys), found.get(values)
    if not isinstance(names, list) or not isinstance(numbers, list) or len(names) != len(numbers):
        raise InputError(f"{path} has no equally long lists '{keys}' and '{values}' in {place} ({shorten(item)}).")
    texts = [_text(path, place, name, "class") for name in names]
    if len(set(texts)) < len(texts):
        twice = next(name for name in texts if texts.count(name) > 1)
        raise InputError(f"{path} has two scores of class {shorten(twice)} for the item {shorten(item)} in {place}.")
    return dict(zip(texts, numbers, strict=True))


def _mapping(path: Path, place: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{path} has {shorten(value)} instead of an object in {place}.")
    return value


def _text(path: Path, place: str, value: Any, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{path} has {shorten(value)} instead of a {what} in {place}.")
    return value.strip()


def _new(path: Path, place: str, value: Any, what: str, seen: dict[str, dict[str, Any]]) -> str:
    """The name of a picture, which must not have come before."""
    name = _text(path, place, value, what)
    if name in seen:
        raise InputError(f"{path} has the {what} {shorten(name)} twice (again in {place}); remove one.")
    seen[name] = {}
    return name


def _text_of(path: Path) -> str:
    with read_text(path).open() as file:
        return file.read()


def _members(text: str, at: int) -> Iterator[tuple[Any, tuple[int, int]]]:
    """The key (or number) of each member of the object or array that starts at ``at``, and where its value is.

    >>> [(key, '{"a": [1, 2.50]}'[slice(*span)]) for key, span in _members('{"a": [1, 2.50]}', 0)]
    [('a', '[1, 2.50]')]
    """
    decode = json.JSONDecoder().raw_decode

    def skip(at: int) -> int:
        found = _BLANK.match(text, at)
        return at if found is None else found.end()

    named, number, at = text[skip(at)] == "{", 0, skip(skip(at) + 1)
    while text[at] not in "}]":
        key: Any = number
        if named:
            key, at = decode(text, at)
            at = skip(skip(at) + 1)
        _, end = decode(text, at)
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
