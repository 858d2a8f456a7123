"""A progress bar whose time left knows that methods differ in speed a thousandfold."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from manyway.bench.plan import Job


class Bar:
    """Shows which experiment runs, how many tasks are done, and how long the rest will take.

    The rest is estimated method by method: seconds a task of a method, times its tasks that are left. A method of which
    nothing is known yet counts with the mean of the others.
    """

    def __init__(self, jobs: Sequence[Job], rates: dict[str, float], console: Console) -> None:
        self._left = {job.key: job.experiment.n_tasks for job in jobs}
        self._method = {job.key: job.experiment.method for job in jobs}
        self._rates = dict(rates)  # seconds a task
        self._started: dict[str, tuple[float, int]] = {}  # key -> clock, tasks that were left then
        self._progress = Progress(
            TextColumn("{task.fields[what]}", table_column=None),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("", total=sum(self._left.values()), what="starting", left="")

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, job: Job, done: int) -> None:
        self._left[job.key] -= done
        self._started[job.key] = time.perf_counter(), self._left[job.key]
        self._progress.update(self._task, what=job.title, advance=done)

    def advance(self, job: Job, tasks: int) -> None:
        self._left[job.key] -= tasks
        started, n_then = self._started[job.key]
        self._rates[job.experiment.method] = (time.perf_counter() - started) / (n_then - self._left[job.key])
        self._progress.update(self._task, advance=tasks, left=f"{duration(self.seconds_left())} left")

    def end(self, job: Job) -> None:
        # A failed experiment leaves tasks undone; nobody waits for them.
        self._progress.update(self._task, advance=self._left[job.key])
        self._left[job.key] = 0

    def seconds_left(self) -> float:
        usual = sum(self._rates.values()) / len(self._rates) if self._rates else 0.0
        return sum(tasks * self._rates.get(self._method[key], usual) for key, tasks in self._left.items())


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
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
