"""Arrays of every kind and magnitude: the right answer or one sentence."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from manyway import InputError, Tasks
from manyway.core.validation import as_array, as_features, as_labels, moderate, row_sizes

PLAIN = np.array([[0.0, 1.5, -2.0], [4.0, 0.25, 8.0]])


@pytest.mark.parametrize(
    "values",
    [
        PLAIN,
        PLAIN.astype(">f8"),
        PLAIN.astype(">f4"),
        PLAIN.astype(np.float16),
        PLAIN.astype(np.longdouble),
        np.asfortranarray(PLAIN),
        PLAIN[::-1, ::-1].copy()[::-1, ::-1],
        pd.DataFrame(PLAIN),
        torch.from_numpy(PLAIN),
        torch.from_numpy(PLAIN).to(torch.bfloat16),
        torch.from_numpy(PLAIN).float().requires_grad_(),
        PLAIN.tolist(),
    ],
    ids=["f8", ">f8", ">f4", "f2", "longdouble", "fortran", "strides", "pandas", "torch", "bfloat16", "grad", "list"],
)
def test_every_dtype_byte_order_and_layout_is_read(values):
    read = as_features(values, "features")
    assert read.dtype in (torch.float32, torch.float64)
    assert not read.requires_grad
    np.testing.assert_array_equal(read.double(), PLAIN)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.uint16, np.uint32])
def test_whole_numbers_are_features_too(dtype):
    np.testing.assert_array_equal(as_features(np.array([[0, 1]], dtype), "features"), [[0, 1]])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((3, 0)), r"has no features: its shape is \(3, 0\)"),
        (torch.eye(3).to_sparse(), r"features is a sparse tensor; give its to_dense\(\)"),
        (torch.zeros(2, 2, device="meta"), "which holds no values"),
        (np.array([["a"]]), "must hold real numbers"),
        (np.array([[None]]), "must hold real numbers"),
        ([[1.0], [2.0, 3.0]], "must hold real numbers"),
        (np.array([[1j]]), "complex"),
        (np.array([[0.0], [np.inf], [np.nan]]), "NaN or infinite values in rows 1, 2"),
        (np.array([[1e-320, 0], [0, np.longdouble("1e400")]], np.longdouble), "infinite values in row 1"),
    ],
)
def test_what_is_no_feature_is_refused(values, message):
    with pytest.raises(InputError, match=message), np.errstate(over="ignore"):
        as_features(values, "features")


@pytest.mark.parametrize("values", [[[1], [2, 3]], torch.eye(2).to_sparse(), torch.zeros(1, device="meta")])
def test_what_is_no_array_is_refused(values):
    with pytest.raises(InputError, match=r"y is .*(give a regular array|to_dense|no values)"):
        as_array(values, "y")
    assert as_array([[1], [2]], "y").shape == as_array(torch.ones(2, 1, requires_grad=True), "y").shape == (2, 1)


def test_labels_are_integers_of_any_width_and_byte_order():
    for dtype in ("i1", ">i4", "<i8", "u2"):
        assert as_labels(np.array([0, 2, 1], dtype), "labels").tolist() == [0, 2, 1]
    for wrong in ([0.0, 1.0], [True, False], ["a"], [b"a"], [None]):
        with pytest.raises(InputError, match="labels must hold integers"):
            as_labels(np.array(wrong), "labels")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.floats(-39, 39), st.booleans())
def test_ordinary_features_keep_every_bit_and_others_change_by_a_power_of_two(exponent, negative):
    support = torch.tensor([[[1.0, 0.3], [-0.5, 0.1]]], dtype=torch.float64) * 2.0**exponent
    support = -support if negative else support
    assert moderate(support)[0] is support
    for far in (2.0**200, 2.0**-200):
        scaled, query, _ = moderate(support * far, support * far)
        assert 0.5 <= float(row_sizes(scaled).max()) <= 1
        assert torch.equal(scaled, query)
        ratio = scaled / support
        assert (ratio == ratio.flatten()[0]).all()
        assert torch.frexp(ratio.flatten()[0]).mantissa == 0.5


def test_each_task_has_its_own_factor_unless_they_share_a_base_mean():
    support = torch.tensor([[[1.0], [2.0]], [[2.0**50], [2.0**51]]])
    apart, _, _ = moderate(support)
    assert apart.flatten().tolist() == [1.0, 2.0, 0.25, 0.5]
    together, _, mean = moderate(support, base_mean=torch.tensor([2.0**49]))
    assert together.flatten().tolist() == [2.0**-52, 2.0**-51, 0.25, 0.5]
    assert mean.tolist() == [0.125]


def test_the_factor_depends_on_the_support_alone():
    support, labels = np.array([[[1e30], [2e30]]]), [[0, 1]]
    prepared = Tasks.from_support(support, labels)
    for query in ([[[1e30]]], [[[3e20]]], [[[0.0]]]):
        assert torch.equal(Tasks.from_arrays(support, labels, np.array(query)).support, prepared.support)


@pytest.mark.parametrize(
    ("support", "query", "base_mean", "message"),
    [
        ([[1.0], [1e25], [2.0]], [[1.0]], None, "labelled examples have values in row 1 that are more than"),
        ([[1.0], [2.0], [3.0]], [[1.0], [1e25]], None, "query has values in row 1 that are too large"),
        (
            [[1.0], [2.0], [3.0]],
            [[1.0]],
            [1e30],
            r"base_mean has values up to 1.0e\+30 and the labelled examples up to",
        ),
        ([[2.0], [2.0], [2.0]], [[1.0]], None, "All labelled examples have the same features"),
    ],
)
def test_magnitudes_that_do_not_go_together_are_one_sentence(support, query, base_mean, message):
    with pytest.raises(InputError, match=message):
        Tasks.from_arrays(np.array([support]), [[0, 1, 2]], np.array([query]), base_mean)


def test_queries_of_higher_precision_are_rescaled_before_they_are_rounded():
    tasks = Tasks.from_arrays(torch.tensor([[[1e38], [2e38]]]), [[0, 1]], np.array([[[1e40]]]))
    assert torch.isfinite(tasks.query).all()
    assert float(tasks.query / tasks.support[0, 0]) == pytest.approx(100)
