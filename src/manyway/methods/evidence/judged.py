"""Judged queries: where they are, and how much of them is there, where cells are missing.

P is the projection on what is orthogonal to the missing columns of a query, and f the part of its
columns that is there (``missing``). To be judged, a query lies where its class k puts its gaps,

    z' = P z + (1 − P) w_k,

so that the distance from this class is that of what is there, and gaps draw no mean of members away
from it. Members of the class are f S away on average, where whole ones are S away, and unknown
queries have the excess f D instead of D.

A group has each column in a part of its members. Let f₁ be the mean of these parts, and f₂ the mean
of their squares. The mean of m members then is f₁ S/m from its class, for S/m. What the members have
in common, the error of the prototype and the excess of unknown queries, is f₂ times what it is for
whole rows. Where all have the same gaps f₂ = f₁; where gaps are random f₂ is near f₁², and the group
says only f₂/f₁ of what it would say about each of them. A query alone has f₁ = f₂ = f.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.methods.calibration.calibration import Calibration


class Given(NamedTuple):
    """How much of groups of queries is there; 1 for whole rows."""

    of_each: Tensor  # [t, g] f₁, of the members on average
    of_mean: Tensor  # [t, g] f₂, of what they have in common

    @property
    def common(self) -> Tensor:
        """[t, g] f₂/f₁, how much of a member is about the group."""
        return (self.of_mean / _positive(self.of_each)).clamp(0, 1)

    @property
    def filled_alike(self) -> Tensor:
        """[t, g] mean ρ_j² / mean ρ_j, where the part ρ_j of the members lacks column j.

        Filled cells add to the distance of each member from a prototype. If one class fills them
        all, this part of it is added to the distance of the mean.
        """
        lacking = 1 - self.of_each
        return (self.of_mean - self.of_each + lacking) / _positive(lacking)

    def together(self, sizes: Tensor) -> Tensor:
        """[t, g] 1 + (m − 1) f₂/f₁, how many of the m members judge together with one of them."""
        return sizes - (1 - self.common) * (sizes - 1)  # m of whole rows, without rounding

    @property
    def times_fewer(self) -> Tensor:
        """[t, g] 1/f₁, how many times as many columns whole rows have."""
        return 1 / _positive(self.of_each)


@dataclass(frozen=True, eq=False, kw_only=True)
class Judged:
    """Placed queries, with gaps that are filled by the class of each."""

    placed: Tensor  # [t, q, d]
    missing: Tensor  # [t, q, c] 1 for missing cells; whole rows may have one column of 0
    n_columns: Tensor  # [t, 1] how many columns count
    # [t, q, k] what filled cells add to squared distances from prototypes; whole rows may have one 0
    of_filled: Tensor

    @staticmethod
    def whole(placed: Tensor) -> Judged:
        """Rows [t, q, d] without gaps."""
        none = torch.zeros_like(placed[..., :1])
        one = torch.ones_like(none[:, 0])
        return Judged(placed=placed, missing=none, n_columns=one, of_filled=none)

    @cached_property
    def single(self) -> Given:
        """[t, q] of each query by itself."""
        return self.given(self.missing)

    @property
    def lacking(self) -> Tensor:
        """[t, q] 1 − f."""
        return 1 - self.single.of_each

    def given(self, missing: Tensor) -> Given:
        """[t, g] of groups in which the parts [t, g, c] of the columns are missing."""
        once = missing.sum(-1) / self.n_columns
        twice = missing.square().sum(-1) / self.n_columns
        return Given(of_each=1 - once, of_mean=1 - 2 * once + twice)

    def squared_distances(self, calibration: Calibration) -> Tensor:
        """[t, q, k] ‖P (z_q − w_k)‖² − f e_k."""
        errors = calibration.prototypes.errors.unsqueeze(1)
        added = self.of_filled - self.lacking.unsqueeze(-1) * errors
        return calibration.prototypes.squared_distances(self.placed) - added

    def log_likelihood(self, calibration: Calibration) -> Tensor:
        """[t, q, k] −½ τ times the squared distances."""
        distances = self.squared_distances(calibration)
        return distances.mul_(calibration.precision.mul(-0.5).view(-1, 1, 1))


def _positive(values: Tensor) -> Tensor:
    """The values, above 0."""
    return values.clamp_min(torch.finfo(values.dtype).tiny)
