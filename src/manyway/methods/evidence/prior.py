"""Dirichlet-distributed class proportions, integrated out: which classes occur at all is part of the bound.

With n_k queries of class k the labels have prior probability Γ(Kα)/Γ(|Q|+Kα) · Π_k Γ(n_k+α)/Γ(α). Under independent
assignments u, n_k is a random count: 0 with probability p⁰_k = Π_q (1 − u_qk), and c_k = m_k/(1 − p⁰_k) on average
otherwise, where m_k = Σ_q u_qk. φ(n) = ln Γ(n+α)/Γ(α) is convex and φ(0) = 0, so by Jensen's inequality

    E φ(n_k) ≥ (1 − p⁰_k) φ(c_k) ≥ φ(m_k):

a lower bound, and a tighter one than that of mean-field variational Bayes, which is the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, log10

import torch
from torch import Tensor

_SURE = 1 - 1e-6  # no assignment counts as more certain than this
_NODES = 256  # counts at which φ is worked out, when float32 is enough


@dataclass(frozen=True, eq=False)
class Presence:
    """What the assignments say about the number of queries of each class."""

    masses: Tensor  # [t, k] m
    absent: Tensor  # [t, k] p⁰
    present: Tensor  # [t, k] 1 − p⁰, accurate where it is small
    counts: Tensor  # [t, k] c, at least 1

    @staticmethod
    def of(u: Tensor, rest: Tensor) -> Presence:
        """From assignments [t, q, k] and their ``remainders``."""
        return Presence.of_products(u.sum(1), rest.prod(1))

    @staticmethod
    def of_sums(masses: Tensor, log_absent: Tensor) -> Presence:
        """From Σ_q u_qk and Σ_q ln(1 − u_qk), each [t, k]."""
        return Presence.of_products(masses, log_absent.exp())

    @staticmethod
    def of_products(masses: Tensor, absent: Tensor) -> Presence:
        """From Σ_q u_qk and Π_q (1 − u_qk), each [t, k]."""
        # 1 − p⁰ lies between these, and would be nothing but rounding where it is small.
        present = torch.minimum(torch.maximum(1 - absent, -torch.expm1(-masses)), masses)
        counts = (masses / present.clamp_min(torch.finfo(masses.dtype).tiny)).clamp_min_(1)
        return Presence(masses, absent, present, counts)

    def add_slopes(self, scores: Tensor, rest: Tensor, alpha: Tensor) -> Tensor:
        """Scores [t, q, k] plus the bound's derivatives φ'(c) − p⁰/(1−u) · (c φ'(c) − φ(c)); α [t], ``rest``: 1−u."""
        slope, price = self.slopes(alpha)
        return torch.addcdiv(scores, price.unsqueeze(1), rest).add_(slope.unsqueeze(1))

    def slopes(self, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """[t, k] φ'(c), and the price of being the first of a class, to be multiplied by 1/(1−u)."""
        alpha = alpha.unsqueeze(-1)
        slope = torch.digamma(self.counts + alpha)
        rise = torch.lgamma(self.counts + alpha) - torch.lgamma(alpha)
        return slope, self.absent * (rise - self.counts * slope)


def remainders(u: Tensor) -> Tensor:
    """1 − u."""
    return (1 - u).clamp_min_(1 - _SURE)


def log_absence(u: Tensor) -> Tensor:
    """ln(1 − u)."""
    return u.clamp_max(_SURE).neg_().log1p_()


@dataclass(frozen=True, eq=False)
class Alphas:
    """The values of α to choose from, and of the prior what depends on nothing else.

    In float32 on a CPU φ is interpolated, linearly in ln c: what classes between two counts have in common is then one
    sum, and not every class needs gamma functions of its own. The error hardly depends on α, so the best stays the
    best. A GPU has gamma functions to spare, and would add such sums up in any order.
    """

    values: Tensor  # [g]
    n_query: int
    normaliser: Tensor  # [g] ln Γ(Kα)/Γ(|Q|+Kα)
    rises: Tensor | None  # [n, g] φ at c = 1 … |Q|, evenly spaced in ln c; None: nothing is interpolated

    @staticmethod
    def of(
        concentration: float | None, n_query: int, n_classes: int, dtype: torch.dtype, device: torch.device
    ) -> Alphas:
        """A grid, or the one value that is given."""
        grid = alpha_grid(n_classes) if concentration is None else torch.tensor([concentration], dtype=torch.float64)
        total = grid * n_classes
        normaliser = torch.lgamma(total) - torch.lgamma(total + n_query)  # a difference of large numbers
        rises = None
        if dtype == torch.float32 and device.type == "cpu":
            nodes = torch.linspace(0, _most(n_query), _NODES, dtype=torch.float64).exp()
            rises = _rises(nodes, grid).to(dtype)
        return Alphas(grid.to(device, dtype), n_query, normaliser.to(device, dtype), rises)

    def log_prior(self, presence: Presence) -> Tensor:
        """[t, g] the bound on ln p(labels) for each α."""
        rises = _rises(presence.counts, self.values)  # [t, k, g]
        return torch.einsum("tk,tkg->tg", presence.present, rises) + self.normaliser

    def best(self, presence: Presence) -> Tensor:
        """[t] the α with the highest prior."""
        if self.rises is None:
            return self.values[self.log_prior(presence).argmax(-1)]
        place = presence.counts.log().mul_((_NODES - 1) / _most(self.n_query)).clamp_max_(_NODES - 1.001)
        below = place.nan_to_num_(0).long()
        upper = place.sub_(below).mul_(presence.present)
        sums = place.new_zeros(len(place), _NODES)
        sums.scatter_add_(1, below, presence.present - upper).scatter_add_(1, below + 1, upper)
        return self.values[torch.addmm(self.normaliser, sums, self.rises).argmax(-1)]


def alpha_grid(n_classes: int) -> Tensor:
    """[g] from nearly one class a task (Kα at most 0.1) to equal shares of all."""
    return torch.logspace(log10(min(1e-3, 0.1 / n_classes)), 2.0, 24, dtype=torch.float64)


def _rises(counts: Tensor, alphas: Tensor) -> Tensor:
    """[…, g] φ(c) for each α of the grid [g]."""
    return torch.lgamma(counts.unsqueeze(-1) + alphas).sub_(torch.lgamma(alphas))


def _most(n_query: int) -> float:
    """ln of the largest count that is provided for."""
    return log(max(n_query, 2))
