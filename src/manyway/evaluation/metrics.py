"""``METRICS``: what can be measured about the answers of a method, besides how many are correct.

A metric measures something in every task (``measure``) and summarises it over tasks (``summaries``), with a 95 %
interval. Stored results keep one value per task, or sums over tasks where one value per task would be too long
(``summed``): whole numbers, so that the sums do not depend on the order in which tasks are finished.

Labels are scored on the known queries: those whose class is in the task. A value that is undefined in a task, such as
AUROC where no query is unknown, is NaN (stored as null) and left out of means.

A summary is named METRIC or METRIC.PART, for example ``n_present`` or ``n_present.within``. Reading the table and
summarising stored values loads no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from manyway.errors import InputError, nearest
from manyway.evaluation import open_set
from manyway.evaluation.open_set import truth_of
from manyway.evaluation.statistics import Interval, accuracy, interval, jackknife

if TYPE_CHECKING:
    from torch import Tensor

    from manyway.core.solution import Solution
    from manyway.core.tasks import Tasks

BINS = 15  # of the reliability diagram
GROUPS = 20  # sums are kept for this many groups of tasks; the interval follows from how the groups differ
MILLION = 1_000_000  # probabilities are summed as whole millionths
Values = np.ndarray[Any, np.dtype[Any]]
Count = int | Values  # of known queries: the same in every task, or one number per task


@dataclass(frozen=True)
class Summary:
    """One number about all tasks, and how to show it."""

    title: str
    of: Callable[[Values, Count], Interval]  # (stored values, known queries per task)
    percent: bool = False  # shown as 100 times the value
    best: str | None = None  # "high", "low", or None where neither is better


@dataclass(frozen=True)
class Metric:
    """Something that is measured in every task.

    ``measure`` gets a solution and its tasks, whose ``query_labels`` are known, and returns a tensor whose first axis
    are the tasks.
    """

    name: str
    measure: Callable[[Solution, Tasks], Tensor]
    summaries: Mapping[str, Summary]  # part -> summary; the part "" is the metric itself
    summed: bool = False
    may_be_undefined: bool = False  # NaN where a task has no value
    of_probability: bool = False  # needs the probability that a query is unknown; a score of another scale will not do
    over_batches: str | None = "mean"  # how the values of the batches of a stream are put together, or None: not at all

    def stored(self, values: Values, start: int) -> list[Any]:
        """What is kept of the values of tasks start, start + 1, …: all of them, or their sums in groups of tasks."""
        if self.summed:
            values = sum_groups(values, start)
        if values.dtype.kind != "i":
            values = values.astype(np.float64).round(6)  # six digits are more than any interval is wide
            values = np.where(np.isnan(values), None, values) if self.may_be_undefined else values  # type: ignore[call-overload]
        kept: list[Any] = values.tolist()
        return kept

    def loaded(self, stored: Any) -> Values:
        """Stored values as an array; what was undefined is NaN."""
        return np.asarray(stored, dtype=np.float64 if self.may_be_undefined else None)

    def join(self, first: list[Any], second: list[Any]) -> list[Any]:
        """What is kept of two stretches of tasks, the second after the first."""
        return (np.asarray(first) + np.asarray(second)).tolist() if self.summed else [*first, *second]

    def in_streams(self, values: Values, n_batches: int) -> Values:
        """One value per stream from one per batch."""
        values = values.reshape(-1, n_batches, *values.shape[1:])
        together: Values = values.sum(1) if self.over_batches == "sum" else values.mean(1)
        return together


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


def _n_known(solution: Solution, tasks: Tasks) -> Tensor:
    return (truth_of(tasks) >= 0).sum(1)


def _correct(solution: Solution, tasks: Tasks) -> Tensor:
    return _hits(solution, tasks).sum(1)


def _hits(solution: Solution, tasks: Tasks) -> Tensor:
    """[t, q] whether a known query has its true label."""
    truth = truth_of(tasks)
    return (solution.labels == truth) & (truth >= 0)


def _confidence(solution: Solution, tasks: Tasks) -> Tensor:
    known = truth_of(tasks) >= 0
    return (_of_labels(solution).double() * known).sum(1) / known.sum(1).clamp_min(1)


def _of_labels(solution: Solution) -> Tensor:
    """[t, q] the probability of the label that is given to each query."""
    return solution.probabilities.gather(-1, solution.labels.unsqueeze(-1)).squeeze(-1)


def _calibration(solution: Solution, tasks: Tasks) -> Tensor:
    return _in_bins(_of_labels(solution).double(), _hits(solution, tasks), truth_of(tasks) >= 0)


def _unknown_calibration(solution: Solution, tasks: Tasks) -> Tensor:
    unknown = truth_of(tasks) < 0
    return _in_bins(open_set.unknown_score(solution), unknown, unknown | True)


def _in_bins(predicted: Tensor, hits: Tensor, counted: Tensor) -> Tensor:
    """[t, b, 3] per bin of probability: the counted queries, the sum of their probabilities in millionths, the hits."""
    import torch

    bins = (predicted * BINS).long().clamp(0, BINS - 1)
    columns = (counted.long(), (predicted * MILLION).round().long() * counted, (hits & counted).long())
    sums = [bins.new_zeros(len(bins), BINS).scatter_add_(1, bins, column) for column in columns]
    return torch.stack(sums, -1)


def _occurs(solution: Solution, tasks: Tasks) -> Tensor:
    """[t, k] 1 for the classes that occur among the queries, else 0."""
    truth = truth_of(tasks)
    counts = solution.probabilities.new_zeros(solution.probabilities[:, 0].shape)
    counts.scatter_add_(1, truth.clamp_min(0), (truth >= 0).to(counts))
    return counts.clamp_max(1)


def _n_present(solution: Solution, tasks: Tasks) -> Tensor:
    """[t, 3] the estimated number of classes that occur, its standard deviation, and the true number."""
    import torch

    return torch.stack([solution.n_present, solution.n_present_sd, _occurs(solution, tasks).sum(1)], 1)


def _presence(solution: Solution, tasks: Tasks) -> Tensor:
    return (solution.presence - _occurs(solution, tasks)).square().mean(1)


def _listed(solution: Solution, tasks: Tasks) -> Tensor:
    """[t, 3] how many classes are listed as present, how many of these occur, and how many occur in all."""
    occurs = _occurs(solution, tasks)
    rows = [
        [len(classes), float(there[classes].sum()), float(there.sum())]
        for classes, there in zip(solution.present(), occurs, strict=True)
    ]
    return occurs.new_tensor(rows)


def _proportions(solution: Solution, tasks: Tasks) -> Tensor:
    """[t] half the sum of absolute differences of the proportions of classes among the known queries."""
    import torch

    truth = torch.nn.functional.one_hot(truth_of(tasks).clamp_min(0), solution.proportions.shape[-1]).double()
    truth = (truth * (truth_of(tasks) >= 0).unsqueeze(-1)).sum(1)
    estimate = solution.proportions.double()
    parts = [one / one.sum(-1, keepdim=True).clamp_min(1e-12) for one in (truth, estimate)]
    return (parts[0] - parts[1]).abs().sum(-1) / 2


def _calibration_error(values: Values, n_query: Count) -> Interval:
    groups = values if len(values) == GROUPS else sum_groups(values)

    def error(sums: Values) -> float:
        return float(np.abs(sums[:, 1] - MILLION * sums[:, 2]).sum() / MILLION / sums[:, 0].sum())

    used = [group for group in groups if group[:, 0].any()]
    if not used:
        return interval([])
    n_tasks = round(float(groups[..., 0].sum()) / n_query) if isinstance(n_query, int) else len(n_query)
    return jackknife(used, error, n_tasks)


def _column(place: int) -> Callable[[Values, Count], Interval]:
    return lambda values, n_query: _mean(values[:, place], n_query)


def _mean(values: Values, n_query: Count) -> Interval:
    """The mean over the tasks in which the value is defined."""
    return interval(values[~np.isnan(values)])


def _within(values: Values, n_query: Count) -> Interval:
    estimate, sd, truth = values.T
    return interval(np.abs(estimate - truth) <= 2 * sd + 0.5)


def _f1(values: Values, n_query: Count) -> Interval:
    return interval(2 * values[:, 1] / (values[:, 0] + values[:, 2]))


def _false(values: Values, n_query: Count) -> Interval:
    return interval((values[:, 0] - values[:, 1]) / np.maximum(values[:, 0], 1))


def _table(*metrics: Metric) -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics}


METRICS: Mapping[str, Metric] = _table(
    Metric(
        "accuracy",
        _correct,
        {"": Summary("accuracy", accuracy, percent=True, best="high")},
        over_batches="sum",
    ),
    Metric(
        "calibration",
        _calibration,
        {"": Summary("calibration error", _calibration_error, percent=True, best="low")},
        summed=True,
        over_batches="sum",
    ),
    Metric("confidence", _confidence, {"": Summary("mean confidence", _mean, percent=True)}),
    Metric(
        "n_present",
        _n_present,
        {
            "": Summary("error in the number of classes", lambda v, q: interval(np.abs(v[:, 0] - v[:, 2])), best="low"),
            "estimate": Summary("estimated number of classes", _column(0)),
            "truth": Summary("number of classes", _column(2)),
            "within": Summary("number of classes within 2 sd", _within, percent=True, best="high"),
        },
        over_batches=None,
    ),
    Metric(
        "listed",
        _listed,
        {
            "": Summary("F1 of the listed classes", _f1, percent=True, best="high"),
            "false": Summary("listed classes that are absent", _false, percent=True, best="low"),
            "found": Summary("classes that are listed", lambda v, q: _mean(v[:, 1] / v[:, 2], q), True, "high"),
        },
        over_batches=None,
    ),
    Metric("proportions", _proportions, {"": Summary("error of proportions", _mean, percent=True, best="low")}),
    Metric("presence", _presence, {"": Summary("Brier score of presence", _mean, best="low")}),
    Metric(
        "n_query",
        _n_known,
        {"": Summary("number of known queries", _mean)},
        over_batches="sum",
    ),
    Metric(
        "auroc",
        open_set.auroc,
        {"": Summary("AUROC of unknown queries", _mean, percent=True, best="high")},
        may_be_undefined=True,
    ),
    Metric(
        "fpr95",
        open_set.fpr_at_95,
        {"": Summary("FPR at 95 % TPR of unknown queries", _mean, percent=True, best="low")},
        may_be_undefined=True,
    ),
    Metric("oscr", open_set.oscr, {"": Summary("OSCR", _mean, percent=True, best="high")}, may_be_undefined=True),
    Metric(
        "whole_accuracy",
        open_set.whole_accuracy,
        {"": Summary("accuracy on all queries, unknown ones included", _mean, percent=True, best="high")},
        of_probability=True,
    ),
    Metric(
        "rejected",
        open_set.rejected,
        {
            "": Summary("known queries answered as unknown", _column(0), percent=True, best="low"),
            "unknown": Summary("unknown queries answered as unknown", _column(1), percent=True, best="high"),
        },
        may_be_undefined=True,
        of_probability=True,
    ),
    Metric(
        "unknown_calibration",
        _unknown_calibration,
        {"": Summary("calibration error of the unknown probability", _calibration_error, percent=True, best="low")},
        summed=True,
        of_probability=True,
        over_batches="sum",
    ),
    Metric(
        "unknown_groups",
        open_set.unknown_groups,
        {
            "": Summary("adjusted Rand index of unknown queries", _column(0), best="high"),
            "found": Summary("number of unknown groups", _column(1)),
            "truth": Summary("number of unknown classes", _column(2)),
        },
        may_be_undefined=True,
        of_probability=True,
    ),
)
