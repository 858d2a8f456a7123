"""Feature transforms: Tasks in, Tasks out, never in place.

==========  ============================================================================================
``range``   divide each dimension by its range over the task's queries (a range of 0 counts as 1)
``l2``      divide each vector by its norm
``cl2``     subtract the mean of the base classes (without one: of the task's support), then ``l2``
``rcl2``    sign(z)·|z|^⅝ first in tasks whose support has nothing negative (ReLU features), then ``cl2``
``power``   sign(z)·√|z| (√(z + 1e-6) where nothing is negative), ``l2``, centre support and queries apart, ``l2``
==========  ============================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from manyway.core.ops import extremes
from manyway.core.tasks import Tasks
from manyway.errors import InputError, nearest


def transform(tasks: Tasks, name: str | None) -> Tasks:
    """Tasks with the named transform applied; ``None`` leaves them as they are."""
    if name is None:
        return tasks
    if name not in TRANSFORMS:
        raise InputError(f"There is no feature transform '{name}'; {nearest(name, TRANSFORMS)}")
    return TRANSFORMS[name](tasks)


def unit(features: Tensor) -> Tensor:
    """Each vector divided by its norm; a zero vector stays zero."""
    norms = features.square().sum(-1, keepdim=True).sqrt()
    return features / norms.clamp_min(torch.finfo(features.dtype).tiny)


def _range(tasks: Tasks) -> Tasks:
    query = tasks.query
    low, high = extremes(query)
    width = high - low
    # One query, or a constant feature, has no range: it is left as it is.
    factor = torch.where(width > 0, width, torch.ones_like(width)).reciprocal()
    if tasks.factor is not None:
        return replace(tasks, factor=tasks.factor * factor)
    return replace(tasks, query_table=query, query_index=None, factor=factor)  # gathered once is enough


def _l2(tasks: Tasks) -> Tasks:
    return _rowwise(tasks, unit)


def _cl2(tasks: Tasks) -> Tasks:
    if tasks.base_mean is not None:
        mean = tasks.base_mean
        return _rowwise(tasks, lambda features: unit(features - mean))
    support = tasks[:1].support if tasks.shared_support else tasks.support
    centre = support.mean(1, keepdim=True)
    if tasks.shared_support and tasks.factor is None:
        return _rowwise(tasks, lambda features: unit(features - centre[0]))
    return _dense(tasks, unit(tasks.support - centre), unit(tasks.query - centre))


def _rcl2(tasks: Tasks) -> Tasks:
    levelled = ~_has_negative(tasks)
    if not bool(levelled.any()):
        return _cl2(tasks)
    if bool(levelled.all()):  # a mean of features is not a mean of their powers, so the base mean cannot serve here
        return _cl2(replace(_rowwise(tasks, level), base_mean=None))
    which = levelled.view(-1, 1, 1)
    support, query = (torch.where(which, level(z), z) for z in (tasks.support, tasks.query))
    centre = support.mean(1, keepdim=True)
    if tasks.base_mean is not None:
        centre = torch.where(which, centre, tasks.base_mean)
    return _dense(tasks, unit(support - centre), unit(query - centre))


def _has_negative(tasks: Tasks) -> Tensor:
    """[t] whether the task's support has a negative feature. A factor is positive and changes no sign."""
    lowest = tasks.support_table.amin(-1)  # [n] or [t, s]
    if tasks.support_index is not None:
        index = tasks.support_index[:1] if tasks.shared_support else tasks.support_index
        lowest = lowest[index]
    return (lowest.amin(-1) < 0).expand(tasks.n_tasks)


def level(features: Tensor) -> Tensor:
    """sign(z)·|z|^⅝: large values weigh less. In roots, because a general power takes far longer."""
    size = features.abs()
    return size.sqrt().sqrt_().mul_(size).sqrt_().mul_(features.sign())


def _power(tasks: Tasks) -> Tasks:
    support, query = _root(tasks.support), _root(tasks.query)
    support, query = unit(support), unit(query)
    support, query = support - support.mean(1, keepdim=True), query - query.mean(1, keepdim=True)
    return _dense(tasks, unit(support), unit(query))


def _root(features: Tensor) -> Tensor:
    # The authors' transform is for features after a ReLU; the signed root is its odd extension, without NaN.
    lowest = features.amin(dim=(1, 2), keepdim=True)
    plain = (features.clamp_min(0) + 1e-6).sqrt()
    return torch.where(lowest >= 0, plain, features.sign() * features.abs().sqrt())


TRANSFORMS: Mapping[str, Callable[[Tasks], Tasks]] = {
    "range": _range,
    "l2": _l2,
    "cl2": _cl2,
    "rcl2": _rcl2,
    "power": _power,
}


def _rowwise(tasks: Tasks, change: Callable[[Tensor], Tensor]) -> Tasks:
    """Apply a map of single rows, to the table or to the gathered batch, whichever is smaller."""
    rows_asked = tasks.n_tasks * (tasks.n_support + tasks.n_query)
    rows_held = tasks.support_table.shape[0] if tasks.support_table.ndim == 2 else 0
    if tasks.factor is not None or (tasks.support_index is not None and rows_held > rows_asked):
        return _dense(tasks, change(tasks.support), change(tasks.query))
    support_table = change(tasks.support_table)
    same = tasks.query_table is tasks.support_table
    return replace(tasks, support_table=support_table, query_table=support_table if same else change(tasks.query_table))


def _dense(tasks: Tasks, support: Tensor, query: Tensor) -> Tasks:
    return replace(tasks, support_table=support, support_index=None, query_table=query, query_index=None, factor=None)
