"""Commands about experiments: run them and tune methods. What shows their results is in ``show``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manyway.cli.show import Results, compare, plot, report, status, table
from manyway.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from manyway.bench.plan import Job
    from manyway.bench.runner import Failure
    from manyway.bench.show.view import View
    from manyway.bench.store import Store

__all__ = ["bench", "compare", "plot", "report", "status", "table", "tune"]

Features = Annotated[
    Path | None,
    typer.Option("--features", help="A feature file (.safetensors, .npz) to use in place of those the suite names."),
]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Where the feature sets are that suites name. Default: $MANYWAY_DATA, else ./data."),
]


def bench(
    suite: Annotated[
        str | None,
        typer.Argument(help="A suite by name (no name lists them), or a TOML file of your own."),
    ] = None,
    features: Features = None,
    data: Data = None,
    tasks: Annotated[
        int | None, typer.Option("--tasks", min=1, help="Tasks an experiment; default: as the suite says.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Another stream of tasks.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            help="Keep a part of the suite: AXIS=VALUE[,VALUE], e.g. method=paddle,tim or shots=5. Repeat it for more.",
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            "--task", help="Change the tasks: FIELD=VALUE, e.g. shots=10 or n_query=40. Repeat it for more fields."
        ),
    ] = None,
    tuned: Annotated[
        Path | None, typer.Option("--tuned", help="Parameters that `manyway tune` chose. Default: RESULTS/tuned.json.")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="cpu or cuda. Default: cuda where there is one.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Experiments to run side by side on this machine.")] = 1,
    dask: Annotated[
        str | None,
        typer.Option(
            "--dask", help="The address of a Dask scheduler: its workers share the tasks of every experiment."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the experiments, what is missing and how long it may take.")
    ] = False,
    results: Results = Path("results"),
) -> None:
    """Run a suite of experiments; what has a result already is not run again.

    Every finished experiment is one JSON file in the results folder. Stop it whenever you like, even with kill -9: the
    same command goes on where it was. At the end it prints the suite's tables and draws its plots.

    A dozen lines of TOML make a suite of your own; docs/experiments.md shows them.
    """
    from rich.console import Console

    from manyway.bench.plan import Wishes, make_jobs, make_plan, parse_only, parse_task
    from manyway.bench.show.view import load_view
    from manyway.bench.store import Store
    from manyway.bench.suite import load_suite, suite_names
    from manyway.bench.tuning import read_tuned

    console = Console()
    if suite is None:
        for name in suite_names():
            console.print(f"[bold]{name}[/bold]  {load_suite(name).shown.title}", highlight=False)
        return
    loaded, store, where = load_suite(suite), Store(results), _device(device, dask)
    wishes = Wishes(
        features=features,
        data=data,
        n_tasks=tasks,
        seed=seed,
        only=parse_only(only or []),
        task=parse_task(task or []),
        tuned=read_tuned(tuned, results),
    )
    todo = make_jobs(loaded, wishes)
    if dry_run:
        _list(todo, store, where, console)
        return
    plan = make_plan(loaded, todo, wishes, store)
    store.sweep()
    store.write_plan(plan)
    failures = _run(todo, store, where, jobs, dask, console)
    view = load_view(store, plan)
    _show(view, results, console)
    _report_failures(failures, console)


def tune(
    grid: Annotated[str, typer.Argument(help="A grid: a suite whose methods have something to sweep.")] = "tune",
    features: Features = None,
    data: Data = None,
    tasks: Annotated[
        int | None, typer.Option("--tasks", min=1, help="Tasks a point; default: as the grid says.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Another stream of tasks.")] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Keep a part of the grid: AXIS=VALUE[,VALUE], e.g. method=tim.")
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option("--task", help="Change the tasks: FIELD=VALUE, e.g. n_query=40 where classes have few samples."),
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="cpu or cuda. Default: cuda where there is one.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Experiments to run side by side on this machine.")] = 1,
    dask: Annotated[str | None, typer.Option("--dask", help="The address of a Dask scheduler.")] = None,
    results: Results = Path("results"),
) -> None:
    """Choose hyper-parameters on validation classes (5-way 5-shot), as the paper does for every method but PADDLE.

    What is chosen on the features NAME-val or NAME_val goes into RESULTS/tuned.json under NAME, and `manyway bench`
    uses it wherever a suite runs on NAME. Points that were tried already are not tried again.
    """
    from rich.console import Console

    from manyway.bench.plan import Wishes, make_jobs, make_plan, parse_only, parse_task
    from manyway.bench.show.view import load_view, number
    from manyway.bench.store import Store
    from manyway.bench.suite import load_suite
    from manyway.bench.tuning import FILE, check_grid, choose, write_tuned

    console, suite, store, where = Console(), load_suite(grid), Store(results), _device(device, dask)
    check_grid(suite)
    changes = parse_task(task or [])
    wishes = Wishes(features=features, data=data, n_tasks=tasks, seed=seed, only=parse_only(only or []), task=changes)
    todo = make_jobs(suite, wishes)
    plan = make_plan(suite, todo, wishes, store)
    store.write_plan(plan)
    failures = _run(todo, store, where, jobs, dask, console)
    chosen = choose(load_view(store, plan).records, suite)
    write_tuned(chosen, results / FILE)
    for name, methods in chosen.items():
        for method, entry in methods.items():
            words = ", ".join(f"{key} = {number(value)}" for key, value in entry["params"].items())
            console.print(
                f"{name}: {method}: {words}  ({100 * entry['accuracy']:.1f} ± {100 * entry['ci95']:.1f})",
                highlight=False,
            )
    console.print(f"chosen: {results / FILE}", highlight=False)
    _report_failures(failures, console)


def _report_failures(failures: Sequence[Failure], console: Console) -> None:
    from rich.markup import escape

    for failure in failures:
        console.print(
            f"[bold red]failed[/bold red] {escape(failure.job.title)}: {escape(failure.error)}", highlight=False
        )
    if failures:
        count = "One experiment" if len(failures) == 1 else f"{len(failures)} experiments"
        console.print(f"{count} failed; nothing of them was stored.")
        raise typer.Exit(1)


def _device(asked: str | None, dask: str | None = None) -> str | None:
    import torch

    if dask is not None:
        return asked  # a matter of the workers
    if asked is None:
        return "cuda" if torch.cuda.is_available() else None
    try:
        kind = torch.device(asked).type
    except RuntimeError as error:
        raise InputError(f"There is no device '{asked}'; use cpu or cuda.") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError("There is no CUDA device here; use --device cpu.")
    return asked


def _list(jobs: Sequence[Job], store: Store, device: str | None, console: Console) -> None:
    from rich.table import Table

    from manyway.bench.estimate import estimates
    from manyway.bench.progress import duration

    known = store.keys()
    missing = [job for job in jobs if job.key not in known]
    times = dict(zip((job.key for job in missing), estimates(missing, store, device), strict=True))
    shown = Table("experiment", "tasks", "state", "estimate")
    for job in jobs:
        seconds = times.get(job.key)
        partial = None if job.key in known else store.partial(job.key)
        state = "done" if job.key in known else "missing" if partial is None else f"{partial.n_done:,} tasks done"
        words = "" if job.key in known else "unknown" if seconds is None else duration(seconds)
        shown.add_row(job.title, f"{job.experiment.n_tasks:,}", state, words)
    console.print(shown)
    total = sum(seconds for seconds in times.values() if seconds is not None)
    console.print(f"{len(missing)} of {len(jobs)} to run, about {duration(total)} of solver time on one core.")


def _run(
    jobs: Sequence[Job], store: Store, device: str | None, n_jobs: int, dask: str | None, console: Console
) -> list[Failure]:
    from manyway.bench.estimate import stored_rates
    from manyway.bench.executors import run_on_dask, run_side_by_side
    from manyway.bench.progress import Bar
    from manyway.bench.runner import run_jobs

    known = store.keys()
    missing = [job for job in jobs if job.key not in known]
    if len(missing) < len(jobs):
        console.print(f"{len(jobs) - len(missing)} of {len(jobs)} experiments have their result already.")
    if not missing:
        return []
    try:
        with Bar(missing, stored_rates(store), console) as bar:
            if dask is not None:
                return run_on_dask(missing, store, dask, device, bar)
            if n_jobs > 1:
                return run_side_by_side(missing, store, device, n_jobs, bar)
            return run_jobs(missing, store, device, bar)
    except KeyboardInterrupt:
        console.print("Stopped; what was finished is kept, and the same command goes on from there.")
        raise typer.Exit(130) from None


def _show(view: View, results: Path, console: Console) -> None:
    from importlib.util import find_spec

    from manyway.bench.show.curves import make_figures
    from manyway.bench.show.formats import to_rich
    from manyway.bench.show.tables import make_grids

    if view.records:
        for grid in make_grids(view):
            console.print(*to_rich(grid, console.width), sep="\n")
    figures = make_figures(view)
    if figures and find_spec("matplotlib") is None:
        console.print("Plots need matplotlib: pip install 'manyway[plot]', then `manyway plot`.")
    elif figures:
        from manyway.bench.show.plots import write_figures

        for path in write_figures(figures, results / "plots", view.plan.name, ["png"]):
            console.print(f"plot: {path}", highlight=False)
    console.print(f"results: {results}  (manyway table, plot, report and compare show them)", highlight=False)
