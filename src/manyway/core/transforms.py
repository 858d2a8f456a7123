"""Feature transforms: they take Tasks and return Tasks, and never change their input.

==========  ============================================================================================
``range``   divide each dimension by its range over the task's queries (a range of 0 counts as 1)
``l2``      divide each vector by its norm
``cl2``     subtract the mean of the base classes (without one: of the task's support), then ``l2``
``tcl2``    subtract the mean of the task's support and queries together, then ``l2``
``rcl2``    sign(z)·|z|^⅝ first in tasks whose support has nothing negative (ReLU features), then ``cl2``
``power``   sign(z)·√|z| (√(z + 1e-6) where nothing is negative), ``l2``, centre support and queries apart, ``l2``
``bpa``     how well an item matches every other item of its task (``core.affinities``)
==========  ============================================================================================

Class features, where there are any, get the same transform as support and query, with the same
centre: they are vectors in the space of the items. (``power`` centres them apart, as it does
support and queries.) A task without support has the mean of its class features in the place of the
support's mean. An offset between class features and items, which embeddings of names usually have,
is not removed here: centring names and queries each on their own mean is worse where the queries
come from few classes, because the mean of such a batch is mostly about those classes.

A transform is a ``Scaling`` that is learned from the support, and for some from the queries too. It
is a map of single rows, so that queries in memory and in blocks get the same one. Those of
``JOINT`` are not: they need all rows at once.

Features of any finite magnitude are allowed: no square overflows or vanishes (see ``unit``).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, cast

import torch
from torch import Tensor

from manyway.core.affinities import balanced_affinities
from manyway.core.blocks import ChangeRows, Extent
from manyway.core.kernels import fused
from manyway.core.ops import class_sums, extremes, prototypes, unit
from manyway.core.tasks import Tasks
from manyway.errors import InputError, named


@dataclass(frozen=True, eq=False)
class Scaling:
    """A map of rows: z → c(z), then (c − middle)·factor, then unit length.

    What a transform lacks is neutral.

    The curve c is one of: the row itself; ``level``, in the tasks of ``which``;
    ``root``, then unit length.
    """

    curve: Callable[[Tensor], Tensor] | None = None
    which: Tensor | None = None  # [t, 1, 1] the tasks that the curve is for; None: all
    middle: Tensor | None = None  # [t, 1, d], or [1, 1, d] for all tasks
    factor: Tensor | None = None  # [t, 1, d], or [1, 1, d]
    unit: bool = False
    then: Callable[[Tensor], Tensor] | None = None  # a last map of rows [t, n, d]

    def __call__(self, rows: Tensor) -> Tensor:
        rows = self.curved(rows)
        if self.middle is not None:
            rows = rows - self.middle
        if self.factor is not None:
            rows = rows * self.factor
        if self.unit:
            rows = unit(rows)
        return rows if self.then is None else self.then(rows)

    def curved(self, rows: Tensor) -> Tensor:
        """The curve alone."""
        if self.curve is None:
            return rows
        if self.which is None:
            return self.curve(rows)
        return torch.where(self.which, self.curve(rows), rows)

    @property
    def shared(self) -> bool:
        """Whether it is the same for all tasks."""
        tensors = (self.middle, self.factor, getattr(self.then, "middle", None))
        return self.which is None and all(one is None or len(one) == 1 for one in tensors)

    def table(self, rows: Tensor) -> Tensor:
        """Of a shared scaling: the rows [n, d] of a table, or of a batch [t, n, d]."""
        return self(rows[None])[0] if rows.ndim == 2 else self(rows)


class Scalings(NamedTuple):
    """The maps of the support, of the queries and of the class features.

    Most transforms have one for all.
    """

    support: Scaling
    query: Scaling
    classes: Scaling

    @staticmethod
    def same(scaling: Scaling) -> "Scalings":
        """One for all."""
        return Scalings(scaling, scaling, scaling)


def transform(tasks: Tasks, name: str | None) -> Tasks:
    """Apply the feature transform of a name in ``TRANSFORMS``; None leaves the tasks as they are.

    >>> tasks = Tasks.from_arrays([[[0.0, 2.0], [3.0, 0.0]]], [[0, 1]], [[[3.0, 4.0]]])
    >>> transform(tasks, "l2").query.flatten().tolist()
    [0.6000000238418579, 0.800000011920929]
    """
    if name in JOINT:
        return balanced_affinities(tasks)
    # the queries are gathered once, to learn and to use
    if name == "range" and tasks.factor is None:
        tasks = replace(tasks, query_table=tasks.query, query_index=None)
    return tasks if name is None else apply(tasks, learn_scaling(tasks, name))


def learn_scaling(tasks: Tasks, name: str | None) -> Scalings:
    """What the transform of that name does to rows of these tasks."""
    if name is None:
        return Scalings.same(Scaling())
    return named(TRANSFORMS, name, "feature transform")(tasks)


def apply(tasks: Tasks, scalings: Scalings) -> Tasks:
    """The tasks with all rows scaled; those of a pile when they are read."""
    support, query, classes = scalings
    if tasks.pile is not None:
        tasks = replace(tasks, pile=tasks.pile.then(query))
    one = support is query
    if one and support.curve is not None and support.which is None and not support.shared:
        # A curve is the same for all tasks, so that it can be drawn in the table.
        curve = Scaling(support.curve)
        classes = support = query = replace(support, curve=None)
        tasks = rowwise(tasks, curve.table)
    if (
        one
        and support.curve is None
        and support.middle is None
        and not support.unit
        and support.then is None
    ):
        if support.factor is None:
            return tasks
        # A factor is applied when rows are gathered.
        return replace(
            tasks, factor=support.factor if tasks.factor is None else tasks.factor * support.factor
        )
    if one and support.shared:
        return rowwise(tasks, support.table)
    centred = (
        support.curve is None and support.factor is None and support.unit and support.then is None
    )
    if one and centred and _fused_rows(tasks):
        from manyway.core.kernels.rows import gathered

        vectors = None if tasks.class_features is None else classes(tasks.class_features)
        moved = gathered(tasks.query_table, cast(Tensor, tasks.query_index), support.middle)
        return replace(
            tasks, centre=support.middle, class_table=vectors, query_table=moved, query_index=None
        )
    return _mapped(tasks, support, query, classes)


def class_directions(tasks: Tasks) -> Tensor:
    """[t, k, d] one unit vector per class.

    It is the class feature, or the mean support feature where there are none.

    >>> tasks = Tasks.from_arrays([[[0.0, 2.0], [3.0, 0.0]]], [[0, 1]], [[[3.0, 4.0]]])
    >>> class_directions(tasks).tolist()
    [[[0.0, 1.0], [1.0, 0.0]]]
    """
    vectors = tasks.class_features
    return unit(prototypes(tasks) if vectors is None else vectors)


def extent_of(tasks: Tasks, change: Scaling | None = None) -> Extent:
    """The mean and the range of the queries; of a pile by one pass."""
    if tasks.pile is not None:
        return (tasks.pile if change is None else tasks.pile.then(change)).extent()
    return Extent.of(tasks.query if change is None else change(tasks.query))


def _range(tasks: Tasks) -> Scalings:
    """A single query or a constant feature has no range, and is left as it is.

    So is a range below the normal numbers, whose reciprocal would be infinite.
    """
    low, high = extremes(tasks.query) if tasks.pile is None else tasks.pile.extent()[2:]
    width = high - low
    width = torch.where(width >= torch.finfo(width.dtype).tiny, width, torch.ones_like(width))
    return Scalings.same(Scaling(factor=width.reciprocal()))


def _cl2(tasks: Tasks) -> Scalings:
    return Scalings.same(Scaling(middle=_middle(tasks), unit=True))


def _middle(tasks: Tasks) -> Tensor:
    """[t, 1, d] or [1, 1, d] the middle of the features.

    It is the mean of the base classes, or of what is known before the queries.
    """
    if tasks.base_mean is not None:
        return tasks.base_mean.view(1, 1, -1)
    if (tasks.shared_support if tasks.n_support else tasks.shared_classes) and tasks.factor is None:
        return _known(tasks[:1]).mean(1, keepdim=True)
    if tasks.n_support and _fused_rows(tasks):
        return class_sums(tasks)[0].sum(1, keepdim=True) / tasks.n_support
    return _known(tasks).mean(1, keepdim=True)


def _fused_rows(tasks: Tasks) -> bool:
    """Whether gathering, centring and dividing by the norm can be one pass.

    All tasks have the same labels.
    """
    indexed = (
        tasks.support_index is not None
        and tasks.query_index is not None
        and not tasks.support_labels.stride(0)
    )
    if (
        tasks.factor is not None
        or tasks.dtype != torch.float32
        or not (indexed and fused(tasks.query_table))
    ):
        return False
    from manyway.core.kernels.rows import MAX_FEATURES

    return tasks.n_features <= MAX_FEATURES


def _tcl2(tasks: Tasks) -> Scalings:
    total = tasks.support.sum(1, keepdim=True) + extent_of(tasks).total.to(tasks.dtype)
    return Scalings.same(Scaling(middle=total / (tasks.n_support + tasks.n_query), unit=True))


def _rcl2(tasks: Tasks) -> Scalings:
    levelled = ~_has_negative(tasks)
    if not bool(levelled.any()):
        return _cl2(tasks)
    # the base mean is a mean of untransformed features, so the support's mean replaces it
    if bool(levelled.all()):
        curved = rowwise(replace(tasks, base_mean=None, pile=None), Scaling(level).table)
        return Scalings.same(Scaling(level, middle=_middle(curved), unit=True))
    which = levelled.view(-1, 1, 1)
    scaling = Scaling(level, which=which, unit=True)
    centre = scaling.curved(_known(tasks)).mean(1, keepdim=True)
    if tasks.base_mean is not None:
        centre = torch.where(which, centre, tasks.base_mean)
    return Scalings.same(replace(scaling, middle=centre))


def _has_negative(tasks: Tasks) -> Tensor:
    """[t] whether the task's support has a negative feature.

    Factors are positive, so they can be ignored.
    """
    if not tasks.n_support:
        return _known(tasks).amin((1, 2)) < 0
    lowest = tasks.support_table.amin(-1)  # [n] or [t, s]
    if tasks.support_index is not None:
        lowest = lowest[tasks.support_index[:1] if tasks.shared_support else tasks.support_index]
    return (lowest.amin(-1) < 0).expand(tasks.n_tasks)


def level(features: Tensor) -> Tensor:
    """sign(z)·|z|^⅝, which reduces the influence of large values.

    Written with square roots, |z|^½ · |z|^⅛, because a general power takes much longer.
    Nothing can overflow.

    >>> level(torch.tensor([-256.0, 0.0, 1.0])).tolist()
    [-32.0, 0.0, 1.0]
    """
    root = features.abs().sqrt_()
    return root.sqrt().sqrt_().mul_(root).mul_(features.sign())


def _power(tasks: Tasks) -> Scalings:
    def learned(extent: Callable[[Scaling | None], Extent]) -> Scaling:
        # PT-MAP's transform is defined for features that are not negative; the signed root extends it to all features.
        which = (extent(None).low.amin(-1, keepdim=True) >= 0).expand(-1, 1, 1)
        rooted = Scaling(partial(_root, which))
        return replace(rooted, middle=extent(rooted).mean, unit=True)

    def of(rows: Tensor | None) -> Scaling:
        if rows is None or not rows.shape[1]:
            return Scaling()
        return learned(lambda change: Extent.of(rows if change is None else change(rows)))

    return Scalings(
        of(tasks.support),
        learned(lambda change: extent_of(tasks, change)),
        of(tasks.class_features),
    )


def _root(plain: Tensor, rows: Tensor) -> Tensor:
    """The root of features, with unit length.

    It is √(z + 1e-6) in the tasks of ``plain`` [t, 1, 1], and signed in the others.
    """
    return unit(
        torch.where(plain, (rows.clamp_min(0) + 1e-6).sqrt(), rows.sign() * rows.abs().sqrt())
    )


def _no_row_map(tasks: Tasks) -> Scalings:
    raise InputError(
        "The feature transform 'bpa' compares all items with each other; choose another, such as 'cl2'."
    )


JOINT = frozenset({"bpa"})  # transforms of all rows of a task together
TRANSFORMS: Mapping[str, Callable[[Tasks], Scalings]] = {
    "range": _range,
    "l2": lambda tasks: Scalings.same(Scaling(unit=True)),
    "cl2": _cl2,
    "tcl2": _tcl2,
    "rcl2": _rcl2,
    "power": _power,
    "bpa": _no_row_map,
}


def rowwise(tasks: Tasks, change: ChangeRows) -> Tasks:
    """Apply a map of single rows to the table or to the gathered batch.

    Which of them it is depends on which has fewer rows.
    """
    if tasks.factor is not None or tasks.centre is not None:
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


def dense(tasks: Tasks, change: ChangeRows) -> Tasks:
    """Gather support, queries and class features, and apply a map of batches [t, n, d] to each."""
    return _mapped(tasks, change, change, change)


def _mapped(tasks: Tasks, support: ChangeRows, query: ChangeRows, classes: ChangeRows) -> Tasks:
    """The tasks as dense arrays, without a factor, with a map of batches [t, n, d] for each."""
    vectors = tasks.class_features
    changed = None if vectors is None else classes(vectors)
    return tasks.with_rows(support(tasks.support), query(tasks.query), class_table=changed)


def _known(tasks: Tasks) -> Tensor:
    """[t, n, d] what is known before the queries.

    The support, or the class features of tasks without support.
    """
    if tasks.n_support or tasks.class_features is None:
        return tasks.support
    return tasks.class_features
