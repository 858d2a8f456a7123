"""Tables with the columns item, class and score, or with the best classes of an item side by side."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, ClassVar, NamedTuple

from manyway.errors import InputError
from manyway.files.columns import is_id, is_number_like
from manyway.files.formats.base import TABLE_ENDINGS, Opened
from manyway.files.options import Options
from manyway.files.scores import CLASS_NAMES, Pair, ScoreFormat, Scores, from_pairs
from manyway.files.tables import as_number, find_any, missing
from manyway.files.text import listed

_ANSWER_NAMES = ("top", "pred", "predicted", "prediction", "name")  # of what a classifier says
_RANK = re.compile(r"[\W_]*\d+[\W_]*|top(?=.*\d)")
_SCORE_NAMES = ("score", "probability", "prob", "confidence", "conf", "log_probability", "log_prob", "logit")
_OF_CLASS = re.compile(r"scientific|latin|taxon|species|genus|family|order|common", re.IGNORECASE)  # columns of classes


class Columns(NamedTuple):
    """Where a class and its score are."""

    name: int
    score: int


class Pairs(ScoreFormat):
    """One row per item and class, or per item with its best classes: ``top1``, ``score1``, ``top2``, ``score2``."""

    key = "pairs"
    name = "a table with the columns `item`, `class`, `score`"
    endings: ClassVar[tuple[str, ...]] = TABLE_ENDINGS
    sign = "the columns class and score"
    holds = "all rows of that name; low scores may be left out"
    example = "pairs.csv"
    generic = True

    def detect(self, file: Opened) -> bool:
        return bool(pairs_in(file.names, file.options))

    def read(self, file: Opened) -> Scores:
        reading = _Reading(file, pairs_in(file.names, file.options))
        reading.check_other_columns()
        found = from_pairs(file.path, reading.pairs(), about=reading.about)
        carried = {name: cells for name, cells in found.carried.items() if name not in reading.differs}
        described = {name: cells for name, cells in reading.described.items() if name not in reading.differs}
        return replace(found, carried=carried, described=described)


def pairs_in(names: Sequence[str], options: Options) -> list[Columns]:
    """The columns of a class and its score: one pair, or one per rank side by side (top1, score1, top2, score2)."""
    left_out = {name.casefold() for name in options.ignore_columns}
    found: dict[str, list[int]] = defaultdict(list)  # by the name without its rank
    for at, name in enumerate(name.strip().casefold() for name in names):
        found["" if name in left_out else _RANK.sub("", name) or "top"].append(at)
    wanted = _RANK.sub("", (options.label_column or "class").casefold())
    of_class = _first(found, (wanted, *CLASS_NAMES, *_ANSWER_NAMES))
    of_score = _first(found, _SCORE_NAMES)
    if len(of_class) != len(of_score):  # other columns have numbers, too
        of_class = [at for at in of_class if not _RANK.search(names[at])]
        of_score = [at for at in of_score if not _RANK.search(names[at])]
    return [Columns(name, score) for name, score in zip(of_class, of_score, strict=False)]


def _first(found: dict[str, list[int]], names: Sequence[str]) -> list[int]:
    """The columns of the first name that there is."""
    return next((found[name] for name in names if name in found), [])


@dataclass
class _Reading:
    """A table that is being read."""

    file: Opened
    columns: Sequence[Columns]
    about: dict[str, dict[str, Any]] = field(default_factory=dict)  # item -> column -> cell
    described: dict[str, dict[str, str]] = field(default_factory=dict)  # column -> class -> text
    differs: set[str] = field(default_factory=set)  # columns with two cells for one item or class

    def check_other_columns(self) -> None:
        """Refuse a table whose classes have columns of numbers, too: the class may be the true one."""
        table = self.file.table
        among = {_text(cell) for both in self.columns for cell in table.sample(both.name)}
        among -= {*self.file.options.ignore_columns}
        scores = [name for at, name in enumerate(table.names) if name in among and _is_numeric(table.sample(at))]
        if len(scores) > ("" not in among):  # labels of some rows, perhaps
            score = table.names[self.columns[0].score]
            both = f"has columns named like classes ({listed(scores, 4)}), and '{score}' beside one class"
            raise InputError(f"{self.file.path} {both}; leave '{score}' or the others out with `ignore_columns`.")

    def pairs(self) -> Iterator[Pair]:
        """The pairs of all rows; columns of other use are collected on the way."""
        path = self.file.path
        names = self.file.table.names
        of_item = self._item_column(names)
        used = {of_item, *(at for both in self.columns for at in both)}
        others = [at for at in range(len(names)) if at not in used]
        for place, cells in self.file.table.rows():
            item = _text(cells[of_item])
            classes = [_text(cells[both.name]) for both in self.columns]
            for at in others:
                self._note(names[at], cells[at], item, classes)
            for rank, (name, both) in enumerate(zip(classes, self.columns, strict=True)):
                if name or rank == 0:  # there may be fewer answers than in other rows
                    cell = cells[both.score]
                    score = as_number(path, place, names[both.score], cell, lowest=-inf)  # of 0 as a logarithm
                    yield Pair(place, item, name, score)

    def _item_column(self, names: Sequence[str]) -> int:
        ids = [name for name in names if is_id(name)]
        wanted = [self.file.options.item_column or "item", *(ids if len(ids) == 1 else [])]
        found = find_any(names, *wanted)
        if found is None:
            has = f"has the columns {listed(names)}"
            raise InputError(f"{self.file.path} {has}; name that of the items with `item_column`.")
        return found

    def _note(self, column: str, cell: Any, item: str, classes: Sequence[str]) -> None:
        """Keep a cell as one that says more about the class, or about the item."""
        if _OF_CLASS.search(column) and len(classes) == 1:
            cell = str(cell or "")
            known = self.described.setdefault(column, {}).setdefault(classes[0].strip(), cell)
        else:
            known = self.about.setdefault(item, {}).setdefault(column, cell)
        if known != cell:
            self.differs.add(column)


def _is_numeric(cells: Sequence[Any]) -> bool:
    filled = [cell for cell in cells if not missing(cell)]
    return bool(filled) and all(map(is_number_like, filled))


def _text(cell: Any) -> str:
    return "" if missing(cell) else str(cell)
