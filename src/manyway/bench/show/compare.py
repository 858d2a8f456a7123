"""Two results compared task by task, or two methods on all tasks that both solved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from manyway.bench.records import Record
from manyway.bench.store import Store
from manyway.errors import InputError, nearest


def find_records(text: str, store: Store) -> list[Record]:
    """The results that a text names: a result file (.json), the beginning of a key, or the name of a method."""
    if text.endswith(".json"):
        return [Record.read(Path(text))]
    stored = [record for record in store.records() if record.trace is None]
    found = [record for record in stored if text == record.method]
    found = found or [record for record in stored if len(text) >= 4 and record.key.startswith(text)]
    if not found:
        known = sorted({record.method for record in stored})
        hint = "run `manyway bench` first." if not known else nearest(text, known)
        raise InputError(f"There is no result of '{text}' in {store.folder}; {hint}")
    return found


def pairs(a: Sequence[Record], b: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Every pair of results on the same tasks; if one has more tasks than the other, these are left out."""
    found = []
    for left in a:
        for right in b:
            if left.key != right.key and left.stream == right.stream:
                n_tasks = min(left.n_tasks, right.n_tasks)
                found.append((left.first(n_tasks), right.first(n_tasks)))
    if not found:
        raise InputError("The two have no tasks in common; compare results with the same features, task and seed.")
    return found
