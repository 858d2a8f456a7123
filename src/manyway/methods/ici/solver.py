"""LR+ICI: self-training that adds the most credible pseudo-labels first (Wang et al., CVPR 2020)."""

import torch
from torch import Tensor

from manyway.core import Solution, Tasks, all_running, count_labels, threads_for
from manyway.methods.calibration.transforms import transform
from manyway.methods.ici.lasso_path import entry_penalties
from manyway.methods.ici.logistic import Fit, logistic_regression, with_intercept

# of the covariance: a direction fades as the power of its variance to that of the last component
_POWERS = 100


def ici(
    tasks: Tasks,
    *,
    c: float = 10.0,
    n_per_round: int = 5,
    n_components: int = 5,
    max_iter: int = 100,
    scale: str | None = "l2",
) -> Solution:
    """Self-training of a logistic regression that adds the most credible queries first (LR+ICI).

    A round labels all queries with the current classifier and measures which of these pseudo-labels
    a low-dimensional linear model contradicts. With Y the one-hot labels of all samples and X their
    first principal components,

        Y = X β + γ + noise,      γ̂(λ) = argmin_γ ½‖X̂ (Y − γ)‖² + λ Σ_i ‖γ_i‖,      X̂ = I − X (XᵀX)⁻¹ Xᵀ.

    Sample i is the more credible, the smaller the penalty λ from which on γ̂_i is zero. Of each
    pseudo-class, the ``n_per_round`` most credible queries join the training set (earlier ones
    stay, with their newest labels), and the classifier is fitted again. When all queries have
    joined, it labels them. The classifier minimises ½‖W‖² + C Σ cross-entropy on all dimensions of
    the features.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.
    c : float, default=10.0
        C, the weight of the cross-entropy against the ridge penalty.
    n_per_round : int, default=5
        How many queries of each pseudo-class join per round, at most.
    n_components : int, default=5
        The number of principal components in X.
    max_iter : int, default=100
        The largest number of iterations. They are rounds.
    scale : str or None, default="l2"
        Feature transform; None uses the features as they are.

    Returns
    -------
    Solution
        ``n_iter`` counts rounds; ``converged`` says whether all queries joined within ``max_iter``.
        There are no prototypes.

    Notes
    -----
    Nothing is assumed about which classes occur, but each class can receive ``n_per_round`` queries
    even when all of them are wrong. The defaults are those of the PADDLE paper's experiments on
    tiered-ImageNet and of ICI's authors; on mini-ImageNet the paper uses ``n_components`` = 2.

    Differs from the authors' code: the path is exact and costs n·r² per step in place of dense
    n × n systems (``manyway.methods.ici.lasso_path``), so that K = 160 is tractable; between two
    penalties of the grid of 100 it is interpolated, where theirs takes queries in the order of
    their rows; the logistic regression is solved to the precision of the numbers, where recent
    versions of scikit-learn stop at a gradient of 1e-4 of the mean loss, which for many classes is
    almost at once; with two classes it is the softmax problem, which is scikit-learn's with half
    the C; with fewer samples than components, all available components are used.

    Reference: Wang, Xu, Liu, Zhang, Fu, "Instance credibility inference for few-shot
    learning", CVPR 2020.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> ici(tasks).labels.tolist()
    [[0, 1]]
    """
    tasks = transform(tasks, scale)
    n_tasks = tasks.n_tasks
    n_support = tasks.n_support
    n_classes = tasks.n_classes
    device = tasks.device
    features = with_intercept(_rotated(torch.cat([tasks.support, tasks.query], dim=1)))
    components = _principal_components(features[..., :-1], n_components)
    joined = torch.zeros(n_tasks, tasks.n_query, dtype=torch.bool, device=device)
    labels = torch.cat([tasks.support_labels, torch.zeros_like(joined, dtype=torch.int64)], dim=1)
    fit = _refit(features, labels, joined, Fit.zero(features, n_classes), c)
    logits = torch.empty(n_tasks, tasks.n_query, n_classes, dtype=tasks.dtype, device=device)
    # alive: those that still have queries to add
    alive, n_iter, converged = all_running(n_tasks, max_iter, device)
    for iteration in range(max_iter):
        pseudo = (features[:, n_support:] @ fit.weights).argmax(-1)
        labels = torch.cat([labels[:, :n_support], pseudo], dim=1)
        joined = joined | _credible(components, labels, joined, n_classes, n_per_round)
        fit = _refit(features, labels, joined, fit, c)
        done = joined.all(1)
        if bool(done.any()):
            logits[alive[done]] = features[done, n_support:] @ fit.weights[done]
            n_iter[alive[done]] = iteration + 1
            converged[alive[done]] = True
            on = ~done
            kept = (value[on] for value in (alive, features, components, labels, joined))
            alive, features, components, labels, joined = kept
            fit = fit.take(on)
            if len(alive) == 0:
                break
    logits[alive] = features[:, n_support:] @ fit.weights
    return Solution(logits.softmax(-1), n_iter=n_iter, converged=converged)


def _refit(features: Tensor, labels: Tensor, joined: Tensor, start: Fit, c: float) -> Fit:
    """Fit the classifier to the support and the queries that have joined."""
    n_support = labels.shape[1] - joined.shape[1]
    weights = torch.cat([torch.ones_like(labels[:, :n_support], dtype=torch.bool), joined], dim=1)
    with threads_for(labels.shape[1] * start.weights.shape[2]):
        return logistic_regression(features, labels, weights.to(features.dtype), start, c=c)


def _credible(
    components: Tensor, labels: Tensor, joined: Tensor, n_classes: int, n_per_round: int
) -> Tensor:
    """[t, q] the ``n_per_round`` most credible queries of each pseudo-class.

    Only those count that have not joined yet.
    """
    n_query = joined.shape[1]
    # queries that have joined form an additional class
    pseudo = labels[:, -n_query:].masked_fill(joined, n_classes)
    waiting = count_labels(pseudo, n_classes + 1)
    # in other tasks all queries join, whatever their order
    crowded = (waiting[:, :-1] > n_per_round).any(1)
    entry = torch.zeros(pseudo.shape, dtype=torch.float64, device=labels.device)
    if bool(crowded.any()):
        entry[crowded] = entry_penalties(components[crowded], labels[crowded], n_classes)[
            :, -n_query:
        ]
    return _smallest_of_each_class(entry, pseudo, n_per_round) & ~joined


def _smallest_of_each_class(values: Tensor, classes: Tensor, n: int) -> Tensor:
    """[t, q] whether a value is among the n smallest of its class."""
    order = values.argsort(dim=1, stable=True)
    runs, by_class = classes.gather(1, order).sort(dim=1, stable=True)
    ranks = torch.arange(classes.shape[1], device=classes.device) - torch.searchsorted(runs, runs)
    return torch.zeros_like(classes, dtype=torch.bool).scatter_(
        1, order.gather(1, by_class), ranks < n
    )


def _rotated(features: Tensor) -> Tensor:
    """With more dimensions than samples, coordinates in the space of the samples.

    Inner products are the same.
    """
    if features.shape[1] >= features.shape[2]:
        return features
    rotated: Tensor = torch.linalg.qr(features.mT, mode="r").R
    return rotated.mT


def _principal_components(centred: Tensor, n_components: int) -> Tensor:
    """[t, n, r] the left singular vectors of the largest singular values; zeros beyond the rank.

    In double precision.

    They are those of a space of a few more dimensions, found by powers of the covariance
    where there are many features: a full decomposition per task would take longer than
    everything else on a GPU.
    """
    n_features = centred.shape[2]
    width = n_components + 3
    if width * 4 < n_features:
        generator = torch.Generator().manual_seed(0)
        block = torch.randn(n_features, width, generator=generator, dtype=torch.float64)
        block = block.to(centred).expand(len(centred), -1, -1)
        covariance = centred.mT @ centred
        for _ in range(_POWERS):
            block = _orthonormal(covariance @ block)
        centred = centred @ _orthonormal(block)
    centred = centred.double()
    squares, vectors = torch.linalg.eigh(centred.mT @ centred)
    squares = squares.flip(-1)[:, :n_components]
    vectors = vectors.flip(-1)[..., :n_components]
    squares = squares.unsqueeze(1)
    return centred @ vectors * torch.where(squares > squares[..., :1] * 1e-12, squares.rsqrt(), 0)


def _orthonormal(columns: Tensor) -> Tensor:
    """Columns of the same span [t, d, r], by their inner products.

    Those that depend on others stay small.
    """
    products = columns.mT @ columns
    ridge = (
        products.diagonal(dim1=1, dim2=2).amax(1)[:, None, None] * torch.finfo(columns.dtype).eps
    )
    factor = torch.linalg.cholesky_ex(products + ridge * torch.eye(columns.shape[2]).to(columns)).L
    return torch.linalg.solve_triangular(factor, columns.mT, upper=False).mT
