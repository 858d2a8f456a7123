"""What the columns of answers are called in the table of a user, and which of a table are the newest."""

import itertools
import re
from collections.abc import Sequence
from operator import itemgetter

LABEL = "label"
PROBABILITY = "probability"
_FURTHER = ("label_2", "note")  # one of them stands beside all answers but those in a table of their own
TAKEN = "new_"  # in front of new columns, where the table has one of their names
_OWN_TABLE = ["item", LABEL, PROBABILITY]  # how a table begins that is none of the user
_WRITTEN = re.compile(
    r"probability|(label|probability)_\d+|unknown|group|note|reviewed|comment|answer|answer_probability|level"
)


def new_names(header: Sequence[str], taken: Sequence[str]) -> list[str]:
    """The names of new columns beside those of a table.

    >>> new_names(["label", "note"], ["id"]), new_names(["label", "note"], ["id", "Label"])
    (['label', 'note'], ['new_label', 'new_note'])
    """
    names = list(header)
    others = {name.casefold() for name in taken}
    while any(name.casefold() in others for name in names):
        names = [f"{TAKEN}{name}" for name in names]
    return names


def newest_answer(names: Sequence[str], column: str = LABEL) -> str | None:
    """A column of the newest answers in a table; None where none were written here.

    Other programs write a label and a probability, too: scores, with a row for each class. What is written here has
    further columns, or begins the table.

    >>> newest_answer(["item", "label", "probability"]), newest_answer(["file", "label", "probability"])
    ('label', None)
    >>> newest_answer(["id", "label", "new_label", "new_probability", "new_note"])
    'new_label'
    """
    newest = None
    prefix = ""
    while any(name.startswith(prefix) for name in names):
        if _has_answers(names, prefix):
            newest = f"{prefix}{column}"
        prefix += TAKEN
    return newest


def written_beside(names: Sequence[str]) -> set[str]:
    """The columns beside the label of answers that were written here: they say nothing about the items themselves.

    >>> sorted(written_beside(["item", "width", "label", "probability", "note", "level"]))
    ['level', 'note', 'probability']
    >>> written_beside(["item", "group", "label", "probability", "level"])
    set()
    """
    found = set[str]()
    prefix = ""
    while any(name.startswith(prefix) for name in names):
        after = list(names).index(f"{prefix}{LABEL}") + 1 if _has_answers(names, prefix) else len(names)
        written = (name.startswith(prefix) and _WRITTEN.fullmatch(name.removeprefix(prefix)) for name in names[after:])
        found.update(name for name, _ in itertools.takewhile(itemgetter(1), zip(names[after:], written, strict=True)))
        prefix += TAKEN
    return found


def _has_answers(names: Sequence[str], prefix: str) -> bool:
    """Whether there are answers whose columns have this in front of their names."""
    label = f"{prefix}{LABEL}"
    if label not in names:
        return False
    after = list(names).index(label) + 1
    has_probability = list(names[after : after + 1]) == [f"{prefix}{PROBABILITY}"]
    begins = not prefix and list(names[: len(_OWN_TABLE)]) == _OWN_TABLE
    has_further = any(f"{prefix}{name}" in names for name in _FURTHER)
    return has_probability and (begins or has_further)
