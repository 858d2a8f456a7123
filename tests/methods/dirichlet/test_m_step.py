"""The parameters of Dirichlet distributions: the exact maximum, and the authors' steps towards it."""

from __future__ import annotations

import pytest
import torch

from manyway.methods.dirichlet.m_step import authors_steps, maximise


def mean_logs(alpha: torch.Tensor) -> torch.Tensor:
    """The expected logarithms under Dirichlet distributions: their maximum-likelihood parameters are ``alpha``."""
    return torch.digamma(alpha) - torch.digamma(alpha.sum(-1, keepdim=True))


def random_parameters(n_classes: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(n_classes)
    return torch.randn(2, 30, n_classes, generator=generator, dtype=torch.float64).mul(4).exp().clamp(1e-3, 1e6)


@pytest.mark.parametrize("n_classes", [2, 3, 20])
def test_the_parameters_of_any_distribution_are_found_from_any_start(n_classes):
    alpha = random_parameters(n_classes)
    for start in (None, torch.ones_like(alpha), alpha.flip(-1)):
        torch.testing.assert_close(maximise(start, mean_logs(alpha)), alpha, rtol=1e-6, atol=0)


def test_a_row_does_not_depend_on_the_others():
    target = mean_logs(random_parameters(5))
    together = maximise(None, target)
    assert torch.equal(maximise(None, target[1:, 7:8]), together[1:, 7:8])


def slow_steps(alpha: torch.Tensor, target: torch.Tensor, count: int) -> torch.Tensor:
    """The authors' steps as they are written, without series."""
    for _ in range(count):
        digamma = torch.digamma(alpha + 1)
        c = (2 * (digamma * alpha - torch.lgamma(alpha + 1)) / alpha**2).abs()
        b = digamma - torch.digamma(alpha.sum(-1, keepdim=True)) - c * alpha - target
        alpha = (-b + (b**2 + 4 * c).sqrt()) / (2 * c)
    return alpha


@pytest.mark.slow
def test_the_authors_steps_are_those_of_the_formula():
    # One sample in a corner of the simplex: 1,000 steps are far from enough.
    corner = torch.tensor([[[0.999, 5e-4, 4e-4, 1e-4], [1e-12, 0.3, 0.3, 0.4]]], dtype=torch.float64).log()
    start = torch.ones_like(corner)
    found, expected = authors_steps(start, corner), slow_steps(start, corner, 1000)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(authors_steps(start, corner, torch.float32), expected, rtol=1e-6, atol=0)
    assert (slow_steps(found, corner, 1000) > 1.1 * found).any()


def test_a_task_stops_at_the_first_check_after_it_has_converged_whatever_the_others_do():
    easy = mean_logs(torch.tensor([[[1.0, 1.1, 0.9]]], dtype=torch.float64))
    hard = torch.tensor([[[0.999, 6e-4, 4e-4]]], dtype=torch.float64).log()
    start = torch.ones_like(easy)
    found = authors_steps(start.repeat(2, 1, 1), torch.cat([hard, easy]))
    torch.testing.assert_close(found[1:], slow_steps(start, easy, 51), rtol=1e-8, atol=0)
    torch.testing.assert_close(found[:1], slow_steps(start, hard, 1000), rtol=1e-6, atol=0)
