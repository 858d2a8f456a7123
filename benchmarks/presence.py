"""Which classes are here: the list with an error rate and the number of classes, in some hundred settings.

    python -m benchmarks.presence DATA [--half report] [--tasks 14] [--store FILE] [--sets glyphs,clinc150,...]

The settings: 1 to 20 shots, 1 to all classes present, 15 to 1,500 items, equal and very unequal proportions, with and
without unknown items (of three classes, of many, of another set). Constants are chosen on ``--half validation`` alone.
What is measured is kept in FILE, a line per setting, and is not measured again. "absent" is the part of the listed
classes that do not occur, "found" the part of those that occur, "over" how many settings list more absent classes than
the error rate allows and chance explains. "inside" is how often the interval of the number has the truth, "below 90"
the part of the settings in which that is rarer than 90 %.

The second table is of scores without labelled items: those of lid.176, and of classifiers that were trained on 15 items
of each class (letters: 8). Every second class can occur: the others are for ``--half validation``.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import normalize

from benchmarks.measure import show
from manyway import Solution, Tasks, TaskSpec, sample_tasks, solve
from manyway.bench.data import find_features, find_strangers
from manyway.core.presence import DEFAULT_RATE
from manyway.errors import InputError
from manyway.sampling import FeatureSet

SETS = ("glyphs", "clinc150", "cub-rn18", "cifar100", "cub200")
WITH_VALIDATION = ("glyphs", "cub-rn18")  # these have validation classes; the others are cut in halves
STRANGERS = {"clinc150": {True: "clinc150_oos", False: "clinc150_oos"}, "glyphs": {True: "glyphs", False: "glyphs-val"}}
SCORED = {  # who gives the scores
    "lid.176/2": None,
    "lid.176/5": None,
    "clinc150/regression": LogisticRegression(C=10, max_iter=60),
    "clinc150/naive Bayes": GaussianNB(var_smoothing=1e-2),
    "glyphs/regression": LogisticRegression(C=100, max_iter=60),
    "glyphs/naive Bayes": GaussianNB(var_smoothing=1e-2),
}
TRAINED = {"clinc150": 15, "glyphs": 8}  # items of each class
WIDE, SEED, AT_ONCE = 1000, 31, 8  # from so many features on, fewer settings
Row = dict[str, Any]
Setting = tuple[dict[str, Any], bool]  # of a task, and whether items may be unknown


def settings(n_classes: int, n_features: int) -> Iterator[Setting]:
    """All settings of a set."""
    wide = n_features > WIDE
    for n in (15, 75, 300):
        for shots in (1, 5, 20):
            if shots == 20 and (n == 15 or (wide and n == 300)):
                continue
            for k_eff in dict.fromkeys((1, 2, 5, 20, n_classes // 2, n_classes)):
                few = n == 15 and k_eff > 20
                if (k_eff == 1 and n != 75) or few or (wide and shots == 20 and k_eff not in (5, 20)):
                    continue
                yield {"shots": shots, "k_eff": k_eff, "n_query": n}, False
    for n in (75, 300):
        for shots in (1, 5):
            for k_eff in (5, 20):
                unequal = {"sampling": "dirichlet", "alpha": 0.3}
                yield {"shots": shots, "k_eff": k_eff, "n_query": n, **unequal}, False
    for k_eff in (20, n_classes // 2):
        yield {"shots": 5, "k_eff": k_eff, "n_query": 1500}, False
    ways = {"n_ways": 2 * n_classes // 3}
    kinds: tuple[dict[str, Any], ...] = ({}, {"unknown_classes": 3}, {"unknown_from": True})
    for shots in (1, 5) if wide else (1, 5, 20):
        for k_eff in (5, 20):
            same = {"shots": shots, "k_eff": k_eff, **ways}
            yield {**same, "n_query": 75}, True
            yield {**same, "n_query": 55, "n_unknown": 20}, True
            for kind in kinds:
                yield {**same, "n_query": 35, "n_unknown": 40, **kind}, True


def score_settings(n_classes: int) -> Iterator[Setting]:
    """All settings of scores."""
    for n in (15, 75, 300):
        for k_eff in (2, 5, 20, n_classes):
            if k_eff <= n:
                yield {"k_eff": k_eff, "n_query": n}, False
                if k_eff in (5, 20):
                    yield {"k_eff": k_eff, "n_query": n, "alpha": 0.3}, False


def scored(name: str, data: Path) -> tuple[Any, Any]:
    """Log-probabilities [n, k] of items that the classifier was not trained on, and their labels [n]."""
    source, _, who = name.partition("/")
    model = SCORED[name]
    if model is None:
        with np.load(data / "scores" / "lid176_udhr.npz") as file:
            return np.maximum(file[f"log_scores_{who}"].astype(np.float64), -40), file["labels"].astype(np.int64)
    features = find_features(source, data)
    x, y = normalize(features.features.float().numpy()), features.labels.numpy()
    order = np.random.default_rng(SEED).permutation(len(y))
    first = np.concatenate([order[y[order] == k][: TRAINED[source]] for k in range(features.n_classes)])
    rest = np.setdiff1d(order, first)
    probabilities = model.fit(x[first], y[first]).predict_proba(x[rest])
    return np.log(np.maximum(probabilities, 1e-6)), y[rest]


def by_scores(scores: Any, labels: Any, classes: Any, spec: dict[str, Any], n_tasks: int) -> list[list[float]]:
    """What ``judged`` says about batches of some of the classes; no item is twice in one where there are enough."""
    draw, rows, n = np.random.default_rng((SEED, spec["k_eff"], spec["n_query"])), [], spec["n_query"]
    for _ in range(n_tasks):
        present = draw.choice(classes, spec["k_eff"], replace=False)
        parts = draw.dirichlet(np.full(len(present), spec["alpha"])) if "alpha" in spec else None
        wanted = np.bincount(draw.choice(len(present), n, p=parts), minlength=len(present))
        pools = [np.flatnonzero(labels == k) for k in present]
        some = [draw.choice(own, m, replace=m > len(own)) for own, m in zip(pools, wanted, strict=True)]
        batch = np.concatenate(some)
        there = torch.zeros(1, scores.shape[1])
        there[0, np.unique(labels[batch])] = 1
        tasks = Tasks.from_scores(torch.from_numpy(scores[batch])[None].log_softmax(-1))
        rows += judged(solve("evidence", tasks), there)
    return rows


def by_features(tasks: Tasks, open_set: bool) -> list[list[float]]:
    """What ``judged`` says about tasks."""
    assert tasks.query_labels is not None
    there = torch.zeros(len(tasks), tasks.n_classes + 1).scatter_(1, tasks.query_labels.clamp_min(-1) + 1, 1.0)[:, 1:]
    return judged(solve("evidence", tasks, open_set=open_set), there)


def judged(found: Solution, there: torch.Tensor) -> list[list[float]]:
    """Of each task: absent, found and F1 of the signed list, the same of the best list, and inside, width, number."""
    rows = []
    lists = zip(found.present(), found.present(None), strict=True)
    for task, (both, (low, high)) in enumerate(zip(lists, found.n_present_interval.tolist(), strict=True)):
        occur, row = int(there[task].sum()), []
        for listed in both:
            right = int(there[task, listed].sum())
            row += [1 - right / len(listed) if len(listed) else 0.0, right / occur, 2 * right / (occur + len(listed))]
        rows.append([*row, float(low <= occur <= high), float(high - low), float(occur)])
    return rows


def measure(features: FeatureSet, others: FeatureSet | None, setting: Setting, n_tasks: int) -> list[list[float]]:
    """What ``judged`` says about the tasks of a setting; nothing where the set has too few samples."""
    spec, open_set = dict(setting[0]), setting[1]
    if spec.pop("unknown_from", False):
        if others is None:
            return []
        spec["unknown_from"] = others
    n_tasks = max(4, n_tasks // 3) if spec["n_query"] == 1500 else n_tasks
    try:
        tasks = sample_tasks(features, TaskSpec(**spec), seed=SEED, count=n_tasks)
    except InputError:
        return []
    return [row for at in range(0, n_tasks, AT_ONCE) for row in by_features(tasks[at : at + AT_ONCE], open_set)]


def run(data: Path, store: Path, sets: list[str], n_tasks: int, validation: bool) -> list[Row]:
    """A row per setting; those in the store are not measured again."""
    rows: list[Row] = [json.loads(line) for line in store.read_text("utf-8").splitlines()] if store.exists() else []
    done = {json.dumps([row["set"], row["setting"]], sort_keys=True) for row in rows}
    with store.open("a", encoding="utf-8") as file:
        for name in sets:
            if name in SCORED:
                scores, labels = scored(name, data)
                classes = np.unique(labels)[0 if validation else 1 :: 2]
                for setting in score_settings(len(classes)):
                    if json.dumps([name, setting], sort_keys=True) not in done:
                        tasks = by_scores(scores, labels, classes, setting[0], n_tasks)
                        rows.append({"set": name, "setting": setting, "tasks": tasks})
                        file.write(json.dumps(rows[-1]) + "\n")
                        file.flush()
                continue
            key = name + ("" if name in WITH_VALIDATION else "-half") + ("-val" if validation else "")
            features = find_features(key, data).to("cpu", torch.float32)
            others = find_strangers(STRANGERS[name][validation], data) if name in STRANGERS else None
            others = None if others is None else others.to("cpu", torch.float32)
            for setting in settings(features.n_classes, features.features.shape[-1]):
                if json.dumps([name, setting], sort_keys=True) in done:
                    continue
                rows.append({"set": name, "setting": setting, "tasks": measure(features, others, setting, n_tasks)})
                file.write(json.dumps(rows[-1]) + "\n")
                file.flush()
    return [row for row in rows if row["tasks"]]


def kind_of(row: Row) -> str:
    """What the setting is about, in words."""
    spec, open_set = row["setting"]
    what = "unknown items" if open_set else "unequal" if "alpha" in spec else "equal"
    if "shots" not in spec:
        return what
    return f"{what}, {'one shot' if spec['shots'] == 1 else '5 shots and more'}"


def show_tables(rows: list[Row]) -> None:
    """Those of features, and those of scores."""
    titles = {"Which classes are here, in %": False, "Which classes are here, by scores, in %": True}
    for title, by_score in titles.items():
        some = [row for row in rows if (row["set"] in SCORED) == by_score]
        if some:
            show_table(title, some)


def show_table(title: str, rows: list[Row]) -> None:
    """All settings together, by kind, by set and by the number of items."""
    means = np.array([np.mean(row["tasks"], 0) for row in rows])
    errors = np.array([np.std([task[0] for task in row["tasks"]]) / len(row["tasks"]) ** 0.5 for row in rows])
    ways = {
        "kind": [kind_of(row) for row in rows],
        "set": [row["set"] for row in rows],
        "items": [str(row["setting"][0]["n_query"] + row["setting"][0].get("n_unknown", 0)) for row in rows],
    }
    groups = [("all", np.ones(len(rows), bool))]
    groups += [(name, np.array(of) == name) for of in ways.values() for name in dict.fromkeys(of)]
    lines = []
    for name, which in groups:
        value, above = 100 * means[which].mean(0), means[which, 0] - 2 * errors[which] > DEFAULT_RATE
        below = 100 * (means[which, 6] < 0.9).mean()
        lists = f"{value[0]:.1f}", f"{100 * means[which, 0].max():.0f}", int(above.sum()), f"{value[1]:.0f}"
        best = f"{value[3]:.0f}", f"{value[4]:.0f}", f"{value[5]:.0f}"
        number = f"{value[6]:.0f}", f"{below:.0f}", f"{value[7] / 100:.0f}"
        lines.append([name, int(which.sum()), *lists, *best, *number])
    header = ["settings", "n", "absent", "worst", "over", "found", "F1 list: absent", "found", "F1"]
    show(title, [*header, "inside", "below 90", "width"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--half", choices=("report", "validation"), default="report")
    parser.add_argument("--tasks", type=int, default=14)
    parser.add_argument("--sets", default=",".join((*SETS, *SCORED)))
    parser.add_argument("--store", type=Path, default=Path("presence.jsonl"))
    arguments = parser.parse_args()
    sets, validation = arguments.sets.split(","), arguments.half == "validation"
    show_tables(run(arguments.data, arguments.store, sets, arguments.tasks, validation))


if __name__ == "__main__":
    main()
