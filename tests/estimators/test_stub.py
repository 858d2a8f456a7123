"""Constructors are typed, and using one estimator loads no other method."""

from __future__ import annotations

import inspect

import processes
import pytest
from estimator_stub import PATH, stub
from problems import ESTIMATORS

import manyway
from manyway import METHODS, estimators

SOLVERS = {f"manyway.methods.{method.home.partition(':')[0]}" for method in METHODS.values()}


def test_the_stub_says_what_the_solvers_say():
    assert PATH.read_text(encoding="utf-8") == stub(), "write it again: python tests/estimator_stub.py"


def test_the_stub_has_every_estimator_with_its_parameters():
    text = PATH.read_text(encoding="utf-8")
    for name in estimators.METHOD_OF:
        assert f"\nclass {name}(" in text
    assert "lam: float | None = None," in text.partition("class PADDLE(")[2].partition("class ")[0]


@pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))
def test_a_solver_shows_its_parameters_in_its_own_signature(method):
    """So that editors and type checkers see them too: not by a decorator that writes a signature over **params."""
    assert not method.solver.__code__.co_flags & inspect.CO_VARKEYWORDS
    assert not hasattr(method.solver, "__signature__")


def test_every_method_has_an_estimator_and_every_estimator_is_public():
    assert sorted(estimators.METHOD_OF.values()) == sorted(METHODS)
    assert set(estimators.METHOD_OF) <= set(manyway.__all__)
    assert set(dir(estimators)) == {*estimators.METHOD_OF, "METHOD_OF", "Inference", "TransductiveClassifier"}
    for method, estimator in ESTIMATORS.items():
        assert getattr(manyway, estimator.__name__) is estimator
        assert (estimator.method, estimator.__module__) == (method, "manyway.estimators")


def test_an_estimator_that_does_not_exist_is_an_error_that_says_so():
    with pytest.raises(AttributeError, match="has no attribute 'PADLE'"):
        _ = estimators.PADLE


@pytest.mark.slow
def test_using_one_estimator_loads_no_other_methods_solver():
    fit = "SimpleShot().fit([[0.0, 1.0], [1.0, 0.0]], [0, 1]).predict([[0.0, 1.0]])"
    steps = [
        "import manyway.estimators",
        f"from manyway import SimpleShot; {fit}",
        "from manyway import PADDLE; PADDLE()",
    ]
    code = "\n".join(["import sys", *(f"{step}\nprint(*sys.modules)" for step in steps)])
    found = processes.run(code)
    assert found.returncode == 0, found.stdout
    first, second, third = (SOLVERS & set(line.split()) for line in found.stdout.splitlines())
    assert first == set()
    assert second == {"manyway.methods.simpleshot"}
    assert third - second == {"manyway.methods.paddle.solver"}
