"""Prototypes that are tuned to tell classes apart: logistic regression that begins with what the metric says.

Where examples are many, class means w_k are not the prototypes that label best. Tuned prototypes v_k lower

    Σ_i −ln p(y_i | z_i),    ln p(k | z) = −½ τ (‖z − v_k‖² − S/n_k) + const.,

over the placed support samples, by a few accelerated gradient steps from w (Nesterov, 1983). This is logistic
regression which is held near the metric's classifier by the number of its steps, and whose biases follow from its
weights. So it needs no temperature of its own, and its prototypes remain vectors among the items, which queries can
update. Free biases were worse on all of five sets.

Samples are as if they had been left out. z_i has a part in the metric; without it, its inner products are those of
z + ρ c(z·ρ)/(1 − h), where ρ is its placed residual and h = c‖ρ‖² its leverage (as in ``metric``). It has a part in the
mean of its class; without it, it is n/(n − 1) times as far from it. With the samples as they are, intents gain a third
less, and birds half.

The number of steps, or none, is chosen by the cross-entropy of every fifth example of each class, left out, twice. A
gain of a standard error was asked for first: it was no safer on five sets, and half of what intents and birds gain was
lost. On 28 tables of KEEL with at most 64 features and 20 examples per class labels gain 0.6 points.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from manyway.core import Tasks, one_hot
from manyway.core.kernels import tensor_cores
from manyway.methods.calibration.calibration import Calibration, ranks_of
from manyway.methods.calibration.constants import Constants
from manyway.methods.calibration.metric import rows_of

_FOLDS, _TRIED = 5, 2  # more would cost more than they tell
_STOPS = (2, 4, 8)  # the numbers of steps that are tried; more change nothing
_POWER_STEPS = 3  # to find how steep the objective is at most; accelerated steps may be a third too long
_MOST_LEVERAGE = 0.9
_MOST_SAMPLES = 512  # so many samples take part in the steps, those in most doubt: the others would change little


def tuned(calibration: Calibration, means: Tensor, tasks: Tasks, constants: Constants, always: bool) -> Calibration:
    """The calibration with tuned prototypes in the tasks where that helps, or in all.

    ``means`` [t, k, d] are the placed means of the classes, which the calibration may have shrunk.
    """
    placed, labels = calibration.place(tasks.support), tasks.support_labels
    examples, stops, n_classes = calibration.examples, _STOPS, means.shape[1]
    member, own_counts = one_hot(labels, n_classes, placed.dtype), examples.gather(1, labels)
    weights = own_counts.gt(1) / (1 + own_counts / constants.class_limit)
    biases = calibration.squares - calibration.offsets.square().sum(-1)
    shorter = calibration.offsets.norm(dim=-1, keepdim=True) / means.norm(dim=-1, keepdim=True).clamp_min(1e-30)
    tau = calibration.precision.view(-1, 1, 1)

    def left_out(means: Tensor, counts: Tensor) -> Tensor:
        """[t, s, d] the samples, each as if it had no part in the mean of its class."""
        return rows + (rows - rows_of(means, labels)) / (counts.gather(1, labels) - 1).clamp_min(1).unsqueeze(-1)

    def path(means: Tensor, counts: Tensor, used: Tensor, n_steps: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Prototypes [t, k, d], before each step and after the last, and biases; ``used`` [t, s] weighs the samples."""
        here = first = before = means * shorter
        samples, of = (rows_of(one, hardest) for one in (left_out(means, counts), member))
        farther = biases * examples / counts
        column = (used.gather(1, hardest) * (n_classes / used.sum(-1, keepdim=True))).unsqueeze(-1)
        momentum, pace, most = torch.ones_like(tau), step, torch.full_like(tau, torch.inf)
        for number in range(n_steps):
            yield before, farther
            logs = _scores(samples, here, farther, tau).log_softmax(-1)
            loss = -(logs * of * column).sum((1, 2), keepdim=True)
            good, most = loss <= most, most if number else loss
            pace = torch.where(good, pace, pace / 4)  # too long: begin again with shorter steps
            errors = logs.exp_().sub_(of).mul_(column)
            after = here - pace * (errors.mT @ samples - errors.sum(1).unsqueeze(-1) * here)
            faster = (1 + (1 + 4 * momentum.square()).sqrt()) / 2
            further = after + (momentum - 1) / faster * (after - before)
            here, before = torch.where(good, further, first), torch.where(good, after, first)
            momentum = torch.where(good, faster, 1.0)
        yield before, farther

    with tensor_cores(placed):
        rows = _without_themselves(calibration, placed, placed - rows_of(means, labels), own_counts)
        samples = left_out(means, examples)
        p = _scores(samples, calibration.offsets, biases, tau).softmax(-1)
        hardest = ((1 - (p * member).sum(-1)) * weights).topk(min(labels.shape[1], _MOST_SAMPLES), 1).indices
        column = (weights * (n_classes / weights.sum(-1, keepdim=True))).unsqueeze(-1)
        steepness = _steepness(*(rows_of(one, hardest) for one in (samples, p, member, column)))
        step = 1 / (steepness * tau).clamp_min(0.01)  # where no sample is in doubt, prototypes stay

        folds, gains = ranks_of(labels, examples) % _FOLDS, []
        for fold in range(_TRIED):
            without = weights * (folds == fold)
            missing, which = without.topk(int((without > 0).sum(-1).max()), 1)
            own = rows_of(member, which) * missing.gt(0).unsqueeze(-1)
            counts = examples - own.sum(1)
            centres = (means * examples.unsqueeze(-1) - own.mT @ rows_of(placed, which)) / counts.unsqueeze(-1)
            steps = enumerate(path(centres, counts, weights - without, stops[-1]))
            found = [one for number, one in steps if number in (0, *stops)]
            first, *logs = (_scores(rows_of(rows, which), *one, tau).log_softmax(-1) for one in found)
            gains.append(torch.stack([((one - first) * own).sum(-1) * missing for one in logs]).sum(-1))
        gain, best = torch.stack(gains).sum(0).max(0)
        better = (gain > 0) | always
        wanted = torch.tensor(stops, device=best.device)[best].where(better, 0).view(-1, 1, 1)
        offsets, steps = calibration.offsets, enumerate(path(means, examples, weights, int(wanted.max())))
        for number, (prototypes, _) in steps:
            offsets = torch.where((wanted == number) & better.view(-1, 1, 1), prototypes, offsets)
    return replace(calibration, offsets=offsets, squares=offsets.square().sum(-1) + biases)


def _scores(rows: Tensor, prototypes: Tensor, biases: Tensor, tau: Tensor) -> Tensor:
    """[t, n, k] log-likelihoods of rows [t, n, d], up to a number per row."""
    products = rows @ prototypes.mT  # on a CPU much faster than baddbmm
    return products.sub_(0.5 * (prototypes.square().sum(-1) + biases).unsqueeze(1)).mul_(tau)


def _steepness(rows: Tensor, p: Tensor, member: Tensor, weights: Tensor) -> Tensor:
    """[t, 1, 1] the largest eigenvalue of Σ w (diag p − pp') ⊗ zz', by power iteration that begins with the gradient.

    ``rows`` [t, s, d] have the probabilities p [t, s, k], the classes ``member`` [t, s, k] and weights [t, s, 1].
    """
    direction = ((p - member) * weights).mT @ rows
    for _ in range(_POWER_STEPS):
        length = torch.linalg.vector_norm(direction, dim=(1, 2), keepdim=True)
        along = p * (rows @ (direction / length.clamp_min(torch.finfo(rows.dtype).tiny)).mT)
        direction = (along - p * along.sum(-1, keepdim=True)).mul_(weights).mT @ rows
    return direction.square().sum((1, 2), keepdim=True).sqrt()


def _without_themselves(calibration: Calibration, placed: Tensor, residuals: Tensor, own_counts: Tensor) -> Tensor:
    """[t, s, d] placed samples, as if each had no part in the metric."""
    if calibration.metric is None:
        return placed
    n_samples, n_features = placed.shape[1:]
    total = ((n_samples - calibration.counts.shape[1]) * calibration.scatter).clamp_min(torch.finfo(placed.dtype).tiny)
    parts = (1 - calibration.shrinkage) * n_features / total
    parts = (parts / calibration.metric.stretch.square()).unsqueeze(-1) * own_counts / (own_counts - 1).clamp_min(1)
    leverage = (parts * residuals.square().sum(-1)).clamp_max(_MOST_LEVERAGE)
    along = parts * (placed * residuals).sum(-1) / (1 - leverage)
    return placed + residuals * along.unsqueeze(-1)
