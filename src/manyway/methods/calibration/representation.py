"""The representation z of a row x: what is compared. It is learned from the support, for each task.

    y_j = (x_j − a_j)^p                       a_j the lowest value of column j; p between ½ and 1
    t_j = (y_j − m_j) / σ_j                   m the middle of the classes, σ_j the scale of the column
    z   = t (‖t‖² / N)^(−h/2)                 N the effective number of columns, h = N / (N + 8)

**Power.** Features that pile up at their lowest value, such as counts or the outputs of a
rectifier, have long upper tails, in which single large values would decide. p = 1 − ½ min(1, skewness/2)
by the mean skewness of the columns: 0 for symmetric columns, 2 for exponential ones. A
value below a_j keeps its sign.

**Middle.** The mean of the class means, in which a class counts 1/(1 + d_k²/d²): d_k is its
distance from the middle and d² the median of d_k². So one far class neither moves the middle nor
widens the scales.

**Scales.** Column j has the variance o_j over all examples, with m degrees of freedom, and the
variance s_j within classes, with f. The second is what counts, but few examples give both mostly by
chance. So

    ln σ_j² = l + θ (κ_j (ln o_j − l) + λ (e_j − ē)),    e_j = ln(s_j / o_j),    l the mean of ln o,
    κ_j = w / (w + c_j),    w = max(0, var(ln o) − c̄),    λ = max(0, 1 − trigamma(f/2) / var(e)),

where c_j = trigamma(m/2) max(1, (kurtosis_j − 1)/2) is the variance of ln o_j by chance alone: the
columns themselves say how much their scales can be trusted (empirical Bayes, as for the variances
of genes in Smyth, 2004). Where they differ no more than by chance, all columns have one scale. With
one example per class λ is 0.

**Whether columns have scales of their own.** Measurements in different units have; counts in which
most columns are nearly always zero have not, for the scale of a rare column is made of a few
examples. θ, from 0 for one scale to 1, is what held-out examples say: one half of each class tells
the scales, the nearest class mean of that half classifies the other half, and the halves change
places. Columns in one unit have logarithms of variances that differ by about 1; so θ is the mean of
0 and 1 under exp(θ var(ln o) − cross-entropy), and a few examples cannot say that the units of a
table do not matter.

**Length.** Of many independent columns, as embeddings have them, the length of a row says little
about its class, and z has nearly unit length (h near 1). Of few columns the length is part of what
they say (h near 0). Two of n examples in N independent columns have E (t_i·t_j)² = (E ‖t‖²)² (1/N +
1/(n − 1)²), the second because they are relative to their own middle; N follows from the means over
all pairs.

Another unit of all columns, or another zero of any, changes nothing. Where the units of columns
differ, others change little.

References: Smyth, "Linear models and empirical Bayes methods for assessing differential expression
in microarray experiments", Statistical Applications in Genetics and Molecular Biology, 2004.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from manyway.core import Tasks, class_sums, count_labels, dense, one_hot
from manyway.core.kernels import fused
from manyway.methods.calibration.constants import Constants
from manyway.methods.calibration.distances import distances_around_zero, squared_distances
from manyway.methods.calibration.log_sums import log_sums
from manyway.methods.calibration.metric import rows_of

if TYPE_CHECKING:
    from manyway.methods.calibration.representation_kernel import Curve, Order, Place

_MOST_ROWS = 512  # evenly spaced examples that show how columns are distributed
_MOST_COMPARED = 128  # of these, in pairs
_ROUNDS = 3  # in which middle, scales and the weights of classes are brought into agreement
_ROUNDING = 4  # a standard deviation of so many last digits of the middle is none
_CONSTANT = 1e-10  # a part of a variance that is none, but for rounding
_CUBE = 3  # the power whose mean is the skewness
_OWN_SCALES = (0.0, 1.0)  # the values of θ that are tried
# ln of τ times the squared distance of held-out examples: lowest, highest, number
_LOG_PRECISIONS = (-1.0, 6.0, 15)


@dataclass(frozen=True, eq=False, kw_only=True)
class Representation:
    """What is done to every row of t tasks; one row of each tensor serves all tasks with the same support."""

    lowest: Tensor  # [t, 1, d] a
    power: Tensor  # [t, 1, 1] p
    middle: Tensor  # [t, 1, d] m
    weights: Tensor  # [t, 1, d] 1/σ; 0 for a constant column
    effective_columns: Tensor  # [t, 1, 1] N
    shortening: Tensor  # [t, 1, 1] h
    of_examples: Tensor  # [t, 1, 1] the mean of (‖v‖² / N)^(−h) over examples

    def __call__(self, rows: Tensor) -> Tensor:
        """[t, n, d] z, from rows [t, n, d]; or [n, d] from [n, d] where there is one task."""
        if rows.ndim == 2:
            return self(rows.unsqueeze(0)).squeeze(0)
        if _fused(rows) and self._serves(len(rows)):
            from manyway.methods.calibration import representation_kernel

            return representation_kernel.represented(rows, None, self._curve, self._place)
        scaled = self._scaled(rows)
        return _shortened(scaled, self.effective_columns, self.shortening)

    def of_tasks(self, tasks: Tasks) -> Tasks:
        """The tasks with all rows [t, n, d] represented. On a GPU they are read where they lie."""
        if tasks.factor is not None or tasks.centre is not None or not _fused(tasks.query_table):
            return dense(tasks, self)
        support = self._found(tasks.support_table, tasks.support_index)
        query = self._found(tasks.query_table, tasks.query_index)
        vectors = tasks.class_features
        changed = None if vectors is None else self(vectors)
        return tasks.with_rows(support, query, class_table=changed)

    def _found(self, table: Tensor, index: Tensor | None) -> Tensor:
        """[t, n, d] z of the rows ``index`` [t, n] of a table [m, d]; None: of [t, n, d]."""
        if index is None or not self._serves(len(index)):
            return self(table if index is None else table[index])
        from manyway.methods.calibration import representation_kernel

        return representation_kernel.represented(table, index, self._curve, self._place)

    def _serves(self, n_tasks: int) -> bool:
        """Whether every tensor has a row for each of so many tasks, or all have one for all."""
        lengths = {len(getattr(self, one.name)) for one in fields(self)}
        return lengths in ({1}, {n_tasks})

    @property
    def _curve(self) -> Curve:
        """For kernels."""
        from manyway.methods.calibration.representation_kernel import Curve

        return Curve(self.lowest, self.power)

    @property
    def _place(self) -> Place:
        """For kernels."""
        from manyway.methods.calibration.representation_kernel import Place

        return Place(self.middle, self.weights, self.effective_columns, self.shortening)

    def with_gaps(self, rows: Tensor) -> Tensor:
        """[t, n, d] z, from rows [t, n, d] in which cells may be missing (NaN); these get the middle, 0.

        A row is shortened as if each missing cell had the mean square of those that are there and of one further cell
        with the square 1.
        """
        scaled = self._scaled(rows)
        return scaled.nan_to_num(0.0) * self._shortening_with_gaps(scaled)

    def cells(self, rows: Tensor, scaled_cells: Tensor) -> Tensor:
        """[t, n, d] the x of scaled cells z [t, n, d], in rows [t, n, d] with gaps."""
        scaled = self._scaled(rows)
        lengths = self._shortening_with_gaps(scaled)
        weights = self.weights.where(self.weights > 0, 1.0)
        curved = scaled_cells / (lengths * weights) + self.middle
        return _raised(curved, 1 / self.power) + self.lowest

    def _shortening_with_gaps(self, scaled: Tensor) -> Tensor:
        """[t, n, 1] (‖v‖² / N)^(−h/2) of v [t, n, d] with gaps; see ``with_gaps``."""
        varies = self.varies.expand(scaled.shape)
        n_missing = (scaled.isnan() & varies).sum(-1, keepdim=True)
        n_given = varies.sum(-1, keepdim=True) - n_missing
        squares = scaled.square().nansum(-1, keepdim=True)
        squares = squares + n_missing * (squares + 1) / (n_given + 1)
        return _shortening_factor(squares, self.effective_columns, self.shortening)

    @property
    def varies(self) -> Tensor:
        """[t, 1, d] which columns are not constant."""
        return self.weights > 0

    def shortened_by(self, rows: Tensor) -> Tensor:
        """[t, n] by how much squared distances around z are shorter than those around examples.

        The mean of examples has 1. Rows [t, n, d] that are far from the middle have less. Cells may be missing.
        """
        scaled = self._scaled(rows)
        if bool(scaled.isnan().any()):
            factors = self._shortening_with_gaps(scaled)
        else:
            squares = scaled.square().sum(-1, keepdim=True)
            factors = _shortening_factor(squares, self.effective_columns, self.shortening)
        return (factors.square() / self.of_examples).squeeze(-1)

    @property
    def told(self) -> dict[str, Tensor]:
        """What is worth telling, a number per task [t] each."""
        return {
            "power": self.power.flatten(),
            "columns": self.effective_columns.flatten(),
            "shortening": self.shortening.flatten(),
        }

    def curved(self, rows: Tensor) -> Tensor:
        """[t, n, d] y, from rows [t, n, d]."""
        return _raised(rows - self.lowest, self.power)

    def _scaled(self, rows: Tensor) -> Tensor:
        """[t, n, d] v, from rows [t, n, d]; NaN where a cell is missing."""
        return (self.curved(rows) - self.middle) * self.weights

    def __getitem__(self, which: slice | Tensor) -> Representation:
        return Representation(**{one.name: getattr(self, one.name)[which] for one in fields(self)})


def learn_representation(tasks: Tasks, constants: Constants) -> Representation:
    """The representation of each task, from its support alone. Tasks with one support have one.

    The mean of the base classes, where it is given, is the middle of symmetric columns.
    """
    tasks = tasks[:1] if tasks.shared_support else tasks
    examples = _Examples.of(_class_by_class(tasks))
    rows = examples.rows
    scales = _middle_and_scales(rows, examples.unit, examples.classes)
    middle = scales.middle
    weights = scales.weights(_part_of_own_scales(examples, scales.spread, constants))
    if tasks.base_mean is not None:
        of_base = _raised(tasks.base_mean - examples.lowest, examples.power)
        middle = torch.lerp(of_base, middle, examples.asymmetry)
    columns = _columns_of(rows, middle, weights)
    shortening = _shortening(columns, constants)
    squares = _squared_lengths(rows, middle, weights)
    return Representation(
        lowest=examples.lowest,
        power=examples.power,
        middle=middle,
        weights=weights,
        effective_columns=columns,
        shortening=shortening,
        of_examples=_shortening_factor(squares, columns, shortening).square().mean(1, keepdim=True),
    )


class _Examples(NamedTuple):
    """The examples of some tasks, with what their columns say alone."""

    lowest: Tensor  # [t, 1, d] a
    asymmetry: Tensor  # [t, 1, 1] half the mean skewness, between 0 and 1
    power: Tensor  # [t, 1, 1] p
    rows: Tensor  # [t, s, d] y of those that are looked at
    unit: Tensor  # [t, 1, d] the largest y of each column; see ``_moments``
    classes: _Classes

    @staticmethod
    def of(tasks: Tasks) -> _Examples:
        every = ceil(tasks.n_support / _MOST_ROWS)
        if _fused(tasks.support_table) and tasks.factor is None and tasks.centre is None:
            return _Examples._by_kernels(tasks, every)
        support = tasks.support
        lowest = support.amin(1, keepdim=True)
        rows = support - lowest
        asymmetry = (_skewness(rows[:, ::every]) / 2).clamp(0, 1)
        power = 1 - 0.5 * asymmetry
        rows = _raised(rows, power)
        return _Examples(
            lowest=lowest,
            asymmetry=asymmetry,
            power=power,
            rows=rows[:, ::every],
            unit=_positive(rows[:, ::every].amax(1, keepdim=True)),
            classes=_Classes.of(rows, tasks.support_labels, tasks.n_classes, every),
        )

    @staticmethod
    def _by_kernels(tasks: Tasks, every: int) -> _Examples:
        """The same without an array of all rows."""
        from manyway.methods.calibration import representation_kernel as kernels

        table = tasks.support_table.reshape(-1, tasks.n_features)
        index = tasks.support_rows
        found = kernels.columns_of(table, index, every)
        varies = _varying(found.variance, found.largest)
        asymmetry = (_mean_skewness(found.skewness, varies) / 2).clamp(0, 1)
        power = 1 - 0.5 * asymmetry
        curve = kernels.Curve(found.lowest, power)
        order = _order_of(tasks.support_labels, tasks.n_classes)
        places = order._replace(rows=index.gather(1, order.rows))
        counts = order.starts.diff(dim=1).to(table)
        means = kernels.class_sums(table, places, curve=curve)
        means = means.div_(counts.clamp_min(1).unsqueeze(-1))
        some = tasks.support_labels[:, ::every]
        classes = _Classes(
            labels=some,
            counted=torch.ones_like(some, dtype=table.dtype),
            counts=counts,
            means=means,
            order=_order_of(some, tasks.n_classes),
        )
        return _Examples(
            lowest=found.lowest,
            asymmetry=asymmetry,
            power=power,
            rows=kernels.represented(table, index[:, ::every], curve),
            unit=_positive(_raised(found.largest, power)),
            classes=classes,
        )


def _class_by_class(tasks: Tasks) -> Tasks:
    """The tasks with their examples class after class, so that every so many of them are of all classes."""
    labels = tasks.support_labels
    of_one = labels[:1] if labels.stride(0) == 0 else labels  # one order for all tasks
    if bool((of_one.diff(dim=1) >= 0).all()):
        return tasks
    order = of_one.argsort(dim=1, stable=True).expand_as(labels)
    return replace(
        tasks,
        support_table=tasks.support_table.reshape(-1, tasks.n_features),
        support_index=tasks.support_rows.gather(1, order),
        support_labels=labels.gather(1, order),
    )


def _positive(units: Tensor) -> Tensor:
    """Units, where those of columns of zeros are 1."""
    return units.where(units > torch.finfo(units.dtype).tiny, 1.0)


def _fused(rows: Tensor) -> bool:
    """Whether kernels can be used for rows […, d]."""
    if not fused(rows) or rows.dtype != torch.float32:
        return False
    from manyway.methods.calibration.representation_kernel import MAX_FEATURES

    return rows.shape[-1] <= MAX_FEATURES


def _order_of(labels: Tensor, n_classes: int) -> Order:
    """The examples with labels [t, s] class by class, for kernels."""
    from manyway.methods.calibration.representation_kernel import Order

    if labels.stride(0) == 0 and len(labels) > 1:  # one order for all tasks
        of_one = _order_of(labels[:1], n_classes)
        return Order(*(one.expand(len(labels), -1) for one in of_one))
    ends = count_labels(labels, n_classes).cumsum(1)
    return Order(labels.argsort(dim=1, stable=True), torch.nn.functional.pad(ends, (1, 0)))


def _shortening(columns: Tensor, constants: Constants) -> Tensor:
    """[t, 1, 1] h, for N [t, 1, 1]."""
    return columns / (columns + constants.few_columns)


def _columns_of(rows: Tensor, middle: Tensor, weights: Tensor) -> Tensor:
    """[t, 1, 1] N of rows [t, s, d] around a middle, in units of their scales."""
    every = ceil(rows.shape[1] / _MOST_COMPARED)
    if _fused(rows):
        from manyway.methods.calibration import representation_kernel as kernels

        which = torch.arange(0, rows.shape[1], every, device=rows.device)
        index = _places_of(which.expand(len(rows), -1), rows)
        neutral = torch.ones_like(middle[..., :1])
        place = kernels.Place(middle, weights, neutral, 0 * neutral)  # not shortened
        some = kernels.represented(rows.flatten(0, 1), index, place=place)
    else:
        some = (rows[:, ::every] - middle) * weights
    return _effective_columns(some, (weights > 0).sum((1, 2)))


def _places_of(index: Tensor, rows: Tensor) -> Tensor:
    """[t, n] the places of the rows ``index`` [t, n] of each task among the rows [t, s, d] of all."""
    return index + torch.arange(len(rows), device=rows.device).view(-1, 1) * rows.shape[1]


def _squared_lengths(rows: Tensor, middle: Tensor, weights: Tensor) -> Tensor:
    """[t, s, 1] ‖v‖² of rows [t, s, d]."""
    if _fused(rows):
        from manyway.methods.calibration import representation_kernel as kernels

        neutral = torch.ones_like(middle[..., :1])
        return kernels.squared_lengths(rows, kernels.Place(middle, weights, neutral, neutral))
    return ((rows - middle) * weights).square().sum(-1, keepdim=True)


def _placed(rows: Tensor, middle: Tensor, weights: Tensor, constants: Constants) -> Tensor:
    """[t, s, d] z of rows y [t, s, d]."""
    columns = _columns_of(rows, middle, weights)
    shortening = _shortening(columns, constants)
    if _fused(rows):
        from manyway.methods.calibration import representation_kernel as kernels

        place = kernels.Place(middle, weights, columns, shortening)
        return kernels.represented(rows, place=place)
    return _shortened((rows - middle) * weights, columns, shortening)


def _shortened(scaled: Tensor, columns: Tensor, shortening: Tensor) -> Tensor:
    """[t, n, d] v (‖v‖² / N)^(−h/2)."""
    squares = scaled.square().sum(-1, keepdim=True)
    return scaled * _shortening_factor(squares, columns, shortening)


def _shortening_factor(squares: Tensor, columns: Tensor, shortening: Tensor) -> Tensor:
    """[t, n, 1] (‖v‖² / N)^(−h/2), for ‖v‖² [t, n, 1]."""
    tiny = torch.finfo(squares.dtype).tiny
    return (squares / columns).clamp_min(tiny).pow(-0.5 * shortening)


def _raised(rows: Tensor, power: Tensor) -> Tensor:
    """sign(x) |x|^p."""
    if bool((power == 1).all()):
        return rows
    return rows.abs().pow(power).copysign(rows)


def _skewness(rows: Tensor) -> Tensor:
    """[t, 1, 1] the mean skewness of the columns of rows [t, s, d] that vary."""
    centred = rows - rows.mean(1, keepdim=True)
    variances = centred.square().mean(1, keepdim=True)
    varies = _varying(variances, rows.amax(1, keepdim=True))
    scale = variances.sqrt().where(varies, 1.0)
    return _mean_skewness((centred / scale).pow(_CUBE).mean(1, keepdim=True), varies)


def _mean_skewness(skewness: Tensor, varies: Tensor) -> Tensor:
    """[t, 1, 1] the mean of those of the columns [t, 1, d] that vary."""
    return (skewness * varies).sum(-1, keepdim=True) / varies.sum(-1, keepdim=True).clamp_min(1)


def _varying(variances: Tensor, largest: Tensor) -> Tensor:
    """[t, 1, d] whether a column is not constant but for rounding.

    That is rounding of its largest values [t, 1, d], or of usual columns from which its values were computed: a column
    of an embedding that is zero but for rounding would have the largest weight.
    """
    usual = variances.median(-1, keepdim=True).values.sqrt()
    rounding = _ROUNDING * torch.finfo(variances.dtype).eps * torch.maximum(largest.abs(), usual)
    return variances > rounding.square()


@dataclass(frozen=True, eq=False, kw_only=True)
class _Classes:
    """The classes of the examples, of which every so many are looked at."""

    labels: Tensor  # [t, s] of those that are looked at
    counted: Tensor  # [t, s] 1 for those that count, 0 for those that are held out
    counts: Tensor  # [t, k] of all that count
    means: Tensor  # [t, k, d] of all that count
    order: Order | None = None  # those that are looked at class by class, where kernels are used

    @staticmethod
    def of(rows: Tensor, labels: Tensor, n_classes: int, every: int) -> _Classes:
        examples = Tasks(
            support_table=rows,
            support_index=None,
            support_labels=labels,
            query_table=rows[:, :0],
            query_index=None,
            n_classes=n_classes,
        )
        sums, counts = class_sums(examples)
        means = sums / counts.clamp_min(1).unsqueeze(-1)
        some = labels[:, ::every]
        return _Classes(
            labels=some, counted=torch.ones_like(some, dtype=rows.dtype), counts=counts, means=means
        )

    def without(self, rows: Tensor, held_out: Tensor) -> _Classes:
        """The same if some of the rows [t, s, d] are held out [t, s]."""
        counted = 1 - held_out
        counts = count_labels(self.labels, self.counts.shape[1], counted)
        rest = replace(self, counted=counted, counts=counts)
        return replace(rest, means=rest.means_of(rows))

    def _members(self) -> Tensor:
        """[t, s, k] 1 for the class of an example that counts."""
        members = one_hot(self.labels, self.counts.shape[1], self.counted.dtype)
        return members * self.counted.unsqueeze(-1)

    def means_of(self, rows: Tensor) -> Tensor:
        """[t, k, d] the class means of the rows [t, s, d] that count."""
        if self.order is not None:
            return self._means_by_kernel(rows, self.order)
        return self._members().mT @ rows / self.counts.clamp_min(1).unsqueeze(-1)

    def _means_by_kernel(self, rows: Tensor, order: Order) -> Tensor:
        """``means_of``, as sums of rows with weights."""
        from manyway.methods.calibration import representation_kernel

        places = order._replace(rows=_places_of(order.rows, rows))
        weights = self.counted / self.counts.clamp_min(1).gather(1, self.labels)
        weights = weights.gather(1, order.rows)
        return representation_kernel.class_sums(rows.flatten(0, 1), places, weights)

    def weights_of_examples(self, of_class: Tensor) -> Tensor:
        """[t, s] for weights [t, k] of the classes, which their examples that count share."""
        weights = of_class / self.counts.clamp_min(1)
        return weights.gather(1, self.labels) * self.counted

    def every_other(self, rows: Tensor) -> Tensor:
        """[t, s] 1 for every other example of each class, 0 for the rest.

        Examples are taken by the length of their rows [t, s, d], so that their order does not matter.
        Counts are often equally long: these are taken by how much they are like the mean.
        """
        if self.order is None:
            lengths = rows.square().sum(-1)
        else:  # without an array of squares
            lengths = torch.linalg.vector_norm(rows, dim=-1)
        likeness = (rows @ rows.mean(1).unsqueeze(-1)).squeeze(-1)
        by_likeness = likeness.argsort(dim=1, stable=True)
        by_length = lengths.gather(1, by_likeness).argsort(dim=1, stable=True)
        by_length = by_likeness.gather(1, by_length)
        labels = self.labels.gather(1, by_length)
        by_class = labels.argsort(dim=1, stable=True)
        order = by_length.gather(1, by_class)
        sizes = count_labels(self.labels, self.counts.shape[1])
        firsts = (sizes.cumsum(1) - sizes).gather(1, self.labels.gather(1, order))
        places = torch.arange(rows.shape[1], device=rows.device) - firsts
        return torch.zeros_like(self.counted).scatter_(1, order, places.remainder(2).to(rows))

    @property
    def freedom(self) -> Tensor:
        """[t] the degrees of freedom of the differences within classes."""
        n_occupied = (self.counts > 0).sum(-1)
        n_all = self.counts.sum(-1)
        return self.counted.sum(-1) * (1 - n_occupied / n_all.clamp_min(1))


@dataclass(frozen=True, eq=False, kw_only=True)
class _Scales:
    """The middle m [t, 1, d] and the scales σ [t, 1, d] of columns."""

    middle: Tensor
    mean_log: Tensor  # [t, 1, 1] l
    own: Tensor  # [t, 1, d] ln σ² − l for θ = 1
    varies: Tensor  # [t, 1, d] whether a column is not constant
    spread: Tensor  # [t, 1, 1] the variance of ln o

    def weights(self, part: Tensor | float) -> Tensor:
        """[t, 1, d] 1/σ for θ = ``part``, and 0 for constant columns."""
        return (-0.5 * (self.mean_log + part * self.own)).exp() * self.varies


def column_variances(rows: Tensor, middle: Tensor) -> Tensor:
    """[t, d] the mean squared difference of rows [t, s, d] from a middle [t, 1, d]."""
    if _fused(rows):
        from manyway.methods.calibration import representation_kernel

        equal = rows.new_full((1, 1), 1 / rows.shape[1]).expand(rows.shape[:2])
        return representation_kernel.moments(rows, middle, equal).squares.squeeze(1)
    return (rows - middle).square().mean(1)


def _middle_and_scales(rows: Tensor, unit: Tensor, classes: _Classes) -> _Scales:
    """Those of the rows [t, s, d] that count; ``unit`` [t, 1, d] as in ``_Examples``."""
    occupied = (classes.counts > 0).to(rows)
    of_class = occupied
    inside = _within(rows, classes)
    for _ in range(_ROUNDS):
        share = (of_class / of_class.sum(-1, keepdim=True)).unsqueeze(-1)
        if classes.order is None:
            middle = (share * classes.means).sum(1, keepdim=True)
        else:  # without an array of shared means
            middle = share.mT @ classes.means
        weights = classes.weights_of_examples(of_class)
        moments = _moments(rows, middle, weights, unit)
        scales = _scales(moments, inside, middle, weights, classes.freedom)
        squares = _squared_lengths(classes.means, middle, scales.weights(1.0)).squeeze(-1)
        typical = squares.where(occupied > 0, torch.nan).nanquantile(0.5, dim=-1, keepdim=True)
        of_class = occupied / (1 + squares / typical.clamp_min(torch.finfo(rows.dtype).tiny))
    return scales


def _within(rows: Tensor, classes: _Classes) -> Tensor:
    """[t, 1, d] the sums of squared differences of the rows [t, s, d] that count from their class means."""
    if classes.order is not None:
        from manyway.methods.calibration import representation_kernel

        return representation_kernel.moments(
            rows, classes.means, classes.counted, of=classes.labels
        ).squares
    within = (rows - rows_of(classes.means, classes.labels)) * classes.counted.unsqueeze(-1)
    return within.square().sum(1, keepdim=True)


class _Moments(NamedTuple):
    """How rows are distributed around a middle, for each column [t, 1, d]."""

    variance: Tensor
    kurtosis: Tensor


def _moments(rows: Tensor, middle: Tensor, weights: Tensor, unit: Tensor) -> _Moments:
    """Those of rows [t, s, d] with weights [t, s] around a middle [t, 1, d].

    Fourth powers of very large or small numbers are none, so each column has a ``unit`` [t, 1, d].
    """
    shares = weights / weights.sum(-1, keepdim=True)
    if _fused(rows):
        from manyway.methods.calibration import representation_kernel

        squares, fourths = representation_kernel.moments(rows, middle, shares, 1 / unit)
    else:
        powers = ((rows - middle) / unit).square_()
        squares = shares.unsqueeze(1) @ powers
        fourths = shares.unsqueeze(1) @ powers.square_()
    kurtosis = fourths / squares.square().clamp_min(torch.finfo(rows.dtype).tiny)
    return _Moments(variance=squares * unit.square(), kurtosis=kurtosis)


def _scales(
    moments: _Moments, inside: Tensor, middle: Tensor, weights: Tensor, freedom: Tensor
) -> _Scales:
    """The scales of examples that have these moments around a middle [t, 1, d].

    ``inside`` [t, 1, d] are the variances within classes, in any unit: their ratios to others count relative to the
    mean ratio. They have ``freedom`` [t] degrees of freedom. Examples have the weights [t, s].
    """
    overall = moments.variance
    varies = _varying(overall, middle)
    both = varies & (inside > _CONSTANT * overall)
    tiny = torch.finfo(overall.dtype).tiny
    logs = overall.clamp_min(tiny).log()
    ratios = (inside.clamp_min(tiny).log() - logs) * both
    number = both.sum(-1, keepdim=True)
    mean_ratio = ratios.sum(-1, keepdim=True) / number.clamp_min(1)
    mean_log = (logs * varies).sum(-1, keepdim=True) / varies.sum(-1, keepdim=True).clamp_min(1)
    by_chance = _by_chance(_freedom(weights)) * ((moments.kurtosis - 1) / 2).clamp_min(1)
    believed = _reliability(logs, varies, by_chance)
    of_within = _by_chance(freedom.clamp_min(1))
    trusted = (1 - of_within / _variance(ratios, both).clamp_min(tiny)).clamp(0, 1)
    trusted = trusted * ((number > 2) & (freedom > 0).view(-1, 1, 1))
    own = believed * (logs - mean_log) + trusted * (ratios - mean_ratio) * both
    return _Scales(
        middle=middle,
        mean_log=mean_log,
        own=own,
        varies=varies,
        spread=_variance(logs, varies),
    )


def _part_of_own_scales(examples: _Examples, spread: Tensor, constants: Constants) -> Tensor:
    """[t, 1, 1] θ; 1 where no class has two of the examples that are looked at.

    ``spread`` [t, 1, 1] is the variance of ln o.
    """
    rows = examples.rows
    every_other = examples.classes.every_other(rows)
    parts = rows.new_tensor(_OWN_SCALES)
    can_be_held_out = every_other.any(1).view(-1, 1, 1)
    if not bool(can_be_held_out.any()):
        return torch.ones_like(rows[:, :1, :1])
    losses = rows.new_zeros(len(rows), len(parts))
    for held_out in (every_other, 1 - every_other):
        rest = examples.classes.without(rows, held_out)
        scales = _middle_and_scales(rows, examples.unit, rest)
        for at, part in enumerate(_OWN_SCALES):
            weights = scales.weights(part)
            placed = _placed(rows, scales.middle, weights, constants)
            losses[:, at] += _held_out_loss(placed, rest)
    losses = losses.nan_to_num(0.0)  # a half without two classes says nothing
    prior = spread.view(-1, 1) * parts
    mean = ((prior - losses).softmax(-1) * parts).sum(-1).view(-1, 1, 1)
    return mean.where(can_be_held_out, 1.0)


def _held_out_loss(placed: Tensor, classes: _Classes) -> Tensor:
    """[t] the cross-entropy of held-out rows, classified by the nearest mean of the others, with the best precision."""
    tiny = torch.finfo(placed.dtype).tiny
    means = classes.means_of(placed)
    if classes.order is None:
        distances = squared_distances(placed, means)
    else:
        distances = distances_around_zero(placed, means)
    absent = (classes.counts == 0).unsqueeze(1)
    own = distances.gather(-1, classes.labels.unsqueeze(-1)).squeeze(-1)
    usable = (1 - classes.counted) * (classes.counts.gather(1, classes.labels) > 0)
    typical = (own * usable).sum(-1) / usable.sum(-1).clamp_min(1)
    factors = torch.linspace(*_LOG_PRECISIONS, dtype=own.dtype, device=own.device).exp()
    precisions = factors.unsqueeze(-1) / typical.clamp_min(tiny)
    entropies = log_sums(distances.masked_fill_(absent, torch.inf), precisions)
    entropies += 0.5 * precisions.unsqueeze(-1) * own
    return (entropies * usable).sum(-1).amin(0)


def _reliability(logs: Tensor, which: Tensor, by_chance: Tensor) -> Tensor:
    """[t, 1, d] κ, for logarithms of variances [t, 1, d] that differ ``by_chance`` [t, 1, d] at least."""
    mean_chance = (by_chance * which).sum(-1, keepdim=True) / which.sum(-1, keepdim=True).clamp_min(
        1
    )
    real = (_variance(logs, which) - mean_chance).clamp_min(0)
    return real / (real + by_chance)


def _variance(values: Tensor, which: Tensor) -> Tensor:
    """[t, 1, 1] of some of the values [t, 1, d]."""
    number = which.sum(-1, keepdim=True)
    mean = (values * which).sum(-1, keepdim=True) / number.clamp_min(1)
    return ((values - mean).square() * which).sum(-1, keepdim=True) / (number - 1).clamp_min(1)


def _by_chance(freedom: Tensor) -> Tensor:
    """[t, 1, 1] trigamma(f/2), the variance of the logarithm of a variance with f degrees of freedom [t]."""
    return torch.special.polygamma(1, freedom / 2).view(-1, 1, 1)


def _freedom(weights: Tensor) -> Tensor:
    """[t] the degrees of freedom of a variance: the effective number of weights [t, s], less 1."""
    effective_number = weights.sum(-1).square() / weights.square().sum(-1)
    return (effective_number - 1).clamp_min(0.5)


def _effective_columns(rows: Tensor, most: Tensor) -> Tensor:
    """[t, 1, 1] N, from a few rows [t, s, d] in units of their scales; ``most`` [t] columns vary."""
    lengths = rows.norm(dim=-1, keepdim=True)
    typical = lengths.quantile(0.5, dim=1, keepdim=True)
    # Rows of a far class would decide alone: no row counts as longer than half of them are.
    some = rows * (typical / lengths.clamp_min(torch.finfo(rows.dtype).tiny)).clamp_max(1)
    products = some @ some.mT
    squares = products.diagonal(dim1=1, dim2=2)
    n_rows = some.shape[1]
    of_pairs = products.square().sum((1, 2)) - squares.square().sum(-1)
    of_middle = squares.mean(-1).square() / max(n_rows - 1, 1) ** 2
    mean_pair = of_pairs / max(n_rows * (n_rows - 1), 1) - of_middle
    number = squares.mean(-1).square() / mean_pair.clamp_min(torch.finfo(rows.dtype).tiny)
    return torch.minimum(number, most).clamp_min(1).view(-1, 1, 1)
