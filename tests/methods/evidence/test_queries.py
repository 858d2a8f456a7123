"""The queries of tasks in memory: parts, samples, known labels and weights, as the stages see them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from problems import make_tasks
from torch import Tensor

from manyway.core import Answered, Joined, Tasks
from manyway.methods.evidence import queries as module
from manyway.methods.evidence.likelihood import GivenLikelihood
from manyway.methods.evidence.prior import QueryCounts, Slopes, remainders
from manyway.methods.evidence.queries import (
    InMemory,
    Part,
    search_weights,
    excluded,
    sample,
    sampling_stride,
)
from manyway.methods.evidence.schedule import Parameters

N_TASKS, N_QUERY, N_CLASSES = 2, 7, 4


def log_likelihood(seed: int = 0, scale: float = 3.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(N_TASKS, N_QUERY, N_CLASSES, generator=generator, dtype=torch.float64)


def in_memory(placed: Tensor | None = None, known: Tensor | None = None, **parameters) -> InMemory:
    """Queries with given likelihoods."""
    tasks: Tasks = make_tasks(N_TASKS, n_classes=N_CLASSES, n_query=N_QUERY)
    likelihood = GivenLikelihood(n_samples=torch.full((N_TASKS, N_CLASSES), 5.0).double())
    placed = log_likelihood() if placed is None else placed
    return InMemory(placed, tasks.with_known(known), likelihood, Parameters(**parameters))


def prior_of(queries: InMemory, **options):
    return queries.parameters.prior(queries.n_query, queries.likelihood.counts, **options)


def known(*labels: int) -> Tensor:
    """[t, q] these labels of the first queries of the first task."""
    found = torch.full((N_TASKS, N_QUERY), -1)
    found[0, : len(labels)] = torch.tensor(labels)
    return found


def test_queries_count_as_much_as_they_are_known_and_near_copies_not_at_all():
    unknown = torch.tensor([[0.0, 0.5, 1.0, 0.0]])
    distinct = torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    torch.testing.assert_close(search_weights(unknown, distinct), torch.tensor([[1.0, 0.5, 0.001, 0.0]]))


def test_a_label_that_is_known_leaves_no_other_class():
    found = excluded(log_likelihood(), known(2))
    assert found[0, 0].softmax(-1).tolist() == [0, 0, 1, 0]
    assert torch.equal(found[0, 1:], log_likelihood()[0, 1:])
    assert torch.equal(found[1], log_likelihood()[1])
    assert float((found[0, 0] * torch.tensor([0.0, 0, 1, 0])).sum()) == 0  # 0 times it is 0


def test_the_search_assigns_every_query_and_keeps_what_it_says_about_the_classes():
    queries = in_memory()
    assert queries.u.shape == (N_TASKS, N_QUERY, 0)
    outcome = queries.search(prior_of(queries))
    torch.testing.assert_close(queries.u.sum(-1), torch.ones(N_TASKS, N_QUERY).double())
    torch.testing.assert_close(queries.query_counts.masses, queries.u.sum(1))
    assert outcome.converged.all()
    assert outcome.terms == {}
    with_terms = in_memory()
    recorded = with_terms.search(prior_of(with_terms), with_terms=True)
    assert set(recorded.terms) == {"fit", "entropy", "prior"}
    torch.testing.assert_close(with_terms.u, queries.u)


def test_queries_that_may_be_unknown_count_less_and_known_ones_are_not_unknown():
    queries = in_memory(known=known(1))
    unknown = torch.linspace(0.1, 0.9, N_QUERY).double().expand(N_TASKS, -1)
    queries.weigh(lambda placed, first: unknown + first, None)
    assert queries.part.any_unknown
    assert float(queries.part.unknown[0, 0]) == 0
    torch.testing.assert_close(queries.part.unknown[1], unknown[1])
    queries.search(prior_of(queries, weighted=True))
    torch.testing.assert_close(queries.u.sum(-1), search_weights(queries.part.unknown, queries.distinct))


def test_near_copies_of_a_query_have_no_part_in_the_search():
    queries = in_memory()
    distinct = torch.ones(N_TASKS, N_QUERY).double()
    distinct[0, 1:3] = 0
    queries.weigh(None, distinct)
    assert not queries.part.any_unknown
    queries.search(prior_of(queries, weighted=True))
    torch.testing.assert_close(queries.u.sum(-1), distinct)
    torch.testing.assert_close(queries.query_counts.masses.sum(-1), distinct.sum(1))


def test_fixed_labels_are_certain_and_change_only_the_tasks_that_they_contradict():
    queries = in_memory(known=known(3, 3, 3))
    prior = prior_of(queries)
    queries.search(prior)
    before = queries.u.clone()
    outcome = queries.fix(torch.tensor([True, False]), prior)
    assert queries.u[0, :3].tolist() == [[0, 0, 0, 1]] * 3
    assert not torch.equal(queries.u[0, 3:], before[0, 3:])
    assert torch.equal(queries.u[1], before[1])
    assert outcome.n_iter[0] > 0
    assert outcome.n_iter[1] == 0
    assert queries.part.free.flatten(1).tolist() == [[0] * 3 + [1] * 4, [1] * 7]
    torch.testing.assert_close(queries.query_counts.masses, queries.u.sum(1))


def test_a_known_query_is_assigned_as_if_its_label_were_not_known_where_groups_are_judged():
    """By its likelihoods and the slopes of the prior."""
    queries = in_memory(known=known(3))
    prior = prior_of(queries)
    queries.search(prior)
    queries.fix(torch.tensor([True, True]), prior)
    slopes = Slopes(
        slope=torch.tensor([[1.0, 0.0, 0.0, 0.0]] * 2).double(),
        entry_cost=torch.tensor([[0.0, 0.0, 0.0, -0.1]] * 2).double(),
        alpha=torch.ones(2).double(),
    )
    found = queries.part.members(slopes)
    own = log_likelihood()[0, 0] + slopes.slope[0] + slopes.entry_cost[0] / remainders(queries.u[0, 0])
    torch.testing.assert_close(found[0, 0], own.softmax(-1))
    assert torch.equal(found[0, 1:], queries.u[0, 1:])
    assert torch.equal(log_likelihood(), queries.part.log_likelihood)  # it is not overwritten


def test_the_search_goes_on_with_updated_likelihoods_in_tasks_with_a_known_label():
    queries = in_memory(known=known(3))
    prior = prior_of(queries)
    queries.search(prior)
    queries.fix(torch.tensor([True, True]), prior)
    before = queries.u.clone()
    towards_class_0 = torch.zeros(N_CLASSES).double()
    towards_class_0[0] = 50

    def updated(placed, u, free, likelihood):
        return likelihood + towards_class_0

    outcome = queries.resume(updated, queries.query_counts, prior)
    assert (queries.u[0, 1:].argmax(-1) == 0).all()
    assert int(queries.u[0, 0].argmax()) == 3  # still known
    assert torch.equal(queries.u[1], before[1])  # no label of the other task is known
    assert outcome.n_iter[1] == 0


def test_the_classes_of_known_labels_are_given():
    queries = in_memory(known=known(3, 1))
    assert queries.known_classes.tolist() == [[False, True, False, True], [False] * 4]


@pytest.mark.parametrize("size", [3, 7])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_a_sample_has_every_so_many_queries_whatever_the_parts_are(size, stride):
    whole = in_memory(known=known(0, 1, 2, 3))
    whole.search(prior_of(whole))

    class InParts:
        def each(self, work):
            found = None
            for first in range(0, N_QUERY, size):
                rows = slice(first, first + size)
                part = replace(
                    whole.part,
                    placed=whole.part.placed[:, rows],
                    first=first,
                    known=whole.part.known[:, rows],
                    fixed=whole.part.fixed[:, rows],
                    unknown=whole.part.unknown[:, rows],
                    assign=lambda rows=rows: whole.u[:, rows],
                )
                one = work(part)
                found = one if found is None else found.plus(one)
            return found

    rows = slice(None, None, stride)
    found = sample(InParts(), stride)
    assert torch.equal(found.placed, whole.part.placed[:, rows])
    assert torch.equal(found.values, whole.part.known[:, rows])
    assert torch.equal(sample(InParts(), stride, lambda part: part.u).values, whole.u[:, rows])
    assert torch.equal(whole.each(lambda part: Joined((part.u,))).values[0], whole.u)


def test_a_few_hundred_queries_stand_for_all(monkeypatch):
    monkeypatch.setattr(module, "_MOST_QUERIES", 10)
    assert [sampling_stride(n) for n in (1, 10, 11, 20, 21)] == [1, 1, 2, 2, 3]


def test_answers_are_those_of_the_one_part_and_reviews_are_made_on_request():
    queries = in_memory()
    asked = []

    def answer(part: Part) -> Answered:
        return Answered(part.log_likelihood.softmax(-1), part.unknown)

    def review(part: Part, found: Answered) -> Tensor:
        asked.append(found)
        return found.probabilities.amax(-1)

    found = queries.answers(answer, review)
    torch.testing.assert_close(found.probabilities, log_likelihood().softmax(-1))
    assert (found.unknown == 0).all()
    assert asked == []
    torch.testing.assert_close(found.make_review_scores(), found.probabilities.amax(-1))


def test_what_assignments_say_is_that_of_their_classes():
    queries = in_memory()
    queries.search(prior_of(queries))
    expected = QueryCounts.of(queries.u, remainders(queries.u))
    torch.testing.assert_close(queries.query_counts.present, expected.present)
