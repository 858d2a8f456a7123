"""Scores of a classifier: one per item and class."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from manyway.errors import InputError
from manyway.files.formats.base import Answers, Label, Opened, Origin, WithAnswers
from manyway.files.json_text import as_name, as_object
from manyway.files.tables import LABEL_NAMES, as_number, missing
from manyway.files.text import shorten

_MOST_SCORES = 2**27  # items × classes; evidence needs about ten arrays of this size
BOX = ("box_x", "box_y", "box_width", "box_height")  # in parts of the picture, from its upper left corner
_RANKS = {"genus": 3, "family": 2, "order": 1, "taxonomic class": 0}
FILE, SOURCE, SCIENTIFIC = "file", "source", "scientific_name"  # columns that several formats have

CLASS_NAMES = ("class", "species", *LABEL_NAMES)  # of a column of classes
UNKNOWN = "unknown"  # the label of items of none of the classes
NO_SCORE = "all of its scores are 0"  # why an item is skipped
_HALF_A_DIGIT = 0.005


class Pair(NamedTuple):
    """The score of one class for one item."""

    place: str  # "line 3"
    item: str
    name: str
    score: float


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of a classifier for a batch of items.

    Parameters
    ----------
    values : ndarray of shape [n, k], float32
        One score per item and class. NaN: the item does not list the class.
    classes : tuple of str
        The possible classes.
    names : tuple of str
        The names of the items.
    labels : tuple of (str or None), optional
        The labels that are known.
    kind : str, default="auto"
        What the scores are, where the format says it; see `manyway.methods.scores.kinds.log_posteriors`.
    levels : mapping of str to mapping of str to str
        Groups of classes, finest level first: level -> class -> group. Where the format has a taxonomy.
    skipped : tuple of (str, str)
        Items without scores, with the reason.
    notes : tuple of str
        What the reader guessed, for the user to see.
    carried : mapping of str to sequence
        Columns that say more about each item. They come back in the table of labels.
    described : mapping of str to mapping of str to str
        Columns that say more about each class, such as its scientific name: column -> class -> text.
    independent : bool, default=False
        Whether each class has a yes-or-no score of its own, so that several may be right.
    origins : tuple of Origin
        The files of another program that the items come from, in the order of the items.
    others : tuple of mapping
        What else the files have: pictures, recordings and detections without a classification. Each has ``file``, and
        what is carried of items.
    """

    values: np.ndarray[Any, Any]
    classes: tuple[str, ...]
    names: tuple[str, ...]
    labels: tuple[str | None, ...] | None = None
    kind: str = "auto"
    levels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    skipped: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    carried: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    described: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    independent: bool = False
    origins: tuple[Origin, ...] = ()
    others: tuple[Mapping[str, Any], ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    def name(self, row: int) -> str:
        """The name of an item."""
        return self.names[row]

    def file(self, row: int) -> str:
        """The picture or recording that an item is in."""
        return str(self.carried[FILE][row]) if FILE in self.carried else self.names[row]

    def with_classes(self, classes: Sequence[str]) -> "Scores":
        """The same scores with columns for these classes, in this order; a class that is not here is listed nowhere."""
        if tuple(classes) == self.classes:
            return self
        place = {name: at for at, name in enumerate(self.classes)}
        check_size(len(self), len(classes))
        values = np.full((len(self), len(classes)), np.nan, np.float32)
        shared = [(at, place[name]) for at, name in enumerate(classes) if name in place]
        values[:, [at for at, _ in shared]] = self.values[:, [at for _, at in shared]]
        return replace(self, values=values, classes=tuple(classes))


def number_of(cell: Any) -> float | None:
    """A carried cell as a number, where it is one."""
    try:
        return None if cell is None else float(cell)
    except (TypeError, ValueError):
        return None


def box_of(cells: Mapping[str, Any]) -> tuple[float, ...] | None:
    """Left, top, width and height in some carried cells, in parts of the picture; None: all of it."""
    found = tuple(side for name in BOX if (side := number_of(cells.get(name))) is not None)
    return found if len(found) == len(BOX) else None


def from_pairs(
    path: Path,
    pairs: Iterable[Pair],
    classes: Iterable[str] = (),
    about: Mapping[str, Mapping[str, Any]] | None = None,
    **more: Any,
) -> Scores:
    """Scores from one record per item and class.

    ``classes`` are possible ones that need not occur; ``about`` has the carried cells of each item: item -> column.
    """
    items: dict[str, int] = {}
    columns: dict[str, int] = {}
    cells: dict[tuple[int, int], float] = {}
    for place, item, name, score in pairs:
        for what, value in (("item", item), ("class", name)):
            if missing(value):
                raise InputError(f"{path} has no {what} in {place}; every score needs an item and a class.")
        key = items.setdefault(item, len(items)), columns.setdefault(name.strip(), len(columns))
        if key in cells:
            twice = f"two scores of class {shorten(name)} for the item {shorten(item)} (the second in {place})"
            raise InputError(f"{path} has {twice}; remove one, or give the items different names.")
        cells[key] = score
    ordered = sorted({*columns, *classes})
    check_size(len(items), len(ordered))
    values = np.full((len(items), len(ordered)), np.nan, np.float32)
    if cells:
        place_of = {name: at for at, name in enumerate(ordered)}
        moved = np.array([place_of[name] for name in columns])
        rows, found = np.array(list(cells)).T
        values[rows, moved[found]] = list(cells.values())
    known = [(about or {}).get(item, {}) for item in items]
    carried = {name: [cells.get(name) for cells in known] for name in dict.fromkeys(name for c in known for name in c)}
    carried = {name: column for name, column in carried.items() if any(cell is not None for cell in column)}
    return Scores(values, tuple(ordered), tuple(items), carried=carried, **more)


_IN_BATCHES = "cut the items into batches that belong together, such as one camera or one week"


def check_size(n_items: int, n_classes: int, hint: str = _IN_BATCHES) -> None:
    """Refuse more scores than fit into memory."""
    if n_items * n_classes > _MOST_SCORES:
        raise InputError(f"{n_items} items and {n_classes} classes are too many to label at once; {hint}.")


def _ranks(label: str) -> list[str] | None:
    """Class, order, family, genus, species and common name of a label such as 'ID;mammalia;…;leo;lion', or None.

    >>> _ranks("animalia;chordata;mammalia;carnivora;canidae;vulpes vulpes")
    ['mammalia', 'carnivora', 'canidae', 'vulpes', 'vulpes', '']
    """
    parts = [part.strip() for part in label.split(";")]
    if parts[0].casefold() == "animalia":  # kingdom, phylum, class, order, family, and often a name in two words
        genus, _, species = parts[5].partition(" ") if len(parts) > 5 else ("", "", "")
        return [*(parts[2:5] + 3 * [""])[:3], *((genus, species) if species else ("", "")), ""]
    return parts[-6:] if len(parts) in (6, 7) else None


def short_name(label: str) -> str:
    """The common name in a label, or the finest name that it has."""
    ranks = _ranks(label) or 6 * [""]
    return ranks[5] or " ".join(filter(None, ranks[3:5])) or next(filter(None, reversed(ranks[:3])), label)


def taxonomy(labels: Mapping[str, str]) -> dict[str, Any]:
    """The levels that some label has, and scientific names: what `Scores` takes. ``labels``: class -> label."""
    ranks = {name: found for name, label in labels.items() if (found := _ranks(label))}
    levels = {level: {name: r[at] for name, r in ranks.items() if r[at]} for level, at in _RANKS.items()}
    finest = {name: " ".join(filter(None, r[3:5])) or r[2] or r[1] or r[0] for name, r in ranks.items()}
    scientific = {name: found[0].upper() + found[1:] for name, found in finest.items() if found}
    filled = {level: groups for level, groups in levels.items() if groups}
    return {"levels": filled, "described": {SCIENTIFIC: scientific} if scientific else {}}


def scientific_name(label: Label, answers: Answers) -> str:
    """The scientific name of what was answered; empty where none is known.

    A class of which only the family is known has no scientific name, unless it is called by that family.
    """
    if label.level:
        return label.name[:1].upper() + label.name[1:]
    found = answers.described.get(SCIENTIFIC, {}).get(label.name, "")
    genus = answers.levels.get("genus", {}).get(label.name, "")
    if not found and genus and label.name.casefold().startswith(f"{genus.casefold()} "):
        return label.name  # the class itself is called so
    is_finer = " " in found or (genus and found.casefold() == genus.casefold())
    return found if is_finer or found.casefold() in label.name.casefold() else ""


def shown_names(labels: Mapping[str, str]) -> dict[str, str]:
    """What classes are called, by the program's own keys: their common names, with the key where two have the same."""
    shown = {key: short_name(label) for key, label in labels.items()}
    counts = Counter(shown.values())
    return {key: f"{name} ({key})" if counts[name] > 1 else name for key, name in shown.items()}


def from_0_to_1(path: Path, place: str, name: str, cell: Any, what: str) -> float:
    """A cell of a column as a score of that kind, which must lie between 0 and 1."""
    found = as_number(path, place, name, cell)
    if not 0 <= found <= 1:
        raise InputError(f"{path} has the {what} {found:g} in {place}; {what}s go from 0 to 1.")
    return found


def kind_of(pairs: Sequence[Pair]) -> dict[str, Any]:
    """What scores are: where those of an item sum to more than 1, each class has a score of its own.

    Programs write two or three digits, so that the sum of probabilities can be above 1 by half a digit of each.
    """
    total: dict[str, float] = {}
    for pair in pairs:
        total[pair.item] = total.get(pair.item, 0.0) + max(pair.score - _HALF_A_DIGIT, 0.0)
    independent = any(value > 1 for value in total.values())
    return {"kind": "sigmoid" if independent else "probability", "independent": independent}


def detected(path: Path, place: str, detection: Any, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """What is carried of a detection: its kind, confidence and box."""
    found = as_object(path, place, detection)
    cells = {
        "detection": found.get("label", kinds.get(str(found.get("category")))),
        "detection_conf": found.get("conf"),
    }
    box = found.get("bbox")
    if isinstance(box, list) and len(box) == len(BOX) and all(isinstance(side, int | float) for side in box):
        cells |= dict(zip(BOX, map(float, box), strict=True))
    return cells


@dataclass
class Collected:
    """What the reader of a file has found so far."""

    path: Path
    pairs: list[Pair] = field(default_factory=list)  # by the program's own keys of classes
    about: dict[str, dict[str, Any]] = field(default_factory=dict)  # item -> carried column -> cell
    skipped: list[tuple[str, str]] = field(default_factory=list)
    others: list[dict[str, Any]] = field(default_factory=list)
    places: list[Any] = field(default_factory=list)  # where the answer of each item goes
    n_listed: int = 0

    def new(self, place: str, entry: Mapping[str, Any], what: str) -> str:
        """The name of an item, which must not have come before."""
        name = as_name(self.path, place, entry.get(what), what)
        if name in self.about:
            raise InputError(f"{self.path} has the {what} {shorten(name)} twice (again in {place}); remove one.")
        self.about[name] = {}
        return name

    def add(self, place: str, item: str, scores: Mapping[str, float]) -> None:
        """The scores of an item, by the program's own keys of classes."""
        self.pairs += [Pair(place, item, key, score) for key, score in scores.items()]

    def skip(self, item: str, why: str, **cells: Any) -> None:
        """An item without scores."""
        self.skipped.append((item, why))
        self.others.append({FILE: item, **cells})

    def scores(
        self,
        form: WithAnswers,
        places: Any,
        labels: Mapping[str, str],
        shown: Mapping[str, str],
        **more: Any,
    ) -> Scores:
        """All of it.

        ``places`` says to the format where answers go. ``labels`` and ``shown`` have the label with a taxonomy, and
        the shown name, of each key.
        """
        named = (pair._replace(name=shown[pair.name]) for pair in self.pairs)
        about = taxonomy({shown[key]: label for key, label in labels.items()})
        origin = Origin(self.path, len({pair.item for pair in self.pairs}), self.n_listed, form, places)
        collected = {"skipped": tuple(self.skipped), "others": tuple(self.others), "origins": (origin,)}
        return from_pairs(self.path, named, shown.values(), self.about, **{**about, **collected, **more})


class ScoreFormat(WithAnswers):
    """Scores of a classifier. Where `kept` is filled, answers are written into a copy of the file."""

    repeats: ClassVar[str] = ""  # the start of names of files that only repeat what others in a folder have

    def companions(self, path: Path) -> list[Path]:
        """Files that belong to a file, and are not read by themselves where both are in a folder."""
        return []

    def read(self, file: Opened) -> Scores:
        """Read the scores."""
        raise NotImplementedError
