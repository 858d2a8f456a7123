"""``Solution``: what a solver returns for a batch of tasks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, cast

import torch
from torch import Tensor

from manyway.core import presence as occurring
from manyway.core.arguments import fits, shown
from manyway.core.blocks import Answered, Reading, TopK, shares, top, whole
from manyway.core.presence import DEFAULT_RATE, Counting, Tally, tally
from manyway.errors import InputError, optional

# What is computed when it is first asked for, and by which parameter.
_LAZY = {
    "make_prototypes": "prototypes", "make_presence": "independent_presence",
    "make_review_scores": "review_scores", "make_copies": "copies",
}  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True)
class ExampleDoubts:
    """Which examples look mislabelled to the others.

    Parameters
    ----------
    wrong : Tensor of shape [t, s]
        The probability that the label of each example is wrong; 0 where nothing can judge it. One
        row serves all tasks that share their support.
    looks_like : Tensor of shape [t, s]
        The class that it looks most like if its label is wrong.
    """

    wrong: Tensor
    looks_like: Tensor


class Solution:
    """What a solver returns for a batch of tasks.

    Solutions can be pickled. ``repr`` shows shapes only. The answers for a pile
    (``Tasks.pile``) are computed block by block whenever they are asked for; ``top`` and
    ``each`` need little memory.

    Parameters
    ----------
    probabilities : Tensor of shape [t, q, k], or Reading
        The class probabilities of each query. Each row sums to 1; with ``unknown_groups``, to
        1 − ``unknown``. For a pile: what computes them block by block.
    n_iter : Tensor of shape [t], or int
        The number of iterations; a number is that of every task.
    converged : Tensor of shape [t], or bool
        Whether the method's own stopping rule was met. True for methods without iterations; False
        for methods that run a fixed number of iterations.
    make_prototypes : callable, optional
        Returns the prototypes [t, k, d]. They are computed when they are first used.
    objective : Tensor of shape [t, i], optional
        The objective after each iteration. After a task has stopped, its last value is repeated.
        None: the sum of ``objective_parts``, if they are given.
    objective_parts : mapping of str to Tensor, optional
        The terms of the objective, each of shape [t, i].
    make_presence : callable, optional
        Returns the probability [t, k] that each class occurs if the errors of queries were
        independent. None: it is computed from the probabilities.
    make_review_scores : callable, optional
        Returns the review scores [t, q]. They are computed when they are first used. None:
        1 minus the probability of the label.
    make_copies : callable, optional
        Returns how many near-copies queries have on average, themselves included [t]. None: 1.
    unknown : Tensor of shape [t, q], optional
        The probability that a query is unknown: of none of the classes.
        For methods that estimate it.
    unknown_groups : Tensor of shape [t, q], optional
        The number of the group of unknown queries that a query belongs to, the largest
        group first; -1 for queries that are labelled with a class. For methods that can
        answer that a query is unknown.
    unknown_medoids : Tensor of shape [t, g], optional
        The query in the middle of each of these groups; -1 where a task has fewer.
    told : mapping of str to Tensor of shape [t], optional
        What the method tells about the tasks beside its answers, such as its precision or temperature.
    labels : Tensor of shape [t, q], optional
        The labels, where they are not always the classes of the highest probability.
    tallied : Tally, optional
        The highest probability of each class and their sum,
        where they are not those of ``probabilities``.
    counting : Counting, optional
        The constants that say which classes occur.
    moved_by : Tensor of shape [t, 1, d], optional
        By which queries were moved back before they were labelled, where they differ from the
        examples all alike.
    doubts : ExampleDoubts, optional
        Which examples look mislabelled. For methods that look for them.
    memory : object, optional
        What the next batch of the same streams can use: see ``Tasks.earlier``.

    Attributes
    ----------
    labels : Tensor of shape [t, q]
        The most probable class of each query; -1 where ``unknown_groups`` is given and the query is
        more probably unknown than of any class.
    proportions : Tensor of shape [t, k]
        The estimated proportion of each class among the queries.
    prototypes : Tensor of shape [t, k, d] or None
        The class prototypes in the feature scale of the method; None where it has none.
    presence : Tensor of shape [t, k]
        The probability that each class occurs among the queries; see ``manyway.core.presence``.
    n_present, n_present_sd : Tensor of shape [t]
        The expected number of classes that occur among the queries, and its standard deviation.
    n_present_interval : Tensor of shape [t, 2]
        Between which numbers it is in about 95 % of the tasks.
    n_unseen : Tensor of shape [t]
        The expected number of further classes if sampling went on.
    review_scores : Tensor of shape [t, q]
        How much a person's answer to each query is expected to improve the labels;
        -1 where the label is known.

    Examples
    --------
    >>> from manyway import Tasks, solve
    >>> tasks = Tasks.from_arrays([[[0.0], [5.0]]], [[0, 1]], [[[0.1], [4.8]]])
    >>> solution = solve("simpleshot", tasks)
    >>> solution
    Solution(probabilities=[1, 2, 2], n_iter=[1], converged=1 of 1 tasks)
    >>> solution.labels.tolist()
    [[0, 1]]
    """

    def __init__(
        self,
        probabilities: Tensor | Reading,
        n_iter: Tensor | int,
        converged: Tensor | bool,
        make_prototypes: Callable[[], Tensor] | None = None,
        objective: Tensor | None = None,
        objective_parts: Mapping[str, Tensor] | None = None,
        make_presence: Callable[[], Tensor] | None = None,
        make_review_scores: Callable[[], Tensor] | None = None,
        make_copies: Callable[[], Tensor] | None = None,
        unknown: Tensor | None = None,
        unknown_groups: Tensor | None = None,
        unknown_medoids: Tensor | None = None,
        told: Mapping[str, Tensor] | None = None,
        memory: Any = None,
        labels: Tensor | None = None,
        tallied: Tally | None = None,
        counting: Counting = occurring.USUAL,
        moved_by: Tensor | None = None,
        doubts: ExampleDoubts | None = None,
    ) -> None:
        self.moved_by = moved_by
        self.doubts = doubts
        self._labels = labels
        self._tallied = tallied
        self.counting = counting
        self.n_iter = _of_tasks(n_iter, probabilities)
        self.converged = _of_tasks(converged, probabilities)
        self.memory = memory
        self.unknown_medoids = unknown_medoids
        self.objective_parts = objective_parts or None
        self.told = told or {}
        self.objective = objective
        if objective_parts:
            self.objective = torch.stack([*objective_parts.values()]).sum(0)
        self._answers: Answered | Reading
        if isinstance(probabilities, Reading):
            self._answers = probabilities
        else:
            self._answers = Answered(probabilities, unknown, unknown_groups)
        # A function may hold many tensors: it goes when its result is there.
        made = (make_prototypes, make_presence, make_review_scores, make_copies)
        self._make = {
            name: make for name, make in zip(_LAZY.values(), made, strict=True) if make is not None
        }
        self._given = tuple(self._make)

    def each(self, work: Callable[[Answered], Any]) -> Any:
        """The sum of ``work`` over parts of the queries: one part in memory, one per block of a pile.

        Parameters
        ----------
        work : callable
            From the answers for some queries to something with a method ``plus``.

        Returns
        -------
        object
            What the parts add up to.
        """
        if isinstance(self._answers, Answered):
            return work(self._answers)
        return self._answers.each(work)

    def changed(self, **values: Any) -> "Solution":
        """The same solution with some things replaced.

        Parameters
        ----------
        **values
            Arguments of the constructor, such as ``probabilities`` or ``unknown``.

        Returns
        -------
        Solution
        """
        kept: dict[str, Any] = {
            make: partial(getattr, self, of) for make, of in _LAZY.items() if of in self._given
        }
        kept |= {
            name: getattr(self, name)
            for name in ("probabilities", "n_iter", "converged", "objective", "told")
        }
        kept |= {
            name: getattr(self, name)
            for name in ("unknown", "unknown_groups", "unknown_medoids", "counting", "moved_by")
        }
        kept["doubts"] = self.doubts
        return Solution(**kept | values)

    def top(self, n: int) -> TopK:
        """The most probable classes of each query, and the estimated number of queries of each class.

        Parameters
        ----------
        n : int
            How many classes per query.

        Returns
        -------
        TopK
        """
        return cast(TopK, self.each(partial(top, n, self.counting.shares_power)))

    @cached_property
    def _whole(self) -> Answered:
        if isinstance(self._answers, Answered):
            return self._answers
        return Answered(*self._answers.each(whole).values)

    @property
    def probabilities(self) -> Tensor:
        """[t, q, k] the class probabilities of each query."""
        return self._whole.probabilities

    @property
    def unknown(self) -> Tensor | None:
        """[t, q] the probability that a query is unknown.

        None where the method does not estimate it.
        """
        return self._whole.unknown

    @property
    def unknown_groups(self) -> Tensor | None:
        """[t, q] the group of unknown queries that a query belongs to, -1 for the others.

        None where there are none.
        """
        return self._whole.groups

    @cached_property
    def prototypes(self) -> Tensor | None:
        """[t, k, d] the class prototypes, in the feature scale that the method worked in.

        None if it has none.
        """
        return self._made("prototypes")

    def _made(self, name: str) -> Tensor | None:
        make = self._make.pop(name, None)
        return None if make is None else make()

    @property
    def labels(self) -> Tensor:
        """[t, q] the most probable class of each query, -1 for unknown.

        The lowest class wins a tie.
        """
        labels = self.probabilities.argmax(-1) if self._labels is None else self._labels
        if self.unknown_groups is None:
            return labels
        return labels.masked_fill(self.unknown_groups >= 0, -1)

    @property
    def n_unknown(self) -> tuple[Tensor, Tensor] | None:
        """[t] the expected number of unknown queries, and its standard deviation.

        None as for ``unknown``.
        """
        return None if self.unknown is None else number_unknown(self.unknown)

    @property
    def outcomes(self) -> Tensor:
        """[t, q, k] the probabilities; with ``unknown`` as a last column where the method has it."""
        if self.unknown is None:
            return self.probabilities
        return torch.cat([self.probabilities, self.unknown.unsqueeze(-1)], -1)

    @property
    def proportions(self) -> Tensor:
        """[t, k] the estimated proportion of each class among the queries."""
        found: Tensor = self.each(partial(shares, self.counting.shares_power)).values[0]
        if isinstance(self._answers, Answered):
            return found.to(self.probabilities) / self.probabilities.shape[1]
        return found / self._answers.pile.n_rows

    @cached_property
    def presence(self) -> Tensor:
        """[t, k] the probability that the class occurs among the queries.

        See ``manyway.core.presence``.
        """
        return occurring.presence_of(
            self.independent_presence, self.tallied, self.copies, self.counting
        )

    @cached_property
    def independent_presence(self) -> Tensor:
        """[t, k] the probability that the class occurs if errors of queries were independent."""
        found = self._made("independent_presence")
        if found is not None:
            return found
        return -torch.expm1(torch.log1p(-self.probabilities.clamp_max(1 - 1e-6)).sum(1))

    @cached_property
    def copies(self) -> Tensor:
        """[t] how many near-copies queries have on average, themselves included."""
        found = self._made("copies")
        if found is None:
            return torch.ones_like(self.independent_presence[:, 0])
        return found

    @property
    def estimates_presence(self) -> bool:
        """Whether the method itself says which classes occur."""
        return "independent_presence" in self._given

    def present(self, error_rate: float | None = DEFAULT_RATE) -> list[Tensor]:
        """The classes of each task that occur among the queries, the most certain first.

        Over many batches at most ``error_rate`` of the listed classes are absent; see
        ``manyway.core.presence.by_presence``.

        Parameters
        ----------
        error_rate : float or None, default=0.05
            None: a longer list, as likely to lack a class as to have an absent one;
            its expected F1 is the highest.

        Returns
        -------
        list of Tensor
            The classes, for each task.

        Examples
        --------
        >>> from manyway import Tasks, solve
        >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [0.0, 1.0]]])
        >>> [classes.tolist() for classes in solve("simpleshot", tasks).present(error_rate=0.2)]
        [[0]]
        """
        return [one.order[: one.n_listed] for one in self._by_presence(error_rate)]

    def possible(self, error_rate: float | None = DEFAULT_RATE) -> list[Tensor]:
        """The classes of each task that are not in ``present(error_rate)`` but cannot be ruled out.

        Their probability of presence is above ``error_rate``.

        Parameters
        ----------
        error_rate : float or None, default=0.05

        Returns
        -------
        list of Tensor
            The classes, for each task; the most probable first.
        """
        return [one.order[one.n_listed : one.n_possible] for one in self._by_presence(error_rate)]

    def _by_presence(self, error_rate: float | None) -> list[occurring.ByPresence]:
        if not fits(error_rate, float | None) or (
            error_rate is not None and not 0 < error_rate < 1
        ):
            raise InputError(
                f"error_rate is {shown(error_rate)}; it must be between 0 and 1, for example 0.05."
            )
        cost = torch.full_like(self.presence[:, 0], self.counting.list_cost, dtype=torch.float64)
        return occurring.by_presence(self.presence, cost, error_rate)

    @property
    def n_present(self) -> Tensor:
        """[t] the expected number of classes that occur among the queries.

        At least 1 where none is unknown.
        """
        answers = self._answers
        if isinstance(answers, Reading):
            n_query = answers.pile.n_rows
        else:
            n_query = answers.probabilities.shape[1]
        return occurring.expected_number(self.presence, self.tallied.masses, n_query)

    @property
    def n_present_sd(self) -> Tensor:
        """[t] the standard deviation of that number."""
        shared = self._ends.diff(dim=-1).squeeze(-1) / (2 * 1.96)  # and each class by itself
        return (
            (shared.square() + (self.presence * (1 - self.presence)).sum(-1))
            .sqrt()
            .to(self.n_present)
        )

    @property
    def n_present_interval(self) -> Tensor:
        """[t, 2] between which numbers it is with a probability of 95 %.

        See ``manyway.core.presence.ends_of_number``.
        """
        most = self.tallied.masses.sum(-1).clamp_max(self.presence.shape[-1]).round().long()
        return occurring.whole_interval(self._ends, most.clamp_min(1))

    @cached_property
    def _ends(self) -> Tensor:
        return occurring.ends_of_number(
            self.presence, self.independent_presence, self.tallied, self.copies
        )

    @property
    def n_unseen(self) -> Tensor:
        """[t] how many further classes are expected to occur if sampling went on."""
        sizes = occurring.conditional_sizes(
            self.independent_presence, self.tallied.masses, self.copies
        )
        return occurring.unseen(self.independent_presence, self.presence, sizes.to(self.presence))

    @cached_property
    def review_scores(self) -> Tensor:
        """[t, q] how much a person's answer to each query is expected to improve the labels.

        -1 where it is known.
        """
        found = self._made("review_scores")
        return 1 - self.outcomes.amax(-1) if found is None else found

    @cached_property
    def tallied(self) -> Tally:
        """The highest probability of each class, their sum, and how far they are believed."""
        if self._tallied is None:
            return cast(Tally, self.each(tally))
        return self._tallied

    def to_frame(self) -> Any:
        """A pandas table with one row per task and query.

        Returns
        -------
        pandas.DataFrame
            Columns ``task``, ``query``, ``label``, ``probability``, ``label_2``, ``probability_2``,
            and ``unknown`` where the method has one.

        Examples
        --------
        >>> from manyway import Tasks, solve
        >>> tasks = Tasks.from_arrays([[[0.0], [5.0]]], [[0, 1]], [[[0.1], [4.8]]])
        >>> solve("simpleshot", tasks).to_frame()[["task", "query", "label", "label_2"]].values.tolist()
        [[0, 0, 0, 1], [0, 1, 1, 0]]
        """
        pandas = optional("pandas", "tables", "to_frame")
        n_tasks, n_query, _ = self.probabilities.shape
        task, query = torch.meshgrid(torch.arange(n_tasks), torch.arange(n_query), indexing="ij")
        columns = {"task": task.flatten().numpy(), "query": query.flatten().numpy()}
        unknown = None if self.unknown is None else self.unknown.flatten()
        return pandas.DataFrame(columns | best_two(self.probabilities.flatten(0, 1), unknown))

    def __repr__(self) -> str:
        done = f"{int(self.converged.sum())} of {len(self.converged)} tasks"
        if isinstance(self._answers, Reading):
            return f"Solution(n_query={self._answers.pile.n_rows}, in blocks, converged={done})"
        return (
            f"Solution({shapes(self, ('probabilities', 'n_iter', 'objective'))}, converged={done})"
        )

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled.

        What can be computed on request is computed now, so that no function is pickled.
        """
        for name in tuple(self._make):
            getattr(self, name)
        return {**self.__dict__, "_answers": self._whole, "memory": None}


def _of_tasks(value: Tensor | int, probabilities: Tensor | Reading) -> Tensor:
    """[t] a value of every task; a pile is one task."""
    if isinstance(value, Tensor):
        return value
    some = torch.zeros(1) if isinstance(probabilities, Reading) else probabilities
    return torch.full((len(some),), value, device=some.device)


class Recorder:
    """The terms of an objective after each iteration; it grows, so ``max_iter`` costs no memory.

    >>> recorder = Recorder(("fit", "prior"))
    >>> recorder.add(torch.tensor([[1.0, 2.0], [0.5, 0.5]]))
    >>> recorder.add(torch.tensor([[3.0], [0.25]]), torch.tensor([1]))  # task 0 has stopped
    >>> recorder.parts["prior"].tolist()
    [[0.5, 0.5], [0.5, 0.25]]
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.rows: list[Tensor] = []

    def add(self, terms: Tensor, tasks: Tensor | None = None) -> None:
        """Append the terms [p, t].

        Where other tasks have stopped, the terms are of the listed tasks only, and those of the
        others are repeated.
        """
        if tasks is not None and self.rows and terms.shape[1] < self.rows[-1].shape[1]:
            terms = self.rows[-1].index_copy(1, tasks, terms)
        self.rows.append(terms)

    @property
    def parts(self) -> dict[str, Tensor]:
        """Each term, [t, i]; none where nothing was added."""
        if self.rows:
            return dict(zip(self.names, torch.stack(self.rows, -1), strict=True))
        return {}


def number_unknown(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """The expected number of queries of a kind, and its standard deviation.

    Both follow from their probabilities [..., q].

    If the errors of queries were independent, the standard deviation would be (Σ p(1 − p))^½; if
    they were one and the same, Σ (p(1 − p))^½. It lies between the two: their geometric mean is
    taken.

    >>> [round(float(value), 2) for value in number_unknown(torch.tensor([0.9, 0.5, 0.0]))]
    [1.4, 0.68]
    """
    each = (probabilities * (1 - probabilities)).clamp_min(0).double()
    return probabilities.double().sum(-1), (each.sum(-1).sqrt() * each.sqrt().sum(-1)).sqrt()


def best_two(probabilities: Tensor, unknown: Tensor | None = None) -> dict[str, Any]:
    """The two most probable classes of each row of [n, k], and their probabilities.

    They are columns of a table.

    ``unknown`` [n] is a further column, where there is one.
    """
    rows = probabilities.detach().cpu()
    # the lowest class wins a tie, as in `labels`; topk does not promise that
    first = rows.argmax(-1, keepdim=True)
    others = rows.scatter(1, first, -1.0)
    columns = {}
    for rank, chosen in (("", first), ("_2", others.argmax(-1, keepdim=True))):
        columns[f"label{rank}"] = chosen.squeeze(1).numpy()
        columns[f"probability{rank}"] = rows.gather(1, chosen).squeeze(1).numpy()
    if unknown is None:
        return columns
    return {**columns, "unknown": unknown.detach().cpu().numpy()}


def shapes(value: Any, names: Sequence[str]) -> str:
    """The shapes of some attributes, in words; those that are None are left out."""
    found = {name: getattr(value, name) for name in names}
    return ", ".join(
        f"{name}={list(array.shape)}" for name, array in found.items() if array is not None
    )
