"""Two ways to take a projected gradient step on PADDLE's objective (see ``paddle_pgd``)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from manyway.core.ops import column_sums, simplex_projection
from manyway.methods.gradient.adam import adam_step
from manyway.methods.gradient.heads import flipped
from manyway.methods.paddle.forms import FeatureForm, GramForm

# The assignments u [t, q, k], then the optimizer's state. Every tensor has three axes, tasks first.
State = tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class PlainSteps:
    """Projected gradient steps on u, with w at the weighted means, which are optimal for u. State: u."""

    form: FeatureForm | GramForm
    lr: float
    lam: float
    eps: float

    def start(self, u: Tensor) -> State:
        return (u,)

    def step(self, state: State, number: int) -> State:
        # −scores differs from ½‖w − z‖² by a constant per row, which does not change the projection.
        (u,) = state
        slope = _complexity_slope(u, self.lam, self.eps) - self.form.scores(u)
        return (simplex_projection(u.sub(slope, alpha=self.lr)),)

    def movement(self, before: State, after: State) -> Tensor:
        """[t] mean over classes of ‖w_after − w_before‖."""
        return self.form.movement(before[0], after[0])

    def explained(self, state: State) -> Tensor:
        """[t] = ½ Σ_n ‖z_n‖² − ½ Σ_nk u_nk ‖w_k − z_n‖²."""
        return self.form.explained(state[0]) / 2

    def prototypes(self, state: State) -> Tensor:
        """[t, k, d]"""
        return self.form.prototypes(state[0])


@dataclass(frozen=True, eq=False)
class AdamSteps:
    """Steps of Adam on u and w together. State: u and its two running means, w [t, k, d] and its two."""

    form: FeatureForm
    lr: float
    lam: float
    eps: float

    def start(self, u: Tensor) -> State:
        w = self.form.sums / self.form.counts.unsqueeze(-1)
        return u, torch.zeros_like(u), torch.zeros_like(u), w, torch.zeros_like(w), torch.zeros_like(w)

    def step(self, state: State, number: int) -> State:
        u, u_mean, u_square, w, w_mean, w_square = state
        u_slope, w_slope = self.gradient(u, w)
        u, u_mean, u_square = adam_step(u, u_mean, u_square, u_slope, number, self.lr)
        w, w_mean, w_square = adam_step(w, w_mean, w_square, w_slope, number, self.lr)
        return simplex_projection(u), u_mean, u_square, w, w_mean, w_square

    def gradient(self, u: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """The objective's gradient in u [t, q, k] and in w [t, k, d]."""
        query = self.form.query
        norms = w.square().sum(-1).unsqueeze(1) / 2 + _complexity_slope(u, self.lam, self.eps)
        u_slope = torch.baddbmm(norms, query, flipped(w), alpha=-1).add_(query.square().sum(-1, keepdim=True) / 2)
        return u_slope, self._pull(u).addcmul_(w, self._masses(u))

    def movement(self, before: State, after: State) -> Tensor:
        """[t] mean over classes of ‖w_after − w_before‖."""
        return (after[3] - before[3]).square().sum(-1).sqrt().mean(-1)

    def explained(self, state: State) -> Tensor:
        """[t] = ½ Σ_n ‖z_n‖² − ½ Σ_nk u_nk ‖w_k − z_n‖²."""
        u, w = state[0], state[3]
        return -(w * torch.addcmul(self._pull(u), w, self._masses(u), value=0.5)).sum((1, 2))

    def prototypes(self, state: State) -> Tensor:
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
    proportions = column_sums(u).unsqueeze(1) / u.shape[1]
    return (proportions + eps).log_().add_(1).mul_(-lam / u.shape[1])
