"""Which classes are here, from the scores of classifiers: the list of large batches.

    python -m benchmarks.score_lists DATA [--half report] [--batches 10] [--items 300,1000] [--sets cub200,clinc150,...]

Batches of 300 and 1,000 items of 5, 20, 60 and 150 classes, half of them with equal and half with unequal proportions,
without labels and with 20 labelled items. The classifiers know all classes of CUB-200, CLINC150, CIFAR-100 and the
letters; lid.176 is a real one. "found" is the part of the classes that the classifier names right at least twice,
"absent" the part of the listed classes that do not occur, "over" in how many settings that is more than 5 % and more
than chance explains, "inside" how often the interval of the number has the truth. Every second class can occur, the
others are for ``--half validation``; where more classes are asked for than that, all can.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import normalize
from torch import Tensor

from benchmarks.measure import show
from manyway import Tasks, solve
from manyway.bench.data import find_features
from manyway.core.presence import DEFAULT_RATE
from manyway.methods.scores.kinds import log_posteriors

SETS = ("cub200", "clinc150", "cifar100", "glyphs", "lid.176")
TRAINED = {"cub200": 15, "clinc150": 15, "cifar100": 15, "glyphs": 8}  # items of each class
ITEMS = (300, 1000)
PRESENT = (5, 20, 60, 150)
LABELLED = (0, 20)
LEAST = 1e-6  # the least probability of a class
SEED = 31
MODELS: dict[str, ClassifierMixin] = {
    "regression": LogisticRegression(C=10, max_iter=60),
    "naive Bayes": GaussianNB(var_smoothing=1e-2),
    "forest": RandomForestClassifier(100, random_state=0),
    "neighbours": KNeighborsClassifier(10, weights="distance"),
}


def five_highest(p: Tensor) -> Tensor:
    """Lists of the five highest probabilities."""
    best = p.topk(5)
    return log_posteriors(torch.full_like(p, torch.nan).scatter_(1, best.indices, best.values), "probability")


# What becomes of the probabilities [n, k] of a batch before anyone sees them.
CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "as it is": torch.log,
    "temperature 0.3": lambda p: (p.log() / 0.3).log_softmax(-1),
    "temperature 3": lambda p: (p.log() / 3).log_softmax(-1),
    "8 bits": lambda p: log_posteriors((256 * p).floor() / 256, "probability"),
    "five highest": five_highest,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Classifier:
    """The probabilities of items that a classifier was not trained on, and how they are changed."""

    name: str
    probabilities: Tensor  # [n, k]
    labels: Tensor  # [n]
    change: Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the list of one batch is worth."""

    classifier: str
    n_items: int
    n_present: int
    n_labelled: int
    absent: float  # part of the listed classes
    found: float  # part of the classes that are named right at least twice; NaN: there is none
    inside: bool  # whether the interval of the number has the truth


def classifiers(data: Path, source: str) -> Iterator[Classifier]:
    """All classifiers of a set; all changes of the logistic regression, and the others as they are."""
    if source == "lid.176":
        with np.load(data / "scores" / "lid176_udhr.npz") as file:
            labels = torch.from_numpy(file["labels"].astype(np.int64))
            for words in (2, 5):
                values = torch.from_numpy(file[f"log_scores_{words}"].astype(np.float64)).clamp_min(-40)
                probabilities = values.softmax(-1)
                name = f"lid.176, {words} words"
                yield Classifier(name=name, probabilities=probabilities, labels=labels, change=torch.log)
        return
    features = find_features(source, data)
    x = normalize(features.features.float().numpy())
    y = features.labels.numpy()
    order = np.random.default_rng(SEED).permutation(len(y))
    first = np.concatenate([order[y[order] == k][: TRAINED[source]] for k in range(features.n_classes)])
    rest = np.setdiff1d(order, first)
    for model_name, model in MODELS.items():
        found = model.fit(x[first], y[first]).predict_proba(x[rest])
        probabilities = torch.from_numpy(found).clamp_min(LEAST)
        probabilities = probabilities / probabilities.sum(-1, keepdim=True)
        for change_name, change in CHANGES.items():
            if change_name != "as it is" and model_name != "regression":
                continue
            yield Classifier(
                name=f"{model_name}, {change_name}",
                probabilities=probabilities,
                labels=torch.from_numpy(y[rest]),
                change=change,
            )


def draw(labels: Tensor, n_items: int, n_present: int, half: int, batch: int) -> Tensor:
    """[q] the rows of a batch; no item is twice in one where there are enough."""
    classes = labels.unique().numpy()
    if len(classes[half::2]) >= n_present:
        classes = classes[half::2]
    generator = np.random.default_rng((SEED, n_items, n_present, batch))
    present = generator.choice(classes, n_present, replace=False)
    parts = np.full(n_present, 1 / n_present)
    if batch % 2:
        parts = generator.dirichlet(np.ones(n_present))
    wanted = np.bincount(generator.choice(n_present, n_items, p=parts), minlength=n_present)
    pools = [np.flatnonzero(labels.numpy() == k) for k in present]
    rows = [generator.choice(own, m, replace=m > len(own)) for own, m in zip(pools, wanted, strict=True)]
    return torch.from_numpy(generator.permutation(np.concatenate(rows)))


def measure(classifier: Classifier, rows: Tensor, n_present: int, n_labelled: int) -> Measured:
    """One batch, of which the first items have a label."""
    truth = classifier.labels[rows]
    posteriors = classifier.change(classifier.probabilities[rows]).float()
    known = torch.full_like(truth, -1)
    known[:n_labelled] = truth[:n_labelled]
    solution = solve("evidence", Tasks.from_scores(posteriors[None], known=known[None]))
    n_classes = posteriors.shape[-1]
    occurs = torch.bincount(truth, minlength=n_classes) > 0
    named = posteriors.argmax(-1)
    twice = torch.bincount(named[named == truth], minlength=n_classes) >= 2
    listed = solution.present()[0]
    low, high = solution.n_present_interval[0].tolist()
    return Measured(
        classifier=classifier.name,
        n_items=len(rows),
        n_present=n_present,
        n_labelled=n_labelled,
        absent=float((~occurs[listed]).sum()) / max(len(listed), 1),
        found=float(twice[listed].sum() / twice.sum()),
        inside=low <= int(occurs.sum()) <= high,
    )


def run(data: Path, sets: Iterable[str], items: Iterable[int], half: int, n_batches: int) -> Iterator[Measured]:
    """Every batch of every setting."""
    for source in sets:
        for classifier in classifiers(data, source):
            n_classes = len(classifier.labels.unique())
            for n_items, n_present, n_labelled in itertools.product(items, PRESENT, LABELLED):
                if n_present > n_classes:
                    continue
                for batch in range(n_batches):
                    rows = draw(classifier.labels, n_items, n_present, half, batch)
                    yield measure(classifier, rows, n_present, n_labelled)


def row_of(title: str, batches: list[Measured]) -> list[object]:
    """A row of a table, each setting with the same weight."""
    settings: dict[tuple[str, int, int, int], list[Measured]] = {}
    for one in batches:
        settings.setdefault((one.classifier, one.n_items, one.n_present, one.n_labelled), []).append(one)
    absent = np.array([np.mean([one.absent for one in some]) for some in settings.values()])
    error = np.array([np.std([one.absent for one in some]) / len(some) ** 0.5 for some in settings.values()])
    found = np.array([np.nanmean([one.found for one in some]) for some in settings.values()])
    over = int((absent - 2 * error > DEFAULT_RATE).sum())
    inside = float(np.mean([one.inside for one in batches]))
    cells = [f"{100 * value:.1f}" for value in (found.mean(), absent.mean(), absent.max())]
    return [title, len(settings), *cells, over, f"{100 * inside:.0f}"]


def tables(batches: list[Measured]) -> Iterator[list[object]]:
    """All settings together, and by their parts."""
    for n_labelled in LABELLED:
        labelled = [one for one in batches if one.n_labelled == n_labelled]
        yield row_of(f"{n_labelled} labelled items", labelled)
        for n_items, n_present in dict.fromkeys((one.n_items, one.n_present) for one in labelled):
            some = [one for one in labelled if (one.n_items, one.n_present) == (n_items, n_present)]
            yield row_of(f"{n_items} items of {n_present}", some)
        for name in dict.fromkeys(one.classifier for one in labelled):
            yield row_of(name, [one for one in labelled if one.classifier == name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--half", choices=("report", "validation"), default="report")
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--items", default=",".join(map(str, ITEMS)))
    parser.add_argument("--sets", default=",".join(SETS))
    arguments = parser.parse_args()
    half = int(arguments.half == "report")
    items = [int(number) for number in arguments.items.split(",")]
    sets = arguments.sets.split(",")
    batches = list(run(arguments.data, sets, items, half, arguments.batches))
    header = ["settings", "n", "found", "absent", "worst", "over", "inside"]
    show("Lists of classes from scores, in %", header, tables(batches))


if __name__ == "__main__":
    main()
