"""Wrong labels among examples: how well ``manyway.examine`` finds them, beside cleanlab.

    python -m benchmarks.mislabelled DATA [--tasks 2] [--sets clinc150,cub200] [--store mislabelled.jsonl]

Some labels of drawn examples are changed: at random, or each to the most similar class. Every method says how
suspicious each example is. AUROC: how probable it is that a wrong label is more suspicious than a right one. Precision:
the share of wrong labels among as many of the most suspicious examples as there are wrong ones.

cleanlab gets the out-of-sample probabilities of logistic regression on standardised features, by five folds:
``get_label_quality_scores`` (self-confidence), ``find_label_issues`` (what it flags first, in its order; the others by
that score) and ``Datalab`` with these probabilities and the features. Classes are every other one of a set: the method
was chosen on the others.

Measured tasks are kept in the store, and are not measured again.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.preprocessing import StandardScaler

from benchmarks.measure import show
from manyway import examine
from manyway.bench.data import find_features

SETS = {
    "clinc150-half-val": "intents",
    "cub200-half-val": "birds",
    "cifar100-half-val": "photographs",
    "glyphs-half-val": "letters",
}
SHOTS = (5, 10, 20)
RATES = (0.05, 0.1, 0.2, 0.4)
KINDS = ("at random", "similar")
N_CLASSES = 20
FOLDS = 5
SEED = 2026
OWN = "examine"
RIVALS = ("quality score", "find_label_issues", "Datalab")
Row = dict[str, Any]


class Key(NamedTuple):
    """One task."""

    name: str
    shots: int
    kind: str
    rate: float
    number: int


class Examples(NamedTuple):
    """Examples, some of them with a wrong label."""

    features: Any  # [n, d]
    given: Any  # [n] labels
    wrong: Any  # [n] whether a label is wrong


load = lru_cache(maxsize=2)(find_features)


def keys(sets: list[str], n_tasks: int) -> Iterator[Key]:
    """All tasks, one of each cell first, so that all cells have some where time is short."""
    for number in range(n_tasks):
        for name in sets:
            for shots in SHOTS:
                for kind in KINDS:
                    for rate in RATES:
                        yield Key(name, shots, kind, rate, number)


def draw(key: Key, data: Path) -> Examples:
    """Examples of a task. A class whose examples all went to others keeps one of them."""
    found = load(key.name, data)
    features = found.features.float().numpy()
    labels = found.labels.numpy()
    generator = np.random.default_rng((SEED, key.shots, KINDS.index(key.kind), round(100 * key.rate), key.number))
    chosen = generator.permutation(found.n_classes)[:N_CLASSES]
    of_class = [generator.permutation(np.flatnonzero(labels == k))[: key.shots] for k in chosen]
    rows = np.concatenate(of_class)
    truth = np.concatenate([np.full(len(some), k) for k, some in enumerate(of_class)])
    given = truth.copy()
    wrong = generator.permutation(len(truth))[: max(1, round(key.rate * len(truth)))]
    if key.kind == "similar":
        means = np.stack([features[labels == k].mean(0) for k in chosen])
        centred = means - means.mean(0)
        centred /= np.linalg.norm(centred, axis=1, keepdims=True)
        likeness = centred @ centred.T - 2 * np.eye(len(chosen))
        given[wrong] = likeness.argmax(1)[truth[wrong]]
    else:
        given[wrong] = (truth[wrong] + generator.integers(1, N_CLASSES, len(wrong))) % N_CLASSES
    for k in np.setdiff1d(truth, given):
        given[np.flatnonzero(truth == k)[:2]] = k
    return Examples(features[rows], given, given != truth)


def by_examine(task: Examples) -> dict[str, Any]:
    """How suspicious each example is to us."""
    found = examine(task.features, task.given, n_present=())
    return {OWN: np.array([0.0 if one is None else one for one in found.log_odds])}


def by_cleanlab(task: Examples) -> dict[str, Any]:
    """How suspicious each example is to cleanlab, in three ways."""
    from cleanlab import Datalab
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    rows = StandardScaler().fit_transform(task.features)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    model = LogisticRegression(max_iter=200)
    probabilities = cross_val_predict(model, rows, task.given, cv=folds, method="predict_proba")
    quality = get_label_quality_scores(task.given, probabilities)
    flagged = find_label_issues(task.given, probabilities, return_indices_ranked_by="self_confidence", n_jobs=1)
    issues = -quality.copy()
    issues[flagged] = 1 + np.arange(len(flagged))[::-1]
    lab = Datalab(data={"label": task.given}, label_name="label", verbosity=0)
    lab.find_issues(pred_probs=probabilities, features=rows, issue_types={"label": {}})
    of_lab = -lab.get_issues("label")["label_score"].to_numpy()
    return {"quality score": -quality, "find_label_issues": issues, "Datalab": of_lab}


def measure(key: Key, data: Path) -> Row:
    """AUROC and precision of every method for one task."""
    task = draw(key, data)
    scores: dict[str, Any] = {}
    ways: tuple[Callable[[Examples], dict[str, Any]], ...] = (by_examine, by_cleanlab)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for way in ways:
            scores |= way(task)
    n_wrong = int(task.wrong.sum())
    found = {}
    for name, score in scores.items():
        first = np.argsort(-score, kind="stable")[:n_wrong]
        found[name] = (float(roc_auc_score(task.wrong, score)), float(task.wrong[first].mean()))
    return {"task": key, "found": found}


def run(all_keys: Iterator[Key], data: Path, store: Path) -> list[Row]:
    """All rows, of which those in the store are not measured again."""
    rows: list[Row] = []
    if store.exists():
        rows = [json.loads(line) for line in store.read_text("utf-8").splitlines()]
    done = {Key(*row["task"]) for row in rows}
    with store.open("a", encoding="utf-8") as file:
        for key in all_keys:
            if key not in done:
                rows.append(measure(key, data))
                file.write(json.dumps(rows[-1]) + "\n")
                file.flush()
    return rows


def show_table(rows: list[Row]) -> None:
    """AUROC and precision by kind of error and rate, number of examples, and set."""
    titles: tuple[Callable[[Key], str], ...] = (
        lambda key: "all",
        lambda key: f"{key.kind}, {key.rate:.0%} wrong",
        lambda key: f"{key.shots} examples",
        lambda key: SETS.get(key.name, key.name),
    )
    cells: dict[str, list[Row]] = defaultdict(list)
    for title in titles:
        for row in rows:
            cells[title(Key(*row["task"]))].append(row)
    lines = []
    for name_of_cell, some in cells.items():
        means = {name: np.mean([row["found"][name] for row in some], axis=0) for name in (OWN, *RIVALS)}
        lines.append([name_of_cell, *(f"{100 * auroc:.1f} / {100 * right:.1f}" for auroc, right in means.values())])
    show("Mislabelled examples: AUROC / precision in %", ["examples", OWN, *RIVALS], lines)
    show("Mislabelled examples: settings", ["measure", "settings", "ahead", "equal", "behind"], settings(rows))


def settings(rows: list[Row]) -> list[list[Any]]:
    """In how many settings (set, examples, kind, rate) ours is ahead of the best of the three, equal or behind."""
    cells: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        cells[Key(*row["task"])._replace(number=0)].append(row)
    lines = []
    for number, measure_name in enumerate(("AUROC", "precision")):
        gaps = []
        for some in cells.values():
            means = {name: np.mean([row["found"][name][number] for row in some]) for name in (OWN, *RIVALS)}
            gaps.append(means[OWN] - max(means[name] for name in RIVALS))
        gap = np.array(gaps)
        counts = [int((gap > 0.0005).sum()), int((abs(gap) <= 0.0005).sum()), int((gap < -0.0005).sum())]
        lines.append([measure_name, len(gap), *counts])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--store", type=Path, default=Path("mislabelled.jsonl"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = run(keys(arguments.sets.split(","), arguments.tasks), arguments.data, arguments.store)
    show_table(rows)


if __name__ == "__main__":
    main()
