"""Examples whose label may be wrong: they are found, and count less."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from problems import make_tasks
from torch import Tensor

from manyway import Tasks, TaskSpec, sample_tasks, solve
from manyway.methods.calibration import wrong_labels
from manyway.methods.calibration.calibrating import Asked, calibrate_distances, in_both_metrics
from manyway.methods.calibration.calibration import JudgedLabels
from manyway.methods.calibration.constants import Constants
from manyway.methods.calibration.left_out import left_out_samples
from manyway.methods.calibration.moments import moments_of
from manyway.methods.calibration.wrong_labels import _LOG_PRECISIONS, _LOG_RATES, judge_labels, learn_error_rates
from manyway.sampling.embedded import load_glyphs

N_CLASSES = 6


def normal_classes(shots=6, n_features=12, n_query=1, seed=0, distance=6.0):
    """One task of normal classes far apart, in double precision."""
    generator = torch.Generator().manual_seed(seed)
    means = distance * torch.randn(N_CLASSES, n_features, generator=generator, dtype=torch.float64)
    labels = torch.arange(N_CLASSES).repeat(shots)
    truth = torch.arange(n_query) % N_CLASSES
    noise = torch.randn(len(labels) + n_query, n_features, generator=generator, dtype=torch.float64)
    rows = means[torch.cat([labels, truth])] + noise
    support = rows[: len(labels)]
    return Tasks.from_arrays(support[None], labels[None], rows[None, len(labels) :], query_labels=truth[None])


def mislabelled(tasks, changed):
    """The tasks with other labels of some examples: row -> class."""
    labels = tasks.support_labels.clone()
    for row, label in changed.items():
        labels[:, row] = label
    return replace(tasks, support_labels=labels)


def letters_mislabelled(rate, shots, k_eff):
    """Tasks of thirty letters, and which labels [t, s] of their examples are wrong."""
    spec = TaskSpec(shots=shots, k_eff=k_eff, n_query=60, n_ways=30)
    tasks = sample_tasks(load_glyphs(), spec, seed=1, count=3)
    generator = torch.Generator().manual_seed(0)
    labels = tasks.support_labels
    other = (labels + torch.randint(1, 30, labels.shape, generator=generator)) % 30
    changed = torch.rand(labels.shape, generator=generator) < rate
    return replace(tasks, support_labels=torch.where(changed, other, labels)), changed


def doubted(tasks):
    return calibrate_distances(tasks, Constants(), Asked(doubt_labels=True))


def test_a_wrong_label_is_found_and_counts_less():
    found = doubted(mislabelled(normal_classes(), {7: 3, 20: 0}))
    suspects = [7, 20]
    others = [row for row in range(36) if row not in suspects]
    assert (found.judged.wrong[0, suspects] > 0.9).all()
    assert (found.judged.weights[0, suspects] < 0.2).all()
    assert found.judged.looks_like[0, suspects].tolist() == [1, 2]
    assert (found.judged.wrong[0, others] < 0.1).all()
    assert (found.judged.weights[0, others] == 1).all()


def test_without_a_suspect_nothing_changes():
    tasks = normal_classes()
    found = doubted(tasks)
    plain = calibrate_distances(tasks, Constants())
    assert (found.judged.weights == 1).all()
    assert torch.equal(found.prototypes.offsets, plain.prototypes.offsets)
    assert torch.equal(found.precision, plain.precision)


@pytest.mark.parametrize("n_features", [4, 40])  # fewer and more features than contrasts
def test_an_example_of_almost_no_weight_is_as_good_as_absent(n_features):
    tasks = mislabelled(normal_classes(n_features=n_features, distance=1.5), {7: 3})
    others = torch.arange(tasks.n_support) != 7
    without = Tasks.from_arrays(
        tasks.support[:, others], tasks.support_labels[:, others], tasks.query, n_classes=N_CLASSES
    )
    weights = torch.where(others, 1.0, 1e-6)[None].double()
    constants = Constants()
    samples = left_out_samples(tasks.support_labels, moments_of(tasks).counts)
    moments = moments_of(tasks, weights)
    judged = replace(JudgedLabels.right(tasks.support_labels, weights), weights=weights)
    weighted = in_both_metrics(tasks, moments, samples, constants=constants, judged=judged).best
    expected = calibrate_distances(without, constants)
    assert weighted.coordinates.shrinkage.tolist() == expected.coordinates.shrinkage.tolist()
    close = {"rtol": 1e-3, "atol": 1e-3}
    torch.testing.assert_close(weighted.prototypes.counts, expected.prototypes.counts, **close)
    torch.testing.assert_close(weighted.within.scatter, expected.within.scatter, **close)
    torch.testing.assert_close(weighted.coordinates.middle, expected.coordinates.middle, **close)
    torch.testing.assert_close(weighted.within.freedom, expected.within.freedom, **close)
    torch.testing.assert_close(weighted.precision, expected.precision, rtol=0.05, atol=0)


def test_the_only_example_of_a_class_cannot_be_judged():
    tasks = normal_classes(shots=1)
    assert (doubted(tasks).judged.weights == 1).all()
    both = normal_classes(shots=4)
    kept = torch.cat([torch.arange(6), 6 + torch.arange(18)[torch.arange(18) % N_CLASSES != 5]])
    some = both.with_rows(both.support[:, kept], both.query, support_labels=both.support_labels[:, kept])
    some = mislabelled(some, {0: 3})
    found = doubted(some)
    assert found.judged.wrong[0, 5] == 0
    assert found.judged.weights[0, 5] == 1
    assert found.judged.wrong[0, 0] > 0.5


def test_of_two_examples_that_differ_nobody_knows_which_is_wrong():
    tasks = mislabelled(normal_classes(shots=2), {0: 3})
    assert (doubted(tasks).judged.wrong[0, tasks.support_labels[0] == 4] == 0).all()
    assert (doubted(normal_classes(shots=2, distance=0.0)).judged.weights == 1).all()


def test_a_class_counts_as_one_example_at_least():
    tasks, changed = letters_mislabelled(0.5, shots=4, k_eff=5)
    found = doubted(tasks)
    assert found.judged.wrong[changed].mean() > 0.4
    assert (found.prototypes.counts > 1 - 1e-5).all()
    assert (found.prototypes.counts < 1 + 1e-5).any()


def test_neither_order_nor_unit_nor_blocks_decide(monkeypatch):
    tasks = mislabelled(normal_classes(distance=2.0), {7: 3, 20: 0})
    found = doubted(tasks).judged.wrong
    order = torch.randperm(tasks.n_support, generator=torch.Generator().manual_seed(1))
    turned = tasks.with_rows(tasks.support[:, order], tasks.query, support_labels=tasks.support_labels[:, order])
    torch.testing.assert_close(doubted(turned).judged.wrong, found[:, order])
    torch.testing.assert_close(doubted(tasks.with_rows(1000 * tasks.support, tasks.query)).judged.wrong, found)
    monkeypatch.setattr(wrong_labels, "_MOST_NUMBERS", 5 * N_CLASSES)
    torch.testing.assert_close(doubted(tasks).judged.wrong, found)


@pytest.mark.parametrize(("rate", "k_eff"), [(0.2, 5), (0.4, 5), (0.4, 30)])
def test_wrong_labels_cost_no_more_than_they_cost_simpleshot(rate, k_eff):
    """Without doubt about labels evidence was up to 18 points below it."""
    tasks, changed = letters_mislabelled(rate, shots=8, k_eff=k_eff)
    found = solve("evidence", tasks)
    right = {
        "evidence": (found.labels == tasks.query_labels).float().mean(),
        "simpleshot": (solve("simpleshot", tasks).labels == tasks.query_labels).float().mean(),
    }
    assert right["evidence"] > right["simpleshot"] - 0.02
    suspects = found.doubts.wrong > 0.5
    assert (suspects == changed).float().mean() > 0.85


def test_tuned_prototypes_do_not_follow_wrong_labels():
    tasks = normal_classes(shots=10, n_query=60, distance=1.0)
    labels = tasks.support_labels[0].tolist()
    tasks = mislabelled(tasks, {row: (labels[row] + 1 + row % 5) % N_CLASSES for row in range(0, 60, 7)})
    plain = solve("evidence", tasks)
    tuned = solve("evidence", tasks, likelihood="logistic")
    right = (plain.labels == tasks.query_labels).double().mean()
    assert (tuned.labels == tasks.query_labels).double().mean() > right - 0.05


# --- formulas, beside plain computations ----------------------------------------------------------------------------


def looks_of(tasks: Tasks, tau: float, scatter: float) -> Tensor:
    """[s] p_iy: how much each example of one task looks like its class, by plain distances without it."""
    support, labels = tasks.support[0], tasks.support_labels[0]
    found = []
    for i, x in enumerate(support):
        distances = []
        for k in range(tasks.n_classes):
            others = support[(labels == k) & (torch.arange(len(labels)) != i)]
            distances.append(float((x - others.mean(0)).square().sum()) - scatter / len(others))
        found.append((-0.5 * tau * torch.tensor(distances).double()).softmax(0)[labels[i]])
    return torch.stack(found)


def test_rates_and_wrong_labels_have_the_probabilities_that_bayes_rule_gives_them():
    """Of K = 3 classes, of which the one with two examples is not judged."""
    tasks = make_tasks(1, n_classes=3, n_features=3, shots=6, spread=2.0)
    kept = torch.cat([torch.arange(12), torch.arange(16, 18)])
    tasks = Tasks.from_arrays(tasks.support[:, kept], tasks.support_labels[:, kept], tasks.query)
    tasks = mislabelled(tasks, {0: 1})
    plain = calibrate_distances(tasks, Constants(), Asked(metric=False))
    judged = (plain.prototypes.counts[0, tasks.support_labels[0]] > 2).double()
    assert int(judged.sum()) == 12
    rates, factors = (torch.linspace(*one).double().exp().tolist() for one in (_LOG_RATES, _LOG_PRECISIONS))
    logs, wrong = [], []  # of every rate and precision
    for rate in (0.0, *rates):
        prior = 0.7 if rate == 0 else 0.3 / len(rates)
        for factor in factors:
            p = looks_of(tasks, factor * float(plain.precision), float(plain.within.scatter))
            as_wrong = rate * (1 - p) / 2
            seen = (1 - rate) * p + as_wrong
            logs.append(float((seen.log() * judged).sum() + torch.tensor(prior).double().log()))
            wrong.append(as_wrong / seen * judged)
    posterior = torch.tensor(logs).double().softmax(0)
    samples = torch.arange(tasks.n_support)[None]
    found = learn_error_rates([plain], tasks, samples, Constants(wrong_labels=0.3))
    torch.testing.assert_close(found.posterior.flatten(), posterior, rtol=1e-4, atol=1e-9)
    assert found.some_wrong.tolist() == [bool(posterior[: len(factors)].sum() < 0.5)]
    expected = (posterior.unsqueeze(-1) * torch.stack(wrong)).sum(0)
    labels = judge_labels([plain], tasks, found)
    torch.testing.assert_close(labels.wrong[0], expected, rtol=1e-4, atol=1e-9)
    assert expected[0] > 0.5
    assert labels.looks_like[0, 0] == 0
    counted = (2 * (1 - expected)).clamp(max=1)
    torch.testing.assert_close(labels.weights[0], counted, rtol=1e-3, atol=1e-9)
