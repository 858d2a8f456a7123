"""``examine``: what labelled examples can do, before any pile is labelled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, isnan
from typing import Any

import numpy as np
import torch
from scipy.special import betaincinv
from torch import Tensor

from manyway.core import Tasks, as_array, as_features, refuse_masked
from manyway.core.arguments import checks_arguments, shown
from manyway.errors import InputError
from manyway.examination.accuracy import (
    Beaten,
    LearningCurve,
    Rehearsed,
    curve_of,
    fewer_examples,
    rehearsed,
)
from manyway.examination.left_out import LeftOutAnswers, leave_out, represent, suspicion
from manyway.examination.report import (
    BatchForecast,
    ClassForecast,
    Confusion,
    Examination,
    NearCopies,
    Rehearsal,
    ShiftEstimate,
    Suspect,
    probability_of,
)
from manyway.methods import solve

_N_PRESENT = (2, 5, 10, 20)
_FEWEST_CLASSES = 2  # of which an item can be one or another
_N_ITEMS = 60
_FURTHER = (0, 1, 2, 3, 5, 10)  # examples more than now
_CLASSES_OF_FORECAST = 5  # a class is judged in batches of so many
_PRIOR_EXAMPLES = 2.0  # a class counts as if it had so many examples of average difficulty more
_CONFUSED = 0.05  # a class is confused with another if so many of its items look like that
_MOST_CONFUSED = 3
_COPY = 0.05  # the squared distance of near-copies, as a part of that of two examples of a class
_MOST_COPIES = 200  # pairs that are listed
_TOGETHER = 0.5  # ρ, how far items of a class are right or wrong together; chosen with the 5 of ``accuracy``
_BLOCK_ROWS = 1024


@checks_arguments
def examine(
    X: Any,
    y: Any,
    items: Any = None,
    *,
    names: Sequence[str] | None = None,
    n_present: Sequence[int] = _N_PRESENT,
    n_items: int | None = None,
    seed: int = 0,
) -> Examination:
    """What labelled examples can do, before any pile is labelled.

    Every example is left out and judged by the others. This tells how many items of a batch will be right, which
    classes are confused, and which examples look mislabelled. Some are also held out in batches and labelled by
    ``evidence`` itself.

    Parameters
    ----------
    X : array of shape [n, d]
        The features of the examples. NaN: a cell is missing.
    y : sequence of n labels
        Their classes: numbers or names.
    items : array of shape [q, d], optional
        Items to be labelled. How far they are from the examples is then part of the answer, if at least half of the
        classes have a second example; items that lack cells do not count for it.
    names : sequence of n str, optional
        What the examples are called. Default: their numbers.
    n_present : sequence of int, default=(2, 5, 10, 20)
        The numbers of classes in a batch for which right labels are predicted. More than there are classes with a
        second example are left out.
    n_items : int, optional
        The number of items in such a batch. Default: as many as there are items, or 60.
    seed : int, default=0
        Of the rehearsals.

    Returns
    -------
    Examination

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(30, 4)) + 8 * np.eye(4)[np.arange(30) % 3]
    >>> y = np.array(["ant", "bee", "fly"])[np.arange(30) % 3]
    >>> y[3] = "bee"  # it is an ant
    >>> found = examine(X, y)
    >>> found.suspects[0].row, found.suspects[0].looks_like
    (3, 'ant')
    """
    examples = _Examples.of(X, y, names)
    pile = None if items is None else _item_rows(items, len(examples.usable))
    n_items = _batch_size(n_items, pile)
    copies = _near_copies(
        examples.represented,
        examples.labels,
        ~examples.given.isnan().any(1),
        called=examples.called,
        classes=examples.classes,
    )
    if int(examples.counts.max()) == 1:
        return _without_answers(examples.labels, examples.classes, examples.called, copies)
    possible = min(len(examples.classes), n_items)
    wanted = [
        number for number in dict.fromkeys(n_present) if _FEWEST_CLASSES <= number <= possible
    ]
    known = [number for number in wanted if number <= examples.n_known_classes]
    answers = leave_out(examples.represented, examples.labels)
    forecasts = _forecasts(examples, answers, wanted=known, n_items=n_items, seed=seed)
    shift = None
    if pile is not None and examples.can_tell_distances:
        shift = _shift(examples.given, examples.labels, answers, pile[:, examples.usable])
    too_many = tuple(number for number in wanted if number not in known)
    return _examination(examples, answers, forecasts, too_many=too_many, copies=copies, shift=shift)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Examples:
    """Examples with their labels, and their features as each step needs them."""

    labels: Tensor  # [n] numbers of classes
    classes: tuple[str, ...]  # [k] their names
    called: tuple[str, ...]  # [n] what the examples are called
    usable: Tensor  # [d] whether a column can be used
    given: Tensor  # [n, c] usable columns, perhaps with gaps: rehearsals label as the method does
    whole: Tensor  # [n, c] without gaps
    represented: Tensor  # [n, c] in which distances are measured
    counts: Tensor  # [k] examples per class

    @staticmethod
    def of(X: Any, y: Any, names: Sequence[str] | None) -> _Examples:
        """From what the user gave; see ``examine``."""
        features = as_features(X, "X", gaps=True).cpu()
        if features.ndim != 2:
            shape = f"X has the shape {tuple(features.shape)}"
            raise InputError(f"{shape}; give one row of features per example.")
        labels, classes = _numbered(y, len(features))
        usable = _usable_columns(features)
        given = Tasks.from_support(features[None, :, usable], labels[None]).support[0]
        whole = _filled(given)
        return _Examples(
            labels=labels,
            classes=classes,
            called=_names(names, len(features)),
            usable=usable,
            given=given,
            whole=whole,
            represented=represent(whole, labels),
            counts=torch.bincount(labels),
        )

    @property
    def n_known_classes(self) -> int:
        """The number of classes with a second example: only these can be left out, and tell what to expect."""
        return int((self.counts > 1).sum())

    @property
    def can_tell_distances(self) -> bool:
        """Whether distances from the means of classes are known: a few classes are not like all others.

        Where less than half of the classes could be left out, items like the examples seemed far from them.
        """
        return self.n_known_classes >= max(_FEWEST_CLASSES, len(self.classes) / 2)

    @property
    def n_per_class(self) -> int:
        """The usual number of examples of a class that has two."""
        return max(2, int(self.counts[self.counts > 1].double().median()))


@dataclass(frozen=True, eq=False, kw_only=True)
class _Forecasts:
    """What can be expected of batches."""

    batches: tuple[BatchForecast, ...]
    points: Sequence[tuple[int, Beaten]]  # left-out answers, by the number of examples per class
    trial: Rehearsed
    n_items: int  # in a batch


def _forecasts(
    examples: _Examples,
    answers: LeftOutAnswers,
    *,
    wanted: Sequence[int],
    n_items: int,
    seed: int,
) -> _Forecasts:
    """Of batches of ``n_items`` items, of each of the ``wanted`` numbers of classes."""
    n_examples = examples.n_per_class
    points = [(n_examples - 1, Beaten.of(answers, examples.labels))]
    if wanted and n_examples > 2:
        fewer = fewer_examples(examples.whole, examples.labels, n_examples - 1, seed)
        points = [*fewer, *points]
    trial = rehearsed(
        examples.given,
        examples.labels,
        points,
        n_present=wanted,
        n_examples=n_examples,
        seed=seed,
    )
    batches = [
        _forecast(points, trial, n_present=number, n_items=n_items, n_examples=n_examples)
        for number in wanted
    ]
    return _Forecasts(batches=tuple(batches), points=points, trial=trial, n_items=n_items)


def _examination(
    examples: _Examples,
    answers: LeftOutAnswers,
    forecasts: _Forecasts,
    *,
    too_many: tuple[int, ...],
    copies: tuple[NearCopies, ...],
    shift: ShiftEstimate | None,
) -> Examination:
    """All that is known, in the names of the user."""
    labels = examples.labels
    classes = examples.classes
    log_odds = suspicion(answers, labels)
    suspects = _suspects(log_odds, answers, labels, examples.called, classes)
    trial = forecasts.trial
    return Examination(
        n_examples=len(labels),
        n_classes=len(classes),
        examples_per_class=_range_of(examples.counts),
        batches=forecasts.batches,
        too_many=too_many,
        classes=_class_forecasts(
            answers,
            labels,
            classes=classes,
            suspects=suspects,
            points=forecasts.points,
            n_items=forecasts.n_items,
        ),
        suspects=suspects,
        log_odds=tuple(None if isnan(odds) else odds for odds in log_odds.tolist()),
        looks_like=tuple(classes[k] for k in answers.log_probabilities.argmax(1).tolist()),
        copies=copies,
        wrong_labels=answers.error_rate,
        rehearsal=Rehearsal(
            n_batches=trial.n_batches, n_items=trial.n_items, n_right=trial.n_right
        ),
        shift=shift,
        names=examples.called,
        labels=tuple(classes[k] for k in labels.tolist()),
    )


def _numbered(y: Any, n_examples: int) -> tuple[Tensor, tuple[str, ...]]:
    """The number of each example's class, and the names of the classes."""
    refuse_masked(y, "y")
    values = as_array(y, "y").tolist() if isinstance(y, Tensor | np.ndarray) else y
    if not isinstance(values, Iterable):
        raise InputError(f"y is {shown(y)}; give one label for each example.")
    values = list(values)
    if len(values) != n_examples:
        raise InputError(
            f"There are {n_examples} examples and {len(values)} labels; give one for each."
        )
    distinct = sorted(set(values), key=lambda value: (isinstance(value, str), value))
    if len(distinct) < 2:
        raise InputError("The examples are of one class; there is nothing to choose between.")
    number = {value: k for k, value in enumerate(distinct)}
    names = tuple(str(value) for value in distinct)
    return torch.tensor([number[value] for value in values]), names


def _names(names: Sequence[str] | None, n_examples: int) -> tuple[str, ...]:
    if names is None:
        return tuple(str(row) for row in range(n_examples))
    if len(names) != n_examples:
        raise InputError(
            f"There are {n_examples} examples and {len(names)} names; give one for each."
        )
    return tuple(names)


def _range_of(counts: Tensor) -> tuple[int, int, int]:
    return int(counts.min()), int(counts.median()), int(counts.max())


def _forecast(
    points: Sequence[tuple[int, Beaten]],
    trial: Rehearsed,
    *,
    n_present: int,
    n_items: int,
    n_examples: int,
) -> BatchForecast:
    """How many items of a batch will be right."""
    per_class = n_items / n_present
    curve = curve_of(points, n_present, per_class)
    further = tuple(
        (n_examples + more, _moved(curve, n_examples + more, trial)) for more in _FURTHER
    )
    accuracy = further[0][1]
    low, high = _interval(accuracy, n_present, n_items)
    return BatchForecast(
        n_present=n_present,
        n_items=n_items,
        accuracy=accuracy,
        low=low,
        high=high,
        measured=curve.measured,
        further=further,
    )


def _moved(curve: LearningCurve, n_examples: int, trial: Rehearsed) -> float:
    """The accuracy of a curve, moved by what the rehearsal found."""
    accuracy = torch.tensor(curve.accuracy(n_examples), dtype=torch.float64).clamp(1e-6, 1 - 1e-6)
    return float((accuracy.logit() + trial.shift).sigmoid())


def _interval(accuracy: float, n_present: int, n_items: int) -> tuple[float, float]:
    """Between which shares of right items 90 % of batches are, in whole items.

    Items of a class are right or wrong together with the correlation ρ. The share of right items then has a variance
    of p(1 − p) (ρ/K_eff + (1 − ρ)/|Q|), and about a beta distribution.

    >>> _interval(0.9, n_present=5, n_items=100)
    (0.7, 1.0)
    """
    share = min(max(accuracy, 1e-3), 1 - 1e-3)
    size = 1 / (_TOGETHER / n_present + (1 - _TOGETHER) / n_items) - 1
    ends = betaincinv(share * size, (1 - share) * size, np.array([0.05, 0.95]))
    low = min(floor(n_items * ends[0]) / n_items, accuracy)
    high = max(ceil(n_items * ends[1]) / n_items, accuracy)
    return low, high


def _class_forecasts(
    answers: LeftOutAnswers,
    labels: Tensor,
    *,
    classes: tuple[str, ...],
    suspects: tuple[Suspect, ...],
    points: Sequence[tuple[int, Beaten]],
    n_items: int,
) -> tuple[ClassForecast, ...]:
    """What can be expected of each class, those that need examples most first."""
    n_present = min(_CLASSES_OF_FORECAST, len(classes))
    beaten = points[-1][1]
    right = beaten.right(n_present, n_items / n_present)
    average = float(right.mean())
    first_error = 1 - curve_of(points, n_present, n_items / n_present).accuracy(1)
    counts = torch.bincount(labels).tolist()
    looks = torch.zeros(len(classes), len(classes), dtype=torch.float64)
    looks.index_add_(0, beaten.labels, answers.log_probabilities[answers.can_judge].exp())
    found = []
    for k, name in enumerate(classes):
        mine = right[beaten.labels == k]
        share = (float(mine.sum()) + _PRIOR_EXAMPLES * average) / (len(mine) + _PRIOR_EXAMPLES)
        one = ClassForecast(
            name=name,
            n_examples=counts[k],
            found=share if len(mine) else None,
            confused_with=_confused(looks[k] / max(len(mine), 1), k, classes),
            n_suspects=sum(suspect.label == name for suspect in suspects),
        )
        error = first_error if one.found is None else 1 - one.found
        found.append((error / (counts[k] + 1), one))
    return tuple(one for _, one in sorted(found, key=lambda each: -each[0]))


def _confused(looks: Tensor, k: int, classes: tuple[str, ...]) -> tuple[Confusion, ...]:
    """The classes that examples of class k look like, from the shares [k] of all classes."""
    shares = looks.clone()
    shares[k] = 0
    best = shares.topk(min(_MOST_CONFUSED, len(classes)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return tuple(
        Confusion(name=classes[j], share=share) for j, share in pairs if share >= _CONFUSED
    )


def _suspects(
    odds: Tensor,
    answers: LeftOutAnswers,
    labels: Tensor,
    called: tuple[str, ...],
    classes: tuple[str, ...],
) -> tuple[Suspect, ...]:
    """Examples that are more probably mislabelled than not, the most suspicious first."""
    others = answers.log_probabilities.scatter(1, labels.unsqueeze(-1), -torch.inf).argmax(1)
    rows = (odds > 0).nonzero().flatten()
    rows = rows[odds[rows].argsort(descending=True)]
    return tuple(
        Suspect(
            row=row,
            item=called[row],
            label=classes[int(labels[row])],
            looks_like=classes[int(others[row])],
            probability=probability_of(float(odds[row])),
        )
        for row in rows.tolist()
    )


def _near_copies(
    represented: Tensor,
    labels: Tensor,
    is_whole: Tensor,
    *,
    called: tuple[str, ...],
    classes: tuple[str, ...],
) -> tuple[NearCopies, ...]:
    """Pairs of examples that are nearly the same, the nearest first.

    Only whole examples are compared: where the same cells are missing, completed ones agree.
    """
    n_rows = len(represented)
    counts = torch.bincount(labels)
    means = (
        torch.zeros(len(counts), represented.shape[1])
        .to(represented)
        .index_add_(0, labels, represented)
    )
    residuals = represented - (means / counts.unsqueeze(-1))[labels]
    freedom = n_rows - len(counts)
    if freedom > 0:
        typical = 2 * float(residuals.square().sum()) / freedom
    else:  # one example per class: two of different classes stand in
        typical = 2 * float((represented - represented.mean(0)).square().sum()) / max(n_rows - 1, 1)
    lengths = represented.square().sum(1)
    found: list[tuple[float, int, int]] = []
    for first in range(0, n_rows, _BLOCK_ROWS):
        rows = represented[first : first + _BLOCK_ROWS]
        distances = (
            lengths[first : first + _BLOCK_ROWS].unsqueeze(-1) + lengths - 2 * rows @ represented.mT
        )
        both_whole = is_whole[first : first + _BLOCK_ROWS].unsqueeze(-1) & is_whole
        near = ((distances <= _COPY * typical) & both_whole).nonzero()
        later = near[near[:, 0] + first < near[:, 1]]
        found += [
            (float(distances[i, j]), int(i) + first, int(j))
            for i, j in later[:_MOST_COPIES].tolist()
        ]
    return tuple(
        NearCopies(
            rows=(i, j),
            items=(called[i], called[j]),
            labels=(classes[int(labels[i])], classes[int(labels[j])]),
        )
        for _, i, j in sorted(found)[:_MOST_COPIES]
    )


def _batch_size(n_items: int | None, pile: Tensor | None) -> int:
    """The number of items in a batch, where the user may have said it."""
    if n_items is None:
        return _N_ITEMS if pile is None else len(pile)
    if n_items < 1:
        raise InputError(f"n_items is {n_items}; a batch has at least one item.")
    return n_items


def _item_rows(items: Any, n_features: int) -> Tensor:
    """[q, d] the features of the items."""
    rows = as_features(items, "items", gaps=True).cpu()
    if rows.ndim != 2 or rows.shape[1] != n_features:
        raise InputError(
            f"The items have the shape {tuple(rows.shape)}; give {n_features} features per item."
        )
    if not len(rows):
        raise InputError("There is no item; leave the items out, or give at least one.")
    return rows


def _usable_columns(features: Tensor) -> Tensor:
    """[d] whether a column has a number in any example."""
    usable = ~features.isnan().all(0)
    if not bool(usable.any()):
        raise InputError("No column has a number in any example; give the examples some features.")
    return usable


def _filled(features: Tensor) -> Tensor:
    """[n, d] examples with the mean of a column where they lack it.

    The mean of the class would be nearer, and would tell an example that is left out its class.
    """
    return features.where(~features.isnan(), features.nanmean(0))


def _shift(
    features: Tensor, labels: Tensor, answers: LeftOutAnswers, items: Tensor
) -> ShiftEstimate | None:
    """How far items [q, d] are from the examples; None where every item lacks cells."""
    is_whole = ~items.isnan().any(1)
    if not bool(is_whole.any()):
        return None
    tasks = Tasks.from_arrays(features[None], labels[None], items[None])
    probabilities = solve("evidence", tasks).probabilities[0, is_whole].double()
    counts = torch.bincount(labels).double()
    whole_items = represent(_filled(features), labels, tasks.query[0, is_whole])
    distances = answers.metric.distances(whole_items)
    of_items = (probabilities * distances / (1 + 1 / counts)).sum(1).mean()
    of_examples = answers.metric.own_distances[answers.can_judge]
    others = counts[labels[answers.can_judge]] - 1
    ratio = of_items / (of_examples / (1 + 1 / others)).mean().clamp_min(
        torch.finfo(torch.float64).tiny
    )
    return ShiftEstimate(ratio=float(ratio), n_items=int(is_whole.sum()))


def _without_answers(
    labels: Tensor,
    classes: tuple[str, ...],
    called: tuple[str, ...],
    copies: tuple[NearCopies, ...],
) -> Examination:
    """Of one example per class: nothing can be left out."""
    named = tuple(classes[k] for k in labels.tolist())
    return Examination(
        n_examples=len(labels),
        n_classes=len(classes),
        examples_per_class=(1, 1, 1),
        batches=(),
        too_many=(),
        classes=tuple(
            ClassForecast(name=name, n_examples=1, found=None, confused_with=(), n_suspects=0)
            for name in classes
        ),
        suspects=(),
        log_odds=(None,) * len(labels),
        looks_like=named,
        copies=copies,
        wrong_labels=0.0,
        rehearsal=Rehearsal(n_batches=0, n_items=0, n_right=0),
        shift=None,
        names=called,
        labels=named,
    )
