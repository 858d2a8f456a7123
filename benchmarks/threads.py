"""Time the automatic number of threads against one thread and against torch's default.

    python -m benchmarks.threads [--busy] [--method paddle evidence ...] [--repeats 5]

With ``--busy`` another process keeps one core busy meanwhile. An operation that torch splits among threads then waits
for the operating system, and small operations become many times slower. The automatic choice
(``manyway.core.parallel.threads_for``) should never take more than twice the time of the better of the other two.

The table has one row per method and shape of the tasks: milliseconds with one thread, with torch's default, with the
automatic choice (the median of repetitions that alternate between the three), the number of threads that it chose, and
its time divided by the better of the other two. Features are random, d = 256.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from statistics import median

import torch

from benchmarks.features import make_features
from benchmarks.measure import show
from manyway import METHODS, TaskSpec, sample_tasks, solve
from manyway.core.parallel import threads_for

# K, shots, |Q|, tasks
SHAPES = [(20, 5, 75, 1), (160, 20, 75, 1), (160, 20, 75, 8), (160, 5, 75, 64), (1000, 5, 300, 4), (1000, 5, 5000, 1)]
FAST = ("paddle", "evidence", "simpleshot", "laplacianshot", "bd-cspn")


@contextmanager
def busy_core() -> Iterator[None]:
    """Another process that computes without pause."""
    spinner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        spinner.kill()
        spinner.wait()


def rows(methods: Sequence[str], repeats: int, busy: bool) -> Iterator[list[object]]:
    default = torch.get_num_threads()
    for n_classes, shots, n_query, n_tasks in SHAPES:
        k_eff = max(5, n_query // 30)
        features = make_features(n_classes, shots + 40, 256)
        tasks = sample_tasks(features, TaskSpec(shots=shots, k_eff=k_eff, n_query=n_query), count=n_tasks)
        numbers = n_query * n_classes
        for method in methods:
            times: dict[str, list[float]] = {"one": [], "all": [], "chosen": []}
            with threads_for(numbers) as chosen:
                solve(method, tasks)
            for _ in range(repeats):
                for way, found in times.items():
                    torch.set_num_threads(1 if way == "one" else default)
                    # `solve` chooses the number of threads itself; the solver as such takes torch's setting.
                    run = partial(solve, method) if way == "chosen" else METHODS[method].solver
                    with busy_core() if busy else nullcontext(), torch.no_grad():
                        begin = time.perf_counter()
                        run(tasks)
                        found.append(time.perf_counter() - begin)
            torch.set_num_threads(default)
            one, every, ours = (1e3 * median(found) for found in times.values())
            yield [
                method,
                n_classes,
                shots,
                n_query,
                n_tasks,
                one,
                every,
                ours,
                chosen,
                f"{ours / min(one, every):.2f}",
            ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", action="store_true", help="keep one core busy with another process")
    parser.add_argument("--method", nargs="*", choices=list(METHODS), default=FAST, help="default: the fast methods")
    parser.add_argument("--repeats", type=int, default=5, help="repetitions of each measurement (default: 5)")
    options = parser.parse_args()
    title = f"Threads: 1, {torch.get_num_threads()}, and chosen, {'one core busy' if options.busy else 'quiet'}"
    header = ["method", "K", "shots", "queries", "tasks", "one, ms", "default, ms", "chosen, ms", "threads"]
    show(title, [*header, "chosen / better"], rows(options.method, options.repeats, options.busy))


if __name__ == "__main__":
    main()
