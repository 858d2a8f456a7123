"""Which classes were where in which night."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from manyway.files.formats.base import AnswerFormat, Answers
from manyway.files.formats.csv import Csv
from manyway.files.scores import Scores
from manyway.files.sightings import Sighting, Sightings, find_sightings

_HEADER = ("site", "night", "class", "items", "presence")
_LISTED = 0.5  # a class with at least this probability of presence is listed even if no item has its label
_SURE = 1 - 1e-12  # the logarithm of 0 is not finite


class _Night(NamedTuple):
    """A night, from noon to noon, at a site."""

    site: str
    day: str

    @classmethod
    def of(cls, seen: Sighting) -> "_Night | None":
        if seen.time is None:
            return None
        return cls(seen.site, (seen.time - timedelta(hours=12)).date().isoformat())


class Presence(AnswerFormat):
    """A table of site, night and class."""

    key = "presence"
    name = "presence per night"
    endings: ClassVar[tuple[str, ...]] = (".csv",)
    holds = "per site, night (noon to noon) and class: items, and the probability 1 − Π(1 − p) that it was there"
    needs_time = True

    def write(self, path: Path, answers: Answers) -> list[str]:
        assert isinstance(answers.items, Scores)
        seen = find_sightings(answers.items)
        Csv().write(path, _HEADER, _rows(answers, seen))
        return seen.notes()


def _rows(answers: Answers, seen: Sightings) -> Iterator[list[Any]]:
    """Site, night, class, the number of items with that label, and the probability that the class was there.

    With p_qk the probability of class k for the items q of a night, the probability is 1 − Π_q (1 − p_qk), and at most
    that of the class in the whole batch.
    """
    assert answers.probabilities is not None
    assert answers.presence is not None
    of_item = [_Night.of(each) for each in seen.items]
    of_other = [_Night.of(each) for each in seen.others]  # nights without an item count, too
    nights = {night: at for at, night in enumerate(dict.fromkeys(n for n in (*of_item, *of_other) if n is not None))}
    counted = Counter((of_item[label.number], label.name) for label in answers.labels)
    timed = [row for row, night in enumerate(of_item) if night is not None]
    places = [nights[night] for night in of_item if night is not None]
    p = answers.probabilities()[timed].astype(np.float64)
    log_absent = np.zeros((len(nights), p.shape[1]))
    np.add.at(log_absent, places, np.log1p(-np.minimum(p, _SURE)))
    there = np.minimum(np.abs(np.expm1(log_absent)), answers.presence)
    labelled = {name for _, name in counted}
    for k, name in enumerate(answers.classes):
        if name in labelled or bool((there[:, k] >= _LISTED).any()):
            for night in sorted(nights):
                yield [night.site, night.day, name, counted[night, name], float(there[nights[night], k])]
