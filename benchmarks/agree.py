"""Compare the answers of all methods on a GPU with those on a CPU, over all sizes of tasks.

    python -m benchmarks.agree [METHOD ...] [--queries 5 32 ...] [--page docs/reliability.md]

METHOD is a method of the table, or ``evidence:MODE``; by default all run: every method, and evidence in each mode. Each
gets random tasks with 1 to 131, 200, 500 and 1,000 queries. Classes (2 to 227), examples per class (1 to 20) and
features (1 to 512) change from one task to the next such that every combination of them occurs; the numbers of queries
that a kernel divides into blocks meet several of them.

Two answers agree where no probability differs by more than the method's limit. Iterations can amplify rounding without
limit: a query between two classes goes one way or the other. Where a difference is above the limit, the CPU therefore
solves the same task three times more, with features changed by about as much as the arithmetic rounds, and once in
float64. The answers then still agree where the difference is at most ten times what this changes on the CPU. Labels
differ where the two are further apart on the CPU than the limit; others are ties. The exit code is 1 where answers do
not agree.

Without a GPU, float32 is compared with float64 on the CPU. That shows what rounding does, and nothing of the kernels.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.golden import as_scores, in_blocks, with_known_labels, without_examples
from benchmarks.measure import markdown, show
from benchmarks.results import Made, cells_in, in_page
from manyway import METHODS, Solution, Tasks, solve
from manyway.bench.records import now, write_text
from manyway.errors import InputError

QUERIES = (*range(1, 132), 200, 500, 1000)
CLASSES = (2, 3, 31, 32, 33, 64, 100, 227)
SHOTS = (1, 5, 20)
FEATURES = (1, 5, 64, 65, 512)
N_TASKS = 2
TIMES_ROUNDING = 10  # a difference may be so many times as large as what rounding the features makes
N_ROUNDINGS = 3  # ways to round them, of which the largest effect counts
GPU_PART = 0.3  # of the processes let the GPU work: one alone would mostly wait for Python
TABLE = "agreement of a GPU and a CPU"  # the name of the table in a page
FLOAT32 = 2.0**-22  # relative errors of a few operations
HALF = 2.0**-11  # of products in TF32 or float16, which some methods use on a GPU (docs/performance.md)


@dataclass(frozen=True)
class Sizes:
    """Of a task."""

    n_query: int
    n_classes: int
    shots: int
    n_features: int

    def cost(self) -> int:
        """About in what proportion tasks take time."""
        return (self.n_query + self.n_classes * self.shots) * (self.n_features + self.n_classes)

    def __str__(self) -> str:
        return f"{self.n_query} queries, {self.n_classes} classes, {self.shots} shots, {self.n_features} features"


@dataclass(frozen=True)
class Case:
    """A method, or a mode of evidence, and how far its answers may differ."""

    method: str
    limit: float = 1e-3  # of a probability
    rounding: float = FLOAT32
    params: dict[str, Any] = field(default_factory=dict)  # where the defaults take too long
    shots: tuple[int, ...] = SHOTS
    prepared: Callable[[Tasks], Tasks] = lambda tasks: tasks
    run: Callable[[str, Tasks, dict[str, Any]], Solution] = lambda method, tasks, params: solve(method, tasks, **params)


def _with_unknown(tasks: Tasks) -> Tasks:
    """Every third query lies far from all classes, in one of two places."""
    table = tasks.query_table.clone()
    assert tasks.query_index is not None
    rows = tasks.query_index[:, ::3].flatten()
    table[rows] = table[rows].roll(1, -1) + 4 * (1 - 2 * (rows % 2)).unsqueeze(-1)
    return replace(tasks, query_table=table)


def _with_far_query(tasks: Tasks) -> Tasks:
    """The first query of each task is broken: fifty times as far out as it was."""
    table = tasks.query_table.clone()
    assert tasks.query_index is not None
    table[tasks.query_index[:, 0]] *= 50
    return replace(tasks, query_table=table)


def _with_unequal_classes(tasks: Tasks) -> Tasks:
    """Every second class has one example only."""
    assert tasks.support_index is not None
    labels = tasks.support_labels[0]
    is_first = labels.diff(prepend=labels.new_full((1,), -1)) > 0
    kept = is_first | (labels % 2 == 0)
    return replace(tasks, support_index=tasks.support_index[:, kept], support_labels=tasks.support_labels[:, kept])


def _with_names(tasks: Tasks) -> Tasks:
    """A vector per class: the mean of its examples, moved."""
    names = tasks.support_labels[0]
    means = torch.stack([tasks.support[0, names == k].mean(0) for k in range(tasks.n_classes)])
    return replace(tasks, class_table=(means.roll(1, 1) * 0.3 + means).unsqueeze(0))


def _as_stream(tasks: Tasks) -> Tasks:
    """The tasks are batches of one stream, with the examples of the first."""
    assert tasks.support_index is not None
    index = tasks.support_index[:1].expand(tasks.n_tasks, -1)
    return replace(
        tasks, support_index=index, stream=torch.zeros(tasks.n_tasks, dtype=torch.int64, device=index.device)
    )


def _read_in_blocks(method: str, tasks: Tasks, params: dict[str, Any]) -> Solution:
    return in_blocks(tasks, **params)


_EVIDENCE = {"limit": 1e-2, "rounding": HALF}
_ADAM = {"limit": 1e-2, "rounding": HALF}
CASES = {
    **{name: Case(name) for name in METHODS},
    "baseline": Case("baseline", **_ADAM),
    "baseline++": Case("baseline++", **_ADAM),
    "tim": Case("tim", **_ADAM, params={"max_iter": 100}),
    "alpha-tim": Case("alpha-tim", **_ADAM, params={"max_iter": 100}),
    "ici": Case("ici", params={"max_iter": 2}),
    "alpha-am": Case("alpha-am", params={"max_iter": 5}, shots=(1, 5)),
    "evidence": Case("evidence", **_EVIDENCE),
    "evidence:one-shot": Case("evidence", **_EVIDENCE, shots=(1,)),
    "evidence:open-set": Case("evidence", **_EVIDENCE, params={"open_set": True}, prepared=_with_unknown),
    "evidence:unequal": Case("evidence", **_EVIDENCE, prepared=_with_unequal_classes),
    "evidence:far": Case("evidence", **_EVIDENCE, prepared=_with_far_query),
    "evidence:names": Case("evidence", **_EVIDENCE, prepared=_with_names),
    "evidence:names-alone": Case("evidence", **_EVIDENCE, prepared=lambda tasks: without_examples(_with_names(tasks))),
    "evidence:known": Case("evidence", **_EVIDENCE, prepared=with_known_labels),
    "evidence:blocks": Case("evidence", **_EVIDENCE, run=_read_in_blocks),
    "evidence:stream": Case("evidence", **_EVIDENCE, params={"carry": True}, prepared=_as_stream),
    "evidence:scores": Case("evidence", **_EVIDENCE, prepared=as_scores),
}


def design(case: Case, queries: Collection[int] = QUERIES) -> Iterator[Sizes]:
    """Every number of queries once. 8, 3 and 5 have no common factor, so 120 numbers meet all combinations."""
    for number, n_query in enumerate(QUERIES):
        if n_query in queries:
            yield Sizes(
                n_query=n_query,
                n_classes=CLASSES[number % len(CLASSES)],
                shots=case.shots[number % len(case.shots)],
                n_features=FEATURES[number % len(FEATURES)],
            )


def make_tasks(sizes: Sizes, n_tasks: int = N_TASKS) -> Tasks:
    """Gaussian classes, of which at most five occur among the queries; rows of one table, as a data set has them."""
    generator = torch.Generator().manual_seed(sizes.n_query * 1000 + sizes.n_classes)
    n_support = sizes.n_classes * sizes.shots
    names = torch.arange(sizes.n_classes).repeat_interleave(sizes.shots)
    present = min(5, sizes.n_classes)
    truth = torch.randint(0, present, (n_tasks, sizes.n_query), generator=generator)
    labels = torch.cat([names.expand(n_tasks, -1), truth], 1)
    centres = torch.randn(sizes.n_classes, sizes.n_features, generator=generator) * 2
    table = centres[labels.flatten()] + torch.randn(labels.numel(), sizes.n_features, generator=generator)
    rows = torch.arange(labels.numel()).view(n_tasks, -1)
    return Tasks(
        table,
        rows[:, :n_support].contiguous(),
        names.expand(n_tasks, -1),
        table,
        rows[:, n_support:].contiguous(),
        sizes.n_classes,
        truth,
    )


def rounded(tasks: Tasks, rounding: float, seed: int) -> Tasks:
    """The tasks with every number changed by about this part of itself."""
    generator = torch.Generator().manual_seed(seed)

    def moved(values: Tensor) -> Tensor:
        noise = torch.randn(values.shape, generator=generator, dtype=values.dtype)
        return values * (1 + rounding * noise)

    same = tasks.query_table is tasks.support_table
    support = moved(tasks.support_table)
    names = None if tasks.class_table is None else moved(tasks.class_table)
    query = support if same else moved(tasks.query_table)
    return replace(tasks, support_table=support, query_table=query, class_table=names)


def answer(case: Case, sizes: Sizes, device: str, dtype: torch.dtype, rounded_by: int | None = None) -> Tensor:
    """[t, q, k + 1] the probabilities of the classes and of none of them, in float64 on the CPU; NaN if it is refused.

    ``rounded_by`` is the seed of a change of the features; None: they stay as they are.
    """
    tasks = case.prepared(make_tasks(sizes))
    if rounded_by is not None:
        tasks = rounded(tasks, case.rounding, rounded_by)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an iteration limit is no matter here
        try:
            found = case.run(case.method, tasks.to(device=device, dtype=dtype), case.params)
        except InputError:  # it has no valid answer for tasks as small as this
            return torch.full((tasks.n_tasks, tasks.n_query, tasks.n_classes + 1), torch.nan, dtype=torch.float64)
    probabilities = found.probabilities
    unknown = probabilities.new_zeros(probabilities.shape[:2])
    if case.method == "evidence" and found.unknown is not None:  # of other methods it is a score
        unknown = found.unknown.to(probabilities.dtype)
    return torch.cat([probabilities, unknown.unsqueeze(-1)], -1).double().cpu()


Answer = np.ndarray[Any, Any]  # arrays travel between processes by value, tensors do not


def answer_elsewhere(name: str, sizes: Sizes, device: str, dtype: torch.dtype) -> Answer:
    """What a process beside this one computes."""
    return answer(CASES[name], sizes, device, dtype).numpy()


def effect_of_rounding(name: str, sizes: Sizes, seed: int | None, expected: Answer) -> float:
    """The largest difference that rounding makes on the CPU, relative to the answers there.

    The features change by one rounding, with this seed. With None they stay, and the arithmetic is in float64: rows of
    one feature and unit length are 1 or −1 whatever their rounding.
    """
    dtype = torch.float64 if seed is None else torch.float32
    changed = answer(CASES[name], sizes, "cpu", dtype, seed)
    return _largest(changed - torch.from_numpy(expected))


def _largest(differences: Tensor) -> float:
    """The largest absolute difference; infinite where one of the two has no answer."""
    return float(differences.abs().nan_to_num(nan=torch.inf).max())


def _both_refuse(found: Tensor, expected: Tensor) -> bool:
    return bool(found.isnan().all()) and bool(expected.isnan().all())


@dataclass
class Comparison:
    """Of one case, over all sizes."""

    case: Case
    n_queries: int = 0
    n_labels: int = 0  # that differ, ties aside
    n_by_rounding: int = 0  # tasks above the limit, as rounding makes them too
    largest: float = 0.0
    worst: Sizes | None = None
    wrong: list[str] = field(default_factory=list)  # sizes at which the answers do not agree

    def differs(self, found: Tensor, expected: Tensor) -> bool:
        """Whether a probability differs by more than the limit; not where both refuse the task."""
        return not _both_refuse(found, expected) and _largest(found - expected) > self.case.limit

    def add(self, sizes: Sizes, found: Tensor, expected: Tensor, by_rounding: float) -> None:
        """Compare the answers to tasks of some sizes; ``by_rounding`` is the difference that rounding makes."""
        if _both_refuse(found, expected):
            return
        difference = _largest(found - expected)
        classes = expected[..., :-1]
        label = found[..., :-1].argmax(-1, keepdim=True)
        behind = classes.amax(-1) - classes.gather(-1, label).squeeze(-1)
        self.n_labels += int((behind > self.case.limit).sum())
        self.n_queries += behind.numel()
        if self.largest <= difference < torch.inf:
            self.largest = difference
            self.worst = sizes
        if not self.differs(found, expected):
            return
        allowed = TIMES_ROUNDING * by_rounding
        if difference <= allowed:
            self.n_by_rounding += 1
        else:
            self.wrong.append(f"{sizes}: {difference:.2g} (at most {max(allowed, self.case.limit):.2g})")

    def row(self, name: str) -> list[object]:
        share = f"{100 * self.n_labels / max(self.n_queries, 1):.2f} %"
        agrees = "**no**" if self.wrong else "yes"
        return [name, f"{self.largest:.1e}", share, self.n_by_rounding, self.worst, self.case.limit, agrees, now()[:10]]


HEADER = (
    "method",
    "largest difference of a probability",
    "labels that differ",
    "tasks in which rounding decides",
    "where the difference is largest",
    "limit",
    "agrees",
    "date",
)


class Pools(NamedTuple):
    """The processes that compute answers: both devices work at the same time, each on several tasks."""

    gpu: Executor
    cpu: Executor


@contextmanager
def processes(number: int) -> Iterator[Pools]:
    """So many processes with one thread each."""
    for_gpu = max(1, round(number * GPU_PART))
    how: dict[str, Any] = {
        "mp_context": get_context("spawn"),
        "initializer": torch.set_num_threads,
        "initargs": (1,),
    }
    with (
        ProcessPoolExecutor(for_gpu, **how) as gpu,
        ProcessPoolExecutor(max(1, number - for_gpu), **how) as cpu,
    ):
        yield Pools(gpu, cpu)


class Running(NamedTuple):
    """The answers of one task that are being computed."""

    sizes: Sizes
    found: Future[Answer]
    expected: Future[Answer]


def begin(name: str, queries: Collection[int], pools: Pools) -> list[Running]:
    """Let the processes solve the tasks of a case; large ones first, so that none is left for the end."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    every = sorted(design(CASES[name], queries), key=Sizes.cost, reverse=True)
    return [
        Running(
            sizes=sizes,
            found=pools.gpu.submit(answer_elsewhere, name, sizes, device, torch.float32),
            expected=pools.cpu.submit(answer_elsewhere, name, sizes, "cpu", exact()),
        )
        for sizes in every
    ]


def exact() -> torch.dtype:
    """The numbers of the answers that others are compared with."""
    return torch.float32 if torch.cuda.is_available() else torch.float64


def end(name: str, running: Iterable[Running], pools: Pools) -> Comparison:
    """Compare the answers of a case when they are there."""
    compared = Comparison(CASES[name])
    answers = [(one.sizes, one.found.result(), one.expected.result()) for one in running]
    effects: dict[Sizes, list[Future[float]]] = {}
    for sizes, found, expected in answers:  # all at once, so that they are computed side by side
        if compared.differs(torch.from_numpy(found), torch.from_numpy(expected)):
            seeds = (None, *range(N_ROUNDINGS))
            effects[sizes] = [pools.cpu.submit(effect_of_rounding, name, sizes, seed, expected) for seed in seeds]
    for sizes, found, expected in answers:
        by_rounding = max((effect.result() for effect in effects.get(sizes, ())), default=0.0)
        compared.add(sizes, torch.from_numpy(found), torch.from_numpy(expected), by_rounding)
    return compared


def in_turn(names: Sequence[str], queries: Collection[int], pools: Pools) -> Iterator[tuple[str, Comparison]]:
    """The comparison of each case. The next one is begun before one ends, so that no process waits."""
    begun = {name: begin(name, queries, pools) for name in names[:1]}
    for name, following in zip(names, [*names[1:], None], strict=True):
        if following is not None:
            begun[following] = begin(following, queries, pools)
        yield name, end(name, begun.pop(name), pools)


def write_table(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """Put the rows into the table of a page. Rows of other methods stay there, if they are from the same machine."""
    text = path.read_text(encoding="utf-8")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU: float32 and float64 on a CPU"
    origin = f"{device}, torch {torch.__version__}"
    cells = _rows_of(text) if f"*{origin}*" in text else {}
    for row in rows:
        cells[str(row[0])] = [str(value) for value in row]
    ordered = [cells[name] for name in CASES if name in cells]
    made = Made(HEADER, ordered, markdown(HEADER, ordered), origin)
    write_text(path, in_page(text, TABLE, made))


def _rows_of(text: str) -> dict[str, list[str]]:
    """The rows of the table in a page, by their method."""
    return {row[0]: row for row in cells_in(text, TABLE) if row[0] in CASES}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", metavar="METHOD", help=f"any of {', '.join(CASES)}; default: all")
    parser.add_argument(
        "--queries", nargs="*", type=int, default=QUERIES, choices=QUERIES, metavar="N", help="only these numbers"
    )
    parser.add_argument("--page", type=Path, help="a page to write the table into")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="in all; default: one per core")
    options = parser.parse_args(words)
    unknown = sorted(set(options.methods) - set(CASES))
    if unknown:
        parser.error(f"there is no method {', '.join(unknown)}; choose from {', '.join(CASES)}")
    if not torch.cuda.is_available():
        print("There is no GPU here: float32 is compared with float64 on the CPU, and no kernel runs.")
    rows: list[list[object]] = []
    wrong: list[str] = []

    def compared(pools: Pools) -> Iterator[list[object]]:
        for name, found in in_turn(options.methods or list(CASES), options.queries, pools):
            wrong.extend(f"{name}, {one}" for one in found.wrong)
            rows.append(found.row(name))
            if options.page is not None:  # after each one, so that a run that is stopped leaves what it has
                write_table(options.page, rows)
            yield rows[-1]

    with processes(options.processes) as pools:
        show("Agreement of a GPU and a CPU", HEADER, compared(pools))
    for line in wrong:
        print(f"no agreement: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
