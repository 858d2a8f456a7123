"""scikit-learn classes, one per method: they validate, call the solver, and return what it found.

``fit`` keeps a copy of the labelled examples and prepares what depends on them alone; the queries are labelled in
``predict``, jointly over the whole batch. Nothing on the estimator changes there, so two batches never influence each
other.

A class is made on its first use, from its solver: parameters, their defaults and their descriptions. So using one class
imports no other method. ``__init__.pyi`` says to editors and type checkers what they are; ``tests/estimator_stub.py``
writes it.
"""

from types import new_class
from typing import Any

from manyway.estimators.base import TransductiveClassifier as TransductiveClassifier
from manyway.estimators.inference import Inference as Inference

# The classes, and the methods that they are made of.
METHOD_OF = {
    "PADDLE": "paddle",
    "SoftKMeans": "soft-kmeans",
    "PaddlePGD": "paddle-pgd",
    "Baseline": "baseline",
    "BaselinePlusPlus": "baseline++",
    "SimpleShot": "simpleshot",
    "ICI": "ici",
    "BDCSPN": "bd-cspn",
    "PTMAP": "pt-map",
    "LaplacianShot": "laplacianshot",
    "UNEM": "unem",
    "OSLO": "oslo",
    "TIM": "tim",
    "TIMADM": "tim-adm",
    "AlphaTIM": "alpha-tim",
    "TransCLIP": "transclip",
    "StatA": "stata",
    "MOON": "moon",
    "ZLaP": "zlap",
    "Evidence": "evidence",
    "EMDirichlet": "em-dirichlet",
    "HardEMDirichlet": "hard-em-dirichlet",
    "LabelShift": "label-shift",
}
__all__ = ["METHOD_OF", "Inference", "TransductiveClassifier", *METHOD_OF]


def __getattr__(name: str) -> Any:
    if name not in METHOD_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    base = TransductiveClassifier
    if name == "Evidence":
        from manyway.estimators.stream import StreamClassifier as base
    made = new_class(name, (base,), {"method": METHOD_OF[name]}, lambda body: body.update(__module__=__name__))
    return globals().setdefault(name, made)  # the same one for all threads


def __dir__() -> list[str]:
    return __all__
