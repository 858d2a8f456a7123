"""``manyway datasets``."""

from __future__ import annotations

from manyway.cli.options import Data


def datasets(data: Data = None) -> None:
    """List the data sets known by name, where to get them, and whether they are on this machine.

    `manyway train --dataset NAME` and `manyway extract NAME:SPLIT` take these names.

    Example: [bold]manyway datasets --data ~/data[/bold]
    """
    from rich.table import Table

    from manyway.cli.console import console
    from manyway.files.files import data_root
    from manyway.training.standard import DATASETS

    folder = data_root(data)
    table = Table(title=f"Data sets in {folder}", show_lines=True)
    for heading in ("name", "content", "source", "expected files", "found"):
        table.add_column(heading, overflow="fold")
    for entry in DATASETS.values():
        found = entry.find(folder)
        here = "built in" if not entry.places else (found.name if found is not None else "no")
        table.add_row(entry.name, entry.what, entry.origin, entry.layout, here)
    own = "FOLDER/CLASS/*.jpg, a zip archive of it, or a table with a picture and a label per row"
    table.add_row("(your own)", "any pictures with classes", "", own, "give its path")
    console().print(table)
