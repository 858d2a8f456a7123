"""When a review is done: a random check of the remaining labels, with a bound that holds whenever one stops.

Questions that a method chooses say nothing about the labels it did not ask for. A check therefore keeps the labels as
they are, draws items at random among the N that have no answer, and counts how many of the m drawn ones are wrong: x.
Of the N labels W are wrong. Under a prior π(W) that was fixed before the check, the ratio of prior and posterior at the
true W,

    π(W) / P(W | m, x) = Σ_w π(w) h(x | m, w) / h(x | m, W),    h(x | m, W) ∝ C(W, x) C(N − W, m − x),

is a martingale with mean 1: it exceeds 1/α at some time with a probability of at most α (Ville). So all W whose ratio
is below 1/α are a confidence set at every time, also at one that was chosen after a look at the answers, and whatever
π is. A prior near the truth makes the set small; the method's own expectation is one.

Wrong labels that a check finds can teach the method. That ends the check: labels change, and a new one begins. The
k-th check has its own part of α, 0.6, 0.2, 0.1, …, so that the statement of the last one holds with 1 − α in all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from math import log
from typing import Any

import numpy as np
from scipy.special import gammaln

_STRENGTH = 20.0  # how many items the expected part of wrong labels counts in the prior: a rough guess


@dataclass(frozen=True)
class Check:
    """A random check of labels.

    Parameters
    ----------
    n_items : int
        N, the labels without an answer when the check began.
    expected : float
        The number of wrong ones that the method expected then.
    number : int, default=1
        The how manieth check of this review it is.
    confidence : float, default=0.95
        With what probability all statements of the review hold.

    Examples
    --------
    >>> check = Check(1000, expected=5)
    >>> check.most_wrong(asked=180, wrong=0), check.left(asked=0, wrong=0, tolerance=0.02)
    (18, 199)
    """

    n_items: int
    expected: float
    number: int = 1
    confidence: float = 0.95

    @property
    def risk(self) -> float:
        """The probability that a statement of this check is false."""
        part = 0.6 if self.number == 1 else 0.4 * 0.5 ** (self.number - 1)
        return (1 - self.confidence) * part

    @cached_property
    def _prior(self) -> np.ndarray[Any, Any]:
        """[n + 1] ln π(W): beta-binomial."""
        w = np.arange(self.n_items + 1)
        mean = min(max(self.expected, 0.5) / max(self.n_items, 1), 0.5)
        a, b = mean * _STRENGTH, (1 - mean) * _STRENGTH
        prior = gammaln(w + a) + gammaln(w[::-1] + b) - self._factorials - self._factorials[::-1]
        return np.asarray(prior - np.logaddexp.reduce(prior))

    @cached_property
    def _factorials(self) -> np.ndarray[Any, Any]:
        """[n + 1] ln n!"""
        return np.asarray(gammaln(np.arange(self.n_items + 1) + 1.0))

    def most_wrong(self, asked: int, wrong: int) -> int:
        """How many of the labels that were not asked for are wrong at most, after so many answers of the check."""
        factorials, rest = self._factorials, self.n_items - asked
        # Of W: from x to N − (m − x), all that the answers allow. ln h, up to a number.
        few = factorials[: rest + 1]
        likelihood = factorials[wrong : rest + wrong + 1] - few
        likelihood = likelihood + (factorials[asked - wrong : self.n_items - wrong + 1] - few)[::-1]
        marginal = np.logaddexp.reduce(self._prior[wrong : rest + wrong + 1] + likelihood)
        return int(np.flatnonzero(marginal - likelihood < -log(self.risk))[-1])

    def done(self, asked: int, wrong: int, tolerance: float) -> bool:
        """Whether at most this part of the labels that were not asked for is wrong."""
        return self.most_wrong(asked, wrong) <= tolerance * (self.n_items - asked)

    @lru_cache(maxsize=4096)  # noqa: B019, a check is small
    def left(self, asked: int, wrong: int, tolerance: float) -> int:
        """About how many further items are to be asked for if all of them are right."""
        more, rest = 0, self.n_items - asked
        while more < rest and not self.done(asked + more, wrong, tolerance):
            more += 1 + more // 50
        return min(more, rest)

    def learning_pays(self, asked: int, wrong: int, tolerance: float, rest: int) -> bool:
        """Whether a new check of the ``rest`` of the labels, after they have learned, needs fewer answers."""
        again = Check(max(rest, 1), self.expected, self.number + 1, self.confidence)
        return wrong > 0 and self.left(asked, wrong, tolerance) > again.left(0, 0, tolerance)


@dataclass(frozen=True)
class RandomCheck:
    """A check that is going on: the items in the order in which they are asked for, and their labels when it began."""

    check: Check
    tolerance: float
    labels: Mapping[int, int]  # item -> the number of its class, or a negative number for unknown
    order: tuple[int, ...]
    n_classes: int  # classes that are named later were unknown when the check began

    @staticmethod
    def begin(check: Check, tolerance: float, labels: Mapping[int, int], n_classes: int, seed: str) -> RandomCheck:
        """Ask in a random order, which the seed decides on every machine alike."""
        order = sorted(labels, key=lambda row: sha256(f"{seed} {row}".encode()).digest())
        return RandomCheck(check, tolerance, labels, tuple(order), n_classes)

    def progress(self, answers: Sequence[int], open_answer: int) -> dict[str, Any]:
        """How far it is, given the answers of all items.

        Items count in their order, up to the first without an answer. Answers to others change nothing but the number
        of labels that the statement is about. Items that were opened again may all be wrong.
        """
        asked = next((n for n, row in enumerate(self.order) if answers[row] == open_answer), len(self.order))
        wrong = sum(self._wrong(self.labels[row], answers[row]) for row in self.order[:asked])
        rest = [row for row, answer in enumerate(answers) if answer == open_answer]
        most = self.check.most_wrong(asked, wrong) + sum(row not in self.labels for row in rest)
        done = most <= self.tolerance * len(rest)
        return {
            "asked": asked,
            "wrong": wrong,
            "most": min(most, len(rest)),
            "rest": len(rest),
            "tolerance": self.tolerance,
            "confidence": self.check.confidence,
            "done": done,
            "left": 0 if done else self.check.left(asked, wrong, self.tolerance),
            "learn": not done and self.check.learning_pays(asked, wrong, self.tolerance, len(rest)),
            "next": self.order[asked] if asked < len(self.order) else -1,
        }

    def _wrong(self, label: int, answer: int) -> bool:
        return answer != label and not (label < 0 and answer >= self.n_classes)
