"""What StatA, MOON, TransCLIP and ZLaP share.

The graph of nearest queries, and assignments smoothed by it.

The methods were made for embeddings of pictures and of class names. Their class vectors are the
class features of the tasks, and the normalised class means of the support where there are none
(``core.transforms.class_directions``). All vectors have length one.
"""

import torch
from torch import Tensor

from manyway.core import Solution, Tasks, class_directions, cross_products, extremes
from manyway.methods.calibration.transforms import transform

_LEAST_VARIANCE = 1e-6  # relative to the mean over features
_LEAST_PART = 1e-5  # relative to the mean square of a feature
# a feature whose range is this much below the largest one is constant but for rounding
_DEAD = 1e-5


def start(
    tasks: Tasks, scale: str | None, logit_scale: float
) -> tuple[Tasks, Tensor, Tensor, Tensor]:
    """Transformed tasks, queries and class vectors, and [t, q, k] ln softmax_k(τ x·w_k).

    All vectors have length one.
    """
    tasks = transform(
        transform(tasks, scale), None if scale in ("l2", "cl2", "rcl2", "power") else "l2"
    )
    query = tasks.query
    vectors = class_directions(tasks)
    return tasks, query, vectors, cross_products(query, vectors).mul_(logit_scale).log_softmax(-1)


def nearest_queries(cosines: Tensor, n_neighbors: int, *, skip_first: bool = False) -> Tensor:
    """[t, n, q] the cosines of each row with its nearest queries, and 0 for the others.

    ``skip_first`` leaves out the nearest query of each row.

    >>> nearest_queries(torch.tensor([[[0.5, 0.25, 0.75]]]), 2).tolist()
    [[[0.5, 0.0, 0.75]]]
    """
    nearest = cosines.topk(min(n_neighbors + skip_first, cosines.shape[-1])).indices[
        ..., int(skip_first) :
    ]
    return torch.zeros_like(cosines).scatter_(-1, nearest, cosines.gather(-1, nearest))


def query_graph(query: Tensor, n_neighbors: int) -> Tensor:
    """[t, q, q] the cosines of each query with its nearest other queries, and 0 for the rest.

    >>> query_graph(torch.tensor([[[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]]), 1).tolist()
    [[[0.0, 0.6000000238418579, 0.0], [0.0, 0.0, 0.800000011920929], [0.0, 0.800000011920929, 0.0]]]
    """
    cosines = cross_products(query, query)
    cosines.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    return nearest_queries(cosines, min(n_neighbors, query.shape[1] - 1))


def symmetric_graph(query: Tensor, n_neighbors: int, weight: float) -> Tensor:
    """[t, q, q] the same in both directions.

    Its weights make λ independent of the number of neighbours.
    """
    graph = query_graph(query, n_neighbors)
    return (graph + graph.mT) * (weight / (2 * n_neighbors))


def with_classes(scores: Tensor, prior: Tensor, density: Tensor, classes: Tensor) -> Tensor:
    """[t, q, k] scores in which those of some classes [t, m] are prior + density [t, q, m]."""
    columns = classes.unsqueeze(1).expand_as(density)
    return scores.scatter(2, columns, prior.gather(2, columns) + density)


def unstopped(
    u: Tensor, max_iter: int, anchors: Tensor, classes: Tensor, means: Tensor
) -> Solution:
    """The answer after a fixed number of updates.

    Classes [t, m] have new means [t, m, d], the others their anchors.
    """
    columns = classes.unsqueeze(-1).expand_as(means)
    return Solution(
        u,
        n_iter=max_iter,
        converged=False,
        make_prototypes=lambda: anchors.scatter(1, columns, means),
    )


def smoothed(scores: Tensor, graph: Tensor, u: Tensor, n_iter: int) -> Tensor:
    """Repeat u = softmax_k(scores + graph u), for scores [t, q, k] and a graph [t, q, q]."""
    for _ in range(n_iter):
        u = torch.baddbmm(scores, graph, u).softmax(-1)
    return u


def chosen_classes(u: Tensor) -> tuple[Tensor, Tensor]:
    """[t, m] classes, and how many queries have each as their most probable one.

    m is the largest number of classes that the queries of a task choose.
    Tasks with fewer have others too, with 0.

    >>> classes, counts = chosen_classes(torch.tensor([[[0.1, 0.2, 0.7], [0.2, 0.1, 0.7]]]))
    >>> classes.tolist(), counts.tolist()
    ([[2]], [[2.0]])
    """
    counts = u.new_zeros(len(u), u.shape[2]).scatter_add_(
        1, u.argmax(-1), torch.ones_like(u[..., 0])
    )
    found = counts.topk(int((counts > 0).sum(1).max()))
    return found.indices, found.values


def of_classes(values: Tensor, classes: Tensor) -> Tensor:
    """[t, m, d] the rows of values [t, k, d] that belong to the classes [t, m]."""
    return values.gather(1, classes.unsqueeze(-1).expand(-1, -1, values.shape[2]))


def least_variance(variances: Tensor) -> Tensor:
    """[t, 1, 1] the value below which variances [t, n, d] are not allowed to fall.

    Features that are constant in a task have no variance, and would be divided by it. With this
    bound they have the same variance in every class, so that they change no answer.
    """
    # the variances of vectors of length one are at most of the order of 1/d
    d = variances.shape[-1]
    return variances.mean((1, 2), keepdim=True).clamp_min(1e-3 / d) * _LEAST_VARIANCE


def rounding_variance(centred: Tensor) -> Tensor:
    """[t, 1, d] the least variance of each feature within a class.

    It follows from all rows [t, n, d] around their mean.

    A variance is a difference of squares, and float32 rounds these. What is far below the squares
    is rounding alone: a likelihood that is divided by it would be noise.
    """
    return centred.square().mean(1, keepdim=True).mul_(_LEAST_PART)


def n_live_features(query: Tensor, vectors: Tensor) -> Tensor:
    """[t, 1, 1] the number of features that are not constant in a task.

    The queries and the class vectors count.
    """
    lows, highs = zip(extremes(query), extremes(vectors), strict=True)
    width = torch.maximum(*highs) - torch.minimum(*lows)
    live = width > _DEAD * width.amax(-1, keepdim=True)
    return live.sum(-1, keepdim=True).clamp_min(1).to(query.dtype)
