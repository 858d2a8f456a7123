"""What distances say with any precision: logarithms of sums of likelihoods."""

from __future__ import annotations

import torch
from torch import Tensor

from manyway.core.kernels import fused


def log_sums(distances: Tensor, precisions: Tensor) -> Tensor:
    """[p, t, n] ln Σ_k exp(−½ τ d²) for several τ.

    On a GPU the distances are read once for all of them.

    Parameters
    ----------
    distances : Tensor of shape [t, n, k]
        d²; infinite for a class that does not count.
    precisions : Tensor of shape [p, t]
        τ

    Returns
    -------
    Tensor of shape [p, t, n]
        −∞ where no class counts.

    Examples
    --------
    >>> log_sums(torch.zeros(1, 1, 4), torch.ones(2, 1)).exp()
    tensor([[[4.]],
    <BLANKLINE>
            [[4.]]])
    """
    if fused(distances) and distances.dtype == torch.float32:
        from manyway.methods.calibration import log_sums_kernel

        if distances.shape[-1] <= log_sums_kernel.MAX_CLASSES:
            return log_sums_kernel.log_sums(distances, precisions)
    sums = [
        (distances * (-0.5 * precision).view(-1, 1, 1)).logsumexp(-1) for precision in precisions
    ]
    return torch.stack(sums)
