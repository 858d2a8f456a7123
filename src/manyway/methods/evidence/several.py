"""Several classes per item: independent yes-or-no scores, and which classes occur in the batch.

x_qk are the log-odds of a classifier that answers each class by itself. Two normal distributions say what they mean:
that of classes that an item does not have, from all scores but the highest of each item, and that of classes that it
has, from the highest score of each item, as far as it is one. Class k occurs in a part π_k of the items. By EM,

    u_qk = π_k f₁(x_qk) / (π_k f₁(x_qk) + (1 − π_k) f₀(x_qk)),   π_k = (Σ_q u_qk + a) / (|Q| + a + 1).

A class that no item supports gets a tiny π_k, so that a doubtful score is believed where the class occurs, and not
elsewhere. Each class has a mean of its own in f₀: some classes score high whatever the item is.

How much lower than the first one further classes of an item score, says the batch: where items have one class, the
highest score stands out, and the second is as near to the third as chance makes it. A classifier that was trained on
items with one class scores several of them low. So the batch may add up to 4.5 to the log-odds of a class where items
have several, and up to 2.5 where they have one, or where lists were cut so that nobody knows.
"""

import torch
from torch import Tensor

from manyway.methods.evidence.likelihood import known_classes
from manyway.methods.evidence.schedule import Schedule

_HAVING = 3  # highest scores of an item, whose gaps say how many classes it has; the others are of classes it lacks
_EM_STEPS = 60  # half of them change no answer


def several(odds: Tensor, known: Tensor, expected: Tensor, constants: Schedule) -> Tensor:
    """[t, q, k] the probability that an item has each class, from log-odds [t, q, k].

    ``known`` [t, q] are classes that items are known to have, -1 for none; ``expected`` [k] says how likely each class
    is in any unit, 0: it is not on a list.
    """
    n_classes = odds.shape[-1]
    having = _HAVING if n_classes > _HAVING else 0
    best = odds.topk(having, -1)
    short = ((odds > odds.amin()).sum(-1) == having).all()  # of lists of three the last shows what absent classes score
    others = torch.ones_like(odds).scatter_(-1, best.indices[..., : having - int(short)], 0.0)
    total = others.sum(1, keepdim=True)
    mean = (odds * others).sum((1, 2), keepdim=True) / others.sum((1, 2), keepdim=True)
    own = (odds * others).sum(1, keepdim=True) / total.clamp_min(1) - mean
    x = odds - own * total / (total + constants.several_weight)
    most = expected[expected > 0].mean()
    likely = (expected / most).clamp(constants.several_unlisted, 1 / constants.several_unlisted).log().to(odds)
    probability = odds.sigmoid()  # nothing says what absent classes look like where there are few
    for task in range(len(odds) if having else 0):
        probability[task] = _mixture(x[task], odds[task], best.values[task], others[task] > 0, likely, constants)
    return probability.masked_fill_(known_classes(known, odds) > 0, 1.0)


def _several(best: Tensor, least: Tensor, constants: Schedule) -> tuple[Tensor, Tensor]:
    """[] how far items with these highest log-odds [q, 3] have several classes, and how well that is known.

    Lists may have been cut at the least of all log-odds: it is not known where few have three classes.
    """
    whole = best[:, -1] > least
    first, second, third = best[whole].mT
    gap = (second - third).mean() / (first - second).mean().clamp_min(1e-6)
    one, several = constants.several_gaps
    return ((gap.nan_to_num(several) - one) / (several - one)).clamp(0, 1), whole.to(best).mean()


def _mixture(x: Tensor, own: Tensor, best: Tensor, absent: Tensor, likely: Tensor, constants: Schedule) -> Tensor:
    """[q, k] the probabilities of one task, from levelled log-odds [q, k] and the highest of each item [q, 3].

    ``own`` [q, k] are the log-odds of the classifier, ``absent`` [q, k] says which are taken for classes that the item
    does not have, and ``likely`` [k] what is added to the log-odds of each class. With x the levelled log-odds,

        ln f₀ = −½ ((max(x, m₀) − m₀) / s₀)² − ln s₀,   ln f₁ = −½ ((min(x, m₁) − m₁) / s₁)² − ln s₁:

    both are flat on their outer side, so that f₁/f₀ never falls as x rises. m₀ is the median of absent classes, and s₀
    follows from a high quantile. m₁ and s₁ are the mean and deviation of the highest x of each item, weighted by
    how probable it is that the item has that class, with a few items of usual values; m₁ is then lowered for further
    classes of an item. After EM the log-odds are tempered, and at most so much above those of the classifier
    (``several_most``).
    """
    values = x[absent].sort().values
    (quantile, deviations), (usual, spread, worth) = constants.several_tail, constants.several_sure
    middle = values[len(values) // 2]
    width = ((values[int(quantile * (len(values) - 1))] - middle) / deviations).clamp_min(constants.several_narrow)
    first, weights = x.amax(-1), best[:, 0].sigmoid() ** constants.several_power
    mean = ((weights * first).sum() + worth * usual) / (weights.sum() + worth)
    square = (weights * (first - mean).square()).sum() + worth * spread**2
    deviation = torch.maximum((square / (weights.sum() + worth)).sqrt(), width)
    (share, known), (lowest, highest) = _several(best, own.amin(), constants), constants.several_lower
    mean = torch.maximum(mean - (lowest + share * (highest - lowest)) * deviation, middle + width)
    present = -0.5 * ((x.clamp_max(mean) - mean) / deviation).square() - deviation.log()
    ratio = likely + present + 0.5 * ((x.clamp_min(middle) - middle) / width).square() + width.log()
    some, more = constants.several_most
    most = own + likely + some + share * known * (more - some)
    part = torch.full_like(x[0], constants.several_rare)
    for _ in range(_EM_STEPS):
        probability = (ratio + part.logit()).sigmoid()
        part = ((probability.sum(0) + constants.several_rare) / (len(x) + constants.several_rare + 1)).clamp(1e-6, 0.95)
    return torch.minimum(constants.several_temper * probability.logit(1e-6), most).sigmoid()
