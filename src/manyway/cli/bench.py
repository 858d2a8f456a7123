"""Commands that run experiments and tune methods.

The commands that show their results are in ``show``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import typer

from manyway import bench as runs
from manyway import core, plots
from manyway.bench import show
from manyway.cli.console import console, say
from manyway.cli.options import ExperimentOptions, command, progress_bar
from manyway.cli.show import print_grids
from manyway.methods import get_method


@command
def bench(
    suite: str | None = None,
    *,
    options: ExperimentOptions,
    tuned: Path | None = None,
    dry_run: bool = False,
    allow_code: bool = False,
) -> None:
    """Run a suite of experiments, skipping those that already have results.

    Every finished experiment is one JSON file in the results folder.
    A run can be stopped at any time; the same command continues it.
    At the end the suite's tables are printed and its plots are drawn.

    [bold]Examples:[/bold]

    manyway bench

    manyway bench quickstart

    manyway bench quickstart --only method=paddle,evidence --tasks 1000

    manyway bench table1 --features mine.npz --dry-run

    The first lists the suites, the second needs no data, the last estimates how long a run would
    take. docs/experiments.md explains how to write a suite of your own.

    Parameters
    ----------
    suite
        The name of a suite, or a TOML file of your own. Without it, the suites are listed.
    tuned
        Parameters chosen by `manyway tune`. Default: RESULTS/tuned.json.
    dry_run
        Only list the experiments, what is missing, and estimated times.
    allow_code
        Run the files that the suite names methods of, as in mine.py:my_method. They can do what you can do.
    """
    if suite is None:
        for name, title in runs.suite_titles().items():
            say(f"{name}  {title}")
        return

    loaded = runs.load_suite(suite, allow_code=allow_code)
    store = runs.Store(options.results)
    where = _device(options)
    wishes = replace(_changes(options), tuned=runs.read_tuned(tuned, options.results))
    todo, skipped = runs.make_jobs(loaded, wishes)
    if dry_run:
        _list(todo, skipped, store, where, options.rerun)
        return
    plan = runs.make_plan(loaded, todo, wishes, store, skipped)
    store.sweep()
    store.write_plan(plan)
    failures = _run(todo, store, where, options)
    _show(show.load_view(store, plan), options.results)
    _report(skipped, failures)


@command
def tune(
    grid: str = "tune",
    *,
    options: ExperimentOptions,
    method: list[str] | None = None,
) -> None:
    """Choose hyper-parameters on validation classes.

    As in the paper, tasks are 5-way 5-shot, and PADDLE is not tuned. UNEM learns its parameters
    by gradients, on tasks with all classes; they are also written to RESULTS/unem-NAME.json.
    What is chosen on the feature set NAME-val or NAME_val is written to RESULTS/tuned.json.
    `manyway bench` uses it wherever a suite runs on NAME. A run can be stopped at any time; the
    same command continues it.

    [bold]Examples:[/bold]

    manyway tune --data DATA --method tim

    manyway tune --features birds_val.npz --method unem --task shots=20 --task k_eff=5

    manyway tune --features birds_val.npz --task n_query=40

    Parameters
    ----------
    grid
        A suite in which every method has parameters to sweep.
    method
        Tune only this method; short for --only method=NAME. May be repeated.
    """
    suite = runs.load_suite(grid)
    runs.check_grid(suite)
    store = runs.Store(options.results)
    where = _device(options)
    methods = method or []
    for name in methods:
        get_method(name)
    wishes = _changes(options, only=[f"method={name}" for name in methods])
    todo, skipped = runs.make_jobs(suite, wishes)
    swept = [job for job in todo if job.experiment.learn is None]
    lessons = [job for job in todo if job.experiment.learn is not None]
    runs.check_lessons(lessons)
    failures: list[runs.Failure] = []
    chosen: dict[str, dict[str, dict[str, Any]]] = {}
    target_file = options.results / runs.FILE
    if swept:
        plan = runs.make_plan(suite, swept, wishes, store, skipped)
        store.write_plan(plan)
        failures = _run(swept, store, where, options)
        chosen = runs.choose(show.load_view(store, plan).records, suite)
        runs.write_tuned(chosen, target_file)
    for job in lessons:
        target, entry = _learn(job, options, where)
        runs.write_tuned({target: {job.experiment.method: entry}}, target_file)
        chosen.setdefault(target, {})[job.experiment.method] = entry
    _say_chosen(chosen)
    say(f"chosen: {target_file}")
    _report(skipped, failures)


def _say_chosen(chosen: dict[str, dict[str, dict[str, Any]]]) -> None:
    for target, entries in chosen.items():
        for name, entry in entries.items():
            say(f"{target}: {name}: {_chosen_words(entry)}")


def _chosen_words(entry: dict[str, Any]) -> str:
    """What was chosen for a method, and its accuracy."""
    shown = entry["params"]
    if "file" in entry:
        shown = {"parameters": entry["file"]}
    words = ", ".join(f"{key} = {runs.number(value)}" for key, value in shown.items())
    return f"{words}  ({100 * entry['accuracy']:.1f} ± {100 * entry['ci95']:.1f})"


def _changes(options: ExperimentOptions, only: Sequence[str] = ()) -> runs.SuiteChanges:
    """What the options change in a suite; ``only`` is said beside that of the options."""
    return runs.SuiteChanges(
        features=options.features,
        data=options.data,
        n_tasks=options.tasks,
        seed=options.seed,
        only=runs.parse_only([*(options.only or []), *only]),
        task=runs.parse_task(options.task or []),
    )


def _learn(
    job: runs.Job, options: ExperimentOptions, device: str | None
) -> tuple[str, dict[str, Any]]:
    """Learn the parameters of a method, with a bar that counts the tasks of all steps."""
    learning = job.experiment.learn
    assert learning is not None
    try:
        with progress_bar(console()) as bar:
            line = bar.add_task(job.title, total=learning.steps * job.experiment.n_tasks)
            return runs.learn_job(
                job,
                options.results,
                device,
                options.rerun,
                lambda n_tasks: bar.advance(line, n_tasks),
            )
    except KeyboardInterrupt:
        _stop("Finished steps")


def _stop(what: str) -> NoReturn:
    say(f"Stopped. {what} are kept; the same command continues from there.")
    raise typer.Exit(130) from None


def _report(skipped: Sequence[str], failures: Sequence[runs.Failure]) -> None:
    """Say what was not done; a failure is an exit code of its own."""
    for words in skipped:
        say(f"skipped {words}")
    for failure in failures:
        say(f"failed {failure.job.title}: {failure.error}", "red")
    if failures:
        count = "One experiment" if len(failures) == 1 else f"{len(failures)} experiments"
        say(f"{count} failed; nothing was stored for {'it' if len(failures) == 1 else 'them'}.")
        raise typer.Exit(1)


def _device(options: ExperimentOptions) -> str | None:
    """Where to run; with Dask that is decided on the workers."""
    if options.dask is not None:
        return options.device
    return str(core.resolve_device(options.device))


def _list(
    jobs: Sequence[runs.Job],
    skipped: Sequence[str],
    store: runs.Store,
    device: str | None,
    rerun: bool,
) -> None:
    from rich.table import Table

    known = set() if rerun else store.keys()
    missing = [job for job in jobs if job.key not in known]
    estimates = runs.estimates(missing, store, device)
    times = {job.key: seconds for job, seconds in zip(missing, estimates, strict=True)}
    shown = Table("experiment", "tasks", "state", "estimate")
    for job in jobs:
        if job.key in known:
            state = "done"
            estimate = ""
        else:
            partial = store.partial(job.key)
            state = "missing" if partial is None else f"{partial.n_done:,} tasks done"
            seconds = times[job.key]
            estimate = "unknown" if seconds is None else duration(seconds)
        shown.add_row(job.title, f"{job.experiment.n_tasks:,}", state, estimate)
    console().print(shown)
    total = sum(seconds for seconds in times.values() if seconds is not None)
    say(
        f"{len(missing)} of {len(jobs)} to run, about {duration(total)} of solver time on one core."
    )
    _report(skipped, [])


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> duration(0.26), duration(42), duration(754), duration(7300)
    ('0.3 s', '42 s', '12 min 34 s', '2 h 01 min')
    """
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest} s"
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def _run(
    jobs: Sequence[runs.Job],
    store: runs.Store,
    device: str | None,
    options: ExperimentOptions,
) -> list[runs.Failure]:
    known = set() if options.rerun else store.keys()
    missing = [job for job in jobs if job.key not in known]
    if options.rerun:
        for job in jobs:
            store.forget_partial(job.key)
    if len(missing) < len(jobs):
        say(f"{len(jobs) - len(missing)} of {len(jobs)} experiments already have results.")
    if not missing:
        return []
    try:
        with progress_bar(console(), transient=True) as progress:
            line = progress.add_task(
                "starting", total=sum(job.experiment.n_tasks for job in missing)
            )

            def watch(job: runs.Job, n_tasks: int) -> None:
                progress.update(line, description=job.title, advance=n_tasks)

            return runs.run_jobs(
                missing, store, device, watch, n_jobs=options.jobs, dask=options.dask
            )
    except KeyboardInterrupt:
        _stop("Finished tasks")


def _show(view: show.View, results: Path) -> None:
    if view.records:
        print_grids(show.make_grids(view))
    figures = show.make_figures(view)
    if figures and (reason := plots.cannot_draw()):
        say(reason)
    elif figures:
        for path in plots.write_figures(figures, results / "plots", view.plan.name, ["png"]):
            say(f"plot: {path}")
    say(f"results: {results}  (see manyway table, plot, report, compare)")
