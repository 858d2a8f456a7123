"""Random changes of the code, and whether the tests of its folder notice them.

    python -m benchmarks.mutation FOLDER_OR_FILE ... --tests TESTS ... [--number 100] [--seed 0] [--from 1] [--to 100]

A change is one of: an operator, a comparison or a constant that becomes another one, a condition that is turned round,
or a statement that is left out. Changes are drawn evenly over the places of the folders' syntax trees. Each is written
into a copy of the package. The tests run there until the first failure: first those of the module's own name, then the
others, in the order in which they are given. What no test notices is reported with its place. The same seed draws the
same changes, so that a long run can be done in pieces (``--from``, ``--to``).

Left alone are docstrings, modules of kernels, which only a GPU runs, and the limits of memory and time of which a test
says that twice of them changes no answer (``tests/evidence_limits.py``): a change of these is meant to survive.

A process that has loaded the libraries, and nothing of the package, is forked for each change (Linux and macOS).
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from evidence_limits import DOUBLED

ROOT = Path(__file__).parents[1]
LIBRARIES = ("torch", "numpy", "scipy.cluster.hierarchy", "sklearn.datasets", "hypothesis", "pytest")
LONGEST = 900  # seconds that the tests may take; a change that makes them hang is noticed
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


@dataclass(frozen=True)
class Change:
    """One change of one file."""

    path: Path
    line: int
    what: str
    code: str  # the whole file after it


def places(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """What can be changed below a node, and how."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(one) for one in node.decorator_list):
            continue
        if isinstance(tree, ast.Module) and _is_limit(node):
            continue
        if isinstance(node, ast.arg) or node is getattr(tree, "returns", None):  # the type checker reads annotations
            continue
        if isinstance(node, ast.AnnAssign):
            if node.value is not None:
                yield from places(ast.Expression(node.value))
            continue
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            yield node, "operator"
        if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
            yield node, "comparison"
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield node, "constant"
        if isinstance(node, ast.If | ast.IfExp):
            yield node, "condition"
        inside = isinstance(tree, ast.FunctionDef | ast.For | ast.With | ast.If)
        if inside and isinstance(node, ast.Assign | ast.AugAssign | ast.Expr) and not _is_text(node):
            yield node, "statement"
        yield from places(node)


def _is_limit(node: ast.AST) -> bool:
    """Whether a statement of a module sets a limit, twice of which changes no answer."""
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return False
    return any(node.targets[0].id in names for names in DOUBLED.values())


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def changed(path: Path, number: int) -> Change:
    """The file with one of its places changed."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    node, what = list(places(tree))[number]
    before = ast.unparse(node).split("\n")[0]
    _apply(node, what)
    after = "left out"
    if what != "statement":
        after = ast.unparse(node).split("\n")[0]
    lines = text.split("\n")
    start = (node.lineno - 1, node.col_offset)
    end = (node.end_lineno - 1, node.end_col_offset)
    new = "pass" if what == "statement" else ast.unparse(copy.deepcopy(node))
    if what == "operator" or what == "comparison":
        new = f"({new})"
    code = _replaced(lines, start, end, new)
    return Change(path, node.lineno, f"{what}: {before} -> {after}", code)


def _apply(node: ast.AST, what: str) -> None:
    if what == "operator":
        node.op = OPERATORS[type(node.op)]()
    elif what == "comparison":
        node.ops[0] = COMPARISONS[type(node.ops[0])]()
    elif what == "constant":
        node.value = node.value + 1 if node.value in (0, 1) else node.value * 2
    elif what == "condition":
        node.test = ast.UnaryOp(ast.Not(), node.test)


def _replaced(lines: list[str], start: tuple[int, int], end: tuple[int, int], new: str) -> str:
    """Lines with what is between two places (row, byte) replaced."""
    head = lines[start[0]].encode()[: start[1]].decode()
    tail = lines[end[0]].encode()[end[1] :].decode()
    indent = " " * start[1]
    body = new.split("\n")
    body = [body[0], *(indent + line for line in body[1:])]
    body[0] = head + body[0]
    body[-1] += tail
    return "\n".join([*lines[: start[0]], *body, *lines[end[0] + 1 :]])


def own_tests(path: Path) -> Path | None:
    """The file of tests that has the name of a module; None where there is none."""
    module = path.relative_to(ROOT / "src" / "manyway")
    tests = ROOT / "tests" / module.parent / f"test_{module.stem}.py"
    return tests if tests.exists() else None


def noticed_by(change: Change, package: Path, tests: Sequence[str]) -> str:
    """The tests that fail in a copy of the package with the change: "module", "others" or, if none does, ""."""
    target = package / change.path.relative_to(ROOT / "src")
    original = target.read_text(encoding="utf-8")
    target.write_text(change.code, encoding="utf-8")
    own = own_tests(change.path)
    try:
        if own is not None and not _pass(package, [str(own)]):
            return "module"
        others = [*tests] if own is None else [*tests, f"--deselect={own.relative_to(ROOT)}"]
        return "" if _pass(package, others) else "others"
    finally:
        target.write_text(original, encoding="utf-8")


def _pass(package: Path, tests: Sequence[str]) -> bool:
    """Whether all tests pass in a process of their own; one that hangs does not."""
    process = multiprocessing.get_context("fork").Process(target=_run, args=(package, tests))
    process.start()
    process.join(LONGEST)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode == 0


def _run(package: Path, tests: Sequence[str]) -> None:
    """Run tests with a copy of the package, and leave with their exit code."""
    import pytest

    paths = [str(package), str(ROOT / "tests"), str(ROOT)]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # of the processes that tests start
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    sys.path[:0] = paths
    os.chdir(ROOT)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    code = pytest.main(["-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests])
    os._exit(int(code))


def drawn(folders: Sequence[Path], number: int, seed: int) -> list[Change]:
    """Random changes of the files of some folders."""
    every = []
    for folder in folders:
        paths = [folder] if folder.is_file() else sorted(folder.rglob("*.py"))
        for path in paths:
            if not path.stem.endswith("kernel"):
                tree = ast.parse(path.read_text(encoding="utf-8"))
                every += [(path, at) for at in range(len(list(places(tree))))]
    chosen = random.Random(seed).sample(every, min(number, len(every)))
    return [changed(path, at) for path, at in chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--tests", nargs="+", required=True)
    parser.add_argument("--number", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", dest="first", type=int, default=1, help="the number of the first change")
    parser.add_argument("--to", dest="last", type=int, help="the number of the last change")
    parser.add_argument("--out", type=Path, default=Path("changes.jsonl"))
    options = parser.parse_args()
    folders = [folder.resolve() for folder in options.folders]
    changes = drawn(folders, options.number, options.seed)[options.first - 1 : options.last]
    for library in LIBRARIES:
        importlib.import_module(library)
    survivors = 0
    with tempfile.TemporaryDirectory() as home:
        package = Path(home) / "src"
        shutil.copytree(ROOT / "src", package, ignore=shutil.ignore_patterns("__pycache__"))
        for number, change in enumerate(changes, options.first):
            by = noticed_by(change, package, options.tests)
            survivors += not by
            place = f"{change.path.relative_to(ROOT)}:{change.line}"
            print(f"{number} {by or 'SURVIVES'} {place} {change.what}", flush=True)
            row = {"number": number, "place": place, "change": change.what, "noticed by": by}
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(f"{len(changes) - survivors} of {len(changes)} changes were noticed.")


if __name__ == "__main__":
    main()
