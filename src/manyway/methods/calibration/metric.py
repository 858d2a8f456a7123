"""Which directions of the features tell classes apart: the metric, learned from the support.

Let C be the pooled within-class covariance of n support samples with f degrees of freedom, and v̄
its mean variance. The metric is A = (1 − γ) C/v̄ + γ I, and z'A⁻¹z replaces the squared length of z.
A direction in which samples of one class differ much then counts less. γ = 1 is the plain distance.

C is computed from ``Contrasts``: f rows instead of n residuals. ``Scatter`` holds A where there are
at least as many contrasts as features, and ``Gram`` where there are fewer. Both give the same
distances; they differ in cost and memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import Tasks
from manyway.core.kernels import fused, without_tensor_cores

_MANY_CLASSES = 4096  # with more, no number is kept for each pair of classes


class Inner(NamedTuple):
    """Inner products a'A⁻¹b of residuals r and prototypes w."""

    squares: Tensor  # [t, n] r'A⁻¹r
    products: Tensor  # [t, n, k] r'A⁻¹w
    # [t, k, k] w'A⁻¹w; of very many classes [t, n, k], for the own prototype of each residual
    gram: Tensor
    lengths: Tensor  # [t, k] w'A⁻¹w of each prototype with itself

    @staticmethod
    def of(residuals: Tensor, prototypes: Tensor, labels: Tensor) -> Inner:
        """Plain inner products of residuals [t, n, d] and prototypes [t, k, d].

        The residuals have the labels [t, n].
        """
        among = _among(prototypes, labels)
        return Inner(
            squares=torch.linalg.vector_norm(residuals, dim=-1).square(),
            products=residuals @ prototypes.mT,
            gram=among.gram,
            lengths=among.lengths,
        )

    def some(self, every: int) -> Inner:
        """Those of every so many residuals, as a copy."""
        return Inner(
            squares=self.squares[:, ::every],
            products=self.products[:, ::every].clone(),
            gram=self.gram if self._of_all else self.gram[:, ::every],
            lengths=self.lengths,
        )

    def own(self, labels: Tensor) -> Tensor:
        """[t, n, k] w'A⁻¹w of the own prototype of each residual with all prototypes, as a copy."""
        return rows_of(self.gram, labels) if self._of_all else self.gram.clone()

    @property
    def _of_all(self) -> bool:
        return self.gram.shape[1] == self.gram.shape[2]


class _Among(NamedTuple):
    """Products of prototypes with each other."""

    gram: Tensor  # as in ``Inner``
    lengths: Tensor  # [t, k]


def _among(table: Tensor, labels: Tensor) -> _Among:
    """The products of the rows [t, k, m] of a table."""
    if table.shape[1] > max(_MANY_CLASSES, labels.shape[1]):
        return _Among(rows_of(table, labels) @ table.mT, table.square().sum(-1))
    gram = table @ table.mT
    return _Among(gram, gram.diagonal(dim1=1, dim2=2))


@dataclass(frozen=True, eq=False, kw_only=True)
class Contrasts:
    """Differences of samples within their classes, in an orthonormal basis.

    A class has one fewer of them than samples.

    With residuals R, Z'Z = R'R and R = QZ. Per class of n samples, Z = Q'X is a reflection that
    takes the sum of the class to its first sample, which is dropped: z_j = x_j − u with
    u = m + (m − x_first)/(√n − 1), where m is the mean.

    Samples may have weights p, which sum to W in a class: R are then residuals times √p, the rows
    are √p (x_j − u), and √n − 1 becomes √(W/p_first) − 1. The first sample has the least weight.
    """

    rows: Tensor  # [t, f, d] Z
    labels: Tensor  # [t, f]
    sources: Tensor  # [t, f] which sample each row belongs to
    counts: Tensor  # [t, k] n, or W
    firsts: Tensor  # [t, k] the sample of each class that has no row
    weights: Tensor  # [t, s] p of all samples

    @staticmethod
    def of(tasks: Tasks, means: Tensor, counts: Tensor, weights: Tensor | None = None) -> Contrasts:
        """From the support of tasks, class means [t, k, d] and counts [t, k]; no class is empty.

        ``weights`` [t, s] of the samples; None: all are 1.
        """
        labels = tasks.support_labels
        weighted = weights is not None
        if weights is None:
            weights = torch.ones_like(counts[:, :1]).expand(-1, labels.shape[1])
            if labels.stride(0) == 0:
                labels = labels[:1]
            sorted_labels, order = labels.sort(dim=1, stable=True)
        else:
            by_weight = weights.argsort(dim=1, stable=True)
            sorted_labels, by_label = labels.gather(1, by_weight).sort(dim=1, stable=True)
            order = by_weight.gather(1, by_label)
        first = torch.ones_like(labels, dtype=torch.bool)
        first[:, 1:] = sorted_labels[:, 1:] != sorted_labels[:, :-1]

        def per_task(values: Tensor) -> Tensor:
            return values.view(len(labels), -1).expand(tasks.n_tasks, -1)

        firsts = per_task(order[first])
        others = per_task(order[~first])
        names = per_task(sorted_labels[~first])
        least = torch.finfo(counts.dtype).eps
        scale = 1 / ((counts / weights.gather(1, firsts)).sqrt() - 1).clamp_min(least)
        middles = means + (means - tasks.some_support(firsts)) * scale.unsqueeze(-1)
        rows = differences(tasks, others, middles, names)
        if weighted:
            rows = rows.mul_(weights.gather(1, others).sqrt().unsqueeze(-1))
        return Contrasts(
            rows=rows,
            labels=names,
            sources=others,
            counts=counts,
            firsts=firsts,
            weights=weights,
        )

    def coefficients(self, samples: Tensor, labels: Tensor) -> Tensor:
        """[t, n, f] what residuals of samples [t, n] with labels [t, n] are made of: R = QZ/√p."""
        found = samples.unsqueeze(-1) == self.sources.unsqueeze(1)
        counts = self.counts.gather(1, labels)
        first = self.weights.gather(1, self.firsts).gather(1, labels)
        among = (counts * first).sqrt()
        # The only sample of a class has no row
        others = -1 / (counts - among).clamp_min(torch.finfo(counts.dtype).eps)
        shared = others.where(found.any(-1), 1 / among)
        same_class = labels.unsqueeze(-1) == self.labels.unsqueeze(1)
        of_rows = self.weights.gather(1, self.sources).sqrt().unsqueeze(1)
        own = self.weights.gather(1, samples.expand_as(labels)).rsqrt().unsqueeze(-1)
        return same_class * shared.unsqueeze(-1) * of_rows + found * own


def rows_of(table: Tensor, index: Tensor) -> Tensor:
    """[t, n, d] the rows ``index`` [t, n] of a table [t, m, d], or of one [1, m, d] of all tasks."""
    start = torch.arange(len(table), device=table.device).view(-1, 1) * table.shape[1]
    return (
        table.flatten(0, 1)
        .index_select(0, (index + start).flatten())
        .view(*index.shape, table.shape[-1])
    )


def differences(tasks: Tasks, which: Tensor, others: Tensor, of: Tensor) -> Tensor:
    """[t, n, d] samples of the support, less rows of others [t, k, d].

    ``which`` [t, n] are the samples, and ``of`` [t, n] the rows.
    """
    if fused(others) and tasks.factor is None:
        from manyway.core.kernels import rows

        if tasks.n_features <= rows.MAX_FEATURES:
            table = tasks.support_table.reshape(-1, tasks.n_features)
            index = tasks.support_rows.gather(1, which)
            return rows.gathered(table, index, tasks.centre, others, of)
    return tasks.some_support(which).sub_(rows_of(others, of))


def residuals_of(samples: Tensor, prototypes: Tensor, labels: Tensor) -> Tensor:
    """[t, n, d] samples [t, n, d] less the prototypes [t, k, d] of their classes [t, n]."""
    if fused(samples):
        from manyway.core.kernels import rows

        n_tasks, n_samples, n_features = samples.shape
        if n_features <= rows.MAX_FEATURES:
            index = torch.arange(n_tasks * n_samples, device=samples.device).view(n_tasks, -1)
            return rows.gathered(samples.flatten(0, 1), index, None, prototypes, labels)
    return samples - rows_of(prototypes, labels)


@dataclass(frozen=True, eq=False)
class Metric:
    """The metrics that were chosen for some tasks, as a map of features."""

    whitening: RootWhitening | GramWhitening
    stretch: Tensor  # [t] what mapped features are multiplied by

    def __call__(self, features: Tensor, crossed: Tensor | None = None) -> Tensor:
        """[t, n, d]"""
        return self.whitening(features, crossed).contiguous().mul_(self.stretch.view(-1, 1, 1))


def metrics_of(contrasts: Contrasts, weight: Tensor) -> Scatter | Gram:
    """The metrics for all γ, from the contrasts of the support and the weight 1/(f·v̄) [t]."""
    _, n_contrasts, n_features = contrasts.rows.shape
    if n_contrasts < n_features:
        return Gram.of(contrasts, weight)
    return Scatter.of(contrasts, weight)


@dataclass(frozen=True, eq=False, kw_only=True)
class LeftOutRows:
    """Samples of the support that are left out in turn."""

    samples: Tensor  # [t, n] which they are
    labels: Tensor  # [t, n]
    residuals: Tensor  # [t, n, d] less the prototypes of their classes

    def some(self, every: int) -> LeftOutRows:
        """Every so many of them."""
        return LeftOutRows(
            samples=self.samples[:, ::every],
            labels=self.labels[:, ::every],
            residuals=self.residuals[:, ::every],
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Scatter:
    """The metrics of tasks with at least as many contrasts as features.

    They are computed by factors of [d, d] matrices.
    """

    products: Tensor  # [t, d, d] f·C, the lower triangle
    weight: Tensor  # [t] 1/(f·v̄)

    @staticmethod
    def of(contrasts: Contrasts, weight: Tensor) -> Scatter:
        """From contrasts and the weight 1/(f·v̄) [t]."""
        return Scatter(products=products_among(contrasts.rows.mT), weight=weight)

    @property
    def inverts(self) -> bool:
        """Whether L⁻¹ stands for L.

        On a GPU, where products are fast and triangular systems slow.
        """
        return fused(self.products) and self.products.dtype == torch.float32

    @property
    def features(self) -> Tensor:
        """[t, …, d] an array with as many features."""
        return self.products

    def root(self, gamma: float | Tensor) -> Tensor:
        """[t, d, d] L for a γ < 1, or one per task [t], where A = LL'; L⁻¹ where ``inverts``."""
        gammas = torch.as_tensor(gamma, dtype=self.weight.dtype, device=self.weight.device)
        factor = (1 - gamma) * self.weight
        diagonal = gammas.expand_as(self.weight)
        if not self.inverts:
            return torch.linalg.cholesky(_shrunk(self.products, factor, diagonal))
        from manyway.methods.calibration import root_kernel

        return root_kernel.inverse_root(_shrunk_below(self.products, factor, diagonal))

    def crossed(self, features: Tensor) -> Tensor:
        """Features [t, n, d] as they are: nothing is to be computed before γ is known."""
        return features

    def inner(
        self,
        rows: LeftOutRows,
        prototypes: Tensor,
        crossed: Tensor,
        plain: Inner,
    ) -> ScatterInner:
        """The inner products of rows and prototypes [t, k, d], for the factor of any γ.

        ``crossed`` is what the method of this name gives for the prototypes, and ``plain`` the
        products for γ = 1; these two serve ``Gram.inner`` alone, which needs no prototypes for it.
        """
        both = torch.cat([rows.residuals, prototypes], 1)
        return ScatterInner(both=both, labels=rows.labels, inverted=self.inverts)

    def whitening(self, root: Tensor, gamma: Tensor) -> RootWhitening:
        """For factors [t, d, d] of γ [t]. Where γ is 1 the factor is not used.

        Where ``inverts``, the factors that were compared are rounded, so they are computed again.
        """
        if self.inverts:
            return RootWhitening(root=self.root(gamma), inverted=True)
        identity = torch.eye(root.shape[-1], dtype=root.dtype, device=root.device)
        return RootWhitening(root=root.where((gamma < 1).view(-1, 1, 1), identity))


@dataclass(frozen=True, eq=False, kw_only=True)
class ScatterInner:
    """``Scatter.inner``: from a factor [t, d, d] and its γ to inner products."""

    both: Tensor  # [t, n + k, d] residuals and prototypes
    labels: Tensor  # [t, n]
    inverted: bool

    def __call__(self, root: Tensor, gamma: float) -> Inner:
        white = RootWhitening(root=root, inverted=self.inverted)(self.both)
        n_samples = self.labels.shape[1]
        return Inner.of(white[:, :n_samples], white[:, n_samples:], self.labels)


@dataclass(frozen=True, eq=False, kw_only=True)
class RootWhitening:
    """F = L⁻¹, where A = LL': a linear map with F'F = A⁻¹.

    Plain distances of mapped features are then distances in the metric.
    """

    root: Tensor  # [t, d, d] L
    inverted: bool = False  # whether it is L⁻¹ instead

    def __call__(self, features: Tensor, crossed: Tensor | None = None) -> Tensor:
        """[t, n, d] mapped features.

        ``crossed``: what ``Gram.crossed`` gives for them, if it is known.
        """
        if self.inverted:
            return times_lower(features, self.root)
        return solve_lower(self.root, features.mT).mT


@dataclass(frozen=True, eq=False, kw_only=True)
class Gram:
    """The metrics of tasks with fewer contrasts than features, by factors of [f, f] matrices.

    With κ = (1 − γ) / γ and scaled contrasts Y = Z/√(f·v̄), A/γ = I + κ Y'Y and γ A⁻¹ = I − κ
    Y'(LL')⁻¹Y, where LL' = I + κ YY'. For residuals R = √(f·v̄) QY follows γ RA⁻¹W' = √(f·v̄)
    Q(LL')⁻¹YW' and γ RA⁻¹R' = f·v̄ Q(I − (LL')⁻¹)Q'/κ, so that no product of residuals and features
    is needed.
    """

    contrasts: Contrasts
    weight: Tensor  # [t, 1, 1] 1/(f·v̄)
    rows: Tensor  # [t, f, d] Y
    products: Tensor  # [t, f, f] YY', the lower triangle
    inverts: bool = False  # see ``Scatter``

    @staticmethod
    def of(contrasts: Contrasts, weight: Tensor) -> Gram:
        """From contrasts and the weight 1/(f·v̄) [t]."""
        weight = weight.view(-1, 1, 1)
        rows = contrasts.rows * weight.sqrt()
        products = products_among(rows)
        return Gram(contrasts=contrasts, weight=weight, rows=rows, products=products)

    @property
    def features(self) -> Tensor:
        """[t, …, d] an array with as many features."""
        return self.rows

    def root(self, gamma: float) -> Tensor:
        """[t, f, f] L for a γ < 1."""
        weight = self.weight.flatten()
        kappa = torch.full_like(weight, (1 - gamma) / gamma)
        return torch.linalg.cholesky(_shrunk(self.products, kappa, torch.ones_like(weight)))

    def crossed(self, features: Tensor) -> Tensor:
        """[t, n, f] the products of features [t, n, d] with the rows Y."""
        return features @ self.rows.mT

    def inner(
        self,
        rows: LeftOutRows,
        prototypes: Tensor,
        crossed: Tensor,
        plain: Inner,
    ) -> GramInner:
        """See ``Scatter.inner``."""
        coefficients = self.contrasts.coefficients(rows.samples, rows.labels)
        return GramInner(
            both=torch.cat([coefficients, crossed], 1),
            squares=coefficients.square().sum(-1),
            labels=rows.labels,
            weight=self.weight,
            plain=plain,
        )

    def whitening(self, root: Tensor, gamma: Tensor) -> GramWhitening:
        """For factors [t, f, f] of γ [t]. Where γ is 1 the factor is not used."""
        gamma = gamma.view(-1, 1, 1)
        return GramWhitening(rows=self.rows, root=root, kappa=(1 - gamma) / gamma, gamma=gamma)


@dataclass(frozen=True, eq=False, kw_only=True)
class GramInner:
    """``Gram.inner``: from a factor [t, f, f] and its γ to inner products."""

    both: Tensor  # [t, n + k, f] Q of the samples, and YW' of the prototypes
    squares: Tensor  # [t, n] the squared lengths of the rows of Q
    labels: Tensor  # [t, n]
    weight: Tensor  # [t, 1, 1] 1/(f·v̄)
    plain: Inner  # for γ = 1

    def __call__(self, root: Tensor, gamma: float) -> Inner:
        # The squares less those of q are small where γ is near 1. Rounded to TF32, q would be wrong
        # in the same direction for all samples: cross-entropies were up to 2 % too low, which
        # chose γ = 0.95 instead of 1.
        with without_tensor_cores(root):
            inside = solve_lower(root, self.both.mT).mT
        n_samples = self.labels.shape[1]
        q = inside[:, :n_samples]
        w = inside[:, n_samples:]
        among = _among(w, self.labels)
        factor = (1 - gamma) / gamma**2
        own = (self.weight * (1 - gamma)).squeeze(-1)
        return Inner(
            squares=(self.squares - q.square().sum(-1)) / own,
            products=(q @ w.mT).div_(gamma * self.weight.sqrt()),
            gram=(self.plain.gram / gamma).sub_(among.gram * factor),
            lengths=(self.plain.lengths / gamma).sub_(among.lengths * factor),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class GramWhitening:
    """F = (I − κ Y'(L + LL')⁻¹Y) / √γ.

    (I + κ Y'XY)(I + κ Y'XY)' = I + κ Y'Y holds for X = (I + L)⁻¹, and F is the inverse of that
    factor.
    """

    rows: Tensor  # [t, f, d] Y
    root: Tensor  # [t, f, f] L
    kappa: Tensor  # [t, 1, 1]
    gamma: Tensor  # [t, 1, 1]

    def __call__(self, features: Tensor, crossed: Tensor | None = None) -> Tensor:
        if crossed is None:
            crossed = features @ self.rows.mT
        lower = self.root.clone()
        lower.diagonal(dim1=1, dim2=2).add_(1)
        inside = solve_lower(self.root, crossed.mT).mT
        inside = torch.linalg.solve_triangular(lower, inside, upper=False, left=False)
        return (features - inside.mul_(self.kappa) @ self.rows).div_(self.gamma.sqrt())


_PANEL = 128  # columns that are handled at once
_WIDE_PANEL = 256  # the same where products are fast, and reading rows again is not


def products_among(rows: Tensor, panels: bool | None = None) -> Tensor:
    """[t, n, n] the inner products of rows [t, n, m] with each other.

    Only the lower triangle is given.

    On a CPU most of the upper triangle is not computed (``panels``; None: where there is no GPU).
    """
    size = rows.shape[1]
    if panels is None:
        panels = not rows.is_cuda
    if not panels:
        return rows @ rows.mT
    products = rows.new_zeros(len(rows), size, size)
    for first in range(0, size, _PANEL):
        last = min(first + _PANEL, size)
        products[:, first:, first:last] = rows[:, first:] @ rows[:, first:last].mT
    return products


def _shrunk(products: Tensor, factor: Tensor, diagonal: Tensor) -> Tensor:
    """``factor`` [t] times products [t, n, n], plus ``diagonal`` [t] on the diagonal."""
    shrunk = products * factor.view(-1, 1, 1)
    shrunk.diagonal(dim1=1, dim2=2).add_(diagonal.view(-1, 1))
    return shrunk


def _shrunk_below(products: Tensor, factor: Tensor, diagonal: Tensor) -> Tensor:
    """``_shrunk`` of the lower triangle alone; what is above it may be anything."""
    shrunk = torch.empty_like(products)
    for first in range(0, products.shape[-1], _WIDE_PANEL):
        last = first + _WIDE_PANEL
        block = products[:, first:last, :last]
        torch.mul(block, factor.view(-1, 1, 1), out=shrunk[:, first:last, :last])
    shrunk.diagonal(dim1=1, dim2=2).add_(diagonal.view(-1, 1))
    return shrunk


def times_lower(rows: Tensor, root: Tensor) -> Tensor:
    """[t, n, d] rows times L', for lower triangular L [t, d, d].

    A column of the result needs no more columns of the rows than it has before it. Panels are wide:
    the rows are read again for each.
    """
    size = root.shape[-1]
    if size <= _WIDE_PANEL or len(root) != len(rows):
        return rows @ root.mT
    found = rows.new_empty(rows.shape)
    for first in range(0, size, _WIDE_PANEL):
        last = first + _WIDE_PANEL
        below = root[:, first:last, :last].mT
        torch.bmm(rows[..., :last], below, out=found[..., first:last])
    return found


def solve_lower(root: Tensor, right: Tensor, panels: bool | None = None) -> Tensor:
    """L⁻¹B for lower triangular L [t, n, n] and B [t, n, m]; one L [1, n, n] serves all tasks.

    On a GPU the batched solver takes three times as long as matrix products. Inverses of the blocks
    on the diagonal therefore turn the solution into products (``panels``; None: where there is a
    GPU).
    """
    size = root.shape[-1]
    if panels is None:
        panels = root.is_cuda
    if not panels or size <= _PANEL:
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
        if first:
            part = part - root[:, first:last, :first] @ solved[:, :first]
        solved[:, first:last] = inverse @ part
    return solved
