"""Squared distances, computed relative to a middle, so that float32 is accurate."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import column_sums

# With so few features, pairs are so near that a difference of squares would be rounding alone.
_FEW_FEATURES = 4


class Offsets(NamedTuple):
    """Prototypes relative to their mean."""

    middle: Tensor  # [t, 1, d] the mean
    rows: Tensor  # [t, k, d] the prototypes, less the mean
    squares: Tensor  # [t, k] the squared lengths of these

    @staticmethod
    def of(prototypes: Tensor) -> Offsets:
        """Of prototypes [t, k, d]."""
        middle = column_sums(prototypes).unsqueeze(1) / prototypes.shape[1]
        rows = prototypes - middle
        return Offsets(middle, rows, rows.square().sum(-1))


def squared_distances(samples: Tensor, prototypes: Tensor) -> Tensor:
    """[t, n, k] squared distances of samples [t, n, d] to prototypes [t, k, d]."""
    if samples.shape[-1] <= _FEW_FEATURES:
        return _sums_of_squares(samples, prototypes)
    offsets = Offsets.of(prototypes)
    return distances_to(samples - offsets.middle, offsets.rows, offsets.squares)


def distances_around_zero(samples: Tensor, prototypes: Tensor) -> Tensor:
    """The same where the rows have their middle near 0."""
    if samples.shape[-1] <= _FEW_FEATURES:
        return _sums_of_squares(samples, prototypes)
    return distances_to(samples, prototypes, _squared_lengths(prototypes).squeeze(-1))


def distances_to(
    samples: Tensor, rows: Tensor, squares: Tensor, at_once: bool | None = None
) -> Tensor:
    """[t, n, k] squared distances of samples [t, n, d] to rows [t, k, d].

    The rows have the squared lengths [t, k].

    Rows and lengths [1, …] serve all tasks. On a GPU squares are added with the product
    (``at_once``; None: where there is a GPU).
    """
    flat = samples
    if len(rows) != len(samples):
        flat = samples.reshape(1, -1, samples.shape[-1])
    if at_once is None:
        at_once = samples.is_cuda
    if at_once:
        found = torch.baddbmm(squares.unsqueeze(1), flat, rows.mT, alpha=-2)
        return found.view(*samples.shape[:2], -1).add_(_squared_lengths(samples))
    # On a CPU this is twice as fast as baddbmm, which is slow with a transposed operand.
    products = (flat @ rows.mT).view(*samples.shape[:2], -1)
    lengths = samples.square().sum(-1, keepdim=True)
    return products.mul_(-2).add_(lengths).add_(squares.unsqueeze(1))


def _squared_lengths(rows: Tensor) -> Tensor:
    """[t, n, 1] of rows [t, n, d], without an array of their squares."""
    return torch.linalg.vector_norm(rows, dim=-1, keepdim=True).square_()


def distances_between(samples: Tensor) -> Tensor:
    """[t, n, n] squared distances among samples [t, n, d]."""
    if samples.shape[-1] <= _FEW_FEATURES:
        return _sums_of_squares(samples, samples)
    products = samples @ samples.mT
    lengths = products.diagonal(dim1=1, dim2=2).clone()
    return products.mul_(-2).add_(lengths.unsqueeze(1)).add_(lengths.unsqueeze(2))


def _sums_of_squares(samples: Tensor, others: Tensor) -> Tensor:
    """[t, n, k] = Σ_d (x − y)², feature by feature.

    A small distance keeps its digits, and that of equal rows is 0.
    """
    total = (samples[..., :1] - others[..., :1].mT).square_()
    for d in range(1, samples.shape[-1]):
        apart = samples[..., d : d + 1] - others[..., d : d + 1].mT
        total.addcmul_(apart, apart)
    return total
