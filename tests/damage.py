"""Random damages to the files of a journal.  python tests/damage.py 100000"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

from manyway.errors import InputError
from manyway.review.actions import Action, read_action
from manyway.review.journal import Journal


def write_journal(folder: Path, rng: random.Random, n_actions: int = 12) -> list[Action]:
    journal = Journal(folder / "journal.jsonl", "trees")
    for n in range(n_actions):
        record = {"kind": rng.choice(["label", "label", "unknown", "clear", "undo"]), "key": f"key {n}"}
        if record["kind"] != "undo":
            record["rows"] = rng.sample(range(100), rng.randint(1, 4))
        if record["kind"] == "label":
            record["labels"] = [rng.choice(["oak", "Masse", "Maße", 'a"b', "Ж\n"]) for _ in record["rows"]]
        journal.append(read_action(record))
    journal.close()
    return list(journal)


def damaged(content: bytes, rng: random.Random) -> bytes:
    """The content with one to three random changes."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 3])):
        at, end = sorted(rng.randint(0, len(data)) for _ in range(2))
        lines = bytes(data).splitlines(keepends=True)
        match rng.randrange(10):
            case 0 | 1 if data:
                data[min(at, len(data) - 1)] ^= 1 << rng.randrange(8)
            case 2:
                data[at:] = b""
            case 3:
                data[at:end] = b""
            case 4:
                data[at:at] = rng.randbytes(rng.randint(1, 30))
            case 5:
                data[at:end] = bytes(end - at)
            case 6:
                data[at:at] = data[at:end]
            case 7 if lines:
                del lines[rng.randrange(len(lines))]
                data = bytearray(b"".join(lines))
            case 8 if lines:
                del lines[rng.randrange(len(lines)) :]
                data = bytearray(b"".join(lines))
            case 9 if lines:
                rng.shuffle(lines)
                data = bytearray(b"".join(lines))
    return bytes(data)


def wrong_answers(count: int, seed: int, folder: Path) -> tuple[list[int], dict[str, int]]:
    """The damages that gave other actions without a word, and how the others ended. Anything else is raised."""
    rng, wrong, ended = random.Random(seed), [], {"same": 0, "said": 0, "refused": 0}
    path, end = folder / "journal.jsonl", folder / "journal.end"
    actions = write_journal(folder, rng)
    whole = path.read_bytes(), end.read_bytes()
    for number in range(count):
        for file in folder.iterdir():
            file.unlink()
        which = rng.randrange(10)
        for file, content, chosen in ((path, whole[0], which < 8), (end, whole[1], which > 6)):
            if not chosen or rng.random() > 0.02:  # else it is missing
                file.write_bytes(damaged(content, rng) if chosen else content)
        try:
            journal = Journal(path, "trees", new=False, read_only=number % 2 == 0)
        except InputError:
            ended["refused"] += 1
            continue
        kept = list(journal)
        journal.close()
        ended["said" if journal.damage else "same"] += 1
        if (kept != actions and not journal.damage) or any(action not in actions for action in kept):
            wrong.append(number)
        if number % 2:
            again = Journal(path, "trees", new=False)
            again.close()
            assert (list(again), again.damage) == (kept, ""), number  # what was intact is saved
    return wrong, ended


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        print(wrong_answers(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0, Path(made)))
