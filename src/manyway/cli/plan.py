"""What ``manyway label --dry-run`` says."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from manyway.cli.console import NOTES, say, without_folder
from manyway.errors import counted


@dataclass(frozen=True)
class Part:
    """Examples, items, or names of classes, in one file."""

    path: str
    what: str
    rows: int
    classes: int | None = None
    features: int | None = None

    def __str__(self) -> str:
        words = f"{self.path}: {self.rows} {self.what}"
        if self.classes is not None:
            words += f" of {counted(self.classes, 'class', 'classes')}"
        if self.features is not None:
            words += f", {counted(self.features, 'feature')} each"
        return words


@dataclass(frozen=True)
class Plan:
    """What a run would read.

    Parameters
    ----------
    parts : sequence of Part
    seconds : float
        How long reading takes and, with an encoder, encoding of everything.
    encoder : str, optional
    """

    parts: Sequence[Part]
    seconds: float
    encoder: str | None = None

    def lines(self) -> Iterator[str]:
        """The plan for people.

        >>> [*Plan([Part("a.csv", "items", 40, features=3)], seconds=0.1).lines()][0]
        'a.csv: 40 items, 3 features each'
        """
        yield from map(str, self.parts)
        if self.encoder is None:
            yield f"Reading took {self.seconds:.1f} s; nothing was labelled or written."
            return
        time = _in_words(self.seconds)
        yield f"Encoding with {self.encoder} takes about {time} where nothing is kept of an earlier run."
        yield "Nothing was labelled or written."

    def json(self) -> str:
        """The plan for programs, with what was noted."""
        return without_folder(
            json.dumps({"plan": asdict(self), "notes": NOTES.get() or []}, ensure_ascii=False)
        )


def print_plan(plan: Plan, *, as_json: bool) -> None:
    """Print a plan on standard output."""
    if as_json:
        print(plan.json())
        return
    for line in plan.lines():
        say(without_folder(line))


def _in_words(seconds: float) -> str:
    """A duration for people.

    >>> _in_words(0.4), _in_words(90), _in_words(9000)
    ('a second', '90 seconds', '150 minutes')
    """
    if seconds < 1.5:
        return "a second"
    return f"{seconds:.0f} seconds" if seconds < 100 else f"{seconds / 60:.0f} minutes"
