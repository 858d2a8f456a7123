"""The one kind of error that is the user's to mend: a sentence that says what, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib import import_module
from typing import Any


class InputError(ValueError):
    """Input that cannot be used. The command line prints the sentence and exits with code 2."""


def nearest(name: str, known: Iterable[str]) -> str:
    """What to tell somebody who asked for ``name``: the nearest known name, or all of them.

    >>> nearest("padle", ["paddle", "tim"])
    "did you mean 'paddle'?"
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'?" if close else f"choose one of: {', '.join(names)}."


def optional(module: str, extra: str, what: str) -> Any:
    """A library that is not always installed, imported now; without it an error that says how to install it.

    >>> optional("json", "tables", "to_frame").dumps([1])
    '[1]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise InputError(f"{what} needs {library}; install it with: pip install 'manyway[{extra}]'.") from error
