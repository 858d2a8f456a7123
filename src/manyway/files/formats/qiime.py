"""QIIME 2: the taxonomy of features, one taxon each with its confidence."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from manyway.errors import InputError
from manyway.files.formats.base import Answers, Opened
from manyway.files.score_rows import with_cells
from manyway.files.scores import SCIENTIFIC, Collected, Pair, ScoreFormat, Scores, from_0_to_1
from manyway.files.tables import find_any
from manyway.files.text import first_twice, read_records, read_text, shorten, sniff, write_like

# The letters in front of names, finest rank first, and what levels of a taxonomy are called here.
_RANKS = {
    "s": "species",
    "g": "genus",
    "f": "family",
    "o": "order",
    "c": "taxonomic class",
    "p": "phylum",
    "d": "kingdom",
    "k": "kingdom",
}
_ID = ("Feature ID", "FeatureID", "#OTU ID")
_SCORE = ("Confidence", "Consensus")
_NONE = ("unassigned", "unclassified", "")


@dataclass(frozen=True)
class _Places:
    """Where answers go."""

    items: list[str | None]  # of each row; None: it stays as it is
    taxa: Mapping[str, str]  # class -> taxon as it is written
    taxon: int
    score: int


class Qiime(ScoreFormat):
    """``taxonomy.tsv`` of a FeatureData[Taxonomy] artifact."""

    key = "qiime2"
    name = "QIIME 2 taxonomy"
    endings: ClassVar[tuple[str, ...]] = (".tsv", ".txt", ".csv")
    sign = "the columns Feature ID, Taxon and Confidence"
    holds = "a feature. Its taxon is the one class that it lists; the ranks are a taxonomy"
    kept = "`Taxon` and `Confidence` of each row; every other byte stays (`qiime tools import` reads it)"
    example = "qiime2.tsv"

    def detect(self, file: Opened) -> bool:
        needed = (_ID, ("Taxon",), _SCORE)
        return all(find_any(file.names, *wanted) is not None for wanted in needed)

    def read(self, file: Opened) -> Scores:
        path = file.path
        names = file.table.names
        of_id, of_taxon, of_score = (find_any(names, *wanted) for wanted in (_ID, ("Taxon",), _SCORE))
        assert of_id is not None
        assert of_taxon is not None
        assert of_score is not None
        found = Collected(path)
        taxa: dict[str, str] = {}
        for place, cells in file.table.rows():
            item = str(cells[of_id] or "").strip()
            if item.startswith("#q2:"):  # a row that says what the columns hold
                found.places.append(None)
                continue
            if not item:
                raise InputError(f"{path} has no feature in {place}; fill the cell or remove the row.")
            taxon = str(cells[of_taxon] or "").strip()
            if taxon.casefold() in _NONE or not _ranks_in(taxon):
                found.skip(item, "it has no taxon")
                found.places.append(None)
                continue
            score = from_0_to_1(path, place, names[of_score], cells[of_score], "confidence")
            name = taxon_name(taxon)
            if taxa.setdefault(name, taxon) != taxon:
                name = taxon  # another taxon has the same name
                taxa[name] = taxon
            found.pairs.append(Pair(place, item, name, max(score, 1e-4)))
            found.places.append(item)
        twice = first_twice([item for item in found.places if item is not None])
        if twice is not None:
            raise InputError(f"{path} has the feature {shorten(twice)} twice; remove one.")
        found.n_listed = 1
        shown = {name: name for name in taxa}
        places = _Places(found.places, taxa, of_taxon, of_score)
        described = {SCIENTIFIC: shown}
        return found.scores(self, places, {}, shown, kind="probability", levels=_levels(taxa), described=described)

    def write(self, path: Path, answers: Answers) -> list[str]:
        """The most probable taxon of each feature, with its probability."""
        origin = answers.origin
        assert origin is not None
        places = origin.places
        source = read_text(origin.path)
        dialect = sniff(source)
        with source.open() as file:
            lines = [*file]
        (header, _), *records = read_records(source, dialect)
        best = iter(answers.ranked(1))
        out = lines[:header]
        for item, (line, cells) in zip(places.items, records, strict=True):
            raw = lines[line - 1]
            ranked = next(best) if item is not None else []
            if ranked:
                name, p = ranked[0]
                changed = {places.taxon: places.taxa[name], places.score: f"{p:.4f}"}
                if p < answers.least:
                    changed = {places.taxon: "Unassigned", places.score: f"{p:.4f}"}
                raw = with_cells(raw, cells, changed, dialect.delimiter, lines[header - 1])
            out.append(raw)
        write_like(origin.path, path, "".join(out))
        return []


def _ranks_in(taxon: str) -> dict[str, str]:
    """The letter of each rank that a taxon names, and the name; coarse to fine.

    >>> _ranks_in("d__Bacteria; p__Firmicutes; g__; s__")
    {'d': 'Bacteria', 'p': 'Firmicutes'}
    """
    found = {}
    for part in taxon.split(";"):
        letter, _, name = part.strip().partition("__")
        if letter in _RANKS and name.strip():
            found[letter] = name.strip().replace("_", " ")
    return found


def taxon_name(taxon: str) -> str:
    """What a taxon is called: by its finest rank, a species with its genus.

    >>> taxon_name("k__Bacteria; g__Lactobacillus; s__iners"), taxon_name("d__Bacteria; p__Firmicutes")
    ('Lactobacillus iners', 'Firmicutes')
    """
    ranks = _ranks_in(taxon)
    finest, name = list(ranks.items())[-1]
    genus = ranks.get("g", "")
    if finest == "s" and genus and not name.startswith(f"{genus} "):
        return f"{genus} {name}"
    return name


def _levels(taxa: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The groups of each class at the ranks that its taxon names, and that are coarser than itself or it is."""
    levels: dict[str, dict[str, str]] = {}
    for letter, level in list(_RANKS.items())[1:]:
        groups = {name: ranks[letter] for name, taxon in taxa.items() if letter in (ranks := _ranks_in(taxon))}
        if groups:
            levels.setdefault(level, {}).update(groups)
    return levels
