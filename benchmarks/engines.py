"""The default encoder of pictures on torch and on OpenVINO: ``python -m benchmarks.engines DATA [N_CLASSES]``.

DATA holds ``cub200_96px.zip``. Of each of the first classes (default: 125) 40 pictures are encoded by both; five are
the examples and the others the items. They are labelled in one batch, and in batches of five classes each. Needs the
extras pictures and fast.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from manyway import Evidence
from manyway.encoding.datasets.sources import ImageSource, decode_rows, open_source
from manyway.encoding.encoders import OPENVINO, TORCH, ImageEncoder, open_encoder

N_CLASSES = 125
PICTURES = 40  # of each class
SHOTS = 5  # of them that are examples
TOGETHER = 16  # pictures that are encoded at once
FEW = 5  # classes of a small batch


def chosen_rows(source: ImageSource, n_classes: int) -> list[int]:
    """Pictures of each of the first classes, in a random order."""
    labels = source.labels.numpy()
    rows: list[int] = []
    for label in range(n_classes):
        order = np.random.default_rng(label).permutation(np.flatnonzero(labels == label))
        rows += order[:PICTURES].tolist()
    return rows


def opened(engine: str) -> ImageEncoder:
    """The default encoder on an engine, with its network read."""
    os.environ["MANYWAY_ENGINE"] = engine
    encoder = open_encoder("efficientnet-lite2")
    assert isinstance(encoder, ImageEncoder)
    encoder.encode(
        torch.zeros(1, 3, encoder.preprocess.crop, encoder.preprocess.crop, dtype=torch.uint8)
    )
    return encoder


def encoded(source: ImageSource, rows: Sequence[int]) -> dict[str, np.ndarray]:
    """Features by each engine; their times are printed.

    The engines take turns, so that other work on the machine slows both alike.
    """
    encoders = {engine: opened(engine) for engine in (TORCH, OPENVINO)}
    parts: dict[str, list[np.ndarray]] = {engine: [] for engine in encoders}
    walls: dict[str, list[float]] = {engine: [] for engine in encoders}
    cpus: dict[str, list[float]] = {engine: [] for engine in encoders}
    for start in range(0, len(rows), TOGETHER):
        some = rows[start : start + TOGETHER]
        decoded = decode_rows(source, some, encoders[TORCH].preprocess, skip_bad=False)
        pictures = torch.stack([picture for picture in decoded.pictures if picture is not None])
        for engine, encoder in encoders.items():
            wall, cpu = time.perf_counter(), time.process_time()
            parts[engine].append(encoder.encode(pictures).numpy())
            walls[engine].append(1000 * (time.perf_counter() - wall) / len(some))
            cpus[engine].append(1000 * (time.process_time() - cpu) / len(some))
    print(
        f"{torch.get_num_threads()} threads; median of {len(walls[TORCH])} times {TOGETHER} pictures"
    )
    for engine, encoder in encoders.items():
        times = f"{np.median(walls[engine]):.1f} ms per picture ({np.median(cpus[engine]):.1f} ms of CPU time)"
        print(f"{encoder.engine}: {times}", flush=True)
    features = {engine: np.concatenate(of_engine) for engine, of_engine in parts.items()}
    apart = np.abs(features[TORCH] - features[OPENVINO]).max()
    print(
        f"the features differ by at most {apart:.2g}; the largest is {np.abs(features[TORCH]).max():.2g}"
    )
    return features


def main() -> None:
    """Print times, and how many labels change."""
    source = open_source(Path(sys.argv[1]) / "cub200_96px.zip")
    assert isinstance(source, ImageSource)
    n_classes = int(sys.argv[2]) if len(sys.argv) > 2 else N_CLASSES
    rows = chosen_rows(source, n_classes)
    truth = source.labels.numpy()[rows]
    features = encoded(source, rows)
    is_example = np.arange(len(rows)) % PICTURES < SHOTS
    items = np.flatnonzero(~is_example)
    mixed = np.random.default_rng(0).permutation(n_classes)
    groups = np.array_split(mixed, max(1, n_classes // FEW))
    batches = {
        "all classes in one batch": [items],
        f"{FEW} classes in a batch": [items[np.isin(truth[items], group)] for group in groups],
    }
    for title, parts in batches.items():
        labels = {
            engine: np.concatenate(
                [
                    Evidence().fit(x[is_example], truth[is_example]).infer(x[part]).labels
                    for part in parts
                ]
            )
            for engine, x in features.items()
        }
        right = truth[np.concatenate(parts)]
        changed = int((labels[TORCH] != labels[OPENVINO]).sum())
        before = 100 * float((labels[TORCH] == right).mean())
        after = 100 * float((labels[OPENVINO] == right).mean())
        print(
            f"{title}: {changed} of {len(right)} labels change; {before:.1f} % right, then {after:.1f} %"
        )


if __name__ == "__main__":
    main()
