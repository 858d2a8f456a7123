"""Search: the assignments of items to classes with the highest evidence, class proportions integrated out.

``manyway.methods.evidence.prior`` has the prior and its derivative. The search begins with the classifier's own
answers, because a class that the classifier never names is not to be found.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log

import torch
from torch import Tensor

from manyway.core import Recorder
from manyway.methods.evidence.prior import Concentrations, QueryCounts, grid_of_alphas
from manyway.methods.scores.items import InMemory, Items, Likelihood

_AHEAD = 1000  # updates that are announced in advance; see ``Dense``


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the search is told by the user."""

    concentration: float | None = None  # α; None: the value with the highest evidence
    max_iter: int = 50
    tol: float = 1e-2


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """What the search finds: how many items each class has. The items have their last assignments."""

    masses: Tensor  # [k] m, the expected number of items
    alpha: Tensor  # [] the concentration
    n_items: int
    n_iter: int
    converged: bool
    terms: Mapping[str, Tensor] = field(
        default_factory=dict
    )  # [1, i] of the bound, where they were recorded

    def predicted(self, u: Tensor) -> Tensor:
        """[b, k] the proportions that the other items predict for items with assignments u [b, k].

        π_qk = (m_k − u_qk + α) / (n − 1 + Kα)
        """
        n_classes = len(self.masses)
        others = (self.masses.to(u) - u).clamp_min(0) + self.alpha.to(u)
        return others / (self.n_items - 1 + n_classes * self.alpha.to(u))

    def gains(self, likelihood: Tensor, u: Tensor) -> Tensor:
        """[b] ln Σ_k K π_qk exp ℓ_qk: how many times as probable the other items make each item, in nats."""
        n_classes = likelihood.shape[-1]
        return (likelihood + self.predicted(u).log()).logsumexp(-1) + log(n_classes)


def search(
    items: Items, likelihood: Likelihood, limits: Limits, *, with_terms: bool = False
) -> Found:
    """Iterate until no assignment moves by ``tol``.

    Parameters
    ----------
    items : Items
        They are changed: afterwards they have the last assignments.
    likelihood : callable
        From log-posteriors to log-likelihoods.
    limits : Limits
    with_terms : bool, default=False
        Whether to record the terms of the bound after each iteration. For items in memory.

    Returns
    -------
    Found
    """
    query_counts = items.begin(likelihood)
    prior = _prior(query_counts, items.n_items, limits)
    terms = Recorder(("fit", "entropy", "prior"))
    n_iter = 0
    converged = False
    while n_iter < limits.max_iter and not converged:
        n_iter += 1
        ahead = (1.0,) * min(limits.max_iter - n_iter - 1, _AHEAD)
        query_counts, moved = items.update(prior.slopes(query_counts), ahead, limits.tol)
        converged = limits.tol > 0 and bool((moved < limits.tol).all())
        if with_terms:
            terms.add(torch.cat([items.terms(), prior.log_prior(query_counts).amax(-1)[None]]))
    return Found(
        masses=query_counts.masses[0],
        alpha=prior.best(query_counts)[0],
        n_items=items.n_items,
        n_iter=n_iter,
        converged=converged,
        terms=terms.parts,
    )


def search_sample(
    posteriors: Tensor, known: Tensor, likelihood: Likelihood, limits: Limits
) -> Tensor:
    """[n, k] the assignments that a search of these items alone finds."""
    items = InMemory(posteriors, known, torch.ones_like(known, dtype=torch.bool))
    search(items, likelihood, limits)
    return items.part.u


def _prior(query_counts: QueryCounts, n_items: int, limits: Limits) -> Concentrations:
    """The prior of the labels of so many items."""
    masses = query_counts.masses
    n_classes = masses.shape[-1]
    grid = grid_of_alphas(n_items, n_classes, limits.concentration)
    return Concentrations.of(grid, n_items, n_classes, masses.dtype, masses.device)
