"""Training on base classes with cross-entropy, so that the features also separate classes never seen.

Random numbers come from generators seeded by (seed, purpose, epoch, step) and never from the global one. An epoch is
therefore the same whatever ran before it: a resumed run equals an uninterrupted one, and n processes equal one with the
same global batch. They are drawn on the CPU for the global batch, and are so the same on every device; copies to the
device do not block.
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

BEST, LAST, LOG, CURVES = "best.safetensors", "last.pt", "log.csv", "curves.png"
# One fixed number per purpose, so that draws are independent and old runs can be repeated.
ORDER, AUGMENT, MIX = 0, 1, 3
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
    """Callbacks that follow the training: ``step(epoch, n_images)`` per batch and ``epoch(result)`` per epoch."""

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


def train(
    network: Backbone,
    base: ImageSet,
    recipe: Recipe,
    preprocess: Preprocess,
    *,
    val: ImageSet | None = None,
    folder: Path | None = None,
    meta: dict[str, Any] | None = None,
    device: torch.device | str = "cpu",
    reporter: Reporter | None = None,
) -> Trained:
    """Train a network, in place, on the images of base classes.

    The epoch that is best on 5-way 1-shot tasks of ``val``, images of other classes, is kept; by default the last one.
    Checked epochs are saved in ``folder``: ``last.pt`` (weights, optimizer, history), ``log.csv`` and, for the
    best epoch so far, ``best.safetensors``. A later call with the same folder and settings continues from there.
    ``meta`` is stored with the weights; it must contain ``backbone`` if there is a ``folder``.

    When torch.distributed is initialised, every process takes its part of each batch.
    """
    device, reporter = torch.device(device), reporter or Reporter()
    world, rank = _world()
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
    if val is not None and (
        val.n_classes < 5 or int(val.labels.bincount(minlength=val.n_classes).min()) < 2
    ):
        raise InputError(
            "Validation uses 5-way 1-shot tasks: give at least five classes of at least two images each."
        )
    description = {**(meta or {}), "recipe": recipe.to_meta(), "preprocess": preprocess.to_meta()}
    description |= {"class_names": list(base.class_names)}

    base, val = base.to(device), None if val is None else val.to(device)
    network = network.to(device)
    if device.type == "cuda":
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    module: nn.Module = network
    if world > 1:
        if device.type != "cuda" and any(
            isinstance(layer, nn.BatchNorm2d) for layer in network.modules()
        ):
            raise InputError(
                "Several processes train on GPUs only; one process uses all cores of a CPU."
            )
        # Statistics of the global batch: n processes on n parts compute what one computes on the whole.
        synchronised = nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
        module = nn.parallel.DistributedDataParallel(synchronised)
    optimizer = _optimizer(network, recipe)
    history = _resume(folder, network, optimizer, description)
    best = _best_weights(folder, network, description, resumed=bool(history))
    for epoch in range(len(history) + 1, recipe.epochs + 1):
        loss, accuracy = _run_epoch(
            module, optimizer, base, recipe, preprocess, epoch, reporter.step
        )
        checked = recipe.checks(epoch)
        val_accuracy = (
            _from_first(_validate, network, val, recipe, preprocess)
            if val is not None and checked
            else None
        )
        result = EpochResult(epoch, learning_rate(recipe, epoch - 1), loss, accuracy, val_accuracy)
        history.append(result)
        if checked and (val_accuracy is None or best_epoch(history) is result):
            best = {
                name: tensor.detach().cpu().clone() for name, tensor in network.state_dict().items()
            }
            if folder is not None and rank == 0:
                save_checkpoint(folder / BEST, best, {**description, "epoch": epoch})
        if checked and folder is not None and rank == 0:
            _save_last(folder / LAST, description, history, model=network, optimizer=optimizer)
            write_log(folder / LOG, history)
        reporter.epoch(result)

    network.load_state_dict(best)
    base_mean = encode_images(network, base.images, preprocess).mean(0)
    chosen = best_epoch(history)
    if folder is not None and rank == 0:
        save_checkpoint(
            folder / BEST, {**best, "base_mean": base_mean}, {**description, "epoch": chosen.epoch}
        )
    return Trained(network, base_mean, tuple(history), chosen)


def _optimizer(network: nn.Module, recipe: Recipe) -> Optimizer:
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(network.parameters(), recipe.lr, weight_decay=recipe.weight_decay)
    return torch.optim.SGD(
        network.parameters(), recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay
    )


def _run_epoch(
    net: nn.Module,
    optimizer: Optimizer,
    base: ImageSet,
    recipe: Recipe,
    prepare: Preprocess,
    epoch: int,
    on_step: Step,
) -> tuple[float, float]:
    """One pass over the images; returns the mean loss and the accuracy on the augmented images."""
    world, rank = _world()
    device = base.images.device
    mine = slice(rank * recipe.batch // world, (rank + 1) * recipe.batch // world)
    order = torch.randperm(len(base), generator=generator_for(recipe.seed, ORDER, epoch))
    # Sums stay on the device: reading them would synchronise with it at every step.
    total_loss, n_correct = torch.zeros((), device=device), torch.zeros((), device=device)
    net.train()
    # A last, smaller batch would give batch normalisation poor statistics, so it is left out: other images each epoch.
    n_steps = len(base) // recipe.batch
    for step in range(n_steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(recipe, epoch - 1 + step / n_steps)
        chosen = order[step * recipe.batch : (step + 1) * recipe.batch]
        batch = training_batch(base, chosen, recipe, prepare, epoch, step, mine)
        with precision(device):
            scores = net(batch.images.contiguous(memory_format=memory_format(device))).float()
        loss = batch.loss(scores, recipe.label_smoothing)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimizer.step()
        total_loss += loss.detach()
        n_correct += (scores.argmax(1) == batch.labels).sum()
        on_step(epoch, (step + 1) * recipe.batch)
    totals = torch.stack([total_loss / world, n_correct])
    if world > 1:
        distributed.all_reduce(totals)
    return float(totals[0]) / n_steps, float(totals[1]) / (n_steps * recipe.batch)


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


def _save_last(
    path: Path, description: Settings, history: Sequence[EpochResult], **parts: Any
) -> None:
    """Save everything that the next epoch depends on."""
    state = {"description": description, "history": [asdict(result) for result in history]}
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        torch.save({**state, **{name: part.state_dict() for name, part in parts.items()}}, file)


def _resume(
    folder: Path | None, network: Backbone, optimizer: Optimizer, description: Settings
) -> list[EpochResult]:
    """Restore network and optimizer after the last saved epoch; returns the history (empty for a new run)."""
    if folder is None or not (folder / LAST).exists():
        return []
    try:
        state = torch.load(folder / LAST, map_location="cpu", weights_only=True)
        history = from_metadata(list[EpochResult], state["history"], "history")
        changed = _differences(state["description"], description)
        if not changed:
            network.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
    except Exception as error:  # damaged files raise exceptions of many types
        hint = "train again with `restart` or in another folder"
        raise InputError(
            f"{folder / LAST} is not the state of a run ({one_line(error)}); {hint}."
        ) from error
    if changed:
        which = " and ".join(changed)
        raise InputError(
            f"{folder} holds a run with another {which}; choose another folder or the same settings."
        )
    return history


def _differences(saved: Mapping[str, Any], description: dict[str, Any]) -> list[str]:
    """The settings in which a saved run differs from this one."""
    now, then = (json.loads(json.dumps(settings)) for settings in (description, dict(saved)))
    return [key for key in now if then.get(key) != now[key]]


def _best_weights(
    folder: Path | None, network: Backbone, description: Settings, *, resumed: bool
) -> dict[str, Tensor]:
    """The weights of the best epoch so far. A file of another run is not written over."""
    if folder is not None and (folder / BEST).exists():
        checkpoint = read_checkpoint(folder / BEST)
        if _differences(checkpoint.meta, description):
            hint = "choose another folder or use `restart`"
            raise InputError(f"{folder / BEST} is of another run and would be replaced; {hint}.")
        if resumed:
            tensors = {
                name: tensor for name, tensor in checkpoint.tensors.items() if name != "base_mean"
            }
            if _shapes(tensors) != _shapes(network.state_dict()):
                raise InputError(
                    f"The weights in {folder / BEST} do not fit this run; train again with `restart`."
                )
            return tensors
    return {name: tensor.detach().cpu().clone() for name, tensor in network.state_dict().items()}


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def _world() -> tuple[int, int]:
    """(number of processes, which one this is)."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size(), distributed.get_rank()
    return 1, 0


@contextmanager
def processes(device: torch.device) -> Iterator[tuple[torch.device, int]]:
    """The device and the rank of this process, which may be one of several that torchrun started."""
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


class Batch(NamedTuple):
    """Images with labels; where a second image is mixed in, also its label and the weight of the first."""

    images: Tensor  # [n, c, h, w] float
    labels: Tensor  # [n] int64
    mixed_labels: Tensor | None = None  # [n] int64
    weight: Tensor | None = None  # [n] in [0, 1]

    def loss(self, scores: Tensor, label_smoothing: float) -> Tensor:
        """Mean cross-entropy; for mixed images the weighted mean over their two labels."""
        if self.mixed_labels is None or self.weight is None:
            return F.cross_entropy(scores, self.labels, label_smoothing=label_smoothing)
        each = partial(F.cross_entropy, scores, label_smoothing=label_smoothing, reduction="none")
        first, second = each(self.labels), each(self.mixed_labels)
        return (self.weight * first + (1 - self.weight) * second).mean()


def generator_for(seed: int, *stream: int) -> torch.Generator:
    """A CPU generator seeded by the seed and the stream (purpose, epoch, step...)."""
    state = int(
        np.random.SeedSequence([seed, *stream]).generate_state(1, np.uint64)[0] >> np.uint64(1)
    )
    return torch.Generator().manual_seed(state)


def training_batch(
    base: ImageSet,
    chosen: Tensor,
    recipe: Recipe,
    preprocess: Preprocess,
    epoch: int,
    step: int,
    mine: slice,
) -> Batch:
    """The part ``mine`` of the global batch of images ``chosen``, augmented."""
    uniforms = torch.rand(
        len(chosen), N_UNIFORMS, generator=generator_for(recipe.seed, AUGMENT, epoch, step)
    )
    places, augment, device = (
        torch.arange(len(chosen)),
        AUGMENTATIONS[recipe.augment],
        base.images.device,
    )

    def views(places: Tensor) -> Batch:
        """The images at some places of the batch, augmented with their own random numbers."""
        rows = chosen[places].to(device, non_blocking=True)
        images, labels = base.images[rows], base.labels[rows]
        if augment is None:
            return Batch(preprocess.standardise(images), labels)
        own = uniforms[places].to(device, non_blocking=True)
        return Batch(
            preprocess.normalise(augment(images.float().div(255), own, preprocess.crop)), labels
        )

    own = views(places[mine])
    if recipe.mixup == 0:
        return own
    other = views(places.roll(-1)[mine])  # the next image is mixed in: the batch is in random order
    seeds = np.random.SeedSequence([recipe.seed, MIX, epoch, step])
    weights = (
        np.random.default_rng(seeds)
        .beta(recipe.mixup, recipe.mixup, len(chosen))
        .astype(np.float32)
    )
    weight = torch.from_numpy(weights)[mine].to(device, non_blocking=True)
    scale = weight.view(-1, 1, 1, 1)
    return Batch(scale * own.images + (1 - scale) * other.images, own.labels, other.labels, weight)


def write_log(path: Path, history: Sequence[EpochResult]) -> None:
    """Write a CSV file with one line per epoch. It is small, so it is written as a whole each time."""
    with atomic_write(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(EpochResult)])
        writer.writeheader()
        writer.writerows(asdict(result) for result in history)


def draw_curves(path: Path, history: Sequence[EpochResult]) -> None:
    """Plot the loss and the accuracies against the epoch."""
    epochs = [result.epoch for result in history]
    validated = [
        (result.epoch, 100 * result.val_accuracy)
        for result in history
        if result.val_accuracy is not None
    ]
    x, y = zip(*validated, strict=True) if validated else ((), ())
    curve = partial(Curve, markers=False)
    loss = curve("training", "paddle", epochs, [result.loss for result in history])
    accuracies = [
        curve("training", "paddle", epochs, [100 * result.accuracy for result in history])
    ]
    accuracies += [curve("validation, 5-way 1-shot", "alpha-tim", x, y)] if validated else []
    panels = [Panel("loss", [loss]), Panel("accuracy (%)", accuracies)]
    draw(Figure("curves", "Training", "", "epoch", "", panels, 2), path)
