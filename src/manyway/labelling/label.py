"""From labelled examples and a pile of items to a table of labels: what ``manyway label`` does."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyway.core.tasks import Tasks
from manyway.data.files import atomic_write
from manyway.data.items import Items
from manyway.errors import InputError
from manyway.methods import DEFAULT_METHOD, get_method
from manyway.methods.evidence.solver import evidence_in_blocks
from manyway.methods.paddle.streamed import paddle_in_blocks
from manyway.streaming.blocks import Blocks, Spread, in_turn
from manyway.streaming.dask import on_dask
from manyway.streaming.topk import Answer, Answers

_IN_MEMORY_BYTES = 2**28  # larger assignments, or pairs of classes for evidence, are worked out block by block,
_AT_MOST_BYTES = 2**30  # and by methods that cannot do that not at all
_BLOCK_BYTES = 2**27
_IN_BLOCKS = ("evidence", "paddle", "soft-kmeans")
_PROBABLY = 0.5  # a class that is this probably present is named even where no item got its label


@dataclass(frozen=True)
class ClassShare:
    """What was found of one class."""

    name: str
    items: int  # that got this label
    share: float  # expected share of all items, counting doubt
    confidence: float | None  # mean probability of its items' labels, where it has items
    presence: float | None  # probability that the class occurs at all, where the method says so


@dataclass(frozen=True)
class Summary:
    """What ``manyway label`` says on the screen."""

    n_items: int
    n_classes: int
    present: tuple[ClassShare, ...]  # the classes that got a label or probably occur, most items first
    mean_confidence: float
    below: int  # items whose label was left empty
    n_occurring: float | None = None  # how many classes occur: the expected number, where the method says so
    n_occurring_sd: float | None = None


@dataclass(frozen=True, eq=False)
class _Found:
    answers: Answers
    presence: Tensor | None = None  # [k]
    n_occurring: float | None = None
    n_occurring_sd: float | None = None


def label_items(
    support: Items,
    query: Items,
    output: Path,
    *,
    method: str = DEFAULT_METHOD,
    top: int = 2,
    min_confidence: float = 0.0,
    device: str | None = None,
    dask: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Summary:
    """Label all items of ``query`` jointly and write one CSV row for each; nothing is written unless all went well.

    Many items are read in blocks, several times over, by ``evidence``, ``paddle`` and ``soft-kmeans``.
    ``dask`` is the address of a scheduler whose workers then hold the items, block by block.
    """
    if support.labels is None:
        raise InputError("The labelled examples have no labels; put them in the file or name a file with --labels.")
    if len(query) == 0:
        raise InputError("There is no item to label; the query file has no rows.")
    if support.n_features != query.n_features:
        raise InputError(
            f"The labelled examples have {support.n_features} features and the items {query.n_features}; "
            "use the same encoder for both."
        )
    classes = sorted(set(support.labels))
    if len(classes) < 2:
        raise InputError(f"All labelled examples are of class '{classes[0]}'; there is nothing to choose between.")
    number = {name: k for k, name in enumerate(classes)}
    labels = torch.tensor([number[name] for name in support.labels], device=device)
    examples = support.rows(0, len(support)).to(device)
    best = min(top, len(classes))
    largest = len(classes) * (max(len(query), len(classes)) if method == "evidence" else len(query))
    if dask is None and 4 * largest <= (_IN_MEMORY_BYTES if method in _IN_BLOCKS else _AT_MOST_BYTES):
        found = _at_once(examples, labels, query.rows(0, len(query)), method, best, support.base_mean)
    elif method not in _IN_BLOCKS and get_method(method).transductive:
        where = "on a cluster" if dask is not None else "at once"
        raise InputError(
            f"{len(query)} items and {len(classes)} classes cannot be labelled by {method} {where}; "
            f"use --method {' or '.join(_IN_BLOCKS)}, or cut the items into smaller batches."
        )
    else:
        size = max(1, _BLOCK_BYTES // (4 * (len(classes) + query.n_features)))

        def read() -> Iterator[Tensor]:
            return (query.rows(first, first + size) for first in range(0, len(query), size))

        with nullcontext(in_turn(read, examples.device)) if dask is None else on_dask(dask, read) as spread:
            found = _in_blocks(examples, labels, read, spread, method, best, support.base_mean, progress)
    return _write(output, query, classes, found, min_confidence)


def _at_once(
    examples: Tensor, labels: Tensor, query: Tensor, method: str, top: int, base_mean: Tensor | None
) -> _Found:
    solution = get_method(method)(Tasks.from_arrays(examples[None], labels[None], query[None], base_mean))
    answers = Answers.of(solution.probabilities[0], top)
    if solution.occupancy is None:
        return _Found(answers)
    return _Found(answers, solution.presence[0].cpu(), float(solution.n_classes[0]), float(solution.n_classes_sd[0]))


def _in_blocks(
    examples: Tensor,
    labels: Tensor,
    blocks: Blocks,
    spread: Spread,
    method: str,
    top: int,
    base_mean: Tensor | None,
    progress: Callable[[str], None] | None,
) -> _Found:
    solver = get_method(method)

    def tell(iteration: int) -> None:
        if progress is not None:
            progress(f"pass {iteration}")

    if method == "evidence":
        found = evidence_in_blocks(examples, labels, blocks, base_mean=base_mean, progress=tell, spread=spread)
        answers, _ = spread(Answer(found.assign, top), found.memory)
        return _Found(answers, found.presence.cpu(), found.n_present, found.n_present_sd)
    if method in _IN_BLOCKS:
        params: dict[str, Any] = {"lam": 0.0, "eps": 0.0} if method == "soft-kmeans" else {}
        moved = paddle_in_blocks(examples, labels, blocks, base_mean=base_mean, progress=tell, spread=spread, **params)
        return _Found(spread(Answer(moved.assign, top), None)[0])

    def assign(block: Tensor, note: None) -> Tensor:
        return solver(Tasks.from_arrays(examples[None], labels[None], block[None], base_mean)).probabilities[0]

    return _Found(spread(Answer(assign, top), None)[0])


def _write(output: Path, query: Items, classes: list[str], found: _Found, min_confidence: float) -> Summary:
    given, doubt = [0] * len(classes), [0.0] * len(classes)
    below, row = 0, 0
    header = ["item", "label", "probability"]
    for rank in range(2, found.answers.best[0][0].shape[1] + 1):
        header += [f"label_{rank}", f"probability_{rank}"]
    with atomic_write(output) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for values, indices in found.answers.best:
            for chosen, sure in zip(indices.tolist(), values.tolist(), strict=True):
                cells: list[Any] = [query.name(row)]
                for rank, (k, p) in enumerate(zip(chosen, sure, strict=True)):
                    certain = rank > 0 or p >= min_confidence
                    cells += [classes[k] if certain else "", f"{p:.4f}"]
                writer.writerow(cells)
                given[chosen[0]] += 1
                doubt[chosen[0]] += sure[0]
                below += sure[0] < min_confidence
                row += 1
    presence = [None] * len(classes) if found.presence is None else found.presence.tolist()
    present = [
        ClassShare(
            name, given[k], float(found.answers.total[k]) / row, doubt[k] / given[k] if given[k] else None, presence[k]
        )
        for k, name in enumerate(classes)
        if given[k] or (presence[k] or 0.0) >= _PROBABLY
    ]
    present.sort(key=lambda share: (-share.items, -share.share, share.name))
    return Summary(row, len(classes), tuple(present), sum(doubt) / row, below, found.n_occurring, found.n_occurring_sd)
