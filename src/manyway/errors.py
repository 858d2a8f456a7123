"""The error for input that the user must correct, and a warning.

The error is one sentence that says what, where, and what to do.
"""

import difflib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
_MOST_NAMES = 40  # in a sentence; a classifier has thousands
# a parameter in a sentence, and its value where it has one
NAMED = re.compile(r"`([a-z]\w*)(?:=([^`]*))?`")


class InputError(ValueError):
    """Input that cannot be used.

    The sentence names parameters in backticks as Python does: "name it with
    `label_column`", "use `open_set=False`". The command line prints it with its own options
    instead, and exits with code 2.
    """

    @property
    def fields(self) -> tuple[str, ...]:
        """The parameters that the sentence names.

        >>> InputError("There is no label; name its column with `label_column`.").fields
        ('label_column',)
        """
        return tuple(name for name, _ in NAMED.findall(str(self)))


class InputTypeError(InputError, TypeError):
    """Input of a kind that Python, and scikit-learn with it, calls a TypeError.

    A parameter that does not exist is one.
    """


class ConvergenceWarning(UserWarning):
    """A method reached an iteration limit before its stopping rule was met."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the nearest known name, or all of them if they are not too many.

    >>> nearest("padle", ["paddle", "tim"]), nearest("TIM", ["paddle", "tim"])
    ("did you mean 'paddle'?", "did you mean 'tim'?")
    """
    names = list(dict.fromkeys(known))
    alike = (each for each in names if as_shown(each).casefold() == as_shown(name).casefold())
    close = next(alike, None) or next(iter(difflib.get_close_matches(name, names, n=1)), None)
    if close is None:
        return f"choose one of: {few(names, _MOST_NAMES)}."
    if as_shown(close) == as_shown(name):  # from a Mac, perhaps
        return f"the one meant looks the same, with other codes: {close!a}, not {name!a}."
    return f"did you mean '{close}'?"


def as_shown(name: str) -> str:
    """What can be seen of a name, whichever codes its accents are written with."""
    return unicodedata.normalize("NFC", name)


def few(names: Iterable[Any], most: int = 6) -> str:
    """The first of some names, and how many more there are.

    >>> few(["ant", "bee", "cat", "dog"], 2)
    'ant, bee and 2 more'
    """
    names = list(names)
    return ", ".join(map(str, names[:most])) + (
        f" and {len(names) - most} more" if len(names) > most else ""
    )


def counted(number: int, one: str, several: str = "") -> str:
    """A number of things; ``several`` is the plural where it is more than one and an s.

    >>> counted(1, "item"), counted(3, "item"), counted(0, "class", "classes")
    ('1 item', '3 items', '0 classes')
    """
    return f"{number} {one if number == 1 else several or f'{one}s'}"


def named(known: Mapping[str, T], name: str, what: str) -> T:
    """The entry of a table; an unknown name is an error that names the nearest.

    >>> named({"one": 1}, "one", "number")
    1
    """
    if not isinstance(name, str):
        raise InputError(f"The {what} is of the type {type(name).__name__}; give its name.")
    if name not in known:
        raise InputError(f"There is no {what} {_short(name)}; {nearest(name, known)}")
    return known[name]


def _short(name: str, most: int = 100) -> str:
    """A name in quotation marks, of which not more is shown than a sentence can hold.

    >>> _short("ant"), _short("abcdef", 3)
    ("'ant'", "'abc…'")
    """
    return f"'{name}'" if len(name) <= most else f"'{name[:most]}…'"


def refusal(work: Callable[..., Any], *given: Any) -> str:
    """The sentence with which work refuses its input; '' where it does not.

    >>> refusal(named, {"one": 1}, "two", "number")
    "There is no number 'two'; choose one of: one."
    """
    try:
        work(*given)
    except InputError as error:
        return str(error)
    return ""


def optional(module: str, extra: str, what: str) -> Any:
    """Import an optional library; where it is missing, raise an error that says how to install it.

    >>> optional("json", "tables", "to_frame").dumps([1])
    '[1]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise InputError(f"{what} needs {library}; install it with: {install(extra)}.") from error


def is_installed(module: str) -> bool:
    """Whether a library can be imported."""
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except ValueError:  # it is loaded, and does not say from where
        return True


def install(extra: str) -> str:
    """The command that installs an extra and leaves torch as it is.

    It does so in the way in which this program was installed.
    """
    from importlib.metadata import PackageNotFoundError, distribution, version
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin = json.loads(distribution("manyway").read_text("direct_url.json") or "{}").get(
            "url", ""
        )
        torch = f"torch=={version('torch')} "
        build = version("torch").partition("+")[2]
        if build and "encoders" in extra.split(","):  # they need a torchvision of the same build
            torch += f"--extra-index-url https://download.pytorch.org/whl/{build} "
    except (PackageNotFoundError, ValueError):
        origin = ""
        torch = ""
    folder = Path(url2pathname(urlsplit(origin).path))
    if urlsplit(origin).scheme != "file" or not (folder / "constraints.txt").is_file():
        return f'pip install {torch}"manyway[{extra}]"'  # cmd of Windows knows no other quotes
    return f'pip install {torch}-c "{folder / "constraints.txt"}" -e "{folder}[{extra}]"'
