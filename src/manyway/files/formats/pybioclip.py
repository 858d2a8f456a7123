"""pybioclip: the most probable taxa of each picture, or of a given list of classes."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from manyway.errors import InputError
from manyway.files.formats.base import TABLE_ENDINGS, Answers, Opened
from manyway.files.score_rows import WRITTEN, ScoreRow, ScoreRows, with_scores
from manyway.files.scores import SCIENTIFIC, Collected, Pair, ScoreFormat, Scores, from_0_to_1, kind_of
from manyway.files.tables import missing
from manyway.files.text import write_like

# Ranks, finest first, and what levels of a taxonomy are called here.
_RANKS = {
    "species": "species",
    "genus": "genus",
    "family": "family",
    "order": "order",
    "class": "taxonomic class",
    "phylum": "phylum",
    "kingdom": "kingdom",
}


class PyBioClip(ScoreFormat):
    """The csv of ``bioclip predict``."""

    key = "pybioclip"
    name = "pybioclip"
    endings: ClassVar[tuple[str, ...]] = TABLE_ENDINGS
    sign = "the columns file_name, kingdom … species (or classification) and score"
    holds = "a picture. Classes are the taxa of the finest rank that the table has; coarser ranks are a taxonomy"
    kept = "`score` of each row, and a row for a class that a person gave; every other byte stays"
    example = "pybioclip.csv"

    def detect(self, file: Opened) -> bool:
        names = set(file.names)
        return {"file_name", "score"} <= names and ("kingdom" in names or "classification" in names)

    def read(self, file: Opened) -> Scores:
        path = file.path
        names = list(file.table.names)
        ranks = [rank for rank in _RANKS if rank in names]
        of_class = names.index(ranks[0] if ranks else "classification")
        of_score = names.index("score")
        found = Collected(path)
        levels: dict[str, dict[str, str]] = {_RANKS[rank]: {} for rank in ranks[1:]}
        common: dict[str, str] = {}
        for place, cells in file.table.rows():
            item = _filled(path, place, names, cells, names.index("file_name"))
            name = _filled(path, place, names, cells, of_class)
            score = from_0_to_1(path, place, "score", cells[of_score], "score")
            found.pairs.append(Pair(place, item, name, score))
            found.places.append(ScoreRow(item, name))
            for rank in ranks[1:]:
                group = cells[names.index(rank)]
                if not missing(group):
                    levels[_RANKS[rank]][name] = str(group).strip()
            if "common_name" in names and not missing(cells[names.index("common_name")]):
                common[name] = str(cells[names.index("common_name")]).strip()
        found.n_listed = 1 + max(Counter(pair.item for pair in found.pairs).values(), default=0)
        shown = {pair.name: pair.name for pair in found.pairs}
        described = {"common_name": common} if common else {}
        if ranks:
            described[SCIENTIFIC] = shown
        more: dict[str, Any] = {"levels": levels, "described": described, **kind_of(found.pairs)}
        if file.suffix not in WRITTEN:
            more["origins"] = ()
        about = [names.index(column) for column in (*ranks[1:], "common_name") if column in names]
        return found.scores(self, ScoreRows(found.places, of_score, of_class, about), {}, shown, **more)

    def write(self, path: Path, answers: Answers) -> list[str]:
        """The probabilities of the answers as scores."""
        origin = answers.origin
        assert origin is not None
        write_like(origin.path, path, with_scores(origin, answers))
        return []


def _filled(path: Path, place: str, names: Sequence[str], cells: Sequence[Any], at: int) -> str:
    if missing(cells[at]):
        raise InputError(f"{path} has no {names[at]} in {place}; fill the cell or remove the row.")
    return str(cells[at]).strip()
