"""What a distance to a prototype means: ``Calibration``, and the values that it consists of.

The likelihood of a class is exp(−½ τ d²), with a precision τ and a distance d in a metric. It is
learned from the support alone (``calibrating``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from manyway.methods.calibration.constants import Constants
from manyway.methods.calibration.coordinates import Coordinates
from manyway.methods.calibration.moments import WithinClasses
from manyway.methods.calibration.prototypes import Prototypes


@dataclass(frozen=True, eq=False, kw_only=True)
class JudgedLabels:
    """What the others say about the label of each example; see ``wrong_labels``."""

    wrong: Tensor  # [t, s] o, the probability that the label is wrong
    looks_like: Tensor  # [t, s] the class that an example looks like if its label is wrong
    weights: Tensor  # [t, s] how much it counts: less than 1 where its label looks wrong

    @staticmethod
    def right(labels: Tensor, like: Tensor) -> JudgedLabels:
        """No label [t, s] is in doubt. The numbers are of the type of ``like``."""
        ones = torch.ones(labels.shape, dtype=like.dtype, device=like.device)
        return JudgedLabels(wrong=torch.zeros_like(ones), looks_like=labels, weights=ones)


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration:
    """Prototypes and the meaning of a distance to them.

    One row serves all tasks when they share their support.
    """

    coordinates: Coordinates  # where distances are measured
    within: WithinClasses  # how samples of one class differ
    prototypes: Prototypes
    precision: Tensor  # [t] τ
    judged: JudgedLabels

    # --- How sure answers are; evidence sets both ---
    power: Tensor  # [t] what final probabilities are raised to
    clumped: Tensor  # [t] κ of ``manyway.methods.evidence.judge``; 0 where it is not measured

    # [t, n] the cross-entropy of left-out samples times their weights, of those that have chosen
    # the metric where one was learned. No stage reads it; tests compare metrics by it
    left_out_losses: Tensor

    def log_likelihood(self, placed: Tensor) -> Tensor:
        """[t, q, k] = −½ τ times the squared distances of placed rows, less e_k."""
        distances = self.prototypes.squared_distances(placed)
        return distances.mul_(self.precision.mul(-0.5).view(-1, 1, 1))

    def linear(self) -> tuple[Tensor, Tensor]:
        """Weights [t, d, k] and biases [t, k] of the log-likelihood of placed rows.

        It is z·weights + biases plus a number that is equal for all classes: one product, accurate
        enough for a softmax.
        """
        precision = self.precision.unsqueeze(-1)
        weights = (precision.unsqueeze(-1) * self.prototypes.offsets).mT.contiguous()
        return weights, -0.5 * precision * self.prototypes.squares

    @property
    def in_metric(self) -> Tensor | None:
        """[t] c: of a placed sample with residual r, the metric A contains c·rr'n/(n−1).

        None where distances are plain.
        """
        coordinates = self.coordinates
        if coordinates.metric is None:
            return None
        within = self.within
        tiny = torch.finfo(within.scatter.dtype).tiny
        part = (1 - coordinates.shrinkage) * coordinates.n_varying
        part = part / (within.freedom * within.scatter).clamp_min(tiny)
        return part / coordinates.metric.stretch.square()

    def bounded(self) -> Calibration:
        """With a bound for placed rows; see ``Coordinates.bounded``."""
        squares = self.prototypes.offsets.square().sum(-1).amax(-1)
        bounded = self.coordinates.bounded(squares + self.within.scatter)
        return replace(self, coordinates=bounded)

    def shrunk(self, constants: Constants) -> Calibration:
        """With prototypes as far as they can be trusted; see ``Prototypes.shrunk``."""
        if self.prototypes.n_classes < 2:
            return self
        prototypes = self.prototypes.shrunk(self.within, self.coordinates.n_varying, constants)
        precision = self.precision / prototypes.steepness
        return replace(self, prototypes=prototypes, precision=precision)

    def unshrunk(self) -> Calibration:
        """With prototypes that are the means of their samples."""
        precision = self.precision * self.prototypes.steepness
        prototypes = self.prototypes.unshrunk(self.within.scatter)
        return replace(self, prototypes=prototypes, precision=precision)

    def with_classes(self, placed: Tensor) -> Calibration:
        """With further classes, each with one placed sample; see ``Prototypes.with_classes``."""
        prototypes = self.prototypes.with_classes(placed, self.within.scatter)
        return replace(self, prototypes=prototypes)

    def without_metric(self) -> Calibration:
        """The same for rows that are placed already: a metric takes much memory."""
        return replace(self, coordinates=replace(self.coordinates, metric=None))

    def with_rows(self, which: Tensor, others: Calibration) -> Calibration:
        """With the calibrations ``others`` of some tasks [m] in the place of these."""
        both = (self, others)
        found: Calibration = _combined(both, lambda two: two[0].index_copy(0, which, two[1]))
        return found

    @staticmethod
    def joined(parts: Sequence[Calibration]) -> Calibration:
        """The calibrations of consecutive tasks as one."""
        if len(parts) == 1:
            return parts[0]
        found: Calibration = _combined(parts, torch.cat)
        return found


def _combined(values: Sequence[Any], combine: Callable[[list[Tensor]], Tensor]) -> Any:
    """Values of one kind as one: each tensor is combined of theirs. Dataclasses are followed."""
    first = values[0]
    if torch.is_tensor(first):
        return combine(list(values))
    if not is_dataclass(first):
        return first
    kind: Any = type(first)
    parts = {}
    for one in fields(first):
        parts[one.name] = _combined([getattr(value, one.name) for value in values], combine)
    return kind(**parts)


def power_of_few_examples(counts: Tensor, constants: Constants) -> Tensor:
    """[t] the power of answers that few left-out samples have taught: 1/(1 + (10/n)²).

    n is K times the harmonic mean of ``counts`` [t, k], the examples of the classes: many of one
    class say little about another. A lower τ instead of a power loses labels: where 3 of 10 classes
    with two examples occur, up to 13 points.
    """
    effective = counts.shape[1] / (1 / counts).mean(-1)
    return 1 / (1 + (constants.doubtful_examples / effective).square())
