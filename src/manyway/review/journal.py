"""The journal of a review: every action is on the disk before it is acknowledged, and none is ever deleted."""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import count, pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple

from manyway.errors import InputError
from manyway.files.files import atomic_write

KINDS = ("label", "unknown", "clear", "comment", "undo", "redo", "check")
LABEL, UNKNOWN, CLEAR, COMMENT, UNDO, REDO, CHECK = KINDS
_FORMAT = "manyway review 2"
_START, _MIDDLE = b'{"check":"', b'","entry":'
_DIGITS = 32  # of a checksum


class Action(NamedTuple):
    """One step of a review.

    Parameters
    ----------
    kind : {"label", "unknown", "clear", "comment", "undo", "redo", "check"}
        Give labels, mark items as unknown, take back what was said about items, write a comment on items, take back the
        last action, do again what was taken back, or begin or end a random check.
    rows : tuple of int
        The items; none for ``undo``, ``redo`` and ``check``.
    labels : tuple of str
        With ``label``: one class per item. With ``comment``: the text. With ``undo`` and ``redo``: the key of the
        action that is meant, so that no other one is taken back where a journal was damaged. With ``check``: the
        tolerated part of wrong labels and a seed, or nothing for its end.
    key : str
        Chosen by the sender. An action that is sent twice with the same key is done once.

    Examples
    --------
    >>> Action("label", (3, 5), ("ant", "bee"), key="a1").rows
    (3, 5)
    """

    kind: str
    rows: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    key: str = ""


class Journal:
    """The actions of one review in a file of lines, which is only ever appended to.

    When `append` returns, the action survives the end of the process and the loss of power. Each line has its number,
    the checksum of the line before it, and a checksum of its own that also covers the items. A second, small file says
    how many lines there are. A journal that was emptied, shortened or edited is found by them: ``damage`` says so. What
    is intact is kept, and the damaged file stays under another name. One process at a time has a journal open.

    Parameters
    ----------
    path : Path
        The file.
    items : str
        What identifies the items (a hash). A journal of other items is refused.
    new : bool, default=True
        Whether the journal may be missing; it is made then. Otherwise a missing journal is a damage.
    read_only : bool, default=False
        Read the actions and write nothing, for a disk that is full or write-protected.

    Examples
    --------
    >>> import tempfile
    >>> journal = Journal(Path(tempfile.mkdtemp()) / "journal.jsonl", items="8f2a")
    >>> journal.append(Action("unknown", (7,), key="k"))
    >>> [action.rows for action in journal], journal.damage
    ([(7,)], '')
    """

    def __init__(self, path: Path, items: str, *, new: bool = True, read_only: bool = False) -> None:
        self.path, self._items, self._files = path, items, list[IO[bytes]]()
        end = path.with_suffix(".end")
        try:
            new = new and not path.exists() and not end.exists()
            content, its_end = b"", b""
            if not read_only or end.exists():
                self._end = self._open(end, "rb" if read_only else "r+b")
                _lock(self._end, shared=read_only)
                its_end = self._end.read()
            if path.exists():
                content = path.read_bytes()
            self._found = _read(content, its_end, items)
            kind, its_items = self._found.first.action.labels if self._found.first else (_FORMAT, items)
            if kind != _FORMAT:
                raise InputError(f"{path} has the format '{kind}', which this version of manyway cannot read.")
            if its_items != items:
                raise InputError(f"The journal {path} belongs to a review of other items.")
            self.damage = "" if new else self._found.damage(path)
            if not read_only:
                self._start(content)
        except (OSError, InputError) as error:
            self.close()
            if isinstance(error, InputError):
                raise
            if isinstance(error, BlockingIOError):
                raise InputError(f"The review in {path.parent} is open already; use its page, or stop it.") from error
            raise InputError(f"The journal {path} cannot be opened: {error.strerror or error}.") from error

    def _open(self, path: Path, mode: str) -> IO[bytes]:
        made = os.O_CREAT if mode != "rb" else 0
        file = open(path, mode, buffering=0, opener=lambda name, flags: os.open(name, flags | made, 0o600))  # noqa: SIM115
        self._files.append(file)
        return file

    def _start(self, content: bytes) -> None:
        """Make the files, or write them again without what is damaged."""
        self._number, self._before = 0, ""
        intact = self._line(Action("review", labels=(_FORMAT, self._items)), "")
        intact += b"".join(self._line(found.action, found.time) for found in self._found.entries)
        if content != intact:
            if self.damage:
                names = (f"{self.path.stem}-damaged-{n}{self.path.suffix}" for n in count(1))
                kept = next(path for path in map(self.path.with_name, names) if not path.exists())
                kept.touch(mode=0o600)
                kept.write_bytes(content)
                self.damage += f" The damaged file is now {kept.name}."
            with atomic_write(self.path) as temporary:
                temporary.write_bytes(intact)
            self.path.chmod(0o600)
        self._file = self._open(self.path, "ab")
        os.fsync(self._file.fileno())
        self._size = len(intact)
        self._write_end()

    def _line(self, action: Action, time: str) -> bytes:
        entry = [self._number, self._before, time, action.kind, action.rows, action.labels, action.key]
        line = _sealed(entry, self._items if self._number else "")  # anybody can read what the first line says
        self._number, self._before = self._number + 1, _seal(line)
        return line

    def _write_end(self) -> None:
        # It need not reach the disk at once: an older one is no damage. Only its first line counts.
        line = _sealed([self._number, self._before], self._items)
        self._end.seek(0)
        self._end.write(line)
        self._end.truncate(len(line))

    def append(self, action: Action) -> None:
        """Store an action; when this returns it is on the disk.

        Raises
        ------
        InputError
            If it could not be stored, for example because the disk is full.
        """
        before, now = (self._number, self._before), datetime.now(timezone.utc).isoformat(timespec="seconds")
        line = self._line(action, now)
        try:
            own, there = os.fstat(self._file.fileno()), self.path.stat() if self.path.exists() else None
            if there is None or (there.st_ino, there.st_dev, there.st_size) != (own.st_ino, own.st_dev, self._size):
                raise OSError(0, "another program has changed or removed the journal; stop the review and start again")
            written = 0
            while written < len(line):
                written += self._file.write(line[written:])
            os.fsync(self._file.fileno())
        except OSError as error:
            self._number, self._before = before
            with suppress(OSError):  # half a line does no harm: it is not counted
                if os.fstat(self._file.fileno()).st_size > self._size and error.errno:
                    self._file.truncate(self._size)
            raise InputError(f"The action was not saved: {error.strerror or error}.") from error
        self._size += len(line)
        self._found.entries.append(_Entry(*before, now, action, self._before))
        with suppress(OSError):
            self._write_end()

    def __iter__(self) -> Iterator[Action]:
        return iter([found.action for found in self._found.entries])

    def close(self) -> None:
        """Close the files; another process can open the journal now."""
        for file in self._files:
            file.close()


class _Entry(NamedTuple):
    """A line of the journal."""

    number: int
    before: str
    time: str
    action: Action
    check: str


@dataclass
class _Found:
    """What a journal holds."""

    entries: list[_Entry] = field(default_factory=list)  # intact ones, without the first line
    first: _Entry | None = None  # the line that says what this is
    pieces: int = 0  # that are no intact entries
    promised: int = 0  # entries, by the file that counts them
    linked: bool = True  # whether each line follows the one before it
    counted: bool = True  # whether the other file says how many there are
    torn: bool = False  # whether the end is a line that was never acknowledged

    def damage(self, path: Path) -> str:
        """What is wrong, in words; nothing if nothing is."""
        last = max([self.promised - 1, *(found.number for found in self.entries)])
        numbers = {found.number for found in self.entries}
        lost = [str(n) for n in range(1, last + 1) if n not in numbers]
        if self.first is None and not self.entries:
            what = "has lost all its entries"
        elif self.pieces - self.torn or lost or self.first is None or not self.linked:
            shown = f" (number {', '.join(lost[:5])}{' …' if len(lost) > 5 else ''})" if lost else ""
            what = f"was changed: {len(lost)} of {last} entries are lost{shown}"
        elif not self.counted:
            what = "does not say how many entries it must have, so that the last ones may be missing"
        else:
            return ""
        return f"The journal {path} is damaged: it {what}. The {len(self.entries)} intact entries are kept."


def _read(content: bytes, end: bytes, items: str) -> _Found:
    """The entries of a journal, in order, and what is wrong with it."""
    found, entries = _Found(), dict[int, _Entry]()
    # A quotation mark inside a text is escaped, so that only a line can begin like this.
    for piece in re.split(b"(?=" + re.escape(_START) + b")", content):
        line, newline, rest = piece.partition(b"\n")
        entry = _entry(line, items) or _entry(line, "")
        if entry is None or entry.number in entries:
            found.pieces += bool(line)
        else:
            entries[entry.number] = entry
            found.pieces += not newline
        found.pieces += bool(rest)
    found.promised, last = _unsealed(end.partition(b"\n")[0], items) or (0, "")
    found.counted = found.promised > 0
    ending, found.first = entries.get(found.promised - 1), entries.pop(0, None)
    found.entries = [entries[number] for number in sorted(entries)]
    chain = [*([found.first] if found.first else []), *found.entries]
    found.linked = all(b.before == a.check for a, b in pairwise(chain) if b.number == a.number + 1)
    found.linked &= ending is None or ending.check == last
    found.torn = found.counted and len(chain) >= found.promised and content[-1:] not in (b"", b"\n")
    return found


def _entry(piece: bytes, items: str) -> _Entry | None:
    value = _unsealed(piece, items)
    try:
        number, before, time, kind, rows, labels, key = value
        return _Entry(number, before, time, Action(kind, tuple(rows), tuple(labels), key), _seal(piece))
    except (TypeError, ValueError):
        return None


def _sealed(entry: list[Any], items: str) -> bytes:
    """A line: an entry and the checksum of it and of the items."""
    text = json.dumps(entry, separators=(",", ":")).encode()
    check = hashlib.sha256(items.encode() + b"\n" + text).hexdigest()[:_DIGITS].encode()
    return _START + check + _MIDDLE + text + b"}\n"


def _seal(line: bytes) -> str:
    return line[len(_START) :][:_DIGITS].decode()


def _unsealed(line: bytes, items: str) -> Any:
    """The entry of a line; None if a single bit of it was changed."""
    try:
        entry = json.loads(line)["entry"]
        return entry if _sealed(entry, items) == line + b"\n" else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _lock(file: IO[bytes], *, shared: bool) -> None:
    """Claim a file until it is closed; BlockingIOError if another process has it."""
    if sys.platform == "win32":
        import msvcrt

        file.seek(2**30)  # others may read what is before
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError from error
        file.seek(0)
    else:
        import fcntl

        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
