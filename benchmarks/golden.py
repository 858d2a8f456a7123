"""Write the golden answers that ``tests/methods/test_golden.py`` compares every method with.

    python -m benchmarks.golden DATA [--device cuda] [--tasks 5] [--method oslo ...] [--out tests/golden/answers.npz]

The tasks are drawn from the embedded letters, so the answers can be tested without DATA. Before anything is written,
every method runs on recorded tasks of its original (``benchmarks.reference``, which needs DATA), and nothing is written
when an accuracy is outside its tolerance. The file stores what was checked. With ``--method`` only the answers of these
methods are checked and written; those of the others stay as they are in the file.

Evidence has further modes: unknown queries, names of classes, known labels, streams, blocks, scores of a classifier.
Each has golden answers too (``MODES``).

A method's answers may change only with its version (``Method.version``): stored results are tied to it. The file
``versions.json`` remembers a digest of the golden answers of every version. This command refuses to write other answers
under a version that has a digest.

For every query the file holds the five most probable classes and their probabilities. Golden answers notice any change
of a method's answers on these tasks. They cannot say which answer is right: that is what the recorded runs are for.
Evidence, Baseline++, MOON and ZLaP have no recorded original; their golden answers are those of the code that wrote
the file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.reference import RECORDINGS, compare
from manyway import METHODS, FeatureSet, Solution, Tasks, TaskSpec, sample_tasks, solve
from manyway.core.blocks import Pile, in_turn
from manyway.sampling.embedded import load_glyphs

PATH = Path(__file__).parents[1] / "tests" / "golden" / "answers.npz"
VERSIONS = PATH.with_name("versions.json")
TOP = 5  # classes stored per query
STEP = 2.0**-16  # probabilities are stored as multiples of it


@dataclass(frozen=True)
class Setting:
    """A kind of task, and what each method is asked on it."""

    n_ways: int | None
    n_tasks: int
    fewer: dict[str, int] = field(default_factory=dict)  # tasks of slow methods
    params: dict[str, dict[str, Any]] = field(default_factory=dict)  # where the defaults take too long

    def tasks(self, features: FeatureSet) -> Tasks:
        """5 shots, 75 queries of 5 classes."""
        return sample_tasks(features, TaskSpec(shots=5, k_eff=5, n_query=75, n_ways=self.n_ways), count=self.n_tasks)


SETTINGS = {
    "20-way": Setting(
        20,
        6,
        fewer={"ici": 1, "paddle-pgd": 1, "tim": 1, "alpha-tim": 1, "alpha-am": 1},
        params={
            "tim-adm": {"max_iter": 30},  # after some 50 iterations rounding decides, even in float64
            "alpha-am": {"max_iter": 20},  # rounding decides between two neighbours that are equally near
        },
    ),
    "215-way": Setting(
        None,
        2,
        fewer={
            "baseline": 1,
            "baseline++": 1,
            "ici": 1,
            "paddle-pgd": 1,
            "tim": 1,
            "tim-adm": 1,
            "alpha-tim": 1,
            "alpha-am": 1,
        },
        params={
            "ici": {"max_iter": 2},
            "paddle-pgd": {"max_iter": 50},
            "tim": {"max_iter": 50},
            "tim-adm": {"max_iter": 30},
            "alpha-tim": {"max_iter": 50},
            "alpha-am": {"max_iter": 5},
        },
    ),
}


def _draw(n_tasks: int = 2, **spec: Any) -> Tasks:
    """Tasks of twenty letters."""
    given = {"shots": 5, "k_eff": 5, "n_query": 40, "n_ways": 20} | spec
    return sample_tasks(load_glyphs(), TaskSpec(**given), count=n_tasks).to(dtype=torch.float64)


def _named(tasks: Tasks) -> Tasks:
    """With a vector per class: the mean of ten drawings, moved away from the drawings."""
    features = load_glyphs()
    means = [features.features[features.labels == k][-10:].double().mean(0) for k in range(features.n_classes)]
    vectors = torch.stack(means)
    return replace(tasks, class_table=vectors.roll(1, 1) * 0.3 + vectors)


def without_examples(tasks: Tasks) -> Tasks:
    empty = tasks.query_table.new_zeros(len(tasks), 0, tasks.n_features)
    return replace(tasks, support_table=empty, support_index=None, support_labels=tasks.support_labels[:, :0])


def with_known_labels(tasks: Tasks) -> Tasks:
    """The true labels of every fifth query."""
    labels = torch.full_like(tasks.query_labels, -1)
    labels[:, ::5] = tasks.query_labels[:, ::5]
    return tasks.with_known(labels)


def in_blocks(tasks: Tasks, **params: Any) -> Solution:
    """The first task, its queries in blocks of 16."""
    rows = tasks.query[0]
    pile = Pile.of(in_turn(lambda: iter(rows.split(16)), rows.device), rows)
    return solve(
        "evidence", Tasks.from_pile(tasks.support[0], tasks.support_labels[0], pile, tasks.base_mean), **params
    )


def as_scores(tasks: Tasks) -> Tasks:
    """Log-probabilities by the cosine of queries and class means."""
    means = torch.stack([tasks.support[:, tasks.support_labels[0] == k].mean(1) for k in range(tasks.n_classes)], 1)
    normal = torch.nn.functional.normalize
    return Tasks.from_scores((8 * normal(tasks.query, dim=-1) @ normal(means, dim=-1).mT).log_softmax(-1))


_UNKNOWN = {"n_query": 30, "n_unknown": 10, "unknown_classes": 2}
MODES: dict[str, Callable[[], Solution]] = {
    "one-shot": lambda: solve("evidence", _draw(shots=1)),
    "open-set": lambda: solve("evidence", _draw(**_UNKNOWN), open_set=True),
    "names-alone": lambda: solve("evidence", without_examples(_named(_draw()))),
    "names-and-examples": lambda: solve("evidence", _named(_draw(shots=2))),
    "known": lambda: solve("evidence", with_known_labels(_draw())),
    "stream": lambda: solve("evidence", _draw(n_query=15, n_batches=4), carry=True),
    "blocks": lambda: in_blocks(_draw()),
    "blocks-open-set": lambda: in_blocks(_draw(**_UNKNOWN), open_set=True),
    "scores": lambda: solve("evidence", as_scores(_draw())),
}


@dataclass(frozen=True, eq=False)
class Golden:
    """The stored answers of one method on the tasks of one setting."""

    setting: str
    method: str
    params: dict[str, Any]
    tasks: Tasks
    classes: torch.Tensor  # [t, q, 5] the most probable ones, in descending order
    probabilities: torch.Tensor  # [t, q, 5] theirs, to 2⁻¹⁷


def load(path: Path = PATH) -> tuple[list[Golden], dict[str, Any]]:
    """All golden answers, and what is known about how they were made."""
    features = load_glyphs()
    golden = []
    with np.load(path, allow_pickle=False) as file:
        meta = json.loads(str(file["meta"]))
        for name, setting in SETTINGS.items():
            support, labels, query, ids = (
                torch.from_numpy(file[f"{name}/{part}"].astype(np.int64))
                for part in ("support", "labels", "query", "classes")
            )
            table = features.features
            mean = features.base_mean
            tasks = Tasks(table, support, labels, table, query, ids.shape[1], class_ids=ids, base_mean=mean)
            for method in METHODS:
                classes = torch.from_numpy(file[f"{name}/{method}/top"].astype(np.int64))
                probabilities = torch.from_numpy(file[f"{name}/{method}/probabilities"].astype(np.float64)) * STEP
                params = setting.params.get(method, {})
                golden.append(Golden(name, method, params, tasks[: len(classes)], classes, probabilities))
    return golden, meta


def load_modes(path: Path = PATH) -> dict[str, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """The golden answers of evidence in its other modes: classes and probabilities [t, q, 5], and presence [t, k]."""
    with np.load(path, allow_pickle=False) as file:
        return {
            mode: (
                torch.from_numpy(file[f"{mode}/evidence/top"].astype(np.int64)),
                torch.from_numpy(file[f"{mode}/evidence/probabilities"].astype(np.float64)) * STEP,
                torch.from_numpy(file[f"{mode}/evidence/presence"].astype(np.float64)) * STEP,
            )
            for mode in MODES
        }


def digests(path: Path = PATH) -> dict[str, str]:
    """A digest of the golden answers of each method."""
    found = {name: hashlib.sha256() for name in METHODS}
    with np.load(path, allow_pickle=False) as file:
        for key in sorted(file.files):
            parts = key.split("/")
            if len(parts) == 3 and parts[1] in found:
                found[parts[1]].update(key.encode() + file[key].tobytes())
    return {name: digest.hexdigest()[:16] for name, digest in found.items()}


def read_versions(path: Path = VERSIONS) -> dict[str, dict[str, str]]:
    """The digest of the golden answers of each version of each method."""
    found: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.is_file() else {}
    return found


def add_versions(new: dict[str, str], path: Path = VERSIONS) -> None:
    """Remember digests for the present versions; refuse others than those that are there."""
    known = read_versions(path)
    for name, digest in new.items():
        version = str(METHODS[name].version)
        if known.setdefault(name, {}).setdefault(version, digest) != digest:
            raise SystemExit(f"The answers of {name} have changed; raise its version, which is {version}.")
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def _stored(name: str, solution: Solution) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """The arrays of one solution."""
    top = solution.probabilities.topk(TOP)
    yield f"{name}/top", top.indices.numpy().astype(np.uint8)
    steps = (top.values / STEP).round().clamp_max(2**16 - 1)
    yield f"{name}/probabilities", steps.numpy().astype(np.uint16)


def answers(methods: Collection[str] = tuple(METHODS)) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """The arrays of the file, but for its description."""
    features = load_glyphs()
    for name, setting in SETTINGS.items():
        tasks = setting.tasks(features)
        assert tasks.support_index is not None
        assert tasks.query_index is not None
        yield f"{name}/support", tasks.support_index.numpy().astype(np.uint16)
        yield f"{name}/labels", tasks.support_labels.numpy().astype(np.uint8)
        yield f"{name}/query", tasks.query_index.numpy().astype(np.uint16)
        yield f"{name}/classes", tasks.classes.numpy().astype(np.uint8)
        for method in methods:
            part = tasks[: setting.fewer.get(method, setting.n_tasks)].to(dtype=torch.float64)
            yield from _stored(f"{name}/{method}", solve(method, part, **setting.params.get(method, {})))
            print(f"{name} {method}", flush=True)
    for mode, ask in MODES.items() if "evidence" in methods else ():
        solution = ask()
        yield from _stored(f"{mode}/evidence", solution)
        presence = (solution.presence.double() / STEP).round().clamp_max(2**16 - 1)
        yield f"{mode}/evidence/presence", presence.numpy().astype(np.uint16)
        print(f"{mode} evidence", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder that holds features/ and lies beside reference/")
    parser.add_argument("--tasks", type=int, help="check at most so many recorded tasks per method; default: all")
    parser.add_argument("--config", nargs="*", help="check only these configurations, such as clinc150_5shot_keff5")
    parser.add_argument("--method", nargs="*", choices=list(METHODS), default=list(METHODS), help="default: all")
    parser.add_argument("--device", default="cpu", help="where the check runs; the answers are computed on the CPU")
    parser.add_argument("--out", type=Path, default=PATH, help="default: %(default)s")
    options = parser.parse_args()
    checked = []
    names = [name for name, recording in RECORDINGS.items() if recording.method in options.method]
    for found in compare(options.data, names, device=options.device, limit=options.tasks, configs=options.config):
        line = f"{found.method} on {found.n_tasks} tasks of {found.features} {found.config}, recorded as {found.name}: "
        line += f"recorded {found.recorded:.2f}, ours {found.ours:.2f}, tolerance {found.tolerance:.1f}"
        print(line, flush=True)
        if not found.within:
            raise SystemExit("This is outside the tolerance, so nothing is written.")
        checked.append(line)
    if names and not checked:
        raise SystemExit("There is no recorded run to check, so nothing is written.")
    kept: dict[str, np.ndarray[Any, Any]] = {}
    if set(options.method) != set(METHODS):
        with np.load(options.out, allow_pickle=False) as file:
            kept = {key: file[key] for key in file.files if key != "meta"}
            before = json.loads(str(file["meta"]))["checked"]
        checked = [line for line in before if line.split()[0] not in options.method] + checked
    meta = {"checked": checked, "torch": str(torch.__version__), "dtype": "float64"}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.out, meta=np.array(json.dumps(meta)), **{**kept, **dict(answers(options.method))})
    add_versions(digests(options.out))
    print(f"{options.out}: {options.out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
