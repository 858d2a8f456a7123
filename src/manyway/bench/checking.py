"""Reading the text files of experiments."""

from __future__ import annotations

from pathlib import Path

from manyway.errors import InputError
from manyway.files.files import check_input


def read_text(path: str | Path) -> str:
    """The text of an ordinary file."""
    try:
        return check_input(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as text: {getattr(error, 'strerror', None) or error}.") from error
