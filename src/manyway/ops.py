"""The batched arithmetic that methods share: t tasks, s support, q queries, k classes, d features."""

from __future__ import annotations

import torch
from torch import Tensor

from manyway.tasks import Tasks


def class_sums(tasks: Tasks) -> tuple[Tensor, Tensor]:
    """Sums [t, k, d] of the support features of each class and their counts [t, k].

    Gathering and summing are one pass (``embedding_bag``): the [t, s, d] support is never written out, and the order of
    the sum does not depend on the device's scheduling.
    """
    if tasks.shared_support and tasks.n_tasks > 1:
        sums, counts = class_sums(_first_without_factor(tasks))
        sums = sums.expand(tasks.n_tasks, -1, -1)
        return (sums if tasks.factor is None else sums * tasks.factor), counts.expand(tasks.n_tasks, -1)
    n_tasks, n_classes = tasks.n_tasks, tasks.n_classes
    labels = tasks.support_labels
    rows = labels[:1] if labels.stride(0) == 0 else labels
    counts = torch.zeros(len(rows), n_classes, dtype=torch.int64, device=labels.device)
    counts = counts.scatter_add_(1, rows, torch.ones_like(rows)).expand(n_tasks, -1)
    if tasks.support_index is None:
        table = tasks.support_table.reshape(-1, tasks.n_features)
        index = torch.arange(len(table), device=labels.device).view(n_tasks, -1)
    else:
        table, index = tasks.support_table, tasks.support_index
    if bool((rows.diff(dim=1) < 0).any()):
        index = index.gather(1, rows.argsort(dim=1, stable=True).expand(n_tasks, -1))
    starts = counts.reshape(-1).cumsum(0) - counts.reshape(-1)
    sums = torch.nn.functional.embedding_bag(index.reshape(-1), table, starts, mode="sum")
    sums = sums.view(n_tasks, n_classes, -1)
    return (sums if tasks.factor is None else sums * tasks.factor), counts.to(tasks.dtype)


def _first_without_factor(tasks: Tasks) -> Tasks:
    first = tasks[:1]
    return Tasks(
        first.support_table,
        first.support_index,
        first.support_labels,
        first.query_table,
        first.query_index,
        tasks.n_classes,
    )


def prototypes(tasks: Tasks) -> Tensor:
    """[t, k, d] the mean support feature of each class."""
    sums, counts = class_sums(tasks)
    return sums / counts.unsqueeze(-1)


def one_hot(labels: Tensor, n_classes: int, dtype: torch.dtype) -> Tensor:
    """[..., k] with a one at each label."""
    return torch.zeros(*labels.shape, n_classes, dtype=dtype, device=labels.device).scatter_(
        -1, labels.unsqueeze(-1), 1
    )


def dot_scores(samples: Tensor, centres: Tensor) -> Tensor:
    """[t, q, k] = -½‖z_q − w_k‖² + ½‖z_q‖²: what a softmax over k, or an argmax, needs of the distances."""
    half_norms = centres.square().sum(-1).mul_(0.5).unsqueeze(-2)
    return torch.baddbmm(half_norms, samples, centres.mT, beta=-1)


def squared_distances(samples: Tensor, centres: Tensor) -> Tensor:
    """[t, q, k] = ‖z_q − w_k‖², never negative."""
    norms = samples.square().sum(-1).unsqueeze(-1)
    return dot_scores(samples, centres).mul_(-2).add_(norms).clamp_min_(0)


def entropy(probabilities: Tensor, dim: int = -1) -> Tensor:
    """Shannon entropy along an axis, in nats; 0·ln 0 counts as 0."""
    return -torch.xlogy(probabilities, probabilities).sum(dim)
