"""The paper's realistic task generator, vectorised, with unknown queries and streams of batches.

Task i depends on (seed, i) alone: not on the chunk, the device or the worker.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from scipy.special import gammaincinv, gammaln
from torch import Tensor

from manyway.core import Tasks, side_by_side
from manyway.core import random as draws
from manyway.core.arguments import checks_arguments
from manyway.core.kernels import fused
from manyway.errors import InputError
from manyway.sampling.features import FeatureSet
from manyway.sampling.shift import shifted
from manyway.sampling.spec import TaskSpec

# One number per purpose, so that no two draws of a task share their randomness.
(
    _WAYS,
    _EFFECTIVE,
    _SUPPORT,
    _QUERY,
    _SHARES,
    _K_EFF,
    _UNKNOWN_CLASSES,
    _UNKNOWN,
    _ORDER,
    _BATCHES,
    _SHIFT,
) = range(11)
# tasks are drawn in blocks of about this many integers: they stay in the cache
_BLOCK_DRAWS = 1 << 19
_BLOCK_DRAWS_GPU = 1 << 26  # on a GPU the cost is in the launches


@checks_arguments
def sample_tasks(
    features: FeatureSet, spec: TaskSpec, seed: int = 0, start: int = 0, count: int = 1000
) -> Tasks:
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
        It holds indices; features are gathered when a solver uses them.
        The true labels are ``query_labels``.

    Examples
    --------
    >>> fs = FeatureSet(torch.arange(60.0).view(60, 1), torch.arange(60) % 6)
    >>> tasks = sample_tasks(fs, TaskSpec(shots=2, k_eff=2, n_query=5), seed=1, count=3)
    >>> tasks.support.shape, tasks.query.shape, tasks.n_classes
    (torch.Size([3, 12, 1]), torch.Size([3, 5, 1]), 6)
    """
    groups = sample_groups(features, spec, seed, start, count)
    if len(groups) > 1:
        sizes = [group.n_query for _, group in groups]
        few = (
            f"These tasks have {min(sizes)} to {max(sizes)} queries, "
            "because some classes have few samples"
        )
        raise InputError(
            f"{few}; lower n_query, or draw them with manyway.sampling.sampling.sample_groups."
        )
    return groups[0][1]


def sample_groups(
    features: FeatureSet, spec: TaskSpec, seed: int = 0, start: int = 0, count: int = 1000
) -> list[tuple[Tensor, Tasks]]:
    """The tasks of ``sample_tasks`` in groups with the same number of queries.

    Each group has the places of its tasks.

    There are several groups only where ``k_eff`` is a range and some classes have few samples.

    >>> fs = FeatureSet(torch.arange(60.0).view(60, 1), torch.arange(60) % 6)
    >>> groups = sample_groups(fs, TaskSpec(shots=2, k_eff=(1, 3), n_query=12), count=5)
    >>> [(places.tolist(), tasks.n_query) for places, tasks in groups]
    [([0], 8), ([1, 2, 3, 4], 12)]
    """
    if count < 1 or start < 0:
        raise InputError(
            f"start is {start} and count {count}; ask for at least one task, numbered from 0."
        )
    strangers = _strangers(features, spec)
    pool = _Pool.of(features, spec)
    numbers = range(start, start + count)
    if strangers is None:
        drawn = _draw_all(pool, None, spec, seed, numbers)
        table, base_mean, class_table = features.moderate
    else:
        unknown = _Pool.of_strangers(strangers, spec, len(features.labels))
        drawn = _draw_all(pool, unknown, spec, seed, numbers)
        table, base_mean, class_table = features.moderate_with(strangers.features)
    n_rows = count * spec.n_batches
    support, support_labels = _support_rows(features, spec, pool, drawn, n_rows)
    tasks = Tasks(
        support_table=table,
        support_index=support,
        support_labels=support_labels,
        query_table=table,
        query_index=drawn.query.view(n_rows, -1),
        n_classes=spec.ways(features.n_classes),
        query_labels=drawn.query_labels.view(n_rows, -1),
        class_ids=None if drawn.classes is None else _repeated(drawn.classes, spec.n_batches),
        base_mean=base_mean,
        class_table=class_table,
        unknown_labels=drawn.unknown_labels,
    )
    if spec.n_batches > 1:
        streams = torch.arange(start, start + count, device=features.features.device)
        tasks = replace(tasks, stream=_repeated(streams, spec.n_batches))
    if spec.shift:
        device = features.features.device
        key = draws.keys(seed, _SHIFT, torch.arange(start, start + count, device=device))
        tasks = shifted(tasks, spec, _repeated(key, spec.n_batches))
    everything = torch.arange(count)
    if drawn.sizes is None:
        return [(everything, tasks)]
    sizes = drawn.sizes.cpu()
    return [
        (everything[sizes == size], _part(tasks, sizes == size, size))
        for size in sorted(set(sizes.tolist()))
    ]


def _draw_all(
    pool: "_Pool", unknown: "_Pool | None", spec: TaskSpec, seed: int, numbers: range
) -> "_Drawn":
    """Draw the tasks with these numbers, in blocks: on a CPU several at a time."""
    device = pool.rows.device
    per_task = spec.ways(len(pool.sizes)) * (spec.shots or 1) + spec.n_known + spec.n_unknown
    most = _BLOCK_DRAWS_GPU if device.type == "cuda" else _BLOCK_DRAWS
    size = max(1, most // per_task)
    blocks = [numbers[place : place + size] for place in range(0, len(numbers), size)]

    def draw(block: range) -> _Drawn:
        tasks = torch.arange(block.start, block.stop, device=device)
        return _draw(pool, unknown, spec, seed, tasks)

    if device.type == "cpu":
        return _Drawn.joined(side_by_side(draw, blocks))
    return _Drawn.joined([draw(block) for block in blocks])


def _support_rows(
    features: FeatureSet, spec: TaskSpec, pool: "_Pool", drawn: "_Drawn", n_rows: int
) -> tuple[Tensor, Tensor]:
    """[n, s] the rows of the support and their labels, for ``n_rows`` tasks or batches."""
    if spec.shots is None:
        labels = features.labels[pool.given]
        return pool.given.expand(n_rows, -1), labels.expand(n_rows, -1)
    ways = torch.arange(spec.ways(features.n_classes), device=features.features.device)
    labels = ways.repeat_interleave(spec.shots).expand(n_rows, -1)
    if drawn.support is None:  # without shots no class has a row
        return labels, labels
    return _repeated(drawn.support, spec.n_batches), labels


def _repeated(rows: Tensor, times: int) -> Tensor:
    return rows if times == 1 else rows.repeat_interleave(times, 0)


def _part(tasks: Tasks, which: Tensor, n_query: int) -> Tasks:
    """Some of the tasks, with their first queries."""
    part = tasks[which.to(tasks.device)]
    of_queries = {
        name: getattr(part, name) for name in ("query_index", "query_labels", "unknown_labels")
    }
    changed: dict[str, Any] = {
        name: value[:, :n_query] for name, value in of_queries.items() if value is not None
    }
    # the same in every task
    for name in ("support_labels", *(("support_index",) if tasks.shared_support else ())):
        changed[name] = getattr(tasks, name)[:1].expand(len(part), -1)
    return replace(part, **changed)


class _Drawn(NamedTuple):
    """What is drawn for some tasks; unknown queries come first."""

    support: Tensor | None  # [t, k·shots] rows; None where the support is given
    query: Tensor  # [t, q] rows
    query_labels: Tensor  # [t, q], -1 for unknown queries
    classes: Tensor | None  # [t, k]; None where all classes are in the task
    unknown_labels: Tensor | None  # [t, q] the class of each unknown query; -1 for the others
    # [t] the number of queries, where tasks differ: those after them mean nothing
    sizes: Tensor | None

    @staticmethod
    def joined(parts: "list[_Drawn]") -> "_Drawn":
        if len(parts) == 1:
            return parts[0]
        whole: Any = [None if of[0] is None else torch.cat(of) for of in zip(*parts, strict=True)]
        return _Drawn(*whole)


class _Pool(NamedTuple):
    """The rows that tasks draw from, class by class."""

    rows: Tensor  # rows sorted by class
    first: Tensor  # [c] where each class starts in `rows`
    sizes: Tensor  # [c]
    given: Tensor  # rows of the given support, sorted by class; empty when shots are drawn

    @staticmethod
    def of(features: FeatureSet, spec: TaskSpec) -> "_Pool":
        labels = features.labels
        everyone = torch.arange(len(labels), device=labels.device)
        given = everyone[:0]
        if spec.shots is None:
            if features.is_support is None:
                raise InputError(
                    "shots is None, but this feature set has no given support; "
                    "set shots or is_support."
                )
            if spec.n_ways is not None:
                raise InputError(
                    "A given support goes with all classes; leave n_ways out when shots is None."
                )
            if spec.n_unknown and spec.unknown_from is None:
                raise InputError(
                    "A given support goes with all classes; unknown queries then need unknown_from."
                )
            given = everyone[features.is_support]
            everyone = everyone[~features.is_support]
            given = given[labels[given].argsort(stable=True)]
            bare = torch.bincount(labels[given], minlength=features.n_classes) == 0
            if bool(bare.any()):
                name = features.class_names[int(bare.nonzero()[0])]
                raise InputError(f"Class '{name}' has no sample in the given support.")
        rows = everyone[labels[everyone].argsort(stable=True)]
        sizes = torch.bincount(labels[rows], minlength=features.n_classes)
        _check_possible(features, spec, sizes)
        return _Pool(rows, sizes.cumsum(0) - sizes, sizes, given)

    @staticmethod
    def of_strangers(strangers: FeatureSet, spec: TaskSpec, offset: int) -> "_Pool":
        """The rows of another feature set, which come after ``offset`` others in the table."""
        sizes = strangers.counts
        _check_unknown(spec, sizes, strangers.n_classes, "unknown_from has")
        rows = strangers.labels.argsort(stable=True) + offset
        return _Pool(rows, sizes.cumsum(0) - sizes, sizes, rows[:0])


def _strangers(features: FeatureSet, spec: TaskSpec) -> FeatureSet | None:
    """The set that unknown queries come from, where it is another one; checked."""
    if spec.unknown_from is None:
        return None
    if not isinstance(spec.unknown_from, FeatureSet):
        raise InputError(
            f"unknown_from is {spec.unknown_from!r}; "
            "give a FeatureSet (only suites name it by a key)."
        )
    strangers = spec.unknown_from.to(features.features.device, features.features.dtype)
    ours = features.features.shape[1]
    theirs = strangers.features.shape[1]
    if ours != theirs:
        widths = f"{theirs} features per sample and the feature set {ours}"
        raise InputError(f"unknown_from has {widths}; use the same encoder for both.")
    return strangers


def _check_possible(features: FeatureSet, spec: TaskSpec, sizes: Tensor) -> None:
    """Refuse what cannot be drawn from every choice of classes, before any work."""
    n_ways = spec.ways(features.n_classes)
    if features.n_classes < 2:
        raise InputError("The feature set has one class only; there is nothing to choose between.")
    if n_ways < 2:
        raise InputError(
            f"The feature set has {features.n_classes} classes, "
            "too few to leave some out as unknown."
        )
    if n_ways > features.n_classes:
        raise InputError(
            f"n_ways is {n_ways} but the feature set has {features.n_classes} classes."
        )
    if spec.most_k_eff > n_ways:
        raise InputError(
            f"k_eff is {spec.most_k_eff} but a task has only {n_ways} classes; lower k_eff."
        )
    if spec.n_unknown and spec.unknown_from is None:
        _check_unknown(spec, sizes, features.n_classes - n_ways, "outside the task there are")
    if spec.shots == 0 and features.class_features is None:
        raise InputError(
            "shots is 0, but this feature set has no class features; ask for at least one shot."
        )
    shots = spec.shots or 0
    each = spec.n_query // spec.most_k_eff if spec.sampling == "balanced" else int(spec.is_ragged)
    smallest = int(sizes.argmin())
    if int(sizes[smallest]) < shots + each:
        needs = f"{shots} shots" + (f" + {each} queries" if each else "")
        has = f"'{features.class_names[smallest]}' has {int(sizes[smallest])} samples"
        raise InputError(f"Class {has}, fewer than {needs}; ask for less or leave the class out.")
    left = int((sizes - shots).sort().values[: spec.most_k_eff].sum())
    if left < spec.n_known and not spec.is_ragged:
        batches = "" if spec.n_batches == 1 else f" in {spec.n_batches} batches"
        few = (
            f"{left} samples left after {shots} shots, fewer than n_query = {spec.n_query}{batches}"
        )
        hint = "lower n_query or shots, or raise k_eff"
        raise InputError(f"The {spec.most_k_eff} smallest classes have {few}; {hint}.")


def _check_unknown(spec: TaskSpec, sizes: Tensor, n_classes: int, where: str) -> None:
    """Refuse unknown queries that cannot be drawn from every choice of classes.

    Choices are of ``n_classes`` classes of these sizes.
    """
    if n_classes < (spec.unknown_classes or 1):
        hint = "lower unknown_classes or n_ways, or give unknown_from"
        asked = spec.unknown_classes or 1
        raise InputError(
            f"The unknown queries come from {asked} classes, but {where} {n_classes}; {hint}."
        )
    n_drawn = spec.unknown_classes or n_classes
    n_samples = int(sizes.sort().values[:n_drawn].sum())
    if n_samples < spec.n_unknown:
        few = (
            f"{n_samples} samples, fewer than n_unknown = {spec.n_unknown}; "
            "lower it or raise unknown_classes"
        )
        raise InputError(f"The {n_drawn} smallest classes of unknown queries have {few}.")


def _draw(pool: _Pool, unknown: _Pool | None, spec: TaskSpec, seed: int, tasks: Tensor) -> _Drawn:
    """Draw the numbered tasks.

    Unknown queries come from the pool ``unknown``, or from classes not in the task.
    """
    n_all = len(pool.sizes)
    n_ways = spec.ways(n_all)
    classes = None
    ways = torch.arange(n_all, device=tasks.device).expand(len(tasks), -1)
    if spec.n_ways is not None or n_ways < n_all:
        total = torch.tensor(n_all, device=tasks.device)
        classes = _subset(draws.keys(seed, _WAYS, tasks), n_ways, total, ordered=True)  # [t, k]
        ways = classes
    sizes = pool.sizes[ways]  # [t, k]
    first = pool.first[ways]  # [t, k]
    support = None
    taken = None
    if spec.shots:
        key = draws.mix(draws.keys(seed, _SUPPORT, tasks).unsqueeze(-1) ^ draws.mix(ways))  # [t, k]
        # [t, k, shots], places within the class
        taken = _subset(key, spec.shots, sizes, ordered=True)
        support = pool.rows.take((first.unsqueeze(-1) + taken).flatten(1))
    known = _known_queries(spec, seed, tasks, sizes, taken)
    # Where tasks differ in size, columns after a task's own hold any row;
    # it must be one that exists.
    rows = (first.gather(1, known.labels) + known.places).clamp_max(len(pool.rows) - 1)
    drawn = _Drawn(
        support=support,
        query=pool.rows[rows],
        query_labels=known.labels,
        classes=classes,
        unknown_labels=None,
        sizes=known.n_queries,
    )
    if not spec.n_unknown:
        return drawn
    if unknown is None:
        rows, of_class = _draw_unknown(pool, ways, spec, seed, tasks)
    else:
        rows, of_class = _draw_unknown(unknown, None, spec, seed, tasks)
    return drawn._replace(
        query=torch.cat([rows, drawn.query], 1),
        query_labels=torch.cat([torch.full_like(rows, -1), drawn.query_labels], 1),
        unknown_labels=torch.cat([of_class, torch.full_like(drawn.query, -1)], 1),
    )


class _KnownQueries(NamedTuple):
    """The queries of the classes of a task."""

    labels: Tensor  # [t, q] classes of the task
    places: Tensor  # [t, q] which sample of its class
    n_queries: Tensor | None  # [t] with the unknown ones, where tasks differ


def _known_queries(
    spec: TaskSpec, seed: int, tasks: Tensor, sizes: Tensor, taken: Tensor | None
) -> _KnownQueries:
    """Draw queries from classes of ``sizes`` [t, k], without those that the support has taken."""
    shots = spec.shots or 0
    effective, use = _effective(spec, seed, tasks, sizes.shape[1])
    left = sizes.gather(1, effective) - shots  # [t, e] samples that can still be queries
    if use is not None:
        left = left * use
    # [t, q]: which effective class, which of its left samples
    labels, places = _query_places(spec, seed, tasks, left)
    if spec.n_batches > 1:
        order = _order_in_stream(spec, seed, tasks, labels)
        labels = labels.gather(1, order)
        places = places.gather(1, order)
    labels = effective.gather(1, labels)
    if taken is not None:
        # The n-th sample that is not in the support: step over each support place at or below it.
        # Places are sorted, so the i-th of them is stepped over when it is at most n + i.
        of_query = taken.gather(1, labels.unsqueeze(-1).expand(-1, -1, shots))
        steps = of_query - torch.arange(shots, device=tasks.device) <= places.unsqueeze(-1)
        places = places + steps.sum(-1)
    n_queries = None
    if spec.is_ragged:
        n_queries = left.sum(1).clamp_max(spec.n_query) + spec.n_unknown
    return _KnownQueries(labels, places, n_queries)


def _effective(
    spec: TaskSpec, seed: int, tasks: Tensor, n_ways: int
) -> tuple[Tensor, Tensor | None]:
    """The classes of a task that queries come from [t, e].

    Where their number differs, also which of them to use.
    """
    key = draws.keys(seed, _EFFECTIVE, tasks)
    total = torch.tensor(n_ways, device=tasks.device)
    if not spec.is_ragged:
        return _subset(key, spec.most_k_eff, total, ordered=True), None
    width = spec.most_k_eff - spec.least_k_eff + 1
    k_eff = spec.least_k_eff + (draws.uniform(draws.keys(seed, _K_EFF, tasks), 0) * width).long()
    effective = _subset(key, spec.most_k_eff, total, k_eff).clamp_max(n_ways - 1)
    return effective, torch.arange(spec.most_k_eff, device=tasks.device) < k_eff.unsqueeze(-1)


def _draw_unknown(
    pool: _Pool, ways: Tensor | None, spec: TaskSpec, seed: int, tasks: Tensor
) -> tuple[Tensor, Tensor]:
    """Rows and classes [t, n_unknown] of unknown queries.

    They are of any class of the pool but those in ``ways`` [t, k].
    """
    classes = torch.arange(len(pool.sizes), device=tasks.device).expand(len(tasks), -1)
    if ways is not None:
        outside = torch.ones_like(classes, dtype=torch.bool).scatter_(1, ways, False)
        classes = classes[outside].view(len(tasks), -1)
    if spec.unknown_classes is not None:
        total = torch.tensor(classes.shape[1], device=tasks.device)
        key = draws.keys(seed, _UNKNOWN_CLASSES, tasks)
        classes = classes.gather(1, _subset(key, spec.unknown_classes, total, ordered=True))
    which, place = _from_all(draws.keys(seed, _UNKNOWN, tasks), spec.n_unknown, pool.sizes[classes])
    of_class = classes.gather(1, which)
    return pool.rows[pool.first[of_class] + place], of_class


def _subset(
    key: Tensor, size: int, total: Tensor, wanted: Tensor | None = None, *, ordered: bool = False
) -> Tensor:
    """``draws.subset``, by fused code where there is some: the integers are the same."""
    if fused(key):
        from manyway.core.kernels.subset import MAX_SIZE, subset

        if size <= MAX_SIZE:
            return subset(key, size, total, wanted, ordered=ordered)
    return draws.subset(key, size, total, wanted, ordered=ordered)


def _from_all(
    key: Tensor, n_items: int, left: Tensor, wanted: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Draw from all samples of some classes together: which class [t, n], and which of its samples.

    ``left`` [t, e] is the number of samples of each class.
    With ``wanted`` [t], only so many draws are meaningful.
    """
    ends = left.cumsum(1)
    # [t, n] of all left samples together
    drawn = _subset(key, n_items, ends[:, -1], wanted).contiguous()
    if wanted is not None:
        drawn = drawn.clamp_max(ends[:, -1:] - 1)
    labels = torch.searchsorted(ends, drawn, right=True)
    return labels, drawn - (ends - left).gather(1, labels)


def _query_places(spec: TaskSpec, seed: int, tasks: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    """For each query [t, q], its effective class and its place there.

    The place is among the samples that the class has left.
    """
    key = draws.keys(seed, _QUERY, tasks)
    if spec.sampling == "uniform":
        wanted = left.sum(1).clamp_max(spec.n_query) if spec.is_ragged else None
        return _from_all(key, spec.n_known, left, wanted)
    k_eff = spec.most_k_eff
    if spec.sampling == "balanced":
        counts = torch.full_like(left, spec.n_query // k_eff)
    else:
        counts = _dirichlet_counts(draws.keys(seed, _SHARES, tasks), left, spec)
    longest = int(counts.max())
    per_class = draws.mix(key.unsqueeze(-1) ^ draws.mix(torch.arange(k_eff, device=tasks.device)))
    places = _subset(per_class, longest, left, counts)  # [t, e, longest]
    use = torch.arange(longest, device=tasks.device) < counts.unsqueeze(-1)
    owner = torch.arange(k_eff, device=tasks.device).view(1, -1, 1).expand_as(places)
    return owner[use].view(len(tasks), -1), places[use].view(len(tasks), -1)


def _order_in_stream(spec: TaskSpec, seed: int, tasks: Tensor, labels: Tensor) -> Tensor:
    """The order [t, n] in which the items of a stream arrive, given the class [t, n] of each.

    Every item draws a batch from the proportions of its class over the batches, and items
    are sorted by it. The batches are then cut to equal sizes, so that an item may arrive
    one batch earlier or later than it drew. Computed on the CPU in float64, as the counts
    of Dirichlet proportions are.
    """
    device = labels.device
    tasks = tasks.cpu()
    labels = labels.cpu()
    item = draws.mix(
        draws.keys(seed, _ORDER, tasks).unsqueeze(-1) ^ draws.mix(torch.arange(labels.shape[1]))
    )
    arrival = draws.uniform(item, 0)
    if spec.gamma is not None:
        key = draws.keys(seed, _BATCHES, tasks).unsqueeze(-1) ^ draws.mix(
            torch.arange(spec.most_k_eff)
        )
        arrival = arrival + _batch_drawn(spec, draws.mix(key), labels, draws.uniform(item, 1))
    return arrival.argsort(dim=1, stable=True).to(device)


def _batch_drawn(spec: TaskSpec, key: Tensor, labels: Tensor, at: Tensor) -> Tensor:
    """The number [t, n] of the batch that each item draws.

    With gamma = 0, the place of its class in a random order.
    """
    if not spec.gamma:
        return draws.uniform(key, 0).argsort(1).argsort(1).gather(1, labels)
    batches = torch.arange(spec.n_batches)
    # [t, e, b]
    shares = _log_gamma(draws.mix(key.unsqueeze(-1) ^ draws.mix(batches)), spec.gamma).softmax(-1)
    # One ascending sequence per task: the cumulated proportions of class e lie between e and e + 1.
    ends = (shares.cumsum(-1) + torch.arange(spec.most_k_eff).view(1, -1, 1)).flatten(1)
    found = torch.searchsorted(ends, labels + at, right=True) - labels * spec.n_batches
    return found.clamp(0, spec.n_batches - 1)


def _dirichlet_counts(key: Tensor, left: Tensor, spec: TaskSpec) -> Tensor:
    """Counts [t, e] that add up to n_query, in Dirichlet(alpha) proportions.

    None is above what its class has left.

    They are computed on the CPU in float64:
    special functions differ between devices in the last digit, and a task must not.
    """
    device = left.device
    key = key.cpu()
    left = left.cpu()
    of_class = draws.mix(key.unsqueeze(-1) ^ draws.mix(torch.arange(left.shape[1])))
    alpha = 1.0 if spec.alpha is None else spec.alpha
    # Gamma(α, 1), by inversion
    shares = torch.from_numpy(gammaincinv(alpha, draws.uniform(of_class, 0).numpy()))
    shares = shares / shares.amax(1, keepdim=True).clamp_min(1e-300)  # their sum must not overflow
    counts = torch.zeros_like(left)
    # What a class lacks is taken from the others in the same proportions; each round exhausts at least one class.
    for _ in range(left.shape[1]):
        missing = spec.n_query - counts.sum(1, keepdim=True)
        room = left - counts
        weights = torch.where(room > 0, shares, torch.zeros_like(shares)).clamp_min(0)
        weights = torch.where((weights.sum(1, keepdim=True) > 0), weights, (room > 0).double())
        counts = counts + torch.minimum(_largest_remainder(weights, missing), room)
        if bool((counts.sum(1) == spec.n_query).all()):
            break
    return counts.to(device)


def _largest_remainder(weights: Tensor, total: Tensor) -> Tensor:
    """Integers [t, e] in proportion to the weights, adding up to total [t, 1].

    The largest fractions are rounded up.
    """
    # nothing is left where all weights are 0
    exact = weights / weights.sum(1, keepdim=True).clamp_min(1e-300) * total
    floor = exact.floor()
    rest = total - floor.sum(1, keepdim=True).long()
    rank = (exact - floor).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    return floor.long() + (rank < rest)


def _log_gamma(key: Tensor, alpha: float) -> Tensor:
    """The logarithm of draws of Gamma(alpha, 1), one per key.

    Where they are too small for float64, P(x) = x^alpha / Γ(alpha + 1).
    """
    uniform = draws.uniform(key, 0)
    drawn = torch.from_numpy(gammaincinv(alpha, uniform.numpy()))
    return torch.where(
        drawn > 1e-290, drawn.log(), (uniform.log() + float(gammaln(alpha + 1))) / alpha
    )
