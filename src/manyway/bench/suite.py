"""A suite: experiments written as axes to sweep, in TOML. Unknown keys are errors.

    title = "Accuracy against K_eff"
    n_tasks = 1000
    metrics = ["calibration"]                 # what to measure besides accuracy

    [[experiments]]
    features = "glyphs"                       # a key, or a list of keys; KEY+names: with the class features KEY_names
    methods = ["paddle", "simpleshot"]        # names, or functions in files beside this one: "mine.py:my_method"
    task = { shots = 5, k_eff = [3, 5, "all"] }   # fields of TaskSpec; a list is an axis
    params.paddle = { max_iter = 50 }         # parameters of a method
    params_on.glyphs.paddle = { eps = 0 }     # the same, on one feature set only
    sweep.paddle = { lam = [10, 75] }         # parameters of a method, each a list to sweep
    scorers = ["own", "knn"]                  # scores for unknown queries: the method's own, or one of SCORERS
    skip_impossible = true                    # leave out tasks that a feature set is too small for
    learn.unem = { steps = 100 }              # `manyway tune` learns the parameters of this method by gradients

    [[plots]]
    x = "k_eff"

An experiment is one point: one method with its parameters on one sequence of tasks. ``k_eff`` may be "half" or "all" of
the classes of a task, or a range such as "2-10". ``unknown_from`` is the key of a feature set. A parameter may be given
per query, ``lam = { per_query = 0.5 }``, and is then multiplied by the task's number of queries. Tuned parameters,
where there are any, replace ``params``, but not what is swept.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic.types import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from manyway import sampling
from manyway.bench.baselines import BASELINES, COMPARED, get_method
from manyway.bench.own import is_own, load_own, own_method
from manyway.bench.presentation import NONE, Plot, Presentation, TableSpec, one_of
from manyway.core import OneOrMore, Strict, checked
from manyway.errors import InputError, nearest
from manyway.evaluation import METRICS, SCORERS
from manyway.files import text_of
from manyway.methods import Method
from manyway.sampling import DEFAULTS, Reviewer, ShiftAlong, TaskSpec, task_fields

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Tuned = Mapping[str, Mapping[str, Mapping[str, Any]]]  # feature set -> method -> parameters


def _count(least: int, *words: str, ranges: bool = False) -> AfterValidator:
    """A whole number, one of some words, or a range such as "2-10"."""

    def check(value: Any) -> Any:
        if value in words or (type(value) is int and value >= least):
            return value
        if ranges and isinstance(value, str) and re.fullmatch(r"[1-9]\d{0,8}-[1-9]\d{0,8}", value):
            return value
        other = "".join(f" or '{word}'" for word in words) + (
            " or a range such as '2-10'" if ranges else ""
        )
        raise ValueError(f"is {value!r}; it must be a whole number of at least {least}{other}")

    return AfterValidator(check)


Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
MethodName = Annotated[str, one_of(COMPARED, "method")]
Metrics = Annotated[
    tuple[Annotated[str, one_of(METRICS, "metric")], ...],
    BeforeValidator(lambda names: tuple(names) if isinstance(names, list) else names),
]
Params = dict[MethodName, dict[str, Any]]


class Trace(Strict):
    """How to follow a solver: its iteration budget is raised until the prototypes no longer move."""

    max_steps: PositiveInt = 1000
    tol: PositiveFloat = 1e-6
    repeats: PositiveInt = 3  # timings of each budget; the fastest counts
    budget: str = "max_iter"  # the parameter that holds the number of iterations


class Learning(Strict):
    """How to learn the parameters of UNEM.

    The defaults are the authors', but for the loss and the transform.
    """

    layers: PositiveInt = 10
    steps: PositiveInt = 100
    lr: PositiveFloat = 0.1
    halve_every: PositiveInt = 50  # steps after which the learning rate is halved
    # transforms that give unit vectors
    scale: Literal["l2", "cl2", "rcl2", "tcl2", "power"] = "cl2"
    loss: Literal["cross-entropy", "double-softmax"] = "cross-entropy"  # the second is the authors'


@dataclass(frozen=True)
class Experiment:
    """One point: a method with its parameters on tasks 0..n_tasks-1 of a stream."""

    features: str
    method: str
    params: Mapping[str, Any]
    task: TaskSpec
    n_tasks: int
    seed: int
    trace: Trace | None = None
    metrics: Sequence[str] = ()  # besides accuracy
    learn: Learning | None = None  # what `manyway tune` does before it runs
    scorer: str | None = None  # of unknown queries; None: the method's own score
    strangers: sampling.FeatureSet | None = None  # what `task.unknown_from` names
    folder: Path | None = None  # of a suite that may name methods in files beside it

    @property
    def axes(self) -> dict[str, Any]:
        """Its place on every axis, as a record has it."""
        own = {"method": self.method, "features": self.features, "scorer": self.scorer}
        return {**self.params, **task_fields(self.task), **own}

    @property
    def solver(self) -> str | Method:
        """What ``evaluate`` takes."""
        if self.folder is not None and is_own(self.method):
            return own_method(self.method, self.folder)  # in whatever process
        return BASELINES.get(self.method, self.method)

    @property
    def spec(self) -> TaskSpec:
        """The task, with the feature set of its unknown queries instead of its name."""
        if self.strangers is None:
            return self.task
        return replace(self.task, unknown_from=self.strangers)


class TaskAxes(Strict):
    """Fields of TaskSpec, each a list of values to combine.

    One that is not given has the default of TaskSpec.
    """

    shots: OneOrMore[Annotated[Any, _count(0, "given")]] = ()
    k_eff: OneOrMore[Annotated[Any, _count(1, "half", "all", ranges=True)]] = ()
    n_query: OneOrMore[PositiveInt] = ()
    n_ways: OneOrMore[Annotated[Any, _count(2, "all")]] = ()
    sampling: OneOrMore[Literal["uniform", "balanced", "dirichlet"]] = ()
    alpha: OneOrMore[PositiveFloat] = ()
    n_unknown: OneOrMore[NonNegativeInt] = ()
    unknown_classes: OneOrMore[Annotated[Any, _count(1, "all")]] = ()
    unknown_from: OneOrMore[str] = ()
    n_batches: OneOrMore[PositiveInt] = ()
    gamma: OneOrMore[NonNegativeFloat] = ()
    n_answers: OneOrMore[NonNegativeInt] = ()
    reviewer: OneOrMore[Reviewer] = ()
    shift: OneOrMore[NonNegativeFloat] = ()
    shift_along: OneOrMore[ShiftAlong] = ()

    def points(self, n_classes: Callable[[], int] | None) -> Iterator[TaskSpec]:
        """Every combination.

        ``n_classes`` is called where a field depends on the number of classes.
        """
        for point in _product(
            {name: getattr(self, name) for name in type(self).model_fields if getattr(self, name)}
        ):
            fields: dict[str, Any] = {
                name: None if value == NONE.get(name) else value for name, value in point.items()
            }
            k_eff = fields.pop("k_eff", DEFAULTS["k_eff"])
            leaves_out = fields.get("n_unknown") and "unknown_from" not in fields
            if leaves_out and not fields.get("n_ways") and n_classes is not None:
                # records say what it was
                fields["n_ways"] = max(2, TaskSpec(**fields).ways(n_classes()))
            if k_eff in ("half", "all"):
                if n_classes is None:
                    raise InputError(
                        f"k_eff = '{k_eff}' needs a feature set, whose classes are counted."
                    )
                n_ways = fields.get("n_ways") or n_classes()
                k_eff = n_ways if k_eff == "all" else max(1, n_ways // 2)
            elif isinstance(k_eff, str):
                k_eff = tuple(map(int, k_eff.split("-")))
            yield TaskSpec(k_eff=k_eff, **fields)


class Block(Strict):
    """A product of axes."""

    features: OneOrMore[str]
    methods: OneOrMore[MethodName]
    task: TaskAxes = TaskAxes()
    params: Params = Field(default_factory=dict)
    params_on: dict[str, Params] = Field(default_factory=dict)  # features -> the same
    sweep: Params = Field(default_factory=dict)
    learn: dict[Literal["unem"], Learning] = Field(default_factory=dict)
    n_tasks: PositiveInt = 10_000
    seed: Seed = 0
    metrics: Metrics = ()
    scorers: OneOrMore[Annotated[str, one_of([NONE["scorer"], *SCORERS], "scorer")]] = (
        NONE["scorer"],
    )
    trace: Trace | None = None
    skip_impossible: bool = False

    @model_validator(mode="after")
    def _usable(self) -> Block:
        """Refuse parameters that no method has or can use, and tasks that cannot be."""
        tables = {
            "params": self.params,
            **{f"params_on.{name}": of for name, of in self.params_on.items()},
        }
        for place, table in tables.items():
            for method, params in table.items():
                check_experiment_params(method, params, f".{place}.{method}")
        for method, name, values in (
            (one, *axis) for one, axes in self.sweep.items() for axis in axes.items()
        ):
            if not _axis(values):
                raise ValueError(
                    f".sweep.{method}.{name} must be a list of values to sweep, with at least one."
                )
            for value in _axis(values):
                check_experiment_params(method, {name: value}, f".sweep.{method}")
        try:
            list(self.task.points(lambda: 1))
        except InputError as error:
            raise ValueError(f".task: {error}") from error
        return self

    def experiments(
        self, tuned: Tuned | None = None, n_classes: Callable[[str], int] | None = None
    ) -> Iterator[Experiment]:
        """Every point, feature set by feature set and method by method.

        ``n_classes`` returns the number of classes of a feature set.
        It is only called where a task depends on it.
        """
        for features, method in itertools.product(self.features, self.methods):
            fixed = {
                **self.params.get(method, {}),
                **self.params_on.get(features, {}).get(method, {}),
                **(tuned or {}).get(features, {}).get(method, {}),
            }
            size = None if n_classes is None else partial(n_classes, features)
            for task in self.task.points(size):
                for chosen in _product(
                    {k: _axis(v) for k, v in self.sweep.get(method, {}).items()}
                ):
                    params = {**fixed, **chosen}
                    params |= {
                        k: v["per_query"] * task.n_queries
                        for k, v in params.items()
                        if _is_per_query(v)
                    }
                    for scorer in (
                        None if name == NONE["scorer"] else name for name in self.scorers
                    ):
                        what = features, method, params, task, self.n_tasks, self.seed, self.trace
                        learn = self.learn.get(method)  # type: ignore[call-overload]
                        yield Experiment(*what, self._metrics(task, scorer), learn, scorer)

    def _metrics(self, task: TaskSpec, scorer: str | None) -> tuple[str, ...]:
        """The metrics of an experiment.

        A scorer has no probabilities, and accuracy may need the number of queries.
        """
        names = [
            name for name in self.metrics if scorer is None or not METRICS[name].of_probability
        ]
        return tuple(dict.fromkeys([*names, *(["n_query"] if task.is_ragged else [])]))

    @property
    def axes(self) -> set[str]:
        """The names of the axes that its experiments have a place on."""
        params = [name for method in self.methods for name in get_method(method).defaults]
        return {
            "method",
            "version",
            "features",
            "scorer",
            "metrics",
            *TaskAxes.model_fields,
            *params,
        }


class _SuiteFile(Presentation):
    """A suite as it is written."""

    n_tasks: PositiveInt = 10_000
    seed: Seed = 0
    metrics: Metrics = ()
    experiments: list[Block] = Field(default_factory=list)
    tuned_from: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _can_be_shown(self) -> _SuiteFile:
        """Refuse tables and plots of an axis or a metric that no experiment has."""
        known = set().union(*(block.axes for block in self.experiments))
        measured = {"accuracy", *(metric for block in self.experiments for metric in block.metrics)}
        shown: dict[str, Sequence[TableSpec | Plot]] = {"tables": self.tables, "plots": self.plots}
        for place, item in (
            (f"{key}[{n}]", item) for key, items in shown.items() for n, item in enumerate(items, 1)
        ):
            for field, axis in (
                (field, axis) for field, axes in item.axes.items() for axis in axes
            ):
                if known and axis not in known:
                    hint = nearest(axis, sorted(known))
                    raise ValueError(
                        f"{place}.{field} names '{axis}', which is no axis of an experiment; {hint}"
                    )
            for metric in item.metric:
                if metric.partition(".")[0] not in measured:
                    raise ValueError(
                        f"{place} shows '{metric}', which is not measured; "
                        "add it to metrics = [...]"
                    )
        return self


class Suite(NamedTuple):
    """Experiments with the tables and plots that show them."""

    name: str
    shown: Presentation
    blocks: Sequence[Block]
    # feature sets without validation classes take the tuned parameters of another
    tuned_from: Mapping[str, str]
    source: Mapping[str, Any]  # the TOML as it was read
    folder: Path | None = None  # where files with methods of one's own are


def suite_names() -> list[str]:
    """The suites that come with the package."""
    files = resources.files("manyway.bench").joinpath("suites").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def suite_titles() -> dict[str, str]:
    """The suites that come with the package, with their titles.

    Their experiments are not looked at.
    """
    return {name: str(tomllib.loads(_shipped(name))["title"]) for name in suite_names()}


def load_suite(name: str, *, allow_code: bool = False) -> Suite:
    """A suite of the package by its name, or one of your own by the path of its TOML file.

    Such a file may name methods as ``mine.py:my_method``. With ``allow_code`` these files are run; without it, they
    are an error.
    """
    if name.endswith(".toml"):
        path = Path(name)
        # Files whose names begin with a dot are hidden, and results go by the suite's name.
        called = path.stem.lstrip(".") or "suite"
        text = text_of(path)
        own = _own_methods(text)
        if own and not allow_code:
            what = f"{name} runs code in files beside it: {', '.join(own)}"
            raise InputError(f"{what}. If you trust these files, run the suite with `allow_code`.")
        load_own(own, path.parent)
        return parse_suite(text, called, name)._replace(folder=path.parent.resolve())
    if name not in suite_names():
        hint = nearest(name, suite_names())
        raise InputError(f"There is no suite '{name}'; {hint} A file of your own ends in .toml.")
    return parse_suite(_shipped(name), name, f"suite {name}")


def _own_methods(text: str) -> list[str]:
    """The methods of a suite that are functions in files; none where it is no suite,
    which is said later.
    """
    try:
        blocks = tomllib.loads(text).get("experiments", [])
    except (tomllib.TOMLDecodeError, RecursionError):
        return []
    if not isinstance(blocks, list):
        return []
    names: list[str] = []
    for block in blocks:
        methods = block.get("methods") if isinstance(block, dict) else None
        listed = methods if isinstance(methods, list) else [methods]
        names += map(str, listed)
    return [name for name in dict.fromkeys(names) if is_own(name)]


def parse_suite(text: str, name: str, where: str) -> Suite:
    """Read a suite from TOML text; ``where`` names it in error messages."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{where} is not valid TOML: {error}.") from error
    shared = {key: data[key] for key in ("n_tasks", "seed", "metrics") if key in data}
    blocks = data.get("experiments", [])
    if isinstance(blocks, list):
        blocks = [{**shared, **block} if isinstance(block, dict) else block for block in blocks]
    file = checked(_SuiteFile, {**data, "experiments": blocks}, where)
    return Suite(name, file, file.experiments, file.tuned_from, dict(data))


def check_experiment_params(method: str, params: Mapping[str, Any], where: str) -> None:
    """Refuse parameters that the method does not have, or with values that it cannot use.

    ``where`` names the place.
    """
    per_query = {name: value["per_query"] for name, value in params.items() if _is_per_query(value)}
    for name, value in per_query.items():
        if not isinstance(value, int | float):
            raise InputError(f"{where}: {name} is {value!r} per query; it must be a number.")
    try:
        get_method(method).check({**params, **per_query})
    except InputError as error:
        raise InputError(f"{where}: {str(error).removeprefix(f'{method}: ')}") from error


def _shipped(name: str) -> str:
    return (
        resources.files("manyway.bench")
        .joinpath("suites", f"{name}.toml")
        .read_text(encoding="utf-8")
    )


def _axis(value: Any) -> list[Any]:
    """What is swept: a list, or ``{ per_query = [...] }`` for multiples of n_query.

    Empty if it is neither.
    """
    if _is_per_query(value) and isinstance(value["per_query"], list):
        return [{"per_query": factor} for factor in value["per_query"]]
    return value if isinstance(value, list) else []


def _product(axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _is_per_query(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"per_query"}
