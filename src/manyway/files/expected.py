"""A list of classes that are expected, such as the species of a region, and which of the scores it means."""

import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from manyway.errors import InputError, few
from manyway.files.score_files import values_of_classes
from manyway.files.scores import SCIENTIFIC, Scores, short_name
from manyway.files.text import listed, read_lines, shorten, suffix_of

_HOW_LIKELY = ("probability", "likelihood", "likely", "prior", "frequency", "count", "n")
_NO_LETTERS = re.compile(r"[^\w]+|_+")
_NEAR = 0.6  # names that are less alike than this are not the same with a slip of the pen
_SAID = 8  # so many names are said one by one
_MOST = 0.5  # a list that lacks the answers for more than this share of the items may be of another place


class Expected(NamedTuple):
    """What a list says about the classes of some scores.

    Parameters
    ----------
    likely : dict of str to float
        How likely each listed class is, in the unit of the list; 1 where the list does not say it.
    unknown : dict of str to (str or None)
        The names that are no class, with the class that is called most alike; None where none is.
    notes : tuple of str
        What there is to say about the list.
    """

    likely: Mapping[str, float]
    unknown: Mapping[str, str | None]
    notes: tuple[str, ...] = ()

    def without_effect(self, n_classes: int) -> str:
        """What is said of a list that tells nothing about so many classes; empty of any other.

        >>> Expected({"ant": 1, "bee": 1}, {}).without_effect(4)
        'the list has 2 of 4 classes, all alike: half of them or more say nothing, and labels are as without it'
        >>> Expected({"ant": 1, "bee": 2}, {}).without_effect(4), Expected({"ant": 1}, {}).without_effect(4)
        ('', '')
        """
        values = [value for value in self.likely.values() if value > 0]
        if 2 * len(values) < n_classes or len({*values}) > 1:
            return ""
        said = f"the list has {len(values)} of {n_classes} classes, all alike"
        return f"{said}: half of them or more say nothing, and labels are as without it"


def read_expected(path: str | Path, scores: Scores) -> Expected:
    """The classes of some scores that a list expects, and how likely each is.

    Parameters
    ----------
    path : path-like
        A table with the column ``class`` (or ``species``) and optionally ``probability`` (or ``likelihood``,
        ``frequency``, ``count``), or a .txt file with one class per line, such as BirdNET's lists
        (``Turdus merula_Eurasian Blackbird``). Classes go by their name or their scientific name; case, accents,
        hyphens and blanks do not matter.
    scores : Scores
        The scores.

    Returns
    -------
    Expected
    """
    path = Path(path)
    called = {plain_name(name): name for name in scores.classes}
    for name, scientific in scores.described.get(SCIENTIFIC, {}).items():
        if scientific:
            called.setdefault(plain_name(scientific), name)
    likely: dict[str, float] = {}
    unknown: dict[str, str | None] = {}
    for place, name, value in _lines(path):
        if value < 0:
            raise InputError(f"{path} has {value:g} for the class {shorten(name)} in {place}; it must not be negative.")
        spellings = [plain_name(one) for one in (name, short_name(name), *name.split("_", 1))]
        known = next((called[one] for one in spellings if one in called), None)
        if known is None:
            near = difflib.get_close_matches(spellings[1], called, n=1, cutoff=_NEAR)
            unknown[name] = called[near[0]] if near else None
        else:
            likely[known] = max(value, likely.get(known, 0.0))
    if not any(likely.values()):
        hint = _near_ones(unknown) or f"such as {listed(scores.classes, 3)}; check the names"
        raise InputError(f"{path} lists no class of the scores, {hint}.")
    notes = (*_remarks_on_names(path, unknown), *_remarks_on_answers(path, likely, scores))
    return Expected(likely, unknown, notes)


def plain_name(name: str) -> str:
    """What is left of a name when its spelling does not matter.

    >>> plain_name("Yellow-throated  Vireo") == plain_name("yellow throated vireo"), plain_name("Grünfink")
    (True, 'grunfink')
    """
    letters = unicodedata.normalize("NFKD", name.casefold())
    bare = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return _NO_LETTERS.sub(" ", bare.replace("'", "").replace("’", "")).strip()


def _lines(path: Path) -> Iterator[tuple[str, str, float]]:
    """Place, class and how likely it is, of each line of a list."""
    if suffix_of(path) != ".txt":
        yield from values_of_classes(path, *_HOW_LIKELY)
        return
    for number, line in read_lines(path):
        if line.strip():
            yield f"line {number}", line.strip(), 1.0


def _near_ones(unknown: Mapping[str, str | None]) -> str:
    """Names that are no class beside those that may be meant."""
    pairs = [f"{shorten(name)} (did you mean '{near}'?)" for name, near in unknown.items() if near is not None]
    return few(pairs, _SAID)


def _remarks_on_names(path: Path, unknown: Mapping[str, str | None]) -> list[str]:
    """What there is to say about names that match no class."""
    notes = []
    near = _near_ones(unknown)
    if near:
        notes.append(f"{path.name} has names that are no class of the scores: {near}")
    others = [name for name, meant in unknown.items() if meant is None]
    if others:
        number = len(others)
        what = "a name that is" if number == 1 else f"{number} names that are"
        notes.append(f"{path.name} has {what} like no class of the scores: {listed(others, 3)}")
    return notes


def _remarks_on_answers(path: Path, likely: Mapping[str, float], scores: Scores) -> list[str]:
    """What there is to say about a list that lacks most of what the classifier answers."""
    if not len(scores):
        return []
    best = np.nan_to_num(scores.values, nan=-np.inf).argmax(1).tolist()
    answered = Counter(scores.classes[at] for at in best)
    lacking = Counter({name: count for name, count in answered.items() if not likely.get(name)})
    share = lacking.total() / answered.total()
    if share <= _MOST:
        return []
    names = listed([name for name, _ in lacking.most_common()], 3)
    return [
        f"{path.name} lacks what the classifier answers for {share:.0%} of the items, such as {names}; "
        "is it the right list?"
    ]
