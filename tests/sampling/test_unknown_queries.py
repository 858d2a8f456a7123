"""Tasks with unknown queries."""

from __future__ import annotations

import pytest
import torch
from problems import make_features

from manyway import FeatureSet, InputError, TaskSpec, sample_tasks

SPEC = TaskSpec(shots=3, k_eff=3, n_query=12, n_unknown=8, unknown_classes=2)


@pytest.fixture(scope="module")
def features() -> FeatureSet:
    return make_features()


@pytest.fixture(scope="module")
def strangers() -> FeatureSet:
    """Five classes of seven rows."""
    return make_features(n_classes=5, per_class=7, seed=1)


def test_unknown_queries_are_further_queries_of_classes_that_are_not_in_the_task(features):
    tasks = sample_tasks(features, SPEC, seed=5, count=200)
    assert tasks.n_classes == 8  # two thirds of twelve
    assert tasks.n_query == SPEC.n_queries == 20
    for i in range(200):
        unknown = tasks.query_labels[i] == -1
        rows, classes = tasks.query_index[i], tasks.classes[i]
        assert unknown.sum() == 8
        assert torch.equal(features.labels[rows[~unknown]], classes[tasks.query_labels[i][~unknown]])
        assert torch.equal(features.labels[rows[unknown]], tasks.unknown_labels[i][unknown])
        assert not torch.isin(tasks.unknown_labels[i][unknown], classes).any()
        assert len(tasks.unknown_labels[i][unknown].unique()) <= 2
        assert (tasks.unknown_labels[i][~unknown] == -1).all()
        assert len(torch.cat([rows, tasks.support_index[i]]).unique()) == 20 + 8 * 3


def test_without_unknown_classes_they_come_from_all_that_are_left_out(features):
    spec = TaskSpec(shots=3, k_eff=3, n_query=12, n_ways=6, n_unknown=40)
    tasks = sample_tasks(features, spec, count=20)
    assert max(len(labels[labels >= 0].unique()) for labels in tasks.unknown_labels) == 6


def test_strangers_come_from_another_feature_set(features, strangers):
    spec = TaskSpec(shots=3, k_eff=3, n_query=12, n_unknown=8, unknown_from=strangers)
    tasks = sample_tasks(features, spec, seed=2, count=50)
    closed = sample_tasks(features, TaskSpec(shots=3, k_eff=3, n_query=12), seed=2, count=50)
    assert tasks.n_classes == 12  # all classes are in the task
    assert torch.equal(tasks.support, closed.support)
    assert torch.equal(tasks.query[:, 8:], closed.query)
    rows = tasks.query_index[:, :8] - len(features.labels)
    assert torch.equal(tasks.query[:, :8], strangers.features[rows])
    assert torch.equal(tasks.unknown_labels[:, :8], strangers.labels[rows])
    few = sample_tasks(features, TaskSpec(shots=3, n_query=12, n_unknown=8, unknown_classes=2, unknown_from=strangers))
    assert max(len(labels[:8].unique()) for labels in few.unknown_labels) == 2


def test_a_task_depends_on_seed_and_number_alone(features):
    whole = sample_tasks(features, SPEC, seed=9, count=30)
    part = sample_tasks(features, SPEC, seed=9, start=17, count=4)
    for name in ("support_index", "query_index", "query_labels", "unknown_labels", "classes"):
        assert torch.equal(getattr(part, name), getattr(whole, name)[17:21]), name
    assert not torch.equal(sample_tasks(features, SPEC, seed=8, count=30).query_index, whole.query_index)


def test_slices_and_moves_keep_the_unknown_labels(features):
    tasks = sample_tasks(features, SPEC, count=6)
    assert torch.equal(tasks[2:4].to(dtype=torch.float64).unknown_labels, tasks.unknown_labels[2:4])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"n_ways": 10, "unknown_classes": 3}, "come from 3 classes, but outside the task there are 2"),
        ({"n_ways": 12}, "come from 1 classes, but outside the task there are 0"),
        ({"n_unknown": 70, "unknown_classes": 2}, "The 2 smallest classes of unknown queries have 60 samples"),
        ({"n_unknown": -1}, "n_unknown is -1"),
        ({"unknown_classes": 0}, "unknown_classes is 0"),
        ({"n_unknown": 0, "unknown_classes": 3}, "go with n_unknown"),
        ({"unknown_from": "birds"}, "unknown_from is 'birds'; give a FeatureSet"),
        ({"unknown_from": make_features(n_features=9)}, "unknown_from has 9 features per sample and the feature set 8"),
        ({"unknown_from": make_features(n_classes=2), "unknown_classes": 3}, "but unknown_from has 2"),
        ({"n_batches": 2}, "goes with one k_eff and without unknown queries"),
    ],
)
def test_impossible_requests_are_one_sentence(features, spec, message):
    with pytest.raises(InputError, match=message):
        sample_tasks(features, TaskSpec(**{"shots": 3, "k_eff": 3, "n_query": 12, "n_unknown": 8} | spec), count=10**9)


def test_a_given_support_needs_another_set_for_unknown_queries(features, strangers):
    given = FeatureSet(features.features, features.labels, is_support=torch.arange(360) % 2 == 0)
    with pytest.raises(InputError, match="unknown queries then need unknown_from"):
        sample_tasks(given, TaskSpec(shots=None, n_unknown=8), count=1)
    spec = TaskSpec(shots=None, k_eff=5, n_query=20, n_unknown=8, unknown_from=strangers)
    assert sample_tasks(given, spec, count=2).n_query == 28


def test_two_classes_are_too_few_to_leave_one_out():
    with pytest.raises(InputError, match="has 2 classes, too few to leave some out"):
        sample_tasks(make_features(n_classes=2), TaskSpec(k_eff=1, n_query=5, n_unknown=3), count=1)


def test_rows_of_a_file_without_labels_are_strangers_of_one_class_each(features, tmp_path):
    import numpy as np

    np.savez(tmp_path / "strangers.npz", features=np.ones((9, 8), dtype=np.float32))
    with pytest.raises(InputError, match="has no 'labels'"):
        FeatureSet.load(tmp_path / "strangers.npz")
    assert FeatureSet.load(tmp_path / "strangers.npz", unlabelled=True).counts.tolist() == [1] * 9
