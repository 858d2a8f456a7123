"""Evidence in blocks, after the iterations: prototypes move, and groups of queries are named.

Both need of the queries their sums group by group, one reading. The likelihood of a group as members of class j is that
of its mean: Σ_q u_qk ‖z_q − w_j‖² differs from m_k ‖z̄_k − w_j‖² by a number that is the same for all j.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.methods.evidence.calibration import Calibration, squared_distances
from manyway.methods.evidence.groups import identities, left_out_of, named, worth
from manyway.methods.evidence.prior import remainders
from manyway.methods.evidence.streamed_step import Note, Step

_GROUPS_AT_ONCE = 1024


class Moments(NamedTuple):
    """Sums of features over the queries of some classes, in float64."""

    values: Tensor  # [g, d]

    def plus(self, other: Moments) -> Moments:
        return Moments(self.values + other.values)


@dataclass(frozen=True, eq=False)
class AddUp:
    """The work that finds the means of groups of queries."""

    step: Step
    groups: Tensor  # [g]

    def __call__(self, block: Tensor, note: Note | None) -> tuple[Moments, None]:
        rows = self.step.rows(block)
        u = self.step.assign(rows, note).index_select(1, self.groups)
        return Moments((u.mT @ rows).double()), None


@dataclass(frozen=True, eq=False)
class Move:
    """Prototypes that have taken queries in, and what a distance to them means."""

    groups: Tensor  # [g]
    centres: Tensor  # [g, d]
    worth: Tensor  # [g] how much of a sample a query is worth
    masses: Tensor  # [g] samples and queries
    noise: Tensor  # []
    temperature: Tensor  # []

    @staticmethod
    def of(groups: Tensor, masses: Tensor, moments: Tensor, calibration: Calibration) -> Move:
        share = worth(masses[None])[0, groups]
        counts = calibration.counts[0, groups].double()
        total = counts + share * masses[groups]
        centres = (counts.unsqueeze(-1) * calibration.centres[0, groups] + share.unsqueeze(-1) * moments) / total[
            :, None
        ]
        like = calibration.centres
        return Move(
            groups, centres.to(like), share.to(like), total.to(like), calibration.noise[0], calibration.temperature[0]
        )

    def likelihood(self, rows: Tensor, u: Tensor) -> Tensor:
        """[b, g] of rows, each left out of the means, up to what is the same for all classes."""
        distances = squared_distances(rows[None], self.centres[None])[0]
        taken = u.index_select(1, self.groups) * self.worth
        distances = left_out_of(distances, taken, self.masses, self.noise)
        return distances.sub_(rows.square().sum(1, keepdim=True)).mul_(-0.5 * self.temperature)


@dataclass(frozen=True, eq=False)
class Settle:
    """From the last iteration to probabilities: a step with ℓ and moved prototypes, then the names of groups."""

    step: Step  # the last iteration
    slope: Tensor  # [k] and
    price: Tensor  # [k], of its assignments
    move: Move | None
    groups: Tensor  # [g]
    identity: Tensor  # [g, k] the probability that the queries of a group, taken as one, are of class k

    def __call__(self, block: Tensor, note: Note | None) -> Tensor:
        """[b, k] the class probabilities of some queries."""
        rows = self.step.rows(block)
        u = self.step.assign(rows, note)
        scores = torch.addmm(self.step.offsets, rows, self.step.weights)
        if self.move is not None:
            scores.index_copy_(1, self.move.groups, self.move.likelihood(rows, u))
        u = scores.add_(self.slope).addcdiv_(self.price, remainders(u)).softmax(1)
        whole = u.index_select(1, self.groups) @ self.identity
        return u.index_fill_(1, self.groups, 0).add_(whole)


def identify(
    groups: Tensor, masses: Tensor, moments: Tensor, calibration: Calibration, alpha: float, merge: bool
) -> tuple[Tensor, Tensor]:
    """[g, k] the probability that the queries of some classes, taken as one, are of class k.

    And [g] the probability that a group is but a piece of another.
    """
    masses, counts = masses.to(calibration.counts)[None], calibration.counts
    best = masses.new_tensor([alpha])
    rows, pieces = [masses.new_zeros(0, masses.shape[1])], [masses.new_zeros(0)]
    for first in range(0, len(groups), _GROUPS_AT_ONCE):
        part = groups[first : first + _GROUPS_AT_ONCE]
        theirs = masses[:, part]
        means = moments[first : first + _GROUPS_AT_ONCE].to(masses) / theirs[0].unsqueeze(-1)
        totals = calibration.log_likelihood(means[None]) * theirs.unsqueeze(-1)
        found = identities(totals, theirs, counts[:, part], best, masses, counts, merge=merge)
        rows.append(found.chances[0].scatter_add_(1, part.unsqueeze(-1), found.alone.mT))
        pieces.append(found.piece[0])
    return torch.cat(rows), torch.cat(pieces)


def presence_of(occupied: Tensor, groups: Tensor, identity: Tensor) -> Tensor:
    """[k] the probability that some group is class k."""
    absent = 1 - occupied.index_fill(0, groups, 0)  # a class of at most one query is what it seems
    for first in range(0, len(groups), _GROUPS_AT_ONCE):
        part = slice(first, first + _GROUPS_AT_ONCE)
        absent = absent * (1 - named(occupied[None, groups[part]], identity[None, part].double())[0])
    return 1 - absent
