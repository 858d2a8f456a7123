"""Commands that show stored results. They run no experiment and read no features."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from manyway import bench, evaluation, files, plots
from manyway.bench import show
from manyway.cli.console import console, say
from manyway.cli.options import command, may_replace
from manyway.errors import InputError


@command
def status(*, results: Path = Path("results")) -> None:
    """List the runs: how many experiments are finished, in progress and missing.

    [bold]Example:[/bold]

    manyway status
    """
    store, plans = _plans(results)
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    known = store.keys()
    for title in ("run", "done", "in progress", "missing", "started"):
        shown.add_column(title, overflow="fold")
    for plan in plans:
        sizes = {asked.key: asked.n_tasks for asked in plan.experiments}
        done = sum(key in known for key in sizes)
        begun = {
            key: part
            for key in sizes
            if key not in known and (part := store.partial(key)) is not None
        }
        words = ", ".join(f"{part.n_done:,} of {sizes[key]:,} tasks" for key, part in begun.items())
        shown.add_row(
            plan.name,
            f"{done} of {len(sizes)}",
            words,
            str(len(sizes) - done - len(begun)),
            plan.created,
        )
    console().print(shown)


@command
def table(
    name: str | None = None,
    *,
    metric: list[str] | None = None,
    format: str = "terminal",
    out: Annotated[Path | None, typer.Option("--out", "-o")] = None,
    overwrite: bool = False,
    results: Path = Path("results"),
) -> None:
    """Show stored results as tables, with 95 % intervals.

    Bold: the best result on the same tasks; with *, it is significantly better than each of the
    others. †: an earlier version of the method made the result.

    [bold]Examples:[/bold]

    manyway table

    manyway table table1 --format latex --out table1.tex

    manyway table evidence --metric calibration

    Parameters
    ----------
    format
        terminal, markdown, latex or csv.
    out
        Write to this file instead of the screen; Markdown unless --format is given.
    """
    writers = {"markdown": show.to_markdown, "latex": show.to_latex, "csv": show.to_csv}
    if format != "terminal" and format not in writers:
        raise InputError(
            f"Tables can be shown as terminal, {', '.join(writers)}, not as '{format}'."
        )
    if out is not None:
        out = files.check_output(out, _stored(results), overwrite=may_replace(out, overwrite))
    view = _view(name, results)
    grids = [grid for each in metric or (None,) for grid in show.make_grids(view, each)]
    text = "\n".join(writers.get(format, show.to_markdown)(grid) for grid in grids)
    if out is not None:
        bench.write_text(out, text)
        say(f"Written to {out}.")
    elif format == "terminal":
        print_grids(grids)
    else:
        print(text, end="")


@command
def plot(
    name: str | None = None,
    *,
    metric: list[str] | None = None,
    format: list[str] | None = None,
    out: Annotated[Path | None, typer.Option("--out", "-o")] = None,
    results: Path = Path("results"),
) -> None:
    """Draw the plots of a suite from stored results.

    Bands are 95 % intervals. The names of the written files are printed.

    [bold]Examples:[/bold]

    manyway plot

    manyway plot figure-keff --format pdf --out paper/figures

    Parameters
    ----------
    format
        png, svg or pdf; repeat it for several.
    out
        The folder for the files. Default: RESULTS/plots.
    """
    folder = results / "plots" if out is None else out
    files.check_output(folder / "plot.png", _stored(results))
    view = _view(name, results)
    for each in metric or (None,):
        figures = show.make_figures(view, each)
        if not figures:
            raise InputError(
                f"{view.plan.name} has no plot{f' of {each}' if each else ''}, "
                "or no result for one yet."
            )
        prefix = view.plan.name if each is None else f"{view.plan.name}-{each}"
        for path in plots.write_figures(
            figures, folder, prefix, format or ["png"], _stored(results)
        ):
            say(path)


@command
def report(
    names: list[str] | None = None,
    *,
    metric: list[str] | None = None,
    out: Annotated[Path | None, typer.Option("--out", "-o")] = None,
    overwrite: bool = False,
    results: Path = Path("results"),
) -> None:
    """Write all results into one HTML file.

    It has sortable tables, curves with hover values and a page per method. It
    opens from disk in any browser, without a server and without the network.

    [bold]Examples:[/bold]

    manyway report

    manyway report table1 table2 --out paper.html

    Parameters
    ----------
    names
        Runs to show, as `manyway status` lists them. Default: all.
    out
        The file. Default: RESULTS/report.html.
    """
    path = results / "report.html" if out is None else out
    target = files.check_output(
        path, _stored(results), overwrite=out is None or may_replace(out, overwrite)
    )
    store, plans = _plans(results, names or ())
    bench.write_text(
        target, show.make_report([show.load_view(store, plan) for plan in plans], metric or (None,))
    )
    say(path)


@command
def compare(
    a: str,
    b: str,
    *,
    width: Annotated[float, typer.Option(min=0.001)] = 0.2,
    results: Path = Path("results"),
) -> None:
    """Compare two methods, or two results, task by task.

    Prints A − B with its 95 % interval and a paired test. Both solved the same
    tasks, so that the difficulty of a task cancels: this shows differences that
    two separate intervals hide.

    [bold]Examples:[/bold]

    manyway compare paddle tim

    manyway compare results/records/paddle-1f0c.json 9a3e

    Parameters
    ----------
    a
        A method, the beginning of a result's key, or a result file (.json).
    b
        What to compare it with, named in the same way.
    width
        Print how many tasks the interval of the difference needs to be ± this many points.
    """
    store = bench.Store(results)
    for pair in show.pairs(show.find_records(a, store), show.find_records(b, store)):
        test = pair[0].against(pair[1])
        difference = test.difference
        shown = Table(show_header=False, box=None, pad_edge=False)
        for record in pair:
            accuracy = record.value()
            shown.add_row(
                show.record_title(record), f"{100 * accuracy.mean:.2f} ± {100 * accuracy.half:.2f}"
            )
        points = f"{100 * difference.mean:+.2f} ± {100 * difference.half:.2f} points"
        shown.add_row("difference", f"{points}, p = {test.p:.2g}")
        counts = f"better in {test.wins:,}, equal in {test.ties:,}, worse in {test.losses:,}"
        shown.add_row("tasks", f"{difference.n:,}: {counts}")
        if difference.deviation == difference.deviation:
            needed = evaluation.tasks_needed(difference.deviation, width / 100)
            shown.add_row(f"for ± {width:g} points", f"{needed:,} tasks")
        say(show.setting(pair[0]), "bold")
        console().print(shown, "")


def print_grids(grids: Iterable[show.Grid]) -> None:
    """Print tables as wide as the terminal is."""
    screen = console()
    for grid in grids:
        screen.print(*show.to_rich(grid, screen), sep="\n")


def _view(name: str | None, results: Path) -> show.View:
    store, plans = _plans(results, () if name is None else (name,))
    view = show.load_view(store, plans[-1])
    if view.plan.experiments and not view.records:
        again = f"continue with `manyway bench {view.plan.suite}`"
        raise InputError(f"No experiment of {view.plan.name} is finished yet; {again}.")
    return view


def _plans(results: Path, names: Sequence[str] = ()) -> tuple[bench.Store, list[bench.Plan]]:
    """A folder of results, and its plans of these names, or all of them, the latest last.

    There must be one.
    """
    store = bench.Store(results)
    plans = [store.plan(name) for name in names] if names else store.plans()
    if not plans:
        raise InputError(
            f"There are no results in {results}; start with `manyway bench quickstart`."
        )
    return store, plans


def _stored(results: Path) -> list[Path]:
    """What the folder of results keeps for later runs."""
    return [results / name for name in ("records", "partial", "plans", "tuned.json")]
