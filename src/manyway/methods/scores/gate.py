"""Gate: how much the batch and the classifier have to say.

The other items predict class k for item q with π_qk, and make the item e^gain times as probable as equal proportions
do (``Found.gains``). With the mean gain G over items, less its standard error, and less what hidden preferences may
gain,

    w = G² / (G² + g²)   where G > 0, else 0.

The logits of the answer are

    z_qk − w b_k + w ln ((1 − ε) π_qk + ε o_qk),

where o_qk are the proportions that the classifier itself expects among the other items. With w = 0 the answer is the
classifier's own, with w = 1 that of the batch. Labelled items that cover the part c of the classes speak for the
calibration: w is raised to c + (1 − c) w, and ε lowered to (1 − c) ε.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from manyway.core import Sums
from manyway.methods.scores.calibrate import Calibration
from manyway.methods.scores.constants import ScoreConstants
from manyway.methods.scores.items import Items, Part
from manyway.methods.scores.search import Found


@dataclass(frozen=True, kw_only=True, eq=False)
class Gate:
    """From scores to logits of the answer."""

    calibration: Calibration
    found: Found
    weight: float  # w
    own_share: float  # ε
    own_masses: Tensor  # [k] the items that the classifier itself expects in each class

    def logits(self, part: Part) -> Tensor:
        """[b, k] the logits of the answers for some items."""
        own = self.calibration.own(part.posteriors)
        if self.weight == 0:
            return own
        by_batch = self.found.predicted(part.u)
        claimed = (own - self.calibration.bias).softmax(-1)
        n_classes = own.shape[-1]
        by_classifier = (self.own_masses.to(own) - claimed).clamp_min(0) + 1 / n_classes
        by_classifier = by_classifier / self.found.n_items
        expected = (1 - self.own_share) * by_batch + self.own_share * by_classifier
        return own + self.weight * (expected.log() - self.calibration.bias)


def gate(items: Items, calibration: Calibration, found: Found, constants: ScoreConstants) -> Gate:
    """How far the answers of the batch are believed."""
    sums = items.each(partial(_sum_gains, calibration, found))
    total, squares, number, own_masses = sums.values
    number = number.clamp_min(1)
    mean = total / number
    variance = (squares / number - mean.square()).clamp_min(0)
    error = (variance / (number - 1).clamp_min(1)).sqrt()
    gain = float((mean - error - calibration.hidden).clamp_min(0))
    alone = gain**2 / (gain**2 + constants.scores_gain**2)
    coverage = calibration.coverage
    return Gate(
        calibration=calibration,
        found=found,
        weight=coverage + (1 - coverage) * alone,
        own_share=(1 - coverage) * constants.scores_own,
        own_masses=own_masses,
    )


def _sum_gains(calibration: Calibration, found: Found, part: Part) -> Sums:
    """Σ gain, Σ gain² and the number of the items without a known label; and Σ of the classifier's probabilities."""
    likelihood = calibration.likelihood(part.posteriors)
    gains = (found.gains(likelihood, part.u) * part.free).double()
    expected = likelihood.softmax(-1).sum(0, dtype=torch.float64)
    return Sums((gains.sum(), gains.square().sum(), part.free.double().sum(), expected))
