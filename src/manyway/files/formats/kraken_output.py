"""Kraken 2: what it says about each read, with the taxa of the read's k-mers."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from manyway.errors import InputError
from manyway.files.formats.base import Answers, Opened, Origin
from manyway.files.formats.kraken_report import TAXID, Tree, is_report, read_report
from manyway.files.scores import SCIENTIFIC, UNKNOWN, ScoreFormat, Scores, check_size
from manyway.files.text import first_line, read_lines, read_text, shorten, write_like

_LINE = re.compile(r"([CU])\t([^\t]+)\t([^\t]+)\t\d+(?:\|\d+)?\t(.*)")
_NAMED = re.compile(r"(.*) \(taxid (\d+)\)")
_KMERS = re.compile(r"(\d+|A):(\d+)")
_REPORTS = (".kreport", ".kreport2", ".report", ".kreport.txt", ".report.txt", "_kreport.txt", "_report.txt")
_NO_TAXON = ("0", "A")  # k-mers that no taxon has, and those with a letter other than A, C, G and T
_UNCLASSIFIED = "unclassified"
_NO_TREE = Tree((), (), (), ())
_SAMPLE = "take a sample of the reads (seqtk sample), or one lane"


class Read(NamedTuple):
    """A line of the file."""

    name: str
    taxid: str  # of the taxon that Kraken has given it
    called: str  # the name of that taxon, where it is there
    kmers: Mapping[str, int]  # by the taxids of known taxa


@dataclass(frozen=True)
class Places(Tree):
    """The taxa of the reads, and where answers go."""

    reads: Sequence[int] = ()  # the line of each item, from 1
    taxids: Mapping[str, str] = field(default_factory=dict)  # by the names of taxa


class KrakenOutput(ScoreFormat):
    """What ``kraken2`` says about each read; the report of the same name says which taxa lie in which."""

    key = "kraken2"
    name = "Kraken 2 output"
    endings: ClassVar[tuple[str, ...]] = (".kraken", ".kraken2", ".txt", ".tsv")
    sign = "the columns C or U, read, taxid, length and k-mers"
    holds = (
        "a classified read. A k-mer of a genus counts for each of its species in the same part. `reads.kreport` beside "
        "`reads.kraken` has the names and ranks"
    )
    kept = "C or U and the taxid of each read; every other byte stays"
    example = "kraken.kraken"
    only_labels = True

    def detect(self, file: Opened) -> bool:
        return _LINE.fullmatch(file.first_line) is not None

    def companions(self, path: Path) -> list[Path]:
        report = _report_of(path)
        if report is None or _LINE.fullmatch(first_line(path)) is None:
            return []
        return [report]

    def read(self, file: Opened) -> Scores:
        path = file.path
        report = _report_of(path)
        tree = _NO_TREE if report is None else read_report(report)
        found = _Reads(path, len(tree.classes))
        found.read()
        taxa = _Taxa(tree, found.reads)
        check_size(len(found.reads), len(taxa.classes), _SAMPLE)
        notes = [f"names and ranks are those of {report.name}" if report is not None else _without_report(path)]
        places = Places(
            taxa=tree.taxa,
            names=tree.names,
            classes=tree.classes,
            spans=tree.spans,
            unclassified=len(found.skipped),
            reads=found.lines,
            taxids={_UNCLASSIFIED: "0", **{name: taxid for taxid, name in taxa.names.items()}},
        )
        return Scores(
            taxa.shares(found.reads),
            tuple(taxa.classes),
            tuple(read.name for read in found.reads),
            kind="probability",
            levels=tree.levels,
            described=taxa.described(),
            skipped=tuple(found.skipped),
            notes=tuple(notes),
            carried={"prediction": [taxa.answer(read.taxid) for read in found.reads]},
            origins=(Origin(path, len(found.reads), 1, self, places),),
        )

    def write(self, path: Path, answers: Answers) -> list[str]:
        """The taxon of each read: a class or, where that is asked for, a group."""
        origin = answers.origin
        assert origin is not None
        with read_text(origin.path).open() as file:
            lines = list(file)
        taxids = origin.places.taxids
        for number, label in zip(origin.places.reads, answers.best(), strict=True):
            _, name, old, rest = lines[number - 1].split("\t", 3)
            status = "C"
            called = label.name
            if not called or called == UNKNOWN:
                status = "U"
                called = _UNCLASSIFIED
            if called not in taxids:
                raise InputError(f"{origin.path} has no taxid for the class {shorten(called)}; write a table instead.")
            taxon = f"{called} (taxid {taxids[called]})" if _NAMED.fullmatch(old) else taxids[called]
            lines[number - 1] = "\t".join([status, name, taxon, rest])
        write_like(origin.path, path, "".join(lines))
        return []


class _Reads:
    """The reads of a file."""

    def __init__(self, path: Path, n_classes: int) -> None:
        self.path = path
        self.n_classes = n_classes
        self.reads: list[Read] = []
        self.lines: list[int] = []
        self.skipped: list[tuple[str, str]] = []

    def read(self) -> None:
        """Read them all."""
        seen: set[str] = set()
        taxids: set[str] = set()
        for number, line in read_lines(self.path):
            if not line.strip():
                continue
            found = _LINE.fullmatch(line)
            if found is None:
                has = f"{shorten(line)} in line {number}"
                raise InputError(f"{self.path} has {has}, which is no line of Kraken 2 ({KrakenOutput.sign}).")
            status, name, taxon, kmers = found.groups()
            if name in seen:
                raise InputError(f"{self.path} has the read {shorten(name)} twice (again in line {number}).")
            seen.add(name)
            if status == "U":
                self.skipped.append((name, "Kraken left it unclassified"))
                continue
            read = _read(self.path, number, name, taxon, kmers)
            taxids.update(read.kmers)
            self.reads.append(read)
            self.lines.append(number)
            check_size(len(self.reads), max(self.n_classes, len(taxids)), _SAMPLE)


def _read(path: Path, number: int, name: str, taxon: str, kmers: str) -> Read:
    named = _NAMED.fullmatch(taxon)
    called, taxid = named.groups() if named else ("", taxon)
    counts: Counter[str] = Counter()
    for part in kmers.split():
        found = _KMERS.fullmatch(part)
        if found is None and part != "|:|":  # which stands between the two of a pair
            raise InputError(f"{path} has the k-mers {shorten(part)} in line {number}; they are TAXID:NUMBER.")
        if found is not None and found[1] not in _NO_TAXON:
            counts[found[1]] += int(found[2])
    if not taxid.isdecimal():
        raise InputError(f"{path} has the taxid {shorten(taxid)} in line {number}; it is a number.")
    if not counts:
        counts[taxid] += 1
    return Read(name, taxid, called, counts)


class _Taxa:
    """The taxa of some reads: those of the report, and those that only occur among the k-mers."""

    def __init__(self, tree: Tree, reads: Sequence[Read]) -> None:
        self.names = {taxon.taxid: name for taxon, name in zip(tree.taxa, tree.names, strict=True)}
        self.spans = {taxon.taxid: span for taxon, span in zip(tree.taxa, tree.spans, strict=True)}
        self.classes = list(tree.classes)
        self._tree = tree
        called = {read.taxid: read.called for read in reads if read.called}
        for taxid in dict.fromkeys(taxid for read in reads for taxid in (*read.kmers, read.taxid)):
            if taxid not in self.spans:
                name = called.get(taxid, "")
                if not name or name in self.classes:
                    name = f"taxid {taxid}"
                self.names[taxid] = name
                self.spans[taxid] = slice(len(self.classes), len(self.classes) + 1)
                self.classes.append(name)

    def shares(self, reads: Sequence[Read]) -> np.ndarray[Any, Any]:
        """[n, k] the part of the k-mers of each read that speaks for each class; NaN where none does.

        K-mers of no known taxon are mostly errors of sequencing and say nothing. One more k-mer could be of any taxon,
        so that a read with a single known one remains uncertain.
        """
        values = np.zeros((len(reads), len(self.classes)), np.float32)
        for row, read in enumerate(reads):
            total = sum(read.kmers.values()) + 1
            for taxid, count in read.kmers.items():
                span = self.spans[taxid]
                values[row, span] += count / total / (span.stop - span.start)
        values[values == 0] = np.nan
        return values

    def answer(self, taxid: str) -> str | None:
        """What a taxon is called: by its class where there is one, as a strain by its species."""
        span = self.spans.get(taxid)
        if span is None:
            return None
        return self.classes[span.start] if span.stop - span.start == 1 else self.names[taxid]

    def described(self) -> dict[str, dict[str, str]]:
        """The scientific name and the number of each class."""
        found = self._tree.described
        known = set(self._tree.classes)
        numbers = {name: taxid for taxid, name in self.names.items() if name in self.classes and name not in known}
        scientific = {name: name for name in numbers if not name.startswith("taxid ")}
        return {SCIENTIFIC: found[SCIENTIFIC] | scientific, TAXID: found[TAXID] | numbers}


def _report_of(path: Path) -> Path | None:
    """The report beside the file, which has its name: ``reads.kreport`` for ``reads.kraken``."""
    return next((each for each in _possible_reports(path) if each != path and is_report(each)), None)


def _possible_reports(path: Path) -> Iterator[Path]:
    stem = path
    while stem.suffix:
        stem = stem.with_suffix("")
        yield from (stem.with_name(f"{stem.name}{ending}") for ending in _REPORTS)


def _without_report(path: Path) -> str:
    stem = path.name.partition(".")[0]
    return f"there is no report of Kraken beside {path.name} ({stem}.kreport), so taxa have no ranks"
