"""The task generator: disjoint, reproducible from (seed, i), and of the distribution it says."""

from __future__ import annotations

import pytest
import torch
from problems import make_features
from scipy import stats

from manyway import FeatureSet, InputError, TaskSpec, sample_tasks

SPECS = [
    TaskSpec(shots=3, k_eff=3, n_query=12),
    TaskSpec(shots=3, k_eff=3, n_query=12, n_ways=5),
    TaskSpec(shots=3, k_eff=3, n_query=12, sampling="balanced"),
    TaskSpec(shots=3, k_eff=3, n_query=12, sampling="dirichlet"),
    TaskSpec(shots=3, k_eff=3, n_query=12, n_ways=4, sampling="dirichlet", alpha=0.3),
    TaskSpec(shots=None, k_eff=3, n_query=12),
]
EVERY_SPEC = pytest.mark.parametrize("spec", SPECS, ids=lambda s: f"{s.sampling}-{s.n_ways}-{s.shots}")


@pytest.fixture(scope="module")
def features() -> FeatureSet:
    """12 classes of 15 to 48 rows, a third of each given as support."""
    whole = make_features(per_class=48)
    rank = torch.zeros(len(whole.labels), dtype=torch.int64)
    for label in range(12):
        rows = (whole.labels == label).nonzero().flatten()
        rank[rows] = torch.arange(len(rows))
    keep = rank < 15 + 3 * whole.labels
    return FeatureSet(whole.features[keep], whole.labels[keep], is_support=(rank % 3 == 0)[keep])


@EVERY_SPEC
def test_support_and_query_are_what_the_spec_says_and_never_overlap(features, spec):
    tasks = sample_tasks(features, spec, seed=5, count=400)
    for i in range(400):
        support, query = tasks.support_index[i], tasks.query_index[i]
        assert len(torch.cat([support, query]).unique()) == len(support) + len(query)
        assert torch.equal(features.labels[query], tasks.classes[i][tasks.query_labels[i]])
        assert torch.equal(features.labels[support], tasks.classes[i][tasks.support_labels[i]])
        assert len(tasks.query_labels[i].unique()) <= spec.k_eff
        if spec.sampling == "balanced":
            assert set(tasks.query_labels[i].bincount().tolist()) <= {0, 4}
    if spec.shots is not None:
        assert (tasks.support_labels[0].bincount() == spec.shots).all()
    else:
        assert features.is_support[tasks.support_index].all()
        assert not features.is_support[tasks.query_index].any()
    assert torch.equal(tasks.query, features.features[tasks.query_index])


@EVERY_SPEC
def test_a_task_depends_on_seed_and_number_alone(features, spec):
    whole = sample_tasks(features, spec, seed=9, start=0, count=60)
    for start, count in [(0, 1), (17, 1), (17, 30), (59, 1)]:
        part = sample_tasks(features, spec, seed=9, start=start, count=count)
        for name in ("support_index", "query_index", "query_labels", "classes"):
            assert torch.equal(getattr(part, name), getattr(whole, name)[start : start + count]), name
    other = sample_tasks(features, spec, seed=10, count=60)
    assert not torch.equal(other.query_index, whole.query_index)


def test_blocks_inside_a_call_do_not_show(features, monkeypatch):
    spec = TaskSpec(shots=3, k_eff=3, n_query=12)
    whole = sample_tasks(features, spec, count=50)
    monkeypatch.setattr("manyway.sampling.sampling._BLOCK_DRAWS", 100)
    assert torch.equal(sample_tasks(features, spec, count=50).query_index, whole.query_index)


def test_uniform_queries_follow_the_pooled_proportions(features):
    """Every remaining sample of the effective classes is equally likely: classes count as much as they have left."""
    spec = TaskSpec(shots=5, k_eff=12, n_query=20)
    tasks = sample_tasks(features, spec, seed=1, count=10_000)
    observed = tasks.query_labels.flatten().bincount(minlength=12)
    left = (features.counts - 5).double()
    expected = left / left.sum() * observed.sum()
    assert stats.chisquare(observed, expected).pvalue > 1e-3


def test_every_sample_is_equally_likely_in_the_support(features):
    tasks = sample_tasks(features, TaskSpec(shots=3, k_eff=2, n_query=4), seed=2, count=10_000)
    for label in range(12):
        rows = (features.labels == label).nonzero().flatten()
        observed = tasks.support_index.flatten().bincount(minlength=len(features.labels))[rows]
        assert stats.chisquare(observed).pvalue > 1e-4
        # pairs too: how far apart, within the class, the first two chosen are
    first = tasks.support_index.view(10_000, 12, 3)[:, 0]
    place = torch.full((len(features.labels),), -1)
    rows = (features.labels == 0).nonzero().flatten()
    place[rows] = torch.arange(len(rows))
    pairs = place[first][:, 0] * len(rows) + place[first][:, 2]
    n = len(rows)
    counts = pairs.bincount(minlength=n * n).view(n, n)
    expected = torch.tensor([[max(0, j - i - 1) for j in range(n)] for i in range(n)], dtype=torch.double)
    possible = expected > 0  # a < b < c: pairs (a, c) weighted by the choices of b between them
    expected = expected / expected.sum() * 10_000
    assert (counts[~possible] == 0).all()
    assert stats.chisquare(counts[possible], expected[possible]).pvalue > 1e-4


def test_effective_classes_are_uniform_and_ways_too(features):
    tasks = sample_tasks(features, TaskSpec(shots=1, k_eff=1, n_query=2, n_ways=4), seed=3, count=6_000)
    effective = tasks.classes.gather(1, tasks.query_labels[:, :1]).flatten()
    assert stats.chisquare(effective.bincount(minlength=12)).pvalue > 1e-4
    assert stats.chisquare(tasks.classes.flatten().bincount(minlength=12)).pvalue > 1e-4


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_dirichlet_shares_have_the_right_mean_and_variance(alpha):
    features = make_features(n_classes=4, per_class=300)
    tasks = sample_tasks(
        features, TaskSpec(shots=1, k_eff=4, n_query=200, sampling="dirichlet", alpha=alpha), count=1_000
    )
    shares = torch.stack([row.bincount(minlength=4) for row in tasks.query_labels]).double() / 200
    variance = 0.25 * 0.75 / (4 * alpha + 1)
    assert shares.mean(0).sub(0.25).abs().max() < 4 * (variance / 1_000) ** 0.5
    assert shares.var(0).div(variance).sub(1).abs().max() < 0.15


def test_dirichlet_never_asks_a_class_for_more_than_it_has():
    features = make_features(n_classes=5, per_class=12)
    tasks = sample_tasks(features, TaskSpec(shots=2, k_eff=4, n_query=38, sampling="dirichlet", alpha=0.2), count=500)
    counts = torch.stack([row.bincount(minlength=5) for row in tasks.query_labels])
    assert counts.max() == 10
    assert (counts.sum(1) == 38).all()


def test_dirichlet_tasks_that_need_every_sample_have_every_sample():
    features = make_features(n_classes=5, per_class=10)
    tasks = sample_tasks(features, TaskSpec(shots=4, k_eff=5, n_query=30, sampling="dirichlet", alpha=2), count=20)
    assert torch.nn.functional.one_hot(tasks.query_labels, 5).sum(1).eq(6).all()


@pytest.mark.parametrize("alpha", [1e-300, 1e-3, 1e6, 1e308])
def test_extreme_dirichlet_parameters_fill_every_task(alpha):
    features = make_features(n_classes=5, per_class=40)
    tasks = sample_tasks(features, TaskSpec(shots=2, k_eff=4, n_query=30, sampling="dirichlet", alpha=alpha), count=50)
    counts = torch.stack([row.bincount(minlength=5) for row in tasks.query_labels])
    assert (counts.sum(1) == 30).all()
    if alpha > 1:
        assert set(counts.flatten().tolist()) == {0, 7, 8}


@pytest.mark.parametrize(
    ("sampling", "rows", "labels"),
    [
        ("uniform", [27, 3, 236, 293, 240, 331], [6, 4, 4, 7, 7, 6]),
        ("balanced", [304, 354, 207, 331, 108, 5], [4, 4, 6, 6, 7, 7]),
        ("dirichlet", [303, 319, 294, 178, 328, 76], [4, 4, 4, 6, 6, 6]),
    ],
)
def test_streams_stay_as_they_are(sampling, rows, labels):
    """Stored results are about these tasks. The numbers were printed by this very call."""
    spec = TaskSpec(shots=2, k_eff=3, n_query=6, sampling=sampling)
    tasks = sample_tasks(make_features(), spec, seed=7, start=3, count=1)
    assert tasks.query_index.tolist() == [rows]
    assert tasks.query_labels.tolist() == [labels]


def test_features_of_extreme_magnitude_are_rescaled_once_by_a_power_of_two():
    plain = make_features()
    extreme = FeatureSet(plain.features * 2.0**80, plain.labels, base_mean=torch.ones(8) * 2.0**80)
    spec = TaskSpec(shots=2, k_eff=2, n_query=5)
    tasks, expected = sample_tasks(extreme, spec, count=3), sample_tasks(plain, spec, count=3)
    ratio = expected.query.flatten()[0] / tasks.query.flatten()[0]
    assert torch.equal(tasks.query * ratio, expected.query)
    assert torch.equal(tasks.base_mean * ratio, torch.ones(8))
    assert 0.5 <= float(extreme.moderate[0].abs().max()) <= 1
    assert expected.query_table is plain.features


def test_a_given_support_is_stored_once_however_many_tasks(features):
    tasks = sample_tasks(features, TaskSpec(shots=None, k_eff=3, n_query=12), count=1000)
    assert tasks.shared_support
    assert tasks.support_index.untyped_storage().nbytes() == 8 * int(features.is_support.sum())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"shots": 15, "k_eff": 1, "n_query": 3}, "0 samples left after 15 shots"),
        ({"shots": 16}, "Class '0' has 15 samples, fewer than 16 shots"),
        ({"shots": 10, "k_eff": 2, "n_query": 16, "sampling": "balanced"}, "fewer than 10 shots \\+ 8 queries"),
        ({"k_eff": 13}, "k_eff is 13 but a task has only 12 classes"),
        ({"k_eff": 5, "n_ways": 4}, "k_eff is 5 but a task has only 4 classes"),
        ({"n_ways": 13}, "n_ways is 13 but the feature set has 12"),
        ({"k_eff": 4, "sampling": "balanced"}, "cannot be shared equally"),
        ({"sampling": "random"}, "choose uniform, balanced or dirichlet"),
        ({"alpha": 1.0}, "alpha is the parameter of sampling='dirichlet'"),
        ({"sampling": "dirichlet", "alpha": float("inf")}, "positive and finite"),
        ({"sampling": "dirichlet", "alpha": float("nan")}, "positive and finite"),
        ({"sampling": "dirichlet", "alpha": 0.0}, "positive and finite"),
        ({"sampling": "dirichlet", "alpha": "1"}, "alpha is '1'; it must be a number"),
        ({"shots": 2.5}, "shots is 2.5; it must be an integer"),
        ({"k_eff": None}, "k_eff is None; it must be an integer"),
        ({"n_query": True}, "n_query is True; it must be an integer"),
        ({"shots": -1}, "shots is -1"),
        ({"shots": 0}, "no class features"),
        ({"n_query": 0}, "at least 1"),
        ({"shots": None, "n_ways": 3, "k_eff": 2}, "leave n_ways out"),
    ],
)
def test_impossible_requests_are_refused_before_any_work(features, spec, message):
    with pytest.raises(InputError, match=message):
        sample_tasks(features, TaskSpec(**spec), count=10**9)


def test_a_given_support_must_exist():
    with pytest.raises(InputError, match="no given support"):
        sample_tasks(make_features(), TaskSpec(shots=None), count=1)


def test_tasks_are_those_of_the_paper_unless_asked_otherwise():
    spec = TaskSpec()
    assert (spec.shots, spec.k_eff, spec.n_query) == (5, 5, 75)
