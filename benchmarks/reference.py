"""Compare every method with recorded runs of its original.

    python -m benchmarks.reference DATA [--device cuda] [--method paddle ...] [--tasks N]

DATA holds ``features/``; the recorded runs lie beside it, in ``reference/``. They contain tasks (rows of the feature
files) and the accuracy of the authors' code on them: ``SET.json`` for the methods of the PADDLE paper,
``SET_later.json`` and ``SET_new.json`` for later ones. Each method runs on the same tasks. The table, in Markdown, has
one row per feature set, configuration and recorded name: the recorded accuracy, ours, and whether the difference is
within the recorded tolerance. The exit status is 1 when a difference is not, and when a method of the table
``RECORDINGS`` is missing here.

``SET_openset.npz`` has tasks with unknown queries: two thirds of the classes known, 5 shots, 55 queries of 5 known and
20 of 3 unknown classes. A second table has the AUROC of every score of unknown queries, beside the recorded value where
there is one. Recorded labels of these tasks are -1 for queries that were called unknown. Queries for which the original
has NaN are left out of both accuracies.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import show
from manyway import METHODS, FeatureSet, Tasks, solve
from manyway.core.affinities import balanced_affinities
from manyway.core.solution import Solution
from manyway.core.transforms import transform
from manyway.evaluation.metrics import METRICS
from manyway.evaluation.scorers import SCORERS


@dataclass(frozen=True)
class Configuration:
    """What the name of a recorded configuration says, such as ``5shot_keff30``, and the number of classes."""

    shots: int
    k_eff: int | None  # None: the name does not say it
    n_classes: int


@dataclass(frozen=True)
class Recording:
    """How the run that was recorded under a name is repeated."""

    method: str
    params: Mapping[str, Any] = field(default_factory=dict)  # that differ from our defaults
    per_configuration: Callable[[Configuration], Mapping[str, Any]] | None = None  # more parameters
    features: Callable[[Tasks], Tasks] | None = None  # what the recorded run did with the features first
    open_set: bool = False  # whether it can answer that a query is unknown


def cl2_times_10(tasks: Tasks) -> Tasks:
    """``cl2``, then multiplied by 10: about the scale of the features that UNEM's parameters were learned on."""
    tasks = transform(tasks, "cl2")
    return replace(tasks, support_table=tasks.support_table * 10, query_table=tasks.query_table * 10)


def true_k_eff(configuration: Configuration) -> dict[str, Any]:
    """The number of classes among the queries, which the authors of EM-Dirichlet read from the query labels."""
    return {"k_eff": configuration.k_eff}


def authors_cub(configuration: Configuration) -> dict[str, Any]:
    """The parameters that the authors of UNEM publish for CUB, for 5 or 20 shots."""
    return {"parameters": f"authors-cub-{20 if configuration.shots == 20 else 5}shot"}


def affinities_of_roots(tasks: Tasks) -> Tasks:
    """The features that BPA's authors give to PT-MAP."""
    return balanced_affinities(transform(tasks, "power"), affinity_weight=0.2, affinity_iter=5)


def authors_gate(configuration: Configuration) -> dict[str, Any]:
    """The gate of OSLS in the authors' code, whose names of the two are crossed."""
    return {"gate": "sigmoid" if configuration.n_classes <= 100 else "step"}


_AUTHORS_STEP = {"m_step": "authors"}
_AUTHORS_TRANSCLIP = {"restart": False, "validation_shots": 4, "graph": "authors"}
RECORDINGS: Mapping[str, Recording] = {
    **{name: Recording(name) for name in ("paddle", "soft-kmeans", "paddle-pgd", "baseline", "simpleshot", "ici")},
    **{name: Recording(name) for name in ("bd-cspn", "pt-map", "laplacianshot", "tim-adm", "alpha-tim")},
    "tim": Recording("tim", {"max_iter": 1000}),
    "em-dirichlet": Recording("em-dirichlet", _AUTHORS_STEP),
    "em-dirichlet-leak": Recording("em-dirichlet", _AUTHORS_STEP, true_k_eff),
    "hard-em-dirichlet": Recording("hard-em-dirichlet", _AUTHORS_STEP),
    "hard-em-dirichlet-leak": Recording("hard-em-dirichlet", _AUTHORS_STEP, true_k_eff),
    "unem-cl2x10": Recording("unem", {"scale": None}, authors_cub, features=cl2_times_10),
    "oslo": Recording("oslo"),
    "transclip": Recording("transclip", _AUTHORS_TRANSCLIP),
    "transclip-last": Recording("transclip", {**_AUTHORS_TRANSCLIP, "choose": "last"}),
    "transclip-gamma0.02": Recording("transclip", {**_AUTHORS_TRANSCLIP, "gammas": (0.02,)}),
    "transclip-graphfixed": Recording("transclip", {**_AUTHORS_TRANSCLIP, "graph": "ordered"}),
    "stata": Recording("stata"),
    "stata-softbeta": Recording("stata", {"soft_counts": True}),
    "saerens": Recording("label-shift", {"calibrate": False, "logit_scale": 20.0, "max_iter": 100, "tol": 1e-6}),
    "alpha-am": Recording("alpha-am"),
    "bpa-proto": Recording("bpa"),
    "bpa-proto-10it": Recording("bpa", {"affinity_iter": 10}),
    "bpa-proto-cl2": Recording("bpa", {"scale": "cl2"}),
    "bpa-ptmap": Recording("pt-map", {"scale": None, "step": 0.2, "max_iter": 10}, features=affinities_of_roots),
    "mapls": Recording("mapls"),
    "mapls-soft": Recording("mapls", {"source": "support"}),
    "mapls-lam0.5": Recording("mapls", {"data_weight": 0.5}),
    "mlls": Recording("mapls", {"data_weight": 1.0}),
    "osls": Recording("osls", per_configuration=authors_gate, open_set=True),
    "osls-mle": Recording("osls", per_configuration=authors_gate, open_set=True),
    "osls-other-rescale": Recording("osls", open_set=True),
    "adapt": Recording("adapt", {"negative": "multiply"}),
    "adapt-scale20": Recording("adapt", {"negative": "multiply", "tempering": 20.0}),
    "adapt-gda": Recording("adapt", {"answer": "gaussian"}),
    "adapt-clip": Recording("mapls", {"data_weight": 0.0}),  # the class vector of the largest cosine
}


@dataclass(frozen=True)
class Comparison:
    """Mean accuracy, in per cent, of one method on the first tasks of one recorded configuration."""

    features: str
    config: str
    name: str  # that it was recorded under
    method: str
    n_tasks: int
    recorded: float
    ours: float  # NaN where the method is missing
    tolerance: float  # in points; one label more when only some of the recorded tasks were run
    seconds: float

    @property
    def difference(self) -> float:
        return self.ours - self.recorded

    @property
    def within(self) -> bool:
        """Whether the difference is within the tolerance, which is given to two digits."""
        return abs(self.difference) <= self.tolerance + 0.005


def compare(
    data: Path,
    names: Collection[str] = tuple(RECORDINGS),
    *,
    device: str = "cpu",
    limit: int | None = None,
    configs: Collection[str] | None = None,
) -> Iterator[Comparison]:
    """Run methods on the recorded tasks of every set whose features are present, at most ``limit`` per configuration.

    ``names`` are recorded names. ``configs`` limits the configurations to some, such as ``clinc150_5shot_keff5``.
    """
    for dataset, path in feature_files(data).items():
        recorded = recorded_accuracies(data, dataset)
        wanted = [config for config in recorded if configs is None or f"{dataset}_{config}" in configs]
        if path is None or not wanted:
            continue
        features = FeatureSet.load(path).features.to(device)
        for config in wanted:
            for name in names:
                if name in recorded[config]:
                    yield _compare(data, features, dataset, config, name, recorded[config][name], limit)


def _compare(
    data: Path,
    features: torch.Tensor,
    dataset: str,
    config: str,
    name: str,
    entry: Mapping[str, Any],
    limit: int | None,
) -> Comparison:
    recording = RECORDINGS[name]
    n_tasks = entry["n_tasks"] if limit is None else min(limit, entry["n_tasks"])
    tasks = recorded_tasks(data, features, dataset, config, n_tasks)
    failed = failed_rows(data, dataset, config, name, n_tasks)
    accuracy = float("nan")
    seconds = 0.0
    if recording.method in METHODS:
        begin = time.perf_counter()
        labels = answered_labels(repeat(name, tasks, config), recording).cpu()
        seconds = time.perf_counter() - begin
        accuracy = _accuracy(labels, tasks, None if failed is None else failed.rows)
    if failed is None:
        mean = float(np.mean(entry["per_task"][:n_tasks]))
    else:
        mean = _accuracy(failed.labels, tasks, failed.rows)
    # The tolerance is meant for the mean over all recorded tasks; over fewer, one label weighs more.
    one_label = 0.0 if n_tasks == entry["n_tasks"] else 100 / tasks.n_query
    tolerance = entry["tolerance_points"] + one_label
    return Comparison(
        features=dataset,
        config=config,
        name=name,
        method=recording.method,
        n_tasks=n_tasks,
        recorded=mean,
        ours=accuracy,
        tolerance=tolerance,
        seconds=seconds,
    )


@dataclass(frozen=True)
class Failed:
    """Queries for which the original has NaN."""

    rows: torch.Tensor  # [t, q]
    labels: torch.Tensor  # [t, q] recorded for all queries


def failed_rows(data: Path, dataset: str, config: str, name: str, n_tasks: int) -> Failed | None:
    """What the original could not answer; None where it could answer everything."""
    path = _task_file(data, dataset, f"{_tasks_of(config)}_new")
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as file:
        if f"nan_rows_{name}" not in file.files:
            return None
        rows = torch.from_numpy(file[f"nan_rows_{name}"][:n_tasks])
        labels = torch.from_numpy(file[name][:n_tasks].astype(np.int64))
    return Failed(rows, labels)


def answered_labels(solution: Solution, recording: Recording) -> torch.Tensor:
    """[t, q] labels; -1 where a method of open sets finds unknown more probable than any class."""
    if not recording.open_set or solution.unknown is None:
        return solution.labels
    known = (1 - solution.unknown) * solution.probabilities.amax(-1)
    return solution.labels.masked_fill(solution.unknown > known, -1)


def _accuracy(labels: torch.Tensor, tasks: Tasks, left_out: torch.Tensor | None) -> float:
    """In per cent, over all queries that are not left out."""
    assert tasks.query_labels is not None
    right = labels == tasks.query_labels.cpu()
    return float((right if left_out is None else right[~left_out]).double().mean()) * 100


RECORDED_SCORES = {"nearest-distance": "dist_auroc", "max-probability": "msp_auroc", "oslo": "oslo_auroc"}
SCORE_TOLERANCE = 0.005


@dataclass(frozen=True)
class Scored:
    """Means over the recorded tasks with unknown queries of one feature set."""

    features: str
    name: str  # of a scorer, or of a method with its own score
    recorded: float | None
    auroc: float
    fpr95: float
    oscr: float
    accuracy: float  # on the known queries; of the nearest prototypes where a scorer is measured

    @property
    def within(self) -> bool:
        return self.recorded is None or abs(self.auroc - self.recorded) <= SCORE_TOLERANCE


def compare_scores(
    data: Path, names: Collection[str] = (*SCORERS, "evidence", "oslo", "eol", "osls"), *, device: str = "cpu"
) -> Iterator[Scored]:
    """Measure scorers and methods on the recorded tasks with unknown queries."""
    for dataset, path in feature_files(data).items():
        if path is None or not _task_file(data, dataset, "openset").exists():
            continue
        features = FeatureSet.load(path).features.to(device)
        with np.load(_task_file(data, dataset, "openset")) as file:
            recorded = {name: float(file[key].mean()) for name, key in RECORDED_SCORES.items()}
        tasks = recorded_tasks(data, features, dataset, "openset")
        nearest = solve("simpleshot", tasks)
        for name in names:
            if name in METHODS:
                found = solve(name, tasks, **({"open_set": True} if "open_set" in METHODS[name].parameters else {}))
            else:
                found = nearest.changed(unknown=SCORERS[name].score(tasks))
            means = [float(METRICS[metric].measure(found, tasks).mean()) for metric in ("auroc", "fpr95", "oscr")]
            right = METRICS["accuracy"].measure(found, tasks) / METRICS["n_query"].measure(found, tasks)
            yield Scored(dataset, name, recorded.get(name), *means, float(right.mean()))


def repeat(name: str, tasks: Tasks, config: str) -> Solution:
    """Solve tasks of a configuration as in the run that was recorded under a name."""
    recording = RECORDINGS[name]
    params = dict(recording.params)
    if recording.per_configuration is not None:
        params |= recording.per_configuration(_configuration(config, tasks.n_classes))
    return solve(recording.method, tasks if recording.features is None else recording.features(tasks), **params)


def _configuration(config: str, n_classes: int) -> Configuration:
    shots = re.search(r"(\d+)shot", config)
    if shots is None:
        raise SystemExit(f"The name of the configuration {config} does not say the number of shots.")
    k_eff = re.search(r"keff(\d+)", config)
    return Configuration(int(shots[1]), None if k_eff is None else int(k_eff[1]), n_classes)


def _tasks_of(config: str) -> str:
    """The name of the file with the tasks of a configuration: those with unknown queries have one for all."""
    return "openset" if config.startswith("openset") else config


def feature_files(data: Path) -> dict[str, Path | None]:
    """The recorded sets, each with its file of features; None where there is none.

    Several files can begin with the name of a set (its class names, its unknown items). The features of its items have
    the shortest name.
    """
    sets = sorted({re.sub("_(later|new)$", "", path.stem) for path in (data.parent / "reference").glob("*.json")})
    found = {name: [*(data / "features").glob(f"{name}.*"), *(data / "features").glob(f"{name}_*")] for name in sets}
    return {
        name: min(paths, key=lambda path: (len(path.name), path.name), default=None) for name, paths in found.items()
    }


def recorded_accuracies(data: Path, dataset: str) -> dict[str, dict[str, Any]]:
    """Configuration to recorded name to what was recorded, from the earlier and the later runs together."""
    merged: dict[str, dict[str, Any]] = {}
    for path in (data.parent / "reference" / f"{dataset}{which}.json" for which in ("", "_later", "_new")):
        for config, entries in (json.loads(path.read_text()) if path.exists() else {}).items():
            if _task_file(data, dataset, _tasks_of(config)).exists():
                # Some scores of unknown queries are recorded without labels; the second table has them.
                labelled = {name: entry for name, entry in entries.items() if _has_accuracies(entry)}
                merged.setdefault(config, {}).update(labelled)
    return merged


def _has_accuracies(entry: Any) -> bool:
    return isinstance(entry, dict) and "per_task" in entry


def _task_file(data: Path, dataset: str, config: str) -> Path:
    return data.parent / "reference" / f"{dataset}_{config}.npz"


def recorded_tasks(data: Path, features: torch.Tensor, dataset: str, config: str, n_tasks: int | None = None) -> Tasks:
    """The first tasks of a recorded configuration, or all."""
    with np.load(_task_file(data, dataset, _tasks_of(config)), allow_pickle=False) as file:
        support, query, truth = (
            torch.from_numpy(file[name][:n_tasks].astype(np.int64)).to(features.device)
            for name in ("support_idx", "query_idx", "query_labels")
        )
        mean = torch.from_numpy(file["train_mean"]).to(features)
    n_tasks, n_classes, shots = support.shape
    labels = torch.arange(n_classes, device=features.device).repeat_interleave(shots).expand(n_tasks, -1)
    return Tasks(features, support.flatten(1), labels, features, query, n_classes, truth, base_mean=mean)


def by_method(compared: Sequence[Comparison]) -> Iterator[list[object]]:
    """One row per recorded name, in the order in which they were compared."""
    for name in dict.fromkeys(found.name for found in compared):
        some = [found for found in compared if found.name == name]
        largest = max(abs(found.difference) for found in some)
        n_tasks = sum(found.n_tasks for found in some)
        yield [f"`{name}`", len(some), n_tasks, f"{largest:.2f}", f"{max(found.tolerance for found in some):.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder that holds features/ and lies beside reference/")
    parser.add_argument("--device", default="cpu", help="where methods run: cpu or cuda")
    parser.add_argument(
        "--method",
        nargs="*",
        choices=list(RECORDINGS),
        default=list(RECORDINGS),
        help="recorded names; default: all; without a name: the table of unknown queries alone",
    )
    parser.add_argument("--tasks", type=int, help="at most so many tasks per configuration; default: all recorded ones")
    options = parser.parse_args()
    outside: list[Comparison | Scored] = []
    compared: list[Comparison] = []

    def rows() -> Iterator[list[object]]:
        for found in compare(options.data, options.method, device=options.device, limit=options.tasks):
            compared.append(found)
            if not found.within:
                outside.append(found)
            figures = f"{found.recorded:.2f} {found.ours:.2f} {found.difference:+.2f} {found.tolerance:.1f}".split()
            within = "yes" if found.within else "**no**" if found.method in METHODS else "**missing**"
            yield [found.features, found.config, found.name, found.n_tasks, *figures, within, found.seconds]

    if options.method:
        header = "features | tasks | recorded as | n | recorded | ours | difference | tolerance | within | seconds"
        show("Accuracy on recorded tasks, in per cent", header.split(" | "), rows())
        header = "recorded as | comparisons | tasks | largest difference of the accuracy | tolerance"
        show("Largest difference of each method", header.split(" | "), by_method(compared))
    if not options.method or set(options.method) == set(RECORDINGS):
        scores = list(compare_scores(options.data, device=options.device))
        outside += [found for found in scores if not found.within]
        header = "features | score | AUROC recorded | AUROC | FPR at 95 % TPR | OSCR | accuracy on the known"
        shown = [["" if value is None else value for value in astuple(found)] for found in scores]
        show("Unknown queries on recorded tasks", header.split(" | "), shown)
    for dataset, path in feature_files(options.data).items():
        if path is None:
            print(f"\nNot compared: {dataset} is recorded, but there is no {options.data}/features/{dataset}*.")
        every = {name for entries in recorded_accuracies(options.data, dataset).values() for name in entries}
        if every - set(RECORDINGS):
            print(f"\nRecorded for {dataset}, not compared: {', '.join(sorted(every - set(RECORDINGS)))}.")
    raise SystemExit(1 if outside else 0)


if __name__ == "__main__":
    main()
