"""A calibration is learned from the support alone.

Each support sample is left out in turn and classified among the prototypes (``left_out``). The
metric (``metric_choice``) and the precision τ minimise the cross-entropy of these answers. What the
errors of prototypes add to squared distances on average is subtracted from these (``prototypes``).

A log-normal prior holds τ near the usual value for features of that variance. It decides alone
where no class has two samples, and keeps τ finite where every sample is classified without doubt.
The samples that can be left out have also chosen the metric, so that their answers are too good.
Final probabilities are therefore raised to a power (``calibration.power_of_few_examples``), which changes no
label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from operator import itemgetter
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import Tasks, mapped
from manyway.methods.calibration.calibration import Calibration, JudgedLabels
from manyway.methods.calibration.constants import Constants
from manyway.methods.calibration.coordinates import Coordinates
from manyway.methods.calibration.distances import Offsets
from manyway.methods.calibration.left_out import (
    MOST_SAMPLES,
    LeftOut,
    can_leave_out,
    left_out_samples,
)
from manyway.methods.calibration.metric import Inner, LeftOutRows, differences
from manyway.methods.calibration.metric_choice import rounding, with_best_metric
from manyway.methods.calibration.moments import (
    Moments,
    WithinClasses,
    moments_of,
    spreads_of,
    usual_precision,
)
from manyway.methods.calibration.prototypes import Prototypes
from manyway.methods.calibration.wrong_labels import judge_labels, learn_error_rates

_MOST_FOR_METRIC = 256  # of the left-out samples, evenly spaced, to choose among metrics
# Tasks are calibrated in blocks of about this many numbers.
_BLOCK_NUMBERS = {"cpu": 1 << 22, "cuda": 1 << 33}
# Arrays of a calibration: of the distances of samples, and of the size of the metric.
_ARRAYS_OF_DISTANCES = 6
_ARRAYS_OF_METRIC = 5

Finish = Callable[[Calibration, Tasks], Calibration]  # what is done to a calibration at last


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked of a calibration.

    Parameters
    ----------
    precision : float or None, default=None
        τ; None: it is learned by leaving samples out.
    metric : bool, default=True
        Whether a metric is learned.
    finish : callable or None, default=None
        Changes the calibration of some tasks at last.
    doubt_labels : bool, default=False
        Whether labels of samples may be wrong; see ``wrong_labels``. Not where τ is given.
    """

    precision: float | None = None
    metric: bool = True
    finish: Finish | None = None
    doubt_labels: bool = False


_EVERYTHING_LEARNED = Asked()


def calibrate_distances(
    tasks: Tasks, constants: Constants, asked: Asked = _EVERYTHING_LEARNED
) -> Calibration:
    """Prototypes, metric, scatter and precision of each task."""
    blocks = _blocks(tasks, constants, asked)
    return Calibration.joined([block.calibration for block in blocks])


class PlacedTasks(NamedTuple):
    """A calibration without its metric, and the queries that were placed with it."""

    calibration: Calibration
    queries: Tensor  # [t, q, d]


def calibrate_and_place(
    tasks: Tasks, constants: Constants, asked: Asked = _EVERYTHING_LEARNED
) -> PlacedTasks:
    """What ``calibrate_distances`` learns, and the queries in the coordinates of it.

    Metrics are not kept: those of many tasks take much memory.
    """
    parts = []
    placed = []
    for block in _blocks(tasks, constants, asked):
        queries = tasks.query if tasks.shared_support else tasks[block.tasks].query
        placed.append(block.calibration.coordinates.place(queries))
        parts.append(block.calibration.without_metric())
    return PlacedTasks(Calibration.joined(parts), torch.cat(placed))


class _Block(NamedTuple):
    """The calibration of some tasks."""

    tasks: slice
    calibration: Calibration


def _blocks(tasks: Tasks, constants: Constants, asked: Asked) -> Iterator[_Block]:
    """Calibrate some tasks at a time."""
    tasks = tasks[:1] if tasks.shared_support else tasks
    size = max(1, _BLOCK_NUMBERS[tasks.device.type] // _numbers_per_task(tasks, asked.metric))
    for first in range(0, tasks.n_tasks, size):
        block = slice(first, first + size)
        of_block = tasks[block]
        if of_block.centre is None:
            # The rows are gathered now, and not again by each step.
            of_block = replace(
                of_block, support_table=of_block.support, support_index=None, factor=None
            )
        calibration = _calibrated_block(of_block, constants, asked)
        if asked.finish is not None:
            calibration = asked.finish(calibration, of_block)
        yield _Block(block, calibration)


def _calibrated_block(tasks: Tasks, constants: Constants, asked: Asked) -> Calibration:
    """The calibration of some tasks, in which examples that look mislabelled count less."""
    moments = moments_of(tasks)
    samples = left_out_samples(tasks.support_labels, moments.counts)
    calibrated = partial(
        in_both_metrics, constants=constants, precision=asked.precision, metric=asked.metric
    )
    both = calibrated(tasks, moments, samples)
    can_judge = can_leave_out(tasks) and tasks.n_classes > 1
    if not (asked.doubt_labels and asked.precision is None and can_judge):
        return both.best
    with rounding(tasks.support_table):  # it only decides whether any label is in doubt
        error_rates = learn_error_rates(both, tasks, samples, constants)
    doubtful = error_rates.some_wrong.nonzero().squeeze(1)
    if not len(doubtful):  # most often
        return both.best
    in_doubt = tasks[doubtful]
    of_doubtful = [mapped(calibration, itemgetter(doubtful)) for calibration in both]
    judged = judge_labels(of_doubtful, in_doubt, error_rates[doubtful])
    weighted = moments_of(in_doubt, judged.weights)
    again = calibrated(in_doubt, weighted, samples[doubtful], judged=judged).best
    return both.best.with_rows(doubtful, again)


def _numbers_per_task(tasks: Tasks, metric: bool) -> int:
    """About how many numbers the calibration of a task needs."""
    per_sample = 2 * tasks.n_features + _ARRAYS_OF_DISTANCES * tasks.n_classes
    total = min(tasks.n_support, MOST_SAMPLES) * per_sample
    if metric:
        size = min(tasks.n_support, tasks.n_features)
        total += 2 * tasks.n_support * tasks.n_features + _ARRAYS_OF_METRIC * size**2
    return total


class Calibrations(NamedTuple):
    """The calibrations of the same tasks in two metrics."""

    plain: Calibration  # plain distances
    best: Calibration  # in the best metric; plain where none is learned


def in_both_metrics(
    tasks: Tasks,
    moments: Moments,
    samples: Tensor,
    *,
    constants: Constants,
    precision: float | None = None,
    metric: bool = True,
    judged: JudgedLabels | None = None,
) -> Calibrations:
    """The calibrations of tasks with these moments.

    ``samples`` [t, n] are left out in turn. ``judged`` says how much all samples count; None: 1.
    """
    counts = moments.counts
    prototypes = moments.sums / counts.unsqueeze(-1)
    spreads = spreads_of(moments, prototypes, constants)
    usual = usual_precision(tasks, prototypes, counts, spreads, constants)
    weights = None
    if judged is None:
        judged = JudgedLabels.right(tasks.support_labels, counts)
    else:
        weights = judged.weights
    within = WithinClasses(
        scatter=spreads.scatter,
        noise=constants.one_shot_noise * spreads.scatter,
        freedom=moments.freedom,
    )
    plain = _plain(Offsets.of(prototypes), counts, within=within, usual=usual, judged=judged)
    given = None
    if precision is not None:
        given = torch.full_like(usual, precision)
        plain = replace(plain, precision=given)
    something_to_learn = metric or precision is None
    if not (something_to_learn and can_leave_out(tasks)):
        return Calibrations(plain=plain, best=plain)
    labels = tasks.support_labels.gather(1, samples)
    own_weights = judged.weights.gather(1, samples)
    left_out = LeftOut.of(labels, counts, spreads.scatter, usual, own_weights)
    rows = LeftOutRows(
        samples=samples,
        labels=labels,
        residuals=differences(tasks, samples, prototypes, labels),
    )
    return _by_leaving_out(
        plain,
        tasks,
        rows=rows,
        left_out=replace(left_out, given=given),
        metric=metric,
        weights=weights,
    )


def _by_leaving_out(
    plain: Calibration,
    tasks: Tasks,
    *,
    rows: LeftOutRows,
    left_out: LeftOut,
    metric: bool,
    weights: Tensor | None,
) -> Calibrations:
    """What ``plain`` becomes with the precision that left-out samples with ``rows`` choose.

    They choose the metric, too, if one is asked for. ``weights`` [t, s] of all samples;
    None: all are 1.
    """
    offsets = plain.prototypes.offsets
    with rounding(rows.residuals):
        inner = Inner.of(rows.residuals, offsets, rows.labels)
    every = ceil(rows.residuals.shape[1] / _MOST_FOR_METRIC)
    for_metric = inner
    if metric:
        for_metric = inner.some(every)  # a copy, because classifying may overwrite the others
    answers = left_out.classified(inner)
    precision = answers.precision
    if left_out.given is None:
        precision = _between(left_out.usual, precision, plain.within.known(tasks.n_classes))
    plain = replace(
        plain,
        precision=precision,
        within=replace(plain.within, noise=answers.noise),
        left_out_losses=answers.losses,
    )
    if not metric:
        return Calibrations(plain=plain, best=plain)
    best = with_best_metric(
        plain,
        tasks,
        rows=rows.some(every),
        inner=for_metric,
        left_out=left_out.some(every),
        weights=weights,
    )
    return Calibrations(plain=plain, best=best)


def _between(usual: Tensor, learned: Tensor, known: Tensor) -> Tensor:
    """[t] the precision that goes the part ``known`` [t] from a usual to a learned one."""
    logarithm = torch.lerp(usual.log(), learned.log(), known)
    return learned.where(known == 1, logarithm.exp())


def _plain(
    means: Offsets, counts: Tensor, *, within: WithinClasses, usual: Tensor, judged: JudgedLabels
) -> Calibration:
    """Plain distances to class means of ``counts`` [t, k] samples, with the usual τ [t]."""
    return Calibration(
        coordinates=Coordinates(
            middle=means.middle,
            metric=None,
            shrinkage=torch.ones_like(usual),
            longest=torch.full_like(usual, torch.inf),
            n_varying=_varying_columns(means.rows),
        ),
        within=within,
        prototypes=Prototypes.of_means(means, counts, within.scatter),
        precision=usual,
        judged=judged,
        power=torch.ones_like(usual),
        clumped=torch.zeros_like(usual),
        left_out_losses=torch.zeros_like(counts[:, :1]),
    )


def _varying_columns(offsets: Tensor) -> Tensor:
    """[t] in how many columns prototypes [t, k, d] differ; at least one.

    In a constant column all of them are 0 relative to their middle.
    """
    return (offsets != 0).any(1).sum(-1).clamp_min(1).to(offsets)
