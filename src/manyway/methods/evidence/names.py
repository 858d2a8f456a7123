"""Classes that are known by a vector each, such as the text embedding of their name, beside or instead of examples.

Vectors of names and items lie apart, even if one encoder made both. So each kind is centred on its own: names on their
mean over the classes that have examples, items on the mean of the examples. Without any example there are two guesses:
items lie where names do, or their mean is that of the queries. The guess that explains the queries better says which
classes occur. Then items are centred on the mean of the queries, less what is particular to these classes. A name
counts as a number of examples of its class, shortened as much as it points past the examples on average. That number is
learned from the classes that have both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from manyway.core.blocks import Scaling, Spread, measured, scaling_of
from manyway.core.ops import class_sums
from manyway.core.tasks import Tasks
from manyway.core.transforms import level, transform, unit
from manyway.errors import InputError
from manyway.methods.calibration.calibration import Calibration
from manyway.methods.evidence.prior import effective_number

_LEAST_WORTH, _MOST_WORTH = 0.1, 8.0  # examples: beyond these the estimate is mostly its own error
# The errors of names lie between similar classes more often than those of examples, so that they count this much less.
_DISCOUNT = 0.5
# A name without examples, where other classes have some, counts this many times its worth. Squared distances to a
# prototype are shortened by its expected error, which the discount makes too large: such a class would take the queries
# of the others. The value was chosen on one half of the classes of CLINC150.
_ALONE = 3.0


@dataclass(frozen=True, eq=False)
class Named:
    """Tasks whose classes have names."""

    tasks: Tasks  # transformed; where a class lacks examples, all names are further examples
    vectors: Tensor  # [t, k, d] the names, among the transformed items
    worth: Tensor  # [t] how many examples a name counts
    included: bool  # whether the names are among the examples
    alone: Tensor  # [t, k] whether a class has a name only, and others have examples

    @property
    def with_vectors(self) -> Tasks:
        """The tasks with the names as last queries."""
        return replace(self.tasks, query_table=torch.cat([self.tasks.query, self.vectors], 1), query_index=None)

    def taken_in(self, calibration: Calibration, placed: Tensor) -> Calibration:
        """The calibration with prototypes that have taken in the names, placed as [t, k, d]."""
        more = self.worth.view(-1, 1) - float(self.included)
        counts = calibration.counts + more
        offsets = calibration.offsets * calibration.counts.unsqueeze(-1) + placed * more.unsqueeze(-1)
        offsets = offsets / counts.unsqueeze(-1)
        counts = torch.where(self.alone, _ALONE * counts, counts)
        squares = offsets.square().sum(-1) - calibration.scatter.unsqueeze(-1) / counts
        return replace(calibration, offsets=offsets, squares=squares, counts=counts)


def with_names(tasks: Tasks, scale: str | None, proportions: Tensor | None = None) -> Named:
    """Transform tasks with class features as ``scale`` says, and learn how many examples a name is worth.

    ``proportions`` [t, k] of the classes among the queries serve where there is no example: see ``_middle``.
    """
    _check_scale(scale)
    vectors = tasks.class_features
    assert vectors is not None
    vectors = vectors.expand(tasks.n_tasks, -1, -1)
    items = replace(tasks, class_table=None)
    known = tasks.support if tasks.n_support else tasks.query
    levelled = (known >= 0).flatten(1).all(-1).view(-1, 1, 1) & (scale == "rcl2")
    if tasks.n_support:
        items = transform(items, scale)
    else:
        query, names = (torch.where(levelled, level(rows), rows) for rows in (known, vectors))
        query = _centred(query, _middle(query.mean(1, keepdim=True), names, proportions), scale)
        items = replace(items, query_table=query, query_index=None, factor=None)
    return _named(items, vectors, levelled, scale)


def scaling_with_names(
    support: Tensor, spread: Spread, scale: str | None, base_mean: Tensor | None
) -> tuple[Scaling, int]:
    """``scaling_of`` for one large task whose classes have names; if its support [s, d] is empty, see ``recentred``."""
    _check_scale(scale)
    if len(support):
        scaling, n_query = scaling_of(support, spread, scale, base_mean)
        return replace(scaling, centre=None), n_query  # names are compared with items that are not centred
    scaling = Scaling(None)
    extent = measured(scaling, spread, support)
    if scale == "rcl2" and bool((extent.low >= 0).all()):
        scaling = replace(scaling, levels=True)
        extent = measured(scaling, spread, support)
    return replace(scaling, name=scale, middle=extent.mean.to(support)), extent.n_rows


def recentred(scaling: Scaling, vectors: Tensor, proportions: Tensor | None = None) -> Scaling:
    """The scaling of a large task without examples, from one that subtracts the mean of the queries.

    ``vectors`` [k, d] are the names; ``proportions`` [k] of the classes are given where they are known.
    """
    assert scaling.middle is not None
    names = level(vectors) if scaling.levels else vectors
    known = None if proportions is None else proportions.to(vectors)[None]
    return replace(scaling, middle=_middle(scaling.middle.view(1, 1, -1), names[None], known).flatten())


def names_of(support: Tensor, labels: Tensor, vectors: Tensor, scaling: Scaling) -> Named:
    """The same as ``with_names`` for one task with the scaling of its queries; the first name stands in for them."""
    items = Tasks(scaling(support)[None], None, labels[None], vectors[None, :1], None, len(vectors))
    levelled = torch.tensor(scaling.levels, device=vectors.device)
    return _named(items, vectors[None], levelled.view(1, 1, 1), scaling.name)


def guesses(n_tasks: int, vectors: Tensor) -> tuple[Tensor | None, Tensor]:
    """The proportions [t, k] to begin with, without examples: items lie where names do, or around their own mean."""
    n_classes = vectors.shape[-2]
    return None, torch.full((n_tasks, n_classes), 1 / n_classes, dtype=vectors.dtype, device=vectors.device)


def log_probability(likelihood: Tensor, proportions: Tensor) -> Tensor:
    """[t] ln p(queries) for log-likelihoods [t, q, k] and proportions [t, k]."""
    rare = torch.finfo(likelihood.dtype).tiny
    return (likelihood + proportions.to(likelihood).clamp_min(rare).log().unsqueeze(1)).logsumexp(-1).sum(-1)


def _check_scale(scale: str | None) -> None:
    if scale not in (None, "l2", "cl2", "rcl2"):
        raise InputError(f"evidence: scale is '{scale}'; with class features choose rcl2, cl2, l2 or None.")


def _middle(mean: Tensor, vectors: Tensor, proportions: Tensor | None) -> Tensor:
    """[t, 1, d] the middle of the items, from the mean [t, 1, d] of the queries of tasks without examples.

    Without ``proportions`` [t, k] it is that of the names. With them it is the mean of the queries, less a part of the
    distance between the names of the classes that occur and all names. The part is one over the number of these
    classes: one class is all that the mean tells of, while the mean of many classes differs little from that of all,
    and errors about which of them occur would confirm themselves. Equal proportions give the mean of the queries.
    """
    names = vectors.mean(1, keepdim=True)
    if proportions is None:
        return names
    part = 1 / effective_number(proportions).view(-1, 1, 1)
    return mean - part * (proportions.unsqueeze(1) @ vectors - names)


def _named(items: Tasks, vectors: Tensor, levelled: Tensor, scale: str | None) -> Named:
    """From transformed items and the names [t, k, d] as they are; ``levelled`` [t, 1, 1]: whether powers are taken."""
    counts = torch.zeros(vectors.shape[:2], dtype=vectors.dtype, device=vectors.device)
    counts.scatter_add_(1, items.support_labels, torch.ones_like(items.support_labels, dtype=vectors.dtype))
    weights = counts if items.n_support else counts + 1
    vectors = torch.where(levelled, level(vectors), vectors)
    middle = (weights.unsqueeze(-1) * vectors).sum(1, keepdim=True) / weights.sum(-1).view(-1, 1, 1)
    vectors = _centred(vectors, middle, scale)
    worth = torch.ones(len(vectors), dtype=vectors.dtype, device=vectors.device)
    if items.n_support:
        sums = _sums(items)
        along = (sums * vectors).sum((1, 2)) / (counts * vectors.square().sum(-1)).sum(-1)
        vectors = vectors * along.clamp(0, 1).view(-1, 1, 1)
        worth = _worth(items, sums, counts, vectors)
    alone = (counts == 0) & (items.n_support > 0)
    included = bool((counts == 0).any())
    if not included:
        return Named(items, vectors, worth, included, alone)
    names = torch.arange(items.n_classes, device=vectors.device).expand(items.n_tasks, -1)
    examples, labels = vectors, names
    if items.n_support:
        examples, labels = torch.cat([items.support, vectors], 1), torch.cat([items.support_labels, names], 1)
    items = replace(
        items,
        support_table=examples,
        support_index=None,
        support_labels=labels,
        query_table=items.query,
        query_index=None,
        factor=None,
    )
    return Named(items, vectors, worth, included, alone)


def _centred(rows: Tensor, middle: Tensor, scale: str | None) -> Tensor:
    """Rows relative to their middle, as ``scale`` measures them. Names and items have middles in any scale."""
    rows = rows - middle
    return rows if scale is None else unit(rows)


def _sums(tasks: Tasks) -> Tensor:
    """[t, k, d] of the examples of each class; 0 where there is none."""
    return class_sums(tasks)[0].expand(tasks.n_tasks, -1, -1)


def _worth(items: Tasks, sums: Tensor, counts: Tensor, vectors: Tensor) -> Tensor:
    """[t] how many examples a name is worth: half of S/E, where E is the mean squared error of a name as a prototype.

    The mean of n examples has the error S/n. 1 where no class has two examples, so that S is not known.
    """
    some = counts > 0
    means = sums / counts.clamp_min(1).unsqueeze(-1)
    freedom = items.n_support - some.sum(-1)
    total = items.support.square().sum((1, 2)) - (counts * means.square().sum(-1)).sum(-1)
    scatter = total.clamp_min(0) / freedom.clamp_min(1)
    apart = (means - vectors).square().sum(-1) - scatter.unsqueeze(-1) / counts.clamp_min(1)
    error = (apart * some).sum(-1) / some.sum(-1)
    worth = (_DISCOUNT * scatter / error.clamp_min(torch.finfo(error.dtype).tiny)).clamp(_LEAST_WORTH, _MOST_WORTH)
    return torch.where((freedom > 0) & (scatter > 0), worth, torch.ones_like(worth))
