"""The search loop: what it asks of the queries, in which order, and when each task ends."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from manyway.methods.evidence import loop
from manyway.methods.evidence.dense import Dense
from manyway.methods.evidence.loop import Update, anneal_and_iterate, resume
from manyway.methods.evidence.prior import Concentrations, QueryCounts, Slopes, remainders
from manyway.methods.evidence.schedule import Parameters, Schedule

N_QUERY, N_CLASSES = 6, 3


@dataclass
class Recorded:
    """Queries that say what they were asked. Task t moves by less than ``tol`` from update ``ends[t]`` on."""

    ends: list[int]
    told: list[tuple] = field(default_factory=list)  # sharpness, what is ahead, tol
    begun: list[float] = field(default_factory=list)
    factors: list[Tensor] = field(default_factory=list)
    replaced: list[list[int]] = field(default_factory=list)
    n_updates: int = 0

    @property
    def query_counts(self) -> QueryCounts:
        masses = torch.full((len(self.ends), N_CLASSES), N_QUERY / N_CLASSES).double()
        return QueryCounts.of_products(masses, torch.exp(-masses))

    def begin(self, sharpness: float) -> QueryCounts:
        self.begun.append(sharpness)
        return self.query_counts

    def update(self, slopes: Slopes, sharpness: float, ahead=(), tol: float = 0.0) -> Update:
        assert len(slopes.slope) == len(self.ends)
        self.told.append((sharpness, tuple(ahead), tol))
        if tol:
            self.n_updates += 1
        moved = [2 * tol if self.n_updates < end else 0.5 * tol for end in self.ends]
        return Update(self.query_counts, torch.tensor(moved))

    def select(self, which: Tensor) -> Recorded:
        ends = torch.tensor(self.ends)[which].tolist()
        return Recorded(ends, self.told, self.begun, self.factors, self.replaced, self.n_updates)

    def replace(self, which: Tensor, other: Recorded) -> None:
        self.replaced.append(which.tolist())

    def sharpened(self, sharpness: Tensor) -> Recorded:
        self.factors.append(sharpness)
        return self

    def terms(self) -> Tensor:
        return torch.zeros(2, len(self.ends))


def prior(n_tasks: int = 1) -> Concentrations:
    grid = torch.tensor([0.1, 1.0], dtype=torch.float64)
    return Concentrations.of(grid, N_QUERY, N_CLASSES, torch.float64, grid.device)


def parameters(**more) -> Parameters:
    return Parameters(schedule={"anneal_from": 0.25, "anneal_steps": 2}, **more)


# --- in which order -------------------------------------------------------------------------------------------------


def test_sharpness_rises_before_the_iterations_and_only_these_can_stop():
    queries = Recorded([2])
    anneal_and_iterate(queries, prior(), parameters(max_iter=9, tol=0.1))
    assert queries.begun == [0.25]
    assert [told[0] for told in queries.told] == [0.25, 0.5, 1.0, 1.0]
    assert [told[2] for told in queries.told] == [0.0, 0.0, 0.1, 0.1]


def test_updates_are_told_what_comes_next():
    queries = Recorded([99])
    anneal_and_iterate(queries, prior(), parameters(max_iter=4, tol=0.1))
    ahead = [told[1] for told in queries.told]
    assert ahead == [(0.5, 1.0, 1.0, 1.0), (1.0,) * 3, (1.0,) * 2, (1.0,), (), ()]


def test_of_a_long_annealing_the_next_updates_are_told_and_of_many_iterations_not_all(monkeypatch):
    monkeypatch.setattr(loop, "_AHEAD", 2)
    monkeypatch.setattr(loop, "_FAR", 3)
    queries = Recorded([99])
    steps = Schedule(anneal_from=0.25, anneal_steps=4).annealing
    given = Parameters(schedule={"anneal_from": 0.25, "anneal_steps": 4}, max_iter=9, tol=0.1)
    anneal_and_iterate(queries, prior(), given)
    assert queries.told[0][1] == tuple(steps[1:3])
    assert queries.told[1][1] == (*steps[2:], *(1.0,) * 3)
    assert queries.told[4][1] == (1.0,) * 3


def test_after_annealing_likelihoods_are_sharpened_by_how_little_the_queries_agree():
    queries = Recorded([1])
    anneal_and_iterate(queries, prior(), parameters())
    expected = Schedule().sharpness(queries.query_counts.masses)
    assert [one.tolist() for one in queries.factors] == [expected.tolist()]
    plain = Recorded([1])
    anneal_and_iterate(plain, prior(), Parameters(schedule={"anneal_from": 1.0}))
    assert plain.factors == []
    resumed = Recorded([1])
    resume(resumed, resumed.query_counts, prior(), parameters())
    assert resumed.begun == []
    assert [one.tolist() for one in resumed.factors] == [expected.tolist()]


# --- when a task ends -----------------------------------------------------------------------------------------------


def test_each_task_stops_when_nothing_moves_or_after_all_iterations():
    queries = Recorded([3, 1, 99, 3])
    found = anneal_and_iterate(queries, prior(), parameters(max_iter=5, tol=0.1))
    assert found.outcome.n_iter.tolist() == [3, 1, 5, 3]
    assert found.outcome.converged.tolist() == [True, True, False, True]
    assert found.queries is queries
    assert queries.replaced == [[0, 3], [2]]  # the second ended among all, where nothing is copied


def test_a_task_that_moves_by_as_much_as_the_tolerance_goes_on():
    class OnTheEdge(Recorded):
        def update(self, slopes, sharpness, ahead=(), tol=0.0):
            return Update(self.query_counts, torch.full((1,), tol))

    assert anneal_and_iterate(OnTheEdge([1]), prior(), parameters(max_iter=3, tol=0.1)).outcome.n_iter.tolist() == [3]


def log_likelihood(n_tasks: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return 2 * torch.randn(n_tasks, N_QUERY, N_CLASSES, generator=generator, dtype=torch.float64)


def test_a_batch_ends_as_its_tasks_do_one_by_one():
    given = Parameters(max_iter=30, tol=1e-4)
    rows = log_likelihood()
    together = anneal_and_iterate(Dense.of(rows), prior(), given)
    assert len(set(together.outcome.n_iter.tolist())) > 1  # they end at different times
    for t in range(4):
        alone = anneal_and_iterate(Dense.of(rows[t : t + 1]), prior(), given)
        torch.testing.assert_close(together.queries.u[t], alone.queries.u[0])
        assert together.outcome.n_iter[t] == alone.outcome.n_iter[0]


def test_where_it_ends_an_update_changes_nothing():
    """u = softmax(s ℓ + slopes of u), for each query on its own."""
    given = Parameters(max_iter=500, tol=1e-10, schedule={"anneal_from": 1.0})
    rows = log_likelihood(1)
    u = anneal_and_iterate(Dense.of(rows), prior(), given).queries.u
    query_counts = QueryCounts.of(u, remainders(u))
    slopes = prior().slopes(query_counts)
    for q in range(N_QUERY):
        logits = rows[0, q] + slopes.slope[0] + slopes.entry_cost[0] / remainders(u[0, q])
        torch.testing.assert_close(u[0, q], logits.softmax(-1), rtol=0, atol=1e-8)


def test_the_terms_of_the_bound_are_recorded_after_each_iteration():
    given = parameters(max_iter=30, tol=1e-4)
    found = anneal_and_iterate(Dense.of(log_likelihood()), prior(), given, with_terms=True)
    n_iter = int(found.outcome.n_iter.max())
    assert {name: tuple(values.shape) for name, values in found.outcome.terms.items()} == {
        "fit": (4, n_iter),
        "entropy": (4, n_iter),
        "prior": (4, n_iter),
    }
    u = found.queries.u
    last = prior().log_prior(QueryCounts.of(u, remainders(u))).amax(-1)
    torch.testing.assert_close(found.outcome.terms["prior"][:, -1], last)
    assert anneal_and_iterate(Dense.of(log_likelihood()), prior(), given).outcome.terms == {}


def test_a_search_that_is_resumed_begins_where_the_first_ended():
    given = Parameters(max_iter=200, tol=1e-8, schedule={"anneal_from": 1.0})
    rows = log_likelihood(1)
    sharpness = Schedule().sharpness
    found = anneal_and_iterate(Dense.of(rows), prior(), given).queries
    factor = sharpness(found.u.sum(1)).view(-1, 1, 1)
    kept = Dense.of(rows / factor)  # which the loop sharpens to the same likelihoods
    kept.u = found.u.clone()
    again = resume(kept, QueryCounts.of(found.u, remainders(found.u)), prior(), given)
    assert again.outcome.n_iter.tolist() == [1]
    torch.testing.assert_close(again.queries.u, found.u, rtol=0, atol=1e-6)


@pytest.mark.parametrize("max_iter", [1, 2])
def test_as_many_iterations_as_are_allowed(max_iter):
    queries = Recorded([99, 99])
    found = anneal_and_iterate(queries, prior(), parameters(max_iter=max_iter, tol=0.1))
    assert found.outcome.n_iter.tolist() == [max_iter] * 2
    assert not found.outcome.converged.any()
    assert sum(told[2] > 0 for told in queries.told) == max_iter
