"""``python -m benchmarks.evidence_cost KEY… --data DATA``: the time that evidence takes compared with PADDLE.

Prints Markdown: milliseconds per task, the shortest of seven runs (on a CPU the processor time of one thread, which
other processes lengthen little). Calibration needs only the support: where tasks share one support, it is done once.
The least that a metric needs is the matrix of all products of contrasts, scatter or Gram, whichever is smaller, one
factor of it, and one triangular solution for the prototypes and 256 left-out samples: as if γ were known.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.measure import count_cpu_time, seconds, show
from manyway import TaskSpec, sample_tasks, solve
from manyway.bench.data import find_features
from manyway.core.transforms import transform
from manyway.methods.calibration.calibrating import calibrate_distances
from manyway.methods.calibration.metric import _shrunk, products_among, solve_lower
from manyway.methods.evidence.schedule import Schedule

HEADER = (
    "features | K | d | shots | K_eff | PADDLE | evidence | of it calibration | plain distances "
    "| with / without metric | products alone | with one factor and solution | least / without metric"
)


def rows(options: argparse.Namespace) -> Iterator[list[object]]:
    """Milliseconds per task, by feature set, shots and K_eff."""
    for key in options.keys:
        features = find_features(key, options.data).to(options.device)
        for shots, k_eff in ((5, 5), (5, 50), (20, 5)):
            tasks = sample_tasks(features, TaskSpec(shots=shots, k_eff=k_eff, n_query=75), count=options.tasks)
            scaled = transform(tasks, "rcl2")
            contrasts = scaled.support[:, scaled.n_classes :]  # as many rows, and time does not depend on their values
            few = contrasts if contrasts.shape[1] < contrasts.shape[2] else contrasts.mT
            work: list[Callable[[], object]] = [
                lambda tasks=tasks: solve("paddle", tasks),
                lambda tasks=tasks: solve("evidence", tasks),
                lambda tasks=tasks: calibrate_distances(transform(tasks, "rcl2"), Schedule()),
                lambda tasks=tasks: solve("evidence", tasks, metric=False),
                lambda few=few: products_among(few),
                lambda few=few, n_rows=features.n_classes + 256: least(few, n_rows),
            ]
            times = [1e3 * min(seconds(one, repeats=1, warm=0) for _ in range(7)) / options.tasks for one in work]
            _, evidence, _, plain, products, alone = times
            shape = [features.n_classes, features.features.shape[1], shots, k_eff]
            yield [key, *shape, *times[:4], f"{evidence / plain:.1f}", products, alone, f"{1 + alone / plain:.1f}"]


def least(rows: Tensor, n_rows: int) -> Tensor:
    """Products among rows [t, n, m], one factor, and its solution for so many rows."""
    ones = rows.new_ones(len(rows))
    root = torch.linalg.cholesky(_shrunk(products_among(rows), ones / rows.shape[2], ones))
    return solve_lower(root, rows.new_ones(len(rows), n_rows, rows.shape[1]).mT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keys", nargs="+", help="feature sets: keys in DATA, or glyphs")
    parser.add_argument("--data", type=Path, help="folder with the features")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    if options.device == "cpu":
        count_cpu_time()
    show(f"evidence and PADDLE, milliseconds per task, {options.device}", HEADER.split(" | "), rows(options))


if __name__ == "__main__":
    main()
