"""Random changes of the code, and whether the tests of its folder notice them.

    python -m benchmarks.mutation FOLDER --tests TESTS ... [--number 100] [--seed 0] [--out survivors.jsonl]

A change is one of: an operator, a comparison or a constant that becomes another one, a condition that is turned round,
or a statement that is left out. Changes are drawn evenly over the places of the folder's syntax trees. Each is written
into a copy of the package, the tests run there until the first failure, and what no test notices is reported with its
place. Code that is compiled for a GPU and docstrings are left alone.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
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
        if isinstance(node, ast.Import | ast.ImportFrom | ast.AnnAssign) and not isinstance(tree, ast.FunctionDef):
            if isinstance(node, ast.AnnAssign) and node.value is not None:
                yield from places(node)
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


def noticed(change: Change, package: Path, tests: list[str]) -> bool:
    """Whether a test fails in a copy of the package with the change."""
    target = package / change.path.relative_to(ROOT / "src")
    original = target.read_text(encoding="utf-8")
    target.write_text(change.code, encoding="utf-8")
    paths = os.pathsep.join([str(package), str(ROOT / "tests"), str(ROOT)])
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            timeout=LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        target.write_text(original, encoding="utf-8")
    return done.returncode != 0


def drawn(folder: Path, number: int, seed: int) -> list[Change]:
    """Random changes of the files of a folder."""
    every = []
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        every += [(path, at) for at in range(len(list(places(tree))))]
    chosen = random.Random(seed).sample(every, min(number, len(every)))
    return [changed(path, at) for path, at in chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tests", nargs="+", required=True)
    parser.add_argument("--number", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("survivors.jsonl"))
    options = parser.parse_args()
    survivors = 0
    with tempfile.TemporaryDirectory() as home:
        package = Path(home) / "src"
        shutil.copytree(ROOT / "src", package, ignore=shutil.ignore_patterns("__pycache__"))
        for number, change in enumerate(drawn(options.folder.resolve(), options.number, options.seed), 1):
            alive = not noticed(change, package, options.tests)
            survivors += alive
            place = f"{change.path.relative_to(ROOT)}:{change.line}"
            print(f"{number} {'SURVIVES' if alive else 'noticed'} {place} {change.what}", flush=True)
            if alive:
                row = {"place": place, "change": change.what}
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(f"{options.number - survivors} of {options.number} changes were noticed.")


if __name__ == "__main__":
    main()
