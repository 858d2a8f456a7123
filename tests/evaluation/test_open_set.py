"""Metrics of unknown queries, against scikit-learn and by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from problems import make_features, make_tasks
from sklearn.metrics import adjusted_rand_score, roc_auc_score, roc_curve

from manyway import InputError, Solution, Tasks, TaskSpec, evaluate, sample_tasks, solve
from manyway.evaluation.metrics import METRICS
from manyway.evaluation.scorers import SCORERS

SPEC = TaskSpec(shots=3, k_eff=3, n_query=12, n_unknown=8, unknown_classes=2)


@pytest.fixture(scope="module")
def tasks() -> Tasks:
    return sample_tasks(make_features(), SPEC, seed=3, count=10)


@pytest.fixture(scope="module")
def solution(tasks) -> Solution:
    """Labels of nearest prototypes, with random scores, many of them equal, and random groups."""
    generator = torch.Generator().manual_seed(0)
    shape = tasks.query_labels.shape
    unknown = torch.randint(0, 7, shape, generator=generator) / 7
    groups = torch.randint(-1, 3, shape, generator=generator)
    plain = solve("simpleshot", tasks)
    return Solution(plain.probabilities, plain.n_iter, plain.converged, unknown=unknown, unknown_groups=groups)


def measured(name: str, solution: Solution, tasks: Tasks) -> np.ndarray:
    return METRICS[name].measure(solution, tasks).numpy()


def test_auroc_and_fpr_are_those_of_scikit_learn(solution, tasks):
    auroc, fpr95 = measured("auroc", solution, tasks), measured("fpr95", solution, tasks)
    for i, (truth, score) in enumerate(zip(tasks.query_labels < 0, solution.unknown, strict=True)):
        assert auroc[i] == pytest.approx(roc_auc_score(truth, score))
        fpr, tpr, _ = roc_curve(truth, score, drop_intermediate=False)
        assert fpr95[i] == pytest.approx(fpr[tpr >= 0.95].min())


def test_oscr_is_the_area_under_correct_classification_against_false_positives(solution, tasks):
    oscr = measured("oscr", solution, tasks)
    for i, truth in enumerate(tasks.query_labels):
        correct, score = solution.labels[i] == truth, solution.unknown[i]
        thresholds = [-1.0, *score.unique().tolist()]
        ccr = [float((correct & (score <= at))[truth >= 0].double().mean()) for at in thresholds]
        fpr = [float((score <= at)[truth < 0].double().mean()) for at in thresholds]
        assert oscr[i] == pytest.approx(np.trapezoid(ccr, fpr))


def test_the_rand_index_is_that_of_scikit_learn_with_missed_queries_grouped_by_their_labels(solution, tasks):
    values = measured("unknown_groups", solution, tasks)
    for i, groups in enumerate(solution.unknown_groups):
        unknown = tasks.query_labels[i] < 0
        answer = torch.where(groups >= 0, groups + 100, solution.labels[i])[unknown]
        assert values[i, 0] == pytest.approx(adjusted_rand_score(tasks.unknown_labels[i][unknown], answer))
        assert values[i, 1] == len(groups[groups >= 0].unique())
        assert values[i, 2] == len(tasks.unknown_labels[i][unknown].unique())


def test_what_is_rejected_is_what_is_likelier_unknown_than_of_any_class(tasks):
    plain = solve("simpleshot", tasks)
    assert measured("rejected", plain, tasks).tolist() == [[0, 0]] * 10  # no unknown probability, no rejection
    truth = (tasks.query_labels < 0).float()
    sure = plain.changed(probabilities=plain.probabilities * (1 - truth).unsqueeze(-1), unknown=truth)
    assert measured("rejected", sure, tasks).tolist() == [[0, 1]] * 10


def test_with_the_true_number_the_queries_with_the_highest_scores_are_unknown(tasks):
    truth = tasks.query_labels
    known = solve("simpleshot", tasks).changed(unknown=(truth < 0).float())
    hits = ((known.probabilities.argmax(-1) == truth) & (truth >= 0)).sum(1) + 8
    np.testing.assert_allclose(measured("ordered_accuracy", known, tasks), hits / 20)
    wrong = known.changed(unknown=-(truth < 0).float())  # eight known queries come first
    assert (METRICS["ordered_accuracy"].measure(wrong, tasks) <= 4 / 20 + 1e-9).all()


def test_of_queries_with_equal_scores_the_order_does_not_say_which_are_unknown(tasks):
    truth = tasks.query_labels
    tied = solve("simpleshot", tasks).changed(unknown=torch.zeros_like(truth, dtype=torch.float32))
    hits = ((tied.probabilities.argmax(-1) == truth) & (truth >= 0)).sum(1)
    expected = 8 / 20 * 8 / 20 + 12 / 20 * hits / 20  # eight of twenty are said to be unknown, any of them
    np.testing.assert_allclose(measured("ordered_accuracy", tied, tasks), expected)


def test_without_an_unknown_probability_the_score_is_one_minus_the_highest_probability(tasks):
    plain = solve("simpleshot", tasks)
    given = plain.changed(unknown=1 - plain.probabilities.amax(-1))
    np.testing.assert_allclose(measured("auroc", plain, tasks), measured("auroc", given, tasks))


def test_labels_are_scored_on_the_known_queries(tasks):
    solution, known = solve("simpleshot", tasks), tasks.query_labels >= 0
    hits = (solution.labels == tasks.query_labels).sum(1)
    assert measured("accuracy", solution, tasks).tolist() == hits.tolist()
    assert measured("n_query", solution, tasks).tolist() == [12] * 10
    bins = measured("calibration", solution, tasks)
    assert bins[..., 0].sum() == known.sum()
    assert bins[..., 2].sum() == hits.sum()
    confidence = solution.probabilities.amax(-1).double()
    expected = torch.stack([row[which].mean() for row, which in zip(confidence, known, strict=True)])
    np.testing.assert_allclose(measured("confidence", solution, tasks), expected)
    occurs = measured("n_present", solution, tasks)[:, 2]
    assert occurs.tolist() == [len(row[row >= 0].unique()) for row in tasks.query_labels]


def test_the_answer_unknown_has_a_confidence_too(tasks):
    solution, known = solve("evidence", tasks, open_set=True), tasks.query_labels >= 0
    assert (solution.labels < 0).any()
    given = solution.probabilities.amax(-1).where(solution.labels >= 0, solution.unknown).double()
    expected = (given * known).sum(1) / known.sum(1)
    np.testing.assert_allclose(measured("confidence", solution, tasks), expected, rtol=1e-6)
    assert measured("calibration", solution, tasks)[..., 0].sum() == known.sum()


def test_an_unknown_probability_that_is_the_fraction_of_unknown_queries_is_calibrated(tasks):
    solution = solve("simpleshot", tasks).changed(unknown=torch.full(tasks.query_labels.shape, 0.4))
    metric = METRICS["unknown_calibration"]
    assert metric.summaries[""].of(measured("unknown_calibration", solution, tasks), 12).mean < 1e-6
    other = solution.changed(unknown=solution.unknown + 0.3)
    error = metric.summaries[""].of(measured("unknown_calibration", other, tasks), 12)
    assert error.mean == pytest.approx(0.3, abs=1e-6)


@pytest.mark.parametrize("name", ["auroc", "fpr95", "oscr"])
@pytest.mark.parametrize("label", [0, -1])
def test_where_all_queries_are_known_or_all_unknown_a_comparison_is_undefined(name, label):
    tasks = make_tasks()
    tasks = replace(tasks, query_labels=torch.full_like(tasks.query_labels, label))
    assert np.isnan(measured(name, solve("simpleshot", tasks), tasks)).all()


def test_groups_are_undefined_where_no_two_unknown_queries_are_of_one_class(tasks, solution):
    scattered = replace(tasks, unknown_labels=torch.where(tasks.query_labels < 0, torch.arange(20), -1))
    assert np.isnan(measured("unknown_groups", solution, scattered)[:, 0]).all()


def test_undefined_tasks_are_left_out_of_means_and_stored_as_null():
    metric = METRICS["auroc"]
    values = np.array([0.5, math.nan, 0.7])
    stored = metric.stored(values, 0)
    assert stored == [0.5, None, 0.7]
    found = metric.summaries[""].of(metric.loaded(stored), 12)
    assert (found.mean, found.n) == (pytest.approx(0.6), 2)
    assert math.isnan(metric.summaries[""].of(metric.loaded([None, None]), 12).mean)


def test_evaluate_measures_unknown_queries_and_counts_known_ones():
    found = evaluate("simpleshot", make_features(), SPEC, 10, seed=3, metrics=["auroc", "oscr"])
    tasks = sample_tasks(make_features(), SPEC, seed=3, count=10)
    solution = solve("simpleshot", tasks)
    np.testing.assert_allclose(found.metrics["auroc"], measured("auroc", solution, tasks))
    assert found.n_query == 12
    assert found.accuracy == pytest.approx(float((solution.labels == tasks.query_labels).sum()) / 120)
    closed = evaluate("simpleshot", make_features(), TaskSpec(shots=3, k_eff=3, n_query=12), 4, metrics=["auroc"])
    assert math.isnan(closed.value("auroc").mean)


def test_a_score_replaces_the_methods_own():
    names = {"metrics": ["auroc"], "seed": 3}
    own = evaluate("simpleshot", make_features(), SPEC, 10, **names)
    scored = evaluate("simpleshot", make_features(), SPEC, 10, scorer="nearest-distance", **names)
    assert (scored.correct == own.correct).all()
    tasks = sample_tasks(make_features(), SPEC, seed=3, count=10)
    expected = solve("simpleshot", tasks).changed(unknown=SCORERS["nearest-distance"].score(tasks))
    np.testing.assert_allclose(scored.metrics["auroc"], measured("auroc", expected, tasks))
    assert (scored.metrics["auroc"] != own.metrics["auroc"]).any()
    with pytest.raises(InputError, match="did you mean 'knn'"):
        evaluate("simpleshot", make_features(), SPEC, 3, scorer="knnn")
    with pytest.raises(InputError, match="needs a probability, and the scorer knn has none"):
        evaluate("simpleshot", make_features(), SPEC, 3, scorer="knn", metrics=["unknown_calibration"])
