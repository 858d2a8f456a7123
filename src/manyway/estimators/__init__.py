"""scikit-learn classes, one per method: they validate, call the solver, and return what it found.

``fit`` keeps a copy of the labelled examples and prepares what depends on them alone; the queries
are labelled in ``predict``, jointly over the whole batch. Nothing on the estimator changes there,
so two batches never influence each other.

A class is made on its first use, from its solver: parameters, their defaults and their
descriptions. So using one class imports no other method, and using none imports no
scikit-learn. ``__init__.pyi`` says to editors and type checkers what they are;
``tests/estimator_stub.py`` writes it.
"""

import re
from types import new_class
from typing import Any

from manyway.estimators.inference import Inference as Inference
from manyway.methods import METHODS, Method

# A class has the title of its method, but for these.
_OTHER_NAMES = {
    "paddle-pgd": "PaddlePGD",
    "baseline++": "BaselinePlusPlus",
    "ici": "ICI",
    "alpha-tim": "AlphaTIM",
    "alpha-am": "AlphaAM",
}


def _class_name(method: Method) -> str:
    words = re.split("[ -]", method.title)
    return _OTHER_NAMES.get(method.name, "".join(word[0].upper() + word[1:] for word in words))


METHOD_OF = {_class_name(method): method.name for method in METHODS.values()}
__all__ = ["METHOD_OF", "Inference", "TransductiveClassifier", *METHOD_OF]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Importing scikit-learn takes a second, and `manyway label` needs none of it.
    from manyway.estimators.base import TransductiveClassifier as base

    if name == "TransductiveClassifier":
        return globals().setdefault(name, base)
    if name == "Evidence":
        from manyway.estimators.stream import StreamClassifier as base
    made = new_class(
        name, (base,), {"method": METHOD_OF[name]}, lambda body: body.update(__module__=__name__)
    )
    return globals().setdefault(name, made)  # the same one for all threads


def __dir__() -> list[str]:
    return __all__
