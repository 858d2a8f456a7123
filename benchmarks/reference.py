"""Compare every method with recorded runs of its original.

    python -m benchmarks.reference DATA [--device cuda] [--method paddle ...] [--tasks N]

DATA holds ``features/``; the recorded runs lie beside it, in ``reference/``. They contain tasks (rows of the feature
files) and the accuracy of the authors' code on them. Each method runs on the same tasks. The table, in Markdown, has
one row per feature set, configuration and method: the recorded accuracy, ours, and whether the difference is within the
recorded tolerance. The exit status is 1 when a difference is not.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import show
from manyway import METHODS, FeatureSet, Tasks, solve

FEATURES = {"clinc150": "clinc150_minilm_l6.npz", "cub200": "cub200_mobilenetv2_192px.npz"}
# Parameters of the recorded runs that differ from our defaults.
RECORDED_PARAMS: dict[str, dict[str, Any]] = {"tim": {"max_iter": 1000}}


@dataclass(frozen=True)
class Comparison:
    """Mean accuracy, in per cent, of one method on the first tasks of one recorded configuration."""

    features: str
    config: str
    method: str
    n_tasks: int
    recorded: float
    ours: float
    tolerance: float  # in points; one label more when only some of the recorded tasks were run
    seconds: float

    @property
    def difference(self) -> float:
        return self.ours - self.recorded

    @property
    def within(self) -> bool:
        """Whether the difference is within the tolerance, which is given to two digits."""
        return abs(self.difference) <= self.tolerance + 0.005


def compare(
    data: Path,
    methods: Collection[str] = tuple(METHODS),
    *,
    device: str = "cpu",
    limit: int | None = None,
    configs: Collection[str] | None = None,
) -> Iterator[Comparison]:
    """Run methods on recorded tasks, at most ``limit`` per configuration.

    ``configs`` limits the configurations to some, such as ``clinc150_5shot_keff5``.
    """
    for dataset in FEATURES:
        recorded = json.loads((data.parent / "reference" / f"{dataset}.json").read_text())
        wanted = [config for config in recorded if configs is None or f"{dataset}_{config}" in configs]
        if not wanted:
            continue
        features = FeatureSet.load(data / "features" / FEATURES[dataset]).features.to(device)
        for config in wanted:
            for name in methods:
                if name not in recorded[config]:
                    continue
                entry = recorded[config][name]
                n_tasks = entry["n_tasks"] if limit is None else min(limit, entry["n_tasks"])
                tasks = recorded_tasks(data, features, dataset, config, n_tasks)
                begin = time.perf_counter()
                labels = solve(name, tasks, **RECORDED_PARAMS.get(name, {})).labels
                seconds = time.perf_counter() - begin
                # The tolerance is meant for the mean over all recorded tasks; over fewer, one label weighs more.
                one_label = 0.0 if n_tasks == entry["n_tasks"] else 100 / tasks.n_query
                yield Comparison(
                    dataset,
                    config,
                    name,
                    n_tasks,
                    float(np.mean(entry["per_task"][:n_tasks])),
                    float((labels == tasks.query_labels).double().mean()) * 100,
                    entry["tolerance_points"] + one_label,
                    seconds,
                )


def recorded_tasks(data: Path, features: torch.Tensor, dataset: str, config: str, n_tasks: int) -> Tasks:
    """The first tasks of a recorded configuration."""
    with np.load(data.parent / "reference" / f"{dataset}_{config}.npz", allow_pickle=False) as file:
        support, query, truth = (
            torch.from_numpy(file[name][:n_tasks].astype(np.int64)).to(features.device)
            for name in ("support_idx", "query_idx", "query_labels")
        )
        mean = torch.from_numpy(file["train_mean"]).to(features)
    n_tasks, n_classes, shots = support.shape
    labels = torch.arange(n_classes, device=features.device).repeat_interleave(shots).expand(n_tasks, -1)
    return Tasks(features, support.flatten(1), labels, features, query, n_classes, truth, base_mean=mean)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder that holds features/ and lies beside reference/")
    parser.add_argument("--device", default="cpu", help="where methods run: cpu or cuda")
    parser.add_argument(
        "--method", nargs="*", choices=list(METHODS), default=list(METHODS), help="default: every method"
    )
    parser.add_argument("--tasks", type=int, help="at most so many tasks per configuration; default: all recorded ones")
    options = parser.parse_args()
    outside = []

    def rows() -> Iterator[list[object]]:
        for found in compare(options.data, options.method, device=options.device, limit=options.tasks):
            if not found.within:
                outside.append(found)
            figures = f"{found.recorded:.2f} {found.ours:.2f} {found.difference:+.2f} {found.tolerance:.1f}".split()
            within = "yes" if found.within else "**no**"
            yield [found.features, found.config, found.method, found.n_tasks, *figures, within, found.seconds]

    header = ["features", "tasks", "method", "n", "recorded", "ours", "difference", "tolerance", "within", "seconds"]
    show("Accuracy on recorded tasks, in per cent", header, rows())
    raise SystemExit(1 if outside else 0)


if __name__ == "__main__":
    main()
