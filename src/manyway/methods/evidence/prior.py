"""The prior of the labels: Dirichlet-distributed class proportions, integrated out.

The proportions of the K classes have a Dirichlet(α, …, α) prior. Labels with M_k queries of class k
then have the probability

    p(labels | α) = Γ(Kα)/Γ(|Q|+Kα) · Π_k Γ(M_k+α)/Γ(α).

A small α favours few classes: before it is seen, a further query is of a class that has M_k
queries, or of one that has none, with the odds M_k + α to α. With a large α all labels are equally
probable.

Under independent assignments u, M_k is a random count. It is 0 with probability
p⁰_k = Π_q (1 − u_qk), and c_k = m_k/(1 − p⁰_k) on average otherwise, where m_k = Σ_q u_qk.
φ(n) = ln Γ(n+α)/Γ(α) is convex and φ(0) = 0, so by Jensen's inequality

    E φ(M_k) ≥ (1 − p⁰_k) φ(c_k) ≥ φ(m_k).

The first bound is used here. It is tighter than the second, which is that of mean-field variational
Bayes and charges a class that is almost absent as if it occurred. Its derivative in u_qk is

    φ'(c_k) − p⁰_k (c_k φ'(c_k) − φ(c_k)) / (1 − u_qk):

a slope that all queries share, and the cost of the first query of a class, which vanishes where
p⁰_k does.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log, log2
from typing import NamedTuple

import torch
from torch import Tensor

SURE = 1 - 1e-6  # assignments are treated as at most this certain, so that 1/(1 − u) stays finite
_NODES = 256  # number of counts at which φ is tabulated for float32 on a CPU
_BEFORE_THE_LAST = 1e-3  # a count lies between two nodes, so that it is below the last


class Slopes(NamedTuple):
    """The derivative of the bound on the prior: φ'(c) + entry_cost/(1 − u).

    It is computed once per update for all queries of a task; only the divisor 1 − u differs between
    queries.
    """

    slope: Tensor  # [t, k] φ'(c)
    entry_cost: Tensor  # [t, k] −p⁰ (c φ'(c) − φ(c)): the cost of the first query of a class
    alpha: Tensor  # [t] the concentration that they belong to

    def to(self, like: Tensor) -> Slopes:
        """In the precision and on the device of a tensor."""
        return Slopes(*(one.to(like) for one in self))

    def add_to(self, scores: Tensor, remainder: Tensor) -> Tensor:
        """The logits of an update: scores plus the derivative of the prior.

        Parameters
        ----------
        scores : Tensor of shape [t, q, k]
            The log-likelihoods ℓ, perhaps multiplied by a sharpness.
        remainder : Tensor of shape [t, q, k]
            1 − u of the assignments before the update.

        Returns
        -------
        Tensor of shape [t, q, k]
            ℓ_qk + φ'(c_k) + entry_cost_k / (1 − u_qk).
        """
        with_entry = torch.addcdiv(scores, self.entry_cost.unsqueeze(1), remainder)
        return with_entry.add_(self.slope.unsqueeze(1))


@dataclass(frozen=True, eq=False, kw_only=True)
class QueryCounts:
    """What the assignments say about the random number M_k of queries of each class.

    All that the prior needs to know about the queries: the bound and its derivative follow from
    these [t, k] arrays, so that queries may be in memory, in blocks or on other machines.
    """

    masses: Tensor  # [t, k] m, the expected number
    absent: Tensor  # [t, k] p⁰, the probability of none
    present: Tensor  # [t, k] 1 − p⁰, accurate where it is small
    if_present: Tensor  # [t, k] c, the expected number if there is one; at least 1

    @staticmethod
    def of(u: Tensor, remainder: Tensor) -> QueryCounts:
        """From assignments [t, q, k] and ``remainders(u)``."""
        return QueryCounts.of_products(u.sum(1), remainder.prod(1))

    @staticmethod
    def of_products(masses: Tensor, absent: Tensor) -> QueryCounts:
        """From Σ_q u_qk and Π_q (1 − u_qk), each [t, k].

        1 − p⁰ lies between 1 − e^(−m) and m, and the difference 1 − p⁰ alone is all rounding error
        where it is small. c is at least 1: given that there is a query, there is one.
        """
        present = torch.minimum(torch.maximum(1 - absent, -torch.expm1(-masses)), masses)
        if_present = (masses / present.clamp_min(torch.finfo(masses.dtype).tiny)).clamp_min_(1)
        return QueryCounts(masses=masses, absent=absent, present=present, if_present=if_present)

    def __getitem__(self, which: Tensor) -> QueryCounts:
        return QueryCounts(
            masses=self.masses[which],
            absent=self.absent[which],
            present=self.present[which],
            if_present=self.if_present[which],
        )

    def slopes(self, alpha: Tensor) -> Slopes:
        """The derivative of the bound for concentrations [t].

        φ'(c) = digamma(c + α). So slope = digamma(c + α), and entry_cost =
        p⁰ (φ(c) − c digamma(c + α)), which is negative or zero because φ is convex and φ(0) = 0.
        """
        column = alpha.unsqueeze(-1)
        slope = torch.digamma(self.if_present + column)
        rise = torch.lgamma(self.if_present + column) - torch.lgamma(column)
        return Slopes(slope, self.absent * (rise - self.if_present * slope), alpha)


def remainders(u: Tensor) -> Tensor:
    """1 − u."""
    return (1 - u).clamp_min_(1 - SURE)


def log_remainders(u: Tensor) -> Tensor:
    """ln(1 − u)."""
    return u.clamp_max(SURE).neg_().log1p_()


@dataclass(frozen=True, eq=False, kw_only=True)
class Concentrations:
    """The values of α to choose from, with the terms of the prior that depend on α alone.

    α is not integrated out: every update takes the value of the grid with the highest bound.

    In float32 on a CPU, φ is interpolated linearly in ln c. The sums over classes between two nodes
    are then shared by all α, and no gamma function per class is needed. The error hardly depends on
    α, so the same α is chosen. On a GPU the gamma functions cost little, and scattered sums would
    not be deterministic.
    """

    values: Tensor  # [g]
    n_query: int
    normaliser: Tensor  # [g] ln Γ(Kα)/Γ(|Q|+Kα)
    rises: Tensor  # [n, g] φ at c = 1 … |Q|, evenly spaced in ln c; [0, g]: not interpolated
    n_classes: int
    # Whether queries count less than one each, so that their number is that of the masses
    weighted: bool = False

    @staticmethod
    def of(
        grid: Tensor,
        n_query: int,
        n_classes: int,
        dtype: torch.dtype,
        device: torch.device,
        weighted: bool = False,
    ) -> Concentrations:
        """The prior of one or many tasks.

        Parameters
        ----------
        grid : Tensor of shape [g]
            The values of α, in float64.
        n_query, n_classes : int
            |Q| and K.
        dtype, device
            Of the sums that ``slopes`` and ``log_prior`` will get.
        weighted : bool, default=False
            Whether queries count less than one each; |Q| is then Σ_k m_k.

        Returns
        -------
        Concentrations
        """
        total = grid * n_classes
        # In float64: a difference of large numbers.
        normaliser = torch.lgamma(total) - torch.lgamma(total + n_query)
        rises = grid.new_zeros(0, len(grid))
        if dtype == torch.float32 and device.type == "cpu":
            nodes = torch.linspace(0, _log_largest(n_query), _NODES, dtype=torch.float64).exp()
            rises = _rises(nodes, grid).to(dtype)
        return Concentrations(
            values=grid.to(device, dtype),
            n_query=n_query,
            normaliser=normaliser.to(device, dtype),
            rises=rises,
            n_classes=n_classes,
            weighted=weighted,
        )

    def slopes(self, query_counts: QueryCounts) -> Slopes:
        """The derivative of the bound at the best concentration."""
        return query_counts.slopes(self.best(query_counts))

    def log_prior(self, query_counts: QueryCounts) -> Tensor:
        """[t, g] the bound on ln p(labels) for each α.

        Σ_k (1 − p⁰_k) φ(c_k) + ln Γ(Kα)/Γ(|Q|+Kα)
        """
        rises = _rises(query_counts.if_present, self.values)  # [t, k, g]
        of_classes = torch.einsum("tk,tkg->tg", query_counts.present, rises)
        return of_classes + self._normaliser(query_counts)

    def best(self, query_counts: QueryCounts) -> Tensor:
        """[t] the α with the highest prior.

        Where φ is tabulated, Σ_k (1 − p⁰_k) φ(c_k) is a product of the table with the mass of the
        classes around each node: a class between two nodes is shared by them in proportion to its
        distance in ln c.
        """
        if not len(self.rises):
            return self.values[self.log_prior(query_counts).argmax(-1)]
        place = query_counts.if_present.log().mul_((_NODES - 1) / _log_largest(self.n_query))
        place = place.clamp_max_(_NODES - 1 - _BEFORE_THE_LAST)
        below = place.nan_to_num_(0).long()
        upper = place.sub_(below).mul_(query_counts.present)
        sums = place.new_zeros(len(place), _NODES)
        sums.scatter_add_(1, below, query_counts.present - upper).scatter_add_(1, below + 1, upper)
        log_prior = torch.addmm(self._normaliser(query_counts), sums, self.rises)
        return self.values[log_prior.argmax(-1)]

    def _normaliser(self, query_counts: QueryCounts) -> Tensor:
        """[g] or [t, g] the terms that depend on α alone, for as many queries as count."""
        if not self.weighted:
            return self.normaliser
        total = self.n_classes * self.values.double()
        counted = query_counts.masses.sum(-1, keepdim=True, dtype=torch.float64)
        return (torch.lgamma(total) - torch.lgamma(total + counted)).to(self.values)


def grid_of_alphas(n_query: int, n_classes: int, given: float | None = None) -> Tensor:
    """[g] the values of α that are tried, in float64; one, where it is given.

    They are the powers of two from 1/(K|Q|), with which one class is expected to have all queries,
    to |Q|, with which all classes are as frequent.
    """
    if given is not None:
        return torch.tensor([given], dtype=torch.float64)
    least = floor(-log2(n_classes * max(n_query, 1)))
    most = ceil(log2(max(n_query, 1)))
    return torch.arange(least, most + 1, dtype=torch.float64).exp2()


def _rises(counts: Tensor, alphas: Tensor) -> Tensor:
    """[…, g] φ(c) for each α of the grid [g]."""
    return torch.lgamma(counts.unsqueeze(-1) + alphas).sub_(torch.lgamma(alphas))


def _log_largest(n_query: int) -> float:
    """ln of the largest count that is tabulated."""
    return log(max(n_query, 2))
