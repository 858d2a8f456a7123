"""``manyway train``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyway.cli.options import Data, Device, Root, SkipBad, progress_bar
from manyway.errors import InputError

if TYPE_CHECKING:
    import torch
    from rich.console import Console
    from rich.progress import Progress

    from manyway.encoding.datasets.images import ImageSet
    from manyway.encoding.datasets.preprocess import Preprocess
    from manyway.encoding.datasets.sources import ImageSource
    from manyway.training.loop import Reporter, Trained
    from manyway.training.recipe import Recipe
    from manyway.training.standard import DataSet


def train(
    dataset: Annotated[
        str,
        typer.Option(
            "--dataset",
            help="A data set by name (see `manyway datasets`), or a folder, zip archive or CSV file of base classes.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", help="Folder for checkpoints, log and plot. A run in this folder is continued.")
    ],
    backbone: Annotated[str, typer.Option("--backbone", help="resnet18, wrn28-10 or resnet-small.")] = "resnet18",
    val: Annotated[
        Path | None, typer.Option("--val", help="Pictures of validation classes, if --dataset is a path.")
    ] = None,
    root: Root = None,
    data: Data = None,
    size: Annotated[
        int | None,
        typer.Option("--size", min=8, help="Input of the network in pixels. Default: that of the data set, or 84."),
    ] = None,
    grey: Annotated[bool, typer.Option("--grey", help="One channel: for your own drawings.")] = False,
    epochs: Annotated[
        int | None, typer.Option("--epochs", min=1, help="Default: 90. Milestones of the learning rate are scaled.")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch", min=2, help="Images per step, all processes together. Default: 256 (128 for wrn28-10)."
        ),
    ] = None,
    lr: Annotated[float | None, typer.Option("--lr", help="Highest learning rate. Default: 0.1.")] = None,
    schedule: Annotated[
        str | None,
        typer.Option("--schedule", help="steps (rate divided by 10 after 50 % and 73 % of the epochs) or cosine."),
    ] = None,
    weight_decay: Annotated[float | None, typer.Option("--weight-decay", help="Default: 0.0001.")] = None,
    augment: Annotated[
        str | None,
        typer.Option(
            "--augment",
            help="photo (crop, colour, flip), small-photo (larger crops, for pictures not much larger than --size), "
            "drawing (small affine changes) or none.",
        ),
    ] = None,
    mixup: Annotated[
        float | None, typer.Option("--mixup", help="Mix pairs of images with weights from Beta(MIXUP, MIXUP).")
    ] = None,
    check_every: Annotated[
        int, typer.Option("--check-every", min=1, help="Number of epochs between two validations and saved states.")
    ] = 1,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Determines weights, order and augmentations.")] = 0,
    device: Device = None,
    skip_bad: SkipBad = False,
    restart: Annotated[bool, typer.Option("--restart", help="Delete the run in this folder and start again.")] = False,
) -> None:
    """Train a backbone on base classes, by default with the recipe of the paper.

    The epoch that is best on 5-way 1-shot tasks of the validation classes is
    kept as best.safetensors, the checkpoint for `manyway extract --encoder`.
    An interrupted run continues where it stopped if the command is repeated.

    Several GPUs: [bold]torchrun --nproc-per-node 4 --no-python manyway train ...[/bold]

    Example: [bold]manyway train --dataset glyphs --backbone resnet-small --out runs/glyphs[/bold]
    """
    from manyway.cli.console import console
    from manyway.encoding.backbones import build
    from manyway.encoding.extraction import check_output_of
    from manyway.training.loop import BEST, LAST, LOG
    from manyway.training.loop import train as run_training

    with _processes(device) as (where, rank):
        screen = console(stderr=True)
        screen.quiet = rank > 0
        asked = {
            "batch": batch, "lr": lr, "schedule": schedule, "weight_decay": weight_decay, "augment": augment,
            "mixup": mixup, "check_every": check_every, "seed": seed,
        }  # fmt: skip
        recipe = _recipe(dataset, backbone, epochs, asked)
        for name in (BEST, LAST, LOG, CURVES):
            check_output_of(out / name, [dataset, val])
        base_source, val_source, entry = _sources(dataset, val, root, data)
        preprocess = _preprocess(entry, size, grey)
        base = _decode(base_source, preprocess, skip_bad, screen)
        val_images = None if val_source is None else _decode(val_source, preprocess, skip_bad, screen)
        network = build(backbone, base.n_classes, preprocess.channels, seed=seed)
        if restart and rank == 0:
            for name in (BEST, LAST, LOG):
                (out / name).unlink(missing_ok=True)
        _wait_for_all()
        with progress_bar(screen) as progress:
            trained = run_training(
                network,
                base,
                recipe,
                preprocess,
                val=val_images,
                folder=out,
                meta={"backbone": backbone, "dataset": base_source.title, "images": len(base)},
                device=where,
                reporter=_reporter(progress, recipe, len(base) // recipe.batch * recipe.batch),
            )
        if rank == 0:
            _finish(trained, out, screen)


CURVES = "curves.png"


@contextmanager
def _processes(name: str | None) -> Iterator[tuple[torch.device, int]]:
    """The device and the rank of this process, which may be one of several that torchrun started."""
    import torch

    from manyway.core.device import resolve_device

    device = resolve_device(name)
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if device.type == "cuda":
        # All batches have the same shape, so that choosing the fastest convolution algorithm pays.
        torch.backends.cudnn.benchmark = True
    if not several:
        yield device, 0
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield device, torch.distributed.get_rank()
    finally:
        torch.distributed.destroy_process_group()


def _wait_for_all() -> None:
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()


def _recipe(dataset: str, backbone: str, epochs: int | None, asked: dict[str, Any]) -> Recipe:
    """The recipe for a data set and a backbone, with the values that the user gave (not None)."""
    from dataclasses import replace

    from manyway.training.recipe import Recipe, scaled_for
    from manyway.training.standard import DATASETS

    recipe = Recipe(batch=128 if backbone == "wrn28-10" else 256)
    if dataset == "glyphs":
        from manyway.training.glyphs import RECIPE

        recipe = RECIPE
    elif dataset in DATASETS and DATASETS[dataset].channels == 1:
        recipe = replace(recipe, augment="drawing")
    if epochs is not None:
        recipe = scaled_for(recipe, epochs)
    return replace(recipe, **{name: value for name, value in asked.items() if value is not None})


def _sources(
    dataset: str, val: Path | None, root: Path | None, data: Path | None
) -> tuple[ImageSource, ImageSource | None, DataSet | None]:
    """Base and validation pictures, and the entry of a data set known by name."""
    from manyway.encoding.datasets.sources import open_source
    from manyway.errors import nearest
    from manyway.training.standard import DATASETS, open_dataset

    if dataset in DATASETS:
        entry = DATASETS[dataset]
        if "base" not in entry.splits:
            raise InputError(f"{dataset} has no base classes to train on; it is for testing.")
        return open_dataset(dataset, "base", data), open_dataset(dataset, "val", data), entry
    if not Path(dataset).exists():
        raise InputError(f"There is no data set, folder or file '{dataset}'; {nearest(dataset, DATASETS)}")
    return open_source(dataset, root), None if val is None else open_source(val, root), None


def _preprocess(entry: DataSet | None, size: int | None, grey: bool) -> Preprocess:
    from manyway.encoding.datasets.preprocess import Preprocess

    if entry is not None:
        return Preprocess.for_size(size or entry.size, entry.channels)
    return Preprocess.for_size(size or 84, 1 if grey else 3)


def _decode(source: ImageSource, preprocess: Preprocess, skip_bad: bool, screen: Console) -> ImageSet:
    from manyway.encoding.datasets.sources import load_images
    from manyway.encoding.extraction import remarks

    with progress_bar(screen) as progress:
        task = progress.add_task(f"reading {source.title}", total=len(source))
        loaded = load_images(source, preprocess, skip_bad=skip_bad, progress=lambda n: progress.advance(task, n))
    for sentence in remarks(loaded.skipped, loaded.notes):
        screen.print(sentence, soft_wrap=True)
    return loaded.images


def _reporter(progress: Progress, recipe: Recipe, per_epoch: int) -> Reporter:
    from manyway.training.log import EpochResult
    from manyway.training.loop import Reporter

    task = progress.add_task(f"epoch 1 of {recipe.epochs}", total=recipe.epochs * per_epoch)

    def on_step(epoch: int, n_images: int) -> None:
        progress.update(task, completed=(epoch - 1) * per_epoch + n_images)

    def on_epoch(result: EpochResult) -> None:
        text = f"epoch {result.epoch} of {recipe.epochs}: loss {result.loss:.3f}, accuracy {result.accuracy:.1%}"
        if result.val_accuracy is not None:
            text += f", validation {result.val_accuracy:.1%}"
        progress.update(task, description=text)

    return Reporter(on_step, on_epoch)


def _finish(trained: Trained, out: Path, screen: Console) -> None:
    """Draw the curves, where matplotlib is installed, and say where the checkpoint is."""
    from manyway.plots.figures import cannot_draw
    from manyway.training.log import draw_curves
    from manyway.training.loop import BEST

    if reason := cannot_draw():
        screen.print(f"No plot was drawn. {reason}", soft_wrap=True)
    else:
        draw_curves(out / CURVES, trained.history)
    best = trained.best
    validation = "" if best.val_accuracy is None else f", validation accuracy {best.val_accuracy:.1%}"
    screen.print(f"{out / BEST}: epoch {best.epoch}{validation}", soft_wrap=True)
