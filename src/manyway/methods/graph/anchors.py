"""StatA and MOON: classes that stay near their anchors (Zanella et al., 2025).

They stay as near as few queries support them.

StatA has Gaussian classes, MOON von Mises-Fisher ones.
"""

import math

import torch
from torch import Tensor

from manyway.core import Solution, Tasks, column_sums, cross_products, entropy, unit
from manyway.methods.graph import common

_LENGTHS = (1e-3, 0.999)  # bounds of the mean resultant length


def stata(
    tasks: Tasks,
    *,
    logit_scale: float = 100.0,
    anchor_weight: float = 1.0,
    soft_counts: bool = False,
    graph_weight: float = 1.0,
    n_neighbors: int = 3,
    tempering: float = 50.0,
    max_iter: int = 10,
    inner_iter: int = 5,
    scale: str | None = "cl2",
) -> Solution:
    """Gaussian classes, held at their class vectors by statistical anchors, smoothed over nearest queries.

    With class vectors w_k of length one and ŷ = softmax_k(τ x·w_k), each class is a Gaussian with
    mean μ_k and diagonal variances Σ_k. They start at w_k and Σ⁰_d = (1/|Q|) Σ_qk ŷ_qk
    (x_qd − w_kd)². Then ``max_iter`` times, and the first step once more at the end:

        u_q = softmax_k(ln ŷ_q + ln N(x_q; μ_k, Σ_k) / 50 + (λ/2n) (W u + Wᵀ u)_q),  five times;
        β_k = n_k / (α + n_k),
        μ_k = norm(β_k norm(Σ_q u_qk x_q) + (1 − β_k) w_k),
        Σ_k = β_k Σ_q u_qk (x_q − μ_k)² / Σ_q u_qk + (1 − β_k) (Σ⁰ + (w_k − μ_k)²),

    where W has the cosines of each query with its n nearest other queries, and n_k is the number of
    queries whose most probable class is k. A class that no query chooses stays at its anchor.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve. The class vectors are their class features, and the normalised class
        means of the support where they have none. With class features the support is not used.
    logit_scale : float, default=100.0
        τ, which multiplies the logits before a softmax. The logits are cosines.
    anchor_weight : float, default=1.0
        The weight of the anchors, in queries.
    soft_counts : bool, default=False
        Whether n_k is Σ_q u_qk instead.
    graph_weight : float, default=1.0
        λ, the weight of the graph.
    n_neighbors : int, default=3
        n, the number of nearest other queries that a query has edges to.
    tempering : float, default=50.0
        What the log-likelihood is divided by.
    max_iter : int, default=10
        The largest number of iterations. All are done: they are updates of means and variances.
    inner_iter : int, default=5
        The number of updates of u between them.
    scale : str or None, default="cl2"
        Feature transform; None uses the features as they are. Vectors are divided by their norms
        afterwards in any case.

    Returns
    -------
    Solution
        ``prototypes`` are the means μ. There is no stopping rule.

    Notes
    -----
    It reads nothing but the queries and the class vectors.

    Differs from the authors' code: a query is never its own neighbour, also when it has duplicates.
    Variances have a lower bound, 10⁻⁶ of the mean of Σ⁰, so that features which are constant in a
    task change nothing; there the original has NaN. Another, 10⁻⁵ of the mean square of a feature
    around its mean, keeps float32 from dividing by rounding errors where the queries of a class are
    equal. Nothing is divided by the sum of an empty class. On the recorded tasks the labels are the
    same. No [q, k, d] or [k, d, d] array is made.

    Reference: Zanella, Fuchs, De Vleeschouwer, Ben Ayed,
    "Realistic test-time adaptation of vision-language models", CVPR 2025.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> stata(tasks).labels.tolist()
    [[0, 1]]
    """
    tasks, query, anchors, prior = common.start(tasks, scale, logit_scale)
    graph = common.symmetric_graph(query, n_neighbors, graph_weight)
    u = prior.exp()
    # Differences x − μ do not depend on the origin. Around the queries' mean, their squares lose the fewest digits.
    centre = query.mean(1, keepdim=True)
    x = query - centre
    both = torch.cat([x, x.square()], -1)  # [t, q, 2d]
    # Σ⁰, [t, 1, d]
    first = _weighted_squares(u, both, anchors - centre).sum(1, keepdim=True) / tasks.n_query
    least = torch.maximum(common.least_variance(first), common.rounding_variance(x))
    first = torch.maximum(first, least)
    # A class that no query chooses has β = 0 and stays at its anchor: only the others are computed again.
    at_anchors = (
        prior + _log_likelihood(both, anchors - centre, first.expand_as(anchors)) / tempering
    )
    scores = at_anchors
    every = torch.arange(tasks.n_classes, device=tasks.device).expand(tasks.n_tasks, -1)
    for _ in range(max_iter):
        u = common.smoothed(scores, graph, u, inner_iter)
        classes, counts = (every, column_sums(u)) if soft_counts else common.chosen_classes(u)
        # [t, m, d], [t, q, m]
        held = common.of_classes(anchors, classes)
        part = common.of_classes(u.mT, classes).mT
        beta = (counts / (anchor_weight + counts)).unsqueeze(-1)
        means = unit(beta * unit(part.mT @ query) + (1 - beta) * held)
        sizes = column_sums(part).clamp_min(torch.finfo(u.dtype).tiny).unsqueeze(-1)
        spread = _weighted_squares(part, both, means - centre) / sizes
        variances = torch.maximum(
            beta * spread + (1 - beta) * (first + (held - means).square()), least
        )
        likelihood = _log_likelihood(both, means - centre, variances)
        scores = common.with_classes(at_anchors, prior, likelihood / tempering, classes)
    u = common.smoothed(scores, graph, u, inner_iter)
    return common.unstopped(u, max_iter, anchors, classes, means)


def _log_likelihood(both: Tensor, means: Tensor, variances: Tensor) -> Tensor:
    """[t, q, k] ln N(x_q; μ_k, Σ_k) + (d/2) ln 2π, from x and x² side by side [t, q, 2d]."""
    weighted = means / variances
    constants = (weighted * means + variances.log()).sum(-1)
    return cross_products(both, torch.cat([weighted, -0.5 / variances], -1)).sub_(
        constants.unsqueeze(1), alpha=0.5
    )


def _weighted_squares(u: Tensor, both: Tensor, means: Tensor) -> Tensor:
    """[t, k, d] = Σ_q u_qk (x_q − μ_k)², from x and x² side by side [t, q, 2d]."""
    sums, squares = (u.mT @ both).chunk(2, -1)
    sizes = column_sums(u).unsqueeze(-1)
    return (squares - 2 * means * sums + sizes * means.square()).clamp_min_(0)


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

    With class vectors w_k of length one and ŷ = softmax_k(τ x·w_k), each class has a mean
    direction μ_k, which starts at w_k, and a concentration κ_k = (r_k d − r_k³)/(1 − r_k²),
    which starts with r = 1 − ½ (1/|Q|) Σ_qk ŷ_qk ‖x_q − w_k‖². Then ``max_iter`` times, and the
    first step once more at the end:

        u_q = softmax_k(ln ŷ_q + (κ_k μ_k·x_q + ½(d−1) ln κ_k − κ_k) / 50 + (λ/2n) (W u + Wᵀ u)_q);
        a_q = 1 − H(u_q)/ln K,  v_k = Σ_q a_q u_qk x_q / Σ_q a_q u_qk,
        c_k ∝ √(mean_q ŷ_qk · max_q ŷ_qk) with the largest 1,  β_k = n_k / (1/c_k + n_k),
        r_k = ‖β_k v_k + (1 − β_k) w_k‖,  μ_k = (β_k v_k + (1 − β_k) w_k) / r_k,

    where W has the cosines of each query with its n nearest other queries, and n_k is the number of
    queries whose most probable class is k.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve. The class vectors are their class features, and the normalised class
        means of the support where they have none. With class features the support is not used.
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
        The largest number of iterations. All are done:
        they are updates of directions and concentrations.
    scale : str or None, default="cl2"
        Feature transform; None uses the features as they are. Vectors are divided by their norms
        afterwards in any case.

    Returns
    -------
    Solution
        ``prototypes`` are the directions μ. There is no stopping rule.

    Notes
    -----
    It reads nothing but the queries and the class vectors. r is kept between 0.001 and 0.999. d
    counts the features that are not constant in a task.

    There is no recorded run of the original: the method is implemented from its formulas. Where
    they leave it open, n_k is the hard count of StatA, and v_k is weighted with a_q u_qk.

    Reference: as ``stata``, of which it is the relative with von Mises-Fisher distributions.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> moon(tasks).labels.tolist()
    [[0, 1]]
    """
    tasks, query, anchors, prior = common.start(tasks, scale, logit_scale)
    graph = common.symmetric_graph(query, n_neighbors, graph_weight)
    u = prior.exp()
    d = common.n_live_features(query, anchors)
    trust = u.mean(1).mul_(u.amax(1)).sqrt_()  # c, [t, k]
    anchor_weight = trust.amax(1, keepdim=True) / trust.clamp_min(torch.finfo(u.dtype).tiny)
    cosines = cross_products(query, anchors)
    # 1 − ½‖x − w‖² = x·w for vectors of length one
    length = (u * cosines).sum((1, 2), keepdim=True).div_(tasks.n_query)
    scores = prior + _score(cosines, length, d) / tempering
    # A class that no query chooses has μ = w and r = 1: only the others are computed again.
    at_anchors = prior + _score(cosines, torch.ones_like(length), d, max_concentration) / tempering
    for _ in range(max_iter):
        u = common.smoothed(scores, graph, u, 1)
        classes, counts = common.chosen_classes(u)
        beta = (counts / (anchor_weight.gather(1, classes) + counts)).unsqueeze(-1)
        weights = u * (1 - entropy(u) / math.log(tasks.n_classes)).clamp_min_(0).unsqueeze(-1)
        weights = common.of_classes(weights.mT, classes)  # [t, m, q]
        sizes = weights.sum(-1, keepdim=True).clamp_min_(torch.finfo(u.dtype).tiny)
        means = beta * (weights @ query / sizes) + (1 - beta) * common.of_classes(anchors, classes)
        lengths = means.norm(dim=-1).unsqueeze(1)  # [t, 1, m]
        means = unit(means)
        density = _score(cross_products(query, means), lengths, d, max_concentration)
        scores = common.with_classes(at_anchors, prior, density / tempering, classes)
    u = common.smoothed(scores, graph, u, 1)
    return common.unstopped(u, max_iter, anchors, classes, means)


def _score(cosines: Tensor, length: Tensor, d: Tensor, largest: float = math.inf) -> Tensor:
    """[t, q, m] κ μ·x + ½(d−1) ln κ − κ.

    κ is the approximate maximum-likelihood one of a mean resultant length.
    """
    length = length.clamp(*_LENGTHS)
    kappa = ((length * d - length**3) / (1 - length.square())).clamp_max_(largest)
    return (cosines - 1) * kappa + (d - 1) / 2 * kappa.log()
