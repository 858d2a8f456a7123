"""Rehearsal: examples are held out in batches, to compare their labels with what a method says.

A rehearsed batch takes items of a few classes out of the examples and leaves the others as the
support. All batches of a rehearsal have the same shape, so that one call of a solver labels all of
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from manyway.core.random import keys, uniform
from manyway.core.tasks import Tasks
from manyway.core.validation import has_gaps
from manyway.errors import InputError

_CLASSES = 1  # the stream of random numbers that orders classes, and the one that orders examples
_EXAMPLES = 2


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """Batches of held-out examples. Axes: ``t`` batches, ``s`` support samples, ``q`` queries.

    Parameters
    ----------
    support_rows : Tensor of shape [t, s]
        Which examples stay.
    support_labels : Tensor of shape [t, s]
        Their classes. Every class has at least one of them.
    query_rows : Tensor of shape [t, q]
        Which examples are held out: as many of each class that is present. None of them stays.
    query_labels : Tensor of shape [t, q]
        Their classes.
    n_classes : int
        K, the number of possible classes.
    """

    support_rows: Tensor
    support_labels: Tensor
    query_rows: Tensor
    query_labels: Tensor
    n_classes: int

    def tasks(self, features: Tensor, base_mean: Tensor | None = None) -> Tasks:
        """The batches as tasks; the held-out classes are their ``query_labels``.

        Parameters
        ----------
        features : Tensor of shape [n, d]
            The features of all examples. They are not copied. NaN: a cell is missing.
        base_mean : Tensor of shape [d], optional

        Returns
        -------
        Tasks
        """
        return Tasks(
            support_table=features,
            support_index=self.support_rows.to(features.device),
            support_labels=self.support_labels.to(features.device),
            query_table=features,
            query_index=self.query_rows.to(features.device),
            n_classes=self.n_classes,
            query_labels=self.query_labels.to(features.device),
            base_mean=base_mean,
            gaps=has_gaps(features),
        )


def can_be_held_out(labels: Tensor, *, n_held: int, n_kept: int | None = None) -> Tensor:
    """The classes that have enough examples to hold some out.

    Parameters
    ----------
    labels : Tensor of shape [n]
        The classes of the examples, from 0 to K-1.
    n_held : int
        How many examples of a class are held out.
    n_kept : int, optional
        How many must stay. None: one.

    Returns
    -------
    Tensor of shape [k]
        True where a class has ``n_held + n_kept`` examples or more.

    Examples
    --------
    >>> can_be_held_out(torch.tensor([0, 0, 0, 1, 1, 2]), n_held=1).tolist()
    [True, True, False]
    """
    stay = 1 if n_kept is None else n_kept
    return torch.bincount(labels) >= n_held + stay


def places_in_class(labels: Tensor, order: Tensor) -> Tensor:
    """[n] the place of each example within its class, from 0, if examples are sorted by ``order``.

    >>> places_in_class(torch.tensor([0, 1, 0, 1]), torch.tensor([0.9, 0.1, 0.2, 0.3])).tolist()
    [1, 0, 0, 1]
    """
    counts = torch.bincount(labels)
    first_of_class = counts.cumsum(0) - counts
    by_order = order.argsort()
    by_class = by_order[labels[by_order].argsort(stable=True)]
    place = torch.empty_like(labels)
    every = torch.arange(len(labels), device=labels.device)
    place[by_class] = every - first_of_class[labels[by_class]]
    return place


def rehearse(
    labels: Tensor,
    *,
    n_batches: int,
    n_present: int,
    n_held: int = 1,
    n_kept: int | None = None,
    seed: int = 0,
) -> Rehearsal:
    """Draw batches of held-out examples.

    Each batch has ``n_present`` different classes with ``n_held`` items each. Classes that have been
    drawn least often come first, and so do examples of a class, in a random order: over the batches
    all are held out about equally often.

    Parameters
    ----------
    labels : Tensor of shape [n]
        The classes of the examples, from 0 to K-1; each has at least one.
    n_batches : int
        t
    n_present : int
        How many classes occur in a batch.
    n_held : int, default=1
        How many items each of them has.
    n_kept : int, optional
        How many examples of every class stay at most, also of classes that do not occur: the
        support of somebody who had so few. Only classes with ``n_held + n_kept`` examples can then
        occur. None: all others stay.
    seed : int, default=0
        The same seed draws the same batches on every device.

    Returns
    -------
    Rehearsal
        On the CPU.

    Examples
    --------
    >>> found = rehearse(torch.tensor([0, 0, 1, 1, 2, 2]), n_batches=3, n_present=2)
    >>> found.query_rows.shape, found.support_rows.shape
    (torch.Size([3, 2]), torch.Size([3, 4]))
    """
    labels = labels.cpu()
    counts = torch.bincount(labels)
    eligible = can_be_held_out(labels, n_held=n_held, n_kept=n_kept)
    _refuse(eligible, n_batches=n_batches, n_present=n_present, n_held=n_held, n_kept=n_kept)
    class_uses = torch.zeros(len(counts), dtype=torch.float64).masked_fill(~eligible, torch.inf)
    row_uses = torch.zeros(len(labels), dtype=torch.float64)
    held = torch.zeros(n_batches, len(labels), dtype=torch.bool)
    kept = torch.zeros_like(held)
    for batch in range(n_batches):
        present = (class_uses + _random(seed, _CLASSES, batch, len(counts))).argsort()[:n_present]
        class_uses[present] += 1
        held_of_class = torch.zeros_like(counts).index_fill(0, present, n_held)
        kept_of_class = counts - held_of_class if n_kept is None else counts.clamp_max(n_kept)
        place = places_in_class(labels, row_uses + _random(seed, _EXAMPLES, batch, len(labels)))
        held[batch] = place < held_of_class[labels]
        # From the other end, so that none is held out and kept.
        kept[batch] = place >= (counts - kept_of_class)[labels]
        row_uses += held[batch]
    query_rows = held.nonzero()[:, 1].view(n_batches, -1)
    support_rows = kept.nonzero()[:, 1].view(n_batches, -1)
    return Rehearsal(
        support_rows=support_rows,
        support_labels=labels[support_rows],
        query_rows=query_rows,
        query_labels=labels[query_rows],
        n_classes=len(counts),
    )


def _random(seed: int, stream: int, batch: int, size: int) -> Tensor:
    """Uniform random numbers [size] of a batch."""
    return uniform(keys(seed, stream, torch.arange(size)), batch)


def _refuse(
    eligible: Tensor, *, n_batches: int, n_present: int, n_held: int, n_kept: int | None
) -> None:
    """Refuse batches that cannot be drawn from the ``eligible`` classes [k]."""
    given = {"n_batches": n_batches, "n_present": n_present, "n_held": n_held, "n_kept": n_kept}
    for name, value in given.items():
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}; it must be at least 1.")
    enough = int(eligible.sum())
    if n_present > enough:
        needed = n_held + (1 if n_kept is None else n_kept)
        raise InputError(
            f"{n_present} classes cannot be held out: {enough} have {needed} examples or more. Choose fewer classes, "
            "or add examples."
        )
