"""Measure one task whose queries do not fit into memory.

    python -m benchmarks.large --queries 1000000 --classes 10000 [--method evidence] [--device cuda]

Random queries are written to a safetensors file, which is then read block by block, memory-mapped. Printed are the
time, the iterations, how many classes each of them updated, the accuracy and the peak memory. ``--workers N`` then
labels the same blocks on a Dask cluster of N local processes, and counts the labels that differ. ``--growth`` instead
prints how the processor time grows as queries, classes and features are doubled, one after the other.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.measure import count_cpu_time, growth, seconds, show
from manyway import Tasks
from manyway.core.blocks import Blocks, Pile, Spread, Work, in_turn
from manyway.core.dask import on_dask
from manyway.core.solution import Solution
from manyway.labelling.batch import rows_per_block
from manyway.methods import get_method
from manyway.methods.evidence.block_update import BlockUpdate
from manyway.methods.paddle.streamed import Iterate

_SHOTS = 5


def write_queries(path: Path, means: Tensor, present: Tensor, n_query: int, device: str) -> Tensor:
    """Write queries of the present classes to a file, and return their classes. Noise is drawn on the device."""
    generator, noise = torch.Generator().manual_seed(1), torch.Generator(device).manual_seed(2)
    labels = present[torch.randint(len(present), (n_query,), generator=generator)]
    rows = torch.empty(n_query, means.shape[1])
    for first in range(0, n_query, 50_000):
        part = labels[first : first + 50_000]
        spread = torch.randn(len(part), means.shape[1], generator=noise, device=device)
        rows[first : first + 50_000] = means[part] + spread.cpu()
    save_file({"features": rows}, path)
    return labels


def watched(spread: Spread) -> tuple[Spread, list[int]]:
    """A spread that counts the classes of each iteration."""
    active: list[int] = []

    def watch(work: Work, memories: Sequence[Any] | None) -> tuple[Any, list[Any]]:
        step = getattr(work, "args", (None,))[-1]
        if isinstance(step, BlockUpdate | Iterate):
            active.append(len(step.slope if isinstance(step, BlockUpdate) else step.state.prototypes))
        return spread(work, memories)

    return watch, active


def make(arguments: argparse.Namespace) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Class means, the classes that occur, and a support with its labels."""
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(arguments.classes, arguments.features, generator=generator)
    if arguments.means == "uniform":
        means = torch.rand(arguments.classes, arguments.features, generator=generator).mul_(12**0.5).sub_(3**0.5)
    means *= arguments.apart
    present = torch.randperm(arguments.classes, generator=generator)[: arguments.present]
    labels = torch.arange(arguments.classes).repeat_interleave(_SHOTS)
    support = means[labels] + torch.randn(len(labels), arguments.features, generator=generator)
    return means, present, support, labels


def solved(arguments: argparse.Namespace, support: Tensor, labels: Tensor, spread: Spread) -> tuple[Solution, Tensor]:
    """The solution of a task whose queries a spread holds, and their labels [q]."""
    options = {} if arguments.tol is None else {"tol": arguments.tol}
    support, labels = support.to(arguments.device), labels.to(arguments.device)
    solution = get_method(arguments.method)(Tasks.from_pile(support, labels, Pile.of(spread, support)), **options)
    return solution, solution.top(1).best.values[1][0, :, 0].cpu()


def on_cluster(arguments: argparse.Namespace, support: Tensor, labels: Tensor, blocks: Blocks) -> tuple[float, Tensor]:
    """Seconds and labels [q] on a cluster of local processes with one thread each; starting them is not counted."""
    from distributed import LocalCluster

    options: dict[str, Any] = {"n_workers": arguments.workers, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster:
        begin = time.perf_counter()
        with on_dask(cluster.scheduler_address, blocks) as spread:
            found = solved(arguments, support, labels, spread)[1]
        return time.perf_counter() - begin, found


def grown(arguments: argparse.Namespace, at: Mapping[str, int]) -> tuple[float]:
    """Seconds for a pile of these sizes that is in memory, in blocks."""
    arguments = argparse.Namespace(**{**vars(arguments), **at})
    means, present, support, labels = make(arguments)
    generator = torch.Generator().manual_seed(1)
    truth = present[torch.randint(len(present), (arguments.queries,), generator=generator)]
    rows = means[truth] + torch.randn(arguments.queries, arguments.features, generator=generator)
    size = rows_per_block(arguments.classes + arguments.features, torch.device(arguments.device))
    spread = in_turn(lambda: iter(rows.split(size)), torch.device(arguments.device))
    return (seconds(lambda: solved(arguments, support, labels, spread), repeats=2, warm=0),)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=100_000, help="default: 100000")
    parser.add_argument("--classes", type=int, default=10_000, help="possible classes (default: 10000)")
    parser.add_argument("--present", type=int, default=100, help="classes that occur among the queries (default: 100)")
    parser.add_argument("--features", type=int, default=512, help="dimensions (default: 512)")
    parser.add_argument("--means", choices=("normal", "uniform"), default="normal", help="distribution of class means")
    parser.add_argument("--apart", type=float, default=1.5, help="standard deviation of the class means (default: 1.5)")
    parser.add_argument("--method", choices=("evidence", "paddle"), default="paddle")
    parser.add_argument("--tol", type=float, help="tolerance; default: the method's own")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--workers", type=int, default=0, help="label again on a Dask cluster of so many processes")
    parser.add_argument("--growth", action="store_true", help="how the time grows with each size")
    arguments = parser.parse_args()
    if arguments.growth:
        if arguments.device == "cpu":
            count_cpu_time()
        base = {name: getattr(arguments, name) for name in ("queries", "classes", "features")}
        sizes = {name: [value, 2 * value] for name, value in base.items()}
        rows = growth(base, sizes, lambda at: grown(arguments, at))
        show(f"How {arguments.method} grows, {arguments.device}", ["grows", "sizes", "ms", "exponent"], rows)
        return
    means, present, support, labels = make(arguments)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "queries.safetensors"
        written = path, means, present, arguments.queries, arguments.device
        with ProcessPoolExecutor(1, get_context("spawn")) as other:  # its memory is not that of labelling
            truth = other.submit(write_queries, *written).result()
        size = rows_per_block(arguments.classes + arguments.features, torch.device(arguments.device))
        with safe_open(path, framework="pt") as file:
            queries = file.get_slice("features")

            def blocks() -> Iterator[Tensor]:
                for first in range(0, arguments.queries, size):
                    yield queries[first : first + size]

            begin, worked = time.perf_counter(), time.process_time()
            spread, active = watched(in_turn(blocks, torch.device(arguments.device)))
            solution, found = solved(arguments, support, labels, spread)
            right = int((found == truth).sum())
            wall, worked = time.perf_counter() - begin, time.process_time() - worked
            cluster = "–"
            if arguments.workers:
                seconds_there, there = on_cluster(arguments, support, labels, blocks)
                cluster = f"{seconds_there:.1f} s, {int((there != found).sum())} labels differ"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    work = (sum(active) + arguments.classes) / arguments.classes
    gpu = "–" if arguments.device == "cpu" else f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB"
    estimated = "–"
    if arguments.method == "evidence":
        estimated = f"{float(solution.n_present):.1f} ± {float(solution.n_present_sd):.1f}"
    row = {
        "method": f"{arguments.method}, {arguments.device}",
        "queries": f"{arguments.queries:,}",
        "classes": f"{arguments.present} of {arguments.classes:,}",
        "wall": f"{wall:.1f} s",
        "CPU time": f"{worked:.1f} s",
        "iterations": f"{int(solution.n_iter)}, {'converged' if bool(solution.converged) else 'not converged'}",
        "classes updated in each": " ".join(map(str, active)),
        "work, in full iterations": f"{work:.1f} instead of {len(active) + 1}",
        "peak memory": f"{peak:.2f} GiB",
        "GPU memory": gpu,
        "classes estimated": estimated,
        f"{arguments.workers} Dask processes": cluster,
        "correct": f"{100 * right / arguments.queries:.2f} %",
    }
    show(f"A large pile: {row['method']}, {row['queries']} queries", list(row), [list(row.values())])


if __name__ == "__main__":
    main()
