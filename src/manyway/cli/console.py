"""The one console of the command line.

Text is printed as it is: names of classes, features and files are never read as markup, control
characters in them do not reach the terminal, and a terminal that cannot show a character
(``PYTHONIOENCODING=ascii``) gets it spelled out.
"""

import codecs
import io
import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import Any

from rich.console import Console
from rich.text import Text

from manyway.errors import NAMED

_SPELLED = {
    "±": "+/-",
    "–": "-",
    "−": "-",
    "…": "...",
    "·": "/",
    "×": "x",
    "‖": "||",
    "≤": "<=",
    "≥": ">=",
}
_SPELLED |= {
    "’": "'",
    "‘": "'",
    "“": '"',
    "”": '"',
    "→": "->",
    "←": "<-",
    "λ": "lambda",
    "α": "alpha",
}
_SPELLED |= {"τ": "tau", "π": "pi"}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    words = (
        _SPELLED.get(char) or char.encode("ascii", "backslashreplace").decode() for char in missing
    )
    return "".join(words), error.end


codecs.register_error("manyway.spell", _spell)


def spell(text: str, encoding: str) -> str:
    """The text in characters that an encoding has.

    Control characters other than tab and newline become ``?``.

    >>> spell("71.2 ± 0.3", "ascii"), spell("71.2 ± 0.3", "utf-8")
    ('71.2 +/- 0.3', '71.2 ± 0.3')
    """
    return _CONTROL.sub("?", text).encode(encoding, "manyway.spell").decode(encoding)


def spell_streams() -> None:
    """Let standard output and standard error spell out what their encoding lacks.

    This holds for plain ``print`` too.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="manyway.spell")


# whether the running command prints errors only
QUIET: ContextVar[bool] = ContextVar("quiet", default=False)
NOTES: ContextVar[list[str] | None] = ContextVar("notes", default=None)  # what it has noted so far
# where the running command keeps standard input, as a file
FOLDER: ContextVar[str] = ContextVar("folder", default="")
OPTIONS: ContextVar[Sequence[Any]] = ContextVar("options", default=())  # of the running command


def with_options(sentence: str, options: Iterable[Any]) -> str:
    """A sentence of the library in the words of a command.

    Parameters in backticks become its options.

    >>> from types import SimpleNamespace
    >>> flags = {"opts": ["--open-set"], "secondary_opts": ["--closed"]}
    >>> kind = SimpleNamespace(name="open_set", param_type_name="option", **flags)
    >>> with_options("Use `open_set=False`, or a column `text`.", [kind])
    'Use --closed, or a column `text`.'
    """
    known: dict[str, Any] = {}
    for option in options:
        known |= {
            name.lstrip("-").replace("-", "_"): option for name in (*option.opts, option.name or "")
        }

    def spelled(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in known:
            return found.group()
        option = known[name]
        if option.param_type_name == "argument":
            return str(option.metavar or option.name.upper())
        if value == "False" and option.secondary_opts:
            return str(option.secondary_opts[0])
        if value is None:
            return str(option.opts[0])
        return f"{option.opts[0]} {value.strip(chr(39))}"

    return NAMED.sub(spelled, sentence)


def without_folder(text: str) -> str:
    """A text in which the file that keeps standard input has its name alone."""
    folder = FOLDER.get()
    return text.replace(f"{folder}{os.sep}", "") if folder else text


class _Console(Console):
    @property
    def encoding(self) -> str:
        return (getattr(self.file, "encoding", None) or "utf-8").lower()

    def render_str(self, text: str, **options: Any) -> Text:
        # Strings pass here before their width is measured, so that columns stay aligned.
        return super().render_str(spell(text, self.encoding), **options)


def console(*, stderr: bool = False) -> Console:
    """A rich console on standard output or standard error.

    Markup is off: a string is text. Use ``style=`` of ``print`` or a ``rich.text.Text``
    for bold and colour. Everything that is shown through it, such as the cells of a
    table, is printed as it is.
    """
    spell_streams()
    return _Console(stderr=stderr, markup=False, emoji=False, highlight=False, quiet=QUIET.get())


def note(text: str) -> None:
    """Print what a reader guessed, in the words of the running command, and keep it for its JSON."""
    words = without_folder(with_options(text, OPTIONS.get()))
    noted = NOTES.get()
    if noted is not None:
        noted.append(words)
    say(f"note: {words}", stderr=True)


def say(text: object, style: str = "", *, stderr: bool = False) -> None:
    """Print one line of text as it is, without breaking it at the width of the terminal."""
    console(stderr=stderr).print(str(text), style=style or None, soft_wrap=True)
