"""Iterations that update live classes only.

PADDLE leaves most classes with almost no query. These classes are called dead here. Their prototypes and duals hardly
move, and yet they are most of the work. A full iteration is therefore followed by several that update the live classes
only: for each query, its dead classes are one additional column of the softmax, with the logits that they had. The next
full iteration updates every class and selects the live ones again, so that a class can return.

Both iterations have the same fixed points. Before a fixed point is reached, they differ by the changes that the dead
classes would have made in the meantime, at most ``DEAD`` queries each.
"""

import torch
from torch import Tensor

from manyway.methods.paddle.forms import FeatureForm, GramForm

DEAD = 1e-5  # a class is dead when Σ_q u_qk is below this
_FEWEST_DEAD = 32  # with fewer dead classes, the selection costs more than it saves


def dual(u: Tensor, weight: float, eps: float) -> Tensor:
    """[t, 1, k] = (λ/|Q|) v for the v that is optimal for u; ``weight`` is λ/|Q|."""
    return (u.mean(1, keepdim=True) + eps).log_().add_(1).mul_(weight)


def live_iterations(
    form: FeatureForm | GramForm, logits: Tensor, u: Tensor, count: int, weight: float, eps: float
) -> Tensor | None:
    """Do ``count`` iterations that update live classes only; None when so many are live that nothing would be saved.

    ``logits`` and ``u`` [t, q, k] are those of a full iteration; ``weight`` is λ/|Q|. Returns new assignments.
    """
    n_query, n_classes = u.shape[1:]
    masses = u.sum(1)
    n_live = int((masses > DEAD).sum(1).max())
    n_live = n_live // 4 * 4 + 3  # one column more makes a multiple of 4: products of such a width are faster
    if n_classes - n_live < max(_FEWEST_DEAD, n_live):
        return None
    # One class more than the live ones: its column holds the dead classes together.
    chosen = masses.topk(n_live + 1).indices
    live = chosen[:, :-1].sort(1).values
    columns = live.unsqueeze(1).expand(-1, n_query, -1)
    form = form.take_classes(torch.cat([live, chosen[:, -1:]], 1))
    part = u.gather(2, columns)
    dead = u.scatter(2, columns, 0).sum(2, keepdim=True)  # [t, q, 1] the probability of the dead classes together
    largest, at = part.max(2, keepdim=True)
    together = logits.gather(2, live.gather(1, at.squeeze(2)).unsqueeze(2)) + (dead / largest).log()
    both = torch.cat([part, dead], 2)  # [t, q, l+1]
    for _ in range(count):
        scores = form.scores(both, dual(both, weight, eps) if weight else None)
        scores[..., -1:] = together
        both = scores.softmax(2)
    return (u * (both[..., -1:] / dead).nan_to_num_(0)).scatter_(2, columns, both[..., :-1])
