"""Commands about experiments: run them, see where they stand, show what came out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manyway.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from manyway.bench.plan import Job
    from manyway.bench.run import Failure
    from manyway.bench.store import Store
    from manyway.bench.view import View

Results = Annotated[Path, typer.Option("--results", help="The folder that results are kept in.")]
Features = Annotated[
    Path | None,
    typer.Option("--features", help="A feature file (.safetensors, .npz) to use in place of those the suite names."),
]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="The folder with the feature sets that suites name. Default: $MANYWAY_DATA."),
]
Name = Annotated[
    str | None, typer.Argument(help="A suite, or SUITE@FEATURES as `manyway status` lists it. Default: the latest.")
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
    from manyway.bench.spec import load_suite, suite_names
    from manyway.bench.store import Store
    from manyway.bench.tuning import read_tuned
    from manyway.bench.view import load_view

    console = Console()
    if suite is None:
        for name in suite_names():
            console.print(f"[bold]{name}[/bold]  {load_suite(name).title}", highlight=False)
        return
    loaded, store = load_suite(suite), Store(results)
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
        _list(todo, store, _device(device), console)
        return
    plan = make_plan(loaded, todo, wishes)
    store.write_plan(plan)
    failures = _run(todo, store, _device(device), jobs, dask, console)
    view = load_view(store, plan)
    _show(view, results, console)
    for failure in failures:
        console.print(f"[bold red]failed[/bold red] {failure.job.title}: {failure.error}", highlight=False, markup=True)
    if failures:
        raise typer.Exit(1)


def status(results: Results = Path("results")) -> None:
    """Show what has been asked for so far, how much of it is done, and what a stopped run left."""
    from rich.console import Console
    from rich.table import Table

    from manyway.bench.store import Store

    store = Store(results)
    shown = Table("run", "done", "in progress", "missing", "asked for")
    known = store.keys()
    plans = store.plans()
    if not plans:
        raise InputError(f"There are no results in {results}; run `manyway bench quickstart` for a start.")
    for plan in plans:
        done = sum(entry["key"] in known for entry in plan.experiments)
        partial = {entry["key"]: store.partial(entry["key"]) for entry in plan.experiments if entry["key"] not in known}
        begun = [(key, part) for key, part in partial.items() if part is not None]
        sizes = {entry["key"]: entry["n_tasks"] for entry in plan.experiments}
        words = ", ".join(f"{part.n_done:,} of {sizes[key]:,} tasks" for key, part in begun)
        missing = len(plan.experiments) - done - len(begun)
        shown.add_row(plan.name, f"{done} of {len(plan.experiments)}", words, str(missing), plan.created)
    Console().print(shown)


def table(
    name: Name = None,
    format: Annotated[str, typer.Option("--format", help="terminal, markdown, latex or csv.")] = "terminal",
    out: Annotated[Path | None, typer.Option("--out", help="Write to this file instead of the screen.")] = None,
    results: Results = Path("results"),
) -> None:
    """Show stored results as tables: mean accuracy ± 95 % interval, best in bold, a star where its lead is significant."""
    from rich.console import Console

    from manyway.bench.tables import make_grids, to_csv, to_latex, to_markdown, to_rich
    from manyway.files import atomic_write

    writers = {"markdown": to_markdown, "latex": to_latex, "csv": to_csv}
    if format != "terminal" and format not in writers:
        raise InputError(f"Tables can be shown as terminal, {', '.join(writers)}, not as '{format}'.")
    grids = make_grids(_view(name, results))
    if format == "terminal" and out is None:
        console = Console()
        for grid in grids:
            console.print(*to_rich(grid, console.width), sep="\n")
        return
    text = "\n".join(writers.get(format, to_markdown)(grid) for grid in grids)
    if out is None:
        print(text, end="")
        return
    with atomic_write(out) as temporary:
        temporary.write_text(text, encoding="utf-8")


def plot(
    name: Name = None,
    format: Annotated[
        list[str] | None, typer.Option("--format", help="png, svg or pdf; repeat it for several.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The folder for the files. Default: RESULTS/plots.")] = None,
    results: Results = Path("results"),
) -> None:
    """Draw stored results: the plots that the suite asks for, with bands for the 95 % intervals."""
    from manyway.bench.curves import make_figures
    from manyway.bench.plots import write_figures

    view = _view(name, results)
    figures = make_figures(view)
    if not figures:
        raise InputError(f"{view.plan.name} has no plot, or no result for one yet.")
    for path in write_figures(figures, out or results / "plots", view.plan.name, format or ["png"]):
        print(path)


def _view(name: str | None, results: Path) -> View:
    from manyway.bench.store import Store
    from manyway.bench.view import load_view

    store = Store(results)
    plans = store.plans()
    if name is None and not plans:
        raise InputError(f"There are no results in {results}; run `manyway bench quickstart` for a start.")
    view = load_view(store, plans[-1] if name is None else store.plan(name))
    if view.plan.experiments and not view.records:
        raise InputError(
            f"No experiment of {view.plan.name} is finished yet; run `manyway bench {view.plan.suite}` on."
        )
    return view


def _device(asked: str | None) -> str | None:
    import torch

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
    from manyway.bench.cluster import run_on_dask, run_side_by_side
    from manyway.bench.estimate import stored_rates
    from manyway.bench.progress import Bar
    from manyway.bench.run import run_jobs

    known = store.keys()
    missing = [job for job in jobs if job.key not in known]
    if len(missing) < len(jobs):
        console.print(f"{len(jobs) - len(missing)} of {len(jobs)} experiments have their result already.")
    if not missing:
        return []
    with Bar(missing, stored_rates(store), console) as bar:
        if dask is not None:
            return run_on_dask(missing, store, dask, device, bar)
        if n_jobs > 1:
            return run_side_by_side(missing, store, device, n_jobs, bar)
        return run_jobs(missing, store, device, bar)


def _show(view: View, results: Path, console: Console) -> None:
    from importlib.util import find_spec

    from manyway.bench.curves import make_figures
    from manyway.bench.tables import make_grids, to_rich

    if view.records:
        for grid in make_grids(view):
            console.print(*to_rich(grid, console.width), sep="\n")
    figures = make_figures(view)
    if figures and find_spec("matplotlib") is None:
        console.print("Plots need matplotlib: pip install 'manyway[plot]', then `manyway plot`.")
    elif figures:
        from manyway.bench.plots import write_figures

        for path in write_figures(figures, results / "plots", view.plan.name, ["png"]):
            console.print(f"plot: {path}", highlight=False)
    console.print(f"results: {results}  (manyway table, plot, report and compare show them)", highlight=False)
