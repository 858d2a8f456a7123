"""How long experiments will take, estimated by running a few tasks."""

from __future__ import annotations

from collections.abc import Sequence

from manyway.bench.plan import Job
from manyway.bench.store import Store
from manyway.errors import InputError
from manyway.evaluation.evaluator import evaluate

_TRIAL = 4  # tasks
_LONG = 1.0  # seconds; a task that takes longer needs no second trial


def estimates(jobs: Sequence[Job], store: Store, device: str | None) -> list[float | None]:
    """Seconds per job; None for a job that cannot be tried. Each method is tried once per shape of task."""
    tried: dict[tuple[object, ...], float | None] = {}
    answers: list[float | None] = []
    for job in jobs:
        experiment, task = job.experiment, job.experiment.task
        sizes = task.shots, task.n_queries, task.n_ways, task.n_batches, task.n_answers, task.reviewer
        shape = (experiment.solver, job.features.fingerprint, *sizes)
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
        for n_tasks in (1, _TRIAL):  # the first call also loads code
            result = evaluate(
                experiment.solver, job.features, experiment.spec, n_tasks, experiment.seed, device, **experiment.params
            )
            if result.seconds > _LONG:
                break
    except (InputError, RuntimeError):
        return None
    return result.seconds / n_tasks


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> duration(0.26), duration(42), duration(754), duration(7300)
    ('0.3 s', '42 s', '12 min 34 s', '2 h 01 min')
    """
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return (
        f"{whole // 60} min {whole % 60:02d} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    )
