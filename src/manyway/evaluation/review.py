"""A simulated reviewer: what a method answers after a person has given the labels of some queries.

The person looks at one query after the other and gives its true label. The way of working
(``REVIEWERS``) decides which query is next, and what its label changes.
"""

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from inspect import signature
from threading import Lock
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor

from manyway.core import Solution, Tasks, one_hot, transform
from manyway.errors import InputError, optional
from manyway.methods import get_method
from manyway.sampling.spec import Reviewer


class Reply(NamedTuple):
    """What a method answers to the labels so far, and what makes scores [t, q].

    The item with the highest score is asked for next.
    """

    solution: Solution
    make_scores: Callable[[], Tensor]


Respond = Callable[[Tensor], Reply]  # from labels [t, q], -1 where they are not known
_STRATEGIES = ("Badge", "TypiClust", "ProbCover", "DropQuery", "Falcun")  # of scikit-activeml
# queries are near each other if their squared distance is about this part of the median
_NEAR = 0.3


@torch.no_grad()
def review(
    method: str, tasks: Tasks, n_answers: int, reviewer: Reviewer = "known", **params: Any
) -> Solution:
    """What a method answers after a person has given the true labels of some queries.

    Parameters
    ----------
    method : str
        A name in ``METHODS``; for the reviewer "known" one that takes known labels.
    tasks : Tasks
        With ``query_labels``, which the person reads.
    n_answers : int
        The number of queries per task that the person labels.
    reviewer : str, default="known"
        How the person works; see ``TaskSpec``.
    **params
        Parameters of the method.

    Returns
    -------
    Solution
        Labelled queries have their true class with probability 1.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0], [1.0]]], [[0, 1]], [[[0.1], [0.6], [0.9]]], query_labels=[[0, 0, 1]])
    >>> review("evidence", tasks, 0).labels.tolist(), review("evidence", tasks, 3).labels.tolist()
    ([[0, 1, 1]], [[0, 0, 1]])
    """
    if tasks.query_labels is None:
        raise InputError(
            "The tasks have no query_labels, which the simulated person would read; give them."
        )
    if not 0 <= n_answers <= tasks.n_query:
        raise InputError(
            f"n_answers is {n_answers}; it must be from 0 to {tasks.n_query}, "
            "the number of queries."
        )
    answer = REVIEWERS[reviewer](method, tasks, params)
    key = _key(method, tasks, reviewer, params)
    asked = _QUESTIONS.of(tasks, key)[:, :n_answers]
    known = _known_after(asked, tasks.query_labels)
    while asked.shape[1] < n_answers:
        scores = answer(known).make_scores().masked_fill(known >= 0, -torch.inf)
        asked = torch.cat([asked, scores.argmax(1, keepdim=True)], 1)
        known = _known_after(asked, tasks.query_labels)
    _QUESTIONS.keep(tasks, key, asked)
    solution = answer(known).solution
    given = one_hot(known.clamp_min(0), tasks.n_classes, tasks.dtype)
    probabilities = torch.where((known >= 0).unsqueeze(-1), given, solution.probabilities)
    return solution.changed(probabilities=probabilities)


def _known_after(asked: Tensor, truth: Tensor) -> Tensor:
    """[t, q] the labels that are known after the questions [t, n]; -1 where none is."""
    return torch.full_like(truth, -1).scatter(1, asked, truth.gather(1, asked))


class _Questions:
    """The questions of earlier reviews of tasks that are drawn from one table of features.

    What is asked next follows from the tasks and the answers so far. So a review with more answers
    goes on where one with fewer has stopped: suites measure several numbers of answers.
    """

    def __init__(self) -> None:
        self.table: Callable[[], Tensor | None] = lambda: None  # it is not kept in memory for this
        self.asked: dict[Hashable, Tensor] = {}
        self.lock = Lock()  # chunks of tasks may be solved side by side

    def of(self, tasks: Tasks, key: Hashable) -> Tensor:
        """[t, n] the queries that were asked for so far, in their order."""
        none = torch.zeros((len(tasks), 0), dtype=torch.long)
        with self.lock:
            asked = self.asked.get(key, none) if tasks.query_table is self.table() else none
        return asked.to(tasks.device)

    def keep(self, tasks: Tasks, key: Hashable, asked: Tensor) -> None:
        if tasks.support_table is not tasks.query_table:  # not drawn from one table
            return
        with self.lock:
            if tasks.query_table is not self.table():
                self.table = ref(tasks.query_table)
                self.asked = {}
            earlier = self.asked.get(key)
            if earlier is None or earlier.shape[1] < asked.shape[1]:
                self.asked[key] = asked.cpu()


_QUESTIONS = _Questions()


def _key(method: str, tasks: Tasks, reviewer: Reviewer, params: Mapping[str, Any]) -> Hashable:
    """What the questions follow from, besides the table of features."""
    rows = tasks.support_index, tasks.support_labels, tasks.query_index, tasks.class_ids
    drawn = (None if of is None else of.cpu().numpy().tobytes() for of in rows)
    return method, reviewer, repr(sorted(params.items())), *drawn


def _known(method: str, tasks: Tasks, params: dict[str, Any]) -> Respond:
    """The method gets the labels, and says what to ask next."""
    solver = get_method(method)
    prepared = None if solver.preparation is None else solver.preparation(tasks, **params)

    def answer(known: Tensor) -> Reply:
        solution = solver(tasks, prepared=prepared, known=known, **params)
        return Reply(solution, lambda: solution.review_scores)

    return answer


def _fixed(method: str, tasks: Tasks, params: dict[str, Any]) -> Respond:
    """Nothing is labelled again; the most doubtful label first."""
    solution = get_method(method)(tasks, **params)
    return lambda known: Reply(solution, lambda: _doubt(solution))


def _appended(method: str, tasks: Tasks, params: dict[str, Any]) -> Respond:
    """Queries with a known label are given to the method as further labelled examples."""

    def answer(known: Tensor) -> Reply:
        solution = get_method(method)(_with_examples(tasks, known), **params)
        return Reply(solution, lambda: _doubt(solution))

    return answer


def _with_examples(tasks: Tasks, known: Tensor) -> Tasks:
    """The tasks with known queries as further examples; all tasks have equally many."""
    rows = (known >= 0).nonzero()[:, 1].view(len(known), -1)
    query = tasks.query
    examples = query.gather(1, rows.unsqueeze(-1).expand(-1, -1, tasks.n_features))
    labels = torch.cat([tasks.support_labels, known.gather(1, rows)], 1)
    return tasks.with_rows(torch.cat([tasks.support, examples], 1), query, support_labels=labels)


def _uherding(method: str, tasks: Tasks, params: dict[str, Any]) -> Respond:
    """The method gets the labels; next is the query that covers most doubt (Bae et al., 2025).

    With u_o the doubt of a query and S the queries whose label is known, its score is
    Σ_o u_o max(0, k(q, o) − max_{s ∈ S} k(s, o)).
    """
    answer = _known(method, tasks, params)
    query = transform(tasks, "rcl2").query
    distances = torch.cdist(query, query).square()
    median = distances.flatten(1).median(1).values.view(-1, 1, 1)
    near = (-distances / (_NEAR * median)).exp()  # [t, q, q] from 0 to 1

    def ask(known: Tensor) -> Reply:
        solution = answer(known).solution
        covered = (near * (known >= 0).unsqueeze(-1)).amax(1, keepdim=True)
        gained = (near - covered).clamp_min(0)
        return Reply(solution, lambda: (gained @ _doubt(solution).unsqueeze(-1)).squeeze(-1))

    return ask


def _strategy(method: str, tasks: Tasks, params: dict[str, Any], *, name: str) -> Respond:
    """The method gets the labels, and a strategy of scikit-activeml asks.

    It knows the features of the queries, the answers so far, and what the method says. A label for
    changed features, which DropQuery wants, is the class whose mean, by the method's probabilities,
    is most alike.
    """
    what = f"The reviewer '{name}'"
    pool = optional("skactiveml.pool", "strategies", what)
    base = optional("skactiveml.base", "strategies", what)
    answer = _known(method, tasks, params)
    features = transform(tasks, "rcl2").query.double().cpu().numpy()

    class Given(base.SkactivemlClassifier):  # type: ignore[misc, name-defined]
        def fit(self, X: Any, y: Any) -> "Given":
            return self

        def predict_proba(self, X: Any) -> Any:
            return self.probabilities[self.is_open].numpy()

        def predict(self, X: Any) -> Any:
            return (X @ self.query.T @ self.probabilities.numpy()).argmax(1)

    def choose(known: Tensor, probabilities: Tensor) -> Tensor:
        scores = torch.zeros(known.shape)
        given = Given()
        for t, query in enumerate(features):
            # what it draws follows from the answers so far: reviews may go on (``_Questions``)
            strategy = getattr(pool, name)(random_state=int((known[t] >= 0).sum()))
            given.probabilities = probabilities[t]
            given.query = query
            given.is_open = known[t] < 0
            takes: dict[str, Any] = {}
            if "clf" in signature(strategy.query).parameters:
                takes = {"clf": given, "fit_clf": False}
            labels = known[t].double().masked_fill(given.is_open, torch.nan).numpy()
            scores[t, int(strategy.query(query, labels, **takes)[0])] = 1
        return scores

    def ask(known: Tensor) -> Reply:
        solution = answer(known).solution
        probabilities = solution.probabilities.double().cpu()
        return Reply(solution, lambda: choose(known.cpu(), probabilities).to(known.device))

    return ask


def _doubt(solution: Solution) -> Tensor:
    return 1 - solution.outcomes.amax(-1)


# What a person's answer changes, and which query is next.
REVIEWERS: Mapping[str, Callable[[str, Tasks, dict[str, Any]], Respond]] = {
    "fixed": _fixed,
    "appended": _appended,
    "known": _known,
    "uherding": _uherding,
    **{name.lower(): partial(_strategy, name=name) for name in _STRATEGIES},
}
