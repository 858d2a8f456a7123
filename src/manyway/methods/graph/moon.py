"""MOON: von Mises-Fisher classes that stay near their anchors as far as few queries support them."""

import math

import torch
from torch import Tensor

from manyway.core.ops import cross_products, entropy
from manyway.core.solution import Solution
from manyway.core.tasks import Tasks
from manyway.core.transforms import class_directions, unit
from manyway.methods.graph.common import (
    chosen_classes,
    log_posterior,
    n_live_features,
    of_classes,
    smoothed,
    symmetric_graph,
    unit_tasks,
    unstopped,
    with_classes,
)

_LENGTHS = (1e-3, 0.999)  # bounds of the mean resultant length


def moon(
    tasks: Tasks,
    *,
    logit_scale: float = 100.0,
    graph_weight: float = 1.0,
    n_neighbors: int = 3,
    tempering: float = 50.0,
    max_concentration: float = 500.0,
    max_iter: int = 10,
    scale: str | None = "cl2",
) -> Solution:
    """Von Mises-Fisher classes, held at their class vectors by anchors, smoothed over nearest queries.

    With class vectors w_k of length one and ŷ = softmax_k(τ x·w_k), each class has a mean direction μ_k, which starts
    at w_k, and a concentration κ_k = (r_k d − r_k³)/(1 − r_k²), which starts with r = 1 − ½ (1/|Q|) Σ_qk ŷ_qk
    ‖x_q − w_k‖². Then ``max_iter`` times, and the first step once more at the end:

        u_q = softmax_k(ln ŷ_q + (κ_k μ_k·x_q + ½(d−1) ln κ_k − κ_k) / 50 + (λ/2n) (W u + Wᵀ u)_q);
        a_q = 1 − H(u_q)/ln K,  v_k = Σ_q a_q u_qk x_q / Σ_q a_q u_qk,
        c_k ∝ √(mean_q ŷ_qk · max_q ŷ_qk) with the largest 1,  β_k = n_k / (1/c_k + n_k),
        r_k = ‖β_k v_k + (1 − β_k) w_k‖,  μ_k = (β_k v_k + (1 − β_k) w_k) / r_k,

    where W has the cosines of each query with its n nearest other queries, and n_k is the number of queries whose most
    probable class is k.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve. The class vectors are their class features, and the normalised class means of the support
        where they have none. With class features the support is not used.
    logit_scale : float, default=100.0
        τ, which multiplies the logits before a softmax. The logits are cosines.
    graph_weight : float, default=1.0
        λ, the weight of the graph.
    n_neighbors : int, default=3
        n, the number of nearest other queries that a query has edges to.
    tempering : float, default=50.0
        What the log-likelihood is divided by.
    max_concentration : float, default=500.0
        The largest κ after the start.
    max_iter : int, default=10
        The largest number of iterations. All are done: they are updates of directions and concentrations.
    scale : str or None, default="cl2"
        Feature transform; None uses the features as they are. Vectors are divided by their norms
        afterwards in any case.

    Returns
    -------
    Solution
        ``prototypes`` are the directions μ. There is no stopping rule.

    Notes
    -----
    It reads nothing but the queries and the class vectors. r is kept between 0.001 and 0.999. d counts the features
    that are not constant in a task.

    There is no recorded run of the original: the method is implemented from its formulas. Where they leave it open,
    n_k is the hard count of StatA, and v_k is weighted with a_q u_qk.

    Reference: as ``stata``, of which it is the relative with von Mises-Fisher distributions.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> moon(tasks).labels.tolist()
    [[0, 1]]
    """
    tasks = unit_tasks(tasks, scale)
    query, anchors = tasks.query, class_directions(tasks)
    prior = log_posterior(query, anchors, logit_scale)
    graph = symmetric_graph(query, n_neighbors, graph_weight)
    u = prior.exp()
    d = n_live_features(query, anchors)
    trust = u.mean(1).mul_(u.amax(1)).sqrt_()  # c, [t, k]
    anchor_weight = trust.amax(1, keepdim=True) / trust.clamp_min(torch.finfo(u.dtype).tiny)
    cosines = cross_products(query, anchors)
    # 1 − ½‖x − w‖² = x·w for vectors of length one
    length = (u * cosines).sum((1, 2), keepdim=True).div_(tasks.n_query)
    scores = prior + _score(cosines, length, d) / tempering
    # A class that no query chooses has μ = w and r = 1: only the others are computed again.
    at_anchors = prior + _score(cosines, torch.ones_like(length), d, max_concentration) / tempering
    for _ in range(max_iter):
        u = smoothed(scores, graph, u, 1)
        classes, counts = chosen_classes(u)
        beta = (counts / (anchor_weight.gather(1, classes) + counts)).unsqueeze(-1)
        weights = u * (1 - entropy(u) / math.log(tasks.n_classes)).clamp_min_(0).unsqueeze(-1)
        weights = of_classes(weights.mT, classes)  # [t, m, q]
        sizes = weights.sum(-1, keepdim=True).clamp_min_(torch.finfo(u.dtype).tiny)
        means = beta * (weights @ query / sizes) + (1 - beta) * of_classes(anchors, classes)
        lengths = means.norm(dim=-1).unsqueeze(1)  # [t, 1, m]
        means = unit(means)
        density = _score(cross_products(query, means), lengths, d, max_concentration)
        scores = with_classes(at_anchors, prior, density / tempering, classes)
    u = smoothed(scores, graph, u, 1)
    return unstopped(u, max_iter, anchors, classes, means)


def _score(cosines: Tensor, length: Tensor, d: Tensor, largest: float = math.inf) -> Tensor:
    """[t, q, m] κ μ·x + ½(d−1) ln κ − κ, with the approximate maximum-likelihood κ of a mean resultant length."""
    length = length.clamp(*_LENGTHS)
    kappa = ((length * d - length**3) / (1 - length.square())).clamp_max_(largest)
    return (cosines - 1) * kappa + (d - 1) / 2 * kappa.log()
