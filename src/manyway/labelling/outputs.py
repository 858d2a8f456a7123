"""Answers in the forms of other programs: the format of the input, Camtrap DP, and presence per site and night."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import torch

from manyway import __version__
from manyway.core import Solution
from manyway.errors import InputError, nearest
from manyway.files import AnyPath, atomic_write, find_any, shorten, suffix_of
from manyway.files.scores import FILE, SCIENTIFIC, SOURCE, Scores, box_of, number_of
from manyway.labelling.batch import UNKNOWN, Batch
from manyway.labelling.table import Inputs, Row, remember, write_rows

TABLE, INPUT, CAMTRAP, PRESENCE = FORMATS = ("table", "input", "camtrap-dp", "presence")
_SITES = ("deploymentID", "deployment", "deployment_id", "locationID", "location", "site", "station", "camera")
_TIMES = ("timestamp", "eventStart", "time", "datetime", "date_time", "DateTimeOriginal")
_IN_NAME = re.compile(r"(?<!\d)((?:19|20)\d{6})[-_T]?(\d{6})(?!\d)")  # S4A_20240501_223000.wav
# The fields of observations.csv, Camtrap DP 1.0.
_BOX_FIELDS = ("bboxX", "bboxY", "bboxWidth", "bboxHeight")
_FIELDS = (
    "observationID", "deploymentID", "mediaID", "eventID", "eventStart", "eventEnd", "observationLevel",
    "observationType", "cameraSetupType", "scientificName", "count", "lifeStage", "sex", "behavior", "individualID",
    "individualPositionRadius", "individualPositionAngle", "individualSpeed", *_BOX_FIELDS, "classificationMethod",
    "classifiedBy", "classificationTimestamp", "classificationProbability", "observationTags", "observationComments",
)  # fmt: skip
_KINDS = {
    **dict.fromkeys(("blank", "empty", "nothing", "no animal"), "blank"),
    **dict.fromkeys(("human", "person", "people", "homo sapiens"), "human"),
    **dict.fromkeys(("vehicle", "car", "truck", "bicycle", "motorcycle"), "vehicle"),
    **dict.fromkeys((UNKNOWN, "", "no cv result"), "unknown"),
}
LISTED_PRESENCE = 0.5  # a class with at least this probability of presence is listed even if no item has its label


def find_format(given: str | None, output: AnyPath | None) -> str:
    """The form of the output: the given one, or that of its ending."""
    if given is None:
        return INPUT if output is not None and suffix_of(Path(output)) in (".json", ".txt") else TABLE
    if given not in FORMATS:
        raise InputError(f"The `format` is '{given}'; {nearest(given, FORMATS)}")
    if given != TABLE and output is None:
        raise InputError(f"The `format` {given} needs the name of the `output`.")
    return given


def check_format(form: str, scores: Scores, output: Path) -> None:
    """Refuse a form that these scores cannot be written in, before the work."""
    if form == INPUT:
        if sum(origin.n_items for origin in scores.origins) < len(scores):
            given = "which is a table and no file of SpeciesNet, MegaDetector or BirdNET"
            raise InputError(f"{output} would be in the format of the input, {given}; write a .csv table.")
        path = scores.origins[0].path
        if SOURCE not in scores.carried and suffix_of(output) != path.suffix.lower():
            given, hint = scores.origins[0].format, f"give it the ending {path.suffix}, or write a table: labels.csv"
            raise InputError(f"{output} would be written in the format of the input, a {given}; {hint}.")
    elif form != TABLE and not any(one.time for one in _sightings(scores)[0]):
        hint = "name the media.csv of the data package with `media`, or add a column 'time'"
        raise InputError(f"The `format` {form} needs the time of each item, which the scores do not have; {hint}.")


def scores_of(batch: Batch) -> Scores:
    """The items of a batch, which must be scores."""
    if not isinstance(batch.items, Scores):
        raise InputError("This `format` is for the scores of a classifier; leave it out for features.")
    return batch.items


def write_format(
    form: str, output: Path, rows: Sequence[Row], batch: Batch, solution: Solution, least: float, inputs: Inputs
) -> list[str]:
    """Write the answers of a batch of scores in another form than a table; return what there is to say about it."""
    if form == INPUT:
        return _write_back(output, batch, solution, least, inputs)
    items, others = _sightings(scores_of(batch))
    if form == CAMTRAP:
        notes = write_rows(output, _FIELDS, _observations(rows, batch, items, others), inputs)
        if any(one.time is not None and one.time.tzinfo is None for one in items):
            notes.append("times have no time zone and are written as UTC")
    else:
        header = ("site", "night", "class", "items", "presence")
        notes = write_rows(output, header, _presence(rows, batch, items, others, solution), inputs)
    lacking = sum(one.time is None for one in (*items, *others))
    if lacking:
        notes.append(f"{lacking} items have no time and are left out")
    remember(output)
    return notes


def _write_back(output: Path, batch: Batch, solution: Solution, least: float, inputs: Inputs) -> list[str]:
    """Each file with its answers; the texts are made first, so that nothing is written where one cannot be."""
    scores = scores_of(batch)
    values, places, *unknown = solution.top(max(1, *(one.n_listed for one in scores.origins))).best.values
    named = ([batch.classes[k] for k in chosen] for chosen in places[0].tolist())
    answers = [list(zip(*one, strict=True)) for one in zip(named, values[0].tolist(), strict=True)]
    for row in unknown[1][0].ge(0).nonzero().flatten().tolist() if unknown else ():
        answers[row] = []
    texts, first = {}, 0
    for origin in scores.origins:
        texts[origin.path] = origin.rewrite(answers[first : first + origin.n_items], least)
        first += origin.n_items
    folder = Path(os.path.commonpath([path.parent for path in texts]))
    for path, text in texts.items():
        target = output / path.relative_to(folder) if SOURCE in scores.carried else output
        encoding = "utf-8-sig" if path.read_bytes().startswith(b"\xef\xbb\xbf") else "utf-8"
        with atomic_write(target, inputs) as temporary:
            temporary.write_text(text, encoding=encoding, newline="")
        remember(target)
    return []


class _Sighting(NamedTuple):
    """What is known about an item, or about a picture without one."""

    cells: Mapping[str, Any]
    file: str
    site: str
    time: datetime | None


_Sightings = Sequence[_Sighting]
_Cells = Iterator[list[Any]]


def _sightings(scores: Scores) -> tuple[_Sightings, _Sightings]:
    """The items, and what else their files have."""
    names = [*scores.carried, *dict.fromkeys(name for cells in scores.others for name in cells)]
    places = [find_any(names, *wanted) for wanted in (_TIMES, _SITES)]
    of_time, of_site = ("" if at is None else names[at] for at in places)

    def sighting(cells: Mapping[str, Any], file: str) -> _Sighting:
        path = PurePosixPath(file.replace("\\", "/"))
        folder = path.parent.as_posix()
        site = cells.get(of_site) or (folder if folder not in (".", "/") else cells.get(SOURCE)) or "1"
        time = _time(cells.get(of_time), path.name, number_of(cells.get("start")) or 0)
        return _Sighting(cells, file, str(site), time)

    rows = ({name: column[row] for name, column in scores.carried.items()} for row in range(len(scores)))
    items = [sighting(cells, scores.file(row)) for row, cells in enumerate(rows)]
    return items, [sighting(cells, str(cells[FILE])) for cells in scores.others]


def _time(given: Any, name: str, start: float) -> datetime | None:
    """The time that a cell says, or the name of a recording and the second in which an item starts."""
    if isinstance(given, datetime):
        return given
    text, found = str(given or "").strip(), _IN_NAME.search(name)
    try:
        if text.strip("0:- T"):  # 2024:05:01 22:30:00, as cameras write; all 0 where the clock was not set
            return datetime.fromisoformat(text[:10].replace(":", "-") + text[10:].replace("Z", "+00:00"))
        if found:
            return datetime.strptime("".join(found.groups()), "%Y%m%d%H%M%S") + timedelta(seconds=start)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{shorten(text or name)} is no time such as 2024-05-01T22:30:00.") from error
    return None


def _iso(time: datetime) -> str:
    zoned = time if time.tzinfo is not None else time.replace(tzinfo=timezone.utc)
    return zoned.isoformat(timespec="seconds").replace("+00:00", "Z")


def _observations(rows: Iterable[Row], batch: Batch, items: _Sightings, others: _Sightings) -> _Cells:
    """The rows of observations.csv: one per answer, and one per picture or detection without a classification."""
    scientific, now = batch.described.get(SCIENTIFIC, {}), _iso(datetime.now(timezone.utc))
    known = batch.tasks.known_labels[0].tolist()
    seen: Counter[str] = Counter()

    def observation(item: str, seen_at: _Sighting, kind: str, more: Mapping[str, Any]) -> list[Any]:
        assert seen_at.time is not None
        seen[item] += 1
        cells, box = seen_at.cells, box_of(seen_at.cells)
        length = (number_of(cells.get("end")) or 0.0) - (number_of(cells.get("start")) or 0.0)
        # The schema asks for boxes inside of the picture that are not empty.
        inside = box is not None and min(box[2:]) > 0 and min(box) >= 0 and max(box) <= 1
        found = {
            "observationID": item if seen[item] == 1 else f"{item}:{seen[item]}",
            "deploymentID": seen_at.site,
            "mediaID": cells.get("mediaID") or seen_at.file,
            "eventStart": _iso(seen_at.time),
            "eventEnd": _iso(seen_at.time + timedelta(seconds=max(length, 0.0))),
            "observationLevel": "media",
            "observationType": kind,
            "count": 1 if box and kind != "blank" else None,
            **(dict(zip(_BOX_FIELDS, map(str, box), strict=True)) if box and inside else {}),
            "classificationMethod": "machine",
            "classificationTimestamp": now,
            **more,
        }
        return [found.get(name) for name in _FIELDS]

    for row in rows:
        name, p = row.best[0] if row.answer is None else (row.answer.name, row.answer.probability)
        if items[row.number].time is None:
            continue
        kind = _KINDS.get(name.casefold(), "animal")
        more = {"classifiedBy": f"manyway {__version__}", "classificationProbability": str(round(p, 4))}
        if known[row.number] >= 0:
            more = {"classificationMethod": "human"}
        more["scientificName"] = scientific.get(name, name if kind == "animal" else "")
        yield observation(row.item, items[row.number], kind, more)
    for other in others:
        detected = str(other.cells.get("detection") or "unclassified").casefold()
        if other.time is not None:
            kind = _KINDS.get(detected, detected if detected == "animal" else "unclassified")
            yield observation(other.file, other, kind, {})


def _presence(rows: Iterable[Row], batch: Batch, items: _Sightings, others: _Sightings, found: Solution) -> _Cells:
    """Site, night, class, the number of items with that label, and the probability that the class was there.

    A night is from noon to noon. With p_qk the probability of class k for the items q of a night, the probability is
    1 − Π_q (1 − p_qk), and at most that of the class in the whole batch.
    """
    nights: dict[tuple[str, str], int] = {}  # also those without an item
    of_item = []
    for one in (*items, *others):
        night = None if one.time is None else (one.site, (one.time - timedelta(hours=12)).date().isoformat())
        of_item.append(-1 if night is None else nights.setdefault(night, len(nights)))
    counted = Counter((of_item[row.number], row.best[0][0]) for row in rows)
    placed = torch.tensor(of_item[: len(items)])
    p = found.probabilities[0].double().cpu()[placed >= 0]
    absent = p.new_zeros(len(nights), p.shape[1]).index_add_(0, placed[placed >= 0], (-p).clamp_min(-1 + 1e-12).log1p())
    there = torch.minimum(absent.expm1().abs(), found.presence[0].to(absent)[None])
    given = {name for _, name in counted}
    for k, name in enumerate(batch.classes):
        if name in given or bool((there[:, k] >= LISTED_PRESENCE).any()):
            for (site, day), at in sorted(nights.items()):
                yield [site, day, name, counted[at, name], float(there[at, k])]
