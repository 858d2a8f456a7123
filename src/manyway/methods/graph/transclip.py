"""TransCLIP: Gaussian classes near a first guess (Zanella et al., NeurIPS 2024).

They are smoothed over nearest queries.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from manyway.core import Solution, Tasks, class_sums, column_sums, cross_products, one_hot, unit
from manyway.errors import InputError
from manyway.methods.graph import common

_LABELLED = 50.0  # γ is multiplied by it


def transclip(
    tasks: Tasks,
    *,
    gammas: Sequence[float] = (0.002, 0.01, 0.02, 0.2),
    choose: Literal["support", "last"] = "support",
    restart: bool = True,
    validation_shots: int | None = None,
    graph: Literal["sound", "ordered", "authors"] = "sound",
    logit_scale: float = 100.0,
    guess_weight: float = 0.5,
    n_neighbors: int = 3,
    tempering: float = 50.0,
    max_iter: int = 10,
    inner_iter: int = 5,
    scale: str | None = "cl2",
) -> Solution:
    """Gaussian classes with one diagonal variance, near a first guess, smoothed over nearest queries.

    With class vectors w_k of length one and ŷ = softmax_k(τ x·w_k), classes are Gaussians with
    means μ_k, which start at the normalised class sums of the support, and one diagonal variance σ,
    which starts at 1/d. Then ``max_iter`` times, and the first step once more at the end:

        u_q = softmax_k(λ ln ŷ_q − Σ_d (x_qd − μ_kd)²/σ_d / 100 + (1/2n) (W u + Wᵀ u + Vᵀ y)_q),  five times;
        μ_k = norm((1/|Q|) Σ_q u_qk x_q + (50γ/|S|) Σ_s y_sk x_s),
        σ_d = ((1/|Q|) Σ_qk u_qk (x_qd − μ_kd)² + (50γ/|S|) Σ_sk y_sk (x_sd − μ_kd)²) / (1 + 50γ),

    where W has the cosines of each query with its n nearest other queries, V those of each support
    sample with its n nearest queries, and y are the labels of the support. γ is chosen by the
    support: each of its samples takes the label of its nearest query, and the γ with the highest
    accuracy wins, the first one on ties.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve. The class vectors are their class features, and the normalised class
        means of the support where they have none. A class without support samples starts at its
        class vector. Without any support, γ has no influence.
    gammas : sequence of float, default=(0.002, 0.01, 0.02, 0.2)
        The values of γ to choose from.
    choose : {"support", "last"}, default="support"
        Whether the support chooses γ, or the last one is taken.
    restart : bool, default=True
        Whether each γ starts anew, and not from the answer of the one before it.
    validation_shots : int or None, default=None
        How many support samples of each class, the first ones, choose γ. None: all.
    graph : {"sound", "ordered", "authors"}, default="sound"
        ``authors``: the graph of the original, in which V lacks the nearest query of each sample,
        and the rows of V and W are paired with u and y in the wrong order (below). ``ordered``:
        without the second error.
    logit_scale : float, default=100.0
        τ, which multiplies the logits before a softmax. The logits are cosines.
    guess_weight : float, default=0.5
        λ, the weight of the first guess.
    n_neighbors : int, default=3
        n, the number of nearest other queries that a query has edges to.
        A support sample has edges to as many.
    tempering : float, default=50.0
        What the log-likelihood is divided by.
    max_iter : int, default=10
        The largest number of iterations. All are done, for each γ:
        they are updates of means and variance.
    inner_iter : int, default=5
        The number of updates of u between them.
    scale : str or None, default="cl2"
        Feature transform; None uses the features as they are. Vectors are divided by their norms
        afterwards in any case.

    Returns
    -------
    Solution
        Of the chosen γ; ``prototypes`` are its means μ. There is no stopping rule.

    Notes
    -----
    The authors' code takes K from the labels of the queries, and chooses γ with separate labelled
    images. Here K is the number of possible classes and the support chooses.

    The authors' code stacks V above W, and u above y. It multiplies the first |Q| rows of the
    former, which are mostly rows of V, with u, and the others with y. ``graph="authors"`` does the
    same. Its recorded runs are ``restart=False, validation_shots=4, graph="authors"``; the labels
    that its function returns are those of the last γ (``choose="last"``), the accuracy that of the
    chosen one. The labels are the same on the recorded tasks.

    Where few classes are present, the choice of γ by the support prefers small values, because most
    support samples have no query of their class. Its accuracy is below that of γ = 0.2 in all
    recorded configurations.

    Also differs: a query is never its own neighbour, also when it has duplicates. The variance has
    a lower bound, 10⁻⁶ of its mean, and d counts only features that are not constant in a task. No
    [s, k, d] or [q, k, d] array is made.

    Reference: Zanella, Gérin, Ben Ayed, "Boosting vision-language models with
    transduction", NeurIPS 2024.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> transclip(tasks).labels.tolist()
    [[0, 1]]
    """
    if not gammas:
        raise InputError("transclip: gammas is empty; give at least one value.")
    tasks, query, vectors, guess = common.start(tasks, scale, logit_scale)
    support = tasks.support
    targets = one_hot(tasks.support_labels, tasks.n_classes, tasks.dtype)  # [t, s, k]
    cosines = cross_products(support, query)  # [t, s, q]
    edges, labelled = _graph(query, cosines, targets, graph, n_neighbors)
    prior = guess * guess_weight + labelled
    moments = _Moments.of(tasks, support, query)
    begin = guess.exp(), moments.start(vectors), 1 / common.n_live_features(query, vectors)
    state = begin
    nearest = cosines.argmax(-1)
    labels = tasks.support_labels
    judges = torch.ones_like(labels, dtype=torch.bool)
    if validation_shots is not None:  # the place of each sample among those of its class
        judges = targets.cumsum(1).gather(2, labels.unsqueeze(-1)).squeeze(-1) <= validation_shots
    best = torch.full((tasks.n_tasks,), -1, device=tasks.device)
    answer, answer_means = begin[:2]
    for gamma in gammas if tasks.n_support else gammas[:1]:
        u, means, variance = begin if restart else state
        for update in range(max_iter + 1):
            if update:
                means, variance = moments.update(u, gamma * _LABELLED, vectors)
            scores = prior + moments.log_likelihood(means, variance) / tempering
            u = common.smoothed(scores, edges, u, inner_iter)
        state = u, means, variance
        n_right = ((u.argmax(-1).gather(1, nearest) == labels) & judges).sum(1)
        better = (n_right > best).view(-1, 1, 1) | (choose == "last")
        best = torch.maximum(best, n_right)
        answer = torch.where(better, u, answer)
        answer_means = torch.where(better, means, answer_means)
    return Solution(answer, n_iter=max_iter, converged=False, make_prototypes=lambda: answer_means)


def _graph(
    query: Tensor,
    cosines: Tensor,
    targets: Tensor,
    kind: Literal["sound", "ordered", "authors"],
    n_neighbors: int,
) -> tuple[Tensor, Tensor]:
    """The symmetric graph [t, q, q], and what the labelled samples add to queries [t, q, k]."""
    among = common.query_graph(query, n_neighbors)
    labelled = common.nearest_queries(cosines, n_neighbors, skip_first=kind != "sound")
    if kind == "authors":
        stacked = torch.cat([labelled, among], 1)
        n_query = query.shape[1]
        among = stacked[:, :n_query]
        labelled = stacked[:, n_query:]
    weight = 1 / (2 * n_neighbors)
    return (among + among.mT) * weight, labelled.mT @ targets * weight


class _Moments(NamedTuple):
    """Sums of support and queries.

    Features are centred on the queries' mean wherever they are squared.
    """

    query: Tensor  # [t, q, d]
    centre: Tensor  # [t, 1, d]
    query_squares: Tensor  # [t, 1, d]
    sums: Tensor  # [t, k, d] of the support
    counts: Tensor  # [t, k, 1]
    support_squares: Tensor  # [t, 1, d]
    n_support: int

    @staticmethod
    def of(tasks: Tasks, support: Tensor, query: Tensor) -> "_Moments":
        centre = query.mean(1, keepdim=True)
        sums, counts = class_sums(tasks)
        return _Moments(
            query=query,
            centre=centre,
            query_squares=(query - centre).square().sum(1, keepdim=True),
            sums=sums,
            counts=counts.unsqueeze(-1),
            support_squares=(support - centre).square().sum(1, keepdim=True),
            n_support=tasks.n_support,
        )

    def start(self, vectors: Tensor) -> Tensor:
        """[t, k, d] the first means."""
        return torch.where(self.counts > 0, unit(self.sums), vectors)

    def log_likelihood(self, means: Tensor, variance: Tensor) -> Tensor:
        """[t, q, k] −½ Σ_d (x − μ)²/σ, up to a constant per query."""
        means = means - self.centre
        weighted = means / variance
        half_norms = (weighted * means).sum(-1).mul_(0.5)
        return cross_products(self.query - self.centre, weighted).sub_(half_norms.unsqueeze(1))

    def update(self, u: Tensor, weight: float, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Means [t, k, d] and variance [t, 1, d].

        The support counts ``weight`` times as much as the queries.
        """
        n_query = u.shape[1]
        n_support = max(1, self.n_support)
        query_sums = u.mT @ self.query
        sizes = column_sums(u).unsqueeze(-1)
        sums = query_sums / n_query + self.sums * (weight / n_support)
        means = torch.where((self.counts > 0) | (sizes > 0), unit(sums), vectors)
        around = means - self.centre
        # Σ_n (x_n − μ_k)² over the samples of each class, summed over classes
        of_query = self.query_squares - _cross(around, query_sums - sizes * self.centre, sizes)
        of_support = self.support_squares - _cross(
            around, self.sums - self.counts * self.centre, self.counts
        )
        total = 1 + weight if self.n_support else 1.0
        variance = (of_query / n_query + of_support * (weight / n_support)) / total
        return means, torch.maximum(variance, common.least_variance(variance))


def _cross(means: Tensor, sums: Tensor, sizes: Tensor) -> Tensor:
    """[t, 1, d] = Σ_k μ_k (2 Σ_n x_n − n μ_k)."""
    return (means * (2 * sums - sizes * means)).sum(1, keepdim=True)
