"""Search: which classes are present, given the log-likelihoods of the queries.

The search raises a lower bound on the evidence,

    ln p(queries | support) ≥ Σ_qk u_qk ℓ_qk − Σ_qk u_qk ln u_qk + Σ_k (1 − p⁰_k) φ(c_k) + ln Γ(Kα)/Γ(|Q|+Kα),

over the assignments u of the queries to classes and over α (``prior`` has the symbols). ``loop``
has the updates. Queries that may be unknown count less than one, and near-copies of a query count
nothing beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from manyway.methods.evidence.calibrate import CalibratedBatch
from manyway.methods.evidence.copies import compare_queries
from manyway.methods.evidence.judge import UnknownPosterior
from manyway.methods.evidence.loop import Outcome
from manyway.methods.evidence.prior import Concentrations


@dataclass(frozen=True, eq=False, kw_only=True)
class Searched:
    """What the stage found, beside the last assignments, which the queries have."""

    prior: Concentrations
    n_copies: Tensor  # [t] how many near-copies queries have on average, themselves included
    n_iter: Tensor  # [t] iterations so far, without the annealing
    converged: Tensor  # [t] whether the last search has
    # [t, i] the terms of the bound after each iteration, where they were recorded
    terms: Mapping[str, Tensor] = field(default_factory=dict)

    def then(self, later: Outcome) -> Searched:
        """With a later search of some of the tasks: those in which it had an iteration."""
        converged = torch.where(later.n_iter > 0, later.converged, self.converged)
        return replace(self, n_iter=self.n_iter + later.n_iter, converged=converged)


def search(
    batch: CalibratedBatch,
    unknown: UnknownPosterior | None,
    *,
    with_terms: bool = False,
) -> Searched:
    """Assign the queries of a batch to classes.

    Parameters
    ----------
    batch : CalibratedBatch
        Its queries have the assignments afterwards.
    unknown : UnknownPosterior or None
        How probable it is that queries are unknown; None: none is.
    with_terms : bool, default=False
        Whether to record the terms of the bound.

    Returns
    -------
    Searched
    """
    queries = batch.queries
    copies = compare_queries(queries, batch.one_shot)
    distinct = copies.distinct
    weighted = unknown is not None or distinct is not None
    if weighted:
        of_unknown = None if unknown is None else unknown.unknown
        queries.weigh(of_unknown, distinct)
    prior = batch.parameters.prior(
        queries.n_query,
        queries.likelihood.counts,
        weighted=weighted,
        double=queries.double_sums,
    )
    outcome = queries.search(prior, with_terms=with_terms)
    return Searched(
        prior=prior,
        n_copies=copies.number,
        n_iter=outcome.n_iter,
        converged=outcome.converged,
        terms=outcome.terms,
    )
