"""What is stored of an experiment: a ``Record`` when it is finished, a ``Partial`` before.

Both are JSON with a checksum of their content at the end, and both are checked when they are read: types, and numbers
that so many tasks can give. Reading loads no torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from manyway.bench.checking import Strict, checked, read_text
from manyway.errors import InputError
from manyway.evaluation.metrics import METRICS, Count, find_summary
from manyway.evaluation.scorers import SCORERS
from manyway.evaluation.statistics import Interval
from manyway.methods import METHODS, get_method
from manyway.sampling.spec import DEFAULTS, task_fields, without_later_defaults

if TYPE_CHECKING:
    from manyway.bench.suite import Experiment

FORMAT = 2  # 1 had neither a version of the method nor a checksum
_SEAL = "sha256"


def experiment_key(experiment: Experiment, fingerprint: str) -> str:
    """Sixteen hexadecimal digits that identify the experiment on exactly these features.

    The version of the method enters, and all parameters with their values, defaults included: a changed method or
    default is another experiment. The name of the feature set does not enter, and ``carry`` only where it is on: keys
    must not change when a parameter is added.
    """
    asked = {
        "format": FORMAT,
        "method": experiment.method,
        "version": get_method(experiment.method).version,
        "params": {name: v for name, v in full_params(experiment).items() if (name, v) != ("carry", False)},
        "features": fingerprint,
        "task": without_later_defaults(task_fields(experiment.spec)),
        "seed": experiment.seed,
        "n_tasks": experiment.n_tasks,
        "trace": None if experiment.trace is None else experiment.trace.model_dump(),
        "metrics": sorted(experiment.metrics),
    }
    if experiment.scorer is not None:
        asked["scorer"] = [experiment.scorer, SCORERS[experiment.scorer].version]
    return _digest(_plain(asked))[:16]


def full_params(experiment: Experiment) -> dict[str, Any]:
    """The method's parameters: those given, and the defaults of the others."""
    params: dict[str, Any] = _plain({**get_method(experiment.method).defaults, **experiment.params})
    return params


def special_params(experiment: Experiment) -> list[str]:
    """The parameters whose values are not the method's defaults."""
    defaults = _plain(get_method(experiment.method).defaults)
    return [name for name, value in full_params(experiment).items() if value != defaults[name]]


@dataclass(frozen=True)
class Record:
    """A finished experiment."""

    key: str
    method: str
    params: Mapping[str, Any]  # all of them, defaults included
    # name, fingerprint, rows, classes, dimensions, meta; unknown_fingerprint of the set that unknown queries come from
    features: Mapping[str, Any]
    task: Mapping[str, Any]  # all fields of a TaskSpec; files leave out those that were added later, at their defaults
    seed: int
    n_tasks: int
    trace: Mapping[str, Any] | None
    # n_query, correct [n_tasks] and metrics; of a trace: n_query, steps, seconds, criterion, correct, reached
    outcome: Mapping[str, Any]
    provenance: Mapping[str, Any]  # device, chunk, versions
    timing: Mapping[str, Any] = field(default_factory=dict)  # seconds in the solver, date
    version: int = 0  # of the method; 0: from before methods had versions
    special: Sequence[str] | None = None  # parameters that were not the method's defaults; None: not recorded
    scorer: str | None = None  # of unknown queries; None: the method's own score

    def __post_init__(self) -> None:
        object.__setattr__(self, "task", {**DEFAULTS, **self.task})

    @property
    def file_name(self) -> str:
        return f"{self.method}-{self.key}.json"

    @property
    def old_reason(self) -> str:
        """Why this is not what the present code would give: another version of the method made it; '' if none did."""
        if self.method not in METHODS:
            return f"there is no method {self.method} any more"
        present = METHODS[self.method].version
        return "" if self.version == present else f"made by version {self.version} of {self.method}, now {present}"

    @property
    def old(self) -> bool:
        """Whether another version of the method made it. Such results are shown with a mark and never used again."""
        return bool(self.old_reason)

    @property
    def special_params(self) -> dict[str, Any]:
        """The parameters that are not the method's defaults."""
        if self.special is not None:
            return {name: self.params[name] for name in self.special}
        defaults = _plain(METHODS[self.method].defaults) if self.method in METHODS else {}
        return {name: value for name, value in self.params.items() if value != defaults.get(name)}

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics that it holds."""
        return ["accuracy", *self.outcome.get("metrics", {})]

    def value(self, name: str = "accuracy") -> Interval:
        """A metric over all tasks, with its 95 % interval: ``accuracy``, ``calibration``, ``n_present.within``, …"""
        metric, summary = find_summary(name)
        if metric.name not in self.metrics:
            has = ", ".join(self.metrics)
            raise InputError(f"The result {self.key} of {self.method} has no metric '{metric.name}', only {has}.")
        stored = self.outcome["correct"] if metric.name == "accuracy" else self.outcome["metrics"][metric.name]
        return summary.of(metric.loaded(stored), self.n_query)

    @property
    def n_query(self) -> Count:
        """The number of known queries that accuracy counts: one number, or one per task where tasks differ."""
        found = self.outcome.get("metrics", {}).get("n_query")
        return int(self.outcome["n_query"]) if found is None else np.asarray(found)

    def axis(self, name: str) -> Any:
        """Its place on an axis: method, features, a field of the task, or a parameter; None if it has no such axis."""
        if name == "method":
            return self.method
        if name == "features":
            return self.features["name"]
        if name == "scorer":
            return self.scorer
        if name in self.task:
            return self.task[name]
        value = self.params.get(name)
        if isinstance(value, Mapping):  # shown, sorted and grouped as text
            return ", ".join(f"{key} = {item}" for key, item in value.items())
        return value

    def has_axis(self, name: str) -> bool:
        return name in ("method", "features", "scorer") or name in self.task or name in self.params

    @property
    def stream(self) -> str:
        """Identifies the tasks: records with the same stream can be compared task by task."""
        sets = self.features["fingerprint"], self.features.get("unknown_fingerprint")
        drawn = {name: value for name, value in self.task.items() if name != "reviewer"}
        return json.dumps([*sets, drawn, self.seed], sort_keys=True)

    def to_json(self) -> str:
        data = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "scorer" or self.scorer is not None}
        return _sealed({"format": FORMAT, **data, "task": without_later_defaults(dict(self.task))})

    @staticmethod
    def from_json(text: str, where: str) -> Record:
        """Read a record, checked; ``where`` names the file in messages."""
        data = _opened(text, where, "a result")
        del data["format"]
        checked(_RecordFile, data, f"{where} is not a result of manyway (remove it and run again)")
        return Record(**data)


class _Features(Strict):
    model_config = ConfigDict(extra="allow")
    name: str
    fingerprint: str
    n_classes: int = Field(ge=1)


class _Task(Strict):
    shots: int | None
    k_eff: Annotated[int, Field(ge=1)] | Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=2, max_length=2)]
    n_query: int = Field(ge=1)
    n_ways: int | None
    sampling: str
    alpha: float | None
    n_unknown: int = Field(0, ge=0)
    unknown_classes: int | None = None
    unknown_from: str | None = None
    n_batches: int = Field(1, ge=1)
    gamma: float | None = None
    n_answers: int = Field(0, ge=0)
    reviewer: str | None = None


class _Outcome(Strict):
    n_query: int
    correct: list[int]
    metrics: dict[str, list[Any]] = Field(default_factory=dict)
    steps: list[int] = Field(default_factory=list)
    seconds: list[float] = Field(default_factory=list)
    criterion: list[float] = Field(default_factory=list)
    reached: int | None = None


class _Timing(Strict):
    seconds: float = Field(ge=0)
    finished: str


class _Provenance(Strict):
    model_config = ConfigDict(extra="allow")
    device: str
    chunk: int = Field(ge=1)
    versions: dict[str, str]


class _RecordFile(Strict):
    """What a record may hold: types, and numbers that so many tasks can give."""

    key: str
    method: str
    version: int = Field(0, ge=0)
    params: dict[str, Any]
    special: list[str] | None = None
    features: _Features
    task: _Task
    seed: int
    n_tasks: int = Field(ge=1)
    trace: dict[str, Any] | None
    outcome: _Outcome
    provenance: _Provenance
    timing: _Timing
    scorer: str | None = None

    @model_validator(mode="after")
    def _possible(self) -> _RecordFile:
        outcome, n_query = self.outcome, self.task.n_query * self.task.n_batches
        if outcome.n_query != n_query:
            raise ValueError(f"outcome.n_query is {outcome.n_query}, but a task has {n_query} queries")
        # A trace has one count of correct answers per number of iterations.
        n_counts = self.n_tasks if self.trace is None else len(outcome.steps)
        if self.trace is not None and (
            not n_counts or {len(outcome.seconds), len(outcome.criterion), len(outcome.correct)} != {n_counts}
        ):
            raise ValueError("outcome: steps, seconds, criterion and correct differ in length")
        _check_metrics({"accuracy": outcome.correct, **outcome.metrics}, n_counts, n_query)
        unknown = [name for name in self.special or [] if name not in self.params]
        if unknown:
            raise ValueError(f"special names '{unknown[0]}', which is no parameter")
        return self


def _check_metrics(metrics: Mapping[str, Any], n_tasks: int, n_query: int) -> None:
    """Refuse values that so many tasks, of at most so many queries, cannot give: a ValueError that says why."""
    sizes: Count = n_query
    if "n_query" in metrics:  # the tasks differ
        METRICS["n_query"].check(metrics["n_query"], n_tasks, n_query)
        sizes = np.asarray(metrics["n_query"])
    for name, values in metrics.items():
        if name not in METRICS:
            raise ValueError(f"has an unknown metric '{name}'")
        METRICS[name].check(values, n_tasks, sizes)


Stretch = Mapping[str, list[Any]]  # metric -> what is kept of it for some tasks in a row; "accuracy" always


@dataclass(frozen=True)
class Partial:
    """What is done of an experiment: stretches of tasks with their metrics."""

    chunk: int  # tasks that were solved together: it decides the last bits of the arithmetic
    device: str
    done: Mapping[int, Stretch] = field(default_factory=dict)  # first task -> metrics
    seconds: float = 0.0

    @property
    def n_done(self) -> int:
        return sum(len(stretch["accuracy"]) for stretch in self.done.values())

    def add(self, first: int, stretch: Stretch, seconds: float) -> Partial:
        """With one stretch more; stretches that touch become one.

        >>> partial = Partial(1, "cpu").add(2, {"accuracy": [5, 5]}, 0.1).add(0, {"accuracy": [7, 3]}, 0.1)
        >>> partial.done
        {0: {'accuracy': [7, 3, 5, 5]}}
        """
        merged: dict[int, Stretch] = {}
        start = end = -1
        for place, values in sorted([*self.done.items(), (first, stretch)]):
            if place < end:
                raise InputError(f"Task {place} was done twice; nothing was merged.")
            if place == end:
                merged[start] = {name: METRICS[name].join(merged[start][name], values[name]) for name in values}
            else:
                start = place
                merged[start] = values
            end = place + len(values["accuracy"])
        return replace(self, done=merged, seconds=self.seconds + seconds)

    def gaps(self, n_tasks: int) -> list[tuple[int, int]]:
        """What is missing of 0..n_tasks, as (first, end).

        >>> Partial(1, "cpu", {2: {"accuracy": [5, 5]}, 6: {"accuracy": [4]}}).gaps(9)
        [(0, 2), (4, 6), (7, 9)]
        """
        ends = [(first, first + len(stretch["accuracy"])) for first, stretch in sorted(self.done.items())]
        places = [0, *(place for pair in ends for place in pair), n_tasks]
        return [(a, b) for a, b in zip(places[::2], places[1::2], strict=True) if a < b]

    def outcome(self, n_query: int) -> dict[str, Any]:
        """The outcome of a record whose tasks are all done."""
        (stretch,) = self.done.values()
        metrics = {name: values for name, values in stretch.items() if name != "accuracy"}
        return {"n_query": n_query, "correct": stretch["accuracy"], **({"metrics": metrics} if metrics else {})}

    def to_json(self) -> str:
        return _sealed({"format": FORMAT, **asdict(self)})

    @staticmethod
    def from_json(text: str, where: str) -> Partial | None:
        """Read a partial result, checked; None for one of format 1, of which nothing can be used any more."""
        data = _opened(text, where, "a partial result")
        if data.pop("format") == 1:
            return None
        file = checked(_PartialFile, data, f"{where} is not a partial result of manyway (remove it and run again)")
        return Partial(file.chunk, file.device, {int(k): v for k, v in file.done.items()}, file.seconds)

    def check(self, experiment: Experiment, where: str) -> None:
        """Refuse stretches that cannot be a part of the experiment; ``where`` names the file."""
        wanted, end = {"accuracy", *experiment.metrics}, 0
        try:
            for first, stretch in sorted(self.done.items()):
                if first < end or first + len(stretch["accuracy"]) > experiment.n_tasks:
                    raise ValueError(f"the tasks from {first} on overlap others or go beyond the last task")
                if set(stretch) != wanted:
                    raise ValueError(f"the metrics are {', '.join(sorted(stretch))}, not {', '.join(sorted(wanted))}")
                end = first + len(stretch["accuracy"])
                _check_metrics(stretch, end - first, experiment.task.n_known)
        except ValueError as error:
            raise InputError(f"{where} has impossible content: {error}; remove it and run again.") from error


class _PartialFile(Strict):
    chunk: int = Field(ge=1)
    device: str
    done: dict[str, dict[str, list[Any]]]
    seconds: float = Field(ge=0)

    @model_validator(mode="after")
    def _whole(self) -> _PartialFile:
        if not all(first.isdecimal() and stretch.get("accuracy") for first, stretch in self.done.items()):
            raise ValueError("done must have stretches of tasks, by the number of their first task")
        return self


def read_record(path: str | Path) -> Record:
    """Read one result file, of this version or an older one."""
    return Record.from_json(read_text(path), str(path))


def _sealed(data: Mapping[str, Any]) -> str:
    """The data as JSON with its checksum: one line per field, so that it is short and readable with a pager."""
    data = _plain(data)
    lines = (f"{json.dumps(name)}: {json.dumps(value, sort_keys=True)}" for name, value in data.items())
    return "{\n" + ",\n".join([*lines, f'"{_SEAL}": "{_digest(data)}"']) + "\n}\n"


def _opened(text: str, where: str, what: str) -> dict[str, Any]:
    """The fields of a sealed file, its format among them; files of format 1 have no checksum."""
    try:
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("not an object")
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not {what} of manyway ({error}); remove it and run again.") from error
    version = data.get("format", 1 if "chunk" in data else None)
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise InputError(f"{where} is not {what} of manyway (it has no format); remove it and run again.")
    if version > FORMAT:
        raise InputError(f"{where} was written by a newer version (format {version}); update manyway.")
    seal = data.pop(_SEAL, None)
    if version > 1 and seal != _digest(data):
        raise InputError(f"{where} was changed after it was written (its checksum differs); remove it and run again.")
    return {**data, "format": version}


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """The value with tuples as lists and whole floats as integers, so that equal requests have equal text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
