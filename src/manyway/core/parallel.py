"""How many threads work on what: one place for the whole package.

torch splits every operation among its threads and waits for the slowest of them. When another
program uses one of the cores, that wait is a time slice of the operating system, some milliseconds,
whatever the size of the operation. An operation should therefore be split only when its parts take
longer than that. Independent pieces of work, such as chunks of tasks, need not wait for one
another: they run in threads of their own, with one thread of torch each.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TypeVar

import torch

T = TypeVar("T")
S = TypeVar("S")

# From this size of a task's arrays on, operations are split among all threads: an elementwise operation on so many
# numbers takes one thread about as long as a time slice, and a matrix product takes much longer.
LARGE = 2**22


# torch's number of threads while it is changed: how many threads of Python are inside ``threads_for``, torch's setting
# when there was none, and of each thread ``count`` (inside of it) and ``worker`` (always one thread).
_setting = SimpleNamespace(lock=threading.Lock(), users=0, before=1, here=threading.local())


@contextmanager
def threads_for(numbers: int) -> Iterator[int]:
    """Let torch use all its threads on large arrays, and one thread on smaller ones.

    Gives the number of threads.

    ``numbers`` is the size, for one task, of the arrays that the enclosed work goes through again
    and again. A batch of many small tasks counts as small, because its operations shrink while
    tasks and classes leave the iteration; ``evaluate`` runs chunks of such a batch side by side
    instead. There is also one thread while another thread of Python is inside ``threads_for``, and
    in the threads of ``side_by_side``.

    Uses can be nested: the inner one chooses anew. torch's setting is restored at the end, also
    when several threads of Python enter and leave in any order.

    >>> before = torch.get_num_threads()
    >>> with threads_for(1000) as n_threads:
    ...     n_threads
    1
    >>> torch.get_num_threads() == before
    True
    """
    if getattr(_setting.here, "worker", False):
        yield 1
        return
    outer = getattr(_setting.here, "count", None)
    with _setting.lock:
        if outer is None:
            if _setting.users == 0:
                _setting.before = torch.get_num_threads()
            _setting.users += 1
        count = _setting.before if numbers >= LARGE and _setting.users == 1 else 1
        torch.set_num_threads(count)
    _setting.here.count = count
    try:
        yield count
    finally:
        _setting.here.count = outer
        with _setting.lock:
            if outer is None:
                _setting.users -= 1
            torch.set_num_threads(_setting.before if outer is None else outer)


def side_by_side(work: Callable[[S], T], pieces: Iterable[S]) -> list[T]:
    """Do independent pieces of work in parallel, each in one thread.

    The results are in the order of the pieces.

    A single piece is worked on in the calling thread, with torch's own setting.

    >>> side_by_side(lambda x: x * x, [1, 2, 3])
    [1, 4, 9]
    """
    pieces = list(pieces)
    threads = min(torch.get_num_threads(), len(pieces))
    if threads < 2:
        return list(map(work, pieces))
    with threads_for(0), ThreadPoolExecutor(threads, initializer=_hold_one_thread) as pool:
        return list(pool.map(work, pieces))


def _hold_one_thread() -> None:
    """Make a new thread of Python keep torch to one thread. The setting belongs to the thread."""
    torch.set_num_threads(1)
    _setting.here.worker = True
