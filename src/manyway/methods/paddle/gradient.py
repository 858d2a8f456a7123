"""PADDLE's objective by projected gradient steps: the paper's ablation of the optimizer."""

from typing import Literal

import torch

from manyway.core.ops import dot_scores, prototypes
from manyway.core.solution import Recorder, Solution
from manyway.core.tasks import Tasks
from manyway.methods.calibration.scaling import transform
from manyway.methods.paddle.forms import FeatureForm, half_norms, prototype_form
from manyway.methods.paddle.projected import AdamSteps, PlainSteps


def paddle_pgd(
    tasks: Tasks,
    *,
    optimizer: Literal["adam", "gradient"] = "adam",
    lr: float = 1e-3,
    lam: float | None = None,
    eps: float = 1e-12,
    max_iter: int = 1000,
    tol: float | None = None,
    scale: str | None = "range",
    with_objective: bool = False,
) -> Solution:
    """Minimise PADDLE's objective by projected gradient descent, without its dual and its barrier.

    Minimises over the queries' assignments u, on the simplex, and the prototypes w

        ½ Σ_nk u_nk ‖w_k − z_n‖²  −  λ Σ_k (π_k + ε) ln(π_k + ε),     π_k = mean_q u_qk,

    from w = the support's class means and u = softmax_k(−½‖w_k − z_q‖²). The support's assignments are its labels.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.
    optimizer : {"adam", "gradient"}, default="adam"
        ``adam``, the paper's choice, takes a step of Adam on u and w together and projects each u_q onto the simplex.
        ``gradient`` takes a plain projected gradient step on u, with each w_k at the weighted mean of its samples.
    lr : float, default=1e-3
        Learning rate of Adam. It is the length of plain steps too.
    lam : float or None, default=None
        λ, the weight of the partition complexity. None is λ = |Q|.
    eps : float, default=1e-12
        ε, which keeps the logarithm finite.
    max_iter : int, default=1000
        The largest number of iterations.
    tol : float or None, default=None
        A task stops when an iteration changes less than this. The change is the mean over classes of ‖w_new − w_old‖.
        None does all ``max_iter`` iterations.
    scale : str or None, default="range"
        Feature transform; None uses the features as they are.
    with_objective : bool, default=False
        Whether to record the objective after each iteration. Its terms are ``fit`` and ``complexity``.

    Returns
    -------
    Solution
        ``converged`` says whether ``tol`` was met; without ``tol`` it is False.

    Notes
    -----
    A step of Adam has about the size ``lr`` in every coordinate, whatever the gradient, so the objective need not
    decrease. With w at the weighted means the objective is a concave function of u: a plain projected step of any
    length never increases it, and the steps end at a corner of the simplex, that is in hard assignments.

    Differs from the authors' code: the complexity has the paper's sign (theirs rewards many classes); u keeps moving
    after the first projection (theirs detaches it, and so scores as the class means do).

    Reference: an ablation in Martin et al., NeurIPS 2022; see ``paddle``.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0], [1.0], [5.0]]], [[0, 1, 2]], [[[0.1], [0.2], [0.1], [4.8]]])
    >>> paddle_pgd(tasks, optimizer="gradient", scale=None).labels.tolist()
    [[0, 0, 0, 2]]
    """
    tasks = transform(tasks, scale)
    lam = float(tasks.n_query) if lam is None else lam
    form = prototype_form(tasks, "feature" if optimizer == "adam" else None)
    descent: AdamSteps | PlainSteps = PlainSteps(form, lr, lam, eps)
    if optimizer == "adam" and isinstance(form, FeatureForm):
        descent = AdamSteps(form, lr, lam, eps)
    state = descent.start(dot_scores(tasks.query, prototypes(tasks)).softmax(-1))
    n_iter = torch.full((tasks.n_tasks,), max_iter, device=tasks.device)
    converged = torch.zeros(tasks.n_tasks, dtype=torch.bool, device=tasks.device)
    norms = half_norms(tasks, descent.form) if with_objective else None
    recorder = Recorder(("fit", "complexity")) if with_objective else None
    for iteration in range(max_iter):
        before, state = state, descent.step(state, iteration + 1)
        if tol is not None:  # a task that has stopped does not move any more
            state = tuple(
                torch.where(converged.view(-1, 1, 1), old, new) for old, new in zip(before, state, strict=True)
            )
            done = (descent.movement(before, state) < tol) & ~converged
            n_iter = n_iter.masked_fill(done, iteration + 1)
            converged = converged | done
        if recorder is not None and norms is not None:
            proportions = state[0].mean(1) + eps
            complexity = -lam * torch.xlogy(proportions, proportions).sum(-1)
            recorder.add(torch.stack([norms - descent.explained(state), complexity]))
        if tol is not None and bool(converged.all()):
            break
    last = state
    return Solution(
        probabilities=last[0],
        n_iter=n_iter,
        converged=converged,
        make_prototypes=lambda: descent.prototypes(last),
        objective_parts=None if recorder is None else recorder.parts,
    )
