"""Prototypes tuned by logistic regression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from problems import make_tasks
from torch import Tensor

from manyway import Tasks, solve
from manyway.methods.calibration.calibrating import Asked, calibrate_distances
from manyway.methods.calibration.left_out import ranks_of
from manyway.methods.calibration import tuning
from manyway.methods.calibration.tuning import _Regression, _Samples, _Stop, _steepness, _without_themselves, tuned
from manyway.methods.evidence.schedule import Schedule
from manyway.methods.evidence.solver import prepare_evidence


def skewed(n_tasks=3, shots=20, seed=0, n_features=4):
    """Two classes of which one has a long tail away from the other, which draws its mean along, and queries."""
    generator = torch.Generator().manual_seed(seed)

    def rows(n):
        first, second = torch.randn(2, n_tasks, n, n_features, generator=generator, dtype=torch.float64)
        second[..., 0] += 2.5
        second[..., 0] += 8 * torch.rand(n_tasks, n, generator=generator, dtype=torch.float64).pow(2)
        return torch.cat([first, second], 1)

    labels = torch.arange(2).repeat_interleave(shots).expand(n_tasks, -1)
    truth = torch.arange(2).repeat_interleave(100).expand(n_tasks, -1)
    return Tasks.from_arrays(rows(shots), labels, rows(100)), truth


@pytest.mark.parametrize("n_features", [4, 65])
def test_tuned_prototypes_label_better_where_class_means_mislead(n_features):
    tasks, truth = skewed(n_features=n_features)
    right = {
        name: (solve("evidence", tasks, likelihood=name, scale=None, metric=False).labels == truth).double().mean()
        for name in ("metric", "logistic", "auto")
    }
    assert right["logistic"] > right["metric"] + 0.01
    assert right["auto"] > right["metric"] + 0.01


def test_class_means_stay_where_nothing_is_gained():
    tasks = make_tasks(4, n_classes=5, n_query=10, n_features=70, shots=8, spread=0.3)
    noise = torch.randn(tasks.support.shape, generator=torch.Generator().manual_seed(0), dtype=tasks.support.dtype)
    tasks = Tasks.from_arrays(noise, tasks.support_labels, tasks.query)
    names = ("auto", "metric")
    chosen, plain = (prepare_evidence(tasks, likelihood=name).calibration.prototypes.offsets for name in names)
    assert (chosen == plain).all(-1).all(-1).sum() >= 2


def test_class_means_are_the_prototypes_unless_another_likelihood_is_asked_for():
    tasks, _ = skewed(n_tasks=1)
    default, always, plain = (
        prepare_evidence(tasks, **given, scale=None, metric=False).calibration.prototypes.offsets
        for given in ({}, {"likelihood": "logistic"}, {"likelihood": "metric"})
    )
    assert torch.equal(default, plain)
    assert not torch.equal(always, plain)


def test_more_steps_lower_the_cross_entropy_of_samples_that_are_left_out(monkeypatch):
    tasks = make_tasks(2, n_classes=4, n_query=5, shots=6, spread=1.5)
    calibration = calibrate_distances(tasks, Schedule(), Asked(metric=False))
    placed, labels = calibration.coordinates.place(tasks.support), tasks.support_labels
    biases = calibration.prototypes.squares - calibration.prototypes.offsets.square().sum(-1)
    # Without itself, a sample is 6/5 times as far from the mean of its class.
    means = calibration.prototypes.offsets
    rows = placed + (placed - torch.stack([m[y] for m, y in zip(means, labels, strict=True)])) / 5
    losses = [torch.inf]
    for steps in (0, 2, 8, 400):
        stop = _Stop(gain=torch.ones(2), n_steps=torch.full((2,), steps))
        monkeypatch.setattr(_Regression, "best_stop", lambda _, stop=stop: stop)
        found = tuned(calibration, calibration.prototypes.offsets, tasks, always=True) if steps else calibration
        v = found.prototypes.offsets
        scores = rows @ v.mT - 0.5 * (v.square().sum(-1) + biases).unsqueeze(1)
        logs = (scores * calibration.precision.view(-1, 1, 1)).log_softmax(-1)
        losses.append(float(-logs.gather(-1, labels.unsqueeze(-1)).sum()))
        assert losses[-1] < losses[-2]
        torch.testing.assert_close(found.prototypes.squares, found.prototypes.offsets.square().sum(-1) + biases)


def test_many_tasks_are_tuned_as_one_by_one():
    tasks, _ = skewed(n_features=65)
    together = prepare_evidence(tasks, scale=None, likelihood="auto").calibration.prototypes.offsets
    for t in range(3):
        alone = prepare_evidence(tasks[t : t + 1], scale=None, likelihood="auto").calibration.prototypes.offsets
        torch.testing.assert_close(together[t : t + 1], alone)


def test_samples_as_if_they_had_no_part_in_the_metric():
    tasks = make_tasks(1, n_classes=3, n_query=4, shots=5, spread=1.5)
    rows = tasks.support.clone()
    rows[..., 0] *= 10
    tasks = Tasks.from_arrays(rows, tasks.support_labels, tasks.query)
    calibration = calibrate_distances(tasks, Schedule())
    assert calibration.coordinates.metric is not None
    gamma = calibration.coordinates.shrinkage[0]
    assert gamma < 1
    placed, labels = calibration.coordinates.place(tasks.support), tasks.support_labels
    means = torch.stack([placed[:, labels[0] == k].mean(1) for k in range(3)], 1)
    counts = calibration.prototypes.examples.gather(1, labels)
    rows = _without_themselves(calibration, placed, placed - means[:, labels[0]], counts)
    # By hand: A without the contribution of sample i, and inner products z'A⁻¹b for any b.
    support, d = tasks.support[0], tasks.n_features
    own_means = torch.stack([support[labels[0] == k].mean(0) for k in range(3)])
    residuals = support - own_means[labels[0]]
    weight = (1 - gamma) * d / (12 * calibration.within.scatter[0])
    full = weight * residuals.T @ residuals + gamma * torch.eye(d, dtype=support.dtype)
    other = torch.randn(d, generator=torch.Generator().manual_seed(0), dtype=support.dtype)
    stretch = calibration.coordinates.metric.stretch[0] ** 2
    placed_other = calibration.coordinates.place((other + calibration.coordinates.middle[0, 0])[None, None])[0, 0]
    for i in range(3):
        less = full - weight * (5 / 4) * torch.outer(residuals[i], residuals[i])
        expected = stretch * (support[i] - calibration.coordinates.middle[0, 0]) @ torch.linalg.solve(less, other)
        torch.testing.assert_close(rows[0, i] @ placed_other, expected)


def test_steepness_and_ranks():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(1, 30, 5, generator=generator, dtype=torch.float64)
    rows[..., 0] *= 4
    weights = torch.rand(1, 30, 1, generator=generator, dtype=torch.float64)
    p = torch.randn(1, 30, 3, generator=generator, dtype=torch.float64).softmax(-1)
    member = torch.eye(3, dtype=torch.float64)[torch.arange(30) % 3].unsqueeze(0)
    samples = list(zip(rows[0], p[0], member[0], weights[0], strict=True))
    hessian = sum(torch.kron(a.diag() - a.outer(a), z.outer(z)) * w for z, a, _, w in samples)
    found = float(_steepness(rows, p, member, weights))
    assert 0.75 * torch.linalg.eigvalsh(hessian)[-1] < found <= torch.linalg.eigvalsh(hessian)[-1] * (1 + 1e-9)
    direction = sum(torch.kron(a - of_class, z) * w for z, a, of_class, w in samples)  # the gradient
    for _ in range(tuning._POWER_STEPS):
        direction = hessian @ (direction / direction.norm())
    assert found == pytest.approx(float(direction.norm()))
    labels = torch.tensor([[1, 0, 1, 1, 0]])
    assert ranks_of(labels, torch.tensor([[2.0, 3.0]])).tolist() == [[0, 0, 1, 2, 1]]


@pytest.mark.parametrize("shots", [2, 20])
def test_the_order_of_samples_changes_nothing(shots):
    """They were held out by their place, so that another order chose another number of steps."""
    tasks, _ = skewed(n_tasks=6, shots=shots, n_features=30)
    order = torch.randperm(tasks.n_support, generator=torch.Generator().manual_seed(1))
    other = Tasks.from_arrays(tasks.support[:, order], tasks.support_labels[:, order], tasks.query)
    expected, found = (solve("evidence", one, likelihood="auto").probabilities for one in (tasks, other))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_unknown_queries_are_told_by_class_means():
    tasks, _ = skewed(n_features=65)
    opened = prepare_evidence(tasks, scale=None, open_set=True, likelihood="auto").calibration.prototypes.offsets
    assert torch.equal(opened, prepare_evidence(tasks, scale=None, likelihood="metric").calibration.prototypes.offsets)


def test_few_examples_make_no_large_claims():
    """Features that say nothing: with three examples the labels are guesses, and are not claimed to be more."""
    generator = torch.Generator().manual_seed(3)
    support, query = (torch.randn(30, n, 6, generator=generator) for n in (9, 40))
    tasks = Tasks.from_arrays(support, torch.arange(3).repeat(3).expand(30, -1), query)
    now = solve("evidence", tasks).probabilities.amax(-1).mean()
    undoubted = {"doubtful_examples": 1e-6}
    assert now < solve("evidence", tasks, schedule=undoubted).probabilities.amax(-1).mean() - 0.03
    assert now < 0.5


def regression_of(tasks: Tasks) -> _Regression:
    calibration = calibrate_distances(tasks, Schedule(), Asked(metric=False))
    placed = calibration.coordinates.place(tasks.support)
    return _Regression.of(calibration, placed, calibration.prototypes.offsets, tasks.support_labels)


def test_the_samples_of_large_classes_count_less_and_the_only_one_of_a_class_nothing():
    tasks = make_tasks(1, n_classes=3, shots=None)
    found = regression_of(tasks).all_samples.weights[0]
    expected = torch.tensor([0.0, 2**-0.5, 3**-0.5], dtype=torch.float64)
    torch.testing.assert_close(found, expected[tasks.support_labels[0]])


def test_of_many_samples_those_in_most_doubt_are_taken(monkeypatch):
    tasks = make_tasks(1, n_classes=3, n_features=3, shots=20, spread=1.0)
    everything = regression_of(tasks)
    calibration = calibrate_distances(tasks, Schedule(), Asked(metric=False))
    placed = calibration.coordinates.place(tasks.support)[0]
    doubts = []
    for row, label in zip(placed, tasks.support_labels[0].tolist(), strict=True):
        own = (20 * calibration.prototypes.offsets[0, label] - row) / 19  # the others of its class
        prototypes = calibration.prototypes.offsets[0].clone()
        prototypes[label] = own
        distances = (row - prototypes).square().sum(-1)
        doubts.append(1 - float((-0.5 * calibration.precision * distances).softmax(-1)[label]))
    assert everything.hardest.shape == (1, 60)
    monkeypatch.setattr(tuning, "_MOST_SAMPLES", 10)
    found = set(regression_of(tasks).hardest[0].tolist())
    most = set(torch.tensor(doubts).topk(10).indices.tolist())
    assert len(found & most) >= 9  # equal classes have the same biases, which are left out here


def test_prototypes_are_those_after_the_number_of_steps_that_left_out_samples_choose():
    tasks, _ = skewed(n_tasks=4, shots=12)
    calibration = calibrate_distances(tasks, Schedule(), Asked(metric=False))
    regression = regression_of(tasks)
    chosen = regression.best_stop()
    path = list(regression.path(regression.all_samples, int(chosen.n_steps.max())))
    found = tuned(calibration, calibration.prototypes.offsets, tasks, always=True)
    for t, n_steps in enumerate(chosen.n_steps.tolist()):
        torch.testing.assert_close(found.prototypes.offsets[t], path[n_steps][t])


def objective(tasks: Tasks, regression: _Regression) -> Callable[[Tensor], Tensor]:
    """The weighted cross-entropy of one task, for prototypes [k, d], of which each has −S/n, with a total weight of K.

    Without itself, a sample is n/(n − 1) times as far from the mean of its class.
    """
    labels, means = tasks.support_labels[0], regression.all_samples.means[0]
    counts = torch.bincount(labels).double()[labels]
    residuals = regression.placed[0] - means[labels]
    rows = means[labels] + residuals * (counts / (counts - 1)).unsqueeze(-1)
    weights = counts.rsqrt() * tasks.n_classes / counts.rsqrt().sum()

    def loss(prototypes: Tensor) -> Tensor:
        distances = (rows.unsqueeze(1) - prototypes).square().sum(-1) - regression.errors[0]
        logs = (-0.5 * float(regression.tau) * distances).log_softmax(-1)
        return -(logs.gather(1, labels.unsqueeze(-1)).squeeze(-1) * weights).sum()

    return loss


@pytest.mark.parametrize("times", [0.1, 1, 20])
def test_steps_are_those_of_nesterov_and_a_quarter_as_long_where_they_went_too_far(times):
    tasks, _ = skewed(n_tasks=1, shots=12)
    kept = torch.arange(tasks.n_support) != 3  # classes of 11 and 12
    tasks = Tasks.from_arrays(tasks.support[:, kept], tasks.support_labels[:, kept], tasks.query)
    regression = regression_of(tasks)
    regression = replace(regression, step=times * regression.step)
    loss = objective(tasks, regression)
    here = before = first = regression.all_samples.means[0]
    pace, momentum, restarts = float(regression.step) / float(regression.tau), 1.0, 0
    for found in regression.path(regression.all_samples, 12):
        torch.testing.assert_close(found[0], before)
        if loss(here) > loss(first) + 1e-12:
            here = before = first
            pace, momentum, restarts = pace / 4, 1.0, restarts + 1
            continue
        after = here - pace * torch.autograd.functional.jacobian(loss, here)
        faster = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        here, before, momentum = after + (momentum - 1) / faster * (after - before), after, faster
    assert (restarts > 0) == (times >= 1)


def test_the_number_of_steps_has_the_highest_gain_of_two_fifths_that_are_held_out():
    """The means, the −S/n and the objective are those of the others."""
    tasks, _ = skewed(n_tasks=1, shots=12)
    kept = torch.arange(tasks.n_support) > 2  # classes of 9 and 12
    tasks = Tasks.from_arrays(tasks.support[:, kept], tasks.support_labels[:, kept], tasks.query)
    regression, labels = regression_of(tasks), tasks.support_labels[0]
    whole, placed = regression.all_samples, regression.placed[0]
    scatter = calibrate_distances(tasks, Schedule(), Asked(metric=False)).within.scatter
    lengths = placed.norm(dim=-1)
    nearer = (lengths < lengths.unsqueeze(-1)) & (labels == labels.unsqueeze(-1))
    fifths = nearer.sum(1) % 5
    gains = torch.zeros(tuning._MOST_STEPS).double()
    for held_out in (fifths == 0, fifths == 1):
        rest = [(labels == k) & ~held_out for k in range(2)]
        means, counts = torch.stack([placed[one].mean(0) for one in rest]), torch.stack([one.sum() for one in rest])
        weights = whole.weights * ~held_out
        given = _Samples(means=means[None], counts=counts[None].double(), weights=weights, parts=whole.parts)
        logs = []
        for prototypes in regression.path(given, len(gains)):
            distances = (placed[held_out].unsqueeze(1) - prototypes[0]).square().sum(-1) - scatter / counts
            p = (-0.5 * float(regression.tau) * distances).softmax(-1)
            own = p[torch.arange(len(p)), labels[held_out]]
            logs.append((own.log() * whole.weights[0, held_out]).sum())
        gains += torch.stack(logs[1:]) - logs[0]
    found = regression.best_stop()
    assert found.gain.tolist() == pytest.approx([float(gains.max())])
    assert found.n_steps.tolist() == [int(gains.argmax()) + 1]
