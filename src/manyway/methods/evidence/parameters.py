"""The parameters of evidence, for tasks in memory and in blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, get_type_hints

from manyway.errors import InputError, nearest
from manyway.methods._table.checks import check_params
from manyway.methods.evidence.schedule import Schedule


@dataclass(frozen=True)
class Parameters:
    """The parameters of evidence.

    Parameters
    ----------
    precision : float or None, default=None
        τ in the log-likelihood −½ τ ‖z − w‖². By default it is calibrated on the support.
    metric : bool, default=True
        Whether distances are measured in a metric that is learned from the support: directions in which samples of one
        class differ much count less. It needs two examples of some class.
    concentration : float or None, default=None
        α of the Dirichlet prior of the class proportions. Small values favour few classes. By default the value with
        the highest evidence is chosen for each task.
    anneal_from : float, default=0.35
        The search starts with likelihoods multiplied by this, and raises it to 1 in 15 updates. 1: no annealing.
    update_prototypes : bool, default=True
        Whether the queries of a class update its prototype before the final probabilities are computed.
    group_posterior : bool, default=True
        Whether the queries of a class, which share the error of its prototype, may as a group belong to another class.
        This makes the probabilities calibrated where few classes are present. It changes few labels.
    merge_groups : bool, default=True
        Whether small groups may be fragments of larger ones. Part of ``group_posterior``.
    open_set : bool, default=False
        Whether queries may be of none of the classes. The solution then has ``unknown``, the probability of that, and
        class probabilities sum to 1 − ``unknown``. It is calibrated on the support, by leaving classes out.
    max_iter : int, default=50
        Maximum number of iterations after annealing.
    tol : float, default=0.01
        A task has converged when no assignment changes by as much in an iteration.
    scale : {"rcl2", "cl2", "l2", "range", "power"} or None, default="rcl2"
        The transform of the features; see ``manyway.methods.calibration.scaling``.
    schedule : mapping of str to float or None, default=None
        Other values for constants of the method, by name; see ``manyway.methods.evidence.schedule``. For research.
    """

    precision: float | None = None
    metric: bool = True
    concentration: float | None = None
    anneal_from: float = Schedule.anneal_from
    update_prototypes: bool = True
    group_posterior: bool = True
    merge_groups: bool = True
    open_set: bool = False
    max_iter: int = 50
    tol: float = 1e-2
    scale: str | None = "rcl2"
    schedule: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        check_params("evidence", vars(self), _types())
        if self.anneal_from > 1:
            raise InputError(f"evidence: anneal_from is {self.anneal_from}; it must be at most 1.")
        for name in self.schedule or {}:
            if not hasattr(Schedule, name):
                raise InputError(
                    f"The schedule of evidence has no constant '{name}'; {nearest(name, vars(Schedule()))}"
                )

    @property
    def constants(self) -> Schedule:
        """The schedule with this object's values."""
        changes: dict[str, Any] = {**(self.schedule or {}), "anneal_from": self.anneal_from}
        return replace(Schedule(), **changes)

    @property
    def of_calibration(self) -> tuple[Schedule, float | None, bool]:
        """What ``calibrate`` takes besides the tasks."""
        return self.constants, self.precision, self.metric


@cache
def _types() -> dict[str, Any]:
    """The types of the parameters."""
    return get_type_hints(Parameters)
