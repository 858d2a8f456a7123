"""Which query a person should label next: the one whose answer is expected to repair most labels.

An answer repairs the label of its own query with the probability that this is wrong, its doubt d_q = 1 − max_k p_qk.
It also says something about queries that are near and have the same classes in question, but less if others like them
are known already:

    score_q = d_q + c Σ_o a_qo d_o / (1 + Σ_p a_po),        a_qo = cos(p_q, p_o) · nearness(z_q, z_o),

where p runs over the queries whose label is known, and nearness falls from 1 to 0 around the distance of two samples of
one class.
"""

from torch import Tensor

from manyway.methods.evidence.likelihood import Likelihood
from manyway.methods.evidence.schedule import Schedule

_MOST_PAIRS = 1 << 25  # of queries that are compared: limits memory and time


def review_scores(
    placed: Tensor, probabilities: Tensor, likelihood: Likelihood, known: Tensor, schedule: Schedule
) -> Tensor:
    """The expected number of labels that an answer to each query repairs.

    Parameters
    ----------
    placed : Tensor of shape [t, q, d]
        The placed queries.
    probabilities : Tensor of shape [t, q, k]
        Those of the classes; with a last column for unknown, where queries may be.
    likelihood : Likelihood
        It knows how near two placed queries are.
    known : Tensor of shape [t, q]
        Known labels, -1 for the others.
    schedule : Schedule

    Returns
    -------
    Tensor of shape [t, q]
        -1 where the label is known. In large tasks only the most doubtful queries count as those that are repaired.
    """
    n_query = placed.shape[1]
    doubt, rows = 1 - probabilities.amax(-1), (known >= 0).unsqueeze(-1)
    others = doubt.topk(min(n_query, max(_MOST_PAIRS // n_query, 1))).indices  # [t, o]
    theirs = placed.gather(1, others.unsqueeze(-1).expand(-1, -1, placed.shape[-1]))
    directions = probabilities / probabilities.norm(dim=-1, keepdim=True).clamp_min(1e-30)
    alike: Tensor = directions @ directions.gather(1, others.unsqueeze(-1).expand(-1, -1, directions.shape[-1])).mT
    alike *= likelihood.nearness(placed, theirs, schedule.steepness)  # [t, q, o]
    alike.scatter_(1, others.unsqueeze(1), 0)  # nothing else is learned about the query itself
    remaining = doubt.gather(1, others) / (1 + (alike * rows).sum(1))
    scores: Tensor = doubt + schedule.repaired * (alike @ remaining.unsqueeze(-1)).squeeze(-1)
    return scores.masked_fill(rows.squeeze(-1), -1)
