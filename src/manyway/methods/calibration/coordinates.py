"""Where distances are measured: the coordinates of *placed* rows.

A row is placed relative to the middle of the prototypes, and mapped by the metric: distances of
placed rows are plain distances.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from manyway.methods.calibration.metric import Metric


@dataclass(frozen=True, eq=False, kw_only=True)
class Coordinates:
    """From features to placed rows. One row of each tensor may serve all tasks."""

    # [t, 1, d] mean of the prototypes; float32 is accurate for distances relative to it
    middle: Tensor
    metric: Metric | None  # None: plain distances
    shrinkage: Tensor  # [t] γ of the metric
    longest: Tensor  # [t] placed rows that are longer are shortened; inf: none. See ``bounded``
    n_varying: Tensor  # [t] d, how many columns of the features are not constant

    def place(self, features: Tensor) -> Tensor:
        """[t, n, d] the coordinates of features [t, n, d] in which distances are computed."""
        rows = _for_tasks(features, self.middle) - self.middle
        if self.metric is not None:
            rows = self.metric(rows)
        return _bounded(rows, self.longest).view(features.shape)

    def placing(self, factor: Tensor | None = None) -> Placing:
        """``place`` as a map of its own, with the metric as a table.

        Placed rows are multiplied by a factor [t].
        """
        middle = self.middle
        if factor is None:
            factor = torch.ones_like(self.shrinkage)
        if self.metric is None:
            return Placing(middle=middle, metric=None, longest=self.longest, factor=factor)
        identity = torch.eye(middle.shape[-1], dtype=middle.dtype, device=middle.device)
        metric = self.metric(identity.expand(len(middle), -1, -1))
        return Placing(middle=middle, metric=metric, longest=self.longest, factor=factor)

    def bounded(self, of_farthest: Tensor) -> Coordinates:
        """With a bound for placed rows: a broken row would move all that it is grouped with.

        The bound L is twice the length of members of the farthest class, whose mean square is
        ``of_farthest`` [t]. Rows that are placed x times as long, x above 1, become 1 + ½ (1 − 1/x)
        times L long: at most 1½ times, and their length still says what it was (``reliance``).
        """
        longest = 2 * of_farthest.sqrt()
        return replace(self, longest=longest.clamp_min(torch.finfo(longest.dtype).tiny))

    def reliance(self, placed: Tensor) -> Tensor:
        """[t, n] 1 for placed rows up to ``longest``, and 1/x² for those that were x times it.

        Where a row lies x times as far out as any class, its own noise has x² times the variance.
        """
        lengths = torch.linalg.vector_norm(placed, dim=-1) / self.longest.unsqueeze(-1)
        return (1 - 2 * (lengths - 1)).clamp(0, 1).square()


@dataclass(frozen=True, eq=False, kw_only=True)
class Placing:
    """``Coordinates.place`` as a map of rows [t, n, d]. Tensors [1, …] serve all tasks."""

    middle: Tensor  # [t, 1, d]
    metric: Tensor | None  # [t, d, d]; None for plain distances
    longest: Tensor  # [t]
    factor: Tensor  # [t]

    def __call__(self, rows: Tensor) -> Tensor:
        shape = rows.shape
        rows = _for_tasks(rows, self.middle) - self.middle
        if self.metric is not None:
            rows = rows @ self.metric
        rows = _bounded(rows, self.longest)
        return rows.mul_(self.factor.view(-1, 1, 1)).view(shape)


def _bounded(rows: Tensor, longest: Tensor) -> Tensor:
    """Rows [t, n, d], of which those longer than ``longest`` [t] are shortened.

    ``Coordinates.bounded`` says how.
    """
    lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    relative = lengths / longest.view(-1, 1, 1)
    if not bool((relative > 1).any()):
        return rows
    too_long = relative.clamp_min(1)
    return rows * ((1 + 0.5 * (1 - 1 / too_long)) / too_long)


def _for_tasks(rows: Tensor, like: Tensor) -> Tensor:
    """Rows [t, n, d] of as many tasks as ``like`` has; all rows are of one where it serves all."""
    if len(like) == len(rows):
        return rows
    return rows.reshape(1, -1, rows.shape[-1])
