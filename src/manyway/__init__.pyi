from .core.solution import Solution
from .core.tasks import Tasks
from .data.features import FeatureSet
from .data.sampling import TaskSpec, sample_tasks
from .errors import InputError
from .estimators import (
    BDCSPN,
    ICI,
    OSLO,
    PADDLE,
    PTMAP,
    TIM,
    TIMADM,
    UNEM,
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
from .evaluation.evaluator import Evaluation, evaluate
from .methods.evidence.solver import evidence_from_likelihood
from .methods.registry import DEFAULT_METHOD, METHODS, solve
from .plots import plot_k_eff, plot_presence, plot_reliability

__version__: str
__all__ = [
    "BDCSPN",
    "DEFAULT_METHOD",
    "ICI",
    "METHODS",
    "OSLO",
    "PADDLE",
    "PTMAP",
    "TIM",
    "TIMADM",
    "UNEM",
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
    "evidence_from_likelihood",
    "plot_k_eff",
    "plot_presence",
    "plot_reliability",
    "sample_tasks",
    "solve",
]
