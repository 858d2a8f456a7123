"""Soft K-means: PADDLE without its partition-complexity term, the paper's first ablation."""

from __future__ import annotations

from manyway.core.solution import Solution
from manyway.core.tasks import Tasks
from manyway.methods.paddle.solver import paddle


def soft_kmeans(
    tasks: Tasks,
    *,
    max_iter: int = 100,
    tol: float | None = None,
    scale: str | None = "range",
    form: str | None = None,
    with_objective: bool = False,
) -> Solution:
    """PADDLE without its complexity term (λ = 0): nothing is said about how many classes occur.

    Minimises ½ Σ u‖w − z‖² + Σ u ln u by the same updates, without the dual.

    It assumes nothing about how many classes occur, and so spreads the queries over all of them: the distance between
    it and PADDLE is what the complexity term buys. Parameters are PADDLE's.

    >>> tasks = Tasks.from_arrays([[[0.0], [5.0]]], [[0, 1]], [[[0.1], [4.8]]])
    >>> soft_kmeans(tasks, scale=None).labels.tolist()
    [[0, 1]]
    """
    return paddle(
        tasks,
        lam=0.0,
        eps=0.0,
        max_iter=max_iter,
        tol=tol,
        scale=scale,
        form=form,
        with_objective=with_objective,
    )
