"""LR+ICI: self-training that adds the most credible pseudo-labels first (Wang et al., CVPR 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from manyway.core.solution import Solution
from manyway.core.tasks import Tasks
from manyway.core.transforms import transform
from manyway.methods.ici.lasso_path import entry_penalties
from manyway.methods.ici.logistic import Fit, logistic_regression, with_intercept

_KRYLOV_BLOCKS = 7


def ici(
    tasks: Tasks,
    *,
    c: float = 10.0,
    step: int = 5,
    n_components: int = 5,
    max_iter: int = 100,
    scale: str | None = "l2",
) -> Solution:
    """Logistic regression on the support, then on more and more queries with the labels that it gives them.

    A round pseudo-labels all queries with the current classifier and asks which of these labels a linear model of few
    dimensions contradicts. With Y the one-hot labels of all samples and X their ``n_components`` principal components,

        Y = X β + γ + noise,      γ̂(λ) = argmin_γ ½‖X̂ (Y − γ)‖² + λ Σ_i ‖γ_i‖,      X̂ = I − X (XᵀX)⁻¹ Xᵀ,

    and the smaller the penalty λ from which on γ̂_i is zero, the more credible is sample i. Of every pseudo-class, the
    ``step`` most credible queries join the training set (those that joined before stay, with their newest labels), and
    the classifier is fitted again. When all queries are in, it labels them. The classifier minimises
    ½‖W‖² + C Σ cross-entropy with C = ``c``, on all dimensions of the features.

    The defaults are those of the PADDLE paper's experiments on tiered-ImageNet, and ICI's own; on mini-ImageNet it took
    ``n_components`` = 2. ``n_iter`` counts rounds, at most |Q|/``step`` of them; ``converged`` says that all queries
    joined within ``max_iter``. There is no prior on which classes occur, but a class can take ``step`` queries a round
    however wrong they are.

    Differs from the authors' code in: the path is exact and cheap (see ``_lasso_path``: n·r² a step in place of dense
    n × n systems, and only until no γ_i is zero; the rest of it is constant), so that K = 160 is no obstacle; between
    two penalties of its grid of 100 it is interpolated, where theirs takes queries in the order in which they come; the
    logistic regression is solved to the precision of the numbers, where a recent scikit-learn stops at a gradient of
    1e-4 of the mean loss, which for many classes is almost at once; with two classes it is the softmax problem,
    scikit-learn's with half the C; fewer samples than components use as many as there are.

    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> ici(tasks).labels.tolist()
    [[0, 1]]
    """
    tasks = transform(tasks, scale)
    n_tasks, n_support, n_classes, device = tasks.n_tasks, tasks.n_support, tasks.n_classes, tasks.device
    features = with_intercept(_rotated(torch.cat([tasks.support, tasks.query], dim=1)))
    components = _principal_components(features[..., :-1], n_components)
    joined = torch.zeros(n_tasks, tasks.n_query, dtype=torch.bool, device=device)
    labels = torch.cat([tasks.support_labels, torch.zeros_like(joined, dtype=torch.int64)], dim=1)
    fit = _refit(features, labels, joined, Fit.zero(features, n_classes), c)
    logits = torch.empty(n_tasks, tasks.n_query, n_classes, dtype=tasks.dtype, device=device)
    alive = torch.arange(n_tasks, device=device)  # the tasks that still have queries to add
    n_iter = torch.full((n_tasks,), max_iter, device=device)
    converged = torch.zeros(n_tasks, dtype=torch.bool, device=device)
    for iteration in range(max_iter):
        pseudo = (features[:, n_support:] @ fit.weights).argmax(-1)
        labels = torch.cat([labels[:, :n_support], pseudo], dim=1)
        joined = joined | _credible(components, labels, joined, n_classes, step)
        fit = _refit(features, labels, joined, fit, c)
        done = joined.all(1)
        if bool(done.any()):
            logits[alive[done]] = features[done, n_support:] @ fit.weights[done]
            n_iter[alive[done]], converged[alive[done]] = iteration + 1, True
            on = ~done
            alive, features, components, labels, joined = (
                value[on] for value in (alive, features, components, labels, joined)
            )
            fit = fit.take(on)
            if len(alive) == 0:
                break
    logits[alive] = features[:, n_support:] @ fit.weights
    return Solution(logits.softmax(-1), n_iter=n_iter, converged=converged)


def _refit(features: Tensor, labels: Tensor, joined: Tensor, start: Fit, c: float) -> Fit:
    """The classifier of the support and the queries that joined."""
    n_support = labels.shape[1] - joined.shape[1]
    weights = torch.cat([torch.ones_like(labels[:, :n_support], dtype=torch.bool), joined], dim=1)
    return logistic_regression(features, labels, weights.to(features.dtype), start, c=c)


def _credible(components: Tensor, labels: Tensor, joined: Tensor, n_classes: int, step: int) -> Tensor:
    """[t, q] the ``step`` most credible queries of each pseudo-class among those that have not joined yet."""
    n_query = joined.shape[1]
    pseudo = labels[:, -n_query:].masked_fill(joined, n_classes)  # those that joined are a class of their own
    waiting = torch.zeros(len(labels), n_classes + 1, dtype=torch.int64, device=labels.device)
    waiting.scatter_add_(1, pseudo, torch.ones_like(pseudo))
    crowded = (waiting[:, :-1] > step).any(1)  # the others take everybody, whatever the order
    entry = torch.zeros(pseudo.shape, dtype=torch.float64, device=labels.device)
    if bool(crowded.any()):
        entry[crowded] = entry_penalties(components[crowded], labels[crowded], n_classes)[:, -n_query:]
    return _smallest_of_each_class(entry, pseudo, step) & ~joined


def _smallest_of_each_class(values: Tensor, classes: Tensor, n: int) -> Tensor:
    """[t, q] whether a value is among the n smallest of its class."""
    order = values.argsort(dim=1, stable=True)
    runs, by_class = classes.gather(1, order).sort(dim=1, stable=True)
    ranks = torch.arange(classes.shape[1], device=classes.device) - torch.searchsorted(runs, runs)
    return torch.zeros_like(classes, dtype=torch.bool).scatter_(1, order.gather(1, by_class), ranks < n)


def _rotated(features: Tensor) -> Tensor:
    """With more dimensions than samples, coordinates in the space that the samples span: the same inner products."""
    if features.shape[1] >= features.shape[2]:
        return features
    rotated: Tensor = torch.linalg.qr(features.mT, mode="r").R
    return rotated.mT


def _principal_components(centred: Tensor, n_components: int) -> Tensor:
    """[t, n, r] the left singular vectors of the largest singular values; zeros beyond the rank. In double precision.

    From a block Krylov space, when that is smaller than the space of the features: as exact as rounding for all
    purposes here, and a full decomposition of every task would take longer than all the rest on a GPU.
    """
    n_features = centred.shape[2]
    width = n_components + 3
    if width * _KRYLOV_BLOCKS < n_features:
        generator = torch.Generator().manual_seed(0)
        block = torch.randn(n_features, width, generator=generator, dtype=torch.float64)
        block = block.to(centred).expand(len(centred), -1, -1)
        blocks = []
        for _ in range(_KRYLOV_BLOCKS):
            block = torch.linalg.qr(centred.mT @ (centred @ block)).Q
            blocks.append(block)
        centred = centred @ torch.linalg.qr(torch.cat(blocks, dim=-1)).Q
    centred = centred.double()
    squares, vectors = torch.linalg.eigh(centred.mT @ centred)
    squares, vectors = squares.flip(-1)[:, :n_components], vectors.flip(-1)[..., :n_components]
    squares = squares.unsqueeze(1)
    present = squares > squares[..., :1] * 1e-12
    components: Tensor = centred @ vectors * torch.where(present, squares.rsqrt(), 0)
    return components
