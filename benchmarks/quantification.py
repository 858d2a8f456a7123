"""Proportions and presence beside the methods of QuaPy, on the tasks of the suite ``quantification`` and on scores.

    python -m benchmarks.quantification DATA [--tasks 20] [--jobs 8] [--store FILE] [--limit 20]

Every rival gets the same examples and items: classify-and-count (CC), PACC, EMQ with and without bias-corrected
temperature scaling (BCTS), KDEyML and EDy. Their classifier is a logistic regression on features of unit length; what
they learn about it, they learn from its probabilities by cross-validation. On the recorded scores of lid.176 they learn
it from 4 labelled fragments per language. BCTS is that of this project: QuaPy's own ends in an overflow with so many
classes. KDEyML and EDy are QuaPy's with two faster parts that find the same: the likelihood of KDEyML is maximised by
EM instead of a search by differences, which takes minutes, and the distances of EDy are those of SciPy. Each rival
lists the classes whose estimated proportion is that of half an item, one, two or three items or more, whichever gives
it the highest F1 on the tasks of a set; ``evidence`` lists ``present(error_rate=None)``, and beside it stands
``present(error_rate=0.05)``, the list that can be signed. "error" is half the sum of absolute differences of the
proportions; the first table has intervals of 95 %.

What is measured is kept in FILE, a line per task and method, and is not measured again. A method that takes longer than
the limit in a task is left out of it, which is kept as well.
"""

import argparse
import json
import multiprocessing
import signal
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import normalize

from benchmarks.measure import show
from manyway import Evidence, EvidenceFromScores, TaskSpec, sample_tasks
from manyway.bench.data import find_features
from manyway.errors import InputError
from manyway.methods.calibration.temperature_scaling import rescale
from manyway.methods.label_shift import class_proportions
from manyway.methods.scores.calibrate import fit_labelled

SETS = {
    "clinc150": "CLINC150 (150)",
    "cub200": "CUB-200",
    "glyphs": "letters (215)",
    "simulated:thousand": "simulated (1,000)",
    "lid.176/2": "lid.176 (123), 2 words",
    "lid.176/5": "lid.176 (123), 5 words",
}
KINDS: dict[str, dict[str, Any]] = {
    "equal": {},
    "Dirichlet": {"sampling": "dirichlet", "alpha": 1.0},
    "one dominant": {"sampling": "dirichlet", "alpha": 0.1},
}
K_EFF, ITEMS = (5, 20, 50), (50, 500, 5000)
RIVALS = ("CC", "PACC", "EMQ", "EMQ-BCTS", "KDEyML", "EDy")
FOLDS, SEED, EM_STEPS = 5, 2026, 2000
LEAST = (0.5, 1, 2, 3)  # items that a rival must expect of a class to list it: the best is shown
SIGNED = "5 %"  # the list of evidence with that error rate
Row = dict[str, Any]
Key = tuple[str, str, int, int, int]  # set, proportions, K_eff, items, number of the task


class Problem(NamedTuple):
    """One task; a classifier is given by log-probabilities."""

    examples: Any  # [s, d] features, or [s, k] scores
    labels: Any  # [s]
    items: Any  # [q, d] or [q, k]
    truth: Any  # [k] the proportions
    scores: bool


class Given(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose probabilities are its features."""

    def fit(self, X: Any, y: Any) -> "Given":
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: Any) -> Any:
        return X

    def predict(self, X: Any) -> Any:
        return self.classes_[X.argmax(1)]


def keys(sets: Iterable[str], n_tasks: int) -> Iterator[Key]:
    """All tasks, those of each cell far apart, so that all cells have some where time is short."""
    for at in range(n_tasks):
        for name in sets:
            for kind in KINDS:
                for k_eff in K_EFF:
                    for n_items in ITEMS:
                        if k_eff <= n_items:
                            yield name, kind, k_eff, n_items, at


load = lru_cache(maxsize=4)(find_features)


def problem(key: Key, data: Path) -> Problem | None:
    """The task of a key; None where the set has too few samples for it."""
    name, kind, k_eff, n_items, at = key
    if name.startswith("lid.176/"):
        return _scored(key, data)
    try:
        spec = TaskSpec(shots=5, k_eff=k_eff, n_query=n_items, **KINDS[kind])
        task = sample_tasks(load(name, data), spec, seed=SEED, start=at, count=1)
    except InputError:
        return None
    truth = task.query_labels[0].bincount(minlength=task.n_classes).double().numpy() / n_items
    arrays = (task.support[0].float(), task.support_labels[0], task.query[0].float())
    return Problem(*(one.numpy() for one in arrays), truth, scores=False)


def _scored(key: Key, data: Path) -> Problem | None:
    """Recorded scores of lid.176 for fragments of some words, of languages that occur in the file."""
    name, kind, k_eff, n_items, at = key
    with np.load(data / "scores" / "lid176_udhr.npz") as file:
        labels, scores = (
            file["labels"].astype(np.int64),
            file[f"log_scores_{name.rpartition('/')[2]}"].astype(np.float64),
        )
    languages, labels = np.unique(labels, return_inverse=True)
    draw = np.random.default_rng((SEED, list(KINDS).index(kind), k_eff, n_items, at))
    order = draw.permutation(len(labels))
    first = np.concatenate([order[labels[order] == k][:4] for k in range(len(languages))])
    rest = np.setdiff1d(order, first)
    alpha = KINDS[kind].get("alpha")
    parts = np.full(k_eff, 1 / k_eff) if alpha is None else draw.dirichlet(np.full(k_eff, alpha))
    present, rows = draw.choice(len(languages), k_eff, replace=False), []
    left = {k: list(rest[labels[rest] == k]) for k in present}
    if sum(map(len, left.values())) < n_items:
        return None
    while len(rows) < n_items:  # no fragment twice
        k = draw.choice(present, p=parts)
        if left[k]:
            rows.append(left[k].pop())
        elif not any(left[j] for j, part in zip(present, parts, strict=True) if part > 1 / n_items):
            parts = np.full(k_eff, 1 / k_eff)
    values = np.maximum(scores, -40)[:, languages]
    values -= np.log(np.exp(values).sum(1, keepdims=True))
    truth = np.bincount(labels[rows], minlength=len(languages)) / n_items
    return Problem(values[first], labels[first], values[rows], truth, scores=True)


class Classified:
    """The probabilities of the rivals' classifier; what nobody asks for is not computed."""

    def __init__(self, task: Problem) -> None:
        self.task, self.labels = task, task.labels
        self.model = LogisticRegression(C=100, max_iter=200)

    @cached_property
    def items(self) -> Any:
        """[q, k]."""
        if self.task.scores:
            return np.exp(self.task.items)
        self.model.fit(normalize(self.task.examples), self.labels)
        return self.model.predict_proba(normalize(self.task.items)).astype(float)

    @cached_property
    def left_out(self) -> Any:
        """[s, k] those of examples that it was not trained on."""
        if self.task.scores:
            return np.exp(self.task.examples)
        X, found = normalize(self.task.examples), np.empty((len(self.labels), len(self.task.truth)))
        for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, self.labels):
            found[test] = self.model.fit(X[train], self.labels[train]).predict_proba(X[test])
        return found


def calibrated(found: Classified) -> Any:
    """[q, k] the probabilities of items by BCTS, fitted to left-out examples."""
    known, asked = (torch.from_numpy(np.log(np.maximum(one, 1e-12))) for one in (found.left_out, found.items))
    scaling = fit_labelled(known, torch.from_numpy(found.labels))
    return rescale(asked[None], scaling[None])[0].softmax(-1).numpy()


def proportions_by(name: str, found: Classified) -> Any:
    """[k] the proportions that a method of QuaPy estimates."""
    import quapy as qp
    from quapy.method.aggregative import CC, EMQ, PACC, EDy, KDEyML

    qp.environ["N_JOBS"] = 1
    kinds = {"CC": CC, "PACC": PACC, "EMQ": EMQ, "EMQ-BCTS": EMQ, "KDEyML": KDEyML, "EDy": EDy}
    learns = name in ("PACC", "KDEyML", "EDy")  # from left-out examples; the others need the labels only
    examples = found.left_out if learns else np.zeros((len(found.labels), 1))
    more: dict[str, Any] = {"val_split": (examples, found.labels)} if learns else {}
    if name == "EDy":
        more["distance"] = partial(cdist, metric="cityblock")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        method = kinds[name](Given().fit(examples, found.labels), fit_classifier=False, **more)
        method.fit(examples, found.labels)
        if name == "KDEyML":
            return most_likely(method, found.items)
        return np.asarray(method.predict(calibrated(found) if name == "EMQ-BCTS" else found.items), dtype=float)


def most_likely(method: Any, items: Any) -> Any:
    """[k] the maximum of the likelihood of KDEyML for probabilities [q, k] of items, by EM."""
    logs = np.stack([method.pdf(one, items, method.kernel, log_densities=True) for one in method.mix_densities], -1)
    likely = torch.from_numpy(np.exp(logs - logs.max(-1, keepdims=True)))
    return class_proportions(likely[None], EM_STEPS, 1e-7)[0][0].numpy()


def judged(proportions: Any, lists: dict[str, Any], truth: Any) -> Row:
    """The error of proportions, and F1 and the part of absent classes of each list of classes."""
    there, found = truth > 0, {}
    for name, listed in lists.items():
        right = int(there[listed].sum())
        f1 = 2 * right / (int(there.sum()) + len(listed))
        found[name] = (f1, (len(listed) - right) / max(len(listed), 1))
    return {"error": float(np.abs(proportions - truth).sum() / 2), "lists": found}


def by_evidence(task: Problem) -> Row:
    """What evidence finds; for scores with the same labelled fragments."""
    if task.scores:
        clf: Any = EvidenceFromScores(classes=list(range(len(task.truth))), kind="log-probability")
    else:
        clf = Evidence()
    result = clf.fit(task.examples, task.labels).infer(task.items)
    return judged(result.proportions, {"": result.present(None), SIGNED: result.present()}, task.truth)


def measure(work: tuple[Key, Path, tuple[str, ...], float]) -> list[Row]:
    """What some methods find for one task; those that fail or take too long are said."""
    key, data, methods, limit = work
    task, rows = problem(key, data), []

    def stop(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    if task is None:
        return []
    classifier = Classified(task)
    for name in methods:
        _ = name == "evidence" or classifier.items, name in ("evidence", "CC", "EMQ") or classifier.left_out
        began = time.perf_counter()  # the classifier is not part of a method's time
        signal.setitimer(signal.ITIMER_REAL, limit)
        try:
            if name == "evidence":
                found = by_evidence(task)
            else:
                proportions = proportions_by(name, classifier)
                lists = {str(least): np.flatnonzero(proportions >= least / len(task.items)) for least in LEAST}
                found = judged(proportions, lists, task.truth)
            signal.setitimer(signal.ITIMER_REAL, 0)  # here too: a late alarm is caught
        except TimeoutError:
            found = {"failed": f"more than {limit:.0f} s"}
        except Exception as error:  # a rival that fails is said, and does not stop the others
            found = {"failed": repr(error)[:200]}
        signal.setitimer(signal.ITIMER_REAL, 0)
        rows.append({"task": key, "method": name, "seconds": round(time.perf_counter() - began, 2), **found})
    return rows


def run(
    all_keys: Iterable[Key], data: Path, store: Path, limit: float, jobs: int, methods: tuple[str, ...]
) -> list[Row]:
    """All rows, of which those in the store are not measured again."""
    rows: list[Row] = [json.loads(line) for line in store.read_text("utf-8").splitlines()] if store.exists() else []
    done = {(*row["task"], row["method"]) for row in rows}
    wanted = [(key, tuple(name for name in methods if (*key, name) not in done)) for key in all_keys]
    works = [(key, data, names, limit) for key, names in wanted if names]
    with ExitStack() as stack:
        file = stack.enter_context(store.open("a", encoding="utf-8"))
        measured: Iterator[list[Row]] = map(measure, works)
        if jobs > 1:  # new processes: a copy of one with threads can wait for ever
            spawn = multiprocessing.get_context("spawn")
            pool = stack.enter_context(spawn.Pool(jobs, initializer=torch.set_num_threads, initargs=(1,)))
            measured = pool.imap_unordered(measure, works)
        for some in measured:
            rows += some
            file.writelines(json.dumps(row) + "\n" for row in some)
            file.flush()
    return rows


def show_tables(rows: list[Row], methods: tuple[str, ...]) -> None:
    """The tables: by set; by set and kind of proportions; by set, K_eff and number of items."""
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        name, kind, k_eff, n_items, _ = row["task"]
        for number, cell in enumerate([(), (kind,), (k_eff, n_items)]):
            found[(row["method"], number, SETS.get(name, name), *cell)].append(row)
    best = {(key[0], key[2]): _best(some) for key, some in found.items() if key[1] == 0}
    columns = [(name, None) for name in methods] + [("evidence", SIGNED)] * ("evidence" in methods)
    what = "error of proportions / F1 of presence / listed but absent, in %"
    titles = {"Beside QuaPy": [], "By proportions": ["proportions"], "By size": ["K_eff", "items"]}
    for number, (title, header) in enumerate(titles.items()):
        cells = sorted({cell[2:] for cell in found if cell[1] == number})
        lines = [
            [
                *cell,
                *(
                    _cell(found[(name, number, *cell)], which or best.get((name, cell[0]), ""), not number)
                    for name, which in columns
                ),
            ]
            for cell in cells
        ]
        show(f"{title}: {what}", ["set", *header, *methods, *(f"{a}, {b}" for a, b in columns if b)], lines)


def _best(rows: list[Row]) -> str:
    """The list of a method with the highest mean of F1."""
    good = [row["lists"] for row in rows if "failed" not in row]
    names = [name for name in good[0] if name != SIGNED] if good else [""]
    return max(names, key=lambda name: sum(lists[name][0] for lists in good))


def _cell(rows: list[Row], which: str, intervals: bool) -> str:
    """The means of a list, where at most a tenth of the tasks failed."""
    good = [(row["error"], *row["lists"][which]) for row in rows if "failed" not in row]
    if not good or len(good) < 0.9 * len(rows):
        return "–"
    values = 100 * np.array(good)
    error, f1, false = values.mean(0)
    if not intervals:
        return f"{error:.1f}/{f1:.0f}/{false:.0f}"
    half = 1.96 * values.std(0) / len(values) ** 0.5
    return f"{error:.1f}±{half[0]:.1f} / {f1:.0f}±{half[1]:.0f} / {false:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--methods", default=",".join(("evidence", *RIVALS)))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds of a method for one task")
    parser.add_argument("--store", type=Path, default=Path("quantification.jsonl"))
    arguments = parser.parse_args()
    methods, sets = tuple(arguments.methods.split(",")), arguments.sets.split(",")
    rows = run(keys(sets, arguments.tasks), arguments.data, arguments.store, arguments.limit, arguments.jobs, methods)
    show_tables(rows, methods)


if __name__ == "__main__":
    main()
