"""What other programs write: SpeciesNet, MegaDetector with a classifier, and BirdNET.

SpeciesNet (``predictions.json``) has the five most probable labels per picture. MegaDetector's batch format has a list
of classes per detection. BirdNET has one row per segment of a recording and species above a threshold; its confidences
are independent yes-or-no probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from manyway.errors import InputError
from manyway.files.rows import Rows, as_number, column, find_any
from manyway.files.scores import Pair, Scores, from_pairs
from manyway.files.text import read_json, shorten

# The columns of BirdNET's tables: csv, Raven selection tables, Kaleidoscope and R.
_START = ("Start (s)", "Begin Time (s)", "OFFSET", "start")
_END = ("End (s)", "End Time (s)", "end")
_LENGTH = ("DURATION",)
_COMMON = ("Common name", "common_name")
_SCIENTIFIC = ("Scientific name", "scientific_name", "Species Code")
_FILE = ("File", "Begin Path", "Begin File", "IN FILE", "filepath")
_FOLDER = ("FOLDER",)
_CONFIDENCE = ("Confidence",)
_NO_CALL = "nocall"  # the row of a recording without a detection
_RANKS = ("genus", "family", "order", "taxonomic class")


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
    for number, entry in enumerate(predictions):
        place = f"prediction {number}"
        item = _text(path, place, _mapping(path, place, entry).get("filepath"), "filepath")
        found = entry.get("classifications")
        if found is None:
            failures = entry.get("failures")
            why = ", ".join(map(str, failures)) if isinstance(failures, list) and failures else "it has none"
            skipped.append((item, f"no classifications ({why})"))
            continue
        classes, scores = (_mapping(path, place, found).get(name) for name in ("classes", "scores"))
        if not isinstance(classes, list) or not isinstance(scores, list) or len(classes) != len(scores):
            raise InputError(f"{path} has no equally long lists 'classes' and 'scores' in {place} ({shorten(item)}).")
        if not classes:
            skipped.append((item, "no classifications"))
        for name, score in zip(classes, scores, strict=True):
            pairs.append((place, item, _text(path, place, name, "class"), as_number(path, place, "scores", score)))
    return _named(path, pairs, {name: name for _, _, name, _ in pairs}, skipped)


def _read_megadetector(path: Path, content: Mapping[str, Any]) -> Scores:
    categories = content.get("classification_categories")
    if not isinstance(categories, dict) or not categories:
        raise InputError(
            f"{path} is a MegaDetector file without 'classification_categories': its detections were not classified; "
            "run a species classifier first."
        )
    full = content.get("classification_category_descriptions")
    full = full if isinstance(full, dict) else {}
    names = {key: _text(path, "classification_categories", name, "name") for key, name in categories.items()}
    if len(set(names.values())) < len(names):
        twice = next(name for key, name in names.items() if name in [names[other] for other in names if other != key])
        raise InputError(f"{path} has the category {shorten(twice)} twice in 'classification_categories'; rename one.")
    pairs: list[Pair] = []
    skipped: list[tuple[str, str]] = []
    bare = 0
    for number, entry in enumerate(content["images"]):
        place = f"image {number}"
        item = _text(path, place, _mapping(path, place, entry).get("file"), "file")
        if entry.get("failure"):
            skipped.append((item, str(entry["failure"])))
            continue
        detections = entry.get("detections") or []
        if not isinstance(detections, list):
            raise InputError(f"{path} has no list 'detections' in {place} ({shorten(item)}).")
        classified = [d for d in detections if _mapping(path, place, d).get("classifications")]
        bare += not classified
        for rank, detection in enumerate(classified, start=1):
            shown = item if len(classified) == 1 else f"{item}#{rank}"
            for listed in detection["classifications"]:
                if not isinstance(listed, list) or len(listed) != 2 or str(listed[0]) not in names:
                    raise InputError(
                        f"{path} has {shorten(listed)} among the classifications in {place} ({shorten(item)}); each is "
                        "a number of 'classification_categories' and a score."
                    )
                score = as_number(path, place, "classifications", listed[1])
                pairs.append((place, shown, names[str(listed[0])], score))
    notes = (f"{bare} images of {path.name} have no classified detection and are left out",) if bare else ()
    described = {name: str(full.get(key, name)) for key, name in names.items()}
    return from_pairs(
        path, pairs, names.values(), kind="probability", levels=_levels(described), skipped=tuple(skipped), notes=notes
    )


def is_birdnet(names: Sequence[str]) -> bool:
    """Whether a table with these columns is one of BirdNET."""
    found = [find_any(names, *wanted) is not None for wanted in (_START, (*_END, *_LENGTH), _CONFIDENCE)]
    return all(found) and any(find_any(names, *wanted) is not None for wanted in (_COMMON, _SCIENTIFIC))


def read_birdnet(path: Path, names: Sequence[str], rows: Rows) -> Scores:
    """Read a table of BirdNET. An item is a segment of a recording: its file, start and end in seconds."""
    start, confidence = (column(path, names, *wanted) for wanted in (_START, _CONFIDENCE))
    end = find_any(names, *_END)
    common, scientific = (find_any(names, *wanted) for wanted in (_COMMON, _SCIENTIFIC))
    of_file = [at for at in (find_any(names, *wanted) for wanted in (_FOLDER, _FILE)) if at is not None]
    pairs: list[Pair] = []
    full: dict[str, str] = {}
    skipped: list[tuple[str, str]] = []
    for place, cells in rows:
        first = as_number(path, place, names[start], cells[start])
        at = end if end is not None else column(path, names, *_LENGTH)
        last = as_number(path, place, names[at], cells[at]) + (0 if end is not None else first)
        recording = "/".join(str(cells[at] or "").strip() for at in of_file) or path.name
        item = f"{recording} {first:g}-{last:g}"
        called = [str(cells[at] or "").strip() for at in (common, scientific) if at is not None]
        if _NO_CALL in called:
            skipped.append((item, "no detection"))
            continue
        if not all(called):
            raise InputError(f"{path} has no species in {place}; fill the cell or remove the row.")
        key = ";".join(dict.fromkeys(reversed(called)))
        # "Turdus merula;Eurasian Blackbird" as a label of SpeciesNet, of which genus and species are known
        full[key] = _as_label(called) if len(called) > 1 else called[0]
        pairs.append((place, item, key, as_number(path, place, names[confidence], cells[confidence])))
    return _named(path, pairs, full, skipped, kind="sigmoid")


def _as_label(called: Sequence[str]) -> str:
    genus, _, species = called[1].partition(" ")
    return ";".join(("", "", "", genus, species, called[0])) if species else called[0]


def _named(
    path: Path,
    pairs: Sequence[Pair],
    full: Mapping[str, str],
    skipped: Sequence[tuple[str, str]],
    kind: str = "probability",
) -> Scores:
    """Scores whose classes are called by their common name; ``full`` maps each class to its label with the taxonomy."""
    shown = {key: _short(label) for key, label in full.items()}
    common = list(shown.values())
    twice = {name for name in common if common.count(name) > 1} if len(set(common)) < len(common) else set()
    shown = {key: f"{name} ({key})" if name in twice else name for key, name in shown.items()}
    named = ((place, item, shown[key], score) for place, item, key, score in pairs)
    levels = _levels({shown[key]: label for key, label in full.items()})
    return from_pairs(path, named, kind=kind, levels=levels, skipped=tuple(skipped))


def _ranks(label: str) -> list[str] | None:
    """Class, order, family, genus, species and common name of a label such as 'ID;mammalia;…;leo;lion', or None."""
    parts = [part.strip() for part in label.split(";")]
    return parts[-6:] if len(parts) in (6, 7) else None


def _short(label: str) -> str:
    ranks = _ranks(label)
    if ranks is None:
        return label
    return ranks[5] or " ".join(filter(None, ranks[3:5])) or next(filter(None, reversed(ranks[:3])), label)


def _levels(labels: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """level -> class -> group, for the levels that some label has."""
    levels: dict[str, dict[str, str]] = {}
    for level, at in zip(_RANKS, (3, 2, 1, 0), strict=True):
        groups = {name: ranks[at] for name, label in labels.items() if (ranks := _ranks(label)) and ranks[at]}
        if groups:
            levels[level] = groups
    return levels


def _mapping(path: Path, place: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{path} has {shorten(value)} instead of an object in {place}.")
    return value


def _text(path: Path, place: str, value: Any, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{path} has {shorten(value)} instead of a {what} in {place}.")
    return value.strip()
