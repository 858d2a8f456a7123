"""Count: the answers for all queries, and with them which classes are present, and how many.

A class is *present* with a probability between 1 − Π_q (1 − p_qk), which holds if the errors of
queries are independent, and max_q p_qk, which holds if they are shared; ``manyway.core.presence``
says where between them. Where a shift was found, both have the doubt that it leaves (``shift``).
What a caller may not ask for is made on request.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from manyway.core import Answered, Solution
from manyway.methods.evidence.calibrate import CalibratedBatch
from manyway.methods.evidence.confidence import Probabilities, tempered
from manyway.methods.evidence.group import Grouped, GroupPosterior
from manyway.methods.evidence.judge import UnknownPosterior
from manyway.methods.evidence.queries import Part
from manyway.methods.evidence.review import review_answers
from manyway.methods.evidence.search import Searched
from manyway.methods.evidence.unknown_groups import UnknownGroups, group_unknown


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer:
    """From some queries to their answers."""

    probabilities: Probabilities
    unknown_groups: UnknownGroups | None  # None where no query may be unknown

    def __call__(self, part: Part) -> Answered:
        found = self.probabilities(part)
        if self.unknown_groups is None:
            return Answered(found)
        return Answered(found, part.unknown, self.unknown_groups(part, found))


@dataclass(frozen=True, eq=False, kw_only=True)
class Findings:
    """What the stages before found for a batch."""

    unknown: UnknownPosterior | None
    searched: Searched
    grouped: Grouped
    probabilities: Probabilities


def count(batch: CalibratedBatch, findings: Findings) -> Solution:
    """The solution of a batch.

    Parameters
    ----------
    batch : CalibratedBatch
    findings : Findings

    Returns
    -------
    Solution
    """
    queries = batch.queries
    schedule = batch.parameters.constants
    unknown_groups = None
    medoids = None
    if findings.unknown is not None:
        unknown_groups = group_unknown(queries, findings.unknown, findings.probabilities)
        medoids = unknown_groups.medoids
    moved_by = None
    if batch.shift is not None:
        moved_by = batch.shift.vector
    told = dict(batch.told)
    how_apart = findings.probabilities.how_apart
    if how_apart is not None:
        told["contrast"] = how_apart
    answer = Answer(probabilities=findings.probabilities, unknown_groups=unknown_groups)
    n_copies = findings.searched.n_copies
    of_shift = batch.shift_power(findings.grouped.groups.query_counts.masses)
    answers = queries.answers(answer, partial(review_answers, of_shift))
    return Solution(
        answers.probabilities,
        findings.grouped.n_iter,
        findings.grouped.converged,
        make_prototypes=batch.make_prototypes,
        objective_parts=findings.searched.terms,
        make_presence=partial(
            _independent_presence,
            _in_doubt(findings.grouped.answers.posterior, of_shift),
            findings.grouped.groups.query_counts.present,
            queries.known_classes,
        ),
        make_review_scores=answers.make_review_scores,
        make_copies=lambda: n_copies,
        unknown=answers.unknown,
        unknown_groups=answers.groups,
        unknown_medoids=medoids,
        told=told,
        counting=schedule,
        moved_by=moved_by,
        doubts=batch.doubts,
    )


def _in_doubt(posterior: GroupPosterior, power: Tensor | None) -> GroupPosterior:
    """Which class each group belongs to, with the doubt of a shift: its power [t]; None: no shift.

    With one or two classes, a shift and another class look alike. All queries share that doubt, so
    that many of them do not make it less.
    """
    if power is None or not posterior.classes.shape[1]:
        return posterior
    probabilities = posterior.probabilities
    doubtful = tempered(probabilities, power.to(probabilities).view(-1, 1, 1))
    return replace(posterior, probabilities=doubtful)


def _independent_presence(posterior: GroupPosterior, occupied: Tensor, known: Tensor) -> Tensor:
    """[t, k] the presence of classes if errors of queries are independent.

    ``occupied`` [t, k]: the probability that a class has a query, by the search. ``known`` [t, k]:
    whether a query is known to be of the class, which is then present.
    """
    at_least = torch.zeros_like(occupied).masked_fill(known, 1)
    return torch.maximum(posterior.presence(occupied), at_least)
