"""From a suite and the options of a command line to experiments with keys."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from manyway.bench.checking import checked
from manyway.bench.data import find_features, find_strangers
from manyway.bench.presentation import in_words
from manyway.bench.records import experiment_key
from manyway.bench.store import Asked, Plan, Store, now
from manyway.bench.suite import Block, Experiment, Suite, TaskAxes, Tuned
from manyway.errors import InputError, nearest
from manyway.methods import get_method
from manyway.sampling.features import FeatureSet
from manyway.sampling.sampling import sample_tasks
from manyway.sampling.spec import DEFAULTS, TaskSpec, task_fields

_ALWAYS = ("shots", "k_eff")  # fields of a task that its title names, also with their defaults


@dataclass(frozen=True)
class Job:
    """An experiment with the features it runs on and the key of its result."""

    key: str
    experiment: Experiment
    features: FeatureSet

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        experiment = self.experiment
        words = [task_title(experiment.task), *(f"{name}={_short(v)}" for name, v in experiment.params.items())]
        words += [] if experiment.scorer is None else [f"scorer={experiment.scorer}"]
        return f"{experiment.method} on {experiment.features}: {' '.join(words)}"


def task_title(task: TaskSpec) -> str:
    """What a task looks like, in a few words.

    >>> task_title(TaskSpec(shots=None, n_query=40))
    'shots=given k_eff=5 n_query=40'
    """
    fields = task_fields(task)
    special = {name: in_words(name, v) for name, v in fields.items() if name in _ALWAYS or v != DEFAULTS[name]}
    return " ".join(f"{name}={_short(value)}" for name, value in special.items())


@dataclass(frozen=True)
class Wishes:
    """What a command line changes about a suite."""

    features: Path | None = None  # a file that replaces every feature set
    data: Path | None = None
    n_tasks: int | None = None
    seed: int | None = None
    only: Mapping[str, Sequence[str]] | None = None  # axis -> the values to keep
    task: Mapping[str, Any] | None = None  # fields of TaskSpec to set
    tuned: Tuned | None = None


def make_jobs(suite: Suite, wishes: Wishes) -> tuple[list[Job], list[str]]:
    """The suite's experiments on their features, each once, with the wishes applied; and skipped tasks, in words.

    Experiments of a block with ``skip_impossible`` are skipped where the feature set has too few classes or samples.
    """
    if wishes.seed is not None and not -(2**63) <= wishes.seed < 2**63:
        raise InputError(f"--seed is {wishes.seed}; it must be a number of at most 64 bits.")
    sets = _Sets(wishes)
    jobs: dict[str, Job] = {}
    skipped: dict[str, None] = {}
    only, without_support = wishes.only or {}, False
    _check_only(suite, wishes)
    for block in suite.blocks:
        block = _adapt(block, sets.override, wishes)
        for experiment in block.experiments(_tuned(suite, block, wishes.tuned or {}), sets.n_classes):
            if not _kept(experiment, only):
                continue
            features = sets[experiment.features]
            if isinstance(experiment.task.unknown_from, str):
                experiment = replace(experiment, strangers=sets.strangers(experiment.task.unknown_from))
            if sets.override is not None and experiment.task.shots is None and features.is_support is None:
                # The suite's own set comes with its labelled samples; the one that replaces it does not.
                without_support = True
                continue
            problem = sets.problem(experiment) if block.skip_impossible else ""
            if problem:
                skipped[f"{task_title(experiment.task)} on {experiment.features}: {problem}"] = None
                continue
            key = experiment_key(experiment, features.fingerprint)
            jobs.setdefault(key, Job(key, experiment, features))
    if without_support and not jobs:
        raise InputError(
            f"{suite.name} takes the labelled samples that come with a feature set, and {wishes.features} has none; "
            "say how many to draw, e.g. --task shots=10."
        )
    if suite.blocks and not jobs:
        reason = f"the features cannot serve it ({next(iter(skipped))})" if skipped else "--only keeps no experiment."
        raise InputError(f"Nothing of {suite.name} is left to run; {reason}")
    return list(jobs.values()), list(skipped)


class _Sets:
    """The feature sets of a suite, each loaded when it is first needed."""

    def __init__(self, wishes: Wishes) -> None:
        self._data = wishes.data
        self.override = None if wishes.features is None else override_name(wishes.features)
        self._loaded: dict[str, FeatureSet] = {}
        self._problems: dict[tuple[str, TaskSpec], str] = {}
        if wishes.features is not None and self.override is not None:
            self._loaded[self.override] = FeatureSet.load(wishes.features)

    def __getitem__(self, name: str) -> FeatureSet:
        if name not in self._loaded:
            self._loaded[name] = find_features(name, self._data)
        return self._loaded[name]

    def strangers(self, name: str) -> FeatureSet:
        """The set that unknown queries come from."""
        place = f"strangers {name}"
        if place not in self._loaded:
            self._loaded[place] = find_strangers(name, self._data)
        return self._loaded[place]

    def n_classes(self, name: str) -> int:
        return self[name].n_classes

    def problem(self, experiment: Experiment) -> str:
        """Why no task of the experiment can be drawn and solved; '' when one can."""
        if experiment.task.shots == 0 and not get_method(experiment.method).class_features:
            return f"{experiment.method} needs labelled examples"
        place = experiment.features, experiment.task
        if place not in self._problems:
            try:
                sample_tasks(self[experiment.features], experiment.spec, experiment.seed, 0, 1)
                self._problems[place] = ""
            except InputError as error:
                self._problems[place] = str(error)
        return self._problems[place]


def make_plan(
    suite: Suite, jobs: Sequence[Job], wishes: Wishes, store: Store | None = None, skipped: Sequence[str] = ()
) -> Plan:
    """What to remember of a run, so that its results can be shown later without the features.

    A part of a suite (``only``) is added to earlier requests under the same name, with as many tasks of the same seed;
    a whole suite replaces them.
    """
    override = None if wishes.features is None else override_name(wishes.features)
    experiments = [
        Asked(
            key=job.key,
            features=job.experiment.features,
            method=job.experiment.method,
            params=dict(job.experiment.params),
            task=task_fields(job.experiment.task),
            n_tasks=job.experiment.n_tasks,
            seed=job.experiment.seed,
            scorer=job.experiment.scorer,
        )
        for job in jobs
    ]
    name = suite.name if override is None else f"{suite.name}@{override}"
    if wishes.only and store is not None:
        # The same experiment has another key where another version of the method made it.
        new = [asked.model_copy(update={"key": ""}) for asked in experiments]
        sizes = {(asked.n_tasks, asked.seed) for asked in experiments}
        for asked in (asked for plan in store.plans() if plan.name == name for asked in plan.experiments):
            if (asked.n_tasks, asked.seed) in sizes and asked.model_copy(update={"key": ""}) not in new:
                experiments.append(asked)
        order = [method for block in suite.blocks for method in block.methods]
        experiments.sort(key=lambda asked: order.index(asked.method) if asked.method in order else len(order))
    return Plan(
        name=name,
        suite=suite.name,
        source=dict(suite.source),
        override=override,
        experiments=experiments,
        created=now(),
        skipped=list(skipped),
    )


def override_name(path: Path) -> str:
    """What results call a feature file: its name without the suffix, in characters that are safe in a file name."""
    return re.sub(r"[^\w.+-]+", "-", path.stem)


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
    """``["shots=10"]`` as fields of a suite's task.

    >>> parse_task(["shots=10", "sampling=dirichlet"])
    {'shots': (10,), 'sampling': ('dirichlet',)}
    """
    task: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value:
            raise InputError(f"'{text}' is not of the form FIELD=VALUE.")
        if name not in TaskAxes.model_fields:
            raise InputError(f"A task has no field '{name}'; {nearest(name, TaskAxes.model_fields)}")
        task[name] = _number(value)
    return {name: getattr(checked(TaskAxes, task, "--task"), name) for name in task}


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _adapt(block: Block, override: str | None, wishes: Wishes) -> Block:
    features = block.features if override is None else (override,)
    kept = (wishes.only or {}).get("features", features)
    return block.model_copy(
        update={
            "features": tuple(name for name in features if name in kept),
            "n_tasks": block.n_tasks if wishes.n_tasks is None or block.trace is not None else wishes.n_tasks,
            "seed": block.seed if wishes.seed is None else wishes.seed,
            "task": block.task.model_copy(update=dict(wishes.task or {})),
        }
    )


def _check_only(suite: Suite, wishes: Wishes) -> None:
    """Refuse --only on an axis that no experiment of the suite has a value on."""
    tables: list[Mapping[str, Mapping[str, Any]]] = list((wishes.tuned or {}).values())
    tables += [of for block in suite.blocks for of in (block.params, block.sweep, *block.params_on.values())]
    params = {name for table in tables for of_method in table.values() for name in of_method}
    known = ["method", "features", "scorer", *TaskAxes.model_fields, *sorted(params)]
    for axis in wishes.only or {}:
        if axis not in known:
            raise InputError(f"--only {axis}=…: {suite.name} has no axis '{axis}'; {nearest(axis, known)}")


def _kept(experiment: Experiment, only: Mapping[str, Sequence[str]]) -> bool:
    axes = {
        "method": experiment.method,
        "features": experiment.features,
        "scorer": experiment.scorer,
        **task_fields(experiment.task),
        **experiment.params,
    }
    # An axis that this experiment does not have is a parameter of another method: --only says nothing about it.
    return all(str(in_words(axis, axes[axis])) in values for axis, values in only.items() if axis in axes)


def _tuned(suite: Suite, block: Block, tuned: Tuned) -> Tuned:
    """The tuned parameters of the block's feature sets, some of which take those of another set."""
    return {name: tuned.get(suite.tuned_from.get(name, name), {}) for name in block.features}


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return "…"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
