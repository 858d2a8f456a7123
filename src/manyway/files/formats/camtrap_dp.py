"""Observations of a Camtrap DP, version 1.0."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, ClassVar

from manyway.files.formats.base import AnswerFormat, Answers, Label
from manyway.files.formats.csv import Csv
from manyway.files.scores import UNKNOWN, Scores, box_of, scientific_name
from manyway.files.sightings import Sighting, find_sightings, iso

_BOX = ("bboxX", "bboxY", "bboxWidth", "bboxHeight")
_FIELDS = (
    "observationID", "deploymentID", "mediaID", "eventID", "eventStart", "eventEnd", "observationLevel",
    "observationType", "cameraSetupType", "scientificName", "count", "lifeStage", "sex", "behavior", "individualID",
    "individualPositionRadius", "individualPositionAngle", "individualSpeed", *_BOX, "classificationMethod",
    "classifiedBy", "classificationTimestamp", "classificationProbability", "observationTags", "observationComments",
)  # fmt: skip
_TYPES = {
    **dict.fromkeys(("blank", "empty", "nothing", "no animal"), "blank"),
    **dict.fromkeys(("human", "person", "people", "homo sapiens"), "human"),
    **dict.fromkeys(("vehicle", "car", "truck", "bicycle", "motorcycle"), "vehicle"),
    **dict.fromkeys((UNKNOWN, "", "no cv result"), "unknown"),
}


class CamtrapDp(AnswerFormat):
    """``observations.csv``."""

    key = "camtrap-dp"
    name = "Camtrap DP"
    endings: ClassVar[tuple[str, ...]] = (".csv",)
    holds = (
        "observations of a [Camtrap DP](https://camtrap-dp.tdwg.org): `media` names the media.csv that says deployment "
        "and time; else the folder and the time in the file"
    )
    needs_time = True

    def write(self, path: Path, answers: Answers) -> list[str]:
        assert isinstance(answers.items, Scores)
        seen = find_sightings(answers.items)
        observations = _Observations(answers)
        rows: list[list[Any]] = []
        for label in answers.labels:
            rows += observations.of_label(label, seen.items[label.number])
        for other in seen.others:
            rows += observations.of_other(other)
        Csv().write(path, _FIELDS, rows)
        notes = []
        if any(each.time is not None and each.time.tzinfo is None for each in seen.items):
            notes.append("times have no time zone and are written as UTC")
        return [*notes, *seen.notes()]


class _Observations:
    """Makes rows: one per answer, and one per picture or detection without a classification."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.now = iso(datetime.now(timezone.utc))
        self.seen: Counter[str] = Counter()

    def of_label(self, label: Label, seen: Sighting) -> Iterator[list[Any]]:
        kind = _TYPES.get(label.name.casefold(), "animal")
        more: dict[str, Any] = {"classificationMethod": "human"}
        if not label.known:
            more = {"classifiedBy": self.answers.program, "classificationProbability": str(round(label.probability, 4))}
        if kind == "animal":
            # A common name is no scientific one: people map it to a taxon.
            name = scientific_name(label, self.answers)
            more |= {"scientificName": name} if name else {"observationComments": label.name}
        yield from self._row(label.item, seen, kind, more)

    def of_other(self, seen: Sighting) -> Iterator[list[Any]]:
        detected = str(seen.cells.get("detection") or "unclassified").casefold()
        kind = _TYPES.get(detected, detected if detected == "animal" else "unclassified")
        yield from self._row(seen.file, seen, kind, {})

    def _row(self, item: str, seen: Sighting, kind: str, more: Mapping[str, Any]) -> Iterator[list[Any]]:
        if seen.time is None:
            return
        self.seen[item] += 1
        box = box_of(seen.cells)
        cells: dict[str, Any] = {
            "observationID": item if self.seen[item] == 1 else f"{item}:{self.seen[item]}",
            "deploymentID": seen.site,
            "mediaID": seen.cells.get("mediaID") or seen.file,
            "eventStart": iso(seen.time),
            "eventEnd": iso(seen.time + timedelta(seconds=seen.seconds)),
            "observationLevel": "media",
            "observationType": kind,
            "count": 1 if box and kind != "blank" else None,
            "classificationMethod": "machine",
            "classificationTimestamp": self.now,
            **more,
        }
        # The schema asks for boxes inside of the picture that are not empty.
        if box is not None and min(box[2:]) > 0 and min(box) >= 0 and max(box) <= 1:
            cells |= dict(zip(_BOX, map(str, box), strict=True))
        yield [cells.get(name) for name in _FIELDS]
