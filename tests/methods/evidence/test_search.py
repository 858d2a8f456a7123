"""The stage that searches: it weighs unknown queries, makes the prior, and says how the search went."""

from __future__ import annotations

import torch
from problems import make_tasks

from manyway.methods.evidence.calibrate import CalibratedBatch, calibrate
from manyway.methods.evidence.judge import judge
from manyway.methods.evidence.loop import Outcome
from manyway.methods.evidence.prior import Concentrations, grid_of_alphas
from manyway.methods.evidence.queries import search_weights
from manyway.methods.evidence.schedule import Parameters
from manyway.methods.evidence.search import Searched, search


def batch(**parameters) -> CalibratedBatch:
    tasks = make_tasks(2, n_classes=5, n_query=12, n_features=8, shots=3)
    return calibrate(tasks, Parameters(**parameters))


def test_every_query_is_assigned_and_the_prior_is_that_of_the_batch():
    given = batch()
    found = search(given, None)
    torch.testing.assert_close(given.queries.u.sum(-1), torch.ones(2, 12).double())
    assert (found.prior.n_query, found.prior.n_classes, found.prior.weighted) == (12, 5, False)
    torch.testing.assert_close(found.prior.values, grid_of_alphas(12, 5))
    assert found.converged.all()
    assert (found.n_iter > 0).all()
    assert found.terms == {}


def test_the_terms_are_recorded_on_request():
    assert set(search(batch(), None, with_terms=True).terms) == {"fit", "entropy", "prior"}


def test_queries_that_may_be_unknown_count_less():
    given = batch(open_set=True)
    unknown = judge(given)
    found = search(given, unknown)
    assert found.prior.weighted
    expected = search_weights(unknown.unknown(given.queries.part.placed, 0), given.queries.distinct)
    torch.testing.assert_close(given.queries.u.sum(-1), expected)


def test_a_later_search_adds_its_iterations_and_decides_only_where_it_had_one():
    grid = torch.ones(1).double()
    prior = Concentrations.of(grid, 4, 3, grid.dtype, grid.device)
    copies = torch.ones(3)
    converged = torch.tensor([True, False, True])
    first = Searched(prior=prior, n_copies=copies, n_iter=torch.tensor([5, 7, 9]), converged=converged)
    later = Outcome(n_iter=torch.tensor([2, 0, 3]), converged=torch.tensor([False, True, True]))
    found = first.then(later)
    assert found.n_iter.tolist() == [7, 7, 12]
    assert found.converged.tolist() == [False, False, True]
    assert found.prior is prior
