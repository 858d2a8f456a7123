"""The loss that Baseline, TIM and α-TIM minimise by gradient steps, with its gradient written out.

A classifier has one weight vector per class, w [t, k, d]. With P = softmax(logits) and π = mean_q P_q, a task's loss is

    λ₁ · mean_s −ln P_{s, y_s}  −  λ₂ · H_a(π)  +  λ₃ · mean_q H_b(P_q),     H_a(p) = (1 − Σ p^a) / (a − 1),

where H_1 is Shannon's entropy. Its derivative with respect to the logits is P − y on the support (times λ₁/|S|), and
P ∘ (g − ⟨P, g⟩) on the queries (times 1/|Q|), where g is the loss's derivative in P up to a constant.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from manyway.core import Recorder, threads_for
from manyway.core.kernels import halves_fused, tensor_cores
from manyway.errors import InputError
from manyway.methods.gradient.heads import Euclidean, Head, adam_step

TERMS = ("cross_entropy", "marginal", "conditional")


@dataclass(frozen=True)
class Information:
    """The loss: its weights (λ₁, λ₂, λ₃) and the orders (a, b) of its two entropies."""

    weights: Sequence[float]
    alphas: Sequence[float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        if len(self.weights) != 3 or len(self.alphas) != 2:
            three = f"weights {tuple(self.weights)} must be three numbers (cross-entropy, marginal, conditional)"
            raise InputError(f"{three} and alphas {tuple(self.alphas)} two (marginal, conditional).")

    def slopes(self, logits: Tensor, labels: Tensor) -> Tensor:
        """[t, n, k] derivatives in the logits; the first rows are those of the support."""
        n_support, n_query = labels.shape[1], logits.shape[1] - labels.shape[1]
        slopes = torch.empty_like(logits)
        support, query = slopes[:, :n_support], slopes[:, n_support:]
        torch.softmax(logits[:, :n_support], -1, out=support)
        support.scatter_add_(-1, labels.unsqueeze(-1), logits.new_full((1, 1, 1), -1.0).expand(*labels.shape, 1))
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
        support, query = log_p[:, :n_support], log_p[:, n_support:]
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
    samples: Tensor, labels: Tensor, start: Tensor, head: Head, loss: Information, lr: float, max_iter: int, trace: bool
) -> tuple[Tensor, Recorder]:
    """Minimise a loss over the weights of a classifier by ``max_iter`` steps of Adam.

    ``samples`` [t, n, d] are the support, followed by the queries if the loss has terms for them; ``labels`` [t, s] are
    those of the support, and ``start`` [t, k, d] the first weights. Returns the last weights [t, k, d] and, with
    ``trace``, the terms of the loss after each step.

    On a GPU the products of a step are computed in TF32 or float16, which have the same number of digits; this does not
    change the accuracy on real features.
    """
    if not trace and halves_fused(samples) and isinstance(head, Euclidean):
        from manyway.methods.gradient import kernel

        # Float16 has numbers from 6e-8 to 65504.
        in_range = 0.1 < float(samples.norm(dim=-1).amax()) < 10_000
        if in_range and kernel.fits(start.shape[1], samples.shape[1] - labels.shape[1]):
            parameters = ((loss.weights, loss.alphas), head.logit_scale, lr, max_iter)
            return kernel.descend(samples, labels, start, *parameters), Recorder(TERMS)
    w, mean, square = start, torch.zeros_like(start), torch.zeros_like(start)
    terms = Recorder(TERMS)
    with tensor_cores(samples), threads_for(samples.shape[1] * start.shape[1]):
        for step in range(1, max_iter + 1):
            logits = head.logits(samples, w)
            if trace and step > 1:
                terms.add(loss.terms(logits, labels))
            slopes = loss.slopes(logits, labels)
            w, mean, square = adam_step(w, mean, square, head.pull_back(slopes, samples, w), step, lr)
    if trace:
        terms.add(loss.terms(head.logits(samples, w), labels))
    return w, terms
