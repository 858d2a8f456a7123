"""The embedded features: draw letters, train a small network on the base letters, encode the others."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from manyway.encoding.backbones import build as build_backbone
from manyway.encoding.backbones.checkpoint import weights_hash
from manyway.encoding.backbones.encode import encode_images
from manyway.encoding.datasets.preprocess import Preprocess
from manyway.sampling.features import FeatureSet
from manyway.training.glyphs import BASE_SAMPLES, SAMPLES, image_set
from manyway.training.glyphs.letters import SCRIPTS
from manyway.training.glyphs.lookalikes import SAME_IN_ONE, SAME_ON_AVERAGE
from manyway.training.glyphs.render import SIZE
from manyway.training.loop import Reporter, Trained, train
from manyway.training.recipe import Recipe

BACKBONE = "resnet-small"
# Chosen among thirteen on the validation letters: benchmarks/glyph_recipes.py.
RECIPE = Recipe(
    epochs=20, batch=64, lr=3e-3, optimizer="adamw", schedule="cosine", weight_decay=0.05, augment="drawing"
)


@dataclass(frozen=True)
class Plan:
    """Everything that the embedded features depend on, except versions of libraries."""

    seed: int = 0
    base_samples: int = BASE_SAMPLES
    samples: int = SAMPLES
    recipe: Recipe = RECIPE


def build_features(plan: Plan, reporter: Reporter | None = None) -> dict[str, FeatureSet]:
    """The feature sets ``test`` and ``val``, with the base mean and metadata about their origin."""
    base = image_set("base", plan.base_samples, seed=plan.seed)
    network = build_backbone(BACKBONE, base.n_classes, base.n_channels, seed=plan.seed)
    preprocess = Preprocess.for_size(SIZE, channels=1)
    trained = train(network, base, plan.recipe, preprocess, reporter=reporter)
    meta = {
        "data set": "glyphs",
        "command": "python -m manyway.training.glyphs",
        "encoder": BACKBONE,
        "weights sha256": weights_hash(network),
        "preprocess": preprocess.to_meta(),
        "plan": asdict(plan),
        "scripts": {split: sorted(scripts) for split, scripts in SCRIPTS.items()},
        "look-alike thresholds": [SAME_ON_AVERAGE, SAME_IN_ONE],
        "base classes": base.n_classes,
        "base images": len(base),
        "training accuracy": round(trained.history[-1].accuracy, 4),
        "versions": {name: version(name) for name in ("torch", "numpy", "pillow", "matplotlib")},
    }
    return {split: _encode_split(trained, split, plan, preprocess, meta) for split in ("test", "val")}


def _encode_split(trained: Trained, split: str, plan: Plan, preprocess: Preprocess, meta: dict[str, Any]) -> FeatureSet:
    images = image_set(split, plan.samples, seed=plan.seed)
    features = encode_images(trained.network, images.images, preprocess)
    return FeatureSet(features, images.labels, images.class_names, trained.base_mean, {**meta, "split": split})
