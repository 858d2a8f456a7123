"""Measure PADDLE and the task generator on a CPU, against the dense reference in the same run (``make bench``).

    python -m benchmarks.cpu [PART ...] [--quick] [--one-core]

Parts: ``compare`` (milliseconds per task, dense reference and ours), ``sampling`` (the task generator alone),
``scaling`` (how time grows with each size; the exponent is the slope of log time over log size), ``memory`` (peak of an
evaluation of 10,000 tasks) and ``limits`` (the time that memory bandwidth and arithmetic of this machine require).
Without a PART all run. The tables are Markdown.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping

import torch

from benchmarks.dense import paddle_dense, rows_by_class, sample_looped
from benchmarks.features import make_features
from benchmarks.measure import Part, count_cpu_time, growth, run_parts, seconds, show_parts
from manyway import FeatureSet, TaskSpec, evaluate, sample_tasks, solve
from manyway.core.ops import class_sums
from manyway.evaluation.evaluator import chunk_size

CASES = [  # K, shots, d, samples per class
    (20, 5, 512, 600),
    (20, 20, 512, 600),
    (160, 5, 512, 300),
    (160, 20, 512, 300),
    (227, 5, 512, 200),
    (227, 20, 512, 200),
    (160, 20, 640, 300),
]


def compare(options: argparse.Namespace) -> Iterator[list[object]]:
    """Milliseconds per task, dense / ours, of each step and in total; 100 iterations, no early stop."""
    _agreement()
    for n_classes, shots, n_features, per_class in CASES:
        if options.classes not in (None, n_classes):
            continue
        few = (1 if options.quick else 2) if n_classes > 20 else 4
        features, spec = make_features(n_classes, per_class, n_features), TaskSpec(shots=shots)
        # Several full chunks, as in an evaluation of thousands of tasks.
        many = (4 if options.quick else 8) * chunk_size("paddle", features, spec)
        dense, ours = _one_case(features, spec, few, many)
        steps = [f"{1e3 * slow:.3g} / {1e3 * fast:.3g}" for slow, fast in zip(dense[:2], ours[:2], strict=True)]
        whole = sum(dense)
        yield [n_classes, shots, n_features, *steps, 1e3 * whole, 1e3 * ours[2], f"**{whole / ours[2]:.0f}×**"]


def _one_case(features: FeatureSet, spec: TaskSpec, few: int, many: int) -> tuple[list[float], list[float]]:
    """Seconds per task: dense reference (sampling, gathering, solving), and ours (sampling, gathering, everything)."""
    table, n_classes = features.features, features.n_classes
    rows_of, generator = rows_by_class(features), torch.Generator().manual_seed(0)
    index, labels, query_index = sample_looped(rows_of, spec, generator, few)
    support, query = table[index], table[query_index]
    tasks = sample_tasks(features, spec, count=many)
    dense = [
        seconds(lambda: sample_looped(rows_of, spec, generator, few)),
        seconds(lambda: (table[index], table[query_index])),
        seconds(lambda: paddle_dense(support, labels, query, n_classes), repeats=1),
    ]
    ours = [
        seconds(lambda: sample_tasks(features, spec, count=many)),
        seconds(lambda: (class_sums(tasks), tasks.query)),
        seconds(lambda: evaluate("paddle", features, spec, n_tasks=many)),
    ]
    return [time / few for time in dense], [time / many for time in ours]


def sampling(options: argparse.Namespace) -> Iterator[list[object]]:
    """The generator alone, at the size of tiered-ImageNet's test set."""
    features, n_tasks = make_features(160, 1300, 1), 500 if options.quick else 10_000
    spec, rows_of, generator = TaskSpec(shots=20), rows_by_class(features), torch.Generator().manual_seed(0)
    looped = seconds(lambda: sample_looped(rows_of, spec, generator, 20)) / 20
    ours = seconds(lambda: sample_tasks(features, spec, count=n_tasks), repeats=1) / n_tasks
    yield [n_tasks, 1e3 * looped, 1e3 * ours, ours * n_tasks, f"**{looped / ours:.0f}×**"]


SCALING_BASE = {"K": 80, "|Q|": 75, "d": 256, "shots": 5, "tasks": 300}
SCALING = {
    "tasks": [300, 600, 1200],
    "K": [40, 80, 160, 320],
    "|Q|": [32, 64, 128],
    "d": [128, 256, 512, 1024],
    "shots": [1, 5, 20],
}


def scaled(at: Mapping[str, int]) -> tuple[float, float]:
    """Seconds of an evaluation of these sizes, with and without drawing and gathering."""
    features = make_features(at["K"], at["shots"] + 60, at["d"])
    spec, n_tasks = TaskSpec(shots=at["shots"], n_query=at["|Q|"]), at["tasks"]
    whole = seconds(lambda: evaluate("paddle", features, spec, n_tasks, max_iter=50))
    tasks = sample_tasks(features, spec, count=20)
    gather = seconds(lambda: class_sums(tasks)) / 20 * n_tasks / torch.get_num_threads()
    draw = seconds(lambda: sample_tasks(features, spec, count=n_tasks))
    return whole, max(whole - gather - draw, 1e-9)


def memory(options: argparse.Namespace) -> Iterator[list[object]]:
    """Peak resident memory of a process that evaluates 10,000 tasks, with one iteration per task."""
    for shots in (5, 20):
        command = [sys.executable, "-m", "benchmarks.cpu", "--memory-of", str(shots)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        yield [160, shots, 10_000, done.stdout.strip()]


def memory_of(shots: int) -> None:
    features = make_features(160, 300, 512)
    evaluate("paddle", features, TaskSpec(shots=shots), 10_000, max_iter=1)
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{kilobytes / 2**20:.2f} GiB, of which features {features.features.nbytes / 2**30:.2f}")


def limits(options: argparse.Namespace) -> Iterator[list[object]]:
    """The least time per task: reading its rows once, and the products of 100 iterations, at this machine's rates."""
    features = make_features(160, 300, 512)
    block = torch.empty(2**26)
    copied = torch.empty_like(block)
    bandwidth = 2 * block.nbytes / seconds(lambda: copied.copy_(block))
    a = torch.randn(1024, 1024)
    rate = 2 * 1024**3 / seconds(lambda: a @ a, repeats=5)
    spec = TaskSpec(shots=20)
    n_classes, n_query, n_features = features.n_classes, spec.n_query, features.features.shape[1]
    read = (n_classes * 20 + n_query) * n_features * 4 / bandwidth
    products = 2 * n_query * (n_query + n_classes) * n_features
    loop = 2 * n_query**2 * n_classes * 100
    many = 4 * chunk_size("paddle", features, spec)
    ours = seconds(lambda: evaluate("paddle", features, spec, many)) / many
    floor = read + (products + loop) / rate
    times = [1e3 * read, 1e3 * products / rate, 1e3 * loop / rate, 1e3 * ours]
    yield [f"{bandwidth / 1e9:.1f} GB/s", f"{rate / 1e9:.0f} GFLOP/s", *times, f"{ours / floor:.1f}×"]


def _agreement() -> None:
    """Print how far the two differ, because times of different answers cannot be compared."""
    features = make_features(20, 100, 64)
    tasks = sample_tasks(features, TaskSpec(shots=5), count=4)
    dense = paddle_dense(tasks.support, tasks.support_labels, tasks.query, 20)
    ours = solve("paddle", tasks)
    print(f"largest difference of a probability: {float((dense - ours.probabilities).abs().max()):.1e}")


PARTS = {
    "compare": Part(
        "PADDLE, milliseconds per task: dense reference / ours",
        "K | shots | d | sampling | gathering | dense, whole | manyway, whole | ratio",
        compare,
    ),
    "sampling": Part(
        "Drawing tasks (K = 160, 20 shots, 1,300 samples per class)",
        "tasks | looped, ms per task | ours, ms per task | ours, seconds | ratio",
        sampling,
    ),
    "scaling": Part(
        "Scaling: 300 tasks, K = 80, |Q| = 75, d = 256, 5 shots unless varied; 50 iterations",
        "grows | sizes | ms | exponent | exponent without drawing and gathering",
        lambda options: growth(SCALING_BASE, SCALING, scaled),
    ),
    "memory": Part("Peak memory", "K | shots | tasks | peak", memory),
    "limits": Part(
        "Limits of this machine (K = 160, 20 shots, d = 512), milliseconds per task",
        "copy | matrix product | rows read once | Gram products | 100 iterations | ours, whole | ours / sum",
        limits,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, help="only the comparisons with this K")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--one-core", action="store_true", help="measure CPU time on one thread, for a shared machine")
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    options = run_parts(parser, PARTS)
    if options.memory_of:
        memory_of(options.memory_of)
        return
    if options.one_core:
        count_cpu_time()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; |Q| = 75, 100 iterations, float32")
    show_parts(PARTS, options)


if __name__ == "__main__":
    main()
