"""SimpleShot: nearest class mean (Wang et al., 2019). No transduction: the floor everyone compares with."""

from __future__ import annotations

import torch

from manyway.core.ops import dot_scores, prototypes
from manyway.core.solution import Solution
from manyway.core.tasks import Tasks
from manyway.core.transforms import transform


def simpleshot(tasks: Tasks, *, scale: str | None = "cl2", temperature: float = 1.0) -> Solution:
    """The class whose mean support feature is nearest; each query is labelled on its own.

    Probabilities are softmax_k(−½ temperature·‖w_k − z_q‖²). The temperature changes how sure they look, never the
    label; SimpleShot itself has no probabilities, and 1 is the plain unit-Gaussian reading of its distances.

    >>> tasks = Tasks.from_arrays([[[0.0], [5.0]]], [[0, 1]], [[[0.1], [4.8]]])
    >>> simpleshot(tasks, scale=None).labels.tolist()
    [[0, 1]]
    """
    tasks = transform(tasks, scale)
    centres = prototypes(tasks)
    probabilities = (dot_scores(tasks.query, centres) * temperature).softmax(-1)
    once = torch.ones(tasks.n_tasks, dtype=torch.int64, device=tasks.device)
    return Solution(probabilities, n_iter=once, converged=once.bool(), make_prototypes=lambda: centres)
