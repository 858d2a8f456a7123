"""Dirichlet-distributed class proportions, integrated out: which classes occur at all is part of the bound.

With n_k queries of class k the labels have prior probability Γ(Kα)/Γ(|Q|+Kα) · Π_k Γ(n_k+α)/Γ(α). Under independent
assignments u, n_k is a random count: 0 with probability p⁰_k = Π_q (1 − u_qk), and c_k = m_k/(1 − p⁰_k) on average
otherwise, where m_k = Σ_q u_qk. φ(n) = ln Γ(n+α)/Γ(α) is convex and φ(0) = 0, so by Jensen's inequality

    E φ(n_k) ≥ (1 − p⁰_k) φ(c_k) ≥ φ(m_k):

a lower bound, and a tighter one than that of mean-field variational Bayes, which is the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log10

import torch
from torch import Tensor

_SURE = 1 - 1e-6  # no assignment counts as more certain than this


@dataclass(frozen=True, eq=False)
class Presence:
    """What the assignments say about the number of queries of each class."""

    masses: Tensor  # [t, k] m
    absent: Tensor  # [t, k] p⁰
    present: Tensor  # [t, k] 1 − p⁰, accurate where it is small
    counts: Tensor  # [t, k] c, at least 1

    @staticmethod
    def of(u: Tensor) -> Presence:
        return Presence.of_products(u.sum(1), (1 - u).clamp_min_(1 - _SURE).prod(1))

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

    def log_prior(self, alphas: Tensor, n_query: int) -> Tensor:
        """[t, g] the bound on ln p(labels) for each α of the grid [g]."""
        total = alphas.double() * self.masses.shape[-1]
        normaliser = (torch.lgamma(total) - torch.lgamma(total + n_query)).to(alphas)  # a difference of large numbers
        rises = torch.lgamma(self.counts.unsqueeze(-1) + alphas).sub_(torch.lgamma(alphas))  # φ(c) [t, k, g]
        return torch.einsum("tk,tkg->tg", self.present, rises) + normaliser

    def add_slopes(self, scores: Tensor, u: Tensor, alpha: Tensor) -> Tensor:
        """Scores [t, q, k] plus the bound's derivatives φ'(c) − p⁰/(1−u) · (c φ'(c) − φ(c)), at α [t]."""
        slope, price = self.slopes(alpha)
        return torch.addcmul(scores, being_first(u), price.unsqueeze(1)).add_(slope.unsqueeze(1))

    def slopes(self, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """[t, k] φ'(c), and the price of being the first of a class, to be multiplied by 1/(1−u)."""
        alpha = alpha.unsqueeze(-1)
        slope = torch.digamma(self.counts + alpha)
        rise = torch.lgamma(self.counts + alpha) - torch.lgamma(alpha)
        return slope, self.absent * (rise - self.counts * slope)


def log_absence(u: Tensor) -> Tensor:
    """ln(1 − u)."""
    return u.clamp_max(_SURE).neg_().log1p_()


def being_first(u: Tensor) -> Tensor:
    """1/(1 − u)."""
    return u.clamp_max(_SURE).neg_().add_(1).reciprocal_()


def alpha_grid(n_classes: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[g] from nearly one class a task (Kα at most 0.1) to equal shares of all."""
    exponents = torch.linspace(log10(min(1e-3, 0.1 / n_classes)), 2.0, 12, dtype=torch.float64)
    return (10**exponents).to(device, dtype)
