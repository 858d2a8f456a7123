"""Convergence of a solver on one task: movement of its prototypes and accuracy, against time.

Solvers are pure functions without a hook inside their loop. The solver is therefore run with a
budget of 2, 3, 4, … iterations, each time from the start, and each run is timed. The criterion of
the paper, the mean over classes of ‖w_m − w_(m−1)‖, compares the prototypes of two neighbouring
budgets. Every method with a budget and prototypes can be followed in this way.
"""

from bisect import bisect_left
from itertools import accumulate
from typing import NamedTuple

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
    """Steps, seconds, criterion and correct answers of task 0.

    It ends when the criterion is below its threshold.
    """
    followed = _Followed(features, experiment)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # one task is too small to be divided among cores
    try:
        reached = followed.to_the_threshold()
    finally:
        torch.set_num_threads(threads)
    steps = sorted(followed.points)
    points = [followed.points[number] for number in steps]
    # Fewer iterations cannot take longer: a disturbed timing is replaced by the smallest of the
    # later ones.
    seconds = list(accumulate((point.seconds for point in reversed(points)), min))[::-1]
    return Outcome(
        n_query=experiment.task.n_known,
        steps=steps,
        reached=reached,
        seconds=seconds,
        criterion=[point.criterion for point in points],
        correct=[point.n_correct for point in points],
    )


class _Point(NamedTuple):
    """What is recorded of one budget."""

    seconds: float
    criterion: float
    n_correct: int


class _Followed:
    """A solver that is run on one task with rising budgets, and what was recorded of them."""

    def __init__(self, features: FeatureSet, experiment: Experiment) -> None:
        assert experiment.trace is not None
        self.spec = experiment.trace
        self.params = experiment.params
        self.features = features
        self.method = get_method(experiment.method)
        if self.spec.budget not in self.method.defaults:
            raise InputError(
                f"{self.method.name} has no parameter '{self.spec.budget}' "
                "that counts its iterations; leave it out."
            )
        self.tasks = sample_tasks(features, experiment.spec, experiment.seed, 0, 1)
        self.points: dict[int, _Point] = {}  # by the number of steps

    def to_the_threshold(self) -> int | None:
        """Raise the budget until the criterion is below its threshold.

        Returns the first such number of steps, if there is one.
        """
        self._solve(1)  # the first call of a process also loads code
        last = 1
        steps = 2
        while last < self.spec.max_steps:
            point = self._record(steps)
            if point.criterion < self.spec.tol:
                reached = self._first_below(last + 1, steps)
                self._record(reached)
                return reached
            last = steps
            steps = min(self.spec.max_steps, _next(steps, point.seconds))
        return None

    def _first_below(self, low: int, high: int) -> int:
        """The first number of steps in low..high below the threshold; ``high`` is."""
        between = range(low, high)

        def is_below(steps: int) -> bool:
            return self._moved(self._solve(steps), steps) < self.spec.tol

        return low + bisect_left(between, True, key=is_below)

    def _record(self, steps: int) -> _Point:
        solution, seconds = self._timed(steps)
        assert self.tasks.query_labels is not None
        n_correct = int((solution.labels == self.tasks.query_labels).sum())
        point = _Point(seconds, self._moved(solution, steps), n_correct)
        self.points[steps] = point
        return point

    def _timed(self, steps: int) -> tuple[Solution, float]:
        best = float("inf")
        for _ in range(self.spec.repeats):
            begin = clock(self.features)
            solution = self._solve(steps)
            best = min(best, clock(self.features) - begin)
            if best > _LONG:
                break
        return solution, best

    def _moved(self, now: Solution, steps: int) -> float:
        """How far the last step moved the prototypes."""
        before = self._solve(steps - 1)
        if now.prototypes is None or before.prototypes is None:
            raise InputError(
                f"{self.method.name} has no prototypes whose movement could be followed."
            )
        return float((now.prototypes - before.prototypes).norm(dim=-1).mean())

    def _solve(self, steps: int) -> Solution:
        return self.method(self.tasks, **{**self.params, self.spec.budget: steps})


def _next(steps: int, seconds: float) -> int:
    """The next budget: a fifth more, which is even on a logarithmic axis.

    Twice as much once a run takes long.

    >>> [_next(1, 0.0), _next(10, 0.0), _next(100, 0.0), _next(100, 1.0)]
    [2, 12, 120, 200]
    """
    if seconds > _LONG:
        return 2 * steps
    return max(steps + 1, round(1.2 * steps))
