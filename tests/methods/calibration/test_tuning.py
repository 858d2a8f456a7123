"""Prototypes tuned by logistic regression."""

from __future__ import annotations

import pytest
import torch
from problems import make_tasks

from manyway import Tasks, solve
from manyway.methods.calibration.calibration import calibrate, ranks_of
from manyway.methods.calibration.tuning import _steepness, _without_themselves, tuned
from manyway.methods.evidence.schedule import Schedule
from manyway.methods.evidence.solver import prepare_evidence


def skewed(n_tasks=3, shots=20, seed=0):
    """Two classes of which one has a long tail away from the other, which draws its mean along, and queries."""
    generator = torch.Generator().manual_seed(seed)

    def rows(n):
        first = torch.randn(n_tasks, n, 4, generator=generator, dtype=torch.float64)
        second = torch.randn(n_tasks, n, 4, generator=generator, dtype=torch.float64)
        second[..., 0] += 2.5
        second[..., 0] += 8 * torch.rand(n_tasks, n, generator=generator, dtype=torch.float64).pow(2)
        return torch.cat([first, second], 1)

    labels = torch.arange(2).repeat_interleave(shots).expand(n_tasks, -1)
    truth = torch.arange(2).repeat_interleave(100).expand(n_tasks, -1)
    return Tasks.from_arrays(rows(shots), labels, rows(100)), truth


def test_tuned_prototypes_label_better_where_class_means_mislead():
    tasks, truth = skewed()
    right = {
        name: (solve("evidence", tasks, likelihood=name, scale=None).labels == truth).double().mean()
        for name in ("metric", "logistic", "auto")
    }
    assert right["logistic"] > right["metric"] + 0.01
    assert right["auto"] > right["metric"] + 0.01


def test_class_means_stay_where_nothing_is_gained():
    tasks = make_tasks(4, n_classes=5, n_query=10, shots=8, spread=0.3)
    chosen, plain = (prepare_evidence(tasks, likelihood=name).calibration.offsets for name in ("auto", "metric"))
    assert torch.equal(chosen, plain)


@pytest.mark.parametrize("examples", [[6, 6, 6], [1, 20, 20]])
def test_every_class_needs_five_examples_or_the_means_stay(examples):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(3).repeat_interleave(torch.tensor(examples))[None]
    rows = torch.randn(1, labels.shape[1], 6, generator=generator) + 0.8 * labels.unsqueeze(-1)
    tasks = Tasks.from_arrays(rows, labels, rows[:, :4])
    always, auto, plain = (
        prepare_evidence(tasks, likelihood=name, schedule={"tuning_gain": -9.0} if name == "auto" else None)
        for name in ("logistic", "auto", "metric")
    )
    assert not torch.equal(always.calibration.offsets, plain.calibration.offsets)
    if min(examples) < 5:
        assert torch.equal(auto.calibration.offsets, plain.calibration.offsets)


def test_tuned_prototypes_are_where_the_objective_is_flat():
    tasks = make_tasks(2, n_classes=4, n_query=5, shots=6, spread=1.5)
    schedule = Schedule(tuning_steps=2000)
    calibration = calibrate(tasks, schedule)
    placed, labels = calibration.place(tasks.support), tasks.support_labels
    found = tuned(calibration, tasks, schedule, always=True)
    biases = calibration.squares - calibration.offsets.square().sum(-1)
    v = found.offsets.clone().requires_grad_()
    scores = placed @ v.mT - 0.5 * (v.square().sum(-1) + biases).unsqueeze(1)
    tau = calibration.precision
    losses = -(scores * tau.view(-1, 1, 1)).log_softmax(-1).gather(-1, labels.unsqueeze(-1)).sum((1, 2)) / 6
    pull = 0.5 * schedule.tuning_pull * tau * (v - calibration.offsets).square().sum((1, 2))
    (losses + pull).sum().backward()
    assert v.grad.abs().max() < 1e-4
    torch.testing.assert_close(found.squares, found.offsets.square().sum(-1) + biases)


def test_many_tasks_are_tuned_as_one_by_one():
    tasks, _ = skewed()
    together = prepare_evidence(tasks, scale=None).calibration.offsets
    for t in range(3):
        alone = prepare_evidence(tasks[t : t + 1], scale=None).calibration.offsets
        torch.testing.assert_close(together[t : t + 1], alone)


def test_samples_as_if_they_had_no_part_in_the_metric():
    tasks = make_tasks(1, n_classes=3, n_query=4, shots=5, spread=1.5)
    rows = tasks.support.clone()
    rows[..., 0] *= 10
    tasks = Tasks.from_arrays(rows, tasks.support_labels, tasks.query)
    calibration = calibrate(tasks, Schedule(metric_gain=-100.0))
    assert calibration.metric is not None
    gamma = calibration.shrinkage[0]
    assert gamma < 1
    placed, labels = calibration.place(tasks.support), tasks.support_labels
    means = torch.stack([placed[:, labels[0] == k].mean(1) for k in range(3)], 1)
    counts = calibration.examples.gather(1, labels)
    rows = _without_themselves(calibration, placed, placed - means[:, labels[0]], counts)
    # By hand: A without the contribution of sample i, and inner products z'A⁻¹b for any b.
    support, d = tasks.support[0], tasks.n_features
    own_means = torch.stack([support[labels[0] == k].mean(0) for k in range(3)])
    residuals = support - own_means[labels[0]]
    weight = (1 - gamma) * d / (12 * calibration.scatter[0])
    full = weight * residuals.T @ residuals + gamma * torch.eye(d, dtype=support.dtype)
    other = torch.randn(d, generator=torch.Generator().manual_seed(0), dtype=support.dtype)
    stretch = calibration.metric.stretch[0] ** 2
    placed_other = calibration.place((other + calibration.middle[0, 0])[None, None])[0, 0]
    for i in range(3):
        less = full - weight * (5 / 4) * torch.outer(residuals[i], residuals[i])
        expected = stretch * (support[i] - calibration.middle[0, 0]) @ torch.linalg.solve(less, other)
        torch.testing.assert_close(rows[0, i] @ placed_other, expected)


def test_steepness_and_ranks():
    rows = torch.randn(2, 30, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows[..., 0] *= 4
    weights = torch.rand(2, 30, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = torch.linalg.eigvalsh(rows.mT @ (weights * rows))[:, -1:]
    torch.testing.assert_close(_steepness(rows, weights).squeeze(-1), expected, rtol=0.02, atol=0)
    labels = torch.tensor([[1, 0, 1, 1, 0]])
    assert ranks_of(labels, torch.tensor([[2.0, 3.0]])).tolist() == [[0, 0, 1, 2, 1]]


def test_unknown_queries_are_told_by_class_means():
    tasks, _ = skewed()
    opened = prepare_evidence(tasks, scale=None, open_set=True, likelihood="auto").calibration.offsets
    assert torch.equal(opened, prepare_evidence(tasks, scale=None, likelihood="metric").calibration.offsets)


def test_few_features_and_few_examples_make_no_large_claims():
    """Features that say nothing: with three examples the labels are guesses, and are not claimed to be more."""
    generator = torch.Generator().manual_seed(3)
    support, query = (torch.randn(30, n, 6, generator=generator) for n in (9, 40))
    tasks = Tasks.from_arrays(support, torch.arange(3).repeat(3).expand(30, -1), query)
    now = solve("evidence", tasks).probabilities.amax(-1).mean()
    before = {"few_features_prior_sd": 0.5, "few_features_doubt": 1e-6}
    assert now < solve("evidence", tasks, schedule=before).probabilities.amax(-1).mean() - 0.03
    assert now < 0.5
