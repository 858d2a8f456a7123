"""Checked reading of the descriptions that are stored with weights."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from manyway.errors import InputError

T = TypeVar("T")


def from_metadata(kind: type[T], data: Any, name: str) -> T:
    """A value of a type (for example a dataclass) from plain data; data of another form is an InputError.

    >>> from_metadata(list[int], [1, "x"], "sizes")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    manyway.errors.InputError: 'sizes.1' in the metadata is wrong: input should be a valid integer, unable to parse...
    """
    try:
        return TypeAdapter(kind).validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join([name, *map(str, first["loc"])])
        message = first["msg"].removeprefix("Value error, ").rstrip(".")
        raise InputError(f"'{place}' in the metadata is wrong: {message[:1].lower()}{message[1:]}.") from error
