"""manyway: label batches of items when there are many possible classes and few of them occur.

>>> from manyway import Evidence
>>> clf = Evidence().fit([[0.0, 0.0], [5.0, 5.0]], ["ant", "bee"])
>>> clf.predict([[0.2, 0.1], [4.9, 5.2], [0.1, 0.3]]).tolist()
['ant', 'bee', 'ant']
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manyway.errors import InputError
    from manyway.estimators import (
        BDCSPN,
        ICI,
        PADDLE,
        PTMAP,
        TIM,
        TIMADM,
        AlphaTIM,
        Baseline,
        BaselinePlusPlus,
        Evidence,
        Inference,
        LaplacianShot,
        PaddlePGD,
        SimpleShot,
        SoftKMeans,
    )
    from manyway.evaluation import Evaluation, evaluate
    from manyway.features import FeatureSet
    from manyway.methods import DEFAULT_METHOD, METHODS, solve
    from manyway.sampling import TaskSpec, sample_tasks
    from manyway.tasks import Solution, Tasks

__version__ = "0.1.0"

# Where each public name lives. It is imported when somebody uses it, so that `manyway --help` does not wait for torch.
_HOMES = {
    "errors": ("InputError",),
    "estimators": (
        "AlphaTIM",
        "BDCSPN",
        "ICI",
        "Baseline",
        "BaselinePlusPlus",
        "Evidence",
        "Inference",
        "LaplacianShot",
        "PADDLE",
        "PTMAP",
        "PaddlePGD",
        "SimpleShot",
        "SoftKMeans",
        "TIM",
        "TIMADM",
    ),
    "evaluation": ("Evaluation", "evaluate"),
    "features": ("FeatureSet",),
    "methods": ("DEFAULT_METHOD", "METHODS", "solve"),
    "sampling": ("TaskSpec", "sample_tasks"),
    "tasks": ("Solution", "Tasks"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BDCSPN",
    "DEFAULT_METHOD",
    "ICI",
    "METHODS",
    "PADDLE",
    "PTMAP",
    "TIM",
    "TIMADM",
    "AlphaTIM",
    "Baseline",
    "BaselinePlusPlus",
    "Evaluation",
    "Evidence",
    "FeatureSet",
    "Inference",
    "InputError",
    "LaplacianShot",
    "PaddlePGD",
    "SimpleShot",
    "SoftKMeans",
    "Solution",
    "TaskSpec",
    "Tasks",
    "evaluate",
    "sample_tasks",
    "solve",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'manyway' has no attribute '{name}'")
    return getattr(import_module(f"manyway.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
