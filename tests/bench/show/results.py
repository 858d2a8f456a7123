"""Stored results with known answers: three methods, two numbers of shots, two K_eff. Nothing is run."""

from __future__ import annotations

from typing import Any

from manyway.bench.presentation import read_presentation
from manyway.bench.records import PlannedExperiment, Plan, Record
from manyway.bench.show.view import View
from manyway.evaluation.metrics import GROUPS
from manyway.methods import METHODS
from manyway.sampling.spec import TaskSpec, task_fields

ANSWERS = {"paddle": [9, 10, 11, 12] * 10, "soft-kmeans": [8, 9, 10, 11] * 10, "simpleshot": [9, 10, 11, 11] * 10}
SOURCE = {
    "title": "Small",
    "tables": [{"columns": ["shots", "k_eff"]}],
    "plots": [{"name": "keff", "x": "k_eff", "panels": ["shots"]}],
}


FEATURES = {"name": "toy", "fingerprint": "f1f1f1f1", "n_classes": 12}
FEATURES |= {"n_samples": 240, "n_features": 8, "dtype": "float32", "meta": {}}


def make_record(method: str = "paddle", shots: int = 1, k_eff: int = 2, **changes: Any) -> Record:
    """A result of the present version of a method."""
    parts: dict[str, Any] = {
        "key": f"{list(METHODS).index(method)}{shots}{k_eff}".rjust(16, "0"),
        "method": method,
        "params": {"lam": 12},
        "features": FEATURES,
        "task": task_fields(TaskSpec(shots=shots, k_eff=k_eff, n_query=12)),
        "seed": 0,
        "n_tasks": 40,
        "trace": None,
        "outcome": {"n_query": 12, "correct": ANSWERS.get(method, ANSWERS["paddle"])},
        "provenance": {"device": "cpu", "device_name": "x86_64", "chunk": 8, "versions": {"manyway": "0.1.0"}},
        "timing": {"seconds": 0.04, "finished": "2026-01-01T00:00:00+00:00"},
        "version": METHODS[method].version,
        "special": [],
    }
    return Record(**{**parts, **changes})


def calibrated(record: Record, n_wrong: int) -> Record:
    """The record with calibration sums: 24 queries per group at confidence 0.97, of which n_wrong are wrong."""
    sums = [[[0, 0, 0] for _ in range(15)] for _ in range(GROUPS)]
    for group in sums:
        group[14] = [24, 24 * 970_000, 24 - n_wrong]
    return changed(record, outcome=record.outcome.model_copy(update={"metrics": {"calibration": sums}}))


def changed(record: Record, **values: Any) -> Record:
    """The record with other values."""
    return record.model_copy(update=values)


def old(record: Record) -> Record:
    """The record as another version of the method would have made it."""
    return changed(record, version=METHODS[record.method].version + 1)


def old_note(method: str) -> str:
    """What is said about results that ``old`` made of those of a method."""
    version = METHODS[method].version
    return f"†: made by version {version + 1} of {method}, now {version}"


def make_view(records: list[Record], source: dict[str, Any] | None = None, name: str = "small") -> View:
    source = SOURCE if source is None else source
    entries = [
        PlannedExperiment(
            key=record.key,
            features=record.features.name,
            method=record.method,
            params={},
            task=record.task,
            n_tasks=record.n_tasks,
            seed=record.seed,
        )
        for record in records
    ]
    date = "2026-01-01T00:00:00+00:00"
    plan = Plan(name=name, suite=name, source=source, override=None, experiments=entries, created=date, skipped=[])
    return View(plan, read_presentation(source, "plan"), records)
