"""Count: what the answers say about which classes occur.

An item with the answers r_qk speaks for one class, its most probable one: by the margin ln r_qk − max_j≠k ln r_qj. The
margins of a class, added up, in units of the mean margin of all items, are

    s_k = Σ_q [k is the answer of q] (ln r_qk − max_j≠k ln r_qj) / mean margin,

as many items as are usually as sure. Only ratios of margins count, so that it does not matter how sure the classifier
claims to be: with any temperature, s_k is the same. A doubtful item says next to nothing, and nothing jumps where the
answer changes.

That is compared with what a wrong name would explain. Items that get class k wrongly are of the classes that the
classifier else takes them for. With its own probabilities z_qj and the expected number m_j of items of class j, these
classes have

    A_k = Σ_q r_qk Σ_{j ≠ k} z_qj m_j / Σ_q r_qk (1 − z_qk)

items: many where k is a fragment of a large class, hardly any where it has no large neighbour. And it is compared with
the class of a usual item, s̄ = Σ_k s_k² / Σ_k s_k. The odds that class k occurs are

    ω s_k / (A_k + ½ s̄).

Copies of items change no ratio of items: they are no new evidence. Known labels make their class certain, and count in
m alone. Where R names of labelled items are right and W are wrong, ω is √((R + 1) / (2W + 1)) times as large.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from manyway.core import Sums, one_hot
from manyway.methods.scores.calibrate import Calibration, Given
from manyway.methods.scores.constants import ScoreConstants
from manyway.methods.scores.items import Items, Part

Answers = Callable[[Part], Tensor]  # from some items to the probabilities [b, k] of their classes
_NOTHING = torch.finfo(torch.float32).eps  # no probability is told from a smaller one


def odds_of_classes(
    items: Items,
    answers: Answers,
    calibration: Calibration,
    given: Given,
    constants: ScoreConstants,
) -> Tensor:
    """[k] the log-odds that a class occurs; inf where an item is known to be of the class."""
    margins, masses, number, known = items.each(partial(_sum_margins, answers)).values
    lost, doubt = items.each(partial(_sum_neighbours, answers, calibration, masses)).values
    tiny = torch.finfo(masses.dtype).tiny
    named = margins * number / margins.sum().clamp_min(tiny)
    usual = named.square().sum() / number.clamp_min(tiny)
    neighbours = lost / doubt.clamp_min(tiny)
    odds = named.clamp_min(tiny).log() - (neighbours + usual / 2).clamp_min(tiny).log()
    odds = odds + constants.scores_right + _labelled_odds(items, given) / 2
    return odds.masked_fill(known > 0, torch.inf)


def _sum_margins(answers: Answers, part: Part) -> Sums:
    """The margins and m [k], the expected number of items that have a class to be found [], and the known items [k].

    By its probabilities, each item adds next to nothing to the margins: where all are 0, these count.
    """
    probabilities = answers(part)
    to_find = probabilities * part.free.unsqueeze(-1)
    best = to_find.topk(2)
    first, second = best.values.clamp_min(_NOTHING).log().unbind(-1)
    some = to_find.sum(-1)  # an item that is probably unknown names no class
    own = one_hot(best.indices[:, 0], probabilities.shape[-1], probabilities.dtype)
    margins = own * (some * (first - second)).unsqueeze(-1) + _NOTHING * to_find
    known = torch.nn.functional.one_hot(part.known + 1, probabilities.shape[-1] + 1)[:, 1:]
    sums = (margins, probabilities, some, known)
    return Sums(tuple(value.sum(0, dtype=torch.float64) for value in sums))


def _sum_neighbours(answers: Answers, calibration: Calibration, masses: Tensor, part: Part) -> Sums:
    """The numerator and the denominator of A [k]."""
    to_find = answers(part) * part.free.unsqueeze(-1)
    own = calibration.own(part.posteriors).exp()
    sizes = own * masses.to(own)
    others = sizes.sum(-1, keepdim=True) - sizes
    lost = (to_find * others).sum(0, dtype=torch.float64)
    doubt = (to_find * (1 - own)).sum(0, dtype=torch.float64)
    return Sums((lost, doubt))


def _labelled_odds(items: Items, given: Given) -> Tensor:
    """[] ln ((R + 1) / (2W + 1))."""
    right, n_known = items.each(_sum_right).values
    right = right + (given.labelled.argmax(-1) == given.labels).sum()
    wrong = n_known + len(given.labels) - right
    return (right + 1).log() - (2 * wrong + 1).log()


def _sum_right(part: Part) -> Sums:
    """[] how many known labels are those that the classifier gives, and how many there are."""
    right = part.posteriors.argmax(-1) == part.known
    return Sums((right.sum(dtype=torch.float64), (part.known >= 0).sum(dtype=torch.float64)))
