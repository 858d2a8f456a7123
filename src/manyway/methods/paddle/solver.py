"""PADDLE: fit a task's queries with as few classes as needed (Martin et al., NeurIPS 2022); and soft K-means."""

from typing import Literal

import torch
from torch import Tensor

from manyway.core import Recorder, Solution, Tasks
from manyway.core.kernels import fused
from manyway.methods._table.parameters import described_as
from manyway.methods.calibration.scaling import transform
from manyway.methods.paddle.forms import FeatureForm, GramForm, half_norms, prototype_form
from manyway.methods.paddle.live import dual, live_iterations

# Iterations after which classes with almost no query may be skipped. In float64 all classes are always updated.
_ALL_CLASSES_UNTIL = 10
_LEAVING = 8  # finished tasks leave the batch when they are at least one in so many
_PERIOD = 6  # in float32 the last digits of the assignments become constant, or repeat with a period of 2, 3 or 6


def paddle(
    tasks: Tasks,
    *,
    lam: float | None = None,
    eps: float = 1e-6,
    max_iter: int = 100,
    tol: float | None = None,
    scale: str | None = "range",
    form: Literal["gram", "feature"] | None = None,
    with_objective: bool = False,
) -> Solution:
    """Fit the queries with as few classes as needed, by penalised primal-dual updates (PADDLE).

    Minimises over the assignments u of the queries, the prototypes w and the duals v

        ½ Σ_nk u_nk ‖w_k − z_n‖²  +  λ Σ_k e^{v_k − 1} − λ ⟨v, π + ε⟩  +  Σ_qk u_qk ln u_qk,     π_k = mean_q u_qk,

    by block coordinate descent; n runs over support and queries, and the support's assignments are its labels y. From
    w = the support's class means and v = 0, repeat

        u_qk = softmax_k(−½‖w_k − z_q‖² + (λ/|Q|) v_k)
        v_k  = 1 + ln(π_k + ε)
        w_k  = (Σ_s y_sk z_s + Σ_q u_qk z_q) / (Σ_s y_sk + Σ_q u_qk).

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.
    lam : float or None, default=None
        λ, the weight of the partition complexity. None is λ = |Q|, with which this is EM for a mixture of unit
        Gaussians with learned proportions.
    eps : float, default=1e-6
        ε, which keeps the logarithm finite. With 0, a class whose proportion reaches 0 never returns.
    max_iter : int, default=100
        The largest number of iterations.
    tol : float or None, default=None
        A task stops when an iteration changes less than this. The change is the mean over classes of ‖w_new − w_old‖;
        the paper's figure uses 1e-6. None does all ``max_iter`` iterations, as the paper's tables do.
    scale : str or None, default="range"
        Feature transform; None uses the features as they are. Distances enter a softmax, so the scale of the features
        matters.
    form : {"gram", "feature"} or None, default=None
        Whether to iterate on inner products among queries or on d-dimensional prototypes. Both give the same numbers;
        None takes the cheaper one.
    with_objective : bool, default=False
        Whether to record the objective after each iteration. Its terms are ``fit``, ``complexity`` and ``barrier``.

    Returns
    -------
    Solution
        ``converged`` says whether ``tol`` was met; without ``tol`` it is False.

    Notes
    -----
    Differs from the printed algorithm: w is updated with the current u, as in the authors' code and in their proof of
    convergence; the printed algorithm has the previous u. The paper does not name its feature scaling; ``range`` is
    that of the code behind its tables.

    In float32, iterations that cannot change the result are skipped, and classes with almost no query are updated only
    in every sixth iteration (``manyway.methods.paddle.live``).

    Reference: Martin, Boudiaf, Chouzenoux, Pesquet, Ben Ayed, "Towards practical few-shot query sets: transductive
    minimum description length inference", NeurIPS 2022.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0], [1.0], [5.0]]], [[0, 1, 2]], [[[0.1], [0.2], [0.1], [4.8]]])
    >>> paddle(tasks, scale=None).labels.tolist()
    [[0, 0, 0, 2]]
    """
    tasks = transform(tasks, scale)
    problem = everything = prototype_form(tasks, form)
    weight = 1.0 if lam is None else lam / tasks.n_query
    if isinstance(problem, GramForm) and not with_objective and fused(problem.gram):
        solution = _fused(problem, weight, eps, max_iter, tol)
        if solution is not None:
            return solution
    n_tasks, device = tasks.n_tasks, tasks.device
    u = torch.zeros(n_tasks, tasks.n_query, tasks.n_classes, dtype=tasks.dtype, device=device)
    answer = torch.empty_like(u)
    bias: Tensor | None = None  # (λ/|Q|) v [t, 1, k]; None while v = 0
    mark: Tensor | None = None  # u at the end of the last period
    alive = torch.arange(n_tasks, device=device)  # the tasks that still iterate
    n_iter = torch.full((n_tasks,), max_iter, device=device)
    converged = torch.zeros(n_tasks, dtype=torch.bool, device=device)
    recorder = Recorder(("fit", "complexity", "barrier"))
    norms = half_norms(tasks, problem) if with_objective else None
    iteration = 0
    while iteration < max_iter:
        logits = problem.scores(u, bias)
        previous, u = u, logits.softmax(-1)
        iteration += 1
        if norms is not None:
            recorder.add(_terms(problem, u, norms[alive], weight * tasks.n_query, eps), alive)
        at_mark = tol is None and norms is None and (max_iter - iteration) % _PERIOD == 0
        done = None
        if tol is not None:
            done = problem.movement(previous, u) < tol
        elif at_mark:
            # Assignments that equal, bit for bit, the previous ones or those of one period ago repeat at the end of
            # every period, hence also at the last iteration: the iterations in between can be skipped.
            done = _repeats(u, previous) if mark is None else _repeats(u, previous) | _repeats(u, mark)
            # Removing tasks copies the others, so it waits until enough tasks are done; the others are unaffected.
            if int(done.sum()) * _LEAVING < len(done):
                done = None
        if done is not None and bool(done.any()):
            answer[alive[done]] = u[done]
            if tol is not None:
                n_iter[alive[done]], converged[alive[done]] = iteration, True
            alive, u, logits, problem = alive[~done], u[~done], logits[~done], problem.take(~done)
            if len(alive) == 0:
                break
        if at_mark:
            mark = u
            if u.dtype == torch.float32 and _ALL_CLASSES_UNTIL <= iteration < max_iter:
                later = live_iterations(problem, logits, u, _PERIOD - 1, weight, eps)
                if later is not None:
                    u, iteration = later, iteration + _PERIOD - 1
        if weight:
            bias = dual(u, weight, eps)
    if len(alive) == n_tasks:
        answer = u
    else:
        answer[alive] = u
    return Solution(answer, n_iter, converged, lambda: everything.prototypes(answer), objective_parts=recorder.parts)


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


def _repeats(u: Tensor, earlier: Tensor) -> Tensor:
    """[t] whether the assignments of a task are equal, bit for bit."""
    return (u == earlier).flatten(1).all(1)


def _fused(problem: GramForm, weight: float, eps: float, max_iter: int, tol: float | None) -> Solution | None:
    """Run the fused kernel; None when the problem is too large for it or not in float32."""
    from manyway.methods.paddle.kernel import MAX_QUERY, iterate

    if problem.gram.dtype != torch.float32 or problem.gram.shape[1] > MAX_QUERY:
        return None
    given = problem.gram, problem.cross, problem.sum_norms, problem.counts
    answer, n_iter, converged = iterate(*given, weight=weight, eps=eps, max_iter=max_iter, tol=tol)
    return Solution(answer, n_iter, converged, make_prototypes=lambda: problem.prototypes(answer))


def _terms(problem: FeatureForm | GramForm, u: Tensor, half_norms: Tensor, lam: float, eps: float) -> Tensor:
    """[3, t] the terms of the objective at u, with the w and v that are optimal for u."""
    fit = half_norms - problem.explained(u) / 2
    proportions = u.mean(1) + eps
    # λ Σ e^{v−1} − λ ⟨v, π + ε⟩ at v = 1 + ln(π + ε)
    complexity = -lam * torch.xlogy(proportions, proportions).sum(-1)
    barrier = torch.xlogy(u, u).sum((1, 2))
    return torch.stack([fit, complexity, barrier])
