"""Likelihoods and assignments in memory, as the search loop updates them (``loop.SearchState``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core.kernels import fused
from manyway.core.parallel import LARGE, side_by_side
from manyway.methods.evidence.loop import Ended, Outcome, Update, anneal_and_iterate
from manyway.methods.evidence.prior import (
    Concentrations,
    QueryCounts,
    Slopes,
    log_remainders,
    remainders,
)
from manyway.methods.evidence.schedule import Parameters

# Assignments that are worked on at once where there are many; a few such arrays fit into a cache.
_PIECE = 2**19
# Assignments above this are updated every time, where there are many (``LikelyAssignments``): 1e-4
# changes answers.
_MATTERS = 1e-5

# From log-likelihoods and assignments [t, b, k] of some queries to their new assignments.
Assign = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False, kw_only=True)
class LikelyAssignments:
    """The n assignments of one large task that matter. The others rest until all are updated again.

    A query has a handful of likely classes among thousands. The weight
    exp(ψ ℓ + slope + entry_cost/(1 − u)) of the other classes hardly changes from one update to the
    next, so that their total per query is kept.

    ``manyway.methods.evidence.block_update.Idle`` is the same idea for a pile, whose likelihoods are
    not kept: there whole classes rest, so that they need not be computed again. Neither can do the
    other's work, and both pay: scores of 10,000 items for 2,000 classes take 8 instead of 13 s, and
    30,000 queries of 50 among 2,000 classes with 256 features, read in blocks, 23 instead of 33 s;
    with all classes present neither gains.
    """

    places: Tensor  # [n] query·K + class
    query: Tensor  # [n]
    classes: Tensor  # [n]
    log_likelihood: Tensor  # [n] ℓ
    base: Tensor  # [n] minus ln of the total weight of the query in the last update of all
    counted: Tensor  # [n] how much the query counts
    u: Tensor  # [n]
    rest: Tensor  # [q] the part of that total that rests
    masses: Tensor  # [k] Σ_q u of what rests
    alpha: float  # of the last update of all; idle classes gain or lose where it changes
    left: int  # how many more updates it may rest

    def updated(self, slopes: Slopes, sharpness: float) -> tuple[LikelyAssignments, Update]:
        """The same after an update."""
        scores = _scores(self.log_likelihood, slopes, self.classes, self.u, sharpness)
        weights = (self.base + scores).exp_()
        total = self.rest.index_add(0, self.query, weights)
        u = weights.div_(total[self.query]).mul_(self.counted)
        masses = self.masses.index_add(0, self.classes, u)
        # ln(1 − u) of small u is −u.
        log_absent = (-self.masses).index_add_(0, self.classes, log_remainders(u))
        query_counts = QueryCounts.of_products(masses[None], log_absent.exp_()[None])
        moved = (u - self.u).abs_().amax()[None]
        return replace(self, u=u, left=self.left - 1), Update(query_counts, moved)


def _scores(
    log_likelihood: Tensor,
    slopes: Slopes,
    classes: Tensor,
    u: Tensor,
    sharpness: float,
) -> Tensor:
    """[n] ψ ℓ + slope + entry_cost/(1 − u) of assignments [n] to classes [n]."""
    scores = sharpness * log_likelihood + slopes.slope[0, classes]
    return torch.addcdiv(scores, slopes.entry_cost[0, classes], remainders(u))


class _Assignment(NamedTuple):
    """What an update of all assignments, or of those of some queries, returns."""

    masses: Tensor  # [t, k] Σ u
    absent: Tensor  # [t, k] Π (1 − u)
    moved: Tensor  # [t] the largest change; without meaning where `tol` is 0
    places: Tensor  # [n] query·K + class of the assignments that matter, where they are asked for
    before: Tensor  # [n] what these were before

    @property
    def update(self) -> Update:
        return Update(QueryCounts.of_products(self.masses, self.absent), self.moved)

    @staticmethod
    def joined(parts: Sequence[_Assignment]) -> _Assignment:
        """Of all queries, from those of consecutive ones."""
        first, *others = parts
        return _Assignment(
            masses=sum((one.masses for one in others), first.masses),
            absent=prod((one.absent for one in others), start=first.absent),
            moved=torch.stack([one.moved for one in parts]).amax(0),
            places=torch.cat([one.places for one in parts]),
            before=torch.cat([one.before for one in parts]),
        )


@dataclass(eq=False, kw_only=True)
class Dense:
    """Likelihoods and assignments of all tasks, in memory.

    A query may count less than one (``counted``): it is then assigned in part,
    Σ_k u_qk = counted_q. Queries that are probably unknown hardly enter the counts of classes in
    this way.
    """

    log_likelihood: Tensor  # [t, q, k] ℓ
    counted: Tensor  # [t, q, 1] how much each query counts
    u: Tensor  # [t, q, k]
    likely: LikelyAssignments | None = None  # those that are updated while the others rest

    @staticmethod
    def of(log_likelihood: Tensor, counted: Tensor | float = 1.0) -> Dense:
        """Queries that ``begin`` has yet to assign; until then ``u`` means nothing."""
        dtype = log_likelihood.dtype
        weights = torch.as_tensor(counted, dtype=dtype, device=log_likelihood.device)
        return Dense(
            log_likelihood=log_likelihood,
            counted=weights.expand(*log_likelihood.shape[:2], 1),
            u=torch.empty_like(log_likelihood),
        )

    def begin(self, sharpness: float) -> QueryCounts:
        first = self._assign(lambda likelihood, u: (likelihood * sharpness).softmax(-1))
        return first.update.query_counts

    def update(
        self,
        slopes: Slopes,
        sharpness: float,
        ahead: Sequence[float] = (),
        tol: float = 0.0,
    ) -> Update:
        """Assign again.

        Of one large task, likely assignments may be updated several times before all are.
        """
        likely = self.likely
        if likely is not None and likely.left and likely.alpha == float(slopes.alpha):
            later, update = likely.updated(slopes, sharpness)
            if float(update.moved) >= tol:
                self.likely = later
                return update
        self._end_likely()

        def assign(log_likelihood: Tensor, u: Tensor) -> Tensor:
            scores = log_likelihood if sharpness == 1 else log_likelihood * sharpness
            return slopes.add_to(scores, remainders(u)).softmax(-1)

        of_all = self._assign(assign, tol, bool(ahead))
        if len(of_all.places):
            self.likely = self._likely(of_all, slopes, sharpness, len(ahead))
        return of_all.update

    def _likely(
        self,
        found: _Assignment,
        slopes: Slopes,
        sharpness: float,
        n_updates: int,
    ) -> LikelyAssignments:
        """After an update of all: the assignments with which so many updates may go on."""
        places = found.places
        n_classes = self.u.shape[-1]
        query = places.div(n_classes, rounding_mode="floor")
        classes = places % n_classes
        log_likelihood = self.log_likelihood.view(-1)[places]
        u = self.u.view(-1)[places]
        counted = self.counted[0, query, 0]
        parts = u / counted
        scores = _scores(log_likelihood, slopes, classes, found.before, sharpness)
        rest = torch.ones_like(self.u[0, :, 0]).index_add_(0, query, parts, alpha=-1)
        masses = found.masses[0].index_add(0, classes, u, alpha=-1)
        return LikelyAssignments(
            places=places,
            query=query,
            classes=classes,
            log_likelihood=log_likelihood,
            base=parts.log() - scores,
            counted=counted,
            u=u,
            rest=rest.clamp_min_(0),
            masses=masses.clamp_min_(0),
            alpha=float(slopes.alpha),
            left=n_updates,
        )

    def select(self, which: Tensor) -> Dense:
        return Dense(
            log_likelihood=self.log_likelihood[which],
            counted=self.counted[which],
            u=self.u[which],
        )

    def replace(self, which: Tensor, other: Dense) -> None:
        self.u[which] = other.u

    def sharpened(self, sharpness: Tensor) -> Dense:
        if bool((sharpness == 1).all()):
            return self
        self._end_likely()
        return replace(self, log_likelihood=self.log_likelihood * sharpness.view(-1, 1, 1))

    def _write_likely(self) -> None:
        """Put the likely assignments that were updated back among all. They may still be updated."""
        if self.likely is not None:
            self.u.view(-1)[self.likely.places] = self.likely.u

    def _end_likely(self) -> None:
        """Update all assignments again from now on."""
        self._write_likely()
        self.likely = None

    def terms(self) -> Tensor:
        """[2, t] the terms of the bound that depend on the queries.

        They are fit and entropy, of what counts.

        Σ_qk u_qk ψ ℓ_qk   and   −Σ_q w_q Σ_k (u_qk/w_q) ln (u_qk/w_q),   w the weight of a query.

        ψ is the sharpness of the iterations (``Schedule.sharpness``), which all of them share; 1
        without annealing.
        """
        self._write_likely()
        fit = (self.u * self.log_likelihood).sum((1, 2))
        share = self.u / self.counted.clamp_min(torch.finfo(self.u.dtype).tiny)
        entropy = -(self.counted * torch.xlogy(share, share)).sum((1, 2))
        return torch.stack([fit, entropy])

    def _assign(self, assign: Assign, tol: float = 0.0, keep: bool = False) -> _Assignment:
        """Take over the assignments that ``assign`` makes.

        Large arrays are gone through in pieces of few queries, which stay in the cache of a core.
        With ``keep``, the places of the assignments of one large task that matter, and what they
        were before, are also returned.
        """
        weighted = self.counted.stride() != (0, 0, 0)  # an expanded number: every query counts one
        n_query = self.u.shape[1]
        per_query = self.u[:, :1].numel()
        small = self.u.is_cuda or self.u.numel() < LARGE
        step = n_query if small else max(1, _PIECE // per_query)
        above = _MATTERS if keep and not small and len(self.u) == 1 else inf

        def work(first: int) -> _Assignment:
            rows = slice(first, first + step)
            before = self.u[:, rows]
            u = assign(self.log_likelihood[:, rows], before)
            if weighted:
                u.mul_(self.counted[:, rows])
            masses = u.sum(1)
            moved = (u - before).abs_().amax((1, 2)) if tol else masses
            places = moved.new_zeros(0, dtype=torch.int64)
            if above < 1:
                places = (u > above).view(-1).nonzero().squeeze(1)
            were = before.reshape(-1)[places]
            if small:
                self.u = u
            else:
                before.copy_(u)
            return _Assignment(
                masses=masses,
                absent=remainders(u).prod(1),
                moved=moved,
                places=places + first * per_query,
                before=were,
            )

        return _Assignment.joined(list(side_by_side(work, range(0, n_query, step))))


def fused_search(queries: Dense, prior: Concentrations, parameters: Parameters) -> Ended[Dense]:
    """``anneal_and_iterate``, by the compiled kernel where there is one for these tensors.

    The kernel needs float32 on a GPU, queries that count one each, and a task that fits into one
    program. Tasks with queries that count less are searched once more, by the loop.
    """
    log_likelihood = queries.log_likelihood
    n_tasks, n_query, n_classes = log_likelihood.shape
    single = log_likelihood.dtype == torch.float32
    if not fused(log_likelihood) or not single:
        return anneal_and_iterate(queries, prior, parameters)
    from manyway.methods.evidence import kernel

    weighted = _weighted_tasks(queries, prior)
    fits = n_classes <= kernel.MAX_CLASSES and n_query * n_classes <= kernel.MAX_PAIRS
    if not fits or len(weighted) == n_tasks:
        return anneal_and_iterate(queries, prior, parameters)
    found = kernel.search(log_likelihood, prior.values, prior.normaliser, parameters)
    queries = replace(queries, u=found.assignments)
    n_iter = found.n_iter
    converged = found.converged
    if len(weighted):
        again = anneal_and_iterate(queries.select(weighted), prior, parameters)
        queries.replace(weighted, again.queries)
        n_iter = n_iter.index_copy(0, weighted, again.outcome.n_iter.to(n_iter))
        converged = converged.index_copy(0, weighted, again.outcome.converged.to(converged))
    return Ended(queries=queries, outcome=Outcome(n_iter=n_iter, converged=converged))


def _weighted_tasks(queries: Dense, prior: Concentrations) -> Tensor:
    """[m] the tasks with queries that count less than one."""
    if not prior.weighted:
        return torch.zeros(0, dtype=torch.int64, device=queries.u.device)
    return (queries.counted != 1).flatten(1).any(1).nonzero().squeeze(1)
