"""The log-likelihoods ℓ_qk of queries under classes, and what the queries themselves add to them.

Queries are *placed* first: rows become coordinates in which ℓ is simple. For features, placed rows
are coordinates in the metric of the calibration, and

    ℓ_qk = −½ τ (‖z_q − w_k‖² − e_k),

where e_k is what the random error of the prototype w_k adds to a squared distance on average
(``manyway.methods.calibration.prototypes``).

For the log-likelihoods of another classifier, placed rows are these themselves. Both kinds answer
the same questions, so that search and groups need not know which one they have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import one_hot
from manyway.methods.calibration.calibration import Calibration
from manyway.methods.calibration.distances import squared_distances
from manyway.methods.calibration.metric import rows_of
from manyway.methods.calibration.prototypes import leave_one_out
from manyway.methods.evidence.schedule import agreement

_LEAST_SCATTER = 1e-30  # what is divided by S stays finite


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


class ScoreColumns(NamedTuple):
    """ℓ of placed rows [b, k] that are ℓ themselves."""

    classes: Tensor  # [a]

    def scores(self, rows: Tensor, sharpness: float, addend: Tensor) -> Tensor:
        """[b, a] sharpness·ℓ + addend [a]."""
        return torch.add(addend, rows.index_select(1, self.classes), alpha=sharpness)

    def of_classes(self, classes: Tensor) -> ScoreColumns:
        """The same for some of these classes [a]."""
        return ScoreColumns(self.classes[classes])


@dataclass(frozen=True, eq=False, kw_only=True)
class Updated:
    """Prototypes of some classes that have taken in their queries, as means of more samples.

    Without classes nothing changes, and neither does ℓ of a class whose queries count nothing. Such
    classes are among these where another task has more groups.
    """

    classes: Tensor  # [t, g]
    prototypes: Tensor  # [t, g, d]
    weights: Tensor  # [t, g] how much of a sample one query counts
    masses: Tensor  # [t, g] samples and weighted queries
    scatter: Tensor  # [t, 1, 1] S
    precision: Tensor  # [t, 1, 1] τ

    def __call__(self, placed: Tensor, u: Tensor, free: Tensor, log_likelihood: Tensor) -> Tensor:
        """[t, b, k] ℓ with each query left out of the prototypes that have taken it in.

        ``u`` [t, b, k] are the assignments, ``free`` [t, b, 1] is 0 where the label is fixed and 1
        elsewhere, and ``log_likelihood`` [t, b, k] is ℓ before the update.
        """
        if not self.classes.shape[1]:
            return log_likelihood
        taken = columns_of(u, self.classes) * self.weights.unsqueeze(1) * free
        distances = squared_distances(placed, self.prototypes)
        distances = leave_one_out(distances, taken, self.masses.unsqueeze(1), self.scatter)
        updated = distances.mul_(-0.5 * self.precision)
        before = columns_of(log_likelihood, self.classes)
        updated = updated.where((self.weights > 0).unsqueeze(1), before)
        return log_likelihood.scatter(-1, _for_every_row(self.classes, u), updated)


class Likelihood(ABC):
    """What search and groups ask of the likelihood; one row of each tensor may serve all tasks."""

    calibration: Calibration | None  # what distances mean; None where there are no distances

    @property
    @abstractmethod
    def counts(self) -> Tensor:
        """[t, k] how many samples a class is worth."""

    @property
    @abstractmethod
    def examples(self) -> Tensor:
        """[t, k] the number of samples behind each class."""

    @property
    @abstractmethod
    def told(self) -> Mapping[str, Tensor]:
        """What is worth telling, a number per task [t] each."""

    def coordinates(self, placed: Tensor) -> Tensor:
        """[t, b, d] the part of placed rows that says where they are; all of them, usually."""
        return placed

    def hidden(self, placed: Tensor) -> Tensor:
        """[t, b] what missing cells would add to the squared distance of a row from another."""
        return placed.new_zeros(placed.shape[:2])

    @abstractmethod
    def of(self, placed: Tensor) -> Tensor:
        """[t, b, k] ℓ of placed rows."""

    @abstractmethod
    def linear(self) -> Linear | ScoreColumns:
        """ℓ of the rows of the one task, as products."""

    @abstractmethod
    def totals(self, sums: Tensor, masses: Tensor) -> Tensor:
        """[t, g, k] Σ_q u_qg ℓ_qk of groups g, up to a number per group.

        They follow from the sums Σ_q u_qg z_q [t, g, d] and the masses Σ_q u_qg [t, g].
        """

    @abstractmethod
    def updated(self, classes: Tensor, sums: Tensor, masses: Tensor, weights: Tensor) -> Updated:
        """Classes [t, g] with queries as further samples, each of which counts ``weights`` [t, g].

        Sums and masses are as in ``totals``.
        """

    @abstractmethod
    def lengths(self, placed: Tensor) -> Tensor:
        """[t, b] distances of placed rows to the nearest prototype, in those of members."""

    def reliance(self, placed: Tensor) -> Tensor | None:
        """[t, b] by which power ℓ of far rows is to be believed; None where there are no far rows."""
        return None

    @abstractmethod
    def nearness(self, placed: Tensor, others: Tensor) -> Tensor:
        """[t, n, m] how near placed queries [t, n, d] are to others [t, m, d], from 0 to 1.

        It is ½ at the squared distance 2S of two samples of a class, and its logit falls by 2 per
        2S.
        """

    @abstractmethod
    def pair_distance(self, placed: Tensor) -> Tensor:
        """[t] the squared distance of two placed queries [t, n, d] that are no copies."""


@dataclass(frozen=True, eq=False)
class Distances(Likelihood):
    """The likelihood of features: distances to prototypes, as a calibration measures them."""

    calibration: Calibration

    @property
    def counts(self) -> Tensor:
        return self.calibration.prototypes.counts

    @property
    def examples(self) -> Tensor:
        return self.calibration.prototypes.examples

    @property
    def told(self) -> Mapping[str, Tensor]:
        calibration = self.calibration
        return {
            "precision": calibration.precision,
            "shrinkage": calibration.coordinates.shrinkage,
        }

    def of(self, placed: Tensor) -> Tensor:
        return self.calibration.log_likelihood(placed)

    def linear(self) -> Linear:
        weights, biases = self.calibration.linear()
        return Linear(weights[0], biases[0])

    def totals(self, sums: Tensor, masses: Tensor) -> Tensor:
        # Σ_q u_qg ‖z_q − w‖² and m_g ‖z̄_g − w‖² differ by a number that is equal for all classes.
        masses = masses.clamp_min(torch.finfo(masses.dtype).tiny).unsqueeze(-1)
        return self.of(sums / masses) * masses

    def updated(self, classes: Tensor, sums: Tensor, masses: Tensor, weights: Tensor) -> Updated:
        calibration = self.calibration
        prototypes = calibration.prototypes
        counts = prototypes.counts.expand(len(classes), -1).gather(1, classes)
        total = counts + weights * masses
        offsets = rows_of(prototypes.offsets, classes)
        means = counts.unsqueeze(-1) * offsets + weights.unsqueeze(-1) * sums
        return Updated(
            classes=classes,
            prototypes=means / total.unsqueeze(-1),
            weights=weights,
            masses=total,
            scatter=calibration.within.scatter.view(-1, 1, 1),
            precision=calibration.precision.view(-1, 1, 1),
        )

    def lengths(self, placed: Tensor) -> Tensor:
        prototypes = self.calibration.prototypes
        nearest = prototypes.squared_distances(placed).min(-1)
        of_members = prototypes.of_members(self.calibration.within.scatter)
        return of_members.relative_to_one(nearest.values, nearest.indices).clamp_min(0).sqrt()

    def reliance(self, placed: Tensor) -> Tensor | None:
        found = self.calibration.coordinates.reliance(self.coordinates(placed))
        return found if bool((found < 1).any()) else None

    def nearness(self, placed: Tensor, others: Tensor) -> Tensor:
        scatter = self.calibration.within.scatter.clamp_min(_LEAST_SCATTER).view(-1, 1, 1)
        apart = squared_distances(placed, others) / (2 * scatter)
        return apart.sub_(1).mul_(-2).sigmoid_()

    def pair_distance(self, placed: Tensor) -> Tensor:
        return 2 * self.calibration.within.scatter


@dataclass(frozen=True, eq=False, kw_only=True)
class GivenLikelihood(Likelihood):
    """Log-likelihoods that are given. They have no prototypes that queries could update."""

    # [t, k] the number of samples of each class that the classifier was trained on
    n_samples: Tensor
    calibration: None = None

    @property
    def counts(self) -> Tensor:
        return self.n_samples

    @property
    def examples(self) -> Tensor:
        return self.n_samples

    @property
    def told(self) -> Mapping[str, Tensor]:
        return {}

    def of(self, placed: Tensor) -> Tensor:
        return placed

    def linear(self) -> ScoreColumns:
        return ScoreColumns(torch.arange(self.counts.shape[1], device=self.counts.device))

    def totals(self, sums: Tensor, masses: Tensor) -> Tensor:
        return sums

    def updated(self, classes: Tensor, sums: Tensor, masses: Tensor, weights: Tensor) -> Updated:
        one = sums.new_ones(1, 1, 1)
        return Updated(
            classes=classes[:, :0],
            prototypes=sums[:, :0],
            weights=weights[:, :0],
            masses=masses[:, :0],
            scatter=one,
            precision=one,
        )

    def lengths(self, placed: Tensor) -> Tensor:
        return torch.zeros_like(placed[..., 0])

    def nearness(self, placed: Tensor, others: Tensor) -> Tensor:
        return placed.new_ones(1, placed.shape[1], others.shape[1])

    def pair_distance(self, placed: Tensor) -> Tensor:
        return 2 * placed.var(1, unbiased=False).sum(-1)


def columns_of(values: Tensor, classes: Tensor) -> Tensor:
    """[t, b, g] some columns of values [t, b, k]: those of the classes [t, g]."""
    return values.gather(-1, _for_every_row(classes, values))


def _for_every_row(classes: Tensor, values: Tensor) -> Tensor:
    """[t, b, g] the classes [t, g] for every row of values [t, b, k]."""
    return classes.unsqueeze(1).expand(-1, values.shape[1], -1)


def own_classes(labels: Tensor, like: Tensor) -> Tensor:
    """[t, b, k] 1 for the class that the label [t, b] of a query says, else 0; as ``like``.

    Where there is no label, it is -1.
    """
    return one_hot(labels.clamp_min(0), like.shape[-1], like.dtype) * (labels >= 0).unsqueeze(-1)


def query_weights(masses: Tensor) -> Tensor:
    """[t, k] how much of a support sample one query counts in the update of a prototype.

    It is the agreement: 1 − K̂/min(|Q|, K), where K̂ is the effective number of classes. A class
    with at most one query is not updated. With the weight W_k, a prototype w_k that is worth ñ_k
    samples (``Likelihood.counts``) becomes

        (ñ_k w_k + W_k Σ_q u_qk z_q) / (ñ_k + W_k m_k),

    and every query is classified without its own part in it.
    """
    return torch.where(masses > 1, agreement(masses).unsqueeze(-1), 0.0)


def independent_part(masses: Tensor, correlation: Tensor) -> Tensor:
    """The part of a group's m queries that counts as independent: 1 / (1 + ω(m − 1)).

    ω is the ``correlation`` of their errors. Its part 1/(n + 1) follows from the prototype, which
    is a mean of n samples.

    A query has variance S around its mean, and the mean of n samples has variance S/n. The mean of
    m queries then has S/m + S/n, so they count as
    (S + S/n) / (S/m + S/n) = m / (1 + (m − 1)/(n + 1)) queries.
    """
    return 1 / (1 + correlation * (masses - 1).clamp_min(0))
