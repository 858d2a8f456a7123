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


def encoded(source: ImageSource, rows: Sequence[int], engine: str) -> np.ndarray:
    """Features by an engine; its time is printed."""
    os.environ["MANYWAY_ENGINE"] = engine
    encoder = open_encoder("efficientnet-lite2")
    assert isinstance(encoder, ImageEncoder)
    parts = []
    wall = 0.0
    cpu = 0.0
    for start in range(0, len(rows), TOGETHER):
        decoded = decode_rows(source, rows[start : start + TOGETHER], encoder.preprocess, skip_bad=False)
        pictures = torch.stack([picture for picture in decoded.pictures if picture is not None])
        wall -= time.perf_counter()
        cpu -= time.process_time()
        parts.append(encoder.encode(pictures).numpy())
        wall += time.perf_counter()
        cpu += time.process_time()
    each = 1000 / len(rows)
    print(f"{encoder.engine}: {wall * each:.1f} ms per picture ({cpu * each:.1f} ms of CPU time)", flush=True)
    return np.concatenate(parts)


def main() -> None:
    """Print times, and how many labels change."""
    source = open_source(Path(sys.argv[1]) / "cub200_96px.zip")
    assert isinstance(source, ImageSource)
    n_classes = int(sys.argv[2]) if len(sys.argv) > 2 else N_CLASSES
    rows = chosen_rows(source, n_classes)
    truth = source.labels.numpy()[rows]
    features = {engine: encoded(source, rows, engine) for engine in (TORCH, OPENVINO)}
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
                [Evidence().fit(x[is_example], truth[is_example]).infer(x[part]).labels for part in parts]
            )
            for engine, x in features.items()
        }
        right = truth[np.concatenate(parts)]
        changed = int((labels[TORCH] != labels[OPENVINO]).sum())
        before = 100 * float((labels[TORCH] == right).mean())
        after = 100 * float((labels[OPENVINO] == right).mean())
        print(f"{title}: {changed} of {len(right)} labels change; {before:.1f} % right, then {after:.1f} %")


if __name__ == "__main__":
    main()
