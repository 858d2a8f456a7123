"""``METRICS``: what can be measured about the answers of a method, besides how many are correct.

A metric measures something in every task (``measure``) and summarises it over tasks (``summaries``), with a 95 %
interval. Stored results keep one value per task, or sums over tasks where one value per task would be too long
(``summed``): whole numbers, so that the sums do not depend on the order in which tasks are finished.

A summary is named METRIC or METRIC.PART, for example ``n_present`` or ``n_present.within``. Reading the table and
summarising stored values loads no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from manyway.errors import InputError, nearest
from manyway.evaluation.statistics import Interval, accuracy, interval, jackknife

if TYPE_CHECKING:
    from torch import Tensor

    from manyway.core.solution import Solution
    from manyway.core.tasks import Tasks

BINS = 15  # of the reliability diagram
GROUPS = 20  # sums are kept for this many groups of tasks; the interval follows from how the groups differ
MILLION = 1_000_000  # probabilities are summed as whole millionths
Values = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Summary:
    """One number about all tasks, and how to show it."""

    title: str
    of: Callable[[Values, int], Interval]  # (stored values, queries per task)
    percent: bool = False  # shown as 100 times the value
    best: str | None = None  # "high", "low", or None where neither is better


@dataclass(frozen=True)
class Metric:
    """Something that is measured in every task.

    ``measure`` gets a solution and its tasks, whose ``query_labels`` are known, and returns a tensor whose first axis
    are the tasks and whose other axes are ``shape``.
    """

    name: str
    measure: Callable[[Solution, Tasks], Tensor]
    summaries: Mapping[str, Summary]  # part -> summary; the part "" is the metric itself
    impossible: Callable[[Values, int, int], str] = lambda values, n_tasks, n_query: ""  # why stored values cannot be
    shape: tuple[int, ...] = ()
    summed: bool = False

    def stored(self, values: Values, start: int) -> list[Any]:
        """What is kept of the values of tasks start, start + 1, …: all of them, or their sums in groups of tasks."""
        if self.summed:
            values = sum_groups(values, start)
        # Six digits are more than any interval is wide.
        kept: list[Any] = (values if values.dtype.kind == "i" else values.astype(np.float64).round(6)).tolist()
        return kept

    def join(self, first: list[Any], second: list[Any]) -> list[Any]:
        """What is kept of two stretches of tasks, the second after the first."""
        return (np.asarray(first) + np.asarray(second)).tolist() if self.summed else [*first, *second]

    def check(self, stored: Any, n_tasks: int, n_query: int) -> None:
        """Refuse stored values that cannot be the outcome of so many tasks: a ValueError that says why."""
        values = np.asarray(stored)
        shape = (GROUPS if self.summed else n_tasks, *self.shape)
        if values.dtype.kind not in "if" or values.shape != shape:
            raise ValueError(f"{self.name} must be numbers of the shape {list(shape)}")
        if not np.isfinite(values).all():
            raise ValueError(f"{self.name} has a value that is not finite")
        wrong = self.impossible(values, n_tasks, n_query)
        if wrong:
            raise ValueError(wrong)


def find_summary(name: str) -> tuple[Metric, Summary]:
    """The metric and the summary of a name such as ``n_present.within``."""
    metric, _, part = name.partition(".")
    if metric not in METRICS or part not in METRICS[metric].summaries:
        raise InputError(f"There is no metric '{name}'; {nearest(name, summary_names())}")
    return METRICS[metric], METRICS[metric].summaries[part]


def summary_names() -> list[str]:
    """All names that ``find_summary`` knows."""
    return [f"{name}.{part}" if part else name for name, metric in METRICS.items() for part in metric.summaries]


def sum_groups(values: Values, start: int = 0) -> Values:
    """[g, …] the sums over tasks whose number is 0, 1, … modulo ``GROUPS``; the values are those of tasks from start.

    >>> sum_groups(np.arange(30)).tolist()[:11]
    [20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 10]
    """
    sums = np.zeros((GROUPS, *values.shape[1:]), dtype=values.dtype)
    np.add.at(sums, (start + np.arange(len(values))) % GROUPS, values)
    return sums


def reliability(stored: Any) -> tuple[Values, Values, Values]:
    """The points of a reliability diagram from stored calibration sums (groups or tasks, 15, 3).

    Per bin the sums hold the number of queries, the sum of their confidences in millionths and the number of correct
    ones. Returns mean confidence, fraction correct and number of queries of the bins that have a query.

    >>> sums = np.zeros((1, 15, 3), dtype=int)
    >>> sums[0, 14] = 10, 9_700_000, 9
    >>> [values.tolist() for values in reliability(sums)]
    [[0.97], [0.9], [10]]
    """
    count, confidence, hits = np.asarray(stored).sum(0).T
    used = count > 0
    return confidence[used] / MILLION / count[used], hits[used] / count[used], count[used]


def _correct(solution: Solution, tasks: Tasks) -> Tensor:
    return (solution.labels == _truth(tasks)).sum(1)


def _truth(tasks: Tasks) -> Tensor:
    assert tasks.query_labels is not None
    return tasks.query_labels


def _impossible_correct(values: Values, n_tasks: int, n_query: int) -> str:
    possible = values.dtype.kind == "i" and values.min() >= 0 and values.max() <= n_query
    return "" if possible else f"correct must be whole numbers from 0 to {n_query}, the number of queries"


def _confidence(solution: Solution, tasks: Tasks) -> Tensor:
    return _of_labels(solution).double().mean(1)


def _of_labels(solution: Solution) -> Tensor:
    """[t, q] the probability of the label that is given to each query."""
    return solution.probabilities.gather(-1, solution.labels.unsqueeze(-1)).squeeze(-1)


def _calibration(solution: Solution, tasks: Tasks) -> Tensor:
    """[t, b, 3] per bin of confidence: the queries, the sum of their confidences in millionths, the correct ones."""
    import torch

    labels = solution.labels
    confidence = _of_labels(solution).double()
    bins = (confidence * BINS).long().clamp(0, BINS - 1)
    columns = (bins * 0 + 1, (confidence * MILLION).round().long(), (labels == _truth(tasks)).long())
    sums = [bins.new_zeros(len(bins), BINS).scatter_add_(1, bins, column) for column in columns]
    return torch.stack(sums, -1)


def _impossible_calibration(values: Values, n_tasks: int, n_query: int) -> str:
    count, confidence, hits = values[..., 0], values[..., 1], values[..., 2]
    if values.dtype.kind != "i" or values.min() < 0 or (hits > count).any() or count.sum() != n_tasks * n_query:
        return "calibration does not count every query once"
    return "calibration has a probability above 1" if (confidence > count * MILLION).any() else ""


def _occurs(solution: Solution, tasks: Tasks) -> Tensor:
    """[t, k] 1 for the classes that occur among the queries, else 0."""
    return solution.probabilities.new_zeros(solution.probabilities[:, 0].shape).scatter_(1, _truth(tasks), 1.0)


def _n_present(solution: Solution, tasks: Tasks) -> Tensor:
    """[t, 3] the estimated number of classes that occur, its standard deviation, and the true number."""
    import torch

    return torch.stack([solution.n_present, solution.n_present_sd, _occurs(solution, tasks).sum(1)], 1)


def _presence(solution: Solution, tasks: Tasks) -> Tensor:
    return (solution.presence - _occurs(solution, tasks)).square().mean(1)


def _calibration_error(values: Values, n_query: int) -> Interval:
    groups = values if len(values) == GROUPS else sum_groups(values)

    def error(sums: Values) -> float:
        return float(np.abs(sums[:, 1] - MILLION * sums[:, 2]).sum() / MILLION / sums[:, 0].sum())

    n_tasks = round(float(groups[..., 0].sum()) / n_query)
    return jackknife([group for group in groups if group[:, 0].any()], error, n_tasks)


def _within(values: Values, n_query: int) -> Interval:
    estimate, sd, truth = values.T
    return interval(np.abs(estimate - truth) <= 2 * sd + 0.5)


def _table(*metrics: Metric) -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics}


METRICS: Mapping[str, Metric] = _table(
    Metric(
        "accuracy",
        _correct,
        {"": Summary("accuracy", accuracy, percent=True, best="high")},
        _impossible_correct,
    ),
    Metric(
        "calibration",
        _calibration,
        {"": Summary("calibration error", _calibration_error, percent=True, best="low")},
        _impossible_calibration,
        shape=(BINS, 3),
        summed=True,
    ),
    Metric("confidence", _confidence, {"": Summary("mean confidence", lambda v, q: interval(v), percent=True)}),
    Metric(
        "n_present",
        _n_present,
        {
            "": Summary("error in the number of classes", lambda v, q: interval(np.abs(v[:, 0] - v[:, 2])), best="low"),
            "estimate": Summary("estimated number of classes", lambda v, q: interval(v[:, 0])),
            "truth": Summary("number of classes", lambda v, q: interval(v[:, 2])),
            "within": Summary("number of classes within 2 sd", _within, percent=True, best="high"),
        },
        shape=(3,),
    ),
    Metric("presence", _presence, {"": Summary("Brier score of presence", lambda v, q: interval(v), best="low")}),
)
