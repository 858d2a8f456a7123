"""Convergence of a solver on one task: the movement of its prototypes and its accuracy against time.

Solvers are pure functions without a hook inside their loop. The solver is therefore run with a budget of 2, 3, 4, …
iterations, each time from the start, and each run is timed. The criterion of the paper, the mean over classes of
‖w_m − w_(m−1)‖, compares the prototypes of two neighbouring budgets. Every method with a budget and prototypes can be
followed in this way.
"""

from bisect import bisect_left
from itertools import accumulate
from typing import Any

import torch

from manyway.bench.baselines import get_method
from manyway.bench.records import Outcome
from manyway.bench.suite import Experiment
from manyway.core import Solution
from manyway.errors import InputError
from manyway.evaluation import clock
from manyway.sampling import FeatureSet, sample_tasks

_LONG = 0.3  # seconds from which one timing is enough, and budgets go up in larger steps


def follow(features: FeatureSet, experiment: Experiment) -> Outcome:
    """Steps, seconds, criterion and correct answers of task 0, until the criterion is below its threshold."""
    spec = experiment.trace
    assert spec is not None
    method = get_method(experiment.method)
    if spec.budget not in method.defaults:
        raise InputError(f"{method.name} has no parameter '{spec.budget}' that counts its iterations; leave it out.")
    tasks = sample_tasks(features, experiment.spec, experiment.seed, 0, 1)
    assert tasks.query_labels is not None
    truth = tasks.query_labels

    def solve(steps: int) -> Solution:
        return method(tasks, **{**experiment.params, spec.budget: steps})

    def moved(now: Solution, steps: int) -> float:
        before = solve(steps - 1)
        if now.prototypes is None or before.prototypes is None:
            raise InputError(f"{method.name} has no prototypes whose movement could be followed.")
        return float((now.prototypes - before.prototypes).norm(dim=-1).mean())

    def timed(steps: int) -> tuple[Solution, float]:
        best = float("inf")
        for _ in range(spec.repeats):
            begin = clock(features)
            solution = solve(steps)
            best = min(best, clock(features) - begin)
            if best > _LONG:
                break
        return solution, best

    points: dict[int, tuple[float, float, int]] = {}  # steps -> seconds, criterion, correct answers

    def record(steps: int) -> bool:
        solution, seconds = timed(steps)
        criterion = moved(solution, steps)
        points[steps] = seconds, criterion, int((solution.labels == truth).sum())
        return criterion < spec.tol

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # one task is too small to be divided among cores
    reached = None
    try:
        solve(1)  # the first call of a process also loads code
        last, steps = 1, 2
        while reached is None and last < spec.max_steps:
            if record(steps):
                between = range(last + 1, steps)
                reached = last + 1 + bisect_left(between, True, key=lambda m: moved(solve(m), m) < spec.tol)
                record(reached)
            last, steps = steps, min(spec.max_steps, _next(steps, points[steps][0]))
    finally:
        torch.set_num_threads(threads)
    order = sorted(points)
    seconds, criteria, correct = zip(*(points[steps] for steps in order), strict=True)
    # Fewer iterations cannot take longer: a disturbed timing is replaced by the smallest of the later ones.
    seconds = tuple(accumulate(reversed(seconds), min))[::-1]
    found: dict[str, Any] = {"seconds": list(seconds), "criterion": list(criteria), "correct": list(correct)}
    return Outcome(n_query=experiment.task.n_known, steps=order, reached=reached, **found)


def _next(steps: int, seconds: float) -> int:
    """The next budget: a fifth more, which is even on a logarithmic axis; twice as much once a run takes long.

    >>> [_next(1, 0.0), _next(10, 0.0), _next(100, 0.0), _next(100, 1.0)]
    [2, 12, 120, 200]
    """
    return 2 * steps if seconds > _LONG else max(steps + 1, round(1.2 * steps))
