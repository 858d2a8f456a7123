"""MAPLS: class proportions of the queries by maximum a posteriori (Ye et al., WACV 2024).

They are held near equal ones.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from manyway.core import Recorder, Solution, Tasks, class_directions, cross_products
from manyway.errors import InputError
from manyway.methods.calibration.transforms import transform

# the weight of the queries where they are far from equal proportions and the source is not
_MOST = 0.9
_REST = 0.1  # what the distance to the source adds


def mapls(
    tasks: Tasks,
    *,
    data_weight: float | None = None,
    source: Literal["uniform", "support"] = "uniform",
    logit_scale: float = 20.0,
    max_iter: int = 100,
    scale: str | None = "cl2",
    with_objective: bool = False,
) -> Solution:
    """Correct posteriors for the class proportions of the queries, with a prior for equal ones.

    With posteriors p_q = softmax_k(τ x_q·w_k) of a classifier whose examples have the proportions
    c, and π = c at the start, EM repeats

        g_qk ∝ p_qk π_k / c_k,
        π_k  = λ mean_q g_qk + (1 − λ)/K.

    It maximises λ mean_q ln Σ_k p_qk π_k / c_k + (1 − λ) mean_k ln π_k: the likelihood of the
    proportions with a Dirichlet prior around equal ones. The answer is g with the last π.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve. The class vectors w are their class features, and the normalised class
        means of the support where they have none. Scores of a classifier are logits as they are.
    data_weight : float or None, default=None
        λ, the weight of the queries against equal proportions, from 0 to 1. 1 is maximum likelihood
        (MLLS). None is the authors' rule, which compares how far the proportions are from equal
        ones, see the notes.
    source : {"uniform", "support"}, default="uniform"
        c: equal proportions, or the mean posterior of the support.
    logit_scale : float, default=20.0
        τ, which multiplies the logits before a softmax. The logits are cosines.
    max_iter : int, default=100
        The largest number of iterations. All are done.
    scale : str or None, default="cl2"
        Feature transform; None uses the features as they are.
    with_objective : bool, default=False
        Whether to record the objective after each iteration. Its terms are ``likelihood`` and
        ``prior``, as in the formula, but negative: their sum never increases.

    Returns
    -------
    Solution
        ``told`` has ``data_weight``. ``converged`` is False: there is no stopping rule.

    Notes
    -----
    It reads nothing but the queries, the class vectors and, for ``source="support"``, the support.

    With the proportions ρ of ``max_iter`` iterations with λ = 1 and s(d) = 4d / (KL(c ‖
    1/K) + 4d), the rule is

        λ = 0.9 s(KL(ρ ‖ 1/K)) + 0.1 (1 − s(KL(ρ ‖ c))).

    For equal proportions c the divergence of c is 0, so that λ is 0.9 whatever the queries are:
    with the class means of few examples the rule says nothing. It says something for a classifier
    that was trained on unequal classes.

    Differs from the authors' code: it adds 1e-8 to each proportion in the divergences, which makes
    that of equal proportions negative, and computes s through a quotient of two numbers near 0;
    here s is in closed form. On recorded tasks λ differs by less than 1e-6, and no label differs.

    Reference: Ye, Tsuchida, Petersson, Barnes, "Label shift estimation for class-imbalance problem:
    a Bayesian approach", WACV 2024. MLLS: Saerens, Latinne, Decaestecker, 2002.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> mapls(tasks).labels.tolist()
    [[0, 1]]
    """
    if source == "support" and not tasks.n_support:
        raise InputError(
            "mapls: source='support' needs labelled examples, and there are none; choose 'uniform'."
        )
    classified = _classified(tasks, scale, logit_scale)
    if source == "uniform":
        start = torch.full_like(classified.query[:, 0], 1 / tasks.n_classes)
    else:
        start = classified.support().mean(1)
    ratios = classified.query / start.unsqueeze(1)
    if data_weight is None:
        weights = _weight_by_rule(
            _proportions(ratios, start, torch.ones_like(start[:, :1]), max_iter), start
        )
    else:
        weights = torch.full_like(start[:, :1], data_weight)
    recorder = Recorder(("likelihood", "prior"))
    found = _proportions(ratios, start, weights, max_iter, recorder if with_objective else None)
    joint = ratios * found.unsqueeze(1)
    return Solution(
        joint / joint.sum(-1, keepdim=True),
        n_iter=max_iter,
        converged=False,
        make_prototypes=classified.make_prototypes,
        objective_parts=recorder.parts,
        told={"data_weight": weights.squeeze(-1)},
    )


class _Classified(NamedTuple):
    """Posteriors of a classifier for equally frequent classes."""

    query: Tensor  # [t, q, k]
    support: Callable[[], Tensor]  # [t, s, k], where it is asked for
    make_prototypes: Callable[[], Tensor] | None


def _classified(tasks: Tasks, scale: str | None, logit_scale: float) -> _Classified:
    if tasks.scores:
        return _Classified(tasks.query.softmax(-1), lambda: tasks.support.softmax(-1), None)
    scaled = transform(tasks, scale)
    vectors = class_directions(scaled)

    def posteriors(rows: Tensor) -> Tensor:
        return (cross_products(rows, vectors) * logit_scale).softmax(-1)

    return _Classified(
        posteriors(scaled.query), lambda: posteriors(scaled.support), lambda: vectors
    )


def _proportions(
    ratios: Tensor, start: Tensor, weights: Tensor, max_iter: int, recorder: Recorder | None = None
) -> Tensor:
    """[t, k] π after all iterations, for p/c [t, q, k], from ``start`` [t, k], with λ [t, 1]."""
    n_query, n_classes = ratios.shape[1:]
    pi = start
    mixture = ratios @ pi.unsqueeze(-1)  # [t, q, 1]
    for _ in range(max_iter):
        shares = pi * (mixture.reciprocal().mT @ ratios).squeeze(1) / n_query
        pi = weights * shares + (1 - weights) / n_classes
        mixture = ratios @ pi.unsqueeze(-1)
        if recorder is not None:
            log_pi = pi.clamp_min(torch.finfo(pi.dtype).tiny).log()
            likelihood = -weights.squeeze(-1) * mixture.log().mean((1, 2))
            recorder.add(torch.stack([likelihood, (weights.squeeze(-1) - 1) * log_pi.mean(-1)]))
    return pi


def _weight_by_rule(found: Tensor, start: Tensor) -> Tensor:
    """[t, 1] λ by the authors' rule.

    It follows from proportions by maximum likelihood and those of the source, both [t, k].
    """
    uniform = torch.full_like(start, 1 / start.shape[-1])
    of_source = _divergence(start, uniform)

    def share(divergence: Tensor) -> Tensor:
        total = of_source + 4 * divergence
        return torch.where(total > 0, 4 * divergence / total, 1)

    return _MOST * share(_divergence(found, uniform)) + _REST * (
        1 - share(_divergence(found, start))
    )


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    """[t, 1] KL(p ‖ q), never negative."""
    return torch.xlogy(p, p / q).sum(-1, keepdim=True).clamp_min(0)
