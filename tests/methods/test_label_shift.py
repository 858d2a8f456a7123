"""Label shift: proportions by EM, on posteriors that are calibrated on left-out support samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from problems import make_tasks

from benchmarks.reference import feature_files, recorded_tasks
from manyway import METHODS, FeatureSet, Tasks, solve
from manyway.methods.label_shift import class_proportions


def posteriors(n_query: int = 60, n_classes: int = 5) -> np.ndarray:
    generator = np.random.default_rng(0)
    scores = np.exp(generator.normal(size=(n_query, n_classes)) * 2 + 3 * (np.arange(n_classes) < 2))
    return scores / scores.sum(1, keepdims=True)


def test_proportions_maximise_the_likelihood():
    p = posteriors()
    found, _, converged = class_proportions(torch.from_numpy(p)[None], 100_000, 1e-12)
    assert converged.all()
    # At the maximum, the mean of p/(p·π) is 1 for every class that is present, and at most 1 for the others.
    ratios = (p / (p @ found[0].numpy())[:, None]).mean(0)
    np.testing.assert_allclose(ratios[found[0].numpy() > 1e-6], 1, atol=1e-6)
    assert (ratios < 1 + 1e-6).all()


def test_proportions_are_those_of_quapy():
    aggregative = pytest.importorskip("quapy.method.aggregative", reason="needs QuaPy")
    p = posteriors()
    expected, _ = aggregative.EMQ.EM(np.full(5, 0.2), p, epsilon=1e-9)
    found, _, _ = class_proportions(torch.from_numpy(p)[None], 10_000, 1e-10)
    np.testing.assert_allclose(found[0].numpy(), expected, atol=1e-6)


def test_each_task_stops_on_its_own():
    easy = torch.eye(5, dtype=torch.float64)[torch.arange(60) % 3]
    both = torch.stack([torch.from_numpy(posteriors()), easy])
    _, n_iter, converged = class_proportions(both, 50, 1e-9)
    assert (n_iter.tolist(), converged.tolist()) == ([50, 2], [False, True])


def test_one_shot_has_nothing_to_calibrate_but_the_usual_precision():
    tasks = make_tasks(2, n_classes=5, shots=1)
    found = solve("label-shift", tasks)
    assert torch.isfinite(found.probabilities).all()


def test_tasks_with_one_support_are_calibrated_once_and_alike():
    tasks = make_tasks(1, shots=3, n_query=8)
    rows = torch.arange(tasks.n_support).expand(2, -1)
    labels = tasks.support_labels.expand(2, -1)
    query = torch.arange(8).view(2, 4)
    shared = Tasks(tasks.support[0], rows, labels, tasks.query[0], query, tasks.n_classes)
    assert shared.shared_support
    apart = Tasks(tasks.support[0], rows.clone(), labels.clone(), tasks.query[0], query, tasks.n_classes)
    torch.testing.assert_close(solve("label-shift", shared).probabilities, solve("label-shift", apart).probabilities)


def test_class_features_are_prototypes_with_and_without_support():
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(1, 6, 9, generator=generator)
    truth = torch.tensor([[0] * 5 + [1] * 5])
    query = vectors[:, truth[0]] + 0.5 * torch.randn(1, 10, 9, generator=generator)
    empty = Tasks.from_arrays(torch.zeros(1, 0, 9), torch.zeros(1, 0, dtype=torch.int64), query, class_features=vectors)
    assert torch.equal(solve("label-shift", empty, scale="l2").labels, truth)
    some = Tasks.from_arrays(query[:, :2], truth[:, :2], query, class_features=vectors)
    assert torch.equal(solve("label-shift", some, scale="l2").labels, truth)


@pytest.mark.parametrize("dataset", ["clinc150", "cub200"])
def test_without_calibration_answers_are_those_of_the_recorded_run(data_folder: Path, dataset):
    path = data_folder.parent / "reference" / f"{dataset}_5shot_keff5_later.npz"
    if not path.exists():
        pytest.skip("needs the recorded answers beside the data folder")
    features = FeatureSet.load(feature_files(data_folder)[dataset]).features
    tasks = recorded_tasks(data_folder, features, dataset, "5shot_keff5", 3).to(dtype=torch.float64)
    found = METHODS["label-shift"](tasks, calibrate=False, max_iter=100)
    with np.load(path) as file:
        np.testing.assert_allclose(found.probabilities.numpy(), file["probs64_saerens"], atol=1e-7)
        assert np.array_equal(found.labels.numpy(), file["saerens"][:3])
