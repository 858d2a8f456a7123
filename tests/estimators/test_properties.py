"""Properties of estimators on arbitrary input: an answer that is one, or one sentence that says why not."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from manyway import BDCSPN, PADDLE, Evidence, InputError, LaplacianShot, SimpleShot, SoftKMeans

OTHERS = [PADDLE, SimpleShot, LaplacianShot, BDCSPN, SoftKMeans]
QUICK = [Evidence, *OTHERS]
# What is rehearsed does not depend on the items, nor on units: tests/methods/evidence/test_rehearse.py.
UNREHEARSED = [pytest.param(partial(Evidence, rehearse=False), id="Evidence"), *OTHERS]
NAMES = np.array(["ant", "bee", "cat", "dog"])


@st.composite
def problems(draw):
    """Examples, their labels and items: few values, so that ties, equal rows and constant columns are common."""
    n_classes, n_features = draw(st.integers(2, 4)), draw(st.integers(1, 5))
    labels = np.concatenate([np.arange(n_classes), draw(arrays(int, st.integers(0, 6), elements=st.integers(0, 1)))])
    values = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e3, 1e3, width=32))
    support = draw(arrays(np.float64, (len(labels), n_features), elements=values))
    query = draw(arrays(np.float64, (draw(st.integers(1, 6)), n_features), elements=values))
    dtype = draw(st.sampled_from([np.float64, np.float32, np.float16, ">f4", np.int64]))
    return support.astype(dtype), NAMES[labels], query.astype(dtype)


def answer(estimator, support, labels, query):
    """Class probabilities, or None where the input was refused with a sentence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return estimator().fit(support, labels).predict_proba(query)
        except InputError as refusal:
            sentence = str(refusal)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return None


@pytest.mark.parametrize("estimator", QUICK)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(problem=problems())
def test_an_answer_has_probabilities_of_the_right_shape(estimator, problem):
    support, labels, query = problem
    before = [value.copy() for value in problem]
    found = answer(estimator, support, labels, query)
    assert all(np.array_equal(old, new) for old, new in zip(before, problem, strict=True))
    if found is not None:
        assert found.shape == (len(query), len(set(labels)))
        assert (found >= 0).all()
        np.testing.assert_allclose(found.sum(1), 1, atol=1e-3)


@pytest.mark.parametrize("estimator", UNREHEARSED)
@settings(max_examples=7, deadline=None, derandomize=True)
@given(problem=problems(), order=st.randoms(use_true_random=False))
def test_items_in_another_order_get_the_same_answers(estimator, problem, order):
    support, labels, query = (np.asarray(value) for value in problem)
    places = list(range(len(query)))
    order.shuffle(places)
    found, permuted = (
        answer(estimator, support.astype(float), labels, q.astype(float)) for q in (query, query[places])
    )
    assert (found is None) == (permuted is None)
    if found is not None:
        np.testing.assert_allclose(permuted, found[places], atol=1e-4)


@pytest.mark.parametrize("estimator", UNREHEARSED)
@settings(max_examples=7, deadline=None, derandomize=True)
@given(problem=problems(), exponent=st.integers(-30, 30))
def test_the_unit_of_measurement_does_not_change_the_answer(estimator, problem, exponent):
    support, labels, query = problem
    factor = 2.0**exponent  # exact, so that the problem is the same but for its unit
    found, scaled = (
        answer(estimator, support.astype(float) * by, labels, query.astype(float) * by) for by in (1.0, factor)
    )
    if estimator in (PADDLE, SoftKMeans) and (query.max(0) == query.min(0)).any():
        return  # a constant feature has no range to divide by, so these two measure it in its own unit, as published
    assert (found is None) == (scaled is None)
    if found is not None:
        np.testing.assert_allclose(scaled, found, atol=1e-4)
