"""Two results compared task by task, or two methods on all tasks that both solved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from manyway.bench.presentation import in_words
from manyway.bench.show.view import later_words, method_title, scorer_title, special_params
from manyway.bench.store import Record, Store, read_record
from manyway.errors import InputError, nearest
from manyway.evaluation.statistics import Interval, Paired, accuracy, paired


@dataclass(frozen=True)
class Comparison:
    """Results a and b on the tasks that both solved."""

    a: Record
    b: Record
    accuracy_a: Interval
    accuracy_b: Interval
    paired: Paired


def find_records(text: str, store: Store) -> list[Record]:
    """The results that a text names: a result file (.json), the beginning of a key, or the name of a method."""
    if text.endswith(".json"):
        return [read_record(Path(text))]
    stored = [record for record in store.records() if record.trace is None]
    found = [record for record in stored if text == record.method]
    found = found or [record for record in stored if len(text) >= 4 and record.key.startswith(text)]
    if not found:
        known = sorted({record.method for record in stored})
        hint = "run `manyway bench` first." if not known else nearest(text, known)
        raise InputError(f"There is no result of '{text}' in {store.folder}; {hint}")
    return found


def compare(a: Sequence[Record], b: Sequence[Record]) -> list[Comparison]:
    """Every pair of results on the same tasks; if one has more tasks than the other, these are left out."""
    comparisons = []
    for left in a:
        for right in b:
            if left.key == right.key or left.stream != right.stream:
                continue
            n = min(left.n_tasks, right.n_tasks)
            n_query = left.n_query if isinstance(left.n_query, int) else left.n_query[:n]
            of_a, of_b = left.outcome["correct"][:n], right.outcome["correct"][:n]
            test = paired(of_a, of_b, n_query)
            comparisons.append(Comparison(left, right, accuracy(of_a, n_query), accuracy(of_b, n_query), test))
    if not comparisons:
        raise InputError("The two have no tasks in common; compare results with the same features, task and seed.")
    return comparisons


def record_title(record: Record) -> str:
    """A result in a few words: its method, and the parameters that are not the method's defaults."""
    scorer = "" if record.scorer is None else f"({scorer_title(record.scorer)})"
    words = [method_title(record.method), scorer, special_params(record), "†" if record.old else ""]
    return " ".join(filter(None, words))


def setting(record: Record) -> str:
    """What the tasks are, in a few words."""
    task = record.task
    ways = task["n_ways"] or record.features["n_classes"]
    shots = "given support" if task["shots"] is None else f"{task['shots']}-shot"
    alpha = "" if task["alpha"] is None else f"({task['alpha']:g})"
    k_eff = in_words("k_eff", task["k_eff"])
    words = [record.features["name"], f"K = {ways}", shots, f"K_eff = {k_eff}", f"|Q| = {task['n_query']}"]
    words += [] if task["sampling"] == "uniform" else [f"{task['sampling']}{alpha}"]
    return ", ".join([*words, *later_words(task)])
