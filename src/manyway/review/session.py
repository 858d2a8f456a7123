"""A running review: items, suggestions, answers, and the actions that change them."""

import secrets
import threading
import unicodedata
from collections.abc import Mapping
from textwrap import shorten
from typing import Any

import torch

from manyway.core import Solution
from manyway.errors import InputError
from manyway.review.audit import RISK, Check, RandomCheck
from manyway.review.data import ReviewData
from manyway.review.journal import CHECK, CLEAR, COMMENT, KINDS, LABEL, REDO, UNDO, UNKNOWN, Action, Journal
from manyway.review.relabel import SUGGESTIONS, Relabel

OPEN, NO_CLASS = -2, -1  # answers that are not the number of a class
ENOUGH = 0.99  # the expected proportion of right labels at which the page proposes a check
_LONGEST_NAME, _LONGEST_COMMENT = 200, 2000
_PRESENT = 0.05  # classes that occur with less probability are not listed
# Parts of wrong labels that a check is offered for: of all labels, or of those without an answer.
CHECKS = tuple(f"{tolerance} {of}" for of in ("all", "rest") for tolerance in (0.01, 0.02, 0.05, 0.1))


class Session:
    """A review in progress.

    Every action is in the journal before it is acknowledged. After each one the items are labelled again in a thread.
    ``version`` grows with every change, so that a page can ask what has changed since it last looked.

    Parameters
    ----------
    data : ReviewData
    journal : Journal
        Its actions are repeated at the start.
    relabel : callable, optional
        Makes suggestions from the answers so far; by default a `Relabel` of the data.
    """

    def __init__(self, data: ReviewData, journal: Journal, relabel: Relabel | None = None) -> None:
        self.data, self.journal = data, journal
        self.id = secrets.token_hex(6)  # in the addresses of pictures: a browser keeps those of this start only
        self.relabel = relabel or Relabel(data)
        self.classes = list(self.relabel.classes)
        self._number = {name: k for k, name in enumerate(self.classes)}  # names that differ are two classes
        self.n_catalogue = len(self.classes)
        n = len(data.names)
        self.answers, self.comments = [OPEN] * n, [""] * n
        self.best: list[list[int]] = [[] for _ in range(n)]  # numbers of classes, most probable first
        self.probabilities: list[list[float]] = [[] for _ in range(n)]
        self.unknown = [0.0] * n  # the probability of being unknown
        self.groups = [-1] * n  # of items that are suggested to be unknown
        self.was = [-1] * n  # the class that was suggested before the last change
        self.order: tuple[int, ...] = ()
        self.presence: list[tuple[int, float]] = []  # classes, and the probability that they occur among the items
        self.version, self._changed = 1, [1] * n  # the version at which an item last changed
        self.problem = ""
        self.check: RandomCheck | None = None  # while one is going on, labels stay as they are
        self.risk = RISK  # of the next check
        self._done: list[tuple[Action, dict[int, Any]]] = []  # with the answers or comments before it
        self._undone: list[Action] = []
        self._keys: dict[str, str] = {}  # what was said about an action
        self.lock = threading.RLock()  # whoever reads several attributes that belong together holds it
        self._wake, self._closed, self.settled = threading.Event(), False, threading.Event()
        for action in journal:
            self._keys[action.key] = self._perform(action)
        self._relabel()
        self.was = [-1] * n  # nobody has seen what was suggested before
        self.settled.set()
        self._worker = threading.Thread(target=self._work, daemon=True, name="relabel")
        self._worker.start()

    def act(self, action: Action) -> str:
        """Save and perform an action.

        Parameters
        ----------
        action : Action

        Returns
        -------
        str
            What was done, in one sentence.

        Raises
        ------
        InputError
            If the action makes no sense or could not be saved. Nothing has changed then.
        """
        with self.lock:
            if action.key in self._keys:
                return self._keys[action.key]
            action = self._checked(action)
            if action.kind in (UNDO, REDO):
                meant = [one for one, _ in self._done[-1:]] if action.kind == UNDO else self._undone[-1:]
                if not meant:
                    return f"There is nothing to {action.kind}."
                action = Action(action.kind, labels=(meant[0].key,), key=action.key)
            if action.kind == CHECK and action.labels:
                action = Action(CHECK, labels=(action.labels[0], secrets.token_hex(8)), key=action.key)
            self.journal.append(action)
            said = self._keys[action.key] = self._perform(action)
            if action.kind != COMMENT and self.check is None:
                self.settled.clear()
                self._wake.set()
            return said

    def close(self) -> None:
        """Stop the thread and close the journal."""
        self._closed = True
        self._wake.set()
        self._worker.join()
        self.journal.close()

    @property
    def known(self) -> dict[int, str | None]:
        """The answers for items with features: a class, or None for unknown."""
        found = enumerate(self.answers[: len(self.data.items)])
        return {row: None if k == NO_CLASS else self.classes[k] for row, k in found if k != OPEN}

    def chosen(self, row: int) -> tuple[int, float]:
        """The class of an item that holds now, by answer or suggestion, and its probability."""
        if self.answers[row] != OPEN:
            return self.answers[row], 1.0
        if self.groups[row] >= 0 or not self.best[row]:
            return NO_CLASS, self.unknown[row]
        return self.best[row][0], self.probabilities[row][0]

    def progress(self) -> dict[str, Any]:
        """How far the review is: items reviewed, errors expected among the others, expected proportion right."""
        with self.lock:
            n = len(self.answers)
            undecided = [row for row in range(n) if self.answers[row] == OPEN]
            errors = sum(1.0 - self.chosen(row)[1] for row in undecided)
            return {
                "items": n,
                "reviewed": n - len(undecided),
                "errors": round(errors, 2),
                "right": round(1.0 - errors / n, 4),
                "enough": ENOUGH,
                "check": None if self.check is None else self.check.progress(self._answers_of_items, OPEN),
            }

    def planned(self) -> list[tuple[str, int]]:
        """For each part of wrong labels that may be tolerated: about how many answers a check needs."""
        with self.lock:
            return [(name, self._new_check(name).left(0, 0)) for name in CHECKS]

    @property
    def _answers_of_items(self) -> list[int]:
        """Items without features have no labels that could be wrong."""
        return self.answers[: len(self.data.items)]

    def _new_check(self, name: str) -> Check:
        tolerance, of = name.split()
        answers = self._answers_of_items
        return Check(answers.count(OPEN), float(tolerance), self.risk, len(answers) if of == "all" else 0)

    def overview(self) -> dict[str, Any]:
        """Everything that a page needs at the start; numbers instead of paths."""
        examples = self.data.examples
        members: list[list[int]] = [[] for _ in range(self.n_catalogue)]
        for row, label in enumerate(examples.labels or ()):
            members[self._number[label]].append(row)
        with self.lock:
            return {
                **{name: getattr(self.data, name) for name in ("title", "kind", "columns", "bursts", "open_set")},
                "names": self.data.shown,
                "ids": self.data.names if self.data.items.texts is not None else [],
                "unread": dict(enumerate((reason for _, reason in self.data.items.skipped), len(self.data.items))),
                "catalogue": [{"name": name, "examples": found[:6], "count": len(found)}
                              for name, found in zip(self.classes, members, strict=False)],
                "example_names": {row: examples.text(row) for found in members for row in found[:6]},
                **self.changes(0),
            }  # fmt: skip

    def changes(self, since: int) -> dict[str, Any]:
        """What has changed after a version."""
        with self.lock:
            rows = [row for row, version in enumerate(self._changed) if version > since]
            return {
                "id": self.id,
                "items": self.data.items_hash,  # an action says which items it is about: a port may serve others later
                "version": self.version,
                "busy": not self.settled.is_set(),
                "problem": self.problem or self.journal.damage,
                "presence": self.presence,
                "new_classes": self.classes[self.n_catalogue :],
                "rows": [self._row(row) for row in rows],
                "order": self.order[:200] if self.check is None else (),
                "progress": self.progress(),
                "can_undo": bool(self._done),
                "can_redo": bool(self._undone),
            }

    def _row(self, row: int) -> list[Any]:
        flat = [v for k, p in zip(self.best[row], self.probabilities[row], strict=True) for v in (k, round(1000 * p))]
        unknown = round(1000 * self.unknown[row])
        return [row, self.answers[row], self.was[row], self.groups[row], flat, unknown, self.comments[row]]

    def near(self, row: int, count: int = 6) -> list[dict[str, Any]]:
        """The examples that are nearest to an item."""
        if row >= len(self.data.items):
            return []
        examples = self.data.examples
        found = self.relabel.nearest(row, count)
        return [{"row": at, "name": examples.text(at), "label": (examples.labels or ())[at]} for at in found]

    def _checked(self, action: Action) -> Action:
        if action.kind not in KINDS or not (0 < len(action.key) <= 100 and action.key.isprintable()):
            raise InputError(f"There is no action '{action.kind[:50]}' with the key '{action.key[:50]}'.")
        if action.kind in (UNDO, REDO):
            return Action(action.kind, key=action.key)
        if action.kind == CHECK:
            if bool(action.labels) == (self.check is not None):
                raise InputError("A check is going on." if action.labels else "There is no check to end.")
            if action.labels and action.labels[0] not in CHECKS:
                raise InputError(f"A check tolerates {', '.join(CHECKS)}.")
            if action.labels and OPEN not in self._answers_of_items:
                raise InputError("Every item is reviewed.")
            return action
        rows = set(action.rows)
        if not 0 < len(rows) == len(action.rows) or not all(0 <= row < len(self.answers) for row in rows):
            raise InputError(f"An action names items from 0 to {len(self.answers) - 1}, each once, and at least one.")
        if action.kind == COMMENT:
            if len(action.labels) != 1 or len(action.labels[0]) > _LONGEST_COMMENT:
                raise InputError(f"A comment is one text of at most {_LONGEST_COMMENT:,} characters.")
            return action
        if action.kind != LABEL:
            return Action(action.kind, action.rows, key=action.key)
        if len(action.labels) != len(action.rows):
            raise InputError(f"There are {len(action.labels)} labels for {len(action.rows)} items.")
        return Action(LABEL, action.rows, tuple(map(self._class_name, action.labels)), action.key)

    def _class_name(self, name: str) -> str:
        """The name of a known class, character by character, or a name that a new class may have."""
        if name in self._number:
            return name
        tidy = unicodedata.normalize("NFC", " ".join(name.split()))
        if not tidy or len(tidy) > _LONGEST_NAME or any(unicodedata.category(c) in ("Cc", "Cs") for c in tidy):
            raise InputError(f"A new class needs a name of 1 to {_LONGEST_NAME} printable characters.")
        return tidy

    def _perform_check(self, labels: tuple[str, ...]) -> str:
        """Begin or end a check. What was answered before cannot be taken back with undo any more."""
        self._done.clear()
        self._undone.clear()
        if self.check is not None:
            self.risk = self.check.check.next_risk(*self.check.counts(self._answers_of_items, OPEN))
        self.check = None
        self.version += 1
        if not labels:
            return "The check is over. The labels learn from its answers."
        self._relabel()  # labels of all answers so far, also where a journal is repeated
        undecided = {row: self.chosen(row)[0] for row, answer in enumerate(self._answers_of_items) if answer == OPEN}
        self.check = RandomCheck.begin(self._new_check(labels[0]), undecided, len(self.classes), labels[1])
        return "The check has begun. Labels stay as they are until it ends."

    def _perform(self, action: Action) -> str:
        if action.kind == CHECK:
            return self._perform_check(action.labels)
        if action.kind == UNDO:
            if not self._done or self._done[-1][0].key not in action.labels:
                return "There is nothing to undo."  # what it took back is lost: see `Journal`
            undone, before = self._done.pop()
            self._set(undone, before)
            self._undone.append(undone)
            return f"Taken back: {self._said(undone)}."
        if action.kind == REDO:
            if not self._undone or self._undone[-1].key not in action.labels:
                return "There is nothing to redo."
            action = self._undone.pop()
        else:
            self._undone.clear()
        answers: Mapping[int, Any]
        if action.kind == COMMENT:
            answers = dict.fromkeys(action.rows, action.labels[0].strip())
        elif action.kind == LABEL:
            answers = {row: self._class_number(name) for row, name in zip(action.rows, action.labels, strict=True)}
        else:
            answers = dict.fromkeys(action.rows, NO_CLASS if action.kind == UNKNOWN else OPEN)
        values: list[Any] = self.comments if action.kind == COMMENT else self.answers
        self._done.append((action, {row: values[row] for row in answers}))
        self._set(action, answers)
        return f"{self._said(action)}."

    def _class_number(self, name: str) -> int:
        if name not in self._number:
            self.classes.append(name)
        return self._number.setdefault(name, len(self.classes) - 1)

    def _set(self, action: Action, answers: Mapping[int, Any]) -> None:
        self.version += 1
        values: list[Any] = self.comments if action.kind == COMMENT else self.answers
        for row, answer in answers.items():
            values[row] = answer
            self._changed[row] = self.version

    def _said(self, action: Action) -> str:
        count = len(action.rows)
        items = shorten(self.data.shown[action.rows[0]], 60, placeholder=" …") if count == 1 else f"{count:,} items"
        if action.kind == LABEL:
            names = set(action.labels)
            return f"{items}: {names.pop() if len(names) == 1 else f'{len(names)} classes'}"
        return f"{items}: " + {UNKNOWN: "unknown", CLEAR: "open again", COMMENT: "comment"}[action.kind]

    def _work(self) -> None:
        while True:
            self._wake.wait()
            if self._closed:
                return
            self._wake.clear()
            self._relabel()
            with self.lock:
                if not self._wake.is_set():
                    self.settled.set()
                    self.version += 1  # the page learns that nothing more is to come

    def _relabel(self) -> None:
        """Label again with the answers as they are now; a failure is shown and the review goes on."""
        with self.lock:
            known = self.known
        try:
            with torch.no_grad():
                found = self.relabel(known)
                with self.lock:
                    if self.check is not None:
                        return
                    self._take(*found)
                if self._wake.is_set():  # there are newer answers already
                    return
                scores = found[1].review_scores[0]
        except Exception as error:  # whatever the solver raises must not end the review
            with self.lock:
                self.problem, self.version = f"The items could not be labelled again: {error}", self.version + 1
            return
        with self.lock:
            self.order = tuple(scores.argsort(descending=True, stable=True)[: int((scores >= 0).sum())].tolist())
            self.version += 1

    def _take(self, classes: tuple[str, ...], found: Solution) -> None:
        self.problem = ""
        self.version += 1
        numbers = [self._number[name] for name in classes]
        probabilities, best, *more = (one[0].tolist() for one in found.top(SUGGESTIONS).best.values)
        unknown, groups = more or ([0.0] * len(best), [-1] * len(best))
        there = found.presence[0]
        likely = (there >= _PRESENT).nonzero().flatten().tolist()
        self.presence = [(numbers[k], round(float(there[k]), 3)) for k in likely]
        for row in range(len(self.data.items)):
            if self.answers[row] != OPEN:  # its last suggestions stay, for the case that it is opened again
                if self.was[row] >= 0:
                    self.was[row], self._changed[row] = -1, self.version
                continue
            before = self.chosen(row)[0] if self.best[row] else None
            old = self._row(row)
            self.best[row] = [numbers[k] for k in best[row]]
            self.probabilities[row] = probabilities[row]
            self.unknown[row], self.groups[row] = unknown[row], groups[row]
            now = self.chosen(row)[0]
            self.was[row] = before if before is not None and before != now and before >= 0 else -1
            if self._row(row) != old:
                self._changed[row] = self.version
