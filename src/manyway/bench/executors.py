"""Blocks of tasks in several processes on one machine, or on a Dask cluster.

Both give the same bits as a plain run: a task depends on (seed, number) alone, blocks are whole chunks, and a chunk's
arithmetic does not depend on which process computes it. Traces measure time, so they run alone in this process, last.

Joblib's Dask backend would not do: it stops everything when one call fails, and knows nothing of lost workers.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from functools import lru_cache
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any

import torch

import manyway
from manyway.bench.plan import Job
from manyway.bench.records import Partial, Provenance, Stretch
from manyway.bench.runner import (
    SAVE_EVERY,
    Failure,
    Watcher,
    describe,
    done_record,
    left_over,
    measure,
    provenance,
    run_jobs,
    stretch_of,
)
from manyway.bench.store import Store, StoreError
from manyway.bench.suite import Experiment
from manyway.core.dask import connect
from manyway.errors import InputError
from manyway.sampling.features import FeatureSet

_BLOCK = 100  # tasks per block, about: many compared with the cost of a message, few to lose with a worker
_TRIES = 5  # how often a block may be lost with its worker before the experiment fails
Answer = tuple[Stretch, float, Provenance]  # metrics, seconds in the solver, where it ran


def run_side_by_side(
    jobs: Sequence[Job], store: Store, device: str | None, n_jobs: int, watcher: Watcher
) -> list[Failure]:
    """Run blocks in ``n_jobs`` processes, which share the features through a memory-mapped file."""
    from joblib.externals.loky import ProcessPoolExecutor

    pool = ProcessPoolExecutor(n_jobs)
    with TemporaryDirectory(prefix="manyway-") as folder:

        def hand_over(features: FeatureSet, again: bool) -> Path:
            path = Path(folder) / f"{features.fingerprint}.safetensors"
            if not path.exists():
                features.save(path)
            return path

        try:
            threads = max(1, torch.get_num_threads() // n_jobs)
            return _run(jobs, store, device, watcher, pool, hand_over, threads, in_flight=2 * n_jobs)
        finally:
            pool.shutdown(kill_workers=True)


def run_on_dask(jobs: Sequence[Job], store: Store, address: str, device: str | None, watcher: Watcher) -> list[Failure]:
    """Run blocks on the workers of a Dask cluster. A block whose worker dies is run again on another."""
    with connect(address) as client:
        for worker, theirs in client.run(lambda: manyway.__version__).items():
            if theirs != (ours := manyway.__version__):
                raise InputError(f"The Dask worker {worker} has manyway {theirs}, here is {ours}; install the same.")
        sent: dict[str, Any] = {}

        def hand_over(features: FeatureSet, again: bool) -> Any:
            if again or features.fingerprint not in sent:  # the copies may have been lost with the worker, too
                sent[features.fingerprint] = client.scatter(features, broadcast=True, hash=False)
            return sent[features.fingerprint]

        # Each thread of a worker solves one block at a time.
        return _run(jobs, store, device, watcher, client.get_executor(pure=False), hand_over, 1, in_flight=1000)


def _run(
    jobs: Sequence[Job],
    store: Store,
    device: str | None,
    watcher: Watcher,
    pool: Any,
    hand_over: Callable[[FeatureSet, bool], Any],
    threads: int,
    in_flight: int,
) -> list[Failure]:
    """Have blocks solved and collect them as they finish, until every job is stored or has failed; then run traces."""
    kind = "cpu" if device is None else torch.device(device).type
    finished: SimpleQueue[Future[Answer]] = SimpleQueue()
    waiting: deque[tuple[Job, int, int, int]] = deque()  # job, first task, count, tries so far
    blocks: dict[Future[Answer], tuple[Job, int, int, int]] = {}
    partials: dict[str, Partial] = {}
    saved: dict[str, float] = {}
    failed: dict[str, Failure] = {}

    def send(job: Job, first: int, count: int, tries: int) -> None:
        features = hand_over(job.features, tries > 0)
        future = pool.submit(solve_block, features, job.experiment, first, count, device, threads)
        blocks[future] = job, first, count, tries
        future.add_done_callback(finished.put)

    def fail(job: Job, error: BaseException) -> None:
        failed[job.key] = Failure(job, describe(error))
        partials.pop(job.key, None)
        watcher.end(job)

    def begin(job: Job) -> None:
        partial = partials[job.key] = left_over(job, store, kind)
        saved[job.key] = time.perf_counter()
        watcher.begin(job, partial.n_done)
        size = partial.chunk * max(1, round(_BLOCK / partial.chunk))
        for start, end in partial.gaps(job.experiment.n_tasks):
            waiting.extend((job, first, min(size, end - first), 0) for first in range(start, end, size))

    def take(job: Job, first: int, answer: Answer) -> None:
        stretch, seconds, made = answer
        partial = partials[job.key] = partials[job.key].add(first, stretch, seconds)
        watcher.advance(job, len(stretch["accuracy"]))
        if partial.n_done == job.experiment.n_tasks:
            store.write(done_record(job, partial, made.model_copy(update={"chunk": partial.chunk})))
            watcher.end(job)
        elif time.perf_counter() - saved[job.key] > SAVE_EVERY:
            store.write_partial(job.key, partial)
            saved[job.key] = time.perf_counter()

    def lost(error: BaseException) -> bool:
        """Whether a block was lost with its worker, rather than failing itself."""
        return isinstance(error, CancelledError) or type(error).__name__ == "KilledWorker"

    try:
        for job in (job for job in jobs if job.experiment.trace is None):
            try:
                begin(job)
            except InputError as error:
                fail(job, error)
        while waiting or blocks:
            while waiting and len(blocks) < in_flight:
                block = waiting.popleft()
                if block[0].key not in failed:
                    send(*block)
            if not blocks:
                break
            future = finished.get()
            job, first, count, tries = blocks.pop(future)
            if job.key in failed:
                continue
            try:
                take(job, first, future.result())
            except StoreError:
                raise
            except Exception as error:
                if lost(error) and tries + 1 < _TRIES:
                    waiting.appendleft((job, first, count, tries + 1))
                else:
                    fail(job, error)
    except KeyboardInterrupt:
        for job in jobs:
            if (partial := partials.get(job.key)) and 0 < partial.n_done < job.experiment.n_tasks:
                store.write_partial(job.key, partial)
        raise
    timed = [job for job in jobs if job.experiment.trace is not None]
    return [*failed.values(), *run_jobs(timed, store, device, watcher)]


def solve_block(
    features: FeatureSet | Path, experiment: Experiment, first: int, count: int, device: str | None, threads: int
) -> Answer:
    """On a worker: tasks first..first+count-1 of an experiment on features, or on those of a file."""
    torch.set_num_threads(threads)
    found = _load(features, device) if isinstance(features, Path) else features.to(device=device)
    result = measure(experiment, found, first, count)
    return stretch_of(result, first), result.seconds, provenance(found, 1)


@lru_cache(maxsize=4)
def _load(path: Path, device: str | None) -> FeatureSet:
    return FeatureSet.load(path).to(device=device)
