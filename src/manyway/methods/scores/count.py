"""Count: what the classifier's own claims say about which classes occur.

A classifier may call a class by another name, and nothing in the batch says so. What tells is how sure it is of the
items that it gives to the class. Item q counts for class k with the weight v_qk = p_qk² / Σ_j p_qj², its probabilities
p as the classifier gave them, and the mean claim of class k is

    a_k = Σ_q v_qk p_qk / (Σ_q v_qk + ½):

half an item that claims nothing is added, so that one item does not say everything. The log-odds that class k occurs
are, with the expected number m_k of its items,

    offset + logit a_k + beside · ln (m_k + ½)/(max_j m_j + ½).

``manyway.core.presence`` adds the last term, and conditions on there being a class at all.
"""

import torch
from torch import Tensor

from manyway.core import Sums
from manyway.methods.scores.constants import SUREST, ScoreConstants
from manyway.methods.scores.items import Items, Part



def claims(items: Items, constants: ScoreConstants) -> Tensor:
    """[k] the log-odds that a class occurs, but for its size; inf where an item is known to be of the class."""
    number, claimed, known = items.each(_sum_claims).values
    mean = claimed / (number + 0.5)
    odds = constants.scores_present + mean.logit(SUREST)
    return odds.masked_fill(known > 0, torch.inf)


def _sum_claims(part: Part) -> Sums:
    """Σ v, Σ v p and the number of items with a known label [k], of each class."""
    probabilities = part.posteriors.exp()
    squares = probabilities.square()
    weights = squares / squares.sum(-1, keepdim=True)
    known = torch.nn.functional.one_hot(part.known + 1, probabilities.shape[-1] + 1)[:, 1:]
    number = weights.sum(0, dtype=torch.float64)
    claimed = (weights * probabilities).sum(0, dtype=torch.float64)
    return Sums((number, claimed, known.sum(0).double()))
