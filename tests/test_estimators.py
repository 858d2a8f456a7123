"""The scikit-learn side: its own checks, its tools, and arrays of every kind."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from problems import make_features
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from manyway import METHODS, PADDLE, InputError
from manyway.estimators import ESTIMATORS

JOINT = "predictions are joint over the batch: a part of it is another problem"
ITERATES_IN_PREDICT = "fit iterates nothing; the number of iterations belongs to a batch of queries (infer().n_iter)"
FRUGAL = (
    "two features scaled to unit range leave three overlapping blobs nearer to each other than the complexity term "
    "thinks worth a class: PADDLE as published answers with fewer classes (see docs/methods.md)"
)


def expected_failures(estimator):
    """Checks that contradict transduction, with the reason; scikit-learn reports the others as failures."""
    reasons = {}
    if METHODS[estimator.method].transductive:
        reasons["check_methods_subset_invariance"] = JOINT
    if hasattr(estimator, "max_iter"):
        reasons["check_non_transformer_estimators_n_iter"] = ITERATES_IN_PREDICT
    if estimator.method == "paddle":
        reasons["check_classifiers_train"] = FRUGAL
    return reasons


def quick(estimator):
    """An instance with few iterations: the checks are about behaviour, and there are many. PADDLE is quick as it is."""
    slow = "max_iter" in estimator().get_params() and estimator.method != "paddle"
    return estimator(max_iter=3) if slow else estimator()


@parametrize_with_checks(list(map(quick, ESTIMATORS.values())), expected_failed_checks=expected_failures)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def problem():
    """Ten classes named by strings, five examples each; 40 queries of three of the classes."""
    features = make_features(n_classes=10, per_class=30, n_features=300)
    x, y = features.features.numpy(), np.array([f"class {label}" for label in features.labels.tolist()])
    order = np.argsort(y, kind="stable").reshape(10, 30)
    support = order[:, :5].ravel()
    query = order[[1, 4, 7], 5:].ravel()
    return x[support], y[support], x[query], y[query]


def test_string_labels_in_and_out(problem):
    x, y, query, truth = problem
    clf = PADDLE().fit(x, y)
    assert clf.classes_.tolist() == sorted(set(y))
    assert (clf.predict(query) == truth).mean() > 0.9
    assert clf.predict_proba(query).shape == (75, 10)


def test_infer_tells_everything(problem):
    x, y, query, _ = problem
    clf = PADDLE(max_iter=30).fit(x, y)
    result = clf.infer(query)
    np.testing.assert_array_equal(result.labels, clf.predict(query))
    np.testing.assert_array_equal(result.probabilities, clf.predict_proba(query))
    np.testing.assert_allclose(result.proportions, result.probabilities.mean(0), rtol=1e-5)
    assert result.prototypes.shape == (10, 300)
    assert result.objective.shape == (30,)
    assert result.n_iter == 30
    assert result.converged is False


def test_numpy_torch_and_pandas_agree_and_come_back_as_they_went_in(problem):
    x, y, query, _ = problem
    numbers = np.unique(y, return_inverse=True)[1]
    expected = PADDLE().fit(x, numbers).infer(query)
    as_torch = PADDLE().fit(torch.from_numpy(x), torch.from_numpy(numbers)).infer(torch.from_numpy(query))
    assert isinstance(as_torch.labels, torch.Tensor)
    assert isinstance(as_torch.probabilities, torch.Tensor)
    np.testing.assert_array_equal(as_torch.labels.numpy(), expected.labels)
    np.testing.assert_allclose(as_torch.probabilities.numpy(), expected.probabilities)
    frame = pd.DataFrame(x, columns=[f"f{i}" for i in range(300)])
    clf = PADDLE().fit(frame, pd.Series(numbers))
    assert clf.feature_names_in_[0] == "f0"
    np.testing.assert_array_equal(clf.predict(pd.DataFrame(query, columns=frame.columns)), expected.labels)


def test_precision_follows_the_input(problem):
    x, y, query, _ = problem
    assert PADDLE().fit(x, y).predict_proba(query).dtype == np.float32
    assert PADDLE().fit(x.astype(float), y).predict_proba(query.astype(float)).dtype == np.float64


def test_predict_changes_nothing_on_the_estimator(problem):
    x, y, query, _ = problem
    clf = PADDLE().fit(x, y)
    before = {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in vars(clf).items()}
    clf.predict(query)
    assert vars(clf).keys() == before.keys()
    for key, value in before.items():
        np.testing.assert_array_equal(getattr(clf, key), value)


def test_scikit_learns_tools_work(problem):
    x, y, query, truth = problem
    pipeline = make_pipeline(StandardScaler(), PADDLE()).fit(x, y)
    assert (pipeline.predict(query) == truth).mean() > 0.9
    assert cross_val_score(PADDLE(lam=0.0), x, y, cv=5).mean() > 0.8
    search = GridSearchCV(PADDLE(), {"lam": [0.0, 10.0]}, cv=2).fit(x, y)
    assert search.best_params_["lam"] in (0.0, 10.0)
    copy = clone(PADDLE(lam=3.0, scale="l2"))
    assert copy.get_params() == {
        "base_mean": None, "eps": 1e-6, "form": None, "lam": 3.0, "max_iter": 100, "scale": "l2", "tol": None
    }  # fmt: skip


def test_base_mean_is_what_cl2_subtracts(problem):
    x, y, query, _ = problem
    mean = np.linspace(-1, 1, 300)
    given = PADDLE(scale="cl2", base_mean=mean).fit(x, y).predict_proba(query)
    shifted = PADDLE(scale="cl2", base_mean=np.zeros(300)).fit(x - mean, y).predict_proba(query - mean)
    np.testing.assert_allclose(given, shifted, atol=1e-5)
    with pytest.raises(InputError, match="base_mean has shape"):
        PADDLE(scale="cl2", base_mean=np.zeros(3)).fit(x, y).predict(query)


def test_one_class_is_refused(problem):
    x, _, _, _ = problem
    with pytest.raises(InputError, match="one class only"):
        PADDLE().fit(x, np.zeros(len(x), int))
