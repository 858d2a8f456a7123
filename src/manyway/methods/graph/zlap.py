"""ZLaP: label propagation over a graph of classes and queries (Stojnić et al., CVPR 2024)."""

import torch

from manyway.core import Solution, Tasks, cross_products
from manyway.errors import InputError
from manyway.methods.graph.common import nearest_queries, query_graph, start


def zlap(
    tasks: Tasks,
    *,
    alpha: float = 0.3,
    power: float = 5.0,
    n_neighbors: int = 5,
    logit_scale: float = 100.0,
    scale: str | None = "cl2",
) -> Solution:
    """Propagate labels from class vectors to queries over the graph of nearest queries.

    The nodes are the classes and the queries. Each query has edges to its n nearest other queries,
    weighted by their cosines, and each class to its n nearest queries, weighted by cosines to the
    power p; negative cosines count as 0. With W the symmetric sum of both directions, D its row
    sums and S = D^−½ W D^−½, the score of class k for a query is the entry of f_k, where

        (I − α S) f_k = e_k.

    The probability of a class is its part of the sum of a query's scores.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve. The class vectors are their class features, and the normalised class
        means of the support where they have none. With class features the support is not used.
    alpha : float, default=0.3
        α, how far labels spread: at least 0 and below 1.
    power : float, default=5.0
        p, the power of the cosines between classes and queries.
    n_neighbors : int, default=5
        n, the number of nearest other queries that a query has edges to.
        A class has edges to as many.
    logit_scale : float, default=100.0
        τ, which multiplies the logits before a softmax. The logits are cosines. Queries that no
        class reaches have the probabilities softmax_k(τ x·w_k).
    scale : str or None, default="cl2"
        Feature transform; None uses the features as they are. Vectors are divided by their norms
        afterwards in any case.

    Returns
    -------
    Solution
        ``n_iter`` is 1 and ``converged`` is True: the linear system is solved exactly.

    Notes
    -----
    It reads nothing but the queries and the class vectors.

    Differs from the authors' code, of which there is no recorded run: the system is solved exactly,
    not by at most 50 steps of conjugate gradients. There is no edge between two classes, so that
    the classes can be eliminated: with C [k, q] and G [q, q] the parts of S, the scores are (I − α
    G − α² Cᵀ C)⁻¹ α Cᵀ, a system of the size of the queries.

    Reference: Stojnić, Kalantidis, Tolias, "Label propagation for zero-shot classification with
    vision-language models", CVPR 2024.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> zlap(tasks).labels.tolist()
    [[0, 1]]
    """
    if not 0 <= alpha < 1:
        raise InputError(f"zlap: alpha is {alpha}; it must be at least 0 and below 1.")
    tasks, query, vectors, guess = start(tasks, scale, logit_scale)
    among = query_graph(query, n_neighbors).clamp_min_(0)
    among = among + among.mT
    # [t, k, q]
    to_class = (
        nearest_queries(cross_products(vectors, query), n_neighbors).clamp_min_(0).pow_(power)
    )
    query_degrees = (among.sum(1) + to_class.sum(1)).unsqueeze(1)  # [t, 1, q]
    class_degrees = to_class.sum(2, keepdim=True)
    among = among * _inverse_root(query_degrees) * _inverse_root(query_degrees.mT)
    to_class = to_class * _inverse_root(query_degrees) * _inverse_root(class_degrees)
    system = torch.eye(tasks.n_query, dtype=tasks.dtype, device=tasks.device) - alpha * among
    system = torch.baddbmm(system, to_class.mT, to_class, alpha=-(alpha**2))
    scores = torch.cholesky_solve(to_class.mT, torch.linalg.cholesky(system)).clamp_min_(0)
    total = scores.sum(-1, keepdim=True)
    reached = total > 0
    answer = torch.where(reached, scores / total.where(reached, 1), guess.exp())
    return Solution(answer, n_iter=1, converged=True, make_prototypes=lambda: vectors)


def _inverse_root(degrees: torch.Tensor) -> torch.Tensor:
    """d^−½, and 0 for a node without edges."""
    return torch.where(degrees > 0, degrees.rsqrt(), 0)
