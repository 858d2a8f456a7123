"""Stored results of a plan, with words for their axes. Nothing here runs an experiment or reads features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from manyway.bench.presentation import Plot, Presentation, Table, in_words, read_presentation
from manyway.bench.store import Plan, Record, Store
from manyway.evaluation.metrics import find_summary
from manyway.evaluation.scorers import SCORERS
from manyway.methods import METHODS
from manyway.sampling.spec import DEFAULTS

Shown = TypeVar("Shown", Table, Plot)
# Fields of a task that are named only where they differ from their defaults, in words.
LATER_FIELDS = {
    "n_unknown": "{} unknown queries",
    "unknown_classes": "{} unknown classes",
    "unknown_from": "unknown queries from {}",
    "n_batches": "{} batches",
    "gamma": "γ = {}",
    "n_answers": "{} answers",
    "reviewer": "{}",
}


@dataclass(frozen=True)
class View:
    """A plan, how its suite is shown, and those of its records that are finished."""

    plan: Plan
    shown: Presentation
    records: Sequence[Record]

    @property
    def missing(self) -> int:
        return len(self.plan.experiments) - len(self.records)

    def chosen(self, shown: Table | Plot) -> list[Record]:
        """The records that a table or plot is about.

        Where a feature file took the place of the suite's features, a filter on their names does not apply.
        """
        skip = {"features"} if self.plan.override is not None else set()
        wanted = {axis: values for axis, values in shown.where.items() if axis not in skip}
        return [
            r for r in self.records if all(in_words(axis, r.axis(axis)) in values for axis, values in wanted.items())
        ]

    def tables(self, metric: str | None = None) -> list[Table]:
        """The suite's tables, each once; one of all axes where the suite names none. A metric replaces theirs."""
        tables = self.shown.tables or [Table(columns=("features", "shots", "k_eff"))]
        return self._distinct([table.model_copy(update={"metric": metric or table.metric}) for table in tables])

    def plots(self, metric: str | None = None) -> list[Plot]:
        """The suite's plots, each once. A metric replaces that of the plots that show one."""
        fixed = ("criterion", "best")
        plots = [
            plot.model_copy(update={"y": plot.y if metric is None or plot.y in fixed or plot.formulas else metric})
            for plot in self.shown.plots
        ]
        return self._distinct(plots)

    def label(self, axis: str, value: Any) -> str:
        """A value of an axis, as people say it."""
        if axis == "method":
            return method_title(value)
        if axis == "features":
            return self.shown.labels.get(value, str(value))
        if axis == "shots":
            return "given support" if value is None else f"{value}-shot"
        if axis == "scorer":
            return "own score" if value is None else scorer_title(value)
        if axis in LATER_FIELDS:
            usual = "batches alike" if axis == "gamma" else f"no {axis_title(axis)}"
            return next(iter(later_words({axis: value})), usual)
        return f"{axis_title(axis)} = {number(in_words(axis, _hashable(value)))}"

    def name(self, record: Record, axes: Sequence[str]) -> str:
        """A record by its place on some axes, without those that its method does not have, and its own score.

        Where several parameters differ between records, each is named only where it is not the method's default.
        """
        axes = [axis for axis in axes if record.has_axis(axis)]
        if sum(axis in record.params for axis in axes) > 1:
            axes = [axis for axis in axes if axis not in record.params or axis in record.special_params]
        if len(axes) > 1 and record.scorer is None:
            axes = [axis for axis in axes if axis != "scorer"]
        return " · ".join(self.label(axis, record.axis(axis)) for axis in axes)

    def _distinct(self, shown: Sequence[Shown]) -> list[Shown]:
        """Without repetitions: those that differ in their title, name or filter only and show the same records.

        Where a feature file took the place of several feature sets, the first remains, under the suite's own title.
        """
        found: dict[str, Shown] = {}
        for item in shown:
            keys = sorted(record.key for record in self.chosen(item))
            same = item.model_dump(exclude={"title", "name", "where"}), keys
            about_features = self.plan.override is not None and "features" in item.where
            found.setdefault(repr(same), item.model_copy(update={"title": ""}) if about_features else item)
        return list(found.values())


def load_view(store: Store, plan: Plan) -> View:
    """A plan with its records; their features have the name that the plan gives them."""
    records = []
    for entry in plan.experiments:
        record = store.find(entry["key"])
        if record is not None:
            records.append(replace(record, features={**record.features, "name": entry["features"]}))
    return View(plan, read_presentation(plan.source, f"plan {plan.name}"), records)


def method_title(name: str) -> str:
    """What tables call a method."""
    return METHODS[name].title if name in METHODS else name


def scorer_title(name: str) -> str:
    """What tables call a score for unknown queries."""
    return SCORERS[name].title if name in SCORERS else name


def later_words(task: Mapping[str, Any]) -> list[str]:
    """What a task says about unknown queries, streams and reviewers, in words; nothing where it has its default.

    >>> later_words({"n_unknown": 20, "unknown_classes": 3, "n_batches": 1})
    ['20 unknown queries', '3 unknown classes']
    """
    known = {name: task[name] for name in LATER_FIELDS if task.get(name, DEFAULTS[name]) != DEFAULTS[name]}
    if known.get("gamma") == 0:
        return [*later_words({**known, "gamma": None}), "separate classes"]
    return [LATER_FIELDS[name].format(number(value)) for name, value in known.items()]


def special_params(record: Record) -> str:
    """The parameters of a result that are not the method's defaults, as text."""
    return ", ".join(f"{axis_title(name)} = {number(value)}" for name, value in record.special_params.items())


def has_metric(record: Record, metric: str) -> bool:
    """Whether a result of ordinary tasks (not a trace) has a metric such as ``n_present.within``."""
    return record.trace is None and find_summary(metric)[0].name in record.metrics


def axis_title(axis: str) -> str:
    """What an axis is called.

    >>> axis_title("k_eff"), axis_title("tau")
    ('K_eff', 'tau')
    """
    names: Mapping[str, str] = {
        "method": "Method",
        "features": "Features",
        "k_eff": "K_eff",
        "n_query": "|Q|",
        "n_ways": "K",
        "lam": "λ",
        "alpha": "α",
        "gamma": "γ",
        "scorer": "Score",
        "n_unknown": "unknown queries",
        "unknown_classes": "unknown classes",
        "unknown_from": "unknown features",
        "n_batches": "batches",
        "n_answers": "answers",
        "reviewer": "Reviewer",
        "steps": "iterations",
    }
    return names.get(axis, axis)


def number(value: Any) -> str:
    """A value in few characters.

    >>> number(37.5), number(5), number(None), number([1, 0.3])
    ('37.5', '5', 'default', '[1, 0.3]')
    """
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(number, value))}]"
    if isinstance(value, Mapping):
        return "…"
    return str(value)


def values_of(records: Sequence[Record], axis: str) -> list[Any]:
    """The values that occur on an axis: numbers in their order, others as they come."""
    values = list({repr(value): value for value in (record.axis(axis) for record in records)}.values())
    numeric = all(isinstance(value, (int, float)) for value in values)
    return sorted(values) if numeric else values


def grouped(records: Sequence[Record], axes: Sequence[str]) -> dict[tuple[Any, ...], list[Record]]:
    """Records by their place on the axes, in the order of the axes' values."""
    ranks = {axis: {repr(value): i for i, value in enumerate(values_of(records, axis))} for axis in axes}
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in sorted(records, key=lambda record: [ranks[axis][repr(record.axis(axis))] for axis in axes]):
        groups.setdefault(tuple(_hashable(record.axis(axis)) for axis in axes), []).append(record)
    return groups


def undecided(records: Sequence[Record], axes: Sequence[str]) -> list[str]:
    """The axes along which records in the same cell still differ."""
    more: list[str] = []
    for record_group in grouped(records, axes).values():
        first = record_group[0]
        for name in ["features", "scorer", *first.task, *first.params]:
            if name not in (*axes, *more) and len(values_of(record_group, name)) > 1:
                more.append(name)
    return more


def context(view: View, records: Sequence[Record], shown: Sequence[str]) -> str:
    """What all records share, apart from the axes that are shown: features, K, the task, how many tasks."""
    if not records:
        return ""
    words = [
        view.label(axis, records[0].axis(axis))
        for axis in ("method", "features")
        if axis not in shown and len(values_of(records, axis)) == 1
    ]
    classes = {record.task["n_ways"] or record.features["n_classes"] for record in records}
    if len(classes) == 1:
        words.append(f"K = {classes.pop()}")
    for axis in ("shots", "k_eff", "n_query", "sampling", "alpha"):
        values = values_of(records, axis)
        if axis in shown or len(values) != 1 or (values[0] is None and axis != "shots"):
            continue
        words.append(f"{values[0]} queries" if axis == "sampling" else view.label(axis, values[0]))
    same = {axis: records[0].axis(axis) for axis in LATER_FIELDS if len(values_of(records, axis)) == 1}
    words += later_words({axis: value for axis, value in same.items() if axis not in shown})
    counts = {record.n_tasks for record in records}
    if len(counts) == 1:
        count = counts.pop()
        unit = "stream" if all(record.task["n_batches"] > 1 for record in records) else "task"
        words.append(f"one {unit}" if count == 1 else f"{count:,} {unit}s")
    return ", ".join(words)


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
