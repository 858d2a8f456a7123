"""Stored results of a plan, and their order along axes. Nothing here runs an experiment or reads features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from manyway.bench.presentation import Plot, Presentation, Table, in_words, read_presentation
from manyway.bench.records import Record
from manyway.bench.show.words import LATER, label, later_words
from manyway.bench.store import Plan, Store

Shown = TypeVar("Shown", Table, Plot)


class Placed(Protocol):
    """Something with a place on axes."""

    def axis(self, name: str) -> Any: ...


P = TypeVar("P", bound=Placed)


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
        return self._distinct([table.model_copy(update={"metric": (metric,)} if metric else {}) for table in tables])

    def plots(self, metric: str | None = None) -> list[Plot]:
        """The suite's plots, each once. A metric replaces that of the plots that show one."""
        fixed = ("criterion", "best")
        plots = [
            plot.model_copy(update={} if metric is None or plot.y in fixed or plot.formulas else {"y": metric})
            for plot in self.shown.plots
        ]
        return self._distinct(plots)

    def label(self, axis: str, value: Any) -> str:
        """A value of an axis, as people say it."""
        return label(axis, value, self.shown.labels)

    def name(self, record: Record, axes: Sequence[str]) -> str:
        """A record by its place on some axes, without those that its method does not have, and its own score.

        Where several parameters differ between records, each is named only where it is not the method's default.
        """
        n_params = sum(axis not in (*record.task, "method", "version", "features", "scorer") for axis in axes)
        axes = [axis for axis in axes if axis in record.axes]
        if n_params > 1:
            axes = [axis for axis in axes if axis not in record.params or axis in record.special]
        if len(axes) > 1 and record.scorer is None:
            axes = [axis for axis in axes if axis != "scorer"]
        return " · ".join(self.label(axis, record.axis(axis)) for axis in axes) or "default"

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
    for asked in plan.experiments:
        record = store.find(asked.key)
        if record is not None:
            features = record.features.model_copy(update={"name": asked.features})
            records.append(record.model_copy(update={"features": features}))
    return View(plan, read_presentation(plan.source, f"plan {plan.name}"), records)


def values_of(placed: Sequence[Placed], axis: str) -> list[Any]:
    """The values that occur on an axis: numbers in their order, others as they come."""
    values = list({repr(value): value for value in (one.axis(axis) for one in placed)}.values())
    return sorted(values) if all(isinstance(value, (int, float)) for value in values) else values


def grouped(placed: Sequence[P], axes: Sequence[str]) -> dict[tuple[Any, ...], list[P]]:
    """By their place on the axes, in the order of the axes' values."""
    ranks = {axis: {repr(value): i for i, value in enumerate(values_of(placed, axis))} for axis in axes}
    groups: dict[tuple[Any, ...], list[P]] = {}
    for one in sorted(placed, key=lambda one: [ranks[axis][repr(one.axis(axis))] for axis in axes]):
        groups.setdefault(tuple(_hashable(one.axis(axis)) for axis in axes), []).append(one)
    return groups


def undecided(records: Sequence[Record], axes: Sequence[str]) -> list[str]:
    """The axes along which records in the same cell still differ."""
    more: list[str] = []
    for group in grouped(records, axes).values():
        for name in ["features", "scorer", *group[0].task, *group[0].params]:
            if name not in (*axes, *more) and len(values_of(group, name)) > 1:
                more.append(name)
    return more


def context(view: View, records: Sequence[Record], shown: Sequence[str]) -> str:
    """What all records share, apart from the axes that are shown: features, K, the task, how many tasks."""

    def shared(axis: str) -> bool:
        return axis not in shown and len(values_of(records, axis)) == 1

    if not records:
        return ""
    first, words = records[0], []
    words += [view.label(axis, first.axis(axis)) for axis in ("method", "features") if shared(axis)]
    classes = {record.task["n_ways"] or record.features.n_classes for record in records}
    words += [f"K = {classes.pop()}"] if len(classes) == 1 else []
    for axis in filter(shared, ("shots", "k_eff", "n_query", "sampling", "alpha")):
        if first.axis(axis) is not None or axis == "shots":
            words.append(f"{first.axis(axis)} queries" if axis == "sampling" else view.label(axis, first.axis(axis)))
    words += later_words({axis: first.axis(axis) for axis in filter(shared, LATER)})
    counts = {record.n_tasks for record in records}
    if len(counts) == 1:
        count = counts.pop()
        unit = "stream" if all(record.task["n_batches"] > 1 for record in records) else "task"
        words.append(f"one {unit}" if count == 1 else f"{count:,} {unit}s")
    return ", ".join(words)


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
