"""Adam (Kingma and Ba, 2015) as a function, with its state in plain sight."""

from __future__ import annotations

from math import sqrt

from torch import Tensor


def adam_step(
    parameters: Tensor,
    mean: Tensor,
    square: Tensor,
    gradient: Tensor,
    step: int,
    lr: float,
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> tuple[Tensor, Tensor, Tensor]:
    """Parameters and running ``mean`` and ``square`` of the gradient after step number ``step``, counted from 1.

    Every coordinate moves on its own, so a batch of tasks moves as each of them would alone; and the path depends on
    the coordinates that features come in, so it cannot be followed in a rotated or smaller space. The bias corrections
    are folded into the two constants, which saves passes over memory.
    """
    mean = mean.lerp(gradient, 1 - betas[0])
    square = (square * betas[1]).addcmul_(gradient, gradient, value=1 - betas[1])
    root = sqrt(1 - betas[1] ** step)
    size = lr * root / (1 - betas[0] ** step)
    return parameters.addcdiv(mean, square.sqrt().add_(eps * root), value=-size), mean, square
