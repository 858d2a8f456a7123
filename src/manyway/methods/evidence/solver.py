"""Evidence: calibrated likelihoods, and as few classes as the queries give evidence for. The method of this project."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyway.core.ops import class_sums
from manyway.core.solution import UNKNOWN_ABOVE, Solution
from manyway.core.tasks import Tasks
from manyway.errors import InputError
from manyway.methods._table.parameters import takes
from manyway.methods._table.prepared import QUERY_DEPENDENT
from manyway.methods.calibration.calibration import (
    Calibration,
    calibrate,
    calibrate_and_place,
    distances_between,
    squared_distances,
)
from manyway.methods.calibration.scaling import transform
from manyway.methods.evidence.known import Known
from manyway.methods.evidence.names import guesses, log_probability, with_names
from manyway.methods.evidence.one_shot import every, is_one_shot, powers, raised
from manyway.methods.evidence.parameters import Parameters
from manyway.methods.evidence.posterior import (
    GroupPosterior,
    group_posterior,
    leave_one_out,
    query_weights,
    updated_distances,
)
from manyway.methods.evidence.prior import Concentrations, Presence, Slopes, remainders
from manyway.methods.evidence.review import review_scores
from manyway.methods.evidence.search import Dense, Found, fused_search, resume, search
from manyway.methods.evidence.stream import batches_per_stream, in_streams, select_rows
from manyway.methods.evidence.unknown import Members, unknown_probability


@takes(Parameters)
def evidence(
    tasks: Tasks,
    *,
    prepared: Calibration | None = None,
    known: Tensor | None = None,
    with_objective: bool = False,
    carry: bool = False,
    **params: Any,
) -> Solution:
    """Calibrate distances on the support, then find which classes are present by the evidence of all queries.

    The log-likelihood of query q under class k is ℓ_qk = −½ τ (‖z_q − w_k‖² − S/n_k), where w_k is the mean of the n_k
    support samples and S the within-class scatter. The precision τ is calibrated by leaving support samples out in
    turn. Class proportions have a Dirichlet(α, …, α) prior and are integrated out. The method maximises, over the
    assignments u and over a grid of α, a lower bound on ln p(queries | support):

        Σ u_qk ℓ_qk − Σ u_qk ln u_qk + Σ_k (1 − p⁰_k) φ(m_k / (1 − p⁰_k)) + ln Γ(Kα)/Γ(|Q|+Kα),

    where m_k = Σ_q u_qk, p⁰_k = Π_q (1 − u_qk) and φ(n) = ln Γ(n+α)/Γ(α). An iteration takes the best α for the present
    u, and then u_qk = softmax_k(ℓ_qk + the derivative of the prior's terms). With a small α few classes are present;
    with a large α labels are those of the nearest prototypes. Prototypes stay fixed during the search.

    The search begins with annealed likelihoods, so that queries agree on classes before each one is certain. Two
    further rules of the schedule apply where many classes are present. Final probabilities are computed with ℓ itself.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.
    prepared : Calibration or None, default=None
        What ``prepare_evidence`` learned from the same support, so that it is not learned again.
    known : Tensor of shape (t, q) or None, default=None
        The classes of queries whose labels are known, -1 for the others. Known queries keep their class. They are
        samples of it, and say which classes are present and what a group of queries is called.
    with_objective : bool, default=False
        Whether to record the bound after each iteration, and its terms ``fit``, ``entropy`` and ``prior``. Updates of
        the annealing are not iterations.
    carry : bool, default=False
        Whether the batches of a stream (``Tasks.stream``) are labelled one after another, each with what earlier ones
        taught; see ``manyway.methods.evidence.stream``. Tasks without a stream are labelled alone.

    Returns
    -------
    Solution
        ``presence``, ``n_present`` and ``n_present_sd`` say which classes are present, and how many.

    Notes
    -----
    All queries are updated at once. With α chosen by evidence the bound has not been seen to decrease; with a tiny
    fixed α and few queries it can. The method extends the correction of label shift by maximum likelihood (Saerens et
    al., 2002).

    Reference: docs/evidence.md derives the method and shows the effect of each part.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0], [1.0], [5.0]]], [[0, 1, 2]], [[[0.1], [0.2], [0.1], [4.8]]])
    >>> evidence(tasks).labels.tolist()
    [[0, 0, 0, 2]]
    """
    parameters = Parameters(**params)
    if carry and tasks.stream is not None:
        streams = tasks[:: batches_per_stream(tasks)]
        ready = prepare_evidence(streams, **params) if prepared is None else prepared

        def solve(which: Tensor, batches: Tasks, given: Tensor | None) -> Solution:
            return evidence(batches, prepared=select_rows(ready, which), known=given, **params)

        return in_streams(tasks, solve, parameters.concentration, known)
    if tasks.class_table is not None:
        named = with_names(tasks, parameters.scale, None if tasks.n_support else _first_proportions(tasks, parameters))
        tasks = named.tasks
        calibration, placed = calibrate_and_place(named.with_vectors, *parameters.of_calibration)
        placed, vectors = placed[:, : tasks.n_query], placed[:, tasks.n_query :]
        calibration = named.taken_in(calibration, vectors)
    else:
        tasks = transform(tasks, parameters.scale)
        if prepared is None:
            calibration, placed = calibrate_and_place(tasks, *parameters.of_calibration)
        else:
            calibration, placed = prepared, prepared.place(tasks.query)
    one_shot = is_one_shot(tasks)
    given = Known.of(known, tasks)
    if given is not None:
        calibration = given.taken_in(calibration, placed)
    likelihood = calibration.log_likelihood(placed)
    if given is not None:
        likelihood = given.left_out(likelihood, calibration)

    between = cache(lambda: distances_between(placed))

    def updated(weights: Tensor) -> Tensor:
        return _updated_likelihood(placed, likelihood, calibration, weights, between)

    unknown, find_groups = None, None
    if parameters.open_set:
        clamped = likelihood if given is None else given.clamp(likelihood)
        unknown, find_groups = unknown_probability(
            placed, lambda step: assignments(clamped[:, ::step], parameters), calibration, parameters.constants
        )
        unknown = unknown if given is None else given.unknown(unknown.unsqueeze(-1)).squeeze(-1)
    solution, weights = _find_classes(
        likelihood,
        calibration.counts,
        parameters,
        with_objective,
        updated if parameters.update_prototypes else None,
        given,
        unknown,
        go_on=not one_shot,
    )

    if parameters.precision is None and one_shot:
        step = every(tasks.n_query)
        power = powers(placed[:, ::step], solution.probabilities[:, ::step], calibration, parameters.constants)
        probabilities = raised(solution.probabilities, power.view(-1, 1, 1))
        solution = replace(solution, probabilities=probabilities if given is None else given.fix(probabilities))

    if unknown is not None and find_groups is not None:
        probabilities = solution.probabilities * (1 - unknown).unsqueeze(-1)
        groups, medoids = find_groups(unknown > UNKNOWN_ABOVE)
        solution = replace(solution, probabilities=probabilities, unknown=unknown)
        solution = replace(solution, unknown_groups=groups, unknown_medoids=medoids)

    def updated_prototypes() -> Tensor:
        sums, counts = class_sums(tasks)
        taken = weights * float(parameters.update_prototypes)
        taken = taken if given is None else taken + given.weights
        return (sums + taken.mT @ tasks.query) / (counts + taken.sum(1)).unsqueeze(-1)

    return replace(
        solution,
        make_prototypes=updated_prototypes,
        make_review_scores=lambda: review_scores(placed, solution.outcomes, calibration, given),
    )


def _first_proportions(tasks: Tasks, parameters: Parameters) -> Tensor:
    """[t, k] the proportions of classes that are known by name alone, by the better of two guesses: see ``names``."""
    assert tasks.class_features is not None
    tried = []
    for guess in guesses(len(tasks), tasks.class_features):
        named = with_names(tasks, parameters.scale, guess)
        calibration, placed = calibrate_and_place(named.tasks, *parameters.of_calibration)
        likelihood = calibration.log_likelihood(placed)
        found = _find_classes(likelihood, calibration.counts, parameters, False)[0].proportions
        tried.append((found, log_probability(likelihood, found)))
    (one, fit), (other, other_fit) = tried
    return torch.where((fit >= other_fit).unsqueeze(-1), one, other)


@takes(Parameters)
def prepare_evidence(tasks: Tasks, **params: Any) -> Calibration | None:
    """Learn what depends on the support alone: prototypes, within-class scatter and precision.

    Parameters
    ----------
    tasks : Tasks
        Tasks with the support; their queries are not used.

    Returns
    -------
    Calibration or None
        None if the scale depends on the queries, or classes have names, so that nothing can be prepared.
    """
    parameters = Parameters(**params)
    if parameters.scale in QUERY_DEPENDENT or tasks.class_table is not None:
        return None
    return calibrate(transform(tasks, parameters.scale), *parameters.of_calibration)


@takes(Parameters, without=("precision", "metric", "update_prototypes", "open_set", "scale"))
def evidence_from_likelihood(
    likelihood: Tensor, counts: Tensor, *, with_objective: bool = False, **params: Any
) -> Solution:
    """Evidence for a classifier of your own, given its log-likelihoods.

    ``EvidenceFromScores`` makes them of scores of any kind, and calibrates them.

    Parameters
    ----------
    likelihood : Tensor of shape (t, q, k)
        ln p(query | class), up to a constant per query. A classifier's logits serve if it was trained on equally
        frequent classes and is calibrated on samples that it was not trained on.
    counts : Tensor of shape (t, k)
        The number of samples of each class that the classifier was trained on.
    with_objective : bool, default=False
        Whether to record the bound after each iteration.

    Returns
    -------
    Solution
        As from ``evidence``, without prototypes.

    Examples
    --------
    >>> import torch
    >>> logits = torch.tensor([[[3.0, 0.0, 0.0], [4.0, 0.0, 1.0], [3.0, 1.0, 0.0], [1.0, 1.1, 0.0]]])
    >>> evidence_from_likelihood(logits, torch.ones(1, 3)).labels.tolist()
    [[0, 0, 0, 0]]
    """
    if likelihood.ndim != 3 or counts.shape not in (likelihood[:, 0].shape, (1, likelihood.shape[-1])):
        raise InputError(
            f"The likelihoods have shape {tuple(likelihood.shape)} and the counts {tuple(counts.shape)}; they must be "
            "[task, query, class] and [task, class]."
        )
    if not bool(torch.isfinite(likelihood).all()):
        raise InputError("A log-likelihood is NaN or infinite; use a low finite number for what is impossible.")
    return _find_classes(likelihood, counts, Parameters(**params), with_objective)[0]


def assignments(likelihood: Tensor, parameters: Parameters) -> Tensor:
    """[t, q, k] the assignments that a search finds, without post-processing."""
    _, n_query, n_classes = likelihood.shape
    prior = Concentrations.of(parameters.concentration, n_query, n_classes, likelihood.dtype, likelihood.device)
    return _searched(likelihood, prior, parameters).queries.u


def _searched(likelihood: Tensor, prior: Concentrations, parameters: Parameters) -> Found[Dense]:
    """The outcome of a search in which every query is of a class."""
    schedule, max_iter, tol = parameters.constants, parameters.max_iter, parameters.tol
    found = fused_search(likelihood, prior, schedule, max_iter=max_iter, tol=tol)
    return search(Dense.of(likelihood), prior, schedule, max_iter=max_iter, tol=tol) if found is None else found


def _find_classes(
    likelihood: Tensor,
    counts: Tensor,
    parameters: Parameters,
    with_objective: bool,
    updated_likelihood: Callable[[Tensor], Tensor] | None = None,
    known: Known | None = None,
    unknown: Tensor | None = None,
    *,
    go_on: bool = True,
) -> tuple[Solution, Tensor]:
    """The solution, and the weights [t, q, k] of the queries as samples, of which new likelihoods can be made."""
    n_tasks, n_query, n_classes = likelihood.shape
    schedule, max_iter, tol = parameters.constants, parameters.max_iter, parameters.tol
    like = likelihood.dtype, likelihood.device
    prior = Concentrations.of(parameters.concentration, n_query, n_classes, *like, weighted=unknown is not None)
    clamped = likelihood if known is None else known.clamp(likelihood)
    if not with_objective and unknown is None:
        found = _searched(clamped, prior, parameters)
    else:
        started = Dense.of(clamped) if unknown is None else Members.of_unknown(clamped, unknown, schedule)
        terms_of = type(started).terms if with_objective else None
        found = search(started, prior, schedule, max_iter=max_iter, tol=tol, terms_of=terms_of)
    after = After.of(found.queries, prior, likelihood, updated_likelihood, known)
    n_iter, converged = found.n_iter, found.converged
    if go_on and known is not None and updated_likelihood is not None:
        # Known queries tell which groups are right, so that the search can go on with updated prototypes. With one
        # sample per class it must not: a prototype is then mostly queries, and those of a wrong group stay in it.
        clamped = known.clamp(after.scores)
        queries = replace(found.queries, likelihood=clamped, u=after.u, remainder=after.remainder)
        again = resume(queries, after.presence, prior, schedule, max_iter=max_iter, tol=tol)
        some = known.rows.any(1)  # [t, 1] tasks without a known query keep what was found
        u = torch.where(some.unsqueeze(-1), again.queries.u, after.u)
        after = After.of(Dense(likelihood, u, remainders(u)), prior, likelihood, updated_likelihood, known)
        some = some.squeeze(-1)
        n_iter, converged = n_iter + again.n_iter * some, torch.where(some, again.converged, converged)
    u, remainder, presence, slopes, weights, scores = after
    members = u
    if known is not None:
        members = torch.where(known.rows, slopes.add_to(likelihood, remainder).softmax(-1), u)
    probabilities = slopes.add_to(scores, remainder).softmax(-1)

    def groups() -> GroupPosterior:
        return group_posterior(
            lambda part: members[..., part].mT @ likelihood,
            torch.arange(n_classes, device=u.device),
            presence if known is None else Presence.of(members, remainders(members)),
            counts.expand(n_tasks, -1),
            slopes.alpha,
            schedule,
            merge=parameters.merge_groups,
            names=None if known is None else known.names(members),
            present=None if known is None else known.present,
        )

    def present() -> Tensor:
        found = groups().presence(presence.present)
        return found if known is None else found.masked_fill(known.present, 1)

    occupied = presence.present
    if parameters.group_posterior:
        posterior = groups()
        probabilities, occupied = posterior.apply(probabilities), posterior.occupied(occupied)
    if known is not None:
        probabilities, occupied = known.fix(probabilities), occupied.masked_fill(known.present, 1)
    terms = found.terms
    solution = Solution(
        probabilities=probabilities,
        n_iter=n_iter,
        converged=converged,
        objective_parts=None if terms is None else dict(zip(("fit", "entropy", "prior"), terms, strict=True)),
        occupancy=occupied,
        # Computed again on request, because the posterior [t, k, k] is larger than u, and few callers need it.
        make_presence=present if parameters.group_posterior else None,
    )
    return solution, weights


class After(NamedTuple):
    """What follows from the assignments that a search has found."""

    u: Tensor  # [t, q, k]
    remainder: Tensor  # [t, q, k] 1 − u
    presence: Presence
    slopes: Slopes
    weights: Tensor  # [t, q, k] of the queries as samples
    scores: Tensor  # [t, q, k] log-likelihoods for prototypes with these samples

    @staticmethod
    def of(
        queries: Dense,
        prior: Concentrations,
        likelihood: Tensor,
        updated_likelihood: Callable[[Tensor], Tensor] | None,
        known: Known | None,
    ) -> After:
        presence = Presence.of(queries.u, queries.remainder)
        weights = queries.u * query_weights(presence.masses).unsqueeze(1)
        if known is not None:
            weights = known.unknown(weights)  # the prototypes have taken in the known queries already
        scores = likelihood if updated_likelihood is None else updated_likelihood(weights)
        return After(queries.u, queries.remainder, presence, prior.slopes(presence), weights, scores)


def _updated_likelihood(
    placed: Tensor, likelihood: Tensor, calibration: Calibration, weights: Tensor, between: Callable[[], Tensor]
) -> Tensor:
    """[t, q, k] log-likelihoods for prototypes that have taken in the other queries with these weights.

    ``between`` returns the squared distances [t, q, q] of the queries.
    """
    scatter, counts = calibration.scatter.view(-1, 1, 1), calibration.counts
    precision = calibration.precision.view(-1, 1, 1)
    if placed.shape[1] > 2 * placed.shape[2]:  # all pairs of queries would be more work, and far more memory
        samples = counts.unsqueeze(-1)
        updated = (calibration.offsets * samples + weights.mT @ placed) / (samples + weights.sum(1).unsqueeze(-1))
        distances = squared_distances(placed, updated)
    else:
        distances = likelihood * (-2 / precision) + scatter / counts.unsqueeze(1)
        distances = updated_distances(distances, between(), weights, counts)
    masses = (counts + weights.sum(-2)).unsqueeze(-2)
    return leave_one_out(distances, weights, masses, scatter).mul_(-0.5 * precision)
