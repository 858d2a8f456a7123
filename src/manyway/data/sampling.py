"""The paper's realistic task generator, vectorised.

Task i depends on (seed, i) alone: not on the chunk, the device or the worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from numbers import Integral, Real
from typing import Literal

import torch
from scipy.special import gammaincinv
from torch import Tensor

from manyway.core import random as draws
from manyway.core.kernels import fused
from manyway.core.parallel import side_by_side
from manyway.core.tasks import Tasks
from manyway.data.features import FeatureSet
from manyway.errors import InputError

Sampling = Literal["uniform", "balanced", "dirichlet"]
# One number per purpose, so that no two draws of a task share their randomness.
_WAYS, _EFFECTIVE, _SUPPORT, _QUERY, _SHARES = range(5)
_BLOCK_DRAWS = 1 << 19  # tasks are drawn in blocks of about this many integers: they stay in the cache
_BLOCK_DRAWS_GPU = 1 << 26  # on a GPU the cost is in the launches


@dataclass(frozen=True)
class TaskSpec:
    """What a task looks like: how many labelled examples, how many queries, and from how many classes.

    Parameters
    ----------
    shots : int or None, default=5
        The number of labelled examples of each class. None: the examples that the FeatureSet marks as given. 0 needs a
        FeatureSet with class features, and a method that uses them.
    k_eff : int, default=5
        The number of classes that the queries come from.
    n_query : int, default=75
        The number of queries.
    n_ways : int or None, default=None
        The number of possible classes of a task, K. None: all classes of the FeatureSet.
    sampling : {"uniform", "balanced", "dirichlet"}, default="uniform"
        How the queries spread over the ``k_eff`` classes. ``uniform`` draws from all their remaining samples together
        (natural imbalance, as in the paper), ``balanced`` takes the same number of each, ``dirichlet`` draws the
        proportions from a Dirichlet distribution.
    alpha : float or None, default=None
        The parameter of the Dirichlet distribution. None: 1; Veilleux et al. use 2.

    Examples
    --------
    >>> TaskSpec(shots=1, k_eff=3, n_query=30)
    TaskSpec(shots=1, k_eff=3, n_query=30, n_ways=None, sampling='uniform', alpha=None)
    """

    shots: int | None = 5
    k_eff: int = 5
    n_query: int = 75
    n_ways: int | None = None
    sampling: Sampling = "uniform"
    alpha: float | None = None

    def __post_init__(self) -> None:
        for name in ("shots", "k_eff", "n_query", "n_ways"):
            value = getattr(self, name)
            if not (isinstance(value, Integral) and not isinstance(value, bool)) and not (
                value is None and name in ("shots", "n_ways")
            ):
                raise InputError(f"{name} is {value!r}; it must be an integer.")
        if self.alpha is not None and not isinstance(self.alpha, Real):
            raise InputError(f"alpha is {self.alpha!r}; it must be a number.")
        if self.shots is not None and self.shots < 0:
            raise InputError(f"shots is {self.shots}; it must be 0 (classes known by their features alone) or more.")
        if self.k_eff < 1 or self.n_query < 1:
            raise InputError(f"k_eff is {self.k_eff} and n_query {self.n_query}; both must be at least 1.")
        if self.n_ways is not None and self.n_ways < 2:
            raise InputError(f"n_ways is {self.n_ways}; a task needs at least two classes to choose between.")
        if self.sampling not in ("uniform", "balanced", "dirichlet"):
            raise InputError(f"sampling is '{self.sampling}'; choose uniform, balanced or dirichlet.")
        if self.alpha is not None and (self.sampling != "dirichlet" or not (isfinite(self.alpha) and self.alpha > 0)):
            raise InputError(
                "alpha is the parameter of sampling='dirichlet', positive and finite; leave it out otherwise."
            )
        if self.sampling == "balanced" and self.n_query % self.k_eff:
            raise InputError(f"n_query = {self.n_query} cannot be shared equally by k_eff = {self.k_eff} classes.")


def sample_tasks(features: FeatureSet, spec: TaskSpec, seed: int = 0, start: int = 0, count: int = 1000) -> Tasks:
    """Tasks start..start+count-1 of the stream that (features, spec, seed) defines.

    Task i depends on (features, spec, seed, i) alone. Support and queries never overlap.

    Parameters
    ----------
    features : FeatureSet
        What to draw from.
    spec : TaskSpec
        What a task looks like.
    seed : int, default=0
        Which stream.
    start : int, default=0
        The number of the first task.
    count : int, default=1000
        How many tasks.

    Returns
    -------
    Tasks
        It holds indices; features are gathered when a solver uses them. The true labels are ``query_labels``.

    Examples
    --------
    >>> fs = FeatureSet(torch.arange(60.0).view(60, 1), torch.arange(60) % 6)
    >>> tasks = sample_tasks(fs, TaskSpec(shots=2, k_eff=2, n_query=5), seed=1, count=3)
    >>> tasks.support.shape, tasks.query.shape, tasks.n_classes
    (torch.Size([3, 12, 1]), torch.Size([3, 5, 1]), 6)
    """
    if count < 1 or start < 0:
        raise InputError(f"start is {start} and count {count}; ask for at least one task, numbered from 0.")
    pool = _Pool.of(features, spec)
    table, base_mean, class_table = features.moderate
    n_ways = features.n_classes if spec.n_ways is None else spec.n_ways
    per_task = n_ways * (spec.shots or 1) + spec.n_query
    device = features.features.device
    block = max(1, (_BLOCK_DRAWS_GPU if device.type == "cuda" else _BLOCK_DRAWS) // per_task)

    def draw(first: int) -> tuple[Tensor | None, Tensor, Tensor, Tensor | None]:
        return _draw(pool, spec, seed, torch.arange(first, min(first + block, start + count), device=device))

    firsts = range(start, start + count, block)
    parts = side_by_side(draw, firsts) if device.type == "cpu" else list(map(draw, firsts))
    support, query, query_labels, classes = (
        None if parts[0][i] is None else torch.cat([part[i] for part in parts])  # type: ignore[misc]
        for i in range(4)
    )
    assert query is not None
    if spec.shots is None:
        support = pool.given.expand(count, -1)
        support_labels = features.labels[pool.given].expand(count, -1)
    else:
        support_labels = torch.arange(n_ways, device=device).repeat_interleave(spec.shots).expand(count, -1)
        support = support_labels if support is None else support  # no row of no class
    return Tasks(
        table,
        support,
        support_labels,
        table,
        query,
        n_ways,
        query_labels,
        classes,
        base_mean,
        class_table=class_table,
    )


@dataclass(frozen=True, eq=False)
class _Pool:
    """The rows that tasks draw from, class by class."""

    rows: Tensor  # rows sorted by class
    first: Tensor  # [c] where each class starts in `rows`
    sizes: Tensor  # [c]
    given: Tensor  # rows of the given support, sorted by class; empty when shots are drawn

    @staticmethod
    def of(features: FeatureSet, spec: TaskSpec) -> _Pool:
        labels = features.labels
        everyone = torch.arange(len(labels), device=labels.device)
        given = everyone[:0]
        if spec.shots is None:
            if features.is_support is None:
                raise InputError("shots is None, but this feature set has no given support; set shots or is_support.")
            if spec.n_ways is not None:
                raise InputError("A given support goes with all classes; leave n_ways out when shots is None.")
            given, everyone = everyone[features.is_support], everyone[~features.is_support]
            given = given[labels[given].argsort(stable=True)]
            bare = torch.bincount(labels[given], minlength=features.n_classes) == 0
            if bool(bare.any()):
                raise InputError(
                    f"Class '{features.class_names[int(bare.nonzero()[0])]}' has no sample in the given support."
                )
        rows = everyone[labels[everyone].argsort(stable=True)]
        sizes = torch.bincount(labels[rows], minlength=features.n_classes)
        _check_possible(features, spec, sizes)
        return _Pool(rows, sizes.cumsum(0) - sizes, sizes, given)


def _check_possible(features: FeatureSet, spec: TaskSpec, sizes: Tensor) -> None:
    """Refuse what cannot be drawn from every choice of classes, before any work."""
    n_ways = features.n_classes if spec.n_ways is None else spec.n_ways
    if n_ways < 2:
        raise InputError("The feature set has one class only; there is nothing to choose between.")
    if n_ways > features.n_classes:
        raise InputError(f"n_ways is {n_ways} but the feature set has {features.n_classes} classes.")
    if spec.k_eff > n_ways:
        raise InputError(f"k_eff is {spec.k_eff} but a task has only {n_ways} classes; lower k_eff.")
    if spec.shots == 0 and features.class_features is None:
        raise InputError("shots is 0, but this feature set has no class features; ask for at least one shot.")
    shots = spec.shots or 0
    each = spec.n_query // spec.k_eff if spec.sampling == "balanced" else 0
    smallest = int(sizes.argmin())
    if int(sizes[smallest]) < shots + each:
        needs = f"{shots} shots" + (f" + {each} queries" if each else "")
        raise InputError(
            f"Class '{features.class_names[smallest]}' has {int(sizes[smallest])} samples, fewer than {needs}; "
            "ask for less or leave the class out."
        )
    left = int((sizes - shots).sort().values[: spec.k_eff].sum())
    if left < spec.n_query:
        raise InputError(
            f"The {spec.k_eff} smallest classes have {left} samples left after {shots} shots, fewer than "
            f"n_query = {spec.n_query}; lower n_query or shots, or raise k_eff."
        )


def _draw(pool: _Pool, spec: TaskSpec, seed: int, tasks: Tensor) -> tuple[Tensor | None, Tensor, Tensor, Tensor | None]:
    """Support rows [t, k·shots], query rows [t, q], query labels [t, q] and classes [t, k] of the numbered tasks."""
    n_all = len(pool.sizes)
    n_ways = n_all if spec.n_ways is None else spec.n_ways
    classes = None
    ways = torch.arange(n_all, device=tasks.device).expand(len(tasks), -1)
    if spec.n_ways is not None:
        total = torch.tensor(n_all, device=tasks.device)
        ways = classes = _subset(draws.keys(seed, _WAYS, tasks), n_ways, total, ordered=True)  # [t, k]
    sizes, first = pool.sizes[ways], pool.first[ways]  # [t, k]

    support = None
    shots = spec.shots or 0
    if shots:
        key = draws.mix(draws.keys(seed, _SUPPORT, tasks).unsqueeze(-1) ^ draws.mix(ways))  # [t, k]
        taken = _subset(key, shots, sizes, ordered=True)  # [t, k, shots], places within the class
        support = pool.rows.take((first.unsqueeze(-1) + taken).flatten(1))

    which = torch.tensor(n_ways, device=tasks.device)
    effective = _subset(draws.keys(seed, _EFFECTIVE, tasks), spec.k_eff, which, ordered=True)  # [t, e]
    left = sizes.gather(1, effective) - shots  # [t, e] samples that can still be queries
    labels, place = _query_places(spec, seed, tasks, left)  # [t, q]: which effective class, which of its left samples
    query_labels = effective.gather(1, labels)
    if shots:
        # The n-th sample that is not in the support: step over each support place at or below it. Places are sorted,
        # so the i-th of them is stepped over when it is at most n + i.
        of_query = taken.gather(1, query_labels.unsqueeze(-1).expand(-1, -1, shots))
        place = place + (of_query - torch.arange(shots, device=tasks.device) <= place.unsqueeze(-1)).sum(-1)
    return support, pool.rows[first.gather(1, query_labels) + place], query_labels, classes


def _subset(key: Tensor, size: int, total: Tensor, wanted: Tensor | None = None, *, ordered: bool = False) -> Tensor:
    """``draws.subset``, by fused code where there is some: the integers are the same."""
    if fused(key):
        from manyway.core.kernels.subset import MAX_SIZE, subset

        if size <= MAX_SIZE:
            return subset(key, size, total, wanted, ordered=ordered)
    return draws.subset(key, size, total, wanted, ordered=ordered)


def _query_places(spec: TaskSpec, seed: int, tasks: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    """For each query, which effective class it comes from and which of the class's left samples it is [t, q]."""
    key = draws.keys(seed, _QUERY, tasks)
    ends = left.cumsum(1)
    if spec.sampling == "uniform":
        drawn = _subset(key, spec.n_query, ends[:, -1]).contiguous()  # [t, q] of all left samples together
        labels = torch.searchsorted(ends, drawn, right=True)
        return labels, drawn - (ends - left).gather(1, labels)
    if spec.sampling == "balanced":
        wanted = torch.full_like(left, spec.n_query // spec.k_eff)
    else:
        wanted = _dirichlet_counts(draws.keys(seed, _SHARES, tasks), left, spec)
    longest = int(wanted.max())
    per_class = draws.mix(key.unsqueeze(-1) ^ draws.mix(torch.arange(spec.k_eff, device=tasks.device)))
    places = _subset(per_class, longest, left, wanted)  # [t, e, longest]
    use = torch.arange(longest, device=tasks.device) < wanted.unsqueeze(-1)
    owner = torch.arange(spec.k_eff, device=tasks.device).view(1, -1, 1).expand_as(places)
    return owner[use].view(len(tasks), -1), places[use].view(len(tasks), -1)


def _dirichlet_counts(key: Tensor, left: Tensor, spec: TaskSpec) -> Tensor:
    """Counts [t, e] that add up to n_query, in Dirichlet(alpha) proportions, none above what its class has left.

    They are computed on the CPU in float64: special functions differ between devices in the last digit, and a task must
    not.
    """
    device = left.device
    key, left = key.cpu(), left.cpu()
    shares = _gamma(
        draws.mix(key.unsqueeze(-1) ^ draws.mix(torch.arange(spec.k_eff))),
        1.0 if spec.alpha is None else spec.alpha,
    )
    shares = shares / shares.amax(1, keepdim=True).clamp_min(1e-300)  # their sum must not overflow
    counts = torch.zeros_like(left)
    # What a class lacks is taken from the others in the same proportions; each round exhausts at least one class.
    for _ in range(spec.k_eff):
        missing = spec.n_query - counts.sum(1, keepdim=True)
        room = left - counts
        weights = torch.where(room > 0, shares, torch.zeros_like(shares)).clamp_min(0)
        weights = torch.where((weights.sum(1, keepdim=True) > 0), weights, (room > 0).double())
        counts = counts + torch.minimum(_largest_remainder(weights, missing), room)
        if bool((counts.sum(1) == spec.n_query).all()):
            break
    return counts.to(device)


def _largest_remainder(weights: Tensor, total: Tensor) -> Tensor:
    """Integers [t, e] in proportion to the weights, adding up to total [t, 1]; the largest fractions are rounded up."""
    exact = weights / weights.sum(1, keepdim=True) * total
    floor = exact.floor()
    rest = total - floor.sum(1, keepdim=True).long()
    rank = (exact - floor).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    return floor.long() + (rank < rest)


def _gamma(key: Tensor, alpha: float) -> Tensor:
    """float64 draws of Gamma(alpha, 1), one per key, by inversion of one uniform draw each."""
    return torch.from_numpy(gammaincinv(alpha, draws.uniform(key, 0).numpy()))
