"""evaluate: the accuracy of the tasks that sample_tasks gives, however they are cut."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from problems import make_features
from sklearn.neighbors import KNeighborsClassifier

from manyway import PADDLE, FeatureSet, InputError, SimpleShot, Solution, TaskSpec, evaluate, sample_tasks, solve
from manyway.evaluation import evaluator
from manyway.evaluation.statistics import interval

SPEC = TaskSpec(shots=3, k_eff=3, n_query=10)


def test_counts_what_solve_gets_right():
    features = make_features()
    result = evaluate("paddle", features, SPEC, n_tasks=50, seed=4, lam=2.0)
    tasks = sample_tasks(features, SPEC, seed=4, count=50)
    right = (solve("paddle", tasks, lam=2.0).labels == tasks.query_labels).sum(1)
    assert result.correct.dtype == np.int64
    np.testing.assert_array_equal(result.correct, right)
    assert result.accuracy == pytest.approx(float(right.sum()) / 500)
    assert result.ci95 == interval(right.numpy()).half / 10
    assert result.seconds > 0


def test_chunks_threads_and_starts_do_not_show(monkeypatch):
    features = make_features()
    whole = evaluate("paddle", features, SPEC, n_tasks=40, seed=1)
    parts = [evaluate("paddle", features, SPEC, n_tasks=20, seed=1, start=start).correct for start in (0, 20)]
    np.testing.assert_array_equal(np.concatenate(parts), whole.correct)
    monkeypatch.setitem(evaluator._CHUNK_BYTES, "cpu", 20_000)
    seen = []
    torch.set_num_threads(2)
    try:
        cut = evaluate("paddle", features, SPEC, n_tasks=40, seed=1, progress=seen.append)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    np.testing.assert_array_equal(cut.correct, whole.correct)
    assert len(seen) > 1
    assert sum(seen) == 40


def test_a_function_is_a_method_too():
    def nearest(tasks, *, scale="cl2"):
        return solve("simpleshot", tasks, scale=scale)

    features = make_features()
    named = evaluate("simpleshot", features, SPEC, n_tasks=20, scale="l2")
    np.testing.assert_array_equal(evaluate(nearest, features, SPEC, n_tasks=20, scale="l2").correct, named.correct)


@pytest.mark.parametrize(
    ("estimator", "name", "params"),
    [(SimpleShot(), "simpleshot", {}), (PADDLE(lam=3.0), "paddle", {"lam": 3.0})],
    ids=["simpleshot", "paddle"],
)
def test_an_estimator_gives_what_its_method_gives(estimator, name, params):
    features, metrics = make_features(), ["confidence", "calibration"]
    expected = evaluate(name, features, SPEC, n_tasks=8, metrics=metrics, **params)
    result = evaluate(estimator, features, SPEC, n_tasks=8, metrics=metrics)
    np.testing.assert_array_equal(result.correct, expected.correct)
    for metric in metrics:
        assert result.value(metric).mean == pytest.approx(expected.value(metric).mean, abs=1e-4)


class NoProbabilities:
    """The nearest support sample, by an object that is no scikit-learn estimator."""

    def fit(self, support, labels):
        self._support, self._labels = support, labels
        return self

    def predict(self, query):
        return self._labels[((query[:, None] - self._support) ** 2).sum(-1).argmin(1)]


def test_classifiers_of_scikit_learn_and_others_are_fitted_to_each_task():
    features = make_features()
    one = evaluate(KNeighborsClassifier(1), features, SPEC, n_tasks=10, metrics=["confidence"])
    other = evaluate(NoProbabilities(), features, SPEC, n_tasks=10, metrics=["confidence"])
    np.testing.assert_array_equal(one.correct, other.correct)
    assert one.value("confidence").mean == other.value("confidence").mean == 1.0
    tasks = sample_tasks(features, SPEC, count=10)
    labels = KNeighborsClassifier(1).fit(tasks.support[3], tasks.support_labels[3]).predict(tasks.query[3])
    assert one.correct[3] == (labels == tasks.query_labels[3].numpy()).sum()


def test_labels_are_what_predict_says_not_the_largest_probability():
    class Contrary(KNeighborsClassifier):
        def predict_proba(self, query):
            return super().predict_proba(query)[:, ::-1]

    features = make_features()
    plain = evaluate(KNeighborsClassifier(1), features, SPEC, n_tasks=5)
    contrary = evaluate(Contrary(1), features, SPEC, n_tasks=5, metrics=["confidence"])
    np.testing.assert_array_equal(contrary.correct, plain.correct)


def test_what_is_no_method_is_one_sentence():
    with pytest.raises(InputError, match="give a name, a function or an estimator object"):
        evaluate(KNeighborsClassifier, make_features(), SPEC, n_tasks=2)
    with pytest.raises(InputError, match="SimpleShot has its own parameters; set 'logit_scale' when you make it"):
        evaluate(SimpleShot(), make_features(), SPEC, n_tasks=2, logit_scale=3.0)


def test_a_function_that_returns_something_else_is_one_sentence():
    def mine(tasks):
        return tasks

    with pytest.raises(InputError, match="mine has returned a Tasks; a method returns a Solution"):
        evaluate(mine, make_features(), SPEC, n_tasks=2)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (lambda query: query[:, 0] + 0.5, r"has predicted .*\.5, which is no label of the support"),
        (lambda query: ["bee"] * len(query), "has predicted 'bee', which is no label of the support"),
        (lambda query: [99] * len(query), "has predicted 99, which is no label of the support"),
        (lambda query: [0], r"has predicted an array of shape \(1,\) for 10 queries"),
    ],
)
def test_answers_of_an_estimator_that_are_no_labels_are_one_sentence(answers, message):
    class Strange(NoProbabilities):
        def predict(self, query):
            return answers(query.round())

    with pytest.raises(InputError, match=f"Strange {message}"):
        evaluate(Strange(), make_features(), SPEC, n_tasks=2)


def test_an_estimator_without_probabilities_may_answer_that_an_item_is_unknown():
    class Unsure(NoProbabilities):
        def predict(self, query):
            return np.full(len(query), -1)

    result = evaluate(Unsure(), make_features(), SPEC, n_tasks=2, metrics=["confidence"])
    assert result.accuracy == result.value("confidence").mean == 0


def test_a_function_is_checked_as_methods_are():
    def mine(tasks, *, name):
        probabilities = torch.full((len(tasks), tasks.n_query, tasks.n_classes), name)
        return Solution(probabilities.requires_grad_(), 1, True)

    features = make_features()
    n_ways = SPEC.ways(features.n_classes)
    assert evaluate(mine, features, SPEC, n_tasks=2, metrics=["confidence"], name=1 / n_ways).metrics
    with pytest.raises(InputError, match="mine has no valid probabilities for task 0"):
        evaluate(mine, features, SPEC, n_tasks=2, name=torch.nan)


def test_unknown_names_are_one_sentence():
    with pytest.raises(InputError, match="did you mean 'paddle'"):
        evaluate("padle", make_features(), SPEC, n_tasks=2)
    with pytest.raises(InputError, match="no parameter 'alpha'"):
        evaluate("paddle", make_features(), SPEC, n_tasks=2, alpha=2)
    with pytest.raises(InputError, match="must be at least 1"):
        evaluate("paddle", make_features(), SPEC, n_tasks=0)


@pytest.mark.parametrize("shots", [5, 20])
def test_paddle_leads_and_soft_kmeans_trails_on_real_text_features(shots, data_folder):
    """150 intents of which 5 occur: PADDLE well above nearest prototypes, soft K-means below them (paired tasks)."""
    features = FeatureSet.load(data_folder / "features" / "clinc150_minilm_l6.npz")
    spec = TaskSpec(shots=shots)
    scores = {m: evaluate(m, features, spec, n_tasks=60) for m in ("paddle", "simpleshot", "soft-kmeans")}
    lead = scores["paddle"].accuracies - scores["simpleshot"].accuracies
    assert lead.mean() - 3 * lead.std() / 60**0.5 > 0.02
    assert scores["soft-kmeans"].accuracy < scores["simpleshot"].accuracy


@pytest.mark.parametrize(
    "too_much",
    [
        torch.cuda.OutOfMemoryError(),
        RuntimeError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation'"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_chunks_that_do_not_fit_into_memory_are_halved_and_nothing_is_lost(too_much):
    sizes = []

    def narrow(tasks):
        sizes.append(len(tasks))
        if len(tasks) > 3:
            raise too_much
        return solve("simpleshot", tasks)

    features, spec = make_features(), TaskSpec(shots=2, k_eff=3, n_query=6)
    found = evaluate(narrow, features, spec, n_tasks=10, metrics=["confidence"])
    whole = evaluate("simpleshot", features, spec, n_tasks=10, metrics=["confidence"])
    assert max(sizes) > 3
    assert sum(size for size in sizes if size <= 3) == 10
    np.testing.assert_array_equal(found.correct, whole.correct)
    np.testing.assert_allclose(found.metrics["confidence"], whole.metrics["confidence"])
    assert found.seconds > 0


def test_a_single_task_that_does_not_fit_into_memory_is_one_sentence():
    def greedy(tasks):
        raise torch.cuda.OutOfMemoryError

    with pytest.raises(InputError, match="greedy needs more GPU memory than there is for a single task"):
        evaluate(greedy, make_features(), TaskSpec(shots=2, k_eff=3, n_query=6), n_tasks=3)


def test_any_other_error_of_a_method_is_not_taken_for_a_lack_of_memory():
    def broken(tasks):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory access"):
        evaluate(broken, make_features(), TaskSpec(shots=2, k_eff=3, n_query=6), n_tasks=3)


def test_the_number_of_tasks_is_that_of_the_paper_by_default():
    assert inspect.signature(evaluate).parameters["n_tasks"].default == 10_000
