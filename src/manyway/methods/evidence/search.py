"""Which classes occur, given the log-likelihoods of the queries: the search of evidence, and what comes after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core.kernels import fused
from manyway.core.solution import Solution
from manyway.errors import InputError
from manyway.methods.evidence.groups import SCATTERED, agreement, identities, named, scattered, worth
from manyway.methods.evidence.prior import Alphas, Presence, remainders

_START_STEPS = 15
HOT_STEPS, HOT = 10, 2.0
_AGREED = 2 / 3  # where queries agree less than that,
_SHARPER = 1.5  # times ℓ is what the search goes on with


@dataclass(frozen=True)
class Options:
    """How to search; what each means is said in ``manyway.methods.evidence.solver``."""

    concentration: float | None = None
    soften: float = 0.35
    identity: bool = True
    merge: bool = True
    max_iter: int = 50
    tol: float = 1e-2
    with_objective: bool = False

    def __post_init__(self) -> None:
        check_search(self.concentration, self.soften, self.max_iter)


def find_classes(
    likelihood: Tensor, counts: Tensor, options: Options, moved_by: Callable[[Tensor], Tensor] | None = None
) -> tuple[Solution, Tensor]:
    """The solution, and what the queries are worth as samples [t, q, k]; ``moved_by`` makes of it new likelihoods."""
    _, n_query, n_classes = likelihood.shape
    alphas = Alphas.of(options.concentration, n_query, n_classes, likelihood.dtype, likelihood.device)
    everything = Search(likelihood, alphas)
    answer, n_iter, converged, parts = everything.fused_run(options) or everything.run(options)
    rest = remainders(answer)
    presence = Presence.of(answer, rest)
    alpha = alphas.best(presence)
    weights = answer * worth(presence.masses).unsqueeze(1)
    scores = likelihood if moved_by is None else moved_by(weights)
    settled = presence.add_slopes(scores, rest, alpha).softmax(-1)

    def groups() -> tuple[Tensor, Tensor]:  # worked out again when somebody asks for the presence: larger than u
        return everything.identity(answer, presence.masses, counts, alpha, options.merge)

    occupancy = presence.present
    if options.identity:
        names, piece = groups()
        settled, occupancy = settled @ names, occupancy * (1 - piece)
    solution = Solution(
        probabilities=settled,
        n_iter=n_iter,
        converged=converged,
        objective=None if parts is None else parts.sum(0),
        objective_parts=None if parts is None else dict(zip(("fit", "entropy", "prior"), parts, strict=True)),
        occupancy=occupancy,
        make_presence=(lambda: named(presence.present, groups()[0])) if options.identity else None,
    )
    return solution, weights


class _Found(NamedTuple):
    u: Tensor  # [t, q, k]
    n_iter: Tensor  # [t]
    converged: Tensor  # [t]
    parts: Tensor | None = None  # [3, t, i] the bound's terms after each iteration


@dataclass(frozen=True, eq=False)
class Search:
    """From log-likelihoods to assignments."""

    likelihood: Tensor  # [t, q, k] ℓ
    alphas: Alphas

    def run(self, options: Options) -> _Found:
        """The start, and iterations until nothing moves."""
        u, search = self.start(options.soften)
        n_tasks = len(u)
        answer = torch.empty_like(u)
        alive = torch.arange(n_tasks, device=u.device)  # the tasks that still iterate
        n_iter = torch.full((n_tasks,), options.max_iter, device=u.device)
        converged = torch.zeros(n_tasks, dtype=torch.bool, device=u.device)
        parts = u.new_zeros(3, n_tasks, options.max_iter) if options.with_objective else None
        for iteration in range(options.max_iter):
            before, u = u, search.step(u)
            if parts is not None:
                parts[:, alive, iteration:] = search.terms(u).unsqueeze(-1)
            done = (u - before).abs_().amax((1, 2)) < options.tol
            if bool(done.any()):
                answer[alive[done]], n_iter[alive[done]], converged[alive[done]] = u[done], iteration + 1, True
                alive, u, search = alive[~done], u[~done], Search(search.likelihood[~done], self.alphas)
                if len(alive) == 0:
                    break
        answer[alive] = u
        return _Found(answer, n_iter, converged, parts)

    def fused_run(self, options: Options) -> _Found | None:
        """The same by fused code, where there is any for it."""
        likelihood, alphas = self.likelihood, self.alphas
        if options.with_objective or not fused(likelihood):
            return None
        from manyway.methods.evidence.kernel import MAX_CLASSES, MAX_PAIRS, Schedule, search

        _, n_query, n_classes = likelihood.shape
        if likelihood.dtype != torch.float32 or n_classes > MAX_CLASSES or n_query * n_classes > MAX_PAIRS:
            return None
        steps = _START_STEPS if options.soften < 1 else 0
        schedule = Schedule(options.soften, steps, HOT, SCATTERED, HOT_STEPS, _SHARPER, _AGREED)
        return _Found(
            *search(likelihood, alphas.values, alphas.normaliser, schedule, max_iter=options.max_iter, tol=options.tol)
        )

    def start(self, share: float) -> tuple[Tensor, Search]:
        """[t, q, k] assignments under likelihoods that sharpen from share·ℓ to ℓ, and the search to go on with.

        Queries that have not agreed on few classes by then are pressed harder for some steps. Where few classes do
        occur, they end up in them; where many do, they fall back.
        """
        u = (self.likelihood * share).softmax(-1)
        if share == 1:
            return u, self
        for softened in start_shares(share):
            u = self.step(u, softened)
        which = scattered(u.sum(1)).nonzero().squeeze(1)
        if len(which):
            rows, search = u[which], Search(self.likelihood[which], self.alphas)
            for _ in range(HOT_STEPS):
                rows = search.step(rows, HOT)
            u[which] = rows
        return u, Search(self.likelihood * sharpness(u.sum(1)).view(-1, 1, 1), self.alphas)

    def step(self, u: Tensor, share: float = 1.0) -> Tensor:
        """[t, q, k] the next assignments."""
        rest = remainders(u)
        presence = Presence.of(u, rest)
        scores = self.likelihood if share == 1 else self.likelihood * share
        return presence.add_slopes(scores, rest, self.alphas.best(presence)).softmax(-1)

    def terms(self, u: Tensor) -> Tensor:
        """[3, t] the terms of the bound at u and at the α that is best for it."""
        fit = (u * self.likelihood).sum((1, 2))
        prior = self.alphas.log_prior(Presence.of(u, remainders(u))).amax(-1)
        return torch.stack([fit, -torch.xlogy(u, u).sum((1, 2)), prior])

    def identity(self, u: Tensor, masses: Tensor, counts: Tensor, alpha: Tensor, merge: bool) -> tuple[Tensor, Tensor]:
        """[t, k, j] the probability that the queries of group k, taken as one, are of class j.

        And [t, k] the probability that the group is but a piece of another.
        """
        counts = counts.expand(len(u), -1)
        totals = u.mT @ self.likelihood
        found = identities(totals, masses, counts, alpha, all_masses=masses, all_counts=counts, merge=merge)
        return found.chances + torch.diag_embed(found.alone), found.piece


def check_search(concentration: float | None, soften: float, max_iter: int) -> None:
    """Refuse what no search can be made with."""
    if max_iter < 1 or not 0 < soften <= 1:
        raise InputError(f"max_iter is {max_iter} and soften {soften}; they must be positive, and soften at most 1.")
    if concentration is not None and not concentration > 0:
        raise InputError(f"concentration is {concentration}; it must be positive, or None to choose it by evidence.")


def sharpness(masses: Tensor) -> Tensor:
    """[t] what ℓ is multiplied by in the iterations, given the masses [t, k] that they begin with.

    Where the queries are in many classes each counts on few others, and wrong companions cost more than they help.
    """
    return torch.where(agreement(masses) < _AGREED, _SHARPER, 1.0).to(masses.dtype)


def start_shares(share: float) -> list[float]:
    """What ℓ is multiplied by in each step of the start."""
    return [share ** (1 - step / _START_STEPS) for step in range(_START_STEPS)]
