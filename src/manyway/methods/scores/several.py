"""Several classes per item: independent yes-or-no scores, and which classes occur in the batch.

x_qk are the log-odds of a classifier that answers each class by itself, without the mean that class k has among the
items that lack it: some classes score high whatever the item is. Class k occurs in the part π_k of the items. By EM,

    u_qk = π_k f₁(x_qk) / (π_k f₁(x_qk) + (1 − π_k) f₀(x_qk)),   π_k = (Σ_q u_qk + 1/K) / (n + 1/K + 1),

    ln f₀(x) = −½ ((max(x, m₀) − m₀) / s₀)² − ln s₀,   ln f₁(x) = −½ ((min(x, m₁) − m₁) / s₁)² − ln s₁.

f₀ is that of classes that an item lacks: all but the three highest scores of each item. m₀ is their median, and s₀
follows from the highest of each item, which is that of K normal numbers. f₁ is that of classes that an item has, from
the highest score of each item. Both are flat on their outer side, so that f₁/f₀ never falls as x rises.

How many classes items have, the gaps between their three highest scores x₁ > x₂ > x₃ say: r = Σ (x₂ − x₃) / Σ (x₁ − x₂)
is about ¼ where they have one class and 1 where they have two; it is at least ¼ here, because lists that were cut hide
it. Further classes score lower than the first, so that m₁ is lowered by (1 + ln r) s₁. The batch adds at most
``several_most`` √r to the log-odds of a class.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from manyway.core import one_hot
from manyway.methods.scores.constants import ScoreConstants

_HAVING = 3  # highest scores of an item, whose gaps say how many classes it has; the others are of classes it lacks
_EM_STEPS = 60
_NARROWEST = 0.2  # of s₀ and s₁: lists that were cut have equal scores
_LEAST_PART = 1e-6  # of π, and of 1 − u
_MOST_PART = 0.95


@dataclass(frozen=True, kw_only=True, eq=False)
class Scored:
    """The log-odds of one batch."""

    odds: Tensor  # [q, k] as the classifier gives them
    levelled: Tensor  # [q, k] x
    lacks: Tensor  # [q, k] 1 where they are taken for those of a class that the item lacks, else 0
    best: Tensor  # [q, 3] the highest log-odds of each item


@dataclass(frozen=True, kw_only=True, eq=False)
class Mixture:
    """f₀ and f₁."""

    lacking: Tensor  # [] m₀
    lacking_sd: Tensor  # [] s₀
    having: Tensor  # [] m₁
    having_sd: Tensor  # [] s₁

    def log_ratio(self, x: Tensor) -> Tensor:
        """ln f₁(x) − ln f₀(x)."""
        above = (x.clamp_min(self.lacking) - self.lacking) / self.lacking_sd
        below = (x.clamp_max(self.having) - self.having) / self.having_sd
        return (
            above.square() / 2 + self.lacking_sd.log() - below.square() / 2 - self.having_sd.log()
        )


def several(odds: Tensor, known: Tensor, expected: Tensor, constants: ScoreConstants) -> Tensor:
    """[t, q, k] the probability that an item has each class, from log-odds [t, q, k].

    ``known`` [t, q] are classes that items are known to have, -1 for none; ``expected`` [k] says how likely each class
    is in any unit, 0: it is not on a list, which halves its odds.
    """
    probabilities = odds.sigmoid()
    if (
        odds.shape[-1] > _HAVING
    ):  # else nothing says what the scores of classes that an item lacks look like
        likely = _likely(expected.to(odds))
        probabilities = torch.stack([_one_batch(one, likely, constants) for one in odds])
    own = one_hot(known.clamp_min(0), odds.shape[-1], odds.dtype) * (known >= 0).unsqueeze(-1)
    return torch.where(own > 0, 1.0, probabilities)


def _likely(expected: Tensor) -> Tensor:
    """[k] what a list adds to the log-odds of each class: from −ln 2 to ln 2."""
    relative = expected / expected[expected > 0].mean()
    return relative.clamp(0.5, 2).log()


def _one_batch(odds: Tensor, likely: Tensor, constants: ScoreConstants) -> Tensor:
    """[q, k] the probabilities of one batch."""
    scored = _levelled(odds)
    ratio = _gap_ratio(scored.best)
    evidence = _mixture(scored, ratio).log_ratio(scored.levelled) + likely
    n_items, n_classes = odds.shape
    rare = 1 / n_classes
    part = torch.full_like(odds[0], rare)
    for _ in range(_EM_STEPS):
        probability = (evidence + part.logit()).sigmoid()
        part = (probability.sum(0) + rare) / (n_items + rare + 1)
        part = part.clamp(_LEAST_PART, _MOST_PART)
    most = odds + likely + constants.several_most * ratio.sqrt()
    return torch.minimum(probability.logit(_LEAST_PART), most).sigmoid()


def _levelled(odds: Tensor) -> Scored:
    """The log-odds [q, k] without the mean of each class among the items that lack it."""
    best = odds.topk(_HAVING, -1)
    # Of lists of three classes the third shows what classes score that an item lacks.
    listed = (odds > odds.amin()).sum(-1)
    having = _HAVING - int((listed == _HAVING).all())
    lacks = torch.ones_like(odds).scatter_(-1, best.indices[:, :having], 0.0)
    number = lacks.sum(0)
    mean = (odds * lacks).sum() / lacks.sum()
    of_class = (odds * lacks).sum(0) / number.clamp_min(1)
    levelled = odds - (of_class - mean) * number / (number + 1)
    return Scored(odds=odds, levelled=levelled, lacks=lacks, best=best.values)


def _gap_ratio(best: Tensor) -> Tensor:
    """[] r from the highest log-odds [q, 3] of each item."""
    first, second, third = best.sum(0)
    ratio = (second - third) / (first - second).clamp_min(_LEAST_PART)
    return ratio.clamp_min(0.5**2)


def _mixture(scored: Scored, ratio: Tensor) -> Mixture:
    """f₀ and f₁ of one batch."""
    x = scored.levelled
    lacking = x[scored.lacks > 0].median()
    highest = x.masked_fill(scored.lacks == 0, -torch.inf).amax(-1)
    of_normal = torch.special.ndtri(x.new_tensor(1 - 1 / x.shape[-1]))
    lacking_sd = ((highest - lacking).mean() / of_normal).clamp_min(_NARROWEST)
    # An item that has no class has no high score. One item of log-odds 0 ± 1 is added, so that few say something.
    first = x.amax(-1)
    weights = scored.best[:, 0].sigmoid()
    number = weights.sum() + 1
    mean = (weights * first).sum() / number
    square = ((weights * (first - mean).square()).sum() + 1) / number
    having_sd = torch.maximum(square.sqrt(), lacking_sd)
    having = torch.maximum(mean - (1 + ratio.log()) * having_sd, lacking + lacking_sd)
    return Mixture(lacking=lacking, lacking_sd=lacking_sd, having=having, having_sd=having_sd)
