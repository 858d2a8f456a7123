"""What ``manyway label`` says on the screen when it is done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from manyway.labelling import Summary

_SHOWN = 15


def print_summary(summary: Summary, output: Path, min_confidence: float) -> None:
    """Which classes are present, in which proportions, and how sure the labels are."""
    table = Table(box=None)
    table.add_column("class")
    for column in ("items", "share", "mean probability"):
        table.add_column(column, justify="right")
    for found in summary.present[:_SHOWN]:
        table.add_row(found.name, str(found.items), f"{found.share:.1%}", f"{found.confidence:.2f}")
    console = Console()
    console.print(f"{len(summary.present)} of {summary.n_classes} classes found in {summary.n_items} items:")
    console.print(table)
    if len(summary.present) > _SHOWN:
        console.print(f"… and {len(summary.present) - _SHOWN} more classes.")
    console.print(f"Labels have probability {summary.mean_confidence:.2f} on average.")
    if min_confidence:
        console.print(f"{summary.below} items are below {min_confidence} and were left without a label.")
    console.print(f"Written to {output}.", soft_wrap=True)
