"""What is stored of an experiment: a ``Record`` when it is finished, a ``Partial`` before.

Both are JSON with a checksum of their content at the end, so that a file that was changed by
hand is refused; the types of all fields are checked when they are made and when they are read.
Reading loads no torch.

A ``Store`` is a folder of such files, written atomically and found by a key that follows
from what was requested:

    FOLDER/records/METHOD-KEY.json   a finished experiment
    FOLDER/partial/KEY.json          what is done of one that still runs, or was stopped
    FOLDER/plans/NAME.json           what the last `bench` under that name requested

Everything in a record but ``timing`` is a function of the request and of the machine's arithmetic.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

import numpy as np
from pydantic import BeforeValidator, Field, NonNegativeFloat, PositiveInt

from manyway.bench.baselines import COMPARED, get_method
from manyway.bench.own import is_own
from manyway.core import Strict, checked
from manyway.errors import InputError
from manyway.evaluation import METRICS, SCORERS, Count, Interval, Paired, find_summary, paired
from manyway.files import atomic_write, text_of
from manyway.sampling import identity, task_fields

if TYPE_CHECKING:
    from manyway.bench.suite import Experiment

FORMAT = 3
_SEAL = "sha256"
S = TypeVar("S", bound="Stored")


class Stored(Strict):
    """What a JSON file of the results holds."""

    what: ClassVar[str]

    def to_json(self) -> str:
        """JSON with a checksum.

        It has one line per field, so that it is short and readable with a pager.
        """
        data = {"format": FORMAT, **plain_values(self.model_dump())}
        lines = (
            f"{json.dumps(name)}: {json.dumps(value, sort_keys=True)}"
            for name, value in data.items()
        )
        return "{\n" + ",\n".join([*lines, f'"{_SEAL}": "{digest(data)}"']) + "\n}\n"

    @classmethod
    def read(cls: type[S], path: str | Path) -> S:
        """Read a file, checked; what is wrong is one sentence that names it."""
        wrong = f"{path} is not {cls.what} of manyway"
        text = text_of(path)
        try:
            data = json.loads(text)
            found = data.pop("format", None)
            seal = data.pop(_SEAL, None)
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            raise InputError(f"{wrong} ({error}); remove it and run again.") from error
        if found != FORMAT:
            raise InputError(
                f"{wrong} (its format is {found}, not {FORMAT}); remove it and run again."
            )
        if seal != digest({"format": FORMAT, **data}):
            raise InputError(
                f"{path} was changed after it was written (its checksum differs); "
                "remove it, run again."
            )
        return checked(cls, data, f"{wrong} (remove it and run again)")


class Request(Strict):
    """What an experiment asks for."""

    key: str
    method: str
    params: dict[str, Any]  # all of them, defaults included
    task: dict[str, Any]  # all fields of a TaskSpec
    n_tasks: PositiveInt
    seed: int
    scorer: str | None = None  # of unknown queries; None: the method's own score


def request(experiment: Experiment, key: str) -> dict[str, Any]:
    """What an experiment asks for, as the fields of a ``Request``."""
    asked = {name: getattr(experiment, name) for name in ("method", "n_tasks", "seed", "scorer")}
    return {
        "key": key,
        **asked,
        "params": full_params(experiment),
        "task": task_fields(experiment.task),
    }


def experiment_key(experiment: Experiment, fingerprint: str) -> str:
    """Sixteen hexadecimal digits that identify the experiment on exactly these features.

    The version of the method enters, and all parameters with their values, defaults included: a
    changed method or default is another experiment. The name of the feature set does not enter.
    """
    asked = {
        "format": FORMAT,
        "method": [experiment.method, get_method(experiment.method).version],
        "params": full_params(experiment),
        "features": fingerprint,
        "task": identity(task_fields(experiment.spec)),
        "seed": experiment.seed,
        "n_tasks": experiment.n_tasks,
        "trace": None if experiment.trace is None else experiment.trace.model_dump(),
        "metrics": sorted(experiment.metrics),
        "scorer": None
        if experiment.scorer is None
        else [experiment.scorer, SCORERS[experiment.scorer].version],
    }
    return digest(plain_values(asked))[:16]


def full_params(experiment: Experiment) -> dict[str, Any]:
    """The method's parameters: those given, and the defaults of the others."""
    return plain_values({**get_method(experiment.method).defaults, **experiment.params})


def special_params(experiment: Experiment) -> list[str]:
    """The parameters whose values are not the method's defaults."""
    defaults = plain_values(get_method(experiment.method).defaults)
    return [name for name, value in full_params(experiment).items() if value != defaults[name]]


class Features(Strict):
    """The feature set that an experiment ran on."""

    name: str
    fingerprint: str
    n_classes: PositiveInt
    n_samples: PositiveInt
    n_features: PositiveInt
    dtype: str
    meta: dict[str, Any]  # what the file says about itself
    unknown_fingerprint: str | None = None  # of the set that unknown queries come from


class Outcome(Strict):
    """Correct answers and metrics, one value per task.

    Of a trace, one value per number of iterations.
    """

    n_query: int
    correct: list[int]
    metrics: dict[str, list[Any]] = Field(default_factory=dict)
    steps: list[int] = Field(default_factory=list)
    seconds: list[float] = Field(default_factory=list)
    criterion: list[float] = Field(default_factory=list)
    reached: int | None = None


class Provenance(Strict):
    """What produced a result."""

    device: str
    device_name: str
    chunk: PositiveInt
    versions: dict[str, str]  # of libraries


class Timing(Strict):
    """The only part of a record that differs between two runs."""

    seconds: NonNegativeFloat  # in the solver
    finished: str


class Record(Request, Stored):
    """A finished experiment."""

    what: ClassVar[str] = "a result"

    version: PositiveInt  # of the method
    scorer_version: int | None = None
    special: list[str]  # parameters that were not the method's defaults
    features: Features
    trace: dict[str, Any] | None
    outcome: Outcome
    provenance: Provenance
    timing: Timing

    @property
    def file_name(self) -> str:
        # The name of a method in a file of one's own has signs that a file's name cannot have everywhere.
        method = re.sub(r"[^\w.+-]", "-", self.method)
        return f"{method}-{self.key}.json"

    @property
    def old(self) -> str:
        """Why this is not what the present code would give.

        Another version of the method made it; '' if none did.

        Such results are shown with a mark and never used again.
        """
        made: list[tuple[str, int | None, Any]] = [
            (self.method, self.version, COMPARED.get(self.method))
        ]
        if self.scorer is not None:
            made.append((f"the score {self.scorer}", self.scorer_version, SCORERS.get(self.scorer)))
        for name, version, present in made:
            if present is None and is_own(name):
                continue  # its file is not read to show results
            if present is None:
                return f"there is no {name} any more"
            if present.version != version:
                return f"made by version {version} of {name}, now {present.version}"
        return ""

    @property
    def special_params(self) -> dict[str, Any]:
        """The parameters that are not the method's defaults."""
        return {name: self.params[name] for name in self.special}

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics that it holds."""
        return ["accuracy", *self.outcome.metrics]

    def has(self, name: str) -> bool:
        """Whether it has a metric such as ``n_present.within``, and is not a trace."""
        return self.trace is None and find_summary(name)[0].name in self.metrics

    def value(self, name: str = "accuracy") -> Interval:
        """A metric over all tasks, with its 95 % interval.

        Metrics are ``accuracy``, ``calibration``, ``n_present.within``, …
        """
        metric, summary = find_summary(name)
        if metric.name not in self.metrics:
            has = ", ".join(self.metrics)
            raise InputError(
                f"The result {self.key} of {self.method} has no metric '{metric.name}', only {has}."
            )
        if metric.name == "accuracy":
            stored = self.outcome.correct
        else:
            stored = self.outcome.metrics[metric.name]
        return summary.of(metric.loaded(stored), self.n_query)

    @property
    def n_query(self) -> Count:
        """The number of known queries that accuracy counts.

        One number, or one per task where tasks differ.
        """
        found = self.outcome.metrics.get("n_query")
        return self.outcome.n_query if found is None else np.asarray(found)

    @property
    def axes(self) -> dict[str, Any]:
        """Its place on every axis.

        Axes are method, version, features, scorer, the fields of the task and the parameters.
        """
        own = {
            "method": self.method,
            "version": self.version,
            "features": self.features.name,
            "scorer": self.scorer,
        }
        return {**self.params, **self.task, **own}

    def axis(self, name: str) -> Any:
        """Its place on an axis; None if it has no such axis."""
        value = self.axes.get(name)
        if isinstance(value, Mapping):  # shown, sorted and grouped as text
            return ", ".join(f"{key} = {item}" for key, item in value.items())
        return value

    def first(self, n_tasks: int) -> Record:
        """The first tasks of it, with their accuracy alone."""
        sizes = self.outcome.metrics.get("n_query", [])[:n_tasks]
        cut = {
            "correct": self.outcome.correct[:n_tasks],
            "metrics": {"n_query": sizes} if sizes else {},
        }
        return self.model_copy(
            update={"n_tasks": n_tasks, "outcome": self.outcome.model_copy(update=cut)}
        )

    def against(self, other: Record) -> Paired:
        """The difference to another result on the tasks that both solved, task by task."""
        n_tasks = min(self.n_tasks, other.n_tasks)
        return paired(
            self.outcome.correct[:n_tasks],
            other.outcome.correct[:n_tasks],
            self.first(n_tasks).n_query,
        )

    @property
    def stream(self) -> str:
        """Identifies the tasks: records with the same stream can be compared task by task."""
        sets = self.features.fingerprint, self.features.unknown_fingerprint
        task = identity(self.task)
        drawn = {name: value for name, value in task.items() if name != "reviewer"}
        return json.dumps([*sets, drawn, self.seed], sort_keys=True)


# metric -> what is kept of it for some tasks in a row; "accuracy" always
Stretch = Mapping[str, list[Any]]


def _numbered(done: Any) -> Any:
    if isinstance(done, Mapping):
        return {int(first): stretch for first, stretch in done.items()}
    return done


class Partial(Stored):
    """What is done of an experiment: stretches of tasks with their metrics."""

    what: ClassVar[str] = "a partial result"

    # tasks that were solved together: it decides the last bits of the arithmetic
    chunk: PositiveInt
    device: str
    done: Annotated[dict[int, dict[str, list[Any]]], BeforeValidator(_numbered)] = Field(
        default_factory=dict
    )
    seconds: NonNegativeFloat = 0.0

    @property
    def n_done(self) -> int:
        return sum(len(stretch["accuracy"]) for stretch in self.done.values())

    def add(self, first: int, stretch: Stretch, seconds: float) -> Partial:
        """With one stretch more; stretches that touch become one.

        >>> partial = Partial(chunk=1, device="cpu").add(2, {"accuracy": [5, 5]}, 0.1)
        >>> partial.add(0, {"accuracy": [7, 3]}, 0.1).done
        {0: {'accuracy': [7, 3, 5, 5]}}
        """
        merged: dict[int, Stretch] = {}
        start = end = -1
        for place, values in sorted([*self.done.items(), (first, stretch)]):
            if place < end:
                raise InputError(f"Task {place} was done twice; nothing was merged.")
            if place == end:
                merged[start] = {
                    name: METRICS[name].join(merged[start][name], values[name]) for name in values
                }
            else:
                start = place
                merged[start] = values
            end = place + len(values["accuracy"])
        return self.model_copy(update={"done": merged, "seconds": self.seconds + seconds})

    def gaps(self, n_tasks: int) -> list[tuple[int, int]]:
        """What is missing of 0..n_tasks, as (first, end).

        >>> Partial(chunk=1, device="cpu", done={2: {"accuracy": [5, 5]}, 6: {"accuracy": [4]}}).gaps(9)
        [(0, 2), (4, 6), (7, 9)]
        """
        ends = [
            (first, first + len(stretch["accuracy"]))
            for first, stretch in sorted(self.done.items())
        ]
        places = [0, *(place for pair in ends for place in pair), n_tasks]
        return [(a, b) for a, b in zip(places[::2], places[1::2], strict=True) if a < b]


class StoreError(InputError):
    """The folder of results cannot be written.

    The run stops; other errors only fail one experiment.
    """


class PlannedExperiment(Request):
    """One experiment of a plan."""

    features: str


class Plan(Stored):
    """What a run requested: the suite as it was read, and the key of each experiment in order."""

    what: ClassVar[str] = "a plan"

    name: str
    suite: str  # the suite's own name
    source: dict[str, Any]  # its TOML
    override: str | None  # the name of the feature set that took the place of the suite's
    experiments: list[PlannedExperiment]
    created: str
    skipped: list[str]  # tasks that the feature sets cannot serve, in words


class Store:
    """A folder of results."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def find(self, key: str) -> Record | None:
        """The record of that key."""
        path = next(iter(self._files("records", f"*-{key}.json")), None)
        if path is None:
            return None
        record = Record.read(path)
        if record.key != key:
            raise InputError(
                f"{path} holds the result {record.key}; "
                "its name must say so. Remove it and run again."
            )
        return record

    def keys(self) -> set[str]:
        """The keys of all records."""
        return {path.stem.rpartition("-")[2] for path in self._files("records", "*-*.json")}

    def records(self) -> Iterator[Record]:
        """All records, in the order of their file names."""
        return map(Record.read, self._files("records", "*-*.json"))

    def write(self, record: Record) -> None:
        """Keep a record, and forget what was partial of it."""
        write_text(self.folder / "records" / record.file_name, record.to_json())
        self.forget_partial(record.key)

    def partial(self, key: str) -> Partial | None:
        """What a stopped run left of an experiment; None when it left nothing."""
        path = self.partial_path(key)
        return Partial.read(path) if path.exists() else None

    def partial_path(self, key: str) -> Path:
        return self.folder / "partial" / f"{key}.json"

    def write_partial(self, key: str, partial: Partial) -> None:
        write_text(self.partial_path(key), partial.to_json())

    def forget_partial(self, key: str) -> None:
        self.partial_path(key).unlink(missing_ok=True)

    def write_plan(self, plan: Plan) -> None:
        write_text(self.folder / "plans" / f"{plan.name}.json", plan.to_json())

    def plans(self) -> list[Plan]:
        """All plans, the latest last."""
        paths = sorted(
            self._files("plans", "*.json"), key=lambda path: (path.stat().st_mtime_ns, path.name)
        )
        plans = [Plan.read(path) for path in paths]
        for plan, path in zip(plans, paths, strict=True):
            if plan.name != path.stem:
                raise InputError(
                    f"{path} holds the plan '{plan.name}'; "
                    "its name must say so. Remove it and run again."
                )
        return plans

    def plan(self, name: str) -> Plan:
        """The plan of that name; a suite's name stands for the latest plan made from it."""
        plans = self.plans()
        found = [plan for plan in plans if plan.name == name]
        found += [plan for plan in reversed(plans) if plan.suite == name]
        if found:
            return found[0]
        known = ", ".join(p.name for p in plans)
        hint = f"there are: {known}." if known else f"run `manyway bench {name}` first."
        raise InputError(f"There are no results of '{name}' in {self.folder}; {hint}")

    def sweep(self, older_than: float = 600) -> None:
        """Remove what a killed process had begun to write.

        Younger files may belong to one that is at work.
        """
        for folder in ("records", "partial", "plans"):
            for path in (self.folder / folder).glob(".*"):
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > older_than:
                        path.unlink()

    def _files(self, folder: str, pattern: str) -> list[Path]:
        # A name with a dot in front is a file that is still being written.
        return sorted(
            path for path in (self.folder / folder).glob(pattern) if not path.name.startswith(".")
        )


def digest(data: Any) -> str:
    """SHA-256 of data that JSON can hold."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def plain_values(value: Any) -> Any:
    """The value with tuples as lists and whole floats as integers.

    So equal requests have equal text.
    """
    if isinstance(value, Mapping):
        return {str(key): plain_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def now() -> str:
    """The date and time, as results keep them."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def write_text(path: Path, text: str) -> None:
    """Write a file as a whole, or not at all."""
    try:
        with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            # On the disk before it gets its name: a power cut must not leave an empty file under a good name.
            os.fsync(file.fileno())
    except InputError as error:
        raise StoreError(str(error)) from error
