"""The descriptions of parameters: those that several functions share are written once."""

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def described_as(source: Callable[..., Any]) -> Callable[[F], F]:
    """Describe the parameters that a docstring leaves out as ``source`` does, with the function's own defaults.

    >>> def one(*, step=1.0):
    ...     '''Do it.
    ...
    ...     Parameters
    ...     ----------
    ...     step : float, default=1.0
    ...         How far.
    ...     '''
    >>> @described_as(one)
    ... def other(*, step=2.0):
    ...     '''Do it further.
    ...
    ...     Parameters
    ...     ----------
    ...     '''
    >>> doc_sections(other.__doc__)["Parameters"].splitlines()
    ['step : float, default=2.0', '    How far.']
    """

    def decorate(function: F) -> F:
        theirs, own = _described(source), _described(function)
        entries = [
            own[name] if name in own else with_default(theirs[name], parameter.default)
            for name, parameter in inspect.signature(function).parameters.items()
            if name in own or name in theirs
        ]
        section = "\n".join(dict.fromkeys(entries)) + "\n"
        doc = f"{inspect.getdoc(function)}\n"
        function.__doc__ = re.sub(r"(?<=Parameters\n----------\n)(?:.+\n)*", lambda _: section, doc, count=1)
        return function

    return decorate


def doc_sections(text: str) -> dict[str, str]:
    """The sections of a numpydoc docstring by title; what comes before the first one has the title ''.

    >>> doc_sections("Do it.\\n\\nReturns\\n-------\\nint\\n")
    {'': 'Do it.', 'Returns': 'int'}
    """
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", text, flags=re.MULTILINE)
    return {"": parts[0].strip()} | {
        title: body.strip("\n") for title, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def doc_entries(section: str) -> dict[str, str]:
    """The entries of a Parameters section by name, each with its description.

    >>> doc_entries("a, b : int\\n    Two numbers.\\nc : str")
    {'a': 'a, b : int\\n    Two numbers.', 'b': 'a, b : int\\n    Two numbers.', 'c': 'c : str'}
    """
    entries: dict[str, str] = {}
    for entry in re.split(r"\n(?=\S)", section.strip("\n")):
        for name in entry.split("\n")[0].partition(" :")[0].split(","):
            if name.strip():
                entries[name.strip().lstrip("*")] = entry.rstrip()
    return entries


def _described(source: Callable[..., Any]) -> dict[str, str]:
    return doc_entries(doc_sections(inspect.getdoc(source) or "").get("Parameters", ""))


def with_default(entry: str, default: Any) -> str:
    """The description of a parameter with another default."""
    shown = f'"{default}"' if isinstance(default, str) else repr(default)
    return re.sub(r"default=.*", lambda _: f"default={shown}", entry, count=1)
