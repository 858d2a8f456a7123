"""The course of training, as a table and a plot."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from manyway.files.files import atomic_write


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
    """Plot the loss (left axis) and the accuracies (right axis) against the epoch."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    left = figure.add_subplot()
    right = left.twinx()
    epochs = [result.epoch for result in history]
    lines = left.plot(epochs, [result.loss for result in history], color="tab:grey", label="training loss")
    lines += right.plot(
        epochs, [100 * result.accuracy for result in history], color="tab:blue", label="training accuracy"
    )
    validated = [(result.epoch, 100 * result.val_accuracy) for result in history if result.val_accuracy is not None]
    if validated:
        x, y = zip(*validated, strict=True)
        lines += right.plot(x, y, color="tab:orange", label="validation, 5-way 1-shot")
    left.set(xlabel="epoch", ylabel="loss")
    right.set(ylabel="accuracy (%)")
    left.legend(handles=lines, loc="center right")
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=150)
