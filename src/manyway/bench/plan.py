"""From a suite and the wishes of a command line to experiments with keys."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from manyway.bench.data import find_features
from manyway.bench.store import Plan, Store, experiment_key
from manyway.bench.suite import Block, Experiment, Suite, Tuned, in_words
from manyway.data.features import FeatureSet
from manyway.data.sampling import TaskSpec
from manyway.errors import InputError, nearest


@dataclass(frozen=True)
class Job:
    """An experiment with the features it runs on and the key of its result."""

    key: str
    experiment: Experiment
    features: FeatureSet

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        experiment, default = self.experiment, asdict(TaskSpec())
        task = {name: value for name, value in asdict(experiment.task).items() if value != default[name]}
        task = {"shots": in_words("shots", experiment.task.shots), "k_eff": experiment.task.k_eff, **task}
        words = [f"{name}={_short(value)}" for name, value in {**task, **experiment.params}.items()]
        return f"{experiment.method} on {experiment.features}: {' '.join(words)}"


@dataclass(frozen=True)
class Wishes:
    """What a command line changes about a suite."""

    features: Path | None = None  # a file that takes the place of every feature set
    data: Path | None = None
    n_tasks: int | None = None
    seed: int | None = None
    only: Mapping[str, Sequence[str]] | None = None  # axis -> the values to keep
    task: Mapping[str, Any] | None = None  # fields of TaskSpec to set
    tuned: Tuned | None = None


def make_jobs(suite: Suite, wishes: Wishes) -> list[Job]:
    """The suite's experiments on their features, each once; the wishes applied."""
    sets: dict[str, FeatureSet] = {}
    override = None if wishes.features is None else override_name(wishes.features)
    if wishes.features is not None and override is not None:
        sets[override] = FeatureSet.load(wishes.features)
    jobs: dict[str, Job] = {}
    without_support = False
    for block in suite.blocks:
        block = _adapt(block, override, wishes)
        for experiment in block.experiments(_tuned(suite, block, wishes.tuned or {})):
            if not _kept(experiment, wishes.only or {}):
                continue
            if experiment.features not in sets:
                sets[experiment.features] = find_features(experiment.features, wishes.data)
            features = sets[experiment.features]
            if override is not None and experiment.task.shots is None and features.is_support is None:
                # The suite's own set comes with its labelled samples; the one in its place does not.
                without_support = True
                continue
            key = experiment_key(experiment, features.fingerprint)
            jobs.setdefault(key, Job(key, experiment, features))
    if without_support and not jobs:
        raise InputError(
            f"{suite.name} takes the labelled samples that come with a feature set, and {wishes.features} has none; "
            "say how many to draw, e.g. --task shots=10."
        )
    if suite.blocks and not jobs:
        raise InputError(f"Nothing of {suite.name} is left to run; --only keeps no experiment.")
    return list(jobs.values())


def make_plan(suite: Suite, jobs: Sequence[Job], wishes: Wishes, store: Store | None = None) -> Plan:
    """What to remember of a run, so that its results can be shown later without the features.

    A part of a suite (``only``) joins what was asked for under the same name before, with as many tasks of the same
    seed; a whole suite takes its place.
    """
    override = None if wishes.features is None else override_name(wishes.features)
    experiments: list[Mapping[str, Any]] = [
        {
            "key": job.key,
            "features": job.experiment.features,
            "method": job.experiment.method,
            "params": dict(job.experiment.params),
            "task": asdict(job.experiment.task),
            "n_tasks": job.experiment.n_tasks,
            "seed": job.experiment.seed,
        }
        for job in jobs
    ]
    name = suite.name if override is None else f"{suite.name}@{override}"
    if wishes.only and store is not None and experiments:
        size = experiments[0]["n_tasks"], experiments[0]["seed"]
        new = {entry["key"] for entry in experiments}
        before = store.asked(name)
        experiments += [e for e in before if e["key"] not in new and (e["n_tasks"], e["seed"]) == size]
        order = [method for block in suite.blocks for method in block.methods]
        experiments.sort(key=lambda entry: order.index(entry["method"]) if entry["method"] in order else len(order))
    return Plan(name, suite.name, suite.source, override, experiments, now())


def override_name(path: Path) -> str:
    """What results call a feature file: its name without the suffix, in characters that go into a file name."""
    return re.sub(r"[^\w.+-]+", "-", path.stem)


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def parse_only(texts: Sequence[str]) -> dict[str, list[str]]:
    """``["method=paddle,tim", "shots=5"]`` as a mapping.

    >>> parse_only(["method=paddle,tim", "shots=5"])
    {'method': ['paddle', 'tim'], 'shots': ['5']}
    """
    only: dict[str, list[str]] = {}
    for text in texts:
        axis, equals, values = text.partition("=")
        if not equals or not axis or not values:
            raise InputError(f"'{text}' is not of the form AXIS=VALUE or AXIS=VALUE,VALUE.")
        only.setdefault(axis.strip(), []).extend(value.strip() for value in values.split(","))
    return only


def parse_task(texts: Sequence[str]) -> dict[str, Any]:
    """``["shots=10"]`` as fields of TaskSpec.

    >>> parse_task(["shots=10", "sampling=dirichlet"])
    {'shots': 10, 'sampling': 'dirichlet'}
    """
    known = asdict(TaskSpec())
    task: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value:
            raise InputError(f"'{text}' is not of the form FIELD=VALUE.")
        if name not in known:
            raise InputError(f"A task has no field '{name}'; {nearest(name, known)}")
        try:
            task[name] = value if name == "sampling" else float(value) if name == "alpha" else _count(name, value)
        except ValueError as error:
            raise InputError(f"{name} is '{value}'; it must be a number.") from error
    return task


def _count(name: str, value: str) -> int | None:
    return None if value == in_words(name, None) else int(value)


def _adapt(block: Block, override: str | None, wishes: Wishes) -> Block:
    return replace(
        block,
        features=block.features if override is None else [override],
        n_tasks=block.n_tasks if wishes.n_tasks is None or block.trace is not None else wishes.n_tasks,
        seed=block.seed if wishes.seed is None else wishes.seed,
        task={**block.task, **{name: [value] for name, value in (wishes.task or {}).items()}},
    )


def _kept(experiment: Experiment, only: Mapping[str, Sequence[str]]) -> bool:
    axes = {
        "method": experiment.method,
        "features": experiment.features,
        **asdict(experiment.task),
        **experiment.params,
    }
    # An axis that this experiment does not have is a parameter of another method: --only says nothing about it.
    return all(str(in_words(axis, axes[axis])) in values for axis, values in only.items() if axis in axes)


def _tuned(suite: Suite, block: Block, tuned: Tuned) -> Tuned:
    """The tuned parameters by the names of the block's feature sets, some of which borrow those of another set."""
    return {name: tuned.get(suite.tuned_from.get(name, name), {}) for name in block.features}


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
