"""Batched arithmetic that methods share.

Axes: t tasks, s support samples, q queries, k classes, d features, n any rows.
"""

from dataclasses import replace

import torch
from torch import Tensor

from manyway.core.kernels import fused
from manyway.core.tasks import Tasks


def class_sums(tasks: Tasks, centre: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sum the support features of each class: sums [t, k, d] and the number of samples [t, k].

    ``centre`` [t, 1, d] is subtracted from every feature. Gathering and summing are one pass
    (``embedding_bag``): the [t, s, d] support is never written to memory, and the order of the sum
    does not depend on the device's scheduling.
    """
    if tasks.shared_support and tasks.n_tasks > 1:
        sums, counts = class_sums(replace(tasks, factor=None)[:1])
        sums = sums.expand(tasks.n_tasks, -1, -1)
        counts = counts.expand(tasks.n_tasks, -1)
        if tasks.factor is not None:
            sums = sums * tasks.factor
        return _centred(sums, counts, centre), counts
    n_tasks = tasks.n_tasks
    n_classes = tasks.n_classes
    labels = tasks.support_labels
    rows = labels[:1] if labels.stride(0) == 0 else labels
    counts = count_labels(rows, n_classes).expand(n_tasks, -1)
    table = tasks.support_table.reshape(-1, tasks.n_features)
    index = tasks.support_rows
    if bool((rows.diff(dim=1) < 0).any()):
        index = index.gather(1, rows.argsort(dim=1, stable=True).expand(n_tasks, -1))
    if len(rows) == 1 and table.dtype == torch.float32 and fused(table):
        from manyway.core.kernels import rows as kernels

        ends = torch.nn.functional.pad(counts[0].cumsum(0), (1, 0))
        counts = counts.to(tasks.dtype)
        if tasks.centre is None:
            return kernels.class_sums(table, index, ends, tasks.factor, centre), counts
        sums = kernels.class_sums(table, index, ends, None, tasks.centre, unit=True)
        return _centred(sums, counts, centre), counts
    starts = counts.reshape(-1).cumsum(0) - counts.reshape(-1)
    sums = torch.nn.functional.embedding_bag(index.reshape(-1), table, starts, mode="sum")
    sums = sums.view(n_tasks, n_classes, -1)
    counts = counts.to(tasks.dtype)
    if tasks.factor is not None:
        sums = sums.mul_(tasks.factor)
    return _centred(sums, counts, centre), counts


def class_moments(tasks: Tasks) -> tuple[Tensor, Tensor, Tensor]:
    """``class_sums``, and the sum of squared lengths of the support of each class [t, k]."""
    sums, counts = class_sums(tasks)
    if tasks.centre is not None:  # unit length
        return sums, counts, counts
    lengths = torch.linalg.vector_norm(tasks.support, dim=-1, keepdim=True).square_()
    return sums, counts, class_sums(tasks.with_rows(lengths, lengths[:, :0]))[0].squeeze(-1)


def _centred(sums: Tensor, counts: Tensor, centre: Tensor | None) -> Tensor:
    if centre is None:
        return sums
    return torch.addcmul(sums, counts.unsqueeze(-1), centre, value=-1)


def all_running(n_tasks: int, max_iter: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """The state before an iteration from which tasks drop out.

    It says which tasks run, and of each n_iter and whether it converged [t].

    >>> all_running(2, 50, torch.device("cpu"))
    (tensor([0, 1]), tensor([50, 50]), tensor([False, False]))
    """
    tasks = torch.arange(n_tasks, device=device)
    return tasks, torch.full_like(tasks, max_iter), torch.zeros_like(tasks, dtype=torch.bool)


def prototypes(tasks: Tasks) -> Tensor:
    """[t, k, d] the mean support feature of each class."""
    sums, counts = class_sums(tasks)
    return sums / counts.unsqueeze(-1)


def count_labels(labels: Tensor, n_classes: int, weights: Tensor | None = None) -> Tensor:
    """[t, k] how many of the labels [t, s] are of each class, or the sum of weights [t, s]."""
    if weights is None:
        weights = torch.ones_like(labels)
    return weights.new_zeros(len(labels), n_classes).scatter_add_(1, labels, weights)


def one_hot(labels: Tensor, n_classes: int, dtype: torch.dtype) -> Tensor:
    """[..., k] with a one at each label."""
    zeros = torch.zeros(*labels.shape, n_classes, dtype=dtype, device=labels.device)
    return zeros.scatter_(-1, labels.unsqueeze(-1), 1)


def cross_products(samples: Tensor, others: Tensor) -> Tensor:
    """[t, q, k] = samples · othersᵀ, of [t, q, d] and [t, k, d]."""
    if samples.is_cuda:
        return samples @ others.mT
    # On some CPUs a product takes up to nine times as long when only its second factor is a transposed view, because
    # torch calls another library for it. Both factors and the result are therefore transposed.
    out = samples.new_empty(len(samples), samples.shape[1], others.shape[1])
    return torch.bmm(others, samples.mT, out=out.mT).mT


def dot_scores(samples: Tensor, centres: Tensor) -> Tensor:
    """[t, q, k] = −½‖z_q − w_k‖² + ½‖z_q‖².

    These are distances up to a constant per query, which a softmax over k ignores.
    """
    half_norms = centres.square().sum(-1).mul_(0.5).unsqueeze(-2)
    if samples.is_cuda:
        return torch.baddbmm(half_norms, samples, centres.mT, beta=-1)
    return cross_products(samples, centres).sub_(half_norms)


def extremes(values: Tensor) -> tuple[Tensor, Tensor]:
    """[t, 1, d] the smallest and the largest over n of values [t, n, d].

    >>> [extreme.flatten().tolist() for extreme in extremes(torch.tensor([[[1.0, 5.0], [3.0, 2.0], [2.0, 7.0]]]))]
    [[1.0, 2.0], [3.0, 7.0]]
    """
    if values.is_cuda:
        low, high = values.aminmax(dim=1, keepdim=True)
        return low, high
    low = high = values
    # Comparing one half with the other is vectorised on a CPU; a reduction along an inner axis is not.
    while high.shape[1] > 1:
        half = (high.shape[1] + 1) // 2
        low = torch.minimum(low[:, :half], low[:, -half:])
        high = torch.maximum(high[:, :half], high[:, -half:])
    return low, high


def unit(features: Tensor) -> Tensor:
    """Divide each vector along the last axis by its norm; a zero vector stays zero.

    Squares of very large or very small features leave the range of float32. Where that happened,
    vectors are first scaled by the power of two that brings their largest entry near 1, which
    changes no digit of the result.

    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]) * 2.0**100).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    info = torch.finfo(features.dtype)
    squares = features.square().sum(-1, keepdim=True)
    if not bool(((squares > info.tiny / info.eps) & (squares < torch.inf)).all()):
        largest = features.abs().amax(-1, keepdim=True).clamp_min(info.tiny)
        features = features * torch.exp2(-torch.frexp(largest).exponent.to(features.dtype))
        squares = features.square().sum(-1, keepdim=True)
    return features / squares.sqrt_().clamp_min_(info.tiny)


def column_sums(values: Tensor) -> Tensor:
    """[t, k] = Σ_n values [t, n, k], as a product with ones.

    On a CPU ``sum`` takes two to four times as long.
    """
    return (values.new_ones(1, 1, values.shape[1]).expand(len(values), -1, -1) @ values).squeeze(1)


def squared_distances(samples: Tensor, centres: Tensor) -> Tensor:
    """[t, q, k] = ‖z_q − w_k‖², never negative."""
    norms = samples.square().sum(-1).unsqueeze(-1)
    return dot_scores(samples, centres).mul_(-2).add_(norms).clamp_min_(0)


def entropy(probabilities: Tensor) -> Tensor:
    """Shannon entropy along the last axis, in nats; 0·ln 0 counts as 0."""
    return -torch.xlogy(probabilities, probabilities).sum(-1)


def simplex_projection(points: Tensor) -> Tensor:
    """Project points onto the probability simplex, along the last axis.

    The nearest point of the simplex is max(x − θ, 0), with the θ that makes its entries sum to one.
    One sort finds it: θ is the maximum over j of (sum of the j largest entries − 1) / j.

    >>> simplex_projection(torch.tensor([0.5, 1.5, 0.75])).tolist()
    [0.0, 0.875, 0.125]
    """
    # does not change the projection, and keeps the sums small
    points = points - points.amax(-1, keepdim=True)
    ranks = torch.arange(1, points.shape[-1] + 1, dtype=points.dtype, device=points.device)
    thresholds = points.sort(-1, descending=True).values.cumsum(-1).sub_(1).div_(ranks)
    return points.sub_(thresholds.amax(-1, keepdim=True)).clamp_min_(0)


def nearest_others(samples: Tensor, n_neighbors: int) -> Tensor:
    """[t, q, q] the directed graph of nearest neighbours.

    Entry (i, j) is 1 when j is one of the nearest of i.

    No sample is its own neighbour. With fewer than ``n_neighbors`` other samples,
    all of them are neighbours.
    """
    distances = squared_distances(samples, samples)
    distances.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    nearest = distances.topk(min(n_neighbors, samples.shape[1] - 1), largest=False).indices
    return torch.zeros_like(distances).scatter_(-1, nearest, 1)


_ROUNDS_BETWEEN_CHECKS = 10  # of Sinkhorn's iteration; a check costs about as much as a round


def sinkhorn(
    scores: Tensor,
    row_sum: float,
    column_sum: float,
    *,
    tol: float,
    max_iter: int,
    start: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Find a transport plan with given row and column sums, by Sinkhorn's iteration.

    The plan is diag(a)·exp(scores)·diag(b).

    A round scales all rows, then all columns; ``max_iter`` limits the rounds. A task is done when
    its row sums are within ``tol``, or within rounding; column sums are exact. Every few rounds the
    scalings are moved into the exponent, so that nothing overflows, and each task is checked.
    ``start`` is ln b [t, k] of a similar problem.

    Returns the plan [t, q, k], whether each task is done [t], and ln b [t, k].

    >>> plan, _, _ = sinkhorn(torch.tensor([[[0.0, -1.0, -9.0], [0.0, -2.0, -9.0]]]), 1.5, 1.0, tol=1e-6, max_iter=100)
    >>> plan.sum(2).round(decimals=4).tolist(), plan.sum(1).round(decimals=4).tolist()
    ([[1.5, 1.5]], [[1.0, 1.0, 1.0]])
    """
    tol = max(tol, 8 * torch.finfo(scores.dtype).eps * row_sum)
    # Without a start, the first scalings make the largest score of every row and every column 0.
    if start is not None:
        logs = start.unsqueeze(1)
    else:
        logs = -(scores - scores.amax(2, keepdim=True)).amax(1, keepdim=True)
    scores = scores + logs
    scores = scores - scores.amax(2, keepdim=True)
    plan = torch.empty_like(scores)
    answer = torch.empty_like(logs)
    converged = torch.zeros(len(scores), dtype=torch.bool, device=scores.device)
    alive = torch.arange(len(scores), device=scores.device)
    rounds = 0
    while True:
        kernel = scores.exp()
        b = torch.ones_like(logs).mT
        products = kernel @ b
        for _ in range(min(_ROUNDS_BETWEEN_CHECKS, max_iter - rounds)):
            a = row_sum / products
            b = column_sum / (kernel.mT @ a)
            products = kernel @ b
            rounds += 1
        done = (a * products - row_sum).abs().amax((1, 2)) <= tol
        logs = logs + b.log().mT
        plan[alive] = a * kernel * b.mT
        answer[alive] = logs
        converged[alive] = done
        if rounds >= max_iter or bool(done.all()):
            return plan, converged, answer.squeeze(1)
        alive = alive[~done]
        logs = logs[~done]
        scores = (scores + a.log() + b.log().mT)[~done]
