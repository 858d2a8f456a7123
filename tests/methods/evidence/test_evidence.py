"""Evidence: the bound is a bound, the precision is calibrated, and few or many classes are both handled."""

from __future__ import annotations

import inspect
from dataclasses import fields
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from problems import exact_prior, make_features, make_tasks

import manyway
from manyway import Evidence, FeatureSet, InputError, Tasks, TaskSpec, evaluate, sample_tasks, solve
from manyway.core.transforms import transform
from manyway.methods.calibration.calibrating import Asked, calibrate_distances, calibrate_and_place
from manyway.methods.calibration.calibration import Calibration, power_of_few_examples
from manyway.methods.calibration.constants import Constants
from manyway.methods.evidence.schedule import Parameters, Schedule
from manyway.methods.evidence.solver import evidence, evidence_from_likelihood, learn_for_review, prepare_evidence


def shrunk(calibration: Calibration, _: Tasks) -> Calibration:
    """What evidence does last to a calibration."""
    return calibration.shrunk(Constants())


# --- the bound ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("anneal_from", "sharpness"), [(1.0, 1.0), (0.35, 1.5)])
def test_the_objective_is_below_the_exact_evidence(anneal_from, sharpness, monkeypatch):
    monkeypatch.setattr(Schedule, "sharpness", lambda _, masses: torch.full_like(masses[:, 0], sharpness))
    tasks = make_tasks(6, n_classes=3, n_query=5, shots=3, spread=0.7)
    options = {"scale": "rcl2", "schedule": {"anneal_from": anneal_from}}
    solution = solve("evidence", tasks, concentration=0.4, **options, with_objective=True)
    scaled = transform(tasks, "rcl2")
    calibration, placed = calibrate_and_place(scaled, Schedule(), Asked(finish=shrunk))
    likelihood = sharpness * calibration.log_likelihood(placed)
    every_labelling = torch.tensor(list(product(range(3), repeat=5)))
    joint = likelihood[:, torch.arange(5), every_labelling].sum(-1) + exact_prior(every_labelling, 0.4, 3)
    gap = joint.logsumexp(-1) - solution.objective[:, -1]
    assert (gap >= -1e-9).all()
    assert gap.max() < 1.0


@pytest.mark.parametrize(("n_query", "spread"), [(2, 1.0), (7, 0.5), (40, 0.5), (40, 2.0)])
@pytest.mark.parametrize("start", [0.35, 1.0])
def test_the_bound_never_falls(n_query, spread, start):
    tasks = make_tasks(20, n_classes=12, n_query=n_query, n_features=8, shots=3, spread=spread)
    one_search = {"schedule": {"anneal_from": start}, "tol": 0.0, "max_iter": 40, "adapt": False}
    solution = solve("evidence", tasks, **one_search, with_objective=True)
    assert solution.objective.shape == (20, 40)
    assert solution.objective.diff(dim=1).min() >= -1e-9
    torch.testing.assert_close(sum(solution.objective_parts.values()), solution.objective)


def test_queries_in_many_classes_are_searched_with_sharper_likelihoods_and_answered_with_the_calibrated_ones():
    few, many = torch.tensor([[9.0, 0.0, 0.0, 0.0]]), torch.tensor([[3.0, 2.0, 2.0, 2.0]])
    all_alike = torch.full((1, 4), 2.0)
    sharpness = Schedule().sharpness(torch.cat([few, many, all_alike]))
    assert sharpness[0] == pytest.approx(1 + 0.5 / 4)  # one of four classes
    assert sharpness[0] < sharpness[1] < sharpness[2]
    assert sharpness[2] == pytest.approx(1.5)
    likelihood = 3 * torch.eye(4, dtype=torch.float64).repeat(1, 2, 1)
    solution = evidence_from_likelihood(likelihood, torch.ones(1, 4), concentration=1e9, group_posterior=False)
    torch.testing.assert_close(solution.probabilities, likelihood.softmax(-1), rtol=0, atol=1e-6)


def test_a_batch_of_one_query_is_labelled_by_its_calibrated_likelihood_alone():
    tasks = make_tasks(10, n_classes=6, n_query=1, shots=4, spread=0.6)
    scaled = transform(tasks, "rcl2")
    calibration, placed = calibrate_and_place(scaled, Schedule(), Asked(finish=shrunk, doubt_labels=True))
    power = power_of_few_examples(calibration.prototypes.examples, Schedule())
    expected = (calibration.log_likelihood(placed) * power.view(-1, 1, 1)).softmax(-1)
    found = solve("evidence", tasks, scale="rcl2")
    torch.testing.assert_close(found.probabilities, expected, atol=1e-9, rtol=0)


# --- calibration -------------------------------------------------------------------------------------------------


def brute_force_cross_entropy(tasks: Tasks, temperature: float) -> float:
    """Leave every sample out for real: recompute all means without it."""
    support, labels, k = tasks.support[0], tasks.support_labels[0], tasks.n_classes
    means = torch.stack([support[labels == c].mean(0) for c in range(k)])
    counts = torch.bincount(labels, minlength=k).double()
    scatter = (support - means[labels]).square().sum() / (len(labels) - k)
    total = 0.0
    for i, label in enumerate(labels.tolist()):
        if counts[label] == 1:
            continue
        keep = torch.arange(len(labels)) != i
        centres, n = means.clone(), counts.clone()
        centres[label], n[label] = support[keep & (labels == label)].mean(0), counts[label] - 1
        logits = -0.5 * temperature * ((centres - support[i]).square().sum(-1) - scatter / n)
        total -= float(logits.log_softmax(-1)[label])
    return total


def test_the_precision_minimises_the_leave_one_out_cross_entropy():
    tasks = make_tasks(1, n_classes=20, n_query=1, n_features=10, shots=20, spread=0.6)
    found = float(calibrate_distances(tasks, Schedule()).precision[0])
    n = 20
    found /= (2 * n * n - 1) / (2 * n * n - 2)  # the known gain of n samples over n−1
    best = brute_force_cross_entropy(tasks, found)
    assert best < brute_force_cross_entropy(tasks, found * 1.15)
    assert best < brute_force_cross_entropy(tasks, found / 1.15)


def test_queries_of_calibrated_tasks_get_calibrated_probabilities_when_classes_are_equally_frequent():
    features = make_features(n_classes=20, per_class=400, n_features=10)
    noisy = FeatureSet(
        features.features + torch.randn(8000, 10, generator=torch.Generator().manual_seed(1)), features.labels
    )
    tasks = sample_tasks(noisy, TaskSpec(shots=10, k_eff=20, n_query=300, sampling="balanced"), count=10)
    probabilities = solve("evidence", tasks).probabilities
    sure, labels = probabilities.max(-1)
    right = (labels == tasks.query_labels).float()
    assert abs(float(sure.mean() - right.mean())) < 0.03
    confident = sure > 0.8
    assert abs(float(sure[confident].mean() - right[confident].mean())) < 0.04


@pytest.mark.parametrize("scale", [None, "rcl2"])
@pytest.mark.parametrize("shots", [1, 4, None])
def test_the_unit_of_the_features_does_not_matter(scale, shots):
    tasks = make_tasks(3, n_classes=6, n_query=12, shots=shots)
    larger = Tasks.from_arrays(tasks.support * 1000, tasks.support_labels, tasks.query * 1000)
    expected = solve("evidence", tasks, scale=scale).probabilities
    torch.testing.assert_close(solve("evidence", larger, scale=scale).probabilities, expected, atol=1e-6, rtol=0)


def test_classes_of_one_sample_among_larger_ones_are_neither_favoured_nor_lost():
    """Without the correction for noisy means, a class of one sample would look further away than it is."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(10, 60, generator=generator)
    shots = torch.tensor([1] * 5 + [20] * 5)
    labels = torch.arange(10).repeat_interleave(shots)
    truth = torch.arange(10).repeat_interleave(40)
    support = centres[labels] + 1.5 * torch.randn(len(labels), 60, generator=generator)
    query = centres[truth] + 1.5 * torch.randn(400, 60, generator=generator)
    tasks = Tasks.from_arrays(support[None], labels[None], query[None])
    found = solve("evidence", tasks).labels[0]
    recall = (found == truth).view(2, -1).double().mean(1)
    assert recall[0] > 0.6  # simpleshot: 0.23
    assert recall[1] > 0.8


def test_a_shared_support_is_calibrated_once_with_the_same_answers(monkeypatch):
    features = make_features()
    given = torch.zeros(len(features.labels), dtype=torch.bool)
    given[:120] = True
    features = FeatureSet(features.features.double(), features.labels, is_support=given)
    tasks = sample_tasks(features, TaskSpec(shots=None, k_eff=3, n_query=9), count=4)
    assert tasks.shared_support
    scaled = transform(tasks, "rcl2")
    assert len(calibrate_distances(scaled, Schedule()).precision) == 1
    apart = Tasks.from_arrays(tasks.support, tasks.support_labels, tasks.query)
    expected = solve("evidence", apart).probabilities
    found = solve("evidence", tasks)
    torch.testing.assert_close(found.probabilities, expected, atol=1e-9, rtol=0)


def test_large_supports_are_calibrated_in_blocks_with_the_same_answers(monkeypatch):
    tasks = make_tasks(5, n_classes=6, shots=4)
    whole, placed = calibrate_distances(tasks, Schedule()), calibrate_and_place(tasks, Schedule())[1]
    monkeypatch.setattr("manyway.methods.calibration.calibrating._BLOCK_NUMBERS", {"cpu": 1})
    parts = calibrate_distances(tasks, Schedule())
    torch.testing.assert_close(parts.precision, whole.precision)
    torch.testing.assert_close(parts.coordinates.place(tasks.query), placed)
    torch.testing.assert_close(calibrate_and_place(tasks, Schedule())[1], placed)


# --- what it is for ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def weak_features() -> FeatureSet:
    """Sixty classes that overlap: a prototype is right three times in five."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(60).repeat_interleave(60)
    centres = torch.randn(60, 40, generator=generator)
    return FeatureSet(centres[labels] + 1.7 * torch.randn(3600, 40, generator=generator), labels)


@pytest.mark.parametrize("k_eff", [2, 5, 10])
def test_few_classes_are_found(weak_features, k_eff):
    spec = TaskSpec(shots=5, k_eff=k_eff, n_query=75)
    ours = evaluate("evidence", weak_features, spec, n_tasks=20)
    theirs = evaluate("simpleshot", weak_features, spec, n_tasks=20)
    assert ours.accuracy > theirs.accuracy + 0.1
    assert ours.accuracy > evaluate("paddle", weak_features, spec, n_tasks=20).accuracy


@pytest.mark.parametrize("shots", [1, 5])
def test_many_classes_are_no_loss(weak_features, shots):
    spec = TaskSpec(shots=shots, k_eff=60, n_query=75)
    ours = evaluate("evidence", weak_features, spec, n_tasks=25)
    assert ours.accuracy > evaluate("simpleshot", weak_features, spec, n_tasks=25).accuracy - 0.01


def test_probabilities_are_calibrated_where_few_classes_are_present(weak_features):
    tasks = sample_tasks(weak_features, TaskSpec(shots=5, k_eff=5, n_query=50), count=30)

    def overconfidence(**params: bool) -> float:
        sure, labels = solve("evidence", tasks, **params).probabilities.max(-1)
        return float(sure.mean() - (labels == tasks.query_labels).float().mean())

    found = overconfidence()
    assert abs(found) < 0.06
    assert overconfidence(group_posterior=False) > found


def test_the_number_of_classes_is_estimated_with_its_uncertainty(weak_features):
    for k_eff in (2, 5):
        tasks = sample_tasks(weak_features, TaskSpec(shots=10, k_eff=k_eff, n_query=45), count=20)
        solution = solve("evidence", tasks)
        assert k_eff - 0.1 < float(solution.n_present.mean()) < k_eff + 1.5  # it errs on the side of too many
        assert (solution.n_present_sd > 0).all()
        present = torch.zeros(20, 60, dtype=torch.bool).scatter_(1, tasks.query_labels, True)
        assert solution.presence[present].mean() > 0.8
        assert solution.presence[~present].mean() < 0.05


@pytest.mark.parametrize("method", ["paddle", "simpleshot", "evidence"])
def test_every_method_says_which_classes_are_present(method):
    solution = solve(method, make_tasks(3))
    assert solution.presence.shape == (3, 4)
    assert ((solution.presence >= 0) & (solution.presence <= 1)).all()
    assert solution.n_present.shape == solution.n_present_sd.shape == (3,)
    assert ((solution.n_present > 0.99) & (solution.n_present <= 4)).all()


def test_the_estimator_hands_back_presence_and_number():
    tasks = make_tasks(1, n_query=20, n_features=20, shots=5)
    result = Evidence().fit(tasks.support[0].numpy(), tasks.support_labels[0].numpy()).infer(tasks.query[0].numpy())
    assert isinstance(result.presence, np.ndarray)
    assert result.presence.shape == (4,)
    assert result.n_present == pytest.approx(2, abs=0.6)
    assert result.n_present_sd >= 0


@pytest.mark.parametrize("solver", [evidence, evidence_from_likelihood])
def test_all_entry_points_show_the_one_list_of_parameters(solver):
    shown = inspect.signature(solver).parameters
    taken = ("likelihood",) if solver is evidence_from_likelihood else ()  # there it is what is given
    shared = [field for field in fields(Parameters) if field.name in shown and field.name not in taken]
    assert len(shared) == (len(fields(Parameters)) if solver is evidence else 6)
    for field in shared:
        assert shown[field.name].default == field.default
        assert field.name in solver.__doc__
    assert "**params" not in solver.__doc__


def test_a_prepared_support_gives_the_same_answer():
    tasks = make_tasks(3, n_classes=8, n_query=20, shots=4, spread=1.0)
    prepared = prepare_evidence(tasks, concentration=0.1)
    found = solve("evidence", tasks, prepared=prepared, concentration=0.1)
    expected = solve("evidence", tasks, concentration=0.1)
    # A shift is looked for in some of the tasks, which are then calibrated together: sums have another order.
    torch.testing.assert_close(found.probabilities, expected.probabilities)
    assert prepare_evidence(tasks, scale="range") is None  # the range is that of the queries


@pytest.mark.parametrize("shots", [1, 4])
def test_a_batch_that_is_placed_once_is_labelled_as_if_it_were_placed_each_time(shots):
    tasks = make_tasks(1, n_classes=8, n_query=20, n_features=12, shots=shots, spread=1.0)
    found = solve("evidence", tasks, prepared=learn_for_review(tasks))
    torch.testing.assert_close(found.probabilities, solve("evidence", tasks).probabilities)


def test_it_is_the_default():
    assert manyway.DEFAULT_METHOD == "evidence"


# --- its features ------------------------------------------------------------------------------------------------


def test_features_without_negative_values_are_levelled_first():
    tasks = make_tasks(2)
    positive = Tasks.from_arrays(tasks.support.abs(), tasks.support_labels, tasks.query)
    levelled = Tasks.from_arrays(
        positive.support**0.625, tasks.support_labels, tasks.query.sign() * tasks.query.abs() ** 0.625
    )
    torch.testing.assert_close(transform(positive, "rcl2").query, transform(levelled, "cl2").query)
    assert torch.equal(transform(tasks, "rcl2").query, transform(tasks, "cl2").query)


def test_each_task_decides_about_levelling_by_its_own_support():
    tasks = make_tasks(2)
    support = torch.stack([tasks.support[0].abs(), tasks.support[1]])
    for base_mean in (None, torch.full((5,), 0.3, dtype=torch.float64)):
        both = transform(Tasks.from_arrays(support, tasks.support_labels, tasks.query, base_mean), "rcl2")
        for i in range(2):
            alone = Tasks.from_arrays(
                support[i : i + 1], tasks.support_labels[i : i + 1], tasks.query[i : i + 1], base_mean
            )
            torch.testing.assert_close(transform(alone, "rcl2").query[0], both.query[i])


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"concentration": 0.0}, "concentration"),
        ({"schedule": {"anneal_from": 0.0}}, "anneal_from"),
        ({"schedule": {"anneal_from": 1.5}}, "anneal_from is 1.5; it is at most 1"),
        ({"precision": -1.0}, "precision"),
    ],
)
def test_impossible_parameters_are_refused(params, said):
    with pytest.raises(InputError, match=said):
        solve("evidence", make_tasks(1), **params)


# --- real features -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "file", "config", "at_least"),
    [
        ("cub200", "cub200_mobilenetv2_192px", "5shot_keff5", 71.0),  # PADDLE 45.7, α-TIM 60.4, prototypes 41.1
        ("cub200", "cub200_mobilenetv2_192px", "20shot_keff5", 85.5),  # PADDLE 72.1
        ("clinc150", "clinc150_minilm_l6", "5shot_keff5", 95.1),  # PADDLE 94.2, α-TIM 95.6
        ("clinc150", "clinc150_minilm_l6", "5shot_keff30", 90.2),  # PADDLE 88.4, α-TIM 90.0
    ],
)
def test_reference_tasks(data_folder: Path, name, file, config, at_least):
    features = FeatureSet.load(data_folder / "features" / f"{file}.npz")
    drawn = np.load(data_folder.parent / "reference" / f"{name}_{config}.npz")
    support, query = torch.from_numpy(drawn["support_idx"][:10]), torch.from_numpy(drawn["query_idx"][:10])
    tasks = Tasks.from_arrays(
        features.features[support.flatten(1)],
        torch.arange(support.shape[1]).repeat_interleave(support.shape[2]).expand(10, -1),
        features.features[query],
        drawn["train_mean"],
        query_labels=drawn["query_labels"][:10],
    )
    solution = solve("evidence", tasks)
    accuracy = 100 * float((solution.labels == tasks.query_labels).double().mean())
    assert accuracy >= at_least


@pytest.mark.parametrize("update_prototypes", [True, False])
def test_a_task_with_few_groups_is_answered_as_alone_where_classes_differ_in_examples(update_prototypes):
    """Another task with many groups has prototypes of many classes updated, but not those of this one."""
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(2, 20, 64, generator=generator, dtype=torch.float64)
    labels = torch.arange(20).repeat_interleave(torch.tensor([1] * 10 + [9] * 10)).expand(2, -1)
    truth = torch.stack([torch.tensor([0, 11]).repeat(30), torch.arange(20).repeat(3)])

    def rows(which):
        noise = torch.randn(*which.shape, 64, generator=generator, dtype=torch.float64)
        return means.gather(1, which.unsqueeze(-1).expand(-1, -1, 64)) + 1.6 * noise

    tasks = Tasks.from_arrays(rows(labels), labels, rows(truth))
    options = {"adapt": False, "update_prototypes": update_prototypes}
    both, alone = solve("evidence", tasks, **options), solve("evidence", tasks[:1], **options)
    torch.testing.assert_close(both.probabilities[:1], alone.probabilities, rtol=0, atol=1e-9)
