"""Batches of simulated classes whose queries are moved, for tests of shifts."""

from __future__ import annotations

import torch
from torch import Tensor

from manyway import Tasks
from manyway.core import Solution

N_CLASSES, N_FEATURES, N_QUERY = 20, 48, 60


def batch(present: int, *, seed: int = 0, shots: int = 5) -> tuple[Tasks, Tensor]:
    """A batch of so many classes, and its labels. Within-class scatter is N_FEATURES."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(N_CLASSES, N_FEATURES, generator=generator)
    noise = torch.randn(N_CLASSES, shots, N_FEATURES, generator=generator)
    support = (means[:, None] + noise).reshape(1, -1, N_FEATURES)
    truth = torch.randint(present, (1, N_QUERY), generator=generator)
    query = means[truth] + torch.randn(1, N_QUERY, N_FEATURES, generator=generator)
    labels = torch.arange(N_CLASSES).repeat_interleave(shots)[None]
    return Tasks.from_arrays(support, labels, query), truth


def moved(tasks: Tasks, scatters: float, seed: int = 7) -> Tasks:
    """All queries moved in a random direction, by so many within-class scatters."""
    direction = torch.randn(1, 1, N_FEATURES, generator=torch.Generator().manual_seed(seed))
    shift = scatters * N_FEATURES**0.5 * direction / direction.norm()
    return tasks.with_rows(tasks.support, tasks.query + shift)


def right(solution: Solution, truth: Tensor) -> float:
    return float((solution.labels == truth).float().mean())
