"""Run experiments, block by block of tasks. Finished tasks are stored every few seconds.

Where the blocks run (``Pool``), in this process, in several on one machine or on a Dask cluster, changes no bit of the
result: a task depends on (seed, number) alone, blocks are whole chunks, and a chunk's arithmetic does not depend on
which process computes it. Joblib's Dask backend would not do: it stops everything when one call fails, and knows
nothing of lost workers.
"""

import platform
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

import manyway
from manyway.bench import records
from manyway.bench.baselines import get_method
from manyway.bench.plan import Job
from manyway.bench.records import (
    Outcome,
    Partial,
    Provenance,
    Record,
    Store,
    StoreError,
    Stretch,
    now,
)
from manyway.bench.suite import Experiment
from manyway.bench.trace import follow
from manyway.core import connect
from manyway.errors import InputError
from manyway.evaluation import METRICS, SCORERS, Evaluation, chunk_size, evaluate
from manyway.sampling import FeatureSet

SAVE_EVERY = 2.0  # seconds of work that a kill may cost, besides the blocks that are being solved
_BLOCK = 100  # tasks per block, about: many compared with the cost of a message, few to lose with a worker
_TRIES = 5  # how often a block may be lost with its worker before the experiment fails
Watcher = Callable[
    [Job, int], None
]  # is told how many more tasks of a job are done, or will not be (a progress bar)
Answer = tuple[Stretch, float, Provenance]  # metrics, seconds in the solver, where it ran
Block = tuple[Job, int, int, int]  # job, first task, count, tries so far


class Failure(NamedTuple):
    """An experiment that failed. It is reported and nothing of it is stored."""

    job: Job
    error: str


class Pool(NamedTuple):
    """Where blocks of tasks are solved."""

    submit: Callable[..., Future[Answer]]
    threads: int  # of torch, for one block
    hand_over: Callable[[FeatureSet, bool], Any] = lambda features, again: (
        features
    )  # as ``solve_block`` takes them
    block: int = 1  # tasks per block, about; whole chunks, ``lanes`` of them at least
    lanes: int = 1  # chunks of a block that run at the same time
    in_flight: int = 1  # blocks


@contextmanager
def _open_pool(device: str | None, n_jobs: int, dask: str | None) -> Iterator[Pool]:
    """The workers of a Dask cluster, several processes, or this process, one block after the other."""
    if dask is not None:
        with connect(dask) as client:
            yield _on_dask(client)
    elif n_jobs > 1:
        from joblib.externals.loky import ProcessPoolExecutor

        processes = ProcessPoolExecutor(n_jobs)
        with TemporaryDirectory(prefix="manyway-") as folder:
            try:
                yield _in_processes(processes.submit, n_jobs, Path(folder))
            finally:
                processes.shutdown(kill_workers=True)
    else:
        threads = torch.get_num_threads()
        yield Pool(_do_now, threads, lanes=threads if _kind(device) == "cpu" else 1)


def _do_now(work: Callable[..., Answer], *arguments: Any) -> Future[Answer]:
    future: Future[Answer] = Future()
    try:
        future.set_result(work(*arguments))
    except Exception as error:
        future.set_exception(error)
    return future


def _in_processes(submit: Callable[..., Future[Answer]], n_jobs: int, folder: Path) -> Pool:
    """Processes that share the features through a memory-mapped file."""

    def hand_over(features: FeatureSet, again: bool) -> Path:
        path = folder / f"{features.fingerprint}.safetensors"
        if not path.exists():
            features.save(path)
        return path

    return Pool(
        submit, max(1, torch.get_num_threads() // n_jobs), hand_over, _BLOCK, in_flight=2 * n_jobs
    )


def _on_dask(client: Any) -> Pool:
    """Workers, each thread of which solves one block at a time. A block whose worker dies is run again on another."""
    for worker, theirs in client.run(lambda: manyway.__version__).items():
        if theirs != (ours := manyway.__version__):
            raise InputError(
                f"The Dask worker {worker} has manyway {theirs}, here is {ours}; install the same."
            )
    sent: dict[str, Any] = {}

    def hand_over(features: FeatureSet, again: bool) -> Any:
        if (
            again or features.fingerprint not in sent
        ):  # the copies may have been lost with the worker, too
            sent[features.fingerprint] = client.scatter(features, broadcast=True, hash=False)
        return sent[features.fingerprint]

    return Pool(client.get_executor(pure=False).submit, 1, hand_over, _BLOCK, in_flight=1000)


def run_jobs(
    jobs: Sequence[Job],
    store: Store,
    device: str | None,
    watcher: Watcher,
    *,
    n_jobs: int = 1,
    dask: str | None = None,
) -> list[Failure]:
    """Run the jobs from where they were stopped, and store their results.

    Blocks run in ``n_jobs`` processes, or on the workers of the Dask scheduler with the address ``dask``. A failure
    does not stop the others; a folder that cannot be written does. Blocks are whole chunks, so that the arithmetic does
    not depend on interruptions. Traces measure time: they run last, alone, in this process.
    """
    with _open_pool(device, n_jobs, dask) as pool:
        return _run(jobs, store, device, watcher, pool)


def _run(
    jobs: Sequence[Job], store: Store, device: str | None, watcher: Watcher, pool: Pool
) -> list[Failure]:
    finished: SimpleQueue[Future[Answer]] = SimpleQueue()
    again: deque[Block] = deque()  # blocks that were lost with their worker
    blocks: dict[Future[Answer], Block] = {}
    partials: dict[str, Partial] = {}
    saved: dict[str, float] = {}
    failed: dict[str, Failure] = {}

    def fail(job: Job, error: BaseException) -> None:
        text, ours = " ".join(str(error).split()), type(error).__module__.startswith("manyway")
        failed[job.key] = Failure(job, text if ours else f"{type(error).__name__}: {text}")
        partial = partials.pop(job.key, None)
        watcher(job, job.experiment.n_tasks - (partial.n_done if partial else 0))

    def blocks_of(job: Job) -> Iterator[Block]:
        partial = partials[job.key] = _left_over(job, store, _kind(device))
        saved[job.key] = time.perf_counter()
        watcher(job, partial.n_done)
        unit = partial.chunk * pool.lanes
        size = unit * max(1, round(pool.block / unit))
        for start, end in partial.gaps(job.experiment.n_tasks):
            yield from (
                (job, first, min(size, end - first), 0) for first in range(start, end, size)
            )

    def all_blocks() -> Iterator[Block]:
        for job in (job for job in jobs if job.experiment.trace is None):
            try:
                yield from blocks_of(job)
            except InputError as error:
                fail(job, error)

    def send(block: Block) -> None:
        job, first, count, tries = block
        features = pool.hand_over(job.features, tries > 0)
        future = pool.submit(
            solve_block, features, job.experiment, first, count, device, pool.threads
        )
        blocks[future] = block
        future.add_done_callback(finished.put)

    def take(job: Job, first: int, answer: Answer) -> None:
        stretch, seconds, made = answer
        partial = partials[job.key] = partials[job.key].add(first, stretch, seconds)
        watcher(job, len(stretch["accuracy"]))
        if partial.n_done == job.experiment.n_tasks:
            (values,) = partial.done.values()
            metrics = {name: of for name, of in values.items() if name != "accuracy"}
            outcome = Outcome(
                n_query=job.experiment.task.n_known, correct=values["accuracy"], metrics=metrics
            )
            made = made.model_copy(update={"chunk": partial.chunk})
            store.write(_finished(job, outcome, partial.seconds, made))
        elif time.perf_counter() - saved[job.key] > SAVE_EVERY:
            store.write_partial(job.key, partial)
            saved[job.key] = time.perf_counter()

    waiting = all_blocks()
    try:
        while True:
            while len(blocks) < pool.in_flight and (
                block := again.popleft() if again else next(waiting, None)
            ):
                if block[0].key not in failed:
                    send(block)
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
            except Exception as error:  # a method may fail in any way; the others still run
                lost = isinstance(error, CancelledError) or type(error).__name__ == "KilledWorker"
                if lost and tries + 1 < _TRIES:  # with its worker, rather than failing itself
                    again.append((job, first, count, tries + 1))
                else:
                    fail(job, error)
    except KeyboardInterrupt:
        for job in jobs:
            if (partial := partials.get(job.key)) and 0 < partial.n_done < job.experiment.n_tasks:
                store.write_partial(job.key, partial)
        raise
    for job in (job for job in jobs if job.experiment.trace is not None):
        try:
            features, begin = _on_device(job.features, device), time.perf_counter()
            outcome = follow(features, job.experiment)
            store.write(_finished(job, outcome, time.perf_counter() - begin, _provenance(features)))
            watcher(job, job.experiment.n_tasks)
        except StoreError:
            raise
        except Exception as error:
            fail(job, error)
    return list(failed.values())


def solve_block(
    features: FeatureSet | Path,
    experiment: Experiment,
    first: int,
    count: int,
    device: str | None,
    threads: int,
) -> Answer:
    """Tasks first..first+count-1 of an experiment on features, or on those of a file; in whatever process."""
    torch.set_num_threads(threads)
    found = _on_device(features, device)
    result = measure(experiment, found, first, count)
    return stretch_of(result, first), result.seconds, _provenance(found)


@lru_cache(maxsize=1)  # experiments on the same features follow each other
def _on_device(features: FeatureSet | Path, device: str | None) -> FeatureSet:
    return (FeatureSet.load(features) if isinstance(features, Path) else features).to(device=device)


def _kind(device: str | None) -> str:
    return "cpu" if device is None else torch.device(device).type


def _left_over(job: Job, store: Store, kind: str) -> Partial:
    """What an earlier run left of this job, if it was cut into the same chunks on such a device; else nothing."""
    chunk = chunk_size(job.experiment.solver, job.features, job.experiment.task, kind)
    partial = store.partial(job.key)
    if partial is None or (partial.chunk, partial.device) != (chunk, kind):
        return Partial(chunk=chunk, device=kind)
    return partial


def measure(experiment: Experiment, features: FeatureSet, first: int, count: int) -> Evaluation:
    """Tasks first..first+count-1 of an experiment."""
    what = experiment.solver, features, experiment.spec, count, experiment.seed
    asked = {"metrics": experiment.metrics, "scorer": experiment.scorer, **experiment.params}
    return evaluate(*what, start=first, **asked)


_TRIAL, _LONG = 4, 1.0  # tasks that are tried; seconds of a task that needs no second trial


def estimates(jobs: Sequence[Job], store: Store, device: str | None) -> list[float | None]:
    """Seconds that each job will take, by running a few tasks; None for a job that cannot be tried.

    Each method is tried once per shape of task.
    """
    tried: dict[tuple[object, ...], float | None] = {}
    answers: list[float | None] = []
    for job in jobs:
        experiment, task = job.experiment, job.experiment.task
        sizes = (
            task.shots,
            task.n_queries,
            task.n_ways,
            task.n_batches,
            task.n_answers,
            task.reviewer,
        )
        shape = (experiment.solver, job.features.fingerprint, *sizes)
        if shape not in tried:
            tried[shape] = _try(job, device)
        rate, partial = tried[shape], store.partial(job.key)
        left = experiment.n_tasks - (0 if partial is None else partial.n_done)
        answers.append(None if rate is None or experiment.trace is not None else rate * left)
    return answers


def _try(job: Job, device: str | None) -> float | None:
    try:
        for n_tasks in (1, _TRIAL):  # the first call also loads code
            result = measure(job.experiment, _on_device(job.features, device), 0, n_tasks)
            if result.seconds > _LONG:
                break
    except (InputError, RuntimeError):
        return None
    return result.seconds / n_tasks


def stretch_of(result: Evaluation, first: int) -> Stretch:
    """What is kept of some tasks in a row."""
    values = {"accuracy": result.correct, **result.metrics}
    return {name: METRICS[name].stored(of, first) for name, of in values.items()}


def _provenance(features: FeatureSet) -> Provenance:
    """What produces a result here, where the features are."""
    device = features.features.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return Provenance(device=device.type, device_name=name, chunk=1, versions={**_versions()})


@cache
def _versions() -> dict[str, str]:
    libraries = {name: version(name) for name in ("torch", "numpy", "scikit-learn")}
    return {"manyway": manyway.__version__, "python": platform.python_version(), **libraries}


def _finished(job: Job, outcome: Outcome, seconds: float, made: Provenance) -> Record:
    """A record with the request, the outcome and what produced it."""
    experiment, table = job.experiment, job.features.features
    about: dict[str, Any] = {"name": experiment.features, "n_classes": job.features.n_classes}
    about |= {
        "n_samples": len(table),
        "n_features": table.shape[1],
        "dtype": str(table.dtype).removeprefix("torch."),
    }
    about |= {"fingerprint": job.features.fingerprint, "meta": dict(job.features.meta)}
    unknown = None if experiment.strangers is None else experiment.strangers.fingerprint
    return Record(
        **records.request(experiment, job.key),
        version=get_method(experiment.method).version,
        scorer_version=None if experiment.scorer is None else SCORERS[experiment.scorer].version,
        special=records.special_params(experiment),
        features=records.Features(**about, unknown_fingerprint=unknown),
        trace=None if experiment.trace is None else experiment.trace.model_dump(),
        outcome=outcome,
        provenance=made,
        timing=records.Timing(seconds=round(seconds, 6), finished=now()),
    )
