"""The linear classifiers that Baseline, TIM and α-TIM train, and their loss.

They minimise it by steps of Adam.

A classifier has one weight vector per class, w [t, k, d].
With P = softmax(logits) and π = mean_q P_q, a task's loss is

    λ₁ · mean_s −ln P_{s, y_s}  −  λ₂ · H_a(π)  +  λ₃ · mean_q H_b(P_q),     H_a(p) = (1 − Σ p^a) / (a − 1),

where H_1 is Shannon's entropy. Its derivative with respect to the logits is P − y on the support
(times λ₁/|S|), and P ∘ (g − ⟨P, g⟩) on the queries (times 1/|Q|), where g is the loss's derivative
in P up to a constant.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from manyway.core import Recorder, column_sums, threads_for
from manyway.core.kernels import halves_fused, tensor_cores
from manyway.errors import InputError
from manyway.methods.gradient import DECAY, EPS, SQUARE_DECAY

TERMS = ("cross_entropy", "marginal", "conditional")


class Head(Protocol):
    """A classifier with one weight vector per class, w [t, k, d]."""

    def logits(self, samples: Tensor, w: Tensor) -> Tensor:
        """[t, n, k] from samples [t, n, d] and w [t, k, d]."""

    def pull_back(self, slopes: Tensor, samples: Tensor, w: Tensor) -> Tensor:
        """[t, k, d] the gradient in w from the derivatives in the logits, [t, n, k]."""


@dataclass(frozen=True)
class Euclidean:
    """logit = −½ τ ‖z − w_k‖², up to ½ τ ‖z‖², which a softmax ignores."""

    logit_scale: float

    def logits(self, samples: Tensor, w: Tensor) -> Tensor:
        norms = w.square().sum(-1).unsqueeze(1)
        return torch.baddbmm(
            norms, samples, flipped(w), beta=-self.logit_scale / 2, alpha=self.logit_scale
        )

    def pull_back(self, slopes: Tensor, samples: Tensor, w: Tensor) -> Tensor:
        masses = column_sums(slopes).unsqueeze(-1)
        return torch.baddbmm(
            w * masses, slopes.mT, samples, beta=-self.logit_scale, alpha=self.logit_scale
        )


@dataclass(frozen=True)
class Cosine:
    """logit = τ cos(z, w_k), for samples that have norm 1."""

    logit_scale: float

    def logits(self, samples: Tensor, w: Tensor) -> Tensor:
        return samples @ flipped(w * (self.logit_scale / _norms(w)))

    def pull_back(self, slopes: Tensor, samples: Tensor, w: Tensor) -> Tensor:
        norms = _norms(w)
        pull = slopes.mT @ samples
        direction = w / norms
        # a cosine does not depend on the length of w
        along = (pull * direction).sum(-1, keepdim=True)
        return pull.addcmul_(direction, along, value=-1).mul_(self.logit_scale / norms)


def _norms(w: Tensor) -> Tensor:
    return w.square().sum(-1, keepdim=True).sqrt().clamp_min(torch.finfo(w.dtype).tiny)


def flipped(w: Tensor) -> Tensor:
    """[t, d, k] the transpose of w.

    On a CPU a copy costs less than a product with a transposed view.
    """
    return w.mT if w.is_cuda else w.mT.contiguous()


class Adam(NamedTuple):
    """Parameters that Adam moves, with its running means of the gradient and of its square.

    Adam (Kingma and Ba, 2015) moves every coordinate on its own. A batch of tasks moves as each
    would alone; the path depends on the coordinate system, so it cannot be computed in a
    rotated or reduced feature space.
    """

    parameters: Tensor
    mean: Tensor
    square: Tensor

    @staticmethod
    def start(parameters: Tensor) -> "Adam":
        """Before the first step."""
        return Adam(parameters, torch.zeros_like(parameters), torch.zeros_like(parameters))

    def step(self, gradient: Tensor, number: int, lr: float) -> "Adam":
        """Take step ``number`` (from 1)."""
        mean = self.mean.lerp(gradient, 1 - DECAY)
        square = (self.square * SQUARE_DECAY).addcmul_(gradient, gradient, value=1 - SQUARE_DECAY)
        # The bias corrections are folded into two constants, which saves passes over memory.
        root = sqrt(1 - SQUARE_DECAY**number)
        size = lr * root / (1 - DECAY**number)
        moved = self.parameters.addcdiv(mean, square.sqrt().add_(EPS * root), value=-size)
        return Adam(moved, mean, square)


@dataclass(frozen=True)
class Information:
    """The loss: its weights (λ₁, λ₂, λ₃) and the orders (a, b) of its two entropies."""

    weights: Sequence[float]
    alphas: Sequence[float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        if len(self.weights) != 3 or len(self.alphas) != 2:
            three = (
                f"weights {tuple(self.weights)} must be three numbers (cross-entropy, marginal, "
                "conditional)"
            )
            raise InputError(
                f"{three} and alphas {tuple(self.alphas)} two (marginal, conditional)."
            )

    def slopes(self, logits: Tensor, labels: Tensor) -> Tensor:
        """[t, n, k] derivatives in the logits; the first rows are those of the support."""
        n_support = labels.shape[1]
        n_query = logits.shape[1] - labels.shape[1]
        slopes = torch.empty_like(logits)
        support = slopes[:, :n_support]
        query = slopes[:, n_support:]
        torch.softmax(logits[:, :n_support], -1, out=support)
        support.scatter_add_(
            -1, labels.unsqueeze(-1), logits.new_full((1, 1, 1), -1.0).expand(*labels.shape, 1)
        )
        support.mul_(self.weights[0] / n_support)
        if n_query:
            query.copy_(self.query_slopes(logits[:, n_support:]))
        return slopes

    def query_slopes(self, logits: Tensor) -> Tensor:
        """[t, q, k] derivatives in the logits of the queries."""
        log_query = logits.log_softmax(-1)
        query = log_query.exp()
        log_marginal = query.mean(1, keepdim=True).clamp_min_(torch.finfo(logits.dtype).tiny).log_()
        pull = self.weights[1] * _slope(log_marginal, self.alphas[0])
        pull = pull - self.weights[2] * _slope(log_query, self.alphas[1])
        pull -= (query * pull).sum(-1, keepdim=True)
        return query.mul_(pull).mul_(1 / logits.shape[1])

    def terms(self, logits: Tensor, labels: Tensor) -> Tensor:
        """[3, t] the terms of the loss, weighted and signed, so that their sum is the loss."""
        n_support = labels.shape[1]
        log_p = logits.log_softmax(-1)
        support = log_p[:, :n_support]
        query = log_p[:, n_support:]
        cross_entropy = -support.gather(-1, labels.unsqueeze(-1)).mean((1, 2))
        marginal = conditional = torch.zeros_like(cross_entropy)
        if query.shape[1]:
            log_marginal = query.exp().mean(1).clamp_min_(torch.finfo(logits.dtype).tiny).log_()
            marginal = -_entropy(log_marginal, self.alphas[0])
            conditional = _entropy(query, self.alphas[1]).mean(1)
        terms = zip(self.weights, (cross_entropy, marginal, conditional), strict=True)
        return torch.stack([weight * term for weight, term in terms])


def _slope(log_p: Tensor, alpha: float) -> Tensor:
    """The derivative of −H_α in p, up to a constant."""
    if alpha == 1:
        return log_p
    exponents = (alpha - 1) * log_p
    # Near order 1 the constant 1/(α − 1), which changes nothing, would dominate the rounding; expm1 leaves it out.
    powers = exponents.expm1() if abs(alpha - 1) < 0.5 else exponents.exp()
    return powers.mul_(alpha / (alpha - 1))


def _entropy(log_p: Tensor, alpha: float) -> Tensor:
    """H_α along the last axis."""
    p = log_p.exp()
    if alpha == 1:
        return -(p * log_p).sum(-1)
    return -(p * ((alpha - 1) * log_p).expm1()).sum(-1) / (alpha - 1)


def descend(
    samples: Tensor,
    labels: Tensor,
    start: Tensor,
    head: Head,
    loss: Information,
    *,
    lr: float,
    max_iter: int,
    trace: bool,
) -> tuple[Tensor, Recorder]:
    """Minimise a loss over the weights of a classifier by ``max_iter`` steps of Adam.

    ``samples`` [t, n, d] are the support, followed by the queries if the loss has terms for them;
    ``labels`` [t, s] are those of the support, and ``start`` [t, k, d] the first weights. Returns
    the last weights [t, k, d] and, with ``trace``, the terms of the loss after each step.

    On a GPU the products of a step are computed in TF32 or float16, which have the same number of
    digits; this does not change the accuracy on real features.
    """
    if not trace and halves_fused(samples) and isinstance(head, Euclidean):
        from manyway.methods.gradient import kernel

        # Float16 has numbers from 6e-8 to 65504.
        in_range = 0.1 < float(samples.norm(dim=-1).amax()) < 10_000
        if in_range and kernel.fits(start.shape[1], samples.shape[1] - labels.shape[1]):
            parameters = ((loss.weights, loss.alphas), head.logit_scale, lr, max_iter)
            return kernel.descend(samples, labels, start, *parameters), Recorder(TERMS)
    adam = Adam.start(start)
    terms = Recorder(TERMS)
    with tensor_cores(samples), threads_for(samples.shape[1] * start.shape[1]):
        for step in range(1, max_iter + 1):
            logits = head.logits(samples, adam.parameters)
            if trace and step > 1:
                terms.add(loss.terms(logits, labels))
            slopes = loss.slopes(logits, labels)
            gradient = head.pull_back(slopes, samples, adam.parameters)
            adam = adam.step(gradient, step, lr)
    if trace:
        terms.add(loss.terms(head.logits(samples, adam.parameters), labels))
    return adam.parameters, terms
