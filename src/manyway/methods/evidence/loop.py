"""The one search loop of evidence: annealing, then updates until nothing moves.

An update sets the derivative of the bound (``search``) to zero for all queries at once, with the
slopes of the assignments before it:

    u_qk = softmax_k(ψ ℓ_qk + φ'(c_k) + entry_cost_k / (1 − u_qk)).

ψ is the sharpness. The bound has many local maxima: begun with ψ = 1, a search ends in one near the
nearest prototypes. *Annealing* begins with a small ψ, where queries agree on common classes before
each is certain of its own, and raises it to 1 in a fixed number of updates. Where the queries then
still agree on little, many classes occur, and the iterations use ψ > 1 (``schedule`` has the
constants). Prototypes do not move during the search.

The loop sees the queries only through ``SearchState``: an update computes new assignments and
returns what the prior needs to know about them. ``dense.Dense`` holds likelihoods and assignments
of many tasks in memory. ``blocks.InBlocks`` reads the queries of one task in blocks, on one machine
or on Dask. ``kernel.search`` is a compiled copy of this loop for GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from manyway.core import Recorder, all_running
from manyway.methods.evidence.prior import Concentrations, QueryCounts, Slopes
from manyway.methods.evidence.schedule import Parameters


class Update(NamedTuple):
    """What an update of the assignments returns."""

    query_counts: QueryCounts
    moved: Tensor  # [t] the largest change of an assignment; without meaning where `tol` is 0


class SearchState(Protocol):
    """The queries of some tasks with their likelihoods and assignments, as the loop updates them.

    ``dense.Dense`` and ``blocks.InBlocks`` are the two kinds. ``queries.BatchQueries`` is what the
    other stages see of the queries.
    """

    def begin(self, sharpness: float) -> QueryCounts:
        """Assign every query by its likelihoods alone, multiplied by the sharpness."""

    def update(
        self,
        slopes: Slopes,
        sharpness: float,
        ahead: Sequence[float] = (),
        tol: float = 0.0,
    ) -> Update:
        """Assign again, given the slopes of the prior.

        ``ahead`` is the sharpness of the next updates, as far as it is known. The caller stops when
        nothing moves by ``tol``; 0: it does not stop.
        """

    def select(self: Q, which: Tensor) -> Q:
        """The queries of some tasks, as a copy."""

    def replace(self: Q, which: Tensor, other: Q) -> None:
        """Take over the assignments of those tasks."""

    def sharpened(self: Q, sharpness: Tensor) -> Q:
        """The same queries with likelihoods multiplied by a number per task [t]."""

    def terms(self) -> Tensor:
        """[2, t] the terms of the bound that depend on the queries."""


Q = TypeVar("Q", bound=SearchState)
_AHEAD = 10  # how many updates of the annealing ``SearchState.update`` is told in advance
_FAR = 1000  # and how many of all: so a huge limit of iterations costs no memory


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome:
    """What a search says about itself."""

    n_iter: Tensor  # [t] iterations, without the annealing
    converged: Tensor  # [t]
    # [t, i] the terms of the bound after each iteration, where they were recorded
    terms: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, kw_only=True)
class Ended(Generic[Q]):
    """A search that has ended: the queries with their last assignments, and its outcome."""

    queries: Q
    outcome: Outcome


def anneal_and_iterate(
    queries: Q,
    prior: Concentrations,
    parameters: Parameters,
    *,
    with_terms: bool = False,
) -> Ended[Q]:
    """Anneal, then iterate until no assignment moves by ``tol``.

    Every task follows the same rule on its own, so a batch gives the same answers as its tasks one
    by one.

    Parameters
    ----------
    queries : SearchState
        They are changed: afterwards they have the last assignments.
    prior : Concentrations
    parameters : Parameters
        ``max_iter``, the largest number of iterations after annealing, and ``tol``: a task has
        converged when no u changes by as much in an iteration. Of its constants, ``anneal_from``
        and ``anneal_steps`` (the sharpness rises geometrically), and the sharpness of the
        iterations.
    with_terms : bool, default=False
        Whether to record the terms of the bound after each iteration.

    Returns
    -------
    Ended
    """
    schedule = parameters.constants
    query_counts = queries.begin(schedule.anneal_from)
    annealing = schedule.annealing
    for number, sharpness in enumerate(annealing, 1):  # convergence is not checked during annealing
        ahead = _ahead(annealing[number:], parameters.max_iter)
        query_counts = queries.update(prior.slopes(query_counts), sharpness, ahead).query_counts
    if annealing:
        queries = queries.sharpened(schedule.sharpness(query_counts.masses))
    return _iterate(queries, query_counts, prior, parameters, with_terms=with_terms)


def _ahead(annealing: list[float], max_iter: int) -> Sequence[float]:
    """The sharpness of the next updates: the rest of the annealing, and the iterations after it."""
    if len(annealing) > _AHEAD:
        return annealing[:_AHEAD]
    return (*annealing, *(1.0,) * min(max_iter - 1, _FAR))


def resume(
    queries: Q,
    query_counts: QueryCounts,
    prior: Concentrations,
    parameters: Parameters,
) -> Ended[Q]:
    """Iterate from assignments that an earlier search has found, with other likelihoods.

    There is no annealing: the groups are those of the earlier search, and so are ``query_counts``.
    """
    sharpness = parameters.constants.sharpness(query_counts.masses)
    return _iterate(queries.sharpened(sharpness), query_counts, prior, parameters)


def _iterate(
    queries: Q,
    query_counts: QueryCounts,
    prior: Concentrations,
    parameters: Parameters,
    *,
    with_terms: bool = False,
) -> Ended[Q]:
    """Updates until nothing moves. A task that has converged takes no further part.

    The tasks that still run are copied out (``SearchState.select``) whenever some have converged,
    and written back at the end (``SearchState.replace``), so that few slow tasks do not cost as
    much as all.
    """
    running = queries
    max_iter = parameters.max_iter
    masses = query_counts.masses
    alive, n_iter, converged = all_running(len(masses), max_iter, masses.device)
    # After each iteration; a task that has converged repeats its last.
    terms = Recorder(("fit", "entropy", "prior"))
    for iteration in range(max_iter):
        ahead = (1.0,) * min(max_iter - iteration - 2, _FAR)
        query_counts, moved = running.update(prior.slopes(query_counts), 1.0, ahead, parameters.tol)
        if with_terms:
            log_prior = prior.log_prior(query_counts).amax(-1)
            terms.add(torch.cat([running.terms(), log_prior[None]]), alive)
        done = moved < parameters.tol
        if bool(done.any()):
            n_iter[alive[done]] = iteration + 1
            converged[alive[done]] = True
            if bool(done.all()):
                break
            if running is not queries:
                queries.replace(alive[done], running.select(done))
            alive = alive[~done]
            running = running.select(~done)
            query_counts = query_counts[~done]
    if running is not queries:
        queries.replace(alive, running)
    outcome = Outcome(n_iter=n_iter, converged=converged, terms=terms.parts)
    return Ended(queries=queries, outcome=outcome)
