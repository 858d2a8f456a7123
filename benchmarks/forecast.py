"""How right ``manyway.examine`` is about the number of right labels, on items that it has not seen.

    python -m benchmarks.forecast DATA [--draws 1] [--sets clinc150-half-val] [--store forecast.jsonl]

Examples of 40 classes are drawn and examined. Then batches of 60 other items of 2, 5, 10 and 20 of the classes are
labelled by ``evidence`` with these examples. Forecast and truth are compared: for the mean of 20 batches, and for each.
Classes are every other one of a set: the formula was chosen on the others, of the sets intents, birds and letters.

Measured draws are kept in the store, and are not measured again.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import show
from manyway import FeatureSet, Tasks, examine, solve
from manyway.bench.data import find_features

SETS = {
    "clinc150-half-val": "intents",
    "cub200-half-val": "birds",
    "glyphs-half-val": "letters",
    "cifar100-half-val": "photographs",
    "cub-rn18": "birds, ResNet-18",
}
SHOTS = (3, 5, 10, 20)
N_PRESENT = (2, 5, 10, 20)
N_CLASSES = 40
N_ITEMS = 60
N_BATCHES = 20
SEED = 2026
Row = dict[str, Any]
load = lru_cache(maxsize=1)(find_features)


def measure(name: str, shots: int, number: int, data: Path) -> list[Row]:
    """The forecasts for one draw of examples, and what happened."""
    found = load(name, data)
    generator = np.random.default_rng((SEED, shots, number))
    chosen = generator.permutation(found.n_classes)[:N_CLASSES]
    shuffled = [generator.permutation(np.flatnonzero(found.labels.numpy() == k)) for k in chosen]
    examples = np.concatenate([rows[:shots] for rows in shuffled])
    labels = np.concatenate([np.full(len(rows[:shots]), k) for k, rows in enumerate(shuffled)])
    features = found.features[examples].float()
    report = examine(features, labels, n_items=N_ITEMS, n_present=N_PRESENT)
    rest = [rows[shots:] for rows in shuffled]
    rows = []
    for batch in report.batches:
        truth = accuracies(found, features, labels, rest=rest, n_present=batch.n_present, generator=generator)
        forecast = {"accuracy": batch.accuracy, "low": batch.low, "high": batch.high}
        key = {"set": name, "shots": shots, "number": number, "n_present": batch.n_present}
        rows.append({**key, **forecast, "truth": truth})
    return rows


def accuracies(
    found: FeatureSet, features: torch.Tensor, labels: Any, *, rest: list[Any], n_present: int, generator: Any
) -> list[float]:
    """The share of right labels in each batch of other items."""
    rows = np.empty((N_BATCHES, N_ITEMS), dtype=np.int64)
    truth = np.empty_like(rows)
    for at in range(N_BATCHES):
        present = generator.permutation(len(rest))[:n_present]
        truth[at] = generator.choice(present, N_ITEMS)
        for k in present:
            places = np.flatnonzero(truth[at] == k)
            rows[at, places] = generator.choice(rest[k], len(places), replace=len(places) > len(rest[k]))
    tasks = Tasks(
        support_table=features,
        support_index=torch.arange(len(features)).expand(N_BATCHES, -1),
        support_labels=torch.from_numpy(labels).expand(N_BATCHES, -1),
        query_table=found.features.float(),
        query_index=torch.from_numpy(rows),
        n_classes=len(rest),
    )
    right = solve("evidence", tasks).labels == torch.from_numpy(truth)
    return [float(share) for share in right.double().mean(1)]


def run(sets: list[str], n_draws: int, data: Path, store: Path) -> list[Row]:
    """All rows, of which those in the store are not measured again."""
    rows: list[Row] = []
    if store.exists():
        rows = [json.loads(line) for line in store.read_text("utf-8").splitlines()]
    done = {(row["set"], row["shots"], row["number"]) for row in rows}
    with store.open("a", encoding="utf-8") as file:
        for name in sets:
            for number in range(n_draws):
                for shots in SHOTS:
                    if (name, shots, number) in done:
                        continue
                    some = measure(name, shots, number, data)
                    rows += some
                    file.writelines(json.dumps(row) + "\n" for row in some)
                    file.flush()
    return rows


def show_tables(rows: list[Row]) -> None:
    """By set, by number of examples and by number of classes."""
    cells: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        cells["all"].append(row)
    for row in rows:
        cells[SETS.get(row["set"], row["set"])].append(row)
    for row in sorted(rows, key=lambda one: one["shots"]):
        cells[f"{row['shots']} examples"].append(row)
    for row in sorted(rows, key=lambda one: one["n_present"]):
        cells[f"{row['n_present']} classes"].append(row)
    header = ["batches", "right", "forecast", "gap", "settings within 5", "batches within 5"]
    header += ["batches within 5 of their mean", "in the 90 % interval"]
    show("Forecasts of right labels, in %", header, [[name, *_figures(some)] for name, some in cells.items()])


def _figures(rows: list[Row]) -> list[str]:
    truth = np.array([row["truth"] for row in rows])
    forecast = np.array([row["accuracy"] for row in rows])[:, None]
    low = np.array([row["low"] for row in rows])[:, None]
    high = np.array([row["high"] for row in rows])[:, None]
    gaps = np.abs(truth.mean(1, keepdims=True) - forecast)
    inside = (truth >= low - 1e-9) & (truth <= high + 1e-9)
    shares = [truth.mean(), forecast.mean(), gaps.mean(), (gaps <= 0.05).mean()]
    of_mean = np.abs(truth - truth.mean(1, keepdims=True)) <= 0.05  # what a perfect forecast would reach
    shares += [(np.abs(truth - forecast) <= 0.05).mean(), of_mean.mean(), inside.mean()]
    return [f"{100 * share:.1f}" for share in shares]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--store", type=Path, default=Path("forecast.jsonl"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = run(arguments.sets.split(","), arguments.draws, arguments.data, arguments.store)
    show_tables(rows)


if __name__ == "__main__":
    main()
