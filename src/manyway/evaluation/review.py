"""A simulated reviewer: how accurate the labels are after each action of a person.

An action is to look at one query and to give its true label. A way of working (``WAYS``) decides which query is next,
and what its label changes. ``review`` counts the correct labels of every task after each action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyway.core.parallel import side_by_side
from manyway.core.tasks import Tasks
from manyway.core.transforms import transform
from manyway.data.features import FeatureSet
from manyway.data.sampling import sample_tasks
from manyway.data.spec import TaskSpec
from manyway.errors import InputError, nearest
from manyway.evaluation.statistics import Interval, interval
from manyway.methods import get_method, solve

Counts = np.ndarray[Any, np.dtype[np.int64]]
Answers = tuple[Tensor, Tensor]  # labels [t, q], and scores [t, q]: the query with the highest score is next
_TASKS_AT_ONCE = {"cpu": 10, "cuda": 50}  # each has a calibration, whose metric takes d × d numbers
_NEAR = 0.3  # queries are near each other if their squared distance is about this part of the median


@dataclass(frozen=True, eq=False)
class Reviewed:
    """The number of correct labels after each action.

    Parameters
    ----------
    correct : ndarray of shape [n_tasks, n_actions + 1]
        Column 0 is before the first action.
    n_query : int
        The number of queries per task.

    Examples
    --------
    >>> reviewed = Reviewed(np.array([[6, 8, 10], [8, 10, 10]]), 10)
    >>> reviewed.accuracy(1).mean
    0.9
    >>> reviewed.actions_to(0.9)
    1
    """

    correct: Counts
    n_query: int

    def accuracy(self, actions: int) -> Interval:
        """The mean accuracy over tasks after that many actions, with its 95 % interval."""
        return interval(self.correct[:, actions]).over(self.n_query)

    def gain(self, other: Reviewed, actions: int) -> Interval:
        """The mean difference to another way of working on the same tasks, with its 95 % interval."""
        return interval(self.correct[:, actions] - other.correct[:, actions]).over(self.n_query)

    def actions_to(self, accuracy: float) -> int | None:
        """The number of actions after which the mean accuracy reaches a value; None if it does not."""
        reached = np.flatnonzero(self.correct.mean(0) >= accuracy * self.n_query - 1e-9)
        return int(reached[0]) if len(reached) else None


def review(
    way: str,
    features: FeatureSet,
    spec: TaskSpec,
    n_tasks: int = 100,
    n_actions: int = 30,
    seed: int = 0,
    *,
    progress: Callable[[int], None] | None = None,
) -> Reviewed:
    """Simulate a person who labels one query after the other.

    Parameters
    ----------
    way : str
        A name in ``WAYS``.
    features : FeatureSet
        What tasks are drawn from. The work is done on their device.
    spec : TaskSpec
        What a task looks like.
    n_tasks, seed : int
        Tasks 0 to ``n_tasks - 1`` of the stream that ``seed`` defines.
    n_actions : int, default=30
        How many queries the person looks at; at most all of them.
    progress : function, optional
        Called with the number of tasks that are finished.

    Returns
    -------
    Reviewed

    Examples
    --------
    >>> from manyway import FeatureSet, TaskSpec
    >>> features = FeatureSet([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]], [0, 0, 0, 1, 1, 1])
    >>> review("known", features, TaskSpec(shots=1, k_eff=2, n_query=4), n_tasks=2, n_actions=4).correct.tolist()
    [[4, 4, 4, 4, 4], [4, 4, 4, 4, 4]]
    """
    if way not in WAYS:
        raise InputError(f"There is no way of reviewing '{way}'; {nearest(way, WAYS)}")
    if not 0 <= n_actions <= spec.n_query:
        raise InputError(f"n_actions is {n_actions}; it must be from 0 to {spec.n_query}, the number of queries.")

    device = features.features.device.type
    size = _TASKS_AT_ONCE[device]

    def run(first: int) -> Tensor:
        tasks = sample_tasks(features, spec, seed, first, min(size, n_tasks - first))
        correct = _simulate(WAYS[way](tasks), tasks, n_actions)
        if progress is not None:
            progress(len(tasks))
        return correct

    firsts = range(0, n_tasks, size)
    parts = side_by_side(run, firsts) if device == "cpu" else list(map(run, firsts))
    return Reviewed(torch.cat(parts).cpu().numpy(), spec.n_query)


@torch.no_grad()
def _simulate(answer: Callable[[Tensor], Answers], tasks: Tasks, n_actions: int) -> Tensor:
    """[t, n_actions + 1] the number of correct labels."""
    assert tasks.query_labels is not None
    truth, correct = tasks.query_labels, []
    known = torch.full_like(truth, -1)
    for action in range(n_actions + 1):
        labels, scores = answer(known)
        correct.append((torch.where(known >= 0, known, labels) == truth).sum(1))
        if action < n_actions:
            asked = scores.masked_fill(known >= 0, -torch.inf).argmax(1, keepdim=True)
            known = known.scatter(1, asked, truth.gather(1, asked))
    return torch.stack(correct, 1)


def _known(tasks: Tasks) -> Callable[[Tensor], Answers]:
    """Evidence with known labels, asking by its review scores."""
    method = get_method("evidence")
    assert method.preparation is not None
    prepared = method.preparation(tasks)

    def answer(known: Tensor) -> Answers:
        solution = method(tasks, prepared=prepared, known=known)
        return solution.labels, solution.review_scores

    return answer


def _fixed(tasks: Tasks) -> Callable[[Tensor], Answers]:
    """Nothing is labelled again; the most doubtful label first."""
    solution = solve("evidence", tasks)
    return lambda known: (solution.labels, _doubt(solution.probabilities))


def _appended(tasks: Tasks, near: bool) -> Callable[[Tensor], Answers]:
    """Queries with a known label are given to evidence as further labelled examples."""
    weights = _nearness(tasks) if near else None

    def answer(known: Tensor) -> Answers:
        probabilities = solve("evidence", _with_examples(tasks, known)).probabilities
        scores = _doubt(probabilities)
        if weights is not None:
            scores = (weights @ scores.masked_fill(known >= 0, 0).unsqueeze(-1)).squeeze(-1)
        return probabilities.argmax(-1), scores

    return answer


def _with_examples(tasks: Tasks, known: Tensor) -> Tasks:
    """The tasks with known queries as further examples; all tasks have equally many."""
    rows = (known >= 0).nonzero()[:, 1].view(len(known), -1)
    query = tasks.query
    examples = query.gather(1, rows.unsqueeze(-1).expand(-1, -1, tasks.n_features))
    return replace(
        tasks,
        support_table=torch.cat([tasks.support, examples], 1),
        support_index=None,
        support_labels=torch.cat([tasks.support_labels, known.gather(1, rows)], 1),
        query_table=query,
        query_index=None,
        factor=None,
    )


def _nearness(tasks: Tasks) -> Tensor:
    """[t, q, q] from 0 to 1."""
    query = transform(tasks, "rcl2").query
    distances = torch.cdist(query, query).square()
    return (distances / (-_NEAR * distances.flatten(1).median(1).values.view(-1, 1, 1))).exp()


def _doubt(probabilities: Tensor) -> Tensor:
    return 1 - probabilities.amax(-1)


# What a person's answer changes, and which query is next.
WAYS: Mapping[str, Callable[[Tasks], Callable[[Tensor], Answers]]] = {
    "fixed": _fixed,
    "appended": partial(_appended, near=False),
    "appended-near": partial(_appended, near=True),
    "known": _known,
}
