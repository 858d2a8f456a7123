"""Unknown queries and class names in evidence: what is found, and what it costs where nothing is unknown.

    python -m benchmarks.unknown DATA [--tasks 40] [--val] [--shots 1 5 20] [--device cuda] [--false-alarms]

Two thirds of the classes are in a task. Of 75 queries 20, 40 or none are unknown, the others of 5 or 20 classes.
Unknown queries are of three further classes, scattered over all further classes, or of another set (out-of-scope texts,
letters of other alphabets). Sets without validation classes are split: --val takes the half on which the constants were
chosen, and the default is the other half. A row has the means of a set's cells. The last table has intents with their
names.

With --false-alarms no query is unknown, in many situations: few classes, few examples, one present class, large
batches, uneven numbers, and Gaussian classes. The figures are percentages of queries that are answered as unknown: on
average, in the worst part of 20 tasks, and in the worst task.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import show
from manyway import FeatureSet, Tasks, TaskSpec, sample_tasks, solve
from manyway.bench.data import find_features, find_strangers
from manyway.evaluation.metrics import METRICS, auroc, ordered_accuracy, rejected, unknown_groups, whole_accuracy
from manyway.evaluation.scorers import SCORERS

SETS = ("clinc150", "cifar100", "cub200", "cub-rn18", "glyphs")
WHOLE = ("cub-rn18", "glyphs")  # sets with validation classes of their own
OTHERS = {"clinc150": ("clinc150_oos",) * 2, "glyphs": ("glyphs-val", "glyphs")}  # for the report half, for --val
# Columns: AUROC; accuracy on all queries; the same with the order of evidence and the true number of unknown queries;
# what is answered as unknown; the expected number; calibration; accuracy on known queries.
FIGURES = ("nearest", "oslo", "evidence", "whole", "true number", "gap", "found", "wrongly", "false", "worst")
HEADER = ("set", "shots", *FIGURES, "number", "none", "error", "closed", "open", "least", "ARI")


def key_of(name: str, val: bool) -> str:
    """The key of the half, or split, that is measured."""
    return name + ("" if name in WHOLE else "-half") + ("-val" if val else "")


def percent(values: torch.Tensor) -> str:
    return f"{100 * float(values.double().nanmean()):.1f}"


def open_set(data: Path, n_tasks: int, val: bool, shots: Sequence[int], device: str) -> Iterator[list[str]]:
    """One row per feature set and number of examples, and one for all sets."""
    for n_shots in shots:
        cells: list[dict[str, Any]] = []
        for name in SETS:
            features = find_features(key_of(name, val), data).to(device, torch.float32)
            others = find_strangers(OTHERS[name][val], data).to(device, torch.float32) if name in OTHERS else None
            mine = [
                _measured(sample_tasks(features, spec, seed=1, count=n_tasks))
                for spec in _specs(2 * features.n_classes // 3, n_shots, others)
            ]
            cells += mine
            yield [name, str(n_shots), *_row(mine)]
        yield ["all", str(n_shots), *_row(cells)]


def _specs(n_ways: int, shots: int, others: FeatureSet | None) -> Iterator[TaskSpec]:
    kinds: list[dict[str, Any]] = [{"unknown_classes": 3}, {}]
    if others is not None:
        kinds.append({"unknown_from": others})
    for k_eff in (5, 20):
        for n_unknown in (20, 40):
            for kind in kinds:
                yield TaskSpec(shots, k_eff, 75 - n_unknown, n_ways=n_ways, n_unknown=n_unknown, **kind)
        yield TaskSpec(shots, k_eff, 75, n_ways=n_ways)


def _measured(tasks: Tasks) -> dict[str, Any]:
    """The figures of one cell."""
    closed, opened = (solve("evidence", tasks, open_set=value) for value in (False, True))
    truth, unknown = tasks.query_labels, opened.unknown
    assert truth is not None
    assert unknown is not None
    known, inner = truth >= 0, opened.probabilities.argmax(-1)
    number = (~known).sum(1, keepdim=True)
    wrongly, found = rejected(opened, tasks).unbind(1)
    cell: dict[str, Any] = {
        "bins": METRICS["unknown_calibration"].measure(opened, tasks).cpu(),
        "closed": (closed.labels == truth)[known].double().mean(),
        "open": (inner == truth)[known].double().mean(),
        "expected": unknown.sum(1).double().mean(),
    }
    if bool(known.all()):
        return {**cell, "false": wrongly.mean(), "none": cell["expected"] / tasks.n_query}
    distance, oslo = SCORERS["nearest-distance"].score(tasks), solve("oslo", tasks).unknown
    areas = [auroc(opened.changed(unknown=score), tasks).nanmean() for score in (distance, oslo, unknown)]
    whole = whole_accuracy(opened, tasks).mean()
    right = ordered_accuracy(opened, tasks).mean()
    return {
        **cell,
        **dict(zip(FIGURES, (*areas, whole, right, right - whole, found.mean(), wrongly.mean()), strict=False)),
        "number": (cell["expected"] / number.double().mean() - 1).abs(),
        "ARI": unknown_groups(opened, tasks)[:, 0].nanmean(),
    }


def _row(cells: list[dict[str, Any]]) -> list[str]:
    """The means over cells; "worst" is the highest "false" of a cell, "least" the lowest gain on known queries."""

    def mean(name: str) -> float:
        values = torch.tensor([float(cell[name]) for cell in cells if name in cell])
        return 100 * float(values.nanmean())

    bins = torch.cat([cell["bins"] for cell in cells])
    error = METRICS["unknown_calibration"].summaries[""].of(bins.numpy(), 75).mean
    derived = {
        "worst": 100 * max(float(cell["false"]) for cell in cells if "false" in cell),
        "error": 100 * error,
        "least": 100 * min(float(cell["open"] - cell["closed"]) for cell in cells),
    }
    return [f"{derived[name] if name in derived else mean(name):.1f}" for name in HEADER[2:]]


SITUATIONS: dict[str, dict[str, Any]] = {
    "5 shots, 75 queries of 5 classes": {},
    "K = 3": {"n_ways": 3, "k_eff": 3},
    "K = 3, 30 queries of 1 class": {"n_ways": 3, "k_eff": 1, "n_query": 30},
    "K = 5": {"n_ways": 5},
    "K = 5, 50 queries of 2 classes": {"n_ways": 5, "k_eff": 2, "n_query": 50},
    "K = 5, 2 shots": {"n_ways": 5, "shots": 2},
    "K = 10": {"n_ways": 10},
    "1 shot": {"shots": 1},
    "2 shots": {"shots": 2},
    "3 shots": {"shots": 3},
    "1 to 5 shots": {},
    "20 queries of 1 class": {"k_eff": 1, "n_query": 20},
    "40 queries of 2 classes": {"k_eff": 2, "n_query": 40},
    "75 queries of 20 classes": {"k_eff": 20},
    "10 queries": {"n_query": 10},
    "200 queries of 10 classes": {"k_eff": 10, "n_query": 200},
    "uneven proportions": {"sampling": "dirichlet", "alpha": 0.5},
}
GAUSSIAN = [(K, d, shots) for K in (3, 5, 10, 40) for d in (4, 32) for shots in (2, 5)]


def false_alarms(data: Path, n_tasks: int, val: bool, device: str) -> Iterator[list[str]]:
    """One row per situation without unknown queries: the figures of each feature set."""
    sets = [find_features(key_of(name, val), data).to(device, torch.float32) for name in SETS]
    for name, changes in SITUATIONS.items():
        spec = TaskSpec(**{"shots": 5, "k_eff": 5, "n_query": 75, **changes})
        row = [name]
        for features in sets:
            tasks = sample_tasks(features, spec, seed=1, count=n_tasks)
            row.append(_falsely_unknown(_uneven(tasks) if name == "1 to 5 shots" else tasks))
        yield row


def gaussian_false_alarms(n_tasks: int) -> Iterator[list[str]]:
    """One row per problem of Gaussian classes, without unknown queries: near, farther and far apart."""
    for n_classes, n_features, shots in GAUSSIAN:
        figures = [_falsely_unknown(_gaussian(n_tasks, n_classes, n_features, shots, apart)) for apart in (1, 2, 4)]
        yield [str(n_classes), str(n_features), str(shots), *figures]


def _falsely_unknown(tasks: Tasks) -> str:
    """The percentage of queries that are answered as unknown: the mean, the worst part of 20 tasks, the worst task."""
    values = rejected(solve("evidence", tasks, open_set=True), tasks)[:, 0]
    worst = torch.stack([part.mean() for part in values.split(20)]).max()
    return " / ".join(f"{100 * float(value):.1f}" for value in (values.mean(), worst, values.max()))


def _uneven(tasks: Tasks) -> Tasks:
    """The tasks with 1 to 5 examples per class."""
    labels = tasks.support_labels[0]
    before = (labels.unsqueeze(1) == labels).tril(-1).sum(1)  # examples of the same class
    kept = before <= labels % 5
    return Tasks.from_arrays(
        tasks.support[:, kept], tasks.support_labels[:, kept], tasks.query, query_labels=tasks.query_labels
    )


def _gaussian(n_tasks: int, n_classes: int, n_features: int, shots: int, apart: float) -> Tasks:
    """Tasks of Gaussian classes with 75 queries of five of them."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(n_tasks, *shape, n_features, generator=generator)

    centres = apart * normal(n_classes)
    labels = torch.arange(n_classes).repeat_interleave(shots)
    truth = torch.randint(0, min(n_classes, 5), (n_tasks, 75), generator=generator)
    support = centres[:, labels] + normal(len(labels))
    query = centres.gather(1, truth.unsqueeze(-1).expand(-1, -1, n_features)) + normal(75)
    return Tasks.from_arrays(support, labels.repeat(n_tasks, 1), query, query_labels=truth)


SHORT = ("evidence", "whole", "gap", "false", "worst", "number", "none", "error")  # columns of the short table


def short_table(rows: Sequence[Sequence[str]], shots: Sequence[str]) -> Iterator[list[str]]:
    """One row per feature set: the chosen columns, for several numbers of examples side by side."""
    found = {(row[0], row[1]): dict(zip(HEADER, row, strict=True)) for row in rows}
    for name in dict.fromkeys(row[0] for row in rows):
        some = [found[name, number] for number in shots]
        gains = [f"{float(one['open']) - float(one['closed']):+.1f}" for one in some]
        yield [name, *("/".join(one[column] for one in some) for column in SHORT), "/".join(gains)]


def with_names(data: Path, n_tasks: int) -> Iterator[list[str]]:
    """One row per number of examples and K_eff: intents with examples, with names, and with both."""
    features = find_features("clinc150", data)
    stored = np.load(data / "features" / "clinc150_names_minilm_l6.npz")
    place = {name: k for k, name in enumerate(stored["class_names"].tolist())}
    vectors = torch.as_tensor(stored["features"][[place[name] for name in features.class_names]]).float()
    for shots in (0, 1, 2, 5, 10):
        for k_eff in (5, 10):
            yield [str(shots), str(k_eff), *_named(features, vectors, shots, k_eff, n_tasks)]


def _named(features: FeatureSet, vectors: torch.Tensor, shots: int, k_eff: int, n_tasks: int) -> list[str]:
    drawn = sample_tasks(features, TaskSpec(shots=shots or 1, k_eff=k_eff, n_query=75), seed=1, count=n_tasks)
    support, labels, truth = drawn.support, drawn.support_labels, drawn.query_labels
    assert truth is not None

    def accuracy(n_support: int, names: torch.Tensor | None) -> str:
        if n_support == 0 and names is None:
            return "–"
        tasks = Tasks.from_arrays(support[:, :n_support], labels[:, :n_support], drawn.query, class_features=names)
        return percent(solve("evidence", tasks).labels == truth)

    n_support = support.shape[1] if shots else 0
    return [accuracy(n_support, None), accuracy(0, vectors[None]), accuracy(n_support, vectors[None])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--val", action="store_true")
    parser.add_argument("--shots", type=int, nargs="+", default=[5, 20, 1])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--false-alarms", action="store_true")
    given = parser.parse_args()
    if given.false_alarms:
        show("Falsely unknown", ["situation", *SETS], false_alarms(given.data, given.tasks, given.val, given.device))
        header = ["K", "features", "shots", "near", "farther", "far"]
        show("Falsely unknown, Gaussian classes", header, gaussian_false_alarms(given.tasks))
        return
    rows = open_set(given.data, given.tasks, given.val, given.shots, given.device)
    found = show("Unknown queries", HEADER, rows)
    shots = [str(number) for number in given.shots if number > 1]
    title = f"Unknown queries, {'/'.join(shots)} shots"
    show(title, ["set", "AUROC", *SHORT[1:], "gain"], short_table(found, shots))
    show("Intents by name", ["shots", "K_eff", "examples", "names", "both"], with_names(given.data, given.tasks))


if __name__ == "__main__":
    main()
