"""The blocks of a large task on a Dask cluster: the work goes to the queries, and only sums come back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch

from manyway.errors import InputError
from manyway.streaming.blocks import Blocks, Spread, Work

_PATIENCE = 10  # seconds to wait for a scheduler


@contextmanager
def on_dask(address: str, blocks: Blocks) -> Iterator[Spread]:
    """A ``Spread`` over the workers of the cluster at ``address``.

    Every block is sent once and stays with a worker, with the notes on it. In an iteration the state goes to all
    workers, and the class sums are added in pairs where they are; the last pair comes back.
    """
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise InputError("--dask needs Dask; install it with: pip install 'manyway[dask]'.") from error
    try:
        client = distributed.Client(address, timeout=_PATIENCE)
    except (OSError, ValueError) as error:
        raise InputError(f"There is no Dask scheduler at {address} ({error}).") from error
    with client:
        held = [client.scatter(block, hash=False) for block in blocks()]

        def spread(work: Work, notes: Sequence[Any] | None) -> tuple[Any, list[Any]]:
            sent = client.scatter(work, broadcast=True, hash=False)
            marks = [None] * len(held) if notes is None else notes
            done = [client.submit(_do, sent, block, mark, pure=False) for block, mark in zip(held, marks, strict=True)]
            parts = [client.submit(_part, one, pure=False) for one in done]
            while len(parts) > 1:
                pairs = [client.submit(_plus, *parts[i : i + 2], pure=False) for i in range(0, len(parts) - 1, 2)]
                parts = pairs + parts[len(pairs) * 2 :]
            return (parts[0].result() if parts else None), [client.submit(_note, one, pure=False) for one in done]

        yield spread


def _do(work: Work, block: torch.Tensor, note: Any) -> tuple[Any, Any]:
    torch.set_num_threads(1)  # a worker's threads each have a block of their own
    return work(block, note)


def _part(done: tuple[Any, Any]) -> Any:
    return done[0]


def _note(done: tuple[Any, Any]) -> Any:
    return done[1]


def _plus(one: Any, other: Any) -> Any:
    return one.plus(other)
