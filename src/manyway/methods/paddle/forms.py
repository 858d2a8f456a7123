"""Prototypes as a function of the assignments, in two forms that give the same numbers.

Both compute with w_k(u) = (S_k + Σ_q u_qk z_q) / (n_k + Σ_q u_qk), where S_k and n_k are the class
sums and counts of the support. The support enters through S and n alone.

* ``FeatureForm`` builds the d-dimensional prototypes: 2·q·k·d multiplications per iteration.
* ``GramForm`` uses inner products only, G = Z Zᵀ [q, q] and C = Z Sᵀ [q, k]: q²·k multiplications, whatever d is.

All features are first centred on the query mean,
which changes no distance and keeps float32 accurate.
"""

from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor, baddbmm

from manyway.core import Tasks, class_sums, column_sums, cross_products, dot_scores


@dataclass(frozen=True, eq=False)
class FeatureForm:
    """The iteration on d-dimensional prototypes."""

    query: Tensor  # [t, q, d], centred
    sums: Tensor  # [t, k, d], centred
    counts: Tensor  # [t, k]
    centre: Tensor  # [t, 1, d]

    def scores(self, u: Tensor, bias: Tensor | None = None) -> Tensor:
        """[t, q, k] = −½‖w_k(u) − z_q‖² + ½‖z_q‖² + bias [t, 1, k]."""
        scores = dot_scores(self.query, self._centred_prototypes(u))
        return scores if bias is None else scores.add_(bias)

    def explained(self, u: Tensor) -> Tensor:
        """[t] = Σ_k ‖numerator of w_k‖² / denominator.

        It is the part of Σ‖z‖² that the prototypes explain.
        """
        masses = self.counts + u.sum(1)
        return (self._centred_prototypes(u).square().sum(-1) * masses).sum(-1)

    def movement(self, before: Tensor, after: Tensor) -> Tensor:
        """[t] = mean over classes of ‖w_k(after) − w_k(before)‖.

        The paper's convergence criterion.
        """
        step = self._centred_prototypes(after) - self._centred_prototypes(before)
        return step.square().sum(-1).sqrt().mean(-1)

    def prototypes(self, u: Tensor) -> Tensor:
        """[t, k, d]"""
        return self._centred_prototypes(u) + self.centre

    def take(self, which: Tensor) -> "FeatureForm":
        """The tasks that a mask selects."""
        return FeatureForm(
            self.query[which], self.sums[which], self.counts[which], self.centre[which]
        )

    def take_classes(self, which: Tensor) -> "FeatureForm":
        """The classes [t, l] of each task."""
        sums = self.sums.gather(1, which.unsqueeze(-1).expand(-1, -1, self.sums.shape[-1]))
        return replace(self, sums=sums, counts=self.counts.gather(1, which))

    def _centred_prototypes(self, u: Tensor) -> Tensor:
        return baddbmm(self.sums, u.mT, self.query) / (self.counts + u.sum(1)).unsqueeze(-1)


@dataclass(frozen=True, eq=False)
class GramForm:
    """The iteration on inner products."""

    gram: Tensor  # [t, q, q] = Z Zᵀ
    cross: Tensor  # [t, q, k] = Z Sᵀ
    sum_norms: Tensor  # [t, k] = ‖S_k‖²
    counts: Tensor  # [t, k]
    features: FeatureForm  # computes the prototypes on request

    def scores(self, u: Tensor, bias: Tensor | None = None) -> Tensor:
        """[t, q, k] = −½‖w_k(u) − z_q‖² + ½‖z_q‖² + bias [t, 1, k]."""
        products, norms, masses = self._numerators(u)
        offset = (norms / masses.square()).mul_(-0.5).unsqueeze(1)
        if bias is not None:
            offset += bias
        return offset.addcmul(products, masses.reciprocal().unsqueeze(1))

    def explained(self, u: Tensor) -> Tensor:
        """[t] = Σ_k ‖numerator of w_k‖² / denominator."""
        _, norms, masses = self._numerators(u)
        return (norms / masses).sum(-1)

    def movement(self, before: Tensor, after: Tensor) -> Tensor:
        """[t] = mean over classes of ‖w_k(after) − w_k(before)‖."""
        old = self.counts + before.sum(1)
        new = self.counts + after.sum(1)
        a = 1 / new - 1 / old  # w(after) − w(before) = a_k S_k + Σ_q b_qk z_q
        b = after / new.unsqueeze(1) - before / old.unsqueeze(1)
        along = (b * self.cross).sum(1)
        squares = a.square() * self.sum_norms + 2 * a * along + (b * (self.gram @ b)).sum(1)
        return squares.clamp_min(0).sqrt().mean(-1)

    def prototypes(self, u: Tensor) -> Tensor:
        """[t, k, d]"""
        return self.features.prototypes(u)

    def take(self, which: Tensor) -> "GramForm":
        """The tasks that a mask selects."""
        return GramForm(
            self.gram[which],
            self.cross[which],
            self.sum_norms[which],
            self.counts[which],
            self.features,
        )

    def take_classes(self, which: Tensor) -> "GramForm":
        """The classes [t, l] of each task; the result has no prototypes."""
        cross = self.cross.gather(2, which.unsqueeze(1).expand(-1, self.cross.shape[1], -1))
        norms, counts = (values.gather(1, which) for values in (self.sum_norms, self.counts))
        return replace(self, cross=cross, sum_norms=norms, counts=counts)

    def _numerators(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Products of z_q with the numerators of w [t, q, k].

        Also their squared norms and the denominators [t, k].
        """
        products = baddbmm(self.cross, self.gram, u)
        norms = self.sum_norms + (self.cross + products).mul_(u).sum(1)
        return products, norms, self.counts + u.sum(1)


Form = FeatureForm | GramForm


def prototype_form(tasks: Tasks, form: Literal["gram", "feature"] | None) -> Form:
    """The named form of transformed tasks; None takes the one whose iteration is cheaper."""
    query = tasks.query
    centre = (query.mean(1) if query.is_cuda else column_sums(query) / tasks.n_query).unsqueeze(1)
    query = query - centre
    sums, counts = class_sums(tasks, centre)
    features = FeatureForm(query, sums, counts, centre)
    if form == "feature" or (form is None and tasks.n_query >= 2 * tasks.n_features):
        return features
    return GramForm(
        cross_products(query, query),
        cross_products(query, sums),
        sums.square().sum(-1),
        counts,
        features,
    )


def half_norms(tasks: Tasks, form: Form) -> Tensor:
    """[t] = ½ Σ_n ‖z_n‖² over support and queries, centred as the form is."""
    features = form if isinstance(form, FeatureForm) else form.features
    support = tasks.support - features.centre
    return (support.square().sum((1, 2)) + features.query.square().sum((1, 2))) / 2
