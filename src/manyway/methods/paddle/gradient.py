"""PADDLE's objective by projected gradient steps: the paper's ablation of the optimizer."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from manyway.core import (
    Recorder,
    Solution,
    Tasks,
    all_running,
    column_sums,
    dot_scores,
    prototypes,
    simplex_projection,
)
from manyway.methods.calibration.transforms import transform
from manyway.methods.gradient.information import Adam, flipped
from manyway.methods.paddle.forms import FeatureForm, Form, half_norms, prototype_form

# The assignments u [t, q, k], then the optimizer's state. Every tensor has three axes, tasks first.
Variables = tuple[Tensor, ...]


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

    from w = the support's class means and u = softmax_k(−½‖w_k − z_q‖²).
    The support's assignments are its labels.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.
    optimizer : {"adam", "gradient"}, default="adam"
        ``adam``, the paper's choice, takes a step of Adam on u and w together and projects each u_q
        onto the simplex. ``gradient`` takes a plain projected gradient step on u, with each w_k at
        the weighted mean of its samples.
    lr : float, default=1e-3
        Learning rate of Adam. It is the length of plain steps too.
    lam : float or None, default=None
        λ, the weight of the partition complexity. None is λ = |Q|.
    eps : float, default=1e-12
        ε, which keeps the logarithm finite.
    max_iter : int, default=1000
        The largest number of iterations.
    tol : float or None, default=None
        A task stops when an iteration changes less than this. The change is the mean over classes
        of ‖w_new − w_old‖. None does all ``max_iter`` iterations.
    scale : str or None, default="range"
        Feature transform; None uses the features as they are.
    with_objective : bool, default=False
        Whether to record the objective after each iteration.
        Its terms are ``fit`` and ``complexity``.

    Returns
    -------
    Solution
        ``converged`` says whether ``tol`` was met; without ``tol`` it is False.

    Notes
    -----
    A step of Adam has about the size ``lr`` in every coordinate, whatever the gradient, so the
    objective need not decrease. With w at the weighted means the objective is a concave function of
    u: a plain projected step of any length never increases it, and the steps end at a corner of the
    simplex, that is in hard assignments.

    Differs from the authors' code: the complexity has the paper's sign (theirs rewards many
    classes); u keeps moving after the first projection (theirs detaches it, and so scores as
    the class means do).

    Reference: an ablation in Martin et al., NeurIPS 2022; see ``paddle``.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0], [1.0], [5.0]]], [[0, 1, 2]], [[[0.1], [0.2], [0.1], [4.8]]])
    >>> paddle_pgd(tasks, optimizer="gradient", scale=None).labels.tolist()
    [[0, 0, 0, 2]]
    """
    tasks = transform(tasks, scale)
    if lam is None:
        lam = float(tasks.n_query)
    form = prototype_form(tasks, "feature" if optimizer == "adam" else None)
    descent = PlainSteps(form, lr, lam, eps)
    if optimizer == "adam" and isinstance(form, FeatureForm):
        descent = AdamSteps(form, lr, lam, eps)
    state = descent.start(dot_scores(tasks.query, prototypes(tasks)).softmax(-1))
    _, n_iter, converged = all_running(tasks.n_tasks, max_iter, tasks.device)
    norms = half_norms(tasks, descent.form) if with_objective else None
    recorder = Recorder(("fit", "complexity"))
    for iteration in range(max_iter):
        before = state
        state = descent.step(state, iteration + 1)
        if tol is not None:  # a task that has stopped does not move any more
            both = zip(before, state, strict=True)
            stopped = converged.view(-1, 1, 1)
            state = tuple(torch.where(stopped, old, new) for old, new in both)
            done = (descent.movement(before, state) < tol) & ~converged
            n_iter = n_iter.masked_fill(done, iteration + 1)
            converged = converged | done
        if norms is not None:
            proportions = state[0].mean(1) + eps
            complexity = -lam * torch.xlogy(proportions, proportions).sum(-1)
            recorder.add(torch.stack([norms - descent.explained(state), complexity]))
        if tol is not None and bool(converged.all()):
            break
    return Solution(
        state[0],
        n_iter,
        converged,
        lambda: descent.prototypes(state),
        objective_parts=recorder.parts,
    )


@dataclass(frozen=True, eq=False)
class PlainSteps:
    """Projected gradient steps on u, with w at the weighted means.

    These are optimal for u. The state is u.
    """

    form: Form
    lr: float
    lam: float
    eps: float

    def start(self, u: Tensor) -> Variables:
        return (u,)

    def step(self, state: Variables, number: int) -> Variables:
        # −scores differs from ½‖w − z‖² by a constant per row, which does not change the projection.
        (u,) = state
        slope = _complexity_slope(u, self.lam, self.eps) - self.form.scores(u)
        return (simplex_projection(u.sub(slope, alpha=self.lr)),)

    def movement(self, before: Variables, after: Variables) -> Tensor:
        """[t] mean over classes of ‖w_after − w_before‖."""
        return self.form.movement(before[0], after[0])

    def explained(self, state: Variables) -> Tensor:
        """[t] = ½ Σ_n ‖z_n‖² − ½ Σ_nk u_nk ‖w_k − z_n‖²."""
        return self.form.explained(state[0]) / 2

    def prototypes(self, state: Variables) -> Tensor:
        """[t, k, d]"""
        return self.form.prototypes(state[0])


@dataclass(frozen=True, eq=False)
class AdamSteps(PlainSteps):
    """Steps of Adam on u and w [t, k, d] together. State: ``Adam`` of u, and that of w."""

    form: FeatureForm

    def start(self, u: Tensor) -> Variables:
        w = self.form.sums / self.form.counts.unsqueeze(-1)
        return (*Adam.start(u), *Adam.start(w))

    def step(self, state: Variables, number: int) -> Variables:
        u = Adam(*state[:3])
        w = Adam(*state[3:])
        u_slope, w_slope = self.gradient(u.parameters, w.parameters)
        u = u.step(u_slope, number, self.lr)
        w = w.step(w_slope, number, self.lr)
        return (*u._replace(parameters=simplex_projection(u.parameters)), *w)

    def gradient(self, u: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """The objective's gradient in u [t, q, k] and in w [t, k, d]."""
        query = self.form.query
        norms = w.square().sum(-1).unsqueeze(1) / 2 + _complexity_slope(u, self.lam, self.eps)
        u_slope = torch.baddbmm(norms, query, flipped(w), alpha=-1).add_(
            query.square().sum(-1, keepdim=True) / 2
        )
        return u_slope, self._pull(u).addcmul_(w, self._masses(u))

    def movement(self, before: Variables, after: Variables) -> Tensor:
        """[t] mean over classes of ‖w_after − w_before‖."""
        return (after[3] - before[3]).square().sum(-1).sqrt().mean(-1)

    def explained(self, state: Variables) -> Tensor:
        """[t] = ½ Σ_n ‖z_n‖² − ½ Σ_nk u_nk ‖w_k − z_n‖²."""
        u = state[0]
        w = state[3]
        return -(w * torch.addcmul(self._pull(u), w, self._masses(u), value=0.5)).sum((1, 2))

    def prototypes(self, state: Variables) -> Tensor:
        """[t, k, d]"""
        return state[3] + self.form.centre

    def _pull(self, u: Tensor) -> Tensor:
        """[t, k, d] = −Σ_n u_nk z_n."""
        return torch.baddbmm(self.form.sums, u.mT, self.form.query, beta=-1, alpha=-1)

    def _masses(self, u: Tensor) -> Tensor:
        """[t, k, 1] = Σ_n u_nk."""
        return (self.form.counts + column_sums(u)).unsqueeze(-1)


def _complexity_slope(u: Tensor, lam: float, eps: float) -> Tensor:
    """[t, 1, k] the derivative in u of the complexity term, −λ Σ (π + ε) ln(π + ε)."""
    return (column_sums(u).unsqueeze(1) / u.shape[1] + eps).log_().add_(1).mul_(-lam / u.shape[1])
