"""Label the items of a review again, with what is known about some of them."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from manyway.core import Solution, Tasks
from manyway.errors import InputError
from manyway.labelling.batch import AT_MOST_BYTES, Place, features_batch
from manyway.methods import DEFAULT_METHOD, get_method
from manyway.methods.evidence.solver import Placed, place_once
from manyway.review.data import ReviewData

SUGGESTIONS = 9  # per item: as many as there are digit keys


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
        If examples and items do not fit together, or are too many to be labelled in memory again and again.
    """

    def __init__(self, data: ReviewData, first: Solution | None = None) -> None:
        n_classes = len(data.catalogue)
        if 4 * len(data.items) * n_classes > AT_MOST_BYTES:
            many = f"{len(data.items)} items and {n_classes} classes are too many to be reviewed together"
            raise InputError(f"{many}; cut the items into smaller batches.")
        self.data, self._first = data, first
        self.tasks, self.classes = self._problem()
        self._number = {name: k for k, name in enumerate(self.classes)}
        self._earliest: list[Solution] = []  # its near-copies are those of all answers, and are counted once

    def _problem(self) -> tuple[Tasks, tuple[str, ...]]:
        data = self.data
        if data.scores:
            classes = data.catalogue
            number = {name: k for k, name in enumerate(classes)}
            labels = torch.tensor([[number[name] for name in data.examples.labels or ()]], dtype=torch.int64)
            support, query = (rows.rows(0, len(rows))[None] for rows in (data.examples, data.items))
            return Tasks.from_scores(query, support=support, support_labels=labels), classes
        here = Place("cpu", in_blocks=False)
        with features_batch(data.examples, data.items, here, class_names=data.class_names) as batch:
            return batch.tasks, batch.classes

    def __call__(self, known: Mapping[int, str | None]) -> tuple[tuple[str, ...], Solution]:
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
        firsts: dict[str, int] = {}  # a class without examples has the first item that it was given to
        for row, label in known.items():
            if label is not None and label not in self._number:
                firsts.setdefault(label, row)
        # Unknown items take no part: they must be given no label, and must not move a class. A classifier has no scores
        # for new classes.
        left_out = {row for row, label in known.items() if label is None} | set(firsts.values())
        if self.data.scores:
            left_out |= {row for row, label in known.items() if label in firsts}
            firsts = {}
        number = self._number | {name: len(self._number) + at for at, name in enumerate(firsts)}
        pile = [row for row in range(len(self.data.items)) if row not in left_out]
        classes = tuple(number)
        labels = torch.tensor([[-1 if known.get(row) is None else number[str(known[row])] for row in pile]])
        n_items = len(self.data.items)
        if not pile or bool((labels >= 0).all()):
            zeros = torch.zeros(1, n_items, len(classes))  # where no item is open, answers say nothing
            return classes, Solution(zeros, torch.zeros(1), True, make_review_scores=lambda: zeros[..., 0] - 1)
        params: dict[str, Any] = {"open_set": True} if self.data.open_set else {}
        if self._placed is not None:
            params["prepared"] = self._placed.with_classes(list(firsts.values()), pile)
        tasks = replace(self.tasks, n_classes=len(classes), query_table=self.tasks.query_table[:, pile])
        found = get_method(DEFAULT_METHOD)(tasks.with_known(labels), **params)
        self._earliest = self._earliest or [found]
        return classes, _spread_out(found, pile, n_items, self._earliest[0])

    @cached_property
    def _placed(self) -> Placed | None:
        """What is learned from the examples, and the items where distances are measured: once, for all answers."""
        with torch.no_grad():
            return None if self.data.scores else place_once(self.tasks, self.data.open_set)

    def nearest(self, row: int, count: int) -> list[int]:
        """The examples whose features have the highest cosine similarity with those of an item, nearest first."""
        similarity = self._directions @ (self.tasks.query_table[0, row] - self._mean)
        return [int(at) for at in similarity.argsort(descending=True, stable=True)[:count]]

    @cached_property
    def _directions(self) -> Tensor:
        """[s, d] the examples without their mean, of length 1."""
        return torch.nn.functional.normalize(self.tasks.support[0] - self._mean, dim=1)

    @cached_property
    def _mean(self) -> Tensor:
        base_mean = self.tasks.base_mean
        return self.tasks.support[0].mean(0) if base_mean is None else base_mean


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
    later = {"make_review_scores": lambda: spread(found.review_scores, -1), "make_copies": lambda: earliest.copies}
    return found.changed(**answers, **later, tallied=found.tallied, unknown_medoids=None)
