"""OSLO: prototypes that outliers hardly move, and a score of being one; equal to recorded runs of the original."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from problems import make_tasks

from benchmarks.reference import feature_files, recorded_tasks
from manyway import OSLO, FeatureSet, Tasks, solve

VARIANTS = {"oslo": "tcl2", "oslo-base": "cl2"}


def test_two_iterations_are_those_of_the_equations():
    tasks = make_tasks(1, shots=1)
    support, query, centres = tasks.support[0], tasks.query[0], tasks.support[0]
    cosine = torch.nn.functional.cosine_similarity
    assigned = torch.full((7, 4), 0.25, dtype=torch.float64)
    for _ in range(2):
        cosines = cosine(query.unsqueeze(1), centres.unsqueeze(0), dim=-1)
        inlierness = torch.sigmoid((assigned * cosines).sum(1) / 0.05)
        assigned = torch.softmax(inlierness.unsqueeze(1) * cosines / 0.1, 1)
        weights = inlierness.unsqueeze(1) * assigned
        centres = (support + weights.T @ query) / (1 + weights.sum(0)).unsqueeze(1)
    solution = solve("oslo", tasks, scale=None)
    torch.testing.assert_close(solution.unknown[0], 1 - inlierness)
    torch.testing.assert_close(solution.prototypes[0], centres)
    last = cosine(query.unsqueeze(1), centres.unsqueeze(0), dim=-1)
    torch.testing.assert_close(solution.probabilities[0], torch.softmax(last / 0.1, 1))


def test_a_query_of_no_class_has_the_highest_score_and_moves_no_prototype():
    query = [[1.0, 0.1, 0.0], [0.1, 1.0, 0.0], [-1.0, -1.0, 0.2]]
    support = [[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]
    with_stranger = solve("oslo", Tasks.from_arrays(support, [[0, 1]], [query]), scale=None)
    without = solve("oslo", Tasks.from_arrays(support, [[0, 1]], [query[:2]]), scale=None)
    assert with_stranger.unknown.argmax() == 2
    torch.testing.assert_close(with_stranger.prototypes, without.prototypes, atol=1e-5, rtol=0)


def test_the_score_of_a_certain_inlier_keeps_its_digits_in_float32():
    tasks = Tasks.from_arrays([[[1.0, 0.1], [1.0, -0.1]]], [[0, 1]], [[[1.0, 0.0]]])
    single, double = (solve("oslo", tasks.to(dtype=dtype), scale=None).unknown for dtype in (None, torch.float64))
    assert 0 < float(double) < 1e-8
    torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=0)


def test_the_score_is_in_the_tables_of_solutions_and_estimators():
    tasks = make_tasks(2)
    solution = solve("oslo", tasks)
    np.testing.assert_array_equal(solution.to_frame()["unknown"], solution.unknown.flatten())
    result = OSLO().fit(tasks.support[0].numpy(), tasks.support_labels[0].numpy()).infer(tasks.query[0].numpy())
    np.testing.assert_allclose(result.to_frame()["unknown"], solution.unknown[0], atol=1e-9)
    assert "unknown" not in solve("simpleshot", tasks).to_frame()


def features_of(data_folder: Path, dataset: str) -> torch.Tensor:
    if not (data_folder.parent / "reference").is_dir():
        pytest.skip("needs the recorded runs beside the data folder")
    return FeatureSet.load(feature_files(data_folder)[dataset]).features.double()


@pytest.mark.parametrize(("dataset", "config"), [("clinc150", "5shot_keff30"), ("cub200", "20shot_keff5")])
def test_labels_and_scores_are_the_recorded_ones(data_folder, dataset, config):
    tasks = recorded_tasks(data_folder, features_of(data_folder, dataset), dataset, config, 3)
    with np.load(data_folder.parent / "reference" / f"{dataset}_{config}_later.npz") as recorded:
        for name, scale in VARIANTS.items():
            solution = solve("oslo", tasks, scale=scale)
            np.testing.assert_array_equal(solution.labels, recorded[name][:3])
            np.testing.assert_allclose(1 - solution.unknown, recorded[f"inlier_score64_{name}"], atol=1e-12)


@pytest.mark.parametrize("dataset", ["clinc150", "cub200"])
def test_labels_and_scores_of_open_set_tasks_are_the_recorded_ones(data_folder, dataset):
    features = features_of(data_folder, dataset)
    with np.load(data_folder.parent / "reference" / f"{dataset}_openset.npz") as recorded:
        support, query = (
            torch.from_numpy(recorded[f"{part}_idx"][:5].astype(np.int64)) for part in ("support", "query")
        )
        n_tasks, n_classes, shots = support.shape
        labels = torch.arange(n_classes).repeat_interleave(shots).expand(n_tasks, -1)
        mean = torch.from_numpy(recorded["train_mean"]).double()
        tasks = Tasks(features, support.flatten(1), labels, features, query, n_classes, base_mean=mean)
        for name, scale in VARIANTS.items():
            solution, key = solve("oslo", tasks, scale=scale), name.replace("-", "_")
            np.testing.assert_array_equal(solution.labels, recorded[f"{key}_labels"][:5])
            np.testing.assert_allclose(solution.unknown, recorded[f"{key}_outlier_score"][:5], atol=1e-6)
        np.testing.assert_allclose(solve("oslo", tasks).unknown, recorded["oslo_outlier_score64"][:5], atol=1e-12)
