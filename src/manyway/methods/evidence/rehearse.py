"""Rehearse: examples are held out and labelled as a batch, to see whether claims are right here.

How sure answers are rests on a model, and the data of a user may not follow it. Their own examples
can tell. Each of two to six batches has a third of the classes that can spare examples, those used
least so far, with one example each (or a fifth of them). It is labelled with the others as the
support. The final probabilities p_qk of held-out examples are then compared with their classes y_q.
The power ξ that they should have had is

    ξ = argmin Σ_q −ln (p_{q,y_q}^ξ / Σ_k p_qk^ξ)  +  (ln ξ)² / 2σ_ξ²,        e^−2.5 ≤ ξ ≤ 1.

An example whose label is wrong with the probability o (``calibration.wrong_labels``) counts 1 − o.

A batch with n − 1 examples per class is harder than one with n. So the rehearsal may lower claims
and never raises them, and it counts as far as n − 1 examples say something about n: what is left of
the power is ξ^(1 − 1/n), with the harmonic mean n of the examples that are rehearsed.

Random numbers have a fixed seed, and are given to classes and examples by their place in the order
of their distances, so that the order in which they come changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor

from manyway.core import Solution, Tasks, places_in_class, rehearse
from manyway.methods.calibration.left_out import can_leave_out
from manyway.methods.calibration.transforms import QUERY_DEPENDENT
from manyway.methods.evidence.copies import distinct
from manyway.methods.evidence.schedule import Parameters

# Two batches or more, until about so many examples are held out. Each costs a calibration, and more
# of them change the power by less than its standard error: 100 classes have the same one with 2 and
# with 6.
_MOST_BATCHES = 6
_ENOUGH_HELD = 64
_EVERY = 3  # of so many classes one occurs in a batch
_HELD_PART = 5  # of so many examples of a class one is held out
# With more, some of them stand for all: a rehearsal must not take longer than labelling.
_MOST_CLASSES = 100
_MOST_OF_CLASS = 20
_LOG_POWERS = (-2.5, 0.0, 51)  # the values that are tried: lowest, highest, number
_FEWEST = 1e-9  # sure answers: a mean over none of them stays finite
_EQUAL = 1e-9  # distances that differ by less than this part of the largest are equal
_SURE = 0.9  # answers above this probability are told


@dataclass(frozen=True, eq=False, kw_only=True)
class Rehearsed:
    """What was seen when examples were held out, one number per task [t] each."""

    n_items: Tensor  # Σ_q (1 − o_q) of all batches, rounded: how many examples were held out
    right: Tensor  # the part of them that was labelled right
    claimed: Tensor  # the mean probability of their labels
    n_sure: Tensor  # the same of those that had a label with a probability above 0.9
    sure_right: Tensor  # the part of these that was labelled right
    n_listed: Tensor  # how many classes were listed as present, over all batches
    n_absent: Tensor  # how many of these did not occur, if all labels of examples are right
    power: Tensor  # what final probabilities are raised to

    @staticmethod
    def nothing(like: Tensor) -> Rehearsed:
        """That of one task in which nothing could be held out, of the type of ``like``."""
        zero = like.new_zeros(1)
        names = [one.name for one in fields(Rehearsed)]
        return Rehearsed(**(dict.fromkeys(names, zero) | {"power": zero + 1}))

    @staticmethod
    def joined(parts: Sequence[Rehearsed]) -> Rehearsed:
        """What was seen in consecutive tasks."""
        names = [one.name for one in fields(Rehearsed)]
        joined = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
        return Rehearsed(**joined)

    @property
    def told(self) -> dict[str, Tensor]:
        """What is worth telling, a number per task [t] each."""
        return {f"rehearsed_{one.name}": getattr(self, one.name) for one in fields(self)}


# Labels rehearsed batches: what ``evidence`` does with the given parameters.
Label = Callable[[Tasks, Parameters], Solution]


def can_be_rehearsed(tasks: Tasks, parameters: Parameters) -> bool:
    """Whether examples can be held out, and what they teach depends on no later batch."""
    if tasks.scores or tasks.class_table is not None or parameters.precision is not None:
        return False
    if parameters.scale in QUERY_DEPENDENT:
        return False
    return can_leave_out(tasks)


def rehearse_claims(
    tasks: Tasks,
    parameters: Parameters,
    label: Label,
    wrong: Tensor,
) -> Rehearsed | None:
    """Hold examples of each task out, label them, and see whether the claims are right.

    Parameters
    ----------
    tasks : Tasks
        Their queries are not used.
    parameters : Parameters
    label : callable
        Labels batches.
    wrong : Tensor of shape [t, s]
        How probably the label of each example is wrong.

    Returns
    -------
    Rehearsed or None
        None where classes have one example each. One row serves all tasks that share their support.
    """
    if not can_be_rehearsed(tasks, parameters):
        return None
    # A rehearsed batch has no unknown item, and was made as the examples were.
    plain = replace(parameters, open_set=False, adapt=False, rehearse=False)
    n_supports = 1 if tasks.shared_support else len(tasks)
    of_supports = []
    for number in range(n_supports):
        task = tasks[number : number + 1]
        of_supports.append(_rehearse_support(task, plain, label, 1 - wrong[number]))
    return Rehearsed.joined(of_supports)


def _rehearse_support(
    task: Tasks,
    parameters: Parameters,
    label: Label,
    weights: Tensor,
) -> Rehearsed:
    """What is seen when examples of one task are held out, which count as the weights [s] say."""
    found = distinct(task, parameters.constants)
    task = found.tasks
    if found.kept.rows is not None:
        weights = weights[found.kept.rows[0]]
    examples = _in_order(task.support[0], task.support_labels[0])
    counts = torch.bincount(examples.labels)
    mean_count = float(len(counts) / (1 / counts.double()).sum())
    n_held = max(1, round(mean_count) // _HELD_PART)
    n_able = int((counts > n_held).sum())
    if n_able < 2:
        return Rehearsed.nothing(weights)
    n_present = ceil(n_able / _EVERY)
    rehearsal = rehearse(
        examples.labels.cpu(),
        n_batches=_number_of_batches(n_present * n_held),
        n_present=n_present,
        n_held=n_held,
    )
    batches = rehearsal.tasks(task.support[0][examples.rows], task.base_mean)
    held_out = _HeldOut(
        classes=rehearsal.query_labels.to(weights.device),
        weights=weights[examples.rows][rehearsal.query_rows.to(weights.device)],
    )
    solution = label(batches, parameters)
    prior_sd = parameters.constants.rehearsed_sd
    power = _best_power(solution.probabilities, held_out, prior_sd) ** (1 - 1 / mean_count)
    return _compared(solution, held_out, power)


def _number_of_batches(n_items: int) -> int:
    """How many batches of so many items are rehearsed.

    >>> [_number_of_batches(n_items) for n_items in (4, 17, 34)]
    [6, 4, 2]
    """
    return min(max(ceil(_ENOUGH_HELD / n_items), 2), _MOST_BATCHES)


class _HeldOut(NamedTuple):
    """What is known of held-out examples."""

    classes: Tensor  # [t, q]
    weights: Tensor  # [t, q] how probably these are right: 1 − o


def _compared(solution: Solution, held_out: _HeldOut, power: Tensor) -> Rehearsed:
    """Answers for held-out examples, and what they say about claims."""
    claims, labels = solution.probabilities.max(-1)
    weights = held_out.weights.to(claims)
    right = (labels == held_out.classes) * weights
    sure = (claims > _SURE) * weights
    listed = _Listed.of(solution, held_out.classes)
    total = weights.sum().clamp_min(_FEWEST)
    numbers = {
        "n_items": total.round(),
        "right": right.sum() / total,
        "claimed": (claims * weights).sum() / total,
        "n_sure": sure.sum().round(),
        "sure_right": (right * (claims > _SURE)).sum() / sure.sum().clamp_min(_FEWEST),
        "n_listed": torch.tensor(listed.number),
        "n_absent": torch.tensor(listed.absent),
        "power": power,
    }
    return Rehearsed(**{name: number.view(1).to(claims) for name, number in numbers.items()})


class _Listed(NamedTuple):
    """The lists of present classes of some batches."""

    number: int  # of classes that were listed
    absent: int  # of these that did not occur

    @staticmethod
    def of(solution: Solution, classes: Tensor) -> _Listed:
        number = 0
        absent = 0
        for listed, occurring in zip(solution.present(), classes.tolist(), strict=True):
            number += len(listed)
            absent += len(set(listed.tolist()) - set(occurring))
        return _Listed(number=number, absent=absent)


def _best_power(probabilities: Tensor, held_out: _HeldOut, prior_sd: float) -> Tensor:
    """ξ for the probabilities [t, q, k] of held-out examples."""
    tiny = torch.finfo(torch.float64).tiny
    logs = probabilities.double().clamp_min(tiny).log()
    own = logs.gather(-1, held_out.classes.unsqueeze(-1)).squeeze(-1)
    log_powers = torch.linspace(*_LOG_POWERS, dtype=logs.dtype, device=logs.device)
    losses = []
    for log_power in log_powers:
        power = log_power.exp()
        cross_entropy = (logs * power).logsumexp(-1) - own * power
        total = (cross_entropy * held_out.weights).sum()
        losses.append(total + 0.5 * (log_power / prior_sd).square())
    return log_powers[torch.stack(losses).argmin()].exp()


@dataclass(frozen=True, eq=False, kw_only=True)
class _Examples:
    """Some examples of a task, sorted by class; classes are numbered by their place."""

    rows: Tensor  # [n] which examples of the task
    labels: Tensor  # [n] from 0 to K' − 1


def _in_order(features: Tensor, labels: Tensor) -> _Examples:
    """The examples in an order that the order of rows and classes does not change.

    Classes come by the distance of their means from the middle of all, and the examples of a class
    by their distance from its mean. Of many classes, and of many examples of a class, some that are
    evenly spaced in that order are taken.
    """
    rows = _standardised(features.double())
    counts = torch.bincount(labels)
    sums = rows.new_zeros(len(counts), rows.shape[1]).index_add_(0, labels, rows)
    means = sums / counts.unsqueeze(-1)
    middle = means.mean(0)
    from_middle = (rows - middle).square().sum(-1)
    from_mean = (rows - means[labels]).square().sum(-1)
    # Two examples are as far from their mean, and two means from their middle: the second distance
    # decides.
    spread_of_class = from_mean.new_zeros(len(counts)).index_add_(0, labels, from_mean)
    place_of_class = _ordered((means - middle).square().sum(-1), spread_of_class).argsort()
    by_distance = _ordered(from_mean, from_middle)
    order = by_distance[place_of_class[labels[by_distance]].argsort(stable=True)]
    classes = place_of_class[labels[order]]
    sizes = torch.bincount(classes)
    place_in_class = places_in_class(classes, torch.arange(len(order), device=order.device))
    every_class = torch.arange(len(sizes), device=order.device)
    kept_class = _evenly_spaced(every_class, len(sizes), _MOST_CLASSES)
    kept = kept_class[classes] & _evenly_spaced(place_in_class, sizes[classes], _MOST_OF_CLASS)
    renumbered = kept_class.cumsum(0) - 1
    return _Examples(rows=order[kept], labels=renumbered[classes[kept]])


def _standardised(rows: Tensor) -> Tensor:
    """[n, d] rows relative to their mean, in units of the spread of each column."""
    spread = rows.std(0)
    constant = spread <= _EQUAL * rows.abs().amax(0)
    return (rows - rows.mean(0)) / spread.masked_fill(constant, torch.inf)


def _ordered(first: Tensor, second: Tensor) -> Tensor:
    """[n] the order by the first of two keys [n], to nine digits, and then by the second.

    >>> _ordered(torch.tensor([2.0, 1.0, 1.0]), torch.tensor([0.0, 5.0, 4.0])).tolist()
    [2, 1, 0]
    """
    step = _EQUAL * first.amax().clamp_min(torch.finfo(first.dtype).tiny)
    by_second = second.argsort(stable=True)
    return by_second[(first[by_second] / step).round().argsort(stable=True)]


def _evenly_spaced(places: Tensor, number: int | Tensor, most: int) -> Tensor:
    """[n] which of the places are kept, if at most so many of a ``number`` of places are.

    >>> _evenly_spaced(torch.arange(5), 5, 2).tolist()
    [True, False, False, True, False]
    """

    def kept_before(place: Tensor) -> Tensor:
        return (place * most).div(number, rounding_mode="floor")

    return kept_before(places) > kept_before(places - 1)
