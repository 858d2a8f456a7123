"""Which query to ask about next: doubt counts, also that of near queries with the same classes in question."""

from __future__ import annotations

import torch
from torch import Tensor

from manyway import Tasks, solve
from manyway.core.solution import Solution
from manyway.methods.calibration.calibrating import Asked, calibrate_distances
from manyway.methods.evidence import review
from manyway.methods.evidence.likelihood import Distances
from manyway.methods.evidence.queries import Part
from manyway.methods.evidence.schedule import Schedule


def problem() -> tuple[Tasks, Distances, Tensor, Tensor]:
    """Five queries close together and one far away (number 5), all equally doubtful, and a certain one (number 6)."""
    generator = torch.Generator().manual_seed(0)
    support = torch.randn(1, 6, 8, generator=generator) + 3 * torch.eye(2, 8).repeat_interleave(3, 0)
    query = torch.cat([torch.full((5, 8), 0.5), torch.full((1, 8), -9.0), torch.full((1, 8), 9.0)])
    query = query + 0.1 * torch.randn(7, 8, generator=generator)
    tasks = Tasks.from_arrays(support, [[0, 0, 0, 1, 1, 1]], query[None])
    probabilities = torch.tensor([[0.6, 0.4]] * 6 + [[1.0, 0.0]])[None]
    calibration = calibrate_distances(tasks, Schedule(), Asked(metric=False))
    return tasks, Distances(calibration), calibration.coordinates.place(tasks.query), probabilities


def scores_of(
    placed: Tensor,
    probabilities: Tensor,
    likelihood: Distances,
    known: int | None = None,
    shared: float | None = None,
) -> Tensor:
    """[q] the review scores, where the label of one query may be known and queries may share a doubt."""
    labels = torch.where(torch.arange(7) == known, 0, -1)[None] if known is not None else torch.full((1, 7), -1)
    part = Part(
        placed=placed,
        first=0,
        known=labels,
        fixed=labels,
        unknown=torch.zeros(1, 7),
        distinct=torch.ones(1, 7),
        assign=lambda: probabilities,
        likelihood=likelihood,
        any_known=known is not None,
        any_fixed=known is not None,
        any_unknown=False,
    )
    doubt = None if shared is None else torch.tensor([shared])
    return review.review_scores(part, probabilities, doubt)[0]


def test_where_all_queries_share_a_doubt_those_in_the_middle_of_a_large_group_come_first():
    """The lone query is the most doubtful, but its label would say little about the others."""
    _, likelihood, placed, probabilities = problem()
    probabilities[0, :5] = torch.tensor([0.95, 0.05])
    probabilities[0, 5] = torch.tensor([0.82, 0.18])
    alone = scores_of(placed, probabilities, likelihood)
    shared = scores_of(placed, probabilities, likelihood, shared=0.9)
    assert int(alone.argmax()) == 5
    assert int(shared.argmax()) < 5
    torch.testing.assert_close(scores_of(placed, probabilities, likelihood, shared=0.0), alone)


def test_an_answer_about_a_shared_doubt_leaves_less_to_ask():
    _, likelihood, placed, probabilities = problem()
    first = scores_of(placed, probabilities, likelihood, shared=0.9)
    second = scores_of(placed, probabilities, likelihood, known=0, shared=0.9)
    assert second[0] == -1
    assert (second[1:5] < first[1:5]).all()


def test_a_query_among_doubtful_ones_comes_before_a_lone_one_that_is_as_doubtful():
    _, likelihood, placed, probabilities = problem()
    scores = scores_of(placed, probabilities, likelihood)
    assert (scores[:5] > scores[5] + 0.1).all()
    torch.testing.assert_close(scores[5], torch.tensor(0.4))  # its own doubt
    assert scores[6] < 1e-3


def test_a_second_answer_in_a_group_repairs_less_than_the_first():
    _, likelihood, placed, probabilities = problem()
    first = scores_of(placed, probabilities, likelihood)
    probabilities[0, 0] = torch.tensor([1.0, 0.0])
    second = scores_of(placed, probabilities, likelihood, known=0)
    assert second[0] == -1
    assert (second[1:5] < first[1:5]).all()
    assert second[5] == first[5]


def test_an_answer_says_little_about_near_queries_that_have_other_classes_in_question():
    _, likelihood, placed, probabilities = problem()
    probabilities = torch.cat([probabilities, torch.zeros(1, 7, 2)], -1)
    first = scores_of(placed, probabilities, likelihood)
    probabilities[0, 0] = torch.tensor([0.0, 0.0, 0.6, 0.4])
    second = scores_of(placed, probabilities, likelihood)
    torch.testing.assert_close(second[0], torch.tensor(0.4))
    assert (second[1:5] < first[1:5]).all()


def test_a_query_that_is_surely_of_no_class_is_not_in_doubt():
    tasks, *_ = problem()
    found = solve("evidence", tasks)
    unknown = torch.tensor([[0.0, 0.5, 1.0, 0.0, 0.0, 0.0, 0.0]])
    shares = found.probabilities * (1 - unknown).unsqueeze(-1)
    solution = Solution(shares, found.n_iter, found.converged, unknown=unknown)
    assert solution.review_scores[0, 2] == 0
    assert solution.review_scores[0, 1] >= 0.5


def test_in_a_large_task_the_most_doubtful_queries_count_as_those_that_are_repaired(monkeypatch):
    _, likelihood, placed, probabilities = problem()
    probabilities[0, 0] = torch.tensor([0.5, 0.5])
    monkeypatch.setattr(review, "_MOST_PAIRS", 7)  # one other query for each of the seven
    scores = scores_of(placed, probabilities, likelihood)
    doubt = 1 - probabilities[0].amax(-1)
    torch.testing.assert_close(scores[0], doubt[0])
    assert (scores[1:5] > doubt[1:5] + 0.1).all()
