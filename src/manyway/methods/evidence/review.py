"""Which query a person should label next: the one whose answer is expected to repair most labels.

An answer repairs the label of its own query with the probability that this is wrong, its doubt. It also says something
about queries that are near and have the same classes in question, but less if others like them are known already.
"""

from __future__ import annotations

from torch import Tensor

from manyway.methods.calibration.calibration import Calibration, squared_distances
from manyway.methods.evidence.known import Known

# Two samples of a class have the squared distance 2S on average; at that distance two queries count as half alike. The
# logit of that falls with this slope per 2S.
_STEEPNESS = 4.0
# The part of the doubt about a query that an answer to another one like it removes, if it is the first.
_REPAIRED = 0.3
_MOST_PAIRS = 1 << 25  # of queries that are compared: limits memory and time


def review_scores(placed: Tensor, probabilities: Tensor, calibration: Calibration, known: Known | None) -> Tensor:
    """[t, q] the expected number of labels that an answer to each query repairs; -1 where its label is known.

    In large tasks only the most doubtful queries count as those that are repaired.
    """
    n_query = placed.shape[1]
    doubt = 1 - probabilities.amax(-1)
    others = doubt.topk(min(n_query, max(_MOST_PAIRS // n_query, 1))).indices  # [t, o]
    theirs = placed.gather(1, others.unsqueeze(-1).expand(-1, -1, placed.shape[-1]))
    distances = squared_distances(placed, theirs) / (2 * calibration.scatter.clamp_min(1e-30).view(-1, 1, 1))
    alike = distances.sub_(1).mul_(-_STEEPNESS).sigmoid_()  # [t, q, o]
    directions = probabilities / probabilities.norm(dim=-1, keepdim=True).clamp_min(1e-30)
    alike *= directions @ directions.gather(1, others.unsqueeze(-1).expand(-1, -1, directions.shape[-1])).mT
    alike.scatter_(1, others.unsqueeze(1), 0)  # nothing else is learned about the query itself
    remaining = doubt.gather(1, others)
    if known is not None:
        remaining = remaining / (1 + (alike * known.rows).sum(1))
    scores = doubt + _REPAIRED * (alike @ remaining.unsqueeze(-1)).squeeze(-1)
    return scores if known is None else scores.masked_fill(known.rows.squeeze(-1), -1)
