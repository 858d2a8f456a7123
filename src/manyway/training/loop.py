"""Training on base classes with cross-entropy.

It makes features that also separate classes never seen.

Random numbers come from generators seeded by (seed, purpose, epoch, step) and never from the global
one. An epoch is therefore the same whatever ran before it: a resumed run equals an uninterrupted
one, and n processes equal one with the same global batch. They are drawn on the CPU for the global
batch, and are so the same on every device; copies to the device do not block.
"""

import csv
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from manyway.encoding.backbones.checkpoint import read_checkpoint, save_checkpoint
from manyway.encoding.backbones.networks import Backbone, encode_images, memory_format, precision
from manyway.encoding.datasets.preprocess import ImageSet, Preprocess, from_metadata
from manyway.errors import InputError
from manyway.evaluation import evaluate
from manyway.files import atomic_write, one_line
from manyway.plots import Curve, Figure, Panel, draw
from manyway.sampling import FeatureSet, TaskSpec
from manyway.training.recipe import AUGMENTATIONS, N_UNIFORMS, Recipe, learning_rate

BEST = "best.safetensors"
LAST = "last.pt"
LOG = "log.csv"
CURVES = "curves.png"
# One fixed number per purpose, so that draws are independent and old runs can be repeated.
ORDER = 0
AUGMENT = 1
MIX = 3
Settings = dict[str, Any]  # of a run, as they are saved
Step = Callable[[int, int], None]  # is told the epoch, and how many of its images were seen


@dataclass(frozen=True)
class EpochResult:
    """One epoch; accuracies are fractions."""

    epoch: int  # from 1
    lr: float
    loss: float
    accuracy: float  # on the augmented training images
    val_accuracy: float | None  # 5-way 1-shot, nearest prototype


class Reporter(NamedTuple):
    """Callbacks that follow the training.

    ``step(epoch, n_images)`` is called per batch and ``epoch(result)`` per epoch.
    """

    step: Step = lambda epoch, n_images: None
    epoch: Callable[[EpochResult], None] = lambda result: None


class Trained(NamedTuple):
    """The result of training."""

    network: Backbone  # with the weights of the best epoch
    base_mean: Tensor  # [d] mean feature of the base images
    history: tuple[EpochResult, ...]
    best: EpochResult  # see `best_epoch`


def best_epoch(history: Sequence[EpochResult]) -> EpochResult:
    """The first epoch of the highest validation accuracy; without validation the last epoch."""
    validated = [result for result in history if result.val_accuracy is not None]
    return max(
        validated,
        key=lambda result: (result.val_accuracy or 0.0, -result.epoch),
        default=history[-1],
    )


@dataclass(frozen=True)
class RunFolder:
    """Where a run is saved: its state, its log and the weights of its best epoch."""

    path: Path
    meta: Settings  # stored with the weights; it must contain ``backbone``


def train(
    network: Backbone,
    base: ImageSet,
    recipe: Recipe,
    preprocess: Preprocess,
    *,
    val: ImageSet | None = None,
    folder: RunFolder | None = None,
    device: torch.device | str = "cpu",
    reporter: Reporter | None = None,
) -> Trained:
    """Train a network, in place, on the images of base classes.

    The epoch that is best on 5-way 1-shot tasks of ``val``, images of other classes, is kept; by
    default the last one. Checked epochs are saved in ``folder``: ``last.pt`` (weights, optimizer,
    history), ``log.csv`` and, for the best epoch so far, ``best.safetensors``. A later call with
    the same folder and settings continues from there.

    When torch.distributed is initialised, every process takes its part of each batch.
    """
    _check(network, base, recipe, val)
    device = torch.device(device)
    reporter = reporter or Reporter()
    base = base.to(device)
    if val is not None:
        val = val.to(device)
    network = network.to(device)
    trainer = _Trainer.of(network, base, recipe, preprocess)
    history: list[EpochResult] = []
    best = _weights(network)
    saved = None
    if folder is not None:
        saved = _SavedRun(folder.path, _description(folder.meta, base, recipe, preprocess))
        history = saved.resume(network, trainer.optimizer)
        best = saved.best_weights(network, resumed=bool(history))
    for epoch in range(len(history) + 1, recipe.epochs + 1):
        loss, accuracy = trainer.run_epoch(epoch, reporter.step)
        checked = recipe.checks(epoch)
        val_accuracy = None
        if val is not None and checked:
            val_accuracy = _from_first(_validate, network, val, recipe, preprocess)
        result = EpochResult(epoch, learning_rate(recipe, epoch - 1), loss, accuracy, val_accuracy)
        history.append(result)
        if checked and (val_accuracy is None or best_epoch(history) is result):
            best = _weights(network)
            if saved is not None:
                saved.save_best(best, epoch)
        if checked and saved is not None:
            saved.save_last(network, trainer.optimizer, history)
        reporter.epoch(result)

    network.load_state_dict(best)
    base_mean = encode_images(network, base.images, preprocess).mean(0)
    chosen = best_epoch(history)
    if saved is not None:
        saved.save_best({**best, "base_mean": base_mean}, chosen.epoch)
    return Trained(network, base_mean, tuple(history), chosen)


def _check(network: Backbone, base: ImageSet, recipe: Recipe, val: ImageSet | None) -> None:
    """Refuse what cannot be trained or validated."""
    world, _ = _world()
    if recipe.batch % world:
        raise InputError(
            f"A batch of {recipe.batch} cannot be divided equally among {world} processes."
        )
    if len(base) < recipe.batch:
        raise InputError(
            f"There are {len(base)} base images, fewer than one batch of {recipe.batch}."
        )
    if network.n_outputs != base.n_classes:
        raise InputError(
            f"The network gives {network.n_outputs} scores; there are {base.n_classes} classes."
        )
    if val is None:
        return
    fewest = int(val.labels.bincount(minlength=val.n_classes).min())
    if val.n_classes < 5 or fewest < 2:
        raise InputError(
            "Validation uses 5-way 1-shot tasks: "
            "give at least five classes of at least two images each."
        )


def _in_all_processes(network: Backbone, device: torch.device) -> nn.Module:
    """The network as it is trained: by itself, or in step with those of the other processes."""
    if device.type == "cuda":
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    world, _ = _world()
    if world == 1:
        return network
    normalises = any(isinstance(layer, nn.BatchNorm2d) for layer in network.modules())
    if device.type != "cuda" and normalises:
        raise InputError(
            "Several processes train on GPUs only; one process uses all cores of a CPU."
        )
    # Statistics of the global batch: n processes on n parts compute what one computes on the whole.
    synchronised = nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
    return nn.parallel.DistributedDataParallel(synchronised)


def _weights(network: Backbone) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in network.state_dict().items()}


def _description(
    meta: Settings, base: ImageSet, recipe: Recipe, preprocess: Preprocess
) -> Settings:
    """What is saved with a run. A run is continued only where all of it is the same."""
    return {
        **meta,
        "recipe": recipe.to_meta(),
        "preprocess": preprocess.to_meta(),
        "class_names": list(base.class_names),
    }


def _optimizer(network: nn.Module, recipe: Recipe) -> Optimizer:
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(network.parameters(), recipe.lr, weight_decay=recipe.weight_decay)
    return torch.optim.SGD(
        network.parameters(), recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay
    )


class _EpochMeans(NamedTuple):
    """Over the augmented images of an epoch."""

    loss: float
    accuracy: float


@dataclass(frozen=True)
class _Trainer:
    """What an epoch of training needs."""

    module: nn.Module
    optimizer: Optimizer
    base: ImageSet
    recipe: Recipe
    preprocess: Preprocess

    @staticmethod
    def of(network: Backbone, base: ImageSet, recipe: Recipe, preprocess: Preprocess) -> "_Trainer":
        """With the network as it is trained, where the images are, and its optimizer."""
        module = _in_all_processes(network, base.images.device)
        return _Trainer(module, _optimizer(network, recipe), base, recipe, preprocess)

    def run_epoch(self, epoch: int, on_step: Step) -> _EpochMeans:
        """One pass over the images."""
        recipe = self.recipe
        world, rank = _world()
        device = self.base.images.device
        mine = slice(rank * recipe.batch // world, (rank + 1) * recipe.batch // world)
        order = torch.randperm(len(self.base), generator=generator_for(recipe.seed, ORDER, epoch))
        # Sums stay on the device: reading them would synchronise with it at every step.
        total_loss = torch.zeros((), device=device)
        n_correct = torch.zeros((), device=device)
        self.module.train()
        # A last, smaller batch would give batch normalisation poor statistics, so it is left out:
        # other images each epoch.
        n_steps = len(self.base) // recipe.batch
        for step in range(n_steps):
            self._set_learning_rate(learning_rate(recipe, epoch - 1 + step / n_steps))
            chosen = order[step * recipe.batch : (step + 1) * recipe.batch]
            batch = training_batch(
                self.base, chosen, recipe, self.preprocess, epoch=epoch, step=step, mine=mine
            )
            with precision(device):
                images = batch.images.contiguous(memory_format=memory_format(device))
                scores = self.module(images).float()
            loss = batch.loss(scores, recipe.label_smoothing)
            self.optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            self.optimizer.step()
            total_loss += loss.detach()
            n_correct += (scores.argmax(1) == batch.labels).sum()
            on_step(epoch, (step + 1) * recipe.batch)
        totals = torch.stack([total_loss / world, n_correct])
        if world > 1:
            distributed.all_reduce(totals)
        n_images = n_steps * recipe.batch
        return _EpochMeans(loss=float(totals[0]) / n_steps, accuracy=float(totals[1]) / n_images)

    def _set_learning_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate


def _validate(network: Backbone, val: ImageSet, recipe: Recipe, preprocess: Preprocess) -> float:
    """Accuracy of the nearest prototype on 5-way 1-shot tasks of the validation classes."""
    features = FeatureSet(
        encode_images(network, val.images, preprocess, fast=True), val.labels, val.class_names
    )
    fewest = int(features.counts.min())
    spec = TaskSpec(
        shots=1, k_eff=5, n_ways=5, n_query=5 * min(15, fewest - 1), sampling="balanced"
    )
    return float(
        evaluate("simpleshot", features, spec, n_tasks=recipe.val_tasks, seed=recipe.seed).accuracy
    )


@dataclass(frozen=True)
class _SavedRun:
    """The files of a run. In a run of several processes, the first one writes them."""

    folder: Path
    description: Settings

    def save_best(self, tensors: Mapping[str, Tensor], epoch: int) -> None:
        """Save the weights of the best epoch so far."""
        if _is_first():
            save_checkpoint(self.folder / BEST, tensors, {**self.description, "epoch": epoch})

    def save_last(
        self, network: Backbone, optimizer: Optimizer, history: Sequence[EpochResult]
    ) -> None:
        """Save everything that the next epoch depends on, and the log."""
        if not _is_first():
            return
        state = {
            "description": self.description,
            "history": [asdict(result) for result in history],
            "model": network.state_dict(),
            "optimizer": optimizer.state_dict(),
        }
        with atomic_write(self.folder / LAST) as temporary, temporary.open("wb") as file:
            torch.save(state, file)
        write_log(self.folder / LOG, history)

    def resume(self, network: Backbone, optimizer: Optimizer) -> list[EpochResult]:
        """Restore network and optimizer after the last saved epoch.

        Returns the history (empty for a new run).
        """
        path = self.folder / LAST
        if not path.exists():
            return []
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            history = from_metadata(list[EpochResult], state["history"], "history")
            changed = _differences(state["description"], self.description)
            if not changed:
                network.load_state_dict(state["model"])
                optimizer.load_state_dict(state["optimizer"])
        except Exception as error:  # damaged files raise exceptions of many types
            hint = "train again with `restart` or in another folder"
            raise InputError(
                f"{path} is not the state of a run ({one_line(error)}); {hint}."
            ) from error
        if changed:
            which = " and ".join(changed)
            raise InputError(
                f"{self.folder} holds a run with another {which}; "
                "choose another folder or the same settings."
            )
        return history

    def best_weights(self, network: Backbone, *, resumed: bool) -> dict[str, Tensor]:
        """The weights of the best epoch so far. A file of another run is not written over."""
        path = self.folder / BEST
        if not path.exists():
            return _weights(network)
        checkpoint = read_checkpoint(path)
        if _differences(checkpoint.meta, self.description):
            hint = "choose another folder or use `restart`"
            raise InputError(f"{path} is of another run and would be replaced; {hint}.")
        if not resumed:
            return _weights(network)
        tensors = {
            name: tensor for name, tensor in checkpoint.tensors.items() if name != "base_mean"
        }
        if _shapes(tensors) != _shapes(network.state_dict()):
            raise InputError(
                f"The weights in {path} do not fit this run; train again with `restart`."
            )
        return tensors


def _differences(saved: Mapping[str, Any], description: dict[str, Any]) -> list[str]:
    """The settings in which a saved run differs from this one."""
    now, then = (json.loads(json.dumps(settings)) for settings in (description, dict(saved)))
    return [key for key in now if then.get(key) != now[key]]


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def _world() -> tuple[int, int]:
    """(number of processes, which one this is)."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size(), distributed.get_rank()
    return 1, 0


def _is_first() -> bool:
    """Whether this is the process that writes files."""
    _, rank = _world()
    return rank == 0


@contextmanager
def processes(device: torch.device) -> Iterator[tuple[torch.device, int]]:
    """The device and the rank of this process.

    It may be one of several that torchrun started.
    """
    if device.type == "cuda":
        # All batches have the same shape, so that choosing the fastest convolution algorithm pays.
        torch.backends.cudnn.benchmark = True
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device, 0
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield device, distributed.get_rank()
    finally:
        distributed.destroy_process_group()


def wait_for_all() -> None:
    """Wait until every process is here."""
    if _world()[0] > 1:
        distributed.barrier()


def _from_first(compute: Callable[..., float], network: Backbone, *arguments: Any) -> float:
    """Compute in the first process and send the result to the others, which wait."""
    world, rank = _world()
    if world == 1:
        return compute(network, *arguments)
    value = torch.zeros((), device=next(network.parameters()).device, dtype=torch.float64)
    if rank == 0:
        value.fill_(compute(network, *arguments))
    distributed.broadcast(value, src=0)
    return float(value)


class TrainingBatch(NamedTuple):
    """Images with labels.

    Where a second image is mixed in, also its label and the weight of the first.
    """

    images: Tensor  # [n, c, h, w] float
    labels: Tensor  # [n] int64
    mixed_labels: Tensor | None = None  # [n] int64
    weight: Tensor | None = None  # [n] in [0, 1]

    def loss(self, scores: Tensor, label_smoothing: float) -> Tensor:
        """Mean cross-entropy; for mixed images the weighted mean over their two labels."""
        if self.mixed_labels is None or self.weight is None:
            return F.cross_entropy(scores, self.labels, label_smoothing=label_smoothing)
        each = partial(F.cross_entropy, scores, label_smoothing=label_smoothing, reduction="none")
        first = each(self.labels)
        second = each(self.mixed_labels)
        return (self.weight * first + (1 - self.weight) * second).mean()


def generator_for(seed: int, *stream: int) -> torch.Generator:
    """A CPU generator seeded by the seed and the stream (purpose, epoch, step...)."""
    (state,) = np.random.SeedSequence([seed, *stream]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))


def training_batch(
    base: ImageSet,
    chosen: Tensor,
    recipe: Recipe,
    preprocess: Preprocess,
    *,
    epoch: int,
    step: int,
    mine: slice,
) -> TrainingBatch:
    """The part ``mine`` of the global batch of images ``chosen``, augmented."""
    uniforms = torch.rand(
        len(chosen), N_UNIFORMS, generator=generator_for(recipe.seed, AUGMENT, epoch, step)
    )
    places = torch.arange(len(chosen))
    augment = AUGMENTATIONS[recipe.augment]
    device = base.images.device

    def views(places: Tensor) -> TrainingBatch:
        """The images at some places of the batch, augmented with their own random numbers."""
        rows = chosen[places].to(device, non_blocking=True)
        images = base.images[rows]
        labels = base.labels[rows]
        if augment is None:
            return TrainingBatch(preprocess.standardise(images), labels)
        own = uniforms[places].to(device, non_blocking=True)
        augmented = augment(images.float().div(255), own, preprocess.crop)
        return TrainingBatch(preprocess.normalise(augmented), labels)

    own = views(places[mine])
    if recipe.mixup == 0:
        return own
    other = views(places.roll(-1)[mine])  # the next image is mixed in: the batch is in random order
    seeds = np.random.SeedSequence([recipe.seed, MIX, epoch, step])
    weights = np.random.default_rng(seeds).beta(recipe.mixup, recipe.mixup, len(chosen))
    weight = torch.from_numpy(weights.astype(np.float32))[mine].to(device, non_blocking=True)
    scale = weight.view(-1, 1, 1, 1)
    return TrainingBatch(
        scale * own.images + (1 - scale) * other.images, own.labels, other.labels, weight
    )


def write_log(path: Path, history: Sequence[EpochResult]) -> None:
    """Write a CSV file with one line per epoch.

    It is small, so it is written as a whole each time.
    """
    with atomic_write(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(EpochResult)])
        writer.writeheader()
        writer.writerows(asdict(result) for result in history)


def draw_curves(path: Path, history: Sequence[EpochResult]) -> None:
    """Plot the loss and the accuracies against the epoch."""
    epochs = [result.epoch for result in history]
    curve = partial(Curve, markers=False)
    loss = curve("training", "paddle", epochs, [result.loss for result in history])
    accuracies = [
        curve("training", "paddle", epochs, [100 * result.accuracy for result in history])
    ]
    validated = {
        result.epoch: 100 * result.val_accuracy
        for result in history
        if result.val_accuracy is not None
    }
    if validated:
        x = list(validated)
        y = list(validated.values())
        accuracies.append(curve("validation, 5-way 1-shot", "alpha-tim", x, y))
    figure = Figure(
        name="curves",
        title="Training",
        caption="",
        x_label="epoch",
        y_label="",
        panels=[Panel("loss", [loss]), Panel("accuracy (%)", accuracies)],
        n_columns=2,
    )
    draw(figure, path)
