"""Features that were computed before.

They are found by the content of the item, the encoder and its preprocessing.

The cache is one SQLite file, which processes can share. A row that fails its checksum counts as
absent, and a file that is damaged is begun anew; the items are then encoded again. When the file
grows beyond its limit, the features that were not used for the longest time are removed.
"""

import hashlib
import json
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from manyway.files import cache_folder

SHARD = 1024  # items that are written together
LIMIT = 4 * 2**30  # bytes of the file
_WAIT = 30  # seconds for another process to finish writing
_TABLE = """CREATE TABLE IF NOT EXISTS features
    (space TEXT, item TEXT, vector BLOB, note TEXT, sum INTEGER, used REAL, PRIMARY KEY (space, item))"""
T = TypeVar("T")


class FeatureCache(AbstractContextManager["FeatureCache"]):
    """Features of one encoder by the hash of their item; new ones are written when the block ends.

    Parameters
    ----------
    space : list
        What the features depend on besides the item: encoder, weights, preprocessing. Plain data.
    folder : Path, optional
        By default `cache_folder`.
    say : callable, optional
        Called with a sentence if the cache cannot be written. The work goes on without it.

    Examples
    --------
    >>> import tempfile
    >>> with FeatureCache(["letters"], Path(tempfile.mkdtemp())) as cache:
    ...     cache.add("ab" * 32, torch.ones(3), "")
    ...     cache.get("ab" * 32)
    (tensor([1., 1., 1.]), '')
    """

    def __init__(
        self,
        space: list[Any],
        folder: Path | None = None,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.path = (folder or cache_folder()) / "features.sqlite"
        self._space = hashlib.sha256(json.dumps(space).encode()).hexdigest()[:32]
        self._say = say
        self._new: dict[str, tuple[bytes, str]] = {}
        self._used: set[str] = set()
        self._lock = threading.RLock()  # pictures are looked up by several threads
        self._file = self._open()

    def get(self, key: str) -> tuple[Tensor, str] | None:
        """The features [d] of an item and the note on its decoding; None if they are not known."""
        with self._lock:
            found = self._new.get(key) or self._read(key)
        if found is None:
            return None
        return (torch.frombuffer(bytearray(found[0]), dtype=torch.float32), found[1])

    def add(self, key: str, features: Tensor, note: str) -> None:
        """Keep the features [d] of an item."""
        with self._lock:
            self._new[key] = features.float().contiguous().numpy().tobytes(), note
            if len(self._new) >= SHARD:
                self._write()

    def __exit__(self, *_: object) -> None:
        self._write()
        self._file.close()

    def _read(self, key: str) -> tuple[bytes, str] | None:
        asked = "SELECT vector, note, sum FROM features WHERE space = ? AND item = ?"
        row = self._do(lambda file: file.execute(asked, (self._space, key)).fetchone())
        if row is None or row[2] != _checksum(key, *row[:2]):
            return None
        self._used.add(key)
        return row[0], row[1]

    def _write(self) -> None:
        """Write the new features, say which of the old ones were used, and make room."""
        now = time.time()
        rows = [
            (self._space, key, *new, _checksum(key, *new), now) for key, new in self._new.items()
        ]

        def write(file: sqlite3.Connection) -> None:
            file.executemany("INSERT OR REPLACE INTO features VALUES (?, ?, ?, ?, ?, ?)", rows)
            used = [(now, self._space, key) for key in self._used]
            file.executemany("UPDATE features SET used = ? WHERE space = ? AND item = ?", used)
            _shrink(file)

        self._do(write)
        self._new = {}
        self._used = set()

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Work on the file, as one change.

        A new one is used where the file turns out to be damaged or cannot be written.
        """
        try:
            with self._file:
                return work(self._file)
        except sqlite3.Error as error:
            self._file.close()
            self._file = self._open(error)
            with self._file:
                return work(self._file)

    def _open(self, wrong: sqlite3.Error | None = None) -> sqlite3.Connection:
        """The file, or a new one if something was wrong with its content.

        Memory, if it cannot be written.
        """
        try:
            if wrong is not None:
                raise wrong
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return _connect(self.path)
        except (OSError, sqlite3.Error) as error:
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(
                error, sqlite3.OperationalError
            ):
                self.path.unlink(missing_ok=True)  # it is no database, or a part of it is missing
                return self._open()
            self._say(
                f"note: features are not kept for the next run: cannot write {self.path} ({error})"
            )
            return _connect(":memory:")


def _connect(path: Path | str) -> sqlite3.Connection:
    file = sqlite3.connect(path, timeout=_WAIT, check_same_thread=False)
    file.execute(_TABLE)
    return file


def _checksum(key: str, vector: bytes, note: str) -> int:
    return zlib.crc32(vector + f"{key}{note}".encode("utf-8", "replace"))


def _shrink(file: sqlite3.Connection) -> None:
    """Remove a tenth of the rows if the file has reached its limit.

    Those go that were not used for the longest time.
    """
    pages, free, size = (file.execute(f"PRAGMA {of}").fetchone()[0] for of in _SIZES)
    if (pages - free) * size > LIMIT:  # the pages of removed rows are free, and are used again
        oldest = (
            "SELECT used FROM features ORDER BY used LIMIT 1 OFFSET (SELECT COUNT(*) / 10 "
            "FROM features)"
        )
        file.execute(f"DELETE FROM features WHERE used <= ({oldest})")


_SIZES = ("page_count", "freelist_count", "page_size")
