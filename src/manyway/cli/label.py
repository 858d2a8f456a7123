"""``manyway label`` and ``manyway methods``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def label(
    support: Annotated[
        Path, typer.Argument(help="Labelled examples: a feature file, or pictures or texts (see --encoder).")
    ],
    query: Annotated[Path, typer.Argument(help="Items to label, of the same kind.")],
    output: Annotated[Path, typer.Option("--output", "--out", "-o", help="Where the table of labels goes.")] = Path(
        "labels.csv"
    ),
    labels: Annotated[
        Path | None, typer.Option(help="Labels of the examples, one a line or .npy, when SUPPORT has none.")
    ] = None,
    method: Annotated[str, typer.Option(help="How to label; `manyway methods` lists them.")] = "evidence",
    top: Annotated[int, typer.Option(min=1, help="How many choices to write for each item.")] = 2,
    min_confidence: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Leave the label empty when its probability is lower.")
    ] = 0.0,
    device: Annotated[str | None, typer.Option(help="Where to work: cpu or cuda.")] = None,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Spread the items over the workers of this Dask scheduler.")
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="Turn pictures (a folder with a folder a class) or texts (csv, jsonl, txt) into features first: a "
            "checkpoint of `manyway train`, timm:NAME, open_clip:NAME or sentence-transformers:NAME-or-folder."
        ),
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="With --encoder: leave broken pictures out.")] = False,
    label_column: Annotated[str, typer.Option(help="Column of labels in a csv or parquet file.")] = "label",
    item_column: Annotated[str, typer.Option(help="Column of item names in a csv or parquet file.")] = "item",
) -> None:
    """Label a pile of items from a few labelled examples of many classes.

    All items are looked at together: which classes occur at all, and how many, is part of the answer.

    SUPPORT holds features and labels, QUERY holds features from the same encoder, as safetensors, npz, npy, csv or
    parquet. In csv and parquet files every column but the label and the item name is a feature; npz and safetensors
    hold arrays `features` and `labels`. With --encoder, SUPPORT and QUERY are pictures or texts themselves, and folder
    names are the classes.

    [bold]Examples:[/bold]

    manyway label catalogue.npz photos.npz -o labels.csv --min-confidence 0.5

    manyway label catalogue.npz photos.npz --method paddle

    manyway label catalogue/ photos/ --encoder runs/birds/best.safetensors
    """
    from rich.console import Console

    from manyway.cli.summary import print_summary
    from manyway.data.items import read_items, read_labels
    from manyway.errors import InputError
    from manyway.labelling.label import label_items
    from manyway.methods import get_method

    get_method(method)
    console = Console(stderr=True)
    device = checked_device(device)
    if encoder is None:
        examples, items = (
            read_items(path, label_column=label_column, item_column=item_column) for path in (support, query)
        )
    else:
        from manyway.encoding.encoders import open_encoder
        from manyway.encoding.extraction import encode_items

        with console.status(f"encoding {support} and {query} …"):
            opened = open_encoder(encoder, device=device or "cpu", say=console.print)
            examples, items = (encode_items(path, opened, skip_bad=skip_bad) for path in (support, query))
    if labels is not None:
        from dataclasses import replace

        names = read_labels(labels)
        if len(names) != len(examples):
            raise InputError(f"{labels} has {len(names)} labels for {len(examples)} examples; give one for each.")
        examples = replace(examples, labels=names)
    with console.status(f"labelling {len(items)} items with {method} …") as status:
        summary = label_items(
            examples,
            items,
            output,
            method=method,
            top=top,
            min_confidence=min_confidence,
            device=device,
            dask=dask,
            progress=lambda step: status.update(f"labelling {len(items)} items with {method}, {step} …"),
        )
    print_summary(summary, output, min_confidence)


def methods() -> None:
    """List the methods, what they do and where they come from."""
    from rich.console import Console
    from rich.table import Table

    from manyway.methods import DEFAULT_METHOD, METHODS

    table = Table(box=None)
    for column in ("method", "what it does", "reference"):
        table.add_column(column, no_wrap=column == "method")
    for method in sorted(METHODS.values(), key=lambda method: method.name != DEFAULT_METHOD):
        name = f"{method.name} (default)" if method.name == DEFAULT_METHOD else method.name
        table.add_row(name, method.summary, method.reference)
    Console().print(table)


def checked_device(device: str | None) -> str | None:
    """The device if torch can use it; else one sentence."""
    import torch

    from manyway.errors import InputError

    if device is None:
        return None
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"Device '{device}' cannot be used here; choose cpu, or cuda on a machine with a GPU."
        ) from error
    return device
