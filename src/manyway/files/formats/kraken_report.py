"""A report in the form of Kraken: how many items lie in each taxon, rank by rank."""

from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

from manyway.files.formats.base import AnswerFormat, Answers
from manyway.files.scores import UNKNOWN

_CODES = {"kingdom": "D", "phylum": "P", "taxonomic class": "C", "order": "O", "family": "F", "genus": "G"}
_Taxon = tuple[str, ...]  # the names of a taxon and of those above it, coarsest first


class KrakenReport(AnswerFormat):
    """Six columns with tabs: per cent, items below, items of the taxon itself, rank, taxid, name."""

    key = "kraken-report"
    name = "Kraken-style report"
    endings: ClassVar[tuple[str, ...]] = (".txt", ".kreport", ".report")
    holds = "a report that Pavian, Krona and Bracken read: items per taxon of each rank; taxids are 0"

    def write(self, path: Path, answers: Answers) -> list[str]:
        levels = [level for level in _CODES if level in answers.levels]
        codes: dict[_Taxon, str] = {}
        own: Counter[_Taxon] = Counter()
        unknown = 0
        for label in answers.labels:
            if not label.name or label.name == UNKNOWN:
                unknown += 1
                continue
            taxon: _Taxon = ()
            for level in levels:
                group = label.name if label.level == level else _group(answers, level, label.name)
                if group:
                    taxon = (*taxon, group)
                    codes[taxon] = _CODES[level]
                if label.level == level:
                    break
            if not label.level and (not taxon or taxon[-1] != label.name):
                taxon = (*taxon, label.name)
                codes[taxon] = "S"
            own[taxon] += 1
        total = unknown + own.total()
        lines = [
            _line("U", "unclassified", below=unknown, own=unknown, total=total),
            _line("R", "root", below=own.total(), own=0, total=total),
        ]
        below: Counter[_Taxon] = Counter()
        for taxon, count in own.items():
            for depth in range(1, len(taxon) + 1):
                below[taxon[:depth]] += count
        for taxon in _ordered(below):
            shown = "  " * len(taxon) + taxon[-1]
            lines.append(_line(codes[taxon], shown, below=below[taxon], own=own[taxon], total=total))
        path.write_text("".join(lines), encoding="utf-8")
        return []


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


def _ordered(below: "Counter[_Taxon]") -> list[_Taxon]:
    """Each taxon before those in it, large ones first."""

    def place(taxon: _Taxon) -> Any:
        return [(-below[taxon[:depth]], taxon[depth - 1]) for depth in range(1, len(taxon) + 1)]

    return sorted(below, key=place)


def _line(code: str, name: str, *, below: int, own: int, total: int) -> str:
    per_cent = 100 * below / max(total, 1)
    return f"{per_cent:6.2f}\t{below}\t{own}\t{code}\t0\t{name}\n"
