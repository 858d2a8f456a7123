"""Iterations in which the dead classes rest.

PADDLE leaves most classes with almost no query. Their prototypes and duals hardly move, and yet they are most of the
work. So after a full iteration come some in which only live classes are updated; each query's dead classes count
together, with the logits that they had, as one more column of its softmax. The next full iteration brings every class
up to date and chooses anew, so that a class can come back to life.

A fixed point of the full iteration is one of this, and the other way round: what the dead classes would have changed
meanwhile, a share of at most ``DEAD`` each, is all that can differ, and it differs only while the task still moves.
"""

from __future__ import annotations

import torch
from torch import Tensor

from manyway.methods.paddle.forms import FeatureForm, GramForm

DEAD = 1e-5  # a class with fewer queries than this, Σ_q u_qk, is dead
_WORTH = 32  # dead classes below which choosing costs more than it saves


def dual(u: Tensor, weight: float, eps: float) -> Tensor:
    """[t, 1, k] = (λ/|Q|) v at its best for u, ``weight`` being λ/|Q|."""
    return (u.mean(1, keepdim=True) + eps).log_().add_(1).mul_(weight)


def live_iterations(
    form: FeatureForm | GramForm, logits: Tensor, u: Tensor, count: int, weight: float, eps: float
) -> Tensor | None:
    """Assignments [t, q, k] after ``count`` iterations of the live classes, or None where too many are alive to gain.

    ``logits`` [t, q, k] and ``u``, their softmax, are those of a full iteration.
    """
    n_query, n_classes = u.shape[1:]
    masses = u.sum(1)
    n_live = int((masses > DEAD).sum(1).max())
    n_live = n_live // 4 * 4 + 3  # and one column for the dead: products whose width is a multiple of four are cheaper
    if n_classes - n_live < max(_WORTH, n_live):
        return None
    # One class more than live ones: its column is lent to the dead.
    chosen = masses.topk(n_live + 1).indices
    live = chosen[:, :-1].sort(1).values
    columns = live.unsqueeze(1).expand(-1, n_query, -1)
    form = form.take_classes(torch.cat([live, chosen[:, -1:]], 1))
    part = u.gather(2, columns)
    rest = u.scatter(2, columns, 0).sum(2, keepdim=True)  # of each query, what its dead classes have
    largest, at = part.max(2, keepdim=True)
    together = logits.gather(2, live.gather(1, at.squeeze(2)).unsqueeze(2)) + (rest / largest).log()
    both = torch.cat([part, rest], 2)  # [t, q, l+1]
    for _ in range(count):
        scores = form.scores(both, dual(both, weight, eps) if weight else None)
        scores[..., -1:] = together
        both = scores.softmax(2)
    return (u * (both[..., -1:] / rest).nan_to_num_(0)).scatter_(2, columns, both[..., :-1])
