"""How long experiments will take: from stored results of the same method, else from trying a few tasks."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from manyway.bench.plan import Job
from manyway.bench.store import Store
from manyway.errors import InputError
from manyway.evaluation.evaluator import evaluate

_TRIAL = 4  # tasks
_LONG = 1.0  # seconds; one task that takes longer says enough


def stored_rates(store: Store) -> dict[str, float]:
    """Seconds a task of each method that has results on a CPU or GPU of this folder: the median over them."""
    found: dict[str, list[float]] = {}
    for record in store.records():
        if record.trace is None:
            found.setdefault(record.method, []).append(record.timing["seconds"] / record.n_tasks)
    return {method: median(rates) for method, rates in found.items()}


def estimates(jobs: Sequence[Job], store: Store, device: str | None) -> list[float | None]:
    """Seconds for each job; None for one that cannot be tried. Each method on each shape of task is tried once."""
    tried: dict[tuple[object, ...], float | None] = {}
    answers: list[float | None] = []
    for job in jobs:
        experiment, task = job.experiment, job.experiment.task
        shape = (experiment.method, job.features.fingerprint, task.shots, task.n_query, task.n_ways)
        if shape not in tried:
            tried[shape] = _try(job, device)
        rate = tried[shape]
        partial = store.partial(job.key)
        left = experiment.n_tasks - (0 if partial is None else partial.n_done)
        answers.append(None if rate is None or experiment.trace is not None else rate * left)
    return answers


def _try(job: Job, device: str | None) -> float | None:
    experiment = job.experiment
    try:
        for n_tasks in (1, _TRIAL):  # the first call pays for loading code; where it is long, that is nothing
            result = evaluate(
                experiment.method, job.features, experiment.task, n_tasks, experiment.seed, device, **experiment.params
            )
            if result.seconds > _LONG:
                break
    except (InputError, RuntimeError):
        return None
    return result.seconds / n_tasks
