"""Evidence from the scores of a classifier, beside the classifier itself and label shift by EM.

    python -m benchmarks.scores DATA [--batches 80]
    python -m benchmarks.scores DATA --real [--batches 40]

A logistic regression over all classes is trained on 15 items per class of CUB-200, CLINC150 and CIFAR-100. Batches of
75 other items are drawn from 2, 5, 10, 20 or all classes. Everything sees the same scores. "Calibrated" means
bias-corrected temperature scaling on 4 further labelled items per class; without it no label is used.

The tables are of the second half of the classes (batches of all classes: of both). ``--real`` measures the recorded
scores of fastText's lid.176 instead, a classifier that nobody here trained: without labels, with labelled items, and
with lists of expected classes. ``--several`` measures items with two intents each, composed of CLINC150. ``--sizes``
measures 5 to 5,000 items and 10 to 10,000 classes, all scores and lists of the five highest.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from benchmarks.measure import show
from manyway import FeatureSet, Solution, Tasks, evidence_from_likelihood, solve
from manyway.bench.data import find_features
from manyway.evaluation.metrics import METRICS
from manyway.evaluation.statistics import accuracy, paired
from manyway.methods.calibration.temperature_scaling import rescale
from manyway.methods.label_shift import class_proportions
from manyway.methods.scores.calibrate import fit_labelled
from manyway.methods.scores.kinds import log_odds, log_posteriors

SETS = {"CUB-200": "cub200", "CLINC150": "clinc150", "CIFAR-100": "cifar100"}
K_EFF = (2, 5, 10, 20, None)
TRAIN, CALIBRATE, N_QUERY = 15, 4, 75


@dataclass(frozen=True)
class Scored:
    """Log-posteriors of the items that the classifier was not trained on."""

    posteriors: Tensor  # [n, k]
    labels: Tensor  # [n]
    scaling: Tensor  # [k + 1] fitted to the calibration items
    pools: list[np.ndarray]  # the rows of each class that batches are drawn from

    def batches(self, k_eff: int | None, half: int, count: int, seed: int) -> tuple[Tensor, Tensor]:
        """Log-posteriors [t, q, k] and labels [t, q]; ``half`` says which half of the classes can be present."""
        generator = np.random.default_rng((seed, k_eff or 0))
        n_classes = len(self.pools)
        allowed = np.arange(n_classes)
        if half == 0 or k_eff is not None:
            allowed = allowed[half * n_classes // 2 : (half + 1) * n_classes // 2]
        rows = [self._batch(generator, allowed, k_eff or len(allowed)) for _ in range(count)]
        index = torch.from_numpy(np.stack(rows))
        return self.posteriors[index], self.labels[index]

    def _batch(self, generator: np.random.Generator, allowed: np.ndarray, k_eff: int) -> np.ndarray:
        while True:
            present = generator.choice(allowed, k_eff, replace=False)
            items = {k: list(generator.permutation(self.pools[k])) for k in present}
            if sum(map(len, items.values())) >= N_QUERY:
                break
        rows: list[int] = []
        while len(rows) < N_QUERY:
            k = generator.choice(present)
            if items[k]:
                rows.append(items[k].pop())
        return np.array(rows)


def train(features: FeatureSet, seed: int = 0) -> Scored:
    """A logistic regression on standardised features, and its scores for the other items."""
    x, y = features.features.float().numpy(), features.labels.numpy()
    generator = np.random.default_rng(seed)
    per_class = [generator.permutation(np.flatnonzero(y == k)) for k in range(features.n_classes)]
    rows = np.concatenate([own[:TRAIN] for own in per_class])
    scaler = StandardScaler().fit(x[rows])
    model = LogisticRegression().fit(scaler.transform(x[rows]), y[rows])
    posteriors = torch.from_numpy(model.decision_function(scaler.transform(x))).float().log_softmax(-1)
    labels = torch.from_numpy(y)
    calibration = torch.from_numpy(np.concatenate([own[TRAIN : TRAIN + CALIBRATE] for own in per_class]))
    scaling = fit_labelled(posteriors[calibration], labels[calibration])
    return Scored(posteriors, labels, scaling, [own[TRAIN + CALIBRATE :] for own in per_class])


def by_em(posteriors: Tensor) -> Solution:
    """Label shift: the class proportions of each batch by EM."""
    p = posteriors.exp()
    proportions, n_iter, converged = class_proportions(p, 1000, 1e-6)
    joint = p * proportions.unsqueeze(1)
    return Solution(joint / joint.sum(-1, keepdim=True), n_iter, converged)


def by_evidence(likelihood: Tensor) -> Solution:
    return evidence_from_likelihood(likelihood, torch.full((1, likelihood.shape[-1]), 100.0))


def as_is(posteriors: Tensor) -> Solution:
    done = torch.ones(len(posteriors), dtype=torch.bool)
    return Solution(posteriors.exp(), done.long(), done)


def answers(scored: Scored, posteriors: Tensor) -> dict[str, Solution]:
    """The answers of everything that is compared."""
    calibrated = rescale(posteriors, scored.scaling.expand(len(posteriors), -1)).log_softmax(-1)
    return {
        "classifier": as_is(posteriors),
        "EM": by_em(posteriors),
        "evidence": solve("evidence", Tasks.from_scores(posteriors)),
        "calibrated classifier": as_is(calibrated),
        "calibrated EM": by_em(calibrated),
        "calibrated evidence": by_evidence(calibrated),
    }


def labelled_tasks(truth: Tensor, n_classes: int) -> Tasks:
    """Tasks of which metrics need the true labels only."""
    labels = torch.arange(n_classes).expand(len(truth), -1)
    return Tasks.from_arrays(labels.unsqueeze(-1).float(), labels, torch.zeros(*truth.shape, 1), query_labels=truth)


def cell(correct: np.ndarray, solution: Solution, tasks: Tasks) -> str:
    """Accuracy and calibration error, both in % with their interval."""
    metric = METRICS["calibration"]
    error = metric.summaries[""].of(metric.measure(solution, tasks).numpy(), N_QUERY)
    found = accuracy(correct, N_QUERY)
    return f"{100 * found.mean:.1f} ± {100 * found.half:.1f} · {100 * error.mean:.1f} ± {100 * error.half:.1f}"


def measure(data: Path, count: int) -> Iterator[tuple[list[object], list[object]]]:
    """Per set and K_eff a row of accuracies and calibration errors, and a row of paired differences."""
    for title, name in SETS.items():
        scored = train(find_features(name, data))
        for k_eff in K_EFF:
            posteriors, truth = scored.batches(k_eff, half=1, count=count, seed=1)
            found = answers(scored, posteriors)
            tasks = labelled_tasks(truth, len(scored.pools))
            correct = {each: METRICS["accuracy"].measure(solution, tasks).numpy() for each, solution in found.items()}
            cells = [cell(correct[each], solution, tasks) for each, solution in found.items()]
            gains = [
                paired(correct[f"{before}evidence"], correct[f"{before}{other}"], N_QUERY).difference
                for before in ("", "calibrated ")
                for other in ("classifier", "EM")
            ]
            first: list[object] = [title, k_eff or "all"]
            yield [*first, *cells], [*first, *(f"{100 * gain.mean:+.1f} ± {100 * gain.half:.1f}" for gain in gains)]


def real_batches(data: Path, words: int, k_eff: int, count: int) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Log-posteriors [t, q, k] of lid.176, labels [t, q], and the languages that were drawn for each batch."""
    with np.load(data / "scores" / "lid176_udhr.npz") as file:
        labels = torch.from_numpy(file["labels"].astype(np.int64))
        values = torch.from_numpy(file[f"log_scores_{words}"].astype(np.float32))
    languages, rows, drawn = labels.unique(), [], []
    for batch in range(count):
        generator = torch.Generator().manual_seed(1000 * k_eff + batch)
        drawn.append(languages[torch.randperm(len(languages), generator=generator)[:k_eff]])
        found = torch.isin(labels, drawn[-1]).nonzero().squeeze(1)
        rows.append(found[torch.randperm(len(found), generator=generator)[:N_QUERY]])
    index = torch.stack(rows)
    return values.clamp_min(-40).log_softmax(-1)[index], labels[index], drawn


def measure_real(data: Path, count: int) -> Iterator[list[object]]:
    """Recorded scores of fastText's lid.176, 75 fragments of texts in few languages: nobody here trained it."""
    for words in (2, 3, 5):
        for k_eff in (2, 4, 8, 20, 40):
            p, truth, _ = real_batches(data, words, k_eff, count)
            tasks = labelled_tasks(truth, p.shape[-1])
            before, after = as_is(p), solve("evidence", Tasks.from_scores(p))
            right = [METRICS["accuracy"].measure(one, tasks).numpy() for one in (before, after)]
            gain, worst = paired(right[1], right[0], N_QUERY).difference, (right[1] - right[0]).min() / N_QUERY
            cells = [cell(correct, one, tasks) for correct, one in zip(right, (before, after), strict=True)]
            yield [words, k_eff, *cells, f"{100 * gain.mean:+.1f} ± {100 * gain.half:.1f}", f"{100 * worst:+.0f}"]


def among(posteriors: Tensor, classes: list[Tensor]) -> Tensor:
    """The labels [t, q] where only some classes are allowed."""
    allowed = torch.zeros(len(posteriors), posteriors.shape[-1])
    for task, some in enumerate(classes):
        allowed[task, some] = 1
    return (posteriors + allowed.log().unsqueeze(1)).argmax(-1)


def measure_labels(data: Path, count: int) -> Iterator[list[object]]:
    """Three words: accuracy in % of the other items where 5, 20 or 50 of 75 have a label."""
    for k_eff in (2, 4, 8, 20, 40):
        p, truth, drawn = real_batches(data, 3, k_eff, count)
        row: list[object] = [k_eff, f"{100 * float((p.argmax(-1) == truth).float().mean()):.1f}"]
        row.append(f"{100 * float((among(p, drawn) == truth).float().mean()):.1f}")
        for labelled in (0, 5, 20, 50):
            known = torch.full_like(truth, -1)
            known[:, :labelled] = truth[:, :labelled]
            right = solve("evidence", Tasks.from_scores(p, known=known)).labels == truth
            row.append(f"{100 * float(right[:, labelled:].float().mean()):.1f}")
        yield row


def measure_lists(data: Path, count: int) -> Iterator[list[object]]:
    """Three words: accuracy in % with lists: right ones, and lists that lack a fifth and have ten times too many."""
    for k_eff in (2, 4, 8, 20, 40):
        p, truth, drawn = real_batches(data, 3, k_eff, count)
        n_classes, generator, wrong = p.shape[-1], torch.Generator().manual_seed(k_eff), []
        for present in drawn:
            others = torch.tensor(sorted(set(range(n_classes)) - set(present.tolist())))
            more = others[torch.randperm(len(others), generator=generator)[: 10 * k_eff]]
            wrong.append(torch.cat([present[max(1, k_eff // 5) :], more]))
        row: list[object] = [
            k_eff,
            f"{100 * float((solve('evidence', Tasks.from_scores(p)).labels == truth).float().mean()):.1f}",
        ]
        for lists in (drawn, wrong):
            row.append(f"{100 * float((among(p, lists) == truth).float().mean()):.1f}")
            right = []
            for task, some in enumerate(lists):
                expectation = torch.zeros(n_classes)
                expectation[some] = 1
                found = solve("evidence", Tasks.from_scores(p[task : task + 1], expectation=expectation)).labels
                right.append((found[0] == truth[task]).float().mean())
            row.append(f"{100 * float(torch.stack(right).mean()):.1f}")
        yield row


def measure_several(data: Path, count: int) -> Iterator[list[object]]:
    """Mean F1 per item in %: 75 items that are the mean of two texts of different intents, by one-vs-rest scores."""
    features = find_features("clinc150", data)
    x, y = torch.nn.functional.normalize(features.features.float(), dim=-1).numpy(), features.labels.numpy()
    generator, n_classes = np.random.default_rng(0), features.n_classes
    pools = [generator.permutation(np.flatnonzero(y == k)) for k in range(n_classes)]
    rows = np.concatenate([own[:TRAIN] for own in pools])
    models = [LogisticRegression(C=10, solver="liblinear").fit(x[rows], y[rows] == k) for k in range(n_classes)]
    weights, biases = np.concatenate([m.coef_ for m in models]), np.concatenate([m.intercept_ for m in models])

    def draw(k_eff: int, count: int) -> tuple[Tensor, Tensor]:
        present, truth, items = generator.choice(n_classes, k_eff, replace=False), [], []
        for _ in range(count):
            pair = generator.choice(present, 2, replace=False)
            truth.append(np.isin(np.arange(n_classes), pair))
            item = sum(x[generator.choice(pools[k][TRAIN:])] for k in pair)
            items.append(item / np.linalg.norm(item))
        return torch.from_numpy(np.stack(items) @ weights.T + biases).float(), torch.from_numpy(np.stack(truth))

    def f1(answer: Tensor, truth: Tensor) -> float:
        return 100 * float((2 * (answer & truth).sum(-1) / (answer.sum(-1) + truth.sum(-1))).mean())

    thresholds = torch.linspace(-8, 3, 56)
    odds, truth = draw(n_classes, 1500)  # labelled items of all classes, for a threshold per class
    hits = (odds.unsqueeze(-1) > thresholds) & truth.unsqueeze(-1)
    scores = 2 * hits.sum(0) / ((odds.unsqueeze(-1) > thresholds).sum(0) + truth.sum(0).unsqueeze(-1))
    per_class = thresholds[scores.argmax(-1)]
    for least, k_eff in itertools.product((0.0, 0.1, "five highest"), (5, 10, 20, 40)):
        found = []
        for _ in range(count):
            odds, truth = draw(k_eff, N_QUERY)
            scores = odds.sigmoid()
            kept = scores >= (least if isinstance(least, float) else scores.topk(5).values[..., -1:])
            listed = log_odds(scores.where(kept, torch.nan))
            answer = solve("evidence", Tasks.from_scores(listed[None], several=True)).probabilities[0] > 0.5
            best = max(f1((odds > threshold) & kept, truth) for threshold in thresholds.tolist())
            found.append([best, f1((odds > per_class) & kept, truth), f1(answer, truth)])
        values = np.array(found)
        worst = (values[:, 2] - values[:, :2].max(1)).min()
        yield [k_eff, least, *(f"{value:.1f}" for value in values.mean(0)), f"{worst:+.1f}"]


def simulated(n_classes: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Items [n, d], learned classes [k, d] and labels [n]: classes of a genus are confused, less so those of a family.

    Classes are species, ten to a genus and ten genera to a family. It has learned each class with an error of its own,
    and is too sure: 60 to 70 % of its answers are right.
    """
    generator = torch.Generator().manual_seed(seed)
    levels = [torch.randn(-(-n_classes // size), 24, generator=generator) for size in (100, 10, 1)]
    numbers = torch.arange(n_classes)
    classes = 1.2 * levels[0][numbers // 100] + 0.9 * levels[1][numbers // 10] + 0.7 * levels[2]
    learned = classes + 0.4 * torch.randn(classes.shape, generator=generator)
    some = torch.randperm(n_classes, generator=generator)[:120]  # those of which there are items
    labels = some.repeat_interleave(250)
    items = classes[labels] + 1.2 * torch.randn(len(labels), 24, generator=generator)
    return items, learned, labels


def sized(data: Path, name: str) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """What makes log-posteriors of some items, and the labels of all."""
    if name.isdigit():
        items, learned, labels = simulated(int(name))
        return lambda rows: (-torch.cdist(items[rows], learned).square() / 2.5).log_softmax(-1), labels
    if name == "lid.176":
        with np.load(data / "scores" / "lid176_udhr.npz") as file:
            values = torch.from_numpy(file["log_scores_3"].astype(np.float32)).clamp_min(-40).log_softmax(-1)
            return values.__getitem__, torch.from_numpy(file["labels"].astype(np.int64))
    scored = train(find_features(SETS[name], data))
    rows = torch.from_numpy(np.concatenate(scored.pools))
    return scored.posteriors[rows].__getitem__, scored.labels[rows]


def measure_sizes(data: Path, count: int, names: list[str]) -> Iterator[list[object]]:
    """Accuracy in % of the classifier, and what evidence changes: where few classes occur, and where most do."""
    sizes = [5, 20, 75, 500, 5000]
    for name in names or ("10", "100", "1000", "10000", "lid.176", *SETS):
        posteriors, labels = sized(data, name)
        for n_items, k_eff in itertools.product(sizes, (3, 20, 120)):
            generator, found = torch.Generator().manual_seed(n_items + k_eff), []
            present = labels.unique()
            if n_items < k_eff // 4 or k_eff > max(3, len(present)):
                continue
            for _ in range(max(2, count // (1 + n_items // 150))):
                chosen = present[torch.randperm(len(present), generator=generator)[:k_eff]]
                rows = torch.isin(labels, chosen).nonzero().squeeze(1)
                if len(rows) < n_items:
                    break
                rows = rows[torch.randperm(len(rows), generator=generator)[:n_items]]
                p, row = posteriors(rows)[None], []
                best = p.topk(min(5, p.shape[-1]), -1)
                cut = torch.full_like(p, torch.nan).scatter_(-1, best.indices, best.values.exp())
                for scores in (p, log_posteriors(cut[0], "probability")[None]):
                    answer = solve("evidence", Tasks.from_scores(scores)).labels
                    row += [float((each == labels[rows]).float().mean()) for each in (scores.argmax(-1), answer)]
                found.append(row)
            if found:
                values = 100 * np.array(found)
                gains = values[:, 1::2] - values[:, ::2]
                cells = [f"{mean:+.1f} ({worst:+.0f})" for mean, worst in zip(gains.mean(0), gains.min(0), strict=True)]
                yield [name, p.shape[-1], n_items, k_eff, f"{values[:, 0].mean():.1f}", *cells]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--batches", type=int, default=80)
    parser.add_argument("--real", action="store_true", help="recorded scores of a classifier that nobody here trained")
    parser.add_argument("--several", action="store_true", help="items with two classes each")
    parser.add_argument("--sizes", nargs="*", help="few to many items and classes; of these classifiers only")
    arguments = parser.parse_args()
    if arguments.sizes is not None:
        header = ["classifier", "classes", "items", "K_eff", "accuracy", "evidence (worst batch)", "of five highest"]
        show("Sizes", header, measure_sizes(arguments.data, arguments.batches, arguments.sizes))
        return
    if arguments.several:
        header = ["K_eff", "listed from", "best threshold", "thresholds per class", "evidence", "worst batch"]
        show("Two intents per item: F1 in %", header, measure_several(arguments.data, arguments.batches))
        return
    if arguments.real:
        header = ["words", "K_eff", "classifier", "evidence", "difference", "worst batch"]
        show("lid.176", header, measure_real(arguments.data, arguments.batches))
        header = ["K_eff", "classifier", "only the classes present", *(f"{n} labels" for n in (0, 5, 20, 50))]
        show("lid.176, three words, labelled items", header, measure_labels(arguments.data, arguments.batches))
        header = ["K_eff", "no list", "mask: right list", "right list", "mask: wrong list", "wrong list"]
        show("lid.176, three words, lists", header, measure_lists(arguments.data, arguments.batches))
        return
    names = ["classifier", "EM", "evidence"]
    rows, differences = zip(*measure(arguments.data, arguments.batches), strict=True)
    header = ["set", "K_eff", *names, *(f"calibrated {name}" for name in names)]
    show("Accuracy in % · calibration error in %", header, rows)
    header = ["set", "K_eff", "evidence − classifier", "evidence − EM"]
    header += ["calibrated: evidence − classifier", "calibrated: evidence − EM"]
    show("Paired differences in accuracy, in points", header, differences)


if __name__ == "__main__":
    main()
