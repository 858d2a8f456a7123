"""``python -m benchmarks.evidence_cost KEY… --data DATA``: the time that evidence takes compared with PADDLE.

Prints Markdown: milliseconds per task, the median of five runs (on a CPU the processor time of one thread, which other
processes do not lengthen). Calibration needs only the support: where tasks share one support, it is done once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import count_cpu_time, seconds
from manyway import TaskSpec, sample_tasks, solve
from manyway.bench.data import find_features
from manyway.core.transforms import transform
from manyway.methods.evidence.calibration import calibrate
from manyway.methods.evidence.schedule import Schedule


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keys", nargs="+", help="feature sets: keys in DATA, or glyphs")
    parser.add_argument("--data", type=Path, help="folder with the features")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    if options.device == "cpu":
        count_cpu_time()
    print("| features | K | d | shots | K_eff | PADDLE | evidence | of it calibration | (evidence − cal.) / PADDLE |")
    print("|:---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for key in options.keys:
        features = find_features(key, options.data).to(options.device)
        for shots, k_eff in ((5, 5), (5, 50), (20, 5)):
            tasks = sample_tasks(features, TaskSpec(shots=shots, k_eff=k_eff, n_query=75), count=options.tasks)
            work: list[Callable[[], object]] = [
                lambda tasks=tasks: solve("paddle", tasks),
                lambda tasks=tasks: solve("evidence", tasks),
                lambda tasks=tasks: calibrate(transform(tasks, "rcl2"), Schedule()),
            ]
            paddle, evidence, before = (1e3 * seconds(one, repeats=5) / options.tasks for one in work)
            shape = f"{features.n_classes} | {features.features.shape[1]} | {shots} | {k_eff}"
            times = f"{paddle:.3g} | {evidence:.3g} | {before:.3g} | {(evidence - before) / paddle:.2f}"
            print(f"| {key} | {shape} | {times} |", flush=True)


if __name__ == "__main__":
    main()
