"""Which directions of the features tell classes apart: the metric, learned from the support.

Let C be the pooled within-class covariance of n support samples with f degrees of freedom, and v its mean variance. The
metric is A = (1 − γ) C/v + γ I, and z'A⁻¹z replaces the squared length of z. A direction in which samples of one class
differ much then counts less. γ = 1 is the plain distance.

C is computed from ``Contrasts``: f rows instead of n residuals. ``Scatter`` holds A where there are at least as many
contrasts as features, and ``Gram`` where there are fewer. Both give the same distances; they differ in cost and memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyway.core import Tasks
from manyway.core.kernels import fused, without_tensor_cores

_MANY_CLASSES = 4096  # with more, no number is kept for each pair of classes


class Inner(NamedTuple):
    """Inner products a'A⁻¹b of residuals r and prototypes w."""

    squares: Tensor  # [t, n] r'A⁻¹r
    products: Tensor  # [t, n, k] r'A⁻¹w
    gram: Tensor  # [t, k, k] w'A⁻¹w; of very many classes [t, n, k], for the own prototype of each residual
    lengths: Tensor  # [t, k] w'A⁻¹w of each prototype with itself

    @staticmethod
    def of(residuals: Tensor, prototypes: Tensor, labels: Tensor) -> Inner:
        """Plain inner products of residuals [t, n, d], with labels [t, n], and prototypes [t, k, d]."""
        squares = torch.linalg.vector_norm(residuals, dim=-1).square()
        return Inner(squares, residuals @ prototypes.mT, *_among(prototypes, labels))

    def some(self, every: int) -> Inner:
        """Those of every so many residuals, as a copy."""
        gram = self.gram if self._of_all else self.gram[:, ::every]
        return Inner(self.squares[:, ::every], self.products[:, ::every].clone(), gram, self.lengths)

    def own(self, labels: Tensor) -> Tensor:
        """[t, n, k] w'A⁻¹w of the own prototype of each residual with all prototypes, as a copy."""
        return rows_of(self.gram, labels) if self._of_all else self.gram.clone()

    @property
    def _of_all(self) -> bool:
        return self.gram.shape[1] == self.gram.shape[2]


def _among(table: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The products of the rows [t, k, m] of a table, as in ``Inner.gram``, and their squared lengths [t, k]."""
    if table.shape[1] > max(_MANY_CLASSES, labels.shape[1]):
        return rows_of(table, labels) @ table.mT, table.square().sum(-1)
    gram = table @ table.mT
    return gram, gram.diagonal(dim1=1, dim2=2)


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Differences of samples within their classes, one fewer per class than samples, in an orthonormal basis.

    With residuals R, Z'Z = R'R and R = QZ. Per class of n samples, Z = Q'X is a reflection that takes the sum of the
    class to its first sample, which is dropped: z_j = x_j − u with u = m + (m − x_first)/(√n − 1), where m is the mean.
    """

    rows: Tensor  # [t, f, d] Z
    labels: Tensor  # [t, f]
    sources: Tensor  # [t, f] which sample each row belongs to
    counts: Tensor  # [t, k] n

    @staticmethod
    def of(tasks: Tasks, means: Tensor, counts: Tensor) -> Contrasts:
        """From the support of tasks, class means [t, k, d] and counts [t, k]; no class is empty."""
        labels = tasks.support_labels[:1] if tasks.support_labels.stride(0) == 0 else tasks.support_labels
        sorted_labels, order = labels.sort(dim=1, stable=True)
        first = torch.ones_like(labels, dtype=torch.bool)
        first[:, 1:] = sorted_labels[:, 1:] != sorted_labels[:, :-1]
        parts = (one.view(len(labels), -1) for one in (order[first], order[~first], sorted_labels[~first]))
        firsts, others, names = (one.expand(tasks.n_tasks, -1) for one in parts)
        scale = 1 / (counts.sqrt() - 1).clamp_min(torch.finfo(counts.dtype).eps)
        middles = means + (means - tasks.some_support(firsts)) * scale.unsqueeze(-1)
        return Contrasts(differences(tasks, others, middles, names), names, others, counts)

    def coefficients(self, samples: Tensor, labels: Tensor) -> Tensor:
        """[t, n, f] the rows of Q for samples [t, n] with labels [t, n]."""
        found = samples.unsqueeze(-1) == self.sources.unsqueeze(1)
        counts = self.counts.gather(1, labels)
        others = -1 / (counts - counts.sqrt()).clamp_min(0.5)  # the least is 0.59, of two samples; one has no row
        shared = others.where(found.any(-1), counts.rsqrt())
        return (labels.unsqueeze(-1) == self.labels.unsqueeze(1)) * shared.unsqueeze(-1) + found


def rows_of(table: Tensor, index: Tensor) -> Tensor:
    """[t, n, d] the rows ``index`` [t, n] of a table [t, m, d]."""
    start = torch.arange(len(table), device=table.device).view(-1, 1) * table.shape[1]
    return table.flatten(0, 1).index_select(0, (index + start).flatten()).view(*index.shape, -1)


def rows_of_tasks(values: Tensor, which: Tensor) -> Tensor:
    """[m, …] the values [t, …] of tasks [m], in order; not a copy where that is all tasks."""
    return values if which.shape[0] == values.shape[0] else values[which]


def differences(tasks: Tasks, which: Tensor, others: Tensor, of: Tensor) -> Tensor:
    """[t, n, d] the samples ``which`` [t, n] of the support, less the rows ``of`` [t, n] of others [t, k, d]."""
    if fused(others) and tasks.factor is None:
        from manyway.core.kernels import rows

        if tasks.n_features <= rows.MAX_FEATURES:
            table, index = tasks.support_table.reshape(-1, tasks.n_features), tasks.support_rows.gather(1, which)
            return rows.gathered(table, index, tasks.centre, others, of)
    return tasks.some_support(which).sub_(rows_of(others, of))


@dataclass(frozen=True, eq=False)
class Metric:
    """The metrics that were chosen for some tasks, as a map of features."""

    whitening: RootWhitening | GramWhitening
    stretch: Tensor  # [t] what mapped features are multiplied by

    def __call__(self, features: Tensor, crossed: Tensor | None = None) -> Tensor:
        """[t, n, d]"""
        return self.whitening(features, crossed).contiguous().mul_(self.stretch.view(-1, 1, 1))

    @staticmethod
    def joined(metrics: Sequence[Metric]) -> Metric:
        """Those of consecutive tasks."""
        first = metrics[0]
        if len(metrics) == 1:
            return first
        parts = [vars(one.whitening) for one in metrics]
        tensors = [name for name, value in parts[0].items() if isinstance(value, Tensor)]
        joined: dict[str, Any] = {name: torch.cat([part[name] for part in parts]) for name in tensors}
        whitening = replace(first.whitening, **joined)
        return Metric(whitening, torch.cat([one.stretch for one in metrics]))


def metrics_of(contrasts: Contrasts, weight: Tensor) -> Scatter | Gram:
    """The metrics for all γ, from the contrasts of the support and the weight 1/(f·v) [t]."""
    return (Gram if contrasts.rows.shape[1] < contrasts.rows.shape[2] else Scatter).of(contrasts, weight)


@dataclass(frozen=True, eq=False)
class Scatter:
    """The metrics of tasks with at least as many contrasts as features, by factors of [d, d] matrices."""

    products: Tensor  # [t, d, d] f·C, the lower triangle
    weight: Tensor  # [t] 1/(f·v)

    @staticmethod
    def of(contrasts: Contrasts, weight: Tensor) -> Scatter:
        """From contrasts and the weight 1/(f·v) [t]."""
        return Scatter(products_among(contrasts.rows.mT), weight)

    @property
    def inverts(self) -> bool:
        """Whether L⁻¹ stands for L: on a GPU, where products are fast and triangular systems slow."""
        return fused(self.products) and self.products.dtype == torch.float32

    def root(self, gamma: float | Tensor, which: Tensor) -> Tensor:
        """[m, d, d] L for some tasks [m] and a γ < 1 or one per task [m], where A = LL'; L⁻¹ where ``inverts``."""
        shrunk = _shrunk(rows_of_tasks(self.products, which), (1 - gamma) * rows_of_tasks(self.weight, which), gamma)
        if not self.inverts:
            return torch.linalg.cholesky(shrunk)
        from manyway.methods.calibration import root_kernel

        return root_kernel.inverse_root(shrunk)

    def crossed(self, features: Tensor) -> Tensor:
        """Features [t, n, d] as they are: nothing is to be computed before γ is known."""
        return features

    def inner(
        self, samples: Tensor, labels: Tensor, residuals: Tensor, prototypes: Tensor, crossed: Tensor, plain: Inner
    ) -> Callable[[Tensor, float, Tensor], Inner]:
        """The inner products for the factor of some tasks [m] and its γ.

        ``samples`` [t, n] are some samples of the support, with labels [t, n] and residuals [t, n, d]. Prototypes are
        [t, k, d], ``crossed`` what the method of this name gives for them, and ``plain`` their products for γ = 1.
        """
        both, n_samples = torch.cat([residuals, prototypes], 1), samples.shape[1]

        def inner(root: Tensor, gamma: float, which: Tensor) -> Inner:
            white = RootWhitening(root, self.inverts)(rows_of_tasks(both, which))
            return Inner.of(white[:, :n_samples], white[:, n_samples:], rows_of_tasks(labels, which))

        return inner

    def whitening(self, root: Tensor, gamma: Tensor) -> RootWhitening:
        """For factors [t, d, d] of γ [t]. Where γ is 1 the factor is not used.

        Where ``inverts``, the factors that were compared are rounded, so they are computed again.
        """
        if self.inverts:
            return RootWhitening(self.root(gamma, torch.arange(len(gamma), device=gamma.device)), True)
        identity = torch.eye(root.shape[-1], dtype=root.dtype, device=root.device)
        return RootWhitening(root.where((gamma < 1).view(-1, 1, 1), identity))


@dataclass(frozen=True, eq=False)
class RootWhitening:
    """F = L⁻¹, where A = LL': a linear map with F'F = A⁻¹.

    Plain distances of mapped features are then distances in the metric.
    """

    root: Tensor  # [t, d, d] L
    inverted: bool = False  # whether it is L⁻¹ instead

    def __call__(self, features: Tensor, crossed: Tensor | None = None) -> Tensor:
        """[t, n, d] mapped features. ``crossed``: what ``Gram.crossed`` gives for them, if it is known."""
        return features @ self.root.mT if self.inverted else solve_lower(self.root, features.mT).mT


@dataclass(frozen=True, eq=False)
class Gram:
    """The metrics of tasks with fewer contrasts than features, by factors of [f, f] matrices.

    With κ = (1 − γ) / γ and scaled contrasts Y = Z/√(f·v), A/γ = I + κ Y'Y and γ A⁻¹ = I − κ Y'(LL')⁻¹Y, where
    LL' = I + κ YY'. For residuals R = √(f·v) QY follows γ RA⁻¹W' = √(f·v) Q(LL')⁻¹YW' and
    γ RA⁻¹R' = f·v Q(I − (LL')⁻¹)Q'/κ, so that no product of residuals and features is needed.
    """

    contrasts: Contrasts
    weight: Tensor  # [t, 1, 1] 1/(f·v)
    rows: Tensor  # [t, f, d] Y
    products: Tensor  # [t, f, f] YY', the lower triangle
    inverts: bool = False  # see ``Scatter``

    @staticmethod
    def of(contrasts: Contrasts, weight: Tensor) -> Gram:
        """From contrasts and the weight 1/(f·v) [t]."""
        weight = weight.view(-1, 1, 1)
        rows = contrasts.rows * weight.sqrt()
        return Gram(contrasts, weight, rows, products_among(rows))

    def root(self, gamma: float, which: Tensor) -> Tensor:
        """[m, f, f] L for some tasks [m] and a γ < 1."""
        return torch.linalg.cholesky(_shrunk(rows_of_tasks(self.products, which), (1 - gamma) / gamma, 1))

    def crossed(self, features: Tensor) -> Tensor:
        """[t, n, f] the products of features [t, n, d] with the rows Y."""
        return features @ self.rows.mT

    def inner(
        self, samples: Tensor, labels: Tensor, residuals: Tensor, prototypes: Tensor, crossed: Tensor, plain: Inner
    ) -> Callable[[Tensor, float, Tensor], Inner]:
        """See ``Scatter.inner``."""
        coefficients = self.contrasts.coefficients(samples, labels)
        both, n_samples = torch.cat([coefficients, crossed], 1), samples.shape[1]
        parts = both, coefficients.square().sum(-1), labels, self.weight, plain.gram, plain.lengths

        def inner(root: Tensor, gamma: float, which: Tensor) -> Inner:
            rows, squares, names, weight, *lengths = (rows_of_tasks(part, which) for part in parts)
            # The squares less those of q are small where γ is near 1. Rounded to TF32, q would be wrong in the same
            # direction for all samples: cross-entropies were up to 2 % too low, which chose γ = 0.95 instead of 1.
            with without_tensor_cores(root):
                inside = solve_lower(root, rows.mT).mT
            q, w = inside[:, :n_samples], inside[:, n_samples:]
            pairs = zip(lengths, _among(w, names), strict=True)
            return Inner(
                (squares - q.square().sum(-1)) / (weight * (1 - gamma)).squeeze(-1),
                (q @ w.mT).div_(gamma * weight.sqrt()),
                *((one / gamma).sub_(other * ((1 - gamma) / gamma**2)) for one, other in pairs),
            )

        return inner

    def whitening(self, root: Tensor, gamma: Tensor) -> GramWhitening:
        """For factors [t, f, f] of γ [t]. Where γ is 1 the factor is not used."""
        gamma = gamma.view(-1, 1, 1)
        return GramWhitening(self.rows, root, (1 - gamma) / gamma, gamma)


@dataclass(frozen=True, eq=False)
class GramWhitening:
    """F = (I − κ Y'(L + LL')⁻¹Y) / √γ.

    (I + κ Y'XY)(I + κ Y'XY)' = I + κ Y'Y holds for X = (I + L)⁻¹, and F is the inverse of that factor.
    """

    rows: Tensor  # [t, f, d] Y
    root: Tensor  # [t, f, f] L
    kappa: Tensor  # [t, 1, 1]
    gamma: Tensor  # [t, 1, 1]

    def __call__(self, features: Tensor, crossed: Tensor | None = None) -> Tensor:
        crossed = features @ self.rows.mT if crossed is None else crossed
        lower = self.root.clone()
        lower.diagonal(dim1=1, dim2=2).add_(1)
        inside = solve_lower(self.root, crossed.mT).mT
        inside = torch.linalg.solve_triangular(lower, inside, upper=False, left=False)
        return (features - inside.mul_(self.kappa) @ self.rows).div_(self.gamma.sqrt())


_PANEL = 128  # columns that are handled at once


def products_among(rows: Tensor, panels: bool | None = None) -> Tensor:
    """[t, n, n] the inner products of rows [t, n, m] with each other, of which only the lower triangle is given.

    On a CPU most of the upper triangle is not computed (``panels``; None: where there is no GPU).
    """
    size = rows.shape[1]
    if rows.is_cuda if panels is None else not panels:
        return rows @ rows.mT
    products = rows.new_zeros(len(rows), size, size)
    for first in range(0, size, _PANEL):
        last = min(first + _PANEL, size)
        products[:, first:, first:last] = rows[:, first:] @ rows[:, first:last].mT
    return products


def _shrunk(products: Tensor, factor: float | Tensor, diagonal: float | Tensor) -> Tensor:
    """``factor`` times products [t, n, n], plus a number on the diagonal; one of each for all tasks, or [t]."""
    shrunk = products * (factor.view(-1, 1, 1) if isinstance(factor, Tensor) else factor)
    shrunk.diagonal(dim1=1, dim2=2).add_(diagonal.view(-1, 1) if isinstance(diagonal, Tensor) else diagonal)
    return shrunk


def solve_lower(root: Tensor, right: Tensor, panels: bool | None = None) -> Tensor:
    """L⁻¹B for lower triangular L [t, n, n] and B [t, n, m]; one L [1, n, n] serves all tasks.

    On a GPU the batched solver takes three times as long as matrix products. Inverses of the blocks on the diagonal
    therefore turn the solution into products (``panels``; None: where there is a GPU).
    """
    size = root.shape[-1]
    if not (root.is_cuda if panels is None else panels) or size <= _PANEL:
        # The right-hand sides are mostly rows of a contiguous table, which are not copied this way.
        whole: Tensor = torch.linalg.solve_triangular(root.mT, right.mT, upper=True, left=False)
        return whole.mT
    solved = torch.empty(len(right), *right.shape[1:], dtype=right.dtype, device=right.device)
    for first in range(0, size, _PANEL):
        last = min(first + _PANEL, size)
        block = root[:, first:last, first:last]
        identity = torch.eye(last - first, dtype=root.dtype, device=root.device).expand_as(block)
        inverse = torch.linalg.solve_triangular(block, identity, upper=False)
        part = right[:, first:last]
        part = part - root[:, first:last, :first] @ solved[:, :first] if first else part
        solved[:, first:last] = inverse @ part
    return solved
