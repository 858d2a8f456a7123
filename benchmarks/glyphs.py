"""Make the embedded features again, bit for bit on one machine: draw letters, train a small network, encode the others.

python -m benchmarks.glyphs
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from manyway import FeatureSet
from manyway.encoding.backbones.checkpoint import weights_hash
from manyway.encoding.backbones.networks import build as build_backbone
from manyway.encoding.backbones.networks import encode_images
from manyway.encoding.datasets.preprocess import Preprocess
from manyway.sampling.embedded import FILES, FOLDER
from manyway.training.glyphs import BASE_SAMPLES, RECIPE, SAMPLES, image_set
from manyway.training.glyphs.letters import SCRIPTS
from manyway.training.glyphs.render import SAME_IN_ONE, SAME_ON_AVERAGE, SIZE
from manyway.training.loop import Reporter, Trained, train
from manyway.training.recipe import Recipe

BACKBONE = "resnet-small"
# The order of summation depends on the number of threads, and with it the last bits of the result.
THREADS = 1


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
    network = build_backbone(BACKBONE, base.n_classes, 1, seed=plan.seed)
    preprocess = Preprocess.for_size(SIZE, channels=1)
    trained = train(network, base, plan.recipe, preprocess, reporter=reporter)
    meta = {
        "data set": "glyphs",
        "command": "python -m benchmarks.glyphs",
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder for the two files (default: the package)")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other samples, for another network")
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    plan = Plan(seed=arguments.seed, recipe=replace(RECIPE, seed=arguments.seed))
    with Progress(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()) as progress:
        bar = progress.add_task("drawing letters", total=None)

        def show(epoch: int, done: int) -> None:
            progress.update(bar, description=f"epoch {epoch} of {plan.recipe.epochs}: {done} images")

        features = build_features(plan, Reporter(step=show))
    for split, name in FILES.items():
        features[split].save(arguments.out / name, half=True)
        print(f"{arguments.out / name}: {features[split].n_classes} classes, {len(features[split].labels)} samples")


if __name__ == "__main__":
    main()
