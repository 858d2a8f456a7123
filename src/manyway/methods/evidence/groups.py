"""What the queries of a class say together, once the search has found such groups.

Two things that the bound leaves out. *Prototypes may move*: a group of several queries is worth some more samples of
its class. *A group may be misnamed*: its queries share the error of the prototypes, so they are less independent than
the bound takes them for, and a class with many queries may be split between its own name and a neighbour's.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_SHARED_MISFIT = 0.3  # the part of a group's error that more shots do not remove,
_FRAGMENT_MISFIT = 0.05  # and the part that makes a group fall into pieces
_MOST_GROUPS = 6.0  # with so many groups nobody looks for pieces
_LARGEST = 16  # groups that may have pieces
SCATTERED = 0.2  # classes found a query, beyond which the queries have not agreed


def effective_number(masses: Tensor) -> Tensor:
    """[t] how many groups of equal size would be as diverse as groups of these masses [t, k]: e to their entropy."""
    shares = masses / masses.sum(-1, keepdim=True)
    return torch.xlogy(shares, shares).sum(-1).neg_().exp_()


def agreement(masses: Tensor) -> Tensor:
    """[t] 1 − N / min(|Q|, K), N being the effective number of groups.

    Near 1 where few classes have many queries each; 0 where all classes, or as many as there are queries, have as many.
    """
    most = masses.sum(-1).clamp_max(masses.shape[-1])
    return (1 - effective_number(masses) / most).clamp_min(0)


def scattered(masses: Tensor) -> Tensor:
    """[t] whether the queries have not agreed on few classes."""
    return effective_number(masses) > SCATTERED * masses.sum(-1)


def worth(masses: Tensor) -> Tensor:
    """[t, k] how much of a support sample a query of each class is worth; nothing where nobody shares its class."""
    return torch.where(masses > 1, agreement(masses).unsqueeze(-1), 0.0)


def moved(distances: Tensor, between: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    """[t, q, k] squared distances to the means of n_k support samples and of the queries with weights c_qk.

    From the distances to the support's means [t, q, k] and ``between`` queries [t, q, q] alone: the mean squared
    distance to the members of a class is the squared distance to their mean and the members' spread around it.
    """
    masses = (counts + weights.sum(1)).unsqueeze(1)
    to_members = torch.baddbmm(distances * counts.unsqueeze(1), between, weights).div_(masses)
    of_support = (weights * distances).sum(1, keepdim=True) * counts.unsqueeze(1) / masses.square()
    spread = of_support + (weights * to_members).sum(1, keepdim=True) / masses
    return to_members.sub_(spread, alpha=0.5)


def left_out(distances: Tensor, weights: Tensor, counts: Tensor, noise: Tensor) -> Tensor:
    """[…, q, k] squared distances to means that each query is left out of, less what their noise adds.

    As for left-out support samples: without z, the mean is N/(N − c) times as far from it.
    """
    masses = (counts + weights.sum(-2)).unsqueeze(-2)
    return left_out_of(distances, weights, masses, noise)


def left_out_of(distances: Tensor, weights: Tensor, masses: Tensor, noise: Tensor) -> Tensor:
    """The same where the masses N, support and queries, are known."""
    others = masses - weights
    return distances * (masses / others).square() - noise / others


class Identities(NamedTuple):
    """Which class each group of queries is: P_gj is the probability that group g, taken as one, is class j."""

    chances: Tensor  # [t, g, j] P without its diagonal's extra,
    alone: Tensor  # [t, g] and that extra
    piece: Tensor  # [t, g] the probability that it is but a piece of a larger group


def identities(
    totals: Tensor,
    masses: Tensor,
    counts: Tensor,
    alpha: Tensor,
    all_masses: Tensor,
    all_counts: Tensor,
    *,
    merge: bool,
) -> Identities:
    """What the groups of queries are, each taken as one.

    ``totals`` [t, g, j] are the log-likelihoods of the groups' queries as members of class j, Σ_q u_qg ℓ_qj;
    ``masses`` and ``counts`` [t, g] the groups' queries and support samples, ``all_…`` [t, j] those of all classes.

    m queries count as m / (1 + ρ(m − 1)) independent ones, ρ = 0.3 + 1/(n + 1). With ``merge``, a group may also be
    a piece of a larger one. As such it needs no class of its own, and is as probable as the labels' prior says; that
    it can be a piece at all is the more probable the fewer groups there are. Where half of all classes or more seem
    to occur, groups are hardly more than mixtures of whatever is near, and keep their own name the more.
    """
    chances = (totals * _independent(masses, counts, _SHARED_MISFIT, 1.0).unsqueeze(-1)).softmax(-1)
    share = (1 - (effective_number(all_masses) - 1) / (_MOST_GROUPS - 1)).clamp(0, 1) * float(merge)
    which = share.nonzero().squeeze(1)
    piece = torch.zeros_like(masses)
    if len(which):
        rows = (values[which] for values in (totals, masses, counts, alpha, all_masses, all_counts))
        as_pieces, joined = _as_pieces(*rows)
        piece[which] = joined * share[which, None]
        chances[which] = torch.lerp(chances[which], as_pieces, share[which, None, None])
    # A query's own share of what its group knows is in u already.
    others = (1 - 1 / masses.clamp_min(1)) * (2 * agreement(all_masses)).clamp_max(1).unsqueeze(-1)
    return Identities(chances.mul_(others.unsqueeze(-1)), 1 - others, piece.mul_(others))


def named(occupancy: Tensor, identity: Tensor) -> Tensor:
    """[t, j] the probability that some group is class j."""
    return -torch.expm1(torch.log1p(-(occupancy.unsqueeze(-1) * identity).clamp_max_(1 - 1e-6)).sum(1))


def _as_pieces(
    totals: Tensor, masses: Tensor, counts: Tensor, alpha: Tensor, all_masses: Tensor, all_counts: Tensor
) -> tuple[Tensor, Tensor]:
    """[t, g, j] the probability that group g is class j, if it may be a piece of a larger group; [t, g] that it is."""
    discount = _independent(masses, counts, _FRAGMENT_MISFIT, 0.25)
    largest, which = all_masses.topk(min(_LARGEST, all_masses.shape[-1]))
    theirs = largest * _independent(largest, all_counts.gather(1, which), _FRAGMENT_MISFIT, 0.25)
    larger = largest.unsqueeze(1) > masses.unsqueeze(-1)  # [t, g, l]
    theirs = theirs.unsqueeze(1) * larger  # 0: nothing to join
    own, alpha = (masses * discount).unsqueeze(-1), alpha.view(-1, 1, 1)
    joining = torch.lgamma(own + theirs + alpha) - torch.lgamma(theirs + alpha)
    founding = torch.lgamma(own + alpha) - torch.lgamma(alpha)
    columns = which.unsqueeze(1).expand(-1, masses.shape[1], -1)
    chances = (totals * discount.unsqueeze(-1)).scatter_add_(-1, columns, joining - founding).softmax(-1)
    return chances, (chances.gather(-1, columns) * larger).sum(-1)


def _independent(masses: Tensor, counts: Tensor, misfit: float, of_means: float) -> Tensor:
    """The part of a group's m queries that counts as independent.

    A query has an error of its own, s, and that of the mean, s/n; the mean of m queries s/m and s/n. They are worth
    (s + s/n) / (s/m + s/n) queries, which is m / (1 + (m − 1)/(n + 1)).
    """
    return 1 / (1 + (misfit + of_means / (counts + 1)) * (masses - 1).clamp_min(0))
