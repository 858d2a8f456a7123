"""Missing: cells without a number are integrated out, so that a row is answered from the others.

A missing cell is NaN. Placed rows of a class are normal around its prototype w, with the same
variance in every direction. So the likelihood of what is there follows from that of whole rows: of
all values that the missing cells could have, those that are best for a class are also their mean in
it. Let P be the projection on what is orthogonal to the rows of the metric that belong to the
missing columns. Then

    ℓ_qk = −½ τ (‖P (z_q − w_k)‖² − f_q e_k),        f_q the part of the columns that are there.

Columns that are constant among the examples tell nothing, and do not count. A row without any
number has ℓ = 0 for all classes, and gets what the other items say about the batch.

**Rows in the search.** Later stages need coordinates of a query: those with missing cells at their
mean over the classes,

    ẑ_q = P z_q + (1 − P) Σ_k p_qk w_k,        p_q = softmax(ℓ_q).

They would pull a query to the class that it seems to be of. So a placed row has k further columns,
by which ℓ is larger than that of ẑ,

    c_qk = ½ τ (‖(1 − P) (ẑ_q − w_k)‖² − (1 − f_q) e_k),

and all that is linear in placed rows, such as the sums of groups, stays so (``WithGaps``). Two rows
with missing cells at their mean lie nearer to each other than whole rows would. For near-copies
(``copies``) a last column therefore has what each of them hides of the scatter, (1 − f_q) S. Missing
cells of examples are filled before anything is learned from them (``complete``).

References: Little and Rubin, "Statistical Analysis with Missing Data", 2002 (chapter 11).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import Joined, Scaling, Tasks
from manyway.methods.calibration import Calibration, Representation
from manyway.methods.evidence.judged import Judged
from manyway.methods.evidence.likelihood import Distances, Linear, Updated

_NUMBERS_AT_ONCE = 1 << 24  # of the systems of equations, one per row, that are solved together
# Of the mean of a diagonal: it keeps a system solvable, and changes no digit that matters.
_RIDGE = 1e-10


@dataclass(frozen=True, eq=False, kw_only=True)
class UpdatedWithGaps(Updated):
    """Updated prototypes for rows that have ``WithGaps.correction`` after their coordinates."""

    def __call__(self, placed: Tensor, u: Tensor, free: Tensor, log_likelihood: Tensor) -> Tensor:
        n_classes = u.shape[-1]
        n_features = placed.shape[-1] - n_classes - 1
        coordinates = placed[..., :n_features]
        correction = placed[..., n_features:-1]
        updated = super().__call__(coordinates, u, free, log_likelihood - correction)
        return updated + correction


@dataclass(frozen=True, eq=False)
class WithGaps(Distances):
    """The likelihood of rows some of which lack cells: placed rows are ẑ [d], c [k], (1 − f) S."""

    def correction(self, placed: Tensor) -> Tensor:
        """[t, b, k] c, by which ℓ is larger than that of the coordinates."""
        return placed[..., self.calibration.prototypes.offsets.shape[-1] : -1]

    def hidden(self, placed: Tensor) -> Tensor:
        return placed[..., -1]

    def coordinates(self, placed: Tensor) -> Tensor:
        return placed[..., : self.calibration.prototypes.offsets.shape[-1]]

    def of(self, placed: Tensor) -> Tensor:
        return super().of(self.coordinates(placed)) + self.correction(placed)

    def linear(self) -> Linear:
        plain = super().linear()
        own = torch.eye(len(plain.biases), dtype=plain.biases.dtype, device=plain.biases.device)
        of_hidden = torch.zeros_like(own[:1])
        return Linear(torch.cat([plain.weights, own, of_hidden]), plain.biases)

    def updated(self, classes: Tensor, sums: Tensor, masses: Tensor, weights: Tensor) -> Updated:
        plain = super().updated(classes, self.coordinates(sums), masses, weights)
        parts = {one.name: getattr(plain, one.name) for one in fields(plain)}
        return UpdatedWithGaps(**parts)

    def lengths(self, placed: Tensor) -> Tensor:
        return super().lengths(self.coordinates(placed))

    def nearness(self, placed: Tensor, others: Tensor) -> Tensor:
        return super().nearness(self.coordinates(placed), self.coordinates(others))


class PlacedRows(NamedTuple):
    """Rows whose gaps are filled."""

    placed: Tensor  # [b, d] ẑ
    correction: Tensor  # [b, k] c
    cells: Tensor  # [b, d] what is added to the scaled cells, 0 where they were given
    given: Tensor  # [b, 1] f, the part of the columns that are there


@dataclass(frozen=True, eq=False, kw_only=True)
class PlacingWithGaps:
    """From rows [t, b, d] with gaps to placed rows [t, b, d + k + 1] of ``WithGaps``."""

    scaling: Scaling | Representation
    calibration: Calibration

    def __call__(self, rows: Tensor) -> Tensor:
        whole = self.filled(rows)
        hidden = (1 - whole.given) * self.calibration.within.scatter.view(-1, 1, 1)
        return torch.cat([whole.placed, whole.correction, hidden], -1)

    def scaled(self, rows: Tensor) -> Tensor:
        """[t, b, d] scaled rows, with any numbers in the gaps."""
        if isinstance(self.scaling, Representation):
            return self.scaling.with_gaps(rows)
        return self.scaling(rows.nan_to_num(0.0))

    def _varies(self, rows: Tensor) -> Tensor:
        """[t, 1, d] which columns count, of those of rows [t, b, d]."""
        if isinstance(self.scaling, Representation):
            return self.scaling.varies
        return torch.ones_like(rows[:1, :1], dtype=torch.bool)

    def judged(self, rows: Tensor, placed: Tensor, classes: Tensor) -> Judged:
        """Rows [t, b, d] that are placed already [t, b, d], with any numbers in their gaps.

        ``classes`` [t, b] are those that fill the gaps.
        """
        varies = self._varies(rows)
        gaps = rows.isnan() & varies
        placed = placed.clone()
        of_filled = placed.new_zeros(*classes.shape, self.calibration.prototypes.n_classes)
        for of_task, some in self._with_gaps(gaps):
            found = of_task.inside(placed[some], gaps[some])
            own = found.of_classes.take_along_dim(classes[some].view(-1, 1, 1), 2)
            placed[some] += (found.cells(own) @ of_task.metric).to(placed)
            of_filled[some] = (own - found.of_classes).square().sum(1).to(placed)
        n_columns = varies.sum(-1).clamp_min(1).to(placed)
        missing = gaps.to(placed)
        return Judged(placed=placed, missing=missing, n_columns=n_columns, of_filled=of_filled)

    def _with_gaps(self, gaps: Tensor) -> Iterator[tuple[_OneTask, tuple[int, Tensor]]]:
        """The rows that have gaps [t, b, d], as many at a time as memory has room for.

        They are given by their task, and as an index of it and of rows [n] of it.
        """
        n_classes, n_columns = self.calibration.prototypes.offsets.shape[1:]
        at_once = max(1, _NUMBERS_AT_ONCE // (n_columns * (n_columns + 2 * n_classes)))
        metric = self.calibration.coordinates.placing().metric
        for task, has_gaps in enumerate(gaps.any(-1)):
            of_task = _OneTask.of(self.calibration, metric, task)
            for rows in has_gaps.nonzero().squeeze(1).split(at_once):
                yield of_task, (task, rows)

    def filled(self, rows: Tensor) -> PlacedRows:
        """The placed rows, [t, b, …]; those without gaps as they are."""
        varies = self._varies(rows)
        gaps = rows.isnan() & varies
        n_classes = self.calibration.prototypes.n_classes
        placed = self.calibration.coordinates.place(self.scaled(rows))
        n_varying = varies.sum(-1, keepdim=True).clamp_min(1)
        given = 1 - gaps.sum(-1, keepdim=True).to(placed) / n_varying
        correction = placed.new_zeros(*placed.shape[:2], n_classes)
        cells = torch.zeros_like(placed)
        for of_task, some in self._with_gaps(gaps):
            whole = of_task.filled(placed[some], gaps[some], given[some].double())
            placed[some] = whole.placed.to(placed)
            correction[some] = whole.correction.to(placed)
            cells[some] = whole.cells.to(placed)
        return PlacedRows(placed=placed, correction=correction, cells=cells, given=given)


@dataclass(frozen=True, eq=False, kw_only=True)
class BatchGaps:
    """The queries of a batch, some of which lack cells, as they are."""

    scaling: Scaling | Representation
    tasks: Tasks

    def judged(
        self, stride: int, placed: Tensor, classes: Tensor, calibration: Calibration
    ) -> Judged:
        """Every so many queries, with gaps that are filled by their classes [t, a].

        They are placed [t, a, d] by the calibration.
        """
        placing = PlacingWithGaps(scaling=self.scaling, calibration=calibration)
        return placing.judged(self._every(stride), placed, classes)

    def _every(self, stride: int) -> Tensor:
        """[t, a, d] every so many of the queries."""
        pile = self.tasks.pile
        if pile is None:
            return self.tasks.query[:, ::stride]
        return pile.each(partial(_take_rows, stride), pile.firsts)[0].values[0]


def _take_rows(stride: int, rows: Tensor, first: int) -> tuple[Joined, None]:
    """The work that takes every so many of all rows, in a block [1, b, d] that begins with one."""
    return Joined((rows[:, -first % stride :: stride],)), None


@dataclass(frozen=True, eq=False, kw_only=True)
class Filling:
    """From rows [t, b, d] with gaps to whole ones: a missing cell gets its mean over the classes."""

    representation: Representation
    calibration: Calibration

    def __call__(self, rows: Tensor) -> Tensor:
        placing = PlacingWithGaps(scaling=self.representation, calibration=self.calibration)
        cells = self.representation.cells(rows, placing.filled(rows).cells)
        return rows.where(~rows.isnan(), cells)


@dataclass(frozen=True, eq=False, kw_only=True)
class _OneTask:
    """What the rows of one task need, in float64."""

    metric: Tensor  # [d, d] its rows belong to the columns
    products: Tensor  # [d, d] of these rows
    prototypes: Tensor  # [k, d]
    errors: Tensor  # [k] e_k
    half_precision: Tensor  # [] τ/2

    @staticmethod
    def of(calibration: Calibration, metric: Tensor | None, task: int) -> _OneTask:
        def own(values: Tensor) -> Tensor:
            return values[task if len(values) > 1 else 0].double()

        prototypes = own(calibration.prototypes.offsets)
        n_columns = prototypes.shape[-1]
        rows = torch.eye(n_columns, dtype=prototypes.dtype, device=prototypes.device)
        if metric is not None:
            rows = own(metric)
        return _OneTask(
            metric=rows,
            products=rows @ rows.mT,
            prototypes=prototypes,
            errors=prototypes.square().sum(-1) - own(calibration.prototypes.squares),
            half_precision=own(calibration.precision) / 2,
        )

    def filled(self, placed: Tensor, gaps: Tensor, given: Tensor) -> PlacedRows:
        """Of placed rows [b, d], which have any numbers in their gaps [b, d]; ``given`` [b, 1] is f."""
        rows = placed.double()
        found = self.inside(rows, gaps)
        whole = torch.cdist(rows, self.prototypes).square()
        outside = whole - (found.of_row - found.of_classes).square().sum(1)
        log_likelihood = -self.half_precision * (outside - given * self.errors)
        of_mean = found.of_classes @ log_likelihood.softmax(-1).unsqueeze(-1)
        inside = (of_mean - found.of_classes).square().sum(1)
        cells = found.cells(of_mean)
        return PlacedRows(
            placed=rows + cells @ self.metric,
            correction=self.half_precision * (inside - (1 - given) * self.errors),
            cells=cells,
            given=given,
        )

    def inside(self, placed: Tensor, gaps: Tensor) -> _Inside:
        """Placed rows [b, d] and prototypes in the directions that gaps [b, d] hide.

        A Cholesky factor of the products of the rows of the metric that belong to the gaps maps
        products with these rows to coordinates in an orthonormal basis of them.
        """
        rows = placed.double()
        in_gaps = gaps.unsqueeze(-1).to(rows)
        factor = self._factor(gaps)
        return _Inside(
            gaps=gaps,
            factor=factor,
            of_row=_solved(factor, (rows @ self.metric.mT).unsqueeze(-1) * in_gaps),
            of_classes=_solved(factor, self.metric @ self.prototypes.mT * in_gaps),
        )

    def _factor(self, gaps: Tensor) -> Tensor:
        """[b, d, d] the Cholesky factors of the products of missing columns; 1 for the others."""
        both = gaps.unsqueeze(-1) & gaps.unsqueeze(-2)
        ridge = _RIDGE * self.products.diagonal().mean()
        diagonal = torch.where(gaps, ridge, 1.0)
        return torch.linalg.cholesky(self.products * both + torch.diag_embed(diagonal))


class _Inside(NamedTuple):
    """Rows and prototypes in the directions 1 − P that gaps hide, in an orthonormal basis of these."""

    gaps: Tensor  # [b, d]
    factor: Tensor  # [b, d, d] of the basis
    of_row: Tensor  # [b, d, 1]
    of_classes: Tensor  # [b, d, k]

    def cells(self, wanted: Tensor) -> Tensor:
        """[b, d] what is added to scaled cells, so that rows are at ``wanted`` [b, d, 1] there."""
        moved = wanted - self.of_row
        cells = torch.linalg.solve_triangular(self.factor.mT, moved, upper=True).squeeze(-1)
        return cells * self.gaps


def _solved(factor: Tensor, values: Tensor) -> Tensor:
    """L⁻¹ of the values, for a lower triangle L."""
    return torch.linalg.solve_triangular(factor, values, upper=False)
