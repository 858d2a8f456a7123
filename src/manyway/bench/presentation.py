"""What a suite says about showing its results: which axis goes where in a table or a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from manyway.bench.toml import Reader
from manyway.errors import InputError, nearest

FORMULAS = ("label-count", "entropy")


@dataclass(frozen=True)
class Table:
    """Accuracy by rows and columns, each a list of axes."""

    title: str = ""
    rows: Sequence[str] = ("method",)
    columns: Sequence[str] = ("features",)
    where: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # axis -> the values to show


@dataclass(frozen=True)
class Plot:
    """Curves: y against the axis x, one line a value of ``lines``, one panel a combination of ``panels``.

    ``y`` is ``accuracy`` (with its interval), ``criterion`` (of a trace, whose x is ``seconds`` or ``steps``) or
    ``best``: the value of the axis ``of`` at which accuracy is highest. ``reference`` draws λ = |Q|. A plot with
    ``formulas`` shows functions of a two-class proportion and needs no experiment.
    """

    name: str = "plot"
    title: str = ""
    x: str = "k_eff"
    lines: str = "method"
    panels: Sequence[str] = ()
    y: Literal["accuracy", "criterion", "best"] = "accuracy"
    of: str = ""
    log: bool = False
    reference: bool = False
    formulas: Sequence[str] = ()
    where: Mapping[str, Sequence[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Presentation:
    """What a suite says about itself."""

    title: str
    about: str
    tables: Sequence[Table]
    plots: Sequence[Plot]
    labels: Mapping[str, str]  # what tables call a feature set


def read_presentation(reader: Reader) -> Presentation:
    """The part of a suite that is about showing it; the rest is left to others."""
    return Presentation(
        title=reader.take("title", str),
        about=reader.take("about", str, "").strip(),
        tables=read_tables(reader.tables("tables")),
        plots=read_plots(reader.tables("plots")),
        labels=reader.strings("labels"),
    )


def read_tables(readers: Sequence[Reader]) -> list[Table]:
    """The [[tables]] of a suite."""
    tables = []
    for reader in readers:
        tables.append(
            Table(
                title=reader.take("title", str, ""),
                rows=tuple(reader.names("rows")) if reader.has("rows") else ("method",),
                columns=tuple(reader.names("columns")) if reader.has("columns") else ("features",),
                where=_where(reader),
            )
        )
        reader.finish()
    return tables


def read_plots(readers: Sequence[Reader]) -> list[Plot]:
    """The [[plots]] of a suite."""
    plots: list[Plot] = []
    for reader in readers:
        y = reader.take("y", str, "accuracy")
        if y not in ("accuracy", "criterion", "best"):
            raise InputError(f"{reader.where}: y is '{y}'; choose accuracy, criterion or best.")
        formulas = tuple(reader.names("formulas")) if reader.has("formulas") else ()
        for formula in formulas:
            if formula not in FORMULAS:
                raise InputError(f"{reader.where}: there is no formula '{formula}'; {nearest(formula, FORMULAS)}")
        plot = Plot(
            name=reader.take("name", str, f"plot{len(plots) + 1}" if plots else "plot"),
            title=reader.take("title", str, ""),
            x=reader.take("x", str, "k_eff"),
            lines=reader.take("lines", str, "method"),
            panels=tuple(reader.names("panels")) if reader.has("panels") else (),
            y=y,
            of=reader.take("of", str, ""),
            log=reader.take("log", bool, False),
            reference=reader.take("reference", bool, False),
            formulas=formulas,
            where=_where(reader),
        )
        if (y == "best") != bool(plot.of):
            raise InputError(f"{reader.where}: y = 'best' goes with of = 'the axis to choose from', and only then.")
        reader.finish()
        plots.append(plot)
    return plots


def _where(reader: Reader) -> dict[str, list[Any]]:
    table = reader.take("where", dict, {})
    return {axis: value if isinstance(value, list) else [value] for axis, value in table.items()}
