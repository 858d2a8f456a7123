"""Results on disk: one JSON file each, written atomically, found by a key that follows from what was asked.

    FOLDER/records/METHOD-KEY.json   a finished experiment; never changed afterwards
    FOLDER/partial/KEY.json          what is done of one that still runs, or was stopped
    FOLDER/plans/NAME.json           what `bench` was last asked to do under that name

Everything in a record but ``timing`` is a function of what was asked and of the machine's arithmetic.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from manyway.bench.suite import Experiment
from manyway.data.files import atomic_write
from manyway.errors import InputError
from manyway.methods import get_method

FORMAT = 1


class StoreError(InputError):
    """The folder of results cannot be written: a reason to stop, not to go on with the next experiment."""


def experiment_key(experiment: Experiment, fingerprint: str) -> str:
    """Sixteen hexadecimal digits that stand for the experiment on these very features.

    All parameters enter with their values, defaults included: a changed default is another experiment. What a set of
    features is called does not enter.
    """
    asked = {
        "format": FORMAT,
        "method": experiment.method,
        "params": full_params(experiment),
        "features": fingerprint,
        "task": asdict(experiment.task),
        "seed": experiment.seed,
        "n_tasks": experiment.n_tasks,
        "trace": None if experiment.trace is None else asdict(experiment.trace),
    }
    return hashlib.sha256(json.dumps(_plain(asked), sort_keys=True).encode()).hexdigest()[:16]


def full_params(experiment: Experiment) -> dict[str, Any]:
    """The method's parameters: what was asked, and the defaults for the rest."""
    params: dict[str, Any] = _plain({**get_method(experiment.method).defaults, **experiment.params})
    return params


@dataclass(frozen=True)
class Record:
    """A finished experiment."""

    key: str
    method: str
    params: Mapping[str, Any]  # all of them, defaults included
    features: Mapping[str, Any]  # name, fingerprint, rows, classes, dimensions, meta
    task: Mapping[str, Any]
    seed: int
    n_tasks: int
    trace: Mapping[str, Any] | None
    outcome: Mapping[str, Any]  # n_query, correct [n_tasks]; of a trace: steps, seconds, criterion, correct, reached
    provenance: Mapping[str, Any]  # device, chunk, versions
    timing: Mapping[str, Any] = field(default_factory=dict)  # seconds in the solver, date

    @property
    def file_name(self) -> str:
        return f"{self.method}-{self.key}.json"

    def axis(self, name: str) -> Any:
        """Its place on an axis: method, features, a field of the task, or a parameter; None if it has no such axis."""
        if name == "method":
            return self.method
        if name == "features":
            return self.features["name"]
        if name in self.task:
            return self.task[name]
        return self.params.get(name)

    def has_axis(self, name: str) -> bool:
        return name in ("method", "features") or name in self.task or name in self.params

    @property
    def stream(self) -> str:
        """What two records share whose tasks are the same ones, so that they can be compared pair by pair."""
        return json.dumps([self.features["fingerprint"], dict(self.task), self.seed], sort_keys=True)

    def to_json(self) -> str:
        # One line a field: short, and still readable with a pager.
        data = {"format": FORMAT, **{f.name: getattr(self, f.name) for f in fields(self)}}
        lines = (f"{json.dumps(name)}: {json.dumps(_plain(value), sort_keys=True)}" for name, value in data.items())
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @staticmethod
    def from_json(text: str, where: str) -> Record:
        try:
            data = json.loads(text)
            if not isinstance(data, dict):
                raise TypeError("not an object")
            version = data.pop("format")
            if not isinstance(version, int) or version > FORMAT:
                raise InputError(f"{where} was written by a newer version (format {version}); update manyway.")
            return Record(**data)
        except (ValueError, TypeError, KeyError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{where} is not a result of manyway ({error}); remove it and run again.") from error


@dataclass(frozen=True)
class Plan:
    """What a run was asked to do: the suite as it was read, and the key of each experiment in order."""

    name: str
    suite: str  # the suite's own name
    source: Mapping[str, Any]  # its TOML
    override: str | None  # the name of the feature set that took the place of the suite's
    experiments: Sequence[Mapping[str, Any]]  # key, features, method, params, task, n_tasks, seed
    created: str


@dataclass(frozen=True)
class Partial:
    """What is done of an experiment: stretches of tasks with their number of right answers."""

    chunk: int  # tasks that were solved together: it decides the last bits of the arithmetic
    device: str
    done: Mapping[int, Sequence[int]] = field(default_factory=dict)  # first task -> correct
    seconds: float = 0.0

    @property
    def n_done(self) -> int:
        return sum(map(len, self.done.values()))

    def add(self, first: int, correct: Sequence[int], seconds: float) -> Partial:
        """With a stretch more; stretches that touch become one."""
        merged: dict[int, list[int]] = {}
        end, start = -1, -1
        for place, values in sorted([*self.done.items(), (first, correct)]):
            if place == end:
                merged[start].extend(values)
            else:
                start = place
                merged[start] = list(values)
            end = place + len(values)
        return replace(self, done=merged, seconds=self.seconds + seconds)

    def gaps(self, n_tasks: int) -> list[tuple[int, int]]:
        """What is missing of 0..n_tasks, as (first, end).

        >>> Partial(1, "cpu", {2: [5, 5], 6: [4]}).gaps(9)
        [(0, 2), (4, 6), (7, 9)]
        """
        places = [
            0,
            *(end for first, values in sorted(self.done.items()) for end in (first, first + len(values))),
            n_tasks,
        ]
        return [(a, b) for a, b in zip(places[::2], places[1::2], strict=True) if a < b]

    def correct(self) -> list[int]:
        """All of it in the order of the tasks; for when nothing is missing."""
        return [value for _, values in sorted(self.done.items()) for value in values]


class Store:
    """A folder of results."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def find(self, key: str) -> Record | None:
        """The record of that key."""
        path = next(iter(self._files("records", f"*-{key}.json")), None)
        return None if path is None else read_record(path)

    def has(self, key: str) -> bool:
        return bool(self._files("records", f"*-{key}.json"))

    def keys(self) -> set[str]:
        """The keys of all records."""
        return {path.stem.rpartition("-")[2] for path in self._files("records", "*-*.json")}

    def records(self) -> Iterator[Record]:
        """All records, in the order of their file names."""
        for path in self._files("records", "*-*.json"):
            yield read_record(path)

    def write(self, record: Record) -> Path:
        """Keep a record, and forget what was partial of it."""
        path = self.folder / "records" / record.file_name
        _write(path, record.to_json())
        self.forget_partial(record.key)
        return path

    def partial(self, key: str) -> Partial | None:
        """What a stopped run left of an experiment; None when nothing usable is there."""
        try:
            data = json.loads((self.folder / "partial" / f"{key}.json").read_text(encoding="utf-8"))
            done = {int(first): correct for first, correct in data["done"].items()}
            return Partial(data["chunk"], data["device"], done, data["seconds"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def write_partial(self, key: str, partial: Partial) -> None:
        _write(self.folder / "partial" / f"{key}.json", json.dumps(asdict(partial)))

    def forget_partial(self, key: str) -> None:
        (self.folder / "partial" / f"{key}.json").unlink(missing_ok=True)

    def write_plan(self, plan: Plan) -> None:
        _write(self.folder / "plans" / f"{plan.name}.json", json.dumps({"format": FORMAT, **asdict(plan)}, indent=1))

    def plans(self) -> list[Plan]:
        """All plans, the latest last."""
        paths = sorted(self._files("plans", "*.json"), key=lambda path: (path.stat().st_mtime_ns, path.name))
        return [_read_plan(path) for path in paths]

    def asked(self, name: str) -> Sequence[Mapping[str, Any]]:
        """The experiments of the plan of that very name; none when there is no such plan."""
        path = self.folder / "plans" / f"{name}.json"
        return _read_plan(path).experiments if path.exists() else []

    def plan(self, name: str) -> Plan:
        """The plan of that name; a suite's name stands for the latest plan made from it."""
        plans = self.plans()
        for plan in [p for p in plans if p.name == name] or [p for p in reversed(plans) if p.suite == name]:
            return plan
        known = ", ".join(p.name for p in plans)
        raise InputError(
            f"There are no results of '{name}' in {self.folder}; "
            + (f"there are: {known}." if known else f"run `manyway bench {name}` first.")
        )

    def sweep(self, older_than: float = 600) -> None:
        """Remove what a killed process had begun to write; younger files may belong to one that is at work."""
        for folder in ("records", "partial", "plans"):
            for path in (self.folder / folder).glob(".*"):
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > older_than:
                        path.unlink()

    def _files(self, folder: str, pattern: str) -> list[Path]:
        # A name with a dot in front is a file that is still being written.
        return sorted(path for path in (self.folder / folder).glob(pattern) if not path.name.startswith("."))


def read_record(path: str | Path) -> Record:
    """Read one result file, of this version or an older one."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The result {path} cannot be read: {getattr(error, 'strerror', error)}.") from error
    return Record.from_json(text, str(path))


def _read_plan(path: Path) -> Plan:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        data.pop("format")
        return Plan(**data)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{path} is not a plan of manyway ({error}); remove it and run `manyway bench` again."
        ) from error


def _write(path: Path, text: str) -> None:
    try:
        with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            # On the disk before it gets its name: a power cut must not leave an empty file under a good name.
            os.fsync(file.fileno())
    except InputError as error:
        raise StoreError(str(error)) from error


def _plain(value: Any) -> Any:
    """The value with tuples as lists and whole floats as integers, so that equal requests have equal text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
