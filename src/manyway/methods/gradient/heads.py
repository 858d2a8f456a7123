"""Linear classifiers that gradient methods train: logits, the gradient in the weights, and steps of Adam."""

from dataclasses import dataclass
from math import sqrt
from typing import Protocol

import torch
from torch import Tensor

from manyway.core import column_sums

DECAY, SQUARE_DECAY, EPS = 0.9, 0.999, 1e-8  # of Adam: the authors' defaults


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
        return torch.baddbmm(norms, samples, flipped(w), beta=-self.logit_scale / 2, alpha=self.logit_scale)

    def pull_back(self, slopes: Tensor, samples: Tensor, w: Tensor) -> Tensor:
        masses = column_sums(slopes).unsqueeze(-1)
        return torch.baddbmm(w * masses, slopes.mT, samples, beta=-self.logit_scale, alpha=self.logit_scale)


@dataclass(frozen=True)
class Cosine:
    """logit = τ cos(z, w_k), for samples that have norm 1."""

    logit_scale: float

    def logits(self, samples: Tensor, w: Tensor) -> Tensor:
        return samples @ flipped(w * (self.logit_scale / _norms(w)))

    def pull_back(self, slopes: Tensor, samples: Tensor, w: Tensor) -> Tensor:
        norms = _norms(w)
        pull, direction = slopes.mT @ samples, w / norms
        along = (pull * direction).sum(-1, keepdim=True)  # a cosine does not depend on the length of w
        return pull.addcmul_(direction, along, value=-1).mul_(self.logit_scale / norms)


def _norms(w: Tensor) -> Tensor:
    return w.square().sum(-1, keepdim=True).sqrt().clamp_min(torch.finfo(w.dtype).tiny)


def flipped(w: Tensor) -> Tensor:
    """[t, d, k] the transpose of w. On a CPU a copy costs less than a product with a transposed view."""
    return w.mT if w.is_cuda else w.mT.contiguous()


def adam_step(
    parameters: Tensor, mean: Tensor, square: Tensor, gradient: Tensor, step: int, lr: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Take step number ``step`` (from 1) of Adam: the new parameters, and running means of the gradient and its square.

    Adam (Kingma and Ba, 2015) moves every coordinate on its own. A batch of tasks moves as each would alone; the path
    depends on the coordinate system, so it cannot be computed in a rotated or reduced feature space. The bias
    corrections are folded into the two constants, which saves passes over memory.
    """
    mean = mean.lerp(gradient, 1 - DECAY)
    square = (square * SQUARE_DECAY).addcmul_(gradient, gradient, value=1 - SQUARE_DECAY)
    root = sqrt(1 - SQUARE_DECAY**step)
    size = lr * root / (1 - DECAY**step)
    return parameters.addcdiv(mean, square.sqrt().add_(EPS * root), value=-size), mean, square
