"""Confidence: one exponent, with which labels are as probable as they are right.

With the mean A of the classifier's highest probabilities, before any temperature, and the mean E of those of the gated
answers, labels are expected to be right with the probability c*,

    logit c* = a logit A + (1 − a) logit E − d.

The answers are raised to the exponent with which their highest probabilities are c* on average. Where labelled items
cover the part c of the classes, a and d count 1 − c.
"""

from functools import partial

import torch
from torch import Tensor

from manyway.core import Joined
from manyway.methods.scores.calibrate import exponent_for
from manyway.methods.scores.constants import SUREST, ScoreConstants
from manyway.methods.scores.gate import Gate
from manyway.methods.scores.items import Items, Part


def exponent(items: Items, gated: Gate, constants: ScoreConstants) -> float:
    """The exponent of the answers, from the sampled items without a known label."""
    logits, claims, free = (value[0] for value in items.each(partial(_of_sample, gated)).values)
    number = free.sum().clamp_min(1)
    own = (claims * free).sum() / number
    claimed = (logits.softmax(-1).amax(-1) * free).sum() / number
    doubt = 1 - gated.calibration.coverage
    weight = doubt * constants.scores_claim
    odds = (
        weight * own.logit(SUREST)
        + (1 - weight) * claimed.logit(SUREST)
        - doubt * constants.scores_shared
    )
    return float(exponent_for(logits, odds.sigmoid(), free))


def _of_sample(gated: Gate, part: Part) -> Joined:
    """The logits, the classifier's highest probabilities, and whether the label is to be found, of sampled items."""
    chosen = Part(*(value[part.sampled] for value in part))
    claims: Tensor = chosen.posteriors.exp().amax(-1)
    logits = gated.logits(chosen).log_softmax(-1)
    return Joined((logits[None], claims[None], torch.as_tensor(chosen.free)[None]))
