"""Run experiments on this machine. Finished tasks are stored every few seconds."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Protocol

import torch

import manyway
from manyway.bench.plan import Job
from manyway.bench.records import (
    Features,
    Outcome,
    Partial,
    Provenance,
    Record,
    Stretch,
    Timing,
    request,
    special_params,
)
from manyway.bench.store import Store, StoreError, now
from manyway.bench.suite import Experiment
from manyway.bench.trace import follow
from manyway.evaluation.evaluator import Evaluation, chunk_size, evaluate
from manyway.evaluation.metrics import METRICS
from manyway.evaluation.scorers import SCORERS
from manyway.methods import get_method
from manyway.sampling.features import FeatureSet

SAVE_EVERY = 2.0  # seconds of work that a kill may cost, besides the chunks that are being solved


@dataclass(frozen=True)
class Failure:
    """An experiment that failed. It is reported and nothing of it is stored."""

    job: Job
    error: str


class Watcher(Protocol):
    """Is told about the progress of a run (a progress bar)."""

    def begin(self, job: Job, done: int) -> None: ...

    def advance(self, job: Job, tasks: int) -> None: ...

    def end(self, job: Job) -> None: ...


def run_jobs(jobs: Sequence[Job], store: Store, device: str | None, watcher: Watcher) -> list[Failure]:
    """Run the jobs one by one. A failure does not stop the others; a folder that cannot be written does."""
    failures = []
    for job in jobs:
        try:
            run_job(job, store, device, watcher)
        except (StoreError, KeyboardInterrupt):
            raise
        except Exception as error:  # a method may fail in any way; the others still run
            failures.append(Failure(job, describe(error)))
        watcher.end(job)
    return failures


def run_job(job: Job, store: Store, device: str | None, watcher: Watcher) -> None:
    """Run one job from where it was stopped, and store its result."""
    experiment = job.experiment
    features = job.features.to(device=device)
    if experiment.trace is not None:
        watcher.begin(job, 0)
        begin = time.perf_counter()
        outcome = follow(features, experiment)
        watcher.advance(job, experiment.n_tasks)
        store.write(finished(job, outcome, time.perf_counter() - begin, provenance(features, 1)))
        return
    partial = left_over(job, store, features.features.device.type)
    watcher.begin(job, partial.n_done)
    partial = _evaluate(job, store, features, partial, lambda tasks: watcher.advance(job, tasks))
    store.write(done_record(job, partial, provenance(features, partial.chunk)))


def left_over(job: Job, store: Store, kind: str) -> Partial:
    """What an earlier run left of this job, if it was cut into the same chunks on such a device; else nothing."""
    chunk = chunk_size(job.experiment.method, job.features, job.experiment.task, kind)
    partial = store.partial(job.key)
    if partial is None or (partial.chunk, partial.device) != (chunk, kind):
        return Partial(chunk=chunk, device=kind)
    return partial


def measure(
    experiment: Experiment, features: FeatureSet, first: int, count: int, progress: Callable[[int], None] | None = None
) -> Evaluation:
    """Tasks first..first+count-1 of an experiment."""
    return evaluate(
        experiment.method,
        features,
        experiment.spec,
        count,
        experiment.seed,
        start=first,
        progress=progress,
        metrics=experiment.metrics,
        scorer=experiment.scorer,
        **experiment.params,
    )


def stretch_of(result: Evaluation, first: int) -> Stretch:
    """What is kept of some tasks in a row."""
    values = {"accuracy": result.correct, **result.metrics}
    return {name: METRICS[name].stored(of, first) for name, of in values.items()}


def _evaluate(
    job: Job, store: Store, features: FeatureSet, partial: Partial, progress: Callable[[int], None]
) -> Partial:
    """Solve all missing tasks, in whole chunks, so that the arithmetic does not depend on interruptions."""
    experiment = job.experiment
    side_by_side = torch.get_num_threads() if partial.device == "cpu" else 1
    stretch = partial.chunk * side_by_side
    saved_at, unsaved = time.perf_counter(), False
    try:
        for first, end in partial.gaps(experiment.n_tasks):
            while first < end:
                count = min(stretch, end - first)
                begin = time.perf_counter()
                part = measure(experiment, features, first, count, progress)
                clock = time.perf_counter()
                partial = partial.add(first, stretch_of(part, first), part.seconds)
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


def provenance(features: FeatureSet, chunk: int) -> Provenance:
    """What produces a result here, where the features are."""
    device = features.features.device
    versions = {name: version(name) for name in ("torch", "numpy", "scikit-learn")}
    return Provenance(
        device=device.type,
        device_name=torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
        chunk=chunk,
        versions={"manyway": manyway.__version__, "python": platform.python_version(), **versions},
    )


def done_record(job: Job, partial: Partial, made: Provenance) -> Record:
    """The record of a job whose tasks are all done."""
    (stretch,) = partial.done.values()
    metrics = {name: values for name, values in stretch.items() if name != "accuracy"}
    outcome = Outcome(n_query=job.experiment.task.n_known, correct=stretch["accuracy"], metrics=metrics)
    return finished(job, outcome, partial.seconds, made)


def finished(job: Job, outcome: Outcome, seconds: float, made: Provenance) -> Record:
    """A record with the request, the outcome and what produced it."""
    experiment, table = job.experiment, job.features.features
    return Record(
        **request(experiment, job.key),
        version=get_method(experiment.method).version,
        scorer_version=None if experiment.scorer is None else SCORERS[experiment.scorer].version,
        special=special_params(experiment),
        features=Features(
            name=experiment.features,
            fingerprint=job.features.fingerprint,
            n_classes=job.features.n_classes,
            unknown_fingerprint=None if experiment.strangers is None else experiment.strangers.fingerprint,
            n_samples=len(table),
            n_features=table.shape[1],
            dtype=str(table.dtype).removeprefix("torch."),
            meta=dict(job.features.meta),
        ),
        trace=None if experiment.trace is None else experiment.trace.model_dump(),
        outcome=outcome,
        provenance=made,
        timing=Timing(seconds=round(seconds, 6), finished=now()),
    )


def describe(error: BaseException) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())
    return text if type(error).__module__.startswith("manyway") else f"{type(error).__name__}: {text}"
