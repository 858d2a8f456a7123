"""Balanced pairwise affinities: against the iteration in logarithms, and against recorded rows of the original."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import make_tasks

from benchmarks.reference import feature_files, recorded_tasks
from manyway import FeatureSet, InputError, SimpleShot, Tasks, solve
from manyway.core import balanced_affinities, transform


def slow(tasks: Tasks, weight: float, n_iter: int) -> torch.Tensor:
    """[n, n] the affinities of one task."""
    x = torch.nn.functional.normalize(torch.cat([tasks.support[0], tasks.query[0]]), dim=-1)
    cost = 1 - x @ x.T
    cost.fill_diagonal_(1e5)
    scores = -cost / weight
    v = torch.zeros(len(x), dtype=x.dtype)
    for _ in range(n_iter):
        u = -torch.logsumexp(scores + v, 1)
        v = -torch.logsumexp(scores + u[:, None], 0)
    plan = torch.exp(scores + u[:, None] + v)
    plan = plan / plan.max()
    labels = tasks.support_labels[0]
    plan[: len(labels), : len(labels)] = (labels[:, None] == labels).double()
    return plan.fill_diagonal_(1.0)


@pytest.mark.parametrize(("weight", "n_iter"), [(0.1, 20), (0.2, 5), (0.05, 33)])
def test_rows_are_those_of_the_iteration_in_logarithms(weight, n_iter):
    tasks = make_tasks(2, shots=None)
    found = balanced_affinities(tasks, affinity_weight=weight, affinity_iter=n_iter)
    for i in range(2):
        rows = torch.cat([found.support[i], found.query[i]])
        torch.testing.assert_close(rows, slow(tasks[i : i + 1], weight, n_iter))


def test_the_transform_has_a_name_for_every_method():
    tasks = make_tasks(2)
    matched = balanced_affinities(tasks)
    assert torch.equal(transform(tasks, "bpa").query, matched.query)
    named = solve("paddle", tasks, scale="bpa").probabilities
    assert torch.equal(named, solve("paddle", matched, scale=None).probabilities)
    for method in ("simpleshot", "baseline"):  # which prepare from the support alone where they can
        solution = solve(method, tasks, scale="bpa")
        assert torch.isfinite(solution.probabilities).all()
    estimator = SimpleShot(scale="bpa").fit(tasks.support[0].numpy(), tasks.support_labels[0].numpy())
    expected = solve("simpleshot", tasks[:1], scale="bpa").labels[0]
    np.testing.assert_array_equal(estimator.predict(tasks.query[0].numpy()), expected)


def test_what_cannot_be_matched_is_refused():
    tasks = make_tasks(1)
    with pytest.raises(InputError, match=r"affinity_weight is 0\.01; it must be at least 0\.025"):
        balanced_affinities(tasks, affinity_weight=0.01)
    named = Tasks.from_arrays(tasks.support, tasks.support_labels, tasks.query, class_features=tasks.support[:, ::2])
    with pytest.raises(InputError, match="no use for class features"):
        balanced_affinities(named)
    with pytest.raises(InputError, match="in one batch"):
        balanced_affinities(tasks.with_rows(tasks.support, tasks.query[:, :0]))


def test_rows_are_the_recorded_ones(data_folder):
    path = data_folder.parent / "reference" / "clinc150_5shot_keff5_new.npz"
    if not path.exists():
        pytest.skip("needs the recorded rows beside the data folder")
    features = FeatureSet.load(feature_files(data_folder)["clinc150"]).features
    tasks = recorded_tasks(data_folder, features, "clinc150", "5shot_keff5", 1)
    support, query = balanced_affinities(tasks).query[0].split([tasks.n_support, tasks.n_query], 1)
    by_shot = support.unflatten(1, (tasks.n_classes, -1)).mT.flatten(1)  # recorded: sample 0 of all classes first
    with np.load(path) as file:
        np.testing.assert_allclose(torch.cat([by_shot, query], 1), file["bpa_rows_bpa-proto_task0"], atol=2e-6)
