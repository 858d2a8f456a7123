"""The constructor and the documentation of an estimator, both from its solver."""

from __future__ import annotations

import inspect
from typing import Any

from manyway.methods import Method
from manyway.methods._table.parameters import doc_entries, doc_sections

_UNKNOWN_LABEL = (inspect.Parameter("unknown_label", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any"),)
OWN_PARAMETERS = ("base_mean", "unknown_label")  # those that solvers do not have


def constructor(cls: type, method: Method) -> Any:
    """``__init__`` of an estimator: keyword-only, with the solver's parameters and defaults in its signature.

    >>> from manyway.methods import get_method
    >>> list(inspect.signature(constructor(object, get_method("simpleshot"))).parameters)
    ['self', 'base_mean', 'scale', 'logit_scale']
    """
    keyword = inspect.Parameter.KEYWORD_ONLY
    solver = inspect.signature(method.solver).parameters
    signature = inspect.Signature(
        [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            inspect.Parameter("base_mean", keyword, default=None, annotation="ArrayLike | None"),
            *(solver[name] for name in method.parameters),
            *(_UNKNOWN_LABEL if "open_set" in method.parameters else ()),
        ]
    )

    def __init__(self: Any, **params: Any) -> None:
        bound = signature.bind(self, **params)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            if name != "self":
                setattr(self, name, value)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    __init__.__module__, __init__.__qualname__ = cls.__module__, f"{cls.__name__}.__init__"
    __init__.__doc__ = f"See ``help({cls.__name__})``."
    return __init__


_DOCUMENTATION = """{head}

Parameters
----------
base_mean : array of shape [d], optional
    The mean feature of the classes that the encoder was trained on. The transforms ``cl2`` and ``rcl2`` subtract it;
    without one they subtract the mean of the labelled examples.
{parameters}

Attributes
----------
classes_ : ndarray of shape [k]
    The distinct labels, sorted; columns of probabilities are in this order.
support_ : ndarray of shape [s, d]
    A copy of the features of the labelled examples.
support_labels_ : ndarray of shape [s]
    Their labels, as places in ``classes_``.
base_mean_ : ndarray of shape [d] or None
    A copy of ``base_mean``.
class_features_ : ndarray of shape [k, d] or None
    A copy of the class features, in the order of ``classes_``.
n_features_in_ : int
    The number of features.
{prepared}
{rest}Examples
--------
>>> from {module} import {name}
>>> clf = {name}().fit([[0, 0, 1, 5, 5, 4], [5, 4, 5, 0, 1, 0]], ["ant", "bee"])
>>> clf.predict([[0, 1, 0, 4, 5, 5], [5, 5, 4, 1, 0, 0], [1, 0, 0, 5, 4, 5]]).tolist()
['ant', 'bee', 'ant']
"""
_DESCRIBED_UNKNOWN = """unknown_label : object, optional
    What ``predict`` answers for an unknown query, with ``open_set``. By default -1 where labels are numbers and
    ``"unknown"`` where they are strings."""
_PREPARED = """prepared_ : object or None
    What the method has prepared from the labelled examples.
"""
_OWN_SECTIONS = ("Parameters", "Attributes", "Returns", "Examples")  # the estimator has its own


def documentation(cls: type, method: Method) -> str:
    """The docstring of an estimator, from the solver's: its text, its parameters and its notes."""
    sections = doc_sections(inspect.getdoc(method.solver) or "")
    described = doc_entries(sections.get("Parameters", ""))
    annotations = inspect.signature(method.solver).parameters
    parameters = [
        described.get(name, f"{name} : {annotations[name].annotation}, default={default!r}")
        for name, default in method.parameters.items()
    ]
    if "open_set" in method.parameters:
        parameters.append(_DESCRIBED_UNKNOWN)
    rest = "".join(
        f"{title}\n{'-' * len(title)}\n{text}\n\n"
        for title, text in sections.items()
        if title and title not in _OWN_SECTIONS
    )
    head, _, _ = sections[""].partition("\n>>> ")
    return _DOCUMENTATION.format(
        head=head.rstrip(),
        parameters="\n".join(parameters),
        prepared=(_PREPARED if method.prepare is not None else "")
        + "".join(f"{name}_ : float or ndarray\n    What was learned as ``{name}``.\n" for name in method.learned),
        rest=rest,
        module="manyway" if cls.__module__ == __package__ else cls.__module__,
        name=cls.__name__,
    )
