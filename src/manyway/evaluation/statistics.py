"""Means over tasks with their 95 % interval, paired differences on the same tasks, and how many tasks a width needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtr, stdtrit

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean with half the width of its 95 % interval (Student's t); the width is nan for a single value."""

    mean: float
    half: float
    n: int
    deviation: float  # of one value

    def over(self, divisor: int) -> Interval:
        """The same of values divided by a number: counts are summed exactly and divided last."""
        return Interval(self.mean / divisor, self.half / divisor, self.n, self.deviation / divisor)

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half


def interval(values: Sequence[float] | np.ndarray[Any, Any]) -> Interval:
    """The mean of values that are independent (tasks are), and its interval.

    >>> result = interval([0.5, 0.7, 0.6])
    >>> f"{result.mean:.3f} ± {result.half:.3f}"
    '0.600 ± 0.248'
    """
    array = np.asarray(values, dtype=np.float64)
    n = len(array)
    if n < 2:
        return Interval(float(array.mean()), float("nan"), n, float("nan"))
    deviation = float(array.std(ddof=1))
    return Interval(float(array.mean()), float(stdtrit(n - 1, 0.5 + LEVEL / 2)) * deviation / sqrt(n), n, deviation)


def accuracy(correct: Sequence[int] | np.ndarray[Any, Any], n_query: int) -> Interval:
    """Of the fraction of right answers."""
    return interval(correct).over(n_query)


@dataclass(frozen=True)
class Paired:
    """a − b on the same tasks."""

    difference: Interval
    p: float  # two-sided paired t-test
    wins: int  # tasks in which a is better
    ties: int
    losses: int


def paired(a: Sequence[int] | np.ndarray[Any, Any], b: Sequence[int] | np.ndarray[Any, Any], n_query: int) -> Paired:
    """Compare right answers task by task. Tasks differ much more than methods do, and here that cancels."""
    counts = np.asarray(a, dtype=np.int64) - np.asarray(b, dtype=np.int64)
    difference = interval(counts)
    if difference.n < 2:
        p = float("nan")
    elif difference.deviation == 0:
        p = 1.0 if difference.mean == 0 else 0.0
    else:
        t = abs(difference.mean) / (difference.deviation / sqrt(difference.n))
        p = 2 * float(stdtr(difference.n - 1, -t))
    return Paired(
        difference.over(n_query), p, int((counts > 0).sum()), int((counts == 0).sum()), int((counts < 0).sum())
    )


def tasks_needed(deviation: float, half: float) -> int:
    """How many tasks make the 95 % interval ± ``half``, when single tasks scatter with ``deviation``.

    >>> tasks_needed(0.10, 0.002)
    9604
    """
    return max(2, ceil((float(ndtri(0.5 + LEVEL / 2)) * deviation / half) ** 2 - 1e-9))
