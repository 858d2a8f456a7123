"""The journal of a review: every action is on the disk before it is acknowledged, and none is ever deleted."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from manyway.errors import InputError

LABEL, UNKNOWN, CLEAR, UNDO, REDO = KINDS = ("label", "unknown", "clear", "undo", "redo")
_FORMAT = "manyway review 1"


@dataclass(frozen=True)
class Action:
    """One step of a review.

    Parameters
    ----------
    kind : {"label", "unknown", "clear", "undo", "redo"}
        Give labels, mark items as unknown, take back what was said about items, take back the last action,
        or do again what was taken back.
    rows : tuple of int
        The items; none for ``undo`` and ``redo``.
    labels : tuple of str
        With ``label``: one class per item.
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
    """The actions of one review in an SQLite file.

    The file is in WAL mode with ``synchronous=FULL``: when `append` returns, the action survives the end of the process
    and the loss of power. One process at a time has the file open.

    Parameters
    ----------
    path : Path
        The file; it is made if it does not exist.
    items : str
        What identifies the items (a hash). A journal of other items is refused.

    Examples
    --------
    >>> import tempfile
    >>> journal = Journal(Path(tempfile.mkdtemp()) / "journal.sqlite", items="8f2a")
    >>> journal.append(Action("unknown", (7,), key="k"))
    >>> [action.rows for action in journal]
    [(7,)]
    """

    def __init__(self, path: Path, items: str) -> None:
        self.path = path
        try:
            # The lock of the session guards the connection, which several threads use.
            self._file = sqlite3.connect(path, timeout=0.5, isolation_level=None, check_same_thread=False)
            self._file.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("PRAGMA synchronous=FULL")
            self._file.execute("BEGIN IMMEDIATE")
            self._file.execute("CREATE TABLE IF NOT EXISTS review (format TEXT, items TEXT)")
            self._file.execute(
                "CREATE TABLE IF NOT EXISTS actions (number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, "
                "time TEXT, kind TEXT, rows TEXT, labels TEXT)"
            )
            found = self._file.execute("SELECT format, items FROM review").fetchone()
            if found is None:
                self._file.execute("INSERT INTO review VALUES (?, ?)", (_FORMAT, items))
            self._file.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise InputError(
                    f"The review in {path.parent} is open already; use its page, or stop it first."
                ) from error
            raise InputError(f"The journal {path} cannot be opened: {error}.") from error
        except sqlite3.DatabaseError as error:
            raise InputError(f"{path} is not the journal of a review ({error}).") from error
        if found is not None and tuple(found) != (_FORMAT, items):
            self.close()
            if found[0] != _FORMAT:
                raise InputError(f"{path} has the format '{found[0]}', which this version of manyway cannot read.")
            raise InputError(f"The journal {path} belongs to a review of other items.")

    def append(self, action: Action) -> None:
        """Store an action; when this returns it is on the disk.

        Raises
        ------
        InputError
            If it could not be stored, for example because the disk is full.
        """
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        values = (action.key, now, action.kind, json.dumps(action.rows), json.dumps(action.labels))
        try:
            self._file.execute("INSERT INTO actions (key, time, kind, rows, labels) VALUES (?, ?, ?, ?, ?)", values)
        except sqlite3.DatabaseError as error:
            raise InputError(f"The action was not saved: {error}.") from error

    def __iter__(self) -> Iterator[Action]:
        found = self._file.execute("SELECT kind, rows, labels, key FROM actions ORDER BY number").fetchall()
        for kind, rows, labels, key in found:
            yield Action(kind, tuple(json.loads(rows)), tuple(json.loads(labels)), key)

    def close(self) -> None:
        """Close the file; another process can open it now."""
        self._file.close()
