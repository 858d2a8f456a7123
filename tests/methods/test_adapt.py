"""ADAPT against a slow restatement of its formulas, and against recorded runs of the original."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from problems import make_tasks

from benchmarks.reference import RECORDINGS, feature_files, recorded_tasks
from manyway import FeatureSet, Tasks, solve


def unit_task(n_query: int, n_features: int) -> Tasks:
    tasks = make_tasks(1, 5, n_query, n_features, 2, spread=1.0)
    units = {name: torch.nn.functional.normalize(getattr(tasks, name), dim=-1) for name in ("support", "query")}
    return replace(tasks, support_table=units["support"], query_table=units["query"])


def slow(x: np.ndarray, w: np.ndarray, bank_size: int, tempering: float) -> tuple[np.ndarray, np.ndarray]:
    """The final scores with factors on all logits, and g; one query and one class at a time."""
    n_classes, n_features = w.shape
    logits = 100 * x @ w.T
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    entropies = -(p * np.log(p)).sum(1)
    labels = logits.argmax(1)
    banks = {}
    means = w.copy()
    for k in range(n_classes):
        own = sorted(np.flatnonzero(labels == k), key=lambda i: entropies[i])[:bank_size]
        if own:
            banks[k] = own
            total = sum(p[j, k] * x[j] for j in own) + sum(p[i, k] * x[i] for i in range(len(x)))
            means[k] = 0.9 * total / (sum(p[j, k] for j in own) + p[:, k].sum()) + 0.1 * w[k]
    residuals = np.stack([x[j] - means[k] for k, own in banks.items() for j in own])
    cov = np.cov(residuals.T)
    ridge = (len(residuals) - 1) * cov + np.trace(cov) * np.eye(n_features)
    precision = n_features * np.linalg.pinv(ridge)
    g = np.array([[xi @ precision @ m - m @ precision @ m / 2 for m in means] for xi in x])
    log_g = g - np.log(np.exp(g - g.max(1, keepdims=True)).sum(1, keepdims=True)) - g.max(1, keepdims=True)
    near = np.zeros_like(g)
    for k, own in banks.items():
        for j in own:
            near[:, k] += (x @ x[j]) * p[j, k]
    exponents = log_g / tempering + near / (2 * len(residuals))
    return logits * np.exp(exponents - exponents.max(1, keepdims=True)), g


@pytest.mark.parametrize(("n_query", "n_features"), [(9, 14), (40, 6)])
@pytest.mark.parametrize("bank_size", [2, 6])
def test_answers_are_those_of_the_formulas(n_query, n_features, bank_size):
    tasks = unit_task(n_query, n_features)
    w = np.stack([tasks.support[0, tasks.support_labels[0] == k].mean(0).numpy() for k in range(5)])
    scores, g = slow(tasks.query[0].numpy(), w / np.linalg.norm(w, axis=1, keepdims=True), bank_size, 20.0)
    params = {"bank_size": bank_size, "tempering": 20.0, "scale": None}
    found = solve("adapt", tasks, negative="multiply", **params)
    torch.testing.assert_close(found.probabilities[0], torch.from_numpy(scores).softmax(-1))
    gaussian = solve("adapt", tasks, answer="gaussian", **params)
    torch.testing.assert_close(gaussian.probabilities[0], torch.from_numpy(g).softmax(-1))


def test_an_improbable_class_loses_also_with_a_negative_logit():
    """Both classes point away from all queries. Most queries lie near the first one's side."""
    support = [[[-1.0, 0.3], [-1.0, -0.3]]]
    query = [[[1.0, 0.20], [1.0, 0.21], [1.0, 0.22], [1.0, 0.19], [1.0, -0.01]]]
    tasks = Tasks.from_arrays(support, [[0, 1]], query).to(dtype=torch.float64)
    ours = solve("adapt", tasks, scale=None, tempering=1.0)
    theirs = solve("adapt", tasks, scale=None, tempering=1.0, negative="multiply")
    gaussian = solve("adapt", tasks, scale=None, answer="gaussian").probabilities
    likelier = gaussian.argmax(-1)
    gained = (ours.probabilities - theirs.probabilities).gather(2, likelier.unsqueeze(-1))
    assert (gained >= -1e-12).all()
    assert gained.max() > 0.1


def test_equal_queries_leave_the_class_vectors_to_decide():
    tasks = Tasks.from_arrays([[[0.0, 1.0], [1.0, 0.0]]], [[0, 1]], [[[0.1, 1.0], [0.1, 1.0]]])
    found = solve("adapt", tasks, scale="l2")
    assert found.labels.tolist() == [[0, 0]]
    assert torch.isfinite(found.probabilities).all()


@pytest.mark.parametrize("name", ["adapt", "adapt-scale20", "adapt-gda"])
def test_answers_are_those_of_the_recorded_run(data_folder, name):
    dataset, config = "clinc150", "20shot_keff5"
    path = data_folder.parent / "reference" / f"{dataset}_{config}_new.npz"
    if not path.exists():
        pytest.skip("needs the recorded answers beside the data folder")
    features = FeatureSet.load(feature_files(data_folder)[dataset]).features
    tasks = recorded_tasks(data_folder, features, dataset, config, 3)
    found = solve("adapt", tasks, **RECORDINGS[name].params)
    with np.load(path) as file:
        np.testing.assert_array_equal(found.labels, file[name][:3])
        recorded = torch.from_numpy(file[f"logits_{name}"]).softmax(-1)
    torch.testing.assert_close(found.probabilities, recorded, atol=1e-3, rtol=0)  # the original inverts in float32
