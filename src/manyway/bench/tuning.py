"""Choosing hyper-parameters on validation classes, and the file that suites read them from.

A grid is a suite whose methods have something to sweep or to learn (``suites/tune.toml``). For each of its feature sets
and methods the point with the highest accuracy is chosen, or the parameters are learned (``manyway.bench.learning``).
PADDLE has no parameter to tune and is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict

from manyway.bench.records import Record
from manyway.bench.store import now, write_text
from manyway.bench.suite import Suite, Tuned, check_params
from manyway.core import Strict, checked
from manyway.errors import InputError
from manyway.files.files import text_of
from manyway.methods import METHODS

if TYPE_CHECKING:
    from manyway.bench.plan import Job

FILE = "tuned.json"


def check_grid(suite: Suite) -> None:
    """Refuse a grid that tunes PADDLE, or nothing."""
    tuned = {method for block in suite.blocks for method in (*block.sweep, *block.learn)}
    if "paddle" in tuned:
        raise InputError("PADDLE is never tuned: its λ is |Q| by construction. Sweep it in a suite of its own.")
    idle = [m for block in suite.blocks for m in block.methods if m not in block.sweep and m not in block.learn]
    if idle or not tuned:
        names = ", ".join(idle) or "any method"
        raise InputError(f"{suite.name} has nothing to sweep for {names}; give each method a sweep.")


def check_lessons(jobs: Sequence[Job]) -> None:
    """Refuse tasks that nothing can be learned on, and tasks of several kinds for one method and feature set."""
    for job in jobs:
        task = job.experiment.task
        if task.shots == 0 or task.n_unknown or task.n_batches > 1 or task.reviewer or not isinstance(task.k_eff, int):
            possible = "tasks with examples and one k_eff, without unknown queries, streams and reviewers"
            raise InputError(f"{job.experiment.method} is learned on {possible}; change the task.")
    places = [(job.experiment.method, meant_for(job.experiment.features)) for job in jobs]
    for method, target in places:
        if places.count((method, target)) > 1:
            raise InputError(f"{method} can be learned on tasks of one kind only for {target}; choose one with `only`.")


def choose(records: Sequence[Record], suite: Suite) -> dict[str, dict[str, dict[str, Any]]]:
    """The best point of each method on each feature set, under the name of the set that it is meant for."""
    swept = {method: sorted(axes) for block in suite.blocks for method, axes in block.sweep.items()}
    chosen: dict[str, dict[str, dict[str, Any]]] = {}
    for record in records:
        if record.old:
            continue
        result = record.value("accuracy")
        target = chosen.setdefault(meant_for(record.features.name), {})
        if record.method not in target or result.mean > target[record.method]["accuracy"]:
            target[record.method] = {
                "params": {name: record.params[name] for name in swept[record.method]},
                "accuracy": result.mean,
                "ci95": result.half,
                "validation": record.features.name,
                "fingerprint": record.features.fingerprint,
                "record": record.key,
            }
    return chosen


def meant_for(validation: str) -> str:
    """The feature set that a validation set serves: its name without the ending.

    >>> meant_for("mini-rn18-val"), meant_for("birds_val"), meant_for("birds")
    ('mini-rn18', 'birds', 'birds')
    """
    for ending in ("-val", "_val", "-validation", "_validation"):
        if validation.endswith(ending):
            return validation.removesuffix(ending)
    return validation


def write_tuned(chosen: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Add what was chosen to the file; entries of other feature sets and methods stay."""
    known = _read(path)["chosen"] if path.exists() else {}
    merged = {name: {**known.get(name, {}), **chosen.get(name, {})} for name in sorted({*known, *chosen})}
    write_text(path, json.dumps({"created": now(), "chosen": merged}, indent=1) + "\n")


def read_tuned(path: Path | None, results: Path) -> Tuned:
    """The chosen parameters; empty when nothing was tuned and no file is named."""
    if path is None and not (results / FILE).exists():
        return {}
    path = results / FILE if path is None else path
    chosen = _read(path)["chosen"]
    for name, of in chosen.items():
        for method, entry in of.items():
            if method in METHODS:
                check_params(method, entry["params"], f"{path}: {name}.{method}")
    return {name: {method: entry["params"] for method, entry in of.items()} for name, of in chosen.items()}


class _Entry(Strict):
    model_config = ConfigDict(extra="allow")
    params: dict[str, Any]


class _File(Strict):
    model_config = ConfigDict(extra="allow")
    chosen: dict[str, dict[str, _Entry]]


def _read(path: Path) -> dict[str, Any]:
    wrong = f"{path} is not a file of tuned parameters (make one with `manyway tune`)"
    try:
        data: dict[str, Any] = json.loads(text_of(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{wrong}: {error}.") from error
    checked(_File, data, wrong)
    return data
