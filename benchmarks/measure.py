"""What both benchmarks share: clocks, tables, exponents."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence

import torch


def seconds(work: Callable[[], object], repeats: int = 3, warm: int = 1) -> float:
    """The median time of a call, the device's queue included."""
    times = []
    for repeat in range(warm + repeats):
        _finish()
        begin = time.perf_counter()
        work()
        _finish()
        if repeat >= warm:
            times.append(time.perf_counter() - begin)
    return sorted(times)[len(times) // 2]


def _finish() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """The slope of log(time) over log(size), by least squares.

    >>> round(exponent([1, 2, 4], [3.0, 6.0, 12.0]), 3)
    1.0
    """
    x, y = [math.log(size) for size in sizes], [math.log(t) for t in times]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    slopes = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return slopes / sum((a - mean_x) ** 2 for a in x)


def show(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table in Markdown."""
    print(f"\n### {title}\n", flush=True)
    print("| " + " | ".join(header) + " |")
    print("|" + "|".join(" --- " for _ in header) + "|", flush=True)
    for row in rows:
        print("| " + " | ".join(_cell(value) for value in row) + " |", flush=True)


def _cell(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
