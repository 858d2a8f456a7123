"""The first step of the metric: which features are compared at all. It is learned from the support, for each task.

There are four ways:

==============  ======================================================================================
``raw``         features as they are, relative to their middle
``unit``        rows of unit length: embeddings, whose length says little
``columns``     columns divided by their scale: measurements in different units
``both``        columns divided by their scale, then rows of unit length
==============  ======================================================================================

With ``both``, the squares of a row are near 1 on average. A row with an average above 9, three scales, is longer than 1
by as much as it is farther: an outlier has the direction of some class by chance.

All but ``raw`` take sign(z)·|z|^⅝ first where the support has nothing negative (see ``transforms.level``). The middle
is the mean of the class means, so that a class of many examples does not move it.

**Scales.** Column j has the variance o_j over all examples (classes weighted equally), with m degrees of freedom, and
the variance s_j within classes, with f. The second is what counts, but few examples give both mostly by chance. So

    ln scale_j² = l + κ (ln o_j − l) + λ (e_j − ē),    e_j = ln(s_j / o_j),    l the mean of ln o,
    κ = max(0, 1 − ψ'(m/2) / var(ln o)),               λ = max(0, 1 − ψ'(f/2) / var(e)),

where ψ'(m/2) is the variance of ln o_j by chance alone: the columns themselves say how much their scales can be trusted
(empirical Bayes, as for the variances of genes in Smyth, 2004). Where they differ no more than by chance, all have one
scale. With one example per class λ is 0.

**What can be seen.** Without leaving anything out, ``columns`` is for few features (at most 64), which are mostly
measurements in units of their own, and scales that are like by chance are equal anyway. Of more features the variances
must differ far more than by chance: var(ln o) − ψ'(m/2) > 2, and by three standard deviations of chance. Unit length is
for features of which many matter: (Σ o)²/Σ o² ≥ 8. One example per class has no other choice.

**What leaving out says.** Each of the four ways is calibrated with its metric. The one with the smallest cross-entropy
of left-out samples is taken where its gain over what can be seen exceeds two standard errors. Left-out samples have a
part in the scales; without it tables of few examples were labelled no better, and their claims were too low.

Features like those of a neural network, of which many matter (at least 32) and whose variances differ little
(var(ln o) − ψ' ≤ 1), always keep unit length: no other way was better on any of five sets, and nothing is to be tried.

References: Smyth, "Linear models and empirical Bayes methods for assessing differential expression in microarray
experiments", Statistical Applications in Genetics and Molecular Biology, 2004.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from manyway.core import Scaling, Scalings, Tasks, apply, class_moments, class_sums, dense, level, rowwise, unit
from manyway.methods.calibration.calibration import calibrated, left_out_samples
from manyway.methods.calibration.constants import Constants
from manyway.methods.calibration.metric import rows_of

WAYS = ("raw", "unit", "columns", "both")
_UNIT, _COLUMNS, _BOTH = 1, 2, 3
_MOST_ROWS = 128  # evenly spaced samples that show how the features look
_TASK_NUMBERS = 1 << 24  # tasks are tried in blocks of about this many numbers
_SMALL = 1 << 20  # numbers of tasks for which all ways are tried at once: the calls take longer than the work
_LONGEST = 1e3  # the greatest length of a row of outliers
_CONSTANT = 1e-10  # a part of a variance that is none, but for rounding
_ROUNDING = 4  # a standard deviation of so many last digits of the middle is none


@dataclass(frozen=True, eq=False)
class FirstStep:
    """What is done to every row of t tasks; one row serves all tasks with the same support."""

    way: Tensor  # [t] the number in ``WAYS``
    levels: Tensor  # [t] whether powers are taken
    middle: Tensor  # [t, 1, d] what is subtracted then
    factor: Tensor  # [t, 1, d] what is multiplied then
    far: Tensor  # [t, 1, 1] scales from which on rows are longer than 1, where columns are divided by their scale
    usual: Tensor  # [t] whether features look like embeddings, and are not few

    @property
    def unit(self) -> Tensor:
        """[t] whether rows have unit length."""
        return (self.way == _UNIT) | (self.way == _BOTH)

    @property
    def scaled(self) -> Tensor:
        """[t] whether columns are divided by their scale."""
        return self.way >= _COLUMNS

    @property
    def names(self) -> list[str]:
        """The way of each task."""
        return [WAYS[number] for number in self.way.tolist()]

    def __call__(self, rows: Tensor) -> Tensor:
        """[t, n, d] from rows [t, n, d], or [m, d] where the step serves all tasks."""
        flags = (self.levels, self.scaled, self.unit)
        # The part of the tasks that have each; a GPU is asked once.
        levelled, scaled, united = torch.stack([one.double().mean() for one in flags]).tolist()
        if levelled:
            rows = level(rows) if levelled == 1 else torch.where(_like(self.levels), level(rows), rows)
        rows = rows - (self.middle if rows.ndim == 3 else self.middle[0])
        if scaled:
            rows = rows * (self.factor if rows.ndim == 3 else self.factor[0])
        if not united:
            return rows
        short = unit(rows)
        if scaled:
            far = self.far if rows.ndim == 3 else self.far[0]
            longer = (rows.square().mean(-1, keepdim=True).sqrt() / far).clamp(1, _LONGEST)
            short = short * (longer if scaled == 1 else torch.where(_like(self.scaled), longer, 1.0))
        return short if united == 1 else torch.where(_like(self.unit), short, rows)

    def apply(self, tasks: Tasks) -> Tasks:
        """The tasks with all rows changed."""
        if len(self.way) < tasks.n_tasks or tasks.n_tasks == 1:
            return rowwise(tasks, self)
        if bool((self.way == _UNIT).all()) and bool((self.levels == self.levels[0]).all()):
            curve = level if bool(self.levels[0]) else None
            return apply(tasks, Scalings.same(Scaling(curve, middle=self.middle, unit=True)))
        return dense(tasks, self)

    def __getitem__(self, which: slice | Tensor) -> FirstStep:
        return FirstStep(*(one[which] for one in vars(self).values()))


def _like(flags: Tensor) -> Tensor:
    return flags.view(-1, 1, 1)


def of_embeddings(tasks: Tasks) -> Scaling:
    """Unit length for all tasks, without a choice. Classes without examples have no part in the middle."""
    tasks = tasks[:1] if tasks.shared_support else tasks
    step = _unit_step(replace(tasks, class_table=None))[0]
    step = step if tasks.base_mean is None else _with_base_mean(step, tasks.base_mean)
    return Scaling(level, which=_like(step.levels), middle=step.middle, unit=True)


def choose(tasks: Tasks, constants: Constants, metric: bool = True) -> FirstStep:
    """The first step of each task, from its support alone. Tasks with one support have one first step.

    The mean of the base classes, where it is given, is the middle of rows of unit length without powers.
    """
    tasks = replace(tasks[:1] if tasks.shared_support else tasks, class_table=None)
    chosen, levelled, counts = _unit_step(tasks)
    way, usual = _seen(levelled, counts, chosen.middle, constants)
    chosen = replace(chosen, way=way, far=constants.far_rows * chosen.far)
    chosen = replace(chosen, usual=usual & (tasks.n_features > constants.few_features))
    which = (~usual).nonzero().squeeze(1)
    if len(which):
        at_once = max(1, _TASK_NUMBERS // (tasks.n_support * tasks.n_features))
        parts = []
        for some in torch.split(which, at_once):
            one = tasks[some]
            parts.append(_tried(one.support, one.support_labels, counts[some], chosen[some], constants, metric))
        found = map(torch.cat, zip(*(vars(part).values() for part in parts), strict=True))
        old = vars(chosen).values()
        chosen = FirstStep(*(one.index_copy(0, which, new) for one, new in zip(old, found, strict=True)))
    return chosen if tasks.base_mean is None else _with_base_mean(chosen, tasks.base_mean)


def _unit_step(tasks: Tasks) -> tuple[FirstStep, Tasks, Tensor]:
    """Unit length, the tasks with powers where these are taken, and the number of samples per class [t, k]."""
    lowest = tasks.support_table.amin(-1)  # [n] or [t, s]; factors are positive, so they can be ignored
    levels = (lowest if tasks.support_index is None else lowest[tasks.support_index]).amin(-1) >= 0
    levelled = tasks
    if bool(levels.all()):
        levelled = rowwise(tasks, level)
    elif bool(levels.any()):
        levelled = dense(tasks, lambda rows: torch.where(_like(levels), level(rows), rows))
    sums, counts = class_sums(levelled)
    means = sums / counts.clamp_min(1).unsqueeze(-1)
    middle = means.sum(1, keepdim=True) / _like((counts > 0).sum(-1))
    way = torch.full_like(levels, _UNIT, dtype=torch.long)
    ones = torch.ones_like(middle), torch.ones_like(middle[..., :1])
    return FirstStep(way, levels, middle, *ones, torch.ones_like(levels)), levelled, counts


def _with_base_mean(step: FirstStep, base_mean: Tensor) -> FirstStep:
    return replace(step, middle=torch.where(_like((step.way == _UNIT) & ~step.levels), base_mean, step.middle))


def _seen(tasks: Tasks, counts: Tensor, middle: Tensor, constants: Constants) -> tuple[Tensor, Tensor]:
    """[t] the way that can be seen, and whether it is the usual one of embeddings."""
    some = slice(None, None, -(-tasks.n_support // _MOST_ROWS))
    labels, index = tasks.support_labels[:, some], tasks.support_index
    rows = tasks.support_table[:, some] if index is None else tasks.support_table[index[:, some]]
    rows = rows if tasks.factor is None else rows * tasks.factor
    weights = 1 / counts.gather(1, labels)
    overall = (weights / weights.sum(-1, keepdim=True)).unsqueeze(1) @ (rows - middle).square()
    overall, varies = overall.squeeze(1), _varying(overall, middle, constants).squeeze(1)
    many = overall.sum(-1).square() / overall.square().sum(-1).clamp_min(torch.finfo(overall.dtype).tiny)
    freedom = _freedom(weights)
    unequal = _variance(overall.clamp_min(torch.finfo(overall.dtype).tiny).log(), varies) - _chance(freedom)
    by_chance = _chance(freedom) * (2 / (varies.sum(-1) - 1).clamp_min(1)).sqrt()  # the standard deviation of `unequal`
    columns = (unequal > constants.unequal_columns + 3 * by_chance) & (freedom >= constants.least_freedom)
    columns |= torch.full_like(columns, tasks.n_features <= constants.few_features)
    many = torch.where(columns, varies.sum(-1).to(many), many)
    way = (many >= constants.many_columns).long() * _UNIT + columns.long() * _COLUMNS
    return way, (many >= constants.usual_columns) & (unequal <= constants.usual_unequal)


def _varying(variances: Tensor, middle: Tensor, constants: Constants) -> Tensor:
    """[t, 1, d] whether a column is not constant but for rounding; other columns may have far larger numbers.

    Of many columns those of nearly no variance are dead units of a network.
    """
    usual = variances.median(-1, keepdim=True).values * (variances.shape[-1] > constants.few_features)
    rounding = (_ROUNDING * torch.finfo(middle.dtype).eps * middle).square()
    return variances > torch.maximum(rounding, _CONSTANT * usual)


def _variance(values: Tensor, which: Tensor) -> Tensor:
    """[…] of some of the values […, d]."""
    number = which.sum(-1)
    mean = (values * which).sum(-1) / number.clamp_min(1)
    return ((values - mean.unsqueeze(-1)).square() * which).sum(-1) / (number - 1).clamp_min(1)


def _chance(freedom: Tensor) -> Tensor:
    """ψ'(f/2), the variance of the logarithm of a sample variance with f degrees of freedom."""
    return torch.special.polygamma(1, freedom / 2)


def _freedom(weights: Tensor) -> Tensor:
    """[t] one less than as many samples as would be as informative as those with weights [t, s], if all were equal."""
    return (weights.sum(-1).square() / weights.square().sum(-1) - 1).clamp_min(0.1)


def reciprocal_scales(rows: Tensor, middle: Tensor, labels: Tensor, counts: Tensor, constants: Constants) -> Tensor:
    """[t, 1, d] 1/scale of columns, and 0 for constant ones; rows [t, s, d] are relative to their middle [t, 1, d].

    They have labels [t, s], of classes with counts [t, k].
    """
    n_classes, weights = counts.shape[1], 1 / counts.gather(1, labels)
    freedom = rows.shape[1] - n_classes
    overall = (weights / weights.sum(-1, keepdim=True)).unsqueeze(1) @ rows.square()
    within = (rows - rows_of(_means(rows, labels, n_classes), labels)).square().sum(1, keepdim=True) / max(freedom, 1)
    varies = _varying(overall, middle, constants)
    both = varies & (within > _CONSTANT * overall)
    tiny = torch.finfo(rows.dtype).tiny
    logs = overall.clamp_min(tiny).log()
    ratios = (within.clamp_min(tiny).log() - logs) * both
    number = both.sum(-1, keepdim=True)
    mean = ratios.sum(-1, keepdim=True) / number.clamp_min(1)
    usual = (logs * varies).sum(-1, keepdim=True) / varies.sum(-1, keepdim=True).clamp_min(1)

    def beyond_chance(values: Tensor, which: Tensor, freedom: Tensor) -> Tensor:
        """[t, 1, 1] the part of the variance of logarithms [t, 1, d] that is not chance."""
        by_chance = _chance(freedom).view(-1, 1, 1)
        return (1 - by_chance / _variance(values, which).unsqueeze(-1).clamp_min(tiny)).clamp(0, 1)

    differ = beyond_chance(logs, varies, _freedom(weights))
    trust = beyond_chance(ratios, both, torch.full_like(weights[:, 0], max(freedom, 1)))
    trust = trust * ((number > 2) & (freedom > 0))
    logs = usual + differ * (logs - usual) + trust * (ratios - mean) * both
    return (-0.5 * logs).exp() * varies


def _tried(
    support: Tensor, labels: Tensor, counts: Tensor, seen: FirstStep, constants: Constants, metric: bool
) -> FirstStep:
    """The best of all ways for tasks with support [t, s, d], labels [t, s] and counts [t, k]."""
    n_tasks, n_classes = counts.shape
    samples, raw_middle = left_out_samples(labels, counts), _means(support, labels, n_classes).mean(1, keepdim=True)
    levelled = torch.where(_like(seen.levels), level(support), support) - seen.middle
    of = torch.arange(n_tasks, device=counts.device).repeat(len(WAYS))  # way after way, as tasks
    way, steps = torch.arange(len(of), device=of.device).div(n_tasks, rounding_mode="floor"), seen[of]
    middle = torch.where(_like(way > 0), steps.middle, raw_middle[of])
    scales = reciprocal_scales(levelled, seen.middle, labels, counts, constants)
    factor = torch.where(_like(way >= _COLUMNS), scales[of], 1.0)
    steps = replace(steps, way=way, levels=steps.levels & (way > 0), middle=middle, factor=factor)
    best = seen.way
    if support.shape[1] > n_classes:
        losses, at_once = [], len(of) if support.numel() < _SMALL else n_tasks
        for first in range(0, len(of), at_once):
            step, which = steps[first : first + at_once], of[:at_once]
            rows = step(support[which])
            one = Tasks(rows, None, labels[which], rows[:, :0], None, n_classes)
            losses.append(calibrated(one, class_moments(one), samples[which], constants, metric=metric).losses)
        stacked = torch.cat(losses).view(len(WAYS), n_tasks, -1)
        own = stacked.gather(0, seen.way.view(1, -1, 1).expand(1, -1, stacked.shape[-1]))
        gains, z, n = own - stacked, constants.way_gain, samples.shape[1]
        # About the quantile of Student's distribution that is as improbable: n gains estimate their own variance, and
        # with few of them one of several ways gains by chance.
        limit = z * (1 + (z**2 + 1) / (4 * max(n - 1, 1)))
        better = gains.sum(-1) > limit * gains.var(-1).mul(gains.shape[-1]).sqrt()
        total = stacked.sum(-1).masked_fill(~better, torch.inf)
        best = torch.where(better.any(0), total.argmin(0), seen.way)
        usable = stacked.isfinite().all(-1).gather(0, best[None])[0]  # single values may be far too large for some ways
        best = torch.where(usable, best, _UNIT)
    return steps[best * n_tasks + of[:n_tasks]]


def _means(rows: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """[t, k, d] class means of rows [t, s, d]."""
    sums, counts = class_sums(Tasks(rows, None, labels, rows[:, :0], None, n_classes))
    return sums / counts.unsqueeze(-1)
