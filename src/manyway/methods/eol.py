"""EOL: a classifier with an outlier logit, trained on support and queries (Ochal et al., 2024)."""

from collections.abc import Callable
from math import log

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from manyway.core import Solution, Tasks, class_sums, unit
from manyway.errors import InputError
from manyway.methods.calibration.transforms import transform
from manyway.methods.gradient.information import Adam


def eol(
    tasks: Tasks,
    *,
    proportion: float = 0.5,
    logit_scale: float = 10.0,
    lr: float = 0.01,
    max_iter: int = 50,
    scale: str | None = "tcl2",
) -> Solution:
    """Label queries, and score which of them are unknown, by a classifier that may call them outliers.

    Logits are l_qk = τ (exp(η_k) cos(z_q, w_k) + δ_k). A query is of a class with the probability

        ξ_q = sigmoid(ln Σ_k exp(l_qk) − ln K + ln b),   and of class k with p_qk = ξ_q softmax_k(l_qk).

    w, η and δ are trained: from the support's class means and 0, Adam minimises

        −mean_s ln p_s,y(s) + (1/K) mean_q H(p_q) + mean_k g(m_k n/(1 − b)) + g(m_o/b),   g(a) = a ln a,

    where n is the number of examples per class, m_k = mean_q p_qk, m_o = mean_q (1 − ξ_q), and H is
    the entropy over classes and outliers. Then queries enter the prototypes with their p_qk, once.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.
    proportion : float, default=0.5
        b, the expected proportion of unknown queries.
    logit_scale : float, default=10
        τ, which multiplies the logits before a softmax.
    lr : float, default=0.01
        Learning rate of Adam.
    max_iter : int, default=50
        The largest number of iterations. All are done.
    scale : str or None, default="tcl2"
        Feature transform; None uses the features as they are.

    Returns
    -------
    Solution
        ``unknown`` is 1 − ξ. ``probabilities`` are softmax_k(l_qk): those of the classes, if the
        query is of one of them. ``converged`` is False: there is no stopping rule.

    Notes
    -----
    The published settings differ per proportion of unknown queries, so they read it. Here b is the
    same for all tasks. There are no recorded runs of the original to compare with.

    Reference: Ochal, Patacchiola, Boudiaf, Wang, "EOL: Transductive few-shot open-set recognition
    by enhancing outlier logits", 2024, arXiv 2408.02052.

    Examples
    --------
    >>> support, query = [[[1.0, 0.0, 0.1], [0.0, 1.0, 0.1]]], [[[1.0, 0.1, 0.1], [0.2, 1.0, 0.1], [0.1, 0.1, 1.0]]]
    >>> solution = eol(Tasks.from_arrays(support, [[0, 1]], query), scale=None)
    >>> solution.labels[0, :2].tolist(), int(solution.unknown.argmax())
    ([0, 1], 2)
    """
    if not 0 < proportion < 1:
        raise InputError(f"eol: proportion is {proportion!r}; it must be between 0 and 1.")
    dtype = tasks.dtype
    # Training leaves points at which classes are equal: differences between them grow about
    # 10⁵-fold, so that in single precision rounding would decide.
    tasks = transform(tasks.to(dtype=torch.float64), scale)
    query = tasks.query
    labels = tasks.support_labels
    sums, counts = class_sums(tasks)
    directions = torch.cat([unit(tasks.support), unit(query)], 1)
    centres = sums / counts.unsqueeze(-1)
    shots = counts.mean(-1)
    n_support = tasks.n_support

    def log_probabilities(weights: Tensor) -> tuple[Tensor, Tensor]:
        return _log_probabilities(weights, directions, logit_scale, proportion)

    def loss(weights: Tensor) -> Tensor:
        found, outlier = log_probabilities(weights)
        known = found[:, :n_support].gather(2, labels.unsqueeze(-1)).mean((1, 2))
        found = found[:, n_support:]
        outlier = outlier[:, n_support:]
        entropy = -(found.exp() * found).sum(-1).mean(-1) - (outlier.exp() * outlier).mean(-1)
        masses = found.exp().mean(1) * (shots / (1 - proportion)).unsqueeze(-1)
        outliers = outlier.exp().mean(-1) / proportion
        return entropy / tasks.n_classes - known + _plogp(masses).mean(-1) + _plogp(outliers)

    start = torch.cat([centres, centres.new_zeros(*centres.shape[:2], 2)], -1)
    weights = _trained(start, loss, lr, max_iter)
    taken = log_probabilities(weights)[0][:, n_support:].exp()
    centres = (sums + taken.mT @ query) / (counts + taken.sum(1)).unsqueeze(-1)
    found, outlier = log_probabilities(torch.cat([centres, weights[..., -2:]], -1))
    answer = found[:, n_support:].softmax(-1)
    unknown = outlier[:, n_support:].exp()
    return Solution(
        answer.to(dtype),
        max_iter,
        False,
        lambda: centres.to(dtype),
        unknown=unknown.to(dtype),
    )


def _trained(start: Tensor, loss: Callable[[Tensor], Tensor], lr: float, max_iter: int) -> Tensor:
    """Weights like those at the start, after so many steps of Adam down the losses [t] of tasks."""
    adam = Adam.start(start)
    for step in range(1, max_iter + 1):
        with torch.enable_grad():
            moving = adam.parameters.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(loss(moving).sum(), moving)
        adam = adam.step(gradient, step, lr)
    return adam.parameters


def _log_probabilities(
    weights: Tensor, directions: Tensor, logit_scale: float, proportion: float
) -> tuple[Tensor, Tensor]:
    """[t, n, k] ln p and [t, n] ln(1 − ξ), for weights [t, k, d + 2]: prototypes, η and δ."""
    w = weights[..., :-2]
    eta = weights[..., -2]
    delta = weights[..., -1]
    lengths = w.square().sum(-1, keepdim=True).clamp_min(torch.finfo(w.dtype).tiny).sqrt()
    cosines = directions @ (w / lengths).mT
    logits = logit_scale * (eta.exp().unsqueeze(1) * cosines + delta.unsqueeze(1))
    inlier = logits.logsumexp(-1) - log(weights.shape[1]) + log(proportion)
    return logits.log_softmax(-1) + logsigmoid(inlier).unsqueeze(-1), logsigmoid(-inlier)


def _plogp(values: Tensor) -> Tensor:
    """a ln a; its slope at 0 is infinite, so that no value may be below the least number."""
    return values * values.clamp_min(torch.finfo(values.dtype).tiny).log()
