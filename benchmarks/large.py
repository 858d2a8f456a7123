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
from collections.abc import Iterator
from pathlib import Path

import torch
from manyway.methods.evidence.in_blocks import evidence_in_blocks
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.measure import show
from manyway.core.blocks import in_turn
from manyway.core.topk import Answer
from manyway.methods.paddle.streamed import paddle_in_blocks

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
            spread = in_turn(blocks, torch.device(arguments.device))
            solve = evidence_in_blocks if arguments.method == "evidence" else paddle_in_blocks
            options = {} if arguments.tol is None else {"tol": arguments.tol}
            solution = solve(
                support.to(arguments.device), labels.to(arguments.device), blocks, spread=spread, **options
            )
            answers, _ = spread(Answer(solution.assign, top=1), getattr(solution, "notes", None))
            found = torch.cat([classes[:, 0] for _, classes in answers.best])
            right = int((found == truth).sum())
            wall, worked = time.perf_counter() - begin, time.process_time() - worked
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    work = (sum(solution.active) + arguments.classes) / arguments.classes
    gpu = "–" if arguments.device == "cpu" else f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB"
    found = "–" if arguments.method != "evidence" else f"{solution.n_present:.1f} ± {solution.n_present_sd:.1f}"
    row = {
        "method": f"{arguments.method}, {arguments.device}",
        "queries": f"{arguments.queries:,}",
        "classes": f"{arguments.present} of {arguments.classes:,}",
        "wall": f"{wall:.1f} s",
        "CPU time": f"{worked:.1f} s",
        "iterations": f"{solution.n_iter}, {'converged' if solution.converged else 'not converged'}",
        "classes updated in each": " ".join(map(str, solution.active)),
        "work, in full iterations": f"{work:.1f} instead of {len(solution.active) + 1}",
        "peak memory (before, to write the queries)": f"{peak:.2f} GiB ({before:.2f})",
        "GPU memory": gpu,
        "classes estimated": found,
        "correct": f"{100 * right / arguments.queries:.2f} %",
    }
    show(f"A large pile: {row['method']}, {row['queries']} queries", list(row), [list(row.values())])


if __name__ == "__main__":
    main()
