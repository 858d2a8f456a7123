"""Reports of Kraken: how many reads (or other items) lie in each taxon, rank by rank."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from manyway.errors import InputError
from manyway.files.formats.base import AnswerFormat, Answers, Label, Opened, Origin
from manyway.files.scores import SCIENTIFIC, UNKNOWN, ScoreFormat, Scores, check_size
from manyway.files.text import first_line, first_twice, read_lines, shorten

Lineage = tuple[str, ...]  # the names of a taxon and of those above it, coarsest first
_CODES = {"kingdom": "D", "phylum": "P", "taxonomic class": "C", "order": "O", "family": "F", "genus": "G"}
_LEVELS = {"G": "genus", "F": "family", "O": "order", "C": "taxonomic class", "P": "phylum"}  # finest first
_SPECIES = "S"
_NO_RANK = "R1"
_ROOT = "root"
_LINE = re.compile(r"\s*\d+(\.\d+)?\t\d+\t\d+\t(\d+\t\d+\t)?[A-Z-]?\d*\t\d+\t *\S")
_MOST_READS = 10_000  # that are labelled of a report; more have the same proportions
TAXID = "taxid"


class Taxon(NamedTuple):
    """A line of a report."""

    lineage: Lineage
    code: str  # of its rank; "S1" lies below a species, and "" has no rank
    taxid: str
    own: int  # reads of the taxon itself, not of those below it


@dataclass(frozen=True)
class Tree:
    """The taxa of a report.

    Parameters
    ----------
    taxa : sequence of Taxon
        Each before those below it, as in the file.
    names : sequence of str
        What each taxon is called: by its name or, where two have the same, with its number.
    classes : sequence of str
        The species, and the other taxa that have nothing below them.
    spans : sequence of slice
        The classes of each taxon: those below it, its species, or itself.
    unclassified : int, default=0
        Reads that have no taxon.
    """

    taxa: Sequence[Taxon]
    names: Sequence[str]
    classes: Sequence[str]
    spans: Sequence[slice]
    unclassified: int = 0

    @property
    def levels(self) -> dict[str, dict[str, str]]:
        """The groups of each class at the ranks above species, finest first: level -> class -> group."""
        codes = dict(_LEVELS)
        if any(taxon.code == "K" for taxon in self.taxa):
            codes |= {"K": "kingdom", "D": "domain"}
        else:
            codes["D"] = "kingdom"
        found: dict[str, dict[str, str]] = {level: {} for level in codes.values()}
        for taxon, name, span in zip(self.taxa, self.names, self.spans, strict=True):
            if taxon.code in codes:
                found[codes[taxon.code]].update(dict.fromkeys(self.classes[span], name))
        return {level: groups for level, groups in found.items() if groups}

    @property
    def described(self) -> dict[str, dict[str, str]]:
        """The scientific name and the number of each class."""
        by_name = dict(zip(self.names, self.taxa, strict=True))
        scientific = {name: by_name[name].lineage[-1] for name in self.classes}
        return {SCIENTIFIC: scientific, TAXID: {name: by_name[name].taxid for name in self.classes}}


class KrakenReport(ScoreFormat, AnswerFormat):
    """Columns with tabs: per cent, reads below, reads of the taxon itself, rank, taxid, name."""

    key = "kraken-report"
    name = "Kraken-style report"
    endings: ClassVar[tuple[str, ...]] = (".kreport", ".kreport2", ".report", ".txt", ".tsv")
    sign = "six or eight columns: per cent, two numbers of reads, rank, taxid and indented name"
    holds = "a read, which a report counts but does not name. It lists the species of its taxon; ranks are a taxonomy"
    kept = "how many items lie in each taxon, for Pavian, Krona and Bracken; taxids are those of the input, or 0"
    example = "kraken.kreport"
    only_labels = True

    def detect(self, file: Opened) -> bool:
        return _LINE.match(file.first_line) is not None

    def read(self, file: Opened) -> Scores:
        path = file.path
        tree = read_report(path)
        total = sum(taxon.own for taxon in tree.taxa)
        counts = _thinned([taxon.own for taxon in tree.taxa])
        n_reads = sum(counts)
        check_size(n_reads, len(tree.classes))
        values = np.full((n_reads, len(tree.classes)), np.nan, np.float32)
        names: list[str] = []
        skipped = []
        for count, taxon, name, span in zip(counts, tree.taxa, tree.names, tree.spans, strict=True):
            rows = slice(len(names), len(names) + count)
            values[rows, span] = 1 / len(tree.classes[span])
            names += [f"{name}#{number}" for number in range(1, count + 1)]
            if taxon.own and not count:
                skipped.append((name, f"it has {taxon.own} of {total:,} reads"))
        notes = []
        if n_reads < total:
            notes.append(f"{path.name} counts {total:,} reads; {n_reads:,} in the same proportions are labelled")
        return Scores(
            values,
            tuple(tree.classes),
            tuple(names),
            kind="probability",
            levels=tree.levels,
            described=tree.described,
            skipped=tuple(skipped),
            notes=tuple(notes),
            origins=(Origin(path, n_reads, 1, self, tree),),
        )

    def write(self, path: Path, answers: Answers) -> list[str]:
        origins = answers.items.origins if answers.origin is None else (answers.origin,)
        trees = [origin.places for origin in origins if isinstance(origin.places, Tree)]
        known = {taxon.lineage: taxon for tree in trees for taxon in tree.taxa}
        lineages = {name: taxon.lineage for tree in trees for name, taxon in zip(tree.names, tree.taxa, strict=True)}
        position = {lineage: at for at, lineage in enumerate(known)}
        own: Counter[Lineage] = Counter()
        unclassified = sum(tree.unclassified for tree in trees)
        for label in answers.best():
            if not label.name or label.name == UNKNOWN:
                unclassified += 1
            elif label.name in lineages:
                own[lineages[label.name]] += 1
            else:
                taxa = _of_levels(label, answers)
                known |= {taxon.lineage: taxon for taxon in taxa if taxon.lineage not in known}
                own[taxa[-1].lineage] += 1
        counted = Counted(known, position, own, unclassified)
        path.write_text("".join(counted.lines()), encoding="utf-8")
        return []


def is_report(path: Path) -> bool:
    """Whether a file is there, and begins as a report does."""
    return path.is_file() and _LINE.match(first_line(path)) is not None


def read_report(path: Path) -> Tree:
    """The taxa of a report; what makes no sense is an `InputError`."""
    taxa: list[Taxon] = []
    unclassified = 0
    for number, line in read_lines(path):
        if not line.strip():
            continue
        taxon = _read_line(path, number, line, taxa[-1].lineage if taxa else ())
        if taxon.code == "U":
            unclassified += taxon.own
        else:
            taxa.append(taxon)
    twice = first_twice([taxon.taxid for taxon in taxa if taxon.taxid != "0"])
    if twice is not None:
        raise InputError(f"{path} has the taxid {twice} twice; it seems to be several reports; separate them.")
    twice = first_twice([" › ".join(taxon.lineage) for taxon in taxa])
    if twice is not None:
        raise InputError(f"{path} has the taxon {shorten(twice)} twice; remove one.")
    counts = Counter(taxon.lineage[-1] for taxon in taxa)
    names = []
    for taxon in taxa:
        name = taxon.lineage[-1]
        names.append(name if counts[name] == 1 else f"{name} (taxid {taxon.taxid})")
    twice = first_twice(names)
    if twice is not None:
        raise InputError(f"{path} has two taxa {shorten(twice)}; give them different taxids or names.")
    return _tree(taxa, names, unclassified)


def _read_line(path: Path, number: int, line: str, above: Lineage) -> Taxon:
    """A line of a report; ``above`` is the lineage of the taxon before it."""
    cells = line.split("\t")
    if _LINE.match(line) is None or len(cells) not in (6, 8):
        has = f"{shorten(line.strip())} in line {number}"
        wanted = "per cent, two numbers of reads, rank, taxid and name, with tabs between them"
        raise InputError(f"{path} has {has}, which is no line of a report ({wanted}).")
    *_, code, taxid, indented = cells
    name = indented.strip()
    depth = (len(indented) - len(indented.lstrip(" "))) // 2
    if depth > len(above):
        raise InputError(f"{path} has the taxon {shorten(name)} too far to the right in line {number}.")
    return Taxon((*above[:depth], name), code, taxid, int(cells[2]))


def _tree(taxa: Sequence[Taxon], names: Sequence[str], unclassified: int) -> Tree:
    """The classes, and which of them lie below each taxon: they are neighbours, as in the report."""
    classes: list[str] = []
    starts = []
    ends = [0] * len(taxa)
    parents: list[int] = []  # the taxa that are open, coarsest first
    species: int | None = None  # the taxon of rank species that is open
    for at, taxon in enumerate(taxa):
        depth = len(taxon.lineage)
        del parents[depth - 1 :]
        if species is not None and species not in parents:
            species = None
        below = taxa[at + 1 : at + 2]
        is_leaf = not below or len(below[0].lineage) <= depth
        if species is not None:
            starts.append(len(classes) - 1)  # below a species, all taxa are that species
        else:
            starts.append(len(classes))
            if taxon.code == _SPECIES:
                species = at
            if taxon.code == _SPECIES or is_leaf:
                classes.append(names[at])
        parents.append(at)
        for open_taxon in parents:
            ends[open_taxon] = len(classes)
    spans = [slice(start, end) for start, end in zip(starts, ends, strict=True)]
    return Tree(taxa=taxa, names=names, classes=classes, spans=spans, unclassified=unclassified)


def _thinned(counts: Sequence[int]) -> list[int]:
    """Numbers in the same proportions whose sum is not too large.

    >>> _thinned([3, 0, 2]), _thinned([30_000, 10_001, 1])
    ([3, 0, 2], [7499, 2500, 0])
    """
    total = sum(counts)
    if total <= _MOST_READS:
        return list(counts)
    return [count * _MOST_READS // total for count in counts]


def _of_levels(label: Label, answers: Answers) -> list[Taxon]:
    """The taxa of an answer by the levels of the taxonomy, coarsest first."""
    lineage: Lineage = (_ROOT,)
    found = [Taxon(lineage, "R", "1", 0)]
    for level in (level for level in _CODES if level in answers.levels):
        group = label.name if label.level == level else _group(answers, level, label.name)
        if group:
            lineage = (*lineage, group)
            found.append(Taxon(lineage, _CODES[level], "0", 0))
        if label.level == level:
            return found
    if lineage[-1] != label.name:
        taxid = answers.described.get(TAXID, {}).get(label.name, "")
        code = _NO_RANK if taxid else _SPECIES
        found.append(Taxon((*lineage, label.name), code, taxid or "0", 0))
    return found


def _group(answers: Answers, level: str, name: str) -> str:
    """The group of a class, or of a group that was answered at a finer level."""
    groups = answers.levels[level]
    if name in groups:
        return groups[name]
    for finer in answers.levels.values():
        members = [member for member, group in finer.items() if group == name]
        if members and members[0] in groups:
            return groups[members[0]]
    return ""


@dataclass(frozen=True)
class Counted:
    """What a report says.

    Parameters
    ----------
    taxa : mapping of Lineage to Taxon
    position : mapping of Lineage to int
        Where a taxon was in the report that was read, if there was one.
    own : mapping of Lineage to int
        How many items lie in each taxon itself.
    unclassified : int
        How many lie in none.
    """

    taxa: Mapping[Lineage, Taxon]
    position: Mapping[Lineage, int]
    own: Mapping[Lineage, int]
    unclassified: int

    def lines(self) -> Iterator[str]:
        """Each taxon before those below it, and large ones first."""
        below: Counter[Lineage] = Counter()
        for lineage, count in self.own.items():
            for depth in range(1, len(lineage) + 1):
                below[lineage[:depth]] += count
        total = max(self.unclassified + sum(self.own.values()), 1)

        def place(lineage: Lineage) -> Any:
            parts = [lineage[:depth] for depth in range(1, len(lineage) + 1)]
            return [(-below[part], self.position.get(part, len(self.position)), part[-1]) for part in parts]

        yield _line(Taxon(("unclassified",), "U", "0", self.unclassified), self.unclassified, total)
        for lineage in sorted(below, key=place):
            taxon = self.taxa[lineage]._replace(own=self.own.get(lineage, 0))
            yield _line(taxon, below[lineage], total)


def _line(taxon: Taxon, below: int, total: int) -> str:
    shown = "  " * (len(taxon.lineage) - 1) + taxon.lineage[-1]
    per_cent = 100 * below / total
    return f"{per_cent:6.2f}\t{below}\t{taxon.own}\t{taxon.code}\t{taxon.taxid}\t{shown}\n"
