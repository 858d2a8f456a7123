"""Groups of unknown queries, by average linkage."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from manyway.methods.evidence.unknown_groups import link


def test_groups_are_those_of_the_most_central_queries():
    similarity = torch.eye(5)
    for i, j in ((0, 1), (1, 2), (3, 4)):
        similarity[i, j] = similarity[j, i] = 0.8
    groups, medoids = link(similarity[None], torch.tensor([[True, True, True, True, False]]), 0.1)
    assert groups.tolist() == [[0, 0, 0, 1, -1]]
    assert medoids.tolist() == [[1, 3]]


def similarities(n: int, seed: int) -> torch.Tensor:
    """[n, n] of random points in a plane, of which some lie together."""
    draw = np.random.default_rng(seed)
    points = draw.normal(size=(4, 2))[draw.integers(0, 4, n)] + 0.4 * draw.normal(size=(n, 2))
    return torch.from_numpy(np.exp(-((points[:, None] - points[None]) ** 2).sum(-1)))


@pytest.mark.parametrize("seed", range(4))
def test_they_are_those_of_average_linkage(seed):
    similarity = similarities(14, seed)
    everyone = torch.ones(1, 14, dtype=torch.bool)
    groups, medoids = link(similarity[None], everyone, 0.3)
    tree = linkage(squareform(1 - similarity.numpy(), checks=False), "average")
    expected = fcluster(tree, 1 - 0.3, "distance")
    together = expected[:, None] == expected[None]
    assert (together == (groups[0][:, None] == groups[0][None]).numpy()).all()
    sizes = groups[0].bincount()
    assert (sizes.diff() <= 0).all()  # the largest comes first
    for number, medoid in enumerate(medoids[0].tolist()):
        members = (groups[0] == number).nonzero().squeeze(1)
        assert medoid == int(members[similarity[members][:, members].sum(0).argmax()])


def test_each_task_has_its_own_groups_and_queries_of_a_class_have_none():
    alike = torch.ones(4, 4)
    similarity = torch.stack([alike, torch.eye(4), alike])
    rejected = torch.tensor([[True, False, True, True], [True, True, False, False], [False] * 4])
    groups, medoids = link(similarity, rejected, 0.5)
    assert groups.tolist() == [[0, -1, 0, 0], [0, 1, -1, -1], [-1] * 4]
    assert medoids.tolist() == [[0, -1], [0, 1], [-1, -1]]


def test_where_no_query_is_unknown_there_is_no_group():
    groups, medoids = link(torch.ones(2, 3, 3), torch.zeros(2, 3, dtype=torch.bool), 0.5)
    assert (groups == -1).all()
    assert medoids.shape == (2, 0)
