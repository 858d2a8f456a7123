"""What people give as a path: a file, an address with ``file://``, or ``-`` for standard input."""

import os
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from manyway.errors import InputError

_ADDRESS = "file:"
# The beginning of what is read, and the ending of a file that holds such.
_KINDS = {
    b"PK\x03\x04": ".xlsx",
    b"PAR1": ".parquet",
    b"\x93NUMPY": ".npy",
    b"{": ".jsonl",
    b"\x1f\x8b": ".csv.gz",
}


def local_path(given: Path, folder: Path | None = None) -> Path:
    """The file that a path means.

    Parameters
    ----------
    given : Path
        A path, also one that begins with ``~`` or ``file://``. ``-`` is standard input.
    folder : Path, optional
        Where standard input is kept. None: the path is no input.

    Returns
    -------
    Path

    Examples
    --------
    >>> local_path(Path("file:///data/my%20table.csv")).as_posix()
    '/data/my table.csv'
    """
    text = str(given)
    if text == "-" and folder is not None:
        return _standard_input(folder)
    if not text.startswith(_ADDRESS):
        return Path(os.path.expanduser(text))  # --output=~/a.csv
    path = unquote(urlsplit(text).path)
    return Path(url2pathname(path) if os.name == "nt" else path)


def without_host(word: str) -> str:
    """A word of a command, in which an address names no computer: ``file:///data/a.csv``.

    A `Path` no longer tells ``file://computer/a.csv`` from ``file:///computer/a.csv``.

    Parameters
    ----------
    word : str
        A path, an address, an option, or an option with its value.

    Returns
    -------
    str

    Raises
    ------
    InputError
        If the address names another computer than this one.

    Examples
    --------
    >>> without_host("--output=file://localhost/data/a.csv")
    '--output=file:///data/a.csv'
    """
    option, found, rest = word.partition(f"{_ADDRESS}//")
    is_value = option.startswith("-") and option.endswith("=")
    if not found or (option and not is_value):
        return word
    host, slash, path = rest.partition("/")
    if host.lower() not in ("", "localhost"):
        raise InputError(
            f"{found}{rest} names the computer '{host}', and only files of this one can be used; "
            f"write {found}/folder/file, or the path alone."
        )
    return f"{option}{found}{slash}{path}"


def _standard_input(folder: Path) -> Path:
    """Standard input as a file, with the ending of what it holds."""
    if sys.stdin.isatty():
        raise InputError(
            "The input is '-', standard input, and nothing is sent to it; "
            "name a file, or use a pipe."
        )
    content = sys.stdin.buffer.read()
    suffix = next(
        (ending for start, ending in _KINDS.items() if content.lstrip()[:8].startswith(start)),
        ".csv",
    )
    path = folder / f"standard input{suffix}"
    if path.exists():
        raise InputError("Standard input, '-', can be one input only; name a file for the other.")
    path.write_bytes(content)
    return path
