"""What each constant of ``evidence`` is worth: every field of its ``Schedule``, halved and doubled.

    python -m benchmarks.effects DATA [--device cuda] [--tasks 40] [--part 1/3] [--store effects.jsonl]

Each change is tried in the situations below that it could matter in, on tasks of three feature sets (classes that no
constant was chosen on): one to twenty examples per class, few and weak features, unequal numbers of examples, unknown
queries, names, known labels, streams, scores, near-copies, and a review. The table has the situation in which the
answers differ most, and there the labels that change, the change of accuracy (unknown ones included), of the
calibration error, of the classes that are listed rightly and wrongly, and of how often the interval of their number has
the truth, in percentage points. What is measured is kept in FILE, a line per change and situation, and is not measured
again; parts may run beside each other.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import show
from manyway import FeatureSet, Solution, Tasks, TaskSpec, sample_tasks, solve
from manyway.bench.data import find_features
from manyway.evaluation.metrics import find_summary, truth_of
from manyway.methods.evidence.schedule import Schedule
from manyway.methods.scores.kinds import log_posteriors

SETS = ("glyphs", "clinc150-half", "cub-rn18")
SEED = 77
NAMES = [one.name for one in fields(Schedule)]
MEASURED = ("whole_accuracy", "calibration", "listed.found", "listed.false", "n_present.within")
HEADER = "constant | value | changed to | most in | labels | accuracy | calibration error | found | absent | number"
# Where half or twice the value means nothing.
OTHER: Mapping[str, tuple[Any, Any]] = {
    "presence_believed": (0.4, 1.0),
    "anneal_from": (0.2, 0.7),
    "scores_sure": (0.35, 0.9),
    "scores_background": (0.75, 0.95),
}


@dataclass(frozen=True)
class Situation:
    """Tasks, and what is asked."""

    spec: Mapping[str, Any]
    params: Mapping[str, Any] = field(default_factory=dict)
    features: Callable[[FeatureSet], FeatureSet] = lambda features: features
    drawn: Callable[[Tasks], Tasks] = lambda tasks: tasks  # what happens to the tasks
    asked: Callable[[Tasks], Tasks] = lambda tasks: tasks  # what the method gets of them
    review: bool = False

    def draw(self, features: FeatureSet, n_tasks: int) -> Tasks:
        k_eff = min(self.spec.get("k_eff", 5), features.n_classes)
        spec = TaskSpec(**{"n_query": 60, **self.spec, "k_eff": k_eff})
        return self.drawn(sample_tasks(self.features(features), spec, seed=SEED, count=n_tasks))

    def answer(self, tasks: Tasks, schedule: Mapping[str, Any]) -> Solution:
        asked = self.asked(tasks)
        found = solve("evidence", asked, schedule=dict(schedule), **self.params)
        if not self.review:
            return found
        truth, first = truth_of(tasks), found.review_scores.topk(10).indices  # a person is asked about these
        known = torch.full_like(truth, -1).scatter(1, first, truth.gather(1, first))
        return solve("evidence", asked.with_known(known), schedule=dict(schedule), **self.params)


def few_columns(features: FeatureSet) -> FeatureSet:
    """Eight directions in which the features vary most, in very different units."""
    centred = features.features - features.features.mean(0)
    directions = torch.linalg.svd(centred[:: max(1, len(centred) // 2000)], full_matrices=False).Vh[:8]
    units = torch.logspace(-2, 2, 8, device=centred.device, dtype=centred.dtype)
    return replace(features, features=centred @ directions.T * units, base_mean=None)


def noisy(features: FeatureSet) -> FeatureSet:
    """Class means differ less than prototypes err."""
    noise = torch.randn(features.features.shape, generator=torch.Generator().manual_seed(SEED))
    spread = features.features.std()
    return replace(features, features=features.features + 1.5 * spread * noise.to(features.features))


def unequal(tasks: Tasks) -> Tasks:
    """Class k keeps 1 + (k mod 10) of its examples."""
    labels = tasks.support_labels[0]
    place = torch.stack([(labels[: i + 1] == labels[i]).sum() - 1 for i in range(len(labels))]).to(labels.device)
    return _with_examples(tasks, place <= labels % 10)


def _with_examples(tasks: Tasks, kept: torch.Tensor) -> Tasks:
    """With those examples [s] of each task alone."""
    assert tasks.support_index is not None
    return replace(tasks, support_index=tasks.support_index[:, kept], support_labels=tasks.support_labels[:, kept])


def named(features: FeatureSet) -> FeatureSet:
    """A vector per class: the mean of its samples, moved away from them."""
    means = torch.stack([features.features[features.labels == k].mean(0) for k in range(features.n_classes)])
    return replace(features, class_features=means.roll(1, 1) * 0.3 + means)


def half_without_examples(tasks: Tasks) -> Tasks:
    return _with_examples(tasks, tasks.support_labels[0] % 2 == 0)


def with_known_of(tasks: Tasks, drawn: Tasks) -> Tasks:
    """The true labels of every fifth query."""
    truth = truth_of(drawn)
    return tasks.with_known(torch.where(torch.arange(truth.shape[1], device=truth.device) % 5 == 0, truth, -1))


def scored(tasks: Tasks) -> Tasks:
    """Log-probabilities by the cosine of queries and class means of the examples."""
    labels = tasks.support_labels[0]
    means = torch.stack([tasks.support[:, labels == k].mean(1) for k in range(tasks.n_classes)], 1)
    normal = torch.nn.functional.normalize
    return Tasks.from_scores((12 * normal(tasks.query, dim=-1) @ normal(means, dim=-1).mT).log_softmax(-1))


def lists(tasks: Tasks) -> Tasks:
    """The five highest of these."""
    p = scored(tasks).query.exp()
    kept = p.where(p >= p.topk(5).values[..., -1:], torch.nan)
    return Tasks.from_scores(torch.stack([log_posteriors(one, "probability") for one in kept]))


def copied(tasks: Tasks) -> Tasks:
    """Every query three times."""
    assert tasks.query_index is not None
    index, labels = (one.repeat_interleave(3, 1) for one in (tasks.query_index, truth_of(tasks)))
    return replace(tasks, query_index=index, query_labels=labels)


def shifted(tasks: Tasks) -> Tasks:
    """All queries moved by half of the within-class scatter, in one random direction per task."""
    labels = tasks.support_labels[0]
    within = torch.stack([tasks.support[:, labels == k].var(1).sum(-1) for k in range(tasks.n_classes)], 1)
    directions = torch.randn(len(tasks), 1, tasks.n_features, generator=torch.Generator().manual_seed(SEED))
    directions = torch.nn.functional.normalize(directions.to(tasks.query), dim=-1)
    return tasks.with_rows(tasks.support, tasks.query + 0.5 * within.mean(1).sqrt().view(-1, 1, 1) * directions)


def mislabelled(tasks: Tasks) -> Tasks:
    """Every fifth example has the label of another class."""
    labels = tasks.support_labels
    generator = torch.Generator().manual_seed(SEED)
    others = labels + torch.randint(1, tasks.n_classes, labels.shape, generator=generator).to(labels)
    changed = torch.arange(labels.shape[1], device=labels.device) % 5 == 0
    return replace(tasks, support_labels=torch.where(changed, others % tasks.n_classes, labels))


def with_list(tasks: Tasks) -> Tasks:
    """Scores, and a list of the classes that occur."""
    listed = torch.zeros(tasks.n_classes, device=tasks.query_table.device)
    listed[truth_of(tasks).unique()] = 1.0
    return replace(scored(tasks), expectation=listed)


def by_itself(tasks: Tasks) -> Tasks:
    """Log-odds of each class by itself, where items may have several."""
    odds = scored(tasks).query
    return Tasks.from_scores(2 * (odds - odds.mean()) / odds.std() - 3, several=True)


UNKNOWN = {"n_query": 50, "n_unknown": 25}
COUNTED = "presence|list_|shares"
SEARCHED = "anneal|shared_error|most_groups"
SCALED = "few_columns|doubtful"
JUDGED = "unknown|some_unknown|improbable|one_shot_(within|noise)"
# What is tried, and a pattern of the constants that matter there.
SITUATIONS: Mapping[str, tuple[str, Situation]] = {
    "one shot, 2 classes": (f"one_shot|{SEARCHED}", Situation({"shots": 1, "k_eff": 2})),
    "one shot, 20 classes": ("one_shot", Situation({"shots": 1, "k_eff": 20})),
    "5 shots, 2 classes": (f"{SEARCHED}|{COUNTED}", Situation({"k_eff": 2})),
    "5 shots, 5 classes": (f"few_columns|anneal|{COUNTED}", Situation({})),
    "5 shots, 20 classes": (f"{SEARCHED}|{COUNTED}", Situation({"k_eff": 20})),
    "eight columns, rehearsed": (
        "rehearsed",
        Situation({"shots": 20, "n_ways": 10, "k_eff": 3}, {"rehearse": True}, features=few_columns),
    ),
    "20 shots, 5 classes": ("few_columns|doubtful", Situation({"shots": 20})),
    "eight columns, one shot": (
        "one_shot|few_columns",
        Situation({"shots": 1, "n_ways": 10, "k_eff": 3}, features=few_columns),
    ),
    "eight columns, 3 shots": (SCALED, Situation({"shots": 3, "n_ways": 10, "k_eff": 3}, features=few_columns)),
    "eight columns, 20 shots": (SCALED, Situation({"shots": 20, "n_ways": 10, "k_eff": 3}, features=few_columns)),
    "weak features": ("few_columns|shared_error", Situation({"shots": 2, "k_eff": 3}, features=noisy)),
    "1 to 10 shots": ("few_columns", Situation({"shots": 10}, asked=unequal)),
    "unknown queries, one shot": (
        JUDGED,
        Situation({"shots": 1, **UNKNOWN, "unknown_classes": 3}, {"open_set": True}),
    ),
    "unknown queries of 3 classes": (JUDGED, Situation({**UNKNOWN, "unknown_classes": 3}, {"open_set": True})),
    "unknown queries of many classes": (JUDGED, Situation(UNKNOWN, {"open_set": True})),
    "names alone": ("few_columns", Situation({"shots": 0}, features=named)),
    "names and 2 shots": ("few_columns", Situation({"shots": 2}, features=named)),
    "names, half with 2 shots": (
        "few_columns",
        Situation({"shots": 2}, features=named, asked=half_without_examples),
    ),
    "shifted queries": ("improbable", Situation({}, asked=shifted)),
    "a fifth of the labels wrong": ("wrong_labels", Situation({}, asked=mislabelled)),
    "stream": ("improbable", Situation({"n_query": 15, "n_batches": 6, "gamma": 0.5}, {"carry": True})),
    "scores": ("scores", Situation({}, asked=scored)),
    "scores, 20 classes": ("scores", Situation({"k_eff": 20}, asked=scored)),
    "lists of five, 20 classes": ("scores", Situation({"k_eff": 20}, asked=lists)),
    "scores, some labels known": (
        "scores",
        Situation({}, asked=lambda t: with_known_of(scored(t), t)),
    ),
    "scores and a list": ("scores", Situation({"k_eff": 20}, asked=with_list)),
    "several classes per item": ("several", Situation({}, asked=by_itself)),
    "three copies of each": ("near_copy|copies", Situation({"n_query": 25}, drawn=copied)),
    "a review": ("shared_error", Situation({"shots": 2, "k_eff": 10}, review=True)),
}


def n_numbers() -> int:
    """How many numbers the constants have; 0, 1, 2 and one half need no reason."""
    values = [getattr(Schedule(), name) for name in NAMES]
    return sum(value not in (0, 1, 2, 0.5) for value in values)


def changes(name: str) -> Iterator[Any]:
    """Other values of a constant."""
    usual = getattr(Schedule(), name)
    for factor, other in zip((0.5, 2.0), OTHER.get(name, (None, None)), strict=True):
        if other is not None:
            yield other
        else:
            yield _times(usual, factor)


def _times(value: float, factor: float) -> float:
    """A whole number stays one."""
    return max(1, round(factor * value)) if isinstance(value, int) else factor * value


def measured(found: Solution, tasks: Tasks) -> tuple[list[float], list[Any]]:
    """The values of ``MEASURED``, in %, and the labels."""
    n_known = (truth_of(tasks) >= 0).sum(1).cpu().numpy()
    values = []
    for name in MEASURED:
        metric, summary = find_summary(name)
        values.append(100 * summary.of(metric.measure(found, tasks).cpu().numpy(), n_known).mean)
    return values, found.labels.cpu().tolist()


def run(data: Path, store: Path, device: str, n_tasks: int, part: tuple[int, int]) -> None:
    """Measure what is not in the store."""
    sets = [find_features(name, data).to(device, torch.float32) for name in SETS]
    done = {(row["constant"], row["value"], row["situation"]) for row in read(store)}
    with store.open("a", encoding="utf-8") as file:
        for title, (pattern, situation) in list(SITUATIONS.items())[part[0] - 1 :: part[1]]:
            batches = [situation.draw(features, n_tasks) for features in sets]
            usual = [measured(situation.answer(tasks, {}), tasks) for tasks in batches]
            for name, value in ((each, value) for each in NAMES for value in changes(each)):
                if not re.match(pattern, name) or (name, json.dumps(value), title) in done:
                    continue
                changed = [measured(situation.answer(tasks, {name: value}), tasks) for tasks in batches]
                pairs = list(zip(changed, usual, strict=True))
                labels = [np.mean(np.array(new[1]) != np.array(old[1])) for new, old in pairs]
                by = np.mean([np.subtract(new[0], old[0]) for new, old in pairs], 0).tolist()
                row = {"constant": name, "value": json.dumps(value), "situation": title}
                file.write(json.dumps({**row, "labels": 100 * float(np.mean(labels)), "by": by}) + "\n")
                file.flush()


def read(store: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in store.read_text("utf-8").splitlines()] if store.exists() else []


def table(rows: list[dict[str, Any]]) -> Iterator[list[object]]:
    """A row per change: the situation in which the answers differ most."""
    for name in NAMES:
        for value in changes(name):
            here = [row for row in rows if (row["constant"], row["value"]) == (name, json.dumps(value))]
            if not here:
                continue
            most = max(here, key=lambda row: max(row["labels"], *map(abs, row["by"])))
            usual, changed = f"{getattr(Schedule(), name):g}", f"{value:g}"
            where = most["situation"] if max(most["labels"], *map(abs, most["by"])) > 0 else "nothing"
            yield [name, usual, changed, where, f"{most['labels']:.1f}", *(f"{by:+.1f}" for by in most["by"])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tasks", type=int, default=40, help="of each feature set in each situation")
    parser.add_argument("--part", default="1/1", help="2/3: every third situation, from the second on")
    parser.add_argument("--store", type=Path, nargs="+", default=[Path("effects.jsonl")], help="the first is written")
    options = parser.parse_args()
    part, of = map(int, options.part.split("/"))
    run(options.data, options.store[0], options.device, options.tasks, (part, of))
    rows = [row for store in options.store for row in read(store)]
    show("What each constant of evidence is worth", HEADER.split(" | "), table(rows))


if __name__ == "__main__":
    main()
