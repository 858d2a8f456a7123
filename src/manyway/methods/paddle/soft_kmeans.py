"""Soft K-means: PADDLE without its partition-complexity term, the paper's first ablation."""

from typing import Literal

from manyway.core.solution import Solution
from manyway.core.tasks import Tasks
from manyway.methods._table.parameters import described_as
from manyway.methods.paddle.solver import paddle


@described_as(paddle)
def soft_kmeans(
    tasks: Tasks,
    *,
    max_iter: int = 100,
    tol: float | None = None,
    scale: str | None = "range",
    form: Literal["gram", "feature"] | None = None,
    with_objective: bool = False,
) -> Solution:
    """PADDLE without its partition-complexity term (λ = 0): soft K-means.

    Minimises ½ Σ_nk u_nk ‖w_k − z_n‖² + Σ_qk u_qk ln u_qk by the updates of ``paddle`` without the duals v.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.

    Returns
    -------
    Solution
        ``converged`` says whether ``tol`` was met; without ``tol`` it is False.

    Notes
    -----
    Nothing favours few classes, so the queries are spread over all of them. The difference between its accuracy and
    PADDLE's is the effect of the complexity term.

    Reference: an ablation in Martin et al., NeurIPS 2022; see ``paddle``.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0], [5.0]]], [[0, 1]], [[[0.1], [4.8]]])
    >>> soft_kmeans(tasks, scale=None).labels.tolist()
    [[0, 1]]
    """
    return paddle(
        tasks, lam=0.0, eps=0.0, max_iter=max_iter, tol=tol, scale=scale, form=form, with_objective=with_objective
    )
