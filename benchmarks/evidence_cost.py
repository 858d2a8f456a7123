"""``python -m benchmarks.evidence_cost KEY… --data DATA``: what evidence costs beside PADDLE.

Prints Markdown: milliseconds a task, the median of five runs (on a CPU of one thread's own time, which other work does
not lengthen). Calibration needs the support alone: where tasks share one, it is done once for all.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.evidence_tasks import arguments
from benchmarks.measure import count_cpu_time, seconds
from manyway import TaskSpec, sample_tasks, solve
from manyway.bench.data import find_features
from manyway.core.transforms import transform
from manyway.methods.evidence.calibration import calibrate
from manyway.methods.evidence.search import Options
from manyway.methods.evidence.solver import infer


def main() -> None:
    options = arguments(__doc__, n_tasks=20).parse_args()
    if options.device == "cpu":
        count_cpu_time()
    print("| features | K | d | shots | K_eff | PADDLE | evidence | of it calibration | the rest | rest / PADDLE |")
    print("|:---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for key in options.keys:
        features = find_features(key, options.data).to(options.device)
        for shots, k_eff in ((5, 5), (5, 50), (20, 5)):
            spec = TaskSpec(shots=shots, k_eff=k_eff, n_query=75)
            tasks = sample_tasks(features, spec, count=options.tasks)
            scaled = transform(tasks, "rcl2")
            calibration = calibrate(scaled)
            work: list[Callable[[], object]] = [
                lambda tasks=tasks: solve("paddle", tasks),
                lambda tasks=tasks: solve("evidence", tasks),
                lambda tasks=tasks: calibrate(transform(tasks, "rcl2")),
                lambda scaled=scaled, calibration=calibration: infer(scaled.query, calibration, Options(), move=True),
            ]
            paddle, evidence, before, after = (1e3 * seconds(one, repeats=5) / options.tasks for one in work)
            shape = f"{features.n_classes} | {features.features.shape[1]} | {shots} | {k_eff}"
            times = f"{paddle:.3g} | {evidence:.3g} | {before:.3g} | {after:.3g} | {after / paddle:.2f}"
            print(f"| {key} | {shape} | {times} |", flush=True)


if __name__ == "__main__":
    main()
