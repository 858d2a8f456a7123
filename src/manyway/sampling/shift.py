"""Queries that differ from the examples, all of a task in the same way, as another camera makes them."""

from dataclasses import replace

import torch
from torch import Tensor

from manyway.core import Tasks, class_sums
from manyway.core import random as draws
from manyway.sampling.spec import TaskSpec

_N_COMPONENTS = 3
_N_ITERATIONS = 8  # that find them


def shifted(tasks: Tasks, spec: TaskSpec, key: Tensor) -> Tasks:
    """The tasks with queries that are moved by ``spec.shift`` within-class scatters.

    Parameters
    ----------
    tasks : Tasks
    spec : TaskSpec
        ``shift_along`` says in which direction.
    key : Tensor of shape [t]
        What the directions are drawn by.

    Returns
    -------
    Tasks
        The queries are rows, not indices.
    """
    sums, counts = class_sums(tasks)
    means = sums / counts.clamp_min(1).unsqueeze(-1)
    residuals = tasks.support - means.gather(
        1, tasks.support_labels.unsqueeze(-1).expand(-1, -1, means.shape[-1])
    )
    freedom = tasks.n_support - tasks.n_classes
    scatter = (residuals.square().sum((1, 2)) / freedom).sqrt()
    if spec.shift_along == "class":
        direction = _between_classes(means, key)
    else:
        direction = _normals(key, means.shape[-1]).to(means)
        if spec.shift_along == "components":
            direction = _along_components(tasks.support, direction)
    length = (spec.shift * scatter).view(-1, 1, 1)
    move = torch.nn.functional.normalize(direction, dim=-1).unsqueeze(1) * length
    return replace(tasks, query_table=tasks.query + move, query_index=None)


def _normals(key: Tensor, n_values: int) -> Tensor:
    """[t, n] standard normal numbers, by inversion on the CPU: no device changes a task."""
    values = torch.arange(n_values)
    uniform = draws.uniform(draws.mix(key.cpu().unsqueeze(-1) ^ draws.mix(values)), 0)
    tiny = torch.finfo(uniform.dtype).eps
    return torch.erfinv((2 * uniform - 1).clamp(tiny - 1, 1 - tiny))


def _between_classes(means: Tensor, key: Tensor) -> Tensor:
    """[t, d] from the mean of a class to that of another one."""
    n_classes = means.shape[1]
    start = (draws.uniform(key, 0) * n_classes).long()
    step = 1 + (draws.uniform(key, 1) * (n_classes - 1)).long()
    rows = torch.arange(len(means), device=means.device)
    return means[rows, (start + step) % n_classes] - means[rows, start]


def _along_components(support: Tensor, normals: Tensor) -> Tensor:
    """[t, d] a random direction in the span of the first principal components of the examples.

    They are found by orthogonal iteration, from columns that are shifted copies of ``normals``.
    """
    centred = support - support.mean(1, keepdim=True)
    width = min(_N_COMPONENTS, normals.shape[-1])
    basis = torch.stack([normals.roll(step, -1) for step in range(width)], -1)
    for _ in range(_N_ITERATIONS):
        basis = torch.linalg.qr(centred.mT @ (centred @ basis)).Q
    return (basis @ normals[:, :width].unsqueeze(-1)).squeeze(-1)
