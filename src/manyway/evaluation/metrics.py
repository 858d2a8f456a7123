"""``METRICS``: what can be measured about the answers of a method, besides how many are correct.

A metric measures something in every task (``measure``) and summarises it over tasks
(``summaries``), with a 95 % interval. Stored results keep one value per task, or sums over tasks
where one value per task would be too long (``summed``): whole numbers, so that the sums do not
depend on the order in which tasks are finished.

Labels are scored on the known queries: those whose class is in the task. The others are unknown,
and their label is -1. A query's unknown score is ``Solution.unknown``, and 1 minus its highest
class probability where a method has none; the unknown queries are the positives. A value that is
undefined in a task, such as AUROC where no query is unknown or none is known, is NaN (stored as
null) and left out of means.

A summary is named METRIC or METRIC.PART, for example ``n_present`` or ``n_present.within``. Reading
the table and summarising stored values loads no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from manyway.errors import InputError, nearest
from manyway.evaluation.statistics import Interval, accuracy, interval, jackknife

if TYPE_CHECKING:
    from torch import Tensor

    from manyway.core import Solution, Tasks

BINS = 15  # of the reliability diagram
# sums are kept for this many groups of tasks; the interval follows from how the groups differ
GROUPS = 20
MILLION = 1_000_000  # probabilities are summed as whole millionths
Values = np.ndarray[Any, np.dtype[Any]]
Count = int | Values  # of known queries: the same in every task, or one number per task
Measure = Callable[["Solution", "Tasks"], "Tensor"]
# (stored values, known queries per task) -> over all tasks
Over = Callable[[Values, Count], Interval]


class MetricSummary(NamedTuple):
    """One number about all tasks, and how to show it."""

    title: str
    of: Over
    percent: bool = False  # shown as 100 times the value
    best: str | None = None  # "high", "low", or None where neither is better


class Metric(NamedTuple):
    """Something that is measured in every task.

    ``measure`` gets a solution and its tasks, whose ``query_labels`` are known, and returns a
    tensor whose first axis are the tasks.
    """

    name: str
    measure: Measure
    summaries: Mapping[str, MetricSummary]  # part -> summary; the part "" is the metric itself
    summed: bool = False
    may_be_undefined: bool = False  # NaN where a task has no value
    # needs the probability that a query is unknown; a score of another scale will not do
    of_probability: bool = False
    # how the values of the batches of a stream are put together, or None: not at all
    over_batches: str | None = "mean"

    def stored(self, values: Values, start: int) -> list[Any]:
        """What is kept of the values of tasks start, start + 1, ….

        All of them, or their sums in groups of tasks.
        """
        if self.summed:
            values = sum_groups(values, start)
        if values.dtype.kind != "i":
            # six digits are more than any interval is wide
            values = values.astype(np.float64).round(6)
            if self.may_be_undefined:
                values = np.where(np.isnan(values), None, values)  # type: ignore[call-overload]
        return list(values.tolist())

    def loaded(self, stored: Any) -> Values:
        """Stored values as an array; what was undefined is NaN."""
        return np.asarray(stored, dtype=np.float64 if self.may_be_undefined else None)

    def join(self, first: list[Any], second: list[Any]) -> list[Any]:
        """What is kept of two stretches of tasks, the second after the first."""
        if self.summed:
            return (np.asarray(first) + np.asarray(second)).tolist()
        return [*first, *second]

    def in_streams(self, values: Values, n_batches: int) -> Values:
        """One value per stream from one per batch."""
        values = values.reshape(-1, n_batches, *values.shape[1:])
        return np.asarray(values.sum(1) if self.over_batches == "sum" else values.mean(1))


def find_summary(name: str) -> tuple[Metric, MetricSummary]:
    """The metric and the summary of a name such as ``n_present.within``."""
    metric, _, part = name.partition(".")
    if metric not in METRICS or part not in METRICS[metric].summaries:
        raise InputError(f"There is no metric '{name}'; {nearest(name, summary_names())}")
    return METRICS[metric], METRICS[metric].summaries[part]


def summary_names() -> list[str]:
    """All names that ``find_summary`` knows."""
    return [
        f"{name}.{part}" if part else name
        for name, metric in METRICS.items()
        for part in metric.summaries
    ]


def sum_groups(values: Values, start: int = 0) -> Values:
    """[g, …] the sums over tasks whose number is 0, 1, … modulo ``GROUPS``.

    The values are those of tasks from start.

    >>> sum_groups(np.arange(30)).tolist()[:11]
    [20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 10]
    """
    sums = np.zeros((GROUPS, *values.shape[1:]), dtype=values.dtype)
    np.add.at(sums, (start + np.arange(len(values))) % GROUPS, values)
    return sums


def reliability(stored: Any) -> tuple[Values, Values, Values]:
    """The points of a reliability diagram from stored calibration sums (groups or tasks, 15, 3).

    Per bin the sums hold the number of queries, the sum of their confidences in millionths and the
    number of correct ones. Returns mean confidence, fraction correct and number of queries of the
    bins that have a query.

    >>> sums = np.zeros((1, 15, 3), dtype=int)
    >>> sums[0, 14] = 10, 9_700_000, 9
    >>> [values.tolist() for values in reliability(sums)]
    [[0.97], [0.9], [10]]
    """
    count, confidence, hits = np.asarray(stored).sum(0).T
    used = count > 0
    return confidence[used] / MILLION / count[used], hits[used] / count[used], count[used]


def truth_of(tasks: Tasks) -> Tensor:
    """[t, q] the true labels."""
    assert tasks.query_labels is not None
    return tasks.query_labels


def unknown_score(solution: Solution) -> Tensor:
    """[t, q] the higher, the more likely is the query unknown."""
    if solution.unknown is not None:
        return solution.unknown.double()
    return 1 - solution.probabilities.amax(-1).double()


def said_unknown(solution: Solution) -> Tensor:
    """[t, q] whether a query is answered as unknown.

    By a probability of one half where a method does not answer so.
    """
    if solution.unknown is None or solution.unknown_groups is not None:
        return solution.labels < 0
    return solution.unknown > 0.5


def auroc(solution: Solution, tasks: Tasks) -> Tensor:
    """[t] the probability that an unknown query scores higher than a known one.

    Ties count half.
    """
    known = truth_of(tasks) >= 0
    return _mean_below(unknown_score(solution), known, known)


def oscr(solution: Solution, tasks: Tasks) -> Tensor:
    """[t] the area under the OSCR curve (Dhamija et al., 2018).

    That is the curve of correct classification rate against false positive rate.

    It is the probability that a known query is labelled correctly and has a lower score
    than an unknown one.
    """
    return _mean_below(unknown_score(solution), truth_of(tasks) >= 0, _hits(solution, tasks))


def fpr_at_95(solution: Solution, tasks: Tasks) -> Tensor:
    """[t] the fraction of known queries above a threshold.

    It is the highest threshold that finds 95 % of the unknown ones.
    """
    score = unknown_score(solution)
    known = truth_of(tasks) >= 0
    n_unknown = (~known).sum(1, keepdim=True)
    found = score.masked_fill(known, -float("inf")).sort(1, descending=True).values
    threshold = found.gather(1, ((95 * n_unknown + 99) // 100 - 1).clamp_min(0))
    rate = ((score >= threshold) & known).sum(1) / known.sum(1).double()
    return rate.masked_fill(n_unknown.squeeze(1) == 0, float("nan"))


def rejected(solution: Solution, tasks: Tasks) -> Tensor:
    """[t, 2] the fractions of known and of unknown queries that are answered as unknown."""
    known = truth_of(tasks) >= 0
    said = said_unknown(solution)
    return _columns(*((said & of).sum(1) / of.sum(1).double() for of in (known, ~known)))


def whole_accuracy(solution: Solution, tasks: Tasks, said: Tensor | None = None) -> Tensor:
    """[t] the fraction of all queries with the right answer.

    Their class, or unknown with the probability ``said`` [t, q] that this is answered.
    """
    truth = truth_of(tasks)
    if said is None:
        said = said_unknown(solution)
    said = said.double()
    is_right = solution.probabilities.argmax(-1) == truth
    return (said * (truth < 0) + (1 - said) * is_right).mean(1)


def ordered_accuracy(solution: Solution, tasks: Tasks) -> Tensor:
    """[t] the same where as many queries as are unknown are said to be so.

    Those with the highest scores. Of queries with equal scores any may be chosen: it is the mean
    over all choices, so that their order says nothing.
    """
    score = unknown_score(solution)
    n_unknown = (truth_of(tasks) < 0).sum(1, keepdim=True)
    highest_first = score.sort(1, descending=True).values
    lowest_said = highest_first.gather(1, (n_unknown - 1).clamp_min(0))
    above = score > lowest_said
    tied = score == lowest_said
    left = n_unknown - above.sum(1, keepdim=True)
    said = above + tied * left.clamp_min(0) / tied.sum(1, keepdim=True).double()
    return whole_accuracy(solution, tasks, said * (n_unknown > 0))


def unknown_groups(solution: Solution, tasks: Tasks) -> Tensor:
    """[t, 3] the adjusted Rand index of the grouping of unknown queries, and two numbers.

    These are the number of groups, and the true number.

    The grouping is that of all answers: unknown queries belong together that are in one unknown
    group or, where they are not recognised as unknown, that have one label. It is undefined where
    no two unknown queries are of one class.
    """
    truth = truth_of(tasks)
    none = truth.new_full(truth.shape, -1)
    groups = none if solution.unknown_groups is None else solution.unknown_groups
    of_class = none if tasks.unknown_labels is None else tasks.unknown_labels
    answer = (groups + tasks.n_classes).where(groups >= 0, solution.labels)
    return _columns(
        _adjusted_rand(of_class, answer, truth < 0), _n_distinct(groups), _n_distinct(of_class)
    )


def _columns(*values: Tensor) -> Tensor:
    """[t, …, n] from n values [t, …]."""
    import torch

    return torch.stack(values, -1)


def _mean_below(score: Tensor, known: Tensor, counted: Tensor) -> Tensor:
    """[t] how often a known query is counted and has the lower score.

    It is the mean over pairs of an unknown and a known query.
    """
    import torch

    marked = score.masked_fill(~counted, float("inf")).sort(1).values
    below = torch.searchsorted(marked, score) + torch.searchsorted(marked, score, right=True)
    return (below * ~known).sum(1).double() / (2 * known.sum(1) * (~known).sum(1))


def _adjusted_rand(first: Tensor, second: Tensor, counted: Tensor) -> Tensor:
    """[t] the adjusted Rand index of two groupings [t, q] of the counted queries, from pairs.

    NaN without a pair.
    """
    pairs = (counted.unsqueeze(1) & counted.unsqueeze(2)).triu(1)
    in_first = (first.unsqueeze(1) == first.unsqueeze(2)) & pairs
    in_second = (second.unsqueeze(1) == second.unsqueeze(2)) & pairs
    n, a, b, both = (
        of.sum((1, 2)).double() for of in (pairs, in_first, in_second, in_first & in_second)
    )
    by_chance = a * b / n
    index = (both - by_chance) / ((a + b) / 2 - by_chance)
    # Two groupings that are both one group agree, and the formula divides zero by zero.
    return index.masked_fill((a == n) & (b == n), 1.0).masked_fill(a == 0, float("nan"))


def _n_distinct(groups: Tensor) -> Tensor:
    """[t] the number of distinct groups [t, q]; -1 is none."""
    ordered = groups.sort(1).values
    further = (ordered[:, 1:] != ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    return ((ordered[:, :1] >= 0).sum(1) + further.sum(1)).double()


def _hits(solution: Solution, tasks: Tasks) -> Tensor:
    """[t, q] whether a known query has its true label."""
    truth = truth_of(tasks)
    return (solution.labels == truth) & (truth >= 0)


def _confidence(solution: Solution, tasks: Tasks) -> Tensor:
    known = truth_of(tasks) >= 0
    return (_of_labels(solution).double() * known).sum(1) / known.sum(1).clamp_min(1)


def _of_labels(solution: Solution) -> Tensor:
    """[t, q] the probability of the answer to each query.

    The answer is its label, or that it is unknown (-1: the last outcome).
    """
    outcomes = solution.outcomes
    return outcomes.gather(-1, (solution.labels % outcomes.shape[-1]).unsqueeze(-1)).squeeze(-1)


def _calibration(solution: Solution, tasks: Tasks) -> Tensor:
    return _in_bins(_of_labels(solution).double(), _hits(solution, tasks), truth_of(tasks) >= 0)


def _unknown_calibration(solution: Solution, tasks: Tasks) -> Tensor:
    unknown = truth_of(tasks) < 0
    return _in_bins(unknown_score(solution), unknown, unknown | True)


def _in_bins(predicted: Tensor, hits: Tensor, counted: Tensor) -> Tensor:
    """[t, b, 3] per bin of probability: the counted queries, their probabilities, the hits.

    Probabilities are summed in millionths.
    """
    bins = (predicted * BINS).long().clamp(0, BINS - 1)
    columns = (
        counted.long(),
        (predicted * MILLION).round().long() * counted,
        (hits & counted).long(),
    )
    return _columns(
        *(bins.new_zeros(len(bins), BINS).scatter_add_(1, bins, column) for column in columns)
    )


def _counts(solution: Solution, tasks: Tasks) -> Tensor:
    """[t, k] how many of the queries are of each class."""
    truth = truth_of(tasks)
    counts = solution.probabilities.new_zeros(solution.probabilities[:, 0].shape)
    return counts.scatter_add_(1, truth.clamp_min(0), (truth >= 0).to(counts))


def _occurs(solution: Solution, tasks: Tasks) -> Tensor:
    """[t, k] 1 for the classes that occur among the queries, else 0."""
    return _counts(solution, tasks).clamp_max(1)


def _n_present(solution: Solution, tasks: Tasks) -> Tensor:
    """[t, 3] the estimated number of classes that occur, its deviation, the true number."""
    return _columns(solution.n_present, solution.n_present_sd, _occurs(solution, tasks).sum(1))


def _presence(solution: Solution, tasks: Tasks) -> Tensor:
    return (solution.presence - _occurs(solution, tasks)).square().mean(1)


def _listed(solution: Solution, tasks: Tasks) -> Tensor:
    """[t, 3] numbers of classes: those listed, those of them that occur, all that occur."""
    occurs = _occurs(solution, tasks)
    pairs = zip(solution.present(), occurs, strict=True)
    return occurs.new_tensor(
        [[len(of), float(there[of].sum()), float(there.sum())] for of, there in pairs]
    )


def _proportions(solution: Solution, tasks: Tasks) -> Tensor:
    """[t] half the sum of absolute differences of the proportions of classes.

    They are those among the known queries.
    """
    both = (_counts(solution, tasks).double(), solution.proportions.double())
    truth, estimate = (one / one.sum(-1, keepdim=True).clamp_min(1e-12) for one in both)
    return (truth - estimate).abs().sum(-1) / 2


def _choice(solution: Solution, tasks: Tasks) -> Tensor:
    """[t, 3] the power and the shortening that ``evidence`` learned, and whether a metric.

    The shortening is that of rows. NaN for other methods.
    """
    none = solution.probabilities.new_full((1,), float("nan"))
    power, shortening, shrinkage = (
        solution.told.get(name, none).expand(tasks.n_tasks)
        for name in ("power", "shortening", "shrinkage")
    )
    metric = (shrinkage < 1).double().where(~shrinkage.isnan(), float("nan"))
    return _columns(power, shortening, metric)


def _calibration_error(values: Values, n_query: Count) -> Interval:
    groups = values if len(values) == GROUPS else sum_groups(values)

    def error(sums: Values) -> float:
        return float(np.abs(sums[:, 1] - MILLION * sums[:, 2]).sum() / MILLION / sums[:, 0].sum())

    used = [group for group in groups if group[:, 0].any()]
    if not used:
        return interval([])
    if isinstance(n_query, int):
        n_tasks = round(float(groups[..., 0].sum()) / n_query)
    else:
        n_tasks = len(n_query)
    return jackknife(used, error, n_tasks)


def _column(place: int) -> Over:
    return lambda values, n_query: _mean(values[:, place], n_query)


def _mean(values: Values, n_query: Count) -> Interval:
    """The mean over the tasks in which the value is defined."""
    return interval(values[~np.isnan(values)])


def _within(values: Values, n_query: Count) -> Interval:
    estimate, sd, truth = values.T
    return interval(np.abs(estimate - truth) <= 2 * sd + 0.5)


def _false(values: Values, n_query: Count) -> Interval:
    return interval((values[:, 0] - values[:, 1]) / np.maximum(values[:, 0], 1))


def _n_correct(solution: Solution, tasks: Tasks) -> Tensor:
    """[t] the number of known queries that are labelled rightly."""
    return _hits(solution, tasks).sum(1)


def _n_known(solution: Solution, tasks: Tasks) -> Tensor:
    """[t] the number of known queries."""
    return (truth_of(tasks) >= 0).sum(1)


def _miscount(values: Values, n_query: Count) -> Interval:
    """How far the estimated number of classes is from the true one."""
    estimate, _, truth = values.T
    return interval(np.abs(estimate - truth))


def _f1(values: Values, n_query: Count) -> Interval:
    n_listed, n_right, n_present = values.T
    return interval(2 * n_right / (n_listed + n_present))


def _recall(values: Values, n_query: Count) -> Interval:
    _, n_right, n_present = values.T
    return _mean(n_right / n_present, n_query)


def _single(
    name: str,
    measure: Measure,
    title: str,
    best: str | None = None,
    of: Over = _mean,
    percent: bool = True,
    **how: Any,
) -> Metric:
    """A metric with one summary."""
    return Metric(name, measure, {"": MetricSummary(title, of, percent, best)}, **how)


_SUMS: dict[str, Any] = {"summed": True, "over_batches": "sum"}
_OF_UNKNOWN: dict[str, Any] = {"may_be_undefined": True, "of_probability": True}
_ALL = (
    _single("accuracy", _n_correct, "accuracy", "high", accuracy, over_batches="sum"),
    _single("calibration", _calibration, "calibration error", "low", _calibration_error, **_SUMS),
    _single("confidence", _confidence, "mean confidence"),
    Metric(
        "n_present",
        _n_present,
        over_batches=None,
        summaries={
            "": MetricSummary("error in the number of classes", _miscount, best="low"),
            "estimate": MetricSummary("estimated number of classes", _column(0)),
            "truth": MetricSummary("number of classes", _column(2)),
            "within": MetricSummary(
                "number of classes within 2 sd", _within, percent=True, best="high"
            ),
        },
    ),
    Metric(
        "listed",
        _listed,
        over_batches=None,
        summaries={
            "": MetricSummary("F1 of the listed classes", _f1, percent=True, best="high"),
            "false": MetricSummary(
                "listed classes that are absent", _false, percent=True, best="low"
            ),
            "found": MetricSummary("classes that are listed", _recall, percent=True, best="high"),
        },
    ),
    Metric(
        "choice",
        _choice,
        may_be_undefined=True,
        summaries={
            "power": MetricSummary("power of features", _column(0)),
            "shortening": MetricSummary("shortening of rows", _column(1)),
            "metric": MetricSummary("a learned metric", _column(2), percent=True),
        },
    ),
    _single("proportions", _proportions, "error of proportions", "low"),
    _single("presence", _presence, "Brier score of presence", "low", percent=False),
    _single("n_query", _n_known, "number of known queries", percent=False, over_batches="sum"),
    _single("auroc", auroc, "AUROC of unknown queries", "high", may_be_undefined=True),
    _single("fpr95", fpr_at_95, "FPR at 95 % TPR of unknown queries", "low", may_be_undefined=True),
    _single("oscr", oscr, "OSCR", "high", may_be_undefined=True),
    _single(
        "whole_accuracy",
        whole_accuracy,
        "accuracy on all queries, unknown ones included",
        "high",
        of_probability=True,
    ),
    _single(
        "ordered_accuracy",
        ordered_accuracy,
        "accuracy on all queries, true number of unknown ones",
        "high",
    ),
    Metric(
        "rejected",
        rejected,
        **_OF_UNKNOWN,
        summaries={
            "": MetricSummary(
                "known queries answered as unknown", _column(0), percent=True, best="low"
            ),
            "unknown": MetricSummary(
                "unknown queries answered as unknown", _column(1), percent=True, best="high"
            ),
        },
    ),
    _single(
        "unknown_calibration",
        _unknown_calibration,
        "calibration error of the unknown probability",
        "low",
        _calibration_error,
        of_probability=True,
        **_SUMS,
    ),
    Metric(
        "unknown_groups",
        unknown_groups,
        **_OF_UNKNOWN,
        summaries={
            "": MetricSummary("adjusted Rand index of unknown queries", _column(0), best="high"),
            "found": MetricSummary("number of unknown groups", _column(1)),
            "truth": MetricSummary("number of unknown classes", _column(2)),
        },
    ),
)
METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _ALL}
