"""The answers: probabilities, presence and what else a solution says of a batch."""

from __future__ import annotations

from dataclasses import replace

import torch
from problems import make_tasks
from torch import Tensor

from manyway.core.solution import Solution
from manyway.core.tasks import Tasks
from manyway.methods.evidence.shift import Shift
from manyway.methods.evidence.calibrate import CalibratedBatch, calibrate
from manyway.methods.evidence.confidence import confidence
from manyway.methods.evidence.count import Findings, count
from manyway.methods.evidence.group import group
from manyway.methods.evidence.judge import judge
from manyway.methods.evidence.schedule import Parameters
from manyway.methods.evidence.search import search


def findings(batch: CalibratedBatch) -> Findings:
    unknown = judge(batch)
    searched = search(batch, unknown)
    grouped = group(batch, searched)
    return Findings(unknown=unknown, searched=searched, grouped=grouped, probabilities=confidence(batch, grouped))


def answered(known: Tensor | None = None, **parameters) -> tuple[CalibratedBatch, Findings, Solution]:
    """A batch of two tasks, what the stages before found, and the solution."""
    tasks: Tasks = make_tasks(2, n_classes=5, n_query=12, n_features=8, shots=3)
    batch = calibrate(tasks.with_known(known), Parameters(**parameters))
    found = findings(batch)
    return batch, found, count(batch, found)


def test_the_answers_are_the_probabilities_of_all_queries():
    batch, found, solution = answered()
    torch.testing.assert_close(solution.probabilities, found.probabilities(batch.queries.part))
    assert torch.equal(solution.n_iter, found.grouped.n_iter)
    assert torch.equal(solution.converged, found.grouped.converged)
    assert solution.unknown is None
    assert set(solution.told) >= {"precision", "shrinkage"}


def test_presence_lies_between_the_surest_query_and_independent_errors():
    _, _, solution = answered()
    surest = solution.probabilities.amax(1)
    independent = 1 - (1 - solution.probabilities).prod(1)
    assert (solution.presence <= torch.maximum(surest, independent) + 1e-6).all()
    torch.testing.assert_close(solution.n_present, solution.presence.sum(-1).clamp_min(1))


def test_a_class_with_a_known_query_is_present():
    known = torch.full((2, 12), -1)
    known[0, 0] = 4  # of a class that no other query has
    _, _, plain = answered()
    assert plain.presence[0, 4] < 0.5
    _, _, solution = answered(known)
    assert solution.presence[0, 4] == 1
    assert solution.probabilities[0, 0].tolist() == [0, 0, 0, 0, 1]


def test_unknown_queries_have_a_probability_a_group_and_the_query_in_its_middle():
    batch, _, solution = answered(open_set=True)
    assert torch.equal(solution.unknown, batch.queries.part.unknown)
    torch.testing.assert_close(solution.probabilities.sum(-1), 1 - solution.unknown)
    assert solution.unknown_groups.shape == (2, 12)
    assert ((solution.unknown_groups >= 0) == (solution.labels < 0)).all()
    n_groups = solution.unknown_groups.amax(-1) + 1
    assert ((solution.unknown_medoids >= 0).sum(-1) == n_groups).all()


def test_what_may_not_be_asked_for_is_made_on_request():
    batch, _, solution = answered()
    torch.testing.assert_close(solution.prototypes, batch.make_prototypes())
    assert solution.review_scores.shape == (2, 12)
    assert (solution.copies == 1).all()


def test_no_number_of_queries_makes_a_class_certain_that_a_shift_could_explain_away():
    """All queries share the doubt whether they were moved back or are of another class."""
    batch, found, _ = answered()
    probabilities = torch.full((2, 1, 5), 0.005).double()
    probabilities[:, 0, 3] = 0.98
    posterior = replace(
        found.grouped.answers.posterior,
        classes=torch.full((2, 1), 3),
        probabilities=probabilities,
    )
    answers = replace(found.grouped.answers, posterior=posterior)
    found = replace(found, grouped=replace(found.grouped, answers=answers))
    certain = torch.ones(2)
    shift = Shift(vector=torch.zeros(2, 1, 8), size=certain, probability=certain)
    shifted = replace(batch, shift=shift)
    power = shifted.shift_power(found.grouped.groups.query_counts.masses)
    occupied = found.grouped.groups.query_counts.present[:, 3]
    before = count(batch, found).independent_presence[:, 3]
    torch.testing.assert_close(before, 0.98 * occupied)
    tempered = 0.98**power / (0.98**power + 4 * 0.005**power)
    torch.testing.assert_close(count(shifted, found).independent_presence[:, 3], tempered * occupied)
    assert (tempered < 0.9).all()


def test_a_known_label_is_present_whatever_a_shift_explains():
    known = torch.full((2, 12), -1)
    known[0, 0] = 4
    batch, _, _ = answered(known)
    certain = torch.ones(2)
    shift = Shift(vector=torch.zeros(2, 1, 8), size=certain, probability=certain)
    shifted = replace(batch, shift=shift)
    assert float(count(shifted, findings(shifted)).presence[0, 4]) == 1
