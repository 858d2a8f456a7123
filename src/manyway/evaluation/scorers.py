"""``SCORERS``: scores that tell queries of no class of the task from the others, for comparison with methods.

The higher the score of a query, the more likely it is unknown. A score has any scale; only its order matters. All of
them see the features after the transform ``cl2``: the base mean is subtracted, and vectors have unit norm. Prototypes
are the normalised class means of the support. Class probabilities are those of a softmax over −10 times the squared
distances to the prototypes, a fixed temperature. Importing this module loads no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from manyway.errors import InputError, nearest

if TYPE_CHECKING:
    from torch import Tensor

    from manyway.core.tasks import Tasks

TEMPERATURE = 20.0  # multiplies −½ ‖z − w‖²
NEIGHBOURS = 5  # other queries
# Support samples. A class has few of them, and more neighbours would be of other classes: on the recorded tasks
# (benchmarks/open_set.py) the AUROC falls with larger numbers.
NEAREST_SAMPLES = 1
LOF_SAMPLES = 3


@dataclass(frozen=True)
class Scorer:
    """A score for unknown queries: (tasks) -> [t, q]."""

    name: str
    title: str
    score: Callable[[Tasks], Tensor]
    version: int = 1  # rises when its scores change; stored results remember it


def get_scorer(name: str) -> Scorer:
    """The scorer of that name; an unknown one is an error that names the nearest."""
    if name not in SCORERS:
        raise InputError(f"There is no scorer '{name}'; {nearest(name, SCORERS)}")
    return SCORERS[name]


def nearest_distance(tasks: Tasks) -> Tensor:
    """The distance to the nearest prototype."""
    return _distances(tasks).amin(-1).sqrt()


def max_probability(tasks: Tasks) -> Tensor:
    """1 minus the highest class probability (Hendrycks and Gimpel, 2017)."""
    return 1 - _logits(tasks).softmax(-1).amax(-1)


def energy(tasks: Tasks) -> Tensor:
    """The free energy −log Σ_k exp(logit_k) (Liu et al., 2020)."""
    return -_logits(tasks).logsumexp(-1)


def neighbour_distance(tasks: Tasks) -> Tensor:
    """The distance to the nearest prototype, averaged over the query and its five nearest other queries.

    Unknown queries come in groups, too: what is said of a query's neighbours is evidence about the query.
    """
    from manyway.core.ops import squared_distances

    tasks, prototypes = _prepared(tasks)
    query = tasks.query
    own = squared_distances(query, prototypes).amin(-1).sqrt()  # [t, q]
    between = squared_distances(query, query)
    between.diagonal(dim1=1, dim2=2).fill_(float("inf"))
    near = between.topk(min(NEIGHBOURS, tasks.n_query - 1), dim=-1, largest=False).indices  # [t, q, n]
    others = own.unsqueeze(1).expand(-1, tasks.n_query, -1).gather(2, near)
    return (own + others.sum(-1)) / (1 + near.shape[-1])


def k_nearest(tasks: Tasks) -> Tensor:
    """The distance to the k-th nearest support sample (Sun et al., 2022) with k = 1, by scikit-learn."""
    from sklearn.neighbors import NearestNeighbors

    def score(support: Any, query: Any) -> Any:
        found = NearestNeighbors(n_neighbors=min(NEAREST_SAMPLES, len(support))).fit(support)
        return found.kneighbors(query)[0][:, -1]

    return _task_by_task(tasks, score)


def local_outlier_factor(tasks: Tasks) -> Tensor:
    """The local outlier factor with respect to the support (Breunig et al., 2000), by scikit-learn."""
    from sklearn.neighbors import LocalOutlierFactor

    def score(support: Any, query: Any) -> Any:
        n_neighbors = max(1, min(LOF_SAMPLES, len(support) - 1))
        return -LocalOutlierFactor(n_neighbors=n_neighbors, novelty=True).fit(support).score_samples(query)

    return _task_by_task(tasks, score)


def _prepared(tasks: Tasks) -> tuple[Tasks, Tensor]:
    """The tasks after the feature transform, and the prototypes [t, k, d]."""
    from manyway.core.ops import prototypes
    from manyway.core.transforms import transform, unit
    from manyway.methods.checks import check_samples

    if tasks.class_table is not None:
        check_samples("a scorer", tasks)
    tasks = transform(tasks, "cl2")
    return tasks, unit(prototypes(tasks))


def _distances(tasks: Tasks) -> Tensor:
    """[t, q, k] the squared distances to the prototypes."""
    from manyway.core.ops import squared_distances

    tasks, prototypes = _prepared(tasks)
    return squared_distances(tasks.query, prototypes)


def _logits(tasks: Tasks) -> Tensor:
    return _distances(tasks) * (-TEMPERATURE / 2)


def _task_by_task(tasks: Tasks, score: Callable[[Any, Any], Any]) -> Tensor:
    """Scores [t, q] by a function of the support and the queries of one task, as NumPy arrays."""
    import numpy as np
    import torch

    tasks, _ = _prepared(tasks)
    support, query = tasks.support.cpu().numpy(), tasks.query.cpu().numpy()
    scores = np.stack([score(support[t], query[t]) for t in range(len(tasks))])
    return torch.from_numpy(scores).to(tasks.device, tasks.dtype)


def _table(*scorers: Scorer) -> Mapping[str, Scorer]:
    return {scorer.name: scorer for scorer in scorers}


SCORERS: Mapping[str, Scorer] = _table(
    Scorer("nearest-distance", "distance to the nearest prototype", nearest_distance),
    Scorer("max-probability", "1 − highest probability", max_probability),
    Scorer("energy", "energy", energy),
    Scorer("knn", "k-nearest neighbours", k_nearest),
    Scorer("lof", "local outlier factor", local_outlier_factor),
    Scorer("neighbour-distance", "distance averaged over neighbours", neighbour_distance),
)
