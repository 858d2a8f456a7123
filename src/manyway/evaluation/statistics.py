"""Means over tasks with their 95 % interval, and comparisons on the same tasks.

Paired differences, how many tasks a width needs, and whether a change of labels is an improvement.

scipy is imported where it is used, so that commands which need no interval start quickly.
"""

from collections.abc import Callable, Mapping, Sequence
from math import ceil, sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from manyway.errors import as_shown

LEVEL = 0.95
Counts = Sequence[int] | np.ndarray[Any, Any]  # one per task
Labels = Mapping[str, str]  # by item


class Interval(NamedTuple):
    """A mean with half the width of its 95 % interval (Student's t).

    The width is nan for a single value.
    """

    mean: float
    half: float
    n: int
    deviation: float  # standard deviation of one value

    def over(self, divisor: int) -> "Interval":
        """The interval of the values divided by a number.

        Counts are summed exactly and divided last.
        """
        return Interval(self.mean / divisor, self.half / divisor, self.n, self.deviation / divisor)

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half


def interval(values: Sequence[float] | np.ndarray[Any, Any]) -> Interval:
    """The mean of independent values, such as one per task, and its 95 % interval.

    >>> result = interval([0.5, 0.7, 0.6])
    >>> f"{result.mean:.3f} ± {result.half:.3f}"
    '0.600 ± 0.248'
    """
    array = np.asarray(values, dtype=np.float64)
    n = len(array)
    if n < 2:
        return Interval(float(array[0]) if n else float("nan"), float("nan"), n, float("nan"))
    deviation = float(array.std(ddof=1))
    return Interval(float(array.mean()), _student(n - 1) * deviation / sqrt(n), n, deviation)


def jackknife(groups: Sequence[Any], statistic: Callable[[Any], float], n: int) -> Interval:
    """A statistic of the sum of all groups, and its interval by leaving out one group at a time.

    ``n`` is the number of tasks in all groups.
    For a mean of equal groups this is the usual interval of the groups' means:

    >>> result = jackknife([0.5, 0.7, 0.6], lambda total: total, 3)
    >>> f"{result.mean:.1f} ± {result.half / 3:.3f}"
    '1.8 ± 0.166'
    """
    total = sum(groups[1:], groups[0])
    if len(groups) < 2:
        return Interval(statistic(total), float("nan"), n, float("nan"))
    without = np.array([statistic(total - group) for group in groups])
    error = sqrt((len(groups) - 1) / len(groups) * float(((without - without.mean()) ** 2).sum()))
    return Interval(statistic(total), _student(len(groups) - 1) * error, n, error * sqrt(n))


def _student(freedom: int) -> float:
    """The quantile of Student's t that bounds the central 95 %."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + LEVEL / 2))


def accuracy(correct: Counts, n_query: int | np.ndarray[Any, Any]) -> Interval:
    """The mean fraction of correct answers.

    It is computed from the numbers of correct answers and of queries in each task.
    """
    if isinstance(n_query, int):
        return interval(correct).over(n_query)
    return interval(np.asarray(correct) / n_query)


class Paired(NamedTuple):
    """a − b on the same tasks."""

    difference: Interval
    p: float  # two-sided paired t-test
    wins: int  # tasks in which a is better
    ties: int
    losses: int


def paired(a: Counts, b: Counts, n_query: int | np.ndarray[Any, Any]) -> Paired:
    """Compare the numbers of correct answers task by task.

    What makes a task easy or hard cancels.
    """
    counts = np.asarray(a, dtype=np.int64) - np.asarray(b, dtype=np.int64)
    difference = interval(counts if isinstance(n_query, int) else counts / n_query)
    if difference.n < 2:
        p = float("nan")
    elif difference.deviation == 0:
        p = 1.0 if difference.mean == 0 else 0.0
    else:
        from scipy.special import stdtr

        t = abs(difference.mean) / (difference.deviation / sqrt(difference.n))
        p = 2 * float(stdtr(difference.n - 1, -t))
    fractions = difference.over(n_query) if isinstance(n_query, int) else difference
    return Paired(
        fractions, p, int((counts > 0).sum()), int((counts == 0).sum()), int((counts < 0).sum())
    )


def tasks_needed(deviation: float, half: float) -> int:
    """The number of tasks that gives the 95 % interval ± ``half``.

    It follows from the standard deviation of one task.

    >>> tasks_needed(0.10, 0.002)
    9604
    """
    return max(2, ceil((NormalDist().inv_cdf(0.5 + LEVEL / 2) * deviation / half) ** 2 - 1e-9))


class Change(NamedTuple):
    """What a change of labels does to some verified items.

    Parameters
    ----------
    name : str
        A rank of the taxonomy, or a class.
    n_items : int
    right_before, right_after : int
        The numbers of right labels.
    corrected, worse : int
        The numbers of labels that became right, and that became wrong.
    moved : int
        The number of wrong labels that became other wrong labels.
    """

    name: str
    n_items: int
    right_before: int
    right_after: int
    corrected: int
    worse: int
    moved: int

    @property
    def unchanged(self) -> int:
        """The number of labels that are as right, or as wrong, as before."""
        return self.n_items - self.corrected - self.worse

    @property
    def difference(self) -> tuple[float, float, float]:
        """The difference of the accuracies, and its 95 % interval.

        The items are pairs. With b of n corrected and c made worse, the interval of (b − c)/n is
        that of Wald after half an item is added to each of the four cells (Agresti and Min,
        Statistics in Medicine 24, 2005), so that it holds for a few items too.
        """
        n = self.n_items + 2
        b = self.corrected + 0.5
        c = self.worse + 0.5
        half = NormalDist().inv_cdf(0.5 + LEVEL / 2) * sqrt(b + c - (b - c) ** 2 / n) / n
        return (
            (self.corrected - self.worse) / self.n_items,
            max((b - c) / n - half, -1.0),
            min((b - c) / n + half, 1.0),
        )


def compared_as(label: str) -> str:
    """A label without what does not count where it is compared with another.

    That is case, blanks around it, and the codes of accents: a Mac has others in the names of files.

    >>> compared_as("Ze\\u0300bre ") == compared_as("z\\u00e8bre")
    True
    """
    return as_shown(label.strip().casefold())


def label_changes(
    before: Labels, after: Labels, truth: Labels, groups: Labels | None = None
) -> list[Change]:
    """Compare two labels of each item with the true one.

    Parameters
    ----------
    before, after : mapping of str to str
        item -> label; an item without an answer is missing, or has the label ''.
    truth : mapping of str to str
        item -> true label, for the items that are judged.
    groups : mapping of str to str, optional
        class -> group. Labels are then right if their group is;
        items whose true class has no group are left out.

    Returns
    -------
    list of Change
        All items (named ''), and each true class, those with most items first.

    Examples
    --------
    >>> truth = {"a": "dog", "b": "dog"}
    >>> all_items, *of_classes = label_changes({"a": "fox", "b": "dog"}, truth, truth)
    >>> all_items.corrected, all_items.worse, all_items.unchanged
    (1, 0, 1)
    """

    def shown(label: str) -> str:
        name = compared_as(label)
        if groups is None or name in known.values():
            return known.get(name, name)
        return known.get(name, "")

    known = {name.casefold(): group.casefold() for name, group in (groups or {}).items()}
    counts: dict[str, list[int]] = {"": [0] * 6}
    for item, label in truth.items():
        true = shown(label)
        old = shown(before.get(item, ""))
        new = shown(after.get(item, ""))
        if not true:
            continue
        was = old == true
        now = new == true
        row = (1, was, now, now and not was, was and not now, not was and not now and old != new)
        for name in ("", label.strip()):
            counts[name] = [a + b for a, b in zip(counts.get(name, [0] * 6), row, strict=True)]
    everything = Change("", *counts.pop(""))
    found = [Change(name, *count) for name, count in counts.items()]
    return [everything, *sorted(found, key=lambda one: (-one.n_items, one.name))]
