"""Options that several commands share, and the progress bar."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

Data = Annotated[
    Path | None,
    typer.Option("--data", help="The folder that holds data sets. Default: $MANYWAY_DATA, otherwise ./data."),
]
Device = Annotated[
    str | None,
    typer.Option("--device", help="Where to compute: cpu, cuda or cuda:N. Default: cuda if available, otherwise cpu."),
]
Root = Annotated[
    Path | None,
    typer.Option("--root", help="The folder of the pictures that a table lists. Default: the folder of the file."),
]
Results = Annotated[Path, typer.Option("--results", help="The folder of stored results.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out all files that cannot be read, not just a few.")]


def progress_bar(console: Console, transient: bool = False) -> Progress:
    """A bar with the number of items, the elapsed time and the time left."""
    from rich import progress

    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        console=console,
        transient=transient,
        speed_estimate_period=300,  # seconds: a slow encoder takes more than the usual 30 for its first steps
    )
