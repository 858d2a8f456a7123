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

from manyway.errors import InputError
from manyway.files import atomic_write
from manyway.inputs import Items
from manyway.large import paddle_in_blocks
from manyway.large_dask import on_dask
from manyway.methods import get_method
from manyway.tasks import Tasks

_IN_MEMORY_BYTES = 2**30  # assignments larger than this are worked out block by block
_BLOCK_BYTES = 2**27
_IN_BLOCKS: dict[str, dict[str, Any]] = {"paddle": {}, "soft-kmeans": {"lam": 0.0, "eps": 0.0}}


@dataclass(frozen=True)
class ClassShare:
    """What was found of one class."""

    name: str
    items: int  # that got this label
    share: float  # expected share of all items, counting doubt
    confidence: float  # mean probability of its items' labels


@dataclass(frozen=True)
class Summary:
    """What ``manyway label`` says on the screen."""

    n_items: int
    n_classes: int
    present: tuple[ClassShare, ...]  # the classes that got a label, most items first
    mean_confidence: float
    below: int  # items whose label was left empty


def label_items(
    support: Items,
    query: Items,
    output: Path,
    *,
    method: str,
    top: int = 2,
    min_confidence: float = 0.0,
    device: str | None = None,
    dask: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Summary:
    """Label all items of ``query`` jointly and write one CSV row for each; nothing is written unless all went well.

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
    labels = torch.tensor([number[name] for name in support.labels])
    blocks = _probabilities(support, labels, query, method, len(classes), device, dask, progress)
    return _write(output, query, classes, blocks, min(top, len(classes)), min_confidence)


def _probabilities(
    support: Items,
    labels: Tensor,
    query: Items,
    method: str,
    n_classes: int,
    device: str | None,
    dask: str | None,
    progress: Callable[[str], None] | None,
) -> Iterator[Tensor]:
    """Class probabilities [b, k] of all items, in order."""
    examples = support.rows(0, len(support)).to(device)
    labels = labels.to(device)
    solver = get_method(method)

    def solve(first: int, last: int) -> Tensor:
        tasks = Tasks.from_arrays(examples[None], labels[None], query.rows(first, last)[None], support.base_mean)
        return solver(tasks).probabilities[0]

    if dask is None and 4 * len(query) * n_classes <= _IN_MEMORY_BYTES:
        yield solve(0, len(query))
        return
    size = max(1, _BLOCK_BYTES // (4 * (n_classes + query.n_features)))
    edges = [(first, min(first + size, len(query))) for first in range(0, len(query), size)]
    if not solver.transductive:
        for first, last in edges:
            yield solve(first, last)
    elif method in _IN_BLOCKS:

        def read() -> Iterator[Tensor]:
            return (query.rows(first, last) for first, last in edges)

        with nullcontext() if dask is None else on_dask(dask, read) as spread:
            solution = paddle_in_blocks(
                examples,
                labels,
                read,
                base_mean=support.base_mean,
                progress=None if progress is None else lambda iteration: progress(f"pass {iteration}"),
                spread=spread,
                **_IN_BLOCKS[method],
            )
        for first, last in edges:
            yield solution.assign(query.rows(first, last))
    else:
        raise InputError(
            f"{len(query)} items and {n_classes} classes are too many for {method} at once; "
            f"use --method {' or '.join(_IN_BLOCKS)}, or cut the items into smaller batches."
        )


def _write(
    output: Path, query: Items, classes: list[str], blocks: Iterator[Tensor], top: int, min_confidence: float
) -> Summary:
    given, doubt = [0] * len(classes), [0.0] * len(classes)
    shares = torch.zeros(len(classes), dtype=torch.float64)
    below, row = 0, 0
    header = ["item", "label", "probability"]
    for rank in range(2, top + 1):
        header += [f"label_{rank}", f"probability_{rank}"]
    with atomic_write(output) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for block in blocks:
            best = block.topk(top, dim=1)
            shares += block.sum(0, dtype=torch.float64).cpu()
            for chosen, sure in zip(best.indices.tolist(), best.values.tolist(), strict=True):
                cells: list[Any] = [query.name(row)]
                for rank, (k, p) in enumerate(zip(chosen, sure, strict=True)):
                    certain = rank > 0 or p >= min_confidence
                    cells += [classes[k] if certain else "", f"{p:.4f}"]
                writer.writerow(cells)
                given[chosen[0]] += 1
                doubt[chosen[0]] += sure[0]
                below += sure[0] < min_confidence
                row += 1
    present = [
        ClassShare(name, given[k], float(shares[k]) / row, doubt[k] / given[k])
        for k, name in enumerate(classes)
        if given[k]
    ]
    present.sort(key=lambda share: (-share.items, share.name))
    return Summary(row, len(classes), tuple(present), sum(doubt) / row, below)
