"""A running review.

It has its state, the journal that keeps every action, and the thread that labels the items again.
"""

import secrets
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from manyway.errors import InputError
from manyway.review.actions import ACTIONS, Action, NothingToDo
from manyway.review.data import ReviewData
from manyway.review.journal import Journal
from manyway.review.relabel import Likeness, Relabel
from manyway.review.state import OPEN, Offer, Said, State

_EXAMPLES = 6  # per class, on the page
_ORDER = 200  # items: the page is told which of so many to look at next
_HISTORY = 500  # actions that the page lists


class Told(NamedTuple):
    """An action of the past, as the page lists it."""

    sentence: str
    row: int  # its first item; -1 where it has none
    time: str


class Session(State):
    """A review in progress.

    Every action is in the journal before it is acknowledged. After each one the items are labelled
    again in a thread.

    Parameters
    ----------
    data : ReviewData
    journal : Journal
        Its actions are repeated at the start.
    relabel : callable, optional
        Makes suggestions from the answers so far; by default a `Relabel` of the data.
    """

    def __init__(self, data: ReviewData, journal: Journal, relabel: Relabel | None = None) -> None:
        self.relabel = relabel or Relabel(data)
        super().__init__(data, list(self.relabel.classes))
        self.journal = journal
        # In the addresses of pictures: a browser keeps those of this start only.
        self.id = secrets.token_hex(6)
        self.problem = ""
        self.history: list[Told] = []
        self._said: dict[str, Said] = {}  # what was said about an action, by its key
        # Whoever reads several attributes that belong together holds it.
        self.lock = threading.RLock()
        self.settled = threading.Event()
        self._wake = threading.Event()
        self._closed = False
        for entry in journal.entries:
            self._perform(entry.action, entry.time)
        self.label_now()
        self.was = [-1] * len(self.was)  # nobody has seen what was suggested before
        self.explained = ""
        self.settled.set()
        self._worker = threading.Thread(target=self._work, daemon=True, name="relabel")
        self._worker.start()

    def act(self, action: Action) -> Said:
        """Save and perform an action.

        Parameters
        ----------
        action : Action

        Returns
        -------
        Said
            What was done, in one sentence, and the items that it was about.

        Raises
        ------
        InputError
            If the action makes no sense or could not be saved. Nothing has changed then.
        """
        with self.lock:
            if action.key in self._said:
                return self._said[action.key]
            try:
                action = action.check(self)
            except NothingToDo as nothing:
                return Said(str(nothing))
            entry = self.journal.append(action)
            said = self._perform(action, entry.time)
            if action.relabels and self.check is None:
                self.settled.clear()
                self._wake.set()
            return said

    def close(self) -> None:
        """Stop the thread and close the journal."""
        self._closed = True
        self._wake.set()
        self._worker.join()
        self.journal.close()

    def planned(self) -> list[Offer]:
        """The random checks that could begin."""
        with self.lock:
            return self.offers()

    def progress(self) -> dict[str, Any]:
        """How far the review is."""
        with self.lock:
            return super().progress()

    def overview(self) -> dict[str, Any]:
        """Everything that a page needs at the start; numbers instead of paths."""
        data = self.data
        n_read = len(data.items)
        members: list[list[int]] = [[] for _ in range(self.n_catalogue)]
        for row, label in enumerate(data.examples.labels or ()):
            members[self._number[label]].append(row)
        shown = [found[:_EXAMPLES] for found in members]
        with self.lock:
            catalogue = [
                {"name": self.classes[k], "examples": shown[k], "count": len(found)}
                for k, found in enumerate(members)
            ]  # fmt: skip
            return {
                "title": data.title,
                "kind": data.kind,
                "columns": data.columns,
                "bursts": data.bursts,
                "open_set": data.open_set,
                "names": data.shown,
                "ids": [] if data.items.texts is None else data.names,
                "unread": {n_read + at: why for at, (_, why) in enumerate(data.items.skipped)},
                "catalogue": catalogue,
                "example_names": {row: data.examples.text(row) for rows in shown for row in rows},
                "actions": [
                    {"kind": kind, "gestures": [one._asdict() for one in action.gestures]}
                    for kind, action in ACTIONS.items()
                ],
                **self.changes(0),
            }

    def changes(self, since: int) -> dict[str, Any]:
        """What has changed after a version."""
        with self.lock:
            rows = [row for row, version in enumerate(self.changed) if version > since]
            return {
                "id": self.id,
                # An action says which items it is about: a port may serve others later.
                "items": self.data.items_hash,
                "version": self.version,
                "busy": not self.settled.is_set(),
                "problem": self.problem or self.journal.damage,
                "presence": self.presence,
                "new_classes": self._new_classes(),
                "rows": [self.page_row(row) for row in rows],
                "order": self.order[:_ORDER] if self.check is None else (),
                "progress": self.progress(),
                "can_undo": bool(self.done),
                "can_redo": bool(self.undone),
            }

    def _new_classes(self) -> list[dict[str, Any]]:
        """The classes without examples, with the items that stand for them.

        The item in their middle comes first.
        """
        members: dict[int, list[int]] = {}
        for row, answer in enumerate(self.answers):
            if answer >= self.n_catalogue:
                members.setdefault(answer, []).append(row)
        return [
            {"name": name, "examples": self.relabel.central(members.get(k, []))[:_EXAMPLES]}
            for k, name in enumerate(self.classes[self.n_catalogue :], self.n_catalogue)
        ]

    def near(self, row: int, count: int = 6) -> list[dict[str, Any]]:
        """The examples that are nearest to an item."""
        if row >= len(self.data.items):
            return []
        examples = self.data.examples
        labels = examples.labels or ()
        found = self.relabel.nearest(row, count)
        return [{"row": at, "name": examples.text(at), "label": labels[at]} for at in found]

    def likeness(self, rows: Sequence[int]) -> Likeness:
        """How alike the items of a group are.

        One counts as much as it is probable that it is unknown.
        """
        if not rows or not all(0 <= row < len(self.answers) for row in rows):
            raise InputError("A group has at least one item, and only items of the review.")
        with self.lock:
            weights = [1.0 if self.answers[row] != OPEN else self.unknown[row] for row in rows]
        return self.relabel.likeness(rows, weights)

    def past(self) -> list[Told]:
        """The last actions, newest first."""
        with self.lock:
            return self.history[: -_HISTORY - 1 : -1]

    def _perform(self, action: Action, time: str) -> Said:
        action.apply(self)
        said = action.say(self)
        self._said[action.key] = said
        row = said.rows[0] if said.rows else -1
        self.history.append(Told(said.sentence, row, time))
        return said

    def _work(self) -> None:
        while True:
            self._wake.wait()
            if self._closed:
                return
            self._wake.clear()
            self.label_now()
            with self.lock:
                if not self._wake.is_set():
                    self.settled.set()
                    self.version += 1  # the page learns that nothing more is to come

    def label_now(self) -> None:
        """Label again with the answers as they are now.

        A failure is shown and the review goes on.
        """
        with self.lock:
            known = self.known
        try:
            with torch.no_grad():
                classes, found = self.relabel(known)
                with self.lock:
                    if self.check is not None:
                        return
                    self.take(classes, found, known)
                    self.problem = ""
                if self._wake.is_set():  # there are newer answers already
                    return
                scores = found.review_scores[0]
        except Exception as error:  # whatever the solver raises must not end the review
            with self.lock:
                self.problem = f"The items could not be labelled again: {error}"
                self.version += 1
            return
        with self.lock:
            self.take_order(scores)
