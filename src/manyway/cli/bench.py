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
    typer.Option("--data", help="Where the feature sets are that suites name. Default: $MANYWAY_DATA, else ./data."),
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


def status(results: Results = Path("results")) -> None:
    """Show what has been asked for so far, how much of it is done, and what a stopped run left."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from manyway.bench.store import Store

    store = Store(results)
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("run", "done", "in progress", "missing", "asked for"):
        shown.add_column(title, overflow="fold")
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
    """Show stored results as tables: accuracy ± 95 % interval, the best bold, a star where its lead is significant."""
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


def report(
    names: Annotated[
        list[str] | None, typer.Argument(help="Runs to show, as `manyway status` lists them. Default: all.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The file. Default: RESULTS/report.html.")] = None,
    results: Results = Path("results"),
) -> None:
    """Write one HTML file with all results: sortable tables, curves with hover values, a page a method, provenance.

    It opens from disk in any browser and needs neither a server nor the network.
    """
    from manyway.bench.report import make_report
    from manyway.bench.store import Store
    from manyway.bench.view import load_view
    from manyway.files import atomic_write

    store = Store(results)
    plans = [store.plan(name) for name in names] if names else store.plans()
    if not plans:
        raise InputError(f"There are no results in {results}; run `manyway bench quickstart` for a start.")
    text = make_report([load_view(store, plan) for plan in plans])
    path = out or results / "report.html"
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(path)


def compare(
    a: Annotated[str, typer.Argument(help="A method, the beginning of a result's key, or a result file (.json).")],
    b: Annotated[str, typer.Argument(help="What to compare it with, named in the same way.")],
    width: Annotated[
        float,
        typer.Option(
            "--width", min=0.001, help="Say how many tasks make the interval of the difference ± this many points."
        ),
    ] = 0.2,
    results: Results = Path("results"),
) -> None:
    """Compare two methods, or two results, task by task: A − B with its 95 % interval and a paired test.

    Both solved the same tasks, so what makes a task easy or hard cancels: this shows differences that separate
    intervals hide.
    """
    from rich.console import Console
    from rich.table import Table

    from manyway.bench.compare import compare as pair_up
    from manyway.bench.compare import find_records, record_title, setting
    from manyway.bench.statistics import tasks_needed
    from manyway.bench.store import Store

    store = Store(results)
    console = Console()
    for pair in pair_up(find_records(a, store), find_records(b, store)):
        difference = pair.paired.difference
        table = Table(title=setting(pair.a), title_justify="left", show_header=False, box=None, pad_edge=False)
        table.add_row(record_title(pair.a), f"{100 * pair.accuracy_a.mean:.2f} ± {100 * pair.accuracy_a.half:.2f}")
        table.add_row(record_title(pair.b), f"{100 * pair.accuracy_b.mean:.2f} ± {100 * pair.accuracy_b.half:.2f}")
        table.add_row(
            "difference", f"{100 * difference.mean:+.2f} ± {100 * difference.half:.2f} points, p = {pair.paired.p:.2g}"
        )
        counts = pair.paired
        table.add_row(
            "tasks",
            f"{difference.n:,}: better in {counts.wins:,}, equal in {counts.ties:,}, worse in {counts.losses:,}",
        )
        if difference.deviation == difference.deviation:
            needed = tasks_needed(difference.deviation, width / 100)
            table.add_row(f"for ± {width:g} points", f"{needed:,} tasks")
        console.print(table, "", highlight=False)


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

    from manyway.bench.plan import Wishes, make_jobs, make_plan, parse_only
    from manyway.bench.spec import load_suite
    from manyway.bench.store import Store
    from manyway.bench.tuning import FILE, check_grid, choose, write_tuned
    from manyway.bench.view import load_view, number

    console, suite, store, where = Console(), load_suite(grid), Store(results), _device(device, dask)
    check_grid(suite)
    wishes = Wishes(features=features, data=data, n_tasks=tasks, seed=seed, only=parse_only(only or []))
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
