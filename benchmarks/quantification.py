"""Proportions and presence beside the methods of QuaPy, on the tasks of the suite ``quantification``.

    python -m benchmarks.quantification DATA [--tasks 20] [--store FILE] [--sets glyphs,clinc150]
    python -m benchmarks.quantification DATA --scores

Every rival gets the same examples and items: classify-and-count (CC), PACC, EMQ with and without bias-corrected
temperature scaling (BCTS), KDEyML and EDy over a logistic regression on features of unit length, with its probabilities
by cross-validation. With ``--scores`` they get the recorded scores of lid.176 and 4 labelled fragments per language.
A class counts as listed where its estimated proportion is that of half an item or more; ``evidence`` lists
``present(error_rate=0.05)``. "error" is half the sum of absolute differences of the proportions.

What is measured is kept in FILE, a line per task and method, and is not measured again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import Normalizer

from benchmarks.measure import show
from manyway import Evidence, EvidenceFromScores, TaskSpec, sample_tasks
from manyway.bench.data import find_features
from manyway.errors import InputError

SETS = ("glyphs", "clinc150", "cub200")
KINDS: dict[str, dict[str, Any]] = {
    "equal": {},
    "Dirichlet": {"sampling": "dirichlet", "alpha": 1.0},
    "one dominant": {"sampling": "dirichlet", "alpha": 0.1},
}
RIVALS = ("CC", "PACC", "EMQ", "EMQ-BCTS", "KDEyML", "EDy")
Row = dict[str, Any]


class Given(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose probabilities are given: the features are its log-probabilities."""

    def fit(self, X: Any, y: Any) -> Given:
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: Any) -> Any:
        kept = np.exp(X[:, self.classes_])
        return kept / kept.sum(1, keepdims=True)

    def predict(self, X: Any) -> Any:
        return self.classes_[self.predict_proba(X).argmax(1)]


def proportions_by(name: str, classifier: Any, X: Any, y: Any, items: Any, folds: int) -> Any:
    """[k] the proportions that a method of QuaPy estimates."""
    import quapy as qp
    from quapy.method.aggregative import CC, EMQ, PACC, EDy, KDEyML

    qp.environ["N_JOBS"] = 1
    made = {
        "CC": lambda: CC(classifier, fit_classifier=True),
        "PACC": lambda: PACC(classifier, val_split=folds),
        "EMQ": lambda: EMQ(classifier),
        "EMQ-BCTS": lambda: EMQ(classifier, calib="bcts", val_split=folds, on_calib_error="backup"),
        "KDEyML": lambda: KDEyML(classifier, val_split=folds),
        "EDy": lambda: EDy(classifier, val_split=folds),
    }[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.fit(X, y)
        return np.asarray(made.predict(items), dtype=float)


def judged(proportions: Any, listed: Any, truth: Any) -> Row:
    """The error of proportions and what is right and wrong in a list of classes."""
    there, given = truth > 0, np.zeros(len(truth), bool)
    given[listed] = True
    right = int((there & given).sum())
    return {
        "error": float(np.abs(proportions - truth).sum() / 2),
        "f1": 2 * right / int(there.sum() + given.sum()),
        "false": int(given.sum() - right) / max(int(given.sum()), 1),
    }


def feature_tasks(data: Path, sets: list[str], n_tasks: int) -> Iterator[tuple[list[Any], tuple[Any, ...]]]:
    """Keys and arrays: examples, labels, items, true labels and the classifier of the rivals."""
    for name in sets:
        features = find_features(name, data)
        for kind, more in KINDS.items():
            for k_eff in (5, 20):
                for n_query in (50, 500):
                    spec = TaskSpec(shots=5, k_eff=k_eff, n_query=n_query, **more)
                    try:
                        tasks = sample_tasks(features, spec, seed=2026, count=n_tasks)
                    except InputError:
                        continue  # too few samples of each class
                    for at in range(n_tasks):
                        one = tasks[at : at + 1]
                        arrays = (one.support[0].float(), one.support_labels[0], one.query[0].float())
                        yield (
                            [name, kind, k_eff, n_query, at],
                            (*(a.numpy() for a in arrays), one.query_labels[0], None),
                        )


def score_tasks(data: Path, n_tasks: int) -> Iterator[tuple[list[Any], tuple[Any, ...]]]:
    """The same for the recorded scores of lid.176 on fragments of two and three words."""
    with np.load(data / "scores" / "lid176_udhr.npz") as file:
        labels, scores = file["labels"].astype(np.int64), {w: file[f"log_scores_{w}"] for w in (2, 3)}
    languages = np.unique(labels)
    for words, values in scores.items():
        values = np.maximum(values.astype(np.float64), -40)
        for k_eff in (5, 20):
            for n_query in (50, 500):
                for at in range(n_tasks):
                    draw = np.random.default_rng((words, k_eff, n_query, at))
                    order = draw.permutation(len(labels))
                    first = np.concatenate([order[labels[order] == k][:4] for k in languages])
                    rest = np.setdiff1d(order, first, assume_unique=True)
                    rest = rest[np.isin(labels[rest], draw.choice(languages, k_eff, replace=False))]
                    rows = draw.choice(rest, n_query)
                    key = [f"lid.176, {words} words", "equal", k_eff, n_query, at]
                    yield key, (values[first], labels[first], values[rows], labels[rows], Given())


def answers(arrays: tuple[Any, ...], name: str) -> Row:
    """What one method finds for one task."""
    X, y, items, truth, given = arrays
    names = np.unique(y)
    true = np.array([(np.asarray(truth) == k).mean() for k in names])
    if name == "evidence":
        result = Evidence().fit(X, y).infer(items) if given is None else _from_scores(X, y, items, names)
        return judged(np.asarray(result.proportions), np.searchsorted(names, result.present()), true)
    unit = Normalizer().fit_transform if given is None else np.asarray
    classifier = LogisticRegression(C=10, max_iter=300) if given is None else given
    found = proportions_by(name, classifier, unit(X), np.searchsorted(names, y) if given is None else y, unit(items), 4)
    return judged(found, np.flatnonzero(found >= 0.5 / len(items)), true)


def _from_scores(X: Any, y: Any, items: Any, names: Any) -> Any:
    clf = EvidenceFromScores(classes=names.tolist(), kind="log-probability")
    return clf.fit(X[:, names], y).infer(items[:, names])


def measure(tasks: Iterator[tuple[list[Any], tuple[Any, ...]]], store: Path, note: Callable[[str], None]) -> list[Row]:
    """All rows, of which those in the store are not measured again."""
    rows = [json.loads(line) for line in store.read_text(encoding="utf-8").splitlines()] if store.exists() else []
    done = {(*row["task"], row["method"]) for row in rows}
    with store.open("a", encoding="utf-8") as file:
        for key, arrays in tasks:
            for name in ("evidence", *RIVALS):
                if (*key, name) in done:
                    continue
                began = time.perf_counter()
                try:
                    found = answers(arrays, name)
                except Exception as error:  # a rival that fails is said, and does not stop the others
                    note(f"{key} {name}: {error!r}"[:200])
                    continue
                rows.append({"task": key, "method": name, "seconds": time.perf_counter() - began, **found})
                file.write(json.dumps(rows[-1]) + "\n")
                file.flush()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--scores", action="store_true")
    parser.add_argument("--store", type=Path, default=Path("quantification.jsonl"))
    arguments = parser.parse_args()
    torch.manual_seed(0)
    chosen = score_tasks(arguments.data, arguments.tasks)
    if not arguments.scores:
        chosen = feature_tasks(arguments.data, arguments.sets.split(","), arguments.tasks)
    rows = measure(chosen, arguments.store, print)
    methods = ["evidence", *RIVALS]
    cells = sorted({tuple(row["task"][:4]) for row in rows})
    titles = {"error": "Error of proportions in %", "f1": "F1 of presence in %", "false": "Listed but absent in %"}
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault((*row["task"][:4], row["method"]), []).append(row)
    for value, title in titles.items():
        table = [[*cell, *(_mean(value, found.get((*cell, name), [])) for name in methods)] for cell in cells]
        show(title, ["set", "proportions", "K_eff", "items", *methods], table)


def _mean(value: str, rows: list[Row]) -> str:
    return f"{100 * float(np.mean([row[value] for row in rows])):.1f}" if rows else "–"


if __name__ == "__main__":
    main()
