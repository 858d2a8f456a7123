"""Review: which query a person should label next."""

from __future__ import annotations

import torch
from torch import Tensor

from manyway.core import Answered
from manyway.methods.calibration.metric import rows_of
from manyway.methods.evidence.queries import Part

_MOST_PAIRS = 1 << 25  # of queries that are compared: limits memory and time
_SHORTEST = 1e-30  # a row of zeros has no direction


def review_scores(part: Part, outcomes: Tensor, shared: Tensor | None = None) -> Tensor:
    """The expected number of labels that an answer to each query repairs.

    An answer repairs the label of its own query with the probability that this is wrong, its doubt
    d_q = 1 − max_k p_qk. It also says something about queries that are near and have the same
    classes in question, but less if others like them are known already:

        score_q = d_q + ½ Σ_o a_qo d_o / (1 + Σ_p a_po),        a_qo = cos(p_q, p_o) · nearness(z_q, z_o),

    where p runs over the queries whose label is known, and nearness falls from 1 to 0 around the
    distance of two samples of one class.

    Where queries differ from the examples all alike, they share the doubt δ whether their labels
    are moved with them (``shift``). An answer then says something about all queries, however far:
    the more, the more of them are like its own query, which therefore lies in the middle of a large
    group. With ā_q, the mean of a_qo over the queries o, a_qo becomes a_qo + δ (1 − a_qo) ā_q.

    Parameters
    ----------
    part : Part
        All queries.
    outcomes : Tensor of shape [t, q, k]
        The probabilities of the classes; with a last column for unknown, where queries may be.
    shared : Tensor of shape [t] or None, default=None
        δ; None: 0.

    Returns
    -------
    Tensor of shape [t, q]
        -1 where the label is known. In large tasks only the most doubtful queries count as those
        that are repaired.
    """
    placed = part.placed
    n_query = placed.shape[1]
    doubt = 1 - outcomes.amax(-1)
    known = (part.known >= 0).unsqueeze(-1)
    others = doubt.topk(min(n_query, max(_MOST_PAIRS // n_query, 1))).indices  # [t, o]
    directions = outcomes / outcomes.norm(dim=-1, keepdim=True).clamp_min(_SHORTEST)
    alike: Tensor = directions @ rows_of(directions, others).mT
    nearness = part.likelihood.nearness(placed, rows_of(placed, others))
    alike *= nearness  # [t, q, o]
    if shared is not None:
        of_shift = shared.to(alike).view(-1, 1, 1) * alike.mean(-1, keepdim=True)
        alike += of_shift * (1 - alike)
    alike.scatter_(1, others.unsqueeze(1), 0)  # nothing else is learned about the query itself
    remaining = doubt.gather(1, others) / (1 + (alike * known).sum(1))
    scores: Tensor = doubt + 0.5 * (alike @ remaining.unsqueeze(-1)).squeeze(-1)
    return scores.masked_fill(known.squeeze(-1), -1)


def review_answers(of_shift: Tensor | None, part: Part, answers: Answered) -> Tensor:
    """[t, q] ``review_scores`` of all queries, given their answers.

    ``of_shift`` [t]: what the doubt of a shift makes of claims, a power; None: there is none.
    """
    outcomes = answers.probabilities
    if answers.unknown is not None:
        outcomes = torch.cat([outcomes, answers.unknown.unsqueeze(-1)], -1)
    shared = None if of_shift is None else 1 - of_shift
    return review_scores(part, outcomes, shared)
