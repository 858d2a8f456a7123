"""Scores of unknown queries: their definitions, and what every score must have."""

from __future__ import annotations

import pytest
import torch
from problems import make_features
from sklearn.neighbors import LocalOutlierFactor

from benchmarks.reference import compare_scores
from manyway import InputError, Tasks, TaskSpec, sample_tasks
from manyway.core.ops import unit
from manyway.core.transforms import transform
from manyway.evaluation.scorers import SCORERS

SPEC = TaskSpec(shots=3, k_eff=3, n_query=12, n_unknown=8, unknown_classes=2)
every_score = pytest.mark.parametrize("name", SCORERS)


@pytest.fixture(scope="module")
def tasks() -> Tasks:
    return sample_tasks(make_features(), SPEC, seed=3, count=5).to(dtype=torch.float64)


@pytest.fixture(scope="module")
def distances(tasks) -> torch.Tensor:
    """[t, q, k] to normalised class means of normalised support samples."""
    seen = transform(tasks, "cl2")
    means = torch.stack([unit(seen.support[:, seen.support_labels[0] == k].mean(1)) for k in range(8)], 1)
    return torch.cdist(seen.query, means)


@every_score
def test_a_score_is_finite_and_a_batch_equals_a_loop(name, tasks):
    score = SCORERS[name].score(tasks)
    assert score.shape == tasks.query_labels.shape
    assert torch.isfinite(score).all()
    for t in range(len(tasks)):
        torch.testing.assert_close(SCORERS[name].score(tasks[t : t + 1])[0], score[t])


def test_distance_probability_and_energy_are_those_of_the_nearest_prototypes(tasks, distances):
    logits = -10 * distances**2
    torch.testing.assert_close(SCORERS["nearest-distance"].score(tasks), distances.amin(-1))
    torch.testing.assert_close(SCORERS["max-probability"].score(tasks), 1 - logits.softmax(-1).amax(-1))
    torch.testing.assert_close(SCORERS["energy"].score(tasks), -logits.logsumexp(-1))


def test_the_distance_over_neighbours_is_the_mean_over_a_query_and_its_five_nearest(tasks, distances):
    query, own = transform(tasks, "cl2").query, distances.amin(-1)
    expected = own.clone()
    for t in range(len(tasks)):
        for q in range(20):
            near = torch.cdist(query[t, q : q + 1], query[t])[0].argsort()[:6]  # the query itself is the nearest
            expected[t, q] = own[t, near].mean()
    torch.testing.assert_close(SCORERS["neighbour-distance"].score(tasks), expected)


def test_k_nearest_is_the_distance_to_the_nearest_support_sample(tasks):
    seen = transform(tasks, "cl2")
    expected = torch.cdist(seen.query, seen.support).amin(-1)
    torch.testing.assert_close(SCORERS["knn"].score(tasks), expected)


def test_the_local_outlier_factor_is_that_of_scikit_learn(tasks):
    seen = transform(tasks, "cl2")
    score = SCORERS["lof"].score(tasks)
    for t in range(len(tasks)):
        expected = LocalOutlierFactor(n_neighbors=3, novelty=True).fit(seen.support[t].numpy())
        expected = -expected.score_samples(seen.query[t].numpy())
        torch.testing.assert_close(score[t], torch.from_numpy(expected))


@every_score
def test_one_query_and_two_examples_are_enough(name):
    tasks = Tasks.from_arrays([[[0.0, 1.0], [4.0, 0.0]]], [[0, 1]], [[[1.0, 1.0]]])
    assert torch.isfinite(SCORERS[name].score(tasks)).all()


def test_clusters_far_from_all_classes_are_told_by_every_score():
    generator = torch.Generator().manual_seed(0)
    support = torch.eye(6)[:4].repeat_interleave(6, 0) + 0.05 * torch.randn(24, 6, generator=generator)
    query = torch.eye(6)[[0, 1, 4, 5]].repeat_interleave(7, 0) + 0.05 * torch.randn(28, 6, generator=generator)
    truth = torch.tensor([[0, 1, -1, -1]]).repeat_interleave(7, 1)
    labels = torch.arange(4).repeat_interleave(6)
    tasks = Tasks.from_arrays(support[None], labels[None], query[None], query_labels=truth)
    for name, scorer in SCORERS.items():
        score = scorer.score(tasks)[0]
        assert score[truth[0] < 0].min() > score[truth[0] >= 0].max(), name


def test_classes_without_examples_are_refused():
    features = make_features().with_class_features(torch.ones(12, 8))
    tasks = sample_tasks(features, TaskSpec(shots=0, k_eff=3, n_query=12), count=2)
    with pytest.raises(InputError, match="a scorer does not use class features, and class 0 has no example"):
        SCORERS["energy"].score(tasks)


def test_recorded_scores_are_reproduced(data_folder):
    """AUROC on CLINC150 and CUB-200: nearest-prototype distance .876 and .584, maximum softmax .860 and .638."""
    if not (data_folder.parent / "reference").is_dir():
        pytest.skip("the recorded runs are not beside the data folder")
    found = compare_scores(data_folder, ["nearest-distance", "max-probability"])
    rows = {(row.features, row.name): row for row in found}
    assert {features for features, _ in rows} >= {"clinc150", "cub200"}
    for row in rows.values():
        assert row.auroc == pytest.approx(row.recorded, abs=5e-4), (row.features, row.name)
