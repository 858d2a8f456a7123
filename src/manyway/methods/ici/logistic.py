"""Multinomial logistic regression for a batch of tasks, by L-BFGS with gradients only.

Minimises, for each task on its own, ½‖W‖² + C Σ_n m_n·(−ln softmax(x_n W + b)_{y_n}) over W [d, k] and b [k], where m_n
≥ 0 are the weights of the samples. That is scikit-learn's ``LogisticRegression(C=C)`` for three classes and more; for
two, scikit-learn fits one weight vector in place of two opposite ones, which is this problem with half its C.

Each pass over the data computes one gradient per task. It either ends the task's line search or
moves its trial step. The search ends when the slope along the step is at most 9/10 of its first
value; as the problem is convex, no function value is needed, whose rounding could stop the search.
No task waits for another, and each takes the path that it would take alone. The quasi-Newton matrix
is in the compact form of Byrd, Nocedal and Schnabel (1994): inner products of the last m moves.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from manyway.core.kernels import halves_fused

_MEMORY = 10  # moves that the quasi-Newton matrix is built from
_SLOPE = 0.9
_MAX_TRIALS = 20  # per line search
_MAX_PASSES = 1000  # over the data
# once so few tasks of a batch go on, they are copied and the others left:
# a copy costs a pass or two
_CROWD = 0.75


class Fit(NamedTuple):
    """A fit with its quasi-Newton matrix. A fit to nearly the same samples can start with both.

    P = (d + 1)·k. Move i is kept in row i mod m.
    """

    weights: Tensor  # [t, d + 1, k], b in the last row
    steps: Tensor  # [t, m, P] the last moves of the weights
    changes: Tensor  # [t, m, P] of the gradient in them
    # [t, m, m] = steps·changes;
    # the product with the change of an earlier move is not kept up to date
    mixed: Tensor
    squares: Tensor  # [t, m, m] = changes·changes
    moves: Tensor  # [t] how many there were

    @staticmethod
    def zero(features: Tensor, n_classes: int) -> Fit:
        """Zero weights, for features with intercept."""
        n_tasks, _, width = features.shape
        rows = features.new_zeros(n_tasks, _MEMORY, width * n_classes)
        products = features.new_zeros(n_tasks, _MEMORY, _MEMORY)
        moves = torch.zeros(n_tasks, dtype=torch.int64, device=features.device)
        return Fit(
            weights=features.new_zeros(n_tasks, width, n_classes),
            steps=rows,
            changes=rows,
            mixed=products,
            squares=products,
            moves=moves,
        )

    def take(self, which: Tensor) -> Fit:
        """A copy of the fits of some tasks."""
        return Fit(*(one[which] for one in self))

    def put(self, which: Tensor, fit: Fit) -> None:
        """Overwrite the fits of some tasks."""
        for mine, theirs in zip(self, fit, strict=True):
            mine[which] = theirs

    def move(self, which: Tensor, step: Tensor, change: Tensor) -> None:
        """Move the weights of the tasks [a] by step [t, P].

        In it their gradients changed by ``change``.
        """
        rows = self.moves[which] % _MEMORY
        self.weights[which] += step[which].view(-1, *self.weights.shape[1:])
        self.steps[which, rows] = step[which]
        self.changes[which, rows] = change[which]
        # Computed for all tasks, because selecting some would copy their memory.
        self.mixed[which, :, rows] = _inner(self.steps, change)[which]
        self.squares[which, rows] = self.squares[which, :, rows] = _inner(self.changes, change)[
            which
        ]
        self.moves[which] += 1

    def direction(self, gradient: Tensor) -> Tensor:
        """[t, P] minus the estimated inverse Hessian times the gradient.

        Before the first move, a unit step.
        """
        # Rows from the oldest move to the newest. Unused rows come first and are zero.
        order = (
            self.moves.unsqueeze(-1) + torch.arange(_MEMORY, device=self.moves.device)
        ) % _MEMORY
        across = order.unsqueeze(1).expand_as(self.mixed)
        down = order.unsqueeze(2).expand_as(self.mixed)
        mixed = self.mixed.gather(1, down).gather(2, across)
        squares = self.squares.gather(1, down).gather(2, across)
        curvature = mixed.diagonal(dim1=1, dim2=2)
        triangle = mixed.triu() + torch.diag_embed((curvature == 0).to(mixed.dtype))
        scale = torch.where(
            self.moves > 0, curvature[:, -1] / squares[:, -1, -1], gradient.norm(dim=1).reciprocal()
        )
        scale = scale.unsqueeze(-1)
        along_steps = _inner(self.steps, gradient).gather(1, order).unsqueeze(-1)
        along_changes = _inner(self.changes, gradient).gather(1, order) * scale
        solved = torch.linalg.solve_triangular(triangle, along_steps, upper=True).squeeze(-1)
        right = curvature * solved + scale * _inner(squares, solved) - along_changes
        left = torch.linalg.solve_triangular(triangle.mT, right.unsqueeze(-1), upper=False).squeeze(
            -1
        )
        restore = order.argsort(dim=1)
        left = left.gather(1, restore).unsqueeze(1)
        solved = (solved * scale).gather(1, restore).unsqueeze(1)
        return (solved @ self.changes - left @ self.steps).squeeze(1) - gradient * scale


def with_intercept(features: Tensor) -> Tensor:
    """[t, n, d + 1] centred features and a column of ones.

    Centring changes only b, and improves the conditioning.
    """
    centred = features - features.mean(1, keepdim=True)
    return torch.cat([centred, torch.ones_like(centred[..., :1])], dim=-1)


def logistic_regression(
    features: Tensor,  # [t, n, d + 1], with intercept
    labels: Tensor,  # [t, n]
    sample_weights: Tensor,  # [t, n]
    start: Fit,
    *,
    c: float,
) -> Fit:
    """Fit until the gradient is about the smallest that the precision allows.

    It is compared with the gradient at zero weights.
    """
    tol = 0.1 * torch.finfo(features.dtype).eps ** 0.5
    answer = start.take(torch.arange(len(features), device=features.device))
    run = _Run.begin(
        _Rows.of(features), labels.unsqueeze(-1), sample_weights.unsqueeze(-1) * c, answer, tol
    )
    for _ in range(_MAX_PASSES):
        active = run.gradient.norm(dim=1) > run.goal
        n_active = int(active.sum())
        if n_active <= len(active) * _CROWD:
            # Tasks that are done have not moved since.
            answer.put(run.tasks, run.fit)
            if n_active == 0:
                return answer
            run = run.take(active)
            active = active[active]
        run.advance(active)
    answer.put(run.tasks, run.fit)
    return answer


@dataclass(eq=False)
class _Run:
    """The tasks that are being fitted, each in the middle of its own line search."""

    fit: Fit
    tasks: Tensor  # [a] their numbers in the batch
    features: _Rows
    labels: Tensor  # [a, n, 1]
    costs: Tensor  # [a, n, 1] = C m_n
    goal: Tensor  # [a] the norm of the gradient to reach
    gradient: Tensor  # [a, P] at the fit
    direction: Tensor  # [a, P]
    slope: Tensor  # [a] along the direction, at the fit
    length: Tensor  # [a] the trial: weights + length·direction
    low: Tensor  # [a] a length that is too short
    low_slope: Tensor  # [a] the slope there
    high: Tensor  # [a] a length that is too long, infinite while unknown
    trials: Tensor  # [a] so far in this search

    @staticmethod
    def begin(features: _Rows, labels: Tensor, costs: Tensor, start: Fit, tol: float) -> _Run:
        goal = _gradient(features, labels, costs, torch.zeros_like(start.weights)).norm(dim=1) * tol
        gradient = _gradient(features, labels, costs, start.weights)
        direction = start.direction(gradient)
        slope = _inner(direction, gradient)
        return _Run(
            fit=start.take(torch.ones_like(goal, dtype=torch.bool)),
            tasks=torch.arange(len(goal), device=goal.device),
            features=features,
            labels=labels,
            costs=costs,
            goal=goal,
            gradient=gradient,
            direction=direction,
            slope=slope,
            length=torch.ones_like(goal),
            low=torch.zeros_like(goal),
            low_slope=slope,
            high=torch.full_like(goal, torch.inf),
            trials=torch.zeros_like(start.moves),
        )

    def take(self, which: Tensor) -> _Run:
        return _Run(
            self.fit.take(which), *(getattr(self, field.name)[which] for field in fields(self)[1:])
        )

    def advance(self, active: Tensor) -> None:
        """Compute one gradient per task; tasks that are not active do not move."""
        step = self.direction * self.length.unsqueeze(-1)
        gradient = _gradient(
            self.features,
            self.labels,
            self.costs,
            self.fit.weights + step.view_as(self.fit.weights),
        )
        slope = _inner(self.direction, gradient)
        too_long = slope > -_SLOPE * self.slope
        too_short = slope < _SLOPE * self.slope
        accepted = active & (~(too_long | too_short) | (self.trials >= _MAX_TRIALS))
        self._search(slope, too_long, too_short)
        rows = accepted.nonzero().flatten()
        if len(rows) == 0:
            return
        self.fit.move(rows, step, gradient - self.gradient)
        self.gradient[rows] = gradient[rows]
        self.direction[rows] = self.fit.direction(self.gradient)[rows]
        self.slope = torch.where(accepted, _inner(self.direction, self.gradient), self.slope)
        self.low_slope = torch.where(accepted, self.slope, self.low_slope)
        self.low = self.low.masked_fill(accepted, 0)
        self.trials = self.trials.masked_fill(accepted, 0)
        self.high = self.high.masked_fill(accepted, torch.inf)
        self.length = self.length.masked_fill(accepted, 1)

    def _search(self, slope: Tensor, too_long: Tensor, too_short: Tensor) -> None:
        """Move the trial lengths to where a linear slope would be zero.

        They do not come close to either end.
        """
        longer = self.length * (self.slope / (self.slope - slope)).nan_to_num(4).clamp(2, 10)
        self.high = torch.where(too_long, self.length, self.high)
        self.low = torch.where(too_short, self.length, self.low)
        self.low_slope = torch.where(too_short, slope, self.low_slope)
        fraction = torch.where(too_long, self.low_slope / (self.low_slope - slope), 0.5).clamp(
            0.1, 0.9
        )
        between = self.low + (self.high - self.low) * fraction
        self.length = torch.where(self.high.isinf(), longer, between)
        self.trials = self.trials + 1


@dataclass(frozen=True, eq=False)
class _Rows:
    """The features as a factor of products.

    They are used as they are, or on a GPU as halves (``manyway.core.kernels.halves``).
    """

    # [a, n, d + 1]; or float16 [a, n, 3, D] with h, h and l of the features times the unit
    values: Tensor
    unit: Tensor  # [a, 1, 1] a power of two that brings the features near 1

    @staticmethod
    def of(features: Tensor) -> _Rows:
        if not halves_fused(features):
            return _Rows(features, torch.ones_like(features[:, :1, :1]))
        unit = (
            features.abs().amax((1, 2), keepdim=True).clamp_min(1e-30).log2().floor().neg().exp2()
        )
        high, low = _halves(pad(features * unit, (0, -features.shape[2] % 8)))
        return _Rows(torch.stack([high, high, low], 2), unit)

    def __getitem__(self, which: Tensor) -> _Rows:
        return _Rows(self.values[which], self.unit[which])

    def gradient(self, labels: Tensor, costs: Tensor, weights: Tensor) -> Tensor:
        """[a, d + 1, k] that of the cross-entropy."""
        if self.values.ndim == 3:
            errors = (self.values @ weights).softmax(-1)
            return self.values.mT @ errors.scatter_add_(
                -1, labels, torch.full_like(costs, -1)
            ).mul_(costs)
        from manyway.core.kernels.halves import product, softmax_errors

        depth = self.values.shape[3]
        size = weights.shape[1]
        high, low = _halves(pad(weights / self.unit, (0, 0, 0, depth - size)))
        logits = product(self.values.flatten(2), torch.cat([high, low, high], 1))
        errors = softmax_errors(logits, labels[..., 0], costs[..., 0])
        return product(self.values.flatten(1, 2).mT, errors.flatten(1, 2))[:, :size] / self.unit


def _halves(values: Tensor) -> tuple[Tensor, Tensor]:
    high = values.half()
    return high, (values - high).half()


def _gradient(features: _Rows, labels: Tensor, costs: Tensor, weights: Tensor) -> Tensor:
    """[t, P]"""
    gradient = features.gradient(labels, costs, weights)
    gradient[:, :-1] += weights[:, :-1]
    return gradient.flatten(1)


def _inner(rows: Tensor, vector: Tensor) -> Tensor:
    """Inner products of rows [t, m, P], or of one row [t, P], with a vector [t, P]."""
    if rows.ndim == 2:
        return (rows * vector).sum(-1)
    return (rows @ vector.unsqueeze(-1)).squeeze(-1)
