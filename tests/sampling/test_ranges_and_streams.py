"""Tasks whose number of classes is drawn from a range, and streams of batches."""

from __future__ import annotations

import pytest
import torch
from problems import make_features
from scipy import stats

from manyway import FeatureSet, InputError, TaskSpec, sample_tasks
from manyway.sampling.sampling import sample_groups

GAMMAS = [None, 1.0, 0.1, 0.01, 0]


@pytest.fixture(scope="module")
def features() -> FeatureSet:
    return make_features()


def test_k_eff_is_uniform_over_its_range_and_small_classes_give_all_they_have(features):
    groups = sample_groups(features, TaskSpec(shots=3, k_eff=(1, 4), n_query=60), seed=1, count=800)
    assert [tasks.n_query for _, tasks in groups] == [27, 54, 60]  # 27 samples of a class are left
    assert torch.cat([places for places, _ in groups]).sort().values.tolist() == list(range(800))
    n_present = []
    for _, tasks in groups:
        for i in range(len(tasks)):
            query, support = tasks.query_index[i], tasks.support_index[i]
            assert len(torch.cat([query, support]).unique()) == len(query) + len(support)
            assert torch.equal(features.labels[query], tasks.query_labels[i])
            n_present.append(len(tasks.query_labels[i].unique()))
    assert stats.chisquare(torch.tensor(n_present).bincount(minlength=5)[1:]).pvalue > 1e-3


def test_a_task_of_a_range_depends_on_seed_and_number_alone(features):
    spec = TaskSpec(shots=3, k_eff=(1, 4), n_query=60, n_unknown=5)
    places, tasks = sample_groups(features, spec, seed=4, count=50)[0]
    alone = sample_tasks(features, spec, seed=4, start=int(places[1]), count=1)
    assert torch.equal(alone.query_index[0], tasks.query_index[1])
    assert torch.equal(alone.query_labels[0], tasks.query_labels[1])
    assert int((alone.query_labels < 0).sum()) == 5


def test_tasks_of_different_sizes_cannot_be_one_batch(features):
    with pytest.raises(InputError, match="These tasks have 27 to 60 queries"):
        sample_tasks(features, TaskSpec(shots=3, k_eff=(1, 4), n_query=60), count=50)
    assert sample_tasks(features, TaskSpec(shots=3, k_eff=(1, 4), n_query=20), count=50).n_query == 20


@pytest.mark.parametrize("gamma", GAMMAS)
def test_a_stream_is_batches_of_different_items_with_one_support(features, gamma):
    spec = TaskSpec(shots=3, k_eff=8, n_query=16, n_batches=8, gamma=gamma)
    tasks = sample_tasks(features, spec, seed=3, start=2, count=20)
    assert tasks.query_labels.shape == (160, 16)
    assert tasks.stream.tolist() == [stream for stream in range(2, 22) for _ in range(8)]
    assert torch.equal(features.labels[tasks.query_index], tasks.query_labels)
    for stream in range(20):
        rows = slice(8 * stream, 8 * stream + 8)
        assert (tasks.support_index[rows] == tasks.support_index[8 * stream]).all()
        assert len(tasks.query_index[rows].unique()) == 128
        assert len(tasks.query_labels[rows].unique()) == 8
    later = sample_tasks(features, spec, seed=3, start=9, count=1)
    assert torch.equal(later.query_index, tasks.query_index[56:64])


def test_the_smaller_gamma_the_fewer_classes_a_batch_has(features):
    present = []
    for gamma in GAMMAS:
        spec = TaskSpec(shots=3, k_eff=8, n_query=16, n_batches=8, gamma=gamma)
        labels = sample_tasks(features, spec, count=60).query_labels
        present.append(sum(len(batch.unique()) for batch in labels) / len(labels))
    assert present == sorted(present, reverse=True)
    assert present[0] > 6.5
    assert present[-1] < 2


def test_the_shares_of_a_class_over_the_batches_are_a_dirichlet_draw():
    """The variance of the share of a class that is in one of four batches follows from gamma."""
    features = make_features(n_classes=40, per_class=60)
    spec = TaskSpec(shots=1, k_eff=40, n_query=200, n_batches=4, gamma=0.5)
    labels = sample_tasks(features, spec, count=100).query_labels.view(100, 4, 200)
    shares = torch.stack([(labels == label).sum(-1) for label in range(40)], 1).double()  # [stream, class, batch]
    shares = shares / shares.sum(-1, keepdim=True)
    variance = 0.25 * 0.75 / (4 * 0.5 + 1)  # of one of four Dirichlet(0.5) proportions
    assert abs(float(shares.var()) - variance) < 0.25 * variance


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"k_eff": (4, 2)}, "first number must not exceed its second"),
        ({"k_eff": (0, 2)}, "both must be at least 1"),
        ({"k_eff": (1, 2, 3)}, "an integer, or a range"),
        ({"k_eff": (1, 13)}, "k_eff is 13 but a task has only 12 classes"),
        ({"k_eff": (1, 2), "shots": 30}, "fewer than 30 shots \\+ 1 queries"),
        ({"k_eff": (1, 2), "sampling": "balanced"}, "go with sampling='uniform' only"),
        ({"k_eff": (1, 2), "n_batches": 3}, "goes with one k_eff"),
        ({"n_batches": 0}, "n_batches is 0"),
        ({"n_batches": 2, "gamma": -1.0}, "finite and not negative"),
        ({"gamma": 0.1}, "gamma goes with n_batches above 1"),
        ({"n_batches": 2, "gamma": True}, "gamma is True; it must be a number"),
        ({"n_batches": 20}, "fewer than n_query = 75 in 20 batches"),
    ],
)
def test_impossible_requests_are_one_sentence(features, spec, message):
    with pytest.raises(InputError, match=message):
        sample_tasks(features, TaskSpec(**spec), count=10**9)


def test_a_range_may_be_a_list():
    assert TaskSpec(k_eff=[1, 4]) == TaskSpec(k_eff=(1, 4))
