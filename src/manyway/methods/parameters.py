"""Parameters that several functions share: written once, in a dataclass, and shown in each function's signature."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from dataclasses import MISSING, fields
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def takes(parameters: type, without: Collection[str] = ()) -> Callable[[F], F]:
    """Give a function with ``**params`` the fields of a dataclass as keyword-only parameters.

    The function's signature lists them with their defaults, and the line ``**params`` of its docstring is replaced by
    the "Parameters" section of the dataclass. ``without`` names fields that the function does not take.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        given = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        taken = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=field.type,
            )
            for field in fields(parameters)
            if field.name not in without
        ]
        # Parameters of the dataclass come first, as in the docstring.
        positional = [p for p in given if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        keyword = [p for p in given if p.kind is inspect.Parameter.KEYWORD_ONLY]
        function.__signature__ = signature.replace(parameters=[*positional, *taken, *keyword])  # type: ignore[attr-defined]
        entries = [entry for entry in _entries(parameters) if entry.partition(" :")[0] not in without]
        doc = inspect.getdoc(function) or ""
        function.__doc__ = re.sub(r"^\*\*params$\n?", lambda _: "\n".join(entries) + "\n", doc, flags=re.MULTILINE)
        return function

    return decorate


def _entries(parameters: type) -> list[str]:
    """The entries of the "Parameters" section of a class's docstring."""
    section = (inspect.getdoc(parameters) or "").partition("Parameters\n----------\n")[2]
    return re.split(r"\n(?=\w)", section.rstrip())
