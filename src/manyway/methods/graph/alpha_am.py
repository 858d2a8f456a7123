"""α-AM: label propagation over a graph that is trained (Lazarou et al., 2024).

The graph has centroids, support and queries.

The nodes are K centroids and n samples: the support, then the queries. Centroids choose no
neighbours, so that no edge joins two of them, and they can be eliminated from the linear system:
with S the samples' part of the normalised graph, C [n, k] its edges from samples to centroids and D
[k, n] those back, the propagated labels of the samples are (I − α S − α² C D)⁻¹ α C. Only K columns
are solved for, and K more for the gradient, which is written out.
"""

from collections.abc import Sequence
from math import ceil, log, log2
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import (
    Recorder,
    Solution,
    Tasks,
    column_sums,
    prototypes,
    rowwise,
    squared_distances,
    unit,
)
from manyway.errors import InputError
from manyway.methods.calibration.metric import rows_of
from manyway.methods.calibration.transforms import transform
from manyway.methods.gradient.information import TERMS, Adam, Information

_EPS = 1e-12  # added to degrees
_SAME = 2  # roundings by which two affinities may differ and count as equal
_FEW_FEATURES = 4  # with so few, distances are made of differences, which keep their digits
_MOST_DOUBLED = 2048  # the largest system that is solved by products on a GPU


def alpha_am(
    tasks: Tasks,
    *,
    alpha: float | None = None,
    n_neighbors: int | None = None,
    weights: Sequence[float] = (1.0, 1.0, 1.0),
    alphas: Sequence[float] | None = None,
    logit_scale: float = 15.0,
    lr: float = 1e-4,
    max_iter: int = 1000,
    root: bool = True,
    scale: str | None = "tcl2",
    with_objective: bool = False,
) -> Solution:
    """Train a graph of centroids and samples so that labels that spread over it are right and certain.

    With distances D of all centroids, support samples and queries, divided by their standard
    deviation, each sample keeps its n largest affinities A_ij = exp(−G_ij D_ij) to other nodes. The
    graph is W = B ∘ (A + Aᵀ)/2, normalised to L_ij = W_ij / √(r_i r_j) with its row sums r. Labels
    spread from the centroids, whose rows of Y are the identity:

        F = τ (I − α L)⁻¹ Y,      P = softmax_k(F).

    Centroids, G and B are trained: from the class means, G = 1 and B = α, Adam minimises

        λ₁ · mean_s −ln P_{s, y_s}  −  λ₂ · H_a(mean_q P_q)  +  λ₃ · mean_q H_b(P_q),

    where H_a(p) = (1 − Σ p^a)/(a − 1). Which affinities are kept is chosen anew in each iteration.
    Of equal ones the first are: those to centroids, then to the support, then to queries.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve.
    alpha : float or None, default=None
        α, how far labels spread: at least 0 and below 1. None:
        0.8 with one example per class, 0.9 with more.
    n_neighbors : int or None, default=None
        n, the number of nearest other queries that a query has edges to. Support samples have edges
        to as many, and centroids and support samples are among those to choose from. None: 20 with
        one example per class, 10 with more.
    weights : sequence of three floats, default=(1.0, 1.0, 1.0)
        λ₁, λ₂, λ₃: the weights of the support's cross-entropy,
        the marginal and the conditional entropy.
    alphas : sequence of two floats or None, default=None
        a and b, the orders of the marginal and of the conditional entropy; 1 is Shannon's entropy.
        None: 2 with one example per class, 5 with more.
    logit_scale : float, default=15.0
        τ, which multiplies the logits before a softmax. The logits are propagated labels.
    lr : float, default=1e-4
        Learning rate of Adam.
    max_iter : int, default=1000
        The largest number of iterations. All are done: there is no stopping rule.
    root : bool, default=True
        Whether to replace features by their signed roots, divided by their norm,
        before the feature transform.
    scale : str or None, default="tcl2"
        Feature transform; None uses the features as they are.
    with_objective : bool, default=False
        Whether to record the objective after each iteration. It is the loss, with the terms
        ``cross_entropy``, ``marginal`` and ``conditional``, weighted and signed.

    Returns
    -------
    Solution
        ``prototypes`` are the centroids. ``converged`` is False, as nothing is checked.

    Notes
    -----
    It reads nothing but support and queries. The answer is that of the last iteration, before its
    step of Adam, as in the authors' code.

    The constants with one and with five and more examples are the authors', who set them in code by
    the number of shots. Their code has none for two to four: a = 1 stays in the formula of H_a,
    which is 0/0, and all answers are NaN. Here these have the constants of five. ``alphas=(1, 1)``
    is Shannon's entropy, the limit that the formula misses. ``root=False, scale="l2"`` is the
    authors' setting without their preprocessing, which their command line cannot choose.

    Differs from the authors' code: it inverts a matrix over all nodes; here the centroids are
    eliminated and K columns solved for. Gradients are written out (and tested against autograd).
    Logarithms are exact, without 1e-12 inside.

    Reference: Lazarou, Avrithis, Stathaki,
    "Adaptive manifold for imbalanced transductive few-shot learning", WACV
    2024.

    Examples
    --------
    >>> tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [0.2, 1.0], [1.0, 0.1]]])
    >>> alpha_am(tasks, max_iter=20).labels.tolist()
    [[0, 0, 1]]
    """
    one_shot = tasks.n_support < 2 * tasks.n_classes
    if alpha is None:
        alpha = 0.8 if one_shot else 0.9
    if n_neighbors is None:
        n_neighbors = 20 if one_shot else 10
    if alphas is None:
        alphas = (2.0, 2.0) if one_shot else (5.0, 5.0)
    if not 0 <= alpha < 1:
        raise InputError(f"alpha-am: alpha is {alpha!r}; it must be at least 0 and below 1.")
    training = _Training(
        alpha=alpha,
        n_neighbors=n_neighbors,
        loss=Information(weights, alphas),
        logit_scale=logit_scale,
        lr=lr,
        max_iter=max_iter,
    )
    tasks = transform(rowwise(tasks, _rooted) if root else tasks, scale)
    n_nodes = tasks.n_classes + tasks.n_support + tasks.n_query
    parts = [training.run(part, with_objective) for part in tasks.in_parts(n_nodes**2)]
    centres = torch.cat([part.centres for part in parts])
    terms = {name: torch.cat([part.terms[name] for part in parts]) for name in parts[0].terms}
    return Solution(
        torch.cat([part.logits for part in parts]).softmax(-1),
        n_iter=max_iter,
        converged=False,
        make_prototypes=lambda: centres,
        objective_parts=terms,
    )


def _rooted(rows: Tensor) -> Tensor:
    """sign(z)·√(|z| + 1e-6), with unit length."""
    return unit(rows.sign() * (rows.abs() + 1e-6).sqrt())


class _TrainedGraph(NamedTuple):
    """What is trained."""

    centres: Tensor  # [t, k, d]
    stretch: Tensor  # [t, n, k + n] G, the rows of the samples; columns: centroids, then samples
    weights: Tensor  # [t, n, k + n] B, the rows of the samples
    back: Tensor  # [t, n, k] B, the rows of the centroids, transposed


class _Fixed(NamedTuple):
    """What stays the same in training."""

    samples: Tensor  # [t, n, d]
    labels: Tensor  # [t, s]
    distances: Tensor  # [t, n, n]
    n_neighbors: int
    alpha: float


class _Ended(NamedTuple):
    """The end of training."""

    logits: Tensor  # [t, q, k]
    centres: Tensor  # [t, k, d]
    terms: dict[str, Tensor]


class _Training(NamedTuple):
    """The constants of training."""

    alpha: float
    n_neighbors: int
    loss: Information
    logit_scale: float
    lr: float
    max_iter: int

    def run(self, tasks: Tasks, trace: bool) -> _Ended:
        """Train the graphs of some tasks."""
        samples = torch.cat([tasks.support, tasks.query], 1)
        neighbors = min(self.n_neighbors, tasks.n_classes + samples.shape[1] - 1)
        fixed = _Fixed(
            samples, tasks.support_labels, _distances(samples, samples), neighbors, self.alpha
        )
        trained = self._start(prototypes(tasks), samples.shape[1])
        adams = [Adam.start(part) for part in trained]
        recorder = Recorder(TERMS)
        for step in range(1, self.max_iter + 1):
            graph = _Graph.of(trained, fixed)
            logits = graph.spread * self.logit_scale
            if trace:
                recorder.add(self.loss.terms(logits, fixed.labels))
            if step == self.max_iter:
                break
            slopes = graph.pull_back(
                self.loss.slopes(logits, fixed.labels) * self.logit_scale, trained, fixed
            )
            adams = [
                adam.step(slope, step, self.lr) for adam, slope in zip(adams, slopes, strict=True)
            ]
            trained = _TrainedGraph(*(adam.parameters for adam in adams))
        return _Ended(logits[:, tasks.n_support :], trained.centres, recorder.parts)

    def _start(self, centres: Tensor, n_samples: int) -> _TrainedGraph:
        n_tasks, n_classes, _ = centres.shape
        ones = centres.new_ones(n_tasks, n_samples, n_classes + n_samples)
        return _TrainedGraph(centres, ones, ones * self.alpha, ones[..., :n_classes] * self.alpha)


class _NodeDistances(NamedTuple):
    """The distances of all nodes, and by how much they vary."""

    to_centres: Tensor  # [t, n, k]
    among_centres: Tensor  # [t, k, k]
    mean: Tensor  # [t, 1, 1] over all pairs of nodes, each node with itself among them
    deviation: Tensor  # [t, 1, 1]
    n_pairs: int

    @staticmethod
    def of(centres: Tensor, fixed: _Fixed) -> "_NodeDistances":
        to_centres = _distances(fixed.samples, centres)
        # A centroid of one example begins as its copy and moves by 10⁻⁴ in a step: as a difference
        # of squares, their distance would be rounding alone, and with it the direction in which
        # the centroid moves on.
        n_support = fixed.labels.shape[1]
        apart = fixed.samples[:, :n_support] - rows_of(centres, fixed.labels)
        own = torch.linalg.vector_norm(apart, dim=-1, keepdim=True)
        to_centres[:, :n_support].scatter_(2, fixed.labels.unsqueeze(-1), own)
        among_centres = _distances(centres, centres)
        among_centres.diagonal(dim1=1, dim2=2).zero_()
        n_pairs = (centres.shape[1] + fixed.samples.shape[1]) ** 2

        def total(samples: Tensor, between: Tensor, centres: Tensor) -> Tensor:
            """[t, 1, 1] the sum over the matrix of all nodes.

            It has each pair of sample and centroid twice.
            """
            return _sum(samples) + 2 * _sum(between) + _sum(centres)

        parts = (fixed.distances, to_centres, among_centres)
        mean = total(*parts) / n_pairs
        squares = total(*((part - mean).square() for part in parts))
        return _NodeDistances(
            to_centres, among_centres, mean, (squares / (n_pairs - 1)).sqrt(), n_pairs
        )


class _Graph(NamedTuple):
    """One pass: the graph, and the labels that spread over it."""

    distances: _NodeDistances
    scaled: Tensor  # [t, n, k + n] distances of samples to all nodes, divided by their deviation
    affinities: Tensor  # [t, n, k + n] A, 0 where not kept
    edges: Tensor  # [t, n, k + n] (A + Aᵀ)/2
    degrees: Tensor  # [t, n, 1] of samples
    centre_degrees: Tensor  # [t, 1, k]
    rows: Tensor  # [t, n, k + n] L, the rows of the samples
    back: Tensor  # [t, n, k] L, the rows of the centroids, transposed
    system: "_System"
    spread: Tensor  # [t, n, k] the propagated labels of the samples

    @staticmethod
    def of(trained: _TrainedGraph, fixed: _Fixed) -> "_Graph":
        n_classes = trained.centres.shape[1]
        distances = _NodeDistances.of(trained.centres, fixed)
        scaled = torch.cat([distances.to_centres, fixed.distances], -1) / distances.deviation
        affinities = (-trained.stretch * scaled).exp_()
        affinities[..., n_classes:].diagonal(dim1=1, dim2=2).zero_()
        affinities = _largest(affinities, fixed.n_neighbors)
        to_centres = affinities[..., :n_classes]
        among = affinities[..., n_classes:]
        edges = torch.cat([to_centres, among + among.mT], -1) / 2
        rows = trained.weights * edges
        back = trained.back * edges[..., :n_classes]
        degrees = rows.sum(-1, keepdim=True) + _EPS
        centre_degrees = back.sum(1, keepdim=True) + _EPS
        rows = rows * degrees.rsqrt() * torch.cat([centre_degrees, degrees.mT], -1).rsqrt()
        back = back * degrees.rsqrt() * centre_degrees.rsqrt()
        system = _System.of(rows, back, fixed.alpha)
        spread = system.solve(fixed.alpha * rows[..., :n_classes])
        return _Graph(
            distances=distances,
            scaled=scaled,
            affinities=affinities,
            edges=edges,
            degrees=degrees,
            centre_degrees=centre_degrees,
            rows=rows,
            back=back,
            system=system,
            spread=spread,
        )

    def pull_back(self, slopes: Tensor, trained: _TrainedGraph, fixed: _Fixed) -> _TrainedGraph:
        """The gradient in all that is trained.

        It follows from the derivatives in the propagated labels [t, n, k].
        """
        n_classes = slopes.shape[-1]
        of_rows, of_back = self._normalised_slopes(slopes, fixed.alpha)
        of_edges = of_rows * trained.weights
        of_edges[..., :n_classes] += of_back * trained.back
        among = of_edges[..., n_classes:]
        of_affinities = torch.cat([of_edges[..., :n_classes], among + among.mT], -1) / 2
        exponents = -of_affinities * self.affinities
        of_scaled = exponents * trained.stretch
        return _TrainedGraph(
            centres=self._centre_slopes(of_scaled, trained.centres, fixed),
            stretch=exponents * self.scaled,
            weights=of_rows * self.edges,
            back=of_back * self.edges[..., :n_classes],
        )

    def _normalised_slopes(self, slopes: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
        """Derivatives in W, of the samples and of the centroids.

        The rows of the samples are [t, n, k + n], those of the centroids, transposed, [t, n, k].
        """
        n_classes = slopes.shape[-1]
        adjoint = self.system.solve(slopes, adjoint=True) * alpha
        to_centres = self.rows[..., :n_classes]
        # The centroids' own labels are I + α D F; F is the spread.
        of_centres = alpha * (self.back.mT @ self.spread)
        of_centres.diagonal(dim1=1, dim2=2).add_(1)
        of_rows = torch.cat([adjoint @ of_centres.mT, adjoint @ self.spread.mT], -1)
        of_back = alpha * (self.spread @ (adjoint.mT @ to_centres))
        # A degree divides its row and its column.
        in_rows = of_rows * self.rows
        in_back = of_back * self.back
        among = in_rows[..., n_classes:]
        by_sample = in_rows.sum(-1) + in_back.sum(-1) + among.sum(1)
        by_centre = in_rows[..., :n_classes].sum(1) + in_back.sum(1)
        of_degrees = -by_sample.unsqueeze(-1) / (2 * self.degrees)
        of_centre_degrees = -by_centre.unsqueeze(1) / (2 * self.centre_degrees)
        roots = torch.cat([self.centre_degrees, self.degrees.mT], -1).rsqrt()
        of_rows = of_rows * self.degrees.rsqrt() * roots + of_degrees
        of_back = of_back * self.degrees.rsqrt() * roots[..., :n_classes] + of_centre_degrees
        return of_rows, of_back

    def _centre_slopes(self, of_scaled: Tensor, centres: Tensor, fixed: _Fixed) -> Tensor:
        """[t, k, d] derivatives in the centroids, from those in the distances.

        Those are in the scaled distances [t, n, k + n].
        """
        found = self.distances
        of_deviation = -(of_scaled * self.scaled).sum((1, 2), keepdim=True) / found.deviation
        per_distance = of_deviation / ((found.n_pairs - 1) * found.deviation)
        of_distances = of_scaled[..., : centres.shape[1]] / found.deviation
        of_distances = of_distances + 2 * per_distance * (found.to_centres - found.mean)
        of_samples = _over(of_distances, found.to_centres)
        of_pairs = _over(2 * per_distance * (found.among_centres - found.mean), found.among_centres)
        pulls = of_samples.mT @ fixed.samples + of_pairs @ centres
        return (column_sums(of_samples) + column_sums(of_pairs)).unsqueeze(-1) * centres - pulls


class _System(NamedTuple):
    """I − M with M = α S + α² C D, to be solved for several columns, and its transpose for others.

    On a GPU small systems are solved by products alone, which take far less time than a
    factorisation: (I − M)⁻¹ = (I + M)(I + M²)(I + M⁴)…, and no eigenvalue of M is above α.
    """

    factors: Tensor | None  # [t, n, n] LU of I − M
    pivots: Tensor | None
    powers: list[Tensor]  # [t, n, n] M, M², M⁴, …

    @staticmethod
    def of(rows: Tensor, back: Tensor, alpha: float) -> "_System":
        n_classes = back.shape[-1]
        among = torch.baddbmm(
            rows[..., n_classes:], rows[..., :n_classes], back.mT, beta=alpha, alpha=alpha**2
        )
        if rows.is_cuda and rows.shape[1] <= _MOST_DOUBLED:
            return _System(None, None, _powers(among, alpha))
        among.neg_().diagonal(dim1=1, dim2=2).add_(1)
        factors, pivots = torch.linalg.lu_factor(among)
        return _System(factors, pivots, [])

    def solve(self, columns: Tensor, *, adjoint: bool = False) -> Tensor:
        """[t, n, m] for columns [t, n, m]."""
        if self.factors is not None and self.pivots is not None:
            return torch.linalg.lu_solve(self.factors, self.pivots, columns, adjoint=adjoint)
        for power in self.powers:
            columns = torch.baddbmm(columns, power.mT if adjoint else power, columns)
        return columns


def _powers(matrix: Tensor, alpha: float) -> list[Tensor]:
    """M, M², M⁴, … until α to the next power is below the rounding."""
    eps = torch.finfo(matrix.dtype).eps
    n_powers = 1 if alpha <= eps else max(1, ceil(log2(log(eps) / log(alpha))))
    powers = [matrix]
    for _ in range(n_powers - 1):
        powers.append(powers[-1] @ powers[-1])
    return powers


def _distances(samples: Tensor, others: Tensor) -> Tensor:
    """[t, n, m] = ‖x_i − y_j‖; 0 where rounding is all that is left."""
    if samples.shape[-1] <= _FEW_FEATURES:
        return torch.cdist(samples, others, compute_mode="donot_use_mm_for_euclid_dist")
    squares = squared_distances(samples, others)
    floor = samples.square().sum(-1).unsqueeze(-1) * (4 * torch.finfo(squares.dtype).eps)
    return torch.where(squares > floor, squares, 0).sqrt_()


def _largest(values: Tensor, number: int) -> Tensor:
    """[t, n, m] so many of the largest values of each row, and 0 for the others.

    Of equal ones the first are kept. They are common: with one example per class a centroid begins
    as its copy, and with one feature all rows are 1 or −1. ``topk`` alone would keep any of them,
    and others on a GPU than on a CPU.

    >>> _largest(torch.tensor([[[0.5, 0.25, 0.5, 0.5, 0.75]]]), 3).tolist()
    [[[0.5, 0.0, 0.5, 0.0, 0.75]]]
    """
    least = values.topk(number, -1).values[..., -1:]
    slack = _SAME * torch.finfo(values.dtype).eps
    above = values > least * (1 + slack)
    equal = (values >= least * (1 - slack)) & ~above
    n_equal = number - above.sum(-1, keepdim=True)
    first = equal.cumsum(-1, dtype=torch.int32) <= n_equal
    return values.where(above | (equal & first), 0)


def _over(slopes: Tensor, distances: Tensor) -> Tensor:
    """slopes / distances, and 0 where the distance is 0: it has no direction there."""
    return torch.where(distances > 0, slopes / distances.where(distances > 0, 1), 0)


def _sum(values: Tensor) -> Tensor:
    """[t, 1, 1] the sum of each task's values."""
    return values.sum((1, 2), keepdim=True)
