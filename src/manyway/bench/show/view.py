"""Stored results of a plan or of a name, their order along axes, and words for them.

Nothing here runs anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from manyway.bench import (
    COMPARED,
    Plan,
    Plot,
    Presentation,
    Record,
    Store,
    TableSpec,
    number,
    read_presentation,
    value_in_words,
)
from manyway.errors import InputError, nearest
from manyway.evaluation import SCORERS, find_summary
from manyway.sampling import DEFAULTS

# What an axis is called, and a value of it: "5 batches", "K_eff = 5", or the value alone.
_COUNTED = {
    "n_unknown": "unknown queries",
    "unknown_classes": "unknown classes",
    "n_batches": "batches",
}
_COUNTED |= {"n_answers": "answers", "steps": "iterations"}
_SYMBOLS = {
    "k_eff": "K_eff",
    "n_query": "|Q|",
    "n_ways": "K",
    "lam": "λ",
    "alpha": "α",
    "gamma": "γ",
}
_ALONE = {
    "method": "Method",
    "features": "Features",
    "scorer": "Score",
    "metrics": "Metric",
    "reviewer": "Reviewer",
    "shift_along": "direction",
}
_AXES = {
    **{axis: (title, f"{{}} {title}") for axis, title in _COUNTED.items()},
    **{axis: (title, f"{title} = {{}}") for axis, title in _SYMBOLS.items()},
    **{axis: (title, "{}") for axis, title in _ALONE.items()},
    "version": ("Version", "version {}"),
    "shots": ("shots", "{}-shot"),
    "unknown_from": ("unknown features", "unknown queries from {}"),
    "shift": ("shift", "shift {}"),
}
# Fields of a task that are named only where they differ from their defaults.
LATER = (
    "n_unknown",
    "unknown_classes",
    "unknown_from",
    "n_batches",
    "gamma",
    "n_answers",
    "reviewer",
    "shift",
    "shift_along",
)
_SPECIAL: dict[tuple[str, int | str | None], str] = {
    ("shots", None): "given support",
    ("scorer", None): "own score",
}
_SPECIAL |= {("shift_along", "random"): "random", ("shift_along", "class"): "towards a class"}
_SPECIAL |= {("gamma", None): "batches alike", ("gamma", 0): "separate classes"}
Shown = TypeVar("Shown", TableSpec, Plot)


class HasAxes(Protocol):
    """Something with a place on axes."""

    def axis(self, name: str) -> Any: ...


P = TypeVar("P", bound=HasAxes)


class View(NamedTuple):
    """A plan, how its suite is shown, and those of its records that are finished."""

    plan: Plan
    shown: Presentation
    records: Sequence[Record]

    @property
    def missing(self) -> int:
        return len(self.plan.experiments) - len(self.records)

    def chosen(self, shown: TableSpec | Plot) -> list[Record]:
        """The records that a table or plot is about.

        Where a feature file took the place of the suite's features,
        a filter on their names does not apply.
        """
        skip = "features" if self.plan.override is not None else ""
        wanted = [(axis, values) for axis, values in shown.where.items() if axis != skip]
        return [
            one
            for one in self.records
            if all(value_in_words(at, one.axis(at)) in values for at, values in wanted)
        ]

    def tables(self, metric: str | None = None) -> list[TableSpec]:
        """The suite's tables, each once; one of all axes where the suite names none.

        A metric replaces theirs.
        """
        tables = self.shown.tables or [TableSpec(columns=("features", "shots", "k_eff"))]
        return self._distinct(
            [table.model_copy(update={"metric": (metric,)} if metric else {}) for table in tables]
        )

    def plots(self, metric: str | None = None) -> list[Plot]:
        """The suite's plots, each once. A metric replaces that of the plots that show one."""

        def changed(plot: Plot) -> Plot:
            fixed = metric is None or plot.formulas or plot.y in ("criterion", "best")
            return plot if fixed else plot.model_copy(update={"y": metric})

        return self._distinct([changed(plot) for plot in self.shown.plots])

    def label(self, axis: str, value: Any) -> str:
        """A value of an axis, as people say it."""
        return label(axis, value, self.shown.labels)

    def name(self, record: Record, axes: Sequence[str]) -> str:
        """A record by its place on some axes.

        Those that its method does not have, and its own score, are left out.

        Where several parameters differ between records,
        each is named only where it is not the method's default.
        """
        n_params = sum(
            axis not in (*record.task, "method", "version", "features", "scorer") for axis in axes
        )
        axes = [axis for axis in axes if axis in record.axes]
        if n_params > 1:
            axes = [axis for axis in axes if axis not in record.params or axis in record.special]
        if len(axes) > 1 and record.scorer is None:
            axes = [axis for axis in axes if axis != "scorer"]
        return " · ".join(self.label(axis, record.axis(axis)) for axis in axes) or "default"

    def _distinct(self, shown: Sequence[Shown]) -> list[Shown]:
        """Each once.

        Those that differ only in their title, name or filter show the same records, and are
        repetitions.

        Where a feature file took the place of several feature sets, the first remains,
        under the suite's own title.
        """
        found: dict[str, Shown] = {}
        for item in shown:
            keys = sorted(record.key for record in self.chosen(item))
            same = item.model_dump(exclude={"title", "name", "where"}), keys
            about_features = self.plan.override is not None and "features" in item.where
            found.setdefault(
                repr(same), item.model_copy(update={"title": ""}) if about_features else item
            )
        return list(found.values())


def load_view(store: Store, plan: Plan) -> View:
    """A plan with its records; their features have the name that the plan gives them."""
    found = ((store.find(asked.key), {"name": asked.features}) for asked in plan.experiments)
    pairs = (
        (record, record.features.model_copy(update=name))
        for record, name in found
        if record is not None
    )
    records = [record.model_copy(update={"features": features}) for record, features in pairs]
    return View(plan, read_presentation(plan.source, f"plan {plan.name}"), records)


def axis_values(placed: Sequence[HasAxes], axis: str) -> list[Any]:
    """The values that occur on an axis: numbers in their order, others as they come."""
    values = list({repr(value): value for value in (one.axis(axis) for one in placed)}.values())
    if all(isinstance(value, (int, float)) for value in values):
        return sorted(values)
    return values


def grouped(placed: Sequence[P], axes: Sequence[str]) -> dict[tuple[Any, ...], list[P]]:
    """By their place on the axes, in the order of the axes' values."""
    ranks = {
        axis: {repr(value): i for i, value in enumerate(axis_values(placed, axis))} for axis in axes
    }
    groups: dict[tuple[Any, ...], list[P]] = {}
    for one in sorted(placed, key=lambda one: [ranks[axis][repr(one.axis(axis))] for axis in axes]):
        groups.setdefault(tuple(_hashable(one.axis(axis)) for axis in axes), []).append(one)
    return groups


def undecided(records: Sequence[Record], axes: Sequence[str]) -> list[str]:
    """The axes along which records in the same cell still differ."""
    more: list[str] = []
    for group in grouped(records, axes).values():
        for name in ["features", "scorer", *group[0].task, *group[0].params]:
            if name not in (*axes, *more) and len(axis_values(group, name)) > 1:
                more.append(name)
    return more


def context(view: View, records: Sequence[Record], shown: Sequence[str]) -> str:
    """What all records share, apart from the axes that are shown.

    Features, K, the task, how many tasks.
    """

    def shared(axis: str) -> bool:
        return axis not in shown and len(axis_values(records, axis)) == 1

    if not records:
        return ""
    first = records[0]
    words = []
    words += [view.label(axis, first.axis(axis)) for axis in ("method", "features") if shared(axis)]
    classes = {record.task["n_ways"] or record.features.n_classes for record in records}
    if len(classes) == 1:
        words.append(f"K = {classes.pop()}")
    for axis in filter(shared, ("shots", "k_eff", "n_query", "sampling", "alpha")):
        if first.axis(axis) is not None or axis == "shots":
            words.append(
                f"{first.axis(axis)} queries"
                if axis == "sampling"
                else view.label(axis, first.axis(axis))
            )
    words += later_words({axis: first.axis(axis) for axis in filter(shared, LATER)})
    counts = {record.n_tasks for record in records}
    if len(counts) == 1:
        count = counts.pop()
        unit = "stream" if all(record.task["n_batches"] > 1 for record in records) else "task"
        words.append(f"one {unit}" if count == 1 else f"{count:,} {unit}s")
    return ", ".join(words)


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def find_records(text: str, store: Store) -> list[Record]:
    """The results that a text names.

    It is a result file (.json), the beginning of a key, or the name of a method.
    """
    if text.endswith(".json"):
        return [Record.read(Path(text))]
    stored = [record for record in store.records() if record.trace is None]
    found = [record for record in stored if text == record.method]
    found = found or [record for record in stored if len(text) >= 4 and record.key.startswith(text)]
    if not found:
        known = sorted({record.method for record in stored})
        hint = "run `manyway bench` first." if not known else nearest(text, known)
        raise InputError(f"There is no result of '{text}' in {store.folder}; {hint}")
    return found


def pairs(a: Sequence[Record], b: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Every pair of results on the same tasks.

    If one has more tasks than the other, these are left out.
    """
    same = [
        (one, other)
        for one, other in product(a, b)
        if one.key != other.key and one.stream == other.stream
    ]
    if not same:
        raise InputError(
            "The two have no tasks in common; compare results with the same features, "
            "task and seed."
        )
    shared = (min(one.n_tasks, other.n_tasks) for one, other in same)
    return [
        (one.first(n_tasks), other.first(n_tasks))
        for (one, other), n_tasks in zip(same, shared, strict=True)
    ]


def axis_title(axis: str) -> str:
    """What an axis is called.

    >>> axis_title("k_eff"), axis_title("tau")
    ('K_eff', 'tau')
    """
    return _AXES.get(axis, (axis,))[0]


def label(axis: str, value: Any, names: Mapping[str, str] | None = None) -> str:
    """A value of an axis, as people say it; ``names`` are those of feature sets.

    >>> label("shots", 5), label("gamma", 0), label("tau", [1, 0.3]), label("n_unknown", 0)
    ('5-shot', 'separate classes', 'tau = [1, 0.3]', 'no unknown queries')
    """
    known: dict[str, Mapping[str, Any]] = {"method": COMPARED, "scorer": SCORERS}
    if not isinstance(value, list | tuple | dict) and (axis, value) in _SPECIAL:
        return _SPECIAL[axis, value]
    if axis in LATER and value == DEFAULTS[axis]:
        return f"no {axis_title(axis)}"
    if axis in known:
        if value in known[axis]:
            value = known[axis][value].title
    elif axis == "metrics":
        value = find_summary(value)[1].title
    elif axis == "features":
        value = (names or {}).get(value, value)
    return _AXES.get(axis, (axis, f"{axis} = {{}}"))[1].format(number(value_in_words(axis, value)))


def later_words(task: Mapping[str, Any]) -> list[str]:
    """What a task says about unknown queries, streams, reviewers and shifts.

    Nothing where it has its default.

    >>> later_words({"n_unknown": 20, "unknown_classes": 3, "n_batches": 1})
    ['20 unknown queries', '3 unknown classes']
    """
    return [
        label(name, task[name]) for name in LATER if name in task and task[name] != DEFAULTS[name]
    ]


def record_title(record: Record) -> str:
    """A result in a few words: its method and the parameters without their default value."""
    scorer = "" if record.scorer is None else f"({label('scorer', record.scorer)})"
    return " ".join(
        filter(
            None,
            [label("method", record.method), scorer, params(record), "†" if record.old else ""],
        )
    )


def params(record: Record) -> str:
    """The parameters of a result that are not the method's defaults."""
    return ", ".join(
        f"{axis_title(name)} = {number(value)}" for name, value in record.special_params.items()
    )


def setting(record: Record) -> str:
    """What the tasks are, in a few words."""
    task = record.task
    words = [
        record.features.name,
        f"K = {task['n_ways'] or record.features.n_classes}",
        label("shots", task["shots"]),
    ]
    words += [label(axis, task[axis]) for axis in ("k_eff", "n_query")]
    alpha = "" if task["alpha"] is None else f"({task['alpha']:g})"
    if task["sampling"] != "uniform":
        words.append(f"{task['sampling']}{alpha}")
    return ", ".join([*words, *later_words(task)])


def old_note(records: Iterable[Record]) -> str:
    """Which results are not of the present versions of their methods; '' where all are."""
    reasons = sorted({record.old for record in records if record.old})
    if reasons:
        return f"†: {'; '.join(reasons)}. Run the suite again to update it."
    return ""
