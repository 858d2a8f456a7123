"""``python -m benchmarks.evidence_number KEY… --data DATA``: is the number of classes right that evidence estimates?

Prints Markdown: of tasks with 5 shots and 75 queries, how many classes occur, how many are estimated to, and in what
part of the tasks that is within two standard deviations (and half a class). Queries come from K_eff classes alike, as
in the paper, or in shares from a Dirichlet distribution: the smaller its parameter, the more classes have few queries.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from benchmarks.evidence_tasks import add_seed, arguments, class_numbers, in_chunks, within_two_sd
from manyway import TaskSpec, solve
from manyway.bench.data import find_features

SHARES: dict[str, float | None] = {"alike": None, "Dirichlet(2)": 2.0, "Dirichlet(0.3)": 0.3}


def main() -> None:
    parser = arguments(__doc__)
    add_seed(parser)
    options = parser.parse_args()
    print("| features | shares of the classes | K_eff | occur | estimated | within 2 sd |")
    print("|:---|:---|---:|---:|---:|---:|")
    for key in options.keys:
        features = find_features(key, options.data).to(options.device)
        for name, alpha in SHARES.items():
            for k_eff in (5, 10, 20):
                spec = TaskSpec(shots=5, k_eff=k_eff, n_query=75)
                if alpha is not None:
                    spec = replace(spec, sampling="dirichlet", alpha=alpha)
                chunks = in_chunks("evidence", features, spec, options.tasks, options.seed)
                numbers = torch.cat([class_numbers(solve("evidence", tasks), truth) for tasks, truth in chunks])
                estimate, sd, there = numbers.unbind(1)
                within = within_two_sd(estimate, sd, there)
                means = f"{there.mean():.1f} | {estimate.mean():.1f} | {within:.0f} %"
                print(f"| {key} | {name} | {k_eff} | {means} |", flush=True)


if __name__ == "__main__":
    main()
