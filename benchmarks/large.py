"""Measure one task whose queries do not fit into memory.

    python -m benchmarks.large --queries 1000000 --classes 10000 [--method evidence] [--device cuda]

Random queries are written to a safetensors file, which is then read block by block, memory-mapped. Printed are the
time, the iterations, how many classes each of them updated, the accuracy and the peak memory.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.measure import show
from manyway import Tasks
from manyway.core.blocks import Pile, Spread, Work, in_turn
from manyway.methods import get_method
from manyway.methods.evidence.blocks import Assign
from manyway.methods.paddle.streamed import Iterate

_BLOCK_BYTES = 2**27
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
        if isinstance(step, Assign | Iterate):
            active.append(len(step.slope if isinstance(step, Assign) else step.state.prototypes))
        return spread(work, memories)

    return watch, active


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
    arguments = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(arguments.classes, arguments.features, generator=generator)
    if arguments.means == "uniform":
        means = torch.rand(arguments.classes, arguments.features, generator=generator).mul_(12**0.5).sub_(3**0.5)
    means *= arguments.apart
    present = torch.randperm(arguments.classes, generator=generator)[: arguments.present]
    labels = torch.arange(arguments.classes).repeat_interleave(_SHOTS)
    support = means[labels] + torch.randn(len(labels), arguments.features, generator=generator)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "queries.safetensors"
        truth = write_queries(path, means, present, arguments.queries, arguments.device)
        size = max(1, _BLOCK_BYTES // (4 * (arguments.classes + arguments.features)))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        with safe_open(path, framework="pt") as file:
            queries = file.get_slice("features")

            def blocks() -> Iterator[Tensor]:
                for first in range(0, arguments.queries, size):
                    yield queries[first : first + size]

            begin, worked = time.perf_counter(), time.process_time()
            spread, active = watched(in_turn(blocks, torch.device(arguments.device)))
            options = {} if arguments.tol is None else {"tol": arguments.tol}
            support, labels = support.to(arguments.device), labels.to(arguments.device)
            tasks = Tasks.from_pile(support, labels, Pile.of(spread, support))
            solution = get_method(arguments.method)(tasks, **options)
            found = solution.top(1).best.values[1][0, :, 0]
            right = int((found == truth).sum())
            wall, worked = time.perf_counter() - begin, time.process_time() - worked
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    work = (sum(active) + arguments.classes) / arguments.classes
    gpu = "–" if arguments.device == "cpu" else f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB"
    found = (
        "–"
        if arguments.method != "evidence"
        else f"{float(solution.n_present):.1f} ± {float(solution.n_present_sd):.1f}"
    )
    row = {
        "method": f"{arguments.method}, {arguments.device}",
        "queries": f"{arguments.queries:,}",
        "classes": f"{arguments.present} of {arguments.classes:,}",
        "wall": f"{wall:.1f} s",
        "CPU time": f"{worked:.1f} s",
        "iterations": f"{int(solution.n_iter)}, {'converged' if bool(solution.converged) else 'not converged'}",
        "classes updated in each": " ".join(map(str, active)),
        "work, in full iterations": f"{work:.1f} instead of {len(active) + 1}",
        "peak memory (before, to write the queries)": f"{peak:.2f} GiB ({before:.2f})",
        "GPU memory": gpu,
        "classes estimated": found,
        "correct": f"{100 * right / arguments.queries:.2f} %",
    }
    show(f"A large pile: {row['method']}, {row['queries']} queries", list(row), [list(row.values())])


if __name__ == "__main__":
    main()
