"""Checks of the parameters of every solver, and of the probabilities that it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from manyway import core  # its parts are imported at their first use, which loads torch
from manyway.core.arguments import refuse_type
from manyway.errors import InputError

# A parameter means the same in every method, so its range is written once. Integers are counts, at least 1.
_POSITIVE = {
    "logit_scale",
    "temperature",
    "inlier_temperature",
    "tempering",
    "precision",
    "concentration",
    "power",
}
_POSITIVE |= {"lr", "c", "step", "alphas", "anneal_from", "max_concentration"}
_POSITIVE |= {"prior_weight", "anchor_weight", "entropy_weight", "affinity_weight"}
_NOT_NEGATIVE = {
    "lam",
    "eps",
    "tol",
    "sinkhorn_tol",
    "weights",
    "graph_weight",
    "guess_weight",
    "gammas",
}
_LARGEST = 1e15  # larger numbers are slips, and overflow in float32 when they are squared
_SHARES = {"data_weight", "queries_weight"}  # from 0 to 1
_COUNTS = (int, int | None)
_ROW_SUMS = 1e-3  # how far a row of probabilities may be from 1


def check_params(method: str, params: Mapping[str, Any], annotations: Mapping[str, Any]) -> None:
    """Refuse parameters of the wrong type, not finite, or out of their range.

    >>> check_params("paddle", {"lam": 2.0, "tol": None}, {"lam": float, "tol": float | None})
    >>> check_params("paddle", {"lam": float("nan")}, {"lam": float | None})
    Traceback (most recent call last):
        ...
    manyway.errors.InputError: paddle: lam is nan; it must be a finite number or None.
    """
    for name, value in params.items():
        annotation = annotations.get(name, Any)
        refuse_type(method, name, value, annotation)
        for number in (
            value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        ):
            if not isinstance(number, Real) or isinstance(number, bool):
                continue
            if name in _SHARES and not 0 <= float(number) <= 1:
                raise InputError(f"{method}: {name} is {value!r}; it must be from 0 to 1.")
            if name in _NOT_NEGATIVE and number < 0:
                raise InputError(f"{method}: {name} is {value!r}; it must not be negative.")
            if abs(float(number)) > _LARGEST:
                raise InputError(
                    f"{method}: {name} is {value!r}; it must be smaller than {_LARGEST:g}."
                )
            if number <= 0 and (
                name in _POSITIVE or (isinstance(number, Integral) and annotation in _COUNTS)
            ):
                raise InputError(f"{method}: {name} is {value!r}; it must be positive.")


def check_samples(method: str, tasks: core.Tasks) -> None:
    """Refuse classes without a support sample, for a method that does not use class features."""

    bare = core.class_without_sample(tasks.support_labels, tasks.n_classes)
    if bare is not None:
        lacking = f"class {bare[1]} has no example in the support of task {bare[0]}"
        hint = "give it one, or choose a method that uses class features"
        raise InputError(f"{method} does not use class features, and {lacking}; {hint}.")


def check_solution(method: str, tasks: core.Tasks, solution: core.Solution) -> None:
    """Refuse what is no solution of these tasks, such as a function of a user may return.

    Its probabilities must be finite, and sum to 1 where one class is right.
    """
    if not isinstance(solution, core.Solution):
        given = f"a {type(solution).__name__}"
        raise InputError(f"{method} has returned {given}; a method returns a Solution.")
    if tasks.pile is not None:
        return  # another pass would only be for this; whoever reads the answers sees them
    shape = tuple(solution.probabilities.shape)
    wanted = len(tasks), tasks.n_query, tasks.n_classes
    if shape != wanted:
        raise InputError(
            f"{method} has returned probabilities of shape {shape}; "
            f"tasks, queries and classes are {wanted}."
        )
    total = solution.probabilities.sum(-1)
    if tasks.several:
        total = 0 * total + 1
    if solution.unknown is not None and solution.unknown_groups is not None:
        total = total + solution.unknown
    bad = ~((total - 1).abs() <= _ROW_SUMS)  # written so that NaN is bad
    if not bool(bad.any()):
        return
    task = int(bad.any(1).nonzero()[0])
    why = "its features or the parameters are too extreme, or its labelled examples hardly differ"
    hint = "try another scale, features in float64 or the default parameters"
    raise InputError(f"{method} has no valid probabilities for task {task}: {why}; {hint}.")
