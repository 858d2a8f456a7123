"""BPA: prototypes of balanced pairwise affinities (Shalam and Korman, ICML 2024)."""

from dataclasses import replace

import torch

from manyway.core import Solution, Tasks, balanced_affinities, dot_scores, prototypes
from manyway.methods.calibration.transforms import transform


def bpa(
    tasks: Tasks,
    *,
    affinity_weight: float = 0.1,
    affinity_iter: int = 20,
    logit_scale: float = 2.0,
    scale: str | None = None,
) -> Solution:
    """Label by the nearest class mean of features that say how well an item matches every other.

    With P the balanced matching of all items of a task, support and queries, by their cosines, the
    new feature of an item is its row of P, in which pairs of support samples have the affinity 1 or
    0 by their labels. A query is labelled by the nearest class mean of support rows.
    ``scale="bpa"`` gives these features to any other method.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.
    affinity_weight : float, default=0.1
        λ, the weight of the entropy in the matching: at least 0.025.
    affinity_iter : int, default=20
        The number of Sinkhorn's iterations for the matching.
    logit_scale : float, default=2.0
        τ, which multiplies the logits before a softmax.
        The logits are −½ squared distances of the new features.
    scale : str or None, default=None
        Feature transform; None uses the features as they are. The matching reads their cosines.

    Returns
    -------
    Solution
        ``prototypes`` are means of the new features. ``n_iter`` is 1 and ``converged`` is True:
        there is nothing to iterate but the matching.

    Notes
    -----
    Every item has the same weight in the matching, so that nothing is assumed about the sizes of
    classes. An item of an absent class gives its weight to others all the same.

    The defaults are those of the authors' training script. Its evaluation script tries λ from 0.1
    to 0.5 on the test tasks, and matches without the labels of the support.

    Differs from the authors' code: a batch of tasks is computed as each alone; theirs takes another
    iteration for a batch, which stops by a mean over it. Support labels are those of the samples;
    theirs are read from the labels of the queries, which is right only if all classes are equally
    frequent and in the same order.

    Reference: Shalam, Korman, "The balanced-pairwise-affinities feature transform", ICML 2024.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> bpa(tasks).labels.tolist()
    [[0, 1]]
    """
    tasks = transform(replace(tasks, class_table=None), scale)
    centres = []
    logits = []
    for part in tasks.in_parts((tasks.n_support + tasks.n_query) ** 2):
        matched = balanced_affinities(
            part, affinity_weight=affinity_weight, affinity_iter=affinity_iter
        )
        centres.append(prototypes(matched))
        logits.append(dot_scores(matched.query, centres[-1]) * logit_scale)
    probabilities = torch.cat(logits).softmax(-1)
    return Solution(
        probabilities, n_iter=1, converged=True, make_prototypes=lambda: torch.cat(centres)
    )
