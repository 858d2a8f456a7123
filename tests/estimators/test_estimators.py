"""The scikit-learn side: its own checks, its tools, and arrays of every kind."""

from __future__ import annotations

import inspect
import itertools
import pickle
import sys
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from problems import ESTIMATORS, make_features, make_tasks
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import manyway
from manyway import (
    ICI,
    METHODS,
    PADDLE,
    PTMAP,
    Baseline,
    Evidence,
    InputError,
    LaplacianShot,
    SimpleShot,
    Solution,
    Tasks,
)
from manyway.estimators import TransductiveClassifier
from manyway.estimators.from_solver import OWN_DEFAULTS, OWN_PARAMETERS
from manyway.methods._table.parameters import doc_entries, doc_sections
from manyway.methods._table.registry import Method

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
    if estimator.method == "ici":  # a small C and few components need few steps in a round
        return estimator(max_iter=1, c=0.1, n_components=2)
    slow = "max_iter" in estimator().get_params() and estimator.method != "paddle"
    return estimator(max_iter=3) if slow else estimator()


def quickest(estimator):
    """The same for scikit-learn's checks, whose data take PT-MAP many steps to balance and ICI a long path."""
    if estimator.method == "pt-map":
        return PTMAP(max_iter=3, sinkhorn_iter=50)
    if estimator.method == "ici":  # all queries join in one round; tests/methods/test_contract.py follows the path
        return ICI(max_iter=1, c=0.1, n_components=2, n_per_round=1000)
    if estimator.method == "evidence":  # to try which scale suits and to rehearse take most of the time
        return Evidence(max_iter=3, scale="l2", rehearse=False)
    return quick(estimator)


WHOLE = ("evidence", "paddle", "simpleshot")  # by probabilities of the batch, by prototypes, and one item after another


def rotated(checks):
    """Every check of the estimators in ``WHOLE``; a sixth of those of each other, and every sixth other for a check.

    All estimators are made by the same code: what differs is the solver, which has tests of its own.
    """
    pairs = [getattr(pair, "values", pair) for pair in checks.args[1]]
    methods = list(ESTIMATORS)
    names = {name: i for i, name in enumerate(dict.fromkeys(check.func.__name__ for _, check in pairs))}
    kept = [
        given
        for given, (estimator, check) in zip(checks.args[1], pairs, strict=True)
        if estimator.method in WHOLE or (methods.index(estimator.method) + names[check.func.__name__]) % 6 == 0
    ]
    return pytest.mark.parametrize(checks.args[0], kept, **checks.kwargs)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:unem. its parameters were learned on:UserWarning")
@rotated(parametrize_with_checks(list(map(quickest, ESTIMATORS.values())), expected_failed_checks=expected_failures))
def test_scikit_learns_own_checks(estimator, check, request):
    expected = request.node.get_closest_marker("xfail")
    if expected:  # not run: pytest would spend most of this file's time on the traceback of each expected failure
        pytest.xfail(expected.kwargs["reason"])
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


@pytest.fixture(scope="module")
def small(problem):
    """The same with 24 features and 25 queries, for tests of every estimator."""
    x, y, query, truth = problem
    return x[:, :24].copy(), y, query[::3, :24].copy(), truth[::3]


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
    assert 1 <= result.n_present <= 10
    assert result.presence.shape == (10,)


def test_the_objective_is_recorded_unless_it_is_not_wanted(problem):
    x, y, query, _ = problem
    clf = PADDLE(max_iter=5).fit(x, y)
    assert clf.infer(query).objective.shape == clf.infer(query, with_objective=True).objective.shape == (5,)
    assert clf.infer(query, with_objective=False).objective is None
    assert SimpleShot().fit(x, y).infer(query, with_objective=True).objective is None
    trained = Baseline(max_iter=4).fit(x, y)
    assert trained.infer(query).objective.shape == (4,)
    assert trained.infer(query, with_objective=False).objective is None


def test_an_inference_is_printed_in_one_line_pickled_and_made_into_tables(problem, monkeypatch):
    x, y, query, _ = problem
    result = PADDLE(max_iter=5).fit(x, y).infer(query)
    assert repr(result).startswith(
        "Inference(labels=[75], probabilities=[75, 10], prototypes=[10, 300], objective=[5],"
    )
    loaded = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(loaded.probabilities, result.probabilities)
    table = result.to_frame()
    assert table["label"].tolist() == result.labels.tolist()
    np.testing.assert_array_equal(table["probability"], result.probabilities.max(1))
    np.testing.assert_array_equal(table["probability_2"], np.sort(result.probabilities)[:, -2])
    assert (table["label_2"] != table["label"]).all()
    classes = result.classes_frame()
    assert sorted(classes["class"]) == result.classes.tolist()
    assert classes["presence"].is_monotonic_decreasing
    assert classes.set_index("class")["items"].to_dict() == {
        name: int((result.labels == name).sum()) for name in result.classes
    }
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="to_frame needs pandas"):
        result.to_frame()


def test_torch_inferences_make_tables_too(problem):
    x, y, query, _ = problem
    result = PADDLE(max_iter=5).fit(x, y).infer(torch.from_numpy(query))
    assert result.to_frame()["label"].tolist() == result.labels.tolist()
    assert len(result.classes_frame()) == 10


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


@pytest.mark.parametrize("estimator", [PADDLE, Evidence])
def test_predict_changes_nothing_on_the_estimator(problem, estimator):
    x, y, query, _ = problem
    clf = estimator(base_mean=np.zeros(300)).fit(x, y)
    before = pickle.dumps(clf)
    first = clf.predict_proba(query[:30])
    clf.predict(query)
    clf.infer(query)
    assert pickle.dumps(clf) == before
    np.testing.assert_array_equal(clf.predict_proba(query[:30]), first)


@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=list(ESTIMATORS))
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_fit_copies(small, estimator, kind):
    x, y, query, _ = small
    mean = np.linspace(-1, 1, 24).astype(np.float32)
    numbers = np.unique(y, return_inverse=True)[1]
    clf = quick(estimator).set_params(base_mean=mean)
    x, numbers = x.copy(), numbers.copy()
    clf.fit(*((x, numbers) if kind == "numpy" else map(torch.from_numpy, (x, numbers))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        before = clf.predict_proba(query)
        x[:], numbers[:], mean[:] = 7.0, 0, 100.0
        np.testing.assert_array_equal(clf.predict_proba(query), before)


def test_scikit_learns_tools_work(problem):
    x, y, query, truth = problem
    pipeline = make_pipeline(StandardScaler(), PADDLE()).fit(x, y)
    assert (pipeline.predict(query) == truth).mean() > 0.9
    assert cross_val_score(PADDLE(lam=0.0), x, y, cv=5).mean() > 0.8
    # 10,000 times the default λ leaves a single class, so there is one right choice.
    search = GridSearchCV(PADDLE(), {"lam": [0.0, 1e6]}, cv=2).fit(x, y)
    assert search.best_params_ == {"lam": 0.0}
    assert search.cv_results_["mean_test_score"][1] < 0.2
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


@pytest.mark.parametrize(
    "refused",
    [
        lambda x, y: (x, ["a"] * len(x)),
        lambda x, y: (x[:, :3], ["a"] * len(x)),
        lambda x, y: (x, y, {"another": x[0]}),
        lambda x, y: (x, y, x[:1]),
    ],
    ids=["one class", "one class of fewer features", "class features by name", "class features"],
)
@pytest.mark.parametrize("estimator", [Evidence, SimpleShot])
@pytest.mark.parametrize("is_used", [False, True])
def test_a_fit_that_is_refused_changes_nothing(small, estimator, refused, is_used):
    x, y, query, _ = small
    fitted = quick(estimator).fit(x, y)
    if is_used:
        fitted.predict(query)
    before = pickle.dumps(fitted)
    with pytest.raises(InputError):
        fitted.fit(*refused(x, y))
    assert pickle.dumps(fitted) == before
    np.testing.assert_array_equal(fitted.predict(query), quick(estimator).fit(x, y).predict(query))


def test_a_stream_goes_on_after_a_fit_that_is_refused(small):
    x, y, query, _ = small
    undisturbed, disturbed = (quick(Evidence).fit(x, y) for _ in range(2))
    for clf in (undisturbed, disturbed):
        clf.partial_infer(query)
    with pytest.raises(InputError, match="one class only"):
        disturbed.fit(x, ["a"] * len(x))
    later = (clf.partial_infer(query).probabilities for clf in (undisturbed, disturbed))
    np.testing.assert_array_equal(*later)


def test_a_first_fit_that_is_refused_leaves_an_estimator_that_is_not_fitted(small):
    x, _, query, _ = small
    clf = quick(Evidence)
    with pytest.raises(InputError, match="one class only"):
        clf.fit(x, ["a"] * len(x))
    with pytest.raises(NotFittedError):
        clf.predict(query)


def test_a_constructor_takes_keywords_only_and_has_the_solvers_signature():
    for name, estimator in ESTIMATORS.items():
        parameters = inspect.signature(estimator).parameters
        assert {parameter.kind for parameter in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
        solver = inspect.signature(METHODS[name].solver).parameters
        shared = [each for each in solver if each in parameters]
        assert [each for each in parameters if each not in OWN_PARAMETERS] == shared
        of_data = {"tasks", "with_objective", "carry", "prepared", "known", *METHODS[name].of_scores}
        assert set(solver) - set(shared) <= of_data
        for each in shared:
            assert (parameters[each].default, parameters[each].annotation) == (
                OWN_DEFAULTS.get(each, solver[each].default),
                solver[each].annotation,
            )
    with pytest.raises(TypeError, match="positional"):
        PADDLE(3.0)
    with pytest.raises(TypeError, match="PADDLE has no parameter 'lambda_'; did you mean 'lam'"):
        PADDLE(lambda_=3.0)
    with pytest.raises(TypeError, match="is a base class"):
        TransductiveClassifier()
    assert repr(PADDLE(lam=2.0)) == "PADDLE(lam=2.0)"


def test_what_is_said_about_scores_is_no_parameter_of_an_estimator_of_features():
    with pytest.raises(TypeError, match="Evidence has no parameter 'temperature'"):
        Evidence(temperature=2.0)
    assert "temperature" not in inspect.getdoc(Evidence)
    with pytest.raises(InputError, match="temperature divides the logits of scores, and these tasks have features"):
        manyway.solve("evidence", make_tasks(1), temperature=2.0)


def test_a_subclass_keeps_the_constructor():
    class Mine(PADDLE):
        pass

    assert clone(Mine(lam=2.0)).get_params()["lam"] == 2.0


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"lam": float("nan")}, "lam is nan; it must be a finite number or None"),
        ({"max_iter": 0}, "max_iter is 0; it must be positive"),
        ({"scale": 3}, "scale is 3; it must be a string or None"),
    ],
)
def test_parameters_are_checked_in_fit(problem, params, message):
    x, y, _, _ = problem
    with pytest.raises(InputError, match=message):
        PADDLE(**params).fit(x, y)


def test_a_warning_says_that_a_stopping_rule_was_not_met(problem):
    x, y, query, _ = problem
    with pytest.warns(manyway.errors.ConvergenceWarning):  # the one of `solve`, and scikit-learn's
        LaplacianShot(max_iter=3, tol=0.0).fit(x, y).predict(query)
    with pytest.warns(ConvergenceWarning, match="laplacianshot did not converge in 1 of 1 tasks; raise max_iter"):
        LaplacianShot(max_iter=3, tol=0.0).fit(x, y).predict(query)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        assert PADDLE(max_iter=3).fit(x, y).infer(query).converged is False  # it has no stopping rule without `tol`


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (np.array([b"ant", "bée".encode()]), ["ant", "bée"]),
        (np.array([b"ant", b"bee"], object), ["ant", "bee"]),
        (np.array(["ant", "bee"], object), ["ant", "bee"]),
        (pd.Series(["ant", "bee"], dtype="category"), ["ant", "bee"]),
        (np.array([1.0, 2.0]), [1.0, 2.0]),
        (np.array([True, False])[::-1], [False, True]),
        (np.array([3, 5], ">i4"), [3, 5]),
    ],
)
def test_labels_of_every_kind(labels, classes):
    clf = SimpleShot().fit([[0.0, 1.0], [1.0, 0.0]], labels)
    assert clf.classes_.tolist() == classes
    assert clf.predict([[0.0, 1.0], [1.0, 0.0]]).tolist() == classes


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array(["ant", None], object), "y has no label in row 1"),
        (np.array(["ant", np.nan], object), "y has no label in row 1"),
        (pd.Series(["ant", pd.NA], dtype="string"), "y has no label in row 1"),
        (np.array(["ant", 1], object), "y mixes strings with other labels"),
        (np.array([0.0, np.nan]), "NaN"),
        (np.array([0.5, 1.0]), "continuous"),
        (np.array([[0, 1], [1, 0]]), "1d array"),
        (np.array([b"ant", b"\xff"]), "not UTF-8"),
    ],
)
def test_labels_that_are_none_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        SimpleShot().fit([[0.0, 1.0], [1.0, 0.0]], labels)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.astype(">f8"),
        lambda x: x.astype(np.longdouble),
        lambda x: x[:, ::-1].copy()[:, ::-1],
        lambda x: torch.from_numpy(x).to(torch.bfloat16),
        lambda x: torch.from_numpy(x).half(),
        lambda x: x * 1e30,
        lambda x: x.astype(np.float64) * 1e-200,
        lambda x: (x * 100).astype(int),
    ],
)
def test_features_of_every_kind_give_the_same_labels(problem, change):
    x, y, query, _ = problem
    numbers = np.unique(y, return_inverse=True)[1]
    expected = SimpleShot().fit(x, numbers).predict(query)
    labels = SimpleShot().fit(change(x), numbers).predict(change(query))
    assert (np.asarray(labels) == expected).mean() > 0.98


@dataclass(frozen=True)
class Means:
    """What the toy method prepares."""

    centres: torch.Tensor
    spread: torch.Tensor


def prepare_means(tasks: Tasks, *, weight: float = 1.0) -> Means:
    centres = [tasks.support[0, tasks.support_labels[0] == k].mean(0) for k in range(tasks.n_classes)]
    means = torch.stack(centres).unsqueeze(0) * weight
    return Means(means, means.std().unsqueeze(0))


def nearest_mean(tasks: Tasks, *, weight: float = 1.0, prepared: Means | None = None) -> Solution:
    """The nearest class mean.

    Parameters
    ----------
    tasks : Tasks
        What to solve.
    weight : float, default=1.0
        Multiplies the means.
    prepared : Means, optional
        What depends on the support alone.
    """
    assert prepared is not None, "fit has prepared it"
    once = torch.ones(1, dtype=torch.int64)
    return Solution((-torch.cdist(tasks.query, prepared.centres)).softmax(-1), once, once.bool())


class NearestMean(
    TransductiveClassifier,
    method=Method("toy", "Toy", nearest_mean, "none", prepare=prepare_means, learned=("centres", "spread")),
):
    """Replaced by the solver's."""


@pytest.mark.parametrize(
    ("estimator", "scale"),
    [
        *((estimator, "default") for estimator in ESTIMATORS.values()),
        *zip(ESTIMATORS.values(), itertools.cycle([None, "l2", "power", "range"]), strict=False),
    ],
)
def test_an_estimator_gives_the_answer_of_its_solver(small, estimator, scale):
    x, y, query, _ = small
    clf = quick(estimator)
    clf = clf if scale == "default" else clf.set_params(scale=scale)
    params = {name: value for name, value in clf.get_params().items() if name not in OWN_PARAMETERS}
    labels = np.unique(y, return_inverse=True)[1]
    expected = METHODS[estimator.method](Tasks.from_arrays(x[None], labels[None], query[None]), **params)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        np.testing.assert_array_equal(clf.fit(x, y).predict_proba(query), expected.probabilities[0])


def test_fit_prepares_what_depends_on_the_support_alone_and_shows_what_it_learned(problem):
    x, y, query, truth = problem
    clf = NearestMean(weight=2.0).fit(x, y)
    assert isinstance(clf.prepared_, Means)
    assert clf.centres_.shape == (1, 10, 300)
    assert isinstance(clf.spread_, float)
    np.testing.assert_allclose(clf.centres_[0, 0], 2 * x[y == clf.classes_[0]].mean(0), rtol=1e-5)
    assert (NearestMean().fit(x, y).predict(query) == truth).mean() > 0.9
    assert "prepared" not in clf.get_params()
    assert clf.infer(query).objective is None
    again = pickle.loads(pickle.dumps(clf))
    assert "prepared_" not in vars(again)  # loading a file computes nothing
    np.testing.assert_array_equal(again.predict_proba(query), clf.predict_proba(query))
    assert isinstance(again.prepared_, Means)
    assert not np.array_equal(again.fit(x[::-1] + 1, y[::-1]).prepared_.centres, clf.prepared_.centres)


def test_an_estimators_documentation_is_the_solvers():
    sections = doc_sections(inspect.getdoc(NearestMean))
    assert sections[""] == "The nearest class mean."
    assert list(sections) == ["", "Parameters", "Attributes", "Examples"]
    entries = doc_entries(sections["Parameters"])
    assert list(entries) == ["base_mean", "weight"]
    assert entries["weight"] == "weight : float, default=1.0\n    Multiplies the means."
    assert {"prepared_", "centres_", "spread_"} <= set(doc_entries(sections["Attributes"]))


@pytest.mark.parametrize("estimator", [SimpleShot, Evidence])
def test_one_example_per_class_is_no_reason_for_a_warning(estimator, recwarn):
    """scikit-learn would take as many numbers as rows for a regression."""
    tasks = make_tasks(1, n_classes=40, shots=1)
    estimator().fit(tasks.support[0].numpy(), np.arange(40)).predict(tasks.query[0].numpy())
    assert not [str(one.message) for one in recwarn]


@pytest.mark.parametrize(("first", "unknown_label"), [(2**63, None), (2**62, np.nan)], ids=["uint64", "int64"])
def test_large_numbers_as_labels_stay_what_they_are_where_items_may_be_unknown(first, unknown_label):
    """Such as hashes: in float64, which holds them and -1 or NaN, many have the same name."""
    tasks = make_tasks(1, n_classes=6, shots=4)
    start = np.array(first)
    labels = start + tasks.support_labels[0].numpy().astype(start.dtype)
    known = Evidence(open_set=True, unknown_label=unknown_label).fit(tasks.support[0].numpy(), labels)
    found = known.predict(tasks.support[0].numpy()).tolist()
    assert {label for label in found if label in labels.tolist()} == set(labels.tolist())


@pytest.mark.parametrize("unknown_label", [[1], (1, 2), np.array([1])], ids=["list", "tuple", "array"])
def test_a_label_of_unknown_items_is_one_value(small, unknown_label):
    """Beside the classes [0, 1, 2] a list [1] would have labelled unknown items as class 1."""
    x, y, _, _ = small
    with pytest.raises(InputError, match=r"unknown_label is .*; give one string or number"):
        Evidence(open_set=True, unknown_label=unknown_label).fit(x, y)


def test_labels_are_scored_as_fit_reads_them(small):
    x, y, _, _ = small
    names = np.char.add("k", np.unique(y, return_inverse=True)[1].astype(str))
    clf = SimpleShot().fit(x, names.astype("S"))
    assert clf.score(x, names.astype("S")) == clf.score(x, names) > 0.5
    with pytest.raises(InputError, match="y has no label in row 0"):
        clf.score(x, [None, *names[1:]])
