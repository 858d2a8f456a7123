"""Commands that show stored results. They run no experiment and read no features."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manyway.errors import InputError

if TYPE_CHECKING:
    from manyway.bench.show.view import View

Results = Annotated[Path, typer.Option("--results", help="The folder that results are kept in.")]
Name = Annotated[
    str | None, typer.Argument(help="A suite, or SUITE@FEATURES as `manyway status` lists it. Default: the latest.")
]


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

    from manyway.bench.show.formats import to_csv, to_latex, to_markdown, to_rich
    from manyway.bench.show.tables import make_grids
    from manyway.data.files import atomic_write

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
    from manyway.bench.show.curves import make_figures
    from manyway.bench.show.plots import write_figures

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
    from manyway.bench.show.report import make_report
    from manyway.bench.show.view import load_view
    from manyway.bench.store import Store
    from manyway.data.files import atomic_write

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

    from manyway.bench.show.compare import compare as pair_up
    from manyway.bench.show.compare import find_records, record_title, setting
    from manyway.bench.store import Store
    from manyway.evaluation.statistics import tasks_needed

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


def _view(name: str | None, results: Path) -> View:
    from manyway.bench.show.view import load_view
    from manyway.bench.store import Store

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
