"""``Solution``: what a solver returns for a batch of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Solution:
    """What a solver returns for a batch of tasks."""

    probabilities: Tensor  # [t, q, k], rows on the simplex
    n_iter: Tensor  # [t] iterations done
    converged: Tensor  # [t] whether the method's own stopping rule was met (True where there is nothing to iterate)
    make_prototypes: Callable[[], Tensor] | None = None  # most callers never ask for them
    objective: Tensor | None = None  # [t, i] after each iteration; after a task's own stop its last value repeats
    objective_parts: Mapping[str, Tensor] | None = None  # the terms that add up to it, each [t, i]
    occupancy: Tensor | None = None  # [t, k] probability that group k has a query; None: what the probabilities say
    make_presence: Callable[[], Tensor] | None = None  # how sure it is which class each group is; None: group k is k

    @cached_property
    def prototypes(self) -> Tensor | None:
        """[t, k, d] the class representatives, in the feature scale that the method worked in; None if it has none."""
        return None if self.make_prototypes is None else self.make_prototypes()

    @property
    def labels(self) -> Tensor:
        """[t, q] the most probable class of each query; the lowest class wins a tie."""
        return self.probabilities.argmax(-1)

    @property
    def proportions(self) -> Tensor:
        """[t, k] the estimated share of each class among the queries."""
        return self.probabilities.mean(1)

    @cached_property
    def presence(self) -> Tensor:
        """[t, k] the probability that the class occurs among the queries at all."""
        return self._occupied if self.make_presence is None else self.make_presence()

    @property
    def n_classes(self) -> Tensor:
        """[t] how many classes occur among the queries: the expected number."""
        return self._occupied.sum(-1)

    @property
    def n_classes_sd(self) -> Tensor:
        """[t] the standard deviation of that number, the groups of queries being taken as independent."""
        return (self._occupied * (1 - self._occupied)).sum(-1).sqrt()

    n_present, n_present_sd = n_classes, n_classes_sd

    @cached_property
    def _occupied(self) -> Tensor:
        if self.occupancy is not None:
            return self.occupancy
        return -torch.expm1(torch.log1p(-self.probabilities.clamp_max(1 - 1e-6)).sum(1))
