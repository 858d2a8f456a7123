"""The journal: what was acknowledged is there, whatever happens to the process."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import re
import signal
import time
from pathlib import Path

import processes
import pytest
from damage import wrong_answers

from manyway.errors import InputError
from manyway.review.actions import BeginCheck, Clear, Comment, EndCheck, Label, Redo, Undo, Unknown
from manyway.review.journal import Journal

# A reviewer who goes on where the journal ends, and writes a line when an action is acknowledged. Each is a fork of a
# process that has loaded what it needs, which says when one has ended, and waits before the next.
REVIEWERS = """
import os, random, signal, sys
from pathlib import Path
from manyway.review.actions import Label, Undo, Unknown
from manyway.review.journal import Journal

def review(seed):
    print(os.getpid(), flush=True)
    journal = Journal(Path(sys.argv[1]), items="trees")
    rng, number = random.Random(seed), len(list(journal))
    while True:
        key, rows = str(number), tuple(rng.sample(range(1000), rng.randint(1, 40)))
        labels = tuple(rng.choice(["oak", "elm"]) for _ in rows)
        actions = [Label(rows=rows, labels=labels, key=key), Unknown(rows=rows, key=key), Undo(target="1", key=key)]
        action = rng.choice(actions)
        journal.append(action)
        print(number, action.kind, len(getattr(action, "rows", ())), flush=True)
        number += 1

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
for seed in range(20):
    reviewer = os.fork()
    if reviewer == 0:
        review(seed)
    os.waitpid(reviewer, 0)
    print("ended", flush=True)
    signal.sigwait([signal.SIGUSR1])
"""


def test_actions_come_back_in_order(tmp_path):
    actions = [
        Label(rows=(1, 2), labels=("oak", "Ж\udcff"), key="a"),
        Undo(target="a", key="b"),
        Redo(target="a", key="c"),
        Clear(rows=(1,), key="d"),
        Unknown(rows=(2,), key="e"),
        Comment(rows=(1,), text="at night", key="f"),
        BeginCheck(tolerance=0.05, of="rest", seed="abc", key="g"),
        EndCheck(key="h"),
    ]
    journal = Journal(tmp_path / "journal.jsonl", "trees")
    for action in actions:
        journal.append(action)
    journal.close()
    assert list(Journal(tmp_path / "journal.jsonl", "trees")) == actions


def earlier_line(number, before, *fields):
    """A line of the earlier format: number, checksum before it, time, kind, items, texts, key; with its checksum."""
    text = json.dumps([number, before, "2026-01-01T10:00:00+00:00", *fields], separators=(",", ":"))
    items = "trees" if number else ""
    check = hashlib.sha256(f"{items}\n{text}".encode()).hexdigest()[:32]
    return check, f'{{"check":"{check}","entry":{text}}}\n'


def test_a_journal_of_the_earlier_format_is_read_and_written_anew(tmp_path):
    entries = [
        ("review", [], ["manyway review 2", "trees"], ""),
        ("label", [1, 2], ["oak", "elm"], "a"),
        ("undo", [], ["a"], "b"),
        ("redo", [], ["a"], "c"),
        ("clear", [1], [], "d"),
        ("unknown", [2], [], "e"),
        ("comment", [1], ["at night"], "f"),
        ("check", [], ["0.05 rest", "abc"], "g"),
        ("check", [], [], "h"),
    ]
    check, content = "", ""
    for number, entry in enumerate(entries):
        check, line = earlier_line(number, check, *entry)
        content += line
    end = json.dumps([len(entries), check], separators=(",", ":"))
    sealed = hashlib.sha256(f"trees\n{end}".encode()).hexdigest()[:32]
    path = tmp_path / "journal.jsonl"
    path.write_text(content)
    path.with_suffix(".end").write_text(f'{{"check":"{sealed}","entry":{end}}}\n')
    for _ in range(2):
        journal = Journal(path, "trees", new=False)
        journal.close()
        assert (list(journal), journal.damage) == (
            [
                Label(rows=(1, 2), labels=("oak", "elm"), key="a"),
                Undo(target="a", key="b"),
                Redo(target="a", key="c"),
                Clear(rows=(1,), key="d"),
                Unknown(rows=(2,), key="e"),
                Comment(rows=(1,), text="at night", key="f"),
                BeginCheck(tolerance=0.05, of="rest", seed="abc", key="g"),
                EndCheck(key="h"),
            ],
            "",
        )
        assert "manyway review 3" in path.read_text()
        assert journal.entries[0].time == "2026-01-01T10:00:00+00:00"


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_twenty_kills_lose_no_acknowledged_action(tmp_path):
    path, rng, acknowledged = tmp_path / "journal.jsonl", random.Random(17), []
    with processes.Started(REVIEWERS, path) as parent:
        for _ in range(20):
            reviewer = int(parent.stdout.readline())
            lines = [parent.stdout.readline() for _ in range(rng.randint(1, 12))]
            time.sleep(rng.random() * 0.004)
            os.kill(reviewer, signal.SIGKILL)
            lines += iter(parent.stdout.readline, "ended\n")
            acknowledged += [line.split() for line in lines]
            journal = Journal(path, "trees")
            stored = [[action.key, action.kind, str(len(getattr(action, "rows", ())))] for action in journal]
            journal.close()
            assert stored[: len(acknowledged)] == acknowledged
            assert len(stored) - len(acknowledged) <= 1  # one may be stored but not acknowledged yet
            acknowledged = stored
            os.kill(parent.pid, signal.SIGUSR1)


def test_every_action_reaches_the_disk_before_it_is_acknowledged(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "journal.jsonl", "trees")
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
    journal.append(Unknown(rows=(1,), key="a"))
    assert synced == [(tmp_path / "journal.jsonl").stat().st_size]


def test_a_review_is_open_once(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, "trees")
    with pytest.raises(InputError, match="is open already"):
        Journal(path, "trees")
    journal.close()
    Journal(path, "trees").close()


def test_a_journal_of_other_items_is_refused(tmp_path):
    Journal(tmp_path / "journal.jsonl", "trees").close()
    with pytest.raises(InputError, match="other items"):
        Journal(tmp_path / "journal.jsonl", "birds")


def test_a_later_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("manyway.review.journal._FORMAT", "manyway review 9")
    Journal(tmp_path / "journal.jsonl", "trees").close()
    monkeypatch.undo()
    with pytest.raises(InputError, match="'manyway review 9'"):
        Journal(tmp_path / "journal.jsonl", "trees")


ACTIONS = [Label(rows=(n, n + 1), labels=("oak", "elm"), key=f"key {n}") for n in range(5)]


@pytest.fixture
def written(tmp_path):
    """A journal with five actions, closed."""
    journal = Journal(tmp_path / "journal.jsonl", "trees")
    for action in ACTIONS:
        journal.append(action)
    journal.close()
    return tmp_path / "journal.jsonl"


def without(path, *numbers):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for number, line in enumerate(lines) if number not in numbers))


def end_of(path):
    return path.with_suffix(".end")


@pytest.mark.parametrize(
    ("damage", "kept", "sentence"),
    [
        (lambda path: path.write_bytes(b""), [], "has lost all its entries"),
        (lambda path: path.unlink(), [], "has lost all its entries"),
        (lambda path: path.write_bytes(b"something else" * 100), [], "has lost all its entries"),
        (lambda path: (path.unlink(), end_of(path).unlink()), [], "has lost all its entries"),
        (lambda path: without(path, 5), ACTIONS[:4], r"1 of 5 entries are lost \(number 5\)"),
        (lambda path: without(path, 2, 4), [ACTIONS[n] for n in (0, 2, 4)], r"2 of 5 .* \(number 2, 4\)"),
        (lambda path: without(path, 0), ACTIONS, "0 of 5 entries are lost"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"oak", b"ash", 1)), ACTIONS[1:], "number 1"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), ACTIONS[:4], "number 5"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"\n", b"x", 1)), ACTIONS, "0 of 5 entries are lost"),
        (lambda path: end_of(path).unlink(), ACTIONS, "the last ones may be missing"),
        (lambda path: end_of(path).write_bytes(b"5"), ACTIONS, "the last ones may be missing"),
    ],
)
def test_a_damage_is_said_once_and_what_is_intact_is_kept(written, damage, kept, sentence):
    before = written.read_bytes()
    damage(written)
    changed = written.read_bytes() if written.exists() else b""
    looked = Journal(written, "trees", new=False, read_only=True)
    looked.close()
    journal = Journal(written, "trees", new=False)
    assert list(looked) == list(journal) == kept
    assert re.search(sentence, journal.damage), journal.damage
    if not before.startswith(changed):
        assert (written.parent / "journal-damaged-1.jsonl").read_bytes() == changed
    journal.append(ACTIONS[0])
    journal.close()
    again = Journal(written, "trees", new=False)
    assert (list(again), again.damage) == ([*kept, ACTIONS[0]], "")


def test_half_a_line_that_was_never_acknowledged_is_no_damage(written):
    end, whole = end_of(written).read_bytes(), written.read_bytes()
    Journal(written, "trees").append(Undo(target="x", key="later"))
    more = written.read_bytes()
    for length in (len(whole) + 1, len(whole) + 20, len(more) - 2):
        written.write_bytes(more[:length])
        end_of(written).write_bytes(end)
        journal = Journal(written, "trees", new=False)
        journal.close()
        assert (list(journal), journal.damage) == (ACTIONS, "")
        assert written.read_bytes() == whole


def test_random_damages_give_no_other_answers_without_a_word(tmp_path):
    wrong, ended = wrong_answers(400, 5, tmp_path)
    assert wrong == []
    assert ended["said"] > 300


def test_a_full_disk_loses_nothing(written, monkeypatch):
    journal = Journal(written, "trees")

    class Full:
        """A file on a disk that takes ten bytes more."""

        def __init__(self, file):
            self.file = file

        def __getattr__(self, name):
            return getattr(self.file, name)

        def write(self, data):
            if os.fstat(self.file.fileno()).st_size > journal._size:
                raise OSError(errno.ENOSPC, "No space left on device")
            return self.file.write(data[:10])

    whole = written.read_bytes()
    journal._file = Full(journal._file)
    for _ in range(3):
        with pytest.raises(InputError, match="The action was not saved: No space left on device"):
            journal.append(Unknown(rows=(7,), key="full"))
    assert written.read_bytes() == whole
    journal._file = journal._file.file
    journal.append(Unknown(rows=(8,), key="room"))
    journal.close()
    again = Journal(written, "trees", new=False)
    assert (len(list(again)), again.damage) == (6, "")


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_bytes(path.read_bytes() + b"x")])
def test_a_journal_that_another_program_changes_takes_no_answer(written, change):
    journal = Journal(written, "trees")
    change(written)
    with pytest.raises(InputError, match="another program has changed or removed the journal"):
        journal.append(ACTIONS[0])


@pytest.mark.skipif(os.name != "posix", reason="needs permissions")
def test_the_files_are_for_their_owner_alone(written):
    assert [file.stat().st_mode & 0o777 for file in written.parent.iterdir()] == [0o600, 0o600]
