"""Results on disk: one JSON file each, written atomically, found by a key that follows from what was requested.

    FOLDER/records/METHOD-KEY.json   a finished experiment
    FOLDER/partial/KEY.json          what is done of one that still runs, or was stopped
    FOLDER/plans/NAME.json           what the last `bench` under that name requested

Everything in a record but ``timing`` is a function of the request and of the machine's arithmetic.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar

from manyway.bench.records import Partial, Record, Request, Stored
from manyway.errors import InputError
from manyway.files.files import atomic_write


class StoreError(InputError):
    """The folder of results cannot be written. The run stops; other errors only fail one experiment."""


class Asked(Request):
    """One experiment of a plan."""

    features: str


class Plan(Stored):
    """What a run requested: the suite as it was read, and the key of each experiment in order."""

    what: ClassVar[str] = "a plan"

    name: str
    suite: str  # the suite's own name
    source: dict[str, Any]  # its TOML
    override: str | None  # the name of the feature set that took the place of the suite's
    experiments: list[Asked]
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
            raise InputError(f"{path} holds the result {record.key}; its name must say so. Remove it and run again.")
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
        paths = sorted(self._files("plans", "*.json"), key=lambda path: (path.stat().st_mtime_ns, path.name))
        plans = [Plan.read(path) for path in paths]
        for plan, path in zip(plans, paths, strict=True):
            if plan.name != path.stem:
                raise InputError(f"{path} holds the plan '{plan.name}'; its name must say so. Remove it and run again.")
        return plans

    def plan(self, name: str) -> Plan:
        """The plan of that name; a suite's name stands for the latest plan made from it."""
        plans = self.plans()
        for plan in [p for p in plans if p.name == name] or [p for p in reversed(plans) if p.suite == name]:
            return plan
        known = ", ".join(p.name for p in plans)
        hint = f"there are: {known}." if known else f"run `manyway bench {name}` first."
        raise InputError(f"There are no results of '{name}' in {self.folder}; {hint}")

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
