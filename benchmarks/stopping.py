"""When is a review done? Simulated reviews with the random check of ``manyway.review.audit``.

    python -m benchmarks.stopping FEATURES ... [--reviews 500] [--tasks 20] [--items 300] [--tolerance 0.05 0.02]
                                  [--device cuda] [--processes 16] [--recordings FOLDER]

A simulated person answers the questions that evidence asks, until a random check is expected to find no more than
``MOST_FOUND`` wrong labels. Then labels stay as they are and the check begins. A wrong label ends it where a new check,
with labels that have learned from the answers, needs fewer answers. The table says how often the statement "at most so
many of the remaining labels are wrong" was true, and how many answers it took: in all, in checks that ended without a
statement, and in the check that ended with one. Beside it: the same where a part of all labels is tolerated, a random
check alone, and a review until evidence itself expects no more wrong labels than are tolerated.

Labels of some tasks are recorded while evidence asks its questions: after each answer at first, after each twentieth
part of the answers later. Many reviews repeat one recording, each with random items of its own. Where a check has
found wrong labels, those count as so many answers to questions: the labels are the recorded ones after as many.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import cache, partial
from math import floor, log10
from multiprocessing import Pool
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from manyway import FeatureSet, Tasks, TaskSpec, sample_tasks, solve
from manyway.methods import get_method
from manyway.review.audit import RISK, Check
from manyway.sampling.embedded import load_glyphs

UNKNOWN = -2  # the answer for an unknown item
MOST_FOUND = 0.5  # a check begins when it is expected to find at most so many wrong labels until it could end
FEWEST_PER_CLASS = 34  # items: so many of each class are in all sets
WAYS = {
    "questions": "questions, then a check",
    "all": "the same, part of all labels",
    "check": "checks only",
    "model": "until evidence expects it",
}


class Recording(NamedTuple):
    """One task while evidence asks questions: after n answers at most ``order[:n]`` are known."""

    order: np.ndarray  # [n] items as they were asked for
    answers: np.ndarray  # [r] after how many answers labels were recorded
    wrong: np.ndarray  # [r, q]
    doubts: np.ndarray  # [r, q] the probability that a label is wrong, as evidence says


class Review(NamedTuple):
    """How a simulated review ended."""

    answers: int
    failed: int  # answers of checks that ended without a statement
    last: int  # answers of the check that ended with one
    wrong: float  # the part of the remaining labels that is wrong, or of all labels


def draw(features: FeatureSet, n_items: int, part_unknown: float, count: int) -> Tasks:
    """Tasks from all classes, or from four of five where the others are unknown."""
    n_ways = features.n_classes * (4 if part_unknown else 5) // 5
    n_unknown = int(part_unknown * n_items)
    k_eff = min(max(10, -(-n_items // FEWEST_PER_CLASS)), n_ways)
    spec = TaskSpec(shots=5, k_eff=k_eff, n_ways=n_ways, n_query=n_items - n_unknown, n_unknown=n_unknown)
    return sample_tasks(features, spec, count=count)


@torch.no_grad()
def record(tasks: Tasks) -> list[Recording]:
    """Ask until three of four items are answered."""
    prepare = get_method("evidence").preparation
    assert tasks.query_labels is not None
    assert prepare is not None
    open_set = bool((tasks.query_labels < 0).any())
    prepared = prepare(tasks, open_set=open_set)
    truth = torch.where(tasks.query_labels < 0, UNKNOWN, tasks.query_labels)
    answered = torch.zeros_like(truth, dtype=torch.bool)
    order, answers, wrong, doubts = [], [], [], []
    n_answers = 0
    while 4 * n_answers <= 3 * tasks.n_query:
        given = torch.where(answered & (truth >= 0), truth, -1)
        solution = solve("evidence", tasks.with_known(given), prepared=prepared, open_set=open_set)
        chances, labels = solution.probabilities.amax(-1), solution.labels
        if solution.unknown is not None:
            labels = torch.where(solution.unknown > chances, UNKNOWN, labels)
            chances = torch.maximum(chances, solution.unknown)
        answers.append(n_answers)
        wrong.append((labels != truth).cpu().numpy())
        doubts.append((1 - chances).half().cpu().numpy())
        scores = solution.review_scores.masked_fill(answered, -torch.inf)
        asked = scores.topk(max(n_answers // 20, 1)).indices
        answered.scatter_(1, asked, True)
        order.append(asked.cpu().numpy())
        n_answers += asked.shape[1]
    orders, wrongs, all_doubts = np.concatenate(order, 1), np.stack(wrong, 1), np.stack(doubts, 1)
    return [Recording(o, np.array(answers), w, d) for o, w, d in zip(orders, wrongs, all_doubts, strict=True)]


@cache
def check(n_items: int, tolerance: float, risk: float, of: int) -> Check:
    """Checks are shared by reviews: the risk is rounded down."""
    return Check(n_items, tolerance, RISK * 10 ** (floor(10 * log10(risk / RISK)) / 10), of)


@cache
def needed(n_items: int, tolerance: float, risk: float, of: int) -> int:
    """How many answers a check needs if all labels are right."""
    return check(n_items, tolerance, risk, of).left(0, 0)


def review(recording: Recording, tolerance: float, way: str, seed: int) -> Review:
    """One review, with random items of its own."""
    random, n_items = np.random.default_rng(seed), len(recording.doubts[0])
    answered, of = np.zeros(n_items, dtype=bool), n_items if way == "all" else 0
    asked = taught = failed = 0  # questions; questions and wrong labels that checks found; answers of failed checks
    risk, seen, expected_seen = RISK, 1.0, 1.0  # wrong labels among the answers: is the method too sure?
    while True:
        at = int(np.searchsorted(recording.answers, taught, "right")) - 1
        wrong, doubts = recording.wrong[at], recording.doubts[at].astype(np.float64)
        left = n_items - int(answered.sum())
        expected = float(doubts[~answered].sum()) * seen / expected_seen
        if way == "model":
            ready = expected <= tolerance * left
        else:
            found = expected / max(left, 1) * needed(int(float(f"{left:.2g}")), tolerance, float(f"{risk:.1g}"), of)
            ready = way == "check" or found <= MOST_FOUND
        if not ready and asked < len(recording.order):
            row = recording.order[asked]
            asked += 1
            if not answered[row]:
                answered[row], taught = True, taught + 1
                seen, expected_seen = seen + wrong[row], expected_seen + doubts[row]
            continue
        order = random.permutation(np.flatnonzero(~answered))
        flags, this = wrong[order], check(left, tolerance, risk, of)
        n_drawn, done = (0, True) if way == "model" else one_check(flags, this)
        answered[order[:n_drawn]] = True
        if done:
            rest = flags[n_drawn:]
            return Review(int(answered.sum()), failed, n_drawn, float(rest.sum()) / max(of or len(rest), 1))
        n_wrong = int(flags[:n_drawn].sum())
        risk, failed, taught = this.next_risk(n_drawn, n_wrong), failed + n_drawn, taught + n_wrong
        seen, expected_seen = seen + n_wrong, expected_seen + float(doubts[order[:n_drawn]].sum())


def one_check(flags: np.ndarray, this: Check) -> tuple[int, bool]:
    """How many items are asked for, and whether the check ends with its statement."""
    asked, wrong = 0, 0
    for flag in [*np.flatnonzero(flags).tolist(), len(flags)]:  # the next wrong label
        ends = asked + this.left(asked, wrong)
        if ends <= flag:
            return ends, True
        asked, wrong = flag + 1, wrong + 1
        if this.learning_pays(asked, wrong, len(flags) - asked):
            return asked, False
    raise AssertionError("a check of all items is done")


def recordings(path: str, options: argparse.Namespace, part_unknown: float) -> list[Recording]:
    """Those of a file, or new ones."""
    name = f"{Path(path).stem}-{options.items}-{part_unknown}-{options.tasks}.npz"
    stored = Path(options.recordings or ".") / name
    if options.recordings and stored.exists():
        with np.load(stored) as file:
            arrays = [file[name] for name in Recording._fields]
    else:
        features = (load_glyphs() if path == "letters" else FeatureSet.load(path)).to(options.device)
        found = record(draw(features, options.items, part_unknown, options.tasks))
        arrays = [np.stack(one) for one in zip(*found, strict=True)]
        if options.recordings:
            np.savez_compressed(stored, **dict(zip(Recording._fields, arrays, strict=True)))
    return [Recording(*one) for one in zip(*arrays, strict=True)]


def run(seed: int, tasks: list[Recording], tolerance: float, way: str) -> Review:
    """The how manieth review of a row of the table."""
    return review(tasks[seed % len(tasks)], tolerance, way, seed)


def table(options: argparse.Namespace) -> Iterator[str]:
    """A row per feature set, with and without unknown items, and all of them."""
    yield "| features | unknown | way | tolerated | statement true, % | answers | 90 % below | failed | last check |"
    yield "|---|---|---|---|---|---|---|---|---|"
    everything: dict[tuple[float, str], list[Review]] = {}
    with Pool(options.processes) as pool:
        for path in options.features:
            for part in (0.0, 0.2):
                tasks = recordings(path, options, part)
                for tolerance in options.tolerance:
                    for way in WAYS:
                        one = partial(run, tasks=tasks, tolerance=tolerance, way=way)
                        found = pool.map(
                            one, range(options.reviews), chunksize=-(-options.reviews // options.processes)
                        )
                        everything.setdefault((tolerance, way), []).extend(found)
                        yield row(f"{Path(path).stem} | {part:.0%}", tolerance, way, found)
    for (tolerance, way), found in everything.items():
        yield row("all |", tolerance, way, found)


def row(name: str, tolerance: float, way: str, found: list[Review]) -> str:
    answers, failed, last, wrong = np.array(found).T
    true = 100 * float((wrong <= tolerance).mean())
    middle, most = np.quantile(answers, [0.5, 0.9])
    cells = f"{true:.1f} | {middle:.0f} | {most:.0f} | {failed.mean():.0f} | {last.mean():.0f}"
    return f"| {name} | {WAYS[way]} | {tolerance:.0%} | {cells} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", nargs="+", help="files of features, or 'letters'")
    parser.add_argument("--reviews", type=int, default=500, help="per set of features, tolerance and way")
    parser.add_argument("--tasks", type=int, default=20, help="recordings")
    parser.add_argument("--items", type=int, default=300)
    parser.add_argument("--tolerance", type=float, nargs="+", default=[0.05, 0.02])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--recordings", help="a folder that keeps them")
    torch.set_num_threads(1)
    for line in table(parser.parse_args()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
