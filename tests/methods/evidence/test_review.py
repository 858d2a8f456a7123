"""Which query to ask about next: doubt counts, also that of near queries with the same classes in question."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from manyway import Tasks, solve
from manyway.methods.calibration.calibration import Calibration, calibrate
from manyway.methods.evidence import review
from manyway.methods.evidence.known import Known
from manyway.methods.evidence.schedule import Schedule


def problem() -> tuple[Tasks, Calibration, Tensor, Tensor]:
    """Five queries close together and one far away (number 5), all equally doubtful, and a certain one (number 6)."""
    generator = torch.Generator().manual_seed(0)
    support = torch.randn(1, 6, 8, generator=generator) + 3 * torch.eye(2, 8).repeat_interleave(3, 0)
    query = torch.cat([torch.full((5, 8), 0.5), torch.full((1, 8), -9.0), torch.full((1, 8), 9.0)])
    query = query + 0.1 * torch.randn(7, 8, generator=generator)
    tasks = Tasks.from_arrays(support, [[0, 0, 0, 1, 1, 1]], query[None])
    probabilities = torch.tensor([[0.6, 0.4]] * 6 + [[1.0, 0.0]])[None]
    calibration = calibrate(tasks, Schedule(), metric=False)
    return tasks, calibration, calibration.place(tasks.query), probabilities


def test_a_query_among_doubtful_ones_comes_before_a_lone_one_that_is_as_doubtful():
    _, calibration, placed, probabilities = problem()
    scores = review.review_scores(placed, probabilities, calibration, None)[0]
    assert (scores[:5] > scores[5] + 0.1).all()
    torch.testing.assert_close(scores[5], torch.tensor(0.4))  # its own doubt
    assert scores[6] < 1e-3


def test_a_second_answer_in_a_group_repairs_less_than_the_first():
    tasks, calibration, placed, probabilities = problem()
    known = Known.of(torch.tensor([[0, -1, -1, -1, -1, -1, -1]]), tasks)
    first = review.review_scores(placed, probabilities, calibration, None)[0]
    probabilities[0, 0] = torch.tensor([1.0, 0.0])
    second = review.review_scores(placed, probabilities, calibration, known)[0]
    assert second[0] == -1
    assert (second[1:5] < first[1:5]).all()
    assert second[5] == first[5]


def test_an_answer_says_little_about_near_queries_that_have_other_classes_in_question():
    _, calibration, placed, probabilities = problem()
    probabilities = torch.cat([probabilities, torch.zeros(1, 7, 2)], -1)
    first = review.review_scores(placed, probabilities, calibration, None)[0]
    probabilities[0, 0] = torch.tensor([0.0, 0.0, 0.6, 0.4])
    second = review.review_scores(placed, probabilities, calibration, None)[0]
    torch.testing.assert_close(second[0], torch.tensor(0.4))
    assert (second[1:5] < first[1:5]).all()


def test_a_query_that_is_surely_of_no_class_is_not_in_doubt():
    tasks, *_ = problem()
    solution = replace(solve("evidence", tasks), make_review_scores=None)
    unknown = torch.tensor([[0.0, 0.5, 1.0, 0.0, 0.0, 0.0, 0.0]])
    solution = replace(solution, probabilities=solution.probabilities * (1 - unknown).unsqueeze(-1), unknown=unknown)
    assert solution.review_scores[0, 2] == 0
    assert solution.review_scores[0, 1] >= 0.5


def test_in_a_large_task_the_most_doubtful_queries_count_as_those_that_are_repaired(monkeypatch):
    _, calibration, placed, probabilities = problem()
    probabilities[0, 0] = torch.tensor([0.5, 0.5])
    monkeypatch.setattr(review, "_MOST_PAIRS", 7)  # one other query for each of the seven
    scores = review.review_scores(placed, probabilities, calibration, None)[0]
    doubt = 1 - probabilities[0].amax(-1)
    torch.testing.assert_close(scores[0], doubt[0])
    assert (scores[1:5] > doubt[1:5] + 0.1).all()
