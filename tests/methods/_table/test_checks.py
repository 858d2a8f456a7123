"""What goes into every method and what comes out of it: no bad parameter is used, no NaN is returned."""

from __future__ import annotations

import re
import warnings
from math import inf, nan
from typing import Literal

import numpy as np
import pytest
import torch
from problems import make_tasks

from manyway import METHODS, FeatureSet, InputError, Solution, Tasks, TaskSpec, sample_tasks, solve
from manyway.errors import ConvergenceWarning
from manyway.methods._table.checks import check_params
from manyway.methods._table.registry import Method

EVERY_METHOD = pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))


def run(method: Method, tasks: Tasks) -> Solution:
    if method.name == "ici":  # a round takes long
        return method(tasks, max_iter=1, n_components=2)
    return method(tasks, **({"max_iter": 4} if "max_iter" in method.defaults else {}))


@EVERY_METHOD
@pytest.mark.parametrize(
    "wrong",
    [nan, inf, -inf, "1", [1.0, nan, 1.0], np.float32(nan), object()],
    ids=lambda value: type(value).__name__ + (str(value) if isinstance(value, float) else ""),
)
def test_no_number_may_be_something_else(method, wrong):
    tasks = make_tasks(1)
    numbers = {
        name: value
        for name, value in method.parameters.items()
        if isinstance(value, int | float | tuple) and not isinstance(value, bool)
    }
    assert numbers or method.name == "unem"  # its numbers are in a file, which is checked when it is read
    for name in numbers:
        with pytest.raises(InputError, match=f"{name} is .*; it must be"):
            method(tasks, **{name: wrong})


@EVERY_METHOD
def test_iteration_limits_are_positive_whole_numbers(method):
    for name in [name for name in method.parameters if name.endswith("_iter")]:
        for wrong in (0, -1, 2.5, True, None):
            with pytest.raises(InputError, match=name):
                method(make_tasks(1), **{name: wrong})
        assert torch.isfinite(method(make_tasks(1), **{name: np.int64(2)}).probabilities).all()


@pytest.mark.parametrize(
    ("value", "annotation", "message"),
    [
        (nan, float | None, "x is nan; it must be a finite number or None"),
        (True, float, "x is True; it must be a finite number"),
        (1.0, int, "x is 1.0; it must be an integer"),
        (1, bool, "x is 1; it must be True or False"),
        (3, str | None, "x is 3; it must be a string or None"),
        ("c", Literal["a", "b"], "x is 'c'; it must be 'a' or 'b'"),
        ((1.0, inf), tuple[float, ...], "must be a sequence of finite numbers"),
    ],
)
def test_types_are_read_from_the_annotation(value, annotation, message):
    with pytest.raises(InputError, match=message):
        check_params("m", {"x": value}, {"x": annotation})


@pytest.mark.parametrize(
    ("name", "value"), [("logit_scale", 0.0), ("logit_scale", -1), ("lam", -0.5), ("tol", -1e-9), ("weights", (1, -1))]
)
def test_ranges_are_the_same_in_every_method(name, value):
    with pytest.raises(InputError, match=f"{name} is .*; it must (be positive|not be negative)"):
        check_params("m", {name: value}, {})


@EVERY_METHOD
def test_features_of_any_magnitude_give_the_answer_of_the_rescaled_ones(method):
    tasks = make_tasks(1, n_classes=5, n_query=12, dtype=torch.float32)
    expected = run(method, tasks).labels
    for exponent in (-37, 13, 19, 37):
        factor = 2.0 ** round(exponent * np.log2(10))  # exact, so that the answers are equal and not only close
        far = Tasks.from_arrays(tasks.support * factor, tasks.support_labels, tasks.query * factor)
        near = Tasks.from_arrays(*(far.support, far.support_labels, far.query))
        assert 0.5 <= float(near.support.abs().max()) <= 4
        found = run(method, far)
        if exponent in (-37, 37):
            assert torch.equal(found.probabilities, run(method, near).probabilities)
        if method.parameters["scale"] != "power":  # whose 1e-6 has a scale of its own, and whose roots round otherwise
            assert torch.equal(found.labels, expected)


def odd_problems():
    tasks = make_tasks(1, n_classes=4, n_query=9, shots=3, dtype=torch.float32)
    support, labels, query = tasks.support, tasks.support_labels, tasks.query
    outlier = support.clone()
    outlier[0, 2, 1] = 1e11
    yield "identical queries", support, query[:, :1].expand_as(query)
    yield "queries of zeros", support, torch.zeros_like(query)
    yield "one large value", outlier, query
    yield "a large query", support, query * torch.tensor([1e14, *[1.0] * 8]).view(1, -1, 1)
    yield "identical examples within classes", support[:, labels[0] * 3], query
    yield "two classes with the same examples", support[:, [0, 1, 2, 0, 1, 2, *range(6, 12)]], query
    yield "rows of one constant", support[..., :1].expand_as(support), query[..., :1].expand_as(query)
    yield (
        "a constant column",
        support.index_fill(2, torch.tensor([0]), 7.0),
        query.index_fill(2, torch.tensor([0]), 7.0),
    )
    yield "one feature", support[..., :1], query[..., :1]
    yield "one query", support, query[:, :1]
    yield "hardly any difference", 1 + support * 1e-7, 1 + query * 1e-7


@EVERY_METHOD
@pytest.mark.parametrize(("support", "query"), [p[1:] for p in odd_problems()], ids=[p[0] for p in odd_problems()])
def test_odd_features_give_probabilities(method, support, query):
    labels = torch.arange(4).repeat_interleave(3).unsqueeze(0)
    probabilities = run(method, Tasks.from_arrays(support, labels, query)).probabilities
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(query.shape[:2]), atol=1e-3, rtol=0)
    assert (probabilities >= 0).all()


@EVERY_METHOD
def test_a_task_of_constants_in_a_table_gives_probabilities_or_one_sentence(method):
    features = FeatureSet(torch.ones(41, 3).index_fill(0, torch.tensor([40]), 2.0), torch.arange(41) % 4)
    tasks = sample_tasks(features, TaskSpec(shots=2, k_eff=2, n_query=5), count=2)
    assert (tasks.support == 1).all()
    try:
        sums, sentence = run(method, tasks).probabilities.sum(-1), ""
    except InputError as error:
        sums, sentence = None, str(error)
    assert (sums is not None and bool((sums - 1).abs().max() < 1e-4)) or "labelled examples hardly differ" in sentence


def test_a_feature_set_of_constants_is_refused():
    features = FeatureSet(torch.ones(40, 3), torch.arange(40) % 4)
    with pytest.raises(InputError, match="All labelled examples have the same features"):
        sample_tasks(features, TaskSpec(shots=2, k_eff=2, n_query=5), count=2)


def broken(tasks: Tasks, *, share: float = 0.5) -> Solution:
    """Gives probabilities that are none in its last task."""
    probabilities = torch.full((tasks.n_tasks, tasks.n_query, tasks.n_classes), 1 / tasks.n_classes)
    probabilities[-1, -1] = share
    once = torch.ones(tasks.n_tasks, dtype=torch.int64)
    return Solution(probabilities, once, once.bool())


@pytest.mark.parametrize("share", [0.5, 0.0])
def test_probabilities_that_are_none_never_leave_a_method(share):
    method = Method("toy", "Toy", broken, "none")
    with pytest.raises(InputError, match="toy has no valid probabilities for task 2: its features or the parameters"):
        method(make_tasks(3), share=share)


def test_nan_never_leaves_a_method():
    def solver(tasks: Tasks) -> Solution:
        return Solution(torch.full((1, 7, 4), nan), torch.ones(1), torch.ones(1).bool())

    with pytest.raises(InputError, match="toy has no valid probabilities for task 0"):
        Method("toy", "Toy", solver, "none")(make_tasks(1))


@pytest.mark.parametrize("shape", [(1, 7, 4), (3, 6, 4), (3, 7, 5), (7, 4)])
def test_probabilities_of_another_shape_never_leave_a_method(shape):
    def solver(tasks: Tasks) -> Solution:
        return Solution(torch.full(shape, 1 / shape[-1]), 1, True)

    with pytest.raises(InputError, match=r"toy has returned probabilities .*queries and classes are \(3, 7, 4\)"):
        Method("toy", "Toy", solver, "none")(make_tasks(3))


def test_what_is_no_solution_never_leaves_a_method():
    with pytest.raises(InputError, match="toy has returned a Tasks; a method returns a Solution"):
        Method("toy", "Toy", lambda tasks: tasks, "none")(make_tasks(3))


@pytest.mark.parametrize(
    ("method", "params", "warns"),
    [
        ("paddle", {"max_iter": 2}, False),
        ("paddle", {"max_iter": 2, "tol": 1e-12}, True),
        ("paddle", {"max_iter": 5000, "tol": 1e-3}, False),
        ("laplacianshot", {"max_iter": 3, "tol": 0.0}, True),
        ("pt-map", {"max_iter": 1, "sinkhorn_iter": 1}, True),
        ("ici", {"max_iter": 1, "n_per_round": 1}, True),
        ("tim", {"max_iter": 2}, False),
        ("evidence", {"max_iter": 1, "tol": 1e-12}, True),
        ("simpleshot", {}, False),
    ],
)
def test_solve_warns_where_a_stopping_rule_was_not_met(method, params, warns):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solve(method, make_tasks(3, n_query=20), **params)
    messages = [str(warning.message) for warning in caught if warning.category is ConvergenceWarning]
    assert len(messages) == warns
    if warns:
        assert messages[0].startswith(f"{method} did not converge in ")
        assert re.search(r"of 3 tasks; raise max_iter( or sinkhorn_iter)?\.$", messages[0])
