"""Feature transforms: they take Tasks and return Tasks, and never change their input.

==========  ============================================================================================
``range``   divide each dimension by its range over the task's queries (a range of 0 counts as 1)
``l2``      divide each vector by its norm
``cl2``     subtract the mean of the base classes (without one: of the task's support), then ``l2``
``tcl2``    subtract the mean of the task's support and queries together, then ``l2``
``rcl2``    sign(z)·|z|^⅝ first in tasks whose support has nothing negative (ReLU features), then ``cl2``
``power``   sign(z)·√|z| (√(z + 1e-6) where nothing is negative), ``l2``, centre support and queries apart, ``l2``
==========  ============================================================================================

Class features, where there are any, get the same transform as support and query, with the same centre: they are vectors
in the space of the items. (``power`` centres them apart, as it does support and queries.) A task without support has
the mean of its class features in the place of the support's mean. An offset between class features and items, which
embeddings of names usually have, is not removed here: centring names and queries each on their own mean is worse where
the queries come from few classes, because the mean of such a batch is mostly about those classes.

Features of any finite magnitude are allowed: no square overflows or vanishes (see ``unit``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from manyway.core.kernels import fused
from manyway.core.ops import class_sums, extremes, prototypes
from manyway.core.tasks import Tasks
from manyway.errors import InputError, nearest


def transform(tasks: Tasks, name: str | None) -> Tasks:
    """Apply the feature transform of a name in ``TRANSFORMS``; None leaves the tasks as they are.

    >>> tasks = Tasks.from_arrays([[[0.0, 2.0], [3.0, 0.0]]], [[0, 1]], [[[3.0, 4.0]]])
    >>> transform(tasks, "l2").query.flatten().tolist()
    [0.6000000238418579, 0.800000011920929]
    """
    if name is None:
        return tasks
    if name not in TRANSFORMS:
        raise InputError(f"There is no feature transform '{name}'; {nearest(name, TRANSFORMS)}")
    return TRANSFORMS[name](tasks)


def unit(features: Tensor) -> Tensor:
    """Divide each vector along the last axis by its norm; a zero vector stays zero.

    Squares of very large or very small features leave the range of float32. Where that happened, vectors are first
    scaled by the power of two that brings their largest entry near 1, which changes no digit of the result.

    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]) * 2.0**100).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    info = torch.finfo(features.dtype)
    squares = features.square().sum(-1, keepdim=True)
    if not bool(((squares > info.tiny / info.eps) & (squares < torch.inf)).all()):
        largest = features.abs().amax(-1, keepdim=True).clamp_min(info.tiny)
        features = features * torch.exp2(-torch.frexp(largest).exponent.to(features.dtype))
        squares = features.square().sum(-1, keepdim=True)
    return features / squares.sqrt_().clamp_min_(info.tiny)


def class_directions(tasks: Tasks) -> Tensor:
    """[t, k, d] one unit vector per class: its class feature, or its mean support feature where there are none.

    >>> tasks = Tasks.from_arrays([[[0.0, 2.0], [3.0, 0.0]]], [[0, 1]], [[[3.0, 4.0]]])
    >>> class_directions(tasks).tolist()
    [[[0.0, 1.0], [1.0, 0.0]]]
    """
    vectors = tasks.class_features
    return unit(prototypes(tasks) if vectors is None else vectors)


def range_factor(low: Tensor, high: Tensor) -> Tensor:
    """What ``range`` multiplies each feature by, given its lowest and highest value.

    A single query or a constant feature has no range, and is left as it is. So is a range below the normal numbers,
    whose reciprocal would be infinite.
    """
    width = high - low
    return torch.where(width >= torch.finfo(width.dtype).tiny, width, torch.ones_like(width)).reciprocal()


def _range(tasks: Tasks) -> Tasks:
    query = tasks.query
    factor = range_factor(*extremes(query))
    if tasks.factor is not None:
        return replace(tasks, factor=tasks.factor * factor)
    return replace(tasks, query_table=query, query_index=None, factor=factor)  # keeps the queries gathered above


def _l2(tasks: Tasks) -> Tasks:
    return rowwise(tasks, unit)


def _cl2(tasks: Tasks) -> Tasks:
    if tasks.base_mean is not None:
        mean = tasks.base_mean
        return rowwise(tasks, lambda features: unit(features - mean))
    shared = tasks.shared_support if tasks.n_support else tasks.shared_classes
    if shared and tasks.factor is None:
        middle = _known(tasks[:1]).mean(1)
        return rowwise(tasks, lambda features: unit(features - middle))
    support_rows, query_rows = tasks.support_index, tasks.query_index
    if tasks.n_support and support_rows is not None and query_rows is not None and _fused_rows(tasks):
        from manyway.core.kernels.rows import centred_units

        sums, _ = class_sums(tasks)
        centre = sums.sum(1, keepdim=True) / tasks.n_support
        return replace(
            tasks,
            support_table=centred_units(tasks.support_table, support_rows, centre),
            support_index=None,
            query_table=centred_units(tasks.query_table, query_rows, centre),
            query_index=None,
            class_table=None if tasks.class_features is None else unit(tasks.class_features - centre),
        )
    tasks = _gathered(tasks)
    return _centred(tasks, _known(tasks).mean(1, keepdim=True))


def _fused_rows(tasks: Tasks) -> bool:
    """Whether gathering, centring and dividing by the norm can be one pass."""
    if tasks.factor is not None or tasks.dtype != torch.float32 or not fused(tasks.query_table):
        return False
    from manyway.core.kernels.rows import MAX_FEATURES

    return tasks.n_features <= MAX_FEATURES


def _tcl2(tasks: Tasks) -> Tasks:
    tasks = _gathered(tasks)
    total = tasks.support.sum(1, keepdim=True) + tasks.query.sum(1, keepdim=True)
    return _centred(tasks, total / (tasks.n_support + tasks.n_query))


def _centred(tasks: Tasks, centre: Tensor) -> Tasks:
    return dense(tasks, lambda features: unit(features - centre))


def _rcl2(tasks: Tasks) -> Tasks:
    levelled = ~_has_negative(tasks)
    if not bool(levelled.any()):
        return _cl2(tasks)
    if bool(levelled.all()):  # the base mean is a mean of untransformed features, so the support's mean replaces it
        return _cl2(replace(rowwise(tasks, level), base_mean=None))
    which = levelled.view(-1, 1, 1)
    tasks = dense(tasks, lambda features: torch.where(which, level(features), features))
    centre = _known(tasks).mean(1, keepdim=True)
    if tasks.base_mean is not None:
        centre = torch.where(which, centre, tasks.base_mean)
    return _centred(tasks, centre)


def _has_negative(tasks: Tasks) -> Tensor:
    """[t] whether the task's support has a negative feature. Factors are positive, so they can be ignored."""
    if not tasks.n_support:
        return _known(tasks).amin((1, 2)) < 0
    lowest = tasks.support_table.amin(-1)  # [n] or [t, s]
    if tasks.support_index is not None:
        index = tasks.support_index[:1] if tasks.shared_support else tasks.support_index
        lowest = lowest[index]
    return (lowest.amin(-1) < 0).expand(tasks.n_tasks)


def level(features: Tensor) -> Tensor:
    """sign(z)·|z|^⅝, which reduces the influence of large values.

    Written with square roots, |z|^½ · |z|^⅛, because a general power takes much longer. Nothing can overflow.

    >>> level(torch.tensor([-256.0, 0.0, 1.0])).tolist()
    [-32.0, 0.0, 1.0]
    """
    root = features.abs().sqrt_()
    return root.sqrt().sqrt_().mul_(root).mul_(features.sign())


def _power(tasks: Tasks) -> Tasks:
    def change(features: Tensor) -> Tensor:
        if not features.shape[1]:
            return features
        rooted = unit(_root(features))
        return unit(rooted - rooted.mean(1, keepdim=True))

    return dense(tasks, change)


def _root(features: Tensor) -> Tensor:
    # PT-MAP's transform is defined for features that are not negative; the signed root extends it to all features.
    lowest = features.amin(dim=(1, 2), keepdim=True)
    plain = (features.clamp_min(0) + 1e-6).sqrt()
    return torch.where(lowest >= 0, plain, features.sign() * features.abs().sqrt())


TRANSFORMS: Mapping[str, Callable[[Tasks], Tasks]] = {
    "range": _range,
    "l2": _l2,
    "cl2": _cl2,
    "tcl2": _tcl2,
    "rcl2": _rcl2,
    "power": _power,
}


def rowwise(tasks: Tasks, change: Callable[[Tensor], Tensor]) -> Tasks:
    """Apply a map of single rows to the table or to the gathered batch, whichever has fewer rows."""
    if tasks.factor is not None:
        return dense(tasks, change)
    rows_asked = tasks.n_tasks * (tasks.n_support + tasks.n_query)
    rows_held = tasks.support_table.shape[0] if tasks.support_table.ndim == 2 else 0
    classes = None if tasks.class_table is None else change(tasks.class_table)
    if tasks.support_index is not None and rows_held > rows_asked:
        return replace(dense(replace(tasks, class_table=None), change), class_table=classes)
    support_table = change(tasks.support_table)
    same = tasks.query_table is tasks.support_table
    query_table = support_table if same else change(tasks.query_table)
    return replace(tasks, support_table=support_table, query_table=query_table, class_table=classes)


def dense(tasks: Tasks, change: Callable[[Tensor], Tensor]) -> Tasks:
    """Gather support, queries and class features, and apply a map of batches [t, n, d] to each."""
    tasks = _gathered(tasks)
    return replace(
        tasks,
        support_table=change(tasks.support_table),
        query_table=change(tasks.query_table),
        class_table=None if tasks.class_table is None else change(tasks.class_table),
    )


def _gathered(tasks: Tasks) -> Tasks:
    """The same tasks as dense arrays, without a factor."""
    return replace(
        tasks,
        support_table=tasks.support,
        support_index=None,
        query_table=tasks.query,
        query_index=None,
        class_table=tasks.class_features,
        factor=None,
    )


def _known(tasks: Tasks) -> Tensor:
    """[t, n, d] what is known before the queries: the support, or the class features of tasks without support."""
    return tasks.support if tasks.n_support or tasks.class_features is None else tasks.class_features
