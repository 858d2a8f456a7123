"""Would sqlite be the better journal of a review? Speed, kills and damages side by side.

    python -m benchmarks.journals [--actions 300] [--kills 20] [--damages 2000]

Three journals store the same actions: the lines of ``manyway.review.journal``; a table of sqlite with
``synchronous = FULL``; and the same table with a chain of checksums and a count beside it, as the lines have. A damage
is one to three random changes of a file. It may be reported, or change nothing; other actions without a word are wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from manyway.errors import InputError
from manyway.review import journal as lines
from manyway.review.actions import Action, read_action
from tests.damage import damaged

ITEMS = "trees"
_AT_ONCE = 12  # actions of a journal that is damaged


class AnyJournal(Protocol):
    """What all of them can do."""

    damage: str

    def append(self, action: Action) -> object:
        """Store an action on the disk."""

    def actions(self) -> list[Action]:
        """All of them."""

    def close(self) -> None:
        """Let others open it."""


class Lines(lines.Journal):
    """The journal of the package."""

    def __init__(self, folder: Path) -> None:
        path = folder / "journal.jsonl"
        super().__init__(path, ITEMS, new=not path.exists())

    def actions(self) -> list[Action]:
        return list(self)


class Table:
    """A table of sqlite; what sqlite notices is a damage."""

    damage = ""

    def __init__(self, folder: Path) -> None:
        self.base = sqlite3.connect(folder / "journal.sqlite", isolation_level=None)
        try:
            self._start()
            self._load()
        except (sqlite3.Error, ValueError, TypeError) as error:
            self.base.close()
            raise InputError(f"The journal is damaged: {error}.") from error

    def _start(self) -> None:
        self.base.execute("PRAGMA locking_mode = EXCLUSIVE")
        self.base.execute("PRAGMA synchronous = FULL")
        self.base.execute("CREATE TABLE IF NOT EXISTS entries (number INTEGER PRIMARY KEY, record TEXT, seal TEXT)")
        if self.base.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            raise ValueError("its pages do not fit together")

    def _load(self) -> None:
        found = self.base.execute("SELECT number, record, seal FROM entries ORDER BY number").fetchall()
        self.stored = [read_action(json.loads(record)) for _, record, _ in found]

    def append(self, action: Action) -> None:
        record = json.dumps(action.record())
        self.base.execute("INSERT INTO entries (record, seal) VALUES (?, '')", (record,))
        self.stored.append(action)

    def actions(self) -> list[Action]:
        return self.stored

    def close(self) -> None:
        self.base.close()


class SealedTable(Table):
    """The same with a chain of checksums, and a file that says how many entries there are."""

    def __init__(self, folder: Path) -> None:
        self.end = os.open(folder / "journal.end", os.O_RDWR | os.O_CREAT)
        super().__init__(folder)

    def _load(self) -> None:
        found = self.base.execute("SELECT number, record, seal FROM entries ORDER BY number").fetchall()
        self.seal = ""
        for at, (number, record, seal) in enumerate(found, 1):
            self.seal = self._sealed(record)
            if number != at or seal != self.seal:
                raise ValueError(f"entry {at} was changed")
        self.stored = [read_action(json.loads(record)) for _, record, _ in found]
        said = os.pread(self.end, 1000, 0)
        allowed = (self._ending(len(found), self.seal), self._ending(len(found) - 1, self._before(found)))
        if (len(found) > 1 or said) and said not in allowed:
            raise ValueError("the last entries may be missing")

    @staticmethod
    def _ending(count: int, seal: str) -> bytes:
        """Always as long, so that half of it cannot look whole."""
        return f"{count:12d} {seal:32}".encode()

    @staticmethod
    def _before(found: list[tuple[int, str, str]]) -> str:
        return found[-2][2] if len(found) > 1 else ""

    def _sealed(self, record: str) -> str:
        return hashlib.sha256(f"{ITEMS}\n{self.seal}\n{record}".encode()).hexdigest()[:32]

    def append(self, action: Action) -> None:
        record = json.dumps(action.record())
        self.seal = self._sealed(record)
        self.base.execute("INSERT INTO entries (record, seal) VALUES (?, ?)", (record, self.seal))
        self.stored.append(action)
        os.pwrite(self.end, self._ending(len(self.stored), self.seal), 0)

    def close(self) -> None:
        super().close()
        os.close(self.end)


KINDS: dict[str, Callable[[Path], AnyJournal]] = {"lines": Lines, "sqlite": Table, "sqlite and seals": SealedTable}


def action(number: int) -> Action:
    """One of the actions of a person."""
    rng = random.Random(number)
    rows = rng.sample(range(1000), rng.randint(1, 8))
    labels = [rng.choice(["oak", "Maße", 'a"b']) for _ in rows]
    return read_action({"kind": "label", "rows": rows, "labels": labels, "key": str(number)})


def speed(kind: str, n_actions: int) -> tuple[float, float]:
    """Milliseconds per action, and to open a journal of all of them."""
    with tempfile.TemporaryDirectory(dir=".") as made:
        journal = KINDS[kind](Path(made))
        start = time.perf_counter()
        for number in range(n_actions):
            journal.append(action(number))
        each = (time.perf_counter() - start) / n_actions
        journal.close()
        start = time.perf_counter()
        KINDS[kind](Path(made)).close()
        return 1000 * each, 1000 * (time.perf_counter() - start)


WRITER = "import sys; from benchmarks.journals import keep_writing; keep_writing(*sys.argv[1:])"


def keep_writing(kind: str, folder: str) -> None:
    """Append until killed; each acknowledged action is a line."""
    journal = KINDS[kind](Path(folder))
    number = len(journal.actions())
    while True:
        journal.append(action(number))
        print(number, flush=True)
        number += 1


def kills(kind: str, count: int) -> int:
    """How many acknowledged actions are lost in so many kills."""
    lost = 0
    rng = random.Random(17)
    with tempfile.TemporaryDirectory(dir=".") as made:
        for _ in range(count):
            child = subprocess.Popen([sys.executable, "-c", WRITER, kind, made], stdout=subprocess.PIPE, text=True)
            assert child.stdout is not None
            said = [child.stdout.readline() for _ in range(rng.randint(1, 12))]
            time.sleep(0.004 * rng.random())
            os.kill(child.pid, signal.SIGKILL)
            said += [line for line in child.stdout if line.endswith("\n")]
            child.wait()
            journal = KINDS[kind](Path(made))
            stored = journal.actions()
            journal.close()
            lost += sum(int(line) >= len(stored) or stored[int(line)] != action(int(line)) for line in said)
    return lost


def damages(kind: str, count: int) -> Counter[str]:
    """How random damages end."""
    rng = random.Random(5)
    ended: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        journal = KINDS[kind](folder)
        for number in range(_AT_ONCE):
            journal.append(action(number))
        journal.close()
        expected = journal.actions()[:]
        whole = {path: path.read_bytes() for path in folder.iterdir()}
        for _ in range(count):
            for path in folder.iterdir():
                path.unlink()
            broken = rng.choice(list(whole))
            for path, content in whole.items():
                path.write_bytes(damaged(content, rng) if path == broken else content)
            ended[ending(kind, folder, expected)] += 1
    return ended


def ending(kind: str, folder: Path, expected: list[Action]) -> str:
    """How a journal opens: as it was, with a word, refused, or wrong."""
    try:
        journal = KINDS[kind](folder)
    except InputError:
        return "refused"
    with suppress(Exception):
        journal.close()
    if journal.damage:
        return "said, rest kept"
    return "as it was" if journal.actions() == expected else "wrong without a word"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actions", type=int, default=300)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--damages", type=int, default=2000)
    given = parser.parse_args()
    print(f"lines of code: {len(inspect.getsource(lines).splitlines())} of the journal of lines")
    for kind in KINDS:
        each, opened = speed(kind, given.actions)
        lost = kills(kind, given.kills)
        print(f"{kind}: {each:.2f} ms an action, {opened:.1f} ms to open, {lost} lost in {given.kills} kills")
        print(f"    damages: {dict(damages(kind, given.damages))}", flush=True)


if __name__ == "__main__":
    main()
