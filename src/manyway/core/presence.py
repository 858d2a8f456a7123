"""Which classes occur: from answers for queries to a probability per class, a list, a number.

Two probabilities bound the presence of class k. If the errors of queries are independent, it is
absent only if each query is of another class: ``independent``. If they are one and the same, it
occurs with the probability of its surest query: ``surest``. Errors of queries that look alike are
shared, so that the second is nearer to the truth; but where the surest query is wrong, the class
may still occur, as any class does. So with the effective number N of classes (``effective_number``)
among K,

    p_k = surest_k + N/K (independent_k − surest_k).

Bursts and near-copies of items are no new evidence. Of copies one counts in what follows: where
each item has D of them, itself included, a class has m_k = M_k/D of its M_k queries.

What is left are fragments: a class with many queries loses a few of them to a neighbour that does
not occur. They are small beside the class that lost them. So a group that is small beside the
largest one, of m queries, is believed less, and log-odds are believed in part, because the surest
query was chosen among many:

    logit p_k ← 0.8 logit p_k + ½ ln (m_k + ½)/(m + ½).

Where items may be unknown (``open_set``), some of them may have been taken for a class: with the
expected number U of unknown items,

    logit p_k ← logit p_k + ½ ln (m_k + ½)/(m_k + ½ + U).

Scores of a classifier are another matter: it may call a class by another name, again and again. The
log-odds c_k of class k are those of `manyway.methods.scores.count`, and

    p_k = sigmoid(c_k) / (1 − Π_j (1 − sigmoid(c_j))),

because some class occurs.

No class occurs with a higher probability than it has items on average, p_k ≤ m_k: that is so
whatever the errors of items have in common. A class with a known label occurs, however few items it
has beside D copies of others.

``Counting`` has these constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core.blocks import Answered

DEFAULT_RATE = 0.05  # of a list, where nothing is said
_CERTAIN = 1e-6  # what is as certain as this stays as it is: a known label needs no other evidence
_NOTHING = 0.1  # so much of a class is none


@dataclass(frozen=True, kw_only=True)
class Counting:
    """Which classes occur, and how many.

    The constants of this module, chosen on validation classes.
    """

    # How far log-odds are believed. With it, and with the size beside the largest group, 2 to 4 % of
    # the listed classes are absent on four sets of embeddings (validation classes) and six of other
    # kinds, on which it was chosen.
    presence_believed: float = 0.8
    # What absent classes cost a list, see `by_presence`: as much as makes it as long as the longest
    # list that expects 5 %, on average over settings.
    list_cost: float = 0.1
    shares_power: float = 1.0  # proportions are the mean of probabilities to this power


USUAL = Counting()


class Tally(NamedTuple):
    """What answers say about each class."""

    surest: Tensor  # [t, k] the highest probability
    masses: Tensor  # [t, k] the sum of all
    # [t, k] the log-odds that a class occurs by the scores of a classifier; inf: there is no
    # classifier to doubt, or a label is known; -inf: the class cannot occur.
    doubt: Tensor
    unknown: Tensor  # [t, k] the expected number of unknown queries, the same for all classes

    def plus(self, other: Tally) -> Tally:
        """That of both parts: a class that one of them does not doubt is not in doubt."""
        return Tally(
            surest=torch.maximum(self.surest, other.surest),
            masses=self.masses + other.masses,
            doubt=torch.maximum(self.doubt, other.doubt),
            unknown=self.unknown + other.unknown,
        )


def tally(part: Answered) -> Tally:
    """What the answers for some queries say about each class, for ``Solution.each``."""
    surest = part.probabilities.amax(1)
    masses = part.probabilities.sum(1, dtype=torch.float64)
    unknown = masses.new_zeros(len(masses), 1)
    if part.unknown is not None:
        unknown = part.unknown.double().sum(1, keepdim=True)
    return Tally(
        surest=surest,
        masses=masses,
        doubt=torch.full_like(surest, torch.inf),
        unknown=unknown.expand_as(masses),
    )


def effective_number(masses: Tensor) -> Tensor:
    """[t] how many equally large classes are as diverse as classes with the masses [t, k].

    With π_k = m_k / Σ_j m_j it is N = exp(−Σ_k π_k ln π_k). N is 1 where one class has all queries
    and K where all have as many.
    """
    total = masses.sum(-1, keepdim=True).clamp_min(torch.finfo(masses.dtype).tiny)
    parts = masses / total
    return torch.xlogy(parts, parts).sum(-1).neg_().exp_()


def presence_of(independent: Tensor, found: Tally, copies: Tensor, constants: Counting) -> Tensor:
    """[t, k] the probability that each class occurs, where each item has so many copies [t].

    The module says how. ``independent`` [t, k]: the probability if errors of items are independent.
    """
    alone = independent.double()
    surest = found.surest.double()
    masses = found.masses.double() / copies.double().unsqueeze(-1)
    part = (effective_number(masses) / masses.shape[-1]).unsqueeze(-1)
    bounded = torch.lerp(surest, alone, part).clamp(0, 1)
    doubtful = _is_doubtful(bounded)
    largest = masses.amax(-1, keepdim=True)
    beside = (masses + 0.5).log() - (largest + 0.5).log()
    odds = constants.presence_believed * torch.logit(bounded, _CERTAIN) + 0.5 * beside
    odds = odds + 0.5 * ((masses + 0.5).log() - (masses + 0.5 + found.unknown.double()).log())
    by_batch = torch.where(doubtful, torch.sigmoid(odds), bounded)
    presence = _by_scores(by_batch, found.doubt.double())
    known = (alone == 1) & (found.doubt == torch.inf)
    return torch.minimum(presence, masses.masked_fill(known, 1)).to(independent)


def _is_doubtful(presence: Tensor) -> Tensor:
    """[t, k] whether presence is not known; a known label needs no other evidence."""
    return (presence > _CERTAIN) & (presence < 1 - _CERTAIN)


def _by_scores(by_batch: Tensor, doubt: Tensor) -> Tensor:
    """[t, k] presence: that by the scores of a classifier, and elsewhere that by the batch [t, k].

    ``doubt`` [t, k] as in ``Tally``. Where there is a classifier, some class occurs: n_present is
    at least 1.
    """
    named = doubt < torch.inf
    presence = torch.where(named, torch.sigmoid(doubt), by_batch)
    some = -torch.expm1(torch.log1p(-presence).sum(-1, keepdim=True))
    tiny = torch.finfo(presence.dtype).tiny
    given_some = (presence / some.clamp_min(tiny)).clamp_max(1)
    return torch.where(named.any(-1, keepdim=True), given_some, presence)


def conditional_sizes(independent: Tensor, masses: Tensor, copies: Tensor) -> Tensor:
    """[t, k] the expected number of queries of each class if it occurs, at least 1, without copies."""
    masses = masses.double()
    sizes = masses / independent.double().clamp_min(_CERTAIN)
    sizes = torch.minimum(sizes, masses.sum(-1, keepdim=True))
    return (sizes / copies.double().unsqueeze(-1)).clamp_min(1)


class ByPresence(NamedTuple):
    """The classes of a task by presence."""

    order: Tensor  # [k] the most certain first
    n_listed: int  # how many can be listed
    n_possible: int  # how many cannot be ruled out


def by_presence(presence: Tensor, cost: Tensor, error_rate: float | None) -> list[ByPresence]:
    """The classes of each task [t, k] by presence, and how many of them can be listed.

    It also says how many cannot be ruled out.

    The false discovery rate is an average over batches, so that a list may have more absent classes
    where it finds much for that, and should have fewer where it finds little. With
    r = ``error_rate`` and c = ``cost`` [t] it is the n most certain classes that maximise

        Σ_{k ≤ n} p_k / Σ_k p_k − c (a/r)²,    a = Σ_{k ≤ n} (1 − p_k) / n,

    the part of the classes that it finds and the part of it that is absent; empty where this is
    negative, so that a is at most r/√c. What has a probability above r cannot be ruled out. Without
    an error rate the list has the highest expected F1, 2 Σ_{k ≤ n} p_k / (n + Σ_k p_k).

    >>> presence = torch.tensor([[0.6, 0.99, 0.94, 0.01]])
    >>> every = [by_presence(presence, torch.tensor([0.14]), rate)[0] for rate in (0.05, None)]
    >>> [(order.tolist(), n, most) for order, n, most in every]
    [([1, 2, 0, 3], 2, 3), ([1, 2, 0, 3], 3, 3)]
    """
    values, order = presence.double().sort(dim=-1, descending=True, stable=True)
    numbers = torch.arange(1, values.shape[-1] + 1, device=values.device)
    found = values.cumsum(-1)
    expected = values.sum(-1, keepdim=True).clamp_min(_CERTAIN)
    worth = 2 * found / (numbers + expected)
    if error_rate is not None:
        absent = (1 - found / numbers) / error_rate
        worth = found / expected - cost.unsqueeze(-1) * absent.square()
    best = worth.max(-1)
    listed = (best.indices + 1) * (best.values > 0)
    not_ruled_out = (values > (error_rate or DEFAULT_RATE)).sum(-1)
    possible = torch.maximum(listed, not_ruled_out)
    parts = zip(order, listed.tolist(), possible.tolist(), strict=True)
    return [ByPresence(*part) for part in parts]


def expected_number(presence: Tensor, masses: Tensor, n_query: int) -> Tensor:
    """[t] Σ_k p_k, the expected number of classes.

    It is at least the expected number of classes of a single query, on average over the queries.

    Doubt about each class by itself may leave less: 50 copies of one item are of one class,
    whichever it is.

    >>> expected_number(torch.tensor([[0.6, 0.3]]), torch.tensor([[35.0, 15.0]]), n_query=50).tolist()
    [1.0]
    """
    of_query = masses.sum(-1) / max(n_query, 1)
    whole = of_query.round()
    rounded = (of_query - whole).abs() < _CERTAIN
    of_query = torch.where(rounded, whole, of_query)
    return torch.maximum(presence.sum(-1), of_query.to(presence))


def ends_of_number(presence: Tensor, independent: Tensor, found: Tally, copies: Tensor) -> Tensor:
    """[t, 2] between which values the number of classes that occur is with a probability of 95 %.

    Classes share errors, the more items they have: those that are in doubt may all occur, or none
    of them. With the expected number E = Σ_k p_k, n items without copies, the effective number N
    and s = 1 + ln √(n/N), it is from

        Σ_k min(p_k, surest_k)^(1 + s)    to    E e^(doubt + ½ beyond),
        doubt = s Σ_k p_k (1 − p_k) / E,    beyond = max(0, ln (Σ_k independent_k / E)).

    Where no query is sure of a class, that class may be any other: it does not count below. The
    presence of a class by the scores of a classifier does not depend on how sure that is, but
    ``surest`` and ``independent`` do. For scores the number is from Σ_k p_k^(1 + 2s) to the geometric
    mean of that upper end and Σ_k √p_k.
    """
    p = presence.double()
    masses = found.masses.double()
    expected = p.sum(-1).clamp_min(_CERTAIN)
    items = (masses.sum(-1) + found.unknown[:, 0].double()) / copies.double()
    shared = 1 + (items / effective_number(masses)).clamp_min(1).sqrt().log()
    doubt = shared * (p * (1 - p)).sum(-1) / expected
    beyond = (independent.double().sum(-1) / expected).clamp_min(1).log()
    surely = torch.minimum(p, found.surest.double())
    least = (surely ** (1 + shared.unsqueeze(-1))).sum(-1)
    most = expected * (doubt + 0.5 * beyond).exp()
    scored = (found.doubt < torch.inf).any(-1)
    least = torch.where(scored, (p ** (1 + 2 * shared.unsqueeze(-1))).sum(-1), least)
    most = torch.where(scored, (most * p.sqrt().sum(-1)).sqrt(), most)
    return torch.stack([least, most], -1)


def whole_interval(ends: Tensor, most: Tensor) -> Tensor:
    """[t, 2] the whole numbers between ``ends`` [t, 2], from 1 to ``most`` [t].

    They are rounded outwards, where 0.1 of a class counts as nothing.

    >>> whole_interval(torch.tensor([[2.96, 4.3], [0.2, 12.0]]), torch.tensor([9, 9])).tolist()
    [[3, 5], [1, 9]]
    """
    lower = (ends[:, 0] + _NOTHING).floor()
    upper = (ends[:, 1] - _NOTHING).ceil()
    whole = torch.stack([lower, upper], -1).long().clamp_min(1)
    return torch.minimum(whole, most.unsqueeze(-1))


def unseen(independent: Tensor, presence: Tensor, sizes: Tensor) -> Tensor:
    """[t] how many further classes are expected if sampling goes on.

    Chao's estimate, with uncertain counts, is f₁(f₁ − 1) / (2 (f₂ + 1)) and at most what is left of
    all classes, where f₁ and f₂ are the numbers of classes with one and with two queries: f_n = Σ_k
    w_k max(0, 1 − |m_k − n|) with the sizes m_k. Fragments count less: w_k = √(independent_k p_k).
    It is right where classes are equally frequent, and a lower bound where they are not.
    """
    counted = (independent * presence).sqrt()

    def seen(times: int) -> Tensor:
        return (counted * (1 - (sizes - times).abs()).clamp_min(0)).sum(-1)

    once = seen(1)
    estimate = once * (once - 1).clamp_min(0) / (2 * (seen(2) + 1))
    return torch.minimum(estimate, (1 - counted).sum(-1))
