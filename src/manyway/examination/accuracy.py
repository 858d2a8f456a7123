"""How many items of a batch will be right, from examples that are left out, and what further examples would bring.

An example that is left out has b classes that look more like it than its own. Alone, it is right if b = 0. If it were
known which K_eff of the K classes occur, it would be right if none of the b is among the other K_eff − 1, which has the
probability C(K−1−b, K_eff−1) / C(K−1, K_eff−1). A batch with H items per class lies between the two: the more items a
class has, the better the batch shows that it occurs. The part that is still missing is 1 / (1 + (H/5)²). The number 5
was chosen on every other class of the sets intents, birds and letters with 3 to 20 examples.

A learning curve, error = a + b/n, is fitted to the errors with fewer examples, from half of them on. It corrects for
the example that was left out, and says what further examples would bring. A rehearsal with the method itself
(``rehearsed``) says whether the method does better or worse than these distances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import torch
from torch import Tensor

from manyway.core import can_be_held_out, places_in_class, rehearse
from manyway.core.random import keys, uniform
from manyway.examination.left_out import LeftOutAnswers, leave_out, represent
from manyway.methods import solve

# items of a class with which a batch shows half of what a list of the classes would
_ITEMS_THAT_SHOW = 5.0
_MOST_SIZES = 4  # numbers of examples at which the learning curve is measured
_REHEARSED_ITEMS = 120  # per number of classes
_MOST_BATCHES = 24
_MOST_NUMBERS = 2**31  # features of all rehearsed supports together
_LEAST = 0.002  # an error rate that a few hundred examples cannot tell from none
_DRAWS = 3  # the first stream of random numbers that chooses smaller sets of examples
_MOST_DRAWS = 4  # of smaller sets, where there are few examples
_ENOUGH_ROWS = 800  # examples in all draws, more or less


@dataclass(frozen=True, eq=False, kw_only=True)
class Beaten:
    """How many other classes look more like a left-out example than its own."""

    numbers: Tensor  # [m] b, of the examples that can be left out
    labels: Tensor  # [m] their classes
    n_classes: int

    @staticmethod
    def of(answers: LeftOutAnswers, labels: Tensor) -> Beaten:
        own = answers.log_probabilities.gather(1, labels.unsqueeze(-1))
        numbers = (answers.log_probabilities > own).sum(1)
        return Beaten(
            numbers=numbers[answers.can_judge],
            labels=labels[answers.can_judge],
            n_classes=answers.log_probabilities.shape[1],
        )

    @staticmethod
    def joined(parts: Sequence[Beaten]) -> Beaten:
        """Those of several draws."""
        return Beaten(
            numbers=torch.cat([part.numbers for part in parts]),
            labels=torch.cat([part.labels for part in parts]),
            n_classes=parts[0].n_classes,
        )

    def right(self, n_present: int, items_per_class: float) -> Tensor:
        """[m] how probable it is that each example is right in a batch of so many classes."""
        alone = (self.numbers == 0).double()
        missing = 1 / (1 + (items_per_class / _ITEMS_THAT_SHOW) ** 2)
        among = right_among(self.numbers, self.n_classes, n_present)
        return among - (among - alone) * missing


def right_among(beaten: Tensor, n_classes: int, n_present: int) -> Tensor:
    """[m] the probability that none of the classes that beat an example is among n_present − 1 random others.

    >>> right_among(torch.tensor([0, 1, 3]), n_classes=4, n_present=2).tolist()
    [1.0, 0.6666666666666666, 0.0]
    """
    steps = torch.arange(n_present - 1, dtype=torch.float64)
    others = n_classes - 1 - beaten.double().unsqueeze(-1)
    return ((others - steps).clamp_min(0) / (n_classes - 1 - steps)).prod(-1)


@dataclass(frozen=True)
class LearningCurve:
    """error = a + b/n, for the number n of examples per class."""

    floor: float  # a
    slope: float  # b
    measured: tuple[tuple[int, float], ...]  # numbers of examples, and accuracies with them

    def accuracy(self, n_examples: float) -> float:
        """With so many examples per class."""
        return 1 - min(1.0, self.floor + self.slope / n_examples)

    @staticmethod
    def through(measured: Sequence[tuple[int, float]], n_tested: int) -> LearningCurve:
        """The curve through accuracies at some numbers of examples; more examples never make it worse.

        Each accuracy is a mean over ``n_tested`` examples. Where these are few, the slope is near half of the error,
        as if one example had shown that half of it is for good.

        >>> curve = LearningCurve.through([(1, 0.7), (2, 0.8), (4, 0.85)], n_tested=10**6)
        >>> round(curve.floor, 3), round(curve.slope, 3), round(curve.accuracy(10), 3)
        (0.1, 0.2, 0.88)
        """
        inverse = torch.tensor([1 / n for n, _ in measured], dtype=torch.float64)
        errors = torch.tensor([1 - accuracy for _, accuracy in measured], dtype=torch.float64)
        usual = max(0.5 * float(errors[-1]), _LEAST)
        centred = inverse - inverse.mean()
        mean = float(errors.mean())
        by_chance = max(mean * (1 - mean), _LEAST) / n_tested
        # 1/variance of the slope that was measured
        known = float(centred.square().sum()) / by_chance
        seen = float((centred * errors).sum()) / by_chance
        slope = (seen + 1 / usual) / (known + 1 / usual**2)
        steepest = mean / float(inverse.mean())  # with a = 0
        slope = min(max(slope, 0.0), steepest)
        return LearningCurve(max(mean - slope * float(inverse.mean()), 0.0), slope, tuple(measured))


def fewer_examples(
    features: Tensor, labels: Tensor, n_examples: int, seed: int
) -> list[tuple[int, Beaten]]:
    """Left-out answers with smaller numbers of examples per class: from half of ``n_examples`` to one less.

    Leaving one out of m + 1 examples tells how m examples do.
    """
    first = max(1, n_examples // 2)
    last = n_examples - 1
    sizes = sorted(
        {round(first + (last - first) * step / (_MOST_SIZES - 1)) for step in range(_MOST_SIZES)}
    )
    n_draws = max(1, min(_MOST_DRAWS, _ENOUGH_ROWS // len(labels)))
    found = []
    for size in sizes:
        parts = []
        for draw in range(n_draws):
            order = uniform(keys(seed, _DRAWS + draw, torch.arange(len(labels))), size)
            rows = places_in_class(labels, order) <= size
            some = labels[rows]
            parts.append(Beaten.of(leave_out(represent(features[rows], some), some), some))
        found.append((size, Beaten.joined(parts)))
    return found


@dataclass(frozen=True)
class Rehearsed:
    """What the method got right in rehearsals, beside what left-out examples promise for the same batches."""

    n_batches: int
    n_items: int
    n_right: int
    promised: float  # the number of items that was expected to be right

    @property
    def shift(self) -> float:
        """What to add to the logits of accuracies, as far as the difference is more than chance."""
        if not self.n_items:
            return 0.0
        accuracy = min(max(self.n_right / self.n_items, _LEAST), 1 - _LEAST)
        expected = min(max(self.promised / self.n_items, _LEAST), 1 - _LEAST)
        difference = log(accuracy / (1 - accuracy)) - log(expected / (1 - expected))
        by_chance = 1 / (self.n_items * accuracy * (1 - accuracy))
        return difference * max(0.0, 1 - by_chance / max(difference**2, by_chance))


def rehearsed(
    features: Tensor,
    labels: Tensor,
    curve_points: Sequence[tuple[int, Beaten]],
    *,
    n_present: Sequence[int],
    n_examples: int,
    seed: int,
) -> Rehearsed:
    """Hold out examples, label them as batches with ``evidence``, and count what is right.

    A quarter of the examples per class is held out, at least one, and every class keeps so many fewer.
    """
    n_held = max(1, n_examples // 4)
    n_kept = max(1, n_examples - n_held)
    n_eligible = int(can_be_held_out(labels, n_held=n_held, n_kept=n_kept).sum())
    n_batches = n_right = n_items = 0
    promised = 0.0
    for number in n_present:
        if number > n_eligible:
            continue
        count = min(_MOST_BATCHES, -(-_REHEARSED_ITEMS // (number * n_held)))
        count = max(1, min(count, _MOST_NUMBERS // features.numel()))
        drawn = rehearse(
            labels, n_batches=count, n_present=number, n_held=n_held, n_kept=n_kept, seed=seed
        )
        found = solve("evidence", drawn.tasks(features)).labels.cpu()
        n_batches += count
        n_items += found.numel()
        n_right += int((found == drawn.query_labels).sum())
        curve = curve_of(curve_points, number, n_held)
        promised += found.numel() * curve.accuracy(n_kept)
    return Rehearsed(n_batches, n_items, n_right, promised)


def curve_of(
    points: Sequence[tuple[int, Beaten]], n_present: int, items_per_class: float
) -> LearningCurve:
    """The learning curve for batches of so many classes, with so many items of each."""
    measured = [
        (size, float(beaten.right(n_present, items_per_class).mean())) for size, beaten in points
    ]
    return LearningCurve.through(measured, n_tested=len(points[-1][1].numbers))
