"""BD-CSPN: prototypes rectified with pseudo-labelled queries (Liu et al., ECCV 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from manyway.core.ops import dot_scores, one_hot, prototypes
from manyway.core.solution import Solution
from manyway.core.tasks import Tasks
from manyway.core.transforms import transform, unit
from manyway.errors import InputError, nearest

_WEIGHTINGS = ("classes", "samples")


def bd_cspn(
    tasks: Tasks,
    *,
    temperature: float = 50.0,
    weighting: str = "classes",
    cosine: bool = False,
    scale: str | None = "cl2",
) -> Solution:
    """Move the queries onto the support, pseudo-label them, average, and label by the nearest rectified prototype.

    With p_k the support's class means and n running over the support and the shifted queries
    z_q + mean_s z_s − mean_q z_q, each sample goes to the class c_n = argmax_k cos(z_n, p_k), and

        w_k = mean of g_nk z_n over the samples with c_n = k,      g_n = softmax_k(τ cos(z_n, p_k)).

    A query is labelled by the w nearest to it where it was before the shift. There is nothing to iterate. The shift
    assumes that support and queries have the same mean, that is the same classes in the same shares.

    The defaults are those of the PADDLE paper's experiments, with τ = ``temperature`` = 30 for ResNet-18 on tiered and
    50 elsewhere. BD-CSPN's own paper has τ = 10, weights that are a softmax over the samples of a class
    (``weighting="samples"``), and labels shifted queries by cosine (``cosine=True``). Probabilities are
    softmax_k(−½‖w_k − z_q‖²), or softmax_k(τ cos(w_k, z_q)) with ``cosine``: the method itself has labels only.

    Differs from the authors' code in: the features really are transformed (the published benchmark computes ``cl2`` and
    then uses the untransformed features); a class that no sample is assigned to keeps its class mean, where the
    published code then gives up rectifying the whole task.

    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> bd_cspn(tasks, scale=None).labels.tolist()
    [[0, 1]]
    """
    if weighting not in _WEIGHTINGS:
        raise InputError(f"bd-cspn has no weighting '{weighting}'; {nearest(weighting, _WEIGHTINGS)}")
    tasks = transform(tasks, scale)
    support, query = tasks.support, tasks.query
    shifted = query + support.mean(1, keepdim=True) - query.mean(1, keepdim=True)
    samples = torch.cat([support, shifted], dim=1)
    means = prototypes(tasks)
    similarity = unit(samples) @ unit(means).mT
    assigned = one_hot(similarity.argmax(-1), tasks.n_classes, tasks.dtype)
    rectified = _weights(similarity * temperature, assigned, weighting).mT @ samples
    rectified = torch.where(assigned.any(1).unsqueeze(-1), rectified, means)
    scores = unit(shifted) @ unit(rectified).mT * temperature if cosine else dot_scores(query, rectified)
    once = torch.ones(tasks.n_tasks, dtype=torch.int64, device=tasks.device)
    return Solution(scores.softmax(-1), n_iter=once, converged=once.bool(), make_prototypes=lambda: rectified)


def _weights(logits: Tensor, assigned: Tensor, weighting: str) -> Tensor:
    """[t, n, k] what each sample counts in the rectified prototype of the class that it is assigned to."""
    if weighting == "classes":
        return logits.softmax(-1) * assigned / assigned.sum(1, keepdim=True).clamp_min(1)
    logits = logits.masked_fill(assigned == 0, -torch.inf)
    return logits.softmax(1).nan_to_num(0)  # a class without samples has no softmax
