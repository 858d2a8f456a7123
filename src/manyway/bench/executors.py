"""Several experiments at the same time on one machine (joblib), or blocks of tasks on a Dask cluster.

Both give the same bits as a plain run: a task depends on (seed, number) alone, blocks are whole chunks, and a chunk's
arithmetic does not depend on which process computes it. Traces measure time, so they run alone in this process, last.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import CancelledError
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import manyway
from manyway.bench.plan import Job
from manyway.bench.records import Stretch
from manyway.bench.runner import (
    SAVE_EVERY,
    Failure,
    Place,
    Watcher,
    accuracy_record,
    describe,
    left_over,
    measure,
    place_of,
    run_job,
    run_jobs,
    stretch_of,
)
from manyway.bench.store import Partial, Store, StoreError
from manyway.bench.suite import Experiment
from manyway.core.dask import connect, distributed
from manyway.errors import InputError
from manyway.sampling.features import FeatureSet

_BLOCK = 100  # tasks per block, about: many compared with the cost of a message, few to lose with a worker
_TRIES = 5  # how often a block may be lost with its worker before the experiment fails
Answer = tuple[Stretch, float, Place]  # metrics, seconds in the solver, where it ran


def run_side_by_side(
    jobs: Sequence[Job], store: Store, device: str | None, n_jobs: int, watcher: Watcher
) -> list[Failure]:
    """Run whole experiments in ``n_jobs`` processes, which share the features through a memory-mapped file."""
    from joblib import Parallel, delayed

    timed = [job for job in jobs if job.experiment.trace is not None]
    jobs = [job for job in jobs if job.experiment.trace is None]
    threads = max(1, torch.get_num_threads() // n_jobs)
    failures = []
    with TemporaryDirectory(prefix="manyway-") as folder:
        for job in jobs:
            path = Path(folder) / f"{job.features.fingerprint}.safetensors"
            if not path.exists():
                job.features.save(path)
            watcher.begin(job, 0)
        calls = [
            delayed(_whole)(
                i,
                job.key,
                job.experiment,
                Path(folder) / f"{job.features.fingerprint}.safetensors",
                store,
                device,
                threads,
            )
            for i, job in enumerate(jobs)
        ]
        for i, error, fatal in Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)(calls):
            if fatal:
                raise StoreError(error)
            if error:
                failures.append(Failure(jobs[i], error))
            else:
                watcher.advance(jobs[i], jobs[i].experiment.n_tasks)
            watcher.end(jobs[i])
    return failures + run_jobs(timed, store, device, watcher)


def _whole(
    place: int, key: str, experiment: Experiment, path: Path, store: Store, device: str | None, threads: int
) -> tuple[int, str, bool]:
    """In another process: one experiment. Errors come back as text, because not every exception can be pickled."""
    torch.set_num_threads(threads)
    try:
        run_job(Job(key, experiment, _load(path)), store, device, _Silent())
    except StoreError as error:
        return place, str(error), True
    except Exception as error:
        return place, describe(error), False
    return place, "", False


@lru_cache(maxsize=4)
def _load(path: Path) -> FeatureSet:
    return FeatureSet.load(path)


class _Silent:
    """A watcher that ignores everything."""

    def begin(self, job: Job, done: int) -> None: ...

    def advance(self, job: Job, tasks: int) -> None: ...

    def end(self, job: Job) -> None: ...


def run_on_dask(jobs: Sequence[Job], store: Store, address: str, device: str | None, watcher: Watcher) -> list[Failure]:
    """Run blocks of tasks on the workers of a Dask cluster. A block whose worker dies is run again on another."""
    kind = "cpu" if device is None else torch.device(device).type
    timed = [job for job in jobs if job.experiment.trace is not None]
    jobs = [job for job in jobs if job.experiment.trace is None]
    with connect(address) as client:
        _refuse_other_versions(client)
        run = _DaskRun(client, store, device, kind, watcher)
        for job in jobs:
            run.submit(job)
        failures = run.wait()
    return failures + run_jobs(timed, store, device, watcher)


class _DaskRun:
    """Experiments in flight on a cluster."""

    def __init__(self, client: Any, store: Store, device: str | None, kind: str, watcher: Watcher) -> None:
        self._client, self._store, self._device, self._kind, self._watcher = client, store, device, kind, watcher
        self._features: dict[str, Any] = {}  # fingerprint -> the copy on the cluster
        self._partial: dict[str, Partial] = {}
        self._saved: dict[str, float] = {}
        self._blocks: dict[Any, tuple[Job, int, int, int]] = {}  # future -> job, first, count, tries so far
        self._failed: dict[str, Failure] = {}

    def submit(self, job: Job) -> None:
        """Submit all blocks of a job that are not done yet."""
        partial = left_over(job, self._store, self._kind)
        self._partial[job.key], self._saved[job.key] = partial, time.perf_counter()
        self._watcher.begin(job, partial.n_done)
        size = partial.chunk * max(1, round(_BLOCK / partial.chunk))
        for start, end in partial.gaps(job.experiment.n_tasks):
            for first in range(start, end, size):
                self._submit_block(job, first, min(size, end - first), 0)

    def wait(self) -> list[Failure]:
        """Collect blocks as they finish, until every job is stored or has failed."""
        waiting = distributed().as_completed(self._blocks)
        for future in waiting:
            job, first, count, tries = self._blocks.pop(future)
            if job.key in self._failed:
                continue
            try:
                answer = future.result()
            except Exception as error:
                if _was_lost(error) and tries + 1 < _TRIES:
                    # The features may have been lost with the worker, too: they are sent again.
                    self._features.pop(job.features.fingerprint, None)
                    waiting.add(self._submit_block(job, first, count, tries + 1))
                else:
                    self._failed[job.key] = Failure(job, describe(error))
                    self._watcher.end(job)
                continue
            self._take(job, first, answer)
        return list(self._failed.values())

    def _submit_block(self, job: Job, first: int, count: int, tries: int) -> Any:
        fingerprint = job.features.fingerprint
        if fingerprint not in self._features:
            self._features[fingerprint] = self._client.scatter(job.features, broadcast=True, hash=False)
        arguments = self._features[fingerprint], job.experiment, first, count, self._device
        future = self._client.submit(solve_block, *arguments, pure=False)
        self._blocks[future] = job, first, count, tries
        return future

    def _take(self, job: Job, first: int, answer: Answer) -> None:
        stretch, seconds, place = answer
        partial = self._partial[job.key] = self._partial[job.key].add(first, stretch, seconds)
        self._watcher.advance(job, len(stretch["accuracy"]))
        clock = time.perf_counter()
        if partial.n_done == job.experiment.n_tasks:
            self._store.write(accuracy_record(job, partial, place))
            self._watcher.end(job)
        elif clock - self._saved[job.key] > SAVE_EVERY:
            self._store.write_partial(job.key, partial)
            self._saved[job.key] = clock


def solve_block(features: FeatureSet, experiment: Experiment, first: int, count: int, device: str | None) -> Answer:
    """On a worker: tasks first..first+count-1 of an experiment. Each thread of a worker solves one block at a time."""
    torch.set_num_threads(1)
    features = features.to(device=device)
    result = measure(experiment, features, first, count)
    return stretch_of(result, first), result.seconds, place_of(features)


def _refuse_other_versions(client: Any) -> None:
    ours = manyway.__version__
    for worker, theirs in client.run(_version).items():
        if theirs != ours:
            raise InputError(f"The Dask worker {worker} has manyway {theirs}, here is {ours}; install the same.")


def _version() -> str:
    return manyway.__version__


def _was_lost(error: BaseException) -> bool:
    """Whether a block was lost with its worker, rather than failing itself."""
    return isinstance(error, (CancelledError, distributed().KilledWorker))
