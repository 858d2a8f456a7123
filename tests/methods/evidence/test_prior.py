"""The prior of the labels: the bound is a bound, its slopes are its derivatives, and the best α is found."""

from __future__ import annotations

from dataclasses import fields
from itertools import product

import pytest
import torch
from problems import exact_prior
from torch import Tensor

from manyway.methods.evidence.prior import (
    Concentrations,
    QueryCounts,
    Slopes,
    grid_of_alphas,
    log_remainders,
    remainders,
)


def random_assignments(*shape: int, seed: int = 0, sharpness: float = 3.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) * sharpness).softmax(-1)


@pytest.mark.parametrize("alpha", [0.01, 0.3, 1.0, 20.0])
def test_the_prior_term_lies_between_mean_field_and_the_exact_expectation(alpha):
    u = random_assignments(20, 5, 3)
    every_labelling = torch.tensor(list(product(range(3), repeat=5)))  # [243, 5]
    weights = u[:, torch.arange(5), every_labelling].prod(-1)  # [20, 243]
    exact = weights @ exact_prior(every_labelling, alpha, 3)
    grid = torch.tensor([alpha], dtype=torch.float64)
    ours = Concentrations.of(grid, 5, 3, u.dtype, u.device).log_prior(QueryCounts.of(u, remainders(u)))[:, 0]
    masses = u.sum(1)
    mean_field = torch.lgamma(3 * grid) - torch.lgamma(3 * grid + 5)
    mean_field = mean_field + (torch.lgamma(masses + grid) - torch.lgamma(grid)).sum(-1)
    assert (ours <= exact + 1e-9).all()
    assert (ours >= mean_field - 1e-9).all()


@pytest.mark.parametrize("alpha", [0.01, 1.0])
def test_slopes_are_the_derivatives_of_the_bound(alpha):
    u = random_assignments(2, 4, 3).requires_grad_()
    grid = torch.tensor([alpha], dtype=torch.float64)
    m, absent = u.sum(1), (1 - u).prod(1)
    counts = m / (1 - absent)
    ((1 - absent) * (torch.lgamma(counts + grid) - torch.lgamma(grid))).sum().backward()
    given = u.detach()
    slopes = QueryCounts.of(given, 1 - given).slopes(grid.expand(2)).add_to(torch.zeros_like(given), 1 - given)
    torch.testing.assert_close(slopes, u.grad, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("n_query", [2, 15, 75, 1000])
@pytest.mark.parametrize("sharpness", [0.5, 3.0, 30.0])
def test_the_best_concentration_is_found_without_a_gamma_function_for_every_class(n_query, sharpness):
    u, grid = random_assignments(20, n_query, 30, sharpness=sharpness), grid_of_alphas(n_query, 30)
    query_counts = QueryCounts.of(u, remainders(u))
    prior = Concentrations.of(grid, n_query, 30, u.dtype, u.device).log_prior(query_counts)
    single = QueryCounts(**{name: value.float() for name, value in vars(query_counts).items()})
    found = Concentrations.of(grid, n_query, 30, torch.float32, grid.device).best(single)
    place = (found.double().unsqueeze(-1) - grid).abs().argmin(-1, keepdim=True)
    assert (prior.amax(-1) - prior.gather(-1, place).squeeze(-1)).max() < 0.05
def test_the_prior_is_that_of_as_many_queries_as_count():
    generator = torch.Generator().manual_seed(0)
    u = torch.rand(2, 9, 4, generator=generator, dtype=torch.float64).softmax(-1)
    u[:, 6:] *= 1e-9  # three of nine queries do not count
    query_counts, grid, like = QueryCounts.of(u, 1 - u), grid_of_alphas(9, 4), (u.dtype, u.device)
    weighted = Concentrations.of(grid, 9, 4, *like, weighted=True).log_prior(query_counts)
    of_six = Concentrations.of(grid, 6, 4, *like).log_prior(query_counts)
    torch.testing.assert_close(weighted, of_six, atol=1e-6, rtol=0)


def test_counts_follow_from_assignments():
    """m = Σ u, p⁰ = Π (1 − u), 1 − p⁰, and c = m/(1 − p⁰), for every class on its own."""
    u = random_assignments(2, 6, 3)
    found = QueryCounts.of(u, remainders(u))
    for t in range(2):
        for k in range(3):
            absent = 1.0
            for value in u[t, :, k].tolist():
                absent *= 1 - value
            mass = float(u[t, :, k].sum())
            expected = [mass, absent, 1 - absent, mass / (1 - absent)]
            each = [found.masses, found.absent, found.present, found.if_present]
            assert [float(one[t, k]) for one in each] == pytest.approx(expected)


def test_a_class_that_hardly_has_a_query_is_present_with_its_mass_and_has_one_if_any():
    """1 − p⁰ is all rounding there: 1 − (1 − 1e-12) has four digits, and 1e-30 would be 0."""
    masses = torch.tensor([[1e-12, 1e-30, 0.0]], dtype=torch.float64)
    found = QueryCounts.of_products(masses, torch.ones_like(masses))
    torch.testing.assert_close(found.present, masses, rtol=1e-9, atol=0)
    torch.testing.assert_close(found.if_present, torch.ones_like(masses))


def test_some_tasks_are_taken_out_with_all_that_is_known_of_them():
    u = random_assignments(3, 6, 4)
    some = QueryCounts.of(u, remainders(u))[torch.tensor([True, False, True])]
    alone = QueryCounts.of(u[::2], remainders(u[::2]))
    for field in fields(QueryCounts):
        assert torch.equal(getattr(some, field.name), getattr(alone, field.name))


def test_the_first_query_of_a_class_has_a_cost_and_a_class_that_surely_occurs_has_none():
    query_counts = QueryCounts.of_products(torch.tensor([[0.5, 30.0]]), torch.tensor([[0.5, 0.0]]))
    found = query_counts.slopes(torch.tensor([0.1]))
    assert found.entry_cost[0, 0] < 0
    assert found.entry_cost[0, 1] == 0
    assert found.slope[0, 1] > found.slope[0, 0]  # a class that has queries attracts more


def test_slopes_are_added_to_scores_with_the_entry_cost_divided_by_what_remains():
    slopes = Slopes(slope=torch.tensor([[1.0, 2.0]]), entry_cost=torch.tensor([[-3.0, 0.0]]), alpha=torch.ones(1))
    scores = torch.tensor([[[5.0, 7.0], [0.0, 0.0]]])
    remainder = torch.tensor([[[0.5, 1.0], [1.0, 0.25]]])
    assert slopes.add_to(scores.clone(), remainder).tolist() == [[[0.0, 9.0], [-2.0, 2.0]]]
    assert slopes.to(scores.double()).slope.dtype == torch.float64


def test_what_remains_of_an_assignment_is_positive_however_certain_it_is():
    u = torch.tensor([0.0, 0.25, 1.0], dtype=torch.float64)
    found = remainders(u.clone())
    assert found[:2].tolist() == [1.0, 0.75]
    assert 0 < found[2] < 1e-3
    torch.testing.assert_close(log_remainders(u.clone()), found.log())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_class_is_best_explained_by_the_smallest_alpha_and_equal_shares_by_the_largest(dtype):
    grid = torch.tensor([0.01, 1.0, 100.0], dtype=torch.float64)
    prior = Concentrations.of(grid, 40, 8, dtype, grid.device)
    one = torch.zeros(8, dtype=dtype)
    one[3] = 40
    masses = torch.stack([one, torch.full((8,), 5.0, dtype=dtype)])
    absent = (masses == 0).to(dtype)
    assert prior.best(QueryCounts.of_products(masses, absent)).tolist() == pytest.approx([0.01, 100.0])


def test_the_slopes_of_the_prior_are_those_of_its_best_alpha():
    u = random_assignments(4, 12, 5)
    grid = grid_of_alphas(12, 5)
    prior = Concentrations.of(grid, 12, 5, u.dtype, u.device)
    query_counts = QueryCounts.of(u, remainders(u))
    best = grid[prior.log_prior(query_counts).argmax(-1)]
    found = prior.slopes(query_counts)
    assert torch.equal(found.alpha, best)
    torch.testing.assert_close(found.slope, query_counts.slopes(best).slope)


def test_the_grid_of_alphas_reaches_one_class_and_all():
    for n_query, n_classes in ((1, 2), (75, 100), (7, 5000)):
        grid = grid_of_alphas(n_query, n_classes)
        assert n_classes * n_query * grid[0] <= 1
        assert grid[-1] >= n_query
        assert torch.equal(grid[1:], 2 * grid[:-1])
    assert grid_of_alphas(75, 100, 0.3).tolist() == [0.3]
