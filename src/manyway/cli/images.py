"""Commands from pictures and texts to features: ``train`` a network, ``extract`` features, list ``datasets``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyway.errors import InputError

if TYPE_CHECKING:
    import torch
    from rich.console import Console
    from rich.progress import Progress

    from manyway.encoding.datasets.images import ImageSet
    from manyway.encoding.datasets.preprocess import Preprocess
    from manyway.encoding.datasets.sources import ImageSource
    from manyway.encoding.standard import DataSet
    from manyway.encoding.training.loop import Reporter, Trained
    from manyway.encoding.training.recipe import Recipe

Data = Annotated[
    Path | None, typer.Option("--data", help="The folder that holds data sets. Default: $MANYWAY_DATA, else ./data.")
]
Device = Annotated[str | None, typer.Option("--device", help="cpu, cuda or cuda:N. Default: cuda where there is one.")]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave broken pictures out (and say which) instead of stopping.")
]


def train(
    dataset: Annotated[
        str,
        typer.Option(
            "--dataset", help="A data set by name (see `manyway datasets`), or a folder, zip or CSV of base classes."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for checkpoints, log and plot; a run there is resumed.")],
    backbone: Annotated[str, typer.Option("--backbone", help="resnet18, wrn28-10 or resnet-small.")] = "resnet18",
    val: Annotated[
        Path | None, typer.Option("--val", help="Pictures of validation classes, when --dataset is a path.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option("--root", help="Where the pictures of a CSV are. Default: beside it.")
    ] = None,
    data: Data = None,
    size: Annotated[
        int | None, typer.Option("--size", min=8, help="Pixels the network sees. Default: 84, or the data set's.")
    ] = None,
    grey: Annotated[bool, typer.Option("--grey", help="One channel: for drawings in a folder of your own.")] = False,
    epochs: Annotated[int | None, typer.Option("--epochs", min=1, help="Default: 90; milestones move along.")] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch", min=2, help="Images in a step, all processes together. Default: 256 (128 for wrn28-10)."
        ),
    ] = None,
    lr: Annotated[float | None, typer.Option("--lr", help="Highest learning rate. Default: 0.1.")] = None,
    schedule: Annotated[
        str | None, typer.Option("--schedule", help="steps (rate / 10 at half and at 73 %) or cosine.")
    ] = None,
    weight_decay: Annotated[float | None, typer.Option("--weight-decay", help="Default: 0.0001.")] = None,
    augment: Annotated[
        str | None,
        typer.Option(
            "--augment",
            help="photo (crop, colour, flip), small-photo (larger crops, for pictures of little more than --size), "
            "drawing (small affine) or none.",
        ),
    ] = None,
    mixup: Annotated[
        float | None, typer.Option("--mixup", help="Mix images in pairs, in shares from Beta(MIXUP, MIXUP).")
    ] = None,
    check_every: Annotated[
        int, typer.Option("--check-every", min=1, help="Epochs between two validations and saved states.")
    ] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Weights, order and augmentations all follow from it.")] = 0,
    device: Device = None,
    skip_bad: SkipBad = False,
    restart: Annotated[bool, typer.Option("--restart", help="Forget the run that is in the folder.")] = False,
) -> None:
    """Train a backbone on base classes, with the paper's recipe by default.

    The epoch that does best on 5-way 1-shot tasks of the validation classes is kept as best.safetensors, which
    `manyway extract --encoder` takes. A run that was interrupted goes on where it stopped when the command is given
    again. Several GPUs: [bold]torchrun --nproc-per-node 4 --no-python manyway train ...[/bold]

    Example: [bold]manyway train --dataset glyphs --backbone resnet-small --out runs/glyphs[/bold]
    """
    from rich.console import Console

    from manyway.encoding.backbones import build
    from manyway.encoding.training.loop import BEST, LAST, LOG
    from manyway.encoding.training.loop import train as run_training

    with _processes(device) as (where, rank):
        console = Console(stderr=True, quiet=rank > 0)
        asked = {
            "batch": batch, "lr": lr, "schedule": schedule, "weight_decay": weight_decay, "augment": augment,
            "mixup": mixup, "check_every": check_every, "seed": seed,
        }  # fmt: skip
        recipe = _recipe(dataset, backbone, epochs, asked)
        base_source, val_source, entry = _training_sources(dataset, val, root, data)
        preprocess = _preprocess(entry, size, grey)
        if restart and rank == 0:
            for name in (BEST, LAST, LOG):
                (out / name).unlink(missing_ok=True)
        base = _decode(base_source, preprocess, skip_bad, console)
        val_images = None if val_source is None else _decode(val_source, preprocess, skip_bad, console)
        network = build(backbone, base.n_classes, preprocess.channels, seed=seed)
        meta = {"backbone": backbone, "dataset": base_source.title, "images": len(base)}
        with _bar(console) as progress:
            trained = run_training(
                network, base, recipe, preprocess,
                val=val_images, folder=out, meta=meta, device=where,
                reporter=_reporter(progress, recipe, len(base) // recipe.batch * recipe.batch),
            )  # fmt: skip
        if rank == 0:
            _draw(out / "curves.png", trained, console)
            _say_best(trained, out / BEST, console)


def extract(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder of class folders, a zip of one or a CSV; texts (csv, jsonl, txt); or e.g. cub:test."
        ),
    ],
    encoder: Annotated[
        str,
        typer.Option(
            "--encoder", help="A checkpoint, timm:NAME, open_clip:NAME/TAG, or sentence-transformers:NAME-or-folder."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The feature file to write (.safetensors).")],
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            help="What the base mean is taken over: a feature file, pictures, texts. Default: the checkpoint's.",
        ),
    ] = None,
    backbone: Annotated[
        str | None, typer.Option("--backbone", help="Architecture of a public checkpoint. Default: recognised.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option("--root", help="Where the pictures of a CSV are. Default: beside it.")
    ] = None,
    data: Data = None,
    chunk: Annotated[int, typer.Option("--chunk", min=1, help="Items between two saved states.")] = 1024,
    half: Annotated[bool, typer.Option("--half", help="Store 16-bit numbers: half the size.")] = False,
    device: Device = None,
    skip_bad: SkipBad = False,
) -> None:
    """Turn pictures or texts into a feature file for `label`, `bench` and `tune`.

    An interrupted extraction goes on where it stopped. The file says where its features came from: encoder, hash of the
    weights, hash of the data, preprocessing.

    Example: [bold]manyway extract cub:test --encoder runs/cub/best.safetensors --out cub-test.safetensors[/bold]
    """
    from rich.console import Console

    from manyway.encoding.encoders import open_encoder
    from manyway.encoding.extraction import base_mean_from, open_for
    from manyway.encoding.extraction import extract as run_extraction

    if out.suffix != ".safetensors":
        raise InputError(f"The output is {out}; feature files end in .safetensors.")
    console = Console(stderr=True)
    loaded = open_encoder(encoder, device=_device(device), backbone=backbone, say=console.print)
    named = _named_source(source, data)
    opened = named if named is not None else open_for(loaded, source, root)
    mean = None if base is None else base_mean_from(base, loaded)
    with _bar(console) as progress:
        task = progress.add_task(f"encoding {opened.title}", total=len(opened))
        features, bad = run_extraction(
            opened, loaded, out,
            base_mean=mean, skip_bad=skip_bad, chunk=chunk, half=half, progress=lambda n: progress.advance(task, n),
        )  # fmt: skip
    for name, why in sorted(bad.items()):
        console.print(f"left out {name}: {why}", markup=False)
    console.print(
        f"{out}: {len(features.labels)} items, {features.n_classes} classes, {features.features.shape[1]} features"
        + ("" if features.base_mean is not None else "; no base mean (cl2 will centre on the support)"),
        markup=False,
    )


def datasets(data: Data = None) -> None:
    """List the data sets known by name: what they are, where people get them, and whether they are here."""
    from rich.console import Console
    from rich.table import Table

    from manyway.encoding.standard import DATASETS, data_root

    folder = data_root(data)
    table = Table(title=f"Data sets, looked for in {folder}", show_lines=True)
    for heading in ("name", "what", "where people get it", "expected", "here"):
        table.add_column(heading, overflow="fold")
    for entry in DATASETS.values():
        found = entry.find(folder)
        here = "always" if not entry.places else (found.name if found is not None else "no")
        table.add_row(entry.name, entry.what, entry.origin, entry.layout, here)
    table.add_row(
        "(your own)", "any pictures with classes", "you",
        "FOLDER/CLASS/*.jpg, a zip of it, or a CSV: picture,label", "give its path",
    )  # fmt: skip
    Console().print(table)


class _processes:
    """One process, or one of several that torchrun started: joins the group and leaves it at the end."""

    def __init__(self, device: str | None) -> None:
        self.device = device
        self.several = int(os.environ.get("WORLD_SIZE", "1")) > 1

    def __enter__(self) -> tuple[torch.device, int]:
        import torch

        device = _device(self.device)
        if device.type == "cuda":
            # All batches have one shape: trying the convolution algorithms once pays for itself in every step.
            torch.backends.cudnn.benchmark = True
        if not self.several:
            return device, 0
        if device.type == "cuda":
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(device)
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
        return device, torch.distributed.get_rank()

    def __exit__(self, *_: object) -> None:
        if self.several:
            import torch

            torch.distributed.destroy_process_group()


def _device(name: str | None) -> torch.device:
    import torch

    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"There is no device '{name}'; choose cpu, cuda or cuda:N.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("There is no CUDA device here; choose --device cpu.")
    return device


def _recipe(dataset: str, backbone: str, epochs: int | None, asked: dict[str, Any]) -> Recipe:
    """The recipe that suits data set and backbone, with what the user asked for (not None) instead."""
    from dataclasses import replace

    from manyway.encoding.standard import DATASETS
    from manyway.encoding.training.recipe import Recipe, scaled_for

    recipe = Recipe(batch=128 if backbone == "wrn28-10" else 256)
    if dataset == "glyphs":
        from manyway.encoding.glyphs.build import RECIPE

        recipe = RECIPE
    elif dataset in DATASETS and DATASETS[dataset].channels == 1:
        recipe = replace(recipe, augment="drawing")
    if epochs is not None:
        recipe = scaled_for(recipe, epochs)
    return replace(recipe, **{name: value for name, value in asked.items() if value is not None})


def _training_sources(
    dataset: str, val: Path | None, root: Path | None, data: Path | None
) -> tuple[ImageSource, ImageSource | None, DataSet | None]:
    """Base and validation pictures, and the entry of a data set known by name."""
    from manyway.encoding.datasets.sources import open_source
    from manyway.encoding.standard import DATASETS, open_dataset
    from manyway.errors import nearest

    if dataset in DATASETS:
        entry = DATASETS[dataset]
        if "base" not in entry.splits:
            raise InputError(f"{dataset} has no base classes to train on; it is for testing.")
        return open_dataset(dataset, "base", data), open_dataset(dataset, "val", data), entry
    if not Path(dataset).exists():
        raise InputError(f"There is no data set, folder or file '{dataset}'; {nearest(dataset, DATASETS)}")
    return open_source(dataset, root), None if val is None else open_source(val, root), None


def _named_source(source: str, data: Path | None) -> ImageSource | None:
    """DATASET:SPLIT, or None when the source is a path."""
    from manyway.encoding.standard import DATASETS, open_dataset

    name, colon, split = source.partition(":")
    if Path(source).exists() or name not in DATASETS:
        return None
    return open_dataset(name, split if colon else "test", data)


def _preprocess(entry: DataSet | None, size: int | None, grey: bool) -> Preprocess:
    from manyway.encoding.datasets.preprocess import Preprocess

    channels = entry.channels if entry is not None else (1 if grey else 3)
    return Preprocess.for_size(size or (entry.size if entry is not None else 84), channels)


def _decode(source: ImageSource, preprocess: Preprocess, skip_bad: bool, console: Console) -> ImageSet:
    from manyway.encoding.datasets.sources import load_images

    with _bar(console) as progress:
        task = progress.add_task(f"reading {source.title}", total=len(source))
        loaded = load_images(source, preprocess, skip_bad=skip_bad, progress=lambda n: progress.advance(task, n))
    for name, why in sorted(loaded.bad.items()):
        console.print(f"left out {name}: {why}", markup=False)
    return loaded.images


def _bar(console: Console) -> Progress:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(), console=console,
    )  # fmt: skip


def _reporter(progress: Progress, recipe: Recipe, per_epoch: int) -> Reporter:
    from manyway.encoding.training.log import EpochResult
    from manyway.encoding.training.loop import Reporter

    task = progress.add_task(f"epoch 1 of {recipe.epochs}", total=recipe.epochs * per_epoch)

    def on_step(epoch: int, n_images: int) -> None:
        progress.update(task, completed=(epoch - 1) * per_epoch + n_images)

    def on_epoch(result: EpochResult) -> None:
        text = (
            f"epoch {result.epoch} of {recipe.epochs}: loss {result.loss:.3f}, accuracy {100 * result.accuracy:.1f} %"
        )
        if result.val_accuracy is not None:
            text += f", validation {100 * result.val_accuracy:.1f} %"
        progress.update(task, description=text)

    return Reporter(on_step, on_epoch)


def _draw(path: Path, trained: Trained, console: Console) -> None:
    """The plot is a courtesy: without matplotlib the log still has all the numbers."""
    from manyway.encoding.training.log import draw_curves

    try:
        draw_curves(path, trained.history)
    except ModuleNotFoundError:
        console.print("no plot: it needs matplotlib (pip install 'manyway[plot]')", markup=False)


def _say_best(trained: Trained, path: Path, console: Console) -> None:
    validated = [result for result in trained.history if result.val_accuracy is not None]
    best = max(validated, key=lambda result: (result.val_accuracy or 0.0, -result.epoch), default=None)
    said = "" if best is None else f" (epoch {best.epoch}, validation {100 * (best.val_accuracy or 0):.1f} %)"
    console.print(f"{path}{said}", markup=False)
