"""Label the items of a review again, with what is known about some of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyway.core import Solution, Tasks
from manyway.errors import InputError
from manyway.labelling.batch import AT_MOST_BYTES, Place, features_batch
from manyway.methods import DEFAULT_METHOD, get_method
from manyway.methods.evidence.calibrate import LearnedBatch
from manyway.methods.evidence.solver import learn_for_review
from manyway.review.data import ReviewData

SUGGESTIONS = 9  # per item: as many as there are digit keys
# Of the median likeness: what is less like the middle of its group is left out of it at first.
_STRAY = 0.8

# The answers so far: the class of an item, or None for an unknown item.
Known = Mapping[int, str | None]


class Likeness(NamedTuple):
    """How alike the items of a group are.

    Parameters
    ----------
    medoid : int
        The item in the middle.
    values : list of float
        How like the middle each item is, from 0 to 1, which is the medoid.
    threshold : float
        What is less like the middle is probably a stray.
    """

    medoid: int
    values: list[float]
    threshold: float


class _Pile(NamedTuple):
    """The items that take part in the next search."""

    rows: list[int]
    classes: tuple[str, ...]  # those without examples last
    firsts: list[int]  # for each class without examples the item that begins it
    labels: Tensor  # [1, rows] the number of the class of each item, -1 where it is not known


class Relabel:
    """Labels all items jointly, given the answers so far.

    Parameters
    ----------
    data : ReviewData
        What is reviewed.
    first : Solution, optional
        What was found for the items before any answer, so that it is not found again.

    Raises
    ------
    InputError
        If examples and items do not fit together, or are too many to be labelled in memory again
        and again.
    """

    def __init__(self, data: ReviewData, first: Solution | None = None) -> None:
        n_classes = len(data.catalogue)
        if 4 * len(data.items) * n_classes > AT_MOST_BYTES:
            many = f"{len(data.items)} items and {n_classes} classes are too many"
            hint = "cut the items into smaller batches"
            raise InputError(f"{many} to be reviewed together; {hint}.")
        self.data = data
        self._first = first
        self.tasks, self.classes = self._problem()
        self._number = {name: k for k, name in enumerate(self.classes)}
        # Its near-copies are those of all answers, and are counted once.
        self._earliest: Solution | None = None

    def _problem(self) -> tuple[Tasks, tuple[str, ...]]:
        data = self.data
        if data.scores:
            classes = data.catalogue
            number = {name: k for k, name in enumerate(classes)}
            numbers = [number[name] for name in data.examples.labels or ()]
            labels = torch.tensor([numbers], dtype=torch.int64)
            support = data.examples.rows(0, len(data.examples))[None]
            query = data.items.rows(0, len(data.items))[None]
            return Tasks.from_scores(query, support=support, support_labels=labels), classes
        here = Place("cpu", in_blocks=False)
        with features_batch(data.examples, data.items, here, class_names=data.class_names) as batch:
            return batch.tasks, batch.classes

    def __call__(self, known: Known) -> tuple[tuple[str, ...], Solution]:
        """Label the items.

        Parameters
        ----------
        known : mapping of int to str or None
            The answers so far: the class of an item, or None for an unknown item.

        Returns
        -------
        classes : tuple of str
            The classes, those without examples last.
        solution : Solution
            For all items; that of known items has no meaning.
        """
        if not known and self._first is not None:
            return self.classes, self._first
        n_items = len(self.data.items)
        pile = self._pile(known)
        if bool((pile.labels >= 0).all()):
            # Where no item is open, answers say nothing.
            zeros = torch.zeros(1, n_items, len(pile.classes))
            done = Solution(
                zeros, torch.zeros(1), True, make_review_scores=lambda: zeros[..., 0] - 1
            )
            return pile.classes, done
        params: dict[str, Any] = {}
        if self.data.open_set:
            params["open_set"] = True
        if self._placed is not None:
            params["prepared"] = self._placed.with_classes(pile.firsts, pile.rows)
        queries = self.tasks.query_table[:, pile.rows]
        tasks = replace(self.tasks, n_classes=len(pile.classes), query_table=queries)
        found = get_method(DEFAULT_METHOD)(tasks.with_known(pile.labels), **params)
        if self._earliest is None:
            self._earliest = found
        return pile.classes, _spread_out(found, pile.rows, n_items, self._earliest)

    def _pile(self, known: Known) -> _Pile:
        """The items that take part.

        Unknown ones do not: they get no label, and must not move a class.
        """
        new: dict[str, list[int]] = {}  # classes without examples
        for row, label in known.items():
            if label is not None and label not in self._number:
                new.setdefault(label, []).append(row)
        left_out = {row for row, label in known.items() if label is None}
        if self.data.scores:  # a classifier has no scores for new classes
            left_out.update(row for rows in new.values() for row in rows)
            new = {}
        firsts = [self.central(rows)[0] for rows in new.values()]
        left_out.update(firsts)
        number = dict(self._number)
        for name in new:
            number[name] = len(number)
        rows = [row for row in range(len(self.data.items)) if row not in left_out]
        labels = torch.full((1, len(rows)), -1)
        for at, row in enumerate(rows):
            label = known.get(row)
            if label is not None:
                labels[0, at] = number[label]
        return _Pile(rows=rows, classes=tuple(number), firsts=firsts, labels=labels)

    @cached_property
    def _placed(self) -> LearnedBatch | None:
        """What is learned from the examples, and the items where distances are measured.

        It is computed once, for all answers.
        """
        if self.data.scores:
            return None
        with torch.no_grad():
            return learn_for_review(self.tasks, self.data.open_set)

    def nearest(self, row: int, count: int) -> list[int]:
        """The examples nearest to an item, nearest first.

        Their features have the highest cosine similarity with those of the item.
        """
        similarity = self._examples @ self._items[row]
        return [int(at) for at in similarity.argsort(descending=True, stable=True)[:count]]

    def central(self, rows: Sequence[int]) -> list[int]:
        """Items in the order of their likeness with the mean of all of them.

        Those without features come last.
        """
        read = [row for row in rows if row < len(self._items)]
        others = [row for row in rows if row >= len(self._items)]
        similarity = self._items[read] @ self._items[read].sum(0)
        order = similarity.argsort(descending=True, stable=True).tolist()
        return [read[at] for at in order] + others

    def likeness(self, rows: Sequence[int], weights: Sequence[float]) -> Likeness:
        """How like the weighted mean of a group each of its items is.

        It is the cosine of their features.
        """
        read = [at for at, row in enumerate(rows) if row < len(self._items)]
        values = [0.0] * len(rows)
        if not read:
            return Likeness(medoid=rows[0], values=values, threshold=0.0)
        directions = self._items[[rows[at] for at in read]]
        weight = torch.tensor([weights[at] for at in read])
        mean = torch.nn.functional.normalize(weight @ directions, dim=0)
        similarity = (directions @ mean).clamp_min(0)
        relative = similarity / similarity.max().clamp_min(1e-12)
        for at, value in zip(read, relative.tolist(), strict=True):
            values[at] = value
        medoid = rows[read[int(relative.argmax())]]
        return Likeness(medoid=medoid, values=values, threshold=_STRAY * float(relative.median()))

    @cached_property
    def _examples(self) -> Tensor:
        """[s, d] the examples without their mean, of length 1."""
        return _directions(self.tasks.support[0], self._mean)

    @cached_property
    def _items(self) -> Tensor:
        """[q, d] the same of the items."""
        return _directions(self.tasks.query_table[0], self._mean)

    @cached_property
    def _mean(self) -> Tensor:
        if self.tasks.base_mean is not None:
            return self.tasks.base_mean
        # Scores without examples, and classes that are known by name.
        if self.tasks.support.shape[1] == 0:
            return self.tasks.query_table[0].nanmean(0).nan_to_num(0.0)
        return self.tasks.support[0].nanmean(0).nan_to_num(0.0)


def _directions(rows: Tensor, mean: Tensor) -> Tensor:
    """[n, d] rows without their mean, of length 1; a missing feature is the mean."""
    return torch.nn.functional.normalize((rows - mean).nan_to_num(0.0), dim=1)


def _spread_out(found: Solution, rows: list[int], n_items: int, earliest: Solution) -> Solution:
    """Answers for some items as answers for all, with the near-copies of the earliest ones."""
    where = torch.tensor(rows)

    def spread(values: Tensor | None, fill: float) -> Any:
        if values is None:
            return None
        wide = values.new_full((1, n_items, *values.shape[2:]), fill)
        wide[:, where] = values
        return wide

    fills = {"probabilities": 0, "unknown": 0, "unknown_groups": -1}
    answers = {name: spread(getattr(found, name), fill) for name, fill in fills.items()}
    later = {
        "make_review_scores": lambda: spread(found.review_scores, -1),
        "make_copies": lambda: earliest.copies,
    }
    return found.changed(**answers, **later, tallied=found.tallied, unknown_medoids=None)
