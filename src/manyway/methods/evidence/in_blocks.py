"""Evidence for one task that is too large for memory: its queries are read in blocks.

What is computed in one pass over the blocks is in ``streamed``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch
from torch import Tensor

from manyway.core.blocks import Blocks, Scaling, Spread, in_turn, scaling_of
from manyway.core.solution import UNKNOWN_ABOVE, between
from manyway.core.tasks import Tasks
from manyway.core.topk import Answer
from manyway.methods._table.parameters import takes
from manyway.methods.calibration.calibration import Calibration, calibrate
from manyway.methods.evidence.names import guesses, names_of, recentred, scaling_with_names
from manyway.methods.evidence.one_shot import every, is_one_shot, powers
from manyway.methods.evidence.parameters import Parameters
from manyway.methods.evidence.posterior import group_posterior
from manyway.methods.evidence.prior import Concentrations
from manyway.methods.evidence.search import search
from manyway.methods.evidence.solver import assignments
from manyway.methods.evidence.streamed import (
    FindFit,
    FindSurest,
    JudgeQueries,
    NearestGroups,
    Placing,
    Probabilities,
    Streamed,
    TakeSample,
    UpdatedPrototypes,
)
from manyway.methods.evidence.unknown import groups_of, judge, judged_step


@dataclass(frozen=True, eq=False)
class StreamedSolution:
    """The answer for one large task. ``assign`` computes the probabilities of a block from what it remembered."""

    assign: Probabilities  # (block [b, d], memory) -> [b, k]
    memory: list[Any]  # one per block
    presence: Tensor  # [k] the probability that the class is present
    n_present: float  # the expected number of classes that are present
    n_present_sd: float
    precision: float
    alpha: float
    n_iter: int
    converged: bool
    active: tuple[int, ...]  # how many classes each update had, those of the annealing included
    find_groups: NearestGroups | None = None  # (block) -> [b] the group of no class nearest to each query
    unknown_medoids: Tensor | None = None  # [g] the query in the middle of each of these groups


@takes(Parameters)
def evidence_in_blocks(
    support: Tensor,
    labels: Tensor,
    blocks: Blocks,
    *,
    base_mean: Tensor | None = None,
    class_features: Tensor | None = None,
    progress: Callable[[int], None] | None = None,
    spread: Spread | None = None,
    **params: Any,
) -> StreamedSolution:
    """Evidence for one task whose queries are read in blocks.

    Parameters
    ----------
    support : Tensor of shape (s, d)
        The labelled examples.
    labels : Tensor of shape (s,)
        Their classes, 0 to k-1.
    blocks : callable
        Returns an iterator over the queries, blocks of shape (b, d), from the start.
    base_mean : Tensor of shape (d,), optional
        The mean feature of the encoder's base classes.
    class_features : Tensor of shape (k, d), optional
        One vector per class, as in ``Tasks``. A class may then have no example, and the support may be empty.
    progress : callable, optional
        Called with the number of each finished update.
    spread : callable, optional
        Takes the work to the blocks; by default they are read in turn on this machine.

    Returns
    -------
    StreamedSolution
    """
    parameters = Parameters(**params)
    spread = in_turn(blocks, support.device) if spread is None else spread
    n_done = count()
    tell = None if progress is None else lambda _: progress(next(n_done))

    def solve(scaling: Scaling) -> StreamedSolution:
        calibration, one_shot = _calibrate_for_blocks(support, labels, class_features, scaling, parameters)
        return _solve_blocks(Placing.of(scaling, calibration), calibration, one_shot, n_query, spread, parameters, tell)

    def guessed(scaling: Scaling, vectors: Tensor) -> tuple[Tensor, float]:
        """The proportions [k] with this scaling, and ln p(queries) with them."""
        calibration, _ = _calibrate_for_blocks(support, labels, vectors, scaling, parameters)
        placing, plain = Placing.of(scaling, calibration), replace(parameters, update_prototypes=False, open_set=False)
        first = _solve_blocks(placing, calibration, False, n_query, spread, plain, tell)
        answers, _ = spread(Answer(first.assign, 1), first.memory)
        found = answers.total / n_query
        return found, float(spread(FindFit(placing, calibration, found.to(support)), None)[0].values)

    if class_features is None:
        scaling, n_query = scaling_of(support, spread, parameters.scale, base_mean)
        return solve(scaling)
    class_features = class_features.to(support)
    scaling, n_query = scaling_with_names(support, spread, parameters.scale, base_mean)
    if len(support) == 0:
        tried = []
        for guess in guesses(1, class_features):
            start = recentred(scaling, class_features, None if guess is None else guess[0])
            tried.append(guessed(start, class_features))
        found, _ = max(tried, key=lambda one: one[1])
        scaling = recentred(scaling, class_features, found)
    return solve(scaling)


def _calibrate_for_blocks(
    support: Tensor, labels: Tensor, class_features: Tensor | None, scaling: Scaling, parameters: Parameters
) -> tuple[Calibration, bool]:
    """The calibration of one task with the scaling of its queries, and whether no class has two samples."""
    if class_features is None:
        support = scaling(support)
        tasks = Tasks.from_arrays(support[None], labels[None], support[None, :1])
        return calibrate(tasks, *parameters.of_calibration), is_one_shot(tasks)
    named = names_of(support, labels, class_features, scaling)
    calibration = calibrate(named.tasks, *parameters.of_calibration)
    return named.taken_in(calibration, calibration.place(named.vectors)), is_one_shot(named.tasks)


def _solve_blocks(
    placing: Placing,
    calibration: Calibration,
    one_shot: bool,
    n_query: int,
    spread: Spread,
    parameters: Parameters,
    progress: Callable[[int], None] | None,
) -> StreamedSolution:
    """The answer for one large task; ``one_shot``: whether no class had two samples to calibrate with."""
    schedule, like = parameters.constants, calibration.counts
    n_classes = like.shape[1]
    prior = Concentrations.of(
        parameters.concentration, n_query, n_classes, torch.float64, like.device, weighted=parameters.open_set
    )
    queries = Streamed(placing, calibration, n_query, spread, progress)
    n_apart = judged_step(n_query, n_classes)
    if parameters.open_set:
        sample, _ = spread(TakeSample(queries.last, n_apart), None)
        assigned = assignments(calibration.log_likelihood(sample.placed[None]), parameters)
        judged = judge(sample.placed[None], assigned, calibration, schedule)
        _, queries.start = spread(JudgeQueries(queries.last, judged, schedule), None)
    found = search(queries, prior, schedule, max_iter=parameters.max_iter, tol=parameters.tol)

    presence = queries.presence
    slopes = prior.slopes(presence)
    classes = (queries.masses > 1).nonzero().squeeze(1)  # a group of at most one query keeps its class
    sums = queries.group_sums(classes)
    means = (sums / queries.masses[classes].unsqueeze(-1)).to(like)

    def totals(part: slice) -> Tensor:
        # Σ_q u_qg ‖z_q − w‖² and m_g ‖z̄_g − w‖² differ by a number that is equal for all classes.
        return calibration.log_likelihood(means[None, part]) * queries.masses[classes[part]].to(means).view(1, -1, 1)

    occupied, present, posterior = presence.present, presence.present, None
    if parameters.group_posterior:
        posterior = group_posterior(
            totals, classes, presence, calibration.counts, slopes.alpha, schedule, merge=parameters.merge_groups
        )
        occupied, present = posterior.occupied(occupied), posterior.presence(occupied)
    updated = None
    if parameters.update_prototypes:
        updated = UpdatedPrototypes.of(classes, queries.masses, sums, calibration)
    step = replace(queries.last, idle=None)
    assign = Probabilities(step, type(slopes)(*(value.to(like) for value in slopes)), updated, posterior)
    if parameters.precision is None and one_shot:
        chosen, _ = spread(TakeSample(step, every(n_query), assign), queries.before)
        assign = replace(
            assign, power=powers(chosen.placed[None], chosen.probabilities[None], calibration, schedule)[0]
        )
    find_groups, medoids = None, None
    if parameters.open_set:
        assign = replace(assign, open_set=True)
        groups, medoids = groups_of(judged.similarity, judged.unknown > UNKNOWN_ABOVE)
        inside = (groups[0] >= 0).nonzero().squeeze(1)
        find_groups = NearestGroups(step, judged[inside], groups[0, inside])
        medoids = sample.rows(n_apart)[medoids[0].cpu()]
    surest = spread(FindSurest(assign), queries.before)[0].values.to(occupied)
    n_present, n_present_sd = between(surest, occupied[0])
    return StreamedSolution(
        assign=assign,
        memory=queries.before,
        presence=(present[0] + surest) / 2,
        n_present=float(n_present),
        n_present_sd=float(n_present_sd),
        precision=float(calibration.precision[0]),
        alpha=float(slopes.alpha),
        n_iter=int(found.n_iter),
        converged=bool(found.converged),
        active=tuple(queries.active),
        find_groups=find_groups,
        unknown_medoids=medoids,
    )
