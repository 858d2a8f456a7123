"""The course of training, as a table and a plot."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from manyway.files.files import atomic_write
from manyway.plots.figures import Curve, Figure, Panel, draw


@dataclass(frozen=True)
class EpochResult:
    """One epoch; accuracies are fractions."""

    epoch: int  # from 1
    lr: float
    loss: float
    accuracy: float  # on the augmented training images
    val_accuracy: float | None  # 5-way 1-shot, nearest prototype


def write_log(path: Path, history: Sequence[EpochResult]) -> None:
    """Write a CSV file with one line per epoch. It is small, so it is written as a whole each time."""
    with atomic_write(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(EpochResult)])
        writer.writeheader()
        writer.writerows(asdict(result) for result in history)


def draw_curves(path: Path, history: Sequence[EpochResult]) -> None:
    """Plot the loss and the accuracies against the epoch."""
    epochs = [result.epoch for result in history]
    validated = [(result.epoch, 100 * result.val_accuracy) for result in history if result.val_accuracy is not None]
    x, y = zip(*validated, strict=True) if validated else ((), ())
    accuracies = [
        Curve("training", "paddle", epochs, [100 * result.accuracy for result in history], markers=False),
        Curve("validation, 5-way 1-shot", "alpha-tim", x, y, markers=False),
    ]
    loss = Curve("training", "paddle", epochs, [result.loss for result in history], markers=False)
    panels = [Panel("loss", [loss]), Panel("accuracy (%)", accuracies if validated else accuracies[:1])]
    draw(Figure("curves", "Training", "", "epoch", "", panels, 2), path)
