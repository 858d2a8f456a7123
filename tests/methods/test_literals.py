"""Every number of the heart has a name: no other literal than 0, ±1, 2 and ½ stands in its code.

The heart is ``methods/evidence``, ``methods/calibration``, ``methods/scores`` and ``core/presence``. Numbers that
change an answer are fields of ``Schedule`` (``tests/benchmarks/test_effects.py`` counts them), or are counted here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from evidence_limits import DOUBLED

import manyway
from benchmarks.effects import n_numbers

ROOT = Path(manyway.__file__).parent
PLACES = ("methods/evidence", "methods/calibration", "methods/scores", "core/presence.py")
PLAIN = {0, 1, 2, 0.5}  # with a sign they are an expression of their own
# The defaults of public functions are described with their parameters.
PUBLIC = {"evidence", "evidence_from_likelihood"}
# Module constants that are not doubled in evidence/test_limits.py, because that would mean nothing, ...
SIZES_OF_KERNELS = {
    "methods.evidence.kernel": {
        "MAX_CLASSES",
        "MAX_PAIRS",
        "_TILE",
        "_LEAST_WIDTH",
        "_BLOCK",
        "_MOST_WARPS",
        "_WARP",
    },
    "methods.calibration.left_out_kernel": {"MAX_CLASSES", "_TILE", "_LEAST_WIDTH", "_WARPS"},
    "methods.calibration.log_sums_kernel": {"MAX_CLASSES", "_TILE", "_LEAST_WIDTH", "_WARPS"},
    "methods.calibration.representation_kernel": {
        "MAX_FEATURES",
        "_TILE",
        "_BAND",
        "_LEAST_WIDTH",
        "_WARPS",
    },
    "methods.calibration.root_kernel": {"_LEAST_SIZE", "_PART", "_HALF"},
    "methods.calibration.metric": {"_MANY_CLASSES", "_PANEL", "_WIDE_PANEL"},
    "methods.calibration.calibrating": {
        "_BLOCK_NUMBERS",
        "_ARRAYS_OF_DISTANCES",
        "_ARRAYS_OF_METRIC",
    },
    "methods.scores.solver": {"_MOST_SCORES"},
}
PARTS_OF_FORMULAS = {
    "methods.evidence.copies": {"_ROUNDING"},  # the variance of a rounded difference is h²/6
    "methods.evidence.neighbourhood": {"_ALONE"},
    "methods.evidence.solver": {"_AXES"},
    "methods.evidence.schedule": {"_AT_LEAST", "_AT_MOST"},
    "methods.evidence.rehearse": {"_SURE"},  # what is told
    "methods.calibration.representation": {"_CUBE", "_OWN_SCALES"},  # none and all of it
    "methods.calibration.tuning": {"_NESTEROV"},
    "methods.scores.kinds": {"IMPOSSIBLE"},
    "core.presence": {"DEFAULT_RATE"},  # the default of a parameter
}
# ... and those that change an answer: each counts as much as a constant of the schedule.
CHANGE_ANSWERS = {
    "methods.evidence.adapt": {"_NOTABLE_RATIO", "_NOTABLE_SQUARES"},  # when a shift is looked for
    # how much an example with missing cells may differ from its class
    "methods.evidence.complete": {"_OTHER_COLUMNS", "_LEAST_BETWEEN", "_UNKNOWN_WITHIN"},
    # how much is rehearsed
    "methods.evidence.rehearse": {
        "_MOST_BATCHES",
        "_ENOUGH_HELD",
        "_EVERY",
        "_HELD_PART",
        "_MOST_CLASSES",
        "_MOST_OF_CLASS",
    },
    "methods.calibration.metric_choice": {"_SHRINKAGES"},  # a grid
    "methods.calibration.temperature_scaling": {"_SCALE_SD", "_BIAS_SD"},  # priors of label-shift
    "methods.calibration.tuning": {
        "_FOLDS",
        "_TRIED",
        "_MOST_STEPS",
        "_SHORTER_STEP",
    },  # with another ``likelihood``
    "methods.scores.calibrate": {"_ITEMS_LIKE_A_LIST"},
    "methods.scores.constants": {"SUREST"},
    "methods.scores.several": {"_HAVING", "_NARROWEST", "_MOST_PART"},
}


def modules() -> Iterator[tuple[str, Path]]:
    """Each module of the heart, by its dotted name below the package, and its file."""
    for place in PLACES:
        path = ROOT / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            yield name, file


MODULES = dict(modules())


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf8"))


def is_kernel(node: ast.AST) -> bool:
    """Whether it is compiled for a GPU: a copy of formulas that a test compares with the plain ones."""
    return isinstance(node, ast.FunctionDef) and any(
        "jit" in ast.unparse(one) for one in node.decorator_list
    )


def literals(node: ast.AST) -> Iterator[ast.Constant]:
    """The numbers in the code below a node."""
    if is_kernel(node):
        return
    if isinstance(node, ast.FunctionDef) and node.name in PUBLIC:
        for statement in node.body:
            yield from literals(statement)
        return
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from literals(child)


def names_a_number(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign | ast.AnnAssign)


def unnamed(tree: ast.Module) -> list[str]:
    """Literals that are neither plain nor the value of a module constant or of a field of a class."""
    found = []
    for statement in tree.body:
        parts = [statement]
        if isinstance(statement, ast.ClassDef):
            parts = [*statement.body]
        for part in parts:
            if not names_a_number(part):
                found += [
                    f"line {one.lineno}: {one.value}"
                    for one in literals(part)
                    if one.value not in PLAIN
                ]
    return found


@pytest.mark.parametrize("module", MODULES)
def test_every_other_number_has_a_name(module):
    assert unnamed(tree_of(module)) == []


def numbers(module: str) -> dict[str, int]:
    """The module constants that have numbers, and how many each has that are not plain."""
    found = {}
    for node in tree_of(module).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values = [one.value for one in literals(node.value)]
            if values:
                found[node.targets[0].id] = sum(value not in PLAIN for value in values)
    return found


@pytest.mark.parametrize("module", MODULES)
def test_every_constant_of_a_module_is_tested_to_change_nothing_or_is_counted(module):
    known = {*DOUBLED.get(f"manyway.{module}", {})}
    for kind in (SIZES_OF_KERNELS, PARTS_OF_FORMULAS, CHANGE_ANSWERS):
        known |= kind.get(module, set())
    assert {*numbers(module)} - known == set()


def test_the_number_of_module_constants_that_change_an_answer_is_known():
    """Beside the fields of ``Schedule``; they must not grow unseen, and there are at most 50 of both together."""
    total = sum(numbers(module)[name] for module, names in CHANGE_ANSWERS.items() for name in names)
    assert total == 19
    assert total + n_numbers() <= 50
    page = (Path(__file__).parents[2] / "docs" / "evidence.md").read_text(encoding="utf8")
    assert f"{total + n_numbers()} numbers change an answer" in page
    assert f"{n_numbers()} are fields of `manyway.methods.evidence.schedule.Schedule`" in page


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = 3", []),
        ("def f(x): return x * 3", ["line 1: 3"]),
        ("def f(x): return -1 + 2 * x * 0.5", []),
        ("class A:\n    x: int = 7\n    def f(self): return 7", ["line 3: 7"]),
        ("@triton.jit\ndef f(x): return x + 4", []),
        ("def f(x=3): return x", ["line 1: 3"]),
        ("def evidence(x=3): return 3 * x", ["line 1: 3"]),
    ],
)
def test_a_literal_is_found_wherever_it_is(code, expected):
    assert unnamed(ast.parse(code)) == expected
