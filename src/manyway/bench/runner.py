"""Run an experiment, or many, on this machine. What is done is kept after every few seconds of work."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, Protocol

import torch

import manyway
from manyway.bench.plan import Job, now
from manyway.bench.store import Partial, Record, Store, StoreError, full_params
from manyway.bench.trace import follow
from manyway.data.features import FeatureSet
from manyway.evaluation.evaluator import chunk_size, evaluate

SAVE_EVERY = 2.0  # seconds of work that a kill may cost, beside the chunks in flight


@dataclass(frozen=True)
class Failure:
    """An experiment that could not be done. It is reported and never stored."""

    job: Job
    error: str


class Watcher(Protocol):
    """Who wants to know how a run goes on (a progress bar)."""

    def begin(self, job: Job, done: int) -> None: ...

    def advance(self, job: Job, tasks: int) -> None: ...

    def end(self, job: Job) -> None: ...


def run_jobs(jobs: Sequence[Job], store: Store, device: str | None, watcher: Watcher) -> list[Failure]:
    """Do the jobs one by one. One that fails does not stop the others; a folder that cannot be written does."""
    failures = []
    for job in jobs:
        try:
            run_job(job, store, device, watcher)
        except (StoreError, KeyboardInterrupt):
            raise
        except Exception as error:  # a method may fail in any way; the next one is to run all the same
            failures.append(Failure(job, describe(error)))
        watcher.end(job)
    return failures


def run_job(job: Job, store: Store, device: str | None, watcher: Watcher) -> None:
    """Do one job from where it was left, and store its result."""
    experiment = job.experiment
    features = job.features.to(device=device)
    if experiment.trace is not None:
        watcher.begin(job, 0)
        begin = time.perf_counter()
        outcome = follow(features, experiment)
        watcher.advance(job, experiment.n_tasks)
        store.write(finished(job, outcome, time.perf_counter() - begin, 1, place_of(features)))
        return
    partial = left_over(job, store, features.features.device.type)
    watcher.begin(job, partial.n_done)
    partial = _evaluate(job, store, features, partial, lambda tasks: watcher.advance(job, tasks))
    store.write(accuracy_record(job, partial, place_of(features)))


def left_over(job: Job, store: Store, kind: str) -> Partial:
    """What an earlier run left of this job, if it was cut into the same chunks on such a device; else nothing."""
    chunk = chunk_size(job.experiment.method, job.features, job.experiment.task, kind)
    partial = store.partial(job.key)
    return partial if partial is not None and (partial.chunk, partial.device) == (chunk, kind) else Partial(chunk, kind)


def _evaluate(
    job: Job, store: Store, features: FeatureSet, partial: Partial, progress: Callable[[int], None]
) -> Partial:
    """All missing tasks. Stretches are whole chunks, so the arithmetic is the same wherever a run was interrupted."""
    experiment = job.experiment
    side_by_side = torch.get_num_threads() if partial.device == "cpu" else 1
    stretch = partial.chunk * side_by_side
    saved_at, unsaved = time.perf_counter(), False
    try:
        for first, end in partial.gaps(experiment.n_tasks):
            while first < end:
                count = min(stretch, end - first)
                begin = time.perf_counter()
                part = evaluate(
                    experiment.method,
                    features,
                    experiment.task,
                    count,
                    experiment.seed,
                    start=first,
                    progress=progress,
                    **experiment.params,
                )
                clock = time.perf_counter()
                partial = partial.add(first, part.correct.tolist(), part.seconds)
                first, unsaved = first + count, True
                rounds = max(1, int(SAVE_EVERY / (clock - begin) * count / (partial.chunk * side_by_side)))
                stretch = partial.chunk * side_by_side * rounds
                if clock - saved_at > SAVE_EVERY and partial.n_done < experiment.n_tasks:
                    store.write_partial(job.key, partial)
                    saved_at, unsaved = clock, False
    except (KeyboardInterrupt, RuntimeError, MemoryError):
        if unsaved:
            store.write_partial(job.key, partial)
        raise
    return partial


@dataclass(frozen=True)
class Place:
    """Where an experiment ran."""

    device: str  # cpu or cuda
    name: str  # of the GPU, or the processor's architecture


def place_of(features: FeatureSet) -> Place:
    """Where these features are."""
    device = features.features.device
    return Place(device.type, torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine())


def accuracy_record(job: Job, partial: Partial, place: Place) -> Record:
    """The record of a job whose tasks are all done."""
    outcome = {"n_query": job.experiment.task.n_query, "correct": partial.correct()}
    return finished(job, outcome, partial.seconds, partial.chunk, place)


def finished(job: Job, outcome: dict[str, Any], seconds: float, chunk: int, place: Place) -> Record:
    """A record with everything that was asked and everything that produced it."""
    experiment = job.experiment
    return Record(
        key=job.key,
        method=experiment.method,
        params=full_params(experiment),
        features={
            "name": experiment.features,
            "fingerprint": job.features.fingerprint,
            "n_samples": len(job.features.labels),
            "n_classes": job.features.n_classes,
            "n_features": job.features.features.shape[1],
            "dtype": str(job.features.features.dtype).removeprefix("torch."),
            "meta": dict(job.features.meta),
        },
        task=asdict(experiment.task),
        seed=experiment.seed,
        n_tasks=experiment.n_tasks,
        trace=None if experiment.trace is None else asdict(experiment.trace),
        outcome=outcome,
        provenance={
            "device": place.device,
            "device_name": place.name,
            "chunk": chunk,
            "versions": {
                "manyway": manyway.__version__,
                "python": platform.python_version(),
                **{name: version(name) for name in ("torch", "numpy", "scikit-learn")},
            },
        },
        timing={"seconds": round(seconds, 6), "finished": now()},
    )


def describe(error: BaseException) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())
    return text if type(error).__module__.startswith("manyway") else f"{type(error).__name__}: {text}"
