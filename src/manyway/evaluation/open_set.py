"""What is measured about unknown queries: those of none of the task's classes, whose label is -1.

A query's unknown score is ``Solution.unknown``, and 1 minus its highest class probability where a method has none. The
unknown queries are the positives. Where a task has no unknown query or no known one, a value that compares the two is
NaN: undefined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from manyway.core.solution import Solution
    from manyway.core.tasks import Tasks


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
    """[t, q] whether a query is answered as unknown; by a probability of one half where a method does not answer so."""
    if solution.unknown is None or solution.unknown_groups is not None:
        return solution.labels < 0
    return solution.unknown > 0.5


def auroc(solution: Solution, tasks: Tasks) -> Tensor:
    """[t] the probability that an unknown query has a higher score than a known one; ties count half."""
    known = truth_of(tasks) >= 0
    return _mean_below(unknown_score(solution), known, known)


def oscr(solution: Solution, tasks: Tasks) -> Tensor:
    """[t] the area under the curve of correct classification rate against false positive rate (Dhamija et al., 2018).

    It is the probability that a known query is labelled correctly and has a lower score than an unknown one.
    """
    truth = truth_of(tasks)
    return _mean_below(unknown_score(solution), truth >= 0, (truth >= 0) & (solution.labels == truth))


def fpr_at_95(solution: Solution, tasks: Tasks) -> Tensor:
    """[t] the fraction of known queries above the highest threshold that finds 95 % of the unknown ones."""
    score, known = unknown_score(solution), truth_of(tasks) >= 0
    n_unknown = (~known).sum(1, keepdim=True)
    found = score.masked_fill(known, -float("inf")).sort(1, descending=True).values
    threshold = found.gather(1, ((95 * n_unknown + 99) // 100 - 1).clamp_min(0))
    rate = ((score >= threshold) & known).sum(1) / known.sum(1).double()
    return rate.masked_fill(n_unknown.squeeze(1) == 0, float("nan"))


def rejected(solution: Solution, tasks: Tasks) -> Tensor:
    """[t, 2] the fractions of known and of unknown queries that are answered as unknown."""
    import torch

    known = truth_of(tasks) >= 0
    said = said_unknown(solution)
    return torch.stack([(said & of).sum(1) / of.sum(1).double() for of in (known, ~known)], 1)


def whole_accuracy(solution: Solution, tasks: Tasks) -> Tensor:
    """[t] the fraction of all queries with the right answer: their class, or unknown."""
    truth, said = truth_of(tasks), said_unknown(solution)
    right = (said & (truth < 0)) | (~said & (solution.probabilities.argmax(-1) == truth))
    return right.double().mean(1)


def unknown_groups(solution: Solution, tasks: Tasks) -> Tensor:
    """[t, 3] the adjusted Rand index of the grouping of unknown queries, the number of groups, and the true number.

    The grouping is that of all answers: unknown queries belong together that are in one unknown group or, where they
    are not recognised as unknown, that have one label. It is undefined where no two unknown queries are of one class.
    """
    import torch

    truth = truth_of(tasks)
    groups = torch.full_like(truth, -1) if solution.unknown_groups is None else solution.unknown_groups
    of_class = torch.full_like(truth, -1) if tasks.unknown_labels is None else tasks.unknown_labels
    answer = torch.where(groups >= 0, groups + tasks.n_classes, solution.labels)
    unknown = truth < 0
    index = _adjusted_rand(of_class, answer, unknown)
    return torch.stack([index, _n_distinct(groups), _n_distinct(of_class)], 1)


def _mean_below(score: Tensor, known: Tensor, counted: Tensor) -> Tensor:
    """[t] the mean over unknown and known queries of whether the known one is counted and has the lower score."""
    import torch

    marked = score.masked_fill(~counted, float("inf")).sort(1).values
    below = torch.searchsorted(marked, score) + torch.searchsorted(marked, score, right=True)
    total = (below * ~known).sum(1).double() / 2
    return total / (known.sum(1) * (~known).sum(1))


def _adjusted_rand(first: Tensor, second: Tensor, counted: Tensor) -> Tensor:
    """[t] the adjusted Rand index of two groupings [t, q] of the counted queries, from pairs; NaN without a pair."""
    pairs = (counted.unsqueeze(1) & counted.unsqueeze(2)).triu(1)
    in_first = (first.unsqueeze(1) == first.unsqueeze(2)) & pairs
    in_second = (second.unsqueeze(1) == second.unsqueeze(2)) & pairs
    n, a, b, both = (of.sum((1, 2)).double() for of in (pairs, in_first, in_second, in_first & in_second))
    by_chance = a * b / n
    index = (both - by_chance) / ((a + b) / 2 - by_chance)
    # Two groupings that are both one group agree, and the formula divides zero by zero.
    return index.masked_fill((a == n) & (b == n), 1.0).masked_fill(a == 0, float("nan"))


def _n_distinct(groups: Tensor) -> Tensor:
    """[t] the number of distinct groups [t, q]; -1 is none."""
    ordered = groups.sort(1).values
    return (
        (ordered[:, :1] >= 0).sum(1) + ((ordered[:, 1:] != ordered[:, :-1]) & (ordered[:, 1:] >= 0)).sum(1)
    ).double()
