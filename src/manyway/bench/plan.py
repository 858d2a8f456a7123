"""From a suite and the options of a command line to experiments with keys."""

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from manyway.bench.baselines import get_method
from manyway.bench.data import find_features, find_strangers
from manyway.bench.presentation import number, value_in_words
from manyway.bench.records import Plan, PlannedExperiment, Store, experiment_key, now, request
from manyway.bench.suite import Block, Experiment, Suite, TaskAxes, Tuned
from manyway.core import checked
from manyway.errors import InputError, nearest, refusal
from manyway.sampling import DEFAULTS, FeatureSet, TaskSpec, sample_tasks, task_fields


class Job(NamedTuple):
    """An experiment with the features it runs on and the key of its result."""

    key: str
    experiment: Experiment
    features: FeatureSet

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        experiment = self.experiment
        words = [
            task_title(experiment.task),
            *(f"{name}={number(v)}" for name, v in experiment.params.items()),
        ]
        if experiment.scorer is not None:
            words.append(f"scorer={experiment.scorer}")
        return f"{experiment.method} on {experiment.features}: {' '.join(words)}"


def task_title(task: TaskSpec) -> str:
    """What a task looks like, in a few words.

    >>> task_title(TaskSpec(shots=None, n_query=40))
    'shots=given k_eff=5 n_query=40'
    """
    shown = {
        n: v for n, v in task_fields(task).items() if n in ("shots", "k_eff") or v != DEFAULTS[n]
    }
    return " ".join(
        f"{name}={number(value_in_words(name, value))}" for name, value in shown.items()
    )


@dataclass(frozen=True)
class SuiteChanges:
    """What a command line changes about a suite."""

    features: Path | None = None  # a file, or the key of a set, that replaces every feature set
    data: Path | None = None
    n_tasks: int | None = None
    seed: int | None = None
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)  # axis -> the values to keep
    task: Mapping[str, Any] = field(default_factory=dict)  # fields of TaskSpec to set
    tuned: Tuned = field(default_factory=dict)

    @property
    def override(self) -> str | None:
        """What results call the features.

        It is the key of the set, or the file's name without the suffix, in characters safe in a
        file name.
        """
        if self.features is None:
            return None
        name = str(self.features) if self.names_a_set else self.features.stem
        return re.sub(r"[^\w.+-]+", "-", name)

    @property
    def names_a_set(self) -> bool:
        """Whether ``features`` is the key of a feature set, and no file."""
        given = self.features
        return (
            given is not None
            and given.suffix not in (".npz", ".safetensors")
            and not given.exists()
        )


def make_jobs(suite: Suite, wishes: SuiteChanges) -> tuple[list[Job], list[str]]:
    """The suite's experiments on their features, and the tasks that are skipped.

    Each experiment is there once, with the wishes applied. Skipped tasks are told in words.

    Experiments of a block with ``skip_impossible`` are skipped where the feature set has too
    few classes or samples.
    """
    if wishes.seed is not None and not -(2**63) <= wishes.seed < 2**63:
        raise InputError(f"`seed` is {wishes.seed}; it must be a number of at most 64 bits.")
    _check_only(suite, wishes)
    choice = _Choice(suite, wishes)
    for block in suite.blocks:
        choice.add(_adapt(block, wishes))
    choice.check()
    return list(choice.jobs.values()), [*choice.skipped, *choice.without_experiment()]


class _Choice:
    """The experiments of a suite that are wanted, on their features, and why others are not run."""

    def __init__(self, suite: Suite, wishes: SuiteChanges) -> None:
        self.suite = suite
        self.wishes = wishes
        self.jobs: dict[str, Job] = {}
        self.skipped: dict[str, None] = {}  # in words, each once
        self.seen: dict[str, set[str]] = {axis: set() for axis in wishes.only}
        self.without_support = False
        self._load = cache(self._read_features)
        self._strangers = cache(partial(find_strangers, data=wishes.data))
        self._refusal = cache(partial(refusal, sample_tasks))  # why no such task can be drawn

    def _read_features(self, name: str) -> FeatureSet:
        wished = self.wishes.features
        if wished is None or name != self.wishes.override:
            return find_features(name, self.wishes.data)
        if self.wishes.names_a_set:
            return find_features(str(wished), self.wishes.data)
        return FeatureSet.load(wished)

    def add(self, block: Block) -> None:
        """Choose among the experiments of a block."""
        # Some feature sets take the tuned parameters of another.
        tuned = {
            name: self.wishes.tuned.get(self.suite.tuned_from.get(name, name), {})
            for name in block.features
        }
        for experiment in block.experiments(tuned, lambda name: self._load(name).n_classes):
            if not self._is_wanted(experiment):
                continue
            features = self._load(experiment.features)
            experiment = replace(experiment, folder=self.suite.folder)
            if isinstance(experiment.task.unknown_from, str):
                strangers = self._strangers(experiment.task.unknown_from)
                experiment = replace(experiment, strangers=strangers)
            replaced = self.wishes.override is not None
            if replaced and experiment.task.shots is None and features.is_support is None:
                # The suite's own set comes with its labelled samples;
                # the one that replaces it does not.
                self.without_support = True
                continue
            problem = self._problem(experiment, features) if block.skip_impossible else None
            if problem:
                title = task_title(experiment.task)
                self.skipped[f"{title} on {experiment.features}: {problem}"] = None
                continue
            key = experiment_key(experiment, features.fingerprint)
            self.jobs.setdefault(key, Job(key, experiment, features))

    def _is_wanted(self, experiment: Experiment) -> bool:
        """Whether ``only`` keeps it.

        An axis that it does not have is a parameter of another method: nothing is said about it.
        """
        wanted = True
        axes = experiment.axes
        for axis, kept in self.wishes.only.items():
            if axis not in axes:
                continue
            value = str(value_in_words(axis, axes[axis]))
            self.seen[axis].add(value)
            wanted = wanted and value in kept
        return wanted

    def _problem(self, experiment: Experiment, features: FeatureSet) -> str | None:
        """Why the features cannot serve an experiment."""
        if experiment.task.shots == 0 and not get_method(experiment.method).class_features:
            return f"{experiment.method} needs labelled examples"
        return self._refusal(features, experiment.spec, experiment.seed, 0, 1)

    def check(self) -> None:
        """Refuse a choice of nothing."""
        if self.jobs or not self.suite.blocks:
            return
        name = self.suite.name
        if self.without_support:
            raise InputError(
                f"{name} takes labelled samples that come with a feature set, "
                f"and {self.wishes.features} has none; "
                "say how many to draw: shots=10 in `task`, for example."
            )
        reason = "`only` keeps no experiment."
        if self.skipped:
            reason = f"the features cannot serve it ({next(iter(self.skipped))})"
        raise InputError(f"Nothing of {name} is left to run; {reason}")

    def without_experiment(self) -> list[str]:
        """Values of ``only`` that no experiment has, in words."""
        return [
            f"{axis}={value}: {self.suite.name} has no experiment with it"
            for axis, wanted in self.wishes.only.items()
            for value in wanted
            if value not in self.seen[axis]
        ]


def make_plan(
    suite: Suite,
    jobs: Sequence[Job],
    wishes: SuiteChanges,
    store: Store | None = None,
    skipped: Sequence[str] = (),
) -> Plan:
    """What to remember of a run, so that its results can be shown later without the features.

    A part of a suite (``only``) is added to earlier requests under the same name, with as many
    tasks of the same seed; a whole suite replaces them.
    """
    experiments = [
        PlannedExperiment(features=job.experiment.features, **request(job.experiment, job.key))
        for job in jobs
    ]
    name = suite.name if wishes.override is None else f"{suite.name}@{wishes.override}"
    if wishes.only and store is not None:
        # The same experiment has another key where another version of the method made it.
        new = [asked.model_copy(update={"key": ""}) for asked in experiments]
        sizes = {(asked.n_tasks, asked.seed) for asked in experiments}
        old = (asked for plan in store.plans() if plan.name == name for asked in plan.experiments)
        experiments += [
            a
            for a in old
            if (a.n_tasks, a.seed) in sizes and a.model_copy(update={"key": ""}) not in new
        ]
        order = [method for block in suite.blocks for method in block.methods]
        experiments.sort(
            key=lambda asked: order.index(asked.method) if asked.method in order else len(order)
        )
    about: dict[str, Any] = {
        "suite": suite.name,
        "source": dict(suite.source),
        "override": wishes.override,
    }
    return Plan(name=name, **about, experiments=experiments, created=now(), skipped=list(skipped))


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
            raise InputError(
                f"A task has no field '{name}'; {nearest(name, TaskAxes.model_fields)}"
            )
        task[name] = _number(value)
    return {name: getattr(checked(TaskAxes, task, "`task`"), name) for name in task}


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _adapt(block: Block, wishes: SuiteChanges) -> Block:
    features = block.features if wishes.override is None else (wishes.override,)
    changes = {
        "features": tuple(
            name for name in features if name in wishes.only.get("features", features)
        ),
        "n_tasks": block.n_tasks
        if wishes.n_tasks is None or block.trace is not None
        else wishes.n_tasks,
        "seed": block.seed if wishes.seed is None else wishes.seed,
        "task": block.task.model_copy(update=dict(wishes.task)),
    }
    return block.model_copy(update=changes)


def _check_only(suite: Suite, wishes: SuiteChanges) -> None:
    """Refuse a part of a suite by an axis that no experiment of it has a value on."""
    tables: list[Mapping[str, Mapping[str, Any]]] = list(wishes.tuned.values())
    tables += [
        of
        for block in suite.blocks
        for of in (block.params, block.sweep, *block.params_on.values())
    ]
    params = {name for table in tables for of_method in table.values() for name in of_method}
    known = ["method", "features", "scorer", *TaskAxes.model_fields, *sorted(params)]
    for axis in wishes.only:
        if axis not in known:
            raise InputError(
                f"{axis}=… in `only`: {suite.name} has no axis '{axis}'; {nearest(axis, known)}"
            )
    for method in wishes.only.get("method", ()):
        get_method(method)  # an unknown one is an error that names the nearest
