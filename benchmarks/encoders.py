"""The default encoder of pictures, timed and scored on birds: ``python -m benchmarks.encoders DATA``.

DATA holds CUB-200-2011 (see ``manyway datasets``). 25 test classes with five examples each are the labelled examples;
35 other pictures of each are the items, 1,000 pictures together. They are written to folders, and ``manyway label``
labels them twice, with an empty cache and again. Then it labels the pictures of five of the classes alone.
"""

from __future__ import annotations

import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from manyway.encoding.datasets.sources import ImageSource, decode_rows
from manyway.encoding.encoders import ImageEncoder, open_encoder
from manyway.training.standard import open_dataset

N_CLASSES, SHOTS, N_ITEMS = 25, 5, 35
FEW = (2, 7, 11, 16, 21)  # the classes of the last run


def write_pictures(source: ImageSource, known: Path, piles: dict[Path, Sequence[int]]) -> dict[str, str]:
    """Write the examples and the piles; gives the class of every picture of a pile, by its name."""
    classes = {}
    for label in range(N_CLASSES):
        rows = torch.nonzero(source.labels == label).flatten().tolist()
        rows = [rows[i] for i in torch.randperm(len(rows), generator=torch.Generator().manual_seed(label))]
        name = source.class_names[label]
        for at, row in enumerate(rows[: SHOTS + N_ITEMS]):
            example = known / name / f"{at}.jpg"
            item = f"{label:03d}-{at}.jpg"
            paths = [example] if at < SHOTS else [pile / item for pile, present in piles.items() if label in present]
            for path in paths:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(source.read(row))
            classes[item] = name
    return classes


def run_label(folder: Path, pile: Path, classes: dict[str, str], method: str = "evidence") -> str:
    """Label a pile by the command, and say how long it took and how many labels are right."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    words = ["label", folder / "known", pile, "--method", method, "--device", "cpu"]
    words += ["-o", folder / "labels.csv", "--overwrite"]
    subprocess.run(
        [sys.executable, "-c", "from manyway.cli import main; main()", *map(str, words)],
        check=True,
        env={**os.environ, "MANYWAY_CACHE": str(folder / "cache")},
        stdout=subprocess.DEVNULL,
    )
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with (folder / "labels.csv").open(newline="") as file:
        right = [row["label"] == classes[row["item"]] for row in csv.DictReader(file)]
    return f"{100 * sum(right) / len(right):5.1f} % right, {seconds:6.1f} s ({cpu:6.1f} s of CPU time)"


def main() -> None:
    """Print times and accuracies."""
    source = open_dataset("cub", "test", sys.argv[1])
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        pile, few = folder / "pile", folder / "few"
        classes = write_pictures(source, folder / "known", {pile: range(N_CLASSES), few: FEW})
        print(f"25 classes present, first run:    {run_label(folder, pile, classes)}", flush=True)
        print(f"25 classes present, second run:   {run_label(folder, pile, classes)}", flush=True)
        print(f"25 classes present, simpleshot:   {run_label(folder, pile, classes, 'simpleshot')}", flush=True)
        print(f"5 of 25 classes present:          {run_label(folder, few, classes)}", flush=True)
        print(f"5 of 25 classes present, simpleshot: {run_label(folder, few, classes, 'simpleshot')}", flush=True)
    encoder = open_encoder("efficientnet-lite2")
    assert isinstance(encoder, ImageEncoder)
    start, cpu = time.perf_counter(), time.process_time()
    decode_rows(source, range(1000), encoder.preprocess, skip_bad=False)
    print(f"decoding 1,000 pictures alone: {time.perf_counter() - start:.1f} s ({time.process_time() - cpu:.1f} s)")


if __name__ == "__main__":
    main()
