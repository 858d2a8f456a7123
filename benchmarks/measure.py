"""Clocks, tables and exponents that benchmarks share."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

import manyway
from manyway.bench.records import Stored, now, write_text
from manyway.methods import METHODS

_clock = [time.perf_counter]  # the one in use


def count_cpu_time() -> None:
    """Measure CPU time of one thread from now on, which other programs on a shared machine change little."""
    torch.set_num_threads(1)
    _clock[0] = time.process_time


def seconds(work: Callable[[], object], repeats: int = 3, warm: int = 1) -> float:
    """The median time of a call, until the device has finished."""
    times = []
    for repeat in range(warm + repeats):
        _finish()
        begin = _clock[0]()
        work()
        _finish()
        if repeat >= warm:
            times.append(_clock[0]() - begin)
    return sorted(times)[len(times) // 2]


def _finish() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@contextmanager
def plain() -> Iterator[None]:
    """Disable fused code."""
    os.environ["MANYWAY_PLAIN"] = "1"
    try:
        yield
    finally:
        del os.environ["MANYWAY_PLAIN"]


@dataclass(frozen=True)
class Part:
    """A table of a benchmark."""

    title: str
    header: str  # the names of the columns, separated by " | "
    rows: Callable[[argparse.Namespace], Iterable[Sequence[object]]]
    usual: bool = True  # whether it runs when no part is named


def run_parts(parser: argparse.ArgumentParser, parts: Mapping[str, Part]) -> argparse.Namespace:
    """Read the command line; gives its options. `show_parts` then prints the parts that it names."""
    usual = ", ".join(name for name, part in parts.items() if part.usual)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of {', '.join(parts)}; default: {usual}")
    options = parser.parse_args()
    unknown = sorted(set(options.parts) - set(parts))
    if unknown:
        parser.error(f"there is no part {', '.join(unknown)}; choose from {', '.join(parts)}")
    return options


def show_parts(parts: Mapping[str, Part], options: argparse.Namespace) -> None:
    """Print the tables of the named parts."""
    for name, part in parts.items():
        if name in options.parts or (part.usual and not options.parts):
            show(part.title, part.header.split(" | "), part.rows(options))


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """The slope of log(time) over log(size), by least squares.

    >>> round(exponent([1, 2, 4], [3.0, 6.0, 12.0]), 3)
    1.0
    """
    x, y = [math.log(size) for size in sizes], [math.log(t) for t in times]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    slopes = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return slopes / sum((a - mean_x) ** 2 for a in x)


def growth(
    base: Mapping[str, int], grids: Mapping[str, Sequence[int]], time_of: Callable[[Mapping[str, int]], Sequence[float]]
) -> Iterator[list[object]]:
    """Rows of a table: the size that grows, its values, milliseconds, and the exponent of each time of ``time_of``."""
    for name, sizes in grids.items():
        times = [time_of({**base, name: size}) for size in sizes]
        milliseconds = " ".join(f"{1e3 * time[0]:.3g}" for time in times)
        yield [
            name,
            " ".join(map(str, sizes)),
            milliseconds,
            *(exponent(sizes, column) for column in zip(*times, strict=True)),
        ]


class Printed(Stored):
    """A table that a benchmark printed."""

    what: ClassVar[str] = "a printed table"

    title: str
    command: str
    header: list[str]
    rows: list[list[str]]
    manyway: str
    methods: dict[str, int]  # the versions of all methods
    finished: str


def show(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[list[str]]:
    """Print a table in Markdown, and keep it in the folder that MANYWAY_RESULTS names; gives its cells."""
    print(f"\n### {title}\n\n{markdown(header, ())}", flush=True)
    shown: list[list[str]] = []
    for row in rows:
        shown.append([_cell(value) for value in row])
        print(f"| {' | '.join(shown[-1])} |", flush=True)
    if folder := os.environ.get("MANYWAY_RESULTS"):
        kept = Printed(
            title=title,
            command=" ".join(sys.orig_argv[1:]),
            header=list(header),
            rows=shown,
            manyway=manyway.__version__,
            methods={name: method.version for name, method in METHODS.items()},
            finished=now(),
        )
        name = re.sub(r"\W+", "-", title).strip("-").lower()[:100]
        write_text(Path(folder) / "printed" / f"{name}.json", kept.to_json())
    return shown


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(row)} |" for row in (header, *rows)]
    return "\n".join([lines[0], "|" + " --- |" * len(header), *lines[1:]])


def _cell(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
