"""Which query a person should label next: the one whose answer is expected to repair most labels."""

from __future__ import annotations

from torch import Tensor

from manyway.methods.evidence.calibration import Calibration, distances_between
from manyway.methods.evidence.known import Known


def review_scores(placed: Tensor, probabilities: Tensor, calibration: Calibration, known: Known | None) -> Tensor:
    """[t, q] the doubt about the labels of the queries near each query; -1 where the label is known."""
    doubt = 1 - probabilities.amax(-1)
    # Two samples of a class are 2S apart on average.
    distances = distances_between(placed) / (2 * calibration.scatter.view(-1, 1, 1))
    scores = (distances.mul_(-3).exp_() @ doubt.unsqueeze(-1)).squeeze(-1)
    return scores if known is None else scores.masked_fill(known.rows.squeeze(-1), -1)
