"""Our methods on the tasks of recorded runs of the original methods: ours, theirs, and the tolerance, as Markdown.

    python -m benchmarks.reference DATA [--device cuda] [--method paddle ...]

DATA holds ``features/`` and, beside it, ``reference/``.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from manyway import METHODS, FeatureSet, Tasks, solve

FEATURES = {"clinc150": "clinc150_minilm_l6.npz", "cub200": "cub200_mobilenetv2_192px.npz"}
# What the recorded runs used where it is not our default.
RECORDED_PARAMS: dict[str, dict[str, Any]] = {"tim": {"max_iter": 1000}}


def load_features(data: Path, dataset: str, device: str = "cpu") -> torch.Tensor:
    """[n, d] the rows that recorded tasks point into."""
    return FeatureSet.load(data / "features" / FEATURES[dataset]).features.to(device)


def load_recorded(data: Path, dataset: str) -> dict[str, Any]:
    """Configuration → method → what was recorded."""
    recorded: dict[str, Any] = json.loads((data.parent / "reference" / f"{dataset}.json").read_text())
    return recorded


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


def accuracies(name: str, tasks: Tasks) -> np.ndarray[Any, np.dtype[np.float64]]:
    """[t] accuracy in per cent, with the parameters of the recorded run."""
    labels = solve(name, tasks, **RECORDED_PARAMS.get(name, {})).labels
    return (labels == tasks.query_labels).double().mean(1).cpu().numpy() * 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--method", nargs="*", choices=list(METHODS), default=list(METHODS))
    options = parser.parse_args()
    print("| features | tasks | method | n | recorded | ours | difference | tolerance | within | seconds |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for dataset in FEATURES:
        features = load_features(options.data, dataset, options.device)
        for config, methods in load_recorded(options.data, dataset).items():
            for name in options.method:
                if name not in methods:
                    continue
                entry = methods[name]
                tasks = recorded_tasks(options.data, features, dataset, config, entry["n_tasks"])
                begin = time.perf_counter()
                ours = accuracies(name, tasks).mean()
                seconds = time.perf_counter() - begin
                difference = ours - entry["accuracy"]
                within = "yes" if abs(difference) <= entry["tolerance_points"] + 0.005 else "**no**"
                print(
                    f"| {dataset} | {config} | {name} | {entry['n_tasks']} | {entry['accuracy']:.2f} | {ours:.2f} | "
                    f"{difference:+.2f} | {entry['tolerance_points']} | {within} | {seconds:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
