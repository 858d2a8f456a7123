"""The journal of a review.

Every action is on the disk before it is acknowledged, and none is ever deleted.
"""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import count, pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple

from manyway.errors import InputError, counted
from manyway.files.files import atomic_write
from manyway.review.actions import Action, read_action

_FORMAT = "manyway review 3"
_EARLIER = "manyway review 2"  # is read, and written again in the format of today
_START = b'{"check":"'
_MIDDLE = b'","entry":'
_DIGITS = 32  # of a checksum
_FIELDS = 4  # of a line: number, checksum of the line before it, time, record
_SHOWN = 5  # lost entries that are named


class Entry(NamedTuple):
    """An action of the past, and when it was done."""

    action: Action
    time: str


class Journal:
    """The actions of one review in a file of lines, which is only ever appended to.

    When `append` returns, the action survives the end of the process and the loss of power. Each
    line has its number, the checksum of the line before it, and a checksum of its own that also
    covers the items. A second, small file says how many lines there are. A journal that was
    emptied, shortened or edited is found by them: ``damage`` says so. What is intact is kept, and
    the damaged file stays under another name. One process at a time has a journal open.

    Parameters
    ----------
    path : Path
        The file.
    items : str
        What identifies the items (a hash). A journal of other items is refused.
    new : bool, default=True
        Whether the journal may be missing; it is made then. Otherwise a missing journal is a
        damage.
    read_only : bool, default=False
        Read the actions and write nothing, for a disk that is full or write-protected.

    Examples
    --------
    >>> import tempfile
    >>> from manyway.review.actions import Unknown
    >>> journal = Journal(Path(tempfile.mkdtemp()) / "journal.jsonl", items="8f2a")
    >>> entry = journal.append(Unknown(rows=(7,), key="k"))
    >>> list(journal), journal.damage
    ([Unknown(key='k', rows=(7,))], '')
    """

    def __init__(
        self, path: Path, items: str, *, new: bool = True, read_only: bool = False
    ) -> None:
        self.path = path
        self.entries: list[Entry] = []
        self.damage = ""
        self._items = items
        self._files: list[IO[bytes]] = []
        try:
            self._load(new=new, read_only=read_only)
        except (OSError, InputError) as error:
            self.close()
            if isinstance(error, InputError):
                raise
            if isinstance(error, BlockingIOError):
                message = f"The review in {path.parent} is open already; use its page, or stop it."
                raise InputError(message) from error
            raise InputError(f"The journal {path} cannot be opened: {_reason(error)}.") from error

    def _load(self, *, new: bool, read_only: bool) -> None:
        """Lock the files, read the entries, and say what is wrong with them."""
        end = self.path.with_suffix(".end")
        new = new and not self.path.exists() and not end.exists()
        its_end = b""
        if not read_only or end.exists():
            self._end = self._open(end, "rb" if read_only else "r+b")
            _lock(self._end, shared=read_only)
            its_end = self._end.read()
        content = self.path.read_bytes() if self.path.exists() else b""
        found = _read(content, its_end, self._items)
        if found.header is not None:
            self._check_header(found.header)
        for line in found.lines:
            if line.action is not None:
                self.entries.append(Entry(line.action, line.time))
        if not new:
            self.damage = found.damage(self.path)
        if not read_only:
            self._start(content)

    def _check_header(self, header: Mapping[str, Any]) -> None:
        if header["format"] not in (_FORMAT, _EARLIER):
            its_format = f"has the format '{header['format']}'"
            raise InputError(
                f"{self.path} {its_format}, which this version of manyway cannot read."
            )
        if header["items"] != self._items:
            raise InputError(f"The journal {self.path} belongs to a review of other items.")

    def _open(self, path: Path, mode: str) -> IO[bytes]:
        made = os.O_CREAT if mode != "rb" else 0

        def opener(name: str, flags: int) -> int:
            return os.open(name, flags | made, 0o600)

        file = open(path, mode, buffering=0, opener=opener)  # noqa: SIM115
        self._files.append(file)
        return file

    def _start(self, content: bytes) -> None:
        """Make the files, or write them again without what is damaged."""
        self._number = 0
        self._before = ""
        intact = self._line({"format": _FORMAT, "items": self._items}, "")
        for entry in self.entries:
            intact += self._line(entry.action.record(), entry.time)
        if content != intact:
            if self.damage:
                self._keep_damaged(content)
            with atomic_write(self.path) as temporary:
                temporary.write_bytes(intact)
            self.path.chmod(0o600)
        self._file = self._open(self.path, "ab")
        os.fsync(self._file.fileno())
        self._size = len(intact)
        self._write_end()

    def _keep_damaged(self, content: bytes) -> None:
        """Keep the damaged file under a name that nothing has."""
        names = (f"{self.path.stem}-damaged-{n}{self.path.suffix}" for n in count(1))
        kept = next(path for path in map(self.path.with_name, names) if not path.exists())
        kept.touch(mode=0o600)
        kept.write_bytes(content)
        self.damage += f" The damaged file is now {kept.name}."

    def _line(self, record: Mapping[str, Any], time: str) -> bytes:
        """The next line, which follows the last one."""
        items = self._items if self._number else ""  # anybody can read what the first line says
        line = _sealed([self._number, self._before, time, record], items)
        self._number += 1
        self._before = _seal(line)
        return line

    def _write_end(self) -> None:
        # It need not reach the disk at once: an older one is no damage. Only its first line counts.
        line = _sealed([self._number, self._before], self._items)
        self._end.seek(0)
        self._end.write(line)
        self._end.truncate(len(line))

    def append(self, action: Action) -> Entry:
        """Store an action; when this returns it is on the disk.

        Raises
        ------
        InputError
            If it could not be stored, for example because the disk is full.
        """
        number = self._number
        before = self._before
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        line = self._line(action.record(), now)
        try:
            self._refuse_changes()
            written = 0
            while written < len(line):
                written += self._file.write(line[written:])
            os.fsync(self._file.fileno())
        except OSError as error:
            self._number = number
            self._before = before
            with suppress(OSError):  # half a line does no harm: it is not counted
                if os.fstat(self._file.fileno()).st_size > self._size and error.errno:
                    self._file.truncate(self._size)
            raise InputError(f"The action was not saved: {_reason(error)}.") from error
        self._size += len(line)
        entry = Entry(action, now)
        self.entries.append(entry)
        with suppress(OSError):
            self._write_end()
        return entry

    def _refuse_changes(self) -> None:
        """Raise OSError where the file is not as it was left.

        It may be another file than the one that was opened, or longer or shorter.
        """
        own = os.fstat(self._file.fileno())
        there = self.path.stat() if self.path.exists() else None
        is_own = there is not None and (there.st_ino, there.st_dev) == (own.st_ino, own.st_dev)
        if not is_own or own.st_size != self._size:
            what = "another program has changed or removed the journal"
            raise OSError(0, f"{what}; stop the review and start again")

    def __iter__(self) -> Iterator[Action]:
        return iter([entry.action for entry in self.entries])

    def close(self) -> None:
        """Close the files; another process can open the journal now."""
        for file in self._files:
            file.close()


class _Line(NamedTuple):
    """An intact line of the file."""

    number: int  # the first line has 0
    before: str  # the checksum of the line before it
    time: str
    record: Mapping[str, Any]
    check: str  # its own checksum
    action: Action | None  # none in the first line


@dataclass
class _Found:
    """What a journal holds."""

    lines: list[_Line] = field(default_factory=list)  # intact ones, without the first line
    header: Mapping[str, Any] | None = None  # the record of the first line, which says what this is
    pieces: int = 0  # that are no intact lines
    promised: int = 0  # lines, by the file that counts them
    linked: bool = True  # whether each line follows the one before it
    counted: bool = True  # whether the other file says how many there are
    torn: bool = False  # whether the end is a line that was never acknowledged

    def damage(self, path: Path) -> str:
        """What is wrong, in words; nothing if nothing is."""
        numbers = {line.number for line in self.lines}
        last = max(self.promised - 1, max(numbers, default=0))
        lost = [str(n) for n in range(1, last + 1) if n not in numbers]
        if self.header is None and not self.lines:
            what = "has lost all its entries"
        elif self.pieces - self.torn or lost or self.header is None or not self.linked:
            what = f"was changed: {len(lost)} of {last} entries are lost"
            if lost:
                more = " …" if len(lost) > _SHOWN else ""
                what += f" (number {', '.join(lost[:_SHOWN])}{more})"
        elif not self.counted:
            missing = "so that the last ones may be missing"
            what = f"does not say how many entries it must have, {missing}"
        else:
            return ""
        kept = f"{counted(len(self.lines), 'intact entry is', 'intact entries are')} kept."
        return f"The journal {path} is damaged: it {what}. {kept}"


def _read(content: bytes, end: bytes, items: str) -> _Found:
    """The entries of a journal, in order, and what is wrong with it."""
    found = _Found()
    lines: dict[int, _Line] = {}
    # A quotation mark inside a text is escaped, so that only a line can begin like this.
    for piece in re.split(b"(?=" + re.escape(_START) + b")", content):
        text, newline, rest = piece.partition(b"\n")
        line = _intact(text, items) or _intact(text, "")
        if line is None or line.number in lines:
            found.pieces += bool(text)
        else:
            lines[line.number] = line
            found.pieces += not newline
        found.pieces += bool(rest)
    found.promised, last = _unsealed(end.partition(b"\n")[0], items) or (0, "")
    found.counted = found.promised > 0
    ending = lines.get(found.promised - 1)
    chain = [lines[number] for number in sorted(lines)]
    found.linked = ending is None or ending.check == last
    for earlier, later in pairwise(chain):
        if later.number == earlier.number + 1 and later.before != earlier.check:
            found.linked = False
    enough = found.counted and len(chain) >= found.promised
    found.torn = enough and content[-1:] not in (b"", b"\n")
    if 0 in lines:
        found.header = lines.pop(0).record
    found.lines = [line for line in chain if line.number > 0]
    return found


def _intact(text: bytes, items: str) -> _Line | None:
    """A line, if nothing of it was changed and it says what an action or the header says."""
    value = _unsealed(text, items)
    try:
        if len(value) > _FIELDS:
            value = _from_earlier(*value)
        number, before, time, record = value
        action = read_action(record) if number > 0 else None
        if action is None and not {"format", "items"} <= set(record):
            return None
        return _Line(
            number=number, before=before, time=time, record=record, check=_seal(text), action=action
        )
    except (TypeError, ValueError, AttributeError, LookupError):  # InputError is a ValueError
        return None


def _from_earlier(
    number: int, before: str, time: str, kind: str, rows: list[int], texts: list[str], key: str
) -> list[Any]:
    """A line of the earlier format, in which one list of texts had several meanings."""
    record: dict[str, Any]
    match kind:
        case "review":
            record = {"format": texts[0], "items": texts[1]}
        case "label":
            record = {"kind": kind, "rows": rows, "labels": texts, "key": key}
        case "comment":
            record = {"kind": kind, "rows": rows, "text": texts[0], "key": key}
        case "undo" | "redo":
            record = {"kind": kind, "target": texts[0], "key": key}
        case "check" if texts:
            tolerance, of = texts[0].split()
            record = {
                "kind": kind,
                "tolerance": float(tolerance),
                "of": of,
                "seed": texts[1],
                "key": key,
            }
        case "check":
            record = {"kind": "end check", "key": key}
        case _:
            record = {"kind": kind, "rows": rows, "key": key}
    return [number, before, time, record]


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


def _reason(error: OSError) -> str:
    return str(error.strerror or error)


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

        wanted = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(file, wanted | fcntl.LOCK_NB)
