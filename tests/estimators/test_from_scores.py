"""`EvidenceFromScores` as scikit-learn users meet it."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from sklearn.base import clone

from manyway import Evidence, EvidenceFromScores, InputError
from manyway.estimators.batch import BatchClassifier

NAMES = ["cat", "dog", "fox"]
SCORES = np.array([[0.8, 0.1, 0.1], [0.9, 0.0, 0.1], [0.7, 0.2, 0.1], [0.4, 0.5, 0.1]])
MANY = np.repeat(SCORES, [9, 9, 9, 1], axis=0)


def test_numpy_in_gives_numpy_and_torch_in_gives_torch():
    clf = EvidenceFromScores(classes=NAMES).fit()
    result = clf.infer(MANY)
    assert result.labels.tolist() == clf.predict(MANY).tolist() == ["cat"] * 28
    assert isinstance(result.probabilities, np.ndarray)
    np.testing.assert_allclose(result.probabilities, clf.predict_proba(MANY))
    numbered = EvidenceFromScores(classes=[4, 5, 6]).fit().infer(torch.from_numpy(MANY))
    assert numbered.labels.tolist() == [4] * 28
    assert isinstance(numbered.presence, torch.Tensor)
    assert result.classes_frame()["class"][0] == "cat"


def test_known_labels_are_kept():
    result = EvidenceFromScores(classes=NAMES).fit().infer(SCORES, known={0: "fox"})
    assert result.labels[0] == "fox"
    assert result.probabilities[0].tolist() == [0, 0, 1]


def test_labelled_items_calibrate():
    generator = np.random.default_rng(0)
    y = np.tile(NAMES, 40)
    logits = 4 * (np.eye(3)[np.tile([0, 1, 2], 40)] + generator.normal(size=(120, 3)))
    clf = EvidenceFromScores(classes=NAMES, kind="logit").fit(logits, y)
    # They are far too certain.
    before = EvidenceFromScores(classes=NAMES, kind="logit", temperature=1.0).fit()
    assert clf.predict_proba(logits).max(1).mean() < before.predict_proba(logits).max(1).mean()
    assert clone(clf).get_params() == clf.get_params()
    assert EvidenceFromScores(kind="logit").fit(logits, np.tile([0, 1, 2], 40)).classes_.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EvidenceFromScores().fit(), "classes must be given"),
        (lambda: EvidenceFromScores(classes=NAMES).fit(SCORES), "scores and labels, or neither"),
        (lambda: EvidenceFromScores(classes=["a", "a"]).fit(), "all different"),
        (
            lambda: EvidenceFromScores(classes=NAMES).fit(SCORES, NAMES),
            r"X has 4 rows of scores, and y has the shape \(3,\)",
        ),
        (lambda: EvidenceFromScores(classes=NAMES).fit(SCORES, ["cat", "dog", "fox", "cow"]), "y has the label 'cow'"),
        (lambda: EvidenceFromScores().fit(SCORES, ["a", "b", "a", "b"]), "y has 2 different labels and .* 3 columns"),
        (lambda: EvidenceFromScores(classes=NAMES).fit().predict(np.ma.masked_less(SCORES, 0.2)), "masked values"),
        (lambda: EvidenceFromScores(classes=NAMES).fit(np.ma.masked_less(SCORES, 0.2), NAMES * 4), "masked values"),
        (lambda: EvidenceFromScores(classes=NAMES, class_prior="abc").fit().predict(SCORES), "real numbers"),
        (lambda: EvidenceFromScores(classes=NAMES, expect=[[1.0]]).fit().predict(SCORES), "one number per class"),
        (lambda: EvidenceFromScores(classes=["a", "unknown", "b"], open_set=True).fit(), "unknown_label"),
        (lambda: EvidenceFromScores(classes=NAMES).fit().predict(SCORES[:, :2]), "2 columns for 3 classes"),
        (lambda: EvidenceFromScores(classes=NAMES).fit().predict(SCORES[0]), "one row per item"),
        (lambda: EvidenceFromScores(classes=NAMES).fit().predict([["a"]]), "array of numbers"),
        (lambda: EvidenceFromScores(classes=NAMES, kind="odd").fit().predict(SCORES), "kind is 'odd'"),
        (lambda: EvidenceFromScores(classes=NAMES, temperature=-1.0).fit().predict(SCORES), "must be positive"),
        (lambda: EvidenceFromScores(classes=NAMES, tol=-1.0).fit().predict(SCORES), "tol"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_independent_scores_may_have_several_answers_and_a_list_is_an_expectation():
    scores = np.full((12, 5), 0.01)
    scores[:, 0] = 0.8
    scores[::2, 3] = 0.7
    clf = EvidenceFromScores(classes=list("abcde"), kind="independent").fit()
    answer = clf.predict(scores)
    assert answer[::2, 3].all()
    assert answer[:, 0].all()
    assert not answer[:, [1, 2, 4]].any()
    p = np.array([[0.5, 0.45, 0.05]] * 8)
    plain = EvidenceFromScores(classes=list("abc")).fit().predict_proba(p)
    expecting = EvidenceFromScores(classes=list("abc"), expect=[0.0, 1.0, 0.0]).fit().predict_proba(p)
    assert (expecting[:, 1] > plain[:, 1]).all()


def test_classes_are_learned_from_y():
    y = np.array(["fox", "cat", "dog", "cat"])
    clf = EvidenceFromScores().fit(SCORES, y)
    assert clf.classes_.tolist() == ["cat", "dog", "fox"]
    assert EvidenceFromScores().fit(SCORES, [0, 1, 1, 0]).classes_.tolist() == [0, 1, 2]
    assert EvidenceFromScores().fit(SCORES, [7, 5, 6, 5]).classes_.tolist() == [5, 6, 7]


@pytest.mark.parametrize(
    ("scores", "labels"), [(SCORES, ["a", "b", "c", "cow"]), (SCORES[:, :2], ["cat"] * 4), (-SCORES, NAMES)]
)
def test_a_fit_that_is_refused_changes_nothing(scores, labels):
    clf = EvidenceFromScores(kind="probability").fit(SCORES, ["fox", "cat", "dog", "cat"])
    before = clf.predict_proba(MANY)
    with pytest.raises(InputError):
        clf.fit(scores, labels)
    assert clf.classes_.tolist() == NAMES
    np.testing.assert_array_equal(clf.predict_proba(MANY), before)


def test_logarithms_of_0_are_probabilities_of_0():
    p = np.array([[1.0, 0.0, 0.0], [0.6, 0.4, 0.0], [0.0, 0.5, 0.5], [0.2, 0.2, 0.6]])
    clf = EvidenceFromScores(classes=NAMES).fit()
    with np.errstate(divide="ignore"):
        of_logarithms = clf.predict_proba(np.log(p))
    np.testing.assert_allclose(of_logarithms, clf.predict_proba(p), rtol=1e-6)


def test_unknown_items_are_answered_as_such():
    strangers = np.full((6, 12), 0.01)
    strangers[np.arange(6), np.arange(6) + 6] = 0.89
    items = np.full((60, 12), 0.01)
    items[np.arange(60), np.arange(60) % 3] = 0.89
    found = EvidenceFromScores(classes=list("abcdefghijkl"), open_set=True).fit().infer(np.r_[items, strangers])
    assert found.unknown[60:].min() > found.unknown[:60].max()
    numbered = EvidenceFromScores(classes=range(12), open_set=True, unknown_label=99).fit()
    assert set(numbered.predict(np.r_[items, strangers])[60:].tolist()) <= {99, *range(6, 12)}


def test_all_estimators_share_a_base():
    assert issubclass(EvidenceFromScores, BatchClassifier)
    assert issubclass(Evidence, BatchClassifier)


@pytest.mark.parametrize(
    "change",
    [lambda p: p[:, ::-1].copy()[:, ::-1], lambda p: p.astype(">f8"), lambda p: p.astype(np.longdouble)],
    ids=["turned", "big-endian", "longdouble"],
)
def test_scores_may_have_any_layout(change):
    clf = EvidenceFromScores(classes=NAMES).fit()
    np.testing.assert_array_equal(clf.predict_proba(change(MANY)), clf.predict_proba(MANY))


@pytest.mark.parametrize("make", [pd.DataFrame, lambda table: pa.table(dict(table))], ids=["pandas", "arrow"])
def test_columns_that_are_named_like_classes_stand_in_their_order(make):
    table = pd.DataFrame(MANY, columns=NAMES)
    clf = EvidenceFromScores(classes=NAMES).fit()
    np.testing.assert_array_equal(clf.predict(make(table)), clf.predict(MANY))
    with pytest.raises(InputError, match="named like the classes and stand in another order"):
        clf.predict(make(table[NAMES[::-1]]))
    unsorted = pd.DataFrame(SCORES, columns=NAMES)[["fox", "cat", "dog"]]
    with pytest.raises(InputError, match="named like the classes and stand in another order"):
        EvidenceFromScores().fit(make(unsorted), ["fox", "cat", "dog", "cat"])


def test_classes_in_bytes_are_decoded_as_labels_are():
    names = np.array(NAMES, dtype="S3")
    clf = EvidenceFromScores(classes=names).fit(SCORES, names[[0, 1, 2, 0]])
    assert clf.classes_.tolist() == NAMES
    assert clf.score(SCORES, names[[0, 1, 2, 0]]) == clf.score(SCORES, clf.classes_[[0, 1, 2, 0]])


def test_an_estimator_that_was_calibrated_is_saved_without_tensors():
    clf = EvidenceFromScores(classes=NAMES).fit(SCORES, ["fox", "cat", "dog", "cat"])
    assert all(isinstance(part, np.ndarray) for part in clf.__getstate__()["labelled_"])
    again = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(again.predict_proba(MANY), clf.predict_proba(MANY))


@pytest.mark.parametrize(
    ("given", "labels"),
    [({"open_set": True}, None), ({"class_prior": [1, 2, 3]}, None), ({"temperature": 2.0}, None), ({}, ["cat"] * 4)],
)
def test_what_is_about_one_right_class_is_refused_where_several_may_be_right(given, labels):
    clf = EvidenceFromScores(classes=NAMES, kind="independent", **given)
    with pytest.raises(InputError, match="cannot be used where items may have several classes"):
        clf.fit(*(() if labels is None else (SCORES, labels)))
