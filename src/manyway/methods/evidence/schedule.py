"""Every parameter and every constant of evidence, in one place.

The constants have the reason for their value.

``Constants`` of ``manyway.methods.calibration`` has those of the calibration, ``Counting`` of
``manyway.core.presence`` those that say which classes occur, ``ScoreConstants`` of
``manyway.methods.scores`` those of scores; ``schedule=`` reaches all.
docs/results/evidence-parts.csv has a table of the effect of each
(``python -m benchmarks.effects``). Limits of memory and time, numbers of steps, how fine a grid is,
and what keeps arithmetic finite are constants of their modules: twice of them changes no label
(tests/methods/evidence/test_limits.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from typing import Any, Literal, get_type_hints

import torch
from torch import Tensor

from manyway.core import Counting, effective_number
from manyway.errors import InputError, nearest
from manyway.methods._table.checks import check_params
from manyway.methods.calibration.constants import Constants
from manyway.methods.evidence.prior import Concentrations, grid_of_alphas
from manyway.methods.scores.constants import ScoreConstants

# The highest values of constants that have one.
_AT_MOST = {
    "anneal_from": 1,
    "improbable": 0.5,
    "scores_background": 1,
    "some_unknown": 0.5,
    "wrong_labels": 0.999,
}
# The lowest values of constants that have one: the factor of fragments falls from 1 to 0 below it.
_AT_LEAST = {"most_groups_with_fragments": 2}
# Constants that cannot be 0: a logarithm is taken, or something is divided by them.
_NOT_ZERO = {
    "one_shot_precision",
    "one_shot_power",
    "one_shot_power_sd",
    "improbable",
    "rehearsed_sd",
    "some_unknown",
    "wrong_labels",
}

_types_of = cache(get_type_hints)  # finding them takes longer than checking them


@dataclass(frozen=True, kw_only=True)
class Schedule(ScoreConstants, Counting, Constants):
    """The constants of calibration, search, post-processing and counting (``Counting``)."""

    # Proportions are the mean of squared probabilities: the mean of probabilities spreads doubt
    # over absent classes. Their error is 17.5 % on validation classes; it is 19.8 % with the mean
    # of probabilities, and 17.3 % with their cubes.
    shares_power: float = 2.0
    # Probabilities with one example per class are raised to a power near this value, which pairs of
    # queries decide; see `confidence.pair_powers`. Second: the standard deviation of its logarithm.
    one_shot_power: float = 0.75
    one_shot_power_sd: float = 0.2

    # --- Search: log-likelihoods ℓ are multiplied by a sharpness that changes with the updates ---
    # Annealing. The first assignments use anneal_from·ℓ, so that queries agree on classes before
    # each one is certain.
    anneal_from: float = 0.35
    # Number of updates in which the sharpness rises to 1.
    anneal_steps: int = 15

    # --- Post-processing of groups: the queries assigned to one class ---
    # The queries of a group share the error of their prototype, so they are not independent. Their
    # correlation is shared_error + 1/(n + 1) for n examples; the first part does not shrink with
    # more examples. The same part does not shrink in σ of unknown queries, nor in the correlation of
    # their errors (see `judge`).
    shared_error: float = 0.2
    # A small group may be a fragment of a larger one. Fragments are looked for where few groups
    # were found: the probability fades to 0 at this effective number. As many of the largest groups
    # can have fragments.
    most_groups_with_fragments: float = 6.0

    # ε: what is unusual has this probability before a batch is seen: that its queries differ from
    # the examples, all in the same way (see `shift`), and with one example per class that some of
    # them are unknown (see `judge`). It is low, because all queries share errors of the scales,
    # which a sum of log-odds does not know. Half of it is the probability that a query of a class looks as if it were
    # unknown: it limits what a single query can say, and groups of unknown queries that are less
    # alike than this, on average, are two. And a batch of a stream is labelled alone unless it
    # begins a run with less than this probability: joining a run of other classes costs more than
    # leaving a run of the same classes out, and where few classes occur the evidence is clear.
    improbable: float = 0.05

    # σ_ξ: the standard deviation of ln ξ, the power that rehearsed claims should have; see
    # `rehearse`.
    rehearsed_sd: float = 0.5

    # Two queries are near-copies where their squared distance is below this part of that of two
    # samples of a class, and in a search below the root of it, 0.22, where that distance is no guess
    # (see `copies.copy_distance`): of a burst of pictures that differ by a few pixels, light and
    # noise, the median is 0.17; of pictures of one class, 0 to 5 % have another so near.
    near_copy: float = 0.05

    # --- Unknown queries: see `judge`; values chosen on the validation halves of four sets ---
    # w of the log-odds: a logistic regression of the truth has w from 0.2 to 0.9, and from 0.1 to 1
    # for the assigned class, which counts half as much. The terms share errors, so that their sum
    # counts less.
    unknown_weight: float = 0.6
    # The probability that a batch has unknown queries, before it is seen: they are looked for where
    # somebody expects them. With 0.05 the gap to the true number is 5 points with five examples per
    # class and none is falsely unknown in most sets, with 0.2 it is 3.5 and 0.5 %, and with 0.5 1.5
    # and 2.5 %.
    some_unknown: float = 0.2
    # With one example per class: 2S relative to the distance between neighbouring classes. 0.64 to
    # 0.94 on five sets; a value at the upper end, because with a lower one batches without unknown
    # queries would seem to have some.
    one_shot_within: float = 0.9

    @property
    def annealing(self) -> list[float]:
        """The sharpness of each update of the annealing, a^(1 − i/n) for i = 0 … n − 1.

        Empty without annealing.
        """
        if self.anneal_from >= 1:
            return []
        n_steps = self.anneal_steps
        return [self.anneal_from ** (1 - step / n_steps) for step in range(n_steps)]

    def sharpness(self, masses: Tensor) -> Tensor:
        """[t] the sharpness of the iterations, by the expected counts [t, k] after annealing.

        1 where queries agree on few classes, up to 1½ where they do not: then each class has few
        queries, and neighbours of another class mislead more than they help.
        """
        return 1 + 0.5 * (1 - agreement(masses))


def agreement(masses: Tensor) -> Tensor:
    """[t] 1 − K̂ / min(|Q|, K), where K̂ is the effective number of classes.

    Near 1 where few classes have many queries each. 0 where all classes, or as many as there are
    queries, are equally frequent.
    """
    return (1 - effective_number(masses) / masses.sum(-1).clamp_max(masses.shape[-1])).clamp_min(0)


def _check_constants(given: Mapping[str, Any]) -> None:
    """Refuse values that a constant cannot have: each has the sign of its default."""
    defaults = vars(Schedule())
    for name in given:
        if name not in defaults:
            hint = nearest(str(name), defaults)
            raise InputError(f"The schedule of evidence has no constant '{name}'; {hint}")
    check_params("evidence, schedule", given, _types_of(Schedule))
    for name, value in given.items():
        problem = _problem_of(name, value, defaults[name])
        if problem is not None:
            raise InputError(f"evidence, schedule: {name} is {value}; {problem}.")


def _problem_of(name: str, value: float, default: float) -> str | None:
    """What is wrong with the value of a constant, which has the right type; None: nothing."""
    if value < 0 < default:
        return "it must not be negative"
    if value == 0 and name in _NOT_ZERO:
        return "it must be positive"
    if value < _AT_LEAST.get(name, value):
        return f"it is at least {_AT_LEAST[name]}"
    if value > _AT_MOST.get(name, value):
        return f"it is at most {_AT_MOST[name]}"
    return None


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The parameters of ``evidence``, which describes them."""

    precision: float | None = None  # positive; None: τ is learned from the support
    metric: bool = True
    likelihood: Literal["auto", "metric", "logistic"] = "metric"
    temperature: float | None = None
    concentration: float | None = None
    update_prototypes: bool = True
    group_posterior: bool = True
    merge_groups: bool = True
    open_set: bool = False
    adapt: Literal["auto"] | bool = "auto"
    rehearse: bool = False
    max_iter: int = 50
    tol: float = 1e-2
    scale: str | None = "auto"
    schedule: Mapping[str, Any] | None = None

    @staticmethod
    def of(arguments: Mapping[str, Any]) -> Parameters:
        """Those among the arguments of a call, by name."""
        names = [one.name for one in fields(Parameters)]
        return Parameters(**{name: arguments[name] for name in names if name in arguments})

    def __post_init__(self) -> None:
        check_params("evidence", vars(self), _types_of(Parameters))
        _check_constants(self.schedule or {})

    @cached_property
    def constants(self) -> Schedule:
        """The schedule with this object's values."""
        return replace(Schedule(), **(self.schedule or {}))

    def prior(
        self,
        n_query: int,
        counts: Tensor,
        *,
        weighted: bool = False,
        double: bool = False,
    ) -> Concentrations:
        """The prior of the labels of so many queries, for classes with ``counts`` [t, k].

        ``weighted``: whether queries may count less than one. ``double``: whether sums come in
        float64.
        """
        n_classes = counts.shape[1]
        grid = grid_of_alphas(n_query, n_classes, self.concentration)
        dtype = torch.float64 if double else counts.dtype
        return Concentrations.of(grid, n_query, n_classes, dtype, counts.device, weighted=weighted)
