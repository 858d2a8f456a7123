"""The augmented images and the labels of one training step.

Random numbers are drawn on the CPU for the global batch, from generators seeded by (seed, purpose, epoch, step): they
are the same on every device and for any number of processes. Copies to the device do not block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from manyway.encoding.datasets.images import ImageSet
from manyway.encoding.datasets.preprocess import Preprocess
from manyway.training.augment import AUGMENTATIONS, N_UNIFORMS
from manyway.training.recipe import Recipe

# One fixed number per purpose, so that draws are independent and old runs can be repeated.
ORDER, AUGMENT, MIX = 0, 1, 3


@dataclass(frozen=True, eq=False)
class Batch:
    """Images with labels; where a second image is mixed in, also its label and the weight of the first."""

    images: Tensor  # [n, c, h, w] float
    labels: Tensor  # [n] int64
    mixed_labels: Tensor | None = None  # [n] int64
    weight: Tensor | None = None  # [n] in [0, 1]

    def loss(self, scores: Tensor, label_smoothing: float) -> Tensor:
        """Mean cross-entropy; for mixed images the weighted mean over their two labels."""
        if self.mixed_labels is None or self.weight is None:
            return F.cross_entropy(scores, self.labels, label_smoothing=label_smoothing)
        first, second = (
            F.cross_entropy(scores, labels, label_smoothing=label_smoothing, reduction="none")
            for labels in (self.labels, self.mixed_labels)
        )
        return (self.weight * first + (1 - self.weight) * second).mean()


def generator_for(seed: int, *stream: int) -> torch.Generator:
    """A CPU generator seeded by the seed and the stream (purpose, epoch, step...)."""
    state = int(np.random.SeedSequence([seed, *stream]).generate_state(1, np.uint64)[0] >> np.uint64(1))
    return torch.Generator().manual_seed(state)


def training_batch(
    base: ImageSet, chosen: Tensor, recipe: Recipe, preprocess: Preprocess, epoch: int, step: int, mine: slice
) -> Batch:
    """The part ``mine`` of the global batch of images ``chosen``, augmented."""
    uniforms = torch.rand(len(chosen), N_UNIFORMS, generator=generator_for(recipe.seed, AUGMENT, epoch, step))
    places = torch.arange(len(chosen))
    own = _views(base, chosen, uniforms, places[mine], recipe, preprocess)
    if recipe.mixup == 0:
        return own
    # The next image serves as the second one: the batch is in random order.
    other = _views(base, chosen, uniforms, places.roll(-1)[mine], recipe, preprocess)
    seeds = np.random.SeedSequence([recipe.seed, MIX, epoch, step])
    weights = np.random.default_rng(seeds).beta(recipe.mixup, recipe.mixup, len(chosen)).astype(np.float32)
    weight = torch.from_numpy(weights)[mine].to(own.images.device, non_blocking=True)
    scale = weight.view(-1, 1, 1, 1)
    mixed = scale * own.images + (1 - scale) * other.images
    return Batch(mixed, own.labels, other.labels, weight)


def _views(
    base: ImageSet,
    chosen: Tensor,
    uniforms: Tensor,
    places: Tensor,
    recipe: Recipe,
    preprocess: Preprocess,
) -> Batch:
    """The images at some places of the batch, augmented with their own random numbers."""
    device = base.images.device
    rows = chosen[places].to(device, non_blocking=True)
    images, labels = base.images[rows], base.labels[rows]
    augment = AUGMENTATIONS[recipe.augment]
    if augment is None:
        ready = preprocess.standardise(images)
    else:
        own = uniforms[places].to(device, non_blocking=True)
        ready = preprocess.normalise(augment(images.float().div(255), own, preprocess.crop))
    return Batch(ready, labels)
