"""Bias-corrected temperature scaling: logits / T + b, fitted to labelled samples, with priors.

Reference: Alexandari, Kundaje, Shrikumar, "Maximum likelihood with bias-corrected calibration is
hard-to-beat at label shift adaptation", ICML 2020. The priors are not theirs: 1/T is 1 ± 0.5 and
b_k is 0 ± 1, so that few samples suffice.
"""

import torch
from torch import Tensor

from manyway.core import column_sums, count_labels, one_hot

_NEWTON_STEPS = 8
_SCALE_SD = 0.5  # standard deviation of the prior of 1/T around 1, as that of evidence's precision
_BIAS_SD = 1.0  # and of each b around 0
_SMALLEST_SCALE = 0.1  # of 1/T


def balanced_weights(labels: Tensor, usable: Tensor, n_classes: int) -> Tensor:
    """[t, s] weights of the usable samples, with the same sum for each class.

    The sum of all is the number of usable samples.
    """
    counts = count_labels(labels, n_classes, usable)
    typical = usable.sum(-1, keepdim=True) / (counts > 0).sum(-1, keepdim=True).clamp_min(1)
    return usable * typical / counts.gather(1, labels).clamp_min(1)


def rescale(logits: Tensor, scaling: Tensor) -> Tensor:
    """[t, n, k] = logits / T + b, for b and 1/T [t, k + 1]."""
    return (logits * scaling[:, None, -1:]).add_(scaling[:, None, :-1])


def scaled(logits: Tensor, known: Tensor, labels: Tensor, usable: Tensor | None = None) -> Tensor:
    """Logits [t, q, k] with the scaling that fits samples with the logits ``known``.

    ``known`` is [t, s, k]. All classes have the same weight.
    """
    if usable is None:
        usable = torch.ones_like(known[..., 0])
    weights = balanced_weights(labels, usable, known.shape[-1])
    return rescale(logits, fit_scaling(known, labels, weights))


def fit_scaling(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """b and 1/T [t, k + 1] that minimise the weighted cross-entropy plus the priors.

    They are found by Newton steps.

    The problem is convex. The Hessian is that of b, diag(Σ p) − Σ p pᵀ, bordered by one row for
    1/T.
    """
    n_tasks, _, n_classes = logits.shape
    logits = logits - logits.amax(-1, keepdim=True)
    targets = one_hot(labels, n_classes, logits.dtype)
    weights = weights.unsqueeze(-1)
    start = torch.nn.functional.pad(logits.new_zeros(n_tasks, n_classes), (0, 1), value=1.0)
    precisions = logits.new_tensor([_BIAS_SD**-2] * n_classes + [_SCALE_SD**-2])
    found = start
    for _ in range(_NEWTON_STEPS):
        p = rescale(logits, found).softmax(-1)
        errors = (p - targets) * weights
        weighted = p * weights
        offsets = logits - (p * logits).sum(-1, keepdim=True)
        of_losses = torch.cat([column_sums(errors), _total(errors, logits)], 1)
        slope = of_losses + (found - start) * precisions
        hessian = torch.diag_embed(precisions.expand(n_tasks, -1))
        hessian[:, :-1, :-1] += torch.diag_embed(column_sums(weighted)) - weighted.mT @ p
        hessian[:, :-1, -1] = hessian[:, -1, :-1] = column_sums(weighted * offsets)
        hessian[:, -1, -1:] += _total(weighted * offsets, offsets)
        found = found - torch.linalg.solve(hessian, slope).clamp_(-1, 1)
        found[:, -1].clamp_(min=_SMALLEST_SCALE)
    return found


def _total(a: Tensor, b: Tensor) -> Tensor:
    """[t, 1] = Σ_sk a b."""
    return (a * b).sum((1, 2)).unsqueeze(-1)
