"""Tuning: prototypes that tell classes apart, by logistic regression that begins with class means.

Where examples are many, class means w_k are not the prototypes that label best. Tuned ones
w′_k lower

    Σ_i −ln p(y_i | z_i),    ln p(k | z) = −½ τ (‖z − w′_k‖² − e_k) + const.,

over the placed support samples, by a few accelerated gradient steps from w (Nesterov, 1983); e_k
stays that of the mean (``prototypes``). This is logistic regression which is held near the metric's
classifier by the number of its steps, and whose biases follow from its weights. So it needs no
temperature of its own, and its prototypes remain vectors among the items, which queries can update.
Free biases were worse on all of five sets.

Samples are as if they had been left out. z_i has a part in the metric; without it, its inner
products are those of z + r c(z·r)/(1 − c‖r‖²), where r is its placed residual and c‖r‖² its leverage
(as in ``metric``). It has a part in the mean of its class; without it, it is n/(n − 1) times as far
from it. With the samples as they are, intents gain a third less, and birds half.

The number of steps, or none, is chosen by the cross-entropy of every fifth example of each class,
left out, twice; they are counted by their distance from the middle of all classes. A gain of a
standard error was asked for first: it was no safer on five sets, and half of what intents and birds
gain was lost. On 28 tables of KEEL with at most 64 features and 20 examples per class labels gain
0.6 points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from manyway.core import Tasks, count_labels, one_hot
from manyway.core.kernels import tensor_cores
from manyway.methods.calibration.calibration import Calibration
from manyway.methods.calibration.left_out import ranks_of
from manyway.methods.calibration.metric import rows_of

_FOLDS = 5
_TRIED = 2  # folds; more would cost more than they tell
_MOST_STEPS = 8  # every number of steps up to this is tried; more change nothing
# To find how steep the objective is at most; accelerated steps may be a third too long.
_POWER_STEPS = 3
_MOST_LEVERAGE = 0.9
# So many samples take part in the steps, those in most doubt: the others would change little.
_MOST_SAMPLES = 512
_SHORTEST = 1e-30  # a mean in the middle has no direction
_LEAST_STEEPNESS = 0.01  # where no sample is in doubt, prototypes stay
_SHORTER_STEP = 4  # what a step that was too long is divided by
_NESTEROV = 4  # in the momentum (1 + √(1 + 4 m²)) / 2


def tuned(
    calibration: Calibration,
    means: Tensor,
    tasks: Tasks,
    always: bool,
) -> Calibration:
    """The calibration with tuned prototypes in the tasks where that helps, or in all.

    ``means`` [t, k, d] are the placed means of the classes, which the calibration may have shrunk.
    """
    placed = calibration.coordinates.place(tasks.support)
    with tensor_cores(placed):
        regression = _Regression.of(calibration, placed, means, tasks.support_labels)
        whole = regression.all_samples
        chosen = regression.best_stop()
        better = (chosen.gain > 0) | always
        wanted = chosen.n_steps.where(better, 0).view(-1, 1, 1)
        better = better.view(-1, 1, 1)
        offsets = calibration.prototypes.offsets
        for number, moved in enumerate(regression.path(whole, int(wanted.max()))):
            offsets = torch.where((wanted == number) & better, moved, offsets)
    squares = offsets.square().sum(-1) - regression.errors
    prototypes = replace(calibration.prototypes, offsets=offsets, squares=squares)
    return replace(calibration, prototypes=prototypes)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Samples:
    """The samples that prototypes are tuned on."""

    means: Tensor  # [t, k, d] of the classes
    counts: Tensor  # [t, k] how many samples the classes have
    weights: Tensor  # [t, s] what each sample counts in the objective
    parts: Tensor  # [t, s] and in the mean of its class


@dataclass(frozen=True, eq=False, kw_only=True)
class _Stop:
    """After how many steps to stop."""

    gain: Tensor  # [t] by how much the cross-entropy of samples that are left out falls
    n_steps: Tensor  # [t]


@dataclass(frozen=True, eq=False, kw_only=True)
class _Regression:
    """The logistic regression of some tasks."""

    placed: Tensor  # [t, s, d] all samples
    rows: Tensor  # [t, s, d] the same, each as if it had no part in the metric
    labels: Tensor  # [t, s]
    member: Tensor  # [t, s, k] 1 for the class of a sample, else 0
    all_samples: _Samples
    errors: Tensor  # [t, k] e_k of the means of all samples
    shorter: Tensor  # [t, k, 1] by how much prototypes are shorter than means
    tau: Tensor  # [t, 1, 1]
    hardest: Tensor  # [t, n] the samples in most doubt
    step: Tensor  # [t, 1, 1] the length of a step

    @staticmethod
    def of(
        calibration: Calibration,
        placed: Tensor,
        means: Tensor,
        labels: Tensor,
    ) -> _Regression:
        """Of placed samples [t, s, d] with labels [t, s] in classes with means [t, k, d]."""
        prototypes = calibration.prototypes
        examples = prototypes.examples
        n_classes = means.shape[1]
        own_counts = examples.gather(1, labels)
        parts = calibration.judged.weights
        others = (own_counts - parts).clamp(0, 1)  # without another, a sample cannot be left out
        weights = parts * others * own_counts.rsqrt()
        member = one_hot(labels, n_classes, placed.dtype)
        errors = prototypes.errors
        tau = calibration.precision.view(-1, 1, 1)
        residuals = placed - rows_of(means, labels)
        rows = _without_themselves(calibration, placed, residuals, own_counts)
        whole = _Samples(means=means, counts=examples, weights=weights, parts=parts)
        samples = _left_out(rows, whole, labels)
        p = _scores(samples, prototypes.offsets, errors, tau).softmax(-1)
        doubt = (1 - (p * member).sum(-1)) * weights
        hardest = doubt.topk(min(labels.shape[1], _MOST_SAMPLES), 1).indices
        column = _column(weights, weights, n_classes)
        steepness = _steepness(
            rows_of(samples, hardest),
            rows_of(p, hardest),
            rows_of(member, hardest),
            rows_of(column, hardest),
        )
        lengths = means.norm(dim=-1, keepdim=True).clamp_min(_SHORTEST)
        return _Regression(
            placed=placed,
            rows=rows,
            labels=labels,
            member=member,
            all_samples=whole,
            errors=errors,
            shorter=prototypes.offsets.norm(dim=-1, keepdim=True) / lengths,
            tau=tau,
            hardest=hardest,
            step=1 / (steepness * tau).clamp_min(_LEAST_STEEPNESS),
        )

    def path(self, given: _Samples, n_steps: int) -> Iterator[Tensor]:
        """Prototypes [t, k, d], before each step and after the last."""
        first = given.means * self.shorter
        here = first
        before = first
        left_out = _left_out(self.rows, given, self.labels)
        samples = rows_of(left_out, self.hardest)
        member = rows_of(self.member, self.hardest)
        errors_of_means = self._errors(given)
        weights = given.weights
        column = _column(weights.gather(1, self.hardest), weights, member.shape[-1])
        momentum = torch.ones_like(self.tau)
        pace = self.step
        most = torch.full_like(self.tau, torch.inf)
        for number in range(n_steps):
            yield before
            logs = _scores(samples, here, errors_of_means, self.tau).log_softmax(-1)
            loss = -(logs * member * column).sum((1, 2), keepdim=True)
            good = loss <= most
            if number == 0:
                most = loss
            # Too long: begin again with shorter steps.
            pace = torch.where(good, pace, pace / _SHORTER_STEP)
            errors = logs.exp_().sub_(member).mul_(column)
            after = here - pace * (errors.mT @ samples - errors.sum(1).unsqueeze(-1) * here)
            faster = (1 + (1 + _NESTEROV * momentum.square()).sqrt()) / 2
            further = after + (momentum - 1) / faster * (after - before)
            here = torch.where(good, further, first)
            before = torch.where(good, after, first)
            momentum = torch.where(good, faster, 1.0)
        yield before

    def best_stop(self) -> _Stop:
        """The number of steps with the highest gain, by leaving folds of the samples out."""
        weights = self.all_samples.weights
        gains = [self._gains(weights * (self._folds == fold)) for fold in range(_TRIED)]
        gain, best = torch.stack(gains).sum(0).max(0)
        return _Stop(gain=gain, n_steps=best + 1)

    @cached_property
    def _folds(self) -> Tensor:
        """[t, s] every fifth sample of a class is of a fold, from the middle of all classes outwards.

        So the order in which samples come changes nothing. Equal ones may change places. Distances
        from the mean of their class would be equal for the two samples of a class.
        """
        order = self.placed.square().sum(-1).argsort(1)
        sizes = count_labels(self.labels, self.member.shape[-1])
        ranks = ranks_of(self.labels.gather(1, order), sizes)
        return torch.empty_like(ranks).scatter_(1, order, ranks) % _FOLDS

    def _gains(self, held_out: Tensor) -> Tensor:
        """[n, t] the gain of each number of steps, from 1 on, for samples that are held out.

        ``held_out`` [t, s] is their weight in the objective, and 0 for the others.
        """
        missing, which = held_out.topk(int((held_out > 0).sum(-1).max()), 1)
        every = self.all_samples
        own = rows_of(self.member, which) * missing.gt(0).unsqueeze(-1)
        taken = own * every.parts.gather(1, which).unsqueeze(-1)
        counts = (every.counts - taken.sum(1)).clamp_min(1)
        sums = every.means * every.counts.unsqueeze(-1) - taken.mT @ rows_of(self.placed, which)
        means = sums / counts.unsqueeze(-1)
        given = replace(every, means=means, counts=counts, weights=every.weights - held_out)
        errors = self._errors(given)
        rows = rows_of(self.rows, which)
        logs = [
            (_scores(rows, prototypes, errors, self.tau).log_softmax(-1) * own).sum(-1)
            for prototypes in self.path(given, _MOST_STEPS)
        ]
        gains = [(one - logs[0]) * missing for one in logs[1:]]
        return torch.stack(gains).sum(-1)

    def _errors(self, given: _Samples) -> Tensor:
        """[t, k] e_k of the means of as many samples as are given."""
        return self.errors * self.all_samples.counts / given.counts


def _others(own_counts: Tensor, parts: Tensor) -> Tensor:
    """[t, s] how many other samples there are in the classes of samples that count ``parts``."""
    return (own_counts - parts).clamp_min(1)


def _left_out(rows: Tensor, given: _Samples, labels: Tensor) -> Tensor:
    """[t, s, d] the samples, each as if it had no part in the mean of its class."""
    others = _others(given.counts.gather(1, labels), given.parts).unsqueeze(-1)
    residuals = rows - rows_of(given.means, labels)
    return rows + residuals * given.parts.unsqueeze(-1) / others


def _column(weights: Tensor, of_all: Tensor, n_classes: int) -> Tensor:
    """[t, n, 1] weights [t, n], so that those of all samples sum to the number of classes."""
    return (weights * (n_classes / of_all.sum(-1, keepdim=True))).unsqueeze(-1)


def _scores(rows: Tensor, prototypes: Tensor, errors: Tensor, tau: Tensor) -> Tensor:
    """[t, n, k] log-likelihoods of rows [t, n, d], up to a number per row."""
    products = rows @ prototypes.mT  # on a CPU much faster than baddbmm
    return products.sub_(0.5 * (prototypes.square().sum(-1) - errors).unsqueeze(1)).mul_(tau)


def _steepness(rows: Tensor, p: Tensor, member: Tensor, weights: Tensor) -> Tensor:
    """[t, 1, 1] the largest eigenvalue of Σ w (diag p − pp') ⊗ zz'.

    It is found by power iteration that begins with the gradient.

    ``rows`` [t, s, d] have the probabilities p [t, s, k], the classes ``member`` [t, s, k] and
    weights [t, s, 1].
    """
    direction = ((p - member) * weights).mT @ rows
    for _ in range(_POWER_STEPS):
        length = torch.linalg.vector_norm(direction, dim=(1, 2), keepdim=True)
        along = p * (rows @ (direction / length.clamp_min(torch.finfo(rows.dtype).tiny)).mT)
        direction = (along - p * along.sum(-1, keepdim=True)).mul_(weights).mT @ rows
    return direction.square().sum((1, 2), keepdim=True).sqrt()


def _without_themselves(
    calibration: Calibration,
    placed: Tensor,
    residuals: Tensor,
    own_counts: Tensor,
) -> Tensor:
    """[t, s, d] placed samples, as if each had no part in the metric."""
    in_metric = calibration.in_metric
    if in_metric is None:
        return placed
    weights = calibration.judged.weights
    parts = in_metric.unsqueeze(-1) * weights
    parts = parts * own_counts / _others(own_counts, weights)
    leverage = (parts * residuals.square().sum(-1)).clamp_max(_MOST_LEVERAGE)
    along = parts * (placed * residuals).sum(-1) / (1 - leverage)
    return placed + residuals * along.unsqueeze(-1)
