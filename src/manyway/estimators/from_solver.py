"""The constructor and the documentation of an estimator, both from its solver."""

import inspect
from typing import Any

from manyway.core.arguments import refuse_unknown
from manyway.methods import Method
from manyway.methods._table.parameters import doc_entries, doc_sections

_UNKNOWN_LABEL = (
    inspect.Parameter(
        "unknown_label", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any"
    ),
)
OWN_PARAMETERS = ("base_mean", "unknown_label")  # those that solvers do not have
# An estimator learns from one support, and has time for what many tasks would wait for.
OWN_DEFAULTS = {"rehearse": True}


def constructor(cls: type, method: Method) -> Any:
    """``__init__`` of an estimator.

    It is keyword-only, with the solver's parameters and defaults in its signature.

    >>> from manyway.methods import get_method
    >>> list(inspect.signature(constructor(object, get_method("simpleshot"))).parameters)
    ['self', 'base_mean', 'scale', 'logit_scale']
    """
    keyword = inspect.Parameter.KEYWORD_ONLY
    solver = inspect.signature(method.solver).parameters
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    base_mean = inspect.Parameter("base_mean", keyword, default=None, annotation="ArrayLike | None")
    unknown = _UNKNOWN_LABEL if "open_set" in method.parameters else ()
    own = [
        _with_own_default(solver[name])
        for name in method.parameters
        if name not in method.of_scores
    ]
    signature = inspect.Signature([itself, base_mean, *own, *unknown])

    def __init__(self: Any, **params: Any) -> None:
        refuse_unknown(cls.__name__, signature, params)
        bound = signature.bind(self, **params)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            if name != "self":
                setattr(self, name, value)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    __init__.__module__ = cls.__module__
    __init__.__qualname__ = f"{cls.__name__}.__init__"
    __init__.__doc__ = f"See ``help({cls.__name__})``."
    return __init__


def _with_own_default(parameter: inspect.Parameter) -> inspect.Parameter:
    """A parameter of a solver, with the default of estimators where that is another."""
    default = OWN_DEFAULTS.get(parameter.name, parameter.default)
    return parameter.replace(default=default)


def _described_with(default: Any, entry: str) -> str:
    """The description of a parameter of a solver, with the default of estimators.

    >>> _described_with(True, "rehearse : bool, default=False\\n    Whether …").splitlines()[0]
    'rehearse : bool, default=True'
    """
    head, line_end, text = entry.partition("\n")
    kind = head.partition(", default=")[0]
    return f"{kind}, default={default!r}{line_end}{text}"


_EXAMPLE = """>>> from {module} import {name}
>>> clf = {name}().fit([[0, 0, 1, 5, 5, 4], [5, 4, 5, 0, 1, 0]], ["ant", "bee"])
>>> clf.predict([[0, 1, 0, 4, 5, 5], [5, 5, 4, 1, 0, 0], [1, 0, 0, 5, 4, 5]]).tolist()
['ant', 'bee', 'ant']
"""


def documentation(cls: type, method: Method, shared: str) -> str:
    """The docstring of an estimator.

    It has the solver's text, parameters and notes, and what is ``shared`` by all.
    """
    own, common = (
        doc_sections(inspect.cleandoc(text)) for text in (method.solver.__doc__ or "", shared)
    )
    described = doc_entries(common.get("Parameters", "")) | doc_entries(own.get("Parameters", ""))
    for name, default in OWN_DEFAULTS.items():
        if name in described:
            described[name] = _described_with(default, described[name])
    attributes = doc_entries(common.get("Attributes", ""))
    if method.prepare is None:
        attributes.pop("prepared_", None)
    attributes |= {
        name: f"{name}_ : float or ndarray\n    What was learned as ``{name}``."
        for name in method.learned
    }
    parameters = [
        described.get(name, f"{name} : {parameter.annotation}, default={parameter.default!r}")
        for name, parameter in inspect.signature(cls).parameters.items()
    ]
    module = "manyway" if cls.__module__ == __package__ else cls.__module__
    sections = {
        "Parameters": "\n".join(parameters),
        "Attributes": "\n".join(attributes.values()),
        **{
            title: text
            for title, text in own.items()
            if title not in ("", "Parameters", "Attributes", "Returns")
        },
        "Examples": _EXAMPLE.format(module=module, name=cls.__name__),
    }
    head = own[""].partition("\n>>> ")[0].rstrip()
    return "\n\n".join(
        [head, *(f"{title}\n{'-' * len(title)}\n{text}" for title, text in sections.items())]
    )
