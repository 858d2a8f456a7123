"""The actions of a review.

One class each: what it must say, what it does, how it is taken back, and how it is told.

`ACTIONS` is the list that everything else reads: the journal and the server make actions from it,
and the page makes its buttons, its keys, its help and its history from it. A new action is a new
class here, and a function in ``main.js`` for each of its gestures.
"""

from __future__ import annotations

import math
import secrets
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from textwrap import shorten
from typing import Any, ClassVar, NamedTuple, get_type_hints

from manyway.errors import InputError, as_shown
from manyway.labelling.batch import UNKNOWN
from manyway.review.state import ALL, NO_CLASS, OPEN, REST, TOLERANCES, Done, Said, State

_LONGEST_KEY = 100
_LONGEST_NAME = 200
_LONGEST_COMMENT = 2000
_JOINERS = "\u200c\u200d"  # invisible, but some scripts cannot be written without them


class Gesture(NamedTuple):
    """A way to ask for an action on the page.

    Parameters
    ----------
    name : str
        The function of the page that makes the action.
    key : str
        The key that calls it.
    about : str
        What it does, for the list of keys.
    button : str
        The text of its button beside the current item; none where it is empty.
    only : {"", "main", "reviewed"}
        "main": its button is the first one to press. "reviewed": its button is there for items with
        an answer.
    """

    name: str
    key: str
    about: str
    button: str = ""
    only: str = ""


class NothingToDo(Exception):
    """An action makes sense, but there is nothing that it could change."""


@dataclass(frozen=True, kw_only=True)
class Action:
    """One step of a review.

    Parameters
    ----------
    key : str
        Chosen by the sender. An action that is sent twice with the same key is done once.
    """

    kind: ClassVar[str]
    gestures: ClassVar[tuple[Gesture, ...]] = ()
    relabels: ClassVar[bool] = True  # whether the items are labelled again afterwards
    key: str

    def check(self, state: State) -> Action:
        """The action as it is saved, complete.

        Raises
        ------
        InputError
            If it makes no sense.
        NothingToDo
            If it would change nothing.
        """
        raise NotImplementedError

    def apply(self, state: State) -> None:
        """Do it. It was checked, perhaps by an earlier start of the program."""
        raise NotImplementedError

    def say(self, state: State) -> Said:
        """What it has done."""
        raise NotImplementedError

    def record(self) -> dict[str, Any]:
        """What the journal keeps of it."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class OfItems(Action):
    """An action that says something about items, and that can be taken back.

    Parameters
    ----------
    rows : tuple of int
        The items.
    """

    rows: tuple[int, ...]

    def check(self, state: State) -> OfItems:
        """Refuse items that do not exist or that are named twice."""
        n_items = len(state.answers)
        if not self.rows or len(set(self.rows)) < len(self.rows):
            raise InputError("An action names at least one item, and each once.")
        if not all(0 <= row < n_items for row in self.rows):
            raise InputError(f"An action names items from 0 to {n_items - 1}.")
        return self

    def apply(self, state: State) -> None:
        """Do it; what was taken back before cannot be done again any more."""
        state.undone.clear()
        state.shown_by_check = ""  # it was about other labels
        self.repeat(state)

    def repeat(self, state: State) -> None:
        """Do it, and keep what the items had before."""
        new = self._new(state)
        column = self._column(state)
        state.done.append(Done(self, {row: column[row] for row in new}))
        state.write(column, new)

    def undo(self, state: State, before: Mapping[int, Any]) -> None:
        """Give the items what they had before."""
        state.write(self._column(state), before)

    def say(self, state: State) -> Said:
        """Which items, and what was said about them."""
        items = f"{len(self.rows):,} items"
        if len(self.rows) == 1:
            items = shorten(state.data.shown[self.rows[0]], 60, placeholder=" …")
        return Said(f"{items}: {self._what()}.", self.rows)

    def _column(self, state: State) -> list[Any]:
        """The values of all items that it changes."""
        return state.answers

    def _new(self, state: State) -> Mapping[int, Any]:
        """The new values of its items."""
        raise NotImplementedError

    def _what(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Label(OfItems):
    """Give classes to items.

    Parameters
    ----------
    labels : tuple of str
        One class per item; a name that is new makes a class.

    Examples
    --------
    >>> Label(rows=(3, 5), labels=("ant", "bee"), key="a1").record()["labels"]
    ('ant', 'bee')
    """

    kind = "label"
    gestures = (
        Gesture("confirm", "Enter", "confirm the suggested class", "Confirm", "main"),
        Gesture("take", "1 – 9", "take a suggestion of the current item"),
        Gesture("newClass", "n", "new class", "New class"),
        Gesture("search", "/", "search a class by name", "Search"),
        Gesture("confirmAbove", "a", "confirm all above a probability in this group"),
        Gesture("nameGroup", "g", "name this group of unknown items"),
    )
    labels: tuple[str, ...]

    def check(self, state: State) -> Label:
        """Tidy the names of new classes."""
        super().check(state)
        if len(self.labels) != len(self.rows):
            raise InputError(f"There are {len(self.labels)} labels for {len(self.rows)} items.")
        return replace(self, labels=tuple(_class_name(name, state) for name in self.labels))

    def _new(self, state: State) -> Mapping[int, int]:
        named = zip(self.rows, self.labels, strict=True)
        return {row: state.class_number(name) for row, name in named}

    def _what(self) -> str:
        names = set(self.labels)
        return self.labels[0] if len(names) == 1 else f"{len(names)} classes"


@dataclass(frozen=True, kw_only=True)
class Unknown(OfItems):
    """Say that items are of none of the classes."""

    kind = "unknown"
    gestures = (Gesture("unknown", "x", "unknown", "Unknown"),)

    def _new(self, state: State) -> Mapping[int, int]:
        return dict.fromkeys(self.rows, NO_CLASS)

    def _what(self) -> str:
        return "unknown"


@dataclass(frozen=True, kw_only=True)
class Clear(OfItems):
    """Take back what was said about items."""

    kind = "clear"
    gestures = (
        Gesture("clear", "Backspace", "take back what was said about these items", "Reopen", "reviewed"),
    )  # fmt: skip

    def _new(self, state: State) -> Mapping[int, int]:
        return dict.fromkeys(self.rows, OPEN)

    def _what(self) -> str:
        return "open again"


@dataclass(frozen=True, kw_only=True)
class Comment(OfItems):
    """Write a comment on items.

    Parameters
    ----------
    text : str
        The comment; an empty one deletes the comment that is there.
    """

    kind = "comment"
    relabels = False
    gestures = (Gesture("comment", "m", "write a comment", "Comment"),)
    text: str

    def check(self, state: State) -> Comment:
        """Refuse a comment that is too long."""
        super().check(state)
        if len(self.text) > _LONGEST_COMMENT:
            raise InputError(f"A comment is a text of at most {_LONGEST_COMMENT:,} characters.")
        return self

    def _column(self, state: State) -> list[Any]:
        return state.comments

    def _new(self, state: State) -> Mapping[int, str]:
        return dict.fromkeys(self.rows, self.text.strip())

    def _what(self) -> str:
        return "comment"


@dataclass(frozen=True, kw_only=True)
class Undo(Action):
    """Take back the last action.

    Parameters
    ----------
    target : str
        The key of the action that is meant, so that no other one is taken back where a journal was
        damaged.
    """

    kind = "undo"
    gestures = (Gesture("undo", "u", "undo, as Ctrl z"),)
    target: str = ""

    def check(self, state: State) -> Undo:
        """Say which action is meant: the last one."""
        if not state.done:
            raise NothingToDo("There is nothing to undo.")
        return replace(self, target=state.done[-1].action.key)

    def apply(self, state: State) -> None:
        """Take it back; nothing where the journal has lost what is meant."""
        if state.done and state.done[-1].action.key == self.target:
            done = state.done.pop()
            done.action.undo(state, done.before)
            state.undone.append(done.action)

    def say(self, state: State) -> Said:
        """What was taken back."""
        if not state.undone or state.undone[-1].key != self.target:
            return Said("There is nothing to undo.")
        said = state.undone[-1].say(state)
        return Said(f"Taken back: {said.sentence}", said.rows)


@dataclass(frozen=True, kw_only=True)
class Redo(Action):
    """Do again what was taken back last.

    Parameters
    ----------
    target : str
        The key of the action that is meant.
    """

    kind = "redo"
    gestures = (Gesture("redo", "U", "redo, as Ctrl Shift z"),)
    target: str = ""

    def check(self, state: State) -> Redo:
        """Say which action is meant: the one that was taken back last."""
        if not state.undone:
            raise NothingToDo("There is nothing to redo.")
        return replace(self, target=state.undone[-1].key)

    def apply(self, state: State) -> None:
        """Do it again; nothing where the journal has lost what is meant."""
        if state.undone and state.undone[-1].key == self.target:
            state.undone.pop().repeat(state)

    def say(self, state: State) -> Said:
        """What was done again."""
        if not state.done or state.done[-1].action.key != self.target:
            return Said("There is nothing to redo.")
        said = state.done[-1].action.say(state)
        return Said(f"Done again: {said.sentence}", said.rows)


@dataclass(frozen=True, kw_only=True)
class BeginCheck(Action):
    """Begin a random check. What was answered before cannot be taken back with undo any more.

    Parameters
    ----------
    tolerance : float
        The part of the labels that may be wrong.
    of : {"all", "rest"}
        What it is a part of: all labels, or those without an answer.
    seed : str
        Decides which items are asked for; chosen when the check begins.
    """

    kind = "check"
    gestures = (Gesture("check", "d", "am I done? A random check"),)
    relabels = False
    tolerance: float
    of: str
    seed: str = ""

    def check(self, state: State) -> BeginCheck:
        """Refuse a second check, and choose a seed."""
        if state.check is not None:
            raise InputError("A check is going on.")
        if self.tolerance not in TOLERANCES or self.of not in (ALL, REST):
            parts = ", ".join(f"{tolerance:g}" for tolerance in TOLERANCES)
            raise InputError(f"A check tolerates {parts} of '{ALL}' or of the '{REST}'.")
        if OPEN not in state.answers_of_items:
            raise InputError("Every item is reviewed.")
        return replace(self, seed=secrets.token_hex(8))

    def apply(self, state: State) -> None:
        """Keep the labels as they are from now on."""
        state.forget_done()
        state.begin_check(self.tolerance, self.of, self.seed)

    def say(self, state: State) -> Said:
        """That it has begun."""
        return Said("The check has begun. Labels stay as they are until it ends.")


@dataclass(frozen=True, kw_only=True)
class EndCheck(Action):
    """End a random check. Its answers cannot be taken back with undo any more."""

    kind = "end check"
    gestures = (Gesture("endCheck", "D", "end the random check"),)

    def check(self, state: State) -> EndCheck:
        """Refuse to end what has not begun."""
        if state.check is None:
            raise InputError("There is no check to end.")
        return self

    def apply(self, state: State) -> None:
        """Keep what the check has shown, and let the labels learn from its answers."""
        state.forget_done()
        state.end_check()

    def say(self, state: State) -> Said:
        """What the check has shown."""
        return Said(f"{state.shown_by_check} The labels now learn from the answers.".strip())


_CLASSES = (Label, Unknown, Clear, Comment, Undo, Redo, BeginCheck, EndCheck)
ACTIONS: dict[str, type[Action]] = {action.kind: action for action in _CLASSES}


def read_action(record: Mapping[str, Any]) -> Action:
    """An action from what the page sent or the journal kept.

    Parameters
    ----------
    record : mapping
        ``kind``, and the fields of its class.

    Returns
    -------
    Action

    Raises
    ------
    InputError
        If it is no action.

    Examples
    --------
    >>> read_action({"kind": "unknown", "rows": [7], "key": "k"})
    Unknown(key='k', rows=(7,))
    """
    given = dict(record)
    kind = given.pop("kind", None)
    key = given.get("key")
    if not isinstance(kind, str) or kind not in ACTIONS:
        raise InputError(f"There is no action {shorten(repr(kind), 60)}.")
    if not isinstance(key, str) or not 0 < len(key) <= _LONGEST_KEY or not key.isprintable():
        raise InputError(f"An action needs a key of 1 to {_LONGEST_KEY} printable characters.")
    known = _types(kind)
    for name in given:
        if name not in known:
            raise InputError(f"The action '{kind}' has no field {shorten(repr(name), 60)}.")
    try:
        return ACTIONS[kind](
            **{name: _READERS[known[name]](value) for name, value in given.items()}
        )
    except TypeError as error:
        raise InputError(
            f"The action '{kind}' lacks a field, or one is of the wrong type."
        ) from error


@cache
def _types(kind: str) -> dict[str, Any]:
    """The types of the fields of an action, by their names."""
    action = ACTIONS[kind]
    hints = get_type_hints(action)
    return {field.name: hints[field.name] for field in fields(action)}


def _numbers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(one) is int for one in value):
        raise TypeError
    return tuple(value)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple(map(_text, value))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError
    return float(value)


# How the values of fields are read from JSON, by their type.
_READERS: dict[Any, Callable[[Any], Any]] = {
    tuple[int, ...]: _numbers,
    tuple[str, ...]: _texts,
    str: _text,
    float: _number,
}


def _class_name(name: str, state: State) -> str:
    """The name of a known class, character by character, or a name that a new class may have."""
    if state.has_class(name):
        return name
    tidy = as_shown(" ".join(name.split()))
    if not tidy or len(tidy) > _LONGEST_NAME or any(map(_is_hidden, tidy)):
        allowed = f"1 to {_LONGEST_NAME} printable characters"
        raise InputError(f"A new class needs a name of {allowed}, none of them invisible.")
    if tidy.casefold() == UNKNOWN:
        hint = "mark them as unknown (x), or give the class another name"
        raise InputError(f"The word '{UNKNOWN}' stands for items of no class; {hint}.")
    return tidy


def _is_hidden(character: str) -> bool:
    """Whether it has no shape, or changes the direction of the text around it."""
    category = unicodedata.category(character)
    return category in ("Cc", "Cs", "Cf") and character not in _JOINERS
