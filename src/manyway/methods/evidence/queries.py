"""The queries of some tasks: what every stage of evidence asks of them, and those in memory.

``InMemory`` holds the queries of many tasks, ``manyway.methods.evidence.blocks.InBlocks`` reads
those of one task in blocks, on one machine or on Dask. Stages before and after the search see
queries in parts: all queries of the tasks in memory are one part, each block is another. What a
stage finds in the parts is added up.

The work of a stage is therefore a callable from a ``Part`` to something with a method ``plus``, and
is written once for both. It reads *placed* rows, coordinates in which the likelihood is simple
(``likelihood``), and the assignments of the last search.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import ceil
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyway.core import Answered, Joined, Reading, Tasks
from manyway.methods.evidence.dense import Dense, fused_search
from manyway.methods.evidence.likelihood import Likelihood, Updated, own_classes
from manyway.methods.evidence.loop import Outcome, anneal_and_iterate, resume
from manyway.methods.evidence.prior import Concentrations, QueryCounts, Slopes, remainders
from manyway.methods.evidence.schedule import Parameters

# The log-likelihood of the classes that a query with a known label does not have. It is finite, so
# that 0 times it is 0, and it can be multiplied by any sharpness in float32.
EXCLUDED = -1e30
_LEAST_COUNTED = 1e-3  # so that classes have a count where all queries are unknown
_MOST_QUERIES = 512  # evenly spaced: enough to fit one number


@dataclass(eq=False, kw_only=True)
class Part:
    """Some queries of t tasks, as the stages before and after the search see them.

    Labels may be known for some queries. Where one contradicts what the batch says without it, the
    assignments of all known queries of the task are fixed; elsewhere they are no news to the other
    queries, which are *free* like these.
    """

    placed: Tensor  # [t, b, d]
    first: int  # the number of the first one
    known: Tensor  # [t, b] known labels, -1 for the others
    fixed: Tensor  # [t, b] the same in tasks in which they are fixed; -1 elsewhere
    unknown: Tensor  # [t, b] the probability to be unknown
    distinct: Tensor  # [t, b] 1; 0 for near-copies of other queries, which count nothing
    assign: Callable[[], Tensor]  # makes the last assignments [t, b, k]
    likelihood: Likelihood
    any_known: bool  # whether a label is known
    any_fixed: bool  # whether a known label is fixed
    any_unknown: bool  # whether some query may be unknown

    @property
    def u(self) -> Tensor:
        """[t, b, k] the last assignments."""
        return self.assign()

    @property
    def coordinates(self) -> Tensor:
        """[t, b, d] where the queries are."""
        return self.likelihood.coordinates(self.placed)

    @cached_property
    def log_likelihood(self) -> Tensor:
        """[t, b, k] ℓ."""
        return self.likelihood.of(self.placed)

    @property
    def free(self) -> Tensor:
        """[t, b, 1] 0 where the label is fixed, 1 elsewhere."""
        return (self.fixed < 0).unsqueeze(-1).to(self.placed)

    def members(self, slopes: Slopes) -> Tensor:
        """[t, b, k] the assignments as if no label were fixed.

        A query with a fixed label is assigned once more by its likelihoods and by the slopes of the
        prior. The other queries keep their assignments. Groups are judged by these: a person who
        names one query of a group names the group.
        """
        if not self.any_fixed:
            return self.u
        logits = slopes.add_to(self.log_likelihood.clone(), remainders(self.u))
        return torch.where(self.free > 0, self.u, logits.softmax(-1))

    def every(self, stride: int) -> Part:
        """The part that has every so many of all queries."""
        rows = slice(-self.first % stride, None, stride)
        return replace(
            self,
            placed=self.placed[:, rows],
            known=self.known[:, rows],
            fixed=self.fixed[:, rows],
            unknown=self.unknown[:, rows],
            distinct=self.distinct[:, rows],
            assign=lambda: self.u[:, rows],
        )


# From placed queries [t, b, d] and the number of the first of them to their probability [t, b] of
# being unknown; see ``judge``.
ProbabilityOfUnknown = Callable[[Tensor, int], Tensor]


def search_weights(unknown: Tensor, distinct: Tensor) -> Tensor:
    """How much queries count in the search: 1 − ``unknown``, and 0 for near-copies of others."""
    return (1 - unknown).clamp(_LEAST_COUNTED, 1) * distinct


class BatchAnswers(NamedTuple):
    """The answers for all queries, and what a review needs beyond them."""

    probabilities: Tensor | Reading  # [t, q, k]; of a pile they are read in blocks
    unknown: Tensor | None = None  # [t, q] in memory, where queries may be unknown
    groups: Tensor | None = None  # [t, q] of unknown queries
    make_review_scores: Callable[[], Tensor] | None = None  # of queries in memory


class BatchQueries(ABC):
    """The queries of t tasks, which ``InMemory`` and ``InBlocks`` hold in two ways.

    The stages of evidence ask for sums over the queries (``each``), for a search, and for what the
    search found.
    """

    query_counts: QueryCounts  # of each class, by the last assignments
    double_sums = False  # whether sums over the queries come in float64

    def __init__(self, tasks: Tasks, likelihood: Likelihood, parameters: Parameters) -> None:
        self.known = tasks.known_labels  # [t, q] known labels, -1 for the others
        self.any_known = tasks.any_known
        self.likelihood = likelihood
        self.parameters = parameters
        self.n_query = tasks.n_query
        # [t, q] 0 for near-copies of other queries, which count nothing, else 1
        self.distinct = likelihood.counts.new_ones(1, 1).expand(self.known.shape)

    @property
    def known_classes(self) -> Tensor:
        """[t, k] whether a query is known to be of the class."""
        n_classes = self.likelihood.counts.shape[1]
        shape = (len(self.known), n_classes + 1)
        found = torch.zeros(shape, dtype=torch.bool, device=self.known.device)
        columns = self.known.remainder(n_classes + 1)
        return found.scatter_(1, columns, True)[:, :-1]  # -1 is the column that goes

    @abstractmethod
    def each(self, work: Callable[[Part], Any]) -> Any:
        """The sum of the work over all parts."""

    @abstractmethod
    def weigh(self, unknown: ProbabilityOfUnknown | None, distinct: Tensor | None) -> None:
        """Let queries count as much as they are members of classes, and near-copies once.

        ``unknown`` says how probable it is that queries are unknown; None: none is. ``distinct``
        [t, q] is 0 for near-copies of queries that count; None: there are none.
        """

    @abstractmethod
    def search(self, prior: Concentrations, *, with_terms: bool = False) -> Outcome:
        """Assign all queries, as if no label were known.

        ``with_terms``: whether the terms of the bound are recorded, of queries in memory.
        """

    @abstractmethod
    def fix(self, which: Tensor, prior: Concentrations) -> Outcome:
        """In these tasks [t], fix the assignments of queries with known labels, and search on."""

    @abstractmethod
    def resume(self, updated: Updated, query_counts: QueryCounts, prior: Concentrations) -> Outcome:
        """Search on with updated prototypes, in tasks with a fixed label.

        The search begins with the present assignments.
        """

    @abstractmethod
    def answers(
        self,
        answer: Callable[[Part], Answered],
        review: Callable[[Part, Answered], Tensor],
    ) -> BatchAnswers:
        """The answers for all queries.

        ``review`` makes review scores of them, where all are in memory.
        """


def sampling_stride(n_query: int) -> int:
    """The distance between the queries that are used where a few hundred are enough."""
    return ceil(n_query / _MOST_QUERIES)


class Sample(NamedTuple):
    """Some queries, and a value of each."""

    placed: Tensor  # [t, n, d] their coordinates
    values: Tensor  # [t, n, …]


def sample(
    queries: BatchQueries,
    stride: int,
    value: Callable[[Part], Tensor] = attrgetter("known"),
) -> Sample:
    """Every so many queries, with what ``value`` makes of them: their known labels.

    Stages that compare queries with each other need memory for pairs, and look at a sample: rows 0,
    stride, 2·stride, … of all queries, whatever the parts are.
    """
    placed, values = queries.each(partial(_take_rows, stride, value)).values
    return Sample(placed, values)


def _take_rows(stride: int, value: Callable[[Part], Tensor], part: Part) -> Joined:
    """The work that takes them."""
    sampled = part.every(stride)
    return Joined((sampled.coordinates, value(sampled)))


def excluded(log_likelihood: Tensor, labels: Tensor) -> Tensor:
    """[t, b, k] log-likelihoods that leave queries with a label [t, b] no other class; -1: none.

    The class has 0 and every other one ``EXCLUDED``, so that a softmax gives exactly 1 and 0, and a
    product with u = 0 is 0.
    """
    others = (1 - own_classes(labels, log_likelihood)) * EXCLUDED
    return torch.where((labels >= 0).unsqueeze(-1), others, log_likelihood)


class InMemory(BatchQueries):
    """The queries of many tasks, in memory: one part.

    ``u`` [t, q, k] are the assignments of the last search. Weights of queries that may be unknown
    are an expanded 1 until ``weigh`` is called, so that closed tasks multiply nothing.
    """

    def __init__(
        self,
        placed: Tensor,
        tasks: Tasks,
        likelihood: Likelihood,
        parameters: Parameters,
    ) -> None:
        super().__init__(tasks, likelihood, parameters)
        self.part = Part(
            placed=placed,
            first=0,
            known=self.known,
            fixed=torch.full_like(self.known, -1),
            unknown=placed.new_zeros(1, 1).expand(placed.shape[:2]),
            distinct=self.distinct,
            assign=lambda: self.u,
            likelihood=likelihood,
            any_known=self.any_known,
            any_fixed=False,
            any_unknown=False,
        )
        self.counted: Tensor | float = 1.0  # how much each query counts in the search
        self._take(placed[..., :0])  # no assignments before the search

    def each(self, work: Callable[[Part], Any]) -> Any:
        return work(self.part)

    def weigh(self, unknown: ProbabilityOfUnknown | None, distinct: Tensor | None) -> None:
        part = self.part
        if unknown is not None:
            part.unknown = unknown(part.coordinates, 0).masked_fill(part.known >= 0, 0)
            part.any_unknown = True
        if distinct is not None:
            self.distinct = distinct
            part.distinct = distinct
        self.counted = search_weights(part.unknown, part.distinct).unsqueeze(-1)

    def search(self, prior: Concentrations, *, with_terms: bool = False) -> Outcome:
        queries = Dense.of(self.part.log_likelihood, self.counted)
        if with_terms:
            found = anneal_and_iterate(queries, prior, self.parameters, with_terms=True)
        else:
            found = fused_search(queries, prior, self.parameters)
        self._take(found.queries.u)
        return found.outcome

    def fix(self, which: Tensor, prior: Concentrations) -> Outcome:
        part = self.part
        part.fixed = self.known.masked_fill(~which.unsqueeze(-1), -1)
        part.any_fixed = True
        own = own_classes(part.fixed, self.u)
        self._take(torch.where(part.free > 0, self.u, own))
        return self._resumed(part.log_likelihood, self.query_counts, prior)

    def resume(self, updated: Updated, query_counts: QueryCounts, prior: Concentrations) -> Outcome:
        part = self.part
        log_likelihood = updated(part.placed, self.u, part.free, part.log_likelihood)
        return self._resumed(log_likelihood, query_counts, prior)

    def _resumed(
        self,
        log_likelihood: Tensor,
        query_counts: QueryCounts,
        prior: Concentrations,
    ) -> Outcome:
        """Search on with other log-likelihoods [t, q, k], in tasks with a fixed label."""
        fixed = self.part.fixed
        queries = Dense.of(excluded(log_likelihood, fixed), self.counted)
        queries = replace(queries, u=self.u.clone())
        found = resume(queries, query_counts, prior, self.parameters)
        has_fixed = (fixed >= 0).any(1)  # the others keep what was found
        self._take(torch.where(has_fixed.view(-1, 1, 1), found.queries.u, self.u))
        return replace(found.outcome, n_iter=found.outcome.n_iter * has_fixed)

    def answers(
        self,
        answer: Callable[[Part], Answered],
        review: Callable[[Part, Answered], Tensor],
    ) -> BatchAnswers:
        part = self.part
        found = answer(part)
        return BatchAnswers(
            probabilities=found.probabilities,
            unknown=found.unknown,
            groups=found.groups,
            make_review_scores=lambda: review(part, found),
        )

    def _take(self, u: Tensor) -> None:
        """Take over the assignments [t, q, k] of a search."""
        self.u = u
        self.query_counts = QueryCounts.of(u, remainders(u))
