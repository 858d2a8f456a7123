"""The blocks of a large task on a Dask cluster.

The work goes to the queries, and only sums come back.
"""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

import torch

from manyway.core.blocks import Blocks, Spread, Work
from manyway.errors import InputError, optional

_PATIENCE = 10  # seconds to wait for a scheduler
_LOSSES = 10  # of workers during one pass


class _Memories(list[Any]):
    """What is remembered of each block, and the pass that made it, so that it can be made again."""

    made_by: tuple[Work, Sequence[Any] | None]


def distributed() -> Any:
    """The library ``distributed``; an error that says how to install it where it is missing."""
    return optional("distributed", "dask", "`dask`")


def connect(address: str) -> Any:
    """A client of the Dask scheduler at ``address``, to be used in a ``with`` statement."""
    client = distributed().Client
    try:
        return client(address, timeout=_PATIENCE)
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(
            f"No Dask scheduler answers at '{address}'; start one with `dask scheduler`."
        ) from error


@contextmanager
def on_dask(address: str, blocks: Blocks) -> Iterator[Spread]:
    """A ``Spread`` over the workers of the cluster at ``address``.

    Every block is sent once and stays with a worker, as does what is remembered of it. The
    state goes to all workers, and the class sums are added in pairs where they are; the last
    pair comes back. Where a worker is lost, the blocks are sent again and the passes that made
    their memories are repeated.
    """
    with connect(address) as client:
        lost = (CancelledError, asyncio.TimeoutError, distributed().KilledWorker, OSError)
        held: list[Any] = []

        def once(work: Work, memories: Sequence[Any] | None) -> tuple[Any, _Memories]:
            held[:] = held or [client.scatter(block, hash=False) for block in blocks()]
            # workers pass it on; a broadcast would wait for a dead one
            sent = client.scatter(work, hash=False)
            pairs = zip(held, [None] * len(held) if memories is None else memories, strict=True)
            done = [client.submit(_do, sent, block, memory, pure=False) for block, memory in pairs]
            parts = [client.submit(itemgetter(0), one, pure=False) for one in done]
            while len(parts) > 1:
                added = [
                    client.submit(_plus, *parts[i : i + 2], pure=False)
                    for i in range(0, len(parts) - 1, 2)
                ]
                parts = added + parts[len(added) * 2 :]
            remembered = _Memories(client.submit(itemgetter(1), one, pure=False) for one in done)
            remembered.made_by = work, memories
            return (parts[0].result() if parts else None), remembered

        def again(memories: Sequence[Any] | None) -> None:
            """Make memories again, pass after pass from the first."""
            passes: list[_Memories] = []
            while isinstance(memories, _Memories):
                passes.append(memories)
                memories = memories.made_by[1]
            for made in reversed(passes):
                made[:] = once(*made.made_by)[1]

        def spread(work: Work, memories: Sequence[Any] | None) -> tuple[Any, list[Any]]:
            for _ in range(_LOSSES):
                try:
                    client.wait_for_workers(1, timeout=_PATIENCE)
                    if not held:
                        again(memories)
                    return once(work, memories)
                except lost:
                    held.clear()
            raise InputError(
                f"The workers at '{address}' were lost {_LOSSES} times; do they have enough memory?"
            )

        yield spread


def _do(work: Work, block: torch.Tensor, memory: Any) -> tuple[Any, Any]:
    torch.set_num_threads(1)  # a worker's threads each have a block of their own
    return work(block, memory)


def _plus(one: Any, other: Any) -> Any:
    return other if one is None else one.plus(other)  # work that only remembers has no sum
