"""Baseline and Baseline++: fine-tune a classifier on the support (Chen et al., ICLR 2019). No transduction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from manyway.core.ops import prototypes
from manyway.core.solution import Solution
from manyway.core.tasks import Tasks
from manyway.methods._table.parameters import takes
from manyway.methods._table.prepared import QUERY_DEPENDENT, Prepared
from manyway.methods.calibration.scaling import transform
from manyway.methods.gradient.heads import Cosine, Euclidean, Head
from manyway.methods.gradient.information import Information, descend


@dataclass(frozen=True)
class Training:
    """How the classifier is trained.

    Parameters
    ----------
    temperature : float, default=15.0
        τ, which multiplies squared distances (``baseline``) or cosines (``baseline_pp``).
    lr : float, default=0.001
        Step size of Adam.
    max_iter : int, default=100
        Number of steps. There is no stopping rule.
    scale : str or None, default="l2"
        Feature transform; None uses the features as they are. ``baseline_pp`` divides them by their norms afterwards.
    with_objective : bool, default=False
        Whether to record the loss after each step.
    """

    temperature: float = 15.0
    lr: float = 1e-3
    max_iter: int = 100
    scale: str | None = "l2"
    with_objective: bool = False


@takes(Training)
def baseline(tasks: Tasks, *, prepared: Prepared | None = None, **params: Any) -> Solution:
    """Fine-tune a Euclidean classifier on the support; each query is labelled on its own.

    Minimises over the weight vectors w_k the cross-entropy of the support,

        mean_s −ln P_{s, y_s},     P_n = softmax_k(−½ τ ‖w_k − z_n‖²),

    by Adam, starting from the class means of the support.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve. Tasks that share one support share the training.
    prepared : Prepared or None, default=None
        What ``prepare_baseline`` returned for the same support and parameters; None trains the classifier.

    Returns
    -------
    Solution
        ``prototypes`` are the trained weight vectors. ``converged`` is False, as nothing is checked.

    Notes
    -----
    Chen et al. train a new linear layer with SGD. Starting at the class means and using Adam is the choice of the
    benchmarks by Veilleux et al. and of the PADDLE paper. Differs from the code of the latter: the gradient is written
    out (and tested against autograd).

    Reference: Chen, Liu, Kira, Wang, Huang, "A closer look at few-shot classification", ICLR 2019.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> baseline(tasks).labels.tolist()
    [[0, 1]]
    """
    return _solve(tasks, Euclidean, Training(**params), prepared)


@takes(Training)
def baseline_pp(tasks: Tasks, *, prepared: Prepared | None = None, **params: Any) -> Solution:
    """Fine-tune a cosine classifier on the support; each query is labelled on its own.

    The same as ``baseline`` with P_n = softmax_k(τ cos(w_k, z_n)).

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve. Tasks that share one support share the training.
    prepared : Prepared or None, default=None
        What ``prepare_baseline_pp`` returned for the same support and parameters; None trains the classifier.

    Returns
    -------
    Solution
        ``prototypes`` are the trained weight vectors. ``converged`` is False, as nothing is checked.

    Notes
    -----
    Differs from Chen et al. as ``baseline`` does, and in a fixed temperature where they learn one. Differs from the
    PADDLE paper's code, which trains with Euclidean logits and uses cosines for prediction only: here both are cosines.

    Reference: Chen, Liu, Kira, Wang, Huang, "A closer look at few-shot classification", ICLR 2019.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> baseline_pp(tasks).labels.tolist()
    [[0, 1]]
    """
    return _solve(tasks, Cosine, Training(**params), prepared)


@takes(Training)
def prepare_baseline(tasks: Tasks, **params: Any) -> Prepared | None:
    """Train the classifier of ``baseline`` on a support, to be used for several batches of queries.

    Parameters
    ----------
    tasks : Tasks
        Tasks with the support; their queries are not used.

    Returns
    -------
    Prepared or None
        For the parameter ``prepared`` of ``baseline``; None when the feature transform depends on the queries.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> baseline(tasks, prepared=prepare_baseline(tasks)).labels.tolist()
    [[0, 1]]
    """
    return _prepare(tasks, Euclidean, Training(**params))


@takes(Training)
def prepare_baseline_pp(tasks: Tasks, **params: Any) -> Prepared | None:
    """Train the classifier of ``baseline_pp`` on a support: see ``prepare_baseline``.

    Parameters
    ----------
    tasks : Tasks
        Tasks with the support; their queries are not used.

    Returns
    -------
    Prepared or None
    """
    return _prepare(tasks, Cosine, Training(**params))


def _prepare(tasks: Tasks, head: Callable[[float], Head], training: Training) -> Prepared | None:
    if training.scale in QUERY_DEPENDENT:
        return None
    return _train(_transformed(tasks, head, training.scale), head(training.temperature), training)


def _transformed(tasks: Tasks, head: Callable[[float], Head], scale: str | None) -> Tasks:
    """The transformed tasks; for cosines, with features of norm 1."""
    tasks = transform(tasks, scale)
    return transform(tasks, "l2") if head is Cosine and scale not in ("l2", "cl2", "power") else tasks


def _train(tasks: Tasks, head: Head, training: Training) -> Prepared:
    """Fit the classifier to the support of transformed tasks, once when they share it."""
    trained = tasks[:1] if tasks.shared_support and tasks.factor is None else tasks
    w, terms = descend(
        trained.support,
        trained.support_labels,
        prototypes(trained),
        head,
        Information((1.0, 0.0, 0.0)),
        lr=training.lr,
        max_iter=training.max_iter,
        with_objective=training.with_objective,
    )
    return Prepared(w, None if terms is None else terms[0])


def _solve(tasks: Tasks, head_of: Callable[[float], Head], training: Training, prepared: Prepared | None) -> Solution:
    """Label the queries by a classifier that is trained now unless it is prepared."""
    tasks, head = _transformed(tasks, head_of, training.scale), head_of(training.temperature)
    trained = _train(tasks, head, training) if prepared is None else prepared
    n_tasks = tasks.n_tasks
    w = trained.prototypes.expand(n_tasks, -1, -1)
    return Solution(
        probabilities=head.logits(tasks.query, w).softmax(-1),
        n_iter=torch.full((n_tasks,), training.max_iter, device=tasks.device),
        converged=torch.zeros(n_tasks, dtype=torch.bool, device=tasks.device),
        make_prototypes=lambda: w,
        objective=None if trained.objective is None else trained.objective.expand(n_tasks, -1),
    )
