"""ADAPT: Gaussian classes from the most certain queries of a batch (Zhang et al., 2025).

They stand beside the class vectors.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from manyway.core import Solution, Tasks, column_sums, cross_products, entropy, one_hot
from manyway.methods.graph.common import start


def adapt(
    tasks: Tasks,
    *,
    logit_scale: float = 100.0,
    bank_size: int = 6,
    queries_weight: float = 0.9,
    tempering: float = 100.0,
    negative: Literal["divide", "multiply"] = "divide",
    answer: Literal["both", "gaussian"] = "both",
    scale: str | None = "cl2",
) -> Solution:
    """Weigh the logits of class vectors by Gaussian classes that the most certain queries define.

    With logits l_qk = τ x_q·w_k and p_q = softmax(l_q), each class has a bank: the b queries of the
    lowest entropy among those whose label argmax_k l_qk it is. A class with a bank has the mean

        μ_k = 0.9 Σ_q (1 + [q in the bank of k]) p_qk x_q / Σ_q (1 + [q in the bank of k]) p_qk + 0.1 w_k,

    the others have w_k. All have one precision matrix: P = d (R'R + tr(R'R)/(M − 1) I)⁻¹, where R
    are the M samples of all banks, minus the means of their classes and centred. Then

        g_qk = x_q' P μ_k − ½ μ_k' P μ_k,
        f_qk = (1/c) ln softmax_k(g_q) + (1/2M) Σ_j p_jk x_q·x_j, over the samples j of the bank of k,

    and the answer is the softmax of l_qk exp(f_qk − max_k f_qk).

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve. The class vectors are their class features, and the normalised class
        means of the support where they have none. With class features the support is not used.
    logit_scale : float, default=100.0
        τ, which multiplies the logits before a softmax. The logits are cosines.
    bank_size : int, default=6
        b, the largest number of queries in the bank of a class.
    queries_weight : float, default=0.9
        The weight of the queries in the means, from 0 to 1.
    tempering : float, default=100.0
        What the log-likelihood is divided by. c in the formula.
    negative : {"divide", "multiply"}, default="divide"
        What the factor exp(f − max f), which is at most 1, does with a negative logit. Divided by
        the factor, an improbable class loses, as it does with a positive logit; multiplied, as in
        the authors' code, it gains.
    answer : {"both", "gaussian"}, default="both"
        The answer of the last formula, or softmax_k(g_q), that of the Gaussian classes alone.
    scale : str or None, default="cl2"
        Feature transform; None uses the features as they are. Vectors are divided by their norms
        afterwards in any case.

    Returns
    -------
    Solution
        ``prototypes`` are the means μ. ``n_iter`` is 1 and ``converged`` is True:
        there is nothing to iterate.

    Notes
    -----
    It reads nothing but the queries and the class vectors. All classes count as equally frequent,
    so that it does not notice absent ones.

    The authors choose c for each test set, from 10 to 100. Here it is 100, their most frequent
    value, for all. It does not change the term of the banks.

    Differs from the authors' code: negative logits, see ``negative``; logits of names and pictures,
    for which ADAPT was made, are positive. Where the samples of the banks do not differ at all, the
    Gaussian classes say nothing; there the original has NaN. The precision matrix is not computed:
    with fewer queries than features the products follow from a system of the size of the queries.

    Reference: Zhang, Kim, Choi, Kim, Liu, Hong, "Backpropagation-free test-time adaptation via
    probabilistic Gaussian alignment", NeurIPS 2025.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> adapt(tasks).labels.tolist()
    [[0, 1]]
    """
    tasks, query, vectors, log_p = start(tasks, scale, logit_scale)
    banks = _Banks.of(log_p, bank_size)
    means = banks.means(query, vectors, queries_weight)
    gaussian = _discriminant(query, means, banks.residuals(query, means), banks.size)
    if answer == "gaussian":
        return Solution(
            gaussian.softmax(-1), n_iter=1, converged=True, make_prototypes=lambda: means
        )
    # Similar samples of the bank of a class speak for it.
    similar = cross_products(query, query) @ (banks.members * banks.p) / (2 * banks.size)
    exponents = gaussian.log_softmax(-1) / tempering + similar
    factors = (exponents - exponents.amax(-1, keepdim=True)).exp()
    logits = cross_products(query, vectors) * logit_scale
    if negative == "divide":
        factors = torch.where(
            logits < 0, factors.clamp_min(torch.finfo(factors.dtype).tiny).reciprocal(), factors
        )
    return Solution(
        (logits * factors).softmax(-1), n_iter=1, converged=True, make_prototypes=lambda: means
    )


class _Banks(NamedTuple):
    """The most certain queries of each class."""

    p: Tensor  # [t, q, k] softmax of the logits
    members: Tensor  # [t, q, k] whether a query is in the bank of a class
    size: Tensor  # [t, 1, 1] M, the number of samples in all banks

    @staticmethod
    def of(log_p: Tensor, bank_size: int) -> "_Banks":
        p = log_p.exp()
        labels = log_p.argmax(-1)
        # In the order of classes, and of the entropy within a class, a query's rank is its distance to the first one.
        order = entropy(p).argsort(dim=1, stable=True)
        order = order.gather(1, labels.gather(1, order).argsort(dim=1, stable=True))
        grouped = labels.gather(1, order)
        places = torch.arange(labels.shape[1], device=labels.device).expand_as(labels)
        begins = torch.ones_like(grouped, dtype=torch.bool)
        begins[:, 1:] = grouped[:, 1:] != grouped[:, :-1]
        ranks = places - torch.where(begins, places, 0).cummax(1).values
        chosen = torch.zeros_like(begins).scatter_(1, order, ranks < bank_size)
        members = one_hot(labels, p.shape[-1], p.dtype) * chosen.unsqueeze(-1)
        return _Banks(p, members, members.sum((1, 2), keepdim=True))

    def means(self, query: Tensor, vectors: Tensor, queries_weight: float) -> Tensor:
        """[t, k, d] μ."""
        weights = self.p * (1 + self.members)
        found = (
            weights.mT
            @ query
            / column_sums(weights).clamp_min(torch.finfo(query.dtype).tiny).unsqueeze(-1)
        )
        mixed = torch.lerp(vectors, found, queries_weight)
        return torch.where(self.members.any(1).unsqueeze(-1), mixed, vectors)

    def residuals(self, query: Tensor, means: Tensor) -> Tensor:
        """[t, q, d] the samples of banks, minus the means of their classes and centred.

        0 for the other queries.
        """
        chosen = self.members.sum(-1, keepdim=True)
        apart = chosen * query - self.members @ means
        return apart - chosen * (apart.sum(1, keepdim=True) / self.size)


def _discriminant(query: Tensor, means: Tensor, residuals: Tensor, size: Tensor) -> Tensor:
    """[t, q, k] x' P μ − ½ μ' P μ, and 0 where all residuals are 0."""
    n_features = query.shape[-1]
    trace = residuals.square().sum((1, 2), keepdim=True) / (size - 1).clamp_min(1)
    spread = trace > 0
    ridge = torch.where(spread, trace, 1)
    both = torch.cat([query, means], 1)
    if residuals.shape[1] < n_features:
        # (RᵀR + r I)⁻¹ = (I − Rᵀ (R Rᵀ + r I)⁻¹ R) / r
        root = _root(residuals @ residuals.mT, ridge)
        seen = torch.linalg.solve_triangular(root, residuals @ both.mT, upper=False)
        products = (both @ means.mT - seen.mT @ seen[..., query.shape[1] :]) / ridge
    else:
        root = _root(residuals.mT @ residuals, ridge)
        seen = torch.linalg.solve_triangular(root, both.mT, upper=False)
        products = seen.mT @ seen[..., query.shape[1] :]
    products = torch.where(spread, n_features * products, 0)
    of_query = products[:, : query.shape[1]]
    among = products[:, query.shape[1] :]
    return of_query - among.diagonal(dim1=1, dim2=2).unsqueeze(1) / 2


def _root(gram: Tensor, ridge: Tensor) -> Tensor:
    """The Cholesky factor of gram + ridge I."""
    return torch.linalg.cholesky(
        gram + ridge * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    )
