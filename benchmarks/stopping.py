"""When is a review done? Simulated reviews with the random check of ``manyway.review.audit``.

    python -m benchmarks.stopping FEATURES ... [--reviews 200] [--items 300] [--tolerance 0.05] [--device cuda]

A simulated person answers the questions that evidence asks, until evidence expects less than half of the tolerated part
of the labels to be wrong. Then labels stay as they are and a random check begins. A wrong label ends it where a new
check, with labels that have learned from the answers, needs fewer answers. The table says how often the statement "at
most so many of the remaining labels are wrong" was true, and how many answers it took, beside a random check alone and
beside a review until evidence itself expects no more than the tolerated part.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import cache

import numpy as np
import torch
from torch import Tensor

from manyway import FeatureSet, Tasks, TaskSpec, sample_tasks, solve
from manyway.methods import get_method
from manyway.review.audit import Check
from manyway.sampling.embedded import load_glyphs

UNKNOWN = -2  # the answer for an unknown item
MOST_FOUND = 0.5  # a check begins when it is expected to find at most so many wrong labels until it could end


@cache
def check(n_items: int, expected: float, number: int) -> Check:
    """Checks are shared by reviews; the expectation is rounded."""
    return Check(n_items, expected, number)


def reviews(tasks: Tasks, tolerance: float, way: str, seed: int) -> list[tuple[int, float]]:
    """Of each review: the number of answers, and the part of the remaining labels that is wrong."""
    random, prepare = np.random.default_rng(seed), get_method("evidence").preparation
    assert tasks.query_labels is not None
    assert prepare is not None
    open_set = bool((tasks.query_labels < 0).any())
    prepared = prepare(tasks, open_set=open_set)
    truth = torch.where(tasks.query_labels < 0, UNKNOWN, tasks.query_labels)
    answered = torch.zeros_like(truth, dtype=torch.bool)
    number = torch.arange(len(truth), device=truth.device)
    checks, running = torch.ones_like(number), torch.ones_like(number, dtype=torch.bool)
    # Wrong labels among the answers, as many as there were and as many as were expected: is the method too sure?
    seen = torch.ones(2, len(number), device=truth.device)
    found: list[tuple[int, float]] = [(0, 0.0)] * len(truth)
    while running.any():
        if 2 * running.sum() <= len(running):  # finished reviews are left behind
            tasks, truth, answered = tasks[running.nonzero().squeeze(1)], truth[running], answered[running]
            number, checks, seen, running = number[running], checks[running], seen[:, running], running[running]
            prepared = prepare(tasks, open_set=open_set)
        given = torch.where(answered & (truth >= 0), truth, -1)
        solution = solve("evidence", tasks.with_known(given), prepared=prepared, open_set=open_set)
        chances, labels = solution.probabilities.amax(-1), solution.labels
        if solution.unknown is not None:
            labels = torch.where(solution.unknown > chances, UNKNOWN, labels)
            chances = torch.maximum(chances, solution.unknown)
        wrong, left = (labels != truth) & ~answered, (~answered).sum(1)
        doubts = (1 - chances) * ~answered
        expected = doubts.sum(1) * (seen[0] / seen[1])
        ready = ready_for(way, left, expected, checks, tolerance) | (left < 2)
        asked = solution.review_scores.masked_fill(answered, -torch.inf).argmax(1)
        which = (running & ~ready).nonzero().squeeze(1)
        answered[which, asked[which]] = True
        seen[:, which] += torch.stack([wrong[which, asked[which]].float(), doubts[which, asked[which]]])
        for i in (running & ready).nonzero().squeeze(1).tolist():
            order, done = (~answered[i]).nonzero().squeeze(1), True
            order = order[torch.from_numpy(random.permutation(len(order))).to(order.device)]
            flags, n_asked = wrong[i, order].cpu().numpy(), 0
            if way != "model":
                n_asked, done = one_check(flags, float(expected[i]), int(checks[i]), tolerance)
            answered[i, order[:n_asked]] = True
            seen[:, i] += torch.stack([wrong[i, order[:n_asked]].sum(), doubts[i, order[:n_asked]].sum()])
            checks[i] += 1
            if done:
                running[i] = False
                rest = flags[n_asked:]
                found[int(number[i])] = (int(answered[i].sum()), float(rest.mean()) if len(rest) else 0.0)
    return found


def ready_for(way: str, left: Tensor, expected: Tensor, checks: Tensor, tolerance: float) -> Tensor:
    """[t] whether questions end: the check begins, or with ``way="model"`` the review ends."""
    if way == "check":
        return torch.ones_like(left, dtype=torch.bool)
    if way == "model":
        return expected <= tolerance * left
    rows = zip(left.tolist(), expected.tolist(), checks.tolist(), strict=True)
    needed = [check(n, rough(wrong), number).left(0, 0, tolerance) for n, wrong, number in rows]
    return expected * torch.tensor(needed, device=left.device) <= MOST_FOUND * left


def rough(expected: float) -> float:
    """An expectation with one digit, so that reviews share their checks."""
    return float(f"{expected:.1g}")


def one_check(flags: np.ndarray, expected: float, number: int, tolerance: float) -> tuple[int, bool]:
    """How many items are asked for, and whether the check ends with its statement."""
    n_items, asked, wrong = len(flags), 0, 0
    expected = rough(expected)
    this = check(n_items, expected, number)
    while asked < n_items and not this.done(asked, wrong, tolerance):
        wrong += int(flags[asked])
        asked += 1
        if flags[asked - 1] and this.learning_pays(asked, wrong, tolerance, n_items - asked):
            return asked, False
    return asked, True


def table(options: argparse.Namespace) -> Iterator[str]:
    """A row per feature set, with and without unknown items."""
    yield "| features | unknown | way | statement true, % | answers, median | 90 % below |"
    yield "|---|---|---|---|---|---|"
    for path in options.features:
        features = (load_glyphs() if path == "letters" else FeatureSet.load(path)).to(options.device)
        for part in (0.0, 0.2):
            n_unknown = int(part * options.items)
            spec = TaskSpec(shots=5, k_eff=10, n_query=options.items - n_unknown, n_unknown=n_unknown)
            tasks = sample_tasks(features, spec, count=options.reviews)
            for way in ("questions", "check", "model"):
                rows = np.array(reviews(tasks, options.tolerance, way, seed=0))
                true = 100 * float((rows[:, 1] <= options.tolerance).mean())
                answers = np.quantile(rows[:, 0], [0.5, 0.9])
                yield f"| {path} | {n_unknown} | {way} | {true:.1f} | {answers[0]:.0f} | {answers[1]:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", nargs="+", help="files of features, or 'letters'")
    parser.add_argument("--reviews", type=int, default=200)
    parser.add_argument("--items", type=int, default=300)
    parser.add_argument("--tolerance", type=float, default=0.05)
    parser.add_argument("--device", default="cpu")
    for line in table(parser.parse_args()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
