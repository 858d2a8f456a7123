"""A suite: experiments written as axes to sweep, in TOML. Unknown keys are errors.

    title = "Accuracy against K_eff"
    n_tasks = 1000

    [[experiments]]
    features = "glyphs"                       # a key, or a list of keys
    methods = ["paddle", "simpleshot"]
    task = { shots = 5, k_eff = [3, 5, 10] }  # fields of TaskSpec; a list is an axis
    params.paddle = { max_iter = 50 }         # parameters of a method, as they are
    params_on.glyphs.paddle = { eps = 0 }     # the same, on one feature set only
    sweep.paddle = { lam = [10, 75] }         # parameters of a method, each a list to sweep

    [[plots]]
    x = "k_eff"

An experiment is one point: one method with its parameters on one stream of tasks. A parameter may be given per query,
``lam = { per_query = 0.5 }``, and is then multiplied by the task's n_query. Tuned parameters, where there are any, take
the place of ``params``; what is swept is swept.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

from manyway.bench.presentation import Presentation, read_presentation
from manyway.bench.toml import Reader
from manyway.data.sampling import TaskSpec
from manyway.errors import InputError, nearest
from manyway.methods import get_method

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Tuned = Mapping[str, Mapping[str, Mapping[str, Any]]]  # feature set -> method -> parameters
# TOML has no null, so the two fields of a task that may be None have a word for it.
_NONE = {"shots": "given", "n_ways": "all"}


@dataclass(frozen=True)
class Trace:
    """How to follow a solver's way: its iteration budget is raised until the prototypes stand still."""

    max_steps: int = 1000
    tol: float = 1e-6
    repeats: int = 3  # timings of each budget; the fastest counts
    budget: str = "max_iter"  # the parameter that holds the number of iterations


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


@dataclass(frozen=True)
class Block:
    """A product of axes."""

    features: Sequence[str]
    methods: Sequence[str]
    task: Mapping[str, Sequence[Any]]
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # method -> parameters
    params_on: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)  # features -> the same
    sweep: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    n_tasks: int = 10_000
    seed: int = 0
    trace: Trace | None = None

    def experiments(self, tuned: Tuned | None = None) -> Iterator[Experiment]:
        """Every point, feature set by feature set and method by method."""
        for features, method in itertools.product(self.features, self.methods):
            fixed = {
                **self.params.get(method, {}),
                **self.params_on.get(features, {}).get(method, {}),
                **(tuned or {}).get(features, {}).get(method, {}),
            }
            for point in _product(self.task):
                task = TaskSpec(**point)
                for chosen in _product(self.sweep.get(method, {})):
                    params = {name: _resolve(value, task) for name, value in {**fixed, **chosen}.items()}
                    yield Experiment(features, method, params, task, self.n_tasks, self.seed, self.trace)


@dataclass(frozen=True)
class Suite:
    """Experiments with the tables and plots that show them."""

    name: str
    shown: Presentation
    blocks: Sequence[Block]
    tuned_from: Mapping[str, str]  # feature sets without validation classes take the tuned parameters of another
    source: Mapping[str, Any]  # the TOML as it was read


def suite_names() -> list[str]:
    """The suites that come with the package."""
    files = resources.files("manyway.bench").joinpath("suites").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def load_suite(name: str) -> Suite:
    """A suite of the package by its name, or one of your own by the path of its TOML file."""
    if name.endswith(".toml"):
        path = Path(name)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"The suite {path} cannot be read: {getattr(error, 'strerror', error)}.") from error
        return parse_suite(text, path.stem, str(path))
    if name not in suite_names():
        hint = nearest(name, suite_names())
        raise InputError(f"There is no suite '{name}'; {hint} A file of your own ends in .toml.")
    text = resources.files("manyway.bench").joinpath("suites", f"{name}.toml").read_text(encoding="utf-8")
    return parse_suite(text, name, f"suite {name}")


def parse_suite(text: str, name: str, where: str) -> Suite:
    """Read a suite from TOML text; ``where`` names it in error messages."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where} is not valid TOML: {error}.") from error
    top = Reader(data, where)
    shown = read_presentation(top)
    n_tasks, seed = top.take("n_tasks", int, 10_000), top.take("seed", int, 0)
    blocks = [_block(reader, n_tasks, seed) for reader in top.tables("experiments")]
    tuned_from = top.strings("tuned_from")
    top.finish()
    return Suite(name, shown, blocks, tuned_from, dict(data))


def _block(reader: Reader, n_tasks: int, seed: int) -> Block:
    features, methods = reader.names("features"), reader.names("methods")
    n_tasks, seed = reader.take("n_tasks", int, n_tasks), reader.take("seed", int, seed)
    if n_tasks < 1:
        raise InputError(f"{reader.where}: n_tasks is {n_tasks}; ask for at least one task.")
    task = _task(reader.table("task"))
    params = {name: table.all() for name, table in reader.named_tables("params").items()}
    params_on = {
        key: {name: reader.named(table, f"params_on.{key}.{name}").all() for name, table in of_key.all().items()}
        for key, of_key in reader.named_tables("params_on").items()
    }
    sweep = {name: table.lists() for name, table in reader.named_tables("sweep").items()}
    trace = _trace(reader.table("trace")) if reader.has("trace") else None
    reader.finish()
    named: dict[str, dict[str, Any]] = {method: {} for method in methods}
    for given in (named, params, sweep, *params_on.values()):
        _check_methods(given, reader.where)
    return Block(features, methods, task, params, params_on, sweep, n_tasks, seed, trace)


def _check_methods(given: Mapping[str, Mapping[str, Any]], where: str) -> None:
    for method, params in given.items():
        try:
            known = get_method(method).defaults
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        for parameter in params:
            if parameter not in known:
                raise InputError(f"{where}: {method} has no parameter '{parameter}'; {nearest(parameter, known)}")


def _task(reader: Reader) -> dict[str, list[Any]]:
    kinds: dict[str, type | tuple[type, ...]] = {
        "shots": int,
        "k_eff": int,
        "n_query": int,
        "n_ways": int,
        "sampling": str,
        "alpha": (int, float),
    }
    axes: dict[str, list[Any]] = {}
    for name in [f.name for f in fields(TaskSpec) if reader.has(f.name)]:
        if name in _NONE and reader.value(name) == _NONE[name]:
            axes[name] = [None]
        else:
            axes[name] = reader.one_or_more(name, kinds[name])
    reader.finish()
    return axes


def _trace(reader: Reader) -> Trace:
    trace = Trace(
        max_steps=reader.take("max_steps", int, Trace.max_steps),
        tol=reader.take("tol", float, Trace.tol),
        repeats=reader.take("repeats", int, Trace.repeats),
        budget=reader.take("budget", str, Trace.budget),
    )
    reader.finish()
    return trace


def in_words(axis: str, value: Any) -> Any:
    """A value of an axis as a suite or a command line writes it.

    >>> in_words("shots", None), in_words("shots", 5)
    ('given', 5)
    """
    return _NONE.get(axis, value) if value is None else value


def _product(axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _resolve(value: Any, task: TaskSpec) -> Any:
    if isinstance(value, Mapping) and set(value) == {"per_query"}:
        return value["per_query"] * task.n_query
    return value
