"""``python -m manyway.training.glyphs``: recompute the embedded features of letters, bit for bit on one machine."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from manyway.sampling.embedded import FILES, FOLDER

# The order of summation depends on the number of threads, and with it the last bits of the result.
THREADS = 1


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m manyway.training.glyphs", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=FOLDER, help="folder for the two files (default: the package's own)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="another seed draws other samples and trains another network"
    )
    arguments = parser.parse_args()

    import torch
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from manyway.errors import InputError
    from manyway.training.glyphs.build import Plan, build_features
    from manyway.training.loop import Reporter

    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    recipe = replace(Plan().recipe, seed=arguments.seed)
    plan = Plan(seed=arguments.seed, recipe=recipe)
    try:
        with Progress(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()) as progress:
            bar = progress.add_task("drawing letters", total=None)

            def show(epoch: int, done: int) -> None:
                progress.update(bar, description=f"epoch {epoch} of {plan.recipe.epochs}: {done} images")

            features = build_features(plan, Reporter(step=show))
        for split, name in FILES.items():
            features[split].save(arguments.out / name, half=True)
            print(f"{arguments.out / name}: {features[split].n_classes} classes, {len(features[split].labels)} samples")
    except InputError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
