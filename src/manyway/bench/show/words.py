"""Words for axes, their values, and results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from manyway.bench.baselines import COMPARED
from manyway.bench.presentation import in_words, number
from manyway.bench.records import Record
from manyway.evaluation.metrics import find_summary
from manyway.evaluation.scorers import SCORERS
from manyway.sampling.spec import DEFAULTS

# What an axis is called, and a value of it.
_AXES = {
    "method": ("Method", "{}"),
    "features": ("Features", "{}"),
    "scorer": ("Score", "{}"),
    "metrics": ("Metric", "{}"),
    "version": ("Version", "version {}"),
    "shots": ("shots", "{}-shot"),
    "k_eff": ("K_eff", "K_eff = {}"),
    "n_query": ("|Q|", "|Q| = {}"),
    "n_ways": ("K", "K = {}"),
    "lam": ("λ", "λ = {}"),
    "alpha": ("α", "α = {}"),
    "steps": ("iterations", "{} iterations"),
}
# Fields of a task that are named only where they differ from their defaults.
LATER = {
    "n_unknown": ("unknown queries", "{} unknown queries"),
    "unknown_classes": ("unknown classes", "{} unknown classes"),
    "unknown_from": ("unknown features", "unknown queries from {}"),
    "n_batches": ("batches", "{} batches"),
    "gamma": ("γ", "γ = {}"),
    "n_answers": ("answers", "{} answers"),
    "reviewer": ("Reviewer", "{}"),
}
_SPECIAL = {
    ("shots", None): "given support",
    ("scorer", None): "own score",
    ("gamma", None): "batches alike",
    ("gamma", 0): "separate classes",
}


def axis_title(axis: str) -> str:
    """What an axis is called.

    >>> axis_title("k_eff"), axis_title("tau")
    ('K_eff', 'tau')
    """
    return {**_AXES, **LATER}.get(axis, (axis,))[0]


def label(axis: str, value: Any, names: Mapping[str, str] | None = None) -> str:
    """A value of an axis, as people say it; ``names`` are those of feature sets.

    >>> label("shots", 5), label("gamma", 0), label("tau", [1, 0.3]), label("n_unknown", 0)
    ('5-shot', 'separate classes', 'tau = [1, 0.3]', 'no unknown queries')
    """
    known: dict[str, Mapping[str, Any]] = {"method": COMPARED, "scorer": SCORERS}
    if not isinstance(value, list | tuple | dict) and (axis, value) in _SPECIAL:
        return _SPECIAL[axis, value]
    if axis in LATER and value == DEFAULTS[axis]:
        return f"no {axis_title(axis)}"
    if axis in known:
        value = known[axis][value].title if value in known[axis] else value
    elif axis == "metrics":
        value = find_summary(value)[1].title
    elif axis == "features":
        value = (names or {}).get(value, value)
    return {**_AXES, **LATER}.get(axis, (axis, f"{axis} = {{}}"))[1].format(number(in_words(axis, value)))


def later_words(task: Mapping[str, Any]) -> list[str]:
    """What a task says about unknown queries, streams and reviewers; nothing where it has its default.

    >>> later_words({"n_unknown": 20, "unknown_classes": 3, "n_batches": 1})
    ['20 unknown queries', '3 unknown classes']
    """
    return [label(name, task[name]) for name in LATER if name in task and task[name] != DEFAULTS[name]]


def record_title(record: Record) -> str:
    """A result in a few words: its method, and the parameters that are not the method's defaults."""
    scorer = "" if record.scorer is None else f"({label('scorer', record.scorer)})"
    return " ".join(filter(None, [label("method", record.method), scorer, params(record), "†" if record.old else ""]))


def params(record: Record) -> str:
    """The parameters of a result that are not the method's defaults."""
    return ", ".join(f"{axis_title(name)} = {number(value)}" for name, value in record.special_params.items())


def setting(record: Record) -> str:
    """What the tasks are, in a few words."""
    task = record.task
    words = [record.features.name, f"K = {task['n_ways'] or record.features.n_classes}", label("shots", task["shots"])]
    words += [label(axis, task[axis]) for axis in ("k_eff", "n_query")]
    alpha = "" if task["alpha"] is None else f"({task['alpha']:g})"
    words += [] if task["sampling"] == "uniform" else [f"{task['sampling']}{alpha}"]
    return ", ".join([*words, *later_words(task)])


def old_note(records: Iterable[Record]) -> str:
    """Which results are not of the present versions of their methods; '' where all are."""
    reasons = sorted({record.old for record in records if record.old})
    return f"†: {'; '.join(reasons)}. Run the suite again to update it." if reasons else ""


def has_metric(record: Record, metric: str) -> bool:
    """Whether a result of ordinary tasks (not a trace) has a metric such as ``n_present.within``."""
    return record.trace is None and find_summary(metric)[0].name in record.metrics
