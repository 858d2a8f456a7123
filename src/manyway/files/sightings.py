"""Where and when the items of some scores were seen, for formats that list observations."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from manyway.errors import InputError, counted
from manyway.files.scores import FILE, SOURCE, Scores, number_of
from manyway.files.tables import find_any
from manyway.files.text import shorten

_SITES = ("deploymentID", "deployment", "deployment_id", "locationID", "location", "site", "station", "camera")
_TIMES = ("timestamp", "eventStart", "time", "datetime", "date_time", "DateTimeOriginal")
_IN_NAME = re.compile(r"(?<!\d)((?:19|20)\d{6})[-_T]?(\d{6})(?!\d)")  # S4A_20240501_223000.wav


class Sighting(NamedTuple):
    """What is known about an item, or about a picture without one."""

    cells: Mapping[str, Any]
    file: str
    site: str
    time: datetime | None

    @property
    def seconds(self) -> float:
        """How long the item is, where it is a segment of a recording."""
        start = number_of(self.cells.get("start")) or 0.0
        end = number_of(self.cells.get("end")) or 0.0
        return max(end - start, 0.0)


class Sightings(NamedTuple):
    """All that was seen."""

    items: Sequence[Sighting]
    others: Sequence[Sighting]  # pictures, recordings and detections without a classification

    @property
    def n_without_time(self) -> int:
        """How many have no time."""
        return sum(each.time is None for each in (*self.items, *self.others))

    def notes(self) -> list[str]:
        """What there is to say where only items with a time are written."""
        lacking = self.n_without_time
        have = "has no time and is" if lacking == 1 else "have no time and are"
        return [f"{counted(lacking, 'item')} {have} left out"] if lacking else []


def find_sightings(scores: Scores) -> Sightings:
    """The items of some scores, and what else their files have."""
    names = [*scores.carried, *dict.fromkeys(name for cells in scores.others for name in cells)]
    of_time = find_any(names, *_TIMES)
    of_site = find_any(names, *_SITES)

    def sighting(cells: Mapping[str, Any], file: str) -> Sighting:
        path = PurePosixPath(file.replace("\\", "/"))
        folder = path.parent.as_posix()
        site = None if of_site is None else cells.get(names[of_site])
        if not site:
            site = folder if folder not in (".", "/") else cells.get(SOURCE)
        given = None if of_time is None else cells.get(names[of_time])
        time = time_of(given, path.name, number_of(cells.get("start")) or 0)
        return Sighting(cells, file, str(site or "1"), time)

    items = []
    for row in range(len(scores)):
        cells = {name: column[row] for name, column in scores.carried.items()}
        items.append(sighting(cells, scores.file(row)))
    return Sightings(items, [sighting(cells, str(cells[FILE])) for cells in scores.others])


def time_of(given: Any, name: str, start: float) -> datetime | None:
    """The time that a cell says, or the name of a recording and the second in which an item starts."""
    if isinstance(given, datetime):
        return given
    text = str(given or "").strip()
    found = _IN_NAME.search(name)
    try:
        if text.strip("0:- T"):  # 2024:05:01 22:30:00, as cameras write; all 0 where the clock was not set
            return datetime.fromisoformat(text[:10].replace(":", "-") + text[10:].replace("Z", "+00:00"))
        if found:
            return datetime.strptime("".join(found.groups()), "%Y%m%d%H%M%S") + timedelta(seconds=start)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{shorten(text or name)} is no time such as 2024-05-01T22:30:00.") from error
    return None


def iso(time: datetime) -> str:
    """A time in ISO 8601; one without a time zone counts as UTC.

    >>> iso(datetime(2024, 5, 1, 22, 30))
    '2024-05-01T22:30:00Z'
    """
    zoned = time if time.tzinfo is not None else time.replace(tzinfo=timezone.utc)
    return zoned.isoformat(timespec="seconds").replace("+00:00", "Z")
