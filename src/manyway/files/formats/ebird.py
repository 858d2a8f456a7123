"""The record format of eBird's import: species per place and day."""

from collections import Counter
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from manyway.files.formats.base import AnswerFormat, Answers
from manyway.files.formats.csv import Csv
from manyway.files.scores import UNKNOWN, Scores, number_of, scientific_name
from manyway.files.sightings import Sighting, find_sightings

# The 19 columns of the format, which has no header.
_COLUMNS = (
    "Common Name", "Genus", "Species", "Number", "Species Comments", "Location Name", "Latitude", "Longitude", "Date",
    "Start Time", "State/Province", "Country Code", "Protocol", "Number of Observers", "Duration",
    "All observations reported?", "Effort Distance Miles", "Effort area acres", "Submission Comments",
)  # fmt: skip


class _Entry(NamedTuple):
    """A species at a place on a day."""

    site: str
    day: str
    name: str


class EBird(AnswerFormat):
    """The eBird Record Format (Extended)."""

    key = "ebird"
    name = "eBird import"
    endings: ClassVar[tuple[str, ...]] = (".csv",)
    holds = (
        "the record format of eBird's import, without a header: one line per place, day and species, as an incidental "
        "observation with X for the number"
    )
    needs_time = True

    def write(self, path: Path, answers: Answers) -> list[str]:
        assert isinstance(answers.items, Scores)
        seen = find_sightings(answers.items)
        first: dict[_Entry, list[Any]] = {}
        count: Counter[_Entry] = Counter()
        for label in answers.labels:
            sighting = seen.items[label.number]
            if label.name in ("", UNKNOWN) or label.level or sighting.time is None:
                continue
            entry = _Entry(sighting.site, sighting.time.strftime("%m/%d/%Y"), label.name)
            scientific = scientific_name(label, answers)
            count[entry] += 1
            first.setdefault(entry, _row(entry, scientific, sighting))
        rows = []
        for entry, cells in first.items():
            cells[_COLUMNS.index("Species Comments")] = f"{count[entry]} items labelled by {answers.program}"
            rows.append(cells)
        Csv().write(path, rows[0] if rows else (), rows[1:])
        groups = sum(bool(label.level) for label in answers.labels)
        left_out = [f"{groups} answers above the species are left out"] if groups else []
        return [*seen.notes(), *left_out]


def _row(entry: _Entry, scientific: str, seen: Sighting) -> list[Any]:
    assert seen.time is not None
    genus, _, species = scientific.partition(" ")
    cells = {
        "Common Name": entry.name if entry.name != scientific else "",
        "Genus": genus if species else "",
        "Species": species,
        "Number": "X",
        "Location Name": entry.site,
        "Latitude": _degrees(seen, "latitude", "lat"),
        "Longitude": _degrees(seen, "longitude", "lon"),
        "Date": entry.day,
        "Start Time": seen.time.strftime("%H:%M"),
        "Protocol": "incidental",
        "Number of Observers": "1",
        "All observations reported?": "N",
    }
    return [cells.get(name, "") for name in _COLUMNS]


def _degrees(seen: Sighting, *names: str) -> str:
    found = (number_of(seen.cells.get(name)) for name in names)
    return next((f"{degrees:.6f}" for degrees in found if degrees is not None), "")
