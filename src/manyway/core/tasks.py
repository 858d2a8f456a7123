"""``Tasks``: what goes into a solver.

Axes: ``t`` tasks, ``s`` support samples, ``q`` queries, ``k`` classes, ``d`` features, ``n`` rows of a table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from manyway.core.validation import as_features, as_labels
from manyway.errors import InputError


@dataclass(frozen=True, eq=False)
class Tasks:
    """A batch of tasks: which rows of which feature tables are the support and the queries.

    With an index, a table is [n, d] and rows are gathered when somebody asks for them; without one the table is the
    batch itself, [t, s, d] or [t, q, d]. ``factor`` multiplies every feature of a task: a diagonal scaling costs
    nothing until the features are used.
    """

    support_table: Tensor  # [n, d], or [t, s, d] when support_index is None
    support_index: Tensor | None  # [t, s]
    support_labels: Tensor  # [t, s], 0..k-1; every class of every task has at least one sample
    query_table: Tensor  # [n, d], or [t, q, d] when query_index is None
    query_index: Tensor | None  # [t, q]
    n_classes: int
    query_labels: Tensor | None = None  # [t, q]; what a solution is scored against. No solver reads it.
    class_ids: Tensor | None = None  # [t, k] class of the FeatureSet behind each task label; None: 0..k-1
    base_mean: Tensor | None = None  # [d], what `cl2` subtracts
    factor: Tensor | None = None  # [t, 1, d]

    @staticmethod
    def from_arrays(
        support: Any,  # [t, s, d]
        support_labels: Any,  # [t, s]
        query: Any,  # [t, q, d]
        base_mean: Any = None,  # [d]
        *,
        query_labels: Any = None,  # [t, q]
        n_classes: int | None = None,
    ) -> Tasks:
        """Tasks from dense arrays (NumPy or torch). Every task has the same number of samples, queries and classes.

        >>> tasks = Tasks.from_arrays([[[0.0], [4.0]]], [[0, 1]], [[[1.0], [3.0], [3.5]]])
        >>> tasks.n_tasks, tasks.n_classes, tuple(tasks.query.shape)
        (1, 2, (1, 3, 1))
        """
        support, query = as_features(support, "support"), as_features(query, "query")
        labels = as_labels(support_labels, "support_labels").to(support.device)
        query = query.to(support.device, support.dtype)
        if support.ndim != 3 or query.ndim != 3:
            raise InputError(
                f"support and query must have three axes (task, sample, feature); got {tuple(support.shape)} "
                f"and {tuple(query.shape)}. For a single task use support[None] and query[None]."
            )
        if labels.shape != support.shape[:2]:
            raise InputError(
                f"support_labels has shape {tuple(labels.shape)} but the support has {tuple(support.shape[:2])} "
                "samples; give one label for each."
            )
        if support.shape[2] != query.shape[2]:
            raise InputError(
                f"The support has {support.shape[2]} features a sample and the queries {query.shape[2]}; "
                "use the same encoder for both."
            )
        if support.shape[0] != query.shape[0]:
            raise InputError(f"There are {support.shape[0]} tasks in the support and {query.shape[0]} in the queries.")
        if query.shape[0] == 0 or query.shape[1] == 0:
            raise InputError("There is no query to label; give at least one task with at least one query.")
        if labels.shape[1] == 0 or int(labels.min()) < 0:
            raise InputError("support_labels must be integers from 0 to K-1, with at least one sample a class.")
        n_classes = int(labels.max()) + 1 if n_classes is None else n_classes
        present = torch.zeros(labels.shape[0], n_classes, dtype=torch.bool, device=labels.device)
        present.scatter_(1, labels, True)
        if not bool(present.all()):
            task, label = (~present).nonzero()[0].tolist()
            raise InputError(
                f"Class {label} has no example in the support of task {task}; give it one or leave it out."
            )
        if base_mean is not None:
            base_mean = as_features(base_mean, "base_mean").to(support.device, support.dtype)
            if base_mean.shape != support.shape[2:]:
                raise InputError(
                    f"base_mean has shape {tuple(base_mean.shape)} but features have {support.shape[2]} dimensions."
                )
        if query_labels is not None:
            query_labels = as_labels(query_labels, "query_labels").to(support.device)
        return Tasks(support, None, labels, query, None, n_classes, query_labels, None, base_mean)

    @property
    def classes(self) -> Tensor:
        """[t, k] which class of the FeatureSet each task label stands for."""
        if self.class_ids is not None:
            return self.class_ids
        return torch.arange(self.n_classes, device=self.device).expand(self.n_tasks, -1)

    @property
    def n_tasks(self) -> int:
        return (self.query_table if self.query_index is None else self.query_index).shape[0]

    @property
    def n_query(self) -> int:
        return (self.query_table if self.query_index is None else self.query_index).shape[1]

    @property
    def n_support(self) -> int:
        return self.support_labels.shape[1]

    @property
    def n_features(self) -> int:
        return self.query_table.shape[-1]

    @property
    def device(self) -> torch.device:
        return self.query_table.device

    @property
    def dtype(self) -> torch.dtype:
        return self.query_table.dtype

    @property
    def support(self) -> Tensor:
        """[t, s, d], gathered now."""
        return _gather(self.support_table, self.support_index, self.factor)

    @property
    def query(self) -> Tensor:
        """[t, q, d], gathered now."""
        return _gather(self.query_table, self.query_index, self.factor)

    @property
    def shared_support(self) -> bool:
        """Whether all tasks have one and the same support (an expanded index), so that its statistics serve all."""
        return (
            self.support_index is not None and self.support_index.stride(0) == 0 and self.support_labels.stride(0) == 0
        )

    def __len__(self) -> int:
        return self.n_tasks

    def __getitem__(self, which: slice) -> Tasks:
        """The tasks of a slice, as Tasks."""

        def part(value: Tensor | None) -> Tensor | None:
            return None if value is None else value[which]

        return replace(
            self,
            support_table=self.support_table if self.support_index is not None else self.support_table[which],
            support_index=part(self.support_index),
            support_labels=self.support_labels[which],
            query_table=self.query_table if self.query_index is not None else self.query_table[which],
            query_index=part(self.query_index),
            query_labels=part(self.query_labels),
            class_ids=part(self.class_ids),
            factor=part(self.factor),
        )

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Tasks:
        """The same tasks elsewhere, or in another precision."""

        def move(value: Tensor | None) -> Tensor | None:
            if value is None:
                return None
            # A row shared by all tasks stays shared: a plain move would write it out once a task.
            shared = value.ndim > 1 and value.stride(0) == 0
            rows = value[:1] if shared else value
            rows = rows.to(device=device, dtype=dtype if value.is_floating_point() else None)
            return rows.expand(value.shape) if shared else rows

        same_table = self.support_table is self.query_table
        support_table = self.support_table.to(device=device, dtype=dtype)
        return Tasks(
            support_table=support_table,
            support_index=move(self.support_index),
            support_labels=cast(Tensor, move(self.support_labels)),
            query_table=support_table if same_table else self.query_table.to(device=device, dtype=dtype),
            query_index=move(self.query_index),
            n_classes=self.n_classes,
            query_labels=move(self.query_labels),
            class_ids=move(self.class_ids),
            base_mean=move(self.base_mean),
            factor=move(self.factor),
        )


def _gather(table: Tensor, index: Tensor | None, factor: Tensor | None) -> Tensor:
    if index is None:
        return table if factor is None else table * factor
    rows = table.index_select(0, index.reshape(-1)).view(*index.shape, -1)
    return rows if factor is None else rows.mul_(factor)
