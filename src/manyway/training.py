"""Base training: cross-entropy on the base classes, so that the features are good for classes never seen.

Everything random is drawn from generators seeded by (seed, epoch, step), never from the global one: an epoch is the
same whatever ran before it, on however many processes. That makes a resumed run equal to an uninterrupted one, and n
processes equal to one with the same global batch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F

from manyway.backbones.checkpoint import Checkpoint, load_weights, read_checkpoint, save_checkpoint
from manyway.backbones.common import Backbone
from manyway.backbones.shared_norm import share_batch_norm
from manyway.datasets.augment import AUGMENTATIONS, N_UNIFORMS
from manyway.datasets.images import ImageSet
from manyway.datasets.preprocess import Preprocess
from manyway.errors import InputError, nearest
from manyway.features import FeatureSet
from manyway.training_log import EpochResult, write_log

BEST, LAST, LOG = "best.safetensors", "last.safetensors", "log.csv"
_ORDER, _AUGMENT = range(2)  # one number a purpose, so that no two draws share their randomness


@dataclass(frozen=True)
class Recipe:
    """How to train. The defaults are the paper's."""

    epochs: int = 90
    batch: int = 256
    lr: float = 0.1
    optimiser: str = "sgd"  # "sgd" with momentum; "adamw" gets a small network there in fewer epochs
    schedule: str = "steps"  # "steps": lr / 10 at each milestone; "cosine": linear warm-up, then down to 0
    milestones: tuple[int, ...] = (45, 66)
    momentum: float = 0.9
    weight_decay: float = 1e-4
    label_smoothing: float = 0.1
    augment: str = "photo"
    val_tasks: int = 500  # 5-way 1-shot tasks that choose the best epoch
    seed: int = 0

    def __post_init__(self) -> None:
        if self.optimiser not in {"sgd", "adamw"}:
            raise InputError(f"There is no optimiser '{self.optimiser}'; choose 'sgd' or 'adamw'.")
        if self.schedule not in {"steps", "cosine"}:
            raise InputError(f"There is no schedule '{self.schedule}'; choose 'steps' or 'cosine'.")
        if self.augment not in AUGMENTATIONS:
            raise InputError(f"There is no augmentation '{self.augment}'; {nearest(self.augment, AUGMENTATIONS)}")
        if self.epochs < 1 or self.batch < 2 or not self.lr > 0:
            raise InputError(
                f"epochs is {self.epochs}, batch {self.batch} and lr {self.lr}; "
                "training needs at least one epoch, two images in a batch and a positive rate."
            )

    def to_meta(self) -> dict[str, Any]:
        return {**asdict(self), "milestones": list(self.milestones)}


@dataclass(frozen=True)
class Reporter:
    """Who wants to know how it goes: a progress bar, a test, nobody."""

    step: Callable[[int, int], None] = lambda epoch, n_images: None
    epoch: Callable[[EpochResult], None] = lambda result: None


@dataclass(frozen=True, eq=False)
class Trained:
    """The network of the best epoch, with what extraction needs."""

    network: Backbone
    base_mean: Tensor  # [d] mean feature of the base images
    history: tuple[EpochResult, ...]


def learning_rate(recipe: Recipe, epoch: float) -> float:
    """The rate at a moment counted in epochs from 0 (a fraction inside an epoch counts for the cosine).

    >>> [round(learning_rate(Recipe(), epoch), 6) for epoch in (0, 44, 45, 66)]
    [0.1, 0.1, 0.01, 0.001]
    """
    if recipe.schedule == "steps":
        return recipe.lr * 0.1 ** sum(epoch >= milestone for milestone in recipe.milestones)
    warm_up = 0.1 * recipe.epochs
    if epoch < warm_up:
        return recipe.lr * (epoch / warm_up)
    return recipe.lr * 0.5 * (1 + math.cos(math.pi * (epoch - warm_up) / (recipe.epochs - warm_up)))


def generator_for(seed: int, *stream: int) -> torch.Generator:
    """A CPU generator whose numbers depend on the seed and the stream (purpose, epoch, step...) alone."""
    state = int(np.random.SeedSequence([seed, *stream]).generate_state(1, np.uint64)[0] >> np.uint64(1))
    return torch.Generator().manual_seed(state)


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
    """Train on ``base``; keep the epoch that is best on 5-way 1-shot tasks of ``val`` (without ``val``: the last).

    With a ``folder``, each epoch leaves ``last.safetensors`` (weights, optimiser, history) and, when it is the best so
    far, ``best.safetensors``; a later call with the same folder and recipe goes on from there. When torch.distributed
    is initialised, every process takes its part of each batch.
    """
    device, reporter = torch.device(device), reporter or Reporter()
    world, rank = _world()
    if recipe.batch % world:
        raise InputError(f"A batch of {recipe.batch} cannot be shared equally by {world} processes.")
    if len(base) < recipe.batch:
        raise InputError(f"There are {len(base)} base images, fewer than one batch of {recipe.batch}.")
    description = {**(meta or {}), "recipe": recipe.to_meta(), "preprocess": preprocess.to_meta()}
    description |= {"class_names": list(base.class_names)}

    base = base.to(device)
    network = network.to(device)
    if device.type == "cuda":
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    module: nn.Module = network
    if world > 1:
        shared = share_batch_norm(network, device)
        module = nn.parallel.DistributedDataParallel(shared)
    optimiser = _optimiser(network, recipe)
    history = _resume(folder, network, optimiser, description)
    best = _best_weights(folder, network) if history else {}
    for epoch in range(len(history) + 1, recipe.epochs + 1):
        loss, accuracy = _run_epoch(module, optimiser, base, recipe, preprocess, epoch, reporter.step)
        val_accuracy = None if val is None else _from_first(_validate, network, val, recipe, preprocess)
        result = EpochResult(epoch, learning_rate(recipe, epoch - 1), loss, accuracy, val_accuracy)
        previous = max((past.val_accuracy or 0.0 for past in history), default=-1.0)
        history.append(result)
        if result.val_accuracy is None or result.val_accuracy > previous:
            best = {name: tensor.detach().cpu().clone() for name, tensor in network.state_dict().items()}
            if folder is not None and rank == 0:
                save_checkpoint(folder / BEST, best, {**description, "epoch": epoch})
        if folder is not None and rank == 0:
            _save_last(folder / LAST, network, optimiser, description, history)
            write_log(folder / LOG, history)
        reporter.epoch(result)

    network.load_state_dict(best)
    base_mean = encode_images(network, base, preprocess).mean(0)
    if folder is not None and rank == 0:
        best_epoch = max(history, key=lambda result: (result.val_accuracy or 0.0, -result.epoch)).epoch
        best_epoch = best_epoch if val is not None else recipe.epochs
        save_checkpoint(folder / BEST, {**best, "base_mean": base_mean}, {**description, "epoch": best_epoch})
    return Trained(network, base_mean, tuple(history))


def _optimiser(network: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    if recipe.optimiser == "adamw":
        return torch.optim.AdamW(network.parameters(), recipe.lr, weight_decay=recipe.weight_decay)
    return torch.optim.SGD(network.parameters(), recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay)


def encode_images(
    network: Backbone, images: ImageSet, preprocess: Preprocess, *, batch: int = 512, fast: bool = False
) -> Tensor:
    """[n, d] float32 features on the images' device, with batch statistics frozen; ``fast``: bfloat16 on a GPU."""
    network.eval()
    features = []
    with torch.inference_mode():
        for part in torch.split(images.images, batch):
            ready = preprocess.standardise(part).contiguous(memory_format=_memory_format(part.device))
            with _precision(part.device, fast):
                features.append(network.features(ready).float())
    return torch.cat(features).clone()


def _run_epoch(
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    base: ImageSet,
    recipe: Recipe,
    preprocess: Preprocess,
    epoch: int,
    on_step: Callable[[int, int], None],
) -> tuple[float, float]:
    """One pass over the images; the mean loss and the accuracy on the images as the network saw them."""
    world, rank = _world()
    device = base.images.device
    mine = slice(rank * recipe.batch // world, (rank + 1) * recipe.batch // world)
    order = torch.randperm(len(base), generator=generator_for(recipe.seed, _ORDER, epoch))
    # Sums stay on the device: reading them at every step would make it wait for the host.
    total_loss, n_correct = torch.zeros((), device=device), torch.zeros((), device=device)
    network.train()
    # A last, smaller batch would give batch normalisation poor statistics: it is left out (other images each epoch).
    n_steps = len(base) // recipe.batch
    for step in range(n_steps):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(recipe, epoch - 1 + step / n_steps)
        chosen = order[step * recipe.batch : (step + 1) * recipe.batch][mine].to(device, non_blocking=True)
        labels = base.labels[chosen]
        images = _training_images(base.images[chosen], recipe, preprocess, epoch, step, mine)
        with _precision(device):
            scores = network(images)
        loss = F.cross_entropy(scores.float(), labels, label_smoothing=recipe.label_smoothing)
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimiser.step()
        total_loss += loss.detach()
        n_correct += (scores.argmax(1) == labels).sum()
        on_step(epoch, (step + 1) * recipe.batch)
    totals = torch.stack([total_loss / world, n_correct])
    if world > 1:
        distributed.all_reduce(totals)
    return float(totals[0]) / n_steps, float(totals[1]) / (n_steps * recipe.batch)


def _training_images(
    images: Tensor, recipe: Recipe, preprocess: Preprocess, epoch: int, step: int, mine: slice
) -> Tensor:
    """What the network sees in training: this process's part of the batch, augmented."""
    augment = AUGMENTATIONS[recipe.augment]
    if augment is None:
        ready = preprocess.standardise(images)
    else:
        # Drawn for the global batch, on the CPU: the same numbers on every device and for any number of processes.
        generator = generator_for(recipe.seed, _AUGMENT, epoch, step)
        uniforms = torch.rand(recipe.batch, N_UNIFORMS, generator=generator)[mine].to(images.device, non_blocking=True)
        ready = preprocess.normalise(augment(images.float().div(255), uniforms, preprocess.crop))
    return ready.contiguous(memory_format=_memory_format(images.device))


def _validate(network: Backbone, val: ImageSet, recipe: Recipe, preprocess: Preprocess) -> float:
    """Accuracy of the nearest prototype on 5-way 1-shot tasks of classes that training does not see."""
    from manyway.evaluation import evaluate
    from manyway.sampling import TaskSpec

    device = next(network.parameters()).device
    features = FeatureSet(encode_images(network, val.to(device), preprocess, fast=True), val.labels, val.class_names)
    fewest = int(features.counts.min())
    spec = TaskSpec(shots=1, k_eff=5, n_ways=5, n_query=5 * min(15, fewest - 1), sampling="balanced")
    return float(evaluate("simpleshot", features, spec, n_tasks=recipe.val_tasks, seed=recipe.seed).accuracy)


def _save_last(
    path: Path,
    network: Backbone,
    optimiser: torch.optim.Optimizer,
    description: dict[str, Any],
    history: Sequence[EpochResult],
) -> None:
    """Everything that the next epoch depends on."""
    tensors = dict(network.state_dict())
    for name, parameter in network.named_parameters():
        for key, value in optimiser.state[parameter].items():
            tensors[f"optimiser.{name}.{key}"] = torch.as_tensor(value)
    save_checkpoint(path, tensors, {**description, "history": [asdict(result) for result in history]})


def _resume(
    folder: Path | None, network: Backbone, optimiser: torch.optim.Optimizer, description: dict[str, Any]
) -> list[EpochResult]:
    """Put network and optimiser where the last finished epoch left them; the history so far (empty for a new run)."""
    if folder is None or not (folder / LAST).exists():
        return []
    checkpoint = read_checkpoint(folder / LAST)
    now = json.loads(json.dumps(description))
    changed = [key for key in now if checkpoint.meta.get(key) != now[key]]
    if changed:
        raise InputError(
            f"{folder} holds a run with another {' and '.join(changed)}; choose another folder or the same settings."
        )
    weights, state = _split_optimiser(checkpoint)
    load_weights(network, weights, str(folder / LAST), str(description.get("backbone", "the network")), set())
    for name, parameter in network.named_parameters():
        for key, value in state[name].items():
            # AdamW counts its steps on the CPU, whatever the parameter's device.
            optimiser.state[parameter][key] = value if key == "step" else value.to(parameter.device)
    return [EpochResult(**result) for result in checkpoint.meta["history"]]


def _best_weights(folder: Path | None, network: Backbone) -> dict[str, Tensor]:
    if folder is None or not (folder / BEST).exists():
        return {name: tensor.detach().cpu().clone() for name, tensor in network.state_dict().items()}
    tensors = dict(read_checkpoint(folder / BEST).tensors)
    tensors.pop("base_mean", None)
    return tensors


def _split_optimiser(checkpoint: Checkpoint) -> tuple[dict[str, Tensor], dict[str, dict[str, Tensor]]]:
    """Weights by name, and what the optimiser remembers of each parameter."""
    weights: dict[str, Tensor] = {}
    state: dict[str, dict[str, Tensor]] = {}
    for name, tensor in checkpoint.tensors.items():
        if name.startswith("optimiser."):
            parameter, _, key = name.removeprefix("optimiser.").rpartition(".")
            state.setdefault(parameter, {})[key] = tensor
        else:
            weights[name] = tensor
    return weights, state


def _world() -> tuple[int, int]:
    """(number of processes, which one this is)."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size(), distributed.get_rank()
    return 1, 0


def _from_first(compute: Callable[..., float], network: Backbone, *arguments: Any) -> float:
    """What the first process computes, told to all: the others wait instead of doing the same work."""
    world, rank = _world()
    if world == 1:
        return compute(network, *arguments)
    device = next(network.parameters()).device
    value = torch.zeros((), device=device, dtype=torch.float64)
    if rank == 0:
        value.fill_(compute(network, *arguments))
    distributed.broadcast(value, src=0)
    return float(value)


def _memory_format(device: torch.device) -> torch.memory_format:
    """Channels last is what tensor cores want; this CPU's convolutions are faster without it."""
    return torch.channels_last if device.type == "cuda" else torch.contiguous_format


def _precision(device: torch.device, fast: bool = True) -> torch.autocast:
    """bfloat16 where the hardware is fast at it: convolutions lose nothing that training notices."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=fast and device.type == "cuda")


def scaled_for(recipe: Recipe, epochs: int) -> Recipe:
    """The recipe for another number of epochs, its milestones at the same fractions.

    >>> scaled_for(Recipe(), 180).milestones
    (90, 132)
    """
    factor = epochs / recipe.epochs
    return replace(recipe, epochs=epochs, milestones=tuple(round(m * factor) for m in recipe.milestones))
