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

from manyway.data.items import Items, match_columns
from manyway.errors import InputError
from manyway.estimators import Evidence
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
        The probability that the item is of no class.
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

    Raises
    ------
    InputError
        If they do not fit together, or are too many to be labelled in memory again and again.
    """

    def __init__(self, examples: Items, items: Items) -> None:
        items = match_columns(examples, items)
        self.classes, _ = check_items(examples, items)
        if 4 * len(items) * len(self.classes) > _AT_MOST_BYTES:
            raise InputError(
                f"{len(items)} items and {len(self.classes)} classes are too many to be reviewed together; cut the "
                "items into smaller batches."
            )
        self.examples, self.items = examples, items
        self._support = examples.rows(0, len(examples)).numpy()
        self._query = items.rows(0, len(items)).numpy()
        self._labels = np.array(examples.labels)

    def __call__(self, known: Mapping[int, str | None]) -> Suggestions:
        """Label the items.

        Parameters
        ----------
        known : mapping of int to str or None
            The answers so far: the class of an item, or None for an item of no known class.

        Returns
        -------
        Suggestions
            For all items; those of known items have no meaning.
        """
        labelled = [row for row, label in known.items() if label is not None]
        open_rows = np.array([row for row in range(len(self._query)) if row not in known], dtype=int)
        X = np.concatenate([self._support, self._query[labelled]])
        y = np.concatenate([self._labels, np.array([known[row] for row in labelled], dtype=str)])
        classes = tuple(map(str, np.unique(y)))
        m = min(SUGGESTIONS, len(classes))
        best = torch.zeros(len(self._query), m, dtype=torch.int64)
        probabilities = torch.zeros(len(self._query), m)
        if len(open_rows) == 0:
            return Suggestions(classes, best, probabilities)
        with warnings.catch_warnings():
            # A search that stopped at its limit still gives the best labels found, and a person looks at them.
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", UserWarning)  # scikit-learn: many classes for so few examples
            result = Evidence(base_mean=self.examples.base_mean).fit(X, y).infer(self._query[open_rows])
        found, columns = torch.from_numpy(result.probabilities).float().topk(m)
        best[open_rows], probabilities[open_rows] = columns, found
        order = open_rows[found[:, 0].argsort(stable=True).numpy()]
        return Suggestions(classes, best, probabilities, order=tuple(map(int, order)))

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
