"""``python -m benchmarks.evidence_study KEY… --data DATA --out study.jsonl``: evidence against prototypes and PADDLE.

Every cell (features, shots, K_eff, |Q|) is solved on the same tasks by nearest prototypes (``simpleshot``), PADDLE,
PADDLE at the temperature that is best for the cell (known only to somebody who has the labels), and evidence. A cell
that is in the file already is not run again; ``--show`` runs nothing: ``--table`` and ``--plot`` come from the file.
After a change of evidence alone, ``--others`` takes the others' answers from an earlier file.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.evidence_tasks import add_seed, arguments, class_numbers, in_chunks, within_two_sd
from manyway import FeatureSet, InputError, Tasks, TaskSpec, solve
from manyway.bench.data import find_features
from manyway.core.transforms import transform
from manyway.evaluation.statistics import paired

TEMPERATURES = {"cl2": (5, 7, 10, 15, 22, 32, 48, 70, 100), "range": (0.1, 0.4, 0.7, 1.0, 1.5, 4.0)}
BINS = 15
# What evidence may lose, in points: to prototypes, to PADDLE, to PADDLE at the best temperature.
ALLOWED = {"prototypes": 0.3, "paddle": 0.5, "oracle": 1.0}
ALLOWED_FEW = {**ALLOWED, "oracle": 2.0}  # where one or two classes occur


@dataclass(frozen=True)
class Cell:
    features: str
    shots: int
    k_eff: int
    n_query: int


def cells(name: str, features: FeatureSet) -> Iterator[Cell]:
    """All shots with 75 queries, 5 shots with 15 and 300; fewer queries where classes have not enough samples."""
    k, counts = features.n_classes, features.counts.sort().values
    found = set()
    for shots, n_query in [(1, 75), (5, 75), (10, 75), (20, 75), (5, 15), (5, 300)]:
        for k_eff in (1, 2, 5, 10, 20, k // 2, k):
            left = int((counts[:k_eff] - shots).clamp_min(0).sum())
            cell = Cell(name, shots, k_eff, min(n_query, left))
            if int(counts[0]) > shots and cell.n_query >= 15 and k_eff <= k and cell not in found:
                found.add(cell)
                yield cell


def run(
    cell: Cell, features: FeatureSet, n_tasks: int, seed: int, others: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Right answers of every task, and how true evidence's probabilities are; ``others``: a row that has the rest."""
    spec = TaskSpec(shots=cell.shots, k_eff=cell.k_eff, n_query=cell.n_query)
    right: dict[str, list[int]] = {}
    bins, found = torch.zeros(3, BINS, dtype=torch.float64), []
    for tasks, truth in in_chunks("evidence", features, spec, n_tasks, seed):
        answers = _answers_of_others(tasks) if others is None else {}
        solution = solve("evidence", tasks)
        answers["evidence"] = solution.labels
        for name, labels in answers.items():
            right.setdefault(name, []).extend((labels == truth).sum(1).tolist())
        bins += reliability(solution.probabilities, truth).cpu()
        found += class_numbers(solution, truth).double().round(decimals=3).tolist()
    if others is None:
        oracle = max((name for name in right if " " in name), key=lambda name: sum(right[name]))
        right = {**right, "oracle": right[oracle]}
    else:
        oracle, right = others["temperature"], {**others["right"], **right}
    return {
        **cell.__dict__,
        "n_tasks": n_tasks,
        "seed": seed,
        "temperature": oracle,
        "right": {name: right[name] for name in ("prototypes", "paddle", "oracle", "evidence")},
        "reliability": bins.tolist(),
        "n_classes": found,
    }


def _answers_of_others(tasks: Tasks) -> dict[str, Tensor]:
    answers = {"prototypes": solve("simpleshot", tasks).labels, "paddle": solve("paddle", tasks).labels}
    for scale, temperatures in TEMPERATURES.items():
        scaled = transform(tasks, scale)
        for t in temperatures:
            answers[f"paddle {scale} {t:g}"] = solve("paddle", _hotter(scaled, t), scale=None).labels
    return answers


def _hotter(tasks: Tasks, temperature: float) -> Tasks:
    like = tasks.query_table if tasks.factor is None else tasks.factor
    factor = like.new_ones(tasks.n_tasks, 1, tasks.n_features) if tasks.factor is None else tasks.factor
    return replace(tasks, factor=factor * sqrt(temperature))


def reliability(probabilities: Tensor, truth: Tensor) -> Tensor:
    """[3, b] how many answers, the sum of their probabilities, and how many are right, by probability."""
    sure, labels = probabilities.double().max(-1)
    bins = (sure * BINS).long().clamp_max(BINS - 1).flatten()
    columns = (torch.ones_like(sure), sure, (labels == truth).double())
    return torch.stack([sure.new_zeros(BINS).scatter_add_(0, bins, column.flatten()) for column in columns])


def calibration_error(bins: Tensor) -> float:
    """In points: by how much probabilities and the part that is right differ, weighted by how many answers."""
    many, sure, hits = bins
    return 100 * float((sure - hits).abs().sum() / many.sum())


def summary(row: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a cell: accuracies, differences with their intervals, calibration, and what is missed."""
    right, n_query = row["right"], row["n_query"]
    result = {name: row[name] for name in ("features", "shots", "k_eff", "n_query", "n_tasks")}
    for name, answers in right.items():
        result[name] = 100 * sum(answers) / (n_query * len(answers))
    missed = []
    allowed = ALLOWED_FEW if row["k_eff"] <= 2 else ALLOWED
    for name in ("prototypes", "paddle", "oracle"):
        difference = paired(right["evidence"], right[name], n_query).difference
        result[f"over {name}"], result[f"over {name} ±"] = 100 * difference.mean, 100 * difference.half
        if 100 * difference.mean < -allowed[name]:
            missed.append(name)
    result["calibration error"] = calibration_error(torch.tensor(row["reliability"]))
    guess, sd, truth = (torch.tensor(values) for values in zip(*row["n_classes"], strict=True))
    result["classes"], result["classes found"] = float(truth.mean()), float(guess.mean())
    result["classes within 2 sd"] = within_two_sd(guess, sd, truth)
    result["oracle is"], result["missed"] = row["temperature"], " ".join(missed)
    return result


def write_table(rows: Sequence[dict[str, Any]], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{value:.2f}" if isinstance(value, float) else value for key, value in row.items()})


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Reliability with 75 queries, 5 shots: what an answer's probability is worth."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["features"] for row in rows))
    figure = Figure(figsize=(2.6 * len(names), 2.9), layout="constrained")
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for panel, name in zip(panels, names, strict=True):
        panel.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        for colour, k_eff in enumerate((2, 5, 20)):
            cell = [row for row in rows if (row["features"], row["shots"], row["k_eff"]) == (name, 5, k_eff)]
            for row in sorted(cell, key=lambda row: abs(row["n_query"] - 75))[:1]:
                many, sure, hits = (torch.tensor(values) for values in row["reliability"])
                enough = many >= 200
                x, y = (sure / many)[enough], (hits / many)[enough]
                panel.plot(x, y, color=f"C{colour}", marker=".", label=f"K_eff = {k_eff}")
        panel.set(title=name, xlabel="probability")
    panels[0].set_ylabel("part that is right")
    panels[0].legend(frameon=False)
    figure.savefig(path)


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Markdown: 5 shots and 75 queries in full, then all cells in short, and those that miss."""
    columns = "prototypes | PADDLE | PADDLE, best temperature | evidence | calibration error | classes found"
    print(f"| features | K_eff | {columns} |")
    print("|:---|---:|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        if row["shots"] == 5 and row["n_query"] == 75:
            values = " | ".join(f"{row[name]:.1f}" for name in ("prototypes", "paddle", "oracle", "evidence"))
            found = f"{row['classes found']:.1f} of {row['classes']:.1f}"
            print(f"| {row['features']} | {row['k_eff']} | {values} | {row['calibration error']:.1f} | {found} |")
    missed = [row for row in rows if row["missed"]]
    print(f"\n{len(rows)} cells, {len(missed)} below what is allowed:\n")
    print("| features | shots | K_eff | |Q| | over prototypes | over PADDLE | over PADDLE at its best |")
    print("|:---|---:|---:|---:|---:|---:|---:|")
    for row in missed:
        over = " | ".join(
            f"{row[f'over {name}']:+.1f} ± {row[f'over {name} ±']:.1f}" for name in ("prototypes", "paddle", "oracle")
        )
        print(f"| {row['features']} | {row['shots']} | {row['k_eff']} | {row['n_query']} | {over} |")


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _cell(row: dict[str, Any]) -> Cell:
    return Cell(*(row[name] for name in ("features", "shots", "k_eff", "n_query")))


def _in_short(row: dict[str, Any]) -> str:
    return " ".join(f"{name}={value:.1f}" if isinstance(value, float) else f"{value}" for name, value in row.items())


def main() -> None:
    parser = arguments(__doc__, keys="*")
    add_seed(parser)
    parser.add_argument("--out", type=Path, required=True, help="results, one line a cell")
    parser.add_argument("--others", type=Path, help="an earlier file, for the answers of all but evidence")
    parser.add_argument("--show", action="store_true", help="run nothing")
    parser.add_argument("--table", type=Path, help="write all numbers here, as CSV")
    parser.add_argument("--plot", type=Path, help="draw how true the probabilities are")
    options = parser.parse_args()
    rows = _read(options.out) if options.out.exists() else []
    done = {_cell(row) for row in rows}
    earlier = _read(options.others) if options.others else []
    asked = (options.tasks, options.seed)
    known = {_cell(row): row for row in earlier if (row["n_tasks"], row["seed"]) == asked}
    for key in [] if options.show else options.keys:
        features = find_features(key, options.data).to(options.device)
        for cell in cells(key, features):
            if cell in done:
                continue
            try:
                rows.append(run(cell, features, *asked, others=known.get(cell)))
            except InputError as error:
                print(f"{cell}: {error}")
                continue
            with options.out.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(_in_short(summary(rows[-1])), flush=True)
    table = [summary(row) for row in rows]
    show(table)
    if options.table is not None:
        write_table(table, options.table)
    if options.plot is not None:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
