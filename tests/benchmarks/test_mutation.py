"""Random changes of code: each is one change, and the code can still be read."""

from __future__ import annotations

import ast

import pytest

from benchmarks.mutation import ROOT, changed, drawn, own_tests, places

CODE = '''def f(x, y):
    """A text."""
    z = x + 3
    if z > y:
        z -= 1
    return z
'''
EXPECTED = {
    "statement: z = x + 3 -> left out": "    pass\n    if z > y:",
    "operator: x + 3 -> x - 3": "    z = (x - 3)\n",
    "constant: 3 -> 6": "    z = x + 6\n",
    "condition: if z > y: -> if not z > y:": "    if not z > y:\n",
    "comparison: z > y -> z <= y": "    if (z <= y):\n",
    "statement: z -= 1 -> left out": "        pass\n    return z",
    "constant: 1 -> 2": "        z -= 2\n",
}


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "module.py"
    file.write_text(CODE)
    return file


def test_every_place_is_changed_once_and_nothing_else_is(path):
    found = [changed(path, number) for number in range(len(list(places(ast.parse(CODE)))))]
    assert {one.what for one in found} == set(EXPECTED)
    for one in found:
        ast.parse(one.code)
        assert EXPECTED[one.what] in one.code
        assert '"""A text."""' in one.code


def test_the_same_seed_draws_the_same_changes(path):
    assert drawn([path.parent], 3, seed=5) == drawn([path.parent], 3, seed=5)
    assert len(drawn([path.parent], 100, seed=5)) == len(EXPECTED)
    assert drawn([path], 3, seed=5) == drawn([path.parent], 3, seed=5)  # a file alone


def test_the_tests_of_a_module_have_its_name():
    evidence = ROOT / "src" / "manyway" / "methods" / "evidence"
    assert own_tests(evidence / "loop.py") == ROOT / "tests" / "methods" / "evidence" / "test_loop.py"
    assert own_tests(evidence / "kernel.py") is None


def test_limits_of_which_twice_changes_nothing_annotations_and_kernels_are_left_alone(tmp_path):
    (tmp_path / "loop.py").write_text("_AHEAD = 10\nOTHER: int | None = 3\ndef f(x: int | None) -> int | None: ...\n")
    (tmp_path / "kernel.py").write_text("_TILE = 10\n")
    assert [one.what for one in drawn([tmp_path], 9, seed=0)] == ["constant: 3 -> 6"]
