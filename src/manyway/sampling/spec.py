"""``TaskSpec``: what a task looks like. Reading it loads no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, get_args

from manyway.core.arguments import fits, knows_parameters, shown
from manyway.errors import InputError

if TYPE_CHECKING:
    from manyway.sampling.features import FeatureSet

Sampling = Literal["uniform", "balanced", "dirichlet"]
Reviewer = Literal[
    "fixed",
    "appended",
    "known",
    "uherding",
    "badge",
    "typiclust",
    "probcover",
    "dropquery",
    "falcun",
]
ShiftAlong = Literal["random", "components", "class"]
_INTEGERS = (
    "shots",
    "n_query",
    "n_ways",
    "n_unknown",
    "unknown_classes",
    "n_batches",
    "n_answers",
)
_MAY_BE_NONE = ("shots", "n_ways", "unknown_classes")


@knows_parameters
@dataclass(frozen=True)
class TaskSpec:
    """What a task looks like: how many labelled examples, how many queries, and from how many classes.

    Parameters
    ----------
    shots : int or None, default=5
        The number of labelled examples of each class. None: the examples that the FeatureSet marks
        as given. 0 needs a FeatureSet with class features, and a method that uses them.
    k_eff : int or (int, int), default=5
        The number of classes that the queries come from. With (least, most), it is drawn
        uniformly for each task, and a task whose classes have fewer than ``n_query`` samples
        left takes all of them.
    n_query : int, default=75
        The number of queries of known classes. A task has ``n_query + n_unknown`` queries.
    n_ways : int or None, default=None
        The number of possible classes of a task, K. None: all classes of the FeatureSet; two thirds
        of them (rounded down) where unknown queries come from the others.
    sampling : {"uniform", "balanced", "dirichlet"}, default="uniform"
        How the queries spread over the ``k_eff`` classes. ``uniform`` draws from all their
        remaining samples together (natural imbalance, as in the paper), ``balanced`` takes the same
        number of each, ``dirichlet`` draws the proportions from a Dirichlet distribution.
    alpha : float or None, default=None
        The parameter of the Dirichlet distribution. None: 1; Veilleux et al. use 2.
    n_unknown : int, default=0
        The number of further queries of classes that are not in the task;
        their ``query_labels`` are -1.
    unknown_classes : int or None, default=None
        The number of classes that the unknown queries come from. None:
        all classes that are not in the task.
    unknown_from : FeatureSet or None, default=None
        Another feature set that the unknown queries come from. None: the classes of the FeatureSet
        that are not in the task. In suites it is the key of a feature set.
    n_batches : int, default=1
        The number of batches of ``n_query`` queries that arrive one after another with the
        same support: a stream.
    gamma : float or None, default=None
        How classes spread over the batches of a stream: the proportions of a class over the batches
        are drawn from a Dirichlet distribution with this parameter. The smaller it is, the fewer
        batches a class occurs in. 0: one class after another. None: the batches are alike.
    n_answers : int, default=0
        The number of queries whose true labels a simulated person gives, one after the other.
        They count as correct.
    reviewer : str or None, default=None
        How the person works; needed with ``n_answers``. ``fixed``: nothing is labelled again,
        and the most doubtful query is next. ``appended``: queries with a known label become
        further labelled examples. ``known``: the method takes the known labels as such, and
        says which query is next. ``uherding`` and, of scikit-activeml, ``badge``,
        ``typiclust``, ``probcover``, ``dropquery`` and ``falcun``: the same, and this strategy
        says which one is next.
    shift : float, default=0.0
        By how much all queries of a task differ from the examples, in within-class scatters: the
        root of the mean squared distance of examples from the means of their classes.
    shift_along : {"random", "components", "class"}, default="random"
        In which direction: any, one in the span of the first three principal components of the
        examples, or from one class to another.

    Examples
    --------
    >>> TaskSpec(shots=1, k_eff=3, n_query=30)
    TaskSpec(shots=1, k_eff=3, n_query=30)
    >>> TaskSpec(k_eff=5, n_query=55, n_unknown=20, unknown_classes=3).n_queries
    75
    """

    shots: int | None = 5
    k_eff: int | tuple[int, int] = 5
    n_query: int = 75
    n_ways: int | None = None
    sampling: Sampling = "uniform"
    alpha: float | None = None
    n_unknown: int = 0
    unknown_classes: int | None = None
    unknown_from: FeatureSet | str | None = None
    n_batches: int = 1
    gamma: float | None = None
    n_answers: int = 0
    reviewer: Reviewer | None = None
    shift: float = 0.0
    shift_along: ShiftAlong = "random"

    def __post_init__(self) -> None:
        if isinstance(self.k_eff, list):
            object.__setattr__(self, "k_eff", tuple(self.k_eff))
        self._check_types()
        self._check_queries()
        self._check_unknown()
        self._check_stream()
        self._check_reviewer()
        self._check_shift()

    def _check_types(self) -> None:
        for name in _INTEGERS:
            value = getattr(self, name)
            if not _is_integer(value) and not (value is None and name in _MAY_BE_NONE):
                raise InputError(f"{name} is {shown(value)}; it must be an integer.")
        bounds = self.k_eff if isinstance(self.k_eff, tuple) else (self.k_eff, self.k_eff)
        if len(bounds) != 2 or not all(map(_is_integer, bounds)):
            raise InputError(
                f"k_eff is {shown(self.k_eff)}; it must be an integer, or a range (least, most)."
            )
        for name in ("alpha", "gamma"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, Real) and not isinstance(value, bool)):
                raise InputError(f"{name} is {shown(value)}; it must be a number.")

    def _check_queries(self) -> None:
        if self.shots is not None and self.shots < 0:
            raise InputError(
                f"shots is {self.shots}; it must be 0 (classes known by their features "
                "alone) or more."
            )
        if self.least_k_eff < 1 or self.n_query < 1:
            raise InputError(
                f"k_eff is {self.k_eff} and n_query {self.n_query}; both must be at least 1."
            )
        if self.least_k_eff > self.most_k_eff:
            raise InputError(
                f"k_eff is the range {self.k_eff}; its first number must not exceed its second."
            )
        if self.n_ways is not None and self.n_ways < 2:
            raise InputError(
                f"n_ways is {self.n_ways}; a task needs at least two classes to choose between."
            )
        if not fits(self.sampling, Sampling):
            raise InputError(
                f"sampling is {shown(self.sampling)}; choose uniform, balanced or dirichlet."
            )
        if self.alpha is not None and (
            self.sampling != "dirichlet" or not (isfinite(self.alpha) and self.alpha > 0)
        ):
            raise InputError(
                "alpha is the parameter of sampling='dirichlet', positive and finite; "
                "else leave it out."
            )
        if self.sampling == "balanced" and not self.is_ragged and self.n_query % self.most_k_eff:
            raise InputError(
                f"n_query = {self.n_query} cannot be shared equally by k_eff = "
                f"{self.k_eff} classes."
            )

    def _check_unknown(self) -> None:
        if self.n_unknown < 0:
            raise InputError(f"n_unknown is {self.n_unknown}; it must not be negative.")
        if self.unknown_classes is not None and self.unknown_classes < 1:
            raise InputError(f"unknown_classes is {self.unknown_classes}; it must be at least 1.")
        if not self.n_unknown and (
            self.unknown_classes is not None or self.unknown_from is not None
        ):
            raise InputError(
                "unknown_classes and unknown_from go with n_unknown, the number of unknown queries."
            )

    def _check_stream(self) -> None:
        if self.n_batches < 1:
            raise InputError(f"n_batches is {self.n_batches}; it must be at least 1.")
        if self.gamma is not None and (
            self.n_batches == 1 or not (isfinite(self.gamma) and self.gamma >= 0)
        ):
            raise InputError(
                "gamma goes with n_batches above 1; it must be finite and not negative."
            )
        if self.sampling != "uniform" and (self.is_ragged or self.n_batches > 1):
            raise InputError(
                "A range of k_eff and a stream (n_batches) go with sampling='uniform' only."
            )
        if self.n_batches > 1 and (self.is_ragged or self.n_unknown):
            raise InputError(
                "A stream (n_batches) goes with one k_eff and without unknown queries."
            )

    def _check_reviewer(self) -> None:
        if not fits(self.reviewer, Reviewer | None):
            raise InputError(
                f"reviewer is {shown(self.reviewer)}; "
                f"choose {', '.join(get_args(Reviewer))} or None."
            )
        if not 0 <= self.n_answers <= self.n_query:
            most = f"{self.n_query}, the number of queries"
            raise InputError(f"n_answers is {self.n_answers}; it must be from 0 to {most}.")
        if self.n_answers and self.reviewer is None:
            raise InputError("n_answers needs a reviewer, such as reviewer='known'.")
        if self.reviewer is not None and (self.n_unknown or self.n_batches > 1 or self.is_ragged):
            raise InputError("A reviewer goes with one k_eff, without unknown queries and streams.")

    def _check_shift(self) -> None:
        is_number = isinstance(self.shift, Real) and not isinstance(self.shift, bool)
        if not is_number or not (isfinite(self.shift) and self.shift >= 0):
            raise InputError(
                f"shift is {shown(self.shift)}; it must be a finite number, not negative."
            )
        if not fits(self.shift_along, ShiftAlong):
            raise InputError(
                f"shift_along is {shown(self.shift_along)}; "
                f"choose {', '.join(get_args(ShiftAlong))}."
            )
        if self.shift and self.is_ragged:
            raise InputError("A shift goes with one k_eff.")
        if self.shift and self.shots in (0, 1):
            raise InputError(
                "shift is in within-class scatters, which need two examples per class; "
                "set shots to 2 or more."
            )

    @property
    def least_k_eff(self) -> int:
        """The smallest number of classes that the queries of a task come from."""
        return self.k_eff[0] if isinstance(self.k_eff, tuple) else self.k_eff

    @property
    def most_k_eff(self) -> int:
        """The largest number of classes that the queries of a task come from."""
        return self.k_eff[1] if isinstance(self.k_eff, tuple) else self.k_eff

    @property
    def is_ragged(self) -> bool:
        """Whether tasks may have different numbers of queries."""
        return isinstance(self.k_eff, tuple)

    @property
    def n_known(self) -> int:
        """The number of known queries of a task or of a whole stream.

        At most, where tasks differ.
        """
        return self.n_query * self.n_batches

    @property
    def n_queries(self) -> int:
        """The number of queries of a task or batch, the unknown ones included.

        At most, where tasks differ.
        """
        return self.n_query + self.n_unknown

    def ways(self, n_classes: int) -> int:
        """K, the number of possible classes of a task that is drawn from so many classes.

        Parameters
        ----------
        n_classes : int

        Returns
        -------
        int

        Examples
        --------
        >>> TaskSpec().ways(150), TaskSpec(n_unknown=20).ways(150), TaskSpec(n_ways=20).ways(150)
        (150, 100, 20)
        """
        if self.n_ways is not None:
            return self.n_ways
        if self.n_unknown and self.unknown_from is None:
            return 2 * n_classes // 3
        return n_classes

    def __repr__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        shown = {
            name: value for name, value in values.items() if name in ("shots", "k_eff", "n_query")
        }
        shown |= {name: value for name, value in values.items() if value != DEFAULTS[name]}
        return (
            f"TaskSpec({', '.join(f'{name}={shown[name]!r}' for name in values if name in shown)})"
        )


DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(TaskSpec)}


def task_fields(task: TaskSpec) -> dict[str, Any]:
    """The fields of a task as a mapping.

    A feature set in ``unknown_from`` is named by its fingerprint.

    >>> task_fields(TaskSpec(k_eff=(1, 4)))["k_eff"]
    [1, 4]
    """
    values = {name: getattr(task, name) for name in DEFAULTS}
    if isinstance(task.k_eff, tuple):
        values["k_eff"] = list(task.k_eff)
    if task.unknown_from is not None and not isinstance(task.unknown_from, str):
        values["unknown_from"] = task.unknown_from.fingerprint
    return values


def identity(task: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a task that say which tasks are drawn: later ones only where they do something.

    So results that were stored before there were shifts keep their keys.

    >>> identity({"shots": 5, "shift": 0.0, "shift_along": "random"})
    {'shots': 5}
    """
    without_shift = not task.get("shift")
    return {
        name: value
        for name, value in task.items()
        if not (without_shift and name in ("shift", "shift_along"))
    }


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
