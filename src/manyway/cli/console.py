"""The one console of the command line.

Text is printed as it is: names of classes, features and files are never read as markup, control characters in them do
not reach the terminal, and a terminal that cannot show a character (``PYTHONIOENCODING=ascii``) gets it spelled out.
"""

from __future__ import annotations

import codecs
import io
import re
import sys
from typing import Any

from rich.console import Console
from rich.text import Text

_SPELLED = {"±": "+/-", "–": "-", "−": "-", "…": "...", "·": "/", "×": "x", "‖": "||", "≤": "<=", "≥": ">="}
_SPELLED |= {"’": "'", "‘": "'", "“": '"', "”": '"', "→": "->", "←": "<-", "λ": "lambda", "α": "alpha"}
_SPELLED |= {"τ": "tau", "π": "pi"}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    words = (_SPELLED.get(char) or char.encode("ascii", "backslashreplace").decode() for char in missing)
    return "".join(words), error.end


codecs.register_error("manyway.spell", _spell)


def spell(text: str, encoding: str) -> str:
    """The text in characters that an encoding has; control characters other than tab and newline become ``?``.

    >>> spell("71.2 ± 0.3", "ascii"), spell("71.2 ± 0.3", "utf-8")
    ('71.2 +/- 0.3', '71.2 ± 0.3')
    """
    return _CONTROL.sub("?", text).encode(encoding, "manyway.spell").decode(encoding)


def spell_streams() -> None:
    """Let standard output and standard error spell out what their encoding lacks, also for plain ``print``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="manyway.spell")


class _Console(Console):
    @property
    def encoding(self) -> str:
        return (getattr(self.file, "encoding", None) or "utf-8").lower()

    def render_str(self, text: str, **options: Any) -> Text:
        # Strings pass here before their width is measured, so that columns stay aligned.
        return super().render_str(spell(text, self.encoding), **options)


def console(*, stderr: bool = False) -> Console:
    """A rich console on standard output or standard error.

    Markup is off: a string is text. Use ``style=`` of ``print`` or a ``rich.text.Text`` for bold and colour. Everything
    that is shown through it, such as the cells of a table, is printed as it is.
    """
    spell_streams()
    return _Console(stderr=stderr, markup=False, emoji=False, highlight=False)


def with_flags(message: str) -> str:
    """A message of the library with the options of the command line: `label_column` becomes --label-column.

    >>> with_flags("name the column with `label_column`, or leave it out with `ignore_columns`")
    'name the column with --label-column, or leave it out with --ignore-column'
    """
    from typer.main import get_group

    from manyway.cli import app

    options = [option for command in get_group(app).commands.values() for option in command.params]
    flags = {option.name: max(option.opts, key=len) for option in options if option.opts[0].startswith("-")}
    flags |= {f"{name}s": flag for name, flag in flags.items() if f"{name}s" not in flags}
    return re.sub(r"`(\w+)`", lambda found: flags.get(found[1], found[0]), message)


def note(text: str) -> None:
    """Print what a reader guessed."""
    say(f"note: {with_flags(text)}", stderr=True)


def say(text: object, style: str = "", *, stderr: bool = False) -> None:
    """Print one line of text as it is, without breaking it at the width of the terminal."""
    console(stderr=stderr).print(str(text), style=style or None, soft_wrap=True)
