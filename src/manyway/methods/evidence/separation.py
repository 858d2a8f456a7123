"""Separation: whether queries are nearer to the examples than these are to each other.

With one example per class none can be left out, so that the examples do not show features that say
nothing about the classes. The queries do: where rows of a class lie together, most queries are
nearer to the example of their class than this one is to the nearest of the others. Let H_q be the
distribution of the squared distances from queries to their nearest examples, and H_e that from
examples to their nearest others. Of the queries, at least the part

    G = max_x H_q(x) − H_e(x)

are nearer than chance. Where probabilities are right, G is about two thirds of the mean p̄ that the
likelihoods of single queries claim for their best class. Where it is less than half of p̄, final
probabilities are raised to the power

    min(1, 2 R)²,    R = (K₂ G/p̄ + 2) / (K₂ + 2).

K₂ = 1/Σ_k π_k² is the effective number of classes among the queries. Classes differ in how far their
rows lie from each other, so that few of them say little: it is as if two more had been seen, whose
queries are as near as they claim.
"""

from __future__ import annotations

from math import ceil

import torch
from torch import Tensor

from manyway.methods.calibration.calibration import Calibration
from manyway.methods.calibration.distances import squared_distances

_MOST_EXAMPLES = 512  # evenly spaced ones whose nearest others are looked for
_LEAST_WEIGHT = 1e-9  # of a query: what is divided by their sum stays finite


def separation_power(placed: Tensor, probabilities: Tensor, calibration: Calibration) -> Tensor:
    """[t] the power, from placed queries [t, q, d] and their probabilities [t, q, k].

    A query that may be unknown, whose probabilities sum to less than 1, counts less.
    """
    examples = calibration.prototypes.offsets
    of_examples = _nearest_others(examples).expand(len(placed), -1)
    of_queries = squared_distances(placed, examples.expand(len(placed), -1, -1)).amin(-1)
    # Where all queries are unknown, any of them says as much.
    weights = probabilities.sum(-1).clamp_min(_LEAST_WEIGHT)
    nearer = nearer_than_chance(of_queries, weights, of_examples)
    claimed = calibration.log_likelihood(placed).softmax(-1).amax(-1)
    claim = (claimed * weights).sum(-1) / weights.sum(-1)
    masses = probabilities.sum(1)
    number = masses.sum(-1).square() / masses.square().sum(-1).clamp_min(_LEAST_WEIGHT)
    ratio = (number * nearer / claim + 2) / (number + 2)
    return (2 * ratio).clamp_max(1).square()


def _nearest_others(examples: Tensor) -> Tensor:
    """[t, n] the squared distances of evenly spaced examples [t, k, d] to the nearest others."""
    every = ceil(examples.shape[1] / _MOST_EXAMPLES)
    distances = squared_distances(examples[:, ::every], examples)
    rows = torch.arange(distances.shape[1], device=examples.device)
    distances[:, rows, rows * every] = torch.inf
    return distances.amin(-1)


def nearer_than_chance(distances: Tensor, weights: Tensor, others: Tensor) -> Tensor:
    """[t] G, for distances [t, q] with weights [t, q], and those of examples [t, k]."""
    found = distances.sort(-1)
    below = weights.gather(-1, found.indices).cumsum(-1)
    others_below = torch.searchsorted(others.sort(-1).values, found.values, right=True)
    difference = below / below[:, -1:] - others_below / others.shape[-1]
    return difference.amax(-1).clamp_min(0)
