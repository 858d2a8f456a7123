"""PADDLE: fit queries with as few classes as needed (Martin et al., NeurIPS 2022).

Also soft K-means.
"""

from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from manyway.core import Recorder, Solution, Tasks, all_running
from manyway.core.kernels import fused
from manyway.methods._table.parameters import described_as
from manyway.methods.calibration.transforms import transform
from manyway.methods.paddle.forms import Form, GramForm, half_norms, prototype_form

# Iterations after which classes with almost no query may be skipped.
# In float64 all classes are always updated.
_ALL_CLASSES_UNTIL = 10
DEAD = 1e-5  # a class is dead when Σ_q u_qk is below this
_FEWEST_DEAD = 32  # with fewer dead classes, the selection costs more than it saves
_LEAVING = 8  # finished tasks leave the batch when they are at least one in so many
# In float32 the last digits of the assignments become constant,
# or repeat with a period of 2, 3 or 6.
_PERIOD = 6


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

    by block coordinate descent; n runs over support and queries, and the support's assignments are
    its labels y. From w = the support's class means and v = 0, repeat

        u_qk = softmax_k(−½‖w_k − z_q‖² + (λ/|Q|) v_k)
        v_k  = 1 + ln(π_k + ε)
        w_k  = (Σ_s y_sk z_s + Σ_q u_qk z_q) / (Σ_s y_sk + Σ_q u_qk).

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.
    lam : float or None, default=None
        λ, the weight of the partition complexity. None is λ = |Q|, with which this is EM for a
        mixture of unit Gaussians with learned proportions.
    eps : float, default=1e-6
        ε, which keeps the logarithm finite. With 0,
        a class whose proportion reaches 0 never returns.
    max_iter : int, default=100
        The largest number of iterations.
    tol : float or None, default=None
        A task stops when an iteration changes less than this. The change is the mean over classes
        of ‖w_new − w_old‖; the paper's figure uses 1e-6. None does all ``max_iter`` iterations, as
        the paper's tables do.
    scale : str or None, default="range"
        Feature transform; None uses the features as they are.
        Distances enter a softmax, so the scale of the features matters.
    form : {"gram", "feature"} or None, default=None
        Whether to iterate on inner products among queries or on d-dimensional prototypes. Both give
        the same numbers; None takes the cheaper one.
    with_objective : bool, default=False
        Whether to record the objective after each iteration.
        Its terms are ``fit``, ``complexity`` and ``barrier``.

    Returns
    -------
    Solution
        ``converged`` says whether ``tol`` was met; without ``tol`` it is False.

    Notes
    -----
    Differs from the printed algorithm: w is updated with the current u, as in the authors' code and
    in their proof of convergence; the printed algorithm has the previous u. The paper does not name
    its feature scaling; ``range`` is that of the code behind its tables.

    In float32, iterations that cannot change the result are skipped, and classes with almost no
    query are updated only in every sixth iteration (``live_iterations``).

    Reference: Martin, Boudiaf, Chouzenoux, Pesquet, Ben Ayed, "Towards practical few-shot query
    sets: transductive minimum description length inference", NeurIPS 2022.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0], [1.0], [5.0]]], [[0, 1, 2]], [[[0.1], [0.2], [0.1], [4.8]]])
    >>> paddle(tasks, scale=None).labels.tolist()
    [[0, 0, 0, 2]]
    """
    tasks = transform(tasks, scale)
    problem = prototype_form(tasks, form)
    weight = 1.0 if lam is None else lam / tasks.n_query
    if isinstance(problem, GramForm) and not with_objective and fused(problem.gram):
        solution = _fused(problem, weight, eps, max_iter, tol)
        if solution is not None:
            return solution
    norms = half_norms(tasks, problem) if with_objective else None
    return _descend(tasks, problem, norms, _Stop(max_iter, tol), weight=weight, eps=eps)


class _Stop(NamedTuple):
    """When the iterations end."""

    max_iter: int
    tol: float | None


def _descend(
    tasks: Tasks, everything: Form, norms: Tensor | None, stop: _Stop, *, weight: float, eps: float
) -> Solution:
    """The updates of ``paddle``. ``norms`` are given where the objective is wanted.

    ``weight`` is λ/|Q|.
    """
    max_iter, tol = stop
    problem = everything  # of the tasks that still run
    shape = (tasks.n_tasks, tasks.n_query, tasks.n_classes)
    u = torch.zeros(shape, dtype=tasks.dtype, device=tasks.device)
    answer = torch.empty_like(u)
    bias: Tensor | None = None  # (λ/|Q|) v [t, 1, k]; None while v = 0
    mark: Tensor | None = None  # u at the end of the last period
    alive, n_iter, converged = all_running(tasks.n_tasks, max_iter, tasks.device)
    recorder = Recorder(("fit", "complexity", "barrier"))
    iteration = 0
    while iteration < max_iter:
        logits = problem.scores(u, bias)
        previous = u
        u = logits.softmax(-1)
        iteration += 1
        if norms is not None:
            recorder.add(_terms(problem, u, norms[alive], weight * tasks.n_query, eps), alive)
        at_mark = tol is None and norms is None and (max_iter - iteration) % _PERIOD == 0
        done = None
        if tol is not None:
            done = problem.movement(previous, u) < tol
        elif at_mark:
            done = _repeating(u, previous, mark)
        if done is not None and bool(done.any()):
            answer[alive[done]] = u[done]
            if tol is not None:
                n_iter[alive[done]] = iteration
                converged[alive[done]] = True
            alive = alive[~done]
            u = u[~done]
            logits = logits[~done]
            problem = problem.take(~done)
            if len(alive) == 0:
                break
        if at_mark:
            mark = u
            if u.dtype == torch.float32 and _ALL_CLASSES_UNTIL <= iteration < max_iter:
                live = live_iterations(problem, logits, u, weight=weight, eps=eps)
                if live is not None:
                    u = live
                    iteration += _PERIOD - 1
        if weight:
            bias = dual(u, weight, eps)
    answer[alive] = u
    make_prototypes = partial(everything.prototypes, answer)
    return Solution(answer, n_iter, converged, make_prototypes, objective_parts=recorder.parts)


def _repeating(u: Tensor, previous: Tensor, mark: Tensor | None) -> Tensor | None:
    """[t] the tasks that further iterations do not change; None where they are too few to leave.

    Assignments that equal, bit for bit, the previous ones or those of one period ago (``mark``)
    repeat at the end of every period, hence also at the last iteration: the iterations in between
    can be skipped. Removing tasks copies the others, so it waits until enough tasks are done; the
    others are unaffected.
    """
    done = _repeats(u, previous)
    if mark is not None:
        done |= _repeats(u, mark)
    if int(done.sum()) * _LEAVING < len(done):
        return None
    return done


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

    Minimises ½ Σ_nk u_nk ‖w_k − z_n‖² + Σ_qk u_qk ln u_qk by the updates of ``paddle``
    without the duals v.

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
    Nothing favours few classes, so the queries are spread over all of them. The difference between
    its accuracy and PADDLE's is the effect of the complexity term.

    Reference: an ablation in Martin et al., NeurIPS 2022; see ``paddle``.

    Examples
    --------
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


def _repeats(u: Tensor, earlier: Tensor) -> Tensor:
    """[t] whether the assignments of a task are equal, bit for bit."""
    return (u == earlier).flatten(1).all(1)


def _fused(
    problem: GramForm, weight: float, eps: float, max_iter: int, tol: float | None
) -> Solution | None:
    """Run the fused kernel; None when the problem is too large for it or not in float32."""
    from manyway.methods.paddle.kernel import MAX_QUERY, iterate

    if problem.gram.dtype != torch.float32 or problem.gram.shape[1] > MAX_QUERY:
        return None
    answer, n_iter, converged = iterate(problem, weight=weight, eps=eps, max_iter=max_iter, tol=tol)
    return Solution(answer, n_iter, converged, make_prototypes=lambda: problem.prototypes(answer))


def _terms(problem: Form, u: Tensor, half_norms: Tensor, lam: float, eps: float) -> Tensor:
    """[3, t] the terms of the objective at u, with the w and v that are optimal for u."""
    fit = half_norms - problem.explained(u) / 2
    proportions = u.mean(1) + eps
    # λ Σ e^{v−1} − λ ⟨v, π + ε⟩ at v = 1 + ln(π + ε)
    complexity = -lam * torch.xlogy(proportions, proportions).sum(-1)
    return torch.stack([fit, complexity, torch.xlogy(u, u).sum((1, 2))])


def dual(u: Tensor, weight: float, eps: float) -> Tensor:
    """[t, 1, k] = (λ/|Q|) v for the v that is optimal for u; ``weight`` is λ/|Q|."""
    return (u.mean(1, keepdim=True) + eps).log_().add_(1).mul_(weight)


def live_iterations(
    form: Form,
    logits: Tensor,
    u: Tensor,
    *,
    weight: float,
    eps: float,
    count: int = _PERIOD - 1,
) -> Tensor | None:
    """Do ``count`` iterations that update live classes only.

    None when so many are live that nothing would be saved.

    ``logits`` and ``u`` [t, q, k] are those of a full iteration; ``weight`` is λ/|Q|.
    Returns new assignments.

    PADDLE leaves most classes with almost no query. These classes are called dead here. Their
    prototypes and duals hardly move, and yet they are most of the work. A full iteration is
    therefore followed by several that update the live classes only: for each query, its dead
    classes are one additional column of the softmax, with the logits that they had. The next full
    iteration updates every class and selects the live ones again, so that a class can return.

    Both iterations have the same fixed points. Before a fixed point is reached, they differ by the
    changes that the dead classes would have made in the meantime, at most ``DEAD`` queries each.
    """
    n_query, n_classes = u.shape[1:]
    masses = u.sum(1)
    n_live = int((masses > DEAD).sum(1).max())
    # one column more makes a multiple of 4: products of such a width are faster
    n_live = n_live // 4 * 4 + 3
    if n_classes - n_live < max(_FEWEST_DEAD, n_live):
        return None
    # One class more than the live ones: its column holds the dead classes together.
    chosen = masses.topk(n_live + 1).indices
    live = chosen[:, :-1].sort(1).values
    columns = live.unsqueeze(1).expand(-1, n_query, -1)
    form = form.take_classes(torch.cat([live, chosen[:, -1:]], 1))
    part = u.gather(2, columns)
    # [t, q, 1] the probability of the dead classes together
    dead = u.scatter(2, columns, 0).sum(2, keepdim=True)
    largest, at = part.max(2, keepdim=True)
    together = logits.gather(2, live.gather(1, at.squeeze(2)).unsqueeze(2)) + (dead / largest).log()
    both = torch.cat([part, dead], 2)  # [t, q, l+1]
    for _ in range(count):
        scores = form.scores(both, dual(both, weight, eps) if weight else None)
        scores[..., -1:] = together
        both = scores.softmax(2)
    return (u * (both[..., -1:] / dead).nan_to_num_(0)).scatter_(2, columns, both[..., :-1])
