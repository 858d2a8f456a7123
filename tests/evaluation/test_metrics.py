"""Metrics: what is measured in a task, what is kept of it, and the summary over tasks with its interval."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import make_features, make_tasks
from sklearn.neighbors import KNeighborsClassifier

from manyway import InputError, Solution, TaskSpec, evaluate, sample_tasks, solve
from manyway.evaluation.metrics import GROUPS, METRICS, find_summary, reliability, sum_groups, summary_names

SPEC = TaskSpec(shots=2, k_eff=3, n_query=9)


def solution_of(probabilities) -> Solution:
    probabilities = torch.tensor(probabilities, dtype=torch.float64)
    once = torch.ones(len(probabilities))
    return Solution(probabilities, n_iter=once, converged=once.bool())


@pytest.fixture
def tasks():
    """Two tasks with two queries and three classes."""
    made = make_tasks(2, n_classes=3, n_query=2)
    made.query_labels[:] = torch.tensor([[0, 1], [2, 2]])
    return made


@pytest.fixture
def solution():
    return solution_of([[[0.9, 0.1, 0.0], [0.2, 0.1, 0.7]], [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]])


def test_accuracy_counts_correct_answers(tasks, solution):
    assert METRICS["accuracy"].measure(solution, tasks).tolist() == [1, 2]
    assert METRICS["confidence"].measure(solution, tasks).tolist() == pytest.approx([0.8, 1.0])


def test_calibration_counts_queries_confidences_and_hits_by_bins(tasks, solution):
    values = METRICS["calibration"].measure(solution, tasks)
    assert tuple(values.shape) == (2, 15, 3)
    assert values[0, 13].tolist() == [1, 900_000, 1]
    assert values[0, 10].tolist() == [1, 700_000, 0]
    assert values[1, 14].tolist() == [2, 2_000_000, 2]  # a probability of 1 is in the last bin
    assert int(values[..., 0].sum()) == 4


def test_the_calibration_error_is_the_weighted_gap_between_confidence_and_accuracy(tasks, solution):
    _, summary = find_summary("calibration")
    values = METRICS["calibration"].measure(solution, tasks).numpy()
    assert summary.of(values, 2).mean == pytest.approx((0.1 + 0.7 + 0.0) / 4)
    # Over both tasks a bin's mistakes cancel: two answers at 75 %, one of them correct, are off by 25 points.
    half = solution_of([[[0.75, 0.25, 0.0], [0.25, 0.0, 0.75]]] * 2)
    tasks.query_labels[:] = torch.tensor([[0, 2], [1, 1]])
    both = METRICS["calibration"].measure(half, tasks).numpy()
    assert summary.of(both, 2).mean == pytest.approx(0.25)


def test_the_interval_of_the_calibration_error_covers_the_truth():
    """Answers at 80 % that are correct in 70 % of all cases: the error is 10 points."""
    _, summary = find_summary("calibration")
    generator = np.random.default_rng(0)
    covered = []
    for _ in range(200):
        values = np.zeros((100, 15, 3), dtype=np.int64)
        values[:, 12] = np.stack(
            [np.full(100, 20), np.full(100, 20 * 800_000), generator.binomial(20, 0.7, size=100)], axis=1
        )
        result = summary.of(values, 20)
        assert result.n == 100
        covered.append(result.low <= 0.1 <= result.high)
    assert 0.88 < np.mean(covered) < 0.99


def test_groups_of_tasks_do_not_depend_on_stretches():
    values = np.random.default_rng(1).integers(0, 9, size=(53, 15, 3))
    metric = METRICS["calibration"]
    parts = metric.join(metric.stored(values[:17], 0), metric.stored(values[17:], 17))
    assert parts == metric.stored(values, 0) == sum_groups(values).tolist()
    assert len(parts) == GROUPS
    single = METRICS["confidence"]
    kept = np.array([0.25, 0.5, 0.125])
    assert single.join(single.stored(kept[:1], 0), single.stored(kept[1:], 1)) == [0.25, 0.5, 0.125]


def test_the_number_of_present_classes_is_compared_with_the_truth(tasks, solution):
    values = METRICS["n_present"].measure(solution, tasks).numpy()
    np.testing.assert_allclose(values[:, 2], [2, 1])
    np.testing.assert_allclose(values[:, 0], solution.n_present)
    np.testing.assert_allclose(values[:, 1], solution.n_present_sd)
    rows = np.array([[5.0, 0.5, 4.0], [5.0, 0.1, 4.0]])
    means = {name: find_summary(name)[1].of(rows, 2).mean for name in summary_names() if name.startswith("n_present")}
    assert means == {"n_present": 1.0, "n_present.estimate": 5.0, "n_present.truth": 4.0, "n_present.within": 0.5}


def test_presence_is_scored_by_its_squared_error(tasks, solution):
    occurs = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    expected = (solution.presence - occurs).square().mean(1)
    torch.testing.assert_close(METRICS["presence"].measure(solution, tasks), expected)


def test_evaluate_measures_what_is_asked_and_accuracy_always():
    features = make_features()
    result = evaluate("simpleshot", features, SPEC, 30, metrics=["n_present", "calibration"])
    assert set(result.metrics) == {"n_present", "calibration"}
    tasks = sample_tasks(features, SPEC, count=30)
    expected = METRICS["n_present"].measure(solve("simpleshot", tasks), tasks)
    np.testing.assert_allclose(result.metrics["n_present"], expected)
    assert result.value("accuracy").mean == result.accuracy
    assert result.value().half == result.ci95
    confidence, accuracy, count = reliability(result.metrics["calibration"])
    assert count.sum() == 30 * 9
    assert (accuracy * count).sum() == result.correct.sum()
    assert ((confidence > 0) & (confidence <= 1)).all()
    with pytest.raises(InputError, match="'presence' was not measured"):
        result.value("presence")


def test_an_unknown_metric_is_one_sentence():
    with pytest.raises(InputError, match="There is no metric 'calibratoin'; did you mean 'calibration'"):
        evaluate("simpleshot", make_features(), SPEC, 3, metrics=["calibratoin"])
    with pytest.raises(InputError, match=r"There is no metric 'n_present\.witin'; did you mean 'n_present\.within'"):
        find_summary("n_present.witin")


def test_values_that_are_not_finite_are_refused():
    class Broken(KNeighborsClassifier):
        def predict_proba(self, query):
            return super().predict_proba(query) * np.nan

    with pytest.raises(InputError, match="Broken gives values of the metric confidence that are not finite"):
        evaluate(Broken(1), make_features(), SPEC, 3, metrics=["confidence"])
