"""Adam (Kingma and Ba, 2015) as a pure function."""

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
    """Take step number ``step`` (from 1) of Adam: the new parameters, and running means of the gradient and its square.

    Adam moves every coordinate on its own. A batch of tasks therefore moves as each task would alone; but the path
    depends on the coordinate system, so it cannot be computed in a rotated or reduced feature space. The bias
    corrections are folded into the two constants, which saves passes over memory.
    """
    mean = mean.lerp(gradient, 1 - betas[0])
    square = (square * betas[1]).addcmul_(gradient, gradient, value=1 - betas[1])
    root = sqrt(1 - betas[1] ** step)
    size = lr * root / (1 - betas[0] ** step)
    return parameters.addcdiv(mean, square.sqrt().add_(eps * root), value=-size), mean, square
