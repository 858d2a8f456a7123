"""Stored results of a plan, with words for their axes. Nothing here runs an experiment or reads features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from manyway.bench.presentation import Plot, Presentation, Table, in_words, read_presentation
from manyway.bench.store import Plan, Record, Store
from manyway.methods import METHODS


@dataclass(frozen=True)
class View:
    """A plan, how its suite wants to be shown, and those of its records that are there."""

    plan: Plan
    shown: Presentation
    records: Sequence[Record]

    @property
    def missing(self) -> int:
        return len(self.plan.experiments) - len(self.records)

    def chosen(self, shown: Table | Plot) -> list[Record]:
        """The records that a table or plot is about. One in place of the suite's features passes any filter on them."""
        skip = {"features"} if self.plan.override is not None else set()
        wanted = {axis: values for axis, values in shown.where.items() if axis not in skip}
        return [
            r for r in self.records if all(in_words(axis, r.axis(axis)) in values for axis, values in wanted.items())
        ]

    def tables(self) -> list[Table]:
        """The suite's tables. Where a feature set took the place of several, those about each of them are one and the
        same: the first remains, under the suite's own title."""
        return self._distinct(self.shown.tables)

    def plots(self) -> list[Plot]:
        """The suite's plots, likewise."""
        return self._distinct(self.shown.plots)

    def label(self, axis: str, value: Any) -> str:
        """A value of an axis, as people say it."""
        if axis == "method":
            return METHODS[value].title if value in METHODS else str(value)
        if axis == "features":
            return self.shown.labels.get(value, str(value))
        if axis == "shots":
            return "given support" if value is None else f"{value}-shot"
        return f"{axis_title(axis)} = {number(value)}"

    def name(self, record: Record, axes: Sequence[str]) -> str:
        """A record by its place on some axes, those that its method does not have left out.

        Where several parameters differ between records, each is named only where it is not the method's default.
        """
        axes = [axis for axis in axes if record.has_axis(axis)]
        if sum(axis in record.params for axis in axes) > 1 and record.method in METHODS:
            usual = METHODS[record.method].defaults
            axes = [axis for axis in axes if axis not in record.params or record.axis(axis) != usual.get(axis)]
        return " · ".join(self.label(axis, record.axis(axis)) for axis in axes)

    def _distinct(self, shown: Iterable[Any]) -> list[Any]:
        if self.plan.override is None:
            return list(shown)
        found: dict[Any, Any] = {}
        for item in shown:
            same = repr((sorted(r.key for r in self.chosen(item)), _alike(item)))
            found.setdefault(same, item.model_copy(update={"title": ""}) if "features" in item.where else item)
        return list(found.values())


def load_view(store: Store, plan: Plan) -> View:
    """The records of a plan, called as the plan calls their features."""
    records = []
    for entry in plan.experiments:
        record = store.find(entry["key"])
        if record is not None:
            records.append(replace(record, features={**record.features, "name": entry["features"]}))
    return View(plan, read_presentation(plan.source, f"plan {plan.name}"), records)


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
        "seconds": "seconds",
        "steps": "iterations",
    }
    return names.get(axis, axis)


def number(value: Any) -> str:
    """A value in short.

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
    return str(value)


def values_of(records: Sequence[Record], axis: str) -> list[Any]:
    """The values that occur on an axis: numbers in their order, others as they come."""
    values = list({repr(value): value for value in (record.axis(axis) for record in records)}.values())
    numeric = all(isinstance(value, (int, float)) for value in values)
    return sorted(values) if numeric else values


def grouped(records: Sequence[Record], axes: Sequence[str]) -> dict[tuple[Any, ...], list[Record]]:
    """Records by their place on the axes, in the order of the axes' values."""
    order: list[Callable[[Record], int]] = []
    for axis in axes:
        ranks = {repr(value): i for i, value in enumerate(values_of(records, axis))}
        order.append(lambda record, axis=axis, ranks=ranks: ranks[repr(record.axis(axis))])  # type: ignore[misc]
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in sorted(records, key=lambda record: [rank(record) for rank in order]):
        groups.setdefault(tuple(_hashable(record.axis(axis)) for axis in axes), []).append(record)
    return groups


def undecided(records: Sequence[Record], axes: Sequence[str]) -> list[str]:
    """Axes along which records still differ that share a cell."""
    more: list[str] = []
    for record_group in grouped(records, axes).values():
        first = record_group[0]
        for name in ["features", *first.task, *first.params]:
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
    counts = {record.n_tasks for record in records}
    if len(counts) == 1:
        count = counts.pop()
        words.append("one task" if count == 1 else f"{count:,} tasks")
    return ", ".join(words)


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _alike(item: Table | Plot) -> Table | Plot:
    """The item without what does not change what it shows."""
    return item.model_copy(
        update={"title": "", "where": {}, "name": ""} if isinstance(item, Plot) else {"title": "", "where": {}}
    )
