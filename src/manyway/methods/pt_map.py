"""PT-MAP: balanced optimal transport between queries and class centres (Hu et al., ICANN 2021)."""

from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import Recorder, Solution, Tasks, class_sums, prototypes, sinkhorn
from manyway.methods.calibration.transforms import transform


def pt_map(
    tasks: Tasks,
    *,
    step: float = 0.02,
    entropy_weight: float = 0.1,
    max_iter: int = 20,
    sinkhorn_tol: float = 1e-6,
    sinkhorn_iter: int = 1000,
    scale: str | None = "power",
    with_objective: bool = False,
) -> Solution:
    """Assign equally many queries to every class by optimal transport, and move the class centres.

    Over plans P with row sums 1 and column sums |Q|/K, and centres w,

        Σ_qk P_qk ‖z_q − w_k‖²  +  Σ_s ‖z_s − w_{y_s}‖²  +  (1/λ) Σ P ln P

    is minimised by repeating, from w = the support's class means,

        P = the optimal plan for these w          (Sinkhorn on exp(−λ‖z_q − w_k‖²))
        w = w + step·((Σ_s y_s z_s + Σ_q P_q z_q) / (Σ_s y_s + Σ_q P_q) − w).

    The answer is the plan for the last w.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.
    step : float, default=0.02
        How far prototypes move towards their update.
        The objective decreases for any value from 0 to 2.
    entropy_weight : float, default=0.1
        1/λ, the weight of the entropy term.
    max_iter : int, default=20
        The largest number of iterations. All are done.
    sinkhorn_tol : float, default=1e-6
        Accuracy of the row sums at which Sinkhorn's iteration stops.
    sinkhorn_iter : int, default=1000
        The largest number of Sinkhorn's iterations in each of the others.
    scale : str or None, default="power"
        Feature transform; None uses the features as they are.
    with_objective : bool, default=False
        Whether to record the objective after each iteration. Its terms are ``transport``,
        ``support`` and ``entropy``, with the plan for the new centres.

    Returns
    -------
    Solution
        ``converged`` says whether the row sums of the last plan are within ``sinkhorn_tol``.

    Notes
    -----
    All K classes receive the same number of queries. This is right when all classes occur equally
    often, and harmful when few of them occur.

    The defaults are those of the PADDLE paper's experiments (``step`` is 0.01 there for the WRN on
    mini-ImageNet); the paper of PT-MAP uses ``step`` = 0.2.

    Differs from the authors' code: there is no QR rotation, which changes no distance; Sinkhorn's
    iteration stops when the row sums are accurate, not when they stop changing; each task stops on
    its own; a plan starts from the previous one; for features that can be negative the power
    transform keeps the sign. The code of the PADDLE benchmark distributes the queries over the true
    number of present classes; here only K is known.

    Reference: Hu, Gripon, Pateux, "Leveraging the feature distribution in transfer-based
    few-shot learning", ICANN
    2021.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> pt_map(tasks, scale=None).labels.tolist()
    [[0, 1]]
    """
    tasks = transform(tasks, scale)
    problem = _Problem.of(tasks)
    per_class = tasks.n_query / tasks.n_classes
    lam = 1 / entropy_weight
    masses = problem.counts + per_class
    a = problem.counts.reciprocal()
    b = torch.zeros_like(problem.cross)
    scatter = _scatter(tasks) if with_objective else None

    def solve(start: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        cost = problem.cost(a, b)
        return cost, *sinkhorn(
            cost * -lam, 1.0, per_class, tol=sinkhorn_tol, max_iter=sinkhorn_iter, start=start
        )

    cost, plan, converged, logs = solve(None)
    recorder = Recorder(("transport", "support", "entropy"))
    for _ in range(max_iter):
        a = a + (1 / masses - a) * step
        b = b + (plan / masses.unsqueeze(1) - b) * step
        cost, plan, converged, logs = solve(logs)
        if scatter is not None:
            transport = (plan * cost).sum((1, 2))
            entropy = torch.xlogy(plan, plan).sum((1, 2)) / lam
            recorder.add(torch.stack([transport, scatter + problem.displacement(a, b), entropy]))
    plan = plan / plan.sum(-1, keepdim=True)
    return Solution(
        plan, max_iter, converged, lambda: problem.centres(a, b), objective_parts=recorder.parts
    )


class _Problem(NamedTuple):
    """The centres as w_k = a_k S_k + Σ_q b_qk z_q, with S_k the class sums of the support.

    All distances follow from inner products among queries and class sums, so a round costs q²·k
    whatever d is. Features are centred on the mean of the queries.
    """

    query: Tensor  # [t, q, d]
    sums: Tensor  # [t, k, d]
    counts: Tensor  # [t, k]
    centre: Tensor  # [t, 1, d]
    gram: Tensor | None  # [t, q, q]; None when d is small and two products with Z are cheaper
    cross: Tensor  # [t, q, k] = Z Sᵀ
    sum_norms: Tensor  # [t, k]
    query_norms: Tensor  # [t, q, 1]

    @staticmethod
    def of(tasks: Tasks) -> "_Problem":
        query = tasks.query
        sums, counts = class_sums(tasks)
        centre = query.mean(1, keepdim=True)
        query = query - centre
        sums = sums - counts.unsqueeze(-1) * centre
        return _Problem(
            query=query,
            sums=sums,
            counts=counts,
            centre=centre,
            gram=query @ query.mT if tasks.n_query < 2 * tasks.n_features else None,
            cross=query @ sums.mT,
            sum_norms=sums.square().sum(-1),
            query_norms=query.square().sum(-1, keepdim=True),
        )

    def _products(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """z_q·w_k [t, q, k] and ‖w_k‖² [t, k]."""
        along = self.cross * a.unsqueeze(1)
        if self.gram is None:
            products = along + self.query @ (self.query.mT @ b)
        else:
            products = along + self.gram @ b
        return products, a.square() * self.sum_norms + (b * (along + products)).sum(1)

    def cost(self, a: Tensor, b: Tensor) -> Tensor:
        """[t, q, k] = ‖z_q − w_k‖²."""
        products, norms = self._products(a, b)
        return products.mul_(-2).add_(norms.unsqueeze(1)).add_(self.query_norms).clamp_min_(0)

    def displacement(self, a: Tensor, b: Tensor) -> Tensor:
        """[t] = Σ_k n_k ‖w_k − S_k/n_k‖²."""
        _, norms = self._products(a - self.counts.reciprocal(), b)
        return (norms * self.counts).sum(-1)

    def centres(self, a: Tensor, b: Tensor) -> Tensor:
        """[t, k, d]"""
        return self.sums * a.unsqueeze(-1) + b.mT @ self.query + self.centre


def _scatter(tasks: Tasks) -> Tensor:
    """[t] = Σ_s ‖z_s − mean of its class‖²."""
    own = prototypes(tasks).gather(
        1, tasks.support_labels.unsqueeze(-1).expand(-1, -1, tasks.n_features)
    )
    return (tasks.support - own).square().sum((1, 2))
