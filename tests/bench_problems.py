"""Small suites and results that the tests of manyway.bench share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from problems import make_features

from manyway.bench.plan import Job, SuiteChanges, make_jobs, make_plan
from manyway.bench.records import Store
from manyway.bench.runner import run_jobs
from manyway.bench.show.view import View, load_view
from manyway.bench.suite import parse_suite

SMALL = """
title = "Small"
n_tasks = 40

[[experiments]]
features = "toy"
methods = ["paddle", "soft-kmeans", "simpleshot"]
task = { shots = [1, 3], k_eff = [2, 4], n_query = 12 }

[[tables]]
columns = ["shots", "k_eff"]

[[plots]]
name = "keff"
x = "k_eff"
panels = ["shots"]
"""


class Watching:
    """A watcher that remembers what it was told."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.tasks = 0

    def __call__(self, job: Job, tasks: int) -> None:
        """The first word about a job is what was done of it before."""
        if job.key in self.begun:
            self.advance(job, tasks)
        else:
            self.begun.append(job.key)

    def advance(self, job: Job, tasks: int) -> None:
        self.tasks += tasks


def data_folder_with_toy(folder: Path, name: str = "toy", **options: Any) -> Path:
    """A folder that has the features 'toy'."""
    make_features(**options).save(folder / f"{name}.safetensors")
    return folder


def jobs_of(toml: str, folder: Path, **wishes: Any) -> list[Job]:
    jobs, _ = make_jobs(parse_suite(toml, "small", "suite small"), SuiteChanges(data=folder, **wishes))
    return jobs


def run_suite(toml: str, folder: Path, results: Path, **wishes: Any) -> View:
    """Run a suite on the features of a folder and look at its results."""
    suite, asked = parse_suite(toml, "small", "suite small"), SuiteChanges(data=folder, **wishes)
    (jobs, skipped), store = make_jobs(suite, asked), Store(results)
    plan = make_plan(suite, jobs, asked, skipped=skipped)
    store.write_plan(plan)
    assert run_jobs(jobs, store, None, Watching()) == []
    return load_view(store, plan)


def contents(results: Path) -> dict[str, dict[str, Any]]:
    """All records of a folder by their file name, without what depends on the time of the run."""
    records = {path.name: json.loads(path.read_text()) for path in (results / "records").glob("*.json")}
    for record in records.values():
        del record["timing"], record["sha256"]
    return records
