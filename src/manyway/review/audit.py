"""When a review is done: a random check of the remaining labels.

Its bound holds whenever one stops.

Questions that a method chooses say nothing about the labels it did not ask for. A check therefore
keeps the labels as they are, draws items at random among the N that have no answer, and counts how
many of the m drawn ones are wrong: x. Of the N labels W are wrong. Under a prior π(W) that was
fixed before the check, the ratio of prior and posterior at the true W,

    E(W) = π(W) / P(W | m, x) = Σ_w π(w) h(x | m, w) / h(x | m, W),
    h(x | m, W) ∝ C(W, x) C(N − W, m − x),

is a martingale with mean 1: it exceeds 1/α at some time with a probability of at most α (Ville). So
all W whose ratio is below 1/α are a confidence set at every time, also at one that was chosen after
a look at the answers, and whatever π is. The set is small where π is near the truth, and a check
pays only where few labels are wrong: with 0.3 none, and else a number that is geometric
(beta-binomial) with a mean of a tenth of what is tolerated. If y further wrong labels are found
among items that were not drawn, at most max W − x − y remain.

Wrong labels that a check finds can teach the method. That ends the check: labels change, and a new
one begins, with items drawn anew. Given all that happened before, its E has mean 1 again, so the
product E₁(W₁) E₂(W₂) … of the checks at their true W is a martingale too, and exceeds 1/α with a
probability of at most α. What an ended check contributes is not known, but at least min_W E(W). The
next check therefore takes α min_W E(W) in the place of α, and the statements of all checks hold
together with 1 − α. A check that found what was expected costs the next one little.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from math import exp, log
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

RISK = 0.05  # the probability that a statement of a review may be false
# The prior: with probability _NONE no label is wrong, otherwise a tenth of what is tolerated is
# expected to be. This takes fewest answers where up to 30 % of the tolerated labels are wrong.
_NONE = 0.3
_SHARE = 10


@dataclass(frozen=True)
class Check:
    """A random check of labels.

    Parameters
    ----------
    n_items : int
        N, the labels without an answer when the check began.
    tolerance : float
        The part of the labels that may be wrong.
    risk : float, default=0.05
        The probability that a statement may be false: α for the first check of a review,
        `next_risk` of the one before for the others.
    of : int, default=0
        What it is a part of: so many labels, those with an answer among them. 0: the labels that
        have no answer when the check ends.
    expected : float, default=0.0
        The tolerance that the prior is made for. 0: ``tolerance``.

    Examples
    --------
    >>> check = Check(1000, tolerance=0.02)
    >>> check.most_wrong(asked=180, wrong=0), check.left(asked=0, wrong=0)
    (15, 170)
    """

    n_items: int
    tolerance: float
    risk: float = RISK
    of: int = 0
    expected: float = 0.0

    @classmethod
    def planned(
        cls, n_items: int, tolerance: float, risk: float, of: int, tolerances: Iterable[float]
    ) -> "Check":
        """The check with its own prior, unless a stricter one takes fewer answers.

        Stricter ones are among ``tolerances``.

        Its prior is taken then: the bound holds for every prior, and what shows the stricter
        statement shows the looser one. So a looser tolerance never takes more answers if all labels
        are right.
        """
        check = cls(n_items, tolerance, risk=risk, of=of)
        fewest = check.left(0, 0)
        for stricter in sorted(tolerances):
            if stricter < tolerance:
                candidate = replace(check, expected=stricter)
                needed = replace(candidate, tolerance=stricter).left(0, 0)
                if needed < fewest:
                    check = candidate
                    fewest = needed
        return check

    @cached_property
    def _prior(self) -> np.ndarray[Any, Any]:
        """[n + 1] ln π(W)."""
        tolerance = self.expected or self.tolerance
        many = _SHARE * self.n_items / (tolerance * (self.of or self.n_items))
        prior = gammaln(np.arange(self.n_items + 1)[::-1] + max(many, 1.0)) - self._factorials[::-1]
        prior = prior - np.logaddexp.reduce(prior) + log(1 - _NONE)
        prior[0] = np.logaddexp(prior[0], log(_NONE))
        return np.asarray(prior)

    @cached_property
    def _factorials(self) -> np.ndarray[Any, Any]:
        """[n + 1] ln n!"""
        return np.asarray(gammaln(np.arange(self.n_items + 1) + 1.0))

    def most_wrong(self, asked: int, wrong: int) -> int:
        """How many of the labels that were not asked for are wrong at most.

        It is so after so many answers of the check.
        """
        return int(np.flatnonzero(self._evidence(asked, wrong) < -log(self.risk))[-1])

    def next_risk(self, asked: int, wrong: int) -> float:
        """The risk of the next check, if this one ends after so many answers."""
        return self.risk * exp(float(self._evidence(asked, wrong).min()))

    def _evidence(self, asked: int, wrong: int) -> np.ndarray[Any, Any]:
        """[n − m + 1] ln E(W) of all W that the answers allow.

        These are those from x to N − (m − x).
        """
        factorials = self._factorials
        rest = self.n_items - asked
        few = factorials[: rest + 1]
        likelihood = factorials[wrong : rest + wrong + 1] - few  # ln h, up to a number
        likelihood = likelihood + (factorials[asked - wrong : self.n_items - wrong + 1] - few)[::-1]
        prior = self._prior[wrong : rest + wrong + 1]
        return np.asarray(np.logaddexp.reduce(prior + likelihood) - likelihood)

    def tolerated(self, rest: int) -> int:
        """How many of the ``rest`` of the labels may be wrong."""
        return int(self.tolerance * (self.of or rest))

    def done(self, asked: int, wrong: int) -> bool:
        """Whether no more labels than are tolerated are wrong."""
        return self.most_wrong(asked, wrong) <= self.tolerated(self.n_items - asked)

    def left(self, asked: int, wrong: int) -> int:
        """About how many further items are to be asked for if all of them are right."""
        answered = np.arange(asked, self.n_items + 1)
        whole = 0 * answered + self.of if self.of else self.n_items - answered
        # As many labels may be wrong for some answers on end: done are first the last of them.
        lasts = answered[np.diff(np.floor(self.tolerance * whole), append=-1) < 0]
        last = bisect_left(lasts, True, key=lambda at: self.done(int(at), wrong))
        these = range(int(lasts[last - 1]) + 1 if last else asked, int(lasts[last]))
        return these.start - asked + bisect_left(these, True, key=lambda at: self.done(at, wrong))

    def learning_pays(self, asked: int, wrong: int, rest: int) -> bool:
        """Whether a new check after learning needs fewer answers.

        It would be of the ``rest`` of the labels.
        """
        again = replace(self, n_items=max(rest, 1), risk=self.next_risk(asked, wrong))
        return wrong > 0 and self.left(asked, wrong) > again.left(0, 0)


class CheckProgress(NamedTuple):
    """How far a check is.

    Parameters
    ----------
    asked : int
        The answers of the check.
    wrong : int
        The labels among them that were wrong.
    most : int
        So many of the labels without an answer are wrong at most.
    rest : int
        The labels without an answer.
    tolerance : float
        The part of the labels that may be wrong.
    of : int
        What it is a part of: so many labels, or 0 for those without an answer.
    confidence : float
        The probability that no statement of the review is false.
    done : bool
        Whether no more labels than are tolerated are wrong.
    left : int
        About how many further answers it needs.
    learn : bool
        Whether it is better to end it, so that all labels learn from its answers.
    next : int
        The item that it asks for; -1 where none is left.
    """

    asked: int
    wrong: int
    most: int
    rest: int
    tolerance: float
    of: int
    confidence: float
    done: bool
    left: int
    learn: bool
    next: int

    def sentence(self) -> str:
        """What the answers show, whether or not it is what was hoped for."""
        answers = "1 answer" if self.asked == 1 else f"{self.asked:,} answers"
        if self.rest == 0:
            return f"The check is over after {answers}: every item is reviewed."
        labels = "the 1 label" if self.rest == 1 else f"the {self.rest:,} labels"
        bound = f"at most {self.most:,} of {labels} without an answer are wrong"
        confidence = f"with {100 * self.confidence:.0f} % confidence"
        return f"The check is over after {answers}: {confidence} {bound}."


class RandomCheck(NamedTuple):
    """A check that is going on.

    It has the items in the order in which they are asked for, and their labels when it began.
    """

    check: Check
    labels: Mapping[int, int]  # item -> the number of its class, or a negative number for unknown
    order: tuple[int, ...]
    n_classes: int  # classes that are named later were unknown when the check began

    @staticmethod
    def begin(check: Check, labels: Mapping[int, int], n_classes: int, seed: str) -> "RandomCheck":
        """Ask in a random order, which the seed decides on every machine alike."""
        order = sorted(labels, key=lambda row: sha256(f"{seed} {row}".encode()).digest())
        return RandomCheck(check, labels, tuple(order), n_classes)

    def progress(self, answers: Sequence[int], open_answer: int) -> CheckProgress:
        """How far it is, given the answers of all items.

        Items count in their order, up to the first without an answer. Wrong labels that answers to
        others have shown are no longer among the rest. Items that were opened again may all be
        wrong.
        """
        asked, wrong = self.counts(answers, open_answer)
        rest = [row for row, answer in enumerate(answers) if answer == open_answer]
        others = [row for row in self.order[asked:] if answers[row] != open_answer]
        found = sum(self._wrong(self.labels[row], answers[row]) for row in others)
        most = max(self.check.most_wrong(asked, wrong) - found, 0)
        most += sum(row not in self.labels for row in rest)
        done = most <= self.check.tolerated(len(rest))
        return CheckProgress(
            asked=asked,
            wrong=wrong,
            most=min(most, len(rest)),
            rest=len(rest),
            tolerance=self.check.tolerance,
            of=self.check.of,
            confidence=1 - RISK,
            done=done,
            left=0 if done else self.check.left(asked, wrong),
            learn=not done and self.check.learning_pays(asked, wrong, len(rest)),
            next=self.order[asked] if asked < len(self.order) else -1,
        )

    def counts(self, answers: Sequence[int], open_answer: int) -> tuple[int, int]:
        """How many items are answered in their order, and how many of their labels were wrong."""
        asked = 0
        while asked < len(self.order) and answers[self.order[asked]] != open_answer:
            asked += 1
        return asked, sum(self._wrong(self.labels[row], answers[row]) for row in self.order[:asked])

    def _wrong(self, label: int, answer: int) -> bool:
        return answer != label and not (label < 0 and answer >= self.n_classes)
