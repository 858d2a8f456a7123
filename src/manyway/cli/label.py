"""``manyway label`` and ``manyway methods``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manyway.cli.console import console, say
from manyway.errors import InputError

if TYPE_CHECKING:
    from manyway.data.items import Items


def label(
    support: Annotated[
        Path,
        typer.Argument(
            metavar="EXAMPLES", help="Labelled examples: a feature file, or pictures or texts (with --encoder)."
        ),
    ],
    query: Annotated[
        Path | None,
        typer.Argument(
            metavar="ITEMS",
            show_default=False,
            help="Items to label, of the same kind. With --class-names alone: leave EXAMPLES out.",
        ),
    ] = None,
    class_names: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="One vector per class, such as the text embedding of its name: a feature file with labels or, with "
            "--encoder, a file of texts. Classes then need no examples.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "--out",
            "-o",
            help="The table of labels: .csv, .tsv, .parquet or .jsonl. Default: labels.csv, which is never written "
            "over a file of yours.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Let the default output replace a file that manyway did not write.")
    ] = False,
    labels: Annotated[
        Path | None,
        typer.Option(help="Labels of the examples if EXAMPLES has none: one per line, the column of a csv, or .npy."),
    ] = None,
    method: Annotated[str, typer.Option(help="How to label; `manyway methods` lists them.")] = "evidence",
    top: Annotated[int, typer.Option(min=1, help="The number of classes to write per item.")] = 2,
    min_confidence: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Leave the label empty when its probability is lower.")
    ] = 0.0,
    open_set: Annotated[
        bool,
        typer.Option(
            "--open-set/--closed",
            help="Whether items may be of no class. They are then labelled `unknown`, and the table says which of them "
            "belong together.",
        ),
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N. Default: cuda where it is available.")
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Distribute the items over the workers of this Dask scheduler."),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="Turn pictures (one folder per class) or texts (csv, jsonl, txt) into features first: a checkpoint of "
            "`manyway train`, timm:NAME, open_clip:NAME or sentence-transformers:NAME-or-folder."
        ),
    ] = None,
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad", help="With --encoder: leave broken pictures out and list them in the table."),
    ] = False,
    label_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="The column of labels in a table. Default: found by its name.")
    ] = None,
    item_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The column of item names in a table. Default: `item`, or an id column."),
    ] = None,
    ignore_column: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A column of a table to leave out; may be repeated.")
    ] = None,
    feature_column: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A column that is a feature although it looks like an index; repeatable."),
    ] = None,
) -> None:
    """Label a batch of items from a few labelled examples of many classes.

    All items are labelled together. Which classes occur in the batch, and how many, is part of the answer.

    EXAMPLES holds features and labels, ITEMS holds features from the same encoder. Both are files of arrays
    (safetensors, npz, npy) or tables (csv, tsv, parquet, jsonl). Arrays are named `features` and `labels`. In a table
    every column is a feature except the label and the item name; features are matched by column name. With --encoder,
    EXAMPLES and ITEMS are pictures or texts, and the names of folders are the classes.

    [bold]Examples:[/bold]

    Label photos from their features, and leave uncertain labels empty:

        manyway label catalogue.npz photos.npz -o labels.csv --min-confidence 0.5

    Tables with a column `species` for the label and `file` for the name of the item:

        manyway label herbarium.csv sheets.csv --label-column species --item-column file -o labels.parquet

    Photos of which some may be of no class in the catalogue:

        manyway label catalogue.npz photos.npz --open-set

    Texts of classes that have a name and no example:

        manyway label tickets.txt --class-names intents.txt --encoder sentence-transformers:all-MiniLM-L6-v2

    Pictures, with an encoder that was trained by `manyway train`:

        manyway label catalogue/ photos/ --encoder runs/birds/best.safetensors

    Texts, with a public encoder:

        manyway label intents.csv tickets.txt --encoder sentence-transformers:all-MiniLM-L6-v2
    """
    from dataclasses import replace

    from manyway.cli.summary import print_summary
    from manyway.core.device import resolve_device
    from manyway.data.columns import remarks_on_classes
    from manyway.data.items import read_items, read_labels
    from manyway.labelling.label import label_items
    from manyway.labelling.table import check_table
    from manyway.methods import get_method

    get_method(method)
    given = None if query is None else support  # the examples
    query = support if query is None else query
    if given is None and class_names is None:
        raise InputError("There are examples or items, not both; give EXAMPLES and ITEMS, or --class-names and ITEMS.")
    if encoder is None:
        _need_features(*filter(None, (given, query, class_names)))
    inputs = (given, query, labels, class_names)
    table = check_table(output, inputs, overwrite=overwrite)
    where = resolve_device("cpu" if device is None and dask is not None else device)
    shown = console(stderr=True)
    if encoder is None:
        options = {
            "label_column": label_column,
            "item_column": item_column,
            "ignore_columns": tuple(ignore_column or ()),
            "feature_columns": tuple(feature_column or ()),
        }
        named = None if class_names is None else read_items(class_names, **options)  # type: ignore[arg-type]
        examples = _no_examples(named) if given is None else read_items(given, **options)  # type: ignore[arg-type]
        items = read_items(query, like=examples, **options)  # type: ignore[arg-type]
        _need_columns(examples, items, None if labels is not None else label_column, item_column)
        _need_columns(examples, items, None, *options["ignore_columns"] or (), *options["feature_columns"] or ())
    else:
        from manyway.encoding.encoders import open_encoder
        from manyway.encoding.extraction import encode_items

        with shown.status(f"encoding {query} …"):
            opened = open_encoder(encoder, device=where, say=lambda sentence: say(sentence, stderr=True))
            named = None if class_names is None else encode_items(class_names, opened)
            items = encode_items(query, opened, skip_bad=skip_bad)
            examples = _no_examples(named) if given is None else encode_items(given, opened, skip_bad=skip_bad)
        for path, read in ((given, examples), (query, items)):
            for name, reason in read.skipped:
                say(f"skipped {name} of {path}: {reason}", stderr=True)
    for note in (*examples.notes, *items.notes):
        say(f"note: {note}", stderr=True)
    if labels is not None:
        names = read_labels(labels, label_column)
        if len(names) != len(examples):
            raise InputError(f"{labels} has {len(names)} labels for {len(examples)} examples; give one for each.")
        if examples.labels is not None and examples.labels != names:
            say(f"note: the labels in {labels} are used, not those in {support}", stderr=True)
        for note in remarks_on_classes(labels, names):
            say(f"note: {note}", stderr=True)
        examples = replace(examples, labels=names)
    if items.all_alike():
        say(f"note: all items in {query} have the same features; check the encoder or the file", stderr=True)
    with shown.status(f"labelling {len(items)} items with {method} …") as status:
        summary = label_items(
            examples,
            items,
            table,
            method=method,
            top=top,
            min_confidence=min_confidence,
            open_set=open_set,
            class_names=named,
            device=where,
            dask=dask,
            progress=lambda step: status.update(f"labelling {len(items)} items with {method}, {step} …"),
            inputs=inputs,
        )
    print_summary(summary, min_confidence)


def methods() -> None:
    """List the methods, what they do and where they come from."""
    from rich.table import Table

    from manyway.methods import DEFAULT_METHOD, METHODS

    table = Table(box=None)
    for column in ("method", "what it does", "reference"):
        table.add_column(column, no_wrap=column == "method")
    for method in sorted(METHODS.values(), key=lambda method: method.name != DEFAULT_METHOD):
        name = f"{method.name} (default)" if method.name == DEFAULT_METHOD else method.name
        table.add_row(name, method.summary, method.reference)
    console().print(table)


def _no_examples(named: Items | None) -> Items:
    """Examples of no class, in the space of the class names."""
    from dataclasses import replace

    assert named is not None
    return replace(named, features=named.features[:0], labels=(), names=None, skipped=(), notes=())


def _need_features(*paths: Path) -> None:
    """Refuse pictures and texts where no encoder was named."""
    from manyway.data.items import SUFFIXES

    for path in paths:
        suffix = path.suffix.lower()
        if (path.is_dir() and suffix != ".parquet") or (path.is_file() and suffix in _ENCODED):
            raise InputError(
                f"{path} holds pictures or texts, not features ({', '.join(SUFFIXES)}); add --encoder to turn them "
                "into features, for example --encoder timm:resnet50 or sentence-transformers:all-MiniLM-L6-v2."
            )


_ENCODED = {".zip", ".txt", ".jpg", ".jpeg", ".png", ".gif", ".tif", ".tiff", ".webp", ".bmp"}


def _need_columns(examples: Items, items: Items, label_column: str | None, *others: str | None) -> None:
    """Refuse a column that was asked for and that no table has: it is a slip of the pen."""
    from manyway.data.columns import find_column
    from manyway.errors import nearest

    headers = [read.header for read in (examples, items) if read.header]
    if label_column is not None and examples.header and find_column(examples.header, label_column) is None:
        raise InputError(
            f"The labelled examples have no column '{label_column}'; {nearest(label_column, examples.header)}"
        )
    for name in filter(None, others):
        if headers and all(find_column(header, name) is None for header in headers):
            raise InputError(f"There is no column '{name}'; {nearest(name, headers[-1])}")
