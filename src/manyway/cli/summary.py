"""What ``manyway label`` says on the screen when it is done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from manyway.labelling.label import Summary

_SHOWN = 15


def print_summary(summary: Summary, output: Path, min_confidence: float) -> None:
    """Which classes are present, in which proportions, and how sure the labels are."""
    judged = summary.n_occurring is not None
    table = Table(box=None)
    table.add_column("class")
    for column in ("items", "share", "mean probability", *(["is present"] if judged else [])):
        table.add_column(column, justify="right")
    for found in summary.present[:_SHOWN]:
        sure = "–" if found.confidence is None else f"{found.confidence:.2f}"
        present = [] if found.presence is None else [_percent(found.presence)]
        table.add_row(found.name, str(found.items), f"{found.share:.1%}", sure, *present)
    console = Console()
    n_found = sum(found.items > 0 for found in summary.present)
    items = f"{summary.n_items} item" + ("s" if summary.n_items > 1 else "")
    line = f"{n_found} of {summary.n_classes} classes found in {items}"
    if summary.n_occurring is not None:
        line += f"; {summary.n_occurring:.1f} ± {summary.n_occurring_sd:.1f} are estimated to occur"
    console.print(f"{line}:", highlight=False)
    console.print(table)
    if len(summary.present) > _SHOWN:
        console.print(f"… and {len(summary.present) - _SHOWN} more classes.")
    console.print(f"Labels have probability {summary.mean_confidence:.2f} on average.")
    if min_confidence:
        console.print(f"{summary.below} items are below {min_confidence} and were left without a label.")
    console.print(f"Written to {output}.", soft_wrap=True)


def _percent(share: float) -> str:
    """Whole per cent, where only what is certain is 0 or 100.

    >>> _percent(0.3), _percent(0.9999)
    ('30%', '>99%')
    """
    if 0.995 < share < 1:
        return ">99%"
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"
