"""What an examination found, as values with names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import exp
from typing import Any

from manyway.errors import counted, optional

# up to this ratio items are no farther from the class means than left-out examples
LIKE_EXAMPLES = 1.1
FAR_FROM_EXAMPLES = 1.5


def probability_of(log_odds: float) -> float:
    """The probability with these log-odds.

    >>> probability_of(0.0), probability_of(-1000.0)
    (0.5, 0.0)
    """
    if log_odds >= 0:
        return 1 / (1 + exp(-log_odds))
    return exp(log_odds) / (1 + exp(log_odds))


@dataclass(frozen=True, kw_only=True)
class BatchForecast:
    """How many items of a batch will be right."""

    n_present: int  # classes that occur in the batch
    n_items: int
    accuracy: float  # the expected share of items with the right label
    low: float  # and between which shares it is in 90 % of such batches
    high: float
    # the learning curve: examples per class, and accuracy with them
    measured: tuple[tuple[int, float], ...]
    # the same with as many examples as now, and with more: extrapolated
    further: tuple[tuple[int, float], ...]

    @property
    def gain(self) -> float:
        """What one further example of every class would add to the accuracy."""
        return self.further[1][1] - self.further[0][1]


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """A class that another is mistaken for."""

    name: str
    share: float  # of the items of the class


@dataclass(frozen=True, kw_only=True)
class ClassForecast:
    """What can be expected of a class."""

    name: str
    n_examples: int
    found: float | None  # the share of its items that get its label; None: one example cannot tell
    confused_with: tuple[Confusion, ...]
    n_suspects: int


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """An example that looks mislabelled."""

    row: int
    item: str
    label: str
    looks_like: str
    probability: float  # that the label is wrong


@dataclass(frozen=True, kw_only=True)
class NearCopies:
    """Two examples that are nearly the same."""

    rows: tuple[int, int]
    items: tuple[str, str]
    labels: tuple[str, str]

    @property
    def contradict(self) -> bool:
        """Whether they have different labels."""
        return self.labels[0] != self.labels[1]


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """What the method got right when examples were held out in batches."""

    n_batches: int
    n_items: int
    n_right: int


@dataclass(frozen=True, kw_only=True)
class ShiftEstimate:
    """How far items are from the examples.

    The mean squared distance of the items from the means of the classes that they are expected to be of, divided by
    that of left-out examples from their own.
    """

    ratio: float
    n_items: int

    @property
    def sentence(self) -> str:
        """What it means."""
        if self.ratio <= LIKE_EXAMPLES:
            return f"The items look like the examples (distance {self.ratio:.2f} of that among examples)."
        if self.ratio <= FAR_FROM_EXAMPLES:
            return (
                f"The items differ somewhat from the examples (distance {self.ratio:.2f} of that among examples): "
                "expect fewer right labels than this page says."
            )
        return (
            f"The items differ much from the examples (distance {self.ratio:.2f} of that among examples): what this "
            "page says does not hold for them. Take examples from the same source as the items."
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Examination:
    """What labelled examples can do.

    Parameters
    ----------
    n_examples, n_classes : int
    examples_per_class : tuple of int
        The least, the median and the largest number of examples of a class.
    batches : tuple of BatchForecast
        How many items of batches will be right. They are about the classes that have a second example.
    too_many : tuple of int
        The numbers of classes in a batch about which nothing can be said: fewer classes have a second example.
    classes : tuple of ClassForecast
        All classes, those that need examples most first.
    suspects : tuple of Suspect
        Examples that are more probably mislabelled than not, the most suspicious first.
    log_odds : tuple of (float or None)
        ln of the odds that each example is mislabelled; None for the only example of a class.
    looks_like : tuple of str
        The class that each example looks most like to the others.
    copies : tuple of NearCopies
    wrong_labels : float
        The share of wrong labels for which the given labels are most probable.
    rehearsal : Rehearsal
    shift : ShiftEstimate or None
        How far the items are from the examples, where there are items and enough classes have a second example.
    names, labels : tuple of str
        The name and the label of each example.

    Examples
    --------
    >>> from manyway import examine
    >>> X = [[0.0, 0.1], [0.1, 0.0], [0.0, 0.2], [5.0, 5.1], [5.1, 5.0], [5.0, 4.9]]
    >>> examine(X, ["ant", "ant", "ant", "bee", "bee", "bee"])
    Examination(n_examples=6, n_classes=2, suspects=0, copies=0)
    """

    n_examples: int
    n_classes: int
    examples_per_class: tuple[int, int, int]
    batches: tuple[BatchForecast, ...]
    too_many: tuple[int, ...]
    classes: tuple[ClassForecast, ...]
    suspects: tuple[Suspect, ...]
    log_odds: tuple[float | None, ...]
    looks_like: tuple[str, ...]
    copies: tuple[NearCopies, ...]
    wrong_labels: float
    rehearsal: Rehearsal
    shift: ShiftEstimate | None
    names: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def probabilities(self) -> tuple[float | None, ...]:
        """The probability that each example is mislabelled; None for the only example of a class."""
        return tuple(None if odds is None else probability_of(odds) for odds in self.log_odds)

    @property
    def next_classes(self) -> tuple[str, ...]:
        """The classes of which further examples would help most, at most ten."""
        wanting = [
            one.name
            for one in self.classes
            if one.found is None or one.found < 0.95 or one.n_examples < 3
        ]
        return tuple(wanting[:10])

    @property
    def single_classes(self) -> tuple[str, ...]:
        """The classes with one example, which cannot be judged."""
        return tuple(one.name for one in self.classes if one.n_examples == 1)

    @property
    def twins(self) -> tuple[tuple[str, str, float], ...]:
        """Pairs of classes that are taken for each other, with the share of items; the worst first."""
        shares: dict[tuple[str, str], float] = {}
        for one in self.classes:
            for other in one.confused_with:
                pair = (min(one.name, other.name), max(one.name, other.name))
                shares[pair] = shares.get(pair, 0.0) + other.share / 2
        worst = sorted(shares.items(), key=lambda each: -each[1])
        return tuple((first, second, share) for (first, second), share in worst)

    def rows(self) -> list[dict[str, Any]]:
        """The table for scripts: a row per example."""
        copy_of: dict[int, str] = {}
        for pair in self.copies:
            copy_of.setdefault(pair.rows[1], pair.items[0])
        suspects = {one.row for one in self.suspects}
        probabilities = self.probabilities
        found = []
        for row, (item, label) in enumerate(zip(self.names, self.labels, strict=True)):
            probability = probabilities[row]
            found.append(
                {
                    "item": item,
                    "label": label,
                    "looks_like": self.looks_like[row],
                    "probability_wrong": None if probability is None else round(probability, 4),
                    "suspect": "yes" if row in suspects else "",
                    "copy_of": copy_of.get(row, ""),
                }
            )
        return found

    def to_frame(self) -> Any:
        """The same as a pandas table.

        Returns
        -------
        pandas.DataFrame
        """
        pandas = optional("pandas", "tables", "to_frame")
        return pandas.DataFrame(self.rows())

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        found = asdict(self)
        for name in ("names", "labels", "log_odds", "looks_like"):
            del found[name]
        found["examples"] = self.rows()
        found["next_classes"] = list(self.next_classes)
        return found

    def sentences(self) -> list[str]:
        """What matters most, in a few sentences."""
        return _sentences(self)

    def __repr__(self) -> str:
        return (
            f"Examination(n_examples={self.n_examples}, n_classes={self.n_classes}, suspects={len(self.suspects)}, "
            f"copies={len(self.copies)})"
        )

    def __str__(self) -> str:
        return "\n".join(self.sentences())


def _sentences(found: Examination) -> list[str]:
    """See ``Examination.sentences``."""
    least, median, most = found.examples_per_class
    range_of = f"{least}" if least == most else f"{least} to {most}, mostly {median},"
    lines = [f"{found.n_examples} examples of {found.n_classes} classes, {range_of} per class."]
    if most == 1:
        lines.append("One example per class cannot tell how many labels will be right; two would.")
    having = " with two examples or more" if found.single_classes else ""
    for batch in found.batches:
        lines.append(
            f"{counted(batch.n_items, 'item')} of {counted(batch.n_present, 'class', 'classes')}"
            f"{having}: {batch.accuracy:.0%} right "
            f"({batch.low:.0%} to {batch.high:.0%} in 90 % of batches); with one more example of each class "
            f"{100 * batch.gain:+.1f} points."
        )
    if found.too_many:
        lines.append(_on_what_is_lacking(found))
    if found.rehearsal.n_batches:
        rehearsal = found.rehearsal
        lines.append(
            f"Rehearsed {counted(rehearsal.n_batches, 'time')} on your examples: {rehearsal.n_right} of "
            f"{rehearsal.n_items} held-out examples were labelled right."
        )
    lines += _on_labels(found)
    if found.next_classes:
        lines.append(f"More examples would help most for: {_listed(found.next_classes)}.")
    if found.shift is not None:
        lines.append(found.shift.sentence)
    return lines


def _on_what_is_lacking(found: Examination) -> str:
    """Why some batches have no forecast."""
    number = found.n_classes - len(found.single_classes)
    have = "class has" if number == 1 else "classes have"
    sizes = " or ".join(map(str, found.too_many))
    batches = f" for batches of {sizes} classes" if found.batches else ""
    return (
        f"Only {number} {have} a second example; give more classes two to get a forecast{batches}."
    )


def _on_labels(found: Examination) -> list[str]:
    """Sentences about suspects, copies and classes with one example."""
    lines = []
    can_judge = found.examples_per_class[2] > 1
    if found.suspects:
        number = len(found.suspects)
        looks = "looks" if number == 1 else "look"
        lines.append(f"{counted(number, 'example')} {looks} mislabelled.")
    elif can_judge:
        lines.append("No example looks mislabelled.")
    if found.copies:
        lines.append(_on_copies(found.copies))
    if found.single_classes and can_judge:
        lines.append(
            f"One example only, so nothing is known about it: {_listed(found.single_classes)}."
        )
    return lines


def _on_copies(copies: Sequence[NearCopies]) -> str:
    """A sentence about pairs of examples that are nearly the same."""
    contradicting = sum(pair.contradict for pair in copies)
    of_them = "," if len(copies) == 1 else f"; {contradicting} of them"
    more = f"{of_them} with different labels" if contradicting else ""
    return f"{counted(len(copies), 'pair')} of examples are near-copies of each other{more}."


def _listed(names: Sequence[str], most: int = 6) -> str:
    """Some names in a sentence."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
