"""The lasso path of ICI: which labels does a low-dimensional linear model contradict?

ICI explains one-hot labels Y [n, k] by features U [n, r] (orthonormal columns, small r) and one
free vector γ_i per sample. Eliminating the linear part leaves the design X̂ = I − U Uᵀ and, for
each penalty λ, the multi-output lasso

    min_γ ½‖X̂ (Y − γ)‖² + λ Σ_i ‖γ_i‖ = min_β Σ_i huber_λ(‖r_i‖),  r_i = y_i − β u_i,  γ_i = r_i·max(0, 1 − λ/‖r_i‖),

because ½‖X̂ R‖² is the minimum of ½‖R − U βᵀ‖² over β. The n·k unknowns become the k·r of a robust regression, and γ_i
= 0 means that sample i is not an outlier: ‖r_i‖ ≤ λ. With c_i = min(1, λ/‖r_i‖), A = Σ c_i u_i u_iᵀ and B = Σ c_i y_i
u_iᵀ, its gradient is βA − B. Steps go along −(βA − B)A⁻¹, which is reweighted least squares, or along Newton's
direction when k·r is small, where reweighting is slow. As ‖r_i‖² = 1 − 2 u_i·β_{y_i} + u_iᵀ(βᵀβ)u_i, no array of size
n·k is needed, and a reweighting costs (n + k)·r². Where no γ_i is zero, λ cancels in βA = B, and β stays
constant. All is in double precision, because the result is an order of samples, and the arrays are small.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import count_labels

_TOL = 1e-9  # relative change of β at which a minimisation stops
_N_PENALTIES = 100  # of the path
_SMALLEST = 1e-3  # of them, relative to the largest
_MAX_STEPS = 200  # per penalty; usually fewer than ten are needed
_NEWTON_UNKNOWNS = 128  # up to so many unknowns k·r, Newton's direction is used
# Powers of two that the line search compares
_LONGEST = 4
_SHORTEST = -20


class RobustRegression(NamedTuple):
    """The robust regression of one-hot labels on features, for a batch of tasks."""

    features: Tensor  # [t, n, r], samples in the order of their labels
    labels: Tensor  # [t, n]
    counts: Tensor  # [t, k] samples of each class, at least one

    @staticmethod
    def of(features: Tensor, labels: Tensor, n_classes: int) -> "tuple[RobustRegression, Tensor]":
        """The problem, and the order [t, n] in which it holds the samples."""
        labels, order = labels.sort(dim=1, stable=True)
        features = features.double().gather(1, order.unsqueeze(-1).expand_as(features))
        return RobustRegression(features, labels, count_labels(labels, n_classes)), order

    def take(self, which: Tensor) -> "RobustRegression":
        return RobustRegression(self.features[which], self.labels[which], self.counts[which])

    def moments(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """A [t, r, r] and B [t, k, r]."""
        n_tasks, _, rank = self.features.shape
        flat = self.features.reshape(-1, rank)
        counts = self.counts.reshape(-1)
        # A sum over runs of equal labels. Unlike a scatter, its order does not depend on the device's scheduling.
        rows = torch.arange(len(flat), device=flat.device)
        starts = counts.cumsum(0) - counts
        bag = torch.nn.functional.embedding_bag
        sums = bag(rows, flat, starts, mode="sum", per_sample_weights=weights.reshape(-1))
        # With fewer samples than features, some columns are zero.
        ridge = torch.eye(rank, dtype=flat.dtype, device=flat.device) * 1e-12
        return (self.features * weights.unsqueeze(-1)).mT @ self.features + ridge, sums.view(
            n_tasks, -1, rank
        )

    def norms(self, beta: Tensor) -> Tensor:
        """[t, n] = ‖r_i‖."""
        return self._form(beta.mT @ beta, beta, -2).add_(1).clamp_min_(0).sqrt_()

    def along(self, beta: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
        """[t, n] the coefficients of a and a² in ‖r_i‖² at β + a·direction."""
        slope = self._form(beta.mT @ direction, direction, -1)
        return slope * 2, self._form(direction.mT @ direction)

    def direction(self, beta: Tensor, norms: Tensor, penalty: Tensor) -> Tensor:
        """[t, k, r] downhill."""
        weights = (penalty / norms).clamp_max(1)
        moments, sums = self.moments(weights)
        gradient = beta @ moments - sums
        if beta[0].numel() > _NEWTON_UNKNOWNS:
            return torch.linalg.solve(moments, -gradient.mT).mT
        classes = torch.eye(beta.shape[1], dtype=beta.dtype, device=beta.device)
        bound = torch.einsum("ab, tij -> taibj", classes, moments).flatten(3).flatten(1, 2)
        residuals = classes[self.labels] - self.features @ beta.mT
        outer = (residuals.unsqueeze(-1) * self.features.unsqueeze(-2)).flatten(2)
        loss = torch.where(norms > penalty, weights / norms.square(), 0)
        # An outlier has no curvature along its own residual. What remains may be singular, so 1e-9 is added.
        hessian = bound * (1 + 1e-9) - (outer * loss.unsqueeze(-1)).mT @ outer
        return torch.linalg.solve(hessian, -gradient.flatten(1).unsqueeze(-1)).view_as(beta)

    def _form(self, matrix: Tensor, linear: Tensor | None = None, factor: float = 0) -> Tensor:
        """[t, n] = u_iᵀ matrix u_i + factor·u_i·linear_{y_i}."""
        rows = self.features @ matrix
        if linear is not None:
            rows = (
                rows + linear.gather(1, self.labels.unsqueeze(-1).expand_as(self.features)) * factor
            )
        return (rows * self.features).sum(-1)


def lasso_path(problem: RobustRegression) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Follow the path for decreasing penalties.

    Yields the tasks [a] that are still on the path, λ [a, 1], β [a, k, r] and ‖r_i‖ [a, n].
    Penalties decrease geometrically from the smallest one at which every γ is zero to a thousandth
    of it. A task leaves after the first penalty at which no γ is zero.
    """
    alive = torch.arange(len(problem.labels), device=problem.labels.device)
    moments, sums = problem.moments(torch.ones_like(problem.features[..., 0]))
    beta = torch.linalg.solve(moments, sums.mT).mT
    norms = problem.norms(beta)
    largest = norms.amax(1, keepdim=True)
    for level in range(_N_PENALTIES):
        penalty = largest * _SMALLEST ** (level / (_N_PENALTIES - 1))
        if level > 0:  # at the first penalty, β is the least-squares solution
            beta, norms = _minimise(problem, penalty, beta, norms)
        yield alive, penalty, beta, norms
        on = (norms <= penalty).any(1)
        if not bool(on.all()):
            alive = alive[on]
            beta = beta[on]
            norms = norms[on]
            largest = largest[on]
            problem = problem.take(on)
        if len(alive) == 0:
            return


def _minimise(
    problem: RobustRegression, penalty: Tensor, beta: Tensor, norms: Tensor
) -> tuple[Tensor, Tensor]:
    lengths = 2.0 ** torch.arange(_LONGEST, _SHORTEST, -1, dtype=beta.dtype, device=beta.device)
    value = _huber(norms, penalty)
    active = torch.ones_like(value, dtype=torch.bool)
    for _ in range(_MAX_STEPS):
        direction = problem.direction(beta, norms, penalty)
        linear, square = (part.unsqueeze(-1) for part in problem.along(beta, direction))
        trials = (
            (norms.square().unsqueeze(-1) + linear * lengths + square * lengths.square())
            .clamp_min_(0)
            .sqrt_()
        )
        best = _huber(trials, penalty.unsqueeze(-1)).argmin(1)
        new_beta = beta + direction * lengths[best][:, None, None]
        new_norms = problem.norms(new_beta)
        new_value = _huber(new_norms, penalty)
        # A task that is done does not move any more, so that its answer does not depend on other tasks.
        active = active & (new_value < value)
        beta = torch.where(active[:, None, None], new_beta, beta)
        norms = torch.where(active[:, None], new_norms, norms)
        value = torch.where(active, new_value, value)
        active = active & (direction.norm(dim=(1, 2)) > _TOL * beta.norm(dim=(1, 2)))
        if not bool(active.any()):
            break
    return beta, norms


def _huber(norms: Tensor, penalty: Tensor) -> Tensor:
    """Σ_i huber_λ(‖r_i‖), over the second axis."""
    inside = torch.minimum(norms, penalty)
    return (inside * (norms - inside / 2)).sum(1)


def entry_penalties(features: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """[t, n] the penalty at which each sample's γ stops being zero on the way down.

    Smaller is more credible.

    If γ returns to zero, the last crossing counts.
    Between two penalties of the path it is interpolated.
    """
    problem, order = RobustRegression.of(features, labels, n_classes)
    entry = torch.zeros_like(problem.features[..., 0])
    # ‖r_i‖ − λ and λ at the previous penalty
    before = torch.zeros_like(entry)
    last = torch.zeros_like(entry)
    for alive, penalty, _, norms in lasso_path(problem):
        excess = norms - penalty
        previous = before[alive]
        crossing = last[alive] - (last[alive] - penalty) * previous / (previous - excess)
        # If the path ends here, a sample whose γ is still zero would enter at about its norm.
        entry[alive] = torch.where(
            excess <= 0, norms, torch.where(previous <= 0, crossing, entry[alive])
        )
        before[alive] = excess
        last[alive] = penalty.expand_as(excess)
    return torch.zeros_like(entry).scatter_(1, order, entry)
