"""The way of a solver on one task: how far its prototypes still move, and how right it is, after so many seconds.

Solvers are pure functions without a hook inside their loop. So the loop is run with a budget of 1, 2, 3, ...
iterations, each time from the start and alone on the clock; the criterion of the paper, the mean over classes of
‖w_m − w_(m−1)‖, compares the prototypes of two neighbouring budgets. So every method with a budget and prototypes
can be followed.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from manyway.bench.spec import Experiment
from manyway.errors import InputError
from manyway.features import FeatureSet
from manyway.methods import get_method
from manyway.sampling import sample_tasks
from manyway.tasks import Solution

_LONG = 0.5  # seconds from which one timing is enough


def follow(features: FeatureSet, experiment: Experiment) -> dict[str, Any]:
    """Steps, seconds, criterion and right answers of task 0, until the criterion is below its threshold."""
    spec = experiment.trace
    assert spec is not None
    method = get_method(experiment.method)
    if spec.budget not in method.defaults:
        raise InputError(
            f"{method.name} has no parameter '{spec.budget}' that counts its iterations; leave it out of a trace."
        )
    tasks = sample_tasks(features, experiment.task, experiment.seed, 0, 1)
    assert tasks.query_labels is not None
    truth = tasks.query_labels

    def solve(steps: int) -> Solution:
        return method(tasks, **{**experiment.params, spec.budget: steps})

    def moved(steps: int) -> tuple[float, Solution]:
        now, before = solve(steps), solve(steps - 1)
        if now.prototypes is None or before.prototypes is None:
            raise InputError(f"{method.name} has no prototypes whose movement could be followed.")
        return float((now.prototypes - before.prototypes).norm(dim=-1).mean()), now

    def timed(steps: int) -> float:
        best = float("inf")
        for _ in range(spec.repeats):
            begin = _clock(features)
            solve(steps)
            best = min(best, _clock(features) - begin)
            if best > _LONG:
                break
        return best

    outcome: dict[str, Any] = {"steps": [], "seconds": [], "criterion": [], "correct": []}

    def note(steps: int) -> float:
        criterion, solution = moved(steps)
        outcome["steps"].append(steps)
        outcome["seconds"].append(timed(steps))
        outcome["criterion"].append(criterion)
        outcome["correct"].append(int((solution.labels == truth).sum()))
        return criterion

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # one task is too small to be worth sharing among cores
    reached = None
    try:
        solve(1)  # the first call of a process pays for loading code
        for steps in _budgets(spec.max_steps):
            before = outcome["steps"][-1] if outcome["steps"] else 0
            if note(steps) < spec.tol:
                reached = _first_below(moved, before, steps, spec.tol)
                if reached != steps:
                    note(reached)
                break
    finally:
        torch.set_num_threads(threads)
    order = sorted(range(len(outcome["steps"])), key=lambda i: outcome["steps"][i])
    outcome = {name: [values[i] for i in order] for name, values in outcome.items()}
    return {"n_query": experiment.task.n_query, **outcome, "reached": reached}


def _budgets(max_steps: int) -> list[int]:
    """One by one at first, then a fifth more each time: evenly spread on a logarithmic axis.

    >>> _budgets(30)
    [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 29, 30]
    """
    budgets, steps = [], 1
    while steps < max_steps:
        budgets.append(steps)
        steps = max(steps + 1, round(steps * 1.2))
    return [*budgets, max_steps]


def _first_below(moved: Any, above: int, below: int, tol: float) -> int:
    """The number of steps at which the criterion falls below the threshold, between two that are above and below it."""
    while below - above > 1:
        middle = (above + below) // 2
        if moved(middle)[0] < tol:
            below = middle
        else:
            above = middle
    return below


def _clock(features: FeatureSet) -> float:
    if features.features.device.type == "cuda":
        torch.cuda.synchronize(features.features.device)
    return time.perf_counter()
