"""LaplacianShot: nearest prototypes that agree with nearby queries (Ziko et al., ICML 2020)."""

import torch

from manyway.core import (
    Recorder,
    Solution,
    Tasks,
    all_running,
    nearest_others,
    prototypes,
    squared_distances,
)
from manyway.methods.calibration.transforms import transform


def laplacianshot(
    tasks: Tasks,
    *,
    graph_weight: float = 0.7,
    n_neighbors: int = 2,
    symmetric: bool = False,
    max_iter: int = 20,
    tol: float = 1e-6,
    scale: str | None = "cl2",
    with_objective: bool = False,
) -> Solution:
    """Label by the nearest class mean, smoothed over the graph of nearest queries.

    With a_qk = ‖z_q − w_k‖², w_k the support's class means, and W_qp = 1 when p is one of the
    ``n_neighbors`` other queries nearest to q, repeat from u = softmax_k(−a)

        u = softmax_k(−a + λ W u).

    A task stops, from the third iteration on, when the relative change of its energy

        Σ u ln u  +  Σ u·a  −  λ Σ u·(W u)

    is below ``tol``.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.
    graph_weight : float, default=0.7
        λ, the weight of the graph.
    n_neighbors : int, default=2
        n, the number of nearest other queries that a query has edges to.
    symmetric : bool, default=False
        Whether to use the symmetric graph (W + Wᵀ)/2.
    max_iter : int, default=20
        The largest number of iterations.
    tol : float, default=1e-6
        A task stops when an iteration changes less than this.
        The change is the relative one of the energy.
    scale : str or None, default="cl2"
        Feature transform; None uses the features as they are.
    with_objective : bool, default=False
        Whether to record the objective after each iteration. It is the energy, with the terms
        ``entropy``, ``unary`` and ``affinity``.

    Returns
    -------
    Solution
        ``prototypes`` are the support's class means, which do not move.

    Notes
    -----
    Nothing is assumed about which classes occur. The defaults are those of the PADDLE paper's
    experiments on mini- and tiered-ImageNet; on iNat it uses λ = 1 and ``n_neighbors`` = 9. The
    authors tune λ on validation classes.

    Convergence: for a symmetric graph the iteration lowers the energy with λ/2 in place of λ, which
    changes by −KL(u_old‖u_new) − (λ/2) Σ Δ·(W Δ) with Δ = u_new − u_old, and hence never increases
    while λ·(smallest eigenvalue of W) ≥ −2. For the directed graph and the authors' energy nothing
    is proved. It decreased at every step on all real tasks that were tried, and increased on about
    one in twenty small random tasks.

    Differs from the authors' code: a query is never its own neighbour, also when it has duplicates;
    with too few queries all others are neighbours.

    Reference: Ziko, Dolz, Granger, Ben Ayed, "Laplacian regularized few-shot learning", ICML 2020.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> laplacianshot(tasks, scale=None).labels.tolist()
    [[0, 1]]
    """
    tasks = transform(tasks, scale)
    n_tasks = tasks.n_tasks
    device = tasks.device
    centres = prototypes(tasks)
    unary = squared_distances(tasks.query, centres)
    graph = nearest_others(tasks.query, n_neighbors)
    if symmetric:
        graph = (graph + graph.mT) / 2
    graph = graph * graph_weight
    u = (-unary).softmax(-1)
    pull = graph @ u
    answer = torch.empty_like(u)
    alive, n_iter, converged = all_running(n_tasks, max_iter, device)
    recorder = Recorder(("entropy", "unary", "affinity"))
    energy = torch.zeros(n_tasks, dtype=tasks.dtype, device=device)
    for iteration in range(max_iter):
        u = (pull - unary).softmax(-1)
        pull = graph @ u
        terms = torch.stack(
            [torch.xlogy(u, u).sum((1, 2)), (u * unary).sum((1, 2)), -(u * pull).sum((1, 2))]
        )
        if with_objective:
            recorder.add(terms, alive)
        before = energy
        energy = terms.sum(0)
        if iteration < 2:
            continue
        done = (energy - before).abs() <= tol * before.abs()
        if bool(done.any()):
            answer[alive[done]] = u[done]
            n_iter[alive[done]] = iteration + 1
            converged[alive[done]] = True
            alive, u, unary, graph, pull, energy = (
                value[~done] for value in (alive, u, unary, graph, pull, energy)
            )
            if len(alive) == 0:
                break
    answer[alive] = u
    return Solution(answer, n_iter, converged, lambda: centres, objective_parts=recorder.parts)
