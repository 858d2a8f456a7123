"""OSLO: labels and outlier scores by soft assignments (Boudiaf et al., CVPR 2023).

Outliers hardly enter these.
"""

import torch

from manyway.core import Solution, Tasks, class_sums, cross_products, unit
from manyway.methods.calibration.transforms import transform


def oslo(
    tasks: Tasks,
    *,
    inlier_temperature: float = 0.05,
    temperature: float = 0.1,
    max_iter: int = 2,
    scale: str | None = "tcl2",
) -> Solution:
    """Label queries, and score which of them are unknown, by prototypes that outliers hardly move.

    With c_qk = cos(z_q, w_k), w_k the support's class means and assignments p_qk = 1/K
    at the start, repeat

        ξ_q  = sigmoid(Σ_k p_qk c_qk / λ_s)
        p_qk = softmax_k(ξ_q c_qk / λ_z)
        w_k  = (Σ_s y_sk z_s + Σ_q ξ_q p_qk z_q) / (Σ_s y_sk + Σ_q ξ_q p_qk).

    ξ_q is the inlierness of query q: how much it counts.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.
    inlier_temperature : float, default=0.05
        λ_s, which divides the mean cosine in the inlierness.
    temperature : float, default=0.1
        T, which divides the logits before a softmax. The paper's λ_z. The logits are cosines.
    max_iter : int, default=2
        The largest number of iterations. All are done.
    scale : str or None, default="tcl2"
        Feature transform; None uses the features as they are. ``cl2`` is the authors' variant that
        is centred on the mean of the base classes.

    Returns
    -------
    Solution
        ``unknown`` is 1 − ξ of the last iteration. ``probabilities`` are softmax_k(c_qk / λ_z) with
        the last prototypes: those of the classes, if the query is of one of them; each row
        sums to 1. ``converged`` is False: there is no stopping rule.

    Notes
    -----
    Labels are those of the prototypes after the last update, as in the authors' code. ``unknown``
    comes from the prototypes before it. It is a score, not a calibrated probability. The first
    inlierness depends on the mean cosine to all classes.

    The defaults are the authors', for one and for five shots.

    Differs from the authors' code: 1 − ξ is computed as sigmoid(−Σ_k p_qk c_qk / λ_s), because in
    float32 the difference from 1 loses digits.

    Reference: Boudiaf, Bennequin, Tami, Toubhans, Piantanida, Hudelot, Ben Ayed, "Open-set
    likelihood maximization for few-shot learning", CVPR 2023.

    Examples
    --------
    >>> support, query = [[[1.0, 0.0, 0.1], [0.0, 1.0, 0.1]]], [[[1.0, 0.1, 0.1], [0.2, 1.0, 0.1], [0.1, 0.1, 1.0]]]
    >>> solution = oslo(Tasks.from_arrays(support, [[0, 1]], query), scale=None)
    >>> solution.labels[0, :2].tolist(), int(solution.unknown.argmax())
    ([0, 1], 2)
    """
    tasks = transform(tasks, scale)
    query = tasks.query
    directions = unit(query)
    sums, counts = class_sums(tasks)
    centres = sums / counts.unsqueeze(-1)
    assigned = query.new_full((1, 1, 1), 1 / tasks.n_classes)
    for _ in range(max_iter):
        cosines = cross_products(directions, unit(centres))  # [t, q, k]
        evidence = (assigned * cosines).sum(-1, keepdim=True) / inlier_temperature  # [t, q, 1]
        inlierness = evidence.sigmoid()
        assigned = (inlierness * cosines / temperature).softmax(-1)
        weights = inlierness * assigned
        centres = torch.baddbmm(sums, weights.mT, query) / (counts + weights.sum(1)).unsqueeze(-1)
    probabilities = (cross_products(directions, unit(centres)) / temperature).softmax(-1)
    return Solution(
        probabilities, max_iter, False, lambda: centres, unknown=(-evidence).sigmoid().squeeze(-1)
    )
