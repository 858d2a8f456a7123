"""Methods in files of one's own, which a suite names as ``mine.py:my_method``.

Reading such a file runs it. A suite of somebody else must not do that without a word, so it happens only where
``load_suite`` is told so. The results can be shown later without the file.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from manyway.errors import InputError, nearest
from manyway.files import text_of, trying
from manyway.methods import Method

_OWN = re.compile(r"(?P<file>.+\.py):(?P<function>\w+)")
_VERSION_DIGITS = 12  # hexadecimal, of the file's hash
OWN: dict[str, Method] = {}  # the methods that were loaded, by the names that suites have for them


def is_own(name: object) -> bool:
    """Whether the name of a method is that of a function in a file.

    >>> is_own("mine.py:my_method"), is_own("paddle")
    (True, False)
    """
    return isinstance(name, str) and _OWN.fullmatch(name) is not None


def load_own(names: Iterable[str], folder: Path) -> None:
    """Load methods from files in the folder of a suite, so that `get_method` knows them."""
    for name in names:
        OWN[name] = own_method(name, folder)


def own_method(name: str, folder: Path) -> Method:
    """The method that a name stands for. Its version is made from the content of the file."""
    found = _OWN.fullmatch(name)
    assert found is not None
    path = (folder / found["file"]).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise InputError(
            f"The method {name} is not in the folder of the suite, {folder}; put its file there."
        )
    digest = hashlib.sha256(text_of(path).encode()).hexdigest()
    return Method(
        name,
        name,
        _function(path, found["function"], digest),
        f"{path.name}, a file of one's own",
        holds_support=True,
        version=1 + int(digest[:_VERSION_DIGITS], 16),
    )


@cache
def _function(path: Path, name: str, digest: str) -> Any:
    """A function of a file, which is run to get it: once, and again where its content has changed."""
    spec = importlib.util.spec_from_file_location(f"manyway_own_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with trying(f"{path} cannot be run"):
        spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if function is None:
        known = [
            each
            for each, value in vars(module).items()
            if callable(value) and not each.startswith("_")
        ]
        raise InputError(f"{path} has no function '{name}'; {nearest(name, known)}")
    if not callable(function):
        raise InputError(
            f"'{name}' in {path} is no function; a method is one: (tasks, *, parameters) -> Solution."
        )
    return function
