"""The queries around a query: those that would be its class if it were the only sample of one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil
from operator import itemgetter

import torch
from torch import Tensor

from manyway.core import Tasks, mapped, one_hot
from manyway.methods.calibration.calibration import Calibration
from manyway.methods.calibration.distances import distances_between, squared_distances
from manyway.methods.evidence.copies import copy_distance
from manyway.methods.evidence.judged import Judged
from manyway.methods.evidence.schedule import Schedule

MOST_NUMBERS = 1 << 24  # of an array at once
_MOST_EXAMPLES = 512  # whose neighbourhoods are looked at, evenly spaced
_ALONE = 0.5  # a query with fewer others around it than this is alone with its copies


@dataclass(frozen=True, eq=False, kw_only=True)
class Neighbourhoods:
    """How much queries belong together, with near-copies counted as one query.

    The mean of copies is no nearer to a prototype than each of them.
    """

    similarity: Tensor  # [t, q, q] from 0 to 1
    share: Tensor  # [t, q] what each query counts: one divided by the number of its copies

    @staticmethod
    def of(rows: Judged, calibration: Calibration, schedule: Schedule) -> Neighbourhoods:
        """Of judged queries; what their gaps hide is added to their distances.

        Each query is assigned to all queries as if they were classes of one sample, and then to the
        means of the neighbourhoods that this makes, always without itself. Two queries are as
        similar as their assignments.
        """
        scatter = calibration.within.scatter.view(-1, 1, 1)
        precision = calibration.precision.view(-1, 1, 1)
        pair_distance = 2 * calibration.within.scatter
        placed = rows.placed
        hidden = rows.lacking * calibration.within.scatter.unsqueeze(-1)
        distances = distances_between(placed) + (hidden.unsqueeze(1) + hidden.unsqueeze(2))
        # A query is a copy of itself. The limit is not ``copy_distance(sure=True)``, as in the search:
        # how far two samples of an unknown class lie apart is a guess.
        copies = distances <= copy_distance(
            pair_distance, calibration.coordinates.n_varying, schedule
        )
        copies.diagonal(dim1=1, dim2=2).fill_(True)
        share = 1 / copies.sum(-1).to(placed)
        distances = torch.where(copies, 2 * scatter, distances)  # of two samples of a class
        by_pairs = Neighbourhoods(similarity=_similarity(distances, precision), share=share)
        similarity = by_pairs.similarity
        masses = (similarity @ share.unsqueeze(-1)).mT
        distances = squared_distances(placed, by_pairs.mean(placed))
        others = (masses - similarity).clamp_min(_ALONE)  # of neighbourhood j, without query q
        # Means are S (Σ s² − s_q²)/(Σ s − s_q)² too far, for their queries have noise; less of it
        # where cells are missing.
        squares = similarity.square()
        given = rows.single.of_each.unsqueeze(-1)
        bias = ((squares @ (share.unsqueeze(-1) * given)).mT - squares * given.mT) / others.square()
        distances = distances * (masses / others).square() - scatter * bias + hidden.unsqueeze(-1)
        alone = copies & (masses - similarity < _ALONE)
        distances = torch.where(alone, 2 * scatter, distances)
        return Neighbourhoods(similarity=_similarity(distances, precision), share=share)

    def mean(self, rows: Tensor) -> Tensor:
        """[t, q, …] the mean of rows [t, q, …] over the neighbourhood of each query."""
        share = self.share.unsqueeze(-1)
        return self.similarity @ (share * rows) / (self.similarity @ share)

    @cached_property
    def sizes(self) -> Tensor:
        """[t, q] the effective number of queries in each neighbourhood."""
        return effective_size(self.similarity, self.share)

    def clumped(self, excess: Tensor, all_clumps: Tensor, calibration: Calibration) -> Tensor:
        """[t] κ of ``judge``, from the excess ζ [t, q] of neighbourhoods.

        ``all_clumps`` [t, q] is the excess with κ = 1: S (1 − 1/m) for whole rows. κ is the sum of
        the first over that of the second, as if there were one more large neighbourhood without
        any excess.
        """
        total = (self.share * all_clumps).sum(-1) + calibration.within.scatter
        return ((self.share * excess).sum(-1) / total).clamp(0, 1)


def _similarity(distances: Tensor, precision: Tensor) -> Tensor:
    """[t, q, q] the cosines of assignments, by squared distances [t, q, n] and τ [t, 1, 1]."""
    assignments = distances.mul_(-0.5 * precision).softmax(-1)
    rows = assignments / assignments.square().sum(-1, keepdim=True).sqrt()
    return (rows @ rows.mT).clamp_(0, 1)


def effective_size(weights: Tensor, share: Tensor) -> Tensor:
    """[t, g] how many queries of equal weight count as much as those with weights [t, g, q].

    ``share`` [t, q]: what each query counts.
    """
    share = share.unsqueeze(-1)
    return ((weights @ share).square() / (weights.square() @ share)).squeeze(-1)


def clumping(calibration: Calibration, tasks: Tasks, schedule: Schedule) -> Tensor:
    """[t] κ of the neighbourhoods of examples; see ``judge``.

    Examples have a part in prototypes, which are nearer to them by 2S/n for it.
    """
    stride = ceil(tasks.n_support / _MOST_EXAMPLES)
    placed = calibration.coordinates.place(tasks.support[:, ::stride])
    labels = tasks.support_labels[:, ::stride]
    size = max(1, MOST_NUMBERS // labels.shape[1] ** 2)
    placed_calibration = calibration.without_metric()
    found = []
    for first in range(0, len(placed), size):
        block = slice(first, first + size)
        of_block = mapped(placed_calibration, itemgetter(block))
        around = Neighbourhoods.of(Judged.whole(placed[block]), of_block, schedule)
        scatter = of_block.within.scatter.unsqueeze(-1)
        sizes = around.sizes
        parts = around.mean(one_hot(labels[block], tasks.n_classes, placed.dtype))
        nearer = 2 * scatter.unsqueeze(-1) * parts / of_block.prototypes.counts.unsqueeze(1)
        distances = of_block.prototypes.squared_distances(around.mean(placed[block])) + nearer
        excess = distances.amin(-1) - scatter / sizes
        found.append(around.clumped(excess, scatter * (1 - 1 / sizes), of_block))
    return torch.cat(found)
