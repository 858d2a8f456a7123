"""``SCORERS``: scores that tell unknown queries from the others, for comparison with methods.

The higher the score of a query, the more likely it is unknown. A score has any scale; only its
order matters. All of them see the features after the transform ``cl2``: the base mean is
subtracted, and vectors have unit norm. Prototypes are the normalised class means of the support.
Class probabilities are those of a softmax over −10 times the squared distances to the prototypes, a
fixed temperature. Importing this module loads no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from manyway import core  # loads torch at the first use of a name
from manyway.errors import named
from manyway.methods._table.checks import check_samples

if TYPE_CHECKING:
    from torch import Tensor

TEMPERATURE = 20.0  # multiplies −½ ‖z − w‖²
NEIGHBOURS = 5  # other queries
# Support samples. A class has few of them, and more neighbours would be of other classes: on the recorded tasks
# (benchmarks/reference.py) the AUROC falls with larger numbers. Of the nearest samples, one counts.
LOF_SAMPLES = 3
_BLOCK_NUMBERS = 1 << 26  # tasks are scored in blocks of about this many distances


class Scorer(NamedTuple):
    """A score for unknown queries: (tasks) -> [t, q]."""

    name: str
    title: str
    score: Callable[[core.Tasks], Tensor]
    version: int = 1  # rises when its scores change; stored results remember it


def get_scorer(name: str) -> Scorer:
    """The scorer of that name; an unknown one is an error that names the nearest."""
    return named(SCORERS, name, "scorer")


def nearest_distance(tasks: core.Tasks) -> Tensor:
    """The distance to the nearest prototype."""
    return _distances(tasks).amin(-1).sqrt()


def max_probability(tasks: core.Tasks) -> Tensor:
    """1 minus the highest class probability (Hendrycks and Gimpel, 2017)."""
    return 1 - _logits(tasks).softmax(-1).amax(-1)


def energy(tasks: core.Tasks) -> Tensor:
    """The free energy −log Σ_k exp(logit_k) (Liu et al., 2020)."""
    return -_logits(tasks).logsumexp(-1)


def neighbour_distance(tasks: core.Tasks) -> Tensor:
    """The distance to the nearest prototype, averaged over the query and its neighbours.

    The neighbours are its five nearest other queries.

    Unknown queries come in groups, too: what is said of a query's neighbours is
    evidence about the query.
    """
    tasks, prototypes = _prepared(tasks)
    own = core.squared_distances(tasks.query, prototypes).amin(-1).sqrt()  # [t, q]
    near = _nearest(tasks.query, None, min(NEIGHBOURS, tasks.n_query - 1))[1]  # [t, q, n]
    return (own + _of_rows(own, near).sum(-1)) / (1 + near.shape[-1])


def k_nearest(tasks: core.Tasks) -> Tensor:
    """The distance to the k-th nearest support sample (Sun et al., 2022) with k = 1."""
    return _in_blocks(
        tasks, tasks.n_query, lambda support, query: _nearest(query, support, 1)[0][..., 0]
    )


def local_outlier_factor(tasks: core.Tasks) -> Tensor:
    """The local outlier factor with respect to the support (Breunig et al., 2000)."""

    def score(support: Tensor, query: Tensor) -> Tensor:
        n_nearest = max(1, min(LOF_SAMPLES, support.shape[1] - 1))
        between, near = _nearest(support, None, n_nearest)
        reach = between[..., -1]  # [t, s] the distance to the last of the nearest
        densities = _density(between, near, reach)
        distances, near = _nearest(query, support, n_nearest)
        return _of_rows(densities, near).mean(-1) / _density(distances, near, reach)

    return _in_blocks(tasks, max(tasks.n_query, tasks.n_support), score)


def _nearest(rows: Tensor, samples: Tensor | None, n_nearest: int) -> tuple[Tensor, Tensor]:
    """Distances and indices [t, n, m] of the nearest samples of each row.

    Without samples they are those of the nearest other rows.
    """
    distances = core.squared_distances(rows, rows if samples is None else samples)
    if samples is None and rows.shape[1] > 1:
        distances.diagonal(dim1=1, dim2=2).fill_(float("inf"))
    found = distances.topk(n_nearest, dim=-1, largest=False)
    return found.values.sqrt(), found.indices


def _of_rows(values: Tensor, indices: Tensor) -> Tensor:
    """[t, n, m] the values [t, s] at indices [t, n, m]."""
    return values.gather(1, indices.flatten(1)).view(indices.shape)


def _density(distances: Tensor, near: Tensor, reach: Tensor) -> Tensor:
    """[t, n] the local reachability density.

    The small number is scikit-learn's, for samples that are repeated.
    """
    return 1 / (distances.maximum(_of_rows(reach, near)).mean(-1) + 1e-10)


def _prepared(tasks: core.Tasks) -> tuple[core.Tasks, Tensor]:
    """The tasks after the feature transform, and the prototypes [t, k, d]."""
    if tasks.class_table is not None:
        check_samples("a scorer", tasks)
    tasks = core.transform(tasks, "cl2")
    return tasks, core.unit(core.prototypes(tasks))


def _distances(tasks: core.Tasks) -> Tensor:
    """[t, q, k] the squared distances to the prototypes."""
    tasks, prototypes = _prepared(tasks)
    return core.squared_distances(tasks.query, prototypes)


def _logits(tasks: core.Tasks) -> Tensor:
    return _distances(tasks) * (-TEMPERATURE / 2)


def _in_blocks(tasks: core.Tasks, n_rows: int, score: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Scores [t, q] by a function of support [t, s, d] and queries [t, q, d], some tasks at a time.

    A task needs ``n_rows`` times as many distances as it has support samples.
    """
    import torch

    tasks, _ = _prepared(tasks)
    size = max(1, _BLOCK_NUMBERS // (n_rows * tasks.n_support))
    parts = (tasks[first : first + size] for first in range(0, len(tasks), size))
    return torch.cat([score(part.support, part.query) for part in parts])


_ALL = (
    Scorer("nearest-distance", "distance to the nearest prototype", nearest_distance),
    Scorer("max-probability", "1 − highest probability", max_probability),
    Scorer("energy", "energy", energy),
    Scorer("knn", "k-nearest neighbours", k_nearest),
    Scorer("lof", "local outlier factor", local_outlier_factor),
    Scorer("neighbour-distance", "distance averaged over neighbours", neighbour_distance),
)
SCORERS: Mapping[str, Scorer] = {scorer.name: scorer for scorer in _ALL}
