"""LaplacianShot: nearest prototypes that agree with nearby queries (Ziko et al., ICML 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from manyway.core.ops import nearest_others, prototypes, squared_distances
from manyway.core.solution import Recorder, Solution
from manyway.core.tasks import Tasks
from manyway.core.transforms import transform

_TERMS = ("entropy", "unary", "affinity")


def laplacianshot(
    tasks: Tasks,
    *,
    lam: float = 0.7,
    knn: int = 3,
    symmetric: bool = False,
    max_iter: int = 20,
    tol: float = 1e-6,
    scale: str | None = "cl2",
    with_objective: bool = False,
) -> Solution:
    """Distances to fixed prototypes, smoothed over the graph of nearest queries.

    With a_qk = ‖z_q − w_k‖², w the support's class means, and W_qp = 1 for the ``knn`` − 1 other queries p nearest to q
    (``knn`` counts the query itself), it repeats, from u = softmax(−a),

        u = softmax_k(−a + λ W u)

    and stops a task, from the third iteration on, when its energy

        Σ u ln u  +  Σ u·a  −  λ Σ u·(W u)

    changes by less than ``tol`` relatively. ``with_objective`` records that energy and its terms ``entropy``, ``unary``
    and ``affinity``. Queries are only compared with one another: nothing is assumed about which classes occur.

    The defaults are those of the PADDLE paper's experiments on mini- and tiered-ImageNet; on iNat it took λ = 1 and
    ``knn`` = 10. LaplacianShot's authors tune λ on validation classes.

    Does the energy always fall? The iteration is a descent of the energy with λ/2 in place of λ, for a symmetric graph:
    that one changes by −KL(u_old‖u_new) − (λ/2) Σ Δ·(W Δ), Δ = u_new − u_old, hence never increases while
    λ·(smallest eigenvalue of W) ≥ −2. ``symmetric=True`` uses (W + Wᵀ)/2. For the directed graph and the authors'
    energy, which are what you get here, nothing is proved: it fell at every step on all real tasks that were tried, and
    rose on about one in twenty of small random ones.

    Differs from the authors' code in: a query is never its own neighbour, also when it has duplicates; with fewer than
    ``knn`` queries all others are neighbours.

    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [1.0, 0.2]]])
    >>> laplacianshot(tasks, scale=None).labels.tolist()
    [[0, 1]]
    """
    tasks = transform(tasks, scale)
    n_tasks, device = tasks.n_tasks, tasks.device
    centres = prototypes(tasks)
    unary = squared_distances(tasks.query, centres)
    graph = nearest_others(tasks.query, knn - 1)
    if symmetric:
        graph = (graph + graph.mT) / 2
    graph = graph * lam
    u = (-unary).softmax(-1)
    pull = graph @ u
    answer = u
    alive = torch.arange(n_tasks, device=device)  # the tasks that still iterate
    n_iter = torch.full((n_tasks,), max_iter, device=device)
    converged = torch.zeros(n_tasks, dtype=torch.bool, device=device)
    recorder = Recorder(_TERMS) if with_objective else None
    energy = torch.zeros(n_tasks, dtype=tasks.dtype, device=device)
    for iteration in range(max_iter):
        u = (pull - unary).softmax(-1)
        pull = graph @ u
        terms = _terms(u, unary, pull)
        if recorder is not None:
            recorder.add(terms, alive)
        before, energy = energy, terms.sum(0)
        if iteration == 0:
            answer = torch.empty_like(u)
        if iteration < 2:
            continue
        done = (energy - before).abs() <= tol * before.abs()
        if bool(done.any()):
            answer[alive[done]], n_iter[alive[done]], converged[alive[done]] = u[done], iteration + 1, True
            alive, u, unary, graph, pull, energy = (value[~done] for value in (alive, u, unary, graph, pull, energy))
            if len(alive) == 0:
                break
    answer[alive] = u
    return Solution(
        probabilities=answer,
        n_iter=n_iter,
        converged=converged,
        make_prototypes=lambda: centres,
        objective=None if recorder is None else recorder.total,
        objective_parts=None if recorder is None else recorder.parts,
    )


def _terms(u: Tensor, unary: Tensor, pull: Tensor) -> Tensor:
    """[3, t] the terms of the energy; pull is λ W u."""
    return torch.stack([torch.xlogy(u, u).sum((1, 2)), (u * unary).sum((1, 2)), -(u * pull).sum((1, 2))])
