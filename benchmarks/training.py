"""Measure the speed of base training, and how often the host waits for the GPU.

    python -m benchmarks.training --device cuda [--backbone resnet18] [--batch 256 64]

A network is trained on random images with the paper's recipe. Printed are the images per second in the second epoch,
and how often the host waited for the device in the third. Two waits per epoch, to read loss and accuracy at its end,
are expected.
"""

from __future__ import annotations

import argparse
import time
import warnings

import torch

from manyway.encoding.backbones.networks import build
from manyway.encoding.datasets.preprocess import ImageSet, Preprocess
from manyway.training.loop import Reporter, train
from manyway.training.recipe import Recipe

N_CLASSES = 100


def random_images(n: int, side: int) -> ImageSet:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=generator)
    return ImageSet(images, torch.arange(n) % N_CLASSES, tuple(map(str, range(N_CLASSES))))


def measure(backbone: str, batch: int, n: int, size: int, device: str) -> tuple[float, int | None]:
    """Images per second in the second epoch, and how often the host waited in the third (None on a CPU)."""
    preprocess = Preprocess.for_size(size, channels=3)
    ends: list[float] = []

    def end_of_epoch(_: object) -> None:
        ends.append(time.perf_counter())  # the loss of the epoch has been read, so the device has finished
        if device != "cpu":
            torch.cuda.set_sync_debug_mode("warn" if len(ends) == 2 else "default")

    torch.backends.cudnn.benchmark = True
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        network = build(backbone, N_CLASSES)
        recipe = Recipe(epochs=4, batch=batch, check_every=4)  # nothing is saved before the fourth epoch
        train(
            network,
            random_images(n, preprocess.resize),
            recipe,
            preprocess,
            device=device,
            reporter=Reporter(epoch=end_of_epoch),
        )
        waits = sum("called a synchronizing" in str(warning.message) for warning in caught)
    return n // batch * batch / (ends[1] - ends[0]), None if device == "cpu" else waits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu or cuda")
    parser.add_argument("--backbone", default="resnet18", help="default: resnet18")
    parser.add_argument("--batch", type=int, nargs="+", default=[256, 64], help="batch sizes to measure")
    parser.add_argument("--images", type=int, default=2560, help="images per epoch")
    parser.add_argument("--size", type=int, default=84, help="side of the network's input, in pixels")
    arguments = parser.parse_args()
    for batch in arguments.batch:
        rate, waits = measure(arguments.backbone, batch, arguments.images, arguments.size, arguments.device)
        told = "" if waits is None else f", {waits} waits per epoch"
        print(f"{arguments.backbone}, batch {batch}: {rate:,.0f} images per second{told}", flush=True)


if __name__ == "__main__":
    main()
