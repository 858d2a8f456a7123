"""Balanced pairwise affinities (BPA): how well each item of a task matches every other.

They are the new features of the item.
"""

import torch
from torch import Tensor

from manyway.core.ops import one_hot, sinkhorn, unit
from manyway.core.tasks import Tasks
from manyway.errors import InputError

AFFINITY_WEIGHT = 0.1  # λ of the authors' training script
AFFINITY_ITER = 20
# exp(−2/λ), the smallest entry of the first plan, must be a normal number of float32
_LEAST_WEIGHT = 0.025


def balanced_affinities(
    tasks: Tasks, *, affinity_weight: float = AFFINITY_WEIGHT, affinity_iter: int = AFFINITY_ITER
) -> Tasks:
    """Replace each item by its row of a balanced matching of all items of the task, support and queries.

    The matching P minimises Σ_ij P_ij (1 − cos(x_i, x_j)) + λ Σ P ln P over matrices whose rows and
    columns sum to 1, where no item is matched with itself. It is divided by its largest entry. Then
    two support samples have the affinity 1 where they are of one class and 0 where not, and every
    item has the affinity 1 with itself. Rows of P are the new features; there are as many as items.

    Parameters
    ----------
    tasks : Tasks
        The tasks. A base mean is left out of the result: it is one of the old features.
    affinity_weight : float, default=0.1
        λ, the weight of the entropy in the matching.
    affinity_iter : int, default=20
        The number of Sinkhorn's iterations for the matching.

    Returns
    -------
    Tasks

    Notes
    -----
    Every item has the same weight, so that nothing is assumed about the sizes of classes.

    Differs from the authors' code: a batch of tasks is computed as each alone;
    theirs stops by a mean over the batch.

    Reference: Shalam, Korman, "The balanced-pairwise-affinities feature transform", ICML 2024.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> balanced_affinities(tasks).query.round(decimals=2).tolist()
    [[[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]]]
    """
    _refuse(tasks, affinity_weight)
    samples = unit(torch.cat([tasks.support, tasks.query], 1))
    scores = (samples @ samples.mT - 1).div_(affinity_weight)
    scores.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    start = torch.zeros_like(scores[:, 0])
    plan, _, _ = sinkhorn(scores, 1.0, 1.0, tol=0.0, max_iter=affinity_iter, start=start)
    plan = plan / plan.amax((1, 2), keepdim=True)
    plan[:, : tasks.n_support, : tasks.n_support] = _same_class(tasks)
    plan.diagonal(dim1=1, dim2=2).fill_(1)
    n_support = tasks.n_support
    return tasks.with_rows(plan[:, :n_support], plan[:, n_support:], base_mean=None)


def _refuse(tasks: Tasks, affinity_weight: float) -> None:
    """What cannot be matched."""
    if affinity_weight < _LEAST_WEIGHT:
        raise InputError(
            f"affinity_weight is {affinity_weight!r}; it must be at least {_LEAST_WEIGHT}."
        )
    if tasks.pile is not None or not tasks.n_query:
        raise InputError(
            "The feature transform 'bpa' compares all items with each other and needs them "
            "in one batch."
        )
    if tasks.class_table is not None:
        raise InputError(
            "The feature transform 'bpa' has no use for class features; "
            "leave them out, or choose 'cl2'."
        )


def _same_class(tasks: Tasks) -> Tensor:
    """[t, s, s] 1 where two support samples are of one class, 0 elsewhere."""
    assigned = one_hot(tasks.support_labels, tasks.n_classes, tasks.dtype)
    return assigned @ assigned.mT
