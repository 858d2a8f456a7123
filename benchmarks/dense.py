"""PADDLE and its task generator as published: the dense reference of the benchmarks.

A Python loop over tasks and classes draws the samples; the support is a dense [t, s, d] tensor with one-hot labels; the
d-dimensional prototypes are computed from all samples in every iteration. Only benchmarks and their tests use it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from manyway import FeatureSet, Tasks, TaskSpec


def rows_by_class(features: FeatureSet) -> list[Tensor]:
    """The rows of each class."""
    return [(features.labels == k).nonzero().flatten() for k in range(features.n_classes)]


def sample_looped(
    rows_of: list[Tensor], spec: TaskSpec, generator: torch.Generator, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Support rows [t, s], support labels [t, s] and query rows [t, q], one class at a time."""
    assert spec.shots is not None
    labels_of_support = torch.arange(len(rows_of)).repeat_interleave(spec.shots)
    supports, queries = [], []
    for _ in range(count):
        support, left = [], []
        for rows in rows_of:
            order = rows[torch.randperm(len(rows), generator=generator)]
            support.append(order[: spec.shots])
            left.append(order[spec.shots :])
        present = torch.randperm(len(rows_of), generator=generator)[: spec.k_eff]
        pool = torch.cat([left[int(k)] for k in present])
        supports.append(torch.cat(support))
        queries.append(pool[torch.randperm(len(pool), generator=generator)[: spec.n_query]])
    return torch.stack(supports), labels_of_support.expand(count, -1), torch.stack(queries)


def paddle_dense(
    support: Tensor,  # [t, s, d]
    labels: Tensor,  # [t, s]
    query: Tensor,  # [t, q, d]
    n_classes: int,
    max_iter: int = 100,
    eps: float = 1e-6,
) -> Tensor:
    """Assignments [t, q, k] with λ = |Q| and features scaled by the query range."""
    low, high = query.amin(1, keepdim=True), query.amax(1, keepdim=True)
    width = torch.where(high > low, high - low, torch.ones_like(low))
    support, query = (support - low) / width, (query - low) / width
    y = torch.nn.functional.one_hot(labels, n_classes).to(support.dtype)  # [t, s, k]
    w = (y.mT @ support) / y.sum(1).unsqueeze(-1)  # [t, k, d]
    v = torch.zeros(len(query), 1, n_classes, dtype=query.dtype, device=query.device)
    u = query.new_empty(0)
    for _ in range(max_iter):
        distances = query.square().sum(-1, keepdim=True) - 2 * query @ w.mT + w.square().sum(-1).unsqueeze(1)
        u = (v - distances / 2).softmax(-1)
        v = (u.mean(1, keepdim=True) + eps).log() + 1
        w = (y.mT @ support + u.mT @ query) / (y.sum(1) + u.sum(1)).unsqueeze(-1)
    return u


def published(tasks: Tasks, dtype: torch.dtype = torch.float64) -> Tensor:
    """[t, q, k] the assignments of the published algorithm, in float64 unless another type is given."""
    tasks = tasks.to(dtype=dtype)
    return paddle_dense(tasks.support, tasks.support_labels, tasks.query, tasks.n_classes)
