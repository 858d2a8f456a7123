"""Which classes occur: from answers for queries to a probability per class, a list, a number.

Two probabilities bound the presence of class k. If the errors of queries are independent, it is
absent only if each query is of another class: ``independent``. If they are one and the same, it
occurs with the probability of its surest query: ``surest``. Errors of queries that look alike are
shared, so that the second is nearer to the truth; but where the surest query is wrong, the class
may still occur, as any class does. So with the effective number N of classes (``effective_number``)
among K,

    p_k = surest_k + N/K (independent_k − surest_k).

What is left are fragments: a class with many queries loses a few of them to a neighbour that does
not occur. Their number gives them away. Let m_k be the expected number of queries of class k if it
occurs. A class that occurs has Beta-binomial(β, β R_k) many of the n queries, where
R_k = Σ_{j≠k} p_j is the number of the others; the distribution of β follows from the sizes of all
other classes, weighted by p. A fragment may have any size, with probability ∝ 1/m. Where the size
speaks against class k, it counts:

    logit p_k ← logit p_k + min(0, ln P(m_k | occurs) − ln P(m_k | fragment)).

Where it speaks for it, it does not: a large group occurs under some name, but not necessarily under
this one.

A group that is small beside the largest one of m queries, and a class about which little is known,
are believed less than that: unknown queries, and those of a class with one example, are often taken
for rare classes. So

    logit p_k ← min(logit p_k, 0.8 logit p_k + 0.4 ln (m_k + ½)/(m + ½) + 0.3).

Where items may be unknown (``open_set``), the surest item of a class is doubtful because all are,
and several together say more; but scattered unknown items look like small classes. With the part u
of the items that is expected to be unknown,

    logit p_k ← min(logit independent_k,
                    logit p_k + u^¼ (0.3 (logit independent_k − logit surest_k) + 0.8 ln (m_k + ½)/(m + ½) − 2.2)).

Bursts and near-copies of items are no new evidence. Where each item has D copies, itself included,
sizes are divided by D, and so are the log-odds of classes that probably occur, by D^0.3.

Scores of a classifier are another matter: it may call a class by another name, and nothing in the
batch says so. Its own claims say more than its surest answer (`manyway.methods.scores.count`): with
the log-odds c_k of class k by these,

    logit p_k = c_k + 1.7 ln (m_k + ½)/(m + ½),        p_k ← p_k / (1 − Π_j (1 − p_j)),

where the last step says that some class occurs.

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
_LEAST_OTHERS = 0.05  # R where no other class occurs: keeps the distribution of sizes proper
_NOTHING = 0.1  # so much of a class is none
# The values of β that are averaged over: from unequal to nearly equal sizes. More change nothing.
_EVENNESS = (0.5**2, 1.0, 2.0**2)
_ROUNDS = 2  # how often presence and sizes are brought into agreement; a third changes nothing


@dataclass(frozen=True, kw_only=True)
class Counting:
    """Which classes occur, and how many.

    The constants of this module, chosen on validation classes.
    """

    # How far log-odds are believed, what the size beside the largest group adds, and a constant. Of
    # 255 settings, two then list more absent classes than the error rate allows and chance
    # explains.
    presence_believed: float = 0.8
    presence_beside: float = 0.4
    presence_offset: float = 0.3
    # Where items may be unknown, times their part to this power (a few of them matter already):
    # what all items of a class say beyond the surest, the size beside the largest group, and a
    # constant. Of 116 settings on validation classes, 60 tasks each, the worst then lists 7.6 %
    # absent classes instead of 12, and none surely more than 5; 31 % are found instead of 35.
    unknown_power: float = 0.25
    unknown_all: float = 0.3
    unknown_beside: float = 0.8
    unknown_offset: float = -2.2
    # For the scores of a classifier, the size beside the largest group: a logistic regression on
    # one half of the classes of 15 classifiers.
    scores_beside: float = 1.7
    # The power of the number of copies: of letters with 2, 5 and 10 copies of each item as many
    # listed classes are then absent as without.
    copies_power: float = 0.3
    # What absent classes cost a list, see `by_presence`. Of 254 settings on validation classes as
    # many are above 5 % as with the longest list that expects 5 % (18), and 49.7 instead of 47.2 %
    # of the classes are found.
    list_cost: float = 0.14
    # b and c of the ends of the number, see `number_of`. Of some forty rules with one to seven
    # constants this has the smallest width where as few settings on validation classes are below
    # 90 %: 15.6 classes, and 17.3 with shared errors in log-odds and seven constants.
    more: float = 0.85
    more_independent: float = 0.65
    shares_power: float = 1.0  # proportions are the mean of probabilities to this power


USUAL = Counting()


class Tally(NamedTuple):
    """What answers say about each class."""

    surest: Tensor  # [t, k] the highest probability
    masses: Tensor  # [t, k] the sum of all
    # [t, k] the log-odds that a class occurs by the claims of a classifier, but for its size; inf:
    # there is no classifier to doubt, or a label is known; -inf: the class cannot occur.
    doubt: Tensor
    unknown: Tensor  # [t, k] the expected number of unknown queries, the same for all classes

    def plus(self, other: Tally) -> Tally:
        """That of both parts: where one of them does not doubt a class, nothing is in doubt."""
        return Tally(
            surest=torch.maximum(self.surest, other.surest),
            masses=self.masses + other.masses,
            doubt=torch.maximum(self.doubt, other.doubt),
            unknown=self.unknown + other.unknown,
        )


def tally(part: Answered) -> Tally:
    """The work that finds it."""
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
    """[t] e to the entropy of the masses [t, k].

    It is the number of equally large classes that is as diverse.

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
    masses = found.masses.double()
    part = (effective_number(masses) / masses.shape[-1]).unsqueeze(-1)
    bounded = torch.lerp(surest, alone, part).clamp(0, 1)
    doubtful = _is_doubtful(bounded)
    sizes = conditional_sizes(independent, masses, copies)
    by_size = _by_size(
        bounded,
        sizes=sizes,
        total=masses.sum(-1, keepdim=True),
        copies=copies,
        constants=constants,
    )
    largest = masses.amax(-1, keepdim=True)
    beside = (masses + 0.5).log() - (largest + 0.5).log()
    cautious = _cautious(torch.logit(by_size, _CERTAIN), beside, constants)
    together = torch.logit(alone.clamp(0, 1), _CERTAIN)
    beyond = together - torch.logit(surest, _CERTAIN)
    more = constants.unknown_all * beyond + constants.unknown_beside * beside
    more = more + constants.unknown_offset
    open_part = _open_part(found.unknown, masses, constants)
    open_odds = torch.minimum(together, cautious + open_part * more)
    odds = torch.where(open_part > 0, open_odds, cautious)
    by_batch = torch.where(doubtful, torch.sigmoid(odds), bounded)
    return _by_claims(by_batch, beside, found.doubt.double(), constants).to(independent)


def _by_size(
    before: Tensor,
    *,
    sizes: Tensor,
    total: Tensor,
    copies: Tensor,
    constants: Counting,
) -> Tensor:
    """[t, k] presence after the sizes of doubtful classes have spoken.

    Sizes say whether classes are fragments.
    """
    doubtful = _is_doubtful(before)
    of_each = copies.double().unsqueeze(-1)
    total = total / of_each
    odds = torch.logit(before, _CERTAIN)
    odds = torch.minimum(odds, odds / of_each**constants.copies_power)
    after = before
    for _ in range(_ROUNDS):
        shift = _size_evidence(sizes, total, after).clamp_max(0)
        after = torch.where(doubtful, torch.sigmoid(odds + shift), before)
    return after


def _is_doubtful(presence: Tensor) -> Tensor:
    """[t, k] whether presence is not known; a known label needs no other evidence."""
    return (presence > _CERTAIN) & (presence < 1 - _CERTAIN)


def _cautious(odds: Tensor, beside: Tensor, constants: Counting) -> Tensor:
    """[t, k] log-odds, lower where little is known and for small groups.

    Groups are small ``beside`` the largest.
    """
    believed = constants.presence_believed * odds + constants.presence_beside * beside
    return torch.minimum(odds, believed + constants.presence_offset)


def _open_part(unknown: Tensor, masses: Tensor, constants: Counting) -> Tensor:
    """[t, k] the part of the items that is expected to be unknown, to a power."""
    total = unknown + masses.sum(-1, keepdim=True)
    return (unknown / total.clamp_min(1)) ** constants.unknown_power


def _by_claims(by_batch: Tensor, beside: Tensor, doubt: Tensor, constants: Counting) -> Tensor:
    """[t, k] the presence of classes that a classifier names.

    The others have that by the batch [t, k].

    Where there is a classifier, some class occurs: n_present is at least 1.
    """
    named = doubt < torch.inf
    by_claims = torch.sigmoid(doubt + constants.scores_beside * beside)
    presence = torch.where(named, by_claims, by_batch)
    some = -torch.expm1(torch.log1p(-presence).sum(-1, keepdim=True))
    tiny = torch.finfo(presence.dtype).tiny
    given_some = (presence / some.clamp_min(tiny)).clamp_max(1)
    return torch.where(named.any(-1, keepdim=True), given_some, presence)


def conditional_sizes(independent: Tensor, masses: Tensor, copies: Tensor) -> Tensor:
    """[t, k] the expected number of queries of each class if it occurs, copies left out.

    At least 1.
    """
    masses = masses.double()
    sizes = masses / independent.double().clamp_min(_CERTAIN)
    sizes = torch.minimum(sizes, masses.sum(-1, keepdim=True))
    return (sizes / copies.double().unsqueeze(-1)).clamp_min(1)


def _size_evidence(sizes: Tensor, total: Tensor, presence: Tensor) -> Tensor:
    """[t, k] ln P(size | occurs) − ln P(size | fragment)."""
    n = torch.maximum(total, sizes.amax(-1, keepdim=True)) + _CERTAIN
    beta = sizes.new_tensor(_EVENNESS).view(-1, 1, 1)
    others = (presence.sum(-1, keepdim=True) - presence).clamp_min(_LEAST_OTHERS)
    rest = beta * others
    none = _log_beta(beta, n + rest) - _log_beta(beta, rest)
    choices = torch.lgamma(n + 1) - torch.lgamma(sizes + 1) - torch.lgamma(n - sizes + 1)
    occurs = choices + _log_beta(sizes + beta, n - sizes + rest) - _log_beta(beta, rest)
    occurs = occurs - torch.log(-torch.expm1(none.clamp_max(-_CERTAIN)))  # given that there is one
    of_all = occurs * presence
    how_even = (of_all.sum(-1, keepdim=True) - of_all).log_softmax(0)  # by the other classes
    harmonic = torch.digamma(n + 1) - torch.digamma(torch.ones_like(n))
    fragment = -sizes.log() - torch.log(harmonic)
    return (how_even + occurs).logsumexp(0) - fragment


def _log_beta(a: Tensor, b: Tensor) -> Tensor:
    return torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)


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


def number_of(
    presence: Tensor,
    independent: Tensor,
    found: Tally,
    copies: Tensor,
    constants: Counting,
) -> Tensor:
    """[t, 2] between which values the number of classes that occur is with a probability of 95 %.

    Classes share errors, the more items they have: those that are in doubt may all occur, or none
    of them. With the expected number E = Σ_k p_k, n items without copies, the effective number N
    and s = 1 + ln √(n/N), it is from

        Σ_k p_k^(1 + s)    to    E e^(b doubt + c beyond),    doubt = s Σ_k p_k (1 − p_k) / E,
                                                              beyond = ln Σ_k independent_k / E.

    Where items may be unknown, whole groups may be: s counts twice in the lower end (else 32 % of
    the tasks of a validation setting lie below it, instead of 17). For the scores of a classifier
    it is from Σ_k p_k² to Σ_k √p_k.
    """
    p = presence.double()
    masses = found.masses.double()
    unknown = found.unknown[:, 0]
    expected = p.sum(-1).clamp_min(_CERTAIN)
    items = (masses.sum(-1) + unknown.double()) / copies.double()
    shared = 1 + (items / effective_number(masses)).clamp_min(1).sqrt().log()
    doubt = shared * (p * (1 - p)).sum(-1) / expected
    beyond = (independent.double().sum(-1) / expected).clamp_min(1).log()
    fewer = torch.where(unknown > 0, 2 * shared, shared)
    more = constants.more_independent * beyond + constants.more * doubt
    least = (p ** (1 + fewer.unsqueeze(-1))).sum(-1)
    by_batch = torch.stack([least, expected * more.exp()], -1)
    by_claims = torch.stack([p.square().sum(-1), p.sqrt().sum(-1)], -1)
    scored = (found.doubt < torch.inf).any(-1, keepdim=True)
    return torch.where(scored, by_claims, by_batch)


def interval_of(ends: Tensor, most: Tensor) -> Tensor:
    """[t, 2] the whole numbers between ``ends`` [t, 2], rounded outwards; from 1 to ``most`` [t].

    >>> interval_of(torch.tensor([[2.96, 4.3], [0.2, 12.0]]), torch.tensor([9, 9])).tolist()
    [[3, 5], [1, 9]]
    """
    lower = (ends[:, 0] + _NOTHING).floor()
    upper = (ends[:, 1] - _NOTHING).ceil()
    whole = torch.stack([lower, upper], -1).long().clamp_min(1)
    return torch.minimum(whole, most.unsqueeze(-1))


def unseen(independent: Tensor, presence: Tensor, sizes: Tensor) -> Tensor:
    """[t] how many further classes are expected if sampling goes on.

    It is Chao's estimate, with uncertain counts.

    It is f₁(f₁ − 1) / (2 (f₂ + 1)) and at most what is left of all classes, where f₁ and f₂ are the
    numbers of classes with one and with two queries: f_n = Σ_k w_k max(0, 1 − |m_k − n|) with the
    sizes m_k. Fragments count less: w_k = √(independent_k p_k). It is right where classes are
    equally frequent, and a lower bound where they are not.
    """
    counted = (independent * presence).sqrt()

    def seen(times: int) -> Tensor:
        return (counted * (1 - (sizes - times).abs()).clamp_min(0)).sum(-1)

    once = seen(1)
    estimate = once * (once - 1).clamp_min(0) / (2 * (seen(2) + 1))
    return torch.minimum(estimate, (1 - counted).sum(-1))
