"""What a distance to a prototype means, learned from the support alone.

The likelihood of a class is exp(−½ τ d²), with a precision τ and the distance d in a metric (see
``metric``). Each support sample is left out in turn and classified among the prototypes
(``left_out``). The metric and τ minimise the cross-entropy of these answers. Prototypes are means
of n samples, so squared distances to them are too long by S/n on average, where S is the
within-class scatter. That bias is subtracted.

A log-normal prior holds τ near the usual value for features of that variance. It decides alone
where no class has two samples, and keeps τ finite where every sample is classified without doubt.
The n samples that can be left out have also chosen the metric, so that their answers are too good.
The final probabilities are therefore raised to the power 1/(1 + (10/n)²), which changes no label. n
is K times the harmonic mean of the numbers of samples: many samples of one class say little about
another. A lower τ loses labels: where 3 of 10 classes with two examples occur, up to 13 points.

Classes may have any numbers of samples. What is averaged over samples is weighted, so that no class
decides alone: the n samples of a class count as √n. A sample whose label is probably wrong counts
less (``wrong_labels``): n is then the sum of the weights of a class.
``Calibration.shrunk`` makes prototypes with large errors comparable with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from math import ceil
from operator import itemgetter
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import Tasks, class_moments, class_sums, column_sums, count_labels, mapped
from manyway.core.kernels import tensor_cores
from manyway.methods.calibration.constants import Constants
from manyway.methods.calibration.distances import Offsets, distances_to
from manyway.methods.calibration.left_out import (
    MOST_SAMPLES,
    Answers,
    LeftOut,
    can_leave_out,
    left_out_samples,
)
from manyway.methods.calibration.metric import (
    Contrasts,
    Gram,
    GramInner,
    Inner,
    LeftOutRows,
    Metric,
    Scatter,
    ScatterInner,
    differences,
    metrics_of,
)
from manyway.methods.calibration.representation import column_variances
from manyway.methods.calibration.wrong_labels import (
    JudgedLabels,
    judge_labels,
    learn_error_rates,
)

_MOST_FOR_METRIC = 256  # of the left-out samples, evenly spaced, to choose among metrics
# Tasks are calibrated in blocks of about this many numbers.
_BLOCK_NUMBERS = {"cpu": 1 << 22, "cuda": 1 << 33}
# Arrays of a calibration: of the distances of samples, and of the size of the metric.
_ARRAYS_OF_DISTANCES = 6
_ARRAYS_OF_METRIC = 5
_MOMENT_STEPS = 3  # to estimate how much class means differ
_LEAST_SCATTER = 1e-6  # S, as a part of the variance
_LEAST_FACTOR = 0.005  # r_k could be 0; half and twice of it change no label
_FARTHEST = 1e12  # squared lengths of prototypes, in units of S: examples may all be copies
_LEAST_FREEDOM = 4  # of the variances of features
# The values of γ that are tried besides 1: γ/(1 − γ) is 16, 4, 1, … down to 4⁻⁴.
_SHRINKAGES = tuple(1 / (1 + 2.0 ** (2 * step)) for step in range(-2, 5))
_EXACT_FEATURES = 64  # with more, a GPU may round products: the errors of many distances cancel
# Two values of γ that differ by rounding alone are equally good, whatever the unit of the features.
_LESS = 1 - 1e-5
# Nats of all left-out samples: less is 0 to float32, on some devices, and no reason for another γ.
_NO_LOSS = 1e-30


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration:
    """Prototypes and the meaning of a distance to them.

    One row serves all tasks when they share their support.

    All distances are plain distances of *placed* features: relative to the mean of the prototypes,
    and mapped by the metric. See also ``bounded``.
    """

    # --- Coordinates: see ``place`` ---
    # [t, 1, d] mean of the prototypes; float32 is accurate for distances relative to it
    middle: Tensor
    metric: Metric | None  # None: plain distances
    shrinkage: Tensor  # [t] γ of the metric
    longest: Tensor  # [t] placed features that are longer are shortened; inf: none. See ``bounded``

    # --- Prototypes, and what a distance to them means ---
    offsets: Tensor  # [t, k, d] w_k, placed prototypes
    # [t, k] what is added to ‖z‖² − 2 z·w_k: ‖w_k‖² minus e_k, what its random error adds to squared
    # distances. e_k is S/n_k for means of n_k samples; for shortened prototypes see ``_shortened``
    squares: Tensor
    precision: Tensor  # [t] τ
    scatter: Tensor  # [t] S, the pooled within-class scatter
    # [t] standard deviation of ‖z − w‖² − S − S/n for members of their own class, by 1 + 1/n
    noise: Tensor
    freedom: Tensor  # [t] f, the degrees of freedom of the differences within classes
    n_varying: Tensor  # [t] d, how many columns of the features are not constant
    examples: Tensor  # [t, k] n, the samples that a prototype was made of
    counts: Tensor  # [t, k] how many samples it is worth: n, and after ``shrunk`` n/(β s)

    # --- How ``shrunk`` has changed prototypes; all are 1 before it ---
    trust: Tensor  # [t, k] β·a·s, by which prototypes are shorter than the means of their samples
    slopes: Tensor  # [t, k] a, how much ‖z‖² counts in the distance to a prototype
    # [t] √max(r)/β: how far from the middle class means are expected, in lengths of prototypes
    reach: Tensor
    steepness: Tensor  # [t] what τ was divided by when prototypes became shorter

    # --- How sure answers are; evidence sets both ---
    power: Tensor  # [t] what final probabilities are raised to
    clumped: Tensor  # [t] κ of ``manyway.methods.evidence.judge``; 0 where it is not measured

    # --- What was found of single samples ---
    weights: Tensor  # [t, s] how much each sample counts: less than 1 where its label looks wrong
    wrong: Tensor  # [t, s] the probability that its label is wrong
    looks_like: Tensor  # [t, s] the class that it looks like if its label is wrong
    # [t, n] the cross-entropy of left-out samples times their weights, of those that have chosen
    # the metric where one was learned. No stage reads it; tests compare metrics by it
    left_out_losses: Tensor

    def place(self, features: Tensor) -> Tensor:
        """[t, n, d] the coordinates of features [t, n, d] in which distances are computed."""
        rows = _for_tasks(features, self.middle) - self.middle
        if self.metric is not None:
            rows = self.metric(rows)
        return _within_reach(rows, self.longest).view(features.shape)

    def placing(self, factor: Tensor | None = None) -> Placing:
        """``place`` as a map of its own, without the prototypes.

        Placed features are multiplied by a factor [t].
        """
        middle = self.middle
        if factor is None:
            factor = torch.ones_like(self.precision)
        if self.metric is None:
            return Placing(middle=middle, metric=None, longest=self.longest, factor=factor)
        identity = torch.eye(middle.shape[-1], dtype=middle.dtype, device=middle.device)
        metric = self.metric(identity.expand(len(middle), -1, -1))
        return Placing(middle=middle, metric=metric, longest=self.longest, factor=factor)

    def bounded(self) -> Calibration:
        """With a bound for placed features: a broken row would move all that it is grouped with.

        The bound L is twice the length of members of the farthest class. Features that are placed x
        times as long, x above 1, become 1 + ½ (1 − 1/x) times L long: at most 1½ times, and their
        length still says what it was (``reliance``).
        """
        squares = self.offsets.square().sum(-1).amax(-1)
        longest = 2 * (squares + self.scatter).sqrt()
        return replace(self, longest=longest.clamp_min(torch.finfo(longest.dtype).tiny))

    def reliance(self, placed: Tensor) -> Tensor:
        """[t, n] 1 for placed features up to ``longest``, and 1/x² for those that were x times it.

        Where a row lies x times as far out as any class, its own noise has x² times the variance.
        """
        lengths = torch.linalg.vector_norm(placed, dim=-1) / self.longest.unsqueeze(-1)
        return (1 - 2 * (lengths - 1)).clamp(0, 1).square()

    def squared_distances(self, placed: Tensor) -> Tensor:
        """[t, q, k] ‖z_q − w_k‖² − e_k for placed features; see ``squares``."""
        return distances_to(placed, self.offsets, self.squares)

    def log_likelihood(self, placed: Tensor) -> Tensor:
        """[t, q, k] = −½ τ times the squared distances of placed features."""
        return self.squared_distances(placed).mul_(self.precision.mul(-0.5).view(-1, 1, 1))

    @property
    def of_members(self) -> MemberDistances:
        """The distances of ``squared_distances`` that members of a class have.

        For the mean of n samples, ‖z − w‖² − S/n has the mean S, and where members vary so much
        more that their distance doubles, it grows by S (1 + 1/n). For prototypes that are
        shortened, see ``shrunk``, these are S (1 + v_0 ln(v/v_0)) and S v_0, where
        v = 1 + 1/``counts`` and a = v_0/v are ``slopes``.
        """
        scatter = self.scatter.clamp_min(torch.finfo(self.scatter.dtype).tiny).unsqueeze(-1)
        units = self.slopes * (1 + 1 / self.counts)
        return MemberDistances(mean=scatter * (1 - units * self.slopes.log()), unit=scatter * units)

    @property
    def scatter_known(self) -> Tensor:
        """[t] how well S is known, from 0 to 1: min(1, f/K).

        Where most classes have one sample, few differences within classes say it. What follows from
        it, τ and what all prototypes are shortened by, counts so far: one class with a second sample
        cost 4 points on birds, compared with one sample of each.
        """
        return (self.freedom / self.counts.shape[1]).clamp_max(1)

    @property
    def in_metric(self) -> Tensor | None:
        """[t] c: of a placed sample with residual r, the metric A contains c·rr'n/(n−1).

        None where distances are plain.
        """
        if self.metric is None:
            return None
        tiny = torch.finfo(self.scatter.dtype).tiny
        part = (1 - self.shrinkage) * self.n_varying
        part = part / (self.freedom * self.scatter).clamp_min(tiny)
        return part / self.metric.stretch.square()

    def linear(self) -> tuple[Tensor, Tensor]:
        """Weights a [t, d, k] and biases b [t, k] of the log-likelihood of placed features.

        It is z·a_k + b_k plus a number that is equal for all classes: one product, accurate enough
        for a softmax.
        """
        precision = self.precision.unsqueeze(-1)
        weights = (precision.unsqueeze(-1) * self.offsets).mT.contiguous()
        return weights, -0.5 * precision * self.squares

    def with_rows(self, which: Tensor, others: Calibration) -> Calibration:
        """With the calibrations ``others`` of some tasks [m] in the place of these."""
        metric = None
        if self.metric is not None and others.metric is not None:
            metric = self.metric.with_rows(which, others.metric)
        tensors = {}
        for name in _tensors():
            tensors[name] = getattr(self, name).index_copy(0, which, getattr(others, name))
        return replace(self, metric=metric, **tensors)

    def shrunk(self, constants: Constants) -> Calibration:
        """With prototypes as far as they can be trusted: shrunk towards their middle.

        Let w̄_k be the mean of the n_k samples of a class, relative to the middle, and the class
        means normal around it with the variance ρS. The best guess of one is then r_k w̄_k with
        r_k = ρ/(ρ + 1/n_k), as if there were 1/ρ further samples in the middle. ρ is estimated by
        moments, E‖w̄_k‖² = (1 − 1/K) ρS + ((1 − 2/K)/n_k + Σ_j 1/(n_j K²)) S, in which classes have
        the weights (ρ + 1/n_k)⁻² / (1 + ‖w̄_k‖²/(S (ρ + 1/n_k))): a far class counts less.

        Real class means are not normal, and r_k shortens them too much: left-out samples of
        embeddings, tables and simulated features have the smallest cross-entropy half-way between
        r_k and 1. So what all classes have in common counts half, s_k = r_k / √max(r), and what
        they differ in counts whole. Two of 100 photographs with five examples were 76 % right with
        s_k = r_k and 80 with this; where classes are normal and features say little, s_k =
        r_k / max(r) costs up to 5 points.

        The samples of a class have the variance S v_k around its prototype, v_k = 1 + s_k/n_k:
        S s_k/n_k is what remains unknown of the class mean. With few features an error is as likely
        to make a prototype attractive: of the differences between the s_k/n_k only the part
        d/(d + N₀²) counts, with N₀ = ``few_columns``; for the rest all have the smallest.

        Where S is hardly known, prototypes stay longer: β s_k w̄_k with β = 1 for a known S and
        1/√max(r) for an unknown one, as for one sample of each class (``scatter_known``). With many
        features a prototype counts as n_k / (β s_k) samples, by what remains unknown of it.
        """
        n_classes = self.counts.shape[1]
        if n_classes < 2:
            return self
        expected = self._expected_lengths()
        root = expected.factors.amax(-1, keepdim=True).sqrt()
        halfway = expected.factors / root
        lengthening = 1 / torch.lerp(root, torch.ones_like(root), self.scatter_known.unsqueeze(-1))
        share = (self.n_varying / (self.n_varying + constants.few_columns**2)).unsqueeze(-1)
        variances = 1 + _lerp_from_least(halfway / self.counts, share)
        errors = _lerp_from_least(lengthening * halfway / self.counts, share)
        shortened = self._shortened(halfway, lengthening, variances, expected)
        return replace(shortened, counts=1 / errors, reach=(root / lengthening).squeeze(-1))

    def _expected_lengths(self) -> _ExpectedLengths:
        """What the moments of the prototypes say about their lengths; see ``shrunk``."""
        n_classes = self.counts.shape[1]
        scatter = self.scatter.clamp_min(torch.finfo(self.scatter.dtype).tiny).unsqueeze(-1)
        errors = 1 / self.counts
        error_of_middle = errors.mean(-1, keepdim=True) / n_classes
        by_error = (1 - 2 / n_classes) * errors + error_of_middle
        around_middle = 1 - 1 / n_classes  # the middle is that of these classes
        squares = self.offsets.square().sum(-1)
        lengths = (squares / scatter).clamp_max(_FARTHEST)
        excess = (lengths - by_error) / around_middle
        ratio = torch.zeros_like(scatter)
        for _ in range(_MOMENT_STEPS):
            # Of a far class the length hardly counts.
            bounded = 1 / (1 + lengths / (ratio + errors))
            weights = bounded * (ratio + errors) ** -2
            mean_excess = (excess * weights).sum(-1, keepdim=True) / weights.sum(-1, keepdim=True)
            ratio = mean_excess.clamp_min(0)
        return _ExpectedLengths(
            factors=(ratio / (ratio + errors)).clamp_min(_LEAST_FACTOR),
            of_means=scatter * (around_middle * ratio + by_error),
            of_rows=1 + around_middle * ratio + error_of_middle,
        )

    def _shortened(
        self, halfway: Tensor, lengthening: Tensor, variances: Tensor, expected: _ExpectedLengths
    ) -> Calibration:
        """With the prototypes β s_k w̄_k, for s = ``halfway`` [t, k] and β = ``lengthening`` [t, 1].

        As normal features of the variances S v_k [t, k] around s_k w̄_k, the samples of a class have
        the log-likelihood −½ τ (a_k ‖z − s_k w̄_k‖² + S v_0 ln(v_k/v_0)), where v_0 is the least v_k
        and a_k = v_0/v_k. All rows z are about as long, so that a_k ‖z‖² is replaced by a_k times
        the expected squared length: the rest is linear in z. Where S s_k/n_k was subtracted and τ
        was the same for all, classes of one example took the queries of others: with 1 to 20
        examples, 46 % of birds were right where SimpleShot has 43 and this has 68.

        All of this is multiplied by β. But what ‖w̄_k‖² has beyond its expectation counts
        a_k (β s_k)², as for prototypes that are β times as long: where β s_k = 1 for all classes,
        ℓ is the distance to their means.

        The distances to two classes differ by as much as before on average: τ is divided by the
        mean of β a_k s_k, and by a value near the largest where S is hardly known.
        """
        least = variances.amin(-1, keepdim=True)
        slopes = least / variances
        logarithms = least * (variances / least).log()
        per_scatter = logarithms - (least - 1) - (1 - slopes) * expected.of_rows
        usual = slopes * halfway.square() * expected.of_means
        usual = lengthening * (usual + self.scatter.unsqueeze(-1) * per_scatter)
        unusual = self.offsets.square().sum(-1) - expected.of_means
        trust = lengthening * slopes * halfway
        steepness = torch.lerp(trust.amax(-1), trust.mean(-1), self.scatter_known)
        return replace(
            self,
            offsets=self.offsets * trust.unsqueeze(-1),
            squares=usual + slopes * (lengthening * halfway).square() * unusual,
            precision=self.precision / steepness,
            trust=trust,
            slopes=slopes,
            steepness=steepness,
        )

    def unshrunk(self) -> Calibration:
        """With prototypes that are the means of their samples.

        They say how far a query is from a class; shrunk ones say which class is nearest.
        """
        offsets = self.offsets / self.trust.unsqueeze(-1)
        counts = torch.minimum(self.counts, self.examples)
        return replace(
            self,
            offsets=offsets,
            squares=offsets.square().sum(-1) - self.scatter.unsqueeze(-1) / counts,
            counts=counts,
            precision=self.precision * self.steepness,
            trust=torch.ones_like(self.trust),
            reach=torch.ones_like(self.reach),
            slopes=torch.ones_like(self.slopes),
            steepness=torch.ones_like(self.steepness),
        )

    def with_classes(self, placed: Tensor) -> Calibration:
        """With further classes, each with one sample [t, n, d] that is placed already.

        The prototype is the sample itself, and its error S. Shrunk towards the middle it would be
        near every query: of 112 birds of eight species, one of them new, a new class then took 54
        and 12 of these were right, and takes 10 with 8 right.
        """
        ones = self.counts.new_ones(placed.shape[:2])
        squares = placed.square().sum(-1) - self.scatter.unsqueeze(-1)
        return replace(
            self,
            offsets=torch.cat([self.offsets, placed], 1),
            squares=torch.cat([self.squares, squares], 1),
            counts=torch.cat([self.counts, ones], 1),
            examples=torch.cat([self.examples, ones], 1),
            trust=torch.cat([self.trust, ones], 1),
            slopes=torch.cat([self.slopes, ones], 1),
        )


class MemberDistances(NamedTuple):
    """The squared distances that members of a class have from its prototype."""

    mean: Tensor  # [t, k]
    unit: Tensor  # [t, k] by how much they grow where members vary twice as much

    def relative(self, distances: Tensor) -> Tensor:
        """Distances [t, n, k] in those of members: 1 on average for these."""
        return 1 + (distances - self.mean.unsqueeze(1)) / self.unit.unsqueeze(1)

    def relative_to_one(self, distances: Tensor, classes: Tensor) -> Tensor:
        """The same for distances [t, n] of rows from a class of their own, [t, n]."""
        mean, unit = (of.expand(len(classes), -1).gather(1, classes) for of in self)
        return 1 + (distances - mean) / unit


class _ExpectedLengths(NamedTuple):
    """How long prototypes are expected to be; see ``Calibration.shrunk``."""

    factors: Tensor  # [t, k] r_k, how long class means are in lengths of the means of their samples
    of_means: Tensor  # [t, k] E‖w̄_k‖², of the means of n_k samples
    of_rows: Tensor  # [t, 1] E‖z‖² / S of other rows


def _lerp_from_least(values: Tensor, share: Tensor) -> Tensor:
    """Values [t, k] with a share [t, 1] of what they have beyond the least of them."""
    return torch.lerp(values.amin(-1, keepdim=True), values, share)


Finish = Callable[[Calibration, Tasks], Calibration]  # what is done to a calibration at last


def _within_reach(rows: Tensor, longest: Tensor) -> Tensor:
    """Rows [t, n, d] of which those longer than ``longest`` [t] are shortened as ``bounded`` says."""
    lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    relative = lengths / longest.view(-1, 1, 1)
    if not bool((relative > 1).any()):
        return rows
    too_long = relative.clamp_min(1)
    return rows * ((1 + 0.5 * (1 - 1 / too_long)) / too_long)


def _for_tasks(rows: Tensor, like: Tensor) -> Tensor:
    """Rows [t, n, d] of as many tasks as ``like`` has; all rows are of one where it serves all."""
    if len(like) == len(rows):
        return rows
    return rows.reshape(1, -1, rows.shape[-1])


@dataclass(frozen=True, eq=False, kw_only=True)
class Placing:
    """``Calibration.place`` as a map of rows [t, n, d]. Tensors [1, …] serve all tasks."""

    middle: Tensor  # [t, 1, d]
    metric: Tensor | None  # [t, d, d]; None for plain distances
    longest: Tensor  # [t]
    factor: Tensor  # [t]

    def __call__(self, rows: Tensor) -> Tensor:
        shape = rows.shape
        rows = _for_tasks(rows, self.middle) - self.middle
        if self.metric is not None:
            rows = rows @ self.metric
        rows = _within_reach(rows, self.longest)
        return rows.mul_(self.factor.view(-1, 1, 1)).view(shape)


def calibrate_distances(
    tasks: Tasks,
    constants: Constants,
    precision: float | None = None,
    metric: bool = True,
    finish: Finish | None = None,
    doubt_labels: bool = False,
) -> Calibration:
    """Prototypes, metric, scatter and precision of each task.

    Parameters
    ----------
    tasks : Tasks
    constants : Constants
    precision : float or None, default=None
        τ; None: it is learned by leaving samples out.
    metric : bool, default=True
        Whether a metric is learned.
    finish : callable or None, default=None
        Changes the calibration of some tasks at last.
    doubt_labels : bool, default=False
        Whether labels of samples may be wrong; see ``wrong_labels``. Not where τ is given.

    Returns
    -------
    Calibration
    """
    parts = []
    metrics = []
    asked = _Asked(precision=precision, metric=metric, finish=finish, doubt_labels=doubt_labels)
    for block in _blocks(tasks, constants, asked):
        parts.append(block.calibration)
        if block.calibration.metric is not None:  # all or none
            metrics.append(block.calibration.metric)
    return _joined(parts, Metric.joined(metrics) if metrics else None)


class PlacedTasks(NamedTuple):
    """A calibration without its metric, and the queries that were placed with it."""

    calibration: Calibration
    queries: Tensor  # [t, q, d]


def calibrate_and_place(
    tasks: Tasks,
    constants: Constants,
    precision: float | None = None,
    metric: bool = True,
    finish: Finish | None = None,
    doubt_labels: bool = False,
) -> PlacedTasks:
    """What ``calibrate_distances`` learns, and the queries in the coordinates of it.

    Metrics are not kept: those of many tasks take much memory.
    """
    parts = []
    placed = []
    asked = _Asked(precision=precision, metric=metric, finish=finish, doubt_labels=doubt_labels)
    for block in _blocks(tasks, constants, asked):
        queries = tasks.query if tasks.shared_support else tasks[block.tasks].query
        placed.append(block.calibration.place(queries))
        parts.append(block.calibration)
    return PlacedTasks(_joined(parts, None), torch.cat(placed))


def _joined(parts: list[Calibration], metric: Metric | None) -> Calibration:
    """The calibrations of consecutive tasks as one."""
    joined = {name: torch.cat([getattr(part, name) for part in parts]) for name in _tensors()}
    return Calibration(metric=metric, **joined)


def _tensors() -> list[str]:
    return [one.name for one in fields(Calibration) if one.name != "metric"]


class _Block(NamedTuple):
    """The calibration of some tasks."""

    tasks: slice
    calibration: Calibration


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What is asked of a calibration; see ``calibrate_distances``."""

    precision: float | None
    metric: bool
    finish: Finish | None
    doubt_labels: bool


def _blocks(tasks: Tasks, constants: Constants, asked: _Asked) -> Iterator[_Block]:
    """Calibrate some tasks at a time."""
    tasks = tasks[:1] if tasks.shared_support else tasks
    size = max(1, _BLOCK_NUMBERS[tasks.device.type] // _numbers_per_task(tasks, asked.metric))
    for first in range(0, tasks.n_tasks, size):
        block = slice(first, first + size)
        of_block = tasks[block]
        if of_block.centre is None:  # gathered once
            of_block = replace(
                of_block, support_table=of_block.support, support_index=None, factor=None
            )
        calibration = _calibrated_block(of_block, constants, asked)
        if asked.finish is not None:
            calibration = asked.finish(calibration, of_block)
        yield _Block(block, calibration)


def _calibrated_block(tasks: Tasks, constants: Constants, asked: _Asked) -> Calibration:
    """The calibration of some tasks, in which examples that look mislabelled count less."""
    moments = _moments(tasks)
    samples = left_out_samples(tasks.support_labels, moments.counts)
    calibrated = partial(
        in_both_metrics, constants=constants, precision=asked.precision, metric=asked.metric
    )
    both = calibrated(tasks, moments, samples)
    can_judge = can_leave_out(tasks) and tasks.n_classes > 1
    if not (asked.doubt_labels and asked.precision is None and can_judge):
        return both.best
    with _rounding(tasks.support_table):  # whether any label is in doubt
        error_rates = learn_error_rates(both, tasks, samples, constants)
    doubtful = error_rates.some_wrong.nonzero().squeeze(1)
    if not len(doubtful):  # most often
        return both.best
    in_doubt = tasks[doubtful]
    of_doubtful = [mapped(calibration, itemgetter(doubtful)) for calibration in both]
    judged = judge_labels(of_doubtful, in_doubt, error_rates[doubtful])
    weighted = _moments(in_doubt, judged.weights)
    again = calibrated(in_doubt, weighted, samples[doubtful], weights=judged.weights).best
    again = replace(again, wrong=judged.wrong, looks_like=judged.looks_like)
    return both.best.with_rows(doubtful, again)


class _Moments(NamedTuple):
    """Sums over the samples of each class."""

    sums: Tensor  # [t, k, d] of the features
    counts: Tensor  # [t, k] of the samples, or of their weights
    squares: Tensor  # [t, k] of squared lengths
    taken: Tensor  # [t, k] what the mean of a class takes of its degrees of freedom: 1, or Σp²/Σp

    @property
    def freedom(self) -> Tensor:
        """[t] the degrees of freedom of the differences within classes."""
        return (self.counts - self.taken).sum(-1)


def _moments(tasks: Tasks, weights: Tensor | None = None) -> _Moments:
    """Of samples with weights [t, s]; None: all are 1."""
    if weights is None:
        sums, counts, squares = class_moments(tasks)
        return _Moments(sums, counts, squares, torch.ones_like(counts))
    rows = tasks.support
    lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True).square_()
    counts = count_labels(tasks.support_labels, tasks.n_classes, weights)
    taken = count_labels(tasks.support_labels, tasks.n_classes, weights.square()) / counts
    return _Moments(
        sums=weighted_sums(tasks, rows, weights),
        counts=counts,
        squares=weighted_sums(tasks, lengths, weights).squeeze(-1),
        taken=taken,
    )


def weighted_sums(tasks: Tasks, rows: Tensor, weights: Tensor) -> Tensor:
    """[t, k, d] the sums of rows [t, s, d] of the support of each class, with weights [t, s]."""
    weighted = rows * weights.unsqueeze(-1)
    return class_sums(tasks.with_rows(weighted, weighted[:, :0]))[0]


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
    moments: _Moments,
    samples: Tensor,
    *,
    constants: Constants,
    precision: float | None = None,
    metric: bool = True,
    weights: Tensor | None = None,
) -> Calibrations:
    """The calibrations of tasks with these moments.

    ``samples`` [t, n] are left out in turn. ``weights`` [t, s] of all samples; None: all are 1.
    """
    counts = moments.counts
    prototypes = moments.sums / counts.unsqueeze(-1)
    spreads = _spreads(moments, prototypes, constants)
    usual = _usual_precision(tasks, prototypes, counts, spreads, constants)
    judged = JudgedLabels.right(tasks.support_labels, counts)
    if weights is not None:
        judged = judged._replace(weights=weights)
    plain = _plain(
        moments, judged, scatter=spreads.scatter, usual=usual, noise=constants.one_shot_noise
    )
    given = None
    if precision is not None:
        given = torch.full_like(usual, precision)
        plain = replace(plain, precision=given)
    if not can_leave_out(tasks) or not (metric or given is None):
        return Calibrations(plain=plain, best=plain)
    labels = tasks.support_labels.gather(1, samples)
    left_out = LeftOut.of(labels, counts, spreads.scatter, usual, plain.weights.gather(1, samples))
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
    """With the precision, and the metric if one is asked for, that samples with ``rows`` choose.

    ``weights`` as in ``in_both_metrics``.
    """
    with _rounding(rows.residuals):
        inner = Inner.of(rows.residuals, plain.offsets, rows.labels)
    every = ceil(rows.residuals.shape[1] / _MOST_FOR_METRIC)
    for_metric = inner
    if metric:
        for_metric = inner.some(every)  # a copy, because classifying may overwrite the others
    answers = left_out.classified(inner)
    precision = answers.precision
    if left_out.given is None:
        precision = _between(left_out.usual, precision, plain.scatter_known)
    plain = replace(
        plain,
        precision=precision,
        noise=answers.noise,
        left_out_losses=answers.losses,
    )
    if not metric:
        return Calibrations(plain=plain, best=plain)
    best = _with_metric(
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
    moments: _Moments, judged: JudgedLabels, *, scatter: Tensor, usual: Tensor, noise: float
) -> Calibration:
    """Plain distances to class means, with S and the usual τ [t]; ``noise`` in units of S."""
    counts = moments.counts
    offsets = Offsets.of(moments.sums / counts.unsqueeze(-1))
    return Calibration(
        middle=offsets.middle,
        metric=None,
        offsets=offsets.rows,
        longest=torch.full_like(scatter, torch.inf),
        squares=offsets.squares - scatter.unsqueeze(-1) / counts,
        n_varying=_varying_columns(offsets.rows),
        counts=counts,
        examples=counts,
        scatter=scatter,
        precision=usual,
        shrinkage=torch.ones_like(usual),
        noise=noise * scatter,
        left_out_losses=torch.zeros_like(counts[:, :1]),
        power=torch.ones_like(usual),
        clumped=torch.zeros_like(usual),
        trust=torch.ones_like(counts),
        reach=torch.ones_like(usual),
        slopes=torch.ones_like(counts),
        steepness=torch.ones_like(usual),
        freedom=moments.freedom,
        weights=judged.weights,
        wrong=judged.wrong,
        looks_like=judged.looks_like,
    )


def _varying_columns(offsets: Tensor) -> Tensor:
    """[t] in how many columns prototypes [t, k, d] differ; at least one.

    In a constant column all of them are 0 relative to their middle.
    """
    return (offsets != 0).any(1).sum(-1).clamp_min(1).to(offsets)


def _rounding(rows: Tensor) -> AbstractContextManager[object]:
    """Where products of rows [t, n, d] of many features may be rounded, on a GPU."""
    return nullcontext() if rows.shape[-1] <= _EXACT_FEATURES else tensor_cores(rows)


def doubted(counts: Tensor, constants: Constants) -> Tensor:
    """[t] the power of answers that few left-out samples have taught.

    ``counts`` [t, k] are the examples of the classes.
    """
    effective = counts.shape[1] / (1 / counts).mean(-1)
    return 1 / (1 + (constants.doubtful_examples / effective).square())


class _Spreads(NamedTuple):
    """How far samples lie apart."""

    variance: Tensor  # [t] of the samples of a class around the middle; the median of all classes
    scatter: Tensor  # [t] S, within classes


def _spreads(moments: _Moments, prototypes: Tensor, constants: Constants) -> _Spreads:
    """From moments of the classes, and their means [t, k, d]."""
    counts = moments.counts
    totals = moments.squares
    n_classes = counts.shape[1]
    squares = prototypes.square().sum(-1)
    # Classes of many samples must not decide alone; where all have as many, weights are the same.
    weights = counts.rsqrt()
    within = ((totals - squares * counts).clamp_min(0) * weights).sum(-1)
    freedom = ((counts - moments.taken) * weights).sum(-1)
    mean = (column_sums(prototypes) / n_classes).unsqueeze(1)
    # Of each class around the middle; the median, so that a far class does not decide.
    of_class = totals / counts - 2 * (prototypes * mean).sum(-1) + mean.square().sum(-1)
    variance = of_class.quantile(0.5, dim=-1).clamp_min(torch.finfo(mean.dtype).tiny)
    if not bool((counts > moments.taken).any()):
        return _Spreads(variance=variance, scatter=constants.one_shot_scatter * variance)
    # Examples may be copies of each other, and what is divided by S must stay finite.
    scatter = torch.maximum(within / freedom, _LEAST_SCATTER * variance)
    return _Spreads(variance=variance, scatter=scatter)


def _usual_precision(
    tasks: Tasks, prototypes: Tensor, counts: Tensor, spreads: _Spreads, constants: Constants
) -> Tensor:
    """[t] τ where left-out samples do not say it."""
    # The error of a prototype adds 1/n to the scatter of a sample around it.
    errors = (2 * counts / (counts + 1)).mean(-1)
    usual = constants.one_shot_precision / spreads.variance * errors
    if not can_leave_out(tasks):
        return usual
    variances = column_variances(tasks.support, Offsets.of(prototypes).middle)
    precision = gaussian_precision(variances, tasks.n_support, spreads.scatter, counts)
    return torch.minimum(usual, precision)


def _with_metric(
    plain: Calibration,
    tasks: Tasks,
    *,
    rows: LeftOutRows,
    inner: Inner,
    left_out: LeftOut,
    weights: Tensor | None,
) -> Calibration:
    """The calibration with the metric whose left-out answers have the smallest cross-entropy.

    ``left_out`` are evenly spaced ones of the samples that ``plain`` was learned from, with
    ``rows`` and plain products ``inner``. ``weights`` as in ``in_both_metrics``.
    """
    answers = left_out.classified(inner, near=plain.precision)
    contrasts = Contrasts.of(tasks, plain.middle + plain.offsets, plain.counts, weights)
    columns = plain.n_varying
    tiny = torch.finfo(tasks.dtype).tiny
    # 1/(f·v), which is finite also where a first step leaves no difference between samples.
    weight = columns / torch.maximum(plain.freedom * plain.scatter, columns * tiny)
    free = columns / (columns + 2 * contrasts.rows.shape[1])
    with _rounding(plain.offsets):
        metrics = metrics_of(contrasts, weight)
    del contrasts
    crossed = metrics.crossed(plain.offsets)
    products = metrics.inner(rows, plain.offsets, crossed, inner)
    choice = _choose(metrics, products, left_out, answers, weight=weight, free=free)
    best = choice.best

    def relative(to_best: Tensor) -> Tensor:
        # Where no γ < 1 is better the best answers are the plain ones. Where all samples are copies
        # the ratio is then 0/0.
        return to_best.where(choice.shrinkage < 1, 1.0)

    stretch = relative(answers.spread / best.spread).sqrt()
    metric = Metric(metrics.whitening(choice.root, choice.shrinkage), stretch)
    offsets = metric(plain.offsets, crossed)
    return replace(
        plain,
        metric=metric,
        offsets=offsets,
        squares=offsets.square().sum(-1) - plain.scatter.unsqueeze(-1) / plain.counts,
        precision=plain.precision * relative(best.precision / answers.precision),
        shrinkage=choice.shrinkage,
        noise=plain.noise * relative(best.noise / answers.noise),
        left_out_losses=best.losses,
    )


class _Choice(NamedTuple):
    """The best of all metrics, for each task."""

    best: Answers
    shrinkage: Tensor  # [t] its γ
    root: Tensor  # [t, …] its factor; see ``Scatter.root`` and ``Gram.root``


def _choose(
    metrics: Scatter | Gram,
    products: ScatterInner | GramInner,
    left_out: LeftOut,
    plain: Answers,
    weight: Tensor,
    free: Tensor,
) -> _Choice:
    """The γ whose answers have the smallest cross-entropy, 1 included, whose answers are ``plain``.

    γ below ``free`` [t] = d/(d + 2f) costs ln(free/γ) nats: a prior, for f contrasts do not support
    a covariance that is sharper, and left-out samples may hardly differ in what they gain from one
    that is singular by chance. As a strict limit, at d/(d + 4f), it cost 12 points on five
    correlated measurements with two examples per class. ``weight`` [t] is 1/(f·v).
    """
    best = plain
    shrinkage = torch.ones_like(weight)
    near = plain.precision
    best_root: Tensor | None = None
    for gamma in _SHRINKAGES:
        with _rounding(metrics.features):  # a choice among a few values needs no more digits
            root = metrics.root(gamma)
            inner = products(root, gamma)
        answers = left_out.classified(inner, (1 - gamma) * weight, plain.spread, near)
        near = answers.precision
        price = (free / gamma).log().clamp_min(0) / answers.losses.shape[-1]
        answers = answers._replace(losses=answers.losses + price.unsqueeze(-1))
        lowest = best.losses.sum(-1)
        better = answers.losses.sum(-1) < torch.minimum(_LESS * lowest, lowest - _NO_LOSS)
        best = best.where(~better, answers)
        shrinkage = shrinkage.where(~better, gamma)
        if best_root is None:
            best_root = root
        elif not metrics.inverts:
            best_root[better] = root[better]
    assert best_root is not None
    return _Choice(best=best, shrinkage=shrinkage, root=best_root)


def gaussian_precision(
    variances: Tensor, n_support: int, scatter: Tensor, counts: Tensor
) -> Tensor:
    """[t] the precision for independent normal features, as many as matter: (Σ v)²/Σ v².

    v [t, d] are their variances. The scatter S is that of so many features of variance 1/τ, and a
    prototype adds its error. Where features are few, the usual precision is too high.
    """
    tiny = torch.finfo(scatter.dtype).tiny
    number = variances.sum(-1).square() / variances.square().sum(-1).clamp_min(tiny)
    freedom = number * (n_support - counts.shape[1])
    number = number * (1 - 2 / freedom.clamp_min(_LEAST_FREEDOM))
    return number / scatter.clamp_min(tiny) * (counts / (counts + 1)).mean(-1)
