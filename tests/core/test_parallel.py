"""The number of threads follows the size of the work, and torch's setting is restored."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch

from manyway.core.parallel import LARGE, side_by_side, threads_for


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("numbers", "expected"), [(0, 1), (LARGE - 1, 1), (LARGE, 3), (100 * LARGE, 3)])
def test_large_arrays_are_split_and_small_ones_are_not(numbers, expected):
    with threads_for(numbers) as count:
        assert count == torch.get_num_threads() == expected
    assert torch.get_num_threads() == 3


def test_an_inner_use_chooses_anew():
    with threads_for(1):
        with threads_for(LARGE):
            assert torch.get_num_threads() == 3
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3


def test_an_error_restores_the_setting():
    with pytest.raises(ZeroDivisionError), threads_for(1):
        _ = 1 / 0
    assert torch.get_num_threads() == 3


def test_threads_of_python_that_work_at_the_same_time_have_one_thread_each_after_the_first():
    first, last = Barrier(2, timeout=60), Barrier(2, timeout=60)

    def work(_: int) -> int:
        with threads_for(1):
            first.wait()
            with threads_for(LARGE) as count:
                last.wait()
                return count

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, range(2))) == [1, 1]
        assert [pool.submit(torch.get_num_threads).result() for _ in range(4)] == [3] * 4
    assert torch.get_num_threads() == 3
    with ThreadPoolExecutor(1) as pool:  # a thread that is new takes over the setting of the process
        assert pool.submit(torch.get_num_threads).result() == 3


def test_pieces_run_with_one_thread_each_whatever_their_size():
    def work(piece: int) -> tuple[int, int, int]:
        before = torch.get_num_threads()
        with threads_for(LARGE) as count:
            return piece, before, count

    assert side_by_side(work, range(5)) == [(piece, 1, 1) for piece in range(5)]
    assert torch.get_num_threads() == 3


def test_a_single_piece_runs_in_the_calling_thread_with_the_setting_as_it_is():
    assert side_by_side(lambda _: torch.get_num_threads(), [0]) == [3]
    assert side_by_side(lambda _: 0, []) == []
