"""Baseline and Baseline++: fine-tune a classifier on the support (Chen et al., ICLR 2019). No transduction."""

from __future__ import annotations

import torch

from manyway.core.ops import prototypes
from manyway.core.solution import Solution
from manyway.core.tasks import Tasks
from manyway.core.transforms import transform
from manyway.methods.gradient.heads import Cosine, Euclidean, Head
from manyway.methods.gradient.information import Information, descend


def baseline(
    tasks: Tasks,
    *,
    temperature: float = 15.0,
    lr: float = 1e-3,
    max_iter: int = 100,
    scale: str | None = "l2",
    with_objective: bool = False,
) -> Solution:
    """Fine-tuning: a Euclidean classifier trained on the support; each query is labelled on its own.

    Minimises the cross-entropy mean_s −ln P_{s, y_s} with P = softmax_k(−½ τ ‖w_k − z‖²) over w, by ``max_iter`` steps
    of Adam from the support's class means, with τ = ``temperature``. Tasks that share one support share the training.
    There is no stopping rule, so ``converged`` is False. ``with_objective`` records the loss after each step.

    Differs from Chen et al.: they train a fresh linear layer with SGD; starting at the class means and Adam are the
    choice of the benchmarks by Veilleux et al. and by the PADDLE paper. Differs from the latter's code in: the gradient
    is written out (checked against autograd).

    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> baseline(tasks).labels.tolist()
    [[0, 1]]
    """
    return _fine_tune(transform(tasks, scale), Euclidean(temperature), lr, max_iter, with_objective)


def baseline_pp(
    tasks: Tasks,
    *,
    temperature: float = 15.0,
    lr: float = 1e-3,
    max_iter: int = 100,
    scale: str | None = "l2",
    with_objective: bool = False,
) -> Solution:
    """Fine-tuning with cosines: as Baseline, with P = softmax_k(τ cos(w_k, z)).

    Parameters are Baseline's. Features are brought to norm 1 whatever ``scale`` is.

    Differs from Chen et al. as Baseline does, and in a fixed temperature where they learn one. Differs from the PADDLE
    paper's code, which trains with Euclidean logits and uses cosines only to predict: here both are cosines.

    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> baseline_pp(tasks).labels.tolist()
    [[0, 1]]
    """
    tasks = transform(tasks, scale)
    tasks = tasks if scale in ("l2", "cl2", "power") else transform(tasks, "l2")
    return _fine_tune(tasks, Cosine(temperature), lr, max_iter, with_objective)


def _fine_tune(tasks: Tasks, head: Head, lr: float, max_iter: int, with_objective: bool) -> Solution:
    n_tasks = tasks.n_tasks
    trained = tasks[:1] if tasks.shared_support and tasks.factor is None else tasks
    w, terms = descend(
        trained.support,
        trained.support_labels,
        prototypes(trained),
        head,
        Information((1.0, 0.0, 0.0)),
        lr=lr,
        max_iter=max_iter,
        with_objective=with_objective,
    )
    w = w.expand(n_tasks, -1, -1)
    return Solution(
        probabilities=head.logits(tasks.query, w).softmax(-1),
        n_iter=torch.full((n_tasks,), max_iter, device=tasks.device),
        converged=torch.zeros(n_tasks, dtype=torch.bool, device=tasks.device),
        make_prototypes=lambda: w,
        objective=None if terms is None else terms[0].expand(n_tasks, -1),
    )
