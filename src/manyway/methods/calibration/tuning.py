"""Prototypes that are tuned to tell classes apart: logistic regression around what the metric says.

Where examples are many, class means w_k are not the prototypes that label best. Tuned prototypes v_k minimise

    (K/s) Σ_i −ln p(y_i | z_i) + ½ λ τ Σ_k ‖v_k − w_k‖²,    ln p(k | z) = −½ τ (‖z − v_k‖² − S/n_k) + const.

over the s placed support samples, by accelerated gradient steps from w (Nesterov, 1983). This is logistic regression
whose weights are drawn towards the metric's classifier instead of towards 0, and whose biases follow from its weights.
So it needs no temperature of its own, and its prototypes remain vectors among the items, which queries can update. Free
biases were worse on all of five sets.

Whether it helps is decided by leaving out every fifth example of each class, twice: the gain in cross-entropy over the
means of the other examples must be clear. A sample that is left out still has a part in the metric. Without it, its
inner products are those of z + ρ c(z·ρ)/(1 − h), where ρ is its placed residual and h = c‖ρ‖² its leverage (as in
``metric``).
"""

from dataclasses import replace

import torch
from torch import Tensor

from manyway.core import Tasks, one_hot
from manyway.core.kernels import tensor_cores
from manyway.methods.calibration.calibration import Calibration, ranks_of
from manyway.methods.calibration.constants import Constants

_FOLDS, _TRIED = 5, 2  # more would cost more than they tell
_POWER_STEPS = 8  # to find how steep the objective is at most
_MOST_LEVERAGE = 0.9


def tuned(calibration: Calibration, tasks: Tasks, constants: Constants, *, always: bool = False) -> Calibration:
    """The calibration with tuned prototypes in the tasks where that helps, or in all."""
    placed, labels = calibration.place(tasks.support), tasks.support_labels
    examples, n_steps = calibration.examples, constants.tuning_steps
    member, own_counts = one_hot(labels, examples.shape[1], placed.dtype), examples.gather(1, labels)
    weights = 1 / (1 + own_counts / constants.class_limit)
    biases = calibration.squares - calibration.offsets.square().sum(-1)
    tau = calibration.precision.view(-1, 1, 1)

    def descend(used: Tensor, start: Tensor, biases: Tensor, steps: int) -> Tensor:
        """[t, k, d] prototypes after some steps, from samples with weights ``used`` [t, s]."""
        column = (used * (examples.shape[1] / used.sum(-1, keepdim=True))).unsqueeze(-1)
        doubt = 1 - _scores(placed, start, biases, tau).softmax(-1).square().sum(-1, keepdim=True)
        step = 1 / (_steepness(placed, column * doubt) * tau + constants.tuning_pull)
        here, before, momentum, first = start, start, torch.ones_like(tau), torch.full_like(tau, torch.inf)
        for number in range(steps):
            logs = _scores(placed, here, biases, tau).log_softmax(-1)
            loss = constants.tuning_pull / 2 * (here - start).square().sum((1, 2), keepdim=True)
            loss = loss - (logs * member * column).sum((1, 2), keepdim=True) / tau
            errors = logs.exp_().sub_(member).mul_(column)
            slope = errors.mT @ placed - errors.sum(1).unsqueeze(-1) * here + constants.tuning_pull * (here - start)
            first, good = (loss, loss == loss) if number == 0 else (first, loss <= first)
            step = torch.where(good, step, step / 4)  # too long: begin again with shorter steps
            after, faster = here - step * slope, (1 + (1 + 4 * momentum.square()).sqrt()) / 2
            further = after + (momentum - 1) / faster * (after - before)
            here, before = torch.where(good, further, start), torch.where(good, after, start)
            momentum = torch.where(good, faster, 1.0)
        return before

    better = torch.ones_like(calibration.precision, dtype=torch.bool)
    with tensor_cores(placed):
        if not always:
            means = member.mT @ placed / examples.unsqueeze(-1)
            lengths = means.square().sum(-1).clamp_min(torch.finfo(placed.dtype).tiny)
            shorter = ((calibration.offsets * means).sum(-1) / lengths).unsqueeze(-1)  # how much prototypes are shrunk
            rows = _without_themselves(calibration, placed, placed - member @ means, own_counts)

            def answers(prototypes: Tensor, biases: Tensor) -> Tensor:
                """[t, s] the log-probability of each sample's own class."""
                found = _scores(rows, prototypes, biases, tau).log_softmax(-1)
                return found.gather(-1, labels.unsqueeze(-1)).squeeze(-1)

            folds, gains = ranks_of(labels, examples) % _FOLDS, torch.zeros_like(weights)
            for fold in range(_TRIED):
                left_out = (folds == fold) & (own_counts > 1)
                kept = (~left_out).to(placed.dtype)
                counts = (member * kept.unsqueeze(-1)).sum(1)
                start = (member * kept.unsqueeze(-1)).mT @ placed / counts.unsqueeze(-1) * shorter
                farther = biases * examples / counts
                found = descend(weights * kept, start, farther, n_steps // 2)
                gains += (answers(found, farther) - answers(start, farther)) * left_out * weights
                if not bool((gains.sum(-1) > 0).any()):
                    return calibration
            better = gains.sum(-1) > constants.tuning_gain * gains.square().sum(-1).sqrt()
            better &= examples.amin(-1) >= constants.tuning_examples
        if not bool(better.any()):
            return calibration
        found = descend(weights, calibration.offsets, biases, n_steps)
    offsets = torch.where(better.view(-1, 1, 1), found, calibration.offsets)
    return replace(calibration, offsets=offsets, squares=offsets.square().sum(-1) + biases)


def _scores(rows: Tensor, prototypes: Tensor, biases: Tensor, tau: Tensor) -> Tensor:
    """[t, n, k] log-likelihoods of rows [t, n, d], up to a number per row."""
    lengths = prototypes.square().sum(-1) + biases
    products = rows @ prototypes.mT  # on a CPU much faster than baddbmm
    return products.sub_(0.5 * lengths.unsqueeze(1)).mul_(tau)


def _steepness(rows: Tensor, weights: Tensor) -> Tensor:
    """[t, 1, 1] the largest eigenvalue of Σ w zz' for rows [t, s, d] and weights [t, s, 1], by power iteration."""
    direction, tiny = rows.square().mean(1).sqrt().unsqueeze(-1), torch.finfo(rows.dtype).tiny
    for _ in range(_POWER_STEPS):
        direction = direction / direction.norm(dim=1, keepdim=True).clamp_min(tiny)
        direction = rows.mT @ (weights * (rows @ direction))
    value: Tensor = direction.norm(dim=1, keepdim=True)
    return value


def _without_themselves(calibration: Calibration, placed: Tensor, residuals: Tensor, own_counts: Tensor) -> Tensor:
    """[t, s, d] placed samples, as if each had no part in the metric."""
    if calibration.metric is None:
        return placed
    n_samples, n_features = placed.shape[1:]
    freedom = n_samples - calibration.counts.shape[1]
    total = (freedom * calibration.scatter).clamp_min(torch.finfo(placed.dtype).tiny)
    parts = (1 - calibration.shrinkage) * n_features / total
    parts = (parts / calibration.metric.stretch.square()).unsqueeze(-1) * own_counts / (own_counts - 1).clamp_min(1)
    leverage = (parts * residuals.square().sum(-1)).clamp_max(_MOST_LEVERAGE)
    along = parts * (placed * residuals).sum(-1) / (1 - leverage)
    return placed + residuals * along.unsqueeze(-1)
