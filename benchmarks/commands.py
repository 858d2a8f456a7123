"""Measure the commands of a person: whole processes, from the start of Python to the last file.

    python -m benchmarks.commands [NAME ...] [--runs 5] [--pictures 1000]

Names: ``help``, ``features`` (label 1,000 items of 200 features), ``scores`` (label 10,000 rows of scores of 2,000
classes, a Parquet file), ``list`` (list 100,000 files) and ``pictures`` (label pictures of 3 megapixels with the
default encoder, nothing cached). Printed are the shortest wall-clock time, which needs an idle machine, and the
shortest processor time of all threads, which other processes lengthen less.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.measure import show

MANYWAY = [sys.executable, "-m", "manyway"]
LISTING = """
import atexit, gc  # as the command itself does
atexit.register(gc.freeze)
gc.set_threshold(50_000, *gc.get_threshold()[1:])
from pathlib import Path
from manyway.encoding.datasets.sources import open_source

open_source(Path("many"))
"""
SHAPE, SHOTS = (1536, 2048), 5  # of a picture; examples of each of ten classes


def features(folder: Path, options: argparse.Namespace) -> None:
    """20 classes of 10 examples, of which 6 occur among 1,000 items."""
    random = np.random.default_rng(0)
    means, labels = random.normal(size=(20, 200)), np.repeat(np.arange(20), 10)
    examples = means[labels] + random.normal(size=(200, 200))
    items = means[random.integers(0, 6, 1000)] + random.normal(size=(1000, 200))
    np.savez(folder / "examples.npz", features=examples.astype(np.float32), labels=labels)
    np.save(folder / "items.npy", items.astype(np.float32))


def scores(folder: Path, options: argparse.Namespace) -> None:
    """40 of 2,000 classes occur."""
    import pyarrow
    from pyarrow import parquet

    random = np.random.default_rng(0)
    values = random.normal(size=(10_000, 2_000)).astype(np.float32)
    values[np.arange(10_000), random.integers(0, 40, 10_000)] += 4
    columns = {f"c{at}": values[:, at] for at in range(2_000)}
    parquet.write_table(pyarrow.table({"item": [f"i{row}" for row in range(10_000)], **columns}), folder / "s.parquet")


def many_files(folder: Path, options: argparse.Namespace) -> None:
    """100 folders of 1,000 empty files."""
    for number in range(100):
        inside = folder / "many" / f"c{number}"
        inside.mkdir(parents=True)
        for name in range(1000):
            (inside / f"{name}.jpg").touch()


def pictures(folder: Path, options: argparse.Namespace) -> None:
    """JPEG files of large shapes and noise, about 0.9 MB each."""
    from PIL import Image

    random = np.random.default_rng(0)
    for number in range(10 * SHOTS + options.pictures):
        name = f"catalogue/c{number % 10}/{number}.jpg" if number < 10 * SHOTS else f"photos/{number}.jpg"
        shapes = random.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        shapes[..., number % 3] //= 2
        pixels = np.asarray(Image.fromarray(shapes).resize(SHAPE[::-1]), dtype=np.int16)
        pixels = pixels + random.integers(-12, 13, (*SHAPE, 1), dtype=np.int16)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / name, quality=88)


def nothing(folder: Path, options: argparse.Namespace) -> None:
    """No file is needed."""


LABEL = [*MANYWAY, "label", "--overwrite", "-o", "labels.csv"]
COMMANDS: dict[str, tuple[Callable[[Path, argparse.Namespace], None], list[str]]] = {
    "help": (nothing, [*MANYWAY, "--help"]),
    "features": (features, [*LABEL, "examples.npz", "items.npy"]),
    "scores": (scores, [*LABEL, "--scores", "s.parquet"]),
    "list": (many_files, [sys.executable, "-c", LISTING]),
    "pictures": (pictures, [*LABEL, "catalogue", "photos"]),
}


def rows(options: argparse.Namespace) -> Iterator[list[object]]:
    """Seconds of each command."""
    for name in options.names or COMMANDS:
        make, command = COMMANDS[name]
        with tempfile.TemporaryDirectory() as place:
            make(Path(place), options)
            wall, work = zip(*(timed(command, Path(place)) for _ in range(options.runs)), strict=True)
            yield [name, f"{min(wall):.2f}", f"{min(work):.2f}"]


def timed(command: list[str], folder: Path) -> tuple[float, float]:
    """Wall-clock and processor seconds of a process that has no cache."""
    with tempfile.TemporaryDirectory() as cache:
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        environment = {**os.environ, "MANYWAY_CACHE": cache, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else every run would compile the package: 0.8 s
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
        wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=(*COMMANDS, []), metavar="NAME")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--pictures", type=int, default=1000, help="items of `pictures`; 50 examples are added")
    options = parser.parse_args()
    show("Commands, seconds", ["command", "wall", "processor"], rows(options))


if __name__ == "__main__":
    main()
