"""Label the items of a review again, with what is known about some of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from manyway.errors import InputError
from manyway.estimators import Evidence
from manyway.files.items import Items, match_columns
from manyway.labelling.label import check_items

SUGGESTIONS = 9  # per item: as many as there are digit keys
_AT_MOST_BYTES = 2**30  # of probabilities


@dataclass(frozen=True, eq=False)
class Suggestions:
    """What is suggested for each item.

    Parameters
    ----------
    classes : tuple of str
        [k] the classes that ``best`` counts.
    best : Tensor of shape [n, m]
        The most probable classes of each item, most probable first.
    probabilities : Tensor of shape [n, m]
        Their probabilities.
    unknown : Tensor of shape [n], optional
        The probability that the item is unknown.
    unknown_groups : Tensor of shape [n], optional
        The group of unknown items that an item belongs to; -1 for items of a known class.
    order : tuple of int
        The items that are not known, those first whose answer is expected to help most.
    """

    classes: tuple[str, ...]
    best: Tensor
    probabilities: Tensor
    unknown: Tensor | None = None
    unknown_groups: Tensor | None = None
    order: tuple[int, ...] = ()


class Relabel:
    """Labels all items jointly, given the answers so far.

    Parameters
    ----------
    examples : Items
        The labelled examples.
    items : Items
        The items to label.
    open_set : bool, default=False
        Whether items may be unknown.

    Raises
    ------
    InputError
        If they do not fit together, or are too many to be labelled in memory again and again.
    """

    def __init__(self, examples: Items, items: Items, *, open_set: bool = False) -> None:
        items = match_columns(examples, items)
        self.classes, _ = check_items(examples, items)
        if 4 * len(items) * len(self.classes) > _AT_MOST_BYTES:
            raise InputError(
                f"{len(items)} items and {len(self.classes)} classes are too many to be reviewed together; cut the "
                "items into smaller batches."
            )
        self.examples, self.items, self.open_set = examples, items, open_set
        self._support = examples.rows(0, len(examples)).numpy()
        self._query = items.rows(0, len(items)).numpy()
        self._labels = examples.labels or ()
        self._catalogue = set(self.classes)
        self._kept: tuple[Any, Any] | None = None

    def __call__(self, known: Mapping[int, str | None]) -> Suggestions:
        """Label the items.

        Parameters
        ----------
        known : mapping of int to str or None
            The answers so far: the class of an item, or None for an unknown item.

        Returns
        -------
        Suggestions
            For all items; those of known items have no meaning.
        """
        firsts: dict[str, int] = {}  # a class without examples has the first item that it was given to
        for row, label in known.items():
            if label is not None and label not in self._catalogue:
                firsts.setdefault(label, row)
        # Unknown items take no part: they must be given no label, and must not move a class.
        left_out = {row for row, label in known.items() if label is None} | set(firsts.values())
        pile = [row for row in range(len(self._query)) if row not in left_out]
        given = {at: known[row] for at, row in enumerate(pile) if row in known}
        classes = tuple(sorted({*self.classes, *firsts}))
        m = min(SUGGESTIONS, len(classes))
        best = torch.zeros(len(self._query), m, dtype=torch.int64)
        probabilities = torch.zeros(len(self._query), m)
        if len(given) == len(pile):
            return Suggestions(classes, best, probabilities)
        with warnings.catch_warnings():
            # A search that stopped at its limit still gives the best labels found, and a person looks at them.
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", UserWarning)  # scikit-learn: many classes for so few examples
            result = self._fitted(firsts).infer(self._query[pile], known=given, with_objective=False)
        found, columns = torch.from_numpy(result.probabilities).float().topk(m)
        best[pile], probabilities[pile] = columns, found
        unknown = unknown_groups = None
        if result.unknown is not None and result.unknown_groups is not None:
            unknown, unknown_groups = torch.zeros(len(best)), torch.full((len(best),), -1)
            unknown[pile] = torch.from_numpy(result.unknown).float()
            unknown_groups[pile] = torch.from_numpy(result.unknown_groups).long()
        order = tuple(pile[at] for at in result.review_order.tolist())
        return Suggestions(classes, best, probabilities, unknown, unknown_groups, order)

    def _fitted(self, firsts: Mapping[str, int]) -> Any:
        """The estimator, fitted to the examples and to the first items of new classes; fitted again if these change."""
        key = tuple(sorted(firsts.items()))
        if self._kept is None or self._kept[0] != key:
            X = np.concatenate([self._support, self._query[list(firsts.values())]])
            y = np.array([*self._labels, *firsts])
            # A class may have any printable name, so the answer "unknown" has another.
            options = {"base_mean": self.examples.base_mean, "open_set": self.open_set, "unknown_label": "\0"}
            self._kept = key, Evidence(**options).fit(X, y)
        return self._kept[1]

    def nearest(self, row: int, count: int) -> list[int]:
        """The examples whose features have the highest cosine similarity with those of an item, nearest first."""
        similarity = self._directions @ (self._query[row] - self._mean)
        return [int(at) for at in np.argsort(-similarity, kind="stable")[:count]]

    @cached_property
    def _directions(self) -> np.ndarray[Any, Any]:
        """[s, d] the examples without their mean, of length 1."""
        centred = self._support - self._mean
        sizes = np.linalg.norm(centred, axis=1, keepdims=True)
        return np.asarray(centred / np.maximum(sizes, np.finfo(centred.dtype).tiny))

    @cached_property
    def _mean(self) -> np.ndarray[Any, Any]:
        base_mean = self.examples.base_mean
        return np.asarray(self._support.mean(0) if base_mean is None else base_mean.numpy(), self._support.dtype)
