"""Labels that are known for some of the queries, because a person has confirmed or corrected them.

A known query is a sample of its class, and the prototype takes it in. It counts half of a support sample, because a
person is asked about doubtful queries, which lie at the edge of their class. For the same reason precision and scatter
stay as they were calibrated on the support. In the search the assignment of a known query is fixed. What a group of
queries is called follows from its known members as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from manyway.core.ops import one_hot
from manyway.core.tasks import Tasks
from manyway.core.validation import as_labels
from manyway.errors import InputError
from manyway.methods.calibration.calibration import Calibration
from manyway.methods.evidence.posterior import leave_one_out
from manyway.methods.evidence.prior import log_remainders

# The log-likelihood of the classes that a known query does not have. It is finite, so that 0 times it is 0, and it can
# be multiplied by any sharpness in float32.
_EXCLUDED = -1e30
_WEIGHT = 0.5  # of a known query in its prototype


@dataclass(frozen=True, eq=False)
class Known:
    """The queries whose label is known."""

    rows: Tensor  # [t, q, 1] whether the label of the query is known
    classes: Tensor  # [t, q, k] one-hot in these rows, 0 in the others

    @staticmethod
    def of(labels: Tensor | None, tasks: Tasks) -> Known | None:
        """From labels [t, q], −1 where the label is not known; None where none is known."""
        if labels is None:
            return None
        labels = as_labels(labels, "known").to(tasks.device)
        if labels.shape != (tasks.n_tasks, tasks.n_query):
            raise InputError(
                f"known has shape {tuple(labels.shape)} but there are {(tasks.n_tasks, tasks.n_query)} queries; "
                "give one class per query, -1 where it is not known."
            )
        wrong = (labels < -1) | (labels >= tasks.n_classes)
        if bool(wrong.any()):
            task, row = wrong.nonzero()[0].tolist()
            raise InputError(
                f"known has the class {int(labels[task, row])} for query {row} of task {task}; "
                f"give a class from 0 to {tasks.n_classes - 1}, or -1 where it is not known."
            )
        rows = (labels >= 0).unsqueeze(-1)
        if not bool(rows.any()):
            return None
        return Known(rows, one_hot(labels.clamp_min(0), tasks.n_classes, tasks.dtype) * rows)

    @property
    def present(self) -> Tensor:
        """[t, k] whether a query is known to be of the class."""
        return self.classes.amax(1) > 0

    @property
    def weights(self) -> Tensor:
        """[t, q, k] the weights of the known queries in the prototypes."""
        return _WEIGHT * self.classes

    def taken_in(self, calibration: Calibration, placed: Tensor) -> Calibration:
        """The calibration with the known queries as further samples of their prototypes. All else stays."""
        weights = self.weights
        counts, sums = calibration.counts + weights.sum(1), weights.mT @ placed
        offsets = (calibration.offsets * calibration.counts.unsqueeze(-1) + sums) / counts.unsqueeze(-1)
        squares = offsets.square().sum(-1) - calibration.scatter.unsqueeze(-1) / counts
        return replace(calibration, offsets=offsets, squares=squares, counts=counts)

    def left_out(self, likelihood: Tensor, calibration: Calibration) -> Tensor:
        """[t, q, k] the log-likelihoods where each known query is left out of the prototype that has taken it in."""
        scatter, factor = calibration.scatter.view(-1, 1, 1), -0.5 * calibration.precision.view(-1, 1, 1)
        counts = calibration.counts.unsqueeze(1)
        without = leave_one_out(likelihood / factor + scatter / counts, self.weights, counts, scatter).mul_(factor)
        return torch.where(self.classes > 0, without, likelihood)

    def clamp(self, likelihood: Tensor) -> Tensor:
        """[t, q, k] log-likelihoods that leave known queries no other class."""
        return torch.where(self.rows, (1 - self.classes) * _EXCLUDED, likelihood)

    def fix(self, probabilities: Tensor) -> Tensor:
        """[t, q, k] with the known classes in their rows."""
        return torch.where(self.rows, self.classes, probabilities)

    def unknown(self, values: Tensor) -> Tensor:
        """[t, q, …] with 0 in the rows of known queries."""
        return values.masked_fill(self.rows, 0)

    def names(self, members: Tensor) -> Tensor:
        """[t, g, k] what the known queries say about the class of each group, as a log-likelihood.

        ``members`` [t, q, g] is the probability that a query would be in the group were its label not known. A group of
        class k contains no query of another class, so each known query of another class multiplies its likelihood by
        1 − u. Up to a number per group, this is to divide the likelihood of the query's own class by it.
        """
        return -(log_remainders(members).mT @ self.classes)
