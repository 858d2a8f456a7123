"""Which classes occur, given the log-likelihoods of the queries: the search of evidence, and what comes after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from manyway.errors import InputError
from manyway.methods._groups import agreement, identities, named, scattered, worth
from manyway.methods._presence import Presence, alpha_grid
from manyway.tasks import Solution

_START_STEPS = 15
HOT_STEPS, HOT = 10, 2.0
_AGREED = 2 / 3  # where queries agree less than that,
_SHARPER = 1.5  # times ℓ is what the search goes on with


def find_classes(
    likelihood: Tensor,
    counts: Tensor,
    *,
    concentration: float | None,
    soften: float,
    moved_by: Callable[[Tensor], Tensor] | None,
    identity: bool,
    merge: bool,
    max_iter: int,
    tol: float,
    with_objective: bool,
) -> tuple[Solution, Tensor]:
    """The solution, and what the queries are worth as samples [t, q, k]; ``moved_by`` makes of it new likelihoods."""
    check_search(concentration, soften, max_iter)
    n_tasks, n_query, n_classes = likelihood.shape
    grid = alpha_grid(n_classes, likelihood.dtype, likelihood.device)
    grid = grid if concentration is None else grid.new_tensor([concentration])
    search = everything = _Search(likelihood, grid)
    u = search.start(soften)
    if soften < 1:
        search = _Search(likelihood * sharpness(u.sum(1)).view(-1, 1, 1), grid)
    answer = torch.empty_like(u)
    alive = torch.arange(n_tasks, device=u.device)  # the tasks that still iterate
    n_iter = torch.full((n_tasks,), max_iter, device=u.device)
    converged = torch.zeros(n_tasks, dtype=torch.bool, device=u.device)
    parts = likelihood.new_zeros(3, n_tasks, max_iter) if with_objective else None
    for iteration in range(max_iter):
        before, u = u, search.step(u)
        if parts is not None:
            parts[:, alive, iteration:] = search.terms(u).unsqueeze(-1)
        done = (u - before).abs_().amax((1, 2)) < tol
        if bool(done.any()):
            answer[alive[done]], n_iter[alive[done]], converged[alive[done]] = u[done], iteration + 1, True
            alive, u, search = alive[~done], u[~done], _Search(search.likelihood[~done], grid)
            if len(alive) == 0:
                break
    answer[alive] = u
    presence = Presence.of(answer)
    alpha = everything.best(presence, n_query)
    weights = answer * worth(presence.masses).unsqueeze(1)
    settled = presence.add_slopes(likelihood if moved_by is None else moved_by(weights), answer, alpha).softmax(-1)

    def groups() -> tuple[Tensor, Tensor]:  # worked out again when somebody asks for the presence: larger than u
        return everything.identity(answer, counts, alpha, merge)

    occupancy = presence.present
    if identity:
        names, piece = groups()
        settled, occupancy = settled @ names, occupancy * (1 - piece)
    solution = Solution(
        probabilities=settled,
        n_iter=n_iter,
        converged=converged,
        objective=None if parts is None else parts.sum(0),
        objective_parts=None if parts is None else dict(zip(("fit", "entropy", "prior"), parts, strict=True)),
        occupancy=occupancy,
        make_presence=(lambda: named(presence.present, groups()[0])) if identity else None,
    )
    return solution, weights


@dataclass(frozen=True, eq=False)
class _Search:
    likelihood: Tensor  # [t, q, k] ℓ
    alphas: Tensor  # [g]

    def start(self, share: float) -> Tensor:
        """[t, q, k] assignments under likelihoods that sharpen from share·ℓ to ℓ.

        Queries that have not agreed on few classes by then are pressed harder for some steps. Where few classes do
        occur, they end up in them; where many do, they fall back.
        """
        u = (self.likelihood * share).softmax(-1)
        for softened in start_shares(share):
            u = self.step(u, softened)
        which = scattered(u.sum(1)).nonzero().squeeze(1)
        if share < 1 and len(which):
            rows, search = u[which], _Search(self.likelihood[which], self.alphas)
            for _ in range(HOT_STEPS):
                rows = search.step(rows, HOT)
            u[which] = rows
        return u

    def step(self, u: Tensor, share: float = 1.0) -> Tensor:
        """[t, q, k] the next assignments."""
        presence = Presence.of(u)
        alpha = self.best(presence, u.shape[1])
        scores = self.likelihood if share == 1 else self.likelihood * share
        return presence.add_slopes(scores, u, alpha).softmax(-1)

    def best(self, presence: Presence, n_query: int) -> Tensor:
        """[t] the best α of the grid."""
        return self.alphas[presence.log_prior(self.alphas, n_query).argmax(-1)]

    def terms(self, u: Tensor) -> Tensor:
        """[3, t] the terms of the bound at u and at the α that is best for it."""
        fit = (u * self.likelihood).sum((1, 2))
        prior = Presence.of(u).log_prior(self.alphas, u.shape[1]).amax(-1)
        return torch.stack([fit, -torch.xlogy(u, u).sum((1, 2)), prior])

    def identity(self, u: Tensor, counts: Tensor, alpha: Tensor, merge: bool) -> tuple[Tensor, Tensor]:
        """[t, k, j] the probability that the queries of group k, taken as one, are of class j.

        And [t, k] the probability that the group is but a piece of another.
        """
        masses, counts = u.sum(1), counts.expand(len(u), -1)
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
    return [share ** (1 - step / _START_STEPS) for step in range(_START_STEPS if share < 1 else 0)]
