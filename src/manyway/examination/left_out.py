"""What each example looks like to the others: its class probabilities, computed as if it were not among the examples.

Examples z with n_k of class k have class means w_k and residuals r = z − w. Distances are those of linear discriminant
analysis with a shrunk covariance, A = (1 − γ) C/v + γ I, where C is the pooled within-class covariance with f degrees
of freedom and v its mean variance. Without example i, whose class has n examples,

    the mean of its class is n/(n − 1) times as far from it,
    A loses c rr' with c = (1 − γ)/(f v) · n/(n − 1), so that
    (z − w)'A⁻¹(z − w) grows by c ((z − w)'A⁻¹r)² / (1 − c r'A⁻¹r),

which needs one decomposition of the residuals for all examples and all γ. The probabilities of the classes are
p_k ∝ exp(−½ τ (d_k² − S/n_k)), where S/n_k is what the error of a mean adds to a squared distance d_k².

Labels may be wrong. A given label y is then seen with the probability (1 − ε) p_y + ε (1 − p_y)/(K − 1), and γ, τ and
the rate ε of wrong labels are those for which all given labels are most probable. With ε = 0 one wrong label, which is
far from its class, would make every distance meaningless. A log-normal prior holds τ near N/S, that of N independent
normal features, where N is the effective number of directions of the residuals; it decides where examples are few.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import log

import torch
from torch import Tensor

from manyway.core import Tasks
from manyway.methods.calibration import Constants, learn_representation

# γ, equally spaced in ln(γ/(1 − γ)) but for 1
_SHRINKAGES = (1.0, 0.95, 0.85, 0.6, 0.3, 0.1, 0.03, 0.01)
_ERROR_RATES = (0.01, 0.03, 0.06, 0.1, 0.2, 0.3, 0.4, 0.5)  # ε
_PRECISION_SD = 1.0  # of the prior of ln τ
_COARSE = 2.0  # the step between precisions that are tried first, as a factor
_STEPS = range(-7, 5)
_FINE = (0.6, 0.77, 1.0, 1.3, 1.67)  # and then around the best of them
_MOST_COMPARED = 1024  # evenly spaced examples that choose γ, τ and ε
_BLOCK_NUMBERS = 2**24  # distances that are computed at once


@dataclass(frozen=True, eq=False, kw_only=True)
class LeftOutAnswers:
    """The answers for examples that were left out in turn."""

    log_probabilities: Tensor  # [n, k] ln p, of the classes by the features alone
    # [n] whether the class has another example, without which none can be left out
    can_judge: Tensor
    error_rate: float  # ε
    shrinkage: float  # γ
    scatter: float  # S, the typical squared distance of an example from the mean of its class
    metric: Metric  # with the chosen γ


@dataclass(frozen=True, eq=False, kw_only=True)
class Metric:
    """Squared distances from rows to class means, without any left out."""

    spread: _Spread
    shrinkage: float

    def distances(self, represented: Tensor) -> Tensor:
        """[q, k] squared distances of represented rows [q, d]."""
        return self.spread.plain(represented, self.shrinkage)

    @property
    def own_distances(self) -> Tensor:
        """[n] squared distances of the examples from the means of their classes, without them."""
        every = _blocks(len(self.spread.labels), len(self.spread.counts))
        parts = [self.spread.without(some, self.shrinkage) for some in every]
        return torch.cat(parts).gather(1, self.spread.labels.unsqueeze(-1)).squeeze(-1)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Spread:
    """Class means, residuals, and the directions in which the residuals lie."""

    middle: Tensor  # [d]
    samples: Tensor  # [n, d] z, relative to the middle
    means: Tensor  # [k, d] w
    residuals: Tensor  # [n, d] r
    labels: Tensor  # [n]
    counts: Tensor  # [k]
    directions: Tensor  # [d, m] orthonormal
    variances: Tensor  # [m] C/v along them

    @staticmethod
    def of(samples: Tensor, labels: Tensor) -> _Spread:
        counts = torch.bincount(labels).to(samples)
        means = (
            torch.zeros(len(counts), samples.shape[1]).to(samples).index_add_(0, labels, samples)
        )
        means = means / counts.unsqueeze(-1)
        middle = means.mean(0)
        residuals = samples - means[labels]
        freedom = max(len(samples) - len(counts), 1)
        directions, squares = _principal(residuals)
        mean_variance = residuals.square().sum() / (freedom * samples.shape[1])
        tiny = torch.finfo(samples.dtype).tiny
        return _Spread(
            middle=middle,
            samples=samples - middle,
            means=means - middle,
            residuals=residuals,
            labels=labels,
            counts=counts,
            directions=directions,
            variances=squares / (freedom * mean_variance).clamp_min(tiny),
        )

    @property
    def own_counts(self) -> Tensor:
        """[n] the number of examples of the class of each example."""
        return self.counts[self.labels]

    def without(self, which: Tensor, gamma: float) -> Tensor:
        """[m, k] squared distances of the examples ``which`` [m] to the class means, both without the example."""
        others = self._scaled(self.means, gamma)
        rows = self._scaled(self.samples[which], gamma)
        residuals = self._scaled(self.residuals[which], gamma)
        distances = _squared_distances(rows, others)
        toward = (rows * residuals).sum(1, keepdim=True) - residuals @ others.mT
        farther = self.own_counts[which] / (self.own_counts[which] - 1).clamp_min(0.5)
        # r'r is what an example adds to f·C; C/v = 1 has the mean variance, so that the factor is 1/(f·v).
        weight = (1 - gamma) * self._weight * farther
        left = (1 - weight * residuals.square().sum(1)).clamp_min(1e-9)
        distances = distances + (weight / left).unsqueeze(-1) * toward.square()
        own = self.labels[which].unsqueeze(-1)
        return distances.scatter(1, own, distances.gather(1, own) * farther.square().unsqueeze(-1))

    def effective_directions(self, gamma: float) -> float:
        """N = (Σ v)²/Σ v², for the variances v of the residuals along all directions in the metric of γ."""
        along = self.variances / ((1 - gamma) * self.variances + gamma)
        return float(
            along.sum().square() / along.square().sum().clamp_min(torch.finfo(along.dtype).tiny)
        )

    def plain(self, rows: Tensor, gamma: float) -> Tensor:
        """[q, k] squared distances of rows [q, d] to the class means."""
        return _squared_distances(
            self._scaled(rows - self.middle, gamma), self._scaled(self.means, gamma)
        )

    @property
    def _weight(self) -> Tensor:
        """1/(f·v)"""
        total = self.residuals.square().sum().clamp_min(torch.finfo(self.residuals.dtype).tiny)
        return self.residuals.shape[1] / total

    def _scaled(self, rows: Tensor, gamma: float) -> Tensor:
        """Rows [n, d] in coordinates in which plain distances are those of A: A^(−½) rows."""
        along = rows @ self.directions
        factors = ((1 - gamma) * self.variances + gamma).rsqrt() - gamma**-0.5
        return rows * gamma**-0.5 + (along * factors) @ self.directions.mT


def _principal(residuals: Tensor) -> tuple[Tensor, Tensor]:
    """The directions [d, m] in which residuals [n, d] lie, and the sums of their squares along them [m]."""
    n_rows, n_features = residuals.shape
    if n_rows < n_features:
        squares, vectors = torch.linalg.eigh(residuals @ residuals.mT)
    else:
        squares, vectors = torch.linalg.eigh(residuals.mT @ residuals)
    kept = squares > 1e-10 * squares[-1].clamp_min(torch.finfo(squares.dtype).tiny)
    squares = squares[kept]
    vectors = vectors[:, kept]
    if n_rows < n_features:
        vectors = residuals.mT @ vectors / squares.sqrt()
    return vectors, squares


def _squared_distances(rows: Tensor, others: Tensor) -> Tensor:
    """[n, k] between rows [n, d] and others [k, d]."""
    lengths = rows.square().sum(1, keepdim=True) + others.square().sum(1)
    return lengths - 2 * rows @ others.mT


def represent(features: Tensor, labels: Tensor, rows: Tensor | None = None) -> Tensor:
    """[n, d] features [n, d], or other rows, in the representation that ``evidence`` learns from the examples."""
    tasks = Tasks.from_support(features[None], labels[None])
    representation = learn_representation(tasks, Constants())
    return representation(tasks.support[0] if rows is None else rows.to(tasks.support)).double()


def leave_out(represented: Tensor, labels: Tensor) -> LeftOutAnswers:
    """Judge every example by the others.

    Parameters
    ----------
    represented : Tensor of shape [n, d]
        The examples, see ``represent``.
    labels : Tensor of shape [n]
        Their classes, from 0 to K-1; each has at least one example, and some class has two.

    Returns
    -------
    LeftOutAnswers
    """
    spread = _Spread.of(represented, labels)
    can_judge = spread.own_counts > 1
    usable = can_judge.nonzero().flatten()
    compared = usable[:: -(-len(usable) // _MOST_COMPARED)]
    best: _Fit | None = None
    for gamma in _SHRINKAGES:
        found = _fit(spread, compared, gamma)
        if best is None or found.score > best.score:
            best = found
    assert best is not None
    parts = [
        _log_probabilities(spread, some, best) for some in _blocks(len(labels), len(spread.counts))
    ]
    return LeftOutAnswers(
        log_probabilities=torch.cat(parts),
        can_judge=can_judge,
        error_rate=best.error_rate,
        shrinkage=best.shrinkage,
        scatter=best.scatter,
        metric=Metric(spread=spread, shrinkage=best.shrinkage),
    )


@dataclass(frozen=True, kw_only=True)
class _Fit:
    """A choice of γ, τ and ε."""

    precision: float
    error_rate: float
    shrinkage: float = 1.0
    scatter: float = 1.0
    score: float  # ln of the probability of the given labels, and of the precision


def _fit(spread: _Spread, which: Tensor, gamma: float) -> _Fit:
    """The best τ and ε for a γ."""
    distances = spread.without(which, gamma)
    labels = spread.labels[which]
    own = distances.gather(1, labels.unsqueeze(-1)).squeeze(-1)
    others = spread.own_counts[which] - 1
    scatter = float((own / (1 + 1 / others)).median().clamp_min(torch.finfo(own.dtype).tiny))
    corrected = _corrected(spread, distances, which, scatter)
    usual = spread.effective_directions(gamma) / scatter
    tried = [_most_likely(corrected, labels, usual, _COARSE**step) for step in _STEPS]
    best = max(tried, key=lambda one: one.score)
    tried = [
        _most_likely(corrected, labels, usual, factor * best.precision / usual) for factor in _FINE
    ]
    best = max(tried, key=lambda one: one.score)
    return replace(best, shrinkage=gamma, scatter=scatter)


def _most_likely(distances: Tensor, labels: Tensor, usual: float, factor: float) -> _Fit:
    """The best ε for labels [m] with a precision that is ``factor`` times the usual one."""
    precision = factor * usual
    log_probabilities = (-0.5 * precision * distances).log_softmax(1)
    own = log_probabilities.gather(1, labels.unsqueeze(-1)).squeeze(-1).exp()
    n_others = max(distances.shape[1] - 1, 1)
    rates = own.new_tensor(_ERROR_RATES).unsqueeze(-1)
    seen = (1 - rates) * own + rates / n_others * (1 - own)
    of_labels = seen.clamp_min(1e-300).log().sum(1)
    best = int(of_labels.argmax())
    of_precision = -0.5 * (log(factor) / _PRECISION_SD) ** 2
    return _Fit(
        precision=precision,
        error_rate=_ERROR_RATES[best],
        score=float(of_labels[best]) + of_precision,
    )


def _corrected(spread: _Spread, distances: Tensor, which: Tensor, scatter: float) -> Tensor:
    """[m, k] squared distances less what the errors of the class means add to them."""
    counts = spread.counts.expand(len(which), -1).clone()
    own = spread.labels[which].unsqueeze(-1)
    counts.scatter_(1, own, (counts.gather(1, own) - 1).clamp_min(0.5))
    return distances - scatter / counts


def _log_probabilities(spread: _Spread, which: Tensor, fit: _Fit) -> Tensor:
    """[m, k]"""
    distances = _corrected(spread, spread.without(which, fit.shrinkage), which, fit.scatter)
    return (-0.5 * fit.precision * distances).log_softmax(1)


def _blocks(n_rows: int, n_classes: int) -> Iterator[Tensor]:
    size = max(1, _BLOCK_NUMBERS // n_classes)
    for first in range(0, n_rows, size):
        yield torch.arange(first, min(first + size, n_rows))


def suspicion(answers: LeftOutAnswers, labels: Tensor) -> Tensor:
    """[n] ln of the odds that a label is wrong; NaN for the only example of a class, which nothing can judge."""
    n_others = max(answers.log_probabilities.shape[1] - 1, 1)
    own = labels.unsqueeze(-1)
    right = answers.log_probabilities.gather(1, own).squeeze(-1)
    wrong = answers.log_probabilities.scatter(1, own, -torch.inf).logsumexp(1)
    odds = log(answers.error_rate / n_others) - log(1 - answers.error_rate) + wrong - right
    return odds.masked_fill(~answers.can_judge, torch.nan)
