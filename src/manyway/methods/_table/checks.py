"""Checks of the parameters of every solver, and of the probabilities that it returns."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from math import isfinite
from numbers import Integral, Real
from typing import Any, Literal, Union, get_args, get_origin

from manyway import core  # its parts are imported at their first use, which loads torch
from manyway.errors import InputError

# A parameter means the same in every method, so its range is written once. Integers are counts, at least 1.
_POSITIVE = {"logit_scale", "temperature", "inlier_temperature", "tempering", "precision", "concentration", "power"}
_POSITIVE |= {"lr", "c", "step", "alphas", "anneal_from", "max_concentration"}
_POSITIVE |= {"prior_weight", "anchor_weight", "entropy_weight", "affinity_weight"}
_NOT_NEGATIVE = {"lam", "eps", "tol", "sinkhorn_tol", "weights", "graph_weight", "guess_weight", "gammas"}
_SHARES = {"data_weight", "queries_weight"}  # from 0 to 1
_ROW_SUMS = 1e-3  # how far a row of probabilities may be from 1


def check_params(method: str, params: Mapping[str, Any], annotations: Mapping[str, Any]) -> None:
    """Refuse parameters of the wrong type, numbers that are not finite, and numbers out of their range.

    >>> check_params("paddle", {"lam": 2.0, "tol": None}, {"lam": float, "tol": float | None})
    >>> check_params("paddle", {"lam": float("nan")}, {"lam": float | None})
    Traceback (most recent call last):
        ...
    manyway.errors.InputError: paddle: lam is nan; it must be a finite number or None.
    """
    for name, value in params.items():
        annotation = annotations.get(name, Any)
        if not _fits(value, annotation):
            raise InputError(f"{method}: {name} is {value!r}; it must be {_words(annotation)}.")
        for number in value if isinstance(value, Sequence) and not isinstance(value, str) else [value]:
            if not isinstance(number, Real) or isinstance(number, bool):
                continue
            if name in _SHARES and not 0 <= float(number) <= 1:
                raise InputError(f"{method}: {name} is {value!r}; it must be from 0 to 1.")
            if name in _NOT_NEGATIVE and number < 0:
                raise InputError(f"{method}: {name} is {value!r}; it must not be negative.")
            if number <= 0 and (name in _POSITIVE or (isinstance(number, Integral) and annotation is int)):
                raise InputError(f"{method}: {name} is {value!r}; it must be positive.")


def check_samples(method: str, tasks: core.Tasks) -> None:
    """Refuse classes without a support sample, for a method that does not use class features."""

    bare = core.class_without_sample(tasks.support_labels, tasks.n_classes)
    if bare is not None:
        lacking = f"class {bare[1]} has no example in the support of task {bare[0]}"
        hint = "give it one, or choose a method that uses class features"
        raise InputError(f"{method} does not use class features, and {lacking}; {hint}.")


def check_solution(method: str, tasks: core.Tasks, solution: core.Solution) -> None:
    """Refuse a solution whose probabilities are not finite or, where one class is right, do not sum to 1."""
    if tasks.pile is not None:
        return  # another pass would only be for this; whoever reads the answers sees them
    total = solution.probabilities.sum(-1)
    total = 0 * total + 1 if tasks.several else total
    if solution.unknown is not None and solution.unknown_groups is not None:
        total = total + solution.unknown
    bad = ~((total - 1).abs() <= _ROW_SUMS)  # written so that NaN is bad
    if not bool(bad.any()):
        return
    task = int(bad.any(1).nonzero()[0])
    why = "its features or the parameters are too extreme, or its labelled examples hardly differ"
    hint = "try another scale, features in float64 or the default parameters"
    raise InputError(f"{method} has no valid probabilities for task {task}: {why}; {hint}.")


def _fits(value: Any, annotation: Any) -> bool:
    """Whether a value is of the annotated type; an annotation that is not understood fits everything."""
    origin = get_origin(annotation)
    if annotation is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(value, choice) for choice in get_args(annotation))
    if origin is Literal:
        return value in get_args(annotation)
    if _holds(origin, Sequence):
        of = get_args(annotation)[0]
        return isinstance(value, Sequence) and not isinstance(value, str) and all(_fits(each, of) for each in value)
    if _holds(origin, Mapping):
        of = get_args(annotation)[1]
        return isinstance(value, Mapping) and all(_fits(each, of) for each in value.values())
    if annotation in (None, types.NoneType):
        return value is None
    if annotation is bool:
        return isinstance(value, bool) or type(value).__name__ == "bool"  # NumPy's, whose class has that name too
    if annotation is float:
        return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)
    if annotation is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    return not isinstance(annotation, type) or isinstance(value, annotation)


def _holds(origin: Any, kind: type) -> bool:
    return isinstance(origin, type) and issubclass(origin, kind)


def _words(annotation: Any) -> str:
    """A type, as an error message names it."""
    names = {float: "a finite number", int: "an integer", bool: "True or False", str: "a string", type(None): "None"}
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(map(_words, inner))
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if _holds(origin, Sequence):
        return "a sequence of finite numbers" if inner[0] is float else f"a sequence, each {_words(inner[0])}"
    if _holds(origin, Mapping):
        return f"a mapping of names, each to {_words(inner[1])}"
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))
