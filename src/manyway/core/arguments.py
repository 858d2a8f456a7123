"""Whether arguments are of the types that a signature says; one sentence where they are not.

It loads no torch.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from math import isfinite
from numbers import Integral, Real
from types import SimpleNamespace
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from manyway.errors import InputError, InputTypeError, nearest

P = ParamSpec("P")
R = TypeVar("R")
LARGEST = 2**63 - 1  # whole numbers of this size fit into every array
_LONGEST = 60  # letters of a value in a sentence
_WORDS = {
    float: "a finite number",
    int: "an integer",
    bool: "True or False",
    str: "a string",
    type(None): "None",
}


def checks_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Let a public function refuse arguments of the wrong type with one sentence.

    It does so before it does anything else.

    >>> @checks_arguments
    ... def double(number: int) -> int:
    ...     return 2 * number
    >>> double("2")
    Traceback (most recent call last):
        ...
    manyway.errors.InputError: double: number is '2'; it must be an integer.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*given: P.args, **named: P.kwargs) -> R:
        refuse_unknown(function.__name__, signature, named)
        bound = signature.bind(*given, **named)
        hints = _hints(function)
        for name, value in bound.arguments.items():
            kind = signature.parameters[name].kind
            if kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
                refuse_type(function.__name__, name, value, hints.get(name, Any))
        return function(*given, **named)

    return checked


def knows_parameters(made: type[R]) -> type[R]:
    """A class whose constructor names the nearest parameter where one is misspelt.

    >>> @knows_parameters
    ... class Point:
    ...     def __init__(self, *, left=0, top=0): ...
    >>> Point(letf=1)
    Traceback (most recent call last):
        ...
    manyway.errors.InputTypeError: Point has no parameter 'letf'; did you mean 'left'?
    """
    construct: Callable[..., None] = made.__init__
    signature = inspect.signature(construct)

    @functools.wraps(construct)
    def checked(self: Any, *given: Any, **named: Any) -> None:
        refuse_unknown(type(self).__name__, signature, named)
        construct(self, *given, **named)

    made.__init__ = checked  # type: ignore[method-assign]
    return made


def refuse_unknown(where: str, signature: inspect.Signature, named: Mapping[str, Any]) -> None:
    """Refuse a parameter that there is not, and name the nearest one."""
    parameters = signature.parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return
    unknown = next((name for name in named if name not in parameters), None)
    if unknown is not None:
        known = [name for name in parameters if name != "self"]
        raise InputTypeError(f"{where} has no parameter '{unknown}'; {nearest(unknown, known)}")


def refuse_type(where: str, name: str, value: Any, annotation: Any) -> None:
    """Refuse an argument that is not of the annotated type."""
    if not fits(value, annotation):
        raise InputError(f"{where}: {name} is {shown(value)}; it must be {in_words(annotation)}.")


@functools.cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return annotations_of(function)


def annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of the parameters of a function, from its signature.

    One that cannot be resolved is Any.
    """
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        holder = SimpleNamespace(__annotations__={name: parameter.annotation})
        try:
            found |= get_type_hints(holder, getattr(function, "__globals__", {}))
        except (NameError, AttributeError, TypeError):
            found[name] = Any
        if parameter.annotation is parameter.empty:
            found[name] = Any
    return found


def shown(value: Any) -> str:
    """A value in a sentence: short, on one line.

    >>> import numpy
    >>> shown("a"), shown(numpy.zeros((2, 3)))
    ("'a'", 'an array of shape (2, 3)')
    """
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"an array of shape {tuple(map(int, shape))}"
    try:
        text = " ".join(repr(value).split())
    except Exception:  # it is the object of somebody else
        return f"an object of the type {type(value).__name__}"
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}…"


def fits(value: Any, annotation: Any) -> bool:
    """Whether a value is of the annotated type.

    An annotation that is not understood fits everything.
    """
    origin = get_origin(annotation)
    if annotation is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(fits(value, choice) for choice in get_args(annotation))
    if origin is Literal:
        return any(
            type(value) is type(choice) and value == choice for choice in get_args(annotation)
        )
    if origin is not None:
        return _fits_container(value, origin, get_args(annotation))
    if annotation in (None, types.NoneType):
        return value is None
    if annotation is bool:
        # NumPy's, whose class has that name too
        return isinstance(value, bool) or type(value).__name__ == "bool"
    if annotation is float:
        # a fraction is a real number too, but arrays do not compute with it
        is_real = isinstance(value, Real) and not isinstance(value, bool | Fraction)
        return is_real and _is_finite(value)
    if annotation is int:
        return (
            isinstance(value, Integral)
            and not isinstance(value, bool)
            and abs(int(value)) <= LARGEST
        )
    return not isinstance(annotation, type) or isinstance(value, annotation)


def _fits_container(value: Any, origin: Any, inner: tuple[Any, ...]) -> bool:
    """The same for sequences, mappings, other collections and functions."""
    if not isinstance(origin, type):
        return True
    if origin is Callable or origin.__name__ == "Callable":
        return callable(value)
    if issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(fits(each, inner[1]) for each in value.values())
    if issubclass(origin, Sequence):
        listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return listed and all(fits(each, inner[0]) for each in value)
    if issubclass(origin, Collection) or origin.__name__ == "Iterable":
        is_array_of_none = getattr(value, "shape", None) == ()
        counted = origin.__name__ == "Iterable" or hasattr(value, "__len__")
        is_text = isinstance(value, str | bytes)
        return hasattr(value, "__iter__") and counted and not is_array_of_none and not is_text
    return isinstance(value, origin)


def _is_finite(value: Any) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def in_words(annotation: Any) -> str:
    """A type, as an error message names it."""
    origin = get_origin(annotation)
    inner = get_args(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(map(in_words, inner))
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if isinstance(origin, type):
        if origin.__name__ == "Callable":
            return "a function"
        if issubclass(origin, Mapping):
            return f"a mapping of names, each to {in_words(inner[1])}"
        if issubclass(origin, Sequence):
            if inner[0] is float:
                return "a sequence of finite numbers"
            return f"a sequence, each {in_words(inner[0])}"
        return "a collection"
    if annotation is Any:
        return "any value"
    return _WORDS.get(annotation, getattr(annotation, "__name__", str(annotation)))
