"""Which directions of the features tell classes apart: the metric, learned from the support.

Let C be the pooled within-class covariance of n support samples with f degrees of freedom, and v its mean variance. The
metric is A = (1 − γ) C/v + γ I, and z'A⁻¹z replaces the squared length of z. A direction in which samples of one class
differ much then counts less. γ = 1 is the plain distance.

``Scatter`` holds A where features are fewer than samples, and ``Gram`` where samples are fewer than features. Both give
the same distances; they differ in cost and memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Inner(NamedTuple):
    """Inner products a'A⁻¹b of samples x and prototypes w."""

    squares: Tensor  # [t, n] x'A⁻¹x
    products: Tensor  # [t, n, k] x'A⁻¹w
    gram: Tensor  # [t, k, k] w'A⁻¹w

    @staticmethod
    def of(samples: Tensor, prototypes: Tensor) -> Inner:
        """Plain inner products of samples [t, n, d] and prototypes [t, k, d]."""
        return Inner(samples.square().sum(-1), samples @ prototypes.mT, prototypes @ prototypes.mT)


class Whitening(Protocol):
    """A linear map F with F'F = A⁻¹, so that plain distances of mapped features are distances in the metric."""

    def __call__(self, features: Tensor) -> Tensor:
        """[t, n, d] mapped features."""


@dataclass(frozen=True, eq=False)
class Metric:
    """The metrics that were chosen for some tasks, as a map of features."""

    whitening: Whitening
    stretch: Tensor  # [t] what mapped features are multiplied by

    def __call__(self, features: Tensor) -> Tensor:
        """[t, n, d]"""
        return self.whitening(features).mul_(self.stretch.view(-1, 1, 1))

    @staticmethod
    def joined(metrics: Sequence[Metric]) -> Metric:
        """Those of consecutive tasks."""
        first = metrics[0]
        if len(metrics) == 1:
            return first
        parts = [vars(one.whitening) for one in metrics]
        whitening = type(first.whitening)(**{name: torch.cat([part[name] for part in parts]) for name in parts[0]})
        return Metric(whitening, torch.cat([one.stretch for one in metrics]))


def metrics_of(residuals: Tensor, weight: Tensor) -> Scatter | Gram:
    """The metrics for all γ, from residuals [t, s, d] of samples from their class means and the weight 1/(f·v) [t]."""
    return (Gram if residuals.shape[1] < residuals.shape[2] else Scatter).of(residuals, weight)


@dataclass(frozen=True, eq=False)
class Scatter:
    """The metrics of tasks with at least as many samples as features, by factors of [d, d] matrices."""

    covariance: Tensor  # [t, d, d] C/v

    @staticmethod
    def of(residuals: Tensor, weight: Tensor) -> Scatter:
        """From residuals [t, s, d] of samples from their class means, and the weight 1/(f·v) [t]."""
        return Scatter((residuals.mT @ residuals).mul_(weight.view(-1, 1, 1)))

    def inner(self, samples: Tensor, prototypes: Tensor) -> Callable[[float], Inner]:
        """The inner products of samples [t, n, d] and prototypes [t, k, d], for any γ < 1."""
        both, n_samples = torch.cat([samples, prototypes], 1), samples.shape[1]

        def inner(gamma: float) -> Inner:
            white = self.whitening(both.new_tensor(gamma))(both)
            return Inner.of(white[:, :n_samples], white[:, n_samples:])

        return inner

    def whitening(self, gamma: Tensor) -> RootWhitening:
        """For γ [t] or []."""
        gamma = gamma.view(-1, 1, 1)
        metric = self.covariance * (1 - gamma)
        metric.diagonal(dim1=1, dim2=2).add_(gamma.squeeze(-1))
        return RootWhitening(torch.linalg.cholesky(metric))


@dataclass(frozen=True, eq=False)
class RootWhitening:
    """F = L⁻¹, where A = LL'."""

    root: Tensor  # [t, d, d] L

    def __call__(self, features: Tensor) -> Tensor:
        return solve_lower(self.root, features.mT).mT


@dataclass(frozen=True, eq=False)
class Gram:
    """The metrics of tasks with fewer samples than features, by factors of [s, s] matrices.

    With κ = (1 − γ) / γ and rows Y = R/√(f·v) of scaled residuals, A/γ = I + κ Y'Y and γ A⁻¹ = I − κ Y'(LL')⁻¹Y, where
    LL' = I + κ YY'.
    """

    rows: Tensor  # [t, s, d] Y
    products: Tensor  # [t, s, s] YY'

    @staticmethod
    def of(residuals: Tensor, weight: Tensor) -> Gram:
        """From residuals [t, s, d] of samples from their class means, and the weight 1/(f·v) [t]."""
        rows = residuals * weight.sqrt().view(-1, 1, 1)
        return Gram(rows, rows @ rows.mT)

    def inner(self, samples: Tensor, prototypes: Tensor) -> Callable[[float], Inner]:
        """The inner products of samples [t, n, d] and prototypes [t, k, d], for any γ < 1."""
        n_samples = samples.shape[1]
        crossed = self.rows @ torch.cat([samples, prototypes], 1).mT
        plain = Inner.of(samples, prototypes)

        def inner(gamma: float) -> Inner:
            kappa = self.products.new_tensor((1 - gamma) / gamma)
            inside = solve_lower(self._root(kappa), crossed).mul_(kappa.sqrt())
            x, w = inside[..., :n_samples], inside[..., n_samples:]
            squares = (plain.squares - x.square().sum(1)) / gamma
            return Inner(squares, (plain.products - x.mT @ w) / gamma, (plain.gram - w.mT @ w) / gamma)

        return inner

    def whitening(self, gamma: Tensor) -> GramWhitening:
        """For γ [t]."""
        kappa = (1 - gamma) / gamma
        return GramWhitening(self.rows, self._root(kappa), kappa.view(-1, 1, 1), gamma.view(-1, 1, 1))

    def _root(self, kappa: Tensor) -> Tensor:
        inside = self.products * kappa.view(-1, 1, 1)
        inside.diagonal(dim1=1, dim2=2).add_(1)
        root: Tensor = torch.linalg.cholesky(inside)
        return root


@dataclass(frozen=True, eq=False)
class GramWhitening:
    """F = (I − κ Y'(L + LL')⁻¹Y) / √γ.

    (I + κ Y'XY)(I + κ Y'XY)' = I + κ Y'Y holds for X = (I + L)⁻¹, and F is the inverse of that factor.
    """

    rows: Tensor  # [t, s, d] Y
    root: Tensor  # [t, s, s] L
    kappa: Tensor  # [t, 1, 1]
    gamma: Tensor  # [t, 1, 1]

    def __call__(self, features: Tensor) -> Tensor:
        inside = solve_lower(self.root, self.rows @ features.mT)
        upper = self.root.mT.clone()
        upper.diagonal(dim1=1, dim2=2).add_(1)
        inside = torch.linalg.solve_triangular(upper, inside, upper=True)
        return torch.baddbmm(features, inside.mT, self.kappa * self.rows, alpha=-1).div_(self.gamma.sqrt())


_PANEL = 128  # columns of a factor that are solved at once on a GPU


def solve_lower(root: Tensor, right: Tensor, panels: bool | None = None) -> Tensor:
    """L⁻¹B for lower triangular L [t, n, n] and B [t, n, m]; one L [1, n, n] serves all tasks.

    On a GPU the batched solver takes three times as long as matrix products. Inverses of the blocks on the diagonal
    therefore turn the solution into products (``panels``; None: where there is a GPU).
    """
    size = root.shape[-1]
    if not (root.is_cuda if panels is None else panels) or size <= _PANEL:
        whole: Tensor = torch.linalg.solve_triangular(root, right, upper=False)
        return whole
    solved = torch.empty(len(right), *right.shape[1:], dtype=right.dtype, device=right.device)
    for first in range(0, size, _PANEL):
        last = min(first + _PANEL, size)
        block = root[:, first:last, first:last]
        identity = torch.eye(last - first, dtype=root.dtype, device=root.device).expand_as(block)
        inverse = torch.linalg.solve_triangular(block, identity, upper=False)
        part = right[:, first:last]
        if first:
            part = part - root[:, first:last, :first] @ solved[:, :first]
        solved[:, first:last] = inverse @ part
    return solved
