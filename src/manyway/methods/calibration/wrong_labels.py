"""Examples whose label may be wrong, and how much each example counts.

A label is right with the probability 1 − η, and else any other of the K classes. Example i is left
out of its class and of the metric (``left_out``), and the others say with p_ik what it looks like.
Its label y is then seen with the probability (1 − η) p_iy + η (1 − p_iy)/(K − 1), and is wrong with
the probability

    o_i = η (1 − p_iy)/(K − 1) / ((1 − η) p_iy + η (1 − p_iy)/(K − 1)).

Usually no label is wrong: η = 0 with the probability 1 − ``wrong_labels``, and otherwise ln η is
uniform. Wrong labels make distances seem to mean less than they do, and can choose a metric in
which none is suspicious. So the precision τ, and whether distances are plain or in the metric, are
judged with η, by the examples that are left out in turn (``ErrorRates``). o_i is the mean over all
of them, weighted by the probability of the labels that were given.

Where η = 0 is more probable than not, no o_i can be above ½: no label is in doubt, and none is
judged.

An example that is more probably wrong than right counts 2 (1 − o_i) instead of 1: in the mean and
the scatter of its class, and where examples are left out to find the metric and τ. All others count
1, so that examples of which none is suspicious are calibrated as if no label could be wrong. A
class has at least one right example; where fewer seem right, the weights of a class sum to 1. The
only example of a class cannot be judged, and of two that differ nobody can say which is wrong: they
count 1. Judged by each other, a third of the examples of weak features with two examples per class
were suspects, and up to 2 points were lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import Tasks, count_labels
from manyway.methods.calibration.calibration import Calibration, JudgedLabels
from manyway.methods.calibration.constants import Constants
from manyway.methods.calibration.left_out import LeftOut
from manyway.methods.calibration.log_sums import log_sums

# Lowest, highest, number: ln of η, and ln of τ relative to the one of a calibration in which all
# labels are right, which is too low where some are wrong.
_LOG_RATES = (-4.6, -0.7, 7)
_LOG_PRECISIONS = (-1.0, 5.0, 13)
_LEAST_WEIGHT = 1e-3  # of an example: what is divided by it stays finite
_MOST_NUMBERS = 1 << 24  # distances that are computed at once


class _Looks(NamedTuple):
    """What examples look like to the others, for every metric and precision that is tried."""

    own: Tensor  # [p, t, n] ln of the probability of the own class
    other: Tensor  # [p, t, n] and of all others together
    likeliest: Tensor  # [t, n] the nearest of the others
    judged: Tensor  # [t, n] 1 where the class has two others that can judge, else 0


@dataclass(frozen=True, eq=False, kw_only=True)
class ErrorRates:
    """How probable each rate η of wrong labels is, with each metric and precision."""

    posterior: Tensor  # [r, p, t] of η = 0, and of each of ``_rates``

    @property
    def some_wrong(self) -> Tensor:
        """[t] whether it is more probable that some labels are wrong than that none is."""
        return self.posterior[0].sum(0) < 0.5

    def __getitem__(self, rows: Tensor) -> ErrorRates:
        """Those of some tasks."""
        return ErrorRates(posterior=self.posterior[..., rows])


def _rates() -> list[float]:
    rates: list[float] = torch.linspace(*_LOG_RATES).exp().tolist()
    return rates


def learn_error_rates(
    calibrations: Sequence[Calibration], tasks: Tasks, samples: Tensor, constants: Constants
) -> ErrorRates:
    """How probable it is that labels are wrong.

    Parameters
    ----------
    calibrations : sequence of Calibration
        Of the tasks, as if all labels were right; each with another metric.
    tasks : Tasks
        With two classes or more.
    samples : Tensor of shape [t, n]
        The examples that tell it.
    constants : Constants

    Returns
    -------
    ErrorRates
    """
    looks = _joined([_looks(one, tasks, samples) for one in calibrations])
    n_others = tasks.n_classes - 1
    prior = constants.wrong_labels
    rates = _rates()
    none_wrong = looks.own * looks.judged
    fits = [none_wrong.sum(-1, dtype=torch.float64) + log(1 - prior)]
    for rate in rates:
        as_wrong = looks.other + log(rate / n_others)
        seen = torch.logaddexp(looks.own + log(1 - rate), as_wrong) * looks.judged
        fits.append(seen.sum(-1, dtype=torch.float64) + log(prior / len(rates)))
    stacked = torch.stack(fits)
    return ErrorRates(posterior=stacked.flatten(0, 1).softmax(0).view_as(stacked).to(looks.own))


def judge_labels(
    calibrations: Sequence[Calibration], tasks: Tasks, error_rates: ErrorRates
) -> JudgedLabels:
    """How probably each label is wrong.

    Parameters
    ----------
    calibrations, tasks
        As in ``learn_error_rates``.
    error_rates : ErrorRates

    Returns
    -------
    JudgedLabels
    """
    every = torch.arange(tasks.n_support, device=tasks.device)
    size = max(1, _MOST_NUMBERS // (tasks.n_tasks * tasks.n_classes))
    wrong = []
    looks_like = []
    for some in torch.split(every, size):
        samples = some.expand(tasks.n_tasks, -1)
        looks = _joined([_looks(one, tasks, samples) for one in calibrations])
        wrong.append(_wrong(looks, error_rates, tasks.n_classes - 1))
        looks_like.append(looks.likeliest)
    return _weighted(tasks, torch.cat(wrong, 1), torch.cat(looks_like, 1))


def _wrong(looks: _Looks, error_rates: ErrorRates, n_others: int) -> Tensor:
    """[t, n] o; 0 where nobody can judge."""
    wrong = torch.zeros_like(looks.judged)
    for rate, probability in zip(_rates(), error_rates.posterior[1:], strict=True):
        as_wrong = looks.other + log(rate / n_others)
        seen = torch.logaddexp(looks.own + log(1 - rate), as_wrong)
        wrong += ((as_wrong - seen).exp() * probability.unsqueeze(-1)).sum(0)
    return (wrong * looks.judged).clamp_max(1)


def _weighted(tasks: Tasks, wrong: Tensor, looks_like: Tensor) -> JudgedLabels:
    """Judged labels, from o [t, s] and the class that each example looks like [t, s]."""
    labels = tasks.support_labels
    weights = (2 * (1 - wrong)).clamp(_LEAST_WEIGHT, 1)
    totals = count_labels(labels, tasks.n_classes, weights).clamp_max(1)
    return JudgedLabels(
        wrong=wrong, looks_like=looks_like, weights=weights / totals.gather(1, labels)
    )


def _joined(looks: Sequence[_Looks]) -> _Looks:
    """Those in several metrics as one. The last metric says what an example looks like."""
    return looks[-1]._replace(
        own=torch.cat([one.own for one in looks]),
        other=torch.cat([one.other for one in looks]),
    )


def _looks(calibration: Calibration, tasks: Tasks, samples: Tensor) -> _Looks:
    """What some examples [t, n] look like."""
    labels = tasks.support_labels.gather(1, samples)
    prototypes = calibration.prototypes
    precision = calibration.precision
    left_out = LeftOut.of(labels, prototypes.counts, calibration.within.scatter, precision)
    placed = calibration.coordinates.place(tasks.some_support(samples))
    distances = left_out.distances(placed, prototypes.offsets, calibration.in_metric)
    own_class = labels.unsqueeze(-1)
    own = distances.gather(-1, own_class).squeeze(-1)
    others = distances.scatter_(-1, own_class, torch.inf)
    factors = torch.linspace(*_LOG_PRECISIONS, dtype=own.dtype, device=own.device).exp()
    precisions = factors.unsqueeze(-1) * precision
    of_own = own * (-0.5 * precisions).unsqueeze(-1)
    of_others = log_sums(others, precisions)
    total = torch.logaddexp(of_own, of_others)
    return _Looks(
        own=of_own - total,
        other=of_others - total,
        likeliest=others.argmin(-1),
        judged=(left_out.own_counts > 2).to(own),
    )
