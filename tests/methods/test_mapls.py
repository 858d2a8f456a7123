"""MAPLS: proportions by maximum a posteriori, and the rule for its weight; equal to recorded runs of the original."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import make_tasks

from benchmarks.reference import RECORDINGS, feature_files, recorded_tasks
from manyway import METHODS, FeatureSet, InputError, Tasks, solve


def authors_weight(found: np.ndarray, source: np.ndarray) -> float:
    """The rule as the authors compute it, with 1e-8 in each divergence."""
    uniform = np.full(len(source), 1 / len(source))

    def divergence(p, q):
        return float((p * np.log(p / (q + 1e-8))).sum())

    def inverse(value):
        return (1 / (1 - value) - 1) / 0.5

    def forward(value, gain):
        return gain * value / (1 + gain * value)

    gain = inverse(1 - forward(divergence(source, uniform), inverse(0.2)))
    return 0.9 * forward(divergence(found, uniform), gain) + 0.1 * (1 - forward(divergence(found, source), gain))


def logits(seed: int = 0, n_query: int = 40, n_classes: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = 2 * torch.randn(1, n_query, n_classes, generator=generator, dtype=torch.float64)
    return rows + 3 * (torch.arange(n_classes) < 2)


def test_the_answer_is_a_fixed_point_of_the_updates():
    scores = logits()
    solution = solve("mapls", Tasks.from_scores(scores), data_weight=0.7, max_iter=500)
    shares = solution.probabilities.mean(1)
    pi = 0.7 * shares + 0.3 / 5
    joint = scores.softmax(-1) * pi.unsqueeze(1)
    torch.testing.assert_close(solution.probabilities, joint / joint.sum(-1, keepdim=True), atol=1e-9, rtol=0)


@pytest.mark.parametrize("source", ["uniform", "support"])
def test_the_objective_never_increases(source):
    found = METHODS["mapls"](make_tasks(3), source=source, max_iter=30, with_objective=True).objective
    assert (found.diff(dim=1) <= 1e-12).all()


def test_full_weight_of_the_queries_is_label_shift_without_calibration():
    tasks = make_tasks(3, n_classes=6, n_query=20)
    ours = solve("mapls", tasks, data_weight=1.0)
    theirs = METHODS["label-shift"](tasks, calibrate=False, max_iter=100, tol=0.0)
    torch.testing.assert_close(ours.probabilities, theirs.probabilities)


def test_no_weight_of_the_queries_leaves_the_posteriors():
    scores = logits()
    found = solve("mapls", Tasks.from_scores(scores), data_weight=0.0).probabilities
    torch.testing.assert_close(found, scores.softmax(-1))


def test_the_rule_is_that_of_the_authors_for_an_unequal_source():
    generator = torch.Generator().manual_seed(1)
    support = torch.randn(1, 12, 5, generator=generator, dtype=torch.float64) + torch.tensor([1.0, 0, 0, 0, -1.0])
    labels = torch.zeros(1, 12, dtype=torch.int64)
    tasks = Tasks.from_scores(logits(), support=support, support_labels=labels)
    found = solve("mapls", tasks, source="support")
    source = support.softmax(-1).mean(1)
    ratios = logits().softmax(-1) / source.unsqueeze(1)
    pi = source
    for _ in range(100):
        joint = ratios * pi.unsqueeze(1)
        pi = (joint / joint.sum(-1, keepdim=True)).mean(1)
    expected = authors_weight(pi[0].numpy(), source[0].numpy())
    assert 0.3 < expected < 0.89
    assert float(found.told["data_weight"]) == pytest.approx(expected, abs=1e-6)


def test_for_an_equal_source_the_rule_says_the_same_for_all_queries():
    weights = solve("mapls", make_tasks(4)).told["data_weight"]
    torch.testing.assert_close(weights, torch.full((4,), 0.9, dtype=torch.float64))


@pytest.mark.parametrize("weight", [-0.1, 1.1])
def test_a_weight_out_of_range_is_refused(weight):
    with pytest.raises(InputError, match=f"mapls: data_weight is {weight}; it must be from 0 to 1"):
        solve("mapls", make_tasks(1), data_weight=weight)


def test_a_source_of_examples_needs_examples():
    with pytest.raises(InputError, match="needs labelled examples"):
        solve("mapls", Tasks.from_scores(logits()), source="support")


@pytest.mark.parametrize("name", ["mapls", "mapls-soft", "mapls-lam0.5", "mlls"])
def test_answers_are_those_of_the_recorded_run(data_folder, name):
    dataset, config = "clinc150", "5shot_keff30"
    path = data_folder.parent / "reference" / f"{dataset}_{config}_new.npz"
    if not path.exists():
        pytest.skip("needs the recorded answers beside the data folder")
    features = FeatureSet.load(feature_files(data_folder)[dataset]).features
    tasks = recorded_tasks(data_folder, features, dataset, config, 3).to(dtype=torch.float64)
    found = solve("mapls", tasks, **RECORDINGS[name].params)
    with np.load(path) as file:
        np.testing.assert_array_equal(found.labels, file[name][:3])
        np.testing.assert_allclose(found.probabilities, file[f"probs64_{name}"], atol=1e-6)
        np.testing.assert_allclose(found.told["data_weight"], file[f"lam_{name}"][:3], atol=1e-6)
