"""The journal: what was acknowledged is there, whatever happens to the process."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from manyway.errors import InputError
from manyway.review.journal import Action, Journal

# A reviewer who goes on where the journal ends, and writes a line when an action is acknowledged.
REVIEWER = """
import random, sys
from pathlib import Path
from manyway.review.journal import Action, Journal
journal = Journal(Path(sys.argv[1]), items="trees")
rng, number = random.Random(int(sys.argv[2])), len(list(journal))
while True:
    kind = rng.choice(["label", "label", "unknown", "undo"])
    rows = () if kind == "undo" else tuple(rng.sample(range(1000), rng.randint(1, 40)))
    labels = tuple(rng.choice(["oak", "elm"]) for _ in rows) if kind == "label" else ()
    journal.append(Action(kind, rows, labels, key=str(number)))
    print(number, kind, len(rows), flush=True)
    number += 1
"""


def test_actions_come_back_in_order(tmp_path):
    actions = [
        Action("label", (1, 2), ("oak", "Ж\udcff"), "a"),
        Action("undo", key="b"),
        Action("clear", (1,), key="c"),
    ]
    journal = Journal(tmp_path / "journal.sqlite", "trees")
    for action in actions:
        journal.append(action)
    journal.close()
    assert list(Journal(tmp_path / "journal.sqlite", "trees")) == actions


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_twenty_kills_lose_no_acknowledged_action(tmp_path):
    path, rng, acknowledged = tmp_path / "journal.sqlite", random.Random(17), []
    for start in range(20):
        words = [sys.executable, "-c", REVIEWER, str(path), str(start)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
            for _ in range(rng.randint(1, 12)):
                acknowledged.append(child.stdout.readline().split())
            time.sleep(rng.random() * 0.004)
            os.kill(child.pid, signal.SIGKILL)
            acknowledged += [line.split() for line in child.stdout.read().splitlines(keepends=True) if line[-1] == "\n"]
        journal = Journal(path, "trees")
        stored = [[action.key, action.kind, str(len(action.rows))] for action in journal]
        journal.close()
        assert stored[: len(acknowledged)] == acknowledged
        assert len(stored) - len(acknowledged) <= 1  # one may be stored but not acknowledged yet
        acknowledged = stored


def test_every_commit_reaches_the_disk(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite", "trees")
    pragmas = [journal._file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert pragmas == ["wal", 2]  # 2: FULL


def test_a_review_is_open_once(tmp_path):
    path = tmp_path / "journal.sqlite"
    journal = Journal(path, "trees")
    with pytest.raises(InputError, match="is open already"):
        Journal(path, "trees")
    journal.close()
    Journal(path, "trees").close()


def test_a_journal_of_other_items_is_refused(tmp_path):
    Journal(tmp_path / "journal.sqlite", "trees").close()
    with pytest.raises(InputError, match="other items"):
        Journal(tmp_path / "journal.sqlite", "birds")


def test_a_file_that_is_no_journal_is_refused(tmp_path):
    (tmp_path / "journal.sqlite").write_bytes(b"no data base at all" * 100)
    with pytest.raises(InputError, match="is not the journal of a review"):
        Journal(tmp_path / "journal.sqlite", "trees")


def test_a_later_format_is_refused(tmp_path):
    Journal(tmp_path / "journal.sqlite", "trees").close()
    with closing(sqlite3.connect(tmp_path / "journal.sqlite", isolation_level=None)) as file:
        file.execute("UPDATE review SET format = 'manyway review 9'")
    with pytest.raises(InputError, match="'manyway review 9'"):
        Journal(tmp_path / "journal.sqlite", "trees")
