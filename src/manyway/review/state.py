"""What is known in a review: answers, comments, suggestions, and what can be taken back.

It has no files and no threads.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from manyway.core import Solution
from manyway.labelling.remarks import remark_on_shift
from manyway.review.audit import RISK, Check, RandomCheck
from manyway.review.data import ReviewData
from manyway.review.relabel import SUGGESTIONS

OPEN = -2  # the answer of an item that has none
NO_CLASS = -1  # the answer of an unknown item
ALL = "all"  # a check of a part of all labels
REST = "rest"  # a check of a part of the labels without an answer
TOLERANCES = (0.01, 0.02, 0.05, 0.1)  # parts of wrong labels that a check is offered for
ENOUGH = 0.99  # the expected proportion of right labels at which the page proposes a check
_PRESENT = 0.05  # classes that occur with less probability are not listed
_JUMP = 0.1  # a change of the expected errors by more than this part is explained
_A_FEW = 3  # answers
_FEWEST = 1.0  # errors: smaller changes are not worth a sentence
_SURER = 0.02  # a change of a probability that counts
_NOTABLE = 0.02  # a change of how sure a classifier is that counts, as a part


class Said(NamedTuple):
    """What an action has done, in one sentence, and the items that it was about."""

    sentence: str
    rows: tuple[int, ...] = ()


class Undoable(Protocol):
    """An action that can be taken back and done again; `manyway.review.actions` has them."""

    @property
    def key(self) -> str:
        """What the sender calls it."""

    def undo(self, state: "State", before: Mapping[int, Any]) -> None:
        """Give its items what they had before."""

    def repeat(self, state: "State") -> None:
        """Do it again."""

    def say(self, state: "State") -> Said:
        """What it has done."""


class Done(NamedTuple):
    """An action that was done, and what its items had before."""

    action: Undoable
    before: Mapping[int, Any]


class Choice(NamedTuple):
    """The class of an item that holds now, by answer or suggestion, and its probability."""

    number: int
    probability: float


class Offer(NamedTuple):
    """A random check that could begin.

    Parameters
    ----------
    tolerance : float
        The part of the labels that may be wrong.
    of : {"all", "rest"}
        What it is a part of.
    answers : int
        About how many answers it takes if all labels are right.
    early : bool
        Whether more wrong labels are expected than are tolerated.
    """

    tolerance: float
    of: str
    answers: int
    early: bool


@dataclass(frozen=True)
class Suggestions:
    """What a method has found for the items with features.

    Parameters
    ----------
    best : list of list of int
        The numbers of the most probable classes of each item.
    probabilities : list of list of float
        Their probabilities.
    unknown : list of float
        The probability that an item is unknown.
    groups : list of int
        The group of an item that is suggested to be unknown; -1 for the others.
    """

    best: list[list[int]]
    probabilities: list[list[float]]
    unknown: list[float]
    groups: list[int]

    @classmethod
    def of(cls, found: Solution, numbers: list[int]) -> "Suggestions":
        """From a solution, whose classes have these numbers in the review."""
        values, places, *more = found.top(SUGGESTIONS).best.values
        n_items = values.shape[1]
        unknown = more[0][0].tolist() if more else [0.0] * n_items
        groups = more[1][0].tolist() if more else [-1] * n_items
        best = [[numbers[k] for k in chosen] for chosen in places[0].tolist()]
        return cls(best=best, probabilities=values[0].tolist(), unknown=unknown, groups=groups)


@dataclass
class _Moves:
    """What an answer has changed about the other items."""

    relabelled: int = 0
    surer: int = 0
    less_sure: int = 0

    def sentence(self) -> str:
        """The counts in words."""
        labels = f"{self.relabelled:,} items have another label"
        if self.relabelled == 1:
            labels = "1 item has another label"
        return f"{labels}, {self.surer:,} are surer and {self.less_sure:,} less sure"


class State:
    """A review at one moment.

    ``version`` grows with every change, so that a page can ask what has changed since it last
    looked.

    Parameters
    ----------
    data : ReviewData
        What is reviewed.
    classes : list of str
        The classes that are known before the review.
    """

    def __init__(self, data: ReviewData, classes: list[str]) -> None:
        n_items = len(data.names)
        self.data = data
        self.classes = classes
        self.n_catalogue = len(classes)
        # Names that differ are two classes.
        self._number = {name: k for k, name in enumerate(classes)}
        self.answers = [OPEN] * n_items
        self.comments = [""] * n_items
        # What is suggested.
        self.best: list[list[int]] = [[] for _ in range(n_items)]  # classes, most probable first
        self.probabilities: list[list[float]] = [[] for _ in range(n_items)]
        self.unknown = [0.0] * n_items  # the probability of being unknown
        self.groups = [-1] * n_items  # of items that are suggested to be unknown
        self.n_groups = 0  # numbers of groups that were given away
        self.was = [-1] * n_items  # the class that was suggested before the last change
        self.order: tuple[int, ...] = ()  # items, the most useful answer first
        self.presence: list[tuple[int, float]] = []  # classes with the probability that they occur
        self.told: dict[str, float] = {}  # what the method tells about the batch
        self.explained = ""  # why other errors are expected than before
        # What can be taken back, and what was.
        self.done: list[Done] = []
        self.undone: list[Undoable] = []
        # The random check.
        self.check: RandomCheck | None = None  # while one is going on, labels stay as they are
        self.risk = RISK  # of the next check
        self.shown_by_check = ""  # what the last check has shown
        self.version = 1
        self.changed = [1] * n_items  # the version at which an item last changed

    def label_now(self) -> None:
        """Label the items again with all answers so far."""
        raise NotImplementedError

    # --- classes and answers

    def has_class(self, name: str) -> bool:
        """Whether there is a class of this name."""
        return name in self._number

    def class_number(self, name: str) -> int:
        """The number of a class; a name that is new makes one."""
        if name not in self._number:
            self._number[name] = len(self.classes)
            self.classes.append(name)
        return self._number[name]

    def write(self, column: list[Any], new: Mapping[int, Any]) -> None:
        """Give items new answers or comments."""
        self.version += 1
        for row, value in new.items():
            column[row] = value
            self.changed[row] = self.version

    def forget_done(self) -> None:
        """Let nothing that was done before be taken back."""
        self.done.clear()
        self.undone.clear()

    @property
    def known(self) -> dict[int, str | None]:
        """The answers for items with features: a class, or None for unknown."""
        found: dict[int, str | None] = {}
        for row, answer in enumerate(self.answers_of_items):
            if answer == NO_CLASS:
                found[row] = None
            elif answer != OPEN:
                found[row] = self.classes[answer]
        return found

    @property
    def answers_of_items(self) -> list[int]:
        """The answers of items with features: the others have no labels that could be wrong."""
        return self.answers[: len(self.data.items)]

    def chosen(self, row: int) -> Choice:
        """The class of an item that holds now, by answer or suggestion."""
        if self.answers[row] != OPEN:
            return Choice(self.answers[row], 1.0)
        if self.groups[row] >= 0 or not self.best[row]:
            return Choice(NO_CLASS, self.unknown[row])
        return Choice(self.best[row][0], self.probabilities[row][0])

    def expected_errors(self, n_items: int | None = None) -> float:
        """How many labels without an answer are expected to be wrong.

        They are counted among the first items or among all.
        """
        answers = self.answers[:n_items]
        return sum(1.0 - self.chosen(row).probability for row, k in enumerate(answers) if k == OPEN)

    def progress(self) -> dict[str, Any]:
        """How far the review is.

        It has the items reviewed, the errors expected among the others, and the expected proportion
        right.
        """
        n_items = len(self.answers)
        errors = self.expected_errors()
        check = None
        if self.check is not None:
            check = self.check.progress(self.answers_of_items, OPEN)._asdict()
        return {
            "items": n_items,
            "reviewed": n_items - self.answers.count(OPEN),
            "errors": round(errors, 2),
            "right": round(1.0 - errors / n_items, 4),
            "enough": ENOUGH,
            "explained": self.explained,
            "differs": self._differs(),
            "check": check,
            "shown_by_check": self.shown_by_check,
        }

    def _differs(self) -> str:
        """That items differ from the examples, until a few answers say what to make of it."""
        n_answers = len(self.answers) - self.answers.count(OPEN)
        if n_answers >= _A_FEW:
            return ""
        return remark_on_shift(self.told) or ""

    # --- the random check

    def begin_check(self, tolerance: float, of: str, seed: str) -> None:
        """Begin a check of the labels of all answers so far, also where a journal is repeated."""
        self.label_now()
        answers = enumerate(self.answers_of_items)
        labels = {row: self.chosen(row).number for row, answer in answers if answer == OPEN}
        check = self._new_check(tolerance, of)
        self.check = RandomCheck.begin(check, labels, len(self.classes), seed)
        self.shown_by_check = ""
        self.version += 1

    def end_check(self) -> None:
        """End the check; keep its statement, and the risk that it leaves to the next one."""
        assert self.check is not None
        progress = self.check.progress(self.answers_of_items, OPEN)
        self.risk = self.check.check.next_risk(progress.asked, progress.wrong)
        self.shown_by_check = progress.sentence()
        self.check = None
        self.version += 1

    def offers(self) -> list[Offer]:
        """The checks that could begin. A looser one is offered only where it takes fewer answers."""
        answers = self.answers_of_items
        expected = self.expected_errors(len(answers))
        found = []
        for of, n_labels in ((ALL, len(answers)), (REST, answers.count(OPEN))):
            fewest = len(answers) + 1
            for tolerance in TOLERANCES:
                needed = self._new_check(tolerance, of).left(0, 0)
                if needed < fewest:
                    early = expected > tolerance * n_labels
                    found.append(Offer(tolerance, of, needed, early))
                    fewest = needed
        return found

    def _new_check(self, tolerance: float, of: str) -> Check:
        answers = self.answers_of_items
        n_labels = len(answers) if of == ALL else 0
        return Check.planned(answers.count(OPEN), tolerance, self.risk, n_labels, TOLERANCES)

    # --- suggestions

    def take(self, classes: tuple[str, ...], found: Solution, known: Container[int]) -> None:
        """Take what a method has found, given the answers for some items.

        It says nothing about these items, of which some may have been opened again since.
        """
        self.version += 1
        numbers = [self._number[name] for name in classes]
        there = found.presence[0]
        likely = (there >= _PRESENT).nonzero().flatten().tolist()
        self.presence = [(numbers[k], round(float(there[k]), 3)) for k in likely]
        new = Suggestions.of(found, numbers)
        renumbered = self._renumbered(new.groups)
        errors = self.expected_errors(len(self.data.items))
        moves = _Moves()
        for row in range(len(self.data.items)):
            # Its last suggestions stay, in case it is opened again.
            if self.answers[row] != OPEN or row in known:
                if self.was[row] >= 0:
                    self.was[row] = -1
                    self.changed[row] = self.version
                continue
            had_suggestion = bool(self.best[row])
            before = self.chosen(row)
            old = self.page_row(row)
            self.best[row] = new.best[row]
            self.probabilities[row] = new.probabilities[row]
            self.unknown[row] = new.unknown[row]
            self.groups[row] = renumbered[row]
            now = self.chosen(row)
            differs = had_suggestion and before.number != now.number
            self.was[row] = before.number if differs and before.number >= 0 else -1
            moves.relabelled += self.was[row] >= 0
            moves.surer += now.probability > before.probability + _SURER
            moves.less_sure += now.probability < before.probability - _SURER
            if self.page_row(row) != old:
                self.changed[row] = self.version
        told = {name: float(value[0]) for name, value in found.told.items()}
        self.explained = self._explain(errors, told, moves)
        self.told = told

    def take_order(self, scores: Tensor) -> None:
        """Take how useful an answer for each item is; negative for items that have one."""
        order = scores.argsort(descending=True, stable=True)
        self.order = tuple(order[: int((scores >= 0).sum())].tolist())
        self.version += 1

    def page_row(self, row: int) -> list[Any]:
        """What a page is told about an item."""
        flat: list[int] = []
        for number, probability in zip(self.best[row], self.probabilities[row], strict=True):
            flat += [number, round(1000 * probability)]
        unknown = round(1000 * self.unknown[row])
        told = [row, self.answers[row], self.was[row], self.groups[row]]
        return [*told, flat, unknown, self.comments[row]]

    def _renumbered(self, groups: list[int]) -> list[int]:
        """New groups with the numbers of the earlier groups that they share most items with.

        A method numbers its groups anew with every answer. On the page and in a table, a group
        keeps its number.
        """
        shared: dict[tuple[int, int], int] = {}
        for row, new in enumerate(groups):
            old = self.groups[row]
            if new >= 0 and old >= 0:
                shared[new, old] = shared.get((new, old), 0) + 1
        numbers: dict[int, int] = {}
        for new, old in sorted(shared, key=lambda pair: (-shared[pair], pair)):
            if new not in numbers and old not in numbers.values():
                numbers[new] = old
        for new in sorted({group for group in groups if group >= 0} - set(numbers)):
            numbers[new] = self.n_groups
            self.n_groups += 1
        return [numbers.get(group, -1) for group in groups]

    def _explain(self, before: float, told: Mapping[str, float], moves: _Moves) -> str:
        """Why many more or fewer errors are expected than before.

        Nothing where the change is small.
        """
        now = self.expected_errors(len(self.data.items))
        if abs(now - before) <= max(_JUMP * before, _FEWEST):
            return ""
        why = moves.sentence()
        was = self.told.get("temperature")
        if was is not None and abs(told["temperature"] / was - 1) > _NOTABLE:
            often = "more" if told["temperature"] > was else "less"
            why = (
                f"the answers say that the classifier is wrong {often} often than it seemed; {why}"
            )
        return f"{now:,.0f} errors are expected, {before:,.0f} before: {why}."
