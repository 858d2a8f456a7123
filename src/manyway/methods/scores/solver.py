"""The scores of a classifier, labelled jointly: calibrate, search, gate, confidence, count.

Every batch is solved by itself. Classes that no item can have leave before anything else, so that they change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from typing import Any

import torch
from torch import Tensor

from manyway.core import Answered, Pile, Solution, Sums, Tally, Tasks, one_hot, tally
from manyway.errors import InputError
from manyway.methods.evidence.prior import log_remainders
from manyway.methods.scores.calibrate import Given, calibrate
from manyway.methods.scores.confidence import exponent
from manyway.methods.scores.constants import ScoreConstants
from manyway.methods.scores.count import odds_of_classes
from manyway.methods.scores.gate import Gate, gate
from manyway.methods.scores.items import InBlocks, InMemory, Items, Part, sample_of
from manyway.methods.scores.review import review_scores
from manyway.methods.scores.search import Found, Limits, search
from manyway.methods.scores.several import several
from manyway.methods.scores.unknown import Groups, Unknown, group, judge

_MOST_ITEMS = 512  # evenly spaced, to learn a few numbers
_MOST_SCORES = 2**18  # of very many classes fewer items are used to learn
_LEAST_ITEMS = 128  # but not fewer than these
_POSSIBLE = -60.0  # a class whose log-probability is below this for all items cannot occur


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a user asks for."""

    temperature: float | None = None  # T; None: the scores and labelled items say it
    open_set: bool = False  # whether items may be of none of the classes
    limits: Limits = field(default_factory=Limits)
    constants: ScoreConstants = field(default_factory=ScoreConstants)
    with_objective: bool = False  # whether the terms of the bound are recorded


@dataclass(frozen=True, kw_only=True, eq=False)
class Answering:
    """From some items to their answers."""

    gated: Gate
    exponent: float
    unknown: Unknown | None  # with ``open_set``
    groups: Groups | None  # of unknown items
    classes: Tensor  # [a] those that some item can have
    n_classes: int  # of all

    def among(self, part: Part) -> Tensor:
        """[b, a] the probabilities of the classes that some item can have."""
        logits = self.gated.logits(part).log_softmax(-1)
        among = (self.exponent * logits).softmax(-1)
        own = one_hot(part.known.clamp_min(0), among.shape[-1], among.dtype)
        among = torch.where((part.known >= 0).unsqueeze(-1), own, among)
        if self.unknown is None:
            return among
        return among * (1 - self.unknown.of(part)).unsqueeze(-1)

    def __call__(self, part: Part) -> Answered:
        """The answers for some items."""
        among = self.among(part)
        probabilities = among.new_zeros(1, len(among), self.n_classes)
        probabilities[0, :, self.classes.to(among.device)] = among
        if self.unknown is None:
            return Answered(probabilities)
        answered = Answered(probabilities, self.unknown.of(part)[None])
        if self.groups is None:
            return answered
        return answered._replace(groups=self.groups.of(part, answered)[None])


@dataclass(frozen=True, kw_only=True, eq=False)
class Labelled:
    """What was found for one batch."""

    answer: Answering
    found: Found
    odds: Tensor  # [1, k] the log-odds of each class to occur; see ``count``

    @property
    def temperature(self) -> float:
        """T."""
        return self.answer.gated.calibration.temperature


def label_scores(tasks: Tasks, options: Options) -> Solution:
    """Label batches of scores (``Tasks.from_scores``)."""
    if tasks.several:
        return _several(tasks, options.constants)
    if tasks.pile is not None:
        return _in_blocks(tasks, tasks.pile, options)
    return _in_memory(tasks, options)


def solve_items(
    items: Items, given: Given, answers: Callable[..., Answering], options: Options
) -> Labelled:
    """Calibrate, search, gate, confidence, count, for one batch.

    Parameters
    ----------
    items : Items
        The items, with the scores of the classes that some item can have.
    given : Given
    answers : callable
        Makes an ``Answering`` of the keywords that are found here.
    options : Options

    Returns
    -------
    Labelled
    """
    constants = options.constants
    calibration = calibrate(sample_of(items), given, options.limits, constants)
    found = search(items, calibration.likelihood, options.limits, with_terms=options.with_objective)
    gated = gate(items, calibration, found, constants)
    unknown = None
    if options.open_set:
        unknown = judge(items, calibration, found)
    answer = answers(
        gated=gated, exponent=exponent(items, gated, constants), unknown=unknown, groups=None
    )
    if unknown is not None:
        answer = replace(answer, groups=group(items, answer))
    odds = torch.full(
        (1, answer.n_classes), -torch.inf, dtype=torch.float64, device=answer.classes.device
    )
    odds[0, answer.classes] = odds_of_classes(
        items, answer.among, calibration, given, constants
    ).to(odds)
    return Labelled(answer=answer, found=found, odds=odds)


def _in_memory(tasks: Tasks, options: Options) -> Solution:
    """All batches, one after another."""
    batches = []
    parts = []
    for number in range(len(tasks)):
        task = tasks[number : number + 1]
        classes = _possible(task, task.query[0].amax(0))
        labels = _labels(task, classes)
        items = InMemory(_columns(classes, task.query)[0], labels.known, labels.sampled)
        batch = solve_items(
            items, _given(task, classes, options), _answering(task, classes), options
        )
        batches.append(batch)
        parts.append(items.each(batch.answer))
    answers = _together(parts)
    more = _common(tasks, batches, tally(answers))
    return Solution(
        answers.probabilities,
        unknown=answers.unknown,
        unknown_groups=answers.groups,
        make_presence=partial(_independent, log_absent(answers), more["tallied"]),
        make_review_scores=partial(_review, answers, tasks.known_labels),
        **more,
    )


def _in_blocks(tasks: Tasks, pile: Pile, options: Options) -> Solution:
    """One batch that is read in blocks."""
    classes = _possible(tasks, pile.extent().high[0, 0])
    labels = _labels(tasks, classes)
    items = InBlocks.of(pile.then(partial(_columns, classes)), labels.known, labels.sampled)
    batch = solve_items(items, _given(tasks, classes, options), _answering(tasks, classes), options)
    reading = items.reading(batch.answer)
    more = _common(tasks, [batch], reading.each(tally))
    return Solution(
        reading,
        make_presence=lambda: _independent(reading.each(log_absent), more["tallied"]),
        **more,
    )


def _several(tasks: Tasks, constants: ScoreConstants) -> Solution:
    """Items that may have several classes."""
    if tasks.pile is not None:
        raise InputError("Items with several classes are labelled in memory; give smaller batches.")
    probabilities = several(tasks.query, tasks.known_labels, tasks.expected, constants)
    answers = Answered(probabilities)
    presence = partial(_independent, log_absent(answers), tally(answers))
    return Solution(probabilities, 1, True, make_presence=presence)


def _together(parts: Sequence[Answered]) -> Answered:
    """The answers for several batches."""
    probabilities = torch.cat([one.probabilities for one in parts])
    unknown = [one.unknown for one in parts if one.unknown is not None]
    groups = [one.groups for one in parts if one.groups is not None]
    if not unknown:
        return Answered(probabilities)
    return Answered(probabilities, torch.cat(unknown), torch.cat(groups))


def _common(tasks: Tasks, batches: Sequence[Labelled], counted: Tally) -> dict[str, Any]:
    """What solutions in memory and in blocks share."""
    odds = torch.cat([one.odds for one in batches])
    temperatures = torch.tensor([one.temperature for one in batches])
    return {
        "n_iter": torch.tensor([one.found.n_iter for one in batches], device=tasks.device),
        "converged": torch.tensor([one.found.converged for one in batches], device=tasks.device),
        "told": {"temperature": temperatures.to(tasks.device, tasks.dtype)},
        "tallied": counted._replace(doubt=odds.to(counted.surest)),
        "objective_parts": _recorded(batches),
        "unknown_medoids": _medoids(batches),
    }


def _recorded(batches: Sequence[Labelled]) -> dict[str, Tensor]:
    """[t, i] the terms of the bound; a batch that has converged repeats its last ones."""
    longest = max(one.found.n_iter for one in batches)
    terms: dict[str, list[Tensor]] = {}
    for batch in batches:
        for name, values in batch.found.terms.items():
            last = values[:, -1:].expand(-1, longest - values.shape[1])
            terms.setdefault(name, []).append(torch.cat([values, last], 1))
    return {name: torch.cat(values) for name, values in terms.items()}


def _medoids(batches: Sequence[Labelled]) -> Tensor | None:
    """[t, g] an item of each group of unknown items, -1 where a batch has fewer groups."""
    found = [one.answer.groups.medoids for one in batches if one.answer.groups is not None]
    if not found:
        return None
    return torch.nn.utils.rnn.pad_sequence(found, batch_first=True, padding_value=-1)


def log_absent(part: Answered) -> Sums:
    """The work that sums ln(1 − p) over items [t, k]."""
    return Sums((log_remainders(part.probabilities).sum(1, dtype=torch.float64),))


def _independent(absent: Sums, counted: Tally) -> Tensor:
    """[t, k] the probability that a class occurs if the errors of items were independent; 1 where that is known."""
    found = -torch.expm1(absent.values[0])
    known = counted.doubt.isposinf() & (counted.surest >= 1)
    return torch.where(known, 1.0, found).to(counted.surest)


def _review(answers: Answered, known: Tensor) -> Tensor:
    """[t, q] which items to ask a person about."""
    outcomes = answers.probabilities
    if answers.unknown is not None:
        outcomes = torch.cat([outcomes, answers.unknown.unsqueeze(-1)], -1)
    return torch.stack(
        [review_scores(one, labels) for one, labels in zip(outcomes, known, strict=True)]
    )


def _possible(task: Tasks, highest: Tensor) -> Tensor:
    """[a] the classes that some item can have, given the highest score of each [k]; two at least.

    A class that an item or a labelled one is known to have is among them.
    """
    possible = highest > _POSSIBLE
    known = task.known_labels[0]
    possible[known[known >= 0]] = True
    possible[task.support_labels[0]] = True
    if int(possible.sum()) < 2:
        possible[highest.topk(2).indices] = True
    return possible.nonzero().squeeze(1)


def _columns(classes: Tensor, rows: Tensor) -> Tensor:
    """[1, b, a] the log-posteriors of some classes [a], normalised, from rows [1, b, k]."""
    return rows[..., classes.to(rows.device)].log_softmax(-1)


def _numbers(classes: Tensor, n_classes: int) -> Tensor:
    """[k + 1] the place of each class among those that some item can have; -1 for the others, and for -1."""
    number = torch.full((n_classes + 1,), -1, dtype=torch.int64, device=classes.device)
    number[classes] = torch.arange(len(classes), device=classes.device)
    return number


@dataclass(frozen=True, kw_only=True, eq=False)
class _Labels:
    """Known labels, and which items a number is fitted to."""

    known: Tensor  # [q] among the classes that some item can have, -1 for none
    sampled: Tensor  # [q]


def _labels(task: Tasks, classes: Tensor) -> _Labels:
    """The known labels of a batch, and a sample that has all of these."""
    known = _numbers(classes, task.n_classes)[task.known_labels[0]]
    sampled = known >= 0
    sampled[:: _step(task.n_query, classes)] = True
    return _Labels(known=known, sampled=sampled)


def _step(n_items: int, classes: Tensor) -> int:
    """Every so many items one is enough to learn a few numbers; see ``_MOST_ITEMS``."""
    most = min(_MOST_ITEMS, max(_LEAST_ITEMS, _MOST_SCORES // len(classes)))
    return max(1, ceil(n_items / most))


def _given(task: Tasks, classes: Tensor, options: Options) -> Given:
    """What is known beside the scores of the batch."""
    expected = task.expected[classes]
    if not bool((expected > 0).any()):  # the list has no class that an item can have
        expected = torch.ones_like(expected)
    return Given(
        labelled=_columns(classes, task.support)[0],
        labels=_numbers(classes, task.n_classes)[task.support_labels[0]],
        expected=expected,
        temperature=options.temperature,
        every=_step(task.support.shape[1], classes),
    )


def _answering(task: Tasks, classes: Tensor) -> Callable[..., Answering]:
    return partial(Answering, classes=classes, n_classes=task.n_classes)
