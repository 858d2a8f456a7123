"""A progress bar for a run."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from manyway.bench.plan import Job


class Bar:
    """Shows which experiment runs, how many tasks are done, and how long the others will take at the present speed."""

    def __init__(self, jobs: Sequence[Job], console: Console) -> None:
        self._left = {job.key: job.experiment.n_tasks for job in jobs}
        columns = TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn()
        self._progress = Progress(*columns, console=console, transient=True)
        self._task = self._progress.add_task("starting", total=sum(self._left.values()))

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, job: Job, done: int) -> None:
        self._progress.update(self._task, description=escape(job.title))
        self.advance(job, done)

    def advance(self, job: Job, tasks: int) -> None:
        self._left[job.key] -= tasks
        self._progress.update(self._task, advance=tasks)

    def end(self, job: Job) -> None:
        self.advance(job, self._left[job.key])  # a failed experiment leaves tasks that will not be done


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
