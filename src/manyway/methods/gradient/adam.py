"""Adam (Kingma and Ba, 2015) as a pure function."""

from math import sqrt

from torch import Tensor

DECAY, SQUARE_DECAY, EPS = 0.9, 0.999, 1e-8  # the authors' defaults


def adam_step(
    parameters: Tensor, mean: Tensor, square: Tensor, gradient: Tensor, step: int, lr: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Take step number ``step`` (from 1) of Adam: the new parameters, and running means of the gradient and its square.

    Adam moves every coordinate on its own. A batch of tasks therefore moves as each task would alone; but the path
    depends on the coordinate system, so it cannot be computed in a rotated or reduced feature space. The bias
    corrections are folded into the two constants, which saves passes over memory.
    """
    mean = mean.lerp(gradient, 1 - DECAY)
    square = (square * SQUARE_DECAY).addcmul_(gradient, gradient, value=1 - SQUARE_DECAY)
    root = sqrt(1 - SQUARE_DECAY**step)
    size = lr * root / (1 - DECAY**step)
    return parameters.addcdiv(mean, square.sqrt().add_(EPS * root), value=-size), mean, square
