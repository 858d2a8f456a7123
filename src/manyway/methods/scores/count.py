"""Count: what the answers say about which classes occur.

With the answers r_qk, class k is absent only if every item is of another class: the evidence that it occurs is

    I_k = − Σ_q ln (1 − r_qk)

nats if items err independently. They do not. A classifier that calls a class by another name does so again and again,
so that I_k cannot be believed as it is: it is compared with what is usual in the batch, and with what a wrong name
would explain. Items that get class k wrongly are of the classes that the classifier else takes them for. With its own
probabilities z_qj and the expected number m_j of items of class j, these classes have

    A_k = Σ_q r_qk Σ_{j ≠ k} z_qj m_j / Σ_q r_qk (1 − z_qk)

items: many where k is a fragment of a large class, hardly any where it has no large neighbour. With the mean evidence
Ī = Σ_k m_k I_k / Σ_k m_k of the class of an item, and the effective number N of classes among K, the odds are

    I_k/Ī · I_k/(A_k + ½) · √(N/(K − N)),

times the odds ω that a name of the classifier is right. Two sure items say four times as much as one. Copies of items
change none of the factors but for the ½: they are no new evidence. Known labels make their class certain, and count in
m alone.

Nothing in the batch says how often names are right, but for the classifier, which claims the mean A of its highest
probabilities. It is believed half where it doubts itself, and not where it is sure: ln ω = o + ½ min(0, logit A). Where
R names of labelled items are right and W are wrong, ω is (R + √ω) / (W + 1/√ω) instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from manyway.core import Sums
from manyway.core.presence import effective_number
from manyway.methods.evidence.prior import log_remainders
from manyway.methods.scores.calibrate import Calibration, Given
from manyway.methods.scores.constants import SUREST, ScoreConstants
from manyway.methods.scores.items import Items, Part

Answers = Callable[[Part], Tensor]  # from some items to the probabilities [b, k] of their classes


def odds_of_classes(
    items: Items, answers: Answers, calibration: Calibration, given: Given, constants: ScoreConstants
) -> Tensor:
    """[k] the log-odds that a class occurs; inf where an item is known to be of the class."""
    evidence, masses, known = items.each(partial(_sum_evidence, answers)).values
    lost, doubt = items.each(partial(_sum_neighbours, answers, calibration, masses)).values
    tiny = torch.finfo(masses.dtype).tiny
    neighbours = lost / doubt.clamp_min(tiny)
    usual = (masses * evidence).sum() / masses.sum().clamp_min(tiny)
    number = effective_number(masses)
    prior = 0.5 * ((number + 0.5).log() - (len(masses) - number + 0.5).log())
    relative = 2 * evidence.clamp_min(tiny).log() - usual.clamp_min(tiny).log()
    names = _odds_of_names(items, given, constants)
    odds = names + relative - (neighbours + 0.5).log() + prior
    return odds.masked_fill(known > 0, torch.inf)


def _sum_evidence(answers: Answers, part: Part) -> Sums:
    """I, m and the number of items with a known label [k], of each class."""
    probabilities = answers(part)
    to_find = probabilities * part.free.unsqueeze(-1)
    known = torch.nn.functional.one_hot(part.known + 1, probabilities.shape[-1] + 1)[:, 1:]
    evidence = -log_remainders(to_find).sum(0, dtype=torch.float64)
    masses = probabilities.sum(0, dtype=torch.float64)
    return Sums((evidence, masses, known.sum(0).double()))


def _sum_neighbours(
    answers: Answers, calibration: Calibration, masses: Tensor, part: Part
) -> Sums:
    """The numerator and the denominator of A [k]."""
    to_find = answers(part) * part.free.unsqueeze(-1)
    own = calibration.own(part.posteriors).exp()
    sizes = own * masses.to(own)
    others = sizes.sum(-1, keepdim=True) - sizes
    lost = (to_find * others).sum(0, dtype=torch.float64)
    doubt = (to_find * (1 - own)).sum(0, dtype=torch.float64)
    return Sums((lost, doubt))


def _odds_of_names(items: Items, given: Given, constants: ScoreConstants) -> Tensor:
    """[] ln ω."""
    claimed, free, right = items.each(_sum_names).values
    right = right + (given.labelled.argmax(-1) == given.labels).sum()
    wrong = items.n_items - free + len(given.labels) - right
    claim = claimed / free.clamp_min(1)
    alone = constants.scores_right + 0.5 * claim.logit(SUREST).clamp_max(0)
    return (right + (alone / 2).exp()).log() - (wrong + (-alone / 2).exp()).log()


def _sum_names(part: Part) -> Sums:
    """[] Σ of the highest probabilities of items without a known label, their number, and how many others are right."""
    best = part.posteriors.max(-1)
    claimed = (best.values.exp() * part.free).sum(dtype=torch.float64)
    right = (best.indices == part.known).sum()
    return Sums((claimed, part.free.sum(dtype=torch.float64), right.double()))
