"""What distances say with any precision: logarithms of sums of likelihoods."""

from __future__ import annotations

from math import log

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
    nearest = distances.amin(-1)
    beyond = distances - nearest.where(nearest.isfinite(), 0.0).unsqueeze(-1)
    sums = [_log_sum(beyond, nearest, -0.5 * precision) for precision in precisions]
    return torch.stack(sums)


def _log_sum(beyond: Tensor, nearest: Tensor, factor: Tensor) -> Tensor:
    """[t, n] ln Σ_k exp(factor · d²), for factors [t] and d² [t, n, k] beyond that of the nearest [t, n].

    The nearest class adds 1 to the sum. What is far below the rounding error of 1 may have any
    size, so that it is kept above the numbers with which processors are ten times slower.
    """
    negligible = 2 * log(torch.finfo(beyond.dtype).eps)
    terms = (beyond * factor.view(-1, 1, 1)).clamp_min_(negligible).exp_()
    return terms.sum(-1).log_() + nearest * factor.unsqueeze(-1)
