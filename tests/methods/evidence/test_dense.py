"""Of a large task, the search updates few assignments several times before it updates all."""

import sys
from types import SimpleNamespace

import pytest
import torch

from manyway import Tasks, solve
from manyway.methods import evidence
from manyway.methods.evidence import dense
from manyway.methods.evidence.loop import anneal_and_iterate
from manyway.methods.evidence.schedule import Parameters


@pytest.fixture
def scores() -> torch.Tensor:
    """Log-posteriors [1, q, k] of 300 items of 12 of 80 classes."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(80, 8, generator=generator)
    items = centres[torch.arange(300) % 12] + torch.randn(300, 8, generator=generator)
    return (-torch.cdist(items, centres).square() / 2).log_softmax(-1)[None]


def answers(
    scores: torch.Tensor, large: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Labels, probabilities and the number of updates of few assignments."""
    updates = []
    updated = dense.LikelyAssignments.updated
    with monkeypatch.context() as patch:
        patch.setattr(dense, "LARGE", large)
        patch.setattr(dense, "_PIECE", 2000)
        patch.setattr(dense.LikelyAssignments, "updated", lambda *given: (updates.append(1), updated(*given))[1])
        found = solve("evidence", Tasks.from_scores(scores))
    return found.labels, found.probabilities, len(updates)


def test_the_answers_of_a_large_task_are_those_of_updating_all_assignments_every_time(
    scores: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, probabilities, n_updates = answers(scores, 20_000, monkeypatch)
    expected, plain, none = answers(scores, 10**9, monkeypatch)
    assert n_updates > 5
    assert none == 0
    assert torch.equal(labels, expected)
    torch.testing.assert_close(probabilities, plain, atol=2e-2, rtol=0)


def test_queries_that_count_less_than_one_keep_their_weight_while_others_rest(scores: torch.Tensor) -> None:
    likelihood, counted = scores, torch.linspace(0.1, 1, 300).view(1, 300, 1)
    queries = dense.Dense.of(likelihood, counted)
    query_counts = queries.begin(1.0)
    slopes = query_counts.slopes(torch.tensor([0.1]))
    found = queries._assign(lambda part, u: slopes.add_to(part, 1 - u).softmax(-1), keep=False)
    assert not len(found.places)
    places = (queries.u > 1e-3).view(-1).nonzero().squeeze(1)
    found = found._replace(places=places, before=torch.zeros(len(places)))
    likely = queries._likely(found, slopes, 1.0, n_updates=3)
    later, update = likely.updated(slopes, 1.0)
    assert later.left == 2
    assert float(update.query_counts.masses.sum()) == pytest.approx(float(counted.sum()), rel=1e-2)


def test_a_class_that_gains_late_is_not_missed_while_it_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """One example each of 200 classes in 6 features: what rests at 1e-4 each ended in other labels, sure ones too."""
    generator = torch.Generator().manual_seed(53)
    means = torch.randn(200, 6, generator=generator)
    examples = means + 0.8 * torch.randn(200, 6, generator=generator)
    present = torch.randperm(200, generator=generator)[:20]
    items = means[present[torch.randint(20, (3000,), generator=generator)]]
    items = items + 0.8 * torch.randn(3000, 6, generator=generator)
    tasks, found = Tasks.from_arrays(examples[None], torch.arange(200)[None], items[None]), []
    for large in (10_000, 10**9):
        monkeypatch.setattr(dense, "LARGE", large)
        found.append(solve("evidence", tasks, max_iter=500).probabilities)
    torch.testing.assert_close(*found, atol=2e-2, rtol=0)


def test_beside_a_kernel_only_tasks_with_queries_that_count_less_are_searched_by_the_loop(monkeypatch):
    """The kernel lets every query count one."""
    generator = torch.Generator().manual_seed(0)
    log_likelihood = 3 * torch.randn(3, 8, 5, generator=generator)
    counted = torch.ones(3, 8, 1)
    counted[1, 4:] = 0
    parameters = Parameters()
    counts = torch.ones(3, 5)
    plain = parameters.prior(8, counts)
    prior = parameters.prior(8, counts, weighted=True)
    unweighted = anneal_and_iterate(dense.Dense.of(log_likelihood), plain, parameters)
    expected = anneal_and_iterate(dense.Dense.of(log_likelihood, counted), prior, parameters)
    searched = []

    def search(likelihood, *_):
        searched.append(len(likelihood))
        outcome = unweighted.outcome
        return SimpleNamespace(
            assignments=unweighted.queries.u.clone(), n_iter=outcome.n_iter, converged=outcome.converged
        )

    kernel = SimpleNamespace(MAX_CLASSES=10, MAX_PAIRS=1000, search=search)
    monkeypatch.setitem(sys.modules, "manyway.methods.evidence.kernel", kernel)
    monkeypatch.setattr(evidence, "kernel", kernel, raising=False)
    monkeypatch.setattr(dense, "fused", lambda _: True)
    found = dense.fused_search(dense.Dense.of(log_likelihood, counted), prior, parameters)
    torch.testing.assert_close(found.queries.u, expected.queries.u)
    assert torch.equal(found.outcome.n_iter, expected.outcome.n_iter)
    assert bool(found.outcome.converged.all())
    every = dense.fused_search(dense.Dense.of(log_likelihood, 0.5 * torch.ones(3, 8, 1)), prior, parameters)
    torch.testing.assert_close(every.queries.u.sum(-1), torch.full((3, 8), 0.5))
    assert searched == [3]  # not where all tasks have such queries
