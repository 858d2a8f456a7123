"""Occurrences in Darwin Core, as GBIF and others take them."""

from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

from manyway.files.formats.base import AnswerFormat, Answers, Label
from manyway.files.formats.csv import Csv
from manyway.files.scores import UNKNOWN, Scores, scientific_name
from manyway.files.sightings import Sighting, find_sightings, iso

_RANKS = {"genus": "genus", "family": "family", "order": "order", "taxonomic class": "class", "phylum": "phylum"}
_FIELDS = (
    "occurrenceID", "basisOfRecord", "eventDate", "locationID", "scientificName", "vernacularName", "taxonRank",
    "genus", "family", "order", "class", "phylum", "occurrenceStatus", "identifiedBy",
    "identificationVerificationStatus", "identificationRemarks", "associatedMedia",
)  # fmt: skip
_NOT_ORGANISMS = {"blank", "empty", "nothing", "no animal", "vehicle", "car", "truck", UNKNOWN, ""}


class DarwinCore(AnswerFormat):
    """``occurrence.csv``: one row per answer that is an organism."""

    key = "darwin-core"
    name = "Darwin Core"
    endings: ClassVar[tuple[str, ...]] = (".csv", ".tsv", ".txt")
    holds = (
        "occurrences of [Darwin Core](https://dwc.tdwg.org/terms/): machine observations with time, place, names, "
        "ranks and probability; one row per answer"
    )
    needs_time = True

    def write(self, path: Path, answers: Answers) -> list[str]:
        assert isinstance(answers.items, Scores)
        seen = find_sightings(answers.items)
        rows = []
        count: Counter[str] = Counter()
        for label in answers.labels:
            sighting = seen.items[label.number]
            if label.name.casefold() in _NOT_ORGANISMS or sighting.time is None:
                continue
            count[label.item] += 1
            number = count[label.item]
            cells = _occurrence(label, sighting, answers)
            cells["occurrenceID"] = label.item if number == 1 else f"{label.item}:{number}"
            rows.append([cells.get(field) for field in _FIELDS])
        Csv().write(path, _FIELDS, rows)
        return seen.notes()


def _occurrence(label: Label, seen: Sighting, answers: Answers) -> dict[str, Any]:
    assert seen.time is not None
    scientific = scientific_name(label, answers)
    cells: dict[str, Any] = {
        "basisOfRecord": "MachineObservation",
        "eventDate": iso(seen.time),
        "locationID": seen.site,
        "scientificName": scientific,
        "vernacularName": label.name if label.name != scientific and not label.level else "",
        "taxonRank": _rank(label, scientific),
        "occurrenceStatus": "present",
        "associatedMedia": seen.file,
    }
    for level, field in _RANKS.items():
        cells[field] = answers.levels.get(level, {}).get(label.name, "")
    if label.level in _RANKS:
        cells[_RANKS[label.level]] = scientific
    if label.known:
        cells["identificationVerificationStatus"] = "verified by a person"
    else:
        cells["identifiedBy"] = answers.program
        cells["identificationVerificationStatus"] = "unverified"
        cells["identificationRemarks"] = f"probability {label.probability:.4f}"
    return cells


def _rank(label: Label, scientific: str) -> str:
    if label.level:
        return _RANKS.get(label.level, label.level)
    return "species" if " " in scientific else ""
