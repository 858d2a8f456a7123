"""The parameters of evidence."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, get_type_hints

import torch
from torch import Tensor

from manyway.errors import InputError, nearest
from manyway.methods._table.checks import check_params
from manyway.methods.evidence.prior import Concentrations
from manyway.methods.evidence.schedule import Schedule


@dataclass(frozen=True)
class Parameters:
    """The parameters of ``evidence``, which describes them."""

    precision: float | None = None
    metric: bool = True
    likelihood: Literal["auto", "metric", "logistic"] = "metric"
    temperature: float | None = None
    concentration: float | None = None
    update_prototypes: bool = True
    group_posterior: bool = True
    merge_groups: bool = True
    open_set: bool = False
    max_iter: int = 50
    tol: float = 1e-2
    scale: str | None = "auto"
    schedule: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        types = {one.name: get_type_hints(Parameters)[one.name] for one in fields(self)}
        check_params("evidence", vars(self), types)
        known = {one.name for one in fields(Schedule)}
        for name in self.schedule or {}:
            if name not in known:
                raise InputError(f"The schedule of evidence has no constant '{name}'; {nearest(name, known)}")
        check_params("evidence, schedule", self.schedule or {}, get_type_hints(Schedule))
        if self.constants.anneal_from > 1:
            raise InputError(f"evidence, schedule: anneal_from is {self.constants.anneal_from}; it is at most 1.")

    @cached_property
    def constants(self) -> Schedule:
        """The schedule with this object's values."""
        return replace(Schedule(), **(self.schedule or {}))

    @property
    def learns_precision(self) -> bool:
        """Whether τ is learned from the support."""
        return self.precision is None

    @property
    def of_calibration(self) -> tuple[Schedule, float | None, bool]:
        """What ``calibrate`` takes besides the tasks."""
        return self.constants, self.precision, self.metric

    @property
    def of_search(self) -> tuple[Schedule, dict[str, Any]]:
        """What ``search`` takes besides the queries and the prior."""
        return self.constants, {"max_iter": self.max_iter, "tol": self.tol}

    def prior(self, n_query: int, counts: Tensor, *, weighted: bool = False, double: bool = False) -> Concentrations:
        """The prior of the labels of so many queries, for classes with ``counts`` [t, k].

        ``weighted``: whether queries may count less than one. ``double``: whether sums come in float64.
        """
        n_classes = counts.shape[1]
        given = self.concentration
        grid = self.constants.alphas(n_classes) if given is None else torch.tensor([given], dtype=torch.float64)
        dtype = torch.float64 if double else counts.dtype
        return Concentrations.of(grid, n_query, n_classes, dtype, counts.device, weighted=weighted)
