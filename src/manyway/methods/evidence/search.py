"""Which classes are present, given the log-likelihoods of the queries: the one search loop of evidence.

The search raises a lower bound on the evidence,

    ln p(queries | support) ≥ Σ_qk u_qk ℓ_qk − Σ_qk u_qk ln u_qk + Σ_k (1 − p⁰_k) φ(c_k) + ln Γ(Kα)/Γ(|Q|+Kα),

over the assignments u of the queries to classes and over α (``prior`` has the symbols). An update sets the derivative
to zero for all queries at once, with the slopes of the assignments before it:

    u_qk = softmax_k(s ℓ_qk + φ'(c_k) + entry_cost_k / (1 − u_qk)).

s is the sharpness. The bound has many local maxima: begun with s = 1, a search ends in one near the nearest
prototypes. *Annealing* begins with a small s, where queries agree on common classes before each is certain of its own,
and raises it to 1 in a fixed number of updates. Where the queries then still agree on little, many classes occur, and
the iterations use s > 1 (``schedule`` has the constants). Prototypes do not move during the search.

The loop sees the queries only through ``Queries``: an update computes new assignments and returns what the prior needs
to know about them. ``Dense`` holds likelihoods and assignments of many tasks in memory. ``InBlocks`` reads the queries
of one task in blocks, on one machine or on Dask. ``kernel.search`` is a compiled copy of this loop for GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from manyway.core import Recorder, all_running
from manyway.core.kernels import fused
from manyway.core.parallel import LARGE, side_by_side
from manyway.methods.evidence.prior import Concentrations, Presence, Slopes, log_remainders, remainders
from manyway.methods.evidence.schedule import Parameters


class Update(NamedTuple):
    """What an update of the assignments returns."""

    presence: Presence
    moved: Tensor  # [t] the largest change of an assignment; without meaning where `tol` is 0


class Queries(Protocol):
    """The queries of some tasks, with their assignments to classes, as the search loop updates them.

    ``Dense`` and ``manyway.methods.evidence.blocks.InBlocks`` are the two kinds.
    """

    def begin(self, sharpness: float) -> Presence:
        """Assign every query by its likelihoods alone, multiplied by the sharpness."""

    def update(self, slopes: Slopes, sharpness: float, ahead: Sequence[float] = (), tol: float = 0.0) -> Update:
        """Assign again, given the slopes of the prior.

        ``ahead`` is the sharpness of the next updates, as far as it is known. The caller stops when nothing moves by
        ``tol``; 0: it does not stop.
        """

    def select(self: Q, which: Tensor) -> Q:
        """The queries of some tasks, as a copy."""

    def replace(self: Q, which: Tensor, other: Q) -> None:
        """Take over the assignments of those tasks."""

    def sharpened(self: Q, sharpness: Tensor) -> Q:
        """The same queries with likelihoods multiplied by a number per task [t]."""

    def terms(self) -> Tensor:
        """[2, t] the terms of the bound that depend on the queries."""


Q = TypeVar("Q", bound=Queries)
_AHEAD = 10  # how many updates of the annealing ``Queries.update`` is told in advance
_FAR = 1000  # and how many of all: so a huge limit of iterations costs no memory
_PIECE = 2**19  # assignments that are worked on at once where there are many; a few such arrays fit into a cache
_MATTERS = 1e-5  # assignments above this are updated every time, where there are many (``Few``): 1e-4 changes answers


@dataclass(frozen=True, eq=False)
class Found(Generic[Q]):
    """The outcome of a search."""

    queries: Q  # with their last assignments
    n_iter: Tensor  # [t] iterations, without the annealing
    converged: Tensor  # [t]
    terms: Mapping[str, Tensor] = field(default_factory=dict)  # [t, i] after each iteration, where they were recorded


def search(queries: Q, prior: Concentrations, parameters: Parameters, *, with_terms: bool = False) -> Found[Q]:
    """Anneal, then iterate until no assignment moves by ``tol``.

    Every task follows the same rule on its own, so a batch gives the same answers as its tasks one by one.

    Parameters
    ----------
    queries : Queries
        They are changed: afterwards they have the last assignments.
    prior : Concentrations
    parameters : Parameters
        ``max_iter``, the largest number of iterations after annealing, and ``tol``: a task has converged when no u
        changes by as much in an iteration. Of its constants, ``anneal_from`` and ``anneal_steps`` (the sharpness rises
        geometrically), and the sharpness of the iterations.
    with_terms : bool, default=False
        Whether to record the terms of the bound after each iteration.

    Returns
    -------
    Found
    """
    schedule = parameters.constants
    presence, annealing = queries.begin(schedule.anneal_from), schedule.annealing
    for number, sharpness in enumerate(annealing, 1):  # convergence is not checked during annealing
        rest = annealing[number:]
        ahead = rest[:_AHEAD] if len(rest) > _AHEAD else (*rest, *(1.0,) * min(parameters.max_iter - 1, _FAR))
        presence = queries.update(prior.slopes(presence), sharpness, ahead).presence
    if annealing:
        queries = queries.sharpened(schedule.sharpness(presence.masses))
    return _iterate(queries, presence, prior, parameters, with_terms=with_terms)


def resume(queries: Q, presence: Presence, prior: Concentrations, parameters: Parameters) -> Found[Q]:
    """Iterate from assignments that an earlier search has found, with other likelihoods.

    There is no annealing: the groups are those of the earlier search. ``presence`` is what its assignments say.
    """
    sharpness = parameters.constants.sharpness(presence.masses)
    return _iterate(queries.sharpened(sharpness), presence, prior, parameters)


def _iterate(
    queries: Q, presence: Presence, prior: Concentrations, parameters: Parameters, *, with_terms: bool = False
) -> Found[Q]:
    """Updates until nothing moves. A task that has converged takes no further part.

    The tasks that still run are copied out (``Queries.select``) whenever some have converged, and written back at the
    end (``Queries.replace``), so that few slow tasks do not cost as much as all.
    """
    running, max_iter = queries, parameters.max_iter
    alive, n_iter, converged = all_running(len(presence.masses), max_iter, presence.masses.device)
    terms = Recorder(("fit", "entropy", "prior"))  # after each iteration; a task that has converged repeats its last
    for iteration in range(max_iter):
        ahead = (1.0,) * min(max_iter - iteration - 2, _FAR)
        presence, moved = running.update(prior.slopes(presence), 1.0, ahead, parameters.tol)
        if with_terms:
            terms.add(torch.cat([running.terms(), prior.log_prior(presence).amax(-1)[None]]), alive)
        done = moved < parameters.tol
        if bool(done.any()):
            n_iter[alive[done]], converged[alive[done]] = iteration + 1, True
            if bool(done.all()):
                break
            if running is not queries:
                queries.replace(alive[done], running.select(done))
            alive, running, presence = alive[~done], running.select(~done), presence[~done]
    if running is not queries:
        queries.replace(alive, running)
    return Found(queries, n_iter, converged, terms.parts)


@dataclass(frozen=True, eq=False)
class Few:
    """The n assignments of one large task that matter. The others rest until all are updated again.

    A query has a handful of likely classes among thousands. The weight exp(s ℓ + slope + entry_cost/(1 − u)) of the
    other classes hardly changes from one update to the next, so that their total per query is kept.

    ``manyway.methods.evidence.blocks.Idle`` is the same idea for a pile, whose likelihoods are not kept: there whole
    classes rest, so that they need not be computed again. Neither can do the other's work, and both pay: scores of
    10,000 items for 2,000 classes take 8 instead of 13 s, and 30,000 queries of 50 among 2,000 classes with 256
    features, read in blocks, 23 instead of 33 s; with all classes present neither gains.
    """

    places: Tensor  # [n] query·K + class
    query: Tensor  # [n]
    classes: Tensor  # [n]
    likelihood: Tensor  # [n] ℓ
    base: Tensor  # [n] minus ln of the total weight of the query in the last update of all
    counted: Tensor  # [n] how much the query counts
    u: Tensor  # [n]
    rest: Tensor  # [q] the part of that total that rests
    masses: Tensor  # [k] Σ_q u of what rests
    alpha: float  # of the last update of all; idle classes gain or lose where it changes
    left: int  # how many more updates it may rest

    @staticmethod
    def of(places: Tensor, before: Tensor, queries: Dense, presence: Presence, slopes: Slopes, s: float, n: int) -> Few:
        """After an update of all: assignments that were ``before`` [n], with which n updates may go on."""
        n_classes = queries.u.shape[-1]
        query, classes = places.div(n_classes, rounding_mode="floor"), places % n_classes
        likelihood, u = (one.view(-1)[places] for one in (queries.likelihood, queries.u))
        counted = queries.counted[0, query, 0]
        base = (u / counted).log() - _scores(likelihood, slopes, classes, before, s)
        rest = torch.ones_like(queries.u[0, :, 0]).index_add_(0, query, u / counted, alpha=-1).clamp_min_(0)
        masses = presence.masses[0].index_add(0, classes, u, alpha=-1).clamp_min_(0)
        return Few(places, query, classes, likelihood, base, counted, u, rest, masses, float(slopes.alpha), n)

    def updated(self, slopes: Slopes, s: float) -> tuple[Few, Update]:
        """The same after an update."""
        weights = (self.base + _scores(self.likelihood, slopes, self.classes, self.u, s)).exp_()
        u = weights.div_(self.rest.index_add(0, self.query, weights)[self.query]).mul_(self.counted)
        masses = self.masses.index_add(0, self.classes, u)
        log_absent = (-self.masses).index_add_(0, self.classes, log_remainders(u))  # ln(1 − u) of small u is −u
        presence = Presence.of_products(masses[None], log_absent.exp_()[None])
        return replace(self, u=u, left=self.left - 1), Update(presence, (u - self.u).abs_().amax()[None])


def _scores(likelihood: Tensor, slopes: Slopes, classes: Tensor, u: Tensor, sharpness: float) -> Tensor:
    """[n] s ℓ + slope + entry_cost/(1 − u) of assignments [n] to classes [n]."""
    scores = sharpness * likelihood + slopes.slope[0, classes]
    return torch.addcdiv(scores, slopes.entry_cost[0, classes], remainders(u))


@dataclass(eq=False)
class Dense:
    """Likelihoods and assignments of all tasks, in memory.

    A query may count less than one (``counted``): it is then assigned in part, Σ_k u_qk = counted_q. Queries that are
    probably unknown hardly enter the counts of classes in this way.
    """

    likelihood: Tensor  # [t, q, k] ℓ
    counted: Tensor  # [t, q, 1] how much each query counts
    u: Tensor  # [t, q, k]
    few: tuple[Few, ...] = ()  # at most one: those that are updated while the others rest

    @staticmethod
    def of(likelihood: Tensor, counted: Tensor | float = 1.0) -> Dense:
        """Queries that ``begin`` has yet to assign; until then ``u`` means nothing."""
        weights = torch.as_tensor(counted, dtype=likelihood.dtype, device=likelihood.device)
        return Dense(likelihood, weights.expand(*likelihood.shape[:2], 1), torch.empty_like(likelihood))

    def begin(self, sharpness: float) -> Presence:
        return self._assign(lambda likelihood, u: (likelihood * sharpness).softmax(-1))[0].presence

    def update(self, slopes: Slopes, sharpness: float, ahead: Sequence[float] = (), tol: float = 0.0) -> Update:
        """Assign again. Of one large task, few assignments may be updated several times before all are."""
        for few in self.few:
            if few.left and few.alpha == float(slopes.alpha):
                later, found = few.updated(slopes, sharpness)
                if float(found.moved) >= tol:
                    self.few = (later,)
                    return found
        self._write_few()

        def assigned(likelihood: Tensor, u: Tensor) -> Tensor:
            scores = likelihood if sharpness == 1 else likelihood * sharpness
            return slopes.add_to(scores, remainders(u)).softmax(-1)

        found, kept, before = self._assign(assigned, tol, bool(ahead))
        self.few = (Few.of(kept, before, self, found.presence, slopes, sharpness, len(ahead)),) if len(kept) else ()
        return found

    def select(self, which: Tensor) -> Dense:
        return Dense(self.likelihood[which], self.counted[which], self.u[which])

    def replace(self, which: Tensor, other: Dense) -> None:
        self.u[which] = other.u

    def sharpened(self, sharpness: Tensor) -> Dense:
        if bool((sharpness == 1).all()):
            return self
        self._write_few()
        return replace(self, likelihood=self.likelihood * sharpness.view(-1, 1, 1))

    def _write_few(self) -> None:
        """Put the few assignments that were updated back among all."""
        for few in self.few:
            self.u.view(-1)[few.places] = few.u
        self.few = ()

    def terms(self) -> Tensor:
        """[2, t] the terms of the bound that depend on the queries: fit and entropy, of what counts.

        Σ_qk u_qk ℓ_qk   and   −Σ_q w_q Σ_k (u_qk/w_q) ln (u_qk/w_q),   w the weight of a query.
        """
        fit = (self.u * self.likelihood).sum((1, 2))
        share = self.u / self.counted.clamp_min(torch.finfo(self.u.dtype).tiny)
        return torch.stack([fit, -(self.counted * torch.xlogy(share, share)).sum((1, 2))])

    def _assign(
        self, assigned: Callable[[Tensor, Tensor], Tensor], tol: float = 0.0, keep: bool = False
    ) -> tuple[Update, Tensor, Tensor]:
        """Take over the assignments that ``assigned`` makes of the likelihoods and assignments of some queries.

        Large arrays are gone through in pieces of few queries, which stay in the cache of a core. With ``keep``, the
        places of the assignments of one large task that matter, and what they were before, are also returned.
        """
        weighted = self.counted.stride() != (0, 0, 0)  # an expanded number says that every query counts one
        n_query, per_query = self.u.shape[1], self.u[:, :1].numel()
        small = self.u.is_cuda or self.u.numel() < LARGE
        step = n_query if small else max(1, _PIECE // per_query)
        above = _MATTERS if keep and not small and len(self.u) == 1 else inf

        def work(first: int) -> tuple[Tensor, ...]:
            rows = slice(first, first + step)
            before = self.u[:, rows]
            u = assigned(self.likelihood[:, rows], before)
            if weighted:
                u.mul_(self.counted[:, rows])
            masses = u.sum(1)
            moved = (u - before).abs_().amax((1, 2)) if tol else masses
            kept = (u > above).view(-1).nonzero().squeeze(1) if above < 1 else moved.new_zeros(0, dtype=torch.int64)
            was = before.reshape(-1)[kept]
            if small:
                self.u = u
            else:
                before.copy_(u)
            return masses, remainders(u).prod(1), moved, kept + first * per_query, was

        masses, absent, moved, kept, was = zip(*side_by_side(work, range(0, n_query, step)), strict=True)
        presence = Presence.of_products(sum(masses[1:], masses[0]), prod(absent[1:], start=absent[0]))
        return Update(presence, torch.stack(moved).amax(0)), torch.cat(kept), torch.cat(was)


def fused_search(queries: Dense, prior: Concentrations, parameters: Parameters) -> Found[Dense]:
    """The same as ``search``, by the compiled kernel where there is one for these tensors.

    The kernel needs float32 on a GPU, queries that count one each, and a task that fits into one program.
    """
    likelihood = queries.likelihood
    _, n_query, n_classes = likelihood.shape
    if fused(likelihood) and likelihood.dtype == torch.float32 and not prior.weighted:
        from manyway.methods.evidence import kernel

        if n_classes <= kernel.MAX_CLASSES and n_query * n_classes <= kernel.MAX_PAIRS:
            u, n_iter, converged = kernel.search(likelihood, prior.values, prior.normaliser, parameters)
            return Found(replace(queries, u=u), n_iter, converged)
    return search(queries, prior, parameters)
