"""Many small pieces of work on all cores: one thread each, instead of all threads on each in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")
S = TypeVar("S")


def side_by_side(work: Callable[[S], T], pieces: Iterable[S]) -> list[T]:
    """The work on every piece, in order. Meanwhile torch is held to one thread in each: a piece is too small to share.

    >>> side_by_side(lambda x: x * x, [1, 2, 3])
    [1, 4, 9]
    """
    threads, pieces = torch.get_num_threads(), list(pieces)
    if threads == 1 or len(pieces) < 2:
        return list(map(work, pieces))
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(min(threads, len(pieces))) as pool:
            return list(pool.map(work, pieces))
    finally:
        torch.set_num_threads(threads)
