"""The text of a .json file: where its parts are, so that some are replaced and every other byte stays; and checks."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from manyway.errors import InputError
from manyway.files.text import first_twice, shorten

_DECODE = json.JSONDecoder().raw_decode
_BLANK = re.compile(r"[ \t\r\n]*")


class Edit(NamedTuple):
    """A part of a text, and what stands there instead."""

    start: int
    end: int
    new: str


def members(text: str, at: int) -> Iterator[tuple[Any, slice]]:
    """The key (or number) of each member of the object or array that starts at ``at``, and where its value is.

    >>> [(key, '{"a": [1, 2.50]}'[place]) for key, place in members('{"a": [1, 2.50]}', 0)]
    [('a', '[1, 2.50]')]
    """

    def skip(at: int) -> int:
        found = _BLANK.match(text, at)
        return at if found is None else found.end()

    start = skip(at)
    has_keys = text[start] == "{"
    at = skip(start + 1)
    number = 0
    while text[at] not in "}]":
        key: Any = number
        if has_keys:
            key, at = _DECODE(text, at)
            at = skip(skip(at) + 1)  # behind the colon
        _, end = _DECODE(text, at)
        yield key, slice(at, end)
        at = skip(end)
        number += 1
        if text[at] == ",":
            at = skip(at + 1)


def inside(text: str, at: int, key: str) -> list[int]:
    """Where the members of an array start that an object has under ``key``."""
    array = dict(members(text, at))[key]
    return [place.start for _, place in members(text, array.start)]


def edited(text: str, edits: Sequence[Edit]) -> str:
    """The text with some parts replaced.

    >>> edited("a fox", [Edit(2, 5, "dog")])
    'a dog'
    """
    pieces = []
    last = 0
    for edit in sorted(edits):
        pieces += [text[last : edit.start], edit.new]
        last = edit.end
    return "".join([*pieces, text[last:]])


def as_object(path: Path, place: str, value: Any) -> Mapping[str, Any]:
    """A value that must be an object."""
    if not isinstance(value, dict):
        raise InputError(f"{path} has {shorten(value)} instead of an object in {place}.")
    return value


def as_name(path: Path, place: str, value: Any, what: str) -> str:
    """A value that must be a text with some content."""
    if not isinstance(value, str) or not value.strip():
        instead = f"no {what}" if value is None else f"{shorten(value)} instead of a {what}"
        raise InputError(f"{path} has {instead} in {place}.")
    return value.strip()


def list_in(path: Path, place: str, entry: Mapping[str, Any], name: str) -> list[Any]:
    """The list that an object has under a name; empty where it has none."""
    found = entry.get(name) or []
    if not isinstance(found, list):
        raise InputError(f"{path} has no list '{name}' in {place}.")
    return found


class Lists(NamedTuple):
    """Where two lists are: those of the classes and of their scores, by their names in the file."""

    path: Path
    place: str
    item: str
    classes: str
    scores: str

    def pairs(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """The two lists of an object as one mapping."""
        names = entry.get(self.classes)
        numbers = entry.get(self.scores)
        where = f"{self.place} ({shorten(self.item)})"
        if not isinstance(names, list) or not isinstance(numbers, list) or len(names) != len(numbers):
            both = f"'{self.classes}' and '{self.scores}'"
            raise InputError(f"{self.path} has no equally long lists {both} in {where}.")
        texts = [as_name(self.path, self.place, name, "class") for name in names]
        twice = first_twice(texts)
        if twice is not None:
            scores = f"two scores of class {shorten(twice)} for the item {shorten(self.item)}"
            raise InputError(f"{self.path} has {scores} in {self.place}.")
        return dict(zip(texts, numbers, strict=True))
