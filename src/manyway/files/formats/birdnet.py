"""BirdNET: csv, Raven selection tables, Kaleidoscope and R.

There is one row per segment of a recording and species above a threshold. Confidences are independent yes-or-no
probabilities.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from manyway.errors import InputError
from manyway.files.formats.base import TABLE_ENDINGS, Answers, Opened
from manyway.files.formats.pairs import pairs_in
from manyway.files.score_rows import WRITTEN, ScoreRow, ScoreRows, with_scores
from manyway.files.scores import FILE, Collected, Pair, ScoreFormat, Scores, from_0_to_1, shown_names
from manyway.files.tables import as_number, column, find_any
from manyway.files.text import write_like

_START = ("Start (s)", "Begin Time (s)", "OFFSET", "start")
_END = ("End (s)", "End Time (s)", "end")
_LENGTH = ("DURATION",)
_COMMON = ("Common name", "common_name")
_SCIENTIFIC = ("Scientific name", "scientific_name")
_CODE = ("Species Code",)
_FOLDER = ("FOLDER",)
_FILE = ("File", "Begin Path", "Begin File", "IN FILE", "filepath")
_CONFIDENCE = ("Confidence",)
_COUNT = ("Selection",)  # of Raven
_NO_CALL = "nocall"  # the row of a recording without a detection


@dataclass(frozen=True)
class _Columns:
    """Where the columns of a table are."""

    names: Sequence[str]
    start: int
    confidence: int
    end: int | None
    length: int | None
    common: int | None
    scientific: int | None
    code: int | None
    file: Sequence[int]  # one or two, which make the path of a recording

    @classmethod
    def of(cls, path: Path, names: Sequence[str]) -> "_Columns":
        column(path, names, *_END, *_LENGTH)  # one of them is needed
        parts = (find_any(names, *wanted) for wanted in (_FOLDER, _FILE))
        return cls(
            names=names,
            start=column(path, names, *_START),
            confidence=column(path, names, *_CONFIDENCE),
            end=find_any(names, *_END),
            length=find_any(names, *_LENGTH),
            common=find_any(names, *_COMMON),
            scientific=find_any(names, *_SCIENTIFIC),
            code=find_any(names, *_CODE),
            file=[at for at in parts if at is not None],
        )

    def segment(self, path: Path, place: str, cells: Sequence[Any]) -> dict[str, Any]:
        """The recording, and the seconds in which a row starts and ends."""
        start = as_number(path, place, self.names[self.start], cells[self.start])
        if self.end is not None:
            end = as_number(path, place, self.names[self.end], cells[self.end])
        else:
            assert self.length is not None
            end = start + as_number(path, place, self.names[self.length], cells[self.length])
        recording = "/".join(str(cells[at] or "").strip() for at in self.file) or path.name
        return {FILE: recording, "start": start, "end": end}

    def species(self, cells: Sequence[Any]) -> list[str]:
        """What a row calls its species: scientific name, common name and code, as far as there are such columns."""
        places = (self.scientific, self.common, self.code)
        return [str(cells[at] or "").strip() for at in places if at is not None]


class BirdNet(ScoreFormat):
    """Tables of BirdNET-Analyzer."""

    key = "birdnet"
    name = "BirdNET"
    endings: ClassVar[tuple[str, ...]] = TABLE_ENDINGS
    sign = "the columns Start (s), End (s), Common name and Confidence"
    holds = "a segment of a recording, `rec.wav 3-6`; one label, or several"
    kept = (
        "`Confidence` of each row (csv and Raven tables), and a row for a class that a person gave; "
        "every other byte stays"
    )
    example = "birdnet.csv"
    repeats = "BirdNET_"  # tables of all recordings, and settings, beside those of each recording

    def detect(self, file: Opened) -> bool:
        names = list(file.names)
        if not pairs_in(names, file.options):
            names.append(_CONFIDENCE[0])  # a table that lacks it is told so
        needed = (_START, (*_END, *_LENGTH), _CONFIDENCE, (*_COMMON, *_SCIENTIFIC))
        return all(find_any(names, *wanted) is not None for wanted in needed)

    def read(self, file: Opened) -> Scores:
        path = file.path
        names = file.table.names
        columns = _Columns.of(path, names)
        found = Collected(path)
        labels: dict[str, str] = {}
        for place, cells in file.table.rows():
            segment = columns.segment(path, place, cells)
            item = f"{segment[FILE]} {segment['start']:g}-{segment['end']:g}"
            called = columns.species(cells)
            if _NO_CALL in called:
                found.skip(item, "no detection", **segment, detection="blank")
                found.places.append(None)
                continue
            if not all(called):
                raise InputError(f"{path} has no species in {place}; fill the cell or remove the row.")
            score = from_0_to_1(path, place, names[columns.confidence], cells[columns.confidence], "confidence")
            own = called if columns.code is None else called[:-1]
            key = ";".join(dict.fromkeys(own))
            labels[key] = _as_label(own)
            found.about[item] = segment
            found.places.append(ScoreRow(item, key))
            found.pairs.append(Pair(place, item, key, score))
        shown = shown_names(labels)
        rows = [None if row is None else row._replace(name=shown[row.name]) for row in found.places]
        found.n_listed = 1 + max(Counter(pair.item for pair in found.pairs).values(), default=0)
        more: dict[str, Any] = {"kind": "sigmoid", "independent": True}
        if file.suffix not in WRITTEN:
            more["origins"] = ()
        of_class = [at for at in (columns.common, columns.scientific, columns.code) if at is not None]
        count = find_any(names, *_COUNT)
        places = ScoreRows(rows, columns.confidence, of_class[0], of_class[1:], count, must_be_filled=True)
        return found.scores(self, places, labels, shown, **more)

    def write(self, path: Path, answers: Answers) -> list[str]:
        """The probabilities of the answers as confidences; rows below the lowest probability are left out."""
        origin = answers.origin
        assert origin is not None
        write_like(origin.path, path, with_scores(origin, answers))
        return []


def _as_label(own: Sequence[str]) -> str:
    """'Turdus merula' and 'Eurasian Blackbird' as a label of SpeciesNet, of which genus and species are known."""
    if len(own) < 2:
        return own[0]
    genus, _, species = own[0].partition(" ")
    return ";".join(("", "", "", genus, species, own[1])) if species else own[1]
