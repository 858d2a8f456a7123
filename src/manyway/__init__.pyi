from .core.solution import Solution
from .core.tasks import Tasks
from .errors import InputError
from .estimators import (
    ADAPT,
    BDCSPN,
    BPA,
    EOL,
    ICI,
    MAPLS,
    MOON,
    OSLO,
    OSLS,
    PADDLE,
    PTMAP,
    TIM,
    TIMADM,
    UNEM,
    AlphaAM,
    AlphaTIM,
    Baseline,
    BaselinePlusPlus,
    EMDirichlet,
    Evidence,
    HardEMDirichlet,
    Inference,
    LabelShift,
    LaplacianShot,
    PaddlePGD,
    SimpleShot,
    SoftKMeans,
    StatA,
    TransCLIP,
    ZLaP,
)
from .estimators.from_scores import EvidenceFromScores
from .evaluation.evaluator import Evaluation, evaluate
from .examination.examining import examine
from .examination.report import Examination
from .labelling.antenna import label_antenna
from .labelling.frames import from_fiftyone, from_frame, label_frame, to_fiftyone, to_frame
from .methods._table.registry import DEFAULT_METHOD, METHODS, solve
from .methods.evidence.solver import evidence_from_likelihood
from .plots.axes import plot_k_eff, plot_presence, plot_reliability
from .sampling.features import FeatureSet
from .sampling.sampling import sample_tasks
from .sampling.spec import TaskSpec

__version__: str
__all__ = [
    "ADAPT",
    "BDCSPN",
    "BPA",
    "DEFAULT_METHOD",
    "EOL",
    "ICI",
    "MAPLS",
    "METHODS",
    "MOON",
    "OSLO",
    "OSLS",
    "PADDLE",
    "PTMAP",
    "TIM",
    "TIMADM",
    "UNEM",
    "AlphaAM",
    "AlphaTIM",
    "Baseline",
    "BaselinePlusPlus",
    "EMDirichlet",
    "Evaluation",
    "Evidence",
    "EvidenceFromScores",
    "Examination",
    "FeatureSet",
    "HardEMDirichlet",
    "Inference",
    "InputError",
    "LabelShift",
    "LaplacianShot",
    "PaddlePGD",
    "SimpleShot",
    "SoftKMeans",
    "Solution",
    "StatA",
    "TaskSpec",
    "Tasks",
    "TransCLIP",
    "ZLaP",
    "evaluate",
    "evidence_from_likelihood",
    "examine",
    "from_fiftyone",
    "from_frame",
    "label_antenna",
    "label_frame",
    "plot_k_eff",
    "plot_presence",
    "plot_reliability",
    "sample_tasks",
    "solve",
    "to_fiftyone",
    "to_frame",
]
