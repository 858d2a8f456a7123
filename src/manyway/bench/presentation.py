"""What a suite says about showing its results: which axis goes where in a table or a plot."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeInt, model_validator

from manyway.core import OneOrMore, Strict, checked
from manyway.errors import nearest
from manyway.evaluation import summary_names

# TOML has no null, so what may be None has a word for it.
NONE = {"shots": "given", "n_ways": "all", "unknown_classes": "all", "scorer": "own"}
Where = dict[str, OneOrMore[Any]]


def value_in_words(axis: str, value: Any) -> Any:
    """A value of an axis as a suite or a command line writes it.

    >>> value_in_words("shots", None), value_in_words("shots", 5)
    ('given', 5)
    >>> value_in_words("k_eff", (2, 10)), value_in_words("lam", None)
    ('2-10', 'default')
    """
    if axis == "k_eff" and isinstance(value, list | tuple):
        return "-".join(map(str, value))
    return NONE.get(axis, "default") if value is None else value


def number(value: Any) -> str:
    """A value in few characters.

    >>> number(37.5), number(5), number(None), number([1, 0.3])
    ('37.5', '5', 'default', '[1, 0.3]')
    """
    if value is None or isinstance(value, bool):
        return {None: "default", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(number, value))}]"
    return "…" if isinstance(value, Mapping) else str(value)


def one_of(known: Iterable[str], what: str) -> AfterValidator:
    """A name of a table; another one is an error that names the nearest."""

    def check(name: str) -> str:
        if name not in known:
            raise ValueError(f"is '{name}', which is no {what}; {nearest(name, known)}")
        return name

    return AfterValidator(check)


def _file_name(name: str) -> str:
    if not re.fullmatch(r"[\w+-][\w .+-]*", name):
        raise ValueError(
            f"is {name!r}; it becomes part of a file name: letters, digits, spaces and . _ + - only"
        )
    return name


MetricName = Annotated[str, one_of(summary_names(), "metric")]


class TableSpec(Strict):
    """Metrics by rows and columns, each a list of axes. Several metrics are the axis ``metrics``.

    ``minus`` shows the difference of accuracy to the result that is the same but for some axes, on the same tasks:
    ``{ method = "paddle" }``, or "best" for the best other one, or "default" for a parameter's default. ``over`` are
    axes to take the mean of, with the lowest and the highest value. ``best`` is a parameter: besides its values the
    best of them is shown for every task, under the value "best".
    """

    title: str = ""
    metric: OneOrMore[MetricName] = ("accuracy",)
    rows: OneOrMore[str] = ("method",)
    columns: OneOrMore[str] = ("features",)
    where: Where = Field(default_factory=dict)  # axis -> the values to show
    minus: dict[str, Any] = Field(default_factory=dict)
    over: OneOrMore[str] = ()
    best: str = ""
    interval: bool = True
    digits: NonNegativeInt | None = None  # after the point; None: as many as the metric usually has

    @model_validator(mode="after")
    def _of_accuracy(self) -> "TableSpec":
        if self.minus and self.metric != ("accuracy",):
            raise ValueError("must have metric = 'accuracy', because minus compares task by task")
        return self

    @property
    def axes(self) -> dict[str, Sequence[str]]:
        """The axes that it names, by the key that names them."""
        named = {
            "rows": self.rows,
            "columns": self.columns,
            "where": [*self.where],
            "minus": [*self.minus],
        }
        return {**named, "over": self.over, "best": [self.best] if self.best else []}


class Plot(Strict):
    """Curves: y against the axis x, a line per value of ``lines``, a panel per ``panels``.

    ``y`` is a metric (with its interval), ``criterion`` (of a trace, whose x is ``seconds`` or
    ``steps``) or ``best``: the value of the axis ``of`` at which accuracy is highest.
    ``reference`` draws λ = |Q|. A plot with ``formulas`` shows functions of a two-class
    proportion and needs no experiment.
    """

    name: Annotated[str, AfterValidator(_file_name)] = "plot"
    title: str = ""
    x: str = "k_eff"
    lines: str = "method"
    panels: OneOrMore[str] = ()
    y: Annotated[str, one_of([*summary_names(), "criterion", "best"], "metric")] = "accuracy"
    of: str = ""
    log: bool = False
    reference: bool = False
    formulas: OneOrMore[Literal["label-count", "entropy"]] = ()
    where: Where = Field(default_factory=dict)

    @model_validator(mode="after")
    def _best_of(self) -> "Plot":
        if (self.y == "best") != bool(self.of):
            raise ValueError(
                "must have y = 'best' together with of = 'the axis to choose from', or neither"
            )
        if self.y == "criterion" and self.x not in ("seconds", "steps"):
            raise ValueError("must have x = 'seconds' or x = 'steps', because y is 'criterion'")
        return self

    @property
    def axes(self) -> dict[str, Sequence[str]]:
        """The axes that it names, by the key that names them."""
        x = [] if self.formulas or self.y == "criterion" else [self.x]
        of = [self.of] if self.of else []
        return {
            "x": x,
            "lines": [self.lines],
            "panels": self.panels,
            "of": of,
            "where": [*self.where],
        }

    @property
    def metric(self) -> Sequence[str]:
        """The metric that it shows, if it shows one."""
        return [] if self.y in ("criterion", "best") else [self.y]


def _numbered(plots: Any) -> Any:
    """Plots without a name are called plot, plot2, plot3, …"""
    if not isinstance(plots, list):
        return plots
    names = ["plot", *(f"plot{number}" for number in range(2, len(plots) + 1))]
    return [
        {"name": name, **one} if isinstance(one, dict) else one
        for name, one in zip(names, plots, strict=False)
    ]


def _distinct(plots: list[Plot]) -> list[Plot]:
    names = [plot.name for plot in plots]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"has two plots named '{twice}'; give each a name of its own")
    return plots


class Presentation(Strict):
    """What a suite says about itself."""

    title: str
    about: Annotated[str, AfterValidator(str.strip)] = ""
    tables: list[TableSpec] = Field(default_factory=list)
    plots: Annotated[list[Plot], BeforeValidator(_numbered), AfterValidator(_distinct)] = Field(
        default_factory=list
    )
    labels: dict[str, str] = Field(default_factory=dict)  # what tables call a feature set


def read_presentation(source: Mapping[str, Any], where: str) -> Presentation:
    """The part of a suite that is about showing it; its experiments are not looked at."""
    return checked(
        Presentation,
        {key: source[key] for key in Presentation.model_fields if key in source},
        where,
    )
