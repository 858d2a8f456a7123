"""Run experiments, block by block of tasks. Finished tasks are stored every few seconds.

Where the blocks run (``Workers``), in this process, in several on one machine or on a Dask cluster,
changes no bit of the result: a task depends on (seed, number) alone, blocks are whole chunks, and a
chunk's arithmetic does not depend on which process computes it. Joblib's Dask backend would not do:
it stops everything when one call fails, and knows nothing of lost workers.
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
# tasks per block, about: many compared with the cost of a message, few to lose with a worker
_BLOCK = 100
_TRIES = 5  # how often a block may be lost with its worker before the experiment fails
# is told how many more tasks of a job are done, or will not be (a progress bar)
Watcher = Callable[[Job, int], None]


class Solved(NamedTuple):
    """What a worker found on a block of tasks."""

    metrics: Stretch
    seconds: float  # in the solver
    made: Provenance  # where it ran


class _WorkUnit(NamedTuple):
    """Tasks of a job that are solved together, by one worker."""

    job: Job
    first: int  # task
    n_tasks: int
    tries: int = 0  # how often it was lost so far


class Failure(NamedTuple):
    """An experiment that failed. It is reported and nothing of it is stored."""

    job: Job
    error: str


class Workers(NamedTuple):
    """Where blocks of tasks are solved."""

    submit: Callable[..., Future[Solved]]
    threads: int  # of torch, for one block
    # as ``solve_block`` takes them
    hand_over: Callable[[FeatureSet, bool], Any] = lambda features, again: features
    block: int = 1  # tasks per block, about; whole chunks, ``lanes`` of them at least
    lanes: int = 1  # chunks of a block that run at the same time
    in_flight: int = 1  # blocks


@contextmanager
def _open_pool(device: str | None, n_jobs: int, dask: str | None) -> Iterator[Workers]:
    """Workers of a Dask cluster, several processes, or this process, block after block."""
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
        yield Workers(_do_now, threads, lanes=threads if _kind(device) == "cpu" else 1)


def _do_now(work: Callable[..., Solved], **arguments: Any) -> Future[Solved]:
    future: Future[Solved] = Future()
    try:
        future.set_result(work(**arguments))
    except Exception as error:
        future.set_exception(error)
    return future


def _in_processes(submit: Callable[..., Future[Solved]], n_jobs: int, folder: Path) -> Workers:
    """Processes that share the features through a memory-mapped file."""

    def hand_over(features: FeatureSet, again: bool) -> Path:
        path = folder / f"{features.fingerprint}.safetensors"
        if not path.exists():
            features.save(path)
        return path

    threads = max(1, torch.get_num_threads() // n_jobs)
    return Workers(submit, threads, hand_over, block=_BLOCK, in_flight=2 * n_jobs)


def _on_dask(client: Any) -> Workers:
    """Workers, each thread of which solves one block at a time.

    A block whose worker dies is run again on another.
    """
    for worker, theirs in client.run(lambda: manyway.__version__).items():
        if theirs != (ours := manyway.__version__):
            raise InputError(
                f"The Dask worker {worker} has manyway {theirs}, here is {ours}; install the same."
            )
    sent: dict[str, Any] = {}

    def hand_over(features: FeatureSet, again: bool) -> Any:
        # the copies may have been lost with the worker, too
        if again or features.fingerprint not in sent:
            sent[features.fingerprint] = client.scatter(features, broadcast=True, hash=False)
        return sent[features.fingerprint]

    submit = client.get_executor(pure=False).submit
    return Workers(submit, 1, hand_over, block=_BLOCK, in_flight=1000)


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

    Blocks run in ``n_jobs`` processes, or on the workers of the Dask scheduler with the address
    ``dask``. A failure does not stop the others; a folder that cannot be written does. Blocks are
    whole chunks, so that the arithmetic does not depend on interruptions. Traces measure time: they
    run last, alone, in this process.
    """
    with _open_pool(device, n_jobs, dask) as pool:
        return _Run(jobs, store, device, watcher, pool).run()


class _Run:
    """Jobs that are being run. It hands blocks of tasks to the workers and takes their results."""

    def __init__(
        self, jobs: Sequence[Job], store: Store, device: str | None, watcher: Watcher, pool: Workers
    ) -> None:
        self.jobs = jobs
        self.store = store
        self.device = device
        self.watcher = watcher
        self.pool = pool
        self.failed: dict[str, Failure] = {}  # by the job's key, as are the next two
        self.partials: dict[str, Partial] = {}
        self.saved: dict[str, float] = {}  # when the partial result was last written
        self.again: deque[_WorkUnit] = deque()  # those that were lost with their worker
        self.in_flight: dict[Future[Solved], _WorkUnit] = {}
        self.finished: SimpleQueue[Future[Solved]] = SimpleQueue()

    def run(self) -> list[Failure]:
        try:
            self._run_blocks()
        except KeyboardInterrupt:
            self._save_partials()
            raise
        for job in self.jobs:
            if job.experiment.trace is not None:
                self._run_trace(job)
        return list(self.failed.values())

    def _run_blocks(self) -> None:
        waiting = self._work_units()
        while True:
            self._send_some(waiting)
            if not self.in_flight:
                return
            future = self.finished.get()
            unit = self.in_flight.pop(future)
            if unit.job.key in self.failed:
                continue
            try:
                self._take(unit, future.result())
            except StoreError:
                raise
            except Exception as error:  # a method may fail in any way; the others still run
                lost = isinstance(error, CancelledError) or type(error).__name__ == "KilledWorker"
                if lost and unit.tries + 1 < _TRIES:  # with its worker, rather than failing itself
                    self.again.append(unit._replace(tries=unit.tries + 1))
                else:
                    self._fail(unit.job, error)

    def _work_units(self) -> Iterator[_WorkUnit]:
        """What is left to do of all jobs but traces."""
        for job in self.jobs:
            if job.experiment.trace is not None:
                continue
            try:
                yield from self._work_units_of(job)
            except InputError as error:
                self._fail(job, error)

    def _work_units_of(self, job: Job) -> Iterator[_WorkUnit]:
        partial = _left_over(job, self.store, _kind(self.device))
        self.partials[job.key] = partial
        self.saved[job.key] = time.perf_counter()
        self.watcher(job, partial.n_done)
        at_least = partial.chunk * self.pool.lanes
        size = at_least * max(1, round(self.pool.block / at_least))
        for start, end in partial.gaps(job.experiment.n_tasks):
            for first in range(start, end, size):
                yield _WorkUnit(job, first, min(size, end - first))

    def _send_some(self, waiting: Iterator[_WorkUnit]) -> None:
        """Keep the workers busy; what was lost comes first."""
        while len(self.in_flight) < self.pool.in_flight:
            unit = self.again.popleft() if self.again else next(waiting, None)
            if unit is None:
                return
            if unit.job.key not in self.failed:
                self._send(unit)

    def _send(self, unit: _WorkUnit) -> None:
        future = self.pool.submit(
            solve_block,
            features=self.pool.hand_over(unit.job.features, unit.tries > 0),
            experiment=unit.job.experiment,
            first=unit.first,
            count=unit.n_tasks,
            device=self.device,
            threads=self.pool.threads,
        )
        self.in_flight[future] = unit
        future.add_done_callback(self.finished.put)

    def _take(self, unit: _WorkUnit, solved: Solved) -> None:
        """Store the result of a job that is complete; of another, now and then, what there is."""
        job = unit.job
        partial = self.partials[job.key].add(unit.first, solved.metrics, solved.seconds)
        self.partials[job.key] = partial
        self.watcher(job, len(solved.metrics["accuracy"]))
        if partial.n_done == job.experiment.n_tasks:
            made = solved.made.model_copy(update={"chunk": partial.chunk})
            self.store.write(_finished(job, _outcome(job, partial), partial.seconds, made))
        elif time.perf_counter() - self.saved[job.key] > SAVE_EVERY:
            self.store.write_partial(job.key, partial)
            self.saved[job.key] = time.perf_counter()

    def _run_trace(self, job: Job) -> None:
        try:
            features = _on_device(job.features, self.device)
            begin = time.perf_counter()
            outcome = follow(features, job.experiment)
            seconds = time.perf_counter() - begin
            self.store.write(_finished(job, outcome, seconds, _provenance(features)))
            self.watcher(job, job.experiment.n_tasks)
        except StoreError:
            raise
        except Exception as error:  # as above
            self._fail(job, error)

    def _save_partials(self) -> None:
        for job in self.jobs:
            partial = self.partials.get(job.key)
            if partial is not None and 0 < partial.n_done < job.experiment.n_tasks:
                self.store.write_partial(job.key, partial)

    def _fail(self, job: Job, error: BaseException) -> None:
        text = " ".join(str(error).split())
        if not type(error).__module__.startswith("manyway"):
            text = f"{type(error).__name__}: {text}"
        self.failed[job.key] = Failure(job, text)
        partial = self.partials.pop(job.key, None)
        n_done = 0 if partial is None else partial.n_done
        self.watcher(job, job.experiment.n_tasks - n_done)


def _outcome(job: Job, partial: Partial) -> Outcome:
    """The metrics of a job of which all tasks are done."""
    (values,) = partial.done.values()
    metrics = {name: of for name, of in values.items() if name != "accuracy"}
    return Outcome(n_query=job.experiment.task.n_known, correct=values["accuracy"], metrics=metrics)


def solve_block(
    features: FeatureSet | Path,
    experiment: Experiment,
    first: int,
    count: int,
    device: str | None,
    threads: int,
) -> Solved:
    """Tasks first..first+count-1 of an experiment on features, or on those of a file.

    Any process may do it.
    """
    torch.set_num_threads(threads)
    found = _on_device(features, device)
    result = measure(experiment, found, first, count)
    return Solved(stretch_of(result, first), result.seconds, _provenance(found))


@lru_cache(maxsize=1)  # experiments on the same features follow each other
def _on_device(features: FeatureSet | Path, device: str | None) -> FeatureSet:
    return (FeatureSet.load(features) if isinstance(features, Path) else features).to(device=device)


def _kind(device: str | None) -> str:
    return "cpu" if device is None else torch.device(device).type


def _left_over(job: Job, store: Store, kind: str) -> Partial:
    """What an earlier run left of this job; nothing if it cannot be used.

    It can be used if it was cut into the same chunks on such a device.
    """
    chunk = chunk_size(job.experiment.solver, job.features, job.experiment.task, kind)
    partial = store.partial(job.key)
    if partial is None or (partial.chunk, partial.device) != (chunk, kind):
        return Partial(chunk=chunk, device=kind)
    return partial


def measure(experiment: Experiment, features: FeatureSet, first: int, count: int) -> Evaluation:
    """Tasks first..first+count-1 of an experiment."""
    return evaluate(
        experiment.solver,
        features,
        experiment.spec,
        n_tasks=count,
        seed=experiment.seed,
        start=first,
        metrics=experiment.metrics,
        scorer=experiment.scorer,
        **experiment.params,
    )


_TRIAL = 4  # tasks that are tried
_LONG = 1.0  # seconds of a task that needs no second trial


def estimates(jobs: Sequence[Job], store: Store, device: str | None) -> list[float | None]:
    """Seconds that each job will take, by running a few tasks; None for a job that cannot be tried.

    Each method is tried once per shape of task.
    """
    tried: dict[tuple[object, ...], float | None] = {}
    answers: list[float | None] = []
    for job in jobs:
        shape = _shape(job)
        if shape not in tried:
            tried[shape] = _try(job, device)
        seconds_per_task = tried[shape]
        if seconds_per_task is None or job.experiment.trace is not None:
            answers.append(None)
            continue
        left = job.experiment.n_tasks
        partial = store.partial(job.key)
        if partial is not None:
            left -= partial.n_done
        answers.append(seconds_per_task * left)
    return answers


def _shape(job: Job) -> tuple[object, ...]:
    """What decides how long a task takes."""
    task = job.experiment.task
    return (
        job.experiment.solver,
        job.features.fingerprint,
        task.shots,
        task.n_queries,
        task.n_ways,
        task.n_batches,
        task.n_answers,
        task.reviewer,
    )


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
    experiment = job.experiment
    table = job.features.features
    strangers = experiment.strangers
    features = records.Features(
        name=experiment.features,
        n_classes=job.features.n_classes,
        n_samples=len(table),
        n_features=table.shape[1],
        dtype=str(table.dtype).removeprefix("torch."),
        fingerprint=job.features.fingerprint,
        meta=dict(job.features.meta),
        unknown_fingerprint=None if strangers is None else strangers.fingerprint,
    )
    return Record(
        **records.request(experiment, job.key),
        version=get_method(experiment.method).version,
        scorer_version=None if experiment.scorer is None else SCORERS[experiment.scorer].version,
        special=records.special_params(experiment),
        features=features,
        trace=None if experiment.trace is None else experiment.trace.model_dump(),
        outcome=outcome,
        provenance=made,
        timing=records.Timing(seconds=round(seconds, 6), finished=now()),
    )
