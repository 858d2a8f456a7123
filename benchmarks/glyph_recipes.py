"""Choose the training recipe of the embedded letter features, on the validation letters alone.

    python -m benchmarks.glyph_recipes --device cuda --jobs 4

The criterion was fixed before anything was run: the accuracy of the nearest prototype (SimpleShot) at 5 shots on the
100 validation letters, averaged over K_eff = 5, 10 and 20 and over the seeds. Recipes within 0.3 points of the best
count as equal, and PADDLE's accuracy at K_eff = 5 decides among them. Test letters are not used.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean

import torch
from joblib import Parallel, delayed

from benchmarks.glyphs import Plan
from benchmarks.measure import show
from manyway import FeatureSet, TaskSpec, evaluate
from manyway.encoding.backbones.networks import ResNet, encode_images
from manyway.encoding.datasets.preprocess import ImageSet, Preprocess
from manyway.training import glyphs
from manyway.training.glyphs.render import SIZE
from manyway.training.loop import train
from manyway.training.recipe import Recipe

TIE = 0.3  # points
K_EFFS = (5, 10, 20)
SMALL, WIDE = (24, 48, 96), (32, 64, 128)  # widths of the stages: those of resnet-small, and a third more

FIRST = Recipe(epochs=10, batch=64, lr=3e-3, optimizer="adamw", schedule="cosine", weight_decay=0.05, augment="none")
SGD = replace(FIRST, optimizer="sgd", lr=0.1, weight_decay=5e-4)
RECIPES: dict[str, tuple[Recipe, tuple[int, ...]]] = {
    "AdamW, 10 epochs": (FIRST, SMALL),
    "5 epochs": (replace(FIRST, epochs=5), SMALL),
    "20 epochs": (replace(FIRST, epochs=20), SMALL),
    "small affine changes": (replace(FIRST, augment="drawing"), SMALL),
    "small affine changes, 20 epochs": (replace(FIRST, epochs=20, augment="drawing"), SMALL),
    "no label smoothing": (replace(FIRST, label_smoothing=0.0), SMALL),
    "label smoothing 0.2": (replace(FIRST, label_smoothing=0.2), SMALL),
    "weight decay 0.5": (replace(FIRST, weight_decay=0.5), SMALL),
    "rate 0.001": (replace(FIRST, lr=1e-3), SMALL),
    "rate 0.01": (replace(FIRST, lr=1e-2), SMALL),
    "128 features": (FIRST, WIDE),
    "SGD": (SGD, SMALL),
    "SGD, 20 epochs": (replace(SGD, epochs=20), SMALL),
}


@dataclass(frozen=True)
class Score:
    """Accuracies in per cent on the validation letters."""

    name: str
    seed: int
    prototype: tuple[float, ...]  # at each of K_EFFS
    half_width: float  # of the 95 % interval over tasks, at the first of them
    paddle: float  # at the first of K_EFFS

    @property
    def criterion(self) -> float:
        return mean(self.prototype)


def _score(name: str, seed: int, device: str, n_tasks: int, base: ImageSet, val: ImageSet) -> Score:
    recipe, widths = RECIPES[name]
    val, preprocess = val.to(device), Preprocess.for_size(SIZE, channels=1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = ResNet(base.n_classes, 1, widths=widths, blocks=(1, 1, 1), stem_stride=2)
    trained = train(network, base, replace(recipe, seed=seed), preprocess, device=device)
    encoded = encode_images(trained.network, val.images, preprocess)
    features = FeatureSet(encoded, val.labels, val.class_names, trained.base_mean)
    specs = [TaskSpec(shots=5, k_eff=k_eff, n_query=75) for k_eff in K_EFFS]
    prototype = [evaluate("simpleshot", features, spec, n_tasks) for spec in specs]
    paddle = evaluate("paddle", features, specs[0], n_tasks)
    accuracies = tuple(100 * result.accuracy for result in prototype)
    return Score(name, seed, accuracies, 100 * prototype[0].ci95, 100 * paddle.accuracy)


def choose(scores: Sequence[Score]) -> str:
    """The name of the best recipe by the criterion above."""
    names = list(dict.fromkeys(score.name for score in scores))
    criterion = {name: mean(s.criterion for s in scores if s.name == name) for name in names}
    paddle = {name: mean(s.paddle for s in scores if s.name == name) for name in names}
    best = max(criterion.values())
    return max((name for name in names if criterion[name] >= best - TIE), key=paddle.__getitem__)


def table(scores: Sequence[Score]) -> list[list[object]]:
    """One row per recipe, the means over its seeds."""
    rows: list[list[object]] = []
    for name in dict.fromkeys(score.name for score in scores):
        own = [score for score in scores if score.name == name]
        each = [f"{mean(score.prototype[i] for score in own):.1f}" for i in range(len(K_EFFS))]
        by_seed = " ".join(f"{score.criterion:.1f}" for score in own)
        criterion = f"{mean(s.criterion for s in own):.2f}"
        rows.append([name, criterion, by_seed, *each, f"{mean(s.paddle for s in own):.1f}"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--jobs", type=int, default=1, help="trainings that run in parallel")
    parser.add_argument("--seeds", type=int, default=2, help="trainings per recipe (default: 2)")
    parser.add_argument("--tasks", type=int, default=1000, help="tasks per accuracy (default: 1000)")
    parser.add_argument("--only", nargs="*", default=list(RECIPES), help="names of the recipes to compare")
    arguments = parser.parse_args()

    base, val = glyphs.image_set("base", Plan().base_samples), glyphs.image_set("val", Plan().samples)
    jobs = [
        (name, seed, arguments.device, arguments.tasks) for name in arguments.only for seed in range(arguments.seeds)
    ]
    scores = Parallel(n_jobs=arguments.jobs)(delayed(_score)(*job, base, val) for job in jobs)
    header = ["recipe", "criterion", "by seed", *(f"K_eff = {k}" for k in K_EFFS), "PADDLE, K_eff = 5"]
    show(f"Recipes for the letters, ± {max(score.half_width for score in scores):.1f}", header, table(scores))
    print(f"\nchosen: {choose(scores)}")


if __name__ == "__main__":
    main()
