"""``manyway extract`` and ``manyway datasets``."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from manyway import core, encoding, files, sampling, training
from manyway.cli.console import console, note, say
from manyway.cli.options import command, may_replace, progress_bar
from manyway.errors import InputError, counted


@command
def extract(
    source: str,
    *,
    encoder: str,
    out: Path,
    overwrite: bool = False,
    base: str | None = None,
    backbone: str | None = None,
    root: Path | None = None,
    data: Path | None = None,
    half: bool = False,
    device: str | None = None,
    skip_bad: bool = False,
) -> None:
    """Turn pictures or texts into a feature file for `label`, `bench` and `tune`.

    An interrupted extraction continues where it stopped if the command is
    repeated. The file records where its features come from: the encoder,
    hashes of the weights and of the data, the preprocessing, and what was
    left out.

    Example: [bold]manyway extract cub:test --encoder runs/cub/best.safetensors --out
    cub-test.safetensors[/bold]

    Parameters
    ----------
    source
        Pictures: a folder with one folder per class, a zip archive of it, or a table. Texts: csv,
        jsonl or txt. Or a data set by name and split, such as cub:test.
    encoder
        efficientnet-lite2 (pictures), minilm or use-multilingual (texts), a checkpoint of
        `manyway train`, timm:NAME, open_clip:NAME/TAG, or sentence-transformers:NAME (or
        the folder of a model).
    out
        The feature file to write (.safetensors).
    base
        Base data (a feature file, pictures or texts) whose mean feature is stored. Default:
        the mean that the checkpoint holds.
    backbone
        The architecture of a public checkpoint. Default: recognised.
    half
        Store 16-bit numbers: half the size, three digits.
    """
    if out.suffix != ".safetensors":
        raise InputError(f"The output is {out}; the name of a feature file ends in .safetensors.")
    inputs = [given for given in (source, encoder, encoder.partition(":")[2], base) if given]
    files.check_output(out, inputs, overwrite=may_replace(out, overwrite))
    screen = console(stderr=True)
    where = core.resolve_device(device)
    opened_encoder = encoding.open_encoder(
        encoder, device=where, backbone=backbone, say=screen.print
    )
    opened: encoding.Source | None = named_source(source, data)
    if opened is None:
        opened = encoding.open_for(opened_encoder, source, root, skip_empty=True)
    mean = None if base is None else encoding.base_mean_from(base, opened_encoder)
    with progress_bar(screen) as progress:
        task = progress.add_task(f"encoding {opened.title}", total=len(opened))
        features = encoding.extract(
            opened,
            opened_encoder,
            out,
            base_mean=mean,
            skip_bad=skip_bad,
            half=half,
            progress=lambda n, _: progress.advance(task, n),
            say=partial(say, stderr=True),
        )
    _tell(features, out, with_classes=opened.is_labelled)


def _tell(features: sampling.FeatureSet, out: Path, *, with_classes: bool) -> None:
    """Say what was written, what was left out and what looks wrong."""
    for sentence in encoding.remarks(features.meta["skipped"], features.meta.get("notes", ())):
        say(sentence, stderr=True)
    if len(features.features) > 1 and bool((features.features == features.features[:1]).all()):
        note("all items have the same features; check the encoder")
    n_items, n_features = features.features.shape
    sentence = f"{out}: {counted(n_items, 'item')}"
    if with_classes:
        sentence += f", {counted(features.n_classes, 'class', 'classes')}"
    sentence += f", {counted(n_features, 'feature')}"
    if features.base_mean is None:
        sentence += "; no base mean (cl2 will centre on the examples)"
    say(sentence, stderr=True)


def named_source(source: str, data: Path | None) -> encoding.ImageSource | None:
    """The pictures of DATASET or DATASET:SPLIT (default: test); None if the source is a path."""
    name, _, split = source.partition(":")
    if Path(source).exists() or name not in training.DATASETS:
        return None
    return training.open_dataset(name, split or "test", data)


@command
def datasets(*, data: Path | None = None) -> None:
    """List the data sets known by name, where to get them, and whether they are on this machine.

    `manyway train --dataset NAME` and `manyway extract NAME:SPLIT` take these names.

    Example: [bold]manyway datasets --data ~/data[/bold]
    """
    from rich.table import Table

    folder = files.data_root(data)
    table = Table(title=f"Data sets in {folder}", show_lines=True)
    for heading in ("name", "content", "source", "expected files", "found"):
        table.add_column(heading, overflow="fold")
    for entry in training.DATASETS.values():
        found = entry.find(folder)
        if not entry.places:
            here = "built in"
        elif found is None:
            here = "no"
        else:
            here = found.name
        table.add_row(entry.name, entry.what, entry.origin, entry.layout, here)
    own = "FOLDER/CLASS/*.jpg, a zip archive of it, or a table with a picture and a label per row"
    table.add_row("(your own)", "any pictures with classes", "", own, "give its path")
    console().print(table)
