"""Results on disk: one JSON file each, written atomically, found by a key that follows from what was requested.

    FOLDER/records/METHOD-KEY.json   a finished experiment
    FOLDER/partial/KEY.json          what is done of one that still runs, or was stopped
    FOLDER/plans/NAME.json           what the last `bench` under that name requested

Everything in a record but ``timing`` is a function of the request and of the machine's arithmetic.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from manyway.bench.checking import Strict, checked, read_text
from manyway.bench.records import FORMAT, Partial, Record, read_record
from manyway.errors import InputError
from manyway.files.files import atomic_write

_REMOVE = "remove it and run `manyway bench` again"
__all__ = ["FORMAT", "Partial", "Plan", "Record", "Store", "StoreError", "now", "read_record"]


class StoreError(InputError):
    """The folder of results cannot be written. The run stops; other errors only fail one experiment."""


@dataclass(frozen=True)
class Plan:
    """What a run requested: the suite as it was read, and the key of each experiment in order."""

    name: str
    suite: str  # the suite's own name
    source: Mapping[str, Any]  # its TOML
    override: str | None  # the name of the feature set that took the place of the suite's
    experiments: Sequence[Mapping[str, Any]]  # key, features, method, params, task, n_tasks, seed
    created: str
    skipped: Sequence[str] = ()  # tasks that the feature sets cannot serve, in words


class _Entry(Strict):
    model_config = ConfigDict(extra="allow")
    key: str
    features: str
    method: str
    n_tasks: int = Field(ge=1)


class _PlanFile(Strict):
    name: str
    suite: str
    source: dict[str, Any]
    override: str | None
    experiments: list[_Entry]
    created: str
    skipped: list[str] = Field(default_factory=list)


class Store:
    """A folder of results."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def find(self, key: str) -> Record | None:
        """The record of that key."""
        path = next(iter(self._files("records", f"*-{key}.json")), None)
        if path is None:
            return None
        record = read_record(path)
        if record.key != key:
            raise InputError(f"{path} holds the result {record.key}; its name must say so. Remove it and run again.")
        return record

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
        """What a stopped run left of an experiment; None when it left nothing."""
        path = self.partial_path(key)
        if not path.exists():
            return None
        return Partial.from_json(read_text(path), str(path))

    def partial_path(self, key: str) -> Path:
        return self.folder / "partial" / f"{key}.json"

    def write_partial(self, key: str, partial: Partial) -> None:
        _write(self.partial_path(key), partial.to_json())

    def forget_partial(self, key: str) -> None:
        self.partial_path(key).unlink(missing_ok=True)

    def write_plan(self, plan: Plan) -> None:
        _write(self.folder / "plans" / f"{plan.name}.json", json.dumps({"format": FORMAT, **asdict(plan)}, indent=1))

    def plans(self) -> list[Plan]:
        """All plans, the latest last."""
        paths = sorted(self._files("plans", "*.json"), key=lambda path: (path.stat().st_mtime_ns, path.name))
        return [_read_plan(path) for path in paths]

    def asked(self, name: str) -> Sequence[Mapping[str, Any]]:
        """The experiments of the plan of exactly that name; none when there is no such plan."""
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


def now() -> str:
    """The date and time, as results keep them."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _read_plan(path: Path) -> Plan:
    try:
        data = json.loads(read_text(path))
        data.pop("format")
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not a plan of manyway ({error}); {_REMOVE}.") from error
    checked(_PlanFile, data, f"{path} is not a plan of manyway ({_REMOVE})")
    if data["name"] != path.stem:
        raise InputError(f"{path} holds the plan '{data['name']}'; its name must say so, or {_REMOVE}.")
    return Plan(**data)


def _write(path: Path, text: str) -> None:
    try:
        with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            # On the disk before it gets its name: a power cut must not leave an empty file under a good name.
            os.fsync(file.fileno())
    except InputError as error:
        raise StoreError(str(error)) from error
