"""manyway: label batches of items when there are many possible classes and few of them occur.

>>> from manyway import PADDLE
>>> clf = PADDLE().fit([[0.0, 0.0], [5.0, 5.0]], ["ant", "bee"])
>>> clf.predict([[0.2, 0.1], [4.9, 5.2], [0.1, 0.3]]).tolist()
['ant', 'bee', 'ant']
"""

from manyway.errors import InputError
from manyway.estimators import PADDLE, Inference, SimpleShot, SoftKMeans
from manyway.evaluation import Evaluation, evaluate
from manyway.features import FeatureSet
from manyway.methods import METHODS, solve
from manyway.sampling import TaskSpec, sample_tasks
from manyway.tasks import Solution, Tasks

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "PADDLE",
    "Evaluation",
    "FeatureSet",
    "Inference",
    "InputError",
    "SimpleShot",
    "SoftKMeans",
    "Solution",
    "TaskSpec",
    "Tasks",
    "evaluate",
    "sample_tasks",
    "solve",
]
