"""Feature transforms at ordinary and at extreme magnitudes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from problems import make_tasks

from manyway import Tasks, solve
from manyway.core.ops import unit
from manyway.core.transforms import TRANSFORMS, level, transform

SCALES = [2.0**-100, 2.0**-60, 2.0**60, 2.0**100]  # about 1e-30 to 1e30


def scaled(tasks, factor):
    return replace(tasks, support_table=tasks.support_table * factor, query_table=tasks.query_table * factor)


def test_vectors_have_norm_one_and_zero_stays_zero():
    features = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    features[2] = 0
    expected = torch.ones(5)
    expected[2] = 0
    torch.testing.assert_close(unit(features).norm(dim=-1), expected)


@pytest.mark.parametrize("factor", SCALES)
@pytest.mark.parametrize("name", ["l2", "cl2", "range"])
def test_the_scale_of_the_features_changes_no_bit(name, factor):
    tasks = make_tasks(dtype=torch.float32)
    ours, theirs = transform(scaled(tasks, factor), name), transform(tasks, name)
    assert torch.equal(ours.query, theirs.query)
    assert torch.equal(ours.support, theirs.support)


@pytest.mark.parametrize("factor", SCALES)
def test_ordinary_rows_keep_their_bits_beside_an_extreme_one(factor):
    features = torch.randn(6, 9, generator=torch.Generator().manual_seed(0))
    beside = torch.cat([features, factor * features[:1]])
    assert torch.equal(unit(beside)[:-1], unit(features))
    assert torch.equal(unit(beside)[-1], unit(features)[0])


@pytest.mark.parametrize("size", [1e-38, 1e-30, 1.0, 1e30, 3e38])
def test_the_root_of_any_finite_feature_is_finite(size):
    features = torch.tensor([size, -size])
    expected = features.double().abs() ** 0.625 * features.double().sign()
    torch.testing.assert_close(level(features).double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("factor", [1e-30, 1e30])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_every_transform_stays_finite(name, factor):
    tasks = scaled(make_tasks(dtype=torch.float32), factor)
    for tasks_of_sign in (tasks, replace(tasks, support_table=tasks.support.abs(), query_table=tasks.query.abs())):
        found = transform(tasks_of_sign, name)
        assert torch.isfinite(found.query).all()
        assert torch.isfinite(found.support).all()


@pytest.mark.parametrize("factor", [1e-30, 1e30])
@pytest.mark.parametrize("method", ["simpleshot", "baseline", "laplacianshot", "paddle", "evidence"])
def test_methods_give_the_labels_of_ordinary_features(method, factor):
    tasks = make_tasks(4, n_query=20, dtype=torch.float32)
    far = scaled(tasks, factor)
    if method == "evidence":  # whose first step relies on tasks as they are made, of moderate features
        far = Tasks.from_arrays(far.support, far.support_labels, far.query)
    assert torch.equal(solve(method, far).labels, solve(method, tasks).labels)


def test_tcl2_centres_support_and_queries_on_their_common_mean():
    tasks = make_tasks(2, shots=None)
    found = transform(tasks, "tcl2")
    samples = torch.cat([tasks.support, tasks.query], 1)
    expected = torch.nn.functional.normalize(samples - samples.mean(1, keepdim=True), dim=-1)
    torch.testing.assert_close(torch.cat([found.support, found.query], 1), expected)
