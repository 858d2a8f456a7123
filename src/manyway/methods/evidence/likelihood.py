"""The log-likelihoods ℓ_qk of queries under classes, and what the queries themselves add to them.

Queries are *placed* first: rows become coordinates in which ℓ is simple. For features, placed rows are coordinates in
the metric of the calibration, and

    ℓ_qk = −½ τ (‖z_q − w_k‖² − S/n_k).

For the scores of a classifier, placed rows are the log-likelihoods themselves. Both kinds answer the same questions, so
that search and post-processing need not know which one they have.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import one_hot
from manyway.methods.calibration.calibration import Calibration, squared_distances


class Linear(NamedTuple):
    """ℓ of placed rows [b, d], up to a number per row: z·weights + biases."""

    weights: Tensor  # [d, k]
    biases: Tensor  # [k]

    def scores(self, rows: Tensor, sharpness: float, addend: Tensor) -> Tensor:
        """[b, k] sharpness·ℓ + addend [k]."""
        scaled = rows if sharpness == 1 else rows * sharpness
        return torch.addmm(sharpness * self.biases + addend, scaled, self.weights)

    def of_classes(self, classes: Tensor) -> Linear:
        """The same for some classes [a]."""
        return Linear(self.weights[:, classes], self.biases[classes])


class Columns(NamedTuple):
    """ℓ of placed rows [b, k] that are ℓ themselves."""

    classes: Tensor  # [a]

    def scores(self, rows: Tensor, sharpness: float, addend: Tensor) -> Tensor:
        """[b, a] sharpness·ℓ + addend [a]."""
        return torch.add(addend, rows.index_select(1, self.classes), alpha=sharpness)

    def of_classes(self, classes: Tensor) -> Columns:
        """The same for some of these classes [a]."""
        return Columns(self.classes[classes])


@dataclass(frozen=True, eq=False)
class Updated:
    """Prototypes of some classes that have taken in their queries; without classes nothing changes."""

    classes: Tensor  # [t, g]
    prototypes: Tensor  # [t, g, d]
    weights: Tensor  # [t, g] how much of a sample one query counts
    masses: Tensor  # [t, g] samples and weighted queries
    scatter: Tensor  # [t, 1, 1] S
    precision: Tensor  # [t, 1, 1] τ

    def __call__(self, placed: Tensor, u: Tensor, free: Tensor, likelihood: Tensor) -> Tensor:
        """[t, b, k] ℓ with each query left out of the prototypes that have taken it in.

        ``u`` [t, b, k] are the assignments, ``free`` [t, b, 1] is 0 where the label is known and 1 elsewhere, and
        ``likelihood`` [t, b, k] is ℓ before the update.
        """
        if not self.classes.shape[1]:
            return likelihood
        taken = columns_of(u, self.classes) * self.weights.unsqueeze(1) * free
        distances = squared_distances(placed, self.prototypes)
        distances = leave_one_out(distances, taken, self.masses.unsqueeze(1), self.scatter)
        return likelihood.scatter(-1, _like(self.classes, u), distances.mul_(-0.5 * self.precision))


@dataclass(frozen=True, eq=False)
class Distances:
    """The likelihood of features: distances to prototypes, as a calibration measures them."""

    calibration: Calibration

    @property
    def counts(self) -> Tensor:
        """[t, k] how many samples a class is worth."""
        return self.calibration.counts

    @property
    def examples(self) -> Tensor:
        """[t, k] the number of samples behind each class."""
        return self.calibration.examples

    def of(self, placed: Tensor) -> Tensor:
        """[t, b, k] ℓ of placed rows."""
        return self.calibration.log_likelihood(placed)

    def totals(self, sums: Tensor, masses: Tensor) -> Tensor:
        """[t, g, k] Σ_q u_qg ℓ_qk up to a number per group, from Σ_q u_qg z_q [t, g, d] and Σ_q u_qg [t, g]."""
        # Σ_q u_qg ‖z_q − w‖² and m_g ‖z̄_g − w‖² differ by a number that is equal for all classes.
        masses = masses.clamp_min(torch.finfo(masses.dtype).tiny).unsqueeze(-1)
        return self.of(sums / masses) * masses

    def updated(self, classes: Tensor, sums: Tensor, masses: Tensor, weights: Tensor) -> Updated:
        """Classes [t, g] with queries as further samples: each counts ``weights`` [t, g]; sums and masses as above."""
        calibration, n_tasks = self.calibration, len(classes)
        counts = calibration.counts.expand(n_tasks, -1).gather(1, classes)
        total = counts + weights * masses
        offsets = calibration.offsets.expand(n_tasks, -1, -1)
        offsets = offsets.gather(1, classes.unsqueeze(-1).expand(-1, -1, offsets.shape[-1]))
        prototypes = counts.unsqueeze(-1) * offsets + weights.unsqueeze(-1) * sums
        scatter, precision = calibration.scatter.view(-1, 1, 1), calibration.precision.view(-1, 1, 1)
        return Updated(classes, prototypes / total.unsqueeze(-1), weights, total, scatter, precision)

    def linear(self) -> Linear:
        """ℓ of the rows of the one task, as products."""
        weights, biases = self.calibration.linear()
        return Linear(weights[0], biases[0])

    def lengths(self, placed: Tensor) -> Tensor:
        """[t, b] distances of placed rows to the nearest prototype, relative to those of members that are left out.

        The squared distance of a member from the mean of n samples is S(1 + 1/n) on average.
        """
        nearest = self.calibration.squared_distances(placed).min(-1)
        errors = (1 / self.calibration.counts).expand(len(placed), -1).gather(1, nearest.indices)
        scatter = self.calibration.scatter.clamp_min(torch.finfo(placed.dtype).tiny).unsqueeze(-1)
        return ((nearest.values / scatter + errors) / (1 + errors)).clamp_min(0).sqrt()

    def nearness(self, placed: Tensor, others: Tensor, steepness: float) -> Tensor:
        """[t, n, m] from 0 to 1: how much placed queries [t, n, d] and others [t, m, d] are alike."""
        apart = squared_distances(placed, others) / (2 * self.calibration.scatter.clamp_min(1e-30).view(-1, 1, 1))
        return apart.sub_(1).mul_(-steepness).sigmoid_()

    def usual_distance(self, placed: Tensor) -> Tensor:
        """[t] the squared distance of two placed queries [t, n, d] that are no copies of each other."""
        return 2 * self.calibration.scatter

    @property
    def learned(self) -> dict[str, Tensor]:
        """What is worth telling, a number per task [t] each."""
        return {"precision": self.calibration.precision, "shrinkage": self.calibration.shrinkage}


@dataclass(frozen=True, eq=False)
class Scores:
    """The likelihood of placed scores: themselves. They have no prototypes that queries could update.

    See ``Distances`` for what search and post-processing ask.
    """

    counts: Tensor
    learned: dict[str, Tensor] = field(default_factory=dict)

    @property
    def examples(self) -> Tensor:
        return self.counts

    def of(self, placed: Tensor) -> Tensor:
        return placed

    def totals(self, sums: Tensor, masses: Tensor) -> Tensor:
        return sums

    def updated(self, classes: Tensor, sums: Tensor, masses: Tensor, weights: Tensor) -> Updated:
        one = sums.new_ones(1, 1, 1)
        return Updated(classes[:, :0], sums[:, :0], weights[:, :0], masses[:, :0], one, one)

    def lengths(self, placed: Tensor) -> Tensor:
        return torch.zeros_like(placed[..., 0])

    def nearness(self, placed: Tensor, others: Tensor, steepness: float) -> Tensor:
        return placed.new_ones(1, placed.shape[1], others.shape[1])

    def usual_distance(self, placed: Tensor) -> Tensor:
        return 2 * placed.var(1, unbiased=False).sum(-1)

    def linear(self) -> Columns:
        return Columns(torch.arange(self.counts.shape[1], device=self.counts.device))


Likelihood = Distances | Scores  # what search and post-processing ask


def columns_of(values: Tensor, classes: Tensor) -> Tensor:
    """[t, b, g] some columns of values [t, b, k]: those of the classes [t, g]."""
    return values.gather(-1, _like(classes, values))


def _like(classes: Tensor, values: Tensor) -> Tensor:
    """[t, b, g] the classes [t, g] for every row of values [t, b, k]."""
    return classes.unsqueeze(1).expand(-1, values.shape[1], -1)


def moved(calibration: Calibration, offsets: Tensor, counts: Tensor) -> Calibration:
    """The calibration with other placed prototypes [t, k, d], of other numbers of samples [t, k]."""
    squares = offsets.square().sum(-1) - calibration.scatter.unsqueeze(-1) / counts
    examples = calibration.examples + (counts - calibration.counts)
    return replace(calibration, offsets=offsets, squares=squares, counts=counts, examples=examples)


def known_classes(known: Tensor, like: Tensor) -> Tensor:
    """[t, b, k] 1 for the class of a query with a known label [t, b], else 0, as ``like`` [t, b, k]."""
    return one_hot(known.clamp_min(0), like.shape[-1], like.dtype) * (known >= 0).unsqueeze(-1)


def leave_one_out(distances: Tensor, weights: Tensor, masses: Tensor, scatter: Tensor) -> Tensor:
    """[…, q, k] squared distances to prototypes without the query itself, less the bias of noisy means.

    ``weights`` [q, k] is what each query contributes to a prototype and ``masses`` [k] the total, support included.
    Without z, a mean of mass N is N/(N − c) times as far from z.
    """
    others = masses - weights
    return distances * (masses / others).square() - scatter / others
