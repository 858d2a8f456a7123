"""Label all items of a batch jointly from labelled examples, and write a table: what ``manyway label`` does."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from manyway.core.blocks import Blocks, Spread, in_turn
from manyway.core.dask import on_dask
from manyway.core.device import resolve_device
from manyway.core.solution import UNKNOWN_ABOVE
from manyway.core.tasks import Tasks
from manyway.core.topk import Answer, Answers
from manyway.core.validation import moderate, row_sizes
from manyway.errors import InputError
from manyway.files.files import check_output
from manyway.files.items import Items, match_columns
from manyway.labelling.table import UNKNOWN, LevelAnswer, Row, write_table
from manyway.methods import DEFAULT_METHOD, METHODS, get_method

_IN_MEMORY_BYTES = 2**28  # larger assignments (or pairs of classes, for evidence) are computed block by block;
_AT_MOST_BYTES = 2**30  # methods that cannot work in blocks refuse more than this
_BLOCK_BYTES = 2**27
_LISTED_PRESENCE = 0.5  # a class with at least this probability of presence is listed even if no item has its label


@dataclass(frozen=True)
class ClassSummary:
    """The result for one class.

    Parameters
    ----------
    name : str
    items : int
        The number of items that got this label.
    proportion : float
        The expected proportion of the class among all items.
    confidence : float or None
        The mean probability of the labels of its items; None without items.
    presence : float or None
        The probability that the class occurs in the batch; None if the method does not estimate it.
    """

    name: str
    items: int
    proportion: float
    confidence: float | None
    presence: float | None


@dataclass(frozen=True)
class UnknownGroup:
    """Unknown items that belong together.

    Parameters
    ----------
    items : int
        The number of items.
    medoid : str
        The name of the item in the middle of the group.
    """

    items: int
    medoid: str


@dataclass(frozen=True)
class Summary:
    """The result for the whole batch.

    Parameters
    ----------
    n_items, n_classes : int
        The numbers of items and of possible classes.
    present : tuple of ClassSummary
        The classes that got a label or are probably present, those with most items first.
    mean_confidence : float
        The mean probability of the labels.
    below : int
        The number of items whose label was left empty because its probability is too low.
    n_present, n_present_sd : float or None
        The estimated number of classes that occur in the batch, with its standard deviation; None if the method does
        not estimate it.
    n_unknown : int or None
        The number of items that are labelled unknown; None where all items were taken to be of a class.
    unknown_groups : tuple of UnknownGroup
        The groups of these items, largest first.
    skipped : int
        The number of items that could not be read.
    output : Path or None
        The table that was written.
    levels : mapping of str to int
        The number of items that were answered at each level of a taxonomy; those without an answer have the level ''.
    """

    n_items: int
    n_classes: int
    present: tuple[ClassSummary, ...]
    mean_confidence: float
    below: int
    n_present: float | None = None
    n_present_sd: float | None = None
    n_unknown: int | None = None
    unknown_groups: tuple[UnknownGroup, ...] = ()
    skipped: int = 0
    output: Path | None = None
    levels: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Result:
    """What a method has found, before it is written."""

    answers: Answers
    presence: Tensor | None = None  # [k]
    n_present: float | None = None
    n_present_sd: float | None = None
    medoids: Tensor | None = None  # [g] of the groups of unknown items


def label_items(
    support: Items,
    query: Items,
    output: str | Path,
    *,
    method: str = DEFAULT_METHOD,
    top: int = 2,
    min_confidence: float = 0.0,
    open_set: bool = False,
    class_names: Items | None = None,
    device: str | torch.device | None = None,
    dask: str | None = None,
    progress: Callable[[str], None] | None = None,
    inputs: Iterable[str | Path | None] = (),
) -> Summary:
    """Label all items of ``query`` jointly and write a table with one row per item.

    The table is written only when everything succeeded. Large batches are read in blocks, several times over, by
    ``evidence``, ``paddle`` and ``soft-kmeans``.

    Parameters
    ----------
    support : Items
        The labelled examples.
    query : Items
        The items to label. Where both have named features, they are matched by name.
    output : path-like
        The table: csv by default; tsv, parquet or jsonl by its ending.
    method : str, default="evidence"
        The name of a method, see `manyway.METHODS`.
    top : int, default=2
        How many classes to write per item, most probable first.
    min_confidence : float, default=0.0
        The label is left empty where its probability is lower.
    open_set : bool, default=False
        Whether items may be of none of the classes. Those are labelled ``unknown``, and the table has the columns
        ``unknown``, the probability of it, and ``group``, the number of the group that such an item belongs to.
    class_names : Items, optional
        One vector per class, such as the text embedding of its name, from the encoder of the items. Its labels are the
        classes; without labels, its item names are. Classes then need no examples.
    device : str or torch.device, optional
        Where to compute; None means CUDA where it is available, else the CPU (with ``dask``: the CPU).
    dask : str, optional
        The address of a Dask scheduler whose workers hold the items, block by block.
    progress : callable, optional
        Called with a short text after every pass over the items.
    inputs : iterable of path-like, optional
        Files that the output must not replace.

    Returns
    -------
    Summary

    Raises
    ------
    InputError
        If examples and items do not fit together, or the table cannot be written.
    """
    inputs = tuple(inputs)
    check_output(output, inputs)
    if top < 1 or not 0 <= min_confidence <= 1:
        raise InputError(f"top is {top} and min_confidence {min_confidence}; they must be at least 1, and from 0 to 1.")
    device = resolve_device("cpu" if device is None and dask is not None else device)
    query = match_columns(support, query)
    classes, numbers = check_items(support, query, class_names)
    labels = torch.tensor(numbers, dtype=torch.int64, device=device)
    examples = support.rows(0, len(support)).to(device)
    best = min(top, len(classes))
    solver = get_method(method)
    params: dict[str, Any] = _open_set(method, classes) if open_set else {}
    vectors = None if class_names is None else _vectors(class_names, classes, method).to(device)
    largest = len(classes) * max(len(query), len(classes))
    if dask is None and 4 * largest <= (_AT_MOST_BYTES if solver.in_blocks is None else _IN_MEMORY_BYTES):
        rows = query.rows(0, len(query)).to(device)
        result = _at_once(examples, labels, rows, method, best, support.base_mean, vectors, params)
    elif solver.in_blocks is None and solver.transductive:
        where = "on a cluster" if dask is not None else "at once"
        raise InputError(
            f"{len(query)} items and {len(classes)} classes cannot be labelled by {method} {where}; "
            f"use --method {' or '.join(_in_blocks_with(vectors))}, or cut the items into smaller batches."
        )
    else:
        size = max(1, _BLOCK_BYTES // (4 * (len(classes) + query.n_features)))
        base_mean = None if support.base_mean is None else support.base_mean.to(device)
        known = examples if vectors is None else torch.cat([examples, vectors.to(examples)])
        # The largest example or class name decides how features of an extreme magnitude are rescaled.
        largest_known = known[row_sizes(known).argmax()].cpu().view(1, 1, -1)
        known, _, base_mean = moderate(known[None], base_mean=base_mean)
        examples = known[0, : len(labels)]
        if vectors is not None:
            params["class_features"] = known[0, len(labels) :]

        def read() -> Iterator[Tensor]:
            for first in range(0, len(query), size):
                _, block, _ = moderate(largest_known, query.rows(first, first + size)[None], first=first)
                yield cast(Tensor, block)[0]

        with nullcontext(in_turn(read, device)) if dask is None else on_dask(dask, read) as spread:
            result = _in_blocks(examples, labels, read, spread, method, best, base_mean, progress, params)
    return write_answers(Path(output), query, classes, result, method, min_confidence, inputs)


def _in_blocks_with(vectors: Tensor | None) -> list[str]:
    """The methods that read items in blocks, and use the vectors of classes where there are any."""
    return [
        name
        for name, method in METHODS.items()
        if method.in_blocks is not None and (vectors is None or method.class_features)
    ]


def _open_set(method: str, classes: list[str]) -> dict[str, bool]:
    """The parameters of the method with which items may be unknown."""
    if "open_set" not in get_method(method).parameters:
        raise InputError(f"{method} cannot tell that an item is unknown; use --method evidence, or --closed.")
    if UNKNOWN in classes:
        raise InputError(f"A class is called '{UNKNOWN}', the label of unknown items; rename it, or use --closed.")
    return {"open_set": True}


def _vectors(class_names: Items, classes: list[str], method: str) -> Tensor:
    """[k, d] the vectors of the classes, in their order."""
    if not get_method(method).class_features:
        raise InputError(f"{method} does not use class names; use --method evidence, or leave --class-names out.")
    place = {name: row for row, name in enumerate(_named(class_names))}
    return class_names.rows(0, len(class_names))[[place[name] for name in classes]]


def _named(class_names: Items) -> list[str]:
    """The class of each vector."""
    names = class_names.labels if class_names.labels is not None else class_names.names
    if names is None:
        raise InputError("The vectors of class names do not say their classes; add a column or an array of labels.")
    twice = next((name for name, n in Counter(names).items() if n > 1), None)
    if twice is not None:
        raise InputError(f"The class names have '{twice}' twice; give each class one vector.")
    return list(names)


def check_items(support: Items, query: Items, class_names: Items | None = None) -> tuple[list[str], list[int]]:
    """The classes, sorted, and the number of each example's class; refuse what cannot be labelled."""
    if class_names is not None and class_names.n_features != query.n_features:
        raise InputError(
            f"The class names have {class_names.n_features} features and the items {query.n_features}; "
            "use the same encoder for both."
        )
    if len(support) == 0 and class_names is None:
        raise InputError("There is no labelled example; the file of examples has no rows.")
    if support.labels is None:
        raise InputError("The labelled examples have no labels; put them in the file or name a file with --labels.")
    if len(query) == 0:
        raise InputError("There is no item to label; the query file has no rows.")
    if support.n_features != query.n_features:
        raise InputError(
            f"The labelled examples have {support.n_features} features and the items {query.n_features}; "
            "use the same encoder for both."
        )
    classes = sorted(set(support.labels if class_names is None else _named(class_names)))
    nameless = sorted(set(support.labels) - set(classes))
    if nameless:
        raise InputError(f"The class '{nameless[0]}' of the examples is not among the class names; add it there.")
    if len(classes) < 2 and class_names is not None:
        raise InputError("There are fewer than two class names; there is nothing to choose between.")
    if len(classes) < 2:
        raise InputError(f"All labelled examples are of class '{classes[0]}'; there is nothing to choose between.")
    number = {name: k for k, name in enumerate(classes)}
    return classes, [number[name] for name in support.labels]


def _at_once(
    examples: Tensor,
    labels: Tensor,
    query: Tensor,
    method: str,
    top: int,
    base_mean: Tensor | None,
    vectors: Tensor | None,
    params: Mapping[str, bool],
) -> Result:
    named = None if vectors is None else vectors[None]
    tasks = Tasks.from_arrays(examples[None], labels[None], query[None], base_mean, class_features=named)
    solution = get_method(method)(tasks, **params)
    groups, medoids = (
        None if value is None else value[0] for value in (solution.unknown_groups, solution.unknown_medoids)
    )
    answers = Answers.of(solution.probabilities[0], top, groups)
    if solution.occupancy is None:
        return Result(answers)
    present = float(solution.n_present[0]), float(solution.n_present_sd[0])
    return Result(answers, solution.presence[0].cpu(), *present, medoids)


def _in_blocks(
    examples: Tensor,
    labels: Tensor,
    blocks: Blocks,
    spread: Spread,
    method: str,
    top: int,
    base_mean: Tensor | None,
    progress: Callable[[str], None] | None,
    params: Mapping[str, Any],
) -> Result:
    solver = get_method(method)

    def tell(iteration: int) -> None:
        if progress is not None:
            progress(f"pass {iteration}")

    if solver.streamed is not None:
        found = solver.streamed(examples, labels, blocks, base_mean=base_mean, progress=tell, spread=spread, **params)
        find_groups, medoids = (getattr(found, name, None) for name in ("find_groups", "unknown_medoids"))
        answers, _ = spread(Answer(found.assign, top, find_groups), found.memory)
        presence = None if found.presence is None else found.presence.cpu()
        return Result(answers, presence, found.n_present, found.n_present_sd, medoids)
    # Each query is answered on its own. What depends on the examples alone is learned once, not for every block.
    support = Tasks.from_support(examples[None], labels[None], base_mean)
    prepared = None if solver.preparation is None else solver.preparation(support, **solver.parameters)

    def assign(block: Tensor, memory: None) -> Tensor:
        tasks = Tasks.from_arrays(examples[None], labels[None], block[None], base_mean)
        return solver(tasks, prepared=prepared).probabilities[0]

    return Result(spread(Answer(assign, top), None)[0])


class Named(Protocol):
    """Items with their names, and those that could not be read."""

    @property
    def skipped(self) -> tuple[tuple[str, str], ...]: ...

    def __len__(self) -> int: ...

    def name(self, row: int) -> str: ...


def write_answers(
    output: Path,
    query: Named,
    classes: Sequence[str],
    result: Result,
    method: str,
    min_confidence: float,
    inputs: Iterable[str | Path | None],
    at_levels: Sequence[LevelAnswer] | None = None,
) -> Summary:
    """Write the table, and return what it says in total.

    ``at_levels`` has the answer of each item at some level of a taxonomy.
    """
    if not all(bool(torch.isfinite(values).all()) for values, _ in result.answers.best):
        raise InputError(
            f"{method} found no probabilities for these features; look for constant columns and for values that are "
            "extremely large or small. Nothing was written."
        )
    given, confidence = [0] * len(classes), [0.0] * len(classes)
    below, of_none = 0, 0.0
    grouped: Counter[int] = Counter()

    def rows() -> Iterator[Row]:
        nonlocal below, of_none
        row = 0
        unknown, groups = (itertools.chain.from_iterable(map(Tensor.tolist, each)) for each in result.answers[2:])
        for values, indices in result.answers.best:
            for chosen, probabilities in zip(indices.tolist(), values.tolist(), strict=True):
                best = list(zip((classes[k] for k in chosen), probabilities, strict=True))
                no_class, group = next(unknown, None), next(groups, -1)
                if no_class is not None and no_class > UNKNOWN_ABOVE:
                    grouped[group] += 1
                    of_none += no_class
                    best = [(UNKNOWN, no_class), *best[:-1]]
                else:
                    given[chosen[0]] += 1
                    confidence[chosen[0]] += probabilities[0]
                    group = -1
                if best[0][1] < min_confidence:
                    below += 1
                    best[0] = ("", best[0][1])
                answer = None if at_levels is None else at_levels[row]
                yield Row(query.name(row), best, no_class, None if group < 0 else group, answer)
                row += 1

    open_set, top = bool(result.answers.unknown), result.answers.best[0][0].shape[1]
    write_table(output, rows(), top, query.skipped, inputs, open_set=open_set, at_levels=at_levels is not None)
    presence = [None] * len(classes) if result.presence is None else result.presence.tolist()
    present = [
        ClassSummary(
            name,
            given[k],
            float(result.answers.total[k]) / len(query),
            confidence[k] / given[k] if given[k] else None,
            presence[k],
        )
        for k, name in enumerate(classes)
        if given[k] or (presence[k] or 0.0) >= _LISTED_PRESENCE
    ]
    present.sort(key=lambda found: (-found.items, -found.proportion, found.name))
    return Summary(
        len(query),
        len(classes),
        tuple(present),
        (sum(confidence) + of_none) / len(query),
        below,
        result.n_present,
        result.n_present_sd,
        sum(grouped.values()) if open_set else None,
        _groups(grouped, result.medoids, query),
        len(query.skipped),
        output,
        Counter(answer.level for answer in at_levels or ()),
    )


def _groups(grouped: Counter[int], medoids: Tensor | None, query: Named) -> tuple[UnknownGroup, ...]:
    """The groups that items were given to, largest first."""
    rows = [] if medoids is None else medoids.tolist()
    return tuple(UnknownGroup(n, query.name(rows[group])) for group, n in grouped.most_common() if group >= 0)
