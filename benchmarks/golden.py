"""Write the golden answers that ``tests/methods/test_golden.py`` compares every method with.

    python -m benchmarks.golden DATA [--device cuda] [--tasks 5] [--method oslo ...] [--out tests/golden/answers.npz]

The tasks are drawn from the embedded letters, so the answers can be tested without DATA. Before anything is written,
every method runs on recorded tasks of its original (``benchmarks.reference``, which needs DATA), and nothing is written
when an accuracy is outside its tolerance. The file stores what was checked. With ``--method`` only the answers of these
methods are checked and written; those of the others stay as they are in the file.

For every query the file holds the five most probable classes and their probabilities. Golden answers notice any change
of a method's answers on these tasks. They cannot say which answer is right: that is what the recorded runs are for.
Evidence, Baseline++, MOON and ZLaP have no recorded original; their golden answers are those of the code that wrote
the file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.reference import RECORDINGS, compare
from manyway import METHODS, FeatureSet, Tasks, TaskSpec, sample_tasks, solve
from manyway.sampling.embedded import load_glyphs

PATH = Path(__file__).parents[1] / "tests" / "golden" / "answers.npz"
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
        fewer={"ici": 1, "paddle-pgd": 1, "tim": 1, "alpha-tim": 1},
        params={"tim-adm": {"max_iter": 30}},  # after some 50 iterations rounding decides, even in float64
    ),
    "215-way": Setting(
        None,
        2,
        fewer={"baseline": 1, "baseline++": 1, "ici": 1, "paddle-pgd": 1, "tim": 1, "tim-adm": 1, "alpha-tim": 1},
        params={
            "ici": {"max_iter": 2},
            "paddle-pgd": {"max_iter": 50},
            "tim": {"max_iter": 50},
            "tim-adm": {"max_iter": 30},
            "alpha-tim": {"max_iter": 50},
        },
    ),
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
            top = solve(method, part, **setting.params.get(method, {})).probabilities.topk(TOP)
            yield f"{name}/{method}/top", top.indices.numpy().astype(np.uint8)
            steps = (top.values / STEP).round().clamp_max(2**16 - 1)
            yield f"{name}/{method}/probabilities", steps.numpy().astype(np.uint16)
            print(f"{name} {method}", flush=True)


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
    print(f"{options.out}: {options.out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
