"""``manyway train``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from manyway import core, encoding, files, plots, training
from manyway.cli.console import console
from manyway.cli.options import command, progress_bar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_USUAL_SIZE = 84  # of pictures of one's own, in pixels


@command
def train(
    *,
    dataset: str,
    out: Path,
    backbone: str = "resnet18",
    val: Path | None = None,
    root: Path | None = None,
    data: Path | None = None,
    size: Annotated[int | None, typer.Option(min=8)] = None,
    grey: bool = False,
    epochs: Annotated[int | None, typer.Option(min=1)] = None,
    batch: Annotated[int | None, typer.Option(min=2)] = None,
    lr: float | None = None,
    schedule: str | None = None,
    weight_decay: float | None = None,
    augment: str | None = None,
    mixup: float | None = None,
    check_every: Annotated[int, typer.Option(min=1)] = 1,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    device: str | None = None,
    skip_bad: bool = False,
    restart: bool = False,
) -> None:
    """Train a backbone on base classes, by default with the recipe of the paper.

    The epoch that is best on 5-way 1-shot tasks of the validation classes is
    kept as best.safetensors, the checkpoint for `manyway extract --encoder`.
    An interrupted run continues where it stopped if the command is repeated.

    Several GPUs: [bold]torchrun --nproc-per-node 4 --no-python manyway train ...[/bold]

    Example: [bold]manyway train --dataset glyphs --backbone resnet-small --out runs/glyphs[/bold]

    Parameters
    ----------
    dataset
        A data set by name (see `manyway datasets`), or a folder,
        zip archive or CSV file of base classes.
    out
        Folder for checkpoints, log and plot. A run in this folder is continued.
    backbone
        resnet18, wrn28-10 or resnet-small.
    val
        Pictures of validation classes, if --dataset is a path.
    size
        Input of the network in pixels. Default: that of the data set, or 84.
    grey
        One channel: for your own drawings.
    epochs
        Default: 90. Milestones of the learning rate are scaled.
    batch
        Images per step, all processes together. Default: 256 (128 for wrn28-10).
    lr
        Highest learning rate. Default: 0.1.
    schedule
        steps (rate divided by 10 after 50 % and 73 % of the epochs) or cosine.
    weight_decay
        Default: 0.0001.
    augment
        photo (crop, colour, flip), small-photo (larger crops, for pictures not much larger than
        --size), drawing (small affine changes) or none.
    mixup
        Mix pairs of images with weights from Beta(MIXUP, MIXUP).
    check_every
        Number of epochs between two validations and saved states.
    seed
        Determines weights, order and augmentations.
    restart
        Delete the run in this folder and start again.
    """
    recipe = training.recipe_for(
        dataset,
        backbone,
        epochs,
        batch=batch,
        lr=lr,
        schedule=schedule,
        weight_decay=weight_decay,
        augment=augment,
        mixup=mixup,
        check_every=check_every,
        seed=seed,
    )
    pictures = _Pictures(
        dataset=dataset, val=val, root=root, data=data, size=size, grey=grey, skip_bad=skip_bad
    )
    for name in (training.BEST, training.LAST, training.LOG, training.CURVES):
        files.check_output(out / name, [dataset, val])
    _train(recipe, backbone, pictures, out, device=device, restart=restart)


@dataclass(frozen=True)
class _Pictures:
    """The options that say what is trained on."""

    dataset: str
    val: Path | None
    root: Path | None
    data: Path | None
    size: int | None
    grey: bool
    skip_bad: bool

    def read(self, screen: Console) -> _Images:
        base, val, entry = training.base_and_validation(
            self.dataset, self.val, self.root, self.data
        )
        if entry is not None:
            preprocess = encoding.Preprocess.for_size(self.size or entry.size, entry.channels)
        else:
            channels = 1 if self.grey else 3
            preprocess = encoding.Preprocess.for_size(self.size or _USUAL_SIZE, channels)
        return _Images(
            title=base.title,
            preprocess=preprocess,
            base=_decode(base, preprocess, self.skip_bad, screen),
            val=None if val is None else _decode(val, preprocess, self.skip_bad, screen),
        )


class _Images(NamedTuple):
    """The pictures of base and of validation classes, in memory."""

    title: str
    preprocess: encoding.Preprocess
    base: encoding.ImageSet
    val: encoding.ImageSet | None


def _train(
    recipe: training.Recipe,
    backbone: str,
    pictures: _Pictures,
    out: Path,
    *,
    device: str | None,
    restart: bool,
) -> None:
    with training.processes(core.resolve_device(device)) as (where, rank):
        screen = console(stderr=True)
        screen.quiet = rank > 0
        images = pictures.read(screen)
        n_images = len(images.base)
        channels = images.preprocess.channels
        network = encoding.build(backbone, images.base.n_classes, channels, seed=recipe.seed)
        if restart and rank == 0:
            _delete_run(out)
        training.wait_for_all()
        meta = {"backbone": backbone, "dataset": images.title, "images": n_images}
        with progress_bar(screen) as progress:
            trained = training.train(
                network,
                images.base,
                recipe,
                images.preprocess,
                val=images.val,
                folder=training.RunFolder(out, meta),
                device=where,
                reporter=_reporter(progress, recipe, n_images),
            )
        if rank == 0:
            _finish(trained, out, screen)


def _decode(
    source: encoding.ImageSource, preprocess: encoding.Preprocess, skip_bad: bool, screen: Console
) -> encoding.ImageSet:
    with progress_bar(screen) as progress:
        task = progress.add_task(f"reading {source.title}", total=len(source))
        load = partial(encoding.load_images, source, preprocess, skip_bad=skip_bad)
        loaded = load(progress=lambda n: progress.advance(task, n))
    for sentence in encoding.remarks(loaded.skipped, loaded.notes):
        screen.print(sentence, soft_wrap=True)
    return loaded


def _delete_run(out: Path) -> None:
    for name in (training.BEST, training.LAST, training.LOG):
        (out / name).unlink(missing_ok=True)


def _reporter(progress: Progress, recipe: training.Recipe, n_images: int) -> training.Reporter:
    per_epoch = n_images // recipe.batch * recipe.batch  # whole batches
    task = progress.add_task(f"epoch 1 of {recipe.epochs}", total=recipe.epochs * per_epoch)

    def on_step(epoch: int, n_images: int) -> None:
        progress.update(task, completed=(epoch - 1) * per_epoch + n_images)

    def on_epoch(result: training.EpochResult) -> None:
        text = f"epoch {result.epoch} of {recipe.epochs}: "
        text += f"loss {result.loss:.3f}, accuracy {result.accuracy:.1%}"
        if result.val_accuracy is not None:
            text += f", validation {result.val_accuracy:.1%}"
        progress.update(task, description=text)

    return training.Reporter(on_step, on_epoch)


def _finish(trained: training.Trained, out: Path, screen: Console) -> None:
    """Draw the curves, where matplotlib is installed, and say where the checkpoint is."""
    if reason := plots.cannot_draw():
        screen.print(f"No plot was drawn. {reason}", soft_wrap=True)
    else:
        training.draw_curves(out / training.CURVES, trained.history)
    best = trained.best
    sentence = f"{out / training.BEST}: epoch {best.epoch}"
    if best.val_accuracy is not None:
        sentence += f", validation accuracy {best.val_accuracy:.1%}"
    screen.print(sentence, soft_wrap=True)
